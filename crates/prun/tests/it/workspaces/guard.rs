//! `guard = "mount"`: workers cannot write the user's repository, and prun never runs without where it was asked for.

use prun_engine::spec::GuardSpec;

use super::{GOOD, PRUN, User, exists, has, said};

/// A worker that tries every way into the repository that it knows of, and does its own work.
fn intruder(user: &User) -> String {
    let repo = user.at("repo").display().to_string();
    format!(
        "{GOOD} touch {repo}/intruder; touch {repo}/.git/hooks/pre-commit; rm -f {repo}/README; \
         setsid sleep 600 & echo $! > {}; echo work > work; git add work; git commit -qm work; git push {repo} HEAD:refs/heads/intruder; true",
        user.at("pid").display()
    )
}

/// Whether this machine cannot guard anything; that is said by name, and an error where nothing may be left out.
fn is_left_out(user: &User) -> bool {
    let spec = GuardSpec { read_only: vec![user.at("repo")], writable: Vec::new() };
    let Err(error) = spec.probe() else { return false };
    leave_out(&error)
}

#[expect(clippy::print_stderr, reason = "what is left out is said by name")]
fn leave_out(why: &dyn std::fmt::Display) -> bool {
    let is_required = std::env::var_os("PRUN_TEST_REQUIRE_ALL").is_some_and(|value| value == "1");
    assert!(!is_required, "the guard: {why}");
    eprintln!("LEFT OUT: the guard: {why}");
    true
}

/// What a command says that tries to write there.
fn kept_out(text: &str) -> bool {
    text.contains("Read-only file system")
}

/// Runs the plan and tells what its worker, set-up and check met.
fn guarded_run(user: &User, run: impl Fn(&str) -> (i32, String)) {
    let repo = user.at("repo").display().to_string();
    let before = user.git_dir();
    let setup = format!("guard = \"mount\"\nsetup = \"touch {repo}/setup || true\"");
    let check = format!("verify = \"touch {repo}/check || true\"\n");
    user.plan(&setup, &[("u", &intruder(user))], &check);
    let (code, told) = run(user.at("plan.toml").to_str().unwrap());
    assert_eq!(code, 0, "{told}");
    assert_eq!(user.git_dir(), before);
    assert_eq!(user.read("repo/README"), "hello\n");
    // The rungs of containment hold in another namespace, too.
    let left = user.read("pid").trim().parse().unwrap();
    assert!(prun_engine::process::stat(left).is_none_or(|stat| stat.is_dead()));
    for name in ["intruder", "setup", "check"] {
        assert!(!exists(&user.at("repo").join(name)), "{name}");
    }
}

#[test]
fn c18_a_guarded_worker_cannot_write_the_repository() {
    let user = User::new();
    if is_left_out(&user) {
        return;
    }
    guarded_run(&user, |plan| user.prun(&["run", plan]));
    let state_dir = user.ok(&["path", "u", "--state-dir"]);
    for name in ["tail", "setup.log", "verify.log"] {
        assert!(kept_out(&std::fs::read_to_string(format!("{state_dir}/{name}")).unwrap()), "{name}");
    }
    let repo = user.at("repo").display().to_string();
    for name in ["identity.json", "facts.json"] {
        let text = std::fs::read_to_string(format!("{state_dir}/{name}")).unwrap();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["read_only"], serde_json::json!([repo]), "{name}");
    }
    has(&user.ok(&["status"]), &["guard   the repository is read-only to workers"]);
    has(&user.ok(&["status", "--json"]), &["\"guard\": \"mount\""]);
    has(&user.ok(&["explain", "u"]), &["the repository was read-only to it"]);
    // What the worker did in its own clone is taken and lands as ever.
    let shown = user.ok(&["integrate", "--dry-run"]);
    let tree = shown.split("tree ").nth(1).unwrap().split_whitespace().next().unwrap().to_owned();
    user.ok(&["integrate", "--tree", &tree]);
    assert_eq!(user.read("repo/work"), "work\n");
}

/// Who is not root comes to it by a user namespace.
#[test]
fn c18_the_guard_works_for_an_ordinary_user() {
    let user = User::new();
    let (nobody, dir) = ("65534", user.at(""));
    // Where this one lies nobody else may be able to come.
    let prun = user.at("prun");
    std::fs::copy(PRUN, &prun).unwrap();
    if !user.command("chown", &["-R", &format!("{nobody}:{nobody}"), dir.to_str().unwrap()]).status().unwrap().success()
    {
        // Not root: the other test was this one.
        return;
    }
    let try_out = [
        "--reuid",
        nobody,
        "--regid",
        nobody,
        "--clear-groups",
        "unshare",
        "--user",
        "--mount",
        prun.to_str().unwrap(),
        "--version",
    ];
    let tried = user.command("setpriv", &try_out).output().unwrap();
    if !tried.status.success() {
        leave_out(&said(&tried));
        return;
    }
    guarded_run(&user, |plan| {
        let args = ["--reuid", nobody, "--regid", nobody, "--clear-groups", prun.to_str().unwrap(), "run", plan];
        let output = user.command("setpriv", &args).output().unwrap();
        (output.status.code().unwrap(), said(&output))
    });
}

#[test]
fn c18_the_check_of_a_combination_is_guarded_too() {
    let user = User::new();
    if is_left_out(&user) {
        return;
    }
    let head = format!("guard = \"mount\"\nverify = \"touch {}/check || true\"", user.at("repo").display());
    user.run(&head, &[("u", &format!("{GOOD} echo x > x"))]);
    has(&user.ok(&["integrate", "--dry-run"]), &["ready", "verify ok"]);
    assert!(!exists(&user.at("repo/check")));
}

#[test]
fn a_machine_without_the_guard_refuses_a_plan_that_asks_for_it() {
    let user = User::new();
    user.plan("guard = \"mount\"", &[("u", &format!("{GOOD} echo x > x"))], "");
    let plan = user.at("plan.toml").display().to_string();
    for verb in ["check", "run"] {
        let script = format!(
            "echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-sys_admin {PRUN} {verb} {plan}"
        );
        let output = user.command("unshare", &["--user", "--map-root-user", "sh", "-c", &script]).output().unwrap();
        let told = said(&output);
        if told.contains("unshare: ") {
            leave_out(&told);
            return;
        }
        assert_eq!(output.status.code(), Some(2), "{told}");
        has(
            &told,
            &[
                "plan.toml:3:9: `guard`: this machine does not make the repository read-only for workers: Operation not permitted",
                "hint: it takes Linux 5.12",
            ],
        );
    }

    assert_eq!(user.ok(&["runs"]), "");
}

#[test]
fn check_says_whether_the_repository_is_guarded() {
    let user = User::new();
    if is_left_out(&user) {
        return;
    }
    for (head, line) in [("", "guard off: "), ("guard = \"mount\"", "guard mount: ")] {
        user.plan(head, &[("u", GOOD)], "");
        has(&user.ok(&["check", user.at("plan.toml").to_str().unwrap()]), &[line]);
    }
}
