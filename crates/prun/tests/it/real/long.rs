//! The long form: every client, and faults that only end when the client has given up by itself.

use prun_core::outcome::Outcome;
use prun_engine::executor::LaunchRequest;
use prun_testkit::clients::Client;
use prun_testkit::fake_model::Step;
use prun_testkit::fake_model::script::Place;

use super::faults::{Fault, SHORT, row, table};
use super::{Bench, work};

const LONG: &[Fault] = &[
    ("429 for ever", || vec![Step::status(429)], false),
    ("500 for ever", || vec![Step::status(500)], false),
    ("drop mid-stream for ever", || vec![Step { drop: Some(Place::Mid), ..Step::text("I begin now.") }], false),
];

#[expect(clippy::print_stdout, reason = "the table is what it is run for")]
fn print(client: Client) {
    let faults: Vec<Fault> = SHORT.iter().chain(LONG).copied().collect();
    // Some say nothing while they try again.
    let prepare = |bench: &mut Bench| {
        if bench.idle_millis > 10_000 {
            bench.idle_millis = 240_000;
        }
    };
    let Some(rows) = table(client, &faults, prepare) else { return };
    for (name, ended, bench) in &rows {
        println!("| {} | {} | {:.0} s |", client.name(), row(name, ended), ended.seconds);
        if name == "works" {
            assert_eq!(ended.outcome, Outcome::Succeeded, "{:?} {}", ended.facts, bench.tail());
        } else if !name.ends_with("once") && name != "server left behind" {
            assert_ne!(ended.outcome, Outcome::Succeeded, "{name}: {:?}", ended.facts);
        }
    }
}

#[test]
#[ignore = "the long form; see the module"]
fn codex_in_full() {
    print(Client::Codex);
}

#[test]
#[ignore = "the long form; see the module"]
fn claude_in_full() {
    print(Client::Claude);
}

#[test]
#[ignore = "the long form; see the module"]
fn gemini_in_full() {
    print(Client::Gemini);
}

#[test]
#[ignore = "the long form; see the module"]
fn opencode_in_full() {
    print(Client::Opencode);
}

#[test]
#[ignore = "the long form; see the module"]
fn qwen_in_full() {
    print(Client::Qwen);
}

#[test]
#[ignore = "the long form; see the module"]
fn sessions_of_opencode_and_qwen_go_on() {
    for client in [Client::Opencode, Client::Qwen] {
        let Some(bench) = Bench::new(client) else { continue };
        let first = bench.run(&[Step::sh("echo one >> target.txt"), Step::text("I stop here.")]);
        let second = bench.go_on(&first, &LaunchRequest::default(), &work());
        assert_eq!(second.outcome, Outcome::Succeeded, "{client:?} {:?} {}", second.facts, bench.tail());
        assert_eq!(first.facts.session, second.facts.session, "{client:?}");
        let asked = bench.server.bodies().last().unwrap().to_string();
        assert!(asked.contains("I stop here."), "{client:?} {asked}");
    }
}
