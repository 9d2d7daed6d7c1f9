//! What the gate needs to know of the world before a run: the plan's files, the repository, executors, room.
//!
//! Nothing here starts or changes anything; the user's repository is only read.

use std::io::Read;
use std::path::{Path, PathBuf};

use prun_core::gate::{DiskFacts, ExecutorFacts, ExecutorProblem, GateWorld, Login, RepoFacts};
use prun_core::plan::model::{MapPlan, Rows};
use prun_core::plan::{CommandLine, Format, PlanFile, Problem, Prompt, UnitPlan, fill_prompts, parse};

use crate::executor::command::prompt_channel;
use crate::executor::preflight::{self, Preflight};
use crate::executor::{Executor, Kind, Registry};
use crate::files::read_regular;
use crate::git::Git;
use crate::home::{Home, sha256_hex};
use crate::map;
use crate::sandbox;
use crate::spec::GuardSpec;
use crate::workspace::extras::Extras;
use crate::workspace::source::{Source, SourceError};
use crate::workspace::{Base, HomeError, check_home, disk_free};

/// Bytes of a plan that are read; the parser says that a longer one is too long.
const PLAN_LIMIT: u64 = 8 << 20;

/// A plan with its prompts.
#[derive(Clone, Debug)]
pub struct LoadedPlan {
    /// The plan.
    pub plan: PlanFile,
    /// How messages name it: its path, `-`, or `-p`.
    pub name: String,
    /// The directory that its paths are relative to.
    pub dir: PathBuf,
    /// SHA-256 over the plan and the files it names, in hex.
    pub digest: String,
    /// The plan and the files it names: they never count as uncommitted work.
    pub files: Vec<PathBuf>,
}

/// A plan that cannot be used: every problem, and the name that messages give it.
#[derive(Debug)]
pub struct PlanError {
    /// How messages name the plan.
    pub name: String,
    /// What is wrong with it.
    pub problems: Vec<Problem>,
}

impl LoadedPlan {
    /// Reads a plan file and what it names; `-` is stdin.
    ///
    /// # Errors
    /// It cannot be read, or has problems.
    pub fn read(file: &Path, cwd: &Path) -> Result<Self, PlanError> {
        let name = file.display().to_string();
        let is_stdin = file.as_os_str() == "-";
        let path = cwd.join(file);
        let read = if is_stdin { read_stdin() } else { read_regular(&path, PLAN_LIMIT) };
        let fail = |problems| PlanError { name: name.clone(), problems };
        let bytes = read.map_err(|error| {
            let hint = "`prun init` writes a plan to begin with";
            fail(vec![Problem::new(None, format!("cannot read the plan: {error}")).hint(hint)])
        })?;
        let text = String::from_utf8(bytes).map_err(|error| {
            let problem = Problem::new(None, format!("the plan is not UTF-8: {error}"));
            fail(vec![problem.hint("save it with the encoding UTF-8")])
        })?;
        let plan = parse(&text, Format::of(&name, &text)).map_err(fail)?;
        let dir = if is_stdin { cwd.to_owned() } else { path.parent().unwrap_or(cwd).to_owned() };
        let own = (!is_stdin).then_some(path);
        Self::complete(plan, &name, dir, own, text.as_bytes())
    }

    /// A plan that was handed over as text; its paths are relative to `dir`.
    ///
    /// # Errors
    /// It has problems.
    pub fn from_text(text: &str, name: &str, dir: &Path) -> Result<Self, PlanError> {
        let fail = |problems| PlanError { name: name.to_owned(), problems };
        let plan = parse(text, Format::of(name, text)).map_err(fail)?;
        Self::complete(plan, name, dir.to_owned(), None, text.as_bytes())
    }

    /// A plan that was made from the command line.
    ///
    /// # Errors
    /// A file that it names has problems.
    pub fn ad_hoc(plan: PlanFile, cwd: &Path) -> Result<Self, PlanError> {
        let text = serde_json::to_vec(&plan).expect("plain data with string keys");
        Self::complete(plan, "-p", cwd.to_owned(), None, &text)
    }

