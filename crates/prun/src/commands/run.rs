//! `prun run`: starts a run, and views it.

use std::path::PathBuf;

use prun_core::answer::StartedView;
use prun_core::digest;
use prun_core::event::Mode;
use prun_core::gate::{self, GateWorld};
use prun_core::ids::{ExecutorName, RunId, Seq};
use prun_core::plan::{AdHoc, CommandLine, Dirty, PlanFile, ad_hoc};
use prun_core::view::VIEW_VERSION;
use prun_engine::begin::{StartLock, abandon, begin, living_twin};
use prun_engine::depth::Depth;
use prun_engine::executor::escape_line;
use prun_engine::files::Durability;
use prun_engine::home::RunDir;
use prun_engine::hooks::Wishes;
use prun_engine::survey::{LoadedPlan, PlanError};
use prun_engine::workspace::disk_free;

use super::check;
use crate::context::{Context, Intent};
use crate::error::{CliError, CliResult};
use crate::exit_code::ExitCode;
use crate::live::{OnInterrupt, ViewEnd, follow};
use crate::supervisor::{self, BEGAN, Beside};

/// Start a run: each unit of the plan on a worker of its own
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The plan file; `-` reads it from stdin
    #[arg(value_name = "PLAN", conflicts_with = "prompts")]
    plan: Option<PathBuf>,
    /// Run a unit with this prompt, without a plan file; repeatable
    #[arg(short, long = "prompt", value_name = "PROMPT")]
    prompts: Vec<String>,
    /// Executors for the units of `-p`, in order
    #[arg(long, value_name = "NAME", requires = "prompts")]
    executor: Vec<ExecutorName>,
    /// The command of the executor `command` for the units of `-p`, as text for `sh -c`
    #[arg(long, value_name = "TEXT", requires = "prompts")]
    command: Option<String>,
    /// Let the units of `-p` only read
    #[arg(long, requires = "prompts")]
    read: bool,
    /// What happens to uncommitted work; overrides the plan
    #[arg(long, value_name = "include|ignore", value_parser = parse_dirty)]
    dirty: Option<Dirty>,
    /// How many units may run at once; overrides the plan
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    jobs: Option<u32>,
    /// Print the run's id alone and leave it to itself
    #[arg(short, long)]
    detach: bool,
    /// Start although the same plan is running in this repository
    #[arg(long)]
    again: bool,
    #[command(flatten)]
    beside: Beside,
    /// Print JSON
    #[arg(long, requires = "detach")]
    json: bool,
}

fn parse_dirty(text: &str) -> Result<Dirty, String> {
    match text {
        "include" => Ok(Dirty::Include),
        "ignore" => Ok(Dirty::Ignore),
        _ => Err("include or ignore".to_owned()),
    }
}

pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    refuse_depth()?;
    match supervisor::refuse_short_life() {
        Err(refusal) if args.detach => return Err(refusal),
        Err(refusal) => context.ui.warn(refusal.message.replace("cannot leave a run to itself here: ", "")),
        Ok(()) => {}
    }
    let mut loaded = load(context, args)?;
    loaded.plan.dirty = args.dirty.or(loaded.plan.dirty);
    loaded.plan.jobs = args.jobs.or(loaded.plan.jobs);
    let wishes = args.beside.or(context.ui, context.registry()?.wishes().clone());
    let twin = if args.again { Twin::StartAnother } else { Twin::Refuse };
    let started = start(context, &mut loaded, twin, &wishes)?;
    if args.detach {
        if args.json {
            context.ui.json(&started.view())?;
        } else {
            context.ui.line(started.run.short())?;
        }
        return Ok(ExitCode::Ok);
    }
    view(context, &started.run, Seq(0))
}

/// What happens where the same plan is under way in the same repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Twin {
    /// Nothing is started, and that is an error.
    Refuse,
    /// Nothing is started, and that run is taken.
    Take,
    /// Another one is started.
    StartAnother,
}

/// A run that goes on.
#[derive(Debug)]
pub(crate) struct Started {
    /// Its id.
    pub(crate) run: RunId,
    /// It was under way already.
    pub(crate) existing: bool,
}

impl Started {
    /// As data.
    pub(crate) fn view(&self) -> StartedView {
        StartedView {
            version: VIEW_VERSION,
            run: self.run.short().to_owned(),
            id: self.run.to_string(),
            existing: self.existing,
        }
    }
}

/// A worker must not fan out again: each level multiplies the cost.
pub(crate) fn refuse_depth() -> CliResult<()> {
    Ok(Depth::current().check()?)
}

fn load(context: &Context, args: &Args) -> CliResult<LoadedPlan> {
    if args.prompts.is_empty() {
        let plan = args.plan.clone().unwrap_or_else(|| PathBuf::from("prun.toml"));
        return Ok(LoadedPlan::read(&plan, &context.cwd)?);
    }
    let options = AdHoc {
        mode: if args.read { Mode::Read } else { Mode::Write },
        executors: args.executor.clone(),
        command: args.command.clone().map(CommandLine::Shell),
        dirty: args.dirty,
        jobs: args.jobs,
    };
    let plan = ad_hoc(&args.prompts, &options).map_err(|problems| PlanError { name: "-p".to_owned(), problems })?;
    Ok(LoadedPlan::ad_hoc(plan, &context.cwd)?)
}

