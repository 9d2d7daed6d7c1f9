//! Settles an attempt whose worker is gone: result, contract, deliverables, check, harvest. Facts come last.

use std::io::Write;
use std::path::Path;

use prun_core::contract::{self, FallbackWhy, SALVAGED_TAIL, SalvagedTail};
use prun_core::outcome::{
    AttemptFacts, Changes, Channel, CheckFacts, Exit, FACTS_VERSION, FinalEvent, ResultFacts, StopReason,
};

use super::attempt::Attempt;
use super::check::run_check;
use super::ending::{Ending, reaped_line};
use super::live::Lived;
use super::output::read_end;
use super::result_file::ResultFile;
use super::spawn::open_append;
use super::{diagnose, now};
use crate::executor::stream::StreamSummary;
use crate::files::{Durability, read_regular, write_atomically, write_atomically_with_mode};
use crate::git::Git;
use crate::workspace::harvest::harvest;

/// A last message that is larger is no message.
const MESSAGE_LIMIT: u64 = 16 * 1024 * 1024;

impl Attempt {
    /// Finds out what came of it.
    pub(super) fn settle(&mut self, lived: Lived) -> AttemptFacts {
        let mut stopped = lived.watched.stop;
        let signal_so_far = self.signals.stop().filter(|_| stopped == Some(StopReason::Signal));
        let final_event = lived.stream.final_event.clone();
        let ending = Ending { exit: &lived.exit, stopped, signal: signal_so_far, final_event: &final_event };
        if let Some(reason) = ending.reason() {
            self.append_reaped(&reason, ending.exit_code());
        }
        let why = fallback_why(&lived, &ending);
        let result = settle_result(self, &lived.stream, &why);
        let missing_deliverables = missing_deliverables(&self.cwd, &self.spec.deliverables);
        let verify = verify(self, &lived.exit, &mut stopped);
        let (changes, harvest_error) = take_changes(self);
        AttemptFacts {
            version: FACTS_VERSION,
            unit: self.spec.unit.clone(),
            attempt: self.spec.attempt,
            exit: lived.exit,
            stopped,
            dispatcher_signal: self.signals.stop(),
            setup: lived.setup,
            final_event: if self.spec.worker.is_some() { final_event } else { FinalEvent::NotApplicable },
            error: lived.stream.error,
            result,
            missing_deliverables,
            verify,
            expects_changes: self.spec.expects_changes,
            changes,
            harvest_error,
            sweep: lived.sweep,
            usage: lived.stream.usage,
            session: lived.stream.session,
            silent: lived.watched.silent,
            peak_rss_kib: lived.used.map(|(peak, _)| peak),
            cpu_millis: lived.used.map(|(_, cpu)| cpu),
            started_at: self.started_at,
            ended_at: now(),
            worker_millis: lived.worker_millis,
        }
    }

    fn append_reaped(&self, reason: &str, code: i32) {
        let path = self.state.tail();
        let ends_with_newline = read_end(&path, 1).is_ok_and(|(last, _)| last.is_empty() || last == b"\n");
        let line = reaped_line(reason, code, ends_with_newline);
        if let Err(error) = open_append(&path).and_then(|mut tail| tail.write_all(line.as_bytes())) {
            diagnose(&format!("cannot append to {}: {error}", path.display()));
        }
    }
}

/// Finds the result in the first authentic channel, or salvages what can be saved under the FALLBACK
/// header, and sees that it stands where it was asked for.
fn settle_result(attempt: &Attempt, stream: &StreamSummary, why: &FallbackWhy) -> Option<ResultFacts> {
    if let Some(found) = attempt.result.find() {
        if attempt.options.durability == Durability::Synced {
            attempt.result.sync();
        }
        return Some(facts(attempt, Channel::ResultFile, &found.head, found.bytes, attempt.result.path(), false));
    }
    let (channel, bytes) = client_message(attempt, stream).unwrap_or_else(|| (Channel::Salvage, salvage(attempt, why)));
    place(attempt, channel, &bytes)
}

/// Runs the unit's own check, where the worker ended well; a signal in between stops the attempt.
fn verify(attempt: &mut Attempt, exit: &Exit, stopped: &mut Option<StopReason>) -> Option<CheckFacts> {
    let check = attempt.spec.verify.clone()?;
    let ended_well = match stopped {
        None => matches!(exit, Exit::Code { code: 0 } | Exit::Unobserved),
        Some(reason) => *reason == StopReason::Lingered,
    };
    if !ended_well {
        return None;
    }
    let checked = run_check(attempt, "verify", &check);
    if checked.interrupted {
        *stopped = Some(StopReason::Signal);
        return None;
    }
    Some(checked.facts)
}

