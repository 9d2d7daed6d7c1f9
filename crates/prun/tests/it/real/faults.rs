//! What becomes of a unit whose model or network fails in every way that can be scripted.

use std::fmt::Write;

use prun_core::outcome::{Exit, Outcome};
use prun_testkit::clients::Client;
use prun_testkit::fake_model::Step;
use prun_testkit::fake_model::script::Place;

use super::{Bench, Ended, then_work, work};

/// The reset that the model's provider tells: two hours from now.
fn in_two_hours() -> i64 {
    jiff::Timestamp::now().as_second() + 2 * 3600
}

fn soon(status: u16) -> Step {
    Step { headers: [("retry-after".to_owned(), "1".to_owned())].into(), ..Step::status(status) }
}

/// A fault, the steps that make it, and whether the client is to be ended for its silence.
pub(super) type Fault = (&'static str, fn() -> Vec<Step>, bool);

/// Faults after which a client ends at once, or works on, or is ended.
pub(super) const SHORT: &[Fault] = &[
    ("works", work, false),
    ("usage limit", || vec![Step::usage_limit(in_two_hours())], false),
    ("limit after some work", || vec![Step::sh("echo edited >> target.txt"), Step::usage_limit(in_two_hours())], false),
    ("429 once", || then_work(soon(429).once()), false),
    ("500 once", || then_work(Step::status(500).once()), false),
    ("drop mid-stream once", || then_work(Step { drop: Some(Place::Mid), ..Step::text("I begin now.") }.once()), false),
    ("silence before headers", || vec![Step::hang(Place::Request)], true),
    ("silence mid-stream", || vec![Step { hang: Some(Place::Mid), ..Step::text("I begin and never end.") }], true),
    ("empty answer", || vec![Step::text("")], false),
    ("server left behind", server, false),
    ("401", || vec![Step::status(401)], false),
];

/// A server in a session of its own, which no client ends.
fn server() -> Vec<Step> {
    let leave = "setsid tail -f /dev/null >/dev/null 2>&1 </dev/null & echo $! > server.pid";
    [Step::sh(leave)].into_iter().chain(work()).collect()
}

/// All faults at a time, each with a client, a home and a server of its own; a row each.
pub(super) fn table(
    client: Client,
    faults: &[Fault],
    prepare: impl Fn(&mut Bench) + Sync,
) -> Option<Vec<(String, Ended, Bench)>> {
    client.installed()?;
    let run = |(name, steps, is_silent): &Fault| {
        let mut bench = Bench::new(client).expect("it is installed");
        if *is_silent {
            bench.idle_millis = 6_000;
        }
        prepare(&mut bench);
        let ended = bench.run(&steps());
        ((*name).to_owned(), ended, bench)
    };
    // Not all at once: on a busy machine a start takes seconds of CPU.
    let mut rows = Vec::new();
    for some in faults.chunks(6) {
        rows.extend(std::thread::scope(|scope| {
            let threads: Vec<_> = some.iter().map(|fault| scope.spawn(|| run(fault))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        }));
    }
    Some(rows)
}

/// One line for people and snapshots: what happened, without times.
pub(super) fn row(name: &str, ended: &Ended) -> String {
    let facts = &ended.facts;
    let mut row = format!("{name}: {}", ended.outcome);
    let edited = facts.changes.as_ref().is_some_and(|changes| !changes.files.is_empty());
    let _ = write!(row, ", {} requests", ended.requests);
    if edited {
        row += ", edited";
    }
    if let Some(usage) = facts.usage {
        let _ = write!(row, ", {}/{} tokens", usage.input_tokens, usage.output_tokens);
    }
    // Some starts are caught in the middle of a client's own short look around.
    if facts.sweep.leftovers > 0 && name == "server left behind" {
        let _ = write!(row, ", {} left and ended", facts.sweep.leftovers);
    }
    let now = jiff::Timestamp::now().as_millisecond();
    if let Some(reset) = facts.error.as_ref().and_then(|error| error.resets_at) {
        let _ = write!(row, ", reset in {} min", (reset.0 - now + 59_999) / 60_000 / 10 * 10);
    }
    row
}

fn snapshot(rows: &[(String, Ended, Bench)]) -> String {
    for (name, ended, bench) in rows {
        let (facts, tail) = (&ended.facts, bench.tail());
        // Nothing of this kind may ever look like success.
        if *name == "empty answer" || name.starts_with("silence") {
            assert_ne!(ended.outcome, Outcome::Succeeded, "{name}: {facts:?} {tail}");
        }
        if let Ok(pid) = bench.file("server.pid").trim().parse::<u32>() {
            let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            assert_ne!(comm, "tail\n", "{name} left {pid}");
        }
        if ended.outcome == Outcome::Succeeded {
            assert_eq!(facts.exit, Exit::Code { code: 0 }, "{name}: {tail}");
        }
    }
    rows.iter().map(|(name, ended, _)| row(name, ended)).collect::<Vec<_>>().join("\n")
}

#[test]
fn codex_fails_as_it_is_known_to() {
    let Some(rows) = table(Client::Codex, SHORT, |_| {}) else { return };
    insta::assert_snapshot!(snapshot(&rows), @r"
    works: succeeded, 2 requests, edited, 200/20 tokens
    usage limit: failed(usage-limit), 1 requests, reset in 120 min
    limit after some work: failed(usage-limit), 2 requests, edited, 100/10 tokens, reset in 120 min
    429 once: succeeded, 3 requests, edited, 200/20 tokens
    500 once: succeeded, 3 requests, edited, 200/20 tokens
    drop mid-stream once: succeeded, 3 requests, edited, 200/20 tokens
    silence before headers: failed(idle-stall), 1 requests
    silence mid-stream: failed(idle-stall), 1 requests
    empty answer: failed(no-work), 1 requests, 100/10 tokens
    server left behind: succeeded, 3 requests, edited, 300/30 tokens, 1 left and ended
    401: failed(auth), 6 requests
    ");
}

#[test]
fn claude_fails_as_it_is_known_to() {
    // Ten times with pauses is Claude's own habit, five prun's: once is enough to see it.
    let Some(rows) = table(Client::Claude, SHORT, |bench| bench.set("CLAUDE_CODE_MAX_RETRIES", "2")) else { return };
    // Where the beginning of the dropped message had arrived, Claude counts its 100/2 tokens too.
    let begun = "drop mid-stream once: succeeded, 3 requests, edited, 300/22 tokens";
    let shown = snapshot(&rows).replace(begun, &begun.replace("300/22", "200/20"));
    insta::assert_snapshot!(shown, @r"
    works: succeeded, 2 requests, edited, 200/20 tokens
    usage limit: failed(usage-limit), 1 requests, 0/0 tokens
    limit after some work: failed(usage-limit), 2 requests, edited, 100/10 tokens
    429 once: succeeded, 3 requests, edited, 200/20 tokens
    500 once: succeeded, 3 requests, edited, 200/20 tokens
    drop mid-stream once: succeeded, 3 requests, edited, 200/20 tokens
    silence before headers: failed(idle-stall), 1 requests
    silence mid-stream: failed(idle-stall), 1 requests
    empty answer: failed(no-work), 2 requests, 200/20 tokens
    server left behind: succeeded, 3 requests, edited, 300/30 tokens, 1 left and ended
    401: failed(auth), 3 requests, 0/0 tokens
    ");
}
