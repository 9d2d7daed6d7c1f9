//! From a plan that passed the gate to a run that a supervisor can drive. What fails leaves nothing behind.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

use prun_core::event::{Event, EventKind, RunEvent, RunSetup, UnitSetup};
use prun_core::ids::{IdError, RunId, Seq};
use prun_core::plan::{Dirty, PlanFile};
use prun_core::time::Timestamp;

use crate::clock::wall_now;
use crate::files::{Durability, FileError, create_private_dir, write_atomically};
use crate::home::{Home, RunDir};
use crate::ledger::{LedgerError, RunLock, Writer, keep_setup};
use crate::runs::RunCard;
use crate::survey::{LoadedPlan, Survey, never_dirty};
use crate::workshop::repository::StoredFingerprint;
use crate::workspace::dirty::{self, DirtyError};
use crate::workspace::fingerprint::Fingerprint;
use crate::workspace::store::Store;
use crate::workspace::{Base, WorkspaceError};

/// A run that could not be made.
#[derive(Debug, thiserror::Error)]
pub enum BeginError {
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// The ledger cannot be made.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The run's store cannot be made.
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    /// The uncommitted work cannot be read.
    #[error(transparent)]
    Dirty(#[from] DirtyError),
    /// No random number for the run's id.
    #[error("cannot make a run id: {0}")]
    Random(String),
    /// The clock tells a time that cannot be written as an id.
    #[error(transparent)]
    Id(#[from] IdError),
}

/// Makes the run: its directory, store, fingerprint and ledger. Nothing of a unit is started.
///
/// # Errors
/// Any step failed; the run's directory is removed again.
pub fn begin(
    home: &Home,
    loaded: &LoadedPlan,
    survey: &Survey,
    jobs: u32,
    durability: Durability,
) -> Result<RunId, BeginError> {
    let now = wall_now();
    let run = new_id(now)?;
    let dir = home.run(&run);
    create_private_dir(&home.runs())?;
    std::fs::create_dir(dir.root()).map_err(FileError::at("create", dir.root()))?;
    match fill(&dir, home, &run, loaded, survey, jobs, durability, now) {
        Ok(()) => Ok(run),
        Err(error) => {
            // The first error is the one to tell.
            let _ = std::fs::remove_dir_all(dir.root());
            Err(error)
        }
    }
}

/// Removes a run whose supervisor did not come up, unless somebody else has taken it up or a unit of it has begun: a
/// supervisor can die after its first step and before its first word. Whether the run is gone.
#[must_use]
pub fn abandon(dir: &RunDir) -> bool {
    let Ok(Some(_lock)) = RunLock::try_take(dir) else { return false };
    let has_begun = dir.units().symlink_metadata().is_ok();
    !has_begun && std::fs::remove_dir_all(dir.root()).is_ok()
}

#[expect(clippy::too_many_arguments, reason = "the steps of one act, kept apart only for the clean-up")]
fn fill(
    dir: &RunDir,
    home: &Home,
    run: &RunId,
    loaded: &LoadedPlan,
    survey: &Survey,
    jobs: u32,
    durability: Durability,
    now: Timestamp,
) -> Result<(), BeginError> {
    // Held from here on: a directory without a card whose lock is free is the rest of a start that was cut off.
    let lock = RunLock::try_take(dir)?.expect("nobody else knows the new directory");
    let ignore = never_dirty(loaded, home);
    let base = match (&survey.source, &survey.base) {
        (Some(source), Some(base)) => {
            let store = Store::create(&dir.store(), source)?;
            let fingerprint = Fingerprint::take(source, &store, &ignore)?;
            let stored = StoredFingerprint { top: source.top.clone(), ignore: ignore.clone(), fingerprint };
            let text = serde_json::to_vec(&stored).expect("plain data with string keys");
            write_atomically(&dir.fingerprint(), &text, durability)?;
            let carries = loaded.plan.dirty == Some(Dirty::Include) && dirty_paths(survey) > 0;
            Some(if carries { dirty::snapshot(home, source, &store, base, &ignore)? } else { base.clone() })
        }
        _ => None,
    };
    let text = serde_json::to_vec_pretty(&loaded.plan).expect("plain data with string keys");
    write_atomically(&dir.plan(), &text, durability)?;
    let setup = setup(loaded, survey, base.as_ref(), jobs);
    let card = RunCard {
        run: run.clone(),
        title: setup.title.clone(),
        repo: setup.repo.as_ref().map(PathBuf::from),
        dir: Some(loaded.dir.clone()),
        plan_digest: setup.plan_digest.clone(),
        began: now,
    };
    keep_setup(dir, &setup, durability)?;
    let kind = EventKind::run(RunEvent::PlanAccepted(Box::new(setup)));
    Writer::create(dir, lock, durability)?.append(&[Event { seq: Seq(1), at: now, kind }])?;
    // The card makes the run visible, so it comes last.
    card.write(dir, durability)?;
    Ok(())
}

fn setup(loaded: &LoadedPlan, survey: &Survey, base: Option<&Base>, jobs: u32) -> RunSetup {
    let plan = &loaded.plan;
    let source = survey.source.as_ref();
    let dirty = dirty_paths(survey);
    let count = |wanted: bool| if wanted { u32::try_from(dirty).unwrap_or(u32::MAX) } else { 0 };
    RunSetup {
        title: plan.title.clone(),
        plan_digest: loaded.digest.clone(),
        repo: source.map(|source| source.top.to_string_lossy().into_owned()),
        subdir: source.map(|source| source.prefix.to_string_lossy().into_owned()).unwrap_or_default(),
        base: base.map(|base| base.commit.clone()),
        base_tree: base.map(|base| base.tree.clone()),
        carried: count(plan.dirty == Some(Dirty::Include)),
        unseen: count(plan.dirty != Some(Dirty::Include)),
        guard: plan.guard.filter(|_| base.is_some()),
        jobs,
        jobs_are_chosen: plan.jobs.is_some(),
        budget: plan.budget,
        verifies: plan.verify.is_some() && base.is_some(),
        units: units(plan),
    }
}

fn units(plan: &PlanFile) -> Vec<UnitSetup> {
    let unit = |unit: &prun_core::plan::UnitPlan| UnitSetup {
        id: unit.id.clone(),
        mode: unit.mode,
        executors: unit.executors.clone(),
        retries: unit.retries,
        owns: unit.owns.clone(),
        panel: unit.panel.clone(),
        priority: unit.priority,
        budget: unit.budget,
    };
    plan.units.iter().map(unit).collect()
}

fn dirty_paths(survey: &Survey) -> usize {
    survey.world.repo.as_ref().map_or(0, |repo| repo.dirty)
}

/// `YYMMDD-HHMMSS-<4 base32>` in UTC.
pub(crate) fn new_id(now: Timestamp) -> Result<RunId, BeginError> {
    // Crockford's base 32: no letter that reads like a digit.
    const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
    let mut random = [0_u8; 4];
    getrandom::fill(&mut random).map_err(|error| BeginError::Random(error.to_string()))?;
    let tail: String = random.iter().map(|byte| char::from(ALPHABET[usize::from(byte % 32)])).collect();
    let time = jiff::Timestamp::from_millisecond(now.0).map_err(|error| BeginError::Random(error.to_string()))?;
    Ok(format!("{}-{tail}", time.strftime("%y%m%d-%H%M%S")).parse()?)
}

/// Held by whoever looks for a twin of a plan and starts a run: two that do so at the same moment would both find none.
/// The kernel frees it with its holder.
#[derive(Debug)]
pub struct StartLock {
    _file: File,
}

impl StartLock {
    /// Takes the lock of the plan with this digest; `waits` is called where somebody else is starting it.
    ///
    /// # Errors
    /// The lock file cannot be made or locked.
    pub fn take(home: &Home, digest: &str, waits: impl FnOnce()) -> Result<Self, FileError> {
        let dir = home.starting();
        create_private_dir(&dir)?;
        // The files stay, so there are few of them. Two plans that share one wait for each other, for less than a second.
        let path = dir.join(digest.get(..2).unwrap_or(digest));
        let file = File::options().create(true).truncate(false).write(true).open(&path);
        let file = file.map_err(FileError::at("open", &path))?;
        match file.try_lock() {
            Ok(()) => return Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => waits(),
            Err(TryLockError::Error(error)) => return Err(FileError::at("lock", &path)(error)),
        }
        file.lock().map_err(FileError::at("lock", &path))?;
        Ok(Self { _file: file })
    }
}

/// A run of the same plan in the same repository that is driven now.
#[must_use]
pub fn living_twin(home: &Home, digest: &str, repo: Option<&Path>) -> Option<RunId> {
    let same = |card: &RunCard| card.plan_digest == digest && card.repo.as_deref() == repo;
    let mut twins = crate::runs::list(home).into_iter().filter(same);
    twins.find(|card| crate::runs::supervisor(&home.run(&card.run)).is_some()).map(|card| card.run)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_somebody_took_up_or_that_has_begun_is_not_removed() {
        let home = tempfile::tempdir().unwrap();
        let run: RunId = "261201-004500-abcd".parse().unwrap();
        let dir = Home::at(home.path()).run(&run);
        std::fs::create_dir_all(dir.root()).unwrap();
        let lock = RunLock::try_take(&dir).unwrap();
        assert!(!abandon(&dir), "somebody drives it");
        drop(lock);
        std::fs::create_dir_all(dir.units().join("a/1")).unwrap();
        assert!(!abandon(&dir), "a worker may be at work");
        std::fs::remove_dir_all(dir.units()).unwrap();
        assert!(abandon(&dir) && !dir.root().exists());
    }
}
