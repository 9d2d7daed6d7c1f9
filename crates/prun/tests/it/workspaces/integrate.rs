//! Landing through the real binary: what is reconciled, what lands, and what stays when it is cut off.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use prun_engine::process::stat;

use super::{GOOD, PRUN, User, has};

/// Waits for a condition.
#[track_caller]
#[expect(clippy::disallowed_methods, reason = "between two looks at a condition")]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn is_gone(pid_file: &Path) -> bool {
    let text = std::fs::read_to_string(pid_file).unwrap_or_default();
    let pid = text.trim().parse().unwrap_or_else(|_| panic!("no process in {}", pid_file.display()));
    stat(pid).is_none_or(|stat| stat.is_dead())
}

/// The check ends with the command that runs it, however that ends; what left its process group ends with the next
/// command that lands or cleans.
#[test]
fn the_check_of_a_killed_integrate_ends_with_it() {
    let user = User::new();
    let marks = user.at("marks");
    std::fs::create_dir(&marks).unwrap();
    let (own, away, go) = (marks.join("own"), marks.join("away"), marks.join("go"));
    let check = format!(
        "[ ! -e {} ] || {{ setsid sh -c \"echo \\$\\$ > {}; exec sleep 600\" & echo $$ > {}; sleep 600; }}",
        go.display(),
        away.display(),
        own.display()
    );
    user.run(&format!("verify = '''{check}'''"), &[("u", &format!("{GOOD} echo x > x"))]);
    std::fs::write(&go, "").unwrap();
    let mut child = user.command(PRUN, &["integrate", "--dry-run"]).stdout(Stdio::null()).spawn().unwrap();
    until("the check to run", || own.exists() && std::fs::read(&away).is_ok_and(|text| text.ends_with(b"\n")));
    child.kill().unwrap();
    child.wait().unwrap();
    until("the check to end", || is_gone(&own));
    assert!(!is_gone(&away));
    std::fs::remove_file(&go).unwrap();
    has(&user.ok(&["clean"]), &["can go  trial-"]);
    until("its daemon to end", || is_gone(&away));
}

/// The tree that a dry run shows.
fn shown(user: &User) -> String {
    let said = user.ok(&["integrate", "--dry-run"]);
    said.split(" · tree ").nth(1).unwrap().split_whitespace().next().unwrap().to_owned()
}

/// Loose and packed objects of several commits, and uncommitted work: what is combined and landed writes objects
/// that the user's repository has already.
fn with_history(user: &User) {
    user.write("repo/f", "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n");
    for name in ["old", "back", "sub/back"] {
        user.write(&format!("repo/{name}"), "an older version\n");
    }
    user.git(&["add", "-A"]);
    user.git(&["commit", "-qm", "second"]);
    user.git(&["repack", "-qad"]);
    for name in ["old", "back", "sub/back"] {
        user.write(&format!("repo/{name}"), "a newer version\n");
    }
    user.write("repo/gone", "to be deleted\n");
    user.git(&["add", "-A"]);
    user.git(&["commit", "-qm", "third"]);
    user.write("repo/f", "1\n2\n3\n4\n5\n6\n7\n8\n9\nmine\n");
    user.write("repo/staged", "staged\n");
    user.git(&["add", "staged"]);
    user.write("repo/untracked", "untracked\n");
    // What they were before: objects of the user's, packed and loose.
    for name in ["back", "sub/back"] {
        user.write(&format!("repo/{name}"), "an older version\n");
    }
    user.write("repo/f2", "loose\n");
    user.git(&["hash-object", "-w", "f2"]);
}

/// Nothing in `.git` changes, not even the time of an object that git would write again: from the first look to
/// the last clean-up, landing and taking back in between.
#[test]
fn the_whole_walk_leaves_the_git_directory_as_it_was() {
    for dirty in ["include", "ignore"] {
        let user = User::new();
        with_history(&user);
        // What is changed from now on has another time.
        let before = user.git_dir();
        let (a, b) = (
            format!("{GOOD} echo 'an older version' > old; sed -i s/^1$/one/ f; rm gone; git add -A; git commit -qm x"),
            format!("{GOOD} sed -i s/^5$/five/ f; cp README copy; chmod +x README; ln -s README link"),
        );
        let same = |what: &str| {
            let now = user.git_dir();
            let differs: Vec<_> = now.iter().filter(|(path, text)| before.get(*path) != Some(*text)).collect();
            assert!(differs.is_empty() && now.len() == before.len(), "{dirty} {what}: {differs:#?}");
        };
        let (code, told) =
            user.run(&format!("dirty = \"{dirty}\"\nverify = \"git status && git log\""), &[("a", &a), ("b", &b)]);
        assert_eq!(code, 0, "{told}");
        same("run");
        for looks in [&["check", user.at("plan.toml").to_str().unwrap()][..], &["status"], &["diff"], &["reconcile"]] {
            user.ok(looks);
            same(looks[0]);
        }
        let tree = shown(&user);
        same("dry run");
        user.ok(&["integrate", "--tree", &tree]);
        same("integrate");
        assert_eq!(user.read("repo/old"), "an older version\n");
        assert_eq!(user.read("repo/f"), "one\n2\n3\n4\nfive\n6\n7\n8\n9\nmine\n");
        user.ok(&["undo"]);
        same("undo");
        user.ok(&["clean", "--yes", "--discard", "a", "--discard", "b"]);
        same("clean");
        assert_eq!(user.read("repo/f"), "1\n2\n3\n4\n5\n6\n7\n8\n9\nmine\n");
    }
}

