//! A settled unit's workspace after a person worked in it: taken again on request, told where it was not.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

use prun_core::event::{Event, EventKind, UnitEvent};
use prun_core::ids::UnitId;
use prun_core::outcome::Changes;
use prun_core::run::RunState;
use prun_core::unit::{Disposition, Unit, UnitState};

use crate::clock::wall_now;
use crate::driver::{DriverError, read_state};
use crate::files::FileError;
use crate::ledger::{LedgerError, RunLock, Writer};
use crate::spec::AttemptSpec;
use crate::workshop::Workshop;
use crate::workspace::harvest::{HarvestError, harvest};

/// A unit that cannot be harvested again.
#[derive(Debug, thiserror::Error)]
pub enum ReharvestError {
    /// It is at work, or was never begun.
    #[error("cannot harvest {unit}: it is {state}")]
    NotSettled {
        /// The unit.
        unit: UnitId,
        /// Its state's name.
        state: String,
    },
    /// Its changes are in the working tree already.
    #[error("cannot harvest {0}: its changes were landed already")]
    Applied(UnitId),
    /// It has no workspace with a checkout.
    #[error("cannot harvest {unit}: {why}")]
    NoWorkspace {
        /// The unit.
        unit: UnitId,
        /// What is missing.
        why: String,
    },
    /// The workspace could not be taken.
    #[error(transparent)]
    Harvest(#[from] HarvestError),
    /// The ledger, or whoever drives the run.
    #[error(transparent)]
    Driver(#[from] DriverError),
}

impl From<FileError> for ReharvestError {
    fn from(error: FileError) -> Self {
        Self::Driver(error.into())
    }
}

impl From<LedgerError> for ReharvestError {
    fn from(error: LedgerError) -> Self {
        Self::Driver(error.into())
    }
}

/// What a second harvest came to.
#[derive(Clone, Debug)]
pub struct Reharvested {
    /// The changes now.
    pub changes: Changes,
    /// They are others than before.
    pub is_new: bool,
    /// The unit had been accepted as it was before, and is to be accepted again.
    pub lost_acceptance: bool,
}

/// Takes the workspace of a settled unit again, as the holder of the run's lock, and records it.
///
/// # Errors
/// A supervisor drives the run, the unit is not settled or landed already, or its workspace cannot be taken.
pub fn reharvest(workshop: &Workshop, id: &UnitId) -> Result<Reharvested, ReharvestError> {
    let driven = || DriverError::Driven(workshop.run.to_string());
    let lock = RunLock::try_take(&workshop.run_dir)?.ok_or_else(driven)?;
    let mut state = read_state(workshop)?;
    let no_workspace = |why: &str| ReharvestError::NoWorkspace { unit: id.clone(), why: why.to_owned() };
    let unit = state.unit(id).ok_or_else(|| no_workspace("the run has no such unit"))?;
    if !matches!(unit.state, UnitState::Settled { .. }) {
        return Err(ReharvestError::NotSettled { unit: id.clone(), state: unit.state.name().to_owned() });
    }
    if matches!(unit.disposition, Disposition::Applied { .. }) {
        return Err(ReharvestError::Applied(id.clone()));
    }
    let mut facts = unit.facts().cloned().ok_or_else(|| no_workspace("nothing is known of its last attempt"))?;
    let spec = spec(workshop, unit).ok_or_else(|| no_workspace("its workspace was not prepared"))?;
    let spec = spec.harvest.ok_or_else(|| no_workspace("it has no checkout"))?;
    let changes = harvest(&workshop.git, &spec)?;
    let is_new = facts.changes.as_ref().is_none_or(|before| before.tree != changes.tree);
    let lost_acceptance = is_new && matches!(unit.disposition, Disposition::Accepted { .. });
    facts.changes = Some(changes.clone());
    facts.harvest_error = None;
    let mut kinds = vec![UnitEvent::Reharvested { facts: Box::new(facts) }];
    if lost_acceptance {
        kinds.push(UnitEvent::Unreviewed);
    }
    let attempt = unit.attempt();
    let mut events = Vec::new();
    for kind in kinds {
        let event = Event { seq: state.seq.next(), at: wall_now(), kind: EventKind::unit(id, attempt, kind) };
        let run = workshop.run.to_string();
        state.apply(&event).map_err(|error| DriverError::Damaged { run, error })?;
        events.push(event);
    }
    Writer::open(&workshop.run_dir, lock, workshop.durability)?.append(&events)?;
    Ok(Reharvested { changes, is_new, lost_acceptance })
}

/// Those of `units` whose workspace is other than what was harvested, each with a reason. A workspace that is gone
/// cannot have changed: what was harvested is in the run's store.
#[must_use]
pub fn changed_since(workshop: &Workshop, run: &RunState, units: &[UnitId]) -> Vec<(UnitId, String)> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut found = Vec::new();
        while let Some(id) = units.get(next.fetch_add(1, Relaxed)) {
            found.extend(run.unit(id).and_then(|unit| compare(workshop, unit)).map(|why| (id.clone(), why)));
        }
        found
    };
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(units.len());
    let mut found: Vec<(UnitId, String)> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("a comparison does not panic")).collect()
    });
    found.sort_by_key(|(id, _)| units.iter().position(|unit| unit == id));
    found
}

fn compare(workshop: &Workshop, unit: &Unit) -> Option<String> {
    let harvested = unit.facts()?.changes.as_ref()?;
    let spec = spec(workshop, unit)?.harvest.filter(|spec| spec.work_tree.symlink_metadata().is_ok())?;
    match harvest(&workshop.git, &spec) {
        Ok(now) if now.tree == harvested.tree => None,
        Ok(_) => Some("its workspace changed after the harvest".to_owned()),
        Err(error) => Some(error.to_string()),
    }
}

/// What the unit's last attempt was told.
fn spec(workshop: &Workshop, unit: &Unit) -> Option<AttemptSpec> {
    let path = workshop.run_dir.attempt(&unit.attempts.last()?.dir).spec();
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}