    /// Gives units whose plan names no executor those that the user or the repository has chosen.
    pub fn choose(&mut self, registry: &Registry) {
        let Some(order) = registry.order() else { return };
        for unit in self.plan.units.iter_mut().filter(|unit| unit.places.executor.is_none() && unit.command.is_none()) {
            unit.executors = order.to_vec();
        }
    }

    fn complete(
        mut plan: PlanFile,
        name: &str,
        dir: PathBuf,
        own: Option<PathBuf>,
        text: &[u8],
    ) -> Result<Self, PlanError> {
        fill_prompts(&mut plan, |path| {
            let bytes = read_regular(&dir.join(path), PLAN_LIMIT).map_err(|error| error.to_string())?;
            String::from_utf8(bytes).map_err(|error| error.to_string())
        })
        .map_err(|problems| PlanError { name: name.to_owned(), problems })?;
        let mut named: Vec<PathBuf> = plan.named_files().into_iter().map(|named| dir.join(named.path)).collect();
        named.extend(plan.maps.iter().flat_map(|map| map_files(map, &dir)));
        map::expand(&mut plan, &dir).map_err(|problems| PlanError { name: name.to_owned(), problems })?;
        let mut hashed = text.to_vec();
        let prompts = plan.context.iter().chain(plan.units.iter().map(|unit| &unit.prompt));
        let from_rows = plan.units.iter().filter(|unit| unit.row.is_some()).map(|unit| &unit.prompt);
        for prompt in prompts.filter(|prompt| prompt.path().is_some()).chain(from_rows) {
            hashed.push(0);
            hashed.extend_from_slice(prompt.text().unwrap_or_default().as_bytes());
        }
        let files = own.into_iter().chain(named).map(|path| path.canonicalize().unwrap_or(path)).collect();
        Ok(Self { digest: sha256_hex(&hashed), name: name.to_owned(), dir, files, plan })
    }
}

/// The files that a map names: they never count as uncommitted work.
fn map_files(map: &MapPlan, dir: &Path) -> Vec<PathBuf> {
    let rows = match &map.rows {
        Rows::File(path) => Some(path),
        Rows::List(_) | Rows::Glob(_) => None,
    };
    rows.into_iter().chain(&map.schema).map(|path| dir.join(path)).collect()
}

fn read_stdin() -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::io::stdin().lock().take(PLAN_LIMIT).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// What was seen of the world.
#[derive(Debug)]
pub struct Survey {
    /// The repository, where there is one.
    pub source: Option<Source>,
    /// The base, where there is a repository.
    pub base: Option<Base>,
    /// Git's version.
    pub git_version: Option<(u32, u32)>,
    /// For the gate.
    pub world: GateWorld,
    /// What keeps the run from starting, beside what the gate finds.
    pub problems: Vec<Problem>,
    /// What the user should know.
    pub notes: Vec<String>,
}

impl Survey {
    /// Looks at everything that `loaded` needs.
    #[must_use]
    pub fn take(loaded: &LoadedPlan, home: &Home, git: &Git, registry: &Registry) -> Self {
        let mut survey = Self {
            source: None,
            base: None,
            git_version: None,
            world: GateWorld::default(),
            problems: Vec::new(),
            notes: Vec::new(),
        };
        survey.look_at_executors(&loaded.plan, registry);
        // How much room there is stands among the facts for the gate.
        if let Err(error) = check_home(home)
            && !matches!(error, HomeError::Full { .. })
        {
            let hint = "let your sandbox write there, or name another directory with PRUN_HOME";
            survey.problems.push(Problem::new(None, error.to_string()).hint(hint));
        }
        match git.version() {
            Ok(version) => survey.git_version = Some(version),
            Err(error) => survey.problems.push(
                Problem::new(None, error.to_string()).hint("install git 2.38 or newer, or name one with PRUN_GIT"),
            ),
        }
        if survey.git_version.is_some() {
            survey.look_at_repository(loaded, home, git);
        }
        survey.problems.extend(missing_commands(&loaded.plan));
        let sandbox = sandbox::look(|name| std::env::var_os(name));
        survey.problems.extend(sandbox.lacks_network().and_then(|why| unreachable(&loaded.plan, registry, &why)));
        survey.measure_room(home);
        survey
    }

