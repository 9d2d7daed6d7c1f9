//! Budgets and what is told of usage, through the whole binary. The client is a script.

use prun_core::outcome::{Outcome, StopReason};
use prun_testkit::env::TestEnv;

use crate::holds::{ledger, place, units};
use crate::support::json;

/// One unit after the other; each uses 110 tokens.
fn one_by_one(budget: &str, units: &str) -> TestEnv {
    let plan = format!("jobs = 1\n{budget}\n{units}");
    place("", "[executor.codex]\nslots = 1\nstagger = \"0s\"\n", &plan)
}

fn five() -> String {
    units((0..5).map(|n| format!("u{n}")))
}

#[test]
fn a_spent_budget_stops_what_has_not_begun_and_a_raised_one_goes_on() {
    let env = one_by_one("[budget]\ntokens = 250", &five());
    let printed = env.prun("run");
    assert_eq!(printed.code, 3, "{printed}");
    assert!(printed.stderr.contains("budget: 220 of 250 tokens are used (88 %)"), "{printed}");
    assert!(printed.stdout.contains("BUDGET 330 of 250 tokens are used (132 %)   prun resume "), "{printed}");
    let state = ledger(&env).1;
    let stopped = Some(Outcome::Stopped(StopReason::Budget));
    let outcomes: Vec<bool> = state.units.iter().map(|unit| unit.outcome().cloned() == stopped).collect();
    assert_eq!(outcomes, [false, false, false, true, true]);
    assert!(!env.at("start.4").exists(), "nothing began after that");
    let refused = env.prun("resume");
    assert!(refused.code == 2 && refused.stderr.contains("is spent"), "{refused}");
    assert_eq!(env.prun("retry u4").code, 2);
    let resumed = env.prun("resume --budget tokens=1k");
    assert_eq!(resumed.code, 0, "{resumed}");
    assert_eq!(ledger(&env).1.used.total_tokens(), 550);
}

#[test]
fn time_ends_what_works_and_what_waits() {
    let units = units(["a".to_owned(), "b".to_owned()]);
    let plan = format!("jobs = 1\n[budget]\ntime = \"1s\"\n{units}");
    let env = place("sleep 600", "[executor.codex]\nslots = 1\n", &plan);
    let printed = env.prun("run");
    assert_eq!(printed.code, 3, "{printed}");
    let stopped = Some(Outcome::Stopped(StopReason::Budget));
    assert!(ledger(&env).1.units.iter().all(|unit| unit.outcome().cloned() == stopped), "{printed}");
}

#[test]
fn a_unit_with_a_budget_of_its_own_is_not_tried_again_beyond_it() {
    let unit = "[[unit]]\nid = \"a\"\nprompt = \"a\"\nretries = 5\nverify = \"false\"\nbudget = { tokens = 100 }\n";
    let env = one_by_one("", unit);
    assert_eq!(env.prun("run").code, 3);
    let told = env.prun("explain a").stdout;
    assert!(told.contains("its budget is spent: 110 of 100 tokens are used (110 %)"), "{told}");
    assert_eq!(ledger(&env).1.units[0].attempts.len(), 1);
}

#[test]
fn usage_is_added_up_from_the_ledgers() {
    let env = one_by_one("", &five());
    assert_eq!(env.prun("run").code, 0);
    let by_run = json(&env, "usage --json");
    assert_eq!((&by_run["total"]["attempts"], &by_run["total"]["input_tokens"]), (&5.into(), &500.into()));
    let run = env.run_ids().pop().unwrap();
    let by_executor = env.prun(&format!("usage {run}"));
    assert!(by_executor.stdout.starts_with("codex      5 attempts     550 tok (in 500, "), "{by_executor}");
    for by in ["run", "executor", "model", "day", "unit"] {
        let report = json(&env, &format!("usage --by {by} --json"));
        assert_eq!(report["total"]["output_tokens"], 50, "{by}");
        assert_eq!(report["rows"].as_array().unwrap().len(), if by == "unit" { 5 } else { 1 }, "{by}");
    }
    assert_eq!(env.prun("usage nonesuch").code, 2);
}
