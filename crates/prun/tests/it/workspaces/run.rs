//! What workers find in their workspaces, and what becomes of them afterwards.

use std::os::unix::fs::MetadataExt;

use super::{GOOD, User, has};

#[test]
fn c09_a_worker_starts_in_the_subdirectory_that_was_named() {
    let user = User::new();
    let script = format!("{GOOD} pwd > where; test -f a");
    user.write("plan.toml", "");
    let head = "";
    let plan = format!(
        "version = 1\nrepo = \"{}\"\n{head}\n[[unit]]\nid = \"u\"\nexecutor = \"command\"\nprompt = \"p\"\ncommand = '''{script}'''\n",
        user.at("repo/sub").display()
    );
    user.write("plan.toml", &plan);
    user.ok(&["run", user.at("plan.toml").to_str().unwrap()]);
    let clone = user.ok(&["path", "u"]);
    assert_eq!(user.ok(&["diff", "u", "--name-only"]), "sub/where");
    assert_eq!(std::fs::read_to_string(format!("{clone}/sub/where")).unwrap().trim(), format!("{clone}/sub"));
}

#[test]
fn a_set_up_that_fails_ends_the_unit_before_its_worker() {
    let user = User::new();
    let (code, said) = user.run("setup = \"echo no such package; exit 9\"", &[("u", "touch worked")]);
    assert_eq!(code, 3, "{said}");
    has(&said, &["setup"]);
    let clone = user.ok(&["path", "u"]);
    assert!(!std::path::Path::new(&clone).join("worked").exists());
    has(
        &std::fs::read_to_string(format!("{}/setup.log", user.ok(&["path", "u", "--state-dir"]))).unwrap(),
        &["no such package"],
    );
}

#[test]
fn every_unit_has_ports_and_is_set_up_once() {
    let user = User::new();
    let script = format!("{GOOD} echo \"$PRUN_PORT_BASE\" > port-$PRUN_UNIT; test -f ready.log");
    let units: Vec<(String, String)> = (0..5).map(|n| (format!("u{n}"), script.clone())).collect();
    let units: Vec<(&str, &str)> = units.iter().map(|(id, script)| (id.as_str(), script.as_str())).collect();
    let (code, said) = user.run("setup = \"echo x >> ready.log\"", &units);
    assert_eq!(code, 0, "{said}");
    let mut copied = 0;
    for n in 0..5 {
        let clone = user.ok(&["path", &format!("u{n}")]);
        assert_eq!(std::fs::read_to_string(format!("{clone}/ready.log")).unwrap(), "x\n");
        let port: u32 = std::fs::read_to_string(format!("{clone}/port-u{n}")).unwrap().trim().parse().unwrap();
        assert!(port >= 20_000 && port.is_multiple_of(10), "{port}");
        // Git writes the time of the moment; a copy has a whole second.
        let time = std::fs::metadata(format!("{clone}/README")).unwrap().mtime_nsec();
        copied += u32::from(time == 0);
    }
    assert!(copied >= 4, "{copied} clones were copied from the first one");
    assert_eq!(user.git(&["status", "--porcelain"]), "");
}

#[test]
fn a_persons_edit_is_taken_by_harvest_and_refused_by_integrate_before() {
    let user = User::new();
    let (code, said) =
        user.run("", &[("u", &format!("{GOOD} echo unit >> README")), ("v", &format!("{GOOD} echo v > v"))]);
    assert_eq!(code, 0, "{said}");
    let clone = user.ok(&["path", "u"]);
    std::fs::write(format!("{clone}/README"), "by hand\n").unwrap();
    std::fs::write(format!("{clone}/new"), "by hand\n").unwrap();
    let (code, said) = user.prun(&["integrate", "--dry-run"]);
    assert_eq!(code, 5, "{said}");
    has(&said, &["u", "its workspace changed after the harvest", "prun harvest"]);
    has(&user.ok(&["harvest", "u"]), &["2 files changed"]);
    assert_eq!(user.ok(&["diff", "u", "--name-only"]), "README\nnew");
    let said = user.ok(&["integrate", "--dry-run"]);
    has(&said, &["3 files"]);
    has(&user.ok(&["harvest", "u"]), &["as before"]);
    // A workspace that is gone changes nothing: what lands was harvested.
    std::fs::remove_dir_all(&clone).unwrap();
    user.ok(&["integrate", "--dry-run"]);
    let (code, said) = user.prun(&["harvest", "u"]);
    assert_eq!(code, 2, "{said}");
    has(&said, &["cannot harvest"]);
}

