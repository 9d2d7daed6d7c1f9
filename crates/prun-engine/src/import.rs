//! `prun import`: makes a settled run of what `dispatch-task` left, so that it can be reconciled and landed.
//!
//! A state dir is data from elsewhere: only its regular files are read, and its working directory is looked at as
//! any other workspace is.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use prun_core::contract;
use prun_core::event::{Event, EventKind, Mode, ProcessIdentity, RunEvent, RunSetup, UnitEvent, UnitSetup};
use prun_core::explain::outcome_sentence;
use prun_core::ids::{Attempt, RunId, Seq, UnitId};
use prun_core::judge::judge;
use prun_core::outcome::{AttemptFacts, Channel, Exit, FACTS_VERSION, FinalEvent, ResultFacts, SweepFacts};
use prun_core::plan::{AdHoc, CommandLine, Dirty, PlanFile, ad_hoc};
use prun_core::time::Timestamp;

use crate::begin::{BeginError, new_id};
use crate::clock::wall_now;
use crate::clones::{self, CloneRecord};
use crate::files::{Durability, FileError, create_private_dir, write_atomically};
use crate::git::Git;
use crate::home::{AttemptDir, Home, RunDir};
use crate::ledger::{LedgerError, RunLock, Writer, keep_setup};
use crate::process;
use crate::runs::RunCard;
use crate::spec::{AttemptSpec, HarvestSpec, Limits, Liveness, SPEC_VERSION};
use crate::state_dir;
use crate::workshop::repository::StoredFingerprint;
use crate::workspace::fingerprint::Fingerprint;
use crate::workspace::harvest::harvest;
use crate::workspace::source::{Source, SourceError};
use crate::workspace::store::Store;
use crate::workspace::{Base, WorkspaceError, clone, mirror};

/// Bytes of a result that are read for its head.
const RESULT_HEAD: u64 = 64 << 10;
/// Larger files of a state dir stay where they are: a tail has a cap of 256 MiB.
const COPY_LIMIT: u64 = 300 << 20;

/// State dirs that cannot be made a run.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// Not the name of one, or not a directory.
    #[error("{} is no state dir", .0.display())]
    NotAStateDir(PathBuf),
    /// Two for one unit.
    #[error("{} and another one are both of the unit {unit}", path.display())]
    Twice {
        /// The unit.
        unit: UnitId,
        /// The second.
        path: PathBuf,
    },
    /// Its dispatcher lives.
    #[error("{unit} is still at work ({})", path.display())]
    Alive {
        /// The unit.
        unit: UnitId,
        /// Its state dir.
        path: PathBuf,
    },
    /// Nobody knows what a clone was made at.
    #[error("cannot tell what {} was made at", .0.display())]
    NoBase(PathBuf),
    /// Units of several repositories or bases.
    #[error("{} was made at {commit} of {}, the others were not", dir.display(), repo.display())]
    Mixed {
        /// The clone.
        dir: PathBuf,
        /// Its base.
        commit: String,
        /// Its repository.
        repo: PathBuf,
    },
    /// The repository or the base cannot be used.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The run cannot be made.
    #[error(transparent)]
    Begin(#[from] BeginError),
}

macro_rules! through_begin {
    ($($error:ty),*) => {$(
        impl From<$error> for ImportError {
            fn from(error: $error) -> Self {
                Self::Begin(error.into())
            }
        }
    )*};
}
through_begin!(FileError, WorkspaceError, LedgerError, crate::workspace::dirty::DirtyError);

/// What the user says beside the state dirs.
#[derive(Clone, Debug, Default)]
pub struct ImportOptions {
    /// The repository, for clones that `prun clone` did not make.
    pub repo: Option<PathBuf>,
    /// What those clones were made at.
    pub base: Option<String>,
}

/// A unit that was found.
struct Found {
    unit: UnitId,
    state_dir: PathBuf,
    /// Where its worker worked, if there is a checkout.
    clone: Option<PathBuf>,
    record: Option<(CloneRecord, PathBuf)>,
    facts: AttemptFacts,
    process: ProcessIdentity,
}