/// Passes the gate, makes the run and starts its supervisor.
///
/// # Errors
/// The plan does not pass, the same plan runs already, or the run cannot be made.
pub(crate) fn start(context: &Context, loaded: &mut LoadedPlan, on_twin: Twin, wishes: &Wishes) -> CliResult<Started> {
    let survey = check::pass_or_ask(context, loaded)?;
    let repo = survey.source.as_ref().map(|source| source.top.as_path());
    let waits = || context.ui.say("the same plan is being started by somebody else; waiting for that");
    let _until_driven = StartLock::take(&context.home, &loaded.digest, waits)?;
    let twin = if on_twin == Twin::StartAnother { None } else { living_twin(&context.home, &loaded.digest, repo) };
    if let Some(run) = twin.clone().filter(|_| on_twin == Twin::Take) {
        return Ok(Started { run, existing: true });
    }
    if let Some(twin) = twin {
        let message = format!("run {} of the same plan is under way in this repository", twin.short());
        let hint = format!("`prun attach {}` shows it; --again starts another", twin.short());
        return Err(CliError::usage(message).hint(hint));
    }
    context.ui.say(gate::summary(&loaded.plan, &survey.world));
    let jobs = loaded.plan.jobs.unwrap_or_else(|| slots(&loaded.plan, &survey.world));
    let run = begin(&context.home, loaded, &survey, jobs, Durability::from_env())?;
    let dir = context.home.run(&run);
    let started = wishes.save(&dir).map_err(Into::into).and_then(|()| supervisor::start(&context.home, &run, false));
    if let Err(error) = started {
        let name = run.short();
        return Err(if abandon(&dir) {
            error
        } else {
            error.hint(format!("the run may have begun: `prun status {name}` tells, `prun resume {name}` goes on"))
        });
    }
    Ok(Started { run, existing: false })
}

/// The sum of the slots of the plan's executors; units that are handed over need none of this machine's.
fn slots(plan: &PlanFile, world: &GateWorld) -> u32 {
    let mut names: Vec<&ExecutorName> = plan.units.iter().flat_map(|unit| &unit.executors).collect();
    names.sort();
    names.dedup();
    let slots = names.into_iter().filter_map(|name| world.executors.get(name)).map(|executor| executor.slots);
    slots.fold(0, u32::saturating_add).max(1)
}

/// Views a run that was just started or resumed, to its end. Events up to `shown` are not told again.
///
/// # Errors
/// The ledger cannot be read.
pub(crate) fn view(context: &Context, run: &RunId, shown: Seq) -> CliResult {
    let name = run.short();
    match follow(context, run, shown, OnInterrupt::StopRun)? {
        ViewEnd::Ended => finish(context, run),
        ViewEnd::Detached => {
            context.ui.say(format!("run {name} goes on; `prun attach {name}` shows it again"));
            Ok(ExitCode::Ok)
        }
        ViewEnd::Interrupted => {
            context.ui.say(format!("left run {name}; `prun attach {name}` shows it again"));
            Ok(ExitCode::Interrupted)
        }
        ViewEnd::SupervisorLost => Err(lost(context, run)),
    }
}

/// The error that says that nobody drives a run any more, and why where its supervisor said so: 7 where it could not
/// write.
pub(crate) fn lost(context: &Context, run: &RunId) -> CliError {
    let name = run.short();
    let dir = context.home.run(run);
    let last = last_words(&dir);
    let code = if last.as_deref().is_some_and(is_about_writing) { ExitCode::NotWritten } else { ExitCode::Attention };
    let why = last.map(|words| format!(": {words}")).unwrap_or_default();
    let message = format!("the supervisor of run {name} is gone; its workers may go on{why}");
    CliError::new(code, message)
        .hint(format!("`prun resume {name}` takes over with every result so far"))
        .hint(format!("{} may tell why", dir.supervisor_log().display()))
}

/// What the supervisor said when it had to leave; nothing where it was killed. A full disk may have kept it from
/// saying so.
fn last_words(dir: &RunDir) -> Option<String> {
    let log = std::fs::read(dir.supervisor_log()).unwrap_or_default();
    let text = String::from_utf8_lossy(&log).into_owned();
    // What one before it said is long over.
    let own = text.rsplit(BEGAN).next().unwrap_or_default();
    let said = own.lines().rev().find_map(|line| line.strip_prefix("error: ")).map(escape_line);
    let is_full = || disk_free(dir.root()).is_ok_and(|free| free < FULL);
    said.or_else(|| is_full().then(|| format!("the disk at {} is full", dir.root().display())))
}

fn is_about_writing(words: &str) -> bool {
    words.contains("cannot write the ledger") || words.contains("is full")
}

/// Bytes: with less than this SQLite cannot take another page of its log.
const FULL: u64 = 64 << 10;

/// Says how a run ended, in the words of every other surface.
///
/// # Errors
/// The ledger cannot be read.
pub(crate) fn finish(context: &Context, run: &RunId) -> CliResult {
    let open = context.find_run(Some(run.as_str()), Intent::Look)?;
    let view = open.view();
    context.ui.line(digest::digest(&view, run.short()))?;
    Ok(match open.state.ended {
        Some(true) => ExitCode::Cancelled,
        _ if digest::is_all_well(&view) => ExitCode::Ok,
        _ => ExitCode::Attention,
    })
}
