//! What comes of an attempt.

use std::path::Path;

use prun_core::judge::judge;
use prun_core::outcome::{Cause, Channel, Exit, Gap, Outcome, StopReason, Usage};
use prun_engine::dispatcher::settle_dead;
use prun_engine::executor::stream::StreamKind;
use prun_engine::files::Durability;
use prun_engine::home::AttemptDir;
use prun_engine::process::identity;
use prun_engine::spec::{AttemptSpec, CheckSpec, Resumed};
use prun_engine::state_dir::{read_facts, read_identity};
use rustix::process::Signal;

use super::{Bench, GOOD, kill, wait_until};

#[test]
fn a_worker_that_ends_well_succeeds() {
    let bench = Bench::new();
    let mut spec = bench.spec(&format!("cat; echo err >&2; {GOOD} pwd; ls /proc/self/fd; env > env.txt"));
    spec.deliverables = vec!["env.txt".into(), "not-there".into()];
    let (code, facts) = bench.dispatch(&spec);
    assert_eq!((code, &facts.exit, facts.stopped), (0, &Exit::Code { code: 0 }, None));
    assert_eq!(judge(&facts), Outcome::Incomplete(Gap::Deliverable));
    assert_eq!(facts.missing_deliverables, ["not-there"]);
    let result = facts.result.as_ref().unwrap();
    assert_eq!((result.channel, result.conclusion.as_deref()), (Channel::ResultFile, Some("done")));
    assert!(facts.sweep.proven && facts.sweep.leftovers == 0, "{:?}", facts.sweep);
    assert!(facts.peak_rss_kib.is_some());
    let tail = std::fs::read_to_string(bench.state().unwrap().join("tail")).unwrap();
    // `ls` opens the directory itself as 3.
    assert_eq!(tail, format!("the prompt\nerr\n{}\n0\n1\n2\n3\n", bench.at("cwd").display()));
    let env = bench.read("cwd/env.txt");
    for line in ["PRUN_UNIT=u1", "PRUN_ATTEMPT=1", "PRUN_DEPTH=1", "PRUN_RUN=261130-155200-k3f9"] {
        assert!(env.lines().any(|known| known == line), "{line} in {env}");
    }
    let identity = read_identity(&bench.state().unwrap()).unwrap();
    assert!(env.contains(&format!("PRUN_TOKEN={}", identity.token)));
    assert!(identity.worker.is_some());
}

#[test]
fn a_result_from_before_is_no_result_and_is_kept() {
    let bench = Bench::new();
    std::fs::write(bench.at("result.md"), "an old result\n").unwrap();
    let (code, facts) = bench.dispatch(&bench.spec("echo hello"));
    assert_eq!((code, facts.result.unwrap().channel), (0, Channel::Salvage));
    assert!(bench.read("result.md").starts_with("# u1 result (FALLBACK, worker wrote no result file)\n"));
    let state = bench.state().unwrap();
    assert_eq!(std::fs::read_to_string(state.join("result.before")).unwrap(), "an old result\n");
    assert_ne!(std::fs::read_to_string(state.join("pre-mtime")).unwrap(), "0\n");
}

#[test]
fn a_result_that_cannot_stand_where_it_was_asked_for_is_in_the_state_dir() {
    let bench = Bench::new();
    std::fs::create_dir(bench.at("result.md")).unwrap();
    let child = bench.start(&bench.spec("echo hello"));
    let (code, facts) = bench.finish(child);
    let result = facts.result.unwrap();
    assert_eq!((code, result.misplaced), (7, true));
    assert_eq!(Path::new(&result.path), bench.state().unwrap().join("result.md"));
    assert!(std::fs::read_to_string(&result.path).unwrap().ends_with("\n\nhello\n"));
}