/// Makes a run of `state_dirs`. Its units are settled; nothing is started.
///
/// # Errors
/// A state dir is none or is still at work, the units have no common base, or the run cannot be made; then nothing
/// is left of it.
pub fn import(
    home: &Home,
    git: &Git,
    cwd: &Path,
    state_dirs: &[PathBuf],
    options: &ImportOptions,
    durability: Durability,
) -> Result<RunId, ImportError> {
    let mut found: Vec<Found> = Vec::new();
    for path in state_dirs {
        let one = look(home, &cwd.join(path))?;
        if found.iter().any(|other| other.unit == one.unit) {
            return Err(ImportError::Twice { unit: one.unit, path: path.clone() });
        }
        found.push(one);
    }
    let (source, base) = common_base(git, cwd, &found, options)?;
    let run = new_id(wall_now())?;
    let dir = home.run(&run);
    create_private_dir(&home.runs())?;
    fs::create_dir(dir.root()).map_err(FileError::at("create", dir.root()))?;
    let filled = Importer { home, git, source: &source, base: &base, dir: &dir, run: &run, durability }.fill(found);
    if filled.is_err() {
        // The first error is the one to tell.
        let _ = fs::remove_dir_all(dir.root());
    }
    filled.map(|()| run)
}

/// Reads what a dispatcher left.
fn look(home: &Home, path: &Path) -> Result<Found, ImportError> {
    let not = || ImportError::NotAStateDir(path.to_owned());
    let state_dir = path.canonicalize().map_err(|_| not())?;
    let unit = state_dir::unit_of(&state_dir).filter(|_| state_dir.is_dir()).ok_or_else(not)?;
    let identity = state_dir::read_identity(&state_dir).ok();
    let recorded = state_dir::read_facts(&state_dir).ok();
    let works_on = identity.as_ref().and_then(|identity| identity.worker.as_ref()).is_some_and(process::is_alive);
    let process = identity.map(|identity| identity.dispatcher).unwrap_or_else(|| by_number(&state_dir));
    if recorded.is_none() && (works_on || process::is_alive(&process)) {
        return Err(ImportError::Alive { unit, path: state_dir });
    }
    let mut facts = recorded.unwrap_or_else(|| facts_of_entries(&unit, &state_dir));
    (facts.unit, facts.attempt, facts.expects_changes) = (unit.clone(), Attempt(1), false);
    let entry = state_dir::read_entry(&state_dir, state_dir::CWD_ENTRY).ok();
    let cwd = entry.map_or_else(|| state_dir.join("work"), |bytes| PathBuf::from(OsStr::from_bytes(&bytes)));
    let record = clones::find(home, &cwd);
    let is_clone = record.is_some() || cwd.join(".git").symlink_metadata().is_ok();
    let clone = is_clone.then(|| cwd.canonicalize().unwrap_or(cwd));
    Ok(Found { unit, state_dir, clone, record, facts, process })
}

/// The recorded number of a dispatcher of which nothing else is known. A process that has it now is taken for it.
fn by_number(state_dir: &Path) -> ProcessIdentity {
    let entry = state_dir::read_entry(state_dir, "dispatch-pid").unwrap_or_default();
    let pid = String::from_utf8_lossy(&entry).trim().parse().unwrap_or(0);
    process::identity(pid).unwrap_or(ProcessIdentity { boot_id: String::new(), pid, start_ticks: 0 })
}

/// What can be seen of a unit whose dispatcher wrote no facts: an old script, or one that was killed.
fn facts_of_entries(unit: &UnitId, state_dir: &Path) -> AttemptFacts {
    let number = |name| {
        let entry = state_dir::read_entry(state_dir, name).unwrap_or_default();
        String::from_utf8_lossy(&entry).trim().parse::<i64>().unwrap_or(0)
    };
    let started_at = Timestamp(number("timestamp").saturating_mul(1000));
    AttemptFacts {
        version: FACTS_VERSION,
        unit: unit.clone(),
        attempt: Attempt(1),
        exit: Exit::Unobserved,
        stopped: None,
        dispatcher_died: false,
        dispatcher_signal: None,
        setup: None,
        final_event: FinalEvent::NotApplicable,
        error: None,
        result: result_of_entries(unit, state_dir),
        missing_deliverables: Vec::new(),
        verify: None,
        expects_changes: false,
        changes: None,
        harvest_error: None,
        sweep: SweepFacts::default(),
        read_only: Vec::new(),
        usage: None,
        model: None,
        denied: Vec::new(),
        session: None,
        silent: Vec::new(),
        peak_rss_kib: None,
        peak_memory_kib: None,
        oom_killed: false,
        cpu_millis: None,
        started_at,
        ended_at: started_at,
        worker_millis: 0,
    }
}

