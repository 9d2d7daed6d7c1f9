//! What dies is picked up: each way in which an attempt can be found by the next supervisor, and what is said before.

use std::collections::BTreeMap;

use insta::assert_snapshot;
use prun_testkit::env::{TestEnv, read_if_there};

use crate::support::{json, open_gate, place, run, start, tree_shown, unit, unit_of, wait_for_end, wait_for_state};

/// Resumes to the end, and looks that nothing is left.
fn resume(env: &TestEnv, id: &str) -> prun_testkit::env::Printed {
    let resumed = env.prun(&format!("resume {id}"));
    env.assert_all_gone();
    resumed
}

/// What `explain` tells, without the times.
fn story(env: &TestEnv, unit: &str) -> String {
    let said = env.prun(&format!("explain {unit}"));
    assert_eq!(said.code, 0, "{said}");
    said.stdout.lines().map(|line| line.get(9..).unwrap_or(line)).collect::<Vec<_>>().join("\n")
}

/// Twenty units, the supervisor and two dispatchers killed in the middle: what is said, and what comes of it.
#[test]
fn twenty_units_outlive_their_supervisor_and_two_of_their_dispatchers() {
    let script = "echo \"$PRUN_UNIT $PRUN_ATTEMPT\" >> \"$PRUN_TEST_MARK/begun\"; await go; echo $PRUN_UNIT > $PRUN_UNIT.txt; result";
    let units: Vec<String> = (1..=20).map(|number| unit(&format!("u{number:02}"), script)).collect();
    let env = place("jobs = 4", &units);
    let id = start(&env);
    env.wait_until("four work", || read_if_there(&env.at("begun")).lines().count() == 4);
    env.kill("__supervise");
    let victims: Vec<_> = env.doing("__dispatch").into_iter().take(2).collect();
    victims.iter().for_each(prun_testkit::env::Process::end);
    env.wait_until("they are gone", || victims.iter().all(|victim| !victim.lives()));
    let lost = env.prun(&format!("status {id}"));
    assert!(
        lost.stdout.contains("LOST the supervisor is gone; 2 units go on; 2 units are lost   prun resume"),
        "{lost}"
    );
    let killed: Vec<String> = (1..=4)
        .map(|number| format!("u{number:02}"))
        .filter(|name| unit_of(&env, &id, name)["state"] == "lost")
        .collect();
    assert_eq!(killed.len(), 2, "{lost}");
    open_gate(&env, "go");
    let resumed = resume(&env, &id);
    assert_eq!(resumed.code, 0, "{resumed}");
    assert_snapshot!(env.normal(&resumed.stdout), @r"
    [run] 20/20 done · [span] · next [n]
    ended, all well   prun integrate [run] --dry-run
    ");
    let status = json(&env, &format!("status {id} --json"));
    for unit in status["units"].as_array().unwrap() {
        let name = unit["unit"].as_str().unwrap();
        let expected = if killed.iter().any(|killed| killed == name) { 2 } else { 1 };
        assert_eq!((unit["outcome"].as_str(), unit["attempt"].as_u64()), (Some("succeeded"), Some(expected)), "{unit}");
        let result = env.prun(&format!("result {id}/{name}"));
        assert!(result.stdout.contains(&format!("Body of {name}.")), "{result}");
    }
    let mut begun: BTreeMap<String, u32> = BTreeMap::new();
    for line in read_if_there(&env.at("begun")).lines() {
        *begun.entry(line.to_owned()).or_default() += 1;
    }
    assert_eq!((begun.len(), begun.values().max()), (22, Some(&1)), "no attempt began twice: {begun:?}");
}

#[test]
fn an_attempt_that_settled_while_nobody_looked_is_recorded() {
    let env = place("", &[unit("a", "echo a > a.txt; await go; result")]);
    let id = start(&env);
    wait_for_state(&env, &id, "a", "running");
    env.kill("__supervise");
    open_gate(&env, "go");
    env.assert_all_gone();
    let seen = unit_of(&env, &id, "a");
    assert_eq!(
        (seen["state"].as_str(), seen["why"].as_str()),
        (Some("lost"), Some("it has settled meanwhile; a resume records it"))
    );
    assert_eq!(resume(&env, &id).code, 0);
    assert_eq!(unit_of(&env, &id, "a")["attempt"], 1);
    assert_snapshot!(env.normal(&story(&env, "a")), @r"
    attempt 1 began on command: command is the unit's only executor
    its workspace was ready after [n] ms
    its dispatcher runs as process [pid]
    a new supervisor did not know yet what became of it
    its dispatcher settled it and left
    settled as succeeded: 1 file changed
    prun result [run]/a · prun diff [run]/a · prun exclude [run]/a -m WHY
    ");
}

#[test]
fn a_living_attempt_is_adopted_with_its_exit_code_its_watch_and_its_limits() {
    let fails = unit("fails", "await go; exit 3") + "retries = 0\n";
    let late = unit("late", "while :; do echo .; sleep 0.1; done") + "retries = 0\ntimeout = \"3s\"\n";
    let silent = unit("silent", "sleep 600") + "retries = 0\nidle_timeout = \"4s\"\n";
    let env = place("", &[fails, late, silent]);
    let id = start(&env);
    for name in ["fails", "late", "silent"] {
        wait_for_state(&env, &id, name, "running");
    }
    env.kill("__supervise");
    assert_eq!(env.prun(&format!("resume -d {id}")).code, 0);
    open_gate(&env, "go");
    assert_eq!(wait_for_end(&env, &id).code, 3);
    let outcome = |name: &str| unit_of(&env, &id, name)["outcome"].as_str().unwrap().to_owned();
    assert_eq!(
        ["fails", "late", "silent"].map(outcome),
        ["failed(exit-code)", "failed(hard-timeout)", "failed(idle-stall)"]
    );
    assert!(unit_of(&env, &id, "fails")["why"].as_str().unwrap().contains("exit code 3"));
    let silent = story(&env, "silent");
    assert!(silent.contains("its dispatcher lives and is watched again\nno sign of life for 2 s"), "{silent}");
}

#[test]
fn what_a_dead_dispatcher_left_is_ended_saved_and_told() {
    let script =
        "echo half a thought; echo half > half.txt; echo . > \"$PRUN_TEST_MARK/up\"; setsid sleep 600 & sleep 600";
    let env = place("", &[unit("a", script) + "retries = 0\n"]);
    let id = start(&env);
    env.wait_until("it works", || env.at("up").exists());
    env.kill("__supervise");
    env.kill("__dispatch");
    let seen = unit_of(&env, &id, "a");
    assert!(seen["why"].as_str().unwrap().starts_with("its dispatcher is dead and its worker is not"), "{seen}");
    assert_eq!(resume(&env, &id).code, 3);
    let settled = unit_of(&env, &id, "a");
    assert_eq!(
        (settled["outcome"].as_str(), settled["salvaged"].as_bool()),
        (Some("failed(dispatch-dead)"), Some(true))
    );
    assert!(env.prun("result a").stdout.contains("half a thought"));
    assert_eq!(env.prun("diff a --name-only").stdout, "half.txt\n");
}

/// **C105** A dispatcher that was killed is not listed as running for ever.
#[test]
fn a_killed_dispatcher_is_seen_at_once_by_its_own_supervisor() {
    let env = place("", &[unit("a", "echo . > \"$PRUN_TEST_MARK/up\"; sleep 600") + "retries = 0\n"]);
    let id = start(&env);
    env.wait_until("it works", || env.at("up").exists());
    env.kill("__dispatch");
    assert_eq!(wait_for_end(&env, &id).code, 3);
    assert_eq!(unit_of(&env, &id, "a")["outcome"], "failed(dispatch-dead)");
}

#[test]
fn after_the_machine_has_died_everything_begins_again_and_nothing_half_written_is_read() {
    let begins = "echo $PRUN_ATTEMPT >> \"$PRUN_TEST_MARK/$PRUN_UNIT\"; ";
    let env = place(
        "",
        &[
            unit("a", &format!("{begins} [ $PRUN_ATTEMPT = 2 ] || sleep 600; echo a > a.txt; result")),
            unit("b", &format!("{begins} [ $PRUN_ATTEMPT = 2 ] || sleep 600; echo b > b.txt; result")),
        ],
    );
    let id = start(&env);
    env.wait_until("both work", || env.at("a").exists() && env.at("b").exists());
    // The supervisor first: it would begin another attempt.
    env.kill("__supervise");
    for _ in 0..3 {
        env.processes().iter().for_each(prun_testkit::env::Process::end);
    }
    env.assert_all_gone();
    let state_dir = env.home().join("runs").join(&env.run_ids()[0]).join("units/a/1");
    let state_dir = std::fs::read_dir(state_dir).unwrap().map(|entry| entry.unwrap().path());
    let state_dir =
        state_dir.into_iter().find(|path| path.file_name().unwrap().to_string_lossy().starts_with("prun-task-"));
    // A write of the facts that the power cut in the middle.
    std::fs::write(state_dir.as_ref().unwrap().join(".prun-AbCdEf"), "{\"version\":1,\"exit\":{\"co").unwrap();
    assert_eq!(resume(&env, &id).code, 0);
    for name in ["a", "b"] {
        assert_eq!(read_if_there(&env.at(name)), "1\n2\n");
        assert_eq!(unit_of(&env, &id, name)["attempt"], 2);
    }
}

/// A power cut while a workspace was being filled: nothing had begun there, and it is made again from nothing.
#[test]
fn a_half_prepared_workspace_is_removed_and_made_again() {
    let begins = "echo . >> \"$PRUN_TEST_MARK/$PRUN_UNIT\"; ";
    let env = place("", &[unit("a", &format!("{begins} await go; echo a > a.txt; result"))]);
    let id = start(&env);
    wait_for_state(&env, &id, "a", "running");
    env.wait_until("it works", || env.at("a").exists());
    env.kill("__supervise");
    for _ in 0..3 {
        env.processes().iter().for_each(prun_testkit::env::Process::end);
    }
    env.assert_all_gone();
    let attempt = env.home().join("runs").join(&env.run_ids()[0]).join("units/a/1");
    let state_dir = std::fs::read_dir(&attempt).unwrap().map(|entry| entry.unwrap().path());
    let state_dir =
        state_dir.into_iter().find(|path| path.file_name().unwrap().as_encoded_bytes().starts_with(b"prun-task-"));
    std::fs::remove_dir_all(state_dir.unwrap()).unwrap();
    std::fs::write(attempt.join("clone/half.txt"), "half").unwrap();
    std::fs::remove_file(attempt.join("clone/.git/HEAD")).unwrap();
    open_gate(&env, "go");
    assert_eq!(resume(&env, &id).code, 0);
    assert_eq!(unit_of(&env, &id, "a")["outcome"], "succeeded");
    let diff = env.prun(&format!("diff {id}/a"));
    assert!(diff.stdout.contains("a.txt") && !diff.stdout.contains("half"), "{diff}");
    assert!(!attempt.join("clone/half.txt").exists());
    assert_eq!(read_if_there(&env.at("a")), ".\n.\n");
}

/// A lock file that names a process which lives, but is not the one that wrote it.
#[test]
fn a_recycled_process_number_neither_keeps_a_run_nor_gives_it_twice() {
    let env = place("", &[unit("a", "echo a > a.txt; await go; result")]);
    let id = start(&env);
    wait_for_state(&env, &id, "a", "running");
    env.kill("__supervise");
    let lock = env.home().join("runs").join(&env.run_ids()[0]).join("supervisor.lock");
    let own = serde_json::to_string(&prun_engine::process::own_identity()).unwrap();
    std::fs::write(&lock, own).unwrap();
    assert_eq!(json(&env, &format!("status {id} --json"))["state"], "supervisor-lost");
    assert_eq!(env.prun(&format!("resume -d {id}")).code, 0);
    let second = env.prun(&format!("resume -d {id}"));
    assert_eq!(second.code, 2, "{second}");
    // Nor does one that is started past every question.
    let direct = env.prun(&format!("__supervise {}", env.run_ids()[0]));
    assert_eq!(direct.code, 2, "{direct}");
    assert_eq!(env.doing("__supervise").len(), 1);
    open_gate(&env, "go");
    assert_eq!(wait_for_end(&env, &id).code, 0);
}

#[test]
fn every_command_that_meets_a_dead_supervisor_says_so_and_what_to_do() {
    let env = place("", &[unit("a", "await go; echo a > a.txt; result"), unit("b", "echo b > b.txt; result")]);
    let id = start(&env);
    wait_for_state(&env, &id, "a", "running");
    wait_for_state(&env, &id, "b", "settled");
    env.kill("__supervise");
    let way_out = format!("prun resume {id}");
    let mut silent = Vec::new();
    for line in [
        "status ID",
        "wait ID",
        "attach ID",
        "stop ID",
        "stop ID/a",
        "explain ID/a",
        "reconcile ID",
        "integrate ID",
        "submit ID/a",
        "retry ID/a",
        "logs ID/a",
        "runs",
    ] {
        let said = env.prun(&line.replace("ID", &id));
        if !said.stdout.contains(&way_out) && !said.stderr.contains(&way_out) {
            silent.push(format!("{line}: {said}"));
        }
    }
    assert!(silent.is_empty(), "{}", silent.join("\n"));
    // Following ends with the dispatcher, and says so.
    let follows = env.start(&["logs", "-f", &format!("{id}/a")]);
    open_gate(&env, "go");
    let followed = env.finish(follows);
    assert!(followed.code == 3 && followed.stderr.contains(&way_out), "{followed}");
    assert_eq!(resume(&env, &id).code, 0);
}

/// **C102** Two runs of twenty units each, started together: forty results.
#[test]
fn two_runs_at_once_do_not_meet() {
    let units: Vec<String> =
        (1..=20).map(|number| unit(&format!("u{number}"), "echo $PRUN_UNIT > $PRUN_UNIT.txt; result")).collect();
    let env = place("", &units);
    let both = [env.start(&["run", "--again"]), env.start(&["run", "--again"])];
    for child in both {
        let ended = env.finish(child);
        assert_eq!(ended.code, 0, "{ended}");
    }
    assert_eq!(env.run_ids().len(), 2);
    for id in env.run_ids() {
        assert_eq!(json(&env, &format!("status {id} --json"))["counts"]["succeeded"], 20);
    }
}

/// **C104** Another attempt has a directory of its own; a unit that is under way or has landed is refused.
#[test]
fn another_attempt_is_made_only_where_it_can_be() {
    let env =
        place("", &[unit("a", "[ $PRUN_ATTEMPT = 2 ] || exit 3; await go; echo a > a.txt; result") + "retries = 0\n"]);
    let id = run(&env);
    assert_eq!(env.prun("retry a").code, 0);
    wait_for_state(&env, &id, "a", "running");
    let again = env.prun("retry a");
    assert!(again.code == 2 && again.stderr.contains("a is running: already under way"), "{again}");
    open_gate(&env, "go");
    assert_eq!(wait_for_end(&env, &id).code, 0);
    assert!(env.attempt("a", 1).join("spec.json").exists() && env.attempt("a", 2).join("spec.json").exists());
    let tree = tree_shown(&env.prun("integrate --dry-run"));
    assert_eq!(env.prun(&format!("integrate --tree {tree}")).code, 0);
    let landed = env.prun("retry a");
    assert!(landed.code == 2 && landed.stderr.contains("a has landed already"), "{landed}");
}