#[test]
fn the_clients_last_message_becomes_the_result() {
    let bench = Bench::new();
    let mut spec = bench.spec("");
    let worker = spec.worker.as_mut().unwrap();
    worker.argv =
        vec!["/bin/sh".into(), "-c".into(), "echo 'just words' > \"$1\"".into(), "sh".into(), "{last}".into()];
    worker.last_message_placeholder = Some("{last}".into());
    let (code, facts) = bench.dispatch(&spec);
    assert_eq!((code, judge(&facts)), (0, Outcome::Incomplete(Gap::Contract)));
    assert_eq!(facts.result.unwrap().channel, Channel::LastMessage);
    assert_eq!(bench.read("result.md"), "just words\n");
}

/// A worker that says these lines as Codex's event stream does, and something on stderr.
fn codex_worker(bench: &Bench, lines: &str, then: &str) -> AttemptSpec {
    let mut spec = bench.spec(&format!("printf '%s\\n' \"$EVENTS\"; echo 'a warning' >&2; {then}"));
    spec.env = vec![("EVENTS".into(), lines.into())];
    spec.worker.as_mut().unwrap().stream = StreamKind::Codex;
    spec.limits.linger_millis = Some(200);
    spec
}

const SAID: &str = r##"{"type":"thread.started","thread_id":"t-1"}
{"type":"turn.started"}
{"type":"item.completed","item":{"id":"item_0","type":"agent_message","text":"# u1 result\nConclusion: said\nFiles: none\nOpen items: none\nVerification: none\n\nbody"}}
{"type":"turn.completed","usage":{"input_tokens":10,"cached_input_tokens":4,"output_tokens":2}}"##;

#[test]
fn the_final_message_of_an_event_stream_becomes_the_result() {
    let bench = Bench::new();
    let (code, facts) = bench.dispatch(&codex_worker(&bench, SAID, ""));
    assert_eq!((code, judge(&facts)), (0, Outcome::Succeeded), "{facts:?}");
    let result = facts.result.unwrap();
    assert_eq!((result.channel, result.conclusion.as_deref()), (Channel::FinalEvent, Some("said")));
    assert_eq!((facts.session.as_deref(), facts.usage.unwrap().input_tokens), (Some("t-1"), 10));
    let state = bench.state().unwrap();
    assert_eq!(std::fs::read_to_string(state.join("events.jsonl")).unwrap(), format!("{SAID}\n"));
    let tail = std::fs::read_to_string(state.join("tail")).unwrap();
    assert!(tail.contains("a warning\n") && !tail.contains("turn.completed"), "{tail}");
}

#[test]
fn the_answer_of_a_client_whose_dispatcher_was_killed_is_kept() {
    let bench = Bench::new();
    let child = bench.start(&codex_worker(&bench, SAID, "echo > said; exec sleep 600"));
    wait_until(|| bench.at("cwd/said").exists());
    kill(&child, Signal::KILL);
    let _ = child.wait_with_output().unwrap();
    std::fs::copy(bench.at("spec.json"), bench.at("attempt/spec.json")).unwrap();
    let facts = settle_dead(&AttemptDir::at(bench.at("attempt")), Durability::Cached).unwrap();
    let result = facts.result.as_ref().unwrap();
    assert_eq!((result.channel, result.conclusion.as_deref()), (Channel::FinalEvent, Some("said")));
    assert_eq!((facts.session.as_deref(), facts.sweep.leftovers), (Some("t-1"), 1));
    assert_eq!(judge(&facts), Outcome::Failed(Cause::DispatchDead));
    // Whoever looks again finds the same.
    assert_eq!(read_facts(&bench.state().unwrap()).unwrap(), facts);
}

