//! What a supervisor needs of a run's directory: the accepted plan, executors, store and mirror, and the
//! making of attempts from them.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use prun_core::event::{Mode, RetryHow, RunSetup};
use prun_core::ids::{Attempt, ExecutorName, RunId, UnitId};
use prun_core::outcome::AttemptFacts;
use prun_core::plan::model::DEFAULT_FIRST_OUTPUT_MILLIS;
use prun_core::plan::{PlanFile, UnitPlan};
use prun_core::run::RunState;
use prun_core::schedule::{Capacity, Resources};
use prun_core::unit::{NextAttempt, UnitState};
use rustix::fs::{FlockOperation, flock};

use crate::brief::{BriefFacts, compose, follow_up};
use crate::executor::stream::StreamKind;
use crate::executor::{Executor, LaunchRequest, Registry, launch};
use crate::files::{Durability, FileError, create_private_dir, write_atomically};
use crate::git::Git;
use crate::home::{AttemptDir, Home, RunDir};
use crate::spec::{AttemptSpec, CheckSpec, HarvestSpec, Limits, Liveness, Resumed, SPEC_VERSION};
use crate::state_dir;
use crate::workspace::clone::{self, ClonePlan};
use crate::workspace::extras::Extras;
use crate::workspace::mirror::{self, Mirror};
use crate::workspace::scratch::{self, Checkout};
use crate::workspace::source::Source;
use crate::workspace::store::Store;
use crate::workspace::template::Template;
use crate::workspace::{Base, WorkspaceError};

/// How long a set-up command, a unit's check or the run's check may take.
pub const CHECK_LIMIT: Duration = Duration::from_secs(30 * 60);

/// How long a worker may live on after its client's final event (design, section 5).
const LINGER_MILLIS: u64 = 30_000;

/// Between TERM and KILL (contract).
const GRACE_MILLIS: u64 = 2_000;

/// What a tail may hold (design, section 5).
const OUTPUT_BYTES: u64 = 256 << 20;

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
    pub(super) store: Option<Store>,
    mirror: OnceLock<Result<Mirror, String>>,
    template: RwLock<Option<Template>>,
    /// Orders whose preparation has not ended.
    ordered: AtomicUsize,
    extras: OnceLock<Result<Option<Extras>, String>>,
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
    /// Units that have not begun yet and will need the same checkout.
    queued: usize,
}

/// The attempt before.
#[derive(Debug)]
struct Previous {
    dir: AttemptDir,
    session: Option<Resumed>,
}

/// An attempt that is ready to be dispatched.
#[derive(Debug)]
pub struct Prepared {
    /// Its fence, locked.
    pub fence: File,
    /// Milliseconds it took.
    pub millis: u64,
}

