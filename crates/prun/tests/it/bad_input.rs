//! Input that cannot be used: one clear error with a hint, exit 2, and nothing started or left behind.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use insta::assert_snapshot;
use prun_testkit::env::{Printed, TestEnv};

use crate::support::{PRUN, place, plan, run, unit};

/// A good unit, to stand beside the bad ones.
fn good() -> String {
    unit("good", "echo g > g.txt; result")
}

/// Runs, checks that it is refused with 2 and that neither the home nor the repository has changed.
fn refused(env: &TestEnv, args: &[&str]) -> Printed {
    let before = (env.tree("home"), env.tree("repo"), env.tree("user"), env.tree("run"));
    let printed = env.prun_args(args);
    assert_eq!(printed.code, 2, "{printed}");
    assert!(printed.stderr.contains("error: ") && printed.stderr.contains("hint: "), "{printed}");
    assert_eq!(printed.stdout, "", "{printed}");
    let after = (env.tree("home"), env.tree("repo"), env.tree("user"), env.tree("run"));
    assert_eq!(before.0.changes(&after.0), [""; 0], "the home");
    assert_eq!(before.1.changes(&after.1), [""; 0], "the repository");
    assert_eq!(before.2.changes(&after.2), [""; 0], "the user's own home");
    assert_eq!(before.3.changes(&after.3), [""; 0], "the place for sockets");
    env.assert_all_gone();
    printed
}

/// What `check` and `run` say about a plan; both the same.
fn plan_refused(env: &TestEnv, text: &str) -> String {
    env.write("prun.toml", text);
    let checked = refused(env, &["check"]);
    let ran = refused(env, &["run", "-d"]);
    assert_eq!(checked.stderr, ran.stderr);
    env.normal(&checked.stderr)
}