/// The home of prun, and so every workspace, on another file system than the repository: no link and no rename leads
/// from one to the other.
#[test]
fn workspaces_may_be_on_another_file_system_than_the_repository() {
    let user = User::new();
    with_history(&user);
    let other = tempfile::tempdir_in("/dev/shm").unwrap();
    let device = |path: &Path| std::fs::metadata(path).unwrap().dev();
    if device(other.path()) == device(&user.at("repo")) {
        let is_required = std::env::var_os("PRUN_TEST_REQUIRE_ALL").is_some_and(|value| value == "1");
        assert!(!is_required, "the tests' directory and /dev/shm are one file system");
        return eprintln!("LEFT OUT: workspaces on another file system: /dev/shm is the one that the tests run on");
    }
    std::fs::remove_dir(user.at("home")).unwrap();
    std::os::unix::fs::symlink(other.path(), user.at("home")).unwrap();
    let before = user.git_dir();
    let (a, b) = (
        format!("{GOOD} sed -i s/^1$/one/ f; rm gone; mkdir new; echo x > new/x"),
        format!("{GOOD} sed -i s/^5$/five/ f; chmod +x README; ln -s README link"),
    );
    let (code, told) = user.run("dirty = \"include\"\nverify = \"test -e new/x\"", &[("a", &a), ("b", &b)]);
    assert_eq!(code, 0, "{told}");
    let tree = shown(&user);
    user.ok(&["integrate", "--tree", &tree]);
    assert_eq!(user.read("repo/f"), "one\n2\n3\n4\nfive\n6\n7\n8\n9\nmine\n");
    assert!(!user.at("repo/gone").exists() && user.at("repo/link").is_symlink());
    user.ok(&["undo"]);
    assert!(user.at("repo/gone").exists() && !user.at("repo/new").exists());
    assert!(user.git_dir() == before, "the git directory changed");
}

/// A set-up and a check that hang are ended at limits of their own, and the log says so.
#[test]
fn a_setup_and_a_check_have_limits_of_their_own() {
    let user = User::new();
    let (code, told) = user.run("setup = \"sleep 600\"\nsetup_limit = \"200ms\"", &[("u", GOOD)]);
    assert_eq!(code, 3, "{told}");
    has(&user.ok(&["explain", "u"]), &["set-up"]);
    let user = User::new();
    let script = format!("{GOOD} echo x > x");
    user.run("verify = \"if test -e x; then sleep 600; fi\"\ncheck_limit = \"200ms\"", &[("u", &script)]);
    let (code, told) = user.prun(&["integrate", "--dry-run"]);
    has(&told, &["timed out"]);
    assert_eq!((code, user.at("repo/x").exists()), (8, false));
}

/// A merge workspace is of the units as they were: once one of them is another, or is out, nothing of it lands.
#[test]
fn a_resolution_of_other_units_does_not_land() {
    let user = User::new();
    let (a, b) = (format!("{GOOD} echo a > README"), format!("{GOOD} echo b > README"));
    user.run("", &[("a", &a), ("b", &b), ("c", &format!("{GOOD} echo c > c"))]);
    let said = user.ok(&["integrate", "--resolve"]);
    let dir = said.split_whitespace().find(|word| word.starts_with('/') && Path::new(word).is_dir()).unwrap();
    std::fs::write(Path::new(dir).join("README"), "both\n").unwrap();
    user.ok(&["exclude", "c", "-m", "no"]);
    let (code, told) = user.prun(&["integrate", "--continue", "--dry-run"]);
    assert_ne!(code, 0, "{told}");
    has(&told, &["have changed since", "--abort"]);
    assert_eq!(user.read("repo/README"), "hello\n");
    user.ok(&["integrate", "--abort"]);
    assert!(!Path::new(dir).exists());
}
