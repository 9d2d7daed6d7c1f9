//! Why is this unit in this state? Sentences for people, made from facts and events.

use crate::digest::{counted, duration};
use crate::event::{Event, EventKind, RequeuedBy, RetryHow, RunEvent, UnitEvent};
use crate::ids::{ExecutorName, UnitId};
use crate::outcome::{AttemptFacts, Cause, Channel, CheckFacts, Exit, Gap, Outcome, StopReason};
use crate::run::RunState;
use crate::time::Timestamp;
use crate::unit::{Disposition, Unit, UnitState};

/// One sentence on a verdict, without a full stop.
#[must_use]
pub fn outcome_sentence(outcome: &Outcome, facts: Option<&AttemptFacts>) -> String {
    let Some(facts) = facts else { return bare_sentence(outcome) };
    match outcome {
        Outcome::Succeeded => success_sentence(facts),
        Outcome::Incomplete(gap) => gap_sentence(*gap, facts),
        Outcome::Failed(cause) => cause_sentence(*cause, facts),
        Outcome::Stopped(reason) => stop_sentence(*reason).to_owned(),
    }
}

fn bare_sentence(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Failed(Cause::DispatchDead) => "its dispatcher died; nothing could be read back".to_owned(),
        Outcome::Stopped(reason) => stop_sentence(*reason).to_owned(),
        other => format!("{other}, without any facts"),
    }
}

fn success_sentence(facts: &AttemptFacts) -> String {
    let changed = counted(facts.changes.as_ref().map_or(0, |changes| changes.files.len()), "file");
    let verified = if facts.verify.is_some() { ", its check passed" } else { "" };
    match facts.stopped {
        Some(StopReason::Lingered) => format!("lingered after its result; {changed} changed{verified}"),
        _ => format!("{changed} changed{verified}"),
    }
}

fn gap_sentence(gap: Gap, facts: &AttemptFacts) -> String {
    match gap {
        Gap::NoResult => "no result file, tail salvaged".to_owned(),
        Gap::Contract => {
            let missing = facts.result.as_ref().map_or_else(String::new, |result| result.contract_gaps.join(", "));
            format!("the result lacks {missing}")
        }
        Gap::Deliverable => format!("not delivered: {}", facts.missing_deliverables.join(", ")),
        Gap::NoChange => "it was to change code, and nothing changed".to_owned(),
        Gap::NoFinalEvent => "the client ended without its final event".to_owned(),
        Gap::Harvest => {
            format!("its changes could not be harvested: {}", facts.harvest_error.as_deref().unwrap_or("unknown"))
        }
    }
}

fn cause_sentence(cause: Cause, facts: &AttemptFacts) -> String {
    if let Some(error) = facts.error.as_ref().filter(|error| error.class == cause) {
        let silent = matches!(facts.stopped, Some(StopReason::IdleStall | StopReason::FirstOutput));
        return format!("{cause}: {}{}", error.message, if silent { "; then it was silent for too long" } else { "" });
    }
    match cause {
        Cause::SpawnError => match &facts.exit {
            Exit::NotStarted { error, .. } => format!("the worker could not be started: {error}"),
            _ => "the worker could not be started".to_owned(),
        },
        Cause::Setup => check_sentence("its set-up command", facts.setup.as_ref()),
        Cause::Verify => check_sentence("its check", facts.verify.as_ref()),
        Cause::ExitCode | Cause::Signal => exit_sentence(&facts.exit),
        Cause::Oom => "the kernel ended it: out of memory".to_owned(),
        Cause::IdleStall => silence_sentence("no sign of life within the idle limit", facts),
        Cause::FirstOutput => silence_sentence("no output within the first-output limit", facts),
        Cause::HardTimeout => "longer than its time limit".to_owned(),
        Cause::OutputLimit => "its output outgrew the limit".to_owned(),
        Cause::NoWork => "the client says success, and there is no answer and no change".to_owned(),
        Cause::Permission if !facts.denied.is_empty() => {
            format!("the client denied it {}; the rest may look complete and not be", facts.denied.join(", "))
        }
        Cause::KillFailed => format!("processes that could not be ended: {:?}", facts.sweep.survivors),
        Cause::DispatchDead => "its dispatcher died; what it left was ended and saved".to_owned(),
        other => other.to_string(),
    }
}

fn silence_sentence(what: &str, facts: &AttemptFacts) -> String {
    if facts.silent.is_empty() { what.to_owned() } else { format!("{what} (silent: {})", facts.silent.join(", ")) }
}

