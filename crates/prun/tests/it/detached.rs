//! A run that goes on without whoever started it: `run -d`, `wait`, `attach`, `stop`, `resume`, and viewers that die.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use insta::assert_snapshot;
use prun_testkit::env::{TestEnv, read_if_there};
use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::{LocalModes, tcgetattr};

use crate::support::{json, open_gate, place, start, terminal, unit, unit_of, wait_for_end, wait_for_state};

/// A unit that waits for the gate `go`, and one that does not.
fn one_waits() -> TestEnv {
    let waits = unit("waits", "await go; echo w > w.txt; result");
    place("", &[waits, unit("quick", "echo q > q.txt; result")])
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// A viewer that has shown that `unit` runs.
fn viewer(env: &TestEnv, args: &[&str], unit: &str) -> Child {
    let mut child = env.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    let wanted = format!("{unit}: running");
    let mut line = String::new();
    while !line.contains(&wanted) {
        line.clear();
        assert!(lines.read_line(&mut line).unwrap() > 0, "the viewer ended before {unit} ran");
    }
    // Somebody has to read on, or the viewer is stuck with a full pipe.
    std::thread::spawn(move || lines.read_to_end(&mut Vec::new()));
    child
}

#[test]
fn run_d_prints_the_id_alone_and_leaves_the_run_to_itself() {
    let env = one_waits();
    let began = Instant::now();
    let started = env.prun("run -d");
    let took = began.elapsed();
    assert_snapshot!(started, @r"
    exit 0
    --- stdout
    [run]
    --- stderr
    warning: prun.toml:5:6: waits, quick have no `verify`, and the plan has none either
    ok 2 units (2 write) · base bb40ac6 · command 4 slots
    ");
    assert!(took < Duration::from_secs(5), "{took:?}");
    let id = started.stdout.trim_end();
    wait_for_state(&env, id, "waits", "running");
    let timed_out = env.prun(&format!("wait {id} --timeout 1"));
    assert_snapshot!(timed_out, @r"
    exit 124
    --- stdout
    [run] 1/2 done · 1 running · [span] · next [n]
    ");
    open_gate(&env, "go");
    assert_snapshot!(env.prun(&format!("wait {id}")), @r"
    exit 0
    --- stdout
    [run] 2/2 done · [span] · next [n]
    ended, all well   prun integrate [run] --dry-run
    ");
    assert_snapshot!(env.prun("wait"), @r"
    exit 0
    --- stdout
    [run] 2/2 done · [span] · next [n]
    ended, all well   prun integrate [run] --dry-run
    --- stderr
    run [run] (waits, quick)
    ");
    env.assert_all_gone();
}

#[test]
fn wait_wakes_at_each_event_that_calls_for_action_once() {
    let fails = unit("fails", "echo before the fall; exit 3") + "retries = 0\n";
    let env = place("", &[fails, unit("waits", "await go; echo w > w.txt; result")]);
    let id = start(&env);
    let woken = env.prun(&format!("wait {id}"));
    assert_snapshot!(woken, @r"
    exit 3
    --- stdout
    [run] 0/2 done · 1 failed · 1 running · [span] · next [n]
    FAIL fails  exit code 3, attempt 1/1   prun logs [run]/fails -n 40
    ");
    let next = json(&env, &format!("wait {id} --json"))["next"].clone();
    let again = env.prun(&format!("wait {id} --since {next} --timeout 1"));
    assert_eq!(again.code, 124, "{again}");
    assert_eq!(env.prun_args(&["exclude", &format!("{id}/fails"), "-m", "not needed"]).code, 0);
    open_gate(&env, "go");
    let ended = env.prun(&format!("wait {id} --since {next}"));
    assert_snapshot!(ended, @r"
    exit 0
    --- stdout
    [run] 1/2 done · 1 failed · [span] · next [n]
    ended, all well   prun integrate [run] --dry-run
    ");
    env.assert_all_gone();
}

#[test]
fn a_second_process_can_view_the_run_and_leave() {
    let env = one_waits();
    let id = start(&env);
    let leaves = viewer(&env, &["attach", &id], "waits");
    let stays = viewer(&env, &["attach"], "waits");
    signal(&leaves, Signal::INT);
    assert_eq!(env.finish(leaves).code, 130);
    assert_eq!(unit_of(&env, &id, "waits")["state"], "running");
    open_gate(&env, "go");
    let stayed = env.finish(stays);
    assert_eq!((stayed.code, stayed.stdout.contains("all well")), (0, true), "{stayed}");
}

#[test]
fn a_viewer_that_is_killed_or_loses_its_terminal_changes_nothing() {
    for how in [Signal::KILL, Signal::HUP, Signal::TERM] {
        let env = one_waits();
        let child = viewer(&env, &["run"], "waits");
        signal(&child, how);
        env.finish(child);
        let id = env.run_ids()[0].clone();
        assert_eq!(json(&env, &format!("status {id} --json"))["state"], "running", "{how:?}");
        open_gate(&env, "go");
        assert_eq!(wait_for_end(&env, &id).code, 0, "{how:?}");
    }
}

/// Ctrl-Z gives the terminal back as it was; after `fg` single keys count again, and the run knows nothing of it.
#[test]
fn ctrl_z_gives_the_terminal_back_and_fg_takes_it_again() {
    let env = one_waits();
    let (ours, side) = terminal();
    let mut command = env.program("setsid");
    command.args(["--ctty", crate::support::PRUN, "run"]).env("TERM", "xterm");
    let handle = || Stdio::from(side.try_clone().unwrap());
    let mut child = command.stdin(handle()).stdout(handle()).stderr(handle()).spawn().unwrap();
    drop(command);
    let mut screen = std::fs::File::from(ours.try_clone().unwrap());
    // It ends with an error once nobody has the other side open.
    std::thread::spawn(move || screen.read_to_end(&mut Vec::new()));
    let has_lines = || tcgetattr(&side).unwrap().local_modes.contains(LocalModes::ICANON);
    let id = || env.run_ids().first().cloned();
    env.wait_until("the run is there", || id().is_some());
    wait_for_state(&env, &id().unwrap(), "waits", "running");
    env.wait_until("single keys", || !has_lines());
    for _ in 0..2 {
        signal(&child, Signal::TSTP);
        let is_stopped = || prun_engine::process::stat(child.id()).is_some_and(|stat| stat.state == b'T');
        env.wait_until("the viewer to stop", is_stopped);
        assert!(has_lines(), "the shell has to read lines");
        signal(&child, Signal::CONT);
        env.wait_until("single keys again", || !has_lines());
    }
    rustix::io::write(&ours, b"d").unwrap();
    env.wait_until("the viewer to leave", || child.try_wait().unwrap().is_some());
    assert!(has_lines());
    assert_eq!(json(&env, &format!("status {} --json", id().unwrap()))["state"], "running");
    open_gate(&env, "go");
    assert_eq!(wait_for_end(&env, &id().unwrap()).code, 0);
}

/// C37.
#[test]
fn nobody_reading_stdout_or_stderr_changes_nothing() {
    let env = one_waits();
    open_gate(&env, "go");
    let mut child = env.start(&["run"]);
    drop((child.stdout.take(), child.stderr.take()));
    let code = child.wait().unwrap().code();
    assert_eq!(code, Some(0));
    let id = env.run_ids()[0].clone();
    assert_eq!(wait_for_end(&env, &id).code, 0);
    assert_eq!(json(&env, &format!("status {id} --json"))["counts"]["succeeded"], 2);
}

/// C52.
#[test]
fn one_interrupt_stops_the_run_and_keeps_what_was_done() {
    let env = place("", &[unit("waits", "echo half > half.txt; await never")]);
    let child = viewer(&env, &["run"], "waits");
    env.wait_until("the worker has begun", || env.attempt("waits", 1).join("clone/half.txt").exists());
    signal(&child, Signal::INT);
    let stopped = env.finish(child);
    assert_eq!(stopped.code, 4, "{stopped}");
    assert_snapshot!(env.normal(&stopped.stdout), @r"
    [run] 0/1 done · 1 failed · stopped · [span] · next [n]
    STOPPED waits  stopped with the run, attempt 1/2   prun logs [run]/waits -n 40
    ");
    env.assert_all_gone();
    assert_eq!(env.prun("diff waits --name-only").stdout, "half.txt\n");
}

/// C52.
#[test]
fn a_second_interrupt_ends_workers_that_do_not_listen() {
    let env = place("", &[unit("deaf", "trap '' TERM INT; echo > up.txt; while :; do sleep 0.1; done")]);
    let child = viewer(&env, &["run"], "deaf");
    env.wait_until("the worker is deaf", || env.attempt("deaf", 1).join("clone/up.txt").exists());
    signal(&child, Signal::INT);
    let id = env.run_ids()[0].clone();
    env.wait_until("it is being stopped", || unit_of(&env, &id, "deaf")["state"] != "running");
    signal(&child, Signal::INT);
    let stopped = env.finish(child);
    assert_eq!(stopped.code, 4, "{stopped}");
    env.assert_all_gone();
}

#[test]
fn the_same_plan_is_not_started_twice_by_accident() {
    let env = one_waits();
    let id = start(&env);
    assert_snapshot!(env.prun("run -d"), @r"
    exit 2
    --- stderr
    warning: prun.toml:5:6: waits, quick have no `verify`, and the plan has none either
    error: run [run] of the same plan is under way in this repository
    hint: `prun attach [run]` shows it; --again starts another
    ");
    assert_eq!(env.run_ids().len(), 1);
    let other = env.prun("run -d --again");
    assert_eq!(other.code, 0, "{other}");
    assert_eq!(env.run_ids().len(), 2);
    // Two runs could be meant now.
    assert_snapshot!(env.prun("stop"), @r"
    exit 2
    --- stderr
    error: 2 runs could be meant: [run], [run2]
    hint: name the run
    ");
    open_gate(&env, "go");
    assert_eq!(env.prun(&format!("wait {id}")).code, 0);
    assert_eq!(wait_for_end(&env, other.stdout.trim_end()).code, 0);
    // Nothing is under way any more.
    let third = env.prun("run");
    assert_eq!(third.code, 0, "{third}");
}

#[test]
fn a_unit_is_stopped_and_the_others_go_on() {
    let env = one_waits();
    let id = start(&env);
    wait_for_state(&env, &id, "waits", "running");
    assert_snapshot!(env.prun("stop waits"), @r"
    exit 0
    --- stderr
    run [run] (waits, quick)
    waits is being stopped
    ");
    assert_snapshot!(wait_for_end(&env, &id), @r"
    exit 3
    --- stdout
    [run] 1/2 done · 1 failed · [span] · next [n]
    STOPPED waits  stopped by the user, attempt 1/2   prun logs [run]/waits -n 40
    ");
    assert_snapshot!(env.prun(&format!("stop {id}/waits")), @r"
    exit 2
    --- stderr
    error: waits is settled already: stopped(user)
    ");
    assert_eq!(unit_of(&env, &id, "quick")["outcome"], "succeeded");
}

#[test]
fn a_stopped_run_goes_on_where_it_was() {
    let script = "echo $PRUN_ATTEMPT >> attempts.txt; await go; result done attempts.txt";
    let env = place("jobs = 1", &[unit("first", script), unit("second", "echo s > s.txt; result")]);
    let id = start(&env);
    env.wait_until("the worker has begun", || env.attempt("first", 1).join("clone/attempts.txt").exists());
    assert_snapshot!(env.prun(&format!("stop {id}")), @r"
    exit 0
    --- stderr
    stopping 2 units
    ");
    assert_snapshot!(wait_for_end(&env, &id), @r"
    exit 4
    --- stdout
    [run] 0/2 done · 2 failed · stopped · [span] · next [n]
    STOPPED first  stopped with the run, attempt 1/2   prun logs [run]/first -n 40
    STOPPED second  stopped while it waited   prun retry [run]/second
    ");
    assert_eq!(json(&env, "status --json")["state"], "cancelled");
    assert_eq!(env.prun("reconcile").code, 5);
    open_gate(&env, "go");
    let resumed = env.prun(&format!("resume {id}"));
    assert_eq!(resumed.code, 0, "{resumed}");
    env.assert_all_gone();
    let clone = env.at("home").join(env.prun("path first").stdout.trim_end());
    assert_eq!(read_if_there(&clone.join("attempts.txt")), "1\n2\n", "in the same workspace");
    assert_eq!(unit_of(&env, &id, "second")["attempt"], 1);
    assert_snapshot!(env.prun(&format!("resume {id}")), @r"
    exit 2
    --- stderr
    error: run [run] has ended; nothing is left to resume
    hint: `prun retry [run]/UNIT` tries a unit again
    ");
}

#[test]
fn a_run_that_is_under_way_is_not_resumed_nor_landed() {
    let env = one_waits();
    let id = start(&env);
    wait_for_state(&env, &id, "waits", "running");
    wait_for_state(&env, &id, "quick", "settled");
    assert_snapshot!(env.prun("resume"), @r"
    exit 2
    --- stderr
    run [run] (waits, quick)
    error: run [run] is under way
    hint: `prun attach [run]` shows it
    ");
    let before = env.tree("repo");
    assert_snapshot!(env.prun("integrate"), @r"
    exit 5
    --- stderr
    run [run] (waits, quick)
    error: run [run] is under way; nothing was changed
    hint: wait for its end: `prun wait [run]`
    ");
    assert_snapshot!(env.prun("reconcile"), @r"
    exit 5
    --- stdout
    BLOCKS waits  it is running   wait for it, or stop it: prun stop waits
    not ready · 1 block · 1 unit goes in
    --- stderr
    run [run] (waits, quick)
    ");
    assert_snapshot!(env.prun("undo"), @r"
    exit 5
    --- stderr
    run [run] (waits, quick)
    error: run [run] is under way; nothing was changed
    hint: wait for its end: `prun wait [run]`
    ");
    assert_snapshot!(env.prun("retry waits"), @r"
    exit 2
    --- stderr
    run [run] (waits, quick)
    error: waits is running: already under way
    hint: `prun stop waits` ends it first
    ");
    assert_snapshot!(env.prun_args(&["accept", "waits", "-m", "early"]), @r"
    exit 2
    --- stderr
    run [run] (waits, quick)
    error: waits is running, not settled
    hint: wait for it, or stop it
    ");
    assert_eq!(before.changes(&env.tree("repo")), [""; 0]);
    open_gate(&env, "go");
    assert_eq!(wait_for_end(&env, &id).code, 0);
}

#[test]
fn logs_are_followed_until_the_attempt_is_settled() {
    let env = place("", &[unit("talks", "echo one; await go; echo two; echo t > t.txt; result")]);
    let id = start(&env);
    env.wait_until("it has said something", || env.prun(&format!("logs {id}/talks")).stdout == "one\n");
    let follows = env.start(&["logs", "-f", &format!("{id}/talks")]);
    open_gate(&env, "go");
    let followed = env.finish(follows);
    assert_eq!((followed.code, followed.stdout.as_str()), (0, "one\ntwo\n"), "{followed}");
    assert_eq!(env.prun("logs talks -n 1").stdout, "two\n");
}
