//! Limits of accounts in the middle of a run: units wait or move on, and nothing is lost.
//!
//! The client is a script that speaks Codex's event stream.

use std::collections::BTreeMap;

use prun_core::event::{Event, EventKind, RetryHow, UnitEvent};
use prun_core::ids::Seq;
use prun_core::outcome::{Cause, Outcome, StopReason};
use prun_core::run::RunState;
use prun_engine::home::Home;
use prun_engine::ledger::Reader;
use prun_engine::process::signal_process;
use prun_engine::runs::supervisor;
use prun_testkit::env::TestEnv;
use rustix::process::Signal;

use crate::support::{PRUN, json, open_gate, start, unit_of, wait_for_state};

/// What every worker does in the end, and how a client says that it failed.
const WORDS: &str = r##"
work() {
    echo "by $PRUN_UNIT" > "$PRUN_UNIT.txt"
    printf '# %s result\nConclusion: done\nFiles: %s.txt\nOpen items: none\nVerification: none\n' \
        "$PRUN_UNIT" "$PRUN_UNIT" > "$PRUN_RESULT"
}
fail() { printf '{"type":"turn.failed","error":{"message":"%s"}}\n' "$1"; exit 1; }
"##;

/// The client, up to what a test lets it meet: it notes its arguments, reads the prompt, and takes the next number
/// `$n` over all workers.
const CODEX: &str = r##"
if [ "$1" = --version ]; then echo 'codex-cli 0.171.0'; exit; fi
printf '%s\n' "$*" >> "$PRUN_TEST_MARK/argv.$PRUN_UNIT"
cat >> "$PRUN_TEST_MARK/prompt.$PRUN_UNIT"
printf '{"type":"thread.started","thread_id":"t-%s"}\n' "$PRUN_UNIT"
n=1; while ! mkdir "$PRUN_TEST_MARK/start.$n" 2>/dev/null; do n=$((n+1)); done
"##;

const DONE: &str =
    r#"echo '{"type":"turn.completed","usage":{"input_tokens":100,"cached_input_tokens":0,"output_tokens":10}}'"#;

/// A place whose Codex is a script: `meets` is what happens before it works.
pub(crate) fn place(meets: &str, config: &str, plan: &str) -> TestEnv {
    let mut env = TestEnv::new(PRUN);
    let codex = env.script("codex", &format!("{WORDS}{CODEX}{meets}\nwork\n{DONE}"));
    env.set("CODEX_BIN", codex);
    env.set("CODEX_API_KEY", "test-key");
    let worker = env.script("worker", &format!("{WORDS}\ncat > /dev/null\nsleep 0.1\nwork"));
    let config = config.replace("WORKER", &worker.to_string_lossy());
    std::fs::write(env.at("user/config/prun/config.toml"), config).unwrap();
    env.write("prun.toml", format!("version = 1\ndirty = \"ignore\"\n{plan}"));
    env
}

const LIMIT: &str = "fail \"You've hit your usage limit; try again in";
const QUICK: &str = "[executor.codex]\nslots = 3\nstagger = \"0s\"\n";

pub(crate) fn units(ids: impl IntoIterator<Item = String>) -> String {
    ids.into_iter().map(|id| format!("[[unit]]\nid = \"{id}\"\nprompt = \"Do {id}.\"\n")).collect()
}

pub(crate) fn ledger(env: &TestEnv) -> (Vec<Event>, RunState) {
    let run = env.run_ids().pop().unwrap().parse().unwrap();
    let events = Reader::open(&Home::at(env.home()).run(&run)).unwrap().after(Seq(0)).unwrap();
    let state = RunState::replay(&events).unwrap();
    (events, state)
}

/// The most units that each executor worked on at the same time.
fn most_at_once(events: &[Event]) -> BTreeMap<String, usize> {
    let (mut run, mut most) = (RunState::default(), BTreeMap::new());
    for event in events {
        run.apply(event).unwrap();
        let mut now: BTreeMap<String, usize> = BTreeMap::new();
        for last in run.active().filter_map(|unit| unit.attempts.last()) {
            *now.entry(last.executor.to_string()).or_default() += 1;
        }
        for (executor, count) in now {
            let most = most.entry(executor).or_default();
            *most = count.max(*most);
        }
    }
    most
}

