//! What `prun clean` removes, and what it does not.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::{GOOD, User, exists, has};

/// A run of which `csv` was landed, `tsv` excluded, `look` changed nothing.
fn landed(user: &User) -> [PathBuf; 3] {
    let units = [
        ("csv", format!("{GOOD} echo csv > csv")),
        ("tsv", format!("{GOOD} echo tsv > tsv")),
        ("look", format!("{GOOD} mkdir target; echo x > target/x.log")),
    ];
    let units: Vec<(&str, &str)> = units.iter().map(|(id, script)| (*id, script.as_str())).collect();
    user.run("", &units);
    user.ok(&["exclude", "tsv", "-m", "no"]);
    user.ok(&["accept", "look", "-m", "nothing to change"]);
    let said = user.ok(&["integrate", "--dry-run"]);
    let tree = said.split("tree ").nth(1).unwrap().split_whitespace().next().unwrap().to_owned();
    let clones = ["csv", "tsv", "look"].map(|unit| PathBuf::from(user.ok(&["path", unit])));
    user.ok(&["integrate", "--tree", &tree]);
    clones
}

#[test]
fn c101_only_what_was_landed_goes_and_only_on_request() {
    let user = User::new();
    let [csv, tsv, look] = landed(&user);
    let said = user.ok(&["clean"]);
    has(&said, &["can go  csv/1", "can go  look/1", "stays   tsv/1", "not landed", "--discard tsv", "--yes"]);
    assert!(exists(&csv) && exists(&tsv) && exists(&look));
    // As Go leaves its module cache.
    std::fs::create_dir_all(csv.join("cache.log/deep")).unwrap();
    std::fs::write(csv.join("cache.log/deep/x"), "x").unwrap();
    for dir in ["cache.log/deep", "cache.log"] {
        std::fs::set_permissions(csv.join(dir), std::fs::Permissions::from_mode(0o555)).unwrap();
    }
    std::os::unix::fs::symlink(user.at("repo"), csv.join("link.log")).unwrap();
    let said = user.ok(&["clean", "--yes"]);
    has(&said, &["removed  csv/1", "removed  look/1", "stays   tsv/1", "freed"]);
    assert!(!exists(&csv) && exists(&tsv) && !exists(&look));
    assert_eq!(user.read("repo/README"), "hello\n");
    // What was harvested is still there, and can be taken back.
    has(&user.ok(&["diff", "csv"]), &["+csv"]);
    has(&user.ok(&["clean", "--yes", "--discard", "tsv"]), &["removed  tsv/1"]);
    has(&user.ok(&["diff", "tsv"]), &["+tsv"]);
    user.ok(&["undo"]);
    assert!(!exists(&user.at("repo/csv")));
    has(&user.ok(&["clean"]), &["nothing can be removed"]);
}

#[test]
fn c101_a_workspace_in_which_a_process_works_stays() {
    let user = User::new();
    let [csv, ..] = landed(&user);
    let mut child = std::process::Command::new("cat")
        .current_dir(&csv)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    has(&user.ok(&["clean", "--yes", "--discard", "csv"]), &["stays   csv/1", &format!("process {}", child.id())]);
    assert!(exists(&csv));
    drop(child.stdin.take());
    child.wait().unwrap();
    user.ok(&["clean", "--yes"]);
    assert!(!exists(&csv));
}

#[test]
fn what_a_killed_integrate_left_goes_once_nothing_works_in_it() {
    let user = User::new();
    let [csv, ..] = landed(&user);
    let trial = csv.ancestors().nth(4).unwrap().join("trial-a1");
    std::fs::create_dir_all(trial.join("quarantine")).unwrap();
    let mut child = std::process::Command::new("cat")
        .current_dir(trial.join("quarantine"))
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    has(&user.ok(&["clean", "--yes"]), &["stays   trial-a1", &format!("process {}", child.id())]);
    assert!(exists(&trial));
    drop(child.stdin.take());
    child.wait().unwrap();
    has(&user.ok(&["clean", "--yes"]), &["removed  trial-a1"]);
    assert!(!exists(&trial));
}

#[test]
fn c101_the_only_copy_of_a_branch_stays() {
    let user = User::new();
    let script = format!("{GOOD} git checkout -q -b side; git commit -q --allow-empty -m x; git checkout -q main");
    user.run("", &[("u", &script)]);
    has(&user.ok(&["clean"]), &["stays   u/1", "the only copy of branch side"]);
}

#[test]
fn c101_work_after_the_harvest_and_a_reader_s_notes_stay() {
    let user = User::new();
    let [csv, ..] = landed(&user);
    std::fs::write(csv.join("csv"), "by hand\n").unwrap();
    has(&user.ok(&["clean"]), &["stays   csv/1", "changed after it was harvested"]);
    let plan = format!(
        "version = 1\nrepo = \"{}\"\ndirty = \"ignore\"\n[[unit]]\nid = \"r\"\nmode = \"read\"\nexecutor = \"command\"\nprompt = \"p\"\ncommand = '''{GOOD} echo x > notes'''\n",
        user.at("repo").display()
    );
    user.write("plan.toml", &plan);
    user.ok(&["run", user.at("plan.toml").to_str().unwrap()]);
    has(&user.ok(&["clean"]), &["stays   r/1", "the only copy of notes"]);
}

#[test]
fn status_tells_what_a_run_takes_on_the_disk() {
    let user = User::new();
    user.run("", &[("u", &format!("{GOOD} echo x > x"))]);
    has(&user.ok(&["status"]), &["disk    "]);
}

/// What cannot be looked at may be the only copy of something.
#[test]
fn a_workspace_of_which_the_record_cannot_be_read_stays() {
    let user = User::new();
    let [csv, ..] = landed(&user);
    std::fs::write(csv.parent().unwrap().join("spec.json"), "{\"version\":").unwrap();
    has(&user.ok(&["clean", "--yes"]), &["stays   csv/1", "spec.json", "removed  look/1"]);
    assert!(exists(&csv));
    has(&user.ok(&["clean", "--yes", "--discard", "csv"]), &["removed  csv/1"]);
}