    /// The whole registry as the gate needs it. Only executors that the plan names are looked at.
    fn look_at_executors(&mut self, plan: &PlanFile, registry: &Registry) {
        for executor in registry.iter() {
            let is_used = plan.units.iter().any(|unit| unit.executors.contains(&executor.name));
            let found = if is_used {
                let found = preflight::check(executor);
                self.notes.extend(found.notes.iter().cloned());
                facts(executor, found)
            } else {
                ExecutorFacts { slots: executor.slots, ..ExecutorFacts::default() }
            };
            self.world.executors.insert(executor.name.clone(), found);
        }
        self.problems.extend(unfit_prompts(plan, registry));
    }

    fn look_at_repository(&mut self, loaded: &LoadedPlan, home: &Home, git: &Git) {
        let plan = &loaded.plan;
        let path = loaded.dir.join(plan.repo.as_deref().unwrap_or("."));
        let source = match Source::open(git, &path) {
            Ok(source) => source,
            // Without a word on a repository there need be none; the gate knows which units need one.
            Err(SourceError::NotARepository(_)) if plan.repo.is_none() => return,
            Err(error) => {
                let place = if matches!(error, SourceError::Git(_)) { None } else { plan.places.repo };
                return self.problems.push(with_hint(Problem::new(place, error.to_string()), &error));
            }
        };
        let base = match source.resolve(&plan.base) {
            Ok(base) => base,
            Err(error) => {
                return self.problems.push(with_hint(Problem::new(plan.places.base, error.to_string()), &error));
            }
        };
        let ignore = never_dirty(loaded, home);
        let dirty = match source.dirty(&ignore) {
            Ok(dirty) => dirty,
            Err(error) => return self.problems.push(Problem::new(None, error.to_string())),
        };
        self.notes.extend(source.notes.iter().map(|note| note.sentence().to_owned()));
        match Extras::find(&source, &base, &|args| source.command(args)) {
            Ok(extras) => self.notes.extend(extras.unseen.iter().map(|what| format!("units cannot see {what}"))),
            Err(error) => return self.problems.push(Problem::new(None, error.to_string())),
        }
        let tracked = tracked(&source, &base);
        self.world.repo = Some(RepoFacts {
            base: base.commit.clone(),
            tracked,
            dirty: dirty.paths.len(),
            dirty_first: dirty.paths.iter().take(10).cloned().collect(),
        });
        if plan.guard.is_some()
            && let Err(error) = GuardSpec::of(&source, &[]).probe()
        {
            let message = format!("`guard`: this machine does not make the repository read-only for workers: {error}");
            let hint = "it takes Linux 5.12, and root or user namespaces; without `guard` what workers write there is \
                        detected, not prevented";
            self.problems.push(Problem::new(plan.places.guard, message).hint(hint));
        }
        (self.source, self.base) = (Some(source), Some(base));
    }

    fn measure_room(&mut self, home: &Home) {
        let existing = home.root().ancestors().find(|dir| dir.is_dir());
        let Some(Ok(free_bytes)) = existing.map(disk_free) else { return };
        let needed_bytes = crate::workspace::place::MIN_FREE;
        let path = home.root().display().to_string();
        self.world.disk = Some(DiskFacts { path, free_bytes, needed_bytes });
    }
}

/// Paths that never count as uncommitted work.
#[must_use]
pub fn never_dirty(loaded: &LoadedPlan, home: &Home) -> Vec<PathBuf> {
    let root = home.root();
    let home = root.canonicalize().unwrap_or_else(|_| root.to_owned());
    loaded.files.iter().cloned().chain([home]).collect()
}

fn with_hint(problem: Problem, error: &SourceError) -> Problem {
    match error {
        SourceError::NoCommits(_) => problem.hint("`git commit` once, so that there is a base"),
        SourceError::Ownership { .. } => problem.hint("run prun as that user, or give the repository to yourself"),
        SourceError::NoSuchRevision { .. } => problem.hint("`git log` shows what there is"),
        SourceError::Path { .. } => problem.hint("`repo` is relative to the plan file"),
        SourceError::InsideGitDir(_) => problem.hint("start in the work tree"),
        SourceError::NotARepository(_) => problem.hint("name a repository with `repo`, or `git init` one"),
        _ => problem,
    }
}