/// Where a unit works.
struct Workspace {
    cwd: PathBuf,
    checkout: Option<PathBuf>,
    harvest: Option<HarvestSpec>,
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
            store,
            mirror: OnceLock::new(),
            template: RwLock::new(None),
            ordered: AtomicUsize::new(0),
            extras: OnceLock::new(),
        })
    }

    /// The run's store, where the run has a repository.
    #[must_use]
    pub fn store(&self) -> Option<&Store> {
        self.store.as_ref()
    }

    /// What the scheduler may use.
    #[must_use]
    pub fn resources(&self, run: &RunState) -> Resources {
        let jobs = run.setup.as_ref().map_or(1, |setup| setup.jobs);
        let capacity = |executor: &Executor| {
            // The unit's own command has no account to protect: `jobs` alone bounds it.
            let slots = if executor.is_unbounded() { executor.slots.max(jobs) } else { executor.slots };
            Capacity { slots, stagger_millis: executor.stagger_millis }
        };
        let executors = self.registry.iter().map(|executor| (executor.name.clone(), capacity(executor))).collect();
        Resources { jobs, executors, last_start: BTreeMap::new() }
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
        let previous = before.map(|record| Previous {
            dir: self.run_dir.attempt(&record.dir),
            session: record.facts.as_ref().and_then(|facts| facts.session.as_ref()).map(resumed),
        });
        let (base, repo, subdir, unseen) = (base_of(setup), setup.repo.clone(), setup.subdir.clone(), setup.unseen);
        let queued = self.queued_checkouts(run);
        self.ordered.fetch_add(1, SeqCst);
        Order { unit: plan.clone(), attempt, executor, next, previous, repo, base, subdir, unseen, queued }
    }

    /// Makes the attempt's directory, takes its fence, prepares the workspace and writes the spec.
    ///
    /// # Errors
    /// Any step failed; what was half made is removed. The message names the path and the act.
    pub fn prepare(&self, order: &Order) -> Result<Prepared, String> {
        let prepared = self.prepare_ordered(order);
        if self.ordered.fetch_sub(1, SeqCst) == 1 && order.queued == 0 {
            // Its bytes are free as soon as it is closed.
            *self.template.write().unwrap_or_else(PoisonError::into_inner) = None;
        }
        prepared
    }

    fn prepare_ordered(&self, order: &Order) -> Result<Prepared, String> {
        let began = Instant::now();
        let dir = self.attempt_dir(&order.unit.id, order.attempt);
        let fence = begin_attempt(&dir).map_err(|error| error.to_string())?;
        match self.prepare_in(&dir, order) {
            Ok(()) => {
                let millis = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
                Ok(Prepared { fence, millis })
            }
            Err(message) => {
                remove_workspace(&dir);
                Err(message)
            }
        }
    }

    fn prepare_in(&self, dir: &AttemptDir, order: &Order) -> Result<(), String> {
        let executor = self.registry.get(&order.executor).map_err(|error| error.to_string())?;
        let continued = order.previous.as_ref().filter(|_| order.next.how == RetryHow::Continue);
        let workspace = match continued {
            Some(previous) => previous_workspace(previous)?,
            None => self.new_workspace(dir, order)?,
        };
        let resumes = continued.and_then(|previous| previous.session.clone());
        let command = order.unit.command.as_ref().map(prun_core::plan::CommandLine::argv);
        let request = LaunchRequest {
            model: order.unit.model.as_deref(),
            effort: order.unit.effort.as_deref(),
            command: command.as_deref(),
            resume: resumes.as_ref().map(|resumed| resumed.session.as_str()),
            plain: false,
        };
        let worker = launch(executor, &request).map_err(|error| error.to_string())?;
        let prompt = self.prompt(dir, order, &workspace, resumes.is_some(), worker.is_none());
        // Prompt and spec need not survive a power cut: where they are lost the attempt had only begun.
        write_atomically(&dir.prompt(), prompt.as_bytes(), Durability::Cached).map_err(|error| error.to_string())?;
        let stream = worker.as_ref().map_or(StreamKind::Plain, |worker| worker.stream);
        let spec = AttemptSpec {
            version: SPEC_VERSION,
            run: Some(self.run.clone()),
            unit: order.unit.id.clone(),
            attempt: order.attempt,
            attempt_dir: Some(dir.root().to_owned()),
            state_parent: dir.root().to_owned(),
            worker,
            resumes,
            prompt_file: dir.prompt(),
            result_file: dir.result(),
            cwd: Some(workspace.cwd),
            env: environment(executor, &order.unit),
            limits: limits(&order.unit, stream),
            setup: self.plan.setup.as_ref().filter(|_| continued.is_none() && workspace.harvest.is_some()).map(check),
            verify: order.unit.verify.as_ref().map(check),
            deliverables: order.unit.deliverables.clone(),
            expects_changes: order.unit.mode == Mode::Write,
            harvest: workspace.harvest,
        };
        let text = serde_json::to_vec_pretty(&spec).map_err(|error| format!("cannot write the spec: {error}"))?;
        write_atomically(&dir.spec(), &text, Durability::Cached).map_err(|error| error.to_string())
    }

    fn prompt(
        &self,
        dir: &AttemptDir,
        order: &Order,
        workspace: &Workspace,
        resumes: bool,
        is_session: bool,
    ) -> String {
        let result = dir.result();
        let submit_as = format!("{}/{}", self.run.short(), order.unit.id);
        let mut unseen = unseen(order.unseen);
        if let Some(Ok(Some(extras))) = self.extras.get() {
            unseen.extend(extras.unseen.iter().cloned());
        }
        let facts = BriefFacts {
            unit: &order.unit.id,
            mode: order.unit.mode,
            workspace: &workspace.cwd,
            checkout: workspace.checkout.as_deref(),
            base: order.base.as_ref().map_or("", |base| base.commit.as_str()),
            owns: &order.unit.owns,
            unseen: &unseen,
            result: &result,
            submit_as: is_session.then_some(submit_as.as_str()),
        };
        let message = order.next.message.as_deref();
        if resumes {
            return follow_up(message.unwrap_or("Go on with the task."), &facts);
        }
        let task = order.unit.prompt.text().unwrap_or_default();
        let task = match message {
            Some(message) => format!("{}\n\nA word on this attempt: {message}", task.trim_end()),
            None => task.to_owned(),
        };
        compose(self.plan.context.as_ref().and_then(prun_core::plan::Prompt::text), &task, &facts)
    }

    fn new_workspace(&self, dir: &AttemptDir, order: &Order) -> Result<Workspace, String> {
        let base = order.base.as_ref().filter(|_| order.unit.checkout);
        let (Some(store), Some(base)) = (self.store.as_ref(), base) else {
            let scratch = dir.scratch();
            scratch::prepare(&scratch, None).map_err(|error| error.to_string())?;
            return Ok(Workspace { cwd: scratch, checkout: None, harvest: None });
        };
        let mirror = self.mirror(store, base)?;
        let trusted_index = dir.trusted_index();
        let extras = self.extras(store, base, order.repo.as_deref())?;
        let make = |template: Option<&Template>| -> Result<(PathBuf, PathBuf), WorkspaceError> {
            let trusted_index = &trusted_index;
            let (checkout, cwd) = if order.unit.mode == Mode::Write {
                let clone = dir.clone_dir();
                clone::prepare(&ClonePlan { store, mirror, base, dir: &clone, trusted_index, template })?;
                let cwd = clone.join(&order.subdir);
                (clone, cwd)
            } else {
                let scratch = dir.scratch();
                let checkout = Checkout { store, mirror, base, trusted_index, template };
                let repo = scratch::prepare(&scratch, Some(&checkout))?;
                (repo.unwrap_or_else(|| scratch.clone()), scratch)
            };
            extras.iter().try_for_each(|extras| extras.add(&self.home, &checkout, trusted_index))?;
            Ok((checkout, cwd))
        };
        // This one is among those that were ordered.
        let others = order.queued + self.ordered.load(SeqCst).saturating_sub(1);
        let (checkout, cwd) = self.with_template(store, base, others, make).map_err(|error| error.to_string())?;
        let harvest = HarvestSpec {
            work_tree: checkout.clone(),
            store: self.run_dir.store(),
            trusted_index,
            base_tree: base.tree.clone(),
            base: base.commit.clone(),
            exclude: Vec::new(),
        };
        Ok(Workspace { cwd, checkout: Some(checkout), harvest: Some(harvest) })
    }

    /// How many units have not begun yet and will need a checkout of the base.
    fn queued_checkouts(&self, run: &RunState) -> usize {
        let needs = |unit: &&prun_core::unit::Unit| {
            let plan = self.plan.units.iter().find(|plan| plan.id == unit.setup.id);
            unit.state == UnitState::Queued && unit.attempts.is_empty() && plan.is_some_and(|plan| plan.checkout)
        };
        run.units.iter().filter(needs).count()
    }

    /// Has `make` make a checkout from the template. Where there is none yet, git writes this checkout, and the
    /// template is taken from it, if others are to follow; the others wait for it.
    fn with_template(
        &self,
        store: &Store,
        base: &Base,
        others: usize,
        make: impl Fn(Option<&Template>) -> Result<(PathBuf, PathBuf), WorkspaceError>,
    ) -> Result<(PathBuf, PathBuf), WorkspaceError> {
        let read = || self.template.read().unwrap_or_else(PoisonError::into_inner);
        if others > 0 && read().is_none() {
            let mut template = self.template.write().unwrap_or_else(PoisonError::into_inner);
            if template.is_none() {
                let made = make(None)?;
                // Without a template git writes every checkout: slower, and just as good.
                let format = &store.facts.object_format;
                *template = Template::take(base, &made.0, format, self.run_dir.root()).ok().flatten();
                return Ok(made);
            }
        }
        make(read().as_ref())
    }

    /// What clones get beside the base, found once a supervisor.
    fn extras(&self, store: &Store, base: &Base, repo: Option<&str>) -> Result<Option<&Extras>, String> {
        let find = || -> Result<Option<Extras>, String> {
            let Some(repo) = repo else { return Ok(None) };
            let source = Source::open(&self.git, Path::new(repo)).map_err(|error| error.to_string())?;
            let read = |args: &[&str]| store.command(args.iter().copied());
            Extras::find(&source, base, &read).map(Some).map_err(|error| error.to_string())
        };
        self.extras.get_or_init(find).as_ref().map(Option::as_ref).map_err(Clone::clone)
    }

    /// The mirror, filled once a supervisor; all preparations wait for it.
    pub(super) fn mirror(&self, store: &Store, base: &Base) -> Result<&Mirror, String> {
        let fill = || mirror::ensure(&self.home, store, base).map_err(|error| error.to_string());
        self.mirror.get_or_init(fill).as_ref().map_err(Clone::clone)
    }
}

