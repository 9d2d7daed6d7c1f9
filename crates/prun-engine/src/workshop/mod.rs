//! What a supervisor needs of a run's directory: the accepted plan, executors, store and mirror. From them it
//! makes attempts ([`prepare`]), their checkouts, and what is told of the user's repository ([`repository`]).

mod checkouts;
mod prepare;
pub mod repository;

pub use checkouts::remove_workspace;
pub use prepare::Prepared;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, OnceLock, PoisonError, RwLock};

use prun_core::budget::{Budget, Spent};
use prun_core::event::{RetryHow, RunSetup};
use prun_core::ids::{Attempt, ExecutorName, RunId, UnitId};
use prun_core::outcome::AttemptFacts;
use prun_core::plan::{PlanFile, UnitPlan};
use prun_core::run::RunState;
use prun_core::schedule::{Account, Capacity, Resources};
use prun_core::unit::{AttemptRecord, NextAttempt};

use crate::executor::version::Version;
use crate::executor::{Executor, Kind, Registry, preflight};
use crate::files::{Durability, FileError};
use crate::git::Git;
use crate::home::{AttemptDir, Home, RunDir, sha256_hex};
use crate::process;
use crate::slots::{self, Slot};
use crate::spec::Resumed;
use crate::state_dir;
use crate::workspace::extras::Extras;
use crate::workspace::mirror::Mirror;
use crate::workspace::source::Source;
use crate::workspace::store::Store;
use crate::workspace::template::Template;
use crate::workspace::{Base, WorkspaceError};

/// A run's directory, opened for work.
#[derive(Debug)]
pub struct Workshop {
    /// The user's home of prun.
    pub home: Home,
    /// The run.
    pub run: RunId,
    /// Its directory.
    pub run_dir: RunDir,
    /// The plan as it was accepted, prompts included.
    pub plan: PlanFile,
    /// Git.
    pub git: Git,
    /// Whether writes must survive a power cut.
    pub durability: Durability,
    registry: Registry,
    /// What clients said of their version, once a supervisor: a client that is updated meanwhile is the same to it.
    versions: Mutex<BTreeMap<ExecutorName, Option<Version>>>,
    pub(super) store: Option<Store>,
    mirror: OnceLock<Result<Mirror, String>>,
    template: RwLock<Option<Template>>,
    /// Orders whose preparation has not ended.
    ordered: AtomicUsize,
    extras: OnceLock<Result<Option<Extras>, String>>,
    source: OnceLock<Result<Option<Source>, String>>,
}

/// A run's directory that cannot be worked with.
#[derive(Debug, thiserror::Error)]
pub enum WorkshopError {
    /// A file is missing or broken.
    #[error("cannot read {}: {why}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The run's store cannot be opened.
    #[error(transparent)]
    Store(#[from] WorkspaceError),
}

/// An attempt to be prepared.
#[derive(Debug)]
pub struct Order {
    unit: UnitPlan,
    attempt: Attempt,
    executor: ExecutorName,
    next: NextAttempt,
    previous: Option<Previous>,
    /// The repository's top level.
    repo: Option<String>,
    base: Option<Base>,
    /// The directory of the repository that the run was started in.
    subdir: String,
    /// Uncommitted files that workers cannot see.
    unseen: u32,
    /// What it may still spend, of its own budget and of the run's.
    left: Budget,
    /// A unit that has not begun yet will need the same checkout.
    has_queued: bool,
}

/// The attempt before.
#[derive(Debug)]
struct Previous {
    dir: AttemptDir,
    session: Option<Resumed>,
    /// The set-up command of its workspace has come to a good end.
    is_set_up: bool,
    /// The output of the unit's check, where that failed.
    failed_check: Option<PathBuf>,
}

impl Workshop {
    /// Opens a run's directory.
    ///
    /// # Errors
    /// The plan or the store cannot be read.
    pub fn open(home: Home, run: RunId, registry: Registry, durability: Durability) -> Result<Self, WorkshopError> {
        let run_dir = home.run(&run);
        let path = run_dir.plan();
        let unreadable = |why: String| WorkshopError::Unreadable { path: path.clone(), why };
        let text = std::fs::read(&path).map_err(|error| unreadable(error.to_string()))?;
        let plan = serde_json::from_slice(&text).map_err(|error| unreadable(error.to_string()))?;
        let git = Git::from_env();
        let store = run_dir.store();
        let store = store.exists().then(|| Store::open(&git, &store)).transpose()?;
        Ok(Self {
            home,
            run,
            run_dir,
            plan,
            git,
            durability,
            registry,
            versions: Mutex::default(),
            store,
            mirror: OnceLock::new(),
            template: RwLock::new(None),
            ordered: AtomicUsize::new(0),
            extras: OnceLock::new(),
            source: OnceLock::new(),
        })
    }

    /// The version of an executor's client, where the command line depends on it.
    fn version(&self, executor: &Executor) -> Option<Version> {
        if executor.kind != Kind::Claude {
            return None;
        }
        let mut known = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
        *known.entry(executor.name.clone()).or_insert_with(|| preflight::version(executor))
    }

    /// The run's store, where the run has a repository.
    #[must_use]
    pub fn store(&self) -> Option<&Store> {
        self.store.as_ref()
    }