fn result_of_entries(unit: &UnitId, state_dir: &Path) -> Option<ResultFacts> {
    // A relative path counts from the directory of whoever dispatched; then the whole path stands beside it.
    let entry = |name| state_dir::read_entry(state_dir, name);
    let named = entry("result-path").or_else(|_| entry("result-file")).ok()?;
    let path = PathBuf::from(OsStr::from_bytes(&named));
    let meta = path.metadata().ok().filter(|meta| path.is_absolute() && meta.is_file() && meta.len() > 0)?;
    let mut head = Vec::new();
    File::open(&path).and_then(|file| file.take(RESULT_HEAD).read_to_end(&mut head)).ok()?;
    let parsed = contract::parse(unit, &head);
    Some(ResultFacts {
        channel: if parsed.is_fallback { Channel::Salvage } else { Channel::ResultFile },
        path: path.to_string_lossy().into_owned(),
        bytes: meta.len(),
        contract_gaps: parsed.gaps,
        conclusion: parsed.conclusion,
        open_items: parsed.open_items,
        files_claimed: parsed.files,
        misplaced: false,
    })
}

/// The one repository and base that all clones have.
fn common_base(git: &Git, cwd: &Path, found: &[Found], options: &ImportOptions) -> Result<(Source, Base), ImportError> {
    let records: Vec<&CloneRecord> = found.iter().filter_map(|one| one.record.as_ref().map(|it| &it.0)).collect();
    let first = records.first();
    let repo = options.repo.as_ref().map(|repo| cwd.join(repo)).or_else(|| first.map(|record| record.repo.clone()));
    let source = Source::open(git, &repo.unwrap_or_else(|| cwd.to_owned()))?;
    let unknown = found.iter().find(|one| one.clone.is_some() && one.record.is_none());
    let base = match (&options.base, first) {
        (Some(rev), _) => source.resolve(rev)?,
        (None, Some(record)) => source.resolve(&record.base.commit)?,
        (None, None) => match unknown.and_then(|one| one.clone.clone()) {
            Some(clone) => return Err(ImportError::NoBase(clone)),
            None => source.resolve("HEAD")?,
        },
    };
    if let Some(other) = records.iter().find(|record| record.base != base || record.repo != source.top) {
        let (dir, repo, commit) = (other.dir.clone(), other.repo.clone(), other.base.commit.clone());
        return Err(ImportError::Mixed { dir, commit, repo });
    }
    Ok((source, base))
}

struct Importer<'a> {
    home: &'a Home,
    git: &'a Git,
    source: &'a Source,
    base: &'a Base,
    dir: &'a RunDir,
    run: &'a RunId,
    durability: Durability,
}

