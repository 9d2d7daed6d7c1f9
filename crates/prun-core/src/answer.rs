//! What commands answer as JSON, beside the view of a run: plain data with a version, for scripts and for MCP.
//!
//! Members are only ever added; one that changes its meaning raises [`VIEW_VERSION`].

use schemars::JsonSchema;
use serde::Serialize;

use crate::event::{Event, EventKind};
use crate::gate::{ExecutorFacts, GateWorld, Login, Warning, executors_of, summary};
use crate::ids::ExecutorName;
use crate::outcome::FileChange;
use crate::plan::{PlanFile, Problem};
use crate::view::{Counts, RunView, RunViewState, UnitView, VIEW_VERSION};

/// What `check` found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CheckView {
    /// [`VIEW_VERSION`].
    pub version: u32,
    /// The plan may start.
    pub ok: bool,
    /// One line: units, base, executors. `None` where the plan has problems.
    pub summary: Option<String>,
    /// The base, a commit id; `None` without a repository.
    pub base: Option<String>,
    /// Paths with uncommitted work.
    pub uncommitted: usize,
    /// The executors that the plan names.
    pub executors: Vec<ExecutorView>,
    /// What keeps it from starting.
    pub problems: Vec<ProblemView>,
    /// What may go wrong later.
    pub warnings: Vec<ProblemView>,
    /// What one should know.
    pub notes: Vec<String>,
}

impl CheckView {
    /// The answer for a plan that could be read.
    #[must_use]
    pub fn of(
        plan: &PlanFile,
        world: &GateWorld,
        problems: &[Problem],
        warnings: &[Warning],
        notes: &[String],
    ) -> Self {
        let repo = world.repo.as_ref();
        let named = executors_of(plan).into_iter();
        Self {
            version: VIEW_VERSION,
            ok: problems.is_empty(),
            summary: problems.is_empty().then(|| summary(plan, world)),
            base: repo.map(|repo| repo.base.clone()),
            uncommitted: repo.map_or(0, |repo| repo.dirty),
            executors: named.filter_map(|name| Some(ExecutorView::of(name, world.executors.get(name)?))).collect(),
            problems: problems.iter().map(ProblemView::of).collect(),
            warnings: warnings.iter().map(ProblemView::of_warning).collect(),
            notes: notes.to_vec(),
        }
    }

    /// The answer for a plan that could not even be read.
    #[must_use]
    pub fn unreadable(problems: &[Problem]) -> Self {
        Self {
            version: VIEW_VERSION,
            ok: false,
            summary: None,
            base: None,
            uncommitted: 0,
            executors: Vec::new(),
            problems: problems.iter().map(ProblemView::of).collect(),
            warnings: Vec::new(),
            notes: Vec::new(),
        }
    }
}

/// A problem or a warning of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ProblemView {
    /// The line of the plan, from 1; `None` where no line is at fault.
    pub line: Option<u32>,
    /// The column in characters, from 1.
    pub column: Option<u32>,
    /// What is wrong.
    pub message: String,
    /// The next step.
    pub hint: Option<String>,
}

impl ProblemView {
    fn of(problem: &Problem) -> Self {
        let place = problem.place;
        Self {
            line: place.map(|place| place.line),
            column: place.map(|place| place.column),
            message: problem.message.clone(),
            hint: problem.hint.clone(),
        }
    }

    fn of_warning(warning: &Warning) -> Self {
        let place = warning.place;
        Self {
            line: place.map(|place| place.line),
            column: place.map(|place| place.column),
            message: warning.message.clone(),
            hint: None,
        }
    }
}

/// An executor as it was found on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ExecutorView {
    /// Its name.
    pub executor: String,
    /// The client's version.
    pub client: Option<String>,
    /// Units that it may run at once.
    pub slots: u32,
    /// Whether somebody is logged in; `None` where it needs no login or it cannot be told.
    pub logged_in: Option<bool>,
    /// Why it cannot work.
    pub problem: Option<String>,
    /// The next step.
    pub hint: Option<String>,
}

