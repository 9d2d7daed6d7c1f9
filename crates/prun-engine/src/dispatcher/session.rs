//! Waits for the result of a session unit, which somebody else works on.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use prun_core::outcome::StopReason;

use super::attempt::Attempt;
use super::notes::Note;
use crate::home::AttemptDir;

/// Between two looks; SIGUSR1 ends the wait early.
const LOOK: Duration = Duration::from_secs(1);

/// A result that nobody submitted counts once it has not changed for this long, by our own clock: the wall
/// clock may jump while it is being written.
const QUIET: Duration = Duration::from_secs(10);

/// Waits until the unit is submitted, its result stands still, or it must be ended. Only the hard limit
/// applies.
pub(super) fn wait_for_submission(attempt: &mut Attempt) -> Option<StopReason> {
    attempt.notes.write(&Note::HandedOver);
    let submitted = attempt.spec.attempt_dir.as_ref().map(|dir| AttemptDir::at(dir).submitted());
    let began = Instant::now();
    let mut slept = Duration::ZERO;
    let mut standing = Standing::default();
    loop {
        if attempt.signals.stop().is_some() {
            return Some(StopReason::Signal);
        }
        let is_submitted = submitted.as_ref().is_some_and(|submitted| fs::symlink_metadata(submitted).is_ok());
        if is_submitted || attempt.result.is_from_worker() && standing.is_quiet(attempt.result.path(), slept) {
            return None;
        }
        let limit = attempt.spec.limits.hard_millis.map(Duration::from_millis);
        if limit.is_some_and(|limit| began.elapsed().saturating_sub(slept) >= limit) {
            return Some(StopReason::HardTimeout);
        }
        slept += attempt.signals.wait(Some(LOOK));
    }
}

/// A result as it was last seen, since when, and how much had been slept until then.
#[derive(Default)]
struct Standing(Option<((u64, u64, SystemTime), Instant, Duration)>);

impl Standing {
    fn is_quiet(&mut self, result: &Path, slept: Duration) -> bool {
        let seen = fs::symlink_metadata(result).and_then(|meta| Ok((meta.ino(), meta.len(), meta.modified()?)));
        match (seen.ok(), &self.0) {
            (Some(seen), Some((known, since, before))) if seen == *known => {
                since.elapsed().saturating_sub(slept.saturating_sub(*before)) >= QUIET
            }
            (seen, _) => {
                self.0 = seen.map(|seen| (seen, Instant::now(), slept));
                false
            }
        }
    }
}