fn check_sentence(what: &str, check: Option<&CheckFacts>) -> String {
    match check {
        Some(check) if check.timed_out => format!("{what} ran into its time limit"),
        Some(check) => format!("{what} failed: {}", exit_sentence(&check.exit)),
        None => format!("{what} failed"),
    }
}

/// One phrase on how a process ended.
#[must_use]
pub fn exit_sentence(exit: &Exit) -> String {
    match exit {
        Exit::Code { code } => format!("exit code {code}"),
        Exit::Signal { signal } => format!("ended by signal {signal}"),
        Exit::NotStarted { error, .. } => error.clone(),
        Exit::Unobserved => "nobody saw how it ended".to_owned(),
    }
}

fn stop_sentence(reason: StopReason) -> &'static str {
    match reason {
        StopReason::User => "stopped by the user",
        StopReason::RunStopped => "stopped with the run",
        StopReason::Budget => "stopped: the budget is spent",
        StopReason::Signal => "its dispatcher was ended by a signal",
        StopReason::Hold => "its executor is held",
        StopReason::IdleStall => "silent for too long",
        StopReason::FirstOutput => "silent from the start",
        StopReason::HardTimeout => "it took too long",
        StopReason::Lingered => "it lingered after its final event",
        StopReason::OutputLimit => "it wrote too much",
    }
}

/// The story of a unit: one sentence an event, with its place. Holds of its executors are part of it while it waits.
#[must_use]
pub fn story(events: &[Event], unit: &UnitId) -> Vec<(Event, String)> {
    let mut run = RunState::default();
    let mut story = Vec::new();
    for event in events {
        let told = match &event.kind {
            EventKind::Unit { unit: id, attempt, event: kind } if id == unit => Some(sentence(attempt.0, kind)),
            EventKind::Run(kind) => run.unit(unit).and_then(|unit| hold_sentence(kind, unit)),
            _ => None,
        };
        story.extend(told.map(|told| (event.clone(), told)));
        // A damaged ledger still has its sentences.
        let _ = run.apply(event);
    }
    story
}

fn hold_sentence(event: &RunEvent, unit: &Unit) -> Option<String> {
    let concerns = |executor| !unit.is_settled() && unit.setup.executors.contains(executor);
    match event {
        RunEvent::ExecutorHeld { executor, why, .. } if concerns(executor) => {
            Some(format!("{executor} was held: {why}"))
        }
        RunEvent::ExecutorReleased { executor } if concerns(executor) => Some(format!("{executor} was released")),
        _ => None,
    }
}

/// What a waiting unit waits for, in a sentence without a full stop; `None` where it does not wait.
#[must_use]
pub fn waits_for(run: &RunState, unit: &Unit, now: Timestamp) -> Option<String> {
    if !unit.is_waiting() {
        return None;
    }
    if run.stop.is_some() {
        return Some("the run was stopped".to_owned());
    }
    let open: Vec<&ExecutorName> = unit.setup.executors.iter().filter(|name| !unit.barred.contains(name)).collect();
    let held = open.iter().filter_map(|name| {
        let hold = run.holds.get(*name)?;
        let left = hold.until.map(|until| duration(until.since(now)));
        let until = left.map_or_else(|| "until it is released".to_owned(), |left| format!("for {left}"));
        Some(format!("{name} is held {until} ({})", hold.cause))
    });
    let held: Vec<String> = held.collect();
    if held.len() == open.len() {
        return Some(held.join(", "));
    }
    match unit.state {
        UnitState::Backoff { until } if until > now => {
            Some(format!("its next attempt begins in {}", duration(until.since(now))))
        }
        _ => Some("it waits for a free slot".to_owned()),
    }
}