fn tracked(source: &Source, base: &Base) -> Option<Vec<String>> {
    let listed = source.command(&["ls-tree", "-r", "-z", "--name-only", "--full-tree"]).arg(&base.tree).run().ok()?;
    Some(listed.fields().map(|path| String::from_utf8_lossy(path).into_owned()).collect())
}

/// An executor as its preflight found it.
#[must_use]
pub fn facts(executor: &Executor, found: Preflight) -> ExecutorFacts {
    let (login, hint) = match found.login {
        _ if !executor.has_account() => (Login::NotNeeded, None),
        preflight::Login::LoggedIn => (Login::LoggedIn, None),
        preflight::Login::NotLoggedIn { hint } => (Login::LoggedOut, Some(hint)),
        preflight::Login::Unknown => (Login::Unknown, None),
    };
    let problem = match found.program {
        Err(problem) => {
            let hint = "install it, or name its program in prun's config.toml".to_owned();
            Some(ExecutorProblem { message: problem.to_string(), hint: Some(hint) })
        }
        Ok(_) => hint.map(|hint| ExecutorProblem { message: "nobody is logged in".to_owned(), hint: Some(hint) }),
    };
    ExecutorFacts { slots: executor.slots, version: found.version, login, problem }
}

/// Bytes that the brief may add to a unit's prompt and context.
const BRIEF_ROOM: u64 = 4096;

/// Units whose prompt cannot reach their worker in the way that its arguments ask for.
fn unfit_prompts(plan: &PlanFile, registry: &Registry) -> Vec<Problem> {
    let context = plan.context.as_ref().and_then(Prompt::text).map_or(0, str::len);
    let unfit = |unit: &UnitPlan, executor: &Executor| {
        let own = unit.command.as_ref().map(CommandLine::argv);
        let argv = own.filter(|_| executor.is_unbounded()).unwrap_or_else(|| {
            // The first stands for the program.
            [String::new()].into_iter().chain(executor.args.iter().cloned()).collect()
        });
        let bytes = (context + unit.prompt.text().map_or(0, str::len)) as u64 + BRIEF_ROOM;
        prompt_channel(&argv, Some(bytes)).err()
    };
    let of_unit = |unit: &UnitPlan| {
        let executors = unit.executors.iter().filter_map(|name| registry.get(name).ok());
        let error = executors.filter(|it| it.kind == Kind::Command).find_map(|executor| unfit(unit, executor))?;
        Some(Problem::new(unit.places.executor.or(unit.places.id), format!("the prompt of {}: {error}", unit.id)))
    };
    plan.units.iter().filter_map(of_unit).collect()
}

/// Executors whose model is out of reach, where a unit has no other.
fn unreachable(plan: &PlanFile, registry: &Registry, why: &str) -> Option<Problem> {
    let is_local =
        |name: &prun_core::ids::ExecutorName| registry.get(name).is_ok_and(|executor| !executor.has_account());
    let unit = plan.units.iter().find(|unit| !unit.executors.iter().any(is_local))?;
    let message = format!("{} cannot reach a model: {why}", unit.executors.first()?);
    let hint = format!(
        "let your sandbox have the network, or start prun outside of it; {}=ignore says that it is not so",
        sandbox::SANDBOX_VARIABLE
    );
    Some(Problem::new(unit.places.executor.or(unit.places.id), message).hint(hint))
}

/// Units whose own command cannot be found.
fn missing_commands(plan: &PlanFile) -> Vec<Problem> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let units = plan.units.iter().filter_map(|unit| {
        let problem = preflight::check_command(&unit.command.as_ref()?.argv(), &path)?;
        let message = format!("the command of {}: {problem}", unit.id);
        let hint =
            "a program is looked for in PATH; give one of the repository by its absolute path, or use text for sh -c";
        Some(Problem::new(unit.places.executor.or(unit.places.id), message).hint(hint))
    });
    units.collect()
}
