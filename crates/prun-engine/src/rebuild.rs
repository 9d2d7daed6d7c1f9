//! `prun ledger rebuild`: a damaged ledger made again from what can be read of it and from the attempts' directories.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use prun_core::event::{Event, EventKind, RunEvent};
use prun_core::ids::{Attempt, Seq, UnitId};
use prun_core::rebuild::{FoundAttempt, rebuild};
use prun_core::run::{ApplyError, RunState};
use prun_core::time::Timestamp;

use crate::clock::wall_now;
use crate::files::{Durability, FileError};
use crate::home::{AttemptDir, RunDir};
use crate::ledger::{LedgerError, RunLock, Salvaged, read_setup, replace, salvage};
use crate::state_dir;

/// What came of it.
#[derive(Debug, PartialEq, Eq)]
pub enum Rebuilt {
    /// The ledger is sound; nothing was changed.
    Sound,
    /// It was made again.
    Again {
        /// What was wrong with the old one.
        trouble: String,
        /// Events that were read back from it.
        kept: usize,
        /// Events that follow from the attempts' directories.
        added: usize,
        /// Attempts that were found.
        attempts: usize,
        /// Where the old one is kept.
        aside: PathBuf,
    },
}

/// Why it cannot be made again.
#[derive(Debug, thiserror::Error)]
pub enum RebuildError {
    /// A supervisor writes it.
    #[error("a supervisor drives the run")]
    Driven,
    /// It is a later version's, or the new one cannot be written.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// What the run was started with cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// A bug of prun's.
    #[error("what was read back does not fit together: {0}")]
    Bug(#[from] ApplyError),
}

/// Makes the ledger of `run` again, as the holder of its lock.
///
/// # Errors
/// Somebody drives the run, nothing is left to make it from, or the disk refused. The old ledger stands then.
pub fn rebuild_ledger(run: &RunDir, durability: Durability) -> Result<Rebuilt, RebuildError> {
    let lock = RunLock::try_take(run)?.ok_or(RebuildError::Driven)?;
    let Salvaged { mut events, mut state, trouble } = salvage(run)?;
    let Some(trouble) = trouble else { return Ok(Rebuilt::Sound) };
    let kept = events.len();
    if state.setup.is_none() {
        events = vec![begin(run)?];
        state = RunState::replay(&events)?;
    }
    let found = found(run, &state);
    let attempts = found.values().map(Vec::len).sum();
    let added = rebuild(&state, &found, wall_now())?;
    let count = added.len();
    events.extend(added);
    let aside = replace(run, lock, &events, durability)?;
    Ok(Rebuilt::Again { trouble, kept, added: count, attempts, aside })
}

/// The first event of a run.
fn begin(run: &RunDir) -> Result<Event, FileError> {
    let setup = read_setup(run)?;
    let at = made(&run.setup());
    Ok(Event { seq: Seq(1), at, kind: EventKind::run(RunEvent::PlanAccepted(Box::new(setup))) })
}

/// The attempts that have a directory, in order.
fn found(run: &RunDir, state: &RunState) -> BTreeMap<UnitId, Vec<FoundAttempt>> {
    let ids = state.units.iter().map(|unit| unit.setup.id.clone());
    ids.map(|id| {
        let attempts = attempts_of(run, &id);
        (id, attempts)
    })
    .collect()
}

fn attempts_of(run: &RunDir, unit: &UnitId) -> Vec<FoundAttempt> {
    let dir = run.root().join("units").join(unit.as_str());
    let names = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let mut numbers: Vec<u32> = names.filter_map(|name| name.to_str()?.parse().ok()).filter(|name| *name > 0).collect();
    numbers.sort_unstable();
    numbers.into_iter().map(|number| look(run, unit, Attempt(number))).collect()
}

fn look(run: &RunDir, unit: &UnitId, attempt: Attempt) -> FoundAttempt {
    let dir: AttemptDir = run.attempt(&RunDir::attempt_name(unit, attempt));
    let state_dir = state_dir::find_in(dir.root());
    let process = state_dir.as_deref().and_then(|dir| state_dir::read_identity(dir).ok()).map(|found| found.dispatcher);
    let facts = state_dir.as_deref().and_then(|dir| state_dir::read_facts(dir).ok());
    // What names another unit or attempt was not written by this one.
    let facts = facts.filter(|facts| facts.unit == *unit && facts.attempt == attempt).map(Box::new);
    FoundAttempt { attempt, began: made(&dir.lock()), process, facts }
}

fn made(path: &Path) -> Timestamp {
    let modified = std::fs::metadata(path).and_then(|meta| meta.modified()).ok();
    let since = modified.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
    since.map_or_else(wall_now, |since| Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX)))
}
