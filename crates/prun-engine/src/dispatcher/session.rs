//! Waits for the result of a session unit, which somebody else works on.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use prun_core::outcome::StopReason;

use super::attempt::Attempt;
use super::notes::Note;
use crate::home::AttemptDir;

/// Between two looks; SIGUSR1 ends the wait early.
const LOOK: Duration = Duration::from_secs(1);

/// A result that nobody submitted counts once it has not changed for this long.
const QUIET: Duration = Duration::from_secs(10);

/// Waits until the unit is submitted, its result stands still, or it must be ended. Only the hard limit
/// applies.
pub(super) fn wait_for_submission(attempt: &mut Attempt) -> Option<StopReason> {
    attempt.notes.write(&Note::HandedOver);
    let submitted = attempt.spec.attempt_dir.as_ref().map(|dir| AttemptDir::at(dir).submitted());
    let began = Instant::now();
    let mut slept = Duration::ZERO;
    loop {
        if attempt.signals.stop().is_some() {
            return Some(StopReason::Signal);
        }
        let is_submitted = submitted.as_ref().is_some_and(|submitted| fs::symlink_metadata(submitted).is_ok());
        if is_submitted || attempt.result.is_from_worker() && is_quiet(attempt.result.path()) {
            return None;
        }
        let limit = attempt.spec.limits.hard_millis.map(Duration::from_millis);
        if limit.is_some_and(|limit| began.elapsed().saturating_sub(slept) >= limit) {
            return Some(StopReason::HardTimeout);
        }
        slept += attempt.signals.wait(Some(LOOK));
    }
}

/// A change that seems to come from the future is a new one.
fn is_quiet(result: &Path) -> bool {
    let age = fs::symlink_metadata(result).and_then(|meta| meta.modified()).ok().and_then(|time| time.elapsed().ok());
    age.is_some_and(|age| age >= QUIET)
}