#[test]
fn an_acceptance_is_of_the_tree_that_was_seen() {
    let user = User::new();
    let (code, _) = user.run("", &[("u", "echo unit >> README")]);
    assert_eq!(code, 3);
    user.ok(&["accept", "u", "-m", "fine", "--salvaged"]);
    user.ok(&["reconcile"]);
    let clone = user.ok(&["path", "u"]);
    std::fs::write(format!("{clone}/README"), "by hand\n").unwrap();
    has(&user.ok(&["harvest", "u"]), &["prun accept"]);
    assert_eq!(user.prun(&["reconcile"]).0, 5);
}

#[test]
fn c12_what_workers_cannot_see_is_told_at_check_and_in_the_brief() {
    let user = User::new();
    user.write("repo/README", "mine\n");
    user.write("repo/new.c", "mine\n");
    let head = user.git(&["rev-parse", "HEAD"]);
    user.git(&["update-index", "--add", "--cacheinfo", &format!("160000,{head},mod")]);
    user.git(&["commit", "-q", "-m", "a submodule that is not here"]);
    std::fs::create_dir(user.at("repo/mod")).unwrap();
    let (code, said) = user.run("", &[("u", GOOD)]);
    assert_eq!(code, 2, "{said}");
    has(&said, &["README", "new.c"]);
    let (_, said) = user.run("dirty = \"ignore\"", &[("u", &format!("{GOOD} echo x > x"))]);
    has(&said, &["mod"]);
    let brief = user.ok(&["brief", "u"]);
    has(&brief, &["2 uncommitted files", "submodules that are not checked out in the user's repository: mod"]);
}

/// A worker in a scratch directory finds no repository, wherever prun's home and the temporary directory are.
#[test]
fn c19_a_scratch_inside_a_repository_is_outside_it() {
    let user = User::new();
    let outer = user.at("repo/outer");
    std::fs::create_dir_all(&outer).unwrap();
    let script =
        format!("{GOOD} touch note; ! git add -A 2>&1 && ! git -c user.name=x -c user.email=x commit -m x 2>&1");
    let plan = format!(
        "version = 1\ndirty = \"ignore\"\n[[unit]]\nid = \"r\"\nmode = \"read\"\ncheckout = false\nexecutor = \"command\"\nprompt = \"p\"\ncommand = '''{script}'''\n"
    );
    user.write("plan.toml", &plan);
    let head = user.git(&["rev-parse", "HEAD"]);
    let mut command = user.command(super::PRUN, &["run", user.at("plan.toml").to_str().unwrap()]);
    let output = command.env("PRUN_HOME", outer.join("home")).env("TMPDIR", &outer).output().unwrap();
    assert!(output.status.success(), "{}", super::said(&output));
    assert_eq!(user.git(&["rev-parse", "HEAD"]), head);
    assert_eq!(user.git(&["diff", "--cached", "--name-only"]), "");
}

#[test]
fn a_mailbox_of_every_unit_is_taken_by_git_am() {
    let user = User::new();
    let units = [("u", format!("{GOOD} echo unit >> README")), ("v", format!("{GOOD} printf '\\0\\1' > sub/bin"))];
    let units: Vec<(&str, &str)> = units.iter().map(|(id, script)| (*id, script.as_str())).collect();
    user.run("", &units);
    user.write("mbox", &(user.ok(&["diff", "--mbox"]) + "\n"));
    user.git(&["am", "-q", user.at("mbox").to_str().unwrap()]);
    assert_eq!(user.git(&["log", "--format=%s %an", "--reverse", "HEAD~2.."]), "u: done command\nv: done command");
    assert_eq!(user.read("repo/README"), "hello\nunit\n");
    assert_eq!(user.git(&["status", "--porcelain"]), "");
}
