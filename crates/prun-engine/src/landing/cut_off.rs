//! Landings, and undos, that were killed in the middle: what their journals say against what the ledger says.

use std::io::ErrorKind;

use prun_core::run::RunState;

use super::LandingError;
use crate::files::{Durability, FileError};
use crate::home::RunDir;
use crate::integrate::journal::{Journal, Phase};
use crate::ledger::{LockHolder, Reader, RunLock};

/// A landing of `run` that was cut off and that nobody works on, for those who only look. `state` is the run as
/// it was read before.
///
/// # Errors
/// A journal or the ledger cannot be read.
pub fn abandoned(run: &RunDir, state: &RunState) -> Result<Option<u32>, LandingError> {
    let Some(number) = find(run, state)? else { return Ok(None) };
    // One that is under way holds the lock, and one that has ended since is in the ledger by now.
    let is_free = RunLock::holder(run)? == LockHolder::Nobody;
    Ok((is_free && Reader::open(run)?.after(state.seq)?.is_empty()).then_some(number))
}

/// The newest landing whose journal says other than the ledger.
pub(super) fn find(run: &RunDir, state: &RunState) -> Result<Option<u32>, LandingError> {
    for number in journals(run)?.into_iter().rev() {
        let phase = Journal::open(&run.landing(number), Durability::Cached)?.phase()?;
        let recorded = state.landings.iter().find(|landing| landing.number == number);
        let agrees = match (phase, recorded) {
            (Phase::Landed, Some(landing)) => !landing.undone,
            (Phase::Undone, recorded) => recorded.is_none_or(|landing| landing.undone),
            (Phase::Prepared, None) => true,
            _ => false,
        };
        if !agrees {
            return Ok(Some(number));
        }
    }
    Ok(None)
}

/// The numbers of all landings that have a journal, also of those that came to nothing, in order.
fn journals(run: &RunDir) -> Result<Vec<u32>, LandingError> {
    let dir = run.landings();
    let entries = match std::fs::read_dir(&dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(FileError::at("read", &dir))?,
    };
    let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse::<u32>().ok();
    let mut numbers: Vec<u32> = entries.flatten().filter_map(number).collect();
    numbers.retain(|number| run.landing(*number).join("phase.json").exists());
    numbers.sort_unstable();
    Ok(numbers)
}