impl ExecutorView {
    /// An executor and what its preflight found.
    #[must_use]
    pub fn of(name: &ExecutorName, facts: &ExecutorFacts) -> Self {
        let problem = facts.problem.as_ref();
        Self {
            executor: name.to_string(),
            client: facts.version.clone(),
            slots: facts.slots,
            logged_in: match facts.login {
                Login::LoggedIn => Some(true),
                Login::LoggedOut => Some(false),
                Login::NotNeeded | Login::Unknown => None,
            },
            problem: problem.map(|problem| problem.message.clone()),
            hint: problem.and_then(|problem| problem.hint.clone()),
        }
    }
}

/// The executors of this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ExecutorsView {
    /// [`VIEW_VERSION`].
    pub version: u32,
    /// Each executor.
    pub executors: Vec<ExecutorView>,
}

/// The runs of a home, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RunsView {
    /// [`VIEW_VERSION`].
    pub version: u32,
    /// Each run.
    pub runs: Vec<RunView>,
}

/// A run that was started, or that goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct StartedView {
    /// [`VIEW_VERSION`].
    pub version: u32,
    /// The short name, which every command takes.
    pub run: String,
    /// The whole name.
    pub id: String,
    /// The same plan was under way already, and nothing was started.
    pub existing: bool,
}

/// Why `wait` returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Woke {
    /// The run has ended, and all is well.
    Ended,
    /// Something calls for action, now or at the end of the run.
    Attention,
    /// The run was cancelled.
    Cancelled,
    /// Nobody drives the run.
    SupervisorLost,
    /// The time was up.
    TimedOut,
}

/// What `wait` says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct WaitView {
    /// [`VIEW_VERSION`].
    pub version: u32,
    /// The run's short name.
    pub run: String,
    /// Why it returned.
    pub woke: Woke,
    /// Whether the run goes on.
    pub state: RunViewState,
    /// The digest's first line: the run in numbers.
    pub header: String,
    /// What calls for action, with the command to look at it: the lines of the digest.
    pub attention: Vec<String>,
    /// How many units are where.
    pub counts: Counts,
    /// What to give as `since` to hear of what comes next.
    pub next: u64,
}

/// A unit's result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ResultView {
    /// [`VIEW_VERSION`].
    pub version: u32,
    /// The run's short name.
    pub run: String,
    /// The unit.
    pub unit: String,
    /// The verdict.
    pub outcome: Option<String>,
    /// No result was delivered; this was saved from the output.
    pub salvaged: bool,
    /// The file that holds it.
    pub path: String,
    /// The file's size in bytes.
    pub bytes: u64,
    /// Its text; bytes that are no UTF-8 are replaced.
    pub text: String,
    /// Only its beginning.
    pub cut: bool,
}

/// The results of a run in brief.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct BriefView {
    /// [`VIEW_VERSION`].
    pub version: u32,
    /// The run's short name.
    pub run: String,
    /// Each unit.
    pub units: Vec<UnitBrief>,
}

/// A unit's result in two lines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct UnitBrief {
    /// The unit.
    pub unit: String,
    /// The verdict, or the state while there is none.
    pub outcome: String,
    /// The result's conclusion, or why there is none.
    pub conclusion: Option<String>,
    /// The result's open items; `None` where it says that there are none.
    pub open_items: Option<String>,
    /// It was only saved from the output.
    pub salvaged: bool,
}

impl BriefView {
    /// The results of a run.
    #[must_use]
    pub fn of(view: &RunView, run: &str) -> Self {
        Self { version: VIEW_VERSION, run: run.to_owned(), units: view.units.iter().map(UnitBrief::of).collect() }
    }
}

impl UnitBrief {
    fn of(unit: &UnitView) -> Self {
        let open = unit.open_items.as_deref().filter(|open| !open.eq_ignore_ascii_case("none"));
        Self {
            unit: unit.unit.clone(),
            outcome: unit.outcome.clone().unwrap_or_else(|| unit.state.clone()),
            conclusion: unit.conclusion.clone().or_else(|| unit.why.clone()),
            open_items: open.map(str::to_owned),
            salvaged: unit.salvaged,
        }
    }
}

/// What units changed, file by file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DiffView {
    /// [`VIEW_VERSION`].
    pub version: u32,
    /// The run's short name.
    pub run: String,
    /// Each unit that changed something.
    pub units: Vec<UnitDiff>,
}