/// Among them C26 and C29.
#[test]
fn plans_with_mistakes_are_refused_with_line_and_column() {
    let env = TestEnv::new(PRUN);
    let with = |more: &str| plan("", &[good(), more.to_owned()]);
    let x65 = "x".repeat(65);
    let long = format!("\n[[unit]]\nid = \"{x65}\"\nprompt = \"p\"\ncommand = \"true\"\n");
    let cases = [
        ("an unknown key", plan("jbos = 2", &[good() + "retrys = 1\n"])),
        ("a dependency", with(&(unit("later", "true") + "depends_on = [\"good\"]\n"))),
        ("the same id twice", with(&unit("good", "true"))),
        ("ids that differ in case alone", with(&unit("GOOD", "true"))),
        ("an id with a slash", with(&unit("a/b", "true"))),
        ("an id with a leading dash", with(&unit("-rf", "true"))),
        ("an empty id", with(&unit("", "true"))),
        ("an id that is too long", with(&long)),
        (
            "a prompt file that is not there",
            with("\n[[unit]]\nid = \"p\"\nprompt_file = \"no/such.md\"\ncommand = \"true\"\n"),
        ),
        ("a base that does not exist", plan("base = \"no-such-branch\"", &[good()])),
        ("a base that is an option", plan("base = \"--upload-pack=x\"", &[good()])),
        ("a directory that is no repository", plan("repo = \"/\"", &[good()])),
        ("a repository that is not there", plan("repo = \"no/such\"", &[good()])),
        ("an unknown executor", with("\n[[unit]]\nid = \"x\"\nprompt = \"p\"\nexecutor = \"comand\"\n")),
        (
            "a program that is not there",
            with("\n[[unit]]\nid = \"x\"\nprompt = \"p\"\ncommand = [\"no-such-program\", \"-x\"]\n"),
        ),
        ("a client that is not installed", with("\n[[unit]]\nid = \"x\"\nprompt = \"p\"\nexecutor = \"codex\"\n")),
        ("no unit at all", "version = 1\n".to_owned()),
        ("nothing", String::new()),
    ];
    let mut env = env;
    // No client of the machine's is found.
    env.set("PATH", "/usr/bin:/bin");
    let told: Vec<String> =
        cases.iter().map(|(what, text)| format!("# {what}\n{}\n", plan_refused(&env, text))).collect();
    assert_snapshot!(told.concat(), @r#"
    # an unknown key
    error: prun.toml:2:1: unknown key `jbos`
    hint: did you mean `jobs`?
    prun.toml:15:1: unknown key `retrys`
    hint: did you mean `retries`?

    # a dependency
    error: prun.toml:27:1: `depends_on`: units are independent; use a second run
    hint: put what must come later into a plan of its own, and run it when this one is integrated

    # the same id twice
    error: prun.toml:17:6: the id `good` is taken by the unit at 5:6
    hint: give it a name of its own: it names a directory and the unit in every command

    # ids that differ in case alone
    error: prun.toml:17:6: the id `GOOD` is equal but for case to `good` at 5:6
    hint: give it a name of its own: it names a directory and the unit in every command

    # an id with a slash
    error: prun.toml:17:6: `id` the unit id "a/b" has characters outside A-Z a-z 0-9 _ -
    hint: an id is 1 to 64 of A-Z a-z 0-9 _ - and begins without a dash

    # an id with a leading dash
    error: prun.toml:17:6: `id` the unit id "-rf" starts with a dash
    hint: an id is 1 to 64 of A-Z a-z 0-9 _ - and begins without a dash

    # an empty id
    error: prun.toml:17:6: `id` is empty
    hint: an id is 1 to 64 of A-Z a-z 0-9 _ - and begins without a dash

    # an id that is too long
    error: prun.toml:17:6: `id` the unit id "xxxxxxxxxxxxxxxxxxxxxxxx"… has 65 bytes; at most 64 are allowed
    hint: an id is 1 to 64 of A-Z a-z 0-9 _ - and begins without a dash

    # a prompt file that is not there
    error: prun.toml:18:15: `prompt_file`: cannot use `no/such.md`: No such file or directory (os error 2)
    hint: paths are relative to the plan file

    # a base that does not exist
    warning: prun.toml:5:6: good has no `verify`, and the plan has none either
    error: prun.toml:2:8: "no-such-branch" names no commit in [repo]
    hint: `git log` shows what there is

    # a base that is an option
    error: prun.toml:2:8: `base` is `--upload-pack=x`, which git takes for an option
    hint: a branch, a tag or a commit, such as "HEAD"

    # a directory that is no repository
    warning: prun.toml:5:6: good has no `verify`, and the plan has none either
    error: prun.toml:2:8: / is not in a git repository
    hint: name a repository with `repo`, or `git init` one

    # a repository that is not there
    warning: prun.toml:5:6: good has no `verify`, and the plan has none either
    error: prun.toml:2:8: cannot open the repository [repo]/no/such: No such file or directory (os error 2)
    hint: `repo` is relative to the plan file

    # an unknown executor
    warning: prun.toml:5:6: good, x have no `verify`, and the plan has none either
    error: prun.toml:19:12: no executor is called comand
    hint: did you mean `command`?

    # a program that is not there
    warning: prun.toml:5:6: good, x have no `verify`, and the plan has none either
    error: prun.toml:19:11: the command of x: cannot find no-such-program: it is in no directory of PATH (/usr/bin:/bin)
    hint: a program is looked for in PATH; give one of the repository by its absolute path, or use text for sh -c

    # a client that is not installed
    warning: prun.toml:5:6: good, x have no `verify`, and the plan has none either
    error: prun.toml:19:12: executor codex: cannot find codex: it is in no directory of PATH (/usr/bin:/bin) (wanted by x)
    hint: install it, or name its program in prun's config.toml

    # no unit at all
    error: prun.toml:1:1: the plan has no unit
    hint: add one: [[unit]] with id and prompt

    # nothing
    error: prun.toml:1:1: `version` is missing
    hint: begin the plan with: version = 1
    prun.toml:1:1: the plan has no unit
    hint: add one: [[unit]] with id and prompt
    "#);
}

#[test]
fn every_mistake_is_told_at_once() {
    let env = TestEnv::new(PRUN);
    let by = |id: &str, who: &str| format!("[[unit]]\nid = \"{id}\"\nprompt = \"p\"\nexecutor = \"{who}\"\n");
    let told = plan_refused(&env, &plan("base = \"nope\"", &[by("a", "nobody"), by("b", "noone")]));
    for part in ["nope", "nobody", "noone"] {
        assert!(told.contains(part), "{part}: {told}");
    }
}

#[test]
fn a_plan_that_cannot_be_read_is_named() {
    let env = TestEnv::new(PRUN);
    assert_snapshot!(refused(&env, &["run"]), @r"
    exit 2
    --- stderr
    error: prun.toml: cannot read the plan: No such file or directory (os error 2)
    hint: `prun init` writes a plan to begin with
    ");
    assert_snapshot!(refused(&env, &["check", "src"]), @r"
    exit 2
    --- stderr
    error: src: cannot read the plan: not a regular file
    hint: `prun init` writes a plan to begin with
    ");
    env.write("plan.toml", b"version = 1 # \xff\n");
    assert_snapshot!(refused(&env, &["run", "plan.toml"]), @r"
    exit 2
    --- stderr
    error: plan.toml: the plan is not UTF-8: invalid utf-8 sequence of 1 bytes from index 14
    hint: save it with the encoding UTF-8
    ");
}

#[test]
fn a_repository_is_needed_and_must_have_a_commit() {
    let env = TestEnv::without_repository(PRUN);
    env.write("prun.toml", plan("", &[good()]));
    assert_snapshot!(refused(&env, &["run"]), @r#"
    exit 2
    --- stderr
    warning: prun.toml:5:6: good has no `verify`, and the plan has none either
    error: prun.toml:5:6: good changes code, and there is no repository
    hint: start in one, name it with `repo`, or say mode = "read"
    "#);
    env.git("init -q");
    assert_snapshot!(refused(&env, &["run"]), @r"
    exit 2
    --- stderr
    warning: prun.toml:5:6: good has no `verify`, and the plan has none either
    error: prun.toml: the repository [repo] has no commits yet: make an initial commit
    hint: `git commit` once, so that there is a base
    ");
    // A unit that only reads nothing at all needs none.
    let free = TestEnv::without_repository(PRUN);
    free.write("prun.toml", plan("", &[unit("free", "result") + "mode = \"read\"\n"]));
    assert_eq!(free.prun("run").code, 0);
}

/// The changes can be shown, and nothing can land.
#[test]
fn a_bare_repository_has_no_place_to_land_in() {
    let env = TestEnv::new(PRUN);
    env.git("clone -q --bare . ../bare.git");
    env.write("prun.toml", plan("repo = \"../bare.git\"", &[good()]));
    let bare = env.tree("bare.git");
    let checked = env.prun("check");
    assert!(checked.stderr.contains("note: the repository is bare"), "{checked}");
    let id = run(&env);
    assert_eq!(env.prun(&format!("diff {id} --name-only")).stdout, "unit good\ng.txt\n");
    assert_snapshot!(refused(&env, &["integrate", &id, "--dry-run"]), @r"
    exit 2
    --- stderr
    error: [tmp]/bare.git is a bare repository: it has no work tree to land in
    hint: `prun diff [run]` shows what the units changed
    ");
    assert_eq!(bare.changes(&env.tree("bare.git")), [""; 0]);
}

#[test]
fn a_repository_that_went_away_is_told() {
    let env = place("", &[good()]);
    let id = run(&env);
    std::fs::rename(env.repo(), env.at("moved")).unwrap();
    std::fs::create_dir(env.repo()).unwrap();
    let printed = refused(&env, &["integrate", &id, "--dry-run"]);
    assert_snapshot!(printed, @r"
    exit 2
    --- stderr
    error: [repo] is not in a git repository
    hint: `prun diff [run]` shows what the units changed
    ");
}

#[test]
fn an_old_or_missing_git_is_told() {
    let mut env = place("", &[good()]);
    let old = env.script("old-git", "echo git version 2.37.4");
    env.set("PRUN_GIT", old);
    assert_snapshot!(refused(&env, &["run"]), @r#"
    exit 2
    --- stderr
    warning: prun.toml:5:6: good has no `verify`, and the plan has none either
    error: prun.toml: [tmp]/old-git says "git version 2.37.4"; git 2.38 or newer is needed
    hint: install git 2.38 or newer, or name one with PRUN_GIT
    "#);
    env.set("PRUN_GIT", "no-such-git");
    assert_snapshot!(refused(&env, &["check"]), @r"
    exit 2
    --- stderr
    warning: prun.toml:5:6: good has no `verify`, and the plan has none either
    error: prun.toml: cannot start no-such-git: No such file or directory (os error 2)
    hint: install git 2.38 or newer, or name one with PRUN_GIT
    ");
}

#[test]
fn the_home_must_be_a_place_to_write_in() {
    let mut env = place("", &[good()]);
    env.set("PRUN_HOME", "/proc/prun");
    let proc = refused(&env, &["run"]);
    assert!(proc.stderr.contains("/proc"), "{proc}");
    env.set("PRUN_HOME", env.repo().join("README.md"));
    let file = refused(&env, &["run"]);
    assert!(file.stderr.contains("README.md"), "{file}");
    env.set("PRUN_HOME", "relative/home");
    assert_snapshot!(refused(&env, &["run"]), @r"
    exit 2
    --- stderr
    error: cannot use the home relative/home: PRUN_HOME is no absolute path
    hint: set PRUN_HOME to a directory of your own on a local disk
    ");
    env.set("PRUN_HOME", "");
    env.set("XDG_STATE_HOME", "relative");
    env.set("HOME", "");
    assert_snapshot!(refused(&env, &["run"]), @r"
    exit 2
    --- stderr
    error: cannot tell where prun's home is: none of PRUN_HOME, XDG_STATE_HOME and HOME is an absolute path
    hint: set PRUN_HOME to a directory of your own on a local disk
    ");
}

/// Root may write anywhere, so that a read-only file system is needed to see it.
#[test]
fn a_read_only_home_is_refused() {
    let env = place("", &[good()]);
    let home = env.home();
    std::fs::set_permissions(&home, std::fs::Permissions::from_mode(0o555)).unwrap();
    if rustix::process::geteuid().is_root() {
        let Some(printed) = in_mount(&env, "-t tmpfs -o ro none", "run") else { return };
        assert!(printed.contains("cannot write in") && printed.contains("hint: "), "{printed}");
        return;
    }
    let printed = env.prun("run");
    assert_eq!(printed.code, 2, "{printed}");
    assert!(printed.stderr.contains("cannot write in") && printed.stderr.contains("hint: "), "{printed}");
}

#[test]
fn a_full_disk_is_told_before_anything_starts() {
    let env = place("", &[good()]);
    let Some(printed) = in_mount(&env, "-t tmpfs -o size=1m none", "run") else { return };
    assert!(printed.contains("hint: ") && printed.matches("error: ").count() == 1, "{printed}");
    assert_snapshot!(printed, @r"
    warning: prun.toml:5:6: good has no `verify`, and the plan has none either
    error: prun.toml: cannot make workspaces in [home]: [n] free, 200.0 MiB needed
    hint: make room there, or set PRUN_HOME to a directory with more
    exit 2
    ");
}

/// What prun says with another file system at its home, in a mount namespace of its own; `None` where this
/// user may not mount. The exit code and what is in the home afterwards follow.
fn in_mount(env: &TestEnv, mount: &str, line: &str) -> Option<String> {
    let script =
        format!("mount {mount} \"$PRUN_HOME\" || exit 77; {PRUN} {line} 2>&1; echo exit $?; ls -A \"$PRUN_HOME\"");
    let mut unshare: Command = env.program("unshare");
    let output = unshare.args(["--mount", "--map-root-user", "sh", "-c", &script]).output().ok()?;
    if !output.status.success() {
        assert!(std::env::var_os("PRUN_TEST_REQUIRE_ALL").is_none_or(|value| value != "1"), "cannot mount: {output:?}");
        return None;
    }
    env.assert_all_gone();
    let text = env.normal(&String::from_utf8_lossy(&output.stdout));
    assert!(text.trim_end().ends_with("exit 2"), "{text}");
    Some(text)
}

#[test]
fn a_run_whose_supervisor_cannot_start_leaves_nothing_behind() {
    let env = place("", &[good()]);
    // Anybody could put another socket there.
    std::fs::create_dir(env.at("run/prun")).unwrap();
    std::fs::set_permissions(env.at("run/prun"), std::fs::Permissions::from_mode(0o777)).unwrap();
    let printed = env.prun("run");
    assert_eq!(printed.code, 1, "{printed}");
    let place = env.at("run/prun");
    let told = format!("did not start: cannot use {}: it is not a private directory of yours", place.display());
    assert!(printed.stderr.contains(&told), "{printed}");
    assert_eq!(env.run_ids(), [""; 0]);
    assert_eq!(std::fs::read_dir(env.home().join("runs")).unwrap().count(), 0);
}

#[test]
fn prompts_on_the_command_line_are_checked_as_well() {
    let env = TestEnv::new(PRUN);
    assert_snapshot!(refused(&env, &["run", "-p", "", "--command", "true"]), @r"
    exit 2
    --- stderr
    error: -p: prompt 1 is empty
    hint: say in it what the unit is to do
    ");
    assert_snapshot!(refused(&env, &["run", "-p", "x", "--executor", "nobody"]), @r"
    exit 2
    --- stderr
    error: -p: no executor is called nobody
    hint: there are: claude, codex, command, gemini, opencode, qwen, session
    ");
    for args in
        [&["run", "--command", "true"][..], &["run", "-p", "x", "prun.toml"], &["run", "-j", "0"], &["nonsense"]]
    {
        let before = env.tree("home");
        let printed = env.prun_args(args);
        assert_eq!(printed.code, 2, "{printed}");
        assert!(printed.stderr.contains("try '--help'"), "{printed}");
        assert_eq!(before.changes(&env.tree("home")), [""; 0]);
    }
}

#[test]
fn a_worker_may_not_start_a_run() {
    let mut env = place("", &[good()]);
    env.set("PRUN_DEPTH", "1");
    assert_snapshot!(refused(&env, &["run"]), @r"
    exit 2
    --- stderr
    error: this is a worker of prun at depth 1; it may not start a run of its own
    hint: say in your result what you would have split off
    hint: the plan of the outer run can allow it: depth = 1
    ");
    env.set("PRUN_DEPTH", "0");
    assert_eq!(env.prun("run").code, 0);
}

#[test]
fn names_that_lead_nowhere_are_told() {
    let env = place("", &[good()]);
    let none = [
        "status",
        "wait",
        "stop",
        "resume",
        "integrate",
        "undo",
        "reconcile",
        "logs good",
        "result good",
        "status zzzz",
    ];
    for line in none {
        let args: Vec<&str> = line.split(' ').collect();
        refused(&env, &args);
    }
    assert_snapshot!(refused(&env, &["status"]), @r"
    exit 2
    --- stderr
    error: there is no run of [repo]
    hint: `prun run` starts one
    ");
    let id = run(&env);
    env.assert_all_gone();
    let lines =
        ["logs bad", "result nope/good", "retry bad", "path ../x", "stop bad", "diff bad", "logs good --attempt 7"];
    let told: Vec<String> = lines.iter().map(|line| format!("$ prun {line}\n{}\n", env.prun(line))).collect();
    assert_snapshot!(told.concat(), @r#"
    $ prun logs bad
    exit 2
    --- stderr
    run [run] (good)
    error: run [run] has no unit bad
    hint: its units: good

    $ prun result nope/good
    exit 2
    --- stderr
    error: no run is named "nope"
    hint: `prun runs` lists them

    $ prun retry bad
    exit 2
    --- stderr
    run [run] (good)
    error: run [run] has no unit bad
    hint: its units: good

    $ prun path ../x
    exit 2
    --- stderr
    error: no run is named ".."
    hint: `prun runs` lists them

    $ prun stop bad
    exit 2
    --- stderr
    error: no run is named "bad"
    hint: `prun runs` lists them

    $ prun diff bad
    exit 2
    --- stderr
    error: no run is named "bad"
    hint: `prun runs` lists them

    $ prun logs good --attempt 7
    exit 2
    --- stderr
    run [run] (good)
    error: good has no attempt 7
    "#);
    assert_eq!(env.prun(&format!("status {id}")).code, 0);
}
