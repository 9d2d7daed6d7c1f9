//! Runs a command beside the worker (set-up, the unit's own check), contained like a worker.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use prun_core::outcome::{CheckFacts, Exit};

use super::attempt::Attempt;
use super::reap::Reaper;
use super::spawn::{Launch, StartError, Streams, open_append, open_null};
use super::watch::SLEEP;
use crate::process::identity;
use crate::spec::CheckSpec;

/// Between two looks at the size of the log.
const LOOK: Duration = Duration::from_secs(1);

/// A command that has ended.
pub(super) struct Checked {
    /// How.
    pub(super) facts: CheckFacts,
    /// A signal to the dispatcher ended it.
    pub(super) interrupted: bool,
}

/// Runs `check` in the worker's directory; its output goes to `<name>.log` in the state dir.
pub(super) fn run_check(attempt: &mut Attempt, name: &str, check: &CheckSpec) -> Checked {
    let began = Instant::now();
    let log = attempt.state.check_log(name);
    let ended = match start(attempt, &log, check) {
        Ok((leader, log)) => wait(attempt, leader, &log, began, check),
        Err(error) => {
            Ended { exit: Exit::NotStarted { code: error.code, error: error.message }, timed_out: false, cut: false }
        }
    };
    let interrupted = attempt.signals.stop().is_some();
    let facts = CheckFacts {
        ok: ended.exit == Exit::Code { code: 0 } && !ended.timed_out && !ended.cut && !interrupted,
        exit: ended.exit,
        timed_out: ended.timed_out,
        millis: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        log: log.to_string_lossy().into_owned(),
    };
    Checked { facts, interrupted }
}

struct Ended {
    exit: Exit,
    timed_out: bool,
    /// The log outgrew the output limit.
    cut: bool,
}

fn start(attempt: &mut Attempt, log: &Path, check: &CheckSpec) -> Result<(u32, File), StartError> {
    let streams = || -> io::Result<(Streams, File)> {
        let stdout = open_append(log)?;
        let kept = stdout.try_clone()?;
        Ok((Streams { stdin: open_null()?, stderr: stdout.try_clone()?, stdout }, kept))
    };
    let (streams, kept) = streams()
        .map_err(|error| StartError { code: 126, message: format!("cannot open {}: {error}", log.display()) })?;
    let (group, guard) = (attempt.containment.group(), attempt.spec.guard.as_ref());
    let started = Launch { argv: &check.argv, cwd: &attempt.cwd, env: &attempt.env, streams, group, guard }.start()?;
    attempt.containment.confirm(started.pid, started.is_born_in_group);
    Ok((started.pid, kept))
}

fn wait(attempt: &mut Attempt, leader: u32, log: &File, began: Instant, check: &CheckSpec) -> Ended {
    let mut deadline = began + Duration::from_millis(check.limit_millis);
    let mut reaper = Reaper::of(leader);
    let (mut timed_out, mut cut) = (false, false);
    loop {
        reaper.collect();
        timed_out = timed_out || Instant::now() >= deadline;
        let size = log.metadata().map_or(0, |meta| meta.len());
        cut = cut || attempt.spec.limits.output_bytes.is_some_and(|limit| size > limit);
        if reaper.exit().is_some() {
            timed_out = false;
            break;
        }
        if timed_out || cut || attempt.signals.stop().is_some() {
            if let Some(leader) = identity(leader) {
                let grace = Duration::from_millis(attempt.spec.limits.grace_millis);
                reaper.end_leader(&leader, grace, &mut attempt.signals);
            }
            break;
        }
        let left = if reaper.has_more() { Duration::ZERO } else { deadline.saturating_duration_since(Instant::now()) };
        // A sleep of the machine, or a stop of everything, is not the command's time.
        deadline += Some(attempt.signals.wait(Some(left.min(LOOK)))).filter(|slept| *slept > SLEEP).unwrap_or_default();
    }
    reaper.sweep(&attempt.containment);
    Ended { exit: reaper.exit().cloned().unwrap_or(Exit::Unobserved), timed_out, cut }
}
