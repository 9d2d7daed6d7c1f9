//! Budgets and what is told of usage, through the whole binary. The client is a script.

use prun_core::outcome::{Outcome, StopReason};
use prun_testkit::env::TestEnv;

use crate::holds::{ledger, place, units};
use crate::support::{json, open_gate, start, unit_of, wait_for_end};

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

/// A client that says in its log, before it works, that its model has answered so often; each answer has 45 tokens.
fn answers(count: usize) -> String {
    let answer = "INFO codex_otel.log_only: event.name=\"codex.sse_event\" event.kind=response.completed \
                  input_token_count=40 output_token_count=5 cached_token_count=0 conversation.id=1";
    format!("for i in $(seq {count}); do echo '{answer}' >&2; done\n")
}

#[test]
fn an_attempt_is_warned_of_and_ended_while_it_spends() {
    // It goes on only when it has been seen to be warned of.
    let meets = format!("{}echo begun > begun.txt; await warned\n{}sleep 600", answers(2), answers(1));
    let meets = format!("await() {{ while [ ! -e \"$PRUN_TEST_MARK/$1\" ]; do sleep 0.02; done; }}\n{meets}");
    let plan = "[[unit]]\nid = \"a\"\nprompt = \"a\"\nretries = 3\nbudget = { tokens = 100 }\n";
    let env = place(&meets, "[executor.codex]\nslots = 1\nstagger = \"0s\"\n", plan);
    let run = start(&env);
    env.wait_until("it is warned of", || {
        env.prun(&format!("events {run}")).stdout.contains("90 of 100 tokens are used (90 %)")
    });
    assert_eq!(unit_of(&env, &run, "a")["state"], "running");
    open_gate(&env, "warned");
    let ended = wait_for_end(&env, &run);
    assert!(ended.stdout.contains("BUDGET a: 135 of 100 tokens are used (135 %)"), "{ended}");
    let state = ledger(&env).1;
    let unit = &state.units[0];
    assert_eq!((unit.outcome(), unit.attempts.len()), (Some(&Outcome::Stopped(StopReason::Budget)), 1));
    let facts = unit.facts().unwrap();
    assert_eq!(facts.usage.map(|usage| (usage.total_tokens(), usage.turns)), Some((135, Some(3))));
    assert_eq!(facts.changes.as_ref().unwrap().files[0].path, "begun.txt", "its work is kept");
    // A person's retry is paid anew, a resume is not.
    assert_eq!(env.prun("resume").code, 2);
    assert_eq!(env.prun("retry a").code, 0);
    env.wait_until("it works again", || unit_of(&env, &run, "a")["attempt"] == 2);
    let ended = wait_for_end(&env, &run);
    assert!(ended.stdout.contains("BUDGET a: 135 of 100 tokens"), "{ended}");
}

#[test]
fn attempts_that_are_under_way_spend_the_budget_of_the_run_together() {
    let units = units((0..3).map(|n| format!("u{n}")));
    let plan = format!("[budget]\nturns = 5\n{units}");
    let meets = format!("{}sleep 600", answers(2));
    let env = place(&meets, "[executor.codex]\nslots = 3\nstagger = \"0s\"\n", &plan);
    let printed = env.prun("run");
    assert!(printed.stdout.contains("BUDGET 6 of 5 turns are used (120 %)"), "{printed}");
    let state = ledger(&env).1;
    let stopped = Some(Outcome::Stopped(StopReason::Budget));
    assert!(state.units.iter().all(|unit| unit.outcome().cloned() == stopped), "{printed}");
    assert_eq!(state.used.turns, Some(6));
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