impl Importer<'_> {
    fn fill(&self, mut found: Vec<Found>) -> Result<(), ImportError> {
        let store = Store::create(&self.dir.store(), self.source)?;
        mirror::ensure(self.home, &store, self.base)?;
        let root = self.home.root();
        let ignore = vec![root.canonicalize().unwrap_or_else(|_| root.to_owned())];
        let fingerprint = Fingerprint::take(self.source, &store, &ignore)?;
        let stored = StoredFingerprint { top: self.source.top.clone(), ignore, fingerprint };
        self.write(&self.dir.fingerprint(), &stored)?;
        for one in &mut found {
            self.take(&store, one)?;
        }
        let plan = plan(&found);
        self.write(&self.dir.plan(), &plan)?;
        let setup = self.setup(&plan, &found);
        let card = RunCard {
            run: self.run.clone(),
            title: setup.title.clone(),
            repo: setup.repo.as_ref().map(PathBuf::from),
            dir: None,
            plan_digest: setup.plan_digest.clone(),
            began: wall_now(),
        };
        let lock = RunLock::try_take(self.dir)?.expect("nobody else knows the new directory");
        keep_setup(self.dir, &setup, self.durability)?;
        let mut writer = Writer::create(self.dir, lock, self.durability)?;
        writer.append(&events(&setup, &found))?;
        // The card makes the run visible, so it comes last.
        Ok(card.write(self.dir, self.durability)?)
    }

    /// Makes the attempt's directory and harvests the clone.
    fn take(&self, store: &Store, one: &mut Found) -> Result<(), ImportError> {
        let attempt = self.dir.attempt(&RunDir::attempt_name(&one.unit, Attempt(1)));
        create_private_dir(attempt.root())?;
        copy_state_dir(&one.state_dir, attempt.root())?;
        let harvested = one.clone.clone().map(|clone| self.harvest_spec(store, one, &attempt, clone)).transpose()?;
        match harvested.as_ref().map(|spec| harvest(self.git, spec)) {
            Some(Ok(changes)) => one.facts.changes = Some(changes),
            Some(Err(error)) => one.facts.harvest_error = Some(error.to_string()),
            None => {}
        }
        let spec = AttemptSpec {
            version: SPEC_VERSION,
            run: Some(self.run.clone()),
            unit: one.unit.clone(),
            attempt: Attempt(1),
            attempt_dir: Some(attempt.root().to_owned()),
            state_parent: attempt.root().to_owned(),
            worker: None,
            resumes: None,
            prompt_file: attempt.prompt(),
            result_file: attempt.result(),
            cwd: one.clone.clone(),
            env: Vec::new(),
            place: 0,
            limits: no_limits(),
            setup: None,
            verify: None,
            deliverables: Vec::new(),
            expects_changes: false,
            harvest: harvested,
            guard: None,
            depth: 0,
        };
        Ok(self.write(&attempt.spec(), &spec)?)
    }

    /// The index as the clone was made; for one that git made, an index without stat data: everything is compared.
    fn harvest_spec(
        &self,
        store: &Store,
        one: &Found,
        attempt: &AttemptDir,
        work_tree: PathBuf,
    ) -> Result<HarvestSpec, ImportError> {
        let trusted_index = attempt.trusted_index();
        match &one.record {
            Some((_, place)) => copy_record(place, &trusted_index)?,
            None => {
                let read = store.command(["read-tree", self.base.tree.as_str()]).index(&trusted_index);
                read.run().map_err(WorkspaceError::from)?;
                let list = clone::trusted_refs(&trusted_index);
                let refs: String = store.facts.branches.iter().map(|(name, id)| format!("{id} {name}\n")).collect();
                fs::write(&list, refs).map_err(FileError::at("write", &list))?;
            }
        }
        let exclude = if work_tree.starts_with(&one.state_dir) { vec![] } else { own_paths(&work_tree, one) };
        let (base_tree, base) = (self.base.tree.clone(), self.base.commit.clone());
        Ok(HarvestSpec { work_tree, store: self.dir.store(), trusted_index, base_tree, base, exclude })
    }

    fn setup(&self, plan: &PlanFile, found: &[Found]) -> RunSetup {
        let unit = |one: &Found| UnitSetup {
            id: one.unit.clone(),
            mode: if one.clone.is_some() { Mode::Write } else { Mode::Read },
            executors: plan.units[0].executors.clone(),
            retries: 0,
            owns: Vec::new(),
            panel: None,
            priority: 0,
            budget: prun_core::budget::Budget::default(),
        };
        RunSetup {
            title: plan.title.clone(),
            plan_digest: crate::home::sha256_hex(self.run.as_str().as_bytes()),
            repo: Some(self.source.top.to_string_lossy().into_owned()),
            subdir: String::new(),
            base: Some(self.base.commit.clone()),
            base_tree: Some(self.base.tree.clone()),
            carried: 0,
            unseen: 0,
            guard: None,
            jobs: 1,
            jobs_are_chosen: false,
            verifies: false,
            budget: prun_core::budget::Budget::default(),
            units: found.iter().map(unit).collect(),
        }
    }

    fn write(&self, path: &Path, value: &impl serde::Serialize) -> Result<(), FileError> {
        let text = serde_json::to_vec_pretty(value).expect("plain data with string keys");
        write_atomically(path, &text, self.durability)
    }
}

/// A result that lies in the clone is the unit's report and no change of its.
fn own_paths(work_tree: &Path, one: &Found) -> Vec<String> {
    let result = one.facts.result.as_ref().map(|result| PathBuf::from(&result.path));
    let paths = result.into_iter().map(|path| state_dir::canonical_result(&path));
    paths.filter_map(|path| Some(path.strip_prefix(work_tree).ok()?.to_str()?.to_owned())).collect()
}