/// Declared deliverables that are not there.
pub(super) fn missing_deliverables(workspace: &Path, deliverables: &[String]) -> Vec<String> {
    deliverables.iter().filter(|path| std::fs::symlink_metadata(workspace.join(path)).is_err()).cloned().collect()
}

/// Takes what changed in the workspace into the run's store; the changes, or why that failed.
fn take_changes(attempt: &Attempt) -> (Option<Changes>, Option<String>) {
    let Some(spec) = &attempt.spec.harvest else { return (None, None) };
    match harvest(&Git::from_env(), spec) {
        Ok(changes) => {
            let path = attempt.state.changes();
            let written = serde_json::to_vec(&changes).map_err(|error| error.to_string()).and_then(|text| {
                write_atomically(&path, &text, attempt.options.durability).map_err(|error| error.to_string())
            });
            (Some(changes), written.err())
        }
        Err(error) => (None, Some(error.to_string())),
    }
}

/// What the client itself handed over as its final answer.
fn client_message(attempt: &Attempt, stream: &StreamSummary) -> Option<(Channel, Vec<u8>)> {
    let asked_for = attempt.spec.worker.as_ref().is_some_and(|worker| worker.last_message_placeholder.is_some());
    let last = asked_for.then(|| read_regular(&attempt.state.last_message(), MESSAGE_LIMIT).ok()).flatten();
    if let Some(bytes) = last.filter(|bytes| !contract::is_blank(bytes)) {
        return Some((Channel::LastMessage, bytes));
    }
    // The last message of a stream without a good end is not the final one.
    let message = stream.message.as_ref().filter(|_| stream.final_event == FinalEvent::Completed)?;
    (!contract::is_blank(message.as_bytes())).then(|| (Channel::FinalEvent, message.clone().into_bytes()))
}

fn fallback_why(lived: &Lived, ending: &Ending<'_>) -> FallbackWhy {
    if let Some(reason) = ending.reason() {
        return FallbackWhy::Reaped(reason);
    }
    if let Some(setup) = lived.setup.as_ref().filter(|setup| !setup.ok) {
        return FallbackWhy::NotStarted(format!("its set-up failed, see {}", setup.log));
    }
    match &lived.exit {
        Exit::NotStarted { error, .. } => FallbackWhy::NotStarted(error.clone()),
        _ => FallbackWhy::Missing,
    }
}

fn salvage(attempt: &Attempt, why: &FallbackWhy) -> Vec<u8> {
    let path = attempt.state.tail();
    let (bytes, left_out) = read_end(&path, SALVAGED_TAIL).unwrap_or_default();
    let tail = SalvagedTail { bytes: &bytes, left_out, path: &path.to_string_lossy() };
    contract::fallback(&attempt.spec.unit, why, tail)
}

/// Writes a result that the worker did not write itself: where it was asked for, else in the state dir.
fn place(attempt: &Attempt, channel: Channel, bytes: &[u8]) -> Option<ResultFacts> {
    let durability = attempt.options.durability;
    let size = bytes.len() as u64;
    let asked_for: &ResultFile = &attempt.result;
    let Err(error) = asked_for.replace(bytes, &attempt.state.result_before(), durability) else {
        return Some(facts(attempt, channel, bytes, size, asked_for.path(), false));
    };
    let path = attempt.state.misplaced_result();
    match write_atomically_with_mode(&path, bytes, durability, 0o666) {
        Ok(()) => {
            diagnose(&format!("{error}; the result is at {}", path.display()));
            Some(facts(attempt, channel, bytes, size, &path, true))
        }
        Err(second) => {
            diagnose(&format!("{error}; {second}; there is no result"));
            None
        }
    }
}

fn facts(attempt: &Attempt, channel: Channel, head: &[u8], bytes: u64, path: &Path, misplaced: bool) -> ResultFacts {
    let parsed = contract::parse(&attempt.spec.unit, head);
    ResultFacts {
        channel,
        path: path.to_string_lossy().into_owned(),
        bytes,
        contract_gaps: parsed.gaps,
        conclusion: parsed.conclusion,
        open_items: parsed.open_items,
        files_claimed: parsed.files,
        misplaced,
    }
}