#[test]
fn forty_units_over_three_executors_survive_a_usage_limit_in_the_middle() {
    let config = format!(
        "{QUICK}[executor.aider]\nkind = \"command\"\nprogram = \"WORKER\"\nslots = 2\n\
         [executor.goose]\nkind = \"command\"\nprogram = \"WORKER\"\nslots = 1\n"
    );
    let plan = "[defaults]\nexecutor = [\"codex\", \"aider\", \"goose\"]\nretries = 0\n".to_owned()
        + &units((0..40).map(|n| format!("u{n}")));
    // The seventh start and those beside it meet the limit; the tenth comes after the reset.
    let meets = format!("if [ $n -ge 7 ] && [ $n -le 9 ]; then {LIMIT} 4s.\"; fi; sleep 0.1");
    let env = place(&meets, &config, &plan);
    let run = start(&env);
    env.wait_until("the hold is shown", || env.prun(&format!("status {run}")).stdout.contains("held    codex since"));
    let executors = env.prun("executors");
    assert!(executors.stdout.contains("(usage-limit) in run"), "{executors}");
    let waited = env.prun(&format!("wait {run} --timeout 60"));
    assert_eq!(waited.code, 0, "units move on by themselves, so nothing calls for action: {waited}");
    let (events, state) = ledger(&env);
    let lost: Vec<_> = state.units.iter().filter(|unit| unit.outcome() != Some(&Outcome::Succeeded)).collect();
    assert!(lost.is_empty(), "{lost:?}");
    let most = most_at_once(&events);
    assert!(most["codex"] <= 3 && most["aider"] <= 2 && most["goose"] <= 1, "{most:?}");
    assert_eq!(most.len(), 3, "all three worked: {most:?}");
    let interrupted: Vec<_> = state.units.iter().filter(|unit| unit.repeats > 0).collect();
    assert!(!interrupted.is_empty() && interrupted.iter().all(|unit| unit.retries_spent == 0), "{interrupted:?}");
    assert!(state.past_holds.len() + state.holds.len() > 0, "over or not, the hold is remembered");
    let unit = &interrupted[0].setup.id;
    let told = env.prun(&format!("explain {run}/{unit}")).stdout;
    let sentence = "usage-limit: You've hit your usage limit; try again in 4s.; codex is held until the reset, for ";
    assert!(told.contains(sentence) && told.contains("goes on with aider or goose and spends no retry"), "{told}");
}

#[test]
fn a_hold_without_fallback_wakes_the_coordinator_and_ends_by_hand() {
    let plan = "[defaults]\nretries = 0\n".to_owned() + &units(["a".to_owned(), "b".to_owned()]);
    let meets = format!("if [ $n -le 1 ]; then {LIMIT} 2h.\"; fi");
    let env = place(&meets, "[executor.codex]\nslots = 1\n", &plan);
    let run = start(&env);
    let woken = env.prun(&format!("wait {run} --timeout 60"));
    assert_eq!(woken.code, 3, "{woken}");
    assert!(woken.stdout.contains("HELD codex for "), "{woken}");
    let advice = format!("2 units wait for it   prun executors --release codex --run {run}");
    assert!(woken.stdout.contains(&advice), "{woken}");
    let told = env.prun(&format!("explain {run}/b"));
    assert!(told.stdout.contains("b waits: codex is held for"), "{told}");
    let release = format!("executors --release codex --run {run}");
    let released = env.prun(&release);
    assert_eq!((released.code, released.stdout.as_str()), (0, "codex is released\n"));
    assert_eq!(env.prun(&release).code, 2, "it is not held any more");
    assert_eq!(env.prun(&format!("wait {run} --timeout 60")).code, 0);
    let a = ledger(&env).1.unit(&"a".parse().unwrap()).unwrap().clone();
    assert_eq!((a.retries_spent, a.repeats, a.attempts.len()), (0, 1, 2));
    assert_eq!(a.attempts[1].begins.how, RetryHow::Continue);
    let argv = std::fs::read_to_string(env.at("argv.a")).unwrap();
    assert!(argv.lines().nth(1).unwrap().ends_with("resume t-a -"), "its session goes on: {argv}");
    let prompts = std::fs::read_to_string(env.at("prompt.a")).unwrap();
    assert!(prompts.contains("You go on where codex was interrupted"), "{prompts}");
}