/// What a unit changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct UnitDiff {
    /// The unit.
    pub unit: String,
    /// The tree it started from.
    pub base_tree: String,
    /// The tree it made.
    pub tree: String,
    /// The files.
    pub files: Vec<FileChange>,
}

/// How a unit came to where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct StoryView {
    /// [`VIEW_VERSION`].
    pub version: u32,
    /// The run's short name.
    pub run: String,
    /// The unit.
    pub unit: String,
    /// The state's stable name.
    pub state: String,
    /// What happened, oldest first.
    pub steps: Vec<StoryStep>,
    /// What it waits for, while it waits.
    pub waits_for: Option<String>,
    /// What can be done now.
    pub next: Vec<String>,
}

/// One step of a unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct StoryStep {
    /// The event's number.
    pub seq: u64,
    /// When, in milliseconds since 1970 in UTC.
    pub at: i64,
    /// What, in a sentence.
    pub what: String,
}

/// One event of a run: a line of `prun events`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct EventView {
    /// [`VIEW_VERSION`].
    pub version: u32,
    /// Its place in the ledger.
    pub seq: u64,
    /// When, in milliseconds since 1970 in UTC.
    pub at: i64,
    /// What happened: the kind's stable name.
    pub event: String,
    /// The unit, where it is one's.
    pub unit: Option<String>,
    /// The attempt, where it is a unit's; 0 before the first one.
    pub attempt: Option<u32>,
    /// The kind's own members. They differ from kind to kind, and more may come.
    pub data: serde_json::Map<String, serde_json::Value>,
}

impl EventView {
    /// An event as data.
    #[must_use]
    pub fn of(event: &Event) -> Self {
        let (unit, attempt, data) = match &event.kind {
            EventKind::Unit { unit, attempt, event } => {
                (Some(unit.to_string()), Some(attempt.0), serde_json::to_value(event))
            }
            EventKind::Run(event) => (None, None, serde_json::to_value(event)),
            EventKind::Unknown { name, data } => (None, None, Ok(serde_json::json!({"event": name, "stored": data}))),
        };
        let mut data = match data {
            Ok(serde_json::Value::Object(data)) => data,
            _ => serde_json::Map::new(),
        };
        let name = data.remove("event").and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default();
        Self { version: VIEW_VERSION, seq: event.seq.0, at: event.at.0, event: name, unit, attempt, data }
    }
}

/// What was found about a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct OfRun<T> {
    /// [`VIEW_VERSION`].
    pub version: u32,
    /// The run's short name.
    pub run: String,
    /// What was found.
    #[serde(flatten)]
    pub found: T,
}

impl<T> OfRun<T> {
    /// What was found about the run of that name.
    #[must_use]
    pub fn new(run: &str, found: T) -> Self {
        Self { version: VIEW_VERSION, run: run.to_owned(), found }
    }
}

/// What was done, in a sentence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DoneView {
    /// [`VIEW_VERSION`].
    pub version: u32,
    /// The sentence.
    pub message: String,
}

impl DoneView {
    /// The sentence with the version.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self { version: VIEW_VERSION, message: message.into() }
    }
}

/// A landing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LandedView {
    /// [`VIEW_VERSION`].
    pub version: u32,
    /// The run's short name.
    pub run: String,
    /// The tree that landed.
    pub tree: String,
    /// Paths that were written or removed.
    pub files: usize,
    /// The commands that stage what is the units' alone: the user's to review and run.
    pub add: Vec<String>,
    /// The same for files that also hold the user's own edits.
    pub add_also_yours: Vec<String>,
    /// The command that takes it back.
    pub undo: String,
}

/// A command that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ErrorView {
    /// [`VIEW_VERSION`].
    pub version: u32,
    /// What failed.
    pub error: ErrorBody,
}

/// What failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ErrorBody {
    /// The exit code's stable name.
    pub kind: String,
    /// The exit code.
    pub exit_code: u8,
    /// The act and what is wrong. May have several lines.
    pub message: String,
    /// Next steps.
    pub hints: Vec<String>,
}
