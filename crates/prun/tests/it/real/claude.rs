//! Claude Code as a worker: permissions, sessions, pieces of messages, refusals.

use prun_core::outcome::{Cause, Channel, FinalEvent, Outcome, StopReason};
use prun_engine::executor::LaunchRequest;
use prun_engine::executor::preflight::{self, Login};
use prun_testkit::clients::Client;
use prun_testkit::fake_model::Step;

use super::{Bench, work};

/// The result that a worker gives as its last message.
const ANSWER: &str = "# u1 result\nConclusion: looked\nFiles: none\nOpen items: none\nVerification: none\n";

#[test]
fn claude_edits_a_file_and_its_last_message_may_be_the_result() {
    let Some(bench) = Bench::new(Client::Claude) else { return };
    let ended = bench.run(&[Step::sh("echo edited >> target.txt"), Step::text(ANSWER)]);
    assert_eq!(ended.outcome, Outcome::Succeeded, "{:?} {}", ended.facts, bench.tail());
    let facts = ended.facts;
    assert_eq!(facts.result.as_ref().unwrap().channel, Channel::FinalEvent);
    assert_eq!((facts.final_event, facts.error), (FinalEvent::Completed, None));
    let usage = facts.usage.unwrap();
    // Two answers of 100 tokens in, of which 60 from the cache, and 10 out.
    assert_eq!((usage.input_tokens, usage.cached_input_tokens, usage.output_tokens), (200, 120, 20));
    assert!(usage.cost_micro_usd.unwrap() > 0 && usage.turns == Some(2), "{usage:?}");
    assert!(facts.model.unwrap().starts_with("claude-"));
    let tail = bench.tail();
    assert!(tail.contains("$ echo edited >> target.txt\n") && tail.ends_with("finished\n"), "{tail}");
}

#[test]
fn a_session_goes_on_where_it_was_and_counts_only_its_own_tokens() {
    let Some(bench) = Bench::new(Client::Claude) else { return };
    let first = bench.run(&[Step::sh("echo one >> target.txt"), Step::text("I stop here.")]);
    // Its limit of money is this process's own, although what it tells counts from the session's start: 744 and 1488.
    let limited = LaunchRequest { most_micro_usd: Some(1_000), ..LaunchRequest::default() };
    let second = bench.go_on(&first, &limited, &work());
    assert_eq!(second.outcome, Outcome::Succeeded, "{:?} {}", second.facts, bench.tail());
    assert_eq!(first.facts.session, second.facts.session);
    let tokens = |ended: &super::Ended| ended.facts.usage.unwrap().total_tokens();
    assert_eq!((tokens(&first), tokens(&second)), (220, 220));
    let rest = |ended: &super::Ended| ended.facts.usage.map(|usage| (usage.turns, usage.cost_micro_usd)).unwrap();
    assert_eq!(rest(&first), rest(&second));
    // The model hears of the first attempt again.
    let asked = bench.server.bodies().last().unwrap().to_string();
    assert!(asked.contains("I stop here.") && asked.contains("echo one >> target.txt"), "{asked}");
}

#[test]
fn claude_keeps_to_limits_of_turns_and_money_by_itself() {
    for request in [
        LaunchRequest { most_turns: Some(1), ..LaunchRequest::default() },
        LaunchRequest { most_micro_usd: Some(1), ..LaunchRequest::default() },
    ] {
        let Some(bench) = Bench::new(Client::Claude) else { return };
        let steps = [Step::sh("echo one >> target.txt"), Step::sh("echo two >> target.txt"), Step::text(ANSWER)];
        let ended = bench.dispatch(&bench.spec(&steps, bench.worker(&request)));
        assert_eq!(ended.outcome, Outcome::Stopped(StopReason::Budget), "{:?} {}", ended.facts, bench.tail());
        assert!(ended.requests < 3, "{}", ended.requests);
        assert!(ended.facts.usage.unwrap().cost_micro_usd.unwrap() > 0, "it is counted all the same");
        assert!(ended.facts.session.is_some(), "it can go on");
    }
}

