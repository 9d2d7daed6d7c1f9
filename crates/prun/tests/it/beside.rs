//! What is beside a run: the user's own commands at its end, a machine that stays awake, and the sandbox of the caller.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use prun_engine::home::Home;
use prun_engine::ledger::RunLock;
use prun_testkit::env::{Printed, TestEnv, read_if_there};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{PRUN, open_gate, place, start, unit, wait_for_end, wait_for_state};

/// Writes what it was told into a file of the place.
const TELL: &str = r#"echo "$PRUN_HOOK $PRUN_STATE $PRUN_SUMMARY" >> "$PRUN_TEST_MARK/told""#;

fn started(env: &TestEnv, flags: &[&str]) -> String {
    let printed = env.prun_args(&[&["run", "-d"], flags].concat());
    assert_eq!(printed.code, 0, "{printed}");
    printed.stdout.trim_end().to_owned()
}

#[test]
fn the_users_commands_run_with_nobody_watching() {
    let fails = unit("fails", "exit 3") + "retries = 0\n";
    let env = place("", &[fails, unit("waits", "await go; echo w > w.txt; result")]);
    let id = started(&env, &["--on-done", TELL, "--on-attention", TELL]);
    env.wait_until("attention was called", || !read_if_there(&env.at("told")).is_empty());
    open_gate(&env, "go");
    assert_eq!(wait_for_end(&env, &id).code, 3);
    insta::assert_snapshot!(env.normal(&read_if_there(&env.at("told"))), @r"
    on-attention running [run] 0/2 done · 1 failed · 1 running · [span] · next [n]
    on-done ended [run] 1/2 done · 1 failed · [span] · next [n]
    ");
}

#[test]
fn a_command_that_fails_is_told_by_status_and_one_of_the_configuration_counts_too() {
    let env = place("", &[unit("a", "echo a > a.txt; result")]);
    let config = "[executor.command]\nslots = 4\n[run]\non_done = \"echo oh no; exit 7\"\n";
    std::fs::write(env.at("user/config/prun/config.toml"), config).unwrap();
    let id = start(&env);
    assert_eq!(wait_for_end(&env, &id).code, 0);
    let said = env.prun(&format!("status {id}"));
    assert!(said.stdout.contains("HOOK on-done failed: exit code 7"), "{said}");
    let log = env.home().join("runs").join(&env.run_ids()[0]).join("hooks.log");
    assert_eq!(read_if_there(&log), "oh no\n");
}

#[test]
fn a_plan_cannot_name_a_command_of_the_users() {
    let env = place("on_done = \"touch owned\"", &[unit("a", "result")]);
    let refused = env.prun("run -d");
    assert_eq!(refused.code, 2, "{refused}");
    assert!(refused.stderr.contains("on_done"), "{refused}");
}

/// A fake inhibitor that says when it holds and when it lets go.
fn inhibitor(env: &mut TestEnv) {
    let script = r#"[ "$5" = cat ] || exit 0
echo "$@" > "$PRUN_TEST_MARK/awake"
cat > /dev/null
rm "$PRUN_TEST_MARK/awake""#;
    std::fs::create_dir(env.at("bin")).unwrap();
    env.script("bin/systemd-inhibit", script);
    let path = std::env::var("PATH").unwrap();
    env.set("PATH", format!("{}:{path}", env.at("bin").display()));
}

#[test]
fn the_machine_is_kept_awake_as_long_as_the_supervisor_lives() {
    let mut env = place("", &[unit("waits", "await go; echo w > w.txt; result")]);
    inhibitor(&mut env);
    let id = started(&env, &["--keep-awake"]);
    env.wait_until("the machine is kept awake", || env.at("awake").exists());
    let said = read_if_there(&env.at("awake"));
    assert!(said.starts_with("--what=sleep:idle --who=prun --mode=block"), "{said}");
    wait_for_state(&env, &id, "waits", "running");
    // However it ends.
    env.kill("__supervise");
    env.wait_until("it may sleep again", || !env.at("awake").exists());
    let resumed = env.prun(&format!("resume -d {id}"));
    assert_eq!(resumed.code, 0, "{resumed}");
    env.wait_until("the machine is kept awake again", || env.at("awake").exists());
    open_gate(&env, "go");
    assert_eq!(wait_for_end(&env, &id).code, 0);
    assert!(!env.at("awake").exists());
}

#[test]
fn a_machine_that_cannot_be_kept_awake_is_told_and_the_run_goes_on() {
    let mut env = place("", &[unit("a", "echo a > a.txt; result")]);
    let script = "echo no bus here >&2; exit 1";
    std::fs::create_dir(env.at("bin")).unwrap();
    env.script("bin/systemd-inhibit", script);
    env.set("PATH", format!("{}:{}", env.at("bin").display(), std::env::var("PATH").unwrap()));
    let said = env.prun("run --keep-awake");
    assert_eq!(said.code, 0, "{said}");
    assert!(said.stderr.contains("cannot be kept awake: systemd-inhibit says: no bus here"), "{said}");
    assert!(env.prun("status").stdout.contains("HOOK keep-awake is not possible"));
}

/// `prun` in a real bubblewrap with these flags; `None` where there is none that works.
fn in_bubblewrap(env: &TestEnv, flags: &[&str], line: &str) -> Option<Printed> {
    let works = |command: &mut Command| command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    let whole = ["--dev-bind", "/", "/", "--die-with-parent", "--unshare-pid", "--proc", "/proc"];
    if !works(env.program("bwrap").args(whole).arg("true")).is_ok_and(|status| status.success()) {
        // scripts/test names what is left out.
        let required = std::env::var_os("PRUN_TEST_REQUIRE_ALL").is_some_and(|value| value == "1");
        assert!(!required, "bubblewrap is missing, or does not work here");
        return None;
    }
    let mut command = env.program("bwrap");
    command.args(["--dev-bind", "/", "/", "--die-with-parent"]).args(flags).arg(PRUN).args(line.split(' '));
    Some(env.finish(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()))
}

#[test]
fn a_sandbox_that_would_end_the_run_forbids_the_home_or_has_no_network_is_told_before_anything_starts() {
    let env = place("", &[unit("a", "echo a > a.txt; result")]);
    let own = ["--unshare-pid", "--proc", "/proc"];
    let Some(refused) = in_bubblewrap(&env, &own, "run -d") else { return };
    insta::assert_snapshot!(refused, @r"
    exit 2
    --- stderr
    error: cannot leave a run to itself here: this is bubblewrap: all its processes end with this call
    hint: start it outside of that sandbox, or without -d and wait for its end inside
    hint: PRUN_SANDBOX=ignore says that it is not so
    ");
    let home = env.home().to_string_lossy().into_owned();
    let refused = in_bubblewrap(&env, &["--ro-bind", &home, &home], "run -d").unwrap();
    insta::assert_snapshot!(refused, @r"
    exit 2
    --- stderr
    warning: prun.toml:5:6: a has no `verify`, and the plan has none either
    error: prun.toml: cannot write in [home]: Read-only file system (os error 30)
    hint: let your sandbox write there, or name another directory with PRUN_HOME
    ");
    env.write("agent.toml", "version = 1\n[[unit]]\nid = \"a\"\nprompt = \"p\"\nexecutor = \"codex\"\n");
    let refused = in_bubblewrap(&env, &["--unshare-net"], "run -d agent.toml").unwrap();
    assert_eq!(refused.code, 2, "{refused}");
    assert!(refused.stderr.contains("codex cannot reach a model: the caller's sandbox has no network"), "{refused}");
    assert_eq!(env.run_ids(), [""; 0]);
    std::fs::remove_file(env.repo().join("agent.toml")).unwrap();
    // Without -d the caller stays until the end, and no model is needed.
    let inside = in_bubblewrap(&env, &[&own[..], &["--unshare-net"]].concat(), "run").unwrap();
    assert_eq!(inside.code, 0, "{inside}");
    assert!(inside.stderr.contains("warning: this is bubblewrap: all its processes end with this call"), "{inside}");
}

#[test]
fn a_run_lives_on_when_its_viewer_is_stopped_by_ctrl_z() {
    let env = place("", &[unit("waits", "await go; echo w > w.txt; result")]);
    let viewer = env.start(&["run"]);
    env.wait_until("the run is there", || !env.run_ids().is_empty());
    let id = env.run_ids()[0].clone();
    wait_for_state(&env, &id, "waits", "running");
    let pid = Pid::from_child(&viewer);
    kill_process(pid, Signal::TSTP).unwrap();
    open_gate(&env, "go");
    env.wait_until("the run has ended", || {
        crate::support::json(&env, &format!("status {id} --json"))["state"] == "ended"
    });
    kill_process(pid, Signal::CONT).unwrap();
    let seen = env.finish(viewer);
    assert_eq!((seen.code, seen.stdout.contains("all well")), (0, true), "{seen}");
}

#[test]
fn a_third_interrupt_leaves_also_a_supervisor_that_does_not_answer() {
    let env = place("", &[unit("waits", "await go; echo w > w.txt; result")]);
    let mut viewer = env.start(&["run"]);
    env.wait_until("the run is there", || !env.run_ids().is_empty());
    let id = env.run_ids()[0].clone();
    wait_for_state(&env, &id, "waits", "running");
    let supervisor = env.doing("__supervise").remove(0);
    supervisor.signal(Signal::STOP);
    // Those that come fast may count as one.
    env.wait_until("the viewer has left", || {
        kill_process(Pid::from_child(&viewer), Signal::INT).unwrap();
        viewer.try_wait().unwrap().is_some()
    });
    let left = env.finish(viewer);
    assert_eq!(left.code, 130, "{left}");
    assert!(left.stderr.contains("prun attach"), "{left}");
    // It never heard of the wish to stop.
    supervisor.signal(Signal::CONT);
    open_gate(&env, "go");
    assert_eq!(wait_for_end(&env, &id).code, 0);
}

/// Who hears of a run's end may be there before its supervisor has left; that is no reason to refuse.
#[test]
fn undo_and_clean_wait_for_a_supervisor_that_is_about_to_leave() {
    let env = place("", &[unit("a", "echo a > a.txt; result")]);
    let id = started(&env, &[]);
    wait_for_end(&env, &id);
    let tree = crate::support::tree_shown(&env.prun(&format!("integrate {id} --dry-run")));
    assert_eq!(env.prun(&format!("integrate {id} --tree {tree}")).code, 0);
    let run = Home::at(env.home()).run(&env.run_ids()[0].parse().unwrap());
    for command in ["undo", "clean"] {
        let supervisor = RunLock::try_take(&run).unwrap().expect("nobody has it");
        let mut waits = env.start(&[command, &id]);
        let mut said = BufReader::new(waits.stderr.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert_eq!(env.normal(&line), "run [run] has ended; its supervisor is about to leave\n", "{command}");
        drop(supervisor);
        let printed = env.finish(waits);
        assert_eq!(printed.code, 0, "{command}: {printed}");
    }
    assert_eq!(env.read("a.txt"), "");
}
