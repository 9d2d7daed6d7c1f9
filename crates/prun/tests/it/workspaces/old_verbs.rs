//! The old verbs end to end: a clone, workers that are dispatched by hand, a run of what they left.

use super::{GOOD, PRUN, User, exists, has};

/// Dispatches a worker in `cwd` and returns its state dir.
fn dispatch(user: &User, unit: &str, cwd: &str, script: &str) -> String {
    user.write(&format!("{unit}.md"), "the prompt\n");
    let (prompt, result) = (user.at(&format!("{unit}.md")), user.at(&format!("{unit}.result.md")));
    let args = ["dispatch-task", "--prompt-file", prompt.to_str().unwrap(), "--result-file", result.to_str().unwrap()];
    let mut command = user.command(PRUN, &args);
    command.args(["--unit-id", unit, "--", "/bin/sh", "-c", script]).env("PRUN_SCRATCH_CWD", cwd);
    let output = command.output().unwrap();
    let line = String::from_utf8_lossy(&output.stdout).trim_end().to_owned();
    line.strip_prefix("STATE-DIR ").unwrap_or_else(|| panic!("{output:?}")).to_owned()
}

#[test]
fn a_clone_two_workers_and_an_import_lead_to_a_landing() {
    let user = User::new();
    let csv = user.ok(&["clone", "--base", "HEAD", "../work/csv"]);
    let tsv = user.ok(&["clone", "../work/tsv"]);
    assert_eq!(csv, user.at("work/csv").to_str().unwrap());
    let one = dispatch(&user, "csv", &csv, &format!("{GOOD} echo csv > csv.txt; git commit -qam x --allow-empty"));
    let two = dispatch(&user, "tsv", &tsv, &format!("{GOOD} echo tsv >> sub/a; echo log > x.log"));
    let three = dispatch(&user, "look", user.at("empty").to_str().unwrap(), GOOD);
    let run = user.ok(&["import", &one, &two, &three]);
    has(&user.ok(&["status", &run]), &["3/3"]);
    let said = user.ok(&["reconcile", &run]);
    has(&said, &["ready", "2 units go in"]);
    has(&user.ok(&["diff", &run]), &["+csv", "+tsv"]);
    has(&user.ok(&["result", &format!("{run}/csv")]), &["# csv result"]);
    assert_eq!(user.git(&["status", "--porcelain"]), "");
    let tree = user.ok(&["integrate", &run, "--dry-run"]);
    let tree = tree.split("tree ").nth(1).unwrap().split_whitespace().next().unwrap().to_owned();
    user.ok(&["integrate", &run, "--tree", &tree]);
    assert_eq!(user.read("repo/csv.txt"), "csv\n");
    assert_eq!(user.read("repo/sub/a"), "a\ntsv\n");
    // The state dirs may go: the run has its own copy.
    for dir in [one, two, three] {
        std::fs::remove_dir_all(dir).unwrap();
    }
    has(&user.ok(&["path", &format!("{run}/csv"), "--tail"]), &["units/csv/1/prun-task-"]);
}

#[test]
fn a_clone_that_git_made_is_imported_by_its_base() {
    let user = User::new();
    let dest = user.at("plain");
    user.git(&["clone", "-q", "--local", ".", dest.to_str().unwrap()]);
    let state_dir =
        dispatch(&user, "u", dest.to_str().unwrap(), &format!("{GOOD} echo x > sub/a; git add -A; rm README"));
    let (code, said) = user.prun(&["import", &state_dir]);
    assert_eq!(code, 2, "{said}");
    has(&said, &["plain", "--base"]);
    let run = user.ok(&["import", &state_dir, "--base", "HEAD"]);
    assert_eq!(user.ok(&["diff", &run, "--name-only"]), "unit u\nREADME\nsub/a");
}

/// As the old scripts leave them: no facts, only the entries of the contract.
#[test]
fn state_dirs_of_the_old_scripts_are_imported() {
    let user = User::new();
    let clone = user.ok(&["clone", "../work"]);
    let state_dir = dispatch(&user, "u-1", &clone, &format!("{GOOD} echo x > x"));
    for name in ["facts.json", "identity.json"] {
        std::fs::remove_file(format!("{state_dir}/{name}")).unwrap();
    }
    std::fs::write(format!("{state_dir}/dispatch-pid"), "4194999\n").unwrap();
    let run = user.ok(&["import", &state_dir]);
    has(&user.ok(&["reconcile", &run]), &["ready", "1 unit goes in"]);
    assert_eq!(user.ok(&["diff", &run, "--name-only"]), "unit u-1\nx");
}