#[test]
fn a_refused_login_stops_what_nobody_else_can_take_until_the_run_is_resumed() {
    let config = format!("{QUICK}[executor.aider]\nkind = \"command\"\nprogram = \"WORKER\"\n");
    let plan = "jobs = 1\n[defaults]\nretries = 0\n[[unit]]\nid = \"a\"\nprompt = \"a\"\n\
                [[unit]]\nid = \"b\"\nprompt = \"b\"\nexecutor = [\"codex\", \"aider\"]\n\
                [[unit]]\nid = \"c\"\nprompt = \"c\"\n";
    let meets = "if [ ! -e \"$PRUN_TEST_MARK/login\" ]; then fail 'unexpected status 401 Unauthorized: no'; fi";
    let env = place(meets, &config, plan);
    let run = start(&env);
    wait_for_state(&env, &run, "c", "settled");
    let ended = env.prun(&format!("attach {run}"));
    assert_eq!(ended.code, 3, "{ended}");
    let (_, state) = ledger(&env);
    let outcome = |id: &str| state.unit(&id.parse().unwrap()).unwrap().outcome().cloned();
    assert_eq!(outcome("a"), Some(Outcome::Failed(Cause::Auth)));
    assert_eq!(outcome("b"), Some(Outcome::Succeeded), "it went to the other executor");
    assert_eq!(outcome("c"), Some(Outcome::Stopped(StopReason::Hold)), "it never began");
    assert!(!env.at("start.2").exists(), "one refusal is enough");
    open_gate(&env, "login");
    let resumed = env.prun(&format!("resume {run}"));
    assert_eq!(resumed.code, 0, "{resumed}");
    for id in ["a", "c"] {
        assert_eq!(unit_of(&env, &run, id)["outcome"], "succeeded");
    }
    let began = |event: &&Event| matches!(&event.kind, EventKind::Unit { event, .. } if matches!(**event, UnitEvent::AttemptBegan { .. }));
    assert_eq!(ledger(&env).0.iter().filter(began).count(), 4, "a twice, b and c once");
    assert_eq!(json(&env, &format!("status {run} --json"))["holds"], serde_json::json!([]));
}

/// A worker that notes how many are busy at the same time, over all runs.
const BUSY: &str = r##"cat > /dev/null
mkdir "$PRUN_TEST_MARK/busy.$PRUN_RUN.$PRUN_UNIT"
ls "$PRUN_TEST_MARK" | grep -c '^busy' >> "$PRUN_TEST_MARK/counts"
sleep 0.2
rmdir "$PRUN_TEST_MARK/busy.$PRUN_RUN.$PRUN_UNIT"
work"##;

#[test]
fn slots_of_an_account_count_over_all_runs_also_when_a_supervisor_is_killed() {
    let env = TestEnv::new(PRUN);
    let worker = env.script("worker", &format!("{WORDS}{BUSY}"));
    let config = format!(
        "[executor.aider]\nkind = \"command\"\nprogram = {worker:?}\nslots = 2\naccount = \"shared\"\n\
         [executor.goose]\nkind = \"command\"\nprogram = {worker:?}\nslots = 2\naccount = \"shared\"\n"
    );
    std::fs::write(env.at("user/config/prun/config.toml"), config).unwrap();
    let six = units((0..6).map(|n| format!("u{n}")));
    for executor in ["aider", "goose"] {
        env.write(
            "prun.toml",
            format!("version = 1\ntitle = \"{executor}\"\n[defaults]\nexecutor = \"{executor}\"\n{six}"),
        );
        start(&env);
    }
    let runs = env.run_ids();
    // Its workers keep their slots, and the next supervisor its promise.
    env.wait_until("a worker is busy", || env.at("counts").exists());
    let dir = Home::at(env.home()).run(&runs[0].parse().unwrap());
    signal_process(&supervisor(&dir).unwrap().unwrap(), Signal::KILL).unwrap();
    env.wait_until("nobody drives it", || supervisor(&dir).is_none());
    let first = env.prun(&format!("resume {}", runs[0]));
    assert_eq!(first.code, 0, "{first}");
    assert_eq!(env.prun(&format!("wait {} --timeout 60", runs[1])).code, 0);
    let counts = std::fs::read_to_string(env.at("counts")).unwrap();
    let counts: Vec<u32> = counts.lines().map(|line| line.parse().unwrap()).collect();
    assert!(counts.len() >= 12 && counts.iter().all(|count| *count <= 2), "{counts:?}");
    assert!(counts.contains(&2), "both slots were used: {counts:?}");
}

#[test]
fn the_more_urgent_unit_starts_first() {
    let env = TestEnv::new(PRUN);
    let unit = |id: &str, priority: i32| crate::support::unit(id, "result") + &format!("priority = {priority}\n");
    let plan = [unit("later", -1), unit("usual", 0), unit("first", 7), unit("also-usual", 0)];
    env.write("prun.toml", crate::support::plan("jobs = 1\n[defaults]\nmode = \"read\"", &plan));
    assert_eq!(env.prun("run").code, 0);
    let mut units = ledger(&env).1.units;
    units.sort_by_key(|unit| unit.attempts[0].began);
    let order: Vec<&str> = units.iter().map(|unit| unit.setup.id.as_str()).collect();
    assert_eq!(order, ["first", "usual", "also-usual", "later"]);
}