/// What the user can do about a unit now, a line each. `name` is the unit as RUN/UNIT; `is_lost`: nobody drives
/// its run, which is not over.
#[must_use]
pub fn next_steps(unit: &Unit, name: &str, is_lost: bool) -> Vec<String> {
    let run = name.split('/').next().unwrap_or(name);
    let began = !unit.attempts.is_empty();
    match &unit.state {
        UnitState::Settled { .. } if matches!(unit.disposition, Disposition::Applied { .. }) => {
            vec![format!("you can: prun diff {name} · prun undo {run}")]
        }
        UnitState::Settled { outcome: Outcome::Succeeded, .. } => {
            let mut lines =
                vec![format!("you can: prun result {name} · prun diff {name} · prun exclude {name} -m WHY")];
            if let Some(panel) = unit.setup.panel.as_ref().filter(|_| unit.disposition == Disposition::Unreviewed) {
                lines.push(format!("     or: prun compare {run}/{panel} · prun accept {name} -m WHY"));
            }
            lines
        }
        UnitState::Settled { .. } => {
            let mut lines =
                vec![format!("you can: prun retry {name}{}", if began { " [--continue -m TEXT]" } else { "" })];
            if began {
                lines[0] = format!("you can: prun logs {name} · {}", lines[0].trim_start_matches("you can: "));
            }
            if unit.goes_on_after_resume() {
                lines.push(format!("     or: prun resume {run}"));
            }
            lines.push(format!("     or: prun accept {name} -m WHY · prun exclude {name} -m WHY"));
            lines
        }
        _ if is_lost => vec![format!("you can: prun resume {run}")],
        UnitState::Running(running) if running.handed_over => {
            vec![format!("you can: prun brief {name} · prun submit {name} · prun stop {name}")]
        }
        UnitState::Running(_) | UnitState::Stopping { .. } => {
            vec![format!("you can: prun logs {name} -f · prun stop {name}")]
        }
        _ => vec![format!("you can: prun stop {name}")],
    }
}

/// One sentence on an event of a unit.
#[must_use]
pub fn sentence(attempt: u32, event: &UnitEvent) -> String {
    match event {
        UnitEvent::AttemptBegan { executor, why, .. } => format!("attempt {attempt} began on {executor}: {why}"),
        UnitEvent::WorkspaceReady { millis } => format!("its workspace was ready after {millis} ms"),
        UnitEvent::ProcessStarted { process } => format!("its dispatcher runs as process {}", process.pid),
        UnitEvent::StartFailed { message, .. } => format!("nothing was started: {message}"),
        UnitEvent::HandedOver => "handed over to the coordinator's own subagent".to_owned(),
        UnitEvent::WentQuiet { seconds } => format!("no sign of life for {seconds} s"),
        UnitEvent::BecameActive => "active again".to_owned(),
        UnitEvent::StopRequested { reason } => format!("its end was asked for: {}", stop_sentence(*reason)),
        UnitEvent::StopEscalated => "its end was asked for again, without grace".to_owned(),
        UnitEvent::ProcessExited { settled_itself: true } => "its dispatcher settled it and left".to_owned(),
        UnitEvent::ProcessExited { settled_itself: false } => "its dispatcher died before it settled it".to_owned(),
        UnitEvent::RetryScheduled { outcome, why, .. } => format!("{outcome}: {why}"),
        UnitEvent::UnitSettled { outcome, why, facts } => {
            let channel = facts.as_ref().and_then(|facts| facts.result.as_ref()).map(|result| result.channel);
            let result = channel.filter(|channel| *channel != Channel::ResultFile);
            let result = result.map(|channel| format!(" (result from: {channel})")).unwrap_or_default();
            let guarded = facts.as_ref().is_some_and(|facts| !facts.read_only.is_empty());
            let guarded = if guarded { "; the repository was read-only to it" } else { "" };
            format!("settled as {outcome}: {why}{result}{guarded}")
        }
        UnitEvent::UnitLost => "a new supervisor did not know yet what became of it".to_owned(),
        UnitEvent::UnitAdopted => "its dispatcher lives and is watched again".to_owned(),
        UnitEvent::UnitRequeued { by, how, message } => requeue_sentence(*by, *how, message.as_deref()),
        UnitEvent::Accepted { why, .. } => format!("accepted: {why}"),
        UnitEvent::Excluded { why, instead: None } => format!("excluded: {why}"),
        UnitEvent::Excluded { why, instead: Some(other) } => format!("{other} of its panel was taken instead: {why}"),
        UnitEvent::Unreviewed => "the decision was taken back".to_owned(),
        UnitEvent::Applied { tree } => format!("landed with the tree {}", tree.get(..12).unwrap_or(tree)),
        UnitEvent::Reharvested { .. } => "its workspace was harvested again".to_owned(),
    }
}

fn requeue_sentence(by: RequeuedBy, how: RetryHow, message: Option<&str>) -> String {
    let who = match by {
        RequeuedBy::User => "the user",
        RequeuedBy::Recovery => "the new supervisor",
    };
    let place = match how {
        RetryHow::Fresh => "in a fresh workspace",
        RetryHow::Continue => "in its own workspace",
    };
    let said = message.map(|message| format!(", told: {message}")).unwrap_or_default();
    format!("queued again by {who}, {place}{said}")
}