/// The base that a run was started with.
#[must_use]
pub fn base_of(setup: &RunSetup) -> Option<Base> {
    let (commit, tree) = setup.base.clone().zip(setup.base_tree.clone())?;
    Some(Base { commit, tree })
}

/// Creates an attempt's directory, which must be new, and takes its fence.
fn begin_attempt(dir: &AttemptDir) -> Result<File, FileError> {
    if let Some(parent) = dir.root().parent() {
        create_private_dir(parent)?;
    }
    std::fs::create_dir(dir.root()).map_err(FileError::at("create", dir.root()))?;
    let path = dir.lock();
    let file = File::create(&path).map_err(FileError::at("create", &path))?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)
        .map_err(|error| FileError::at("lock", &path)(error.into()))?;
    Ok(file)
}

/// Removes a workspace that was never handed to a worker.
pub fn remove_workspace(dir: &AttemptDir) {
    for path in [dir.clone_dir(), dir.scratch()] {
        // What cannot be removed now is removed with the run.
        let _ = std::fs::remove_dir_all(path);
    }
}

/// The workspace of the attempt before, to go on in.
fn previous_workspace(previous: &Previous) -> Result<Workspace, String> {
    let path = previous.dir.spec();
    let text = std::fs::read(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let spec: AttemptSpec =
        serde_json::from_slice(&text).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let cwd = spec.cwd.ok_or_else(|| format!("{} names no workspace", path.display()))?;
    if !cwd.is_dir() {
        return Err(format!("the workspace {} is gone; retry without --continue", cwd.display()));
    }
    let checkout = spec.harvest.as_ref().map(|harvest| harvest.work_tree.clone());
    Ok(Workspace { cwd, checkout, harvest: spec.harvest })
}

fn check(command: &prun_core::plan::CommandLine) -> CheckSpec {
    let limit_millis = u64::try_from(CHECK_LIMIT.as_millis()).unwrap_or(u64::MAX);
    CheckSpec { argv: command.argv(), limit_millis }
}

fn environment(executor: &Executor, unit: &UnitPlan) -> Vec<(String, String)> {
    let own = unit.env.0.iter().map(|(name, value)| (name.clone(), value.clone()));
    executor.env.iter().cloned().chain(own).collect()
}

fn limits(unit: &UnitPlan, stream: StreamKind) -> Limits {
    // A plain command may compute in silence; only an agent has to say something soon.
    let is_default = unit.first_output_millis == Some(DEFAULT_FIRST_OUTPUT_MILLIS);
    let first_output_millis = unit.first_output_millis.filter(|_| stream != StreamKind::Plain || !is_default);
    Limits {
        first_output_millis,
        idle_millis: unit.idle_millis,
        hard_millis: unit.timeout_millis,
        linger_millis: (stream != StreamKind::Plain).then_some(LINGER_MILLIS),
        grace_millis: GRACE_MILLIS,
        output_bytes: Some(OUTPUT_BYTES),
        liveness: Liveness::All,
    }
}

fn unseen(files: u32) -> Vec<String> {
    let phrase = |files| format!("{files} uncommitted files of the user's working tree");
    Some(files).filter(|files| *files > 0).map(phrase).into_iter().collect()
}
