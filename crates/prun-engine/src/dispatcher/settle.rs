//! Settles an attempt whose worker is gone: result, contract, deliverables, check, harvest. Facts come last.

use std::io::Write;
use std::path::Path;

use prun_core::contract::FallbackWhy;
use prun_core::outcome::{AttemptFacts, Changes, CheckFacts, Exit, FACTS_VERSION, FinalEvent, StopReason};

use super::answer::{Answer, own_usage};
use super::attempt::Attempt;
use super::check::run_check;
use super::ending::{Ending, reaped_line};
use super::live::Lived;
use super::output::read_end;
use super::{diagnose, now};
use crate::files::write_atomically;
use crate::git::Git;
use crate::spec::AttemptSpec;
use crate::workspace::harvest::harvest;

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
        let Self { spec, state, result, options, tail, .. } = &*self;
        let answer = Answer { spec, state, result, tail: Some(tail), durability: options.durability };
        let result = answer.settle(&lived.stream, &why);
        let usage = own_usage(spec.resumes.as_ref(), &lived.stream);
        let missing_deliverables = missing_deliverables(&self.cwd, &self.spec.deliverables);
        let verify = verify(self, &lived.exit, &mut stopped);
        let (changes, harvest_error) = take_changes(self);
        if lived.stream.is_spent {
            // The client kept to it by itself.
            stopped = stopped.or(Some(StopReason::Budget));
        }
        AttemptFacts {
            version: FACTS_VERSION,
            unit: self.spec.unit.clone(),
            attempt: self.spec.attempt,
            exit: lived.exit,
            stopped,
            dispatcher_signal: self.signals.stop(),
            dispatcher_died: false,
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
            read_only: read_only(&self.spec),
            usage,
            model: lived.stream.model.or_else(|| self.spec.worker.as_ref()?.model.clone()),
            denied: lived.stream.denied,
            session: lived.stream.session,
            silent: lived.watched.silent,
            peak_rss_kib: lived.used.peak_rss_kib,
            cpu_millis: lived.used.cpu_millis,
            peak_memory_kib: lived.used.peak_memory_kib,
            oom_killed: lived.used.oom_killed,
            started_at: self.started_at,
            ended_at: now(),
            worker_millis: lived.worker_millis,
        }
    }

    fn append_reaped(&self, reason: &str, code: i32) {
        let ends_with_newline = read_end(&self.tail, 1).is_ok_and(|(last, _)| last.is_empty() || last == b"\n");
        let line = reaped_line(reason, code, ends_with_newline);
        if let Err(error) = (&self.tail).write_all(line.as_bytes()) {
            diagnose(&format!("cannot append to {}: {error}", self.state.tail().display()));
        }
    }
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

/// What the processes of an attempt could not write, for its facts. A session unit has none of ours.
pub(super) fn read_only(spec: &AttemptSpec) -> Vec<String> {
    let guard = spec.guard.as_ref().filter(|_| spec.worker.is_some());
    let paths = guard.into_iter().flat_map(|guard| &guard.read_only);
    paths.map(|path| path.to_string_lossy().into_owned()).collect()
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