    /// What the scheduler may use.
    #[must_use]
    pub fn resources(&self, run: &RunState) -> Resources {
        // Where descriptors are few, units wait instead of failing for want of one.
        let room = process::units_within(process::descriptor_limit());
        let jobs = run.setup.as_ref().map_or(1, |setup| setup.jobs).min(room);
        let are_chosen = run.setup.as_ref().is_some_and(|setup| setup.jobs_are_chosen);
        let capacity = |executor: &Executor| {
            // The unit's own command has no account to protect: `jobs` of the user's alone bounds it. A sum of slots
            // is no word on commands: it has those of other executors in it.
            let slots = if executor.is_unbounded() && are_chosen { executor.slots.max(jobs) } else { executor.slots };
            Capacity { slots, stagger_millis: executor.stagger_millis, is_agent: executor.shares_slots() }
        };
        let shared = self.registry.iter().filter(|executor| executor.shares_slots());
        let accounts = shared.map(|executor| (executor.name.clone(), Account::default())).collect();
        let executors = self.registry.iter().map(|executor| (executor.name.clone(), capacity(executor))).collect();
        // A digest of the run's name: the same for each supervisor of a run, another one for each run.
        let digest = sha256_hex(self.run.as_str().as_bytes());
        let seed = u64::from_str_radix(&digest[..16], 16).unwrap_or(0);
        Resources { jobs, executors, accounts, seed, ..Resources::default() }
    }

    /// Takes slots of the account of `executor`, as many as are free, at most `wanted`.
    ///
    /// # Errors
    /// The lock files cannot be made.
    pub fn take_slots(&self, executor: &ExecutorName, wanted: u32) -> Result<Vec<Slot>, FileError> {
        // One that is gone from the configuration takes no units.
        let Ok(executor) = self.registry.get(executor) else { return Ok(Vec::new()) };
        slots::take(&self.home.slots(), &executor.account, executor.slots, wanted)
    }

    /// An attempt's directory.
    #[must_use]
    pub fn attempt_dir(&self, unit: &UnitId, attempt: Attempt) -> AttemptDir {
        self.run_dir.attempt(&RunDir::attempt_name(unit, attempt))
    }

    /// What the dispatcher of an attempt wrote last.
    #[must_use]
    pub fn facts(&self, unit: &UnitId, attempt: Attempt) -> Option<AttemptFacts> {
        let state_dir = state_dir::find_in(self.attempt_dir(unit, attempt).root())?;
        state_dir::read_facts(&state_dir).ok()
    }

    /// All that the preparation of an attempt needs to know, taken from the run's state.
    #[must_use]
    pub fn order(
        &self,
        run: &RunState,
        unit: &UnitId,
        attempt: Attempt,
        executor: ExecutorName,
        next: NextAttempt,
    ) -> Order {
        let state = run.unit(unit).expect("the core only names units of the run");
        let setup = run.setup.as_ref().expect("a run with units has a set-up");
        let plan = self.plan.units.iter().find(|plan| plan.id == *unit).expect("the run's units are the plan's");
        // An attempt that never began has left nothing to go on with.
        let before = state.attempts.iter().rev().find(|record| record.attempt < attempt && record.was_started());
        let resumed = |session: &String| Resumed { session: session.clone(), spent: state.spent_in(session) };
        let session = |record: &AttemptRecord| record.facts.as_ref().and_then(|facts| facts.session.clone());
        let previous = before.map(|record| Previous {
            dir: self.run_dir.attempt(&record.dir),
            // Nobody else can go on with an executor's session.
            session: session(record).filter(|_| record.executor == executor).as_ref().map(resumed),
            is_set_up: is_set_up(&state.attempts, record.attempt),
            failed_check: failed_check(record),
        });
        let (base, repo, subdir, unseen) = (base_of(setup), setup.repo.clone(), setup.subdir.clone(), setup.unseen);
        let has_queued = self.has_queued_checkout(run);
        let of_run = run.budget.left(&Spent { usage: run.used, millis: 0 });
        let left = state.setup.budget.left(&state.spent(None, state.since)).least(&of_run);
        self.ordered.fetch_add(1, SeqCst);
        Order { unit: plan.clone(), attempt, executor, next, previous, repo, base, subdir, unseen, left, has_queued }
    }
}

/// Whether the set-up has succeeded in the workspace of `attempt`: in that attempt, or in one that it continues.
fn is_set_up(attempts: &[AttemptRecord], attempt: Attempt) -> bool {
    let back = attempts.iter().rev().skip_while(|record| record.attempt > attempt);
    for record in back {
        let setup = record.facts.as_ref().and_then(|facts| facts.setup.as_ref());
        if let Some(setup) = setup {
            return setup.ok;
        }
        if record.begins.how == RetryHow::Fresh {
            return false;
        }
    }
    false
}

fn failed_check(record: &AttemptRecord) -> Option<PathBuf> {
    let check = record.facts.as_ref()?.verify.as_ref().filter(|check| !check.ok)?;
    Some(PathBuf::from(&check.log))
}

/// The base that a run was started with.
#[must_use]
pub fn base_of(setup: &RunSetup) -> Option<Base> {
    let (commit, tree) = setup.base.clone().zip(setup.base_tree.clone())?;
    Some(Base { commit, tree })
}
