//! What counts as a sign of life of a real client.

use prun_core::outcome::Outcome;
use prun_testkit::clients::Client;
use prun_testkit::fake_model::Step;

use super::{Bench, work};

/// The pieces of a message come so slowly that the whole takes far longer than a worker may be silent.
#[test]
fn a_message_that_is_still_being_written_is_a_sign_of_life() {
    for (client, pause) in [(Client::Claude, 1_000), (Client::Codex, 2_000)] {
        let Some(mut bench) = Bench::new(client) else { return };
        bench.idle_millis = 5_000;
        let slow = Step { pause: Some(pause), ..Step::text("I have looked at the file, and it is as it should be.") };
        let steps: Vec<Step> = work().into_iter().take(1).chain([slow]).collect();
        let ended = bench.run(&steps);
        assert_eq!(ended.outcome, Outcome::Succeeded, "{client:?} {:?} {}", ended.facts, bench.tail());
        assert!(ended.seconds > 8.0, "{client:?} took only {} s", ended.seconds);
    }
}

/// The log by which Codex shows that it lives is for prun alone: what its tools log is as without prun.
#[test]
fn codexs_tools_have_the_users_own_log_setting() {
    let Some(mut bench) = Bench::new(Client::Codex) else { return };
    let look = [Step::sh("echo edited >> target.txt; printenv RUST_LOG > log.txt"), Step::text("Looked.")];
    bench.run(&look);
    assert_eq!(bench.file("log.txt"), "", "{}", bench.tail());
    assert!(!bench.tail().contains("codex_otel"), "{}", bench.tail());
    bench.set("RUST_LOG", "mine=debug");
    std::fs::remove_dir_all(bench.at("attempt")).unwrap();
    std::fs::create_dir(bench.at("attempt")).unwrap();
    let ended = bench.run(&look);
    assert_eq!(bench.file("log.txt"), "mine=debug\n", "{}", bench.tail());
    assert!(ended.facts.model.is_some(), "the log names the model");
}