/// What the ledger of a run with these units says.
fn events(setup: &RunSetup, found: &[Found]) -> Vec<Event> {
    let mut kinds = vec![EventKind::run(RunEvent::PlanAccepted(Box::new(setup.clone())))];
    for (one, unit) in found.iter().zip(&setup.units) {
        let outcome = judge(&one.facts);
        let why = outcome_sentence(&outcome, Some(&one.facts));
        let steps = [
            UnitEvent::AttemptBegan {
                executor: unit.executors[0].clone(),
                dir: RunDir::attempt_name(&one.unit, Attempt(1)),
                why: format!("imported from {}", one.state_dir.display()),
            },
            UnitEvent::ProcessStarted { process: one.process.clone() },
            UnitEvent::ProcessExited { settled_itself: true },
            UnitEvent::UnitSettled { facts: Some(Box::new(one.facts.clone())), outcome, why },
        ];
        kinds.extend(steps.map(|event| EventKind::unit(&one.unit, Attempt(1), event)));
    }
    kinds.push(EventKind::run(RunEvent::RunEnded { cancelled: false }));
    let at = wall_now();
    (1..).map(Seq).zip(kinds).map(|(seq, kind)| Event { seq, at, kind }).collect()
}

/// A plan in whose place nothing can be started: the prompts are not known.
fn plan(found: &[Found]) -> PlanFile {
    let prompts: Vec<String> = found.iter().map(|one| format!("imported from {}", one.state_dir.display())).collect();
    let options = AdHoc {
        mode: Mode::Write,
        executors: vec![prun_core::plan::model::COMMAND_EXECUTOR.parse().expect("a plain word")],
        command: Some(CommandLine::Shell("echo 'an imported unit cannot be started again' >&2; exit 1".to_owned())),
        dirty: Some(Dirty::Ignore),
        jobs: Some(1),
    };
    let mut plan = ad_hoc(&prompts, &options).expect("there is a prompt for each of at least one unit");
    for (unit, one) in plan.units.iter_mut().zip(found) {
        unit.id = one.unit.clone();
        unit.mode = if one.clone.is_some() { Mode::Write } else { Mode::Read };
    }
    let count = found.len();
    plan.title = format!("{count} imported {}", if count == 1 { "unit" } else { "units" });
    plan
}

fn no_limits() -> Limits {
    Limits {
        first_output_millis: None,
        idle_millis: None,
        hard_millis: None,
        linger_millis: None,
        grace_millis: 0,
        output_bytes: None,
        liveness: Liveness::Tail,
    }
}

/// What is remembered of a clone, for the run: its index, its refs, its submodules.
fn copy_record(place: &Path, trusted_index: &Path) -> Result<(), FileError> {
    let from = clones::trusted_index(place);
    clone::copy_index(&from, trusted_index)?;
    let (refs, to) = (clone::trusted_refs(&from), clone::trusted_refs(trusted_index));
    fs::copy(&refs, to).map_err(FileError::at("copy", &refs))?;
    let modules = from.with_extension("modules");
    if modules.is_dir() {
        copy_files(&modules, &trusted_index.with_extension("modules"))?;
    }
    Ok(())
}

/// The state dir's own files; its working directory stays where it is.
fn copy_state_dir(from: &Path, attempt: &Path) -> Result<(), FileError> {
    copy_files(from, &attempt.join(from.file_name().unwrap_or_default()))
}

fn copy_files(from: &Path, to: &Path) -> Result<(), FileError> {
    create_private_dir(to)?;
    for entry in fs::read_dir(from).map_err(FileError::at("read", from))? {
        let entry = entry.map_err(FileError::at("read", from))?;
        let is_file =
            |meta: io::Result<fs::Metadata>| meta.is_ok_and(|meta| meta.is_file() && meta.len() <= COPY_LIMIT);
        if is_file(entry.metadata()) {
            let path = entry.path();
            let copy = clone::copy_index(&path, &to.join(entry.file_name()));
            copy.map_err(|error| FileError { path, ..error })?;
        }
    }
    Ok(())
}
