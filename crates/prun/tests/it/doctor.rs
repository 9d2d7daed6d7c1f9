//! `prun doctor` through the real binary: what it says and how it ends.

use prun_testkit::env::TestEnv;

use crate::support::{PRUN, json};

/// What a check found, by its name.
fn level<'a>(report: &'a serde_json::Value, check: &str) -> &'a str {
    let findings = report["findings"].as_array().unwrap();
    let found = findings.iter().find(|finding| finding["check"] == check);
    found.unwrap_or_else(|| panic!("no finding {check}: {report}"))["level"].as_str().unwrap()
}

#[test]
fn doctor_looks_and_changes_nothing() {
    let env = TestEnv::new(PRUN);
    let before = (env.tree("home"), env.tree("repo"));
    let report = json(&env, "doctor --json");
    assert_eq!(report["version"], 1);
    assert_eq!((level(&report, "git"), level(&report, "home")), ("ok", "ok"), "{report}");
    let said = env.prun("doctor");
    assert_eq!(said.code, 0, "warnings alone are no failure: {said}");
    for finding in report["findings"].as_array().unwrap() {
        assert!(said.stdout.contains(finding["check"].as_str().unwrap()), "{said}");
    }
    assert_eq!(before.0.changes(&env.tree("home")), [""; 0]);
    assert_eq!(before.1.changes(&env.tree("repo")), [""; 0]);
}

#[test]
fn doctor_fails_where_no_run_can_work() {
    let mut env = TestEnv::without_repository(PRUN);
    let old = env.script("git", "echo git version 2.20.1");
    env.set("PRUN_GIT", &old);
    env.set("PRUN_HOME", "/proc/prun");
    let said = env.prun("doctor");
    assert_eq!(said.code, 2, "{said}");
    assert_eq!(said.stdout.matches("FAIL").count(), 2, "{said}");
    assert!(said.stdout.contains("prun clean") && said.stdout.contains("2.38"), "{said}");
}
