//! The verbs of the old scripts over runs (`--run`, `--all-runs`), and runs on systems that give little.

use std::process::Stdio;

use prun_testkit::env::TestEnv;

use crate::support::{PRUN, json, open_gate, place, run, start, unit, wait_for_end, wait_for_state};

/// A unit that needs neither a clone nor a checkout.
const READ: &str = "mode = \"read\"\ncheckout = false\n";

fn lines(env: &TestEnv, line: &str) -> (i32, Vec<String>) {
    let printed = env.prun(line);
    (printed.code, printed.stdout.lines().map(str::to_owned).collect())
}

/// C57, C70: the last attempt decides; those before it are kept and listed as such.
#[test]
fn the_last_attempt_of_each_unit_decides_and_all_of_them_are_left_overs() {
    let script = "echo attempt $PRUN_ATTEMPT; test $PRUN_ATTEMPT -gt 1 || exit 7; echo a > a.txt; result";
    let env = place("", &[unit("twice", script), unit("once", "echo b > b.txt; result")]);
    let id = run(&env);

    let (code, said) = lines(&env, &format!("monitor --run {id}"));
    assert_eq!((code, said.len(), said[1].as_str()), (0, 4, "MONITOR-EVENT all-done"), "{said:?}");
    assert!(said[2..].iter().all(|line| line.starts_with("UNIT prun-task-") && line.ends_with(" done")), "{said:?}");

    let (code, said) = lines(&env, &format!("gather --run {id}"));
    assert_eq!((code, said[0].as_str()), (0, "GATHER-START count=2 timeout=3600s"));
    let results: Vec<&str> = said[1..].iter().map(|line| line.strip_prefix("DONE ").unwrap()).collect();
    assert_eq!(results.len(), 2);
    for result in results {
        assert!(result.contains("/units/twice/2/") || result.contains("/units/once/1/"), "{result}");
        assert!(std::fs::read_to_string(result).unwrap().contains("Conclusion: done"));
    }

    let report = json(&env, &format!("report-state --json --run {id}"));
    assert_eq!(report["unit_count"], 3, "{report}");
    assert!(report["units"].as_array().unwrap().iter().all(|unit| unit["result"] == "present"), "{report}");

    let (code, said) = lines(&env, &format!("reap-orphans --run {id}"));
    assert_eq!((code, said.len()), (0, 5), "{said:?}");
    assert!(said[1..4].iter().all(|line| line.starts_with("LEFT ") && line.ends_with(" worker-exited")), "{said:?}");
    assert_eq!(said[4], "REAP-DONE reaped=0 terminated=0 left=3");
    for attempt in [1, 2] {
        let state = prun_engine::state_dir::find_in(&env.attempt("twice", attempt)).unwrap();
        assert_eq!(std::fs::read_to_string(state.join("tail")).unwrap(), format!("attempt {attempt}\n"));
    }
}

#[test]
fn results_of_runs_that_go_on_are_waited_for() {
    let env = place("", &[unit("slow", "await go; echo a > a.txt; result")]);
    let id = start(&env);
    wait_for_state(&env, &id, "slow", "running");
    let waiting: Vec<_> = ["gather", "monitor"]
        .map(|verb| {
            let mut command = env.command(&[verb, "--all-runs"]);
            command.stdout(Stdio::piped()).env("PRUN_GATHER_POLL", "60").env("PRUN_MONITOR_POLL", "60");
            command.spawn().unwrap()
        })
        .into();
    open_gate(&env, "go");
    for child in waiting {
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && (said.contains("\nDONE ") || said.contains("all-done")), "{said}");
    }
    assert_eq!(wait_for_end(&env, &id).code, 0);
}

/// C30: where descriptors are few, units wait for their turn, and none is lost.
#[test]
fn a_run_of_forty_units_needs_few_descriptors() {
    let units: Vec<String> = (0..40).map(|n| unit(&format!("u{n}"), "result") + READ).collect();
    let env = place("jobs = 20\n", &units);
    let script = format!("ulimit -n 32; exec {PRUN} run");
    let mut shell = env.program("/bin/sh");
    let printed = env.finish(shell.args(["-c", &script]).stdin(Stdio::null()).spawn().unwrap());
    let id = env.run_ids().pop().unwrap_or_else(|| panic!("{printed}"));
    let status = json(&env, &format!("status {id} --json"));
    let succeeded = status["units"].as_array().unwrap().iter().filter(|unit| unit["outcome"] == "succeeded").count();
    assert_eq!(succeeded, 40, "{printed}");
}