#[test]
fn what_a_killed_dispatcher_had_told_of_its_workers_usage_is_counted() {
    let bench = Bench::new();
    let answer = "INFO codex_otel.log_only: event.name=\\\"codex.sse_event\\\" event.kind=response.completed \
                  input_token_count=40 output_token_count=5 conversation.id=1";
    let after = format!("echo \"{answer}\" >&2; exec sleep 600");
    let child = bench.start(&codex_worker(&bench, r#"{"type":"turn.started"}"#, &after));
    let notes = bench.at("attempt/notes.jsonl");
    wait_until(|| std::fs::read_to_string(&notes).is_ok_and(|text| text.contains("\"used\"")));
    kill(&child, Signal::KILL);
    let _ = child.wait_with_output().unwrap();
    std::fs::copy(bench.at("spec.json"), bench.at("attempt/spec.json")).unwrap();
    let facts = settle_dead(&AttemptDir::at(bench.at("attempt")), Durability::Cached).unwrap();
    assert_eq!(facts.usage.map(|usage| (usage.total_tokens(), usage.turns)), Some((45, Some(1))));
}

#[test]
fn tokens_of_a_session_that_goes_on_belong_to_the_attempt_that_spent_them() {
    let bench = Bench::new();
    let mut spec = codex_worker(&bench, SAID, "");
    let spent = Usage { input_tokens: 7, cached_input_tokens: 4, output_tokens: 1, ..Usage::default() };
    spec.resumes = Some(Resumed { session: "t-1".into(), spent });
    let used = bench.dispatch(&spec).1.usage.unwrap();
    assert_eq!((used.input_tokens, used.cached_input_tokens, used.output_tokens), (3, 0, 1));
    // A client that began a new session instead counts from nothing.
    let bench = Bench::new();
    spec = AttemptSpec { resumes: Some(Resumed { session: "t-0".into(), spent }), ..codex_worker(&bench, SAID, "") };
    assert_eq!(bench.dispatch(&spec).1.usage.unwrap().input_tokens, 10);
}

/// C34, C42.
#[test]
fn a_client_that_lives_on_after_its_last_word_is_ended() {
    let bench = Bench::new();
    let (code, facts) = bench.dispatch(&codex_worker(&bench, SAID, "sleep 600"));
    assert_eq!((code, facts.stopped, judge(&facts)), (0, Some(StopReason::Lingered), Outcome::Succeeded));
}

#[test]
fn a_stream_without_its_end_gives_no_result() {
    let bench = Bench::new();
    let unfinished = SAID.rsplit_once('\n').unwrap().0;
    let (code, facts) = bench.dispatch(&codex_worker(&bench, unfinished, ""));
    assert_eq!((code, judge(&facts)), (0, Outcome::Incomplete(Gap::NoFinalEvent)));
    assert_eq!(facts.result.unwrap().channel, Channel::Salvage);
}

#[test]
fn set_up_and_check_are_run_and_contained() {
    let bench = Bench::new();
    let check = |script: &str, limit_millis| {
        Some(CheckSpec { argv: vec!["/bin/sh".into(), "-c".into(), script.into()], limit_millis })
    };
    let mut spec = bench.spec(&format!("cat made; {GOOD}"));
    spec.setup = check("echo from-setup > made; setsid sleep 600 & echo $! > bg", 60_000);
    spec.verify = check("echo checking; sleep 600", 200);
    let (code, facts) = bench.dispatch(&spec);
    assert_eq!((code, judge(&facts)), (0, Outcome::Failed(Cause::Verify)));
    assert!(facts.setup.unwrap().ok && facts.sweep.leftovers == 0);
    let verify = facts.verify.unwrap();
    assert!(verify.timed_out && !verify.ok);
    assert_eq!(std::fs::read_to_string(&verify.log).unwrap(), "checking\n");
    assert!(identity(bench.read("cwd/bg").trim().parse().unwrap()).is_none());
}

#[test]
fn a_failed_set_up_starts_no_worker() {
    let bench = Bench::new();
    let mut spec = bench.spec("echo worker > ran");
    spec.setup = Some(CheckSpec { argv: vec!["/bin/false".into()], limit_millis: 60_000 });
    let (code, facts) = bench.dispatch(&spec);
    assert_eq!((code, judge(&facts)), (1, Outcome::Failed(Cause::Setup)));
    assert!(!bench.at("cwd/ran").exists());
}