#[test]
fn a_worker_that_was_denied_its_tools_has_not_succeeded() {
    let Some(mut bench) = Bench::new(Client::Claude) else { return };
    // As a user's own arguments may have it: nothing is allowed, and nobody is there to ask.
    let mut worker = bench.worker(&LaunchRequest::default());
    let skip =
        |arg: &String| arg == "--dangerously-skip-permissions" || arg == "--allowedTools" || arg == "acceptEdits";
    worker.argv.retain(|arg| !skip(arg) && !arg.starts_with("Bash,") && arg != "--permission-mode");
    bench.set("CLAUDE_CODE_MAX_RETRIES", "0");
    let ended = bench.dispatch(&bench.spec(&[Step::sh("echo edited >> target.txt"), Step::text(ANSWER)], worker));
    assert_eq!(ended.outcome, Outcome::Failed(Cause::Permission), "{:?} {}", ended.facts, bench.tail());
    assert_eq!((ended.facts.denied, ended.facts.final_event), (vec!["Bash".to_owned()], FinalEvent::Completed));
}

#[test]
fn root_works_in_a_sandbox_and_outside_of_one() {
    let Some(mut bench) = Bench::new(Client::Claude) else { return };
    if !rustix::process::getuid().is_root() {
        return;
    }
    let allowed = bench.worker(&LaunchRequest::default());
    assert!(!allowed.argv.iter().any(|arg| arg == "--dangerously-skip-permissions"), "{:?}", allowed.argv);
    bench.set("IS_SANDBOX", "1");
    let ended = bench.run(&work());
    assert_eq!(ended.outcome, Outcome::Succeeded, "{:?} {}", ended.facts, bench.tail());
    // The refusal itself, should somebody's arguments ask for it.
    bench.env.retain(|(name, _)| name != "IS_SANDBOX");
    bench.executor.args.push("--dangerously-skip-permissions".to_owned());
    std::fs::remove_dir_all(bench.at("attempt")).unwrap();
    std::fs::create_dir(bench.at("attempt")).unwrap();
    let ended = bench.run(&work());
    assert_eq!((ended.outcome, ended.requests), (Outcome::Failed(Cause::ExitCode), 0));
    assert!(bench.tail().contains("root"), "{}", bench.tail());
}

#[test]
fn a_subscriptions_limit_is_reported_with_its_reset() {
    let Some(mut bench) = Bench::new(Client::Claude) else { return };
    bench.env.retain(|(name, _)| name != "ANTHROPIC_API_KEY");
    bench.set("CLAUDE_CODE_OAUTH_TOKEN", "test-token");
    let reset = jiff::Timestamp::now().as_second() + 2 * 3600;
    let ended = bench.run(&[Step::usage_limit(reset)]);
    let error = ended.facts.error.unwrap_or_else(|| panic!("{}", bench.tail()));
    assert_eq!((ended.outcome, error.class), (Outcome::Failed(Cause::UsageLimit), Cause::UsageLimit));
    let told = error.resets_at.unwrap_or_else(|| panic!("{error:?} {}", bench.tail())).0 / 1000;
    assert!((reset..=reset + 60).contains(&told), "{} is {told}, not {reset}", error.message);
}

#[test]
fn the_pinned_claude_is_a_version_that_prun_knows() {
    let Some(bench) = Bench::new(Client::Claude) else { return };
    let look = |without: &str| {
        preflight::check_with(&bench.executor, |name| {
            bench.env.iter().find(|(key, _)| key == name && key != without).map(|(_, value)| value.into())
        })
    };
    let seen = look("");
    assert!(seen.program.unwrap().unwrap().ends_with("claude"));
    assert_eq!((seen.version.is_some(), seen.login, seen.notes), (true, Login::LoggedIn, Vec::new()));
}