#[test]
fn a_fallback_result_blocks_and_is_salvage() {
    let user = User::new();
    let clone = user.ok(&["clone", "../work"]);
    let state_dir = dispatch(&user, "u", &clone, "echo x > x");
    std::fs::remove_file(format!("{state_dir}/facts.json")).unwrap();
    std::fs::remove_file(format!("{state_dir}/identity.json")).unwrap();
    std::fs::write(format!("{state_dir}/dispatch-pid"), "4194999\n").unwrap();
    let run = user.ok(&["import", &state_dir]);
    assert_eq!(user.prun(&["reconcile", &run]).0, 5);
}

#[test]
fn what_cannot_be_imported_is_refused_and_leaves_no_run() {
    let user = User::new();
    let (one, two) = (user.ok(&["clone", "../one"]), user.ok(&["clone", "../two"]));
    user.write("repo/README", "two\n");
    user.git(&["commit", "-qam", "second"]);
    let three = user.ok(&["clone", "../three"]);
    let a = dispatch(&user, "a", &one, GOOD);
    let again = dispatch(&user, "a", &two, GOOD);
    let later = dispatch(&user, "b", &three, GOOD);
    for (dirs, part) in [
        (vec![&a, &again], "both of the unit a"),
        (vec![&a, &later], "the others were not"),
        (vec![&one], "no state dir"),
    ] {
        let args: Vec<&str> = ["import"].into_iter().chain(dirs.iter().map(|dir| dir.as_str())).collect();
        let (code, said) = user.prun(&args);
        assert_eq!(code, 2, "{said}");
        has(&said, &[part]);
    }
    assert_eq!(user.prun(&["runs"]).1.lines().filter(|line| line.contains("imported")).count(), 0);
}

/// What still works is not imported: what it does afterwards would be in no run.
#[test]
fn a_worker_that_lives_is_not_imported() {
    let user = User::new();
    let clone = user.ok(&["clone", "../one"]);
    user.write("a.md", "the prompt\n");
    let (prompt, result) = (user.at("a.md"), user.at("a.result.md"));
    let args = ["dispatch-task", "--prompt-file", prompt.to_str().unwrap(), "--result-file", result.to_str().unwrap()];
    let mut command = user.command(PRUN, &args);
    command.args(["--unit-id", "a", "--", "/bin/sh", "-c", "read -r _ < ../go; echo x > x"]);
    let go = user.at("go");
    rustix::fs::mknodat(rustix::fs::CWD, &go, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    let mut child = command.env("PRUN_SCRATCH_CWD", &clone).spawn().unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut line).unwrap();
    let state_dir = line.trim_end().strip_prefix("STATE-DIR ").unwrap();
    let (code, said) = user.prun(&["import", state_dir]);
    assert_eq!(code, 2, "{said}");
    has(&said, &["a", state_dir]);
    assert_eq!(user.prun(&["runs"]).1.lines().filter(|line| line.contains("imported")).count(), 0);
    std::fs::write(&go, "\n").unwrap();
    child.wait().unwrap();
    user.ok(&["import", state_dir]);
}

#[test]
fn c21_a_clone_never_reuses_a_place() {
    let user = User::new();
    user.ok(&["clone", "../one"]);
    user.write("one/README", "edited\n");
    let (code, said) = user.prun(&["clone", "../one"]);
    assert_eq!(code, 2, "{said}");
    has(&said, &["already there"]);
    assert_eq!(user.read("one/README"), "edited\n");
}

#[test]
fn a_clone_tells_what_it_does_not_hold() {
    let user = User::new();
    user.write("repo/README", "mine\n");
    let (code, said) = user.prun(&["clone", "../one"]);
    assert_eq!(code, 0, "{said}");
    has(&said, &["1 uncommitted file"]);
    assert!(!exists(&user.at("one/.git/hooks")));
    let remotes = user.command("git", &["-C", "../one", "remote"]).output().unwrap();
    assert!(remotes.status.success() && remotes.stdout.is_empty());
}
