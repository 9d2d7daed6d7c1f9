//! The plan as the rest of prun sees it: every default filled in, every name checked.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::budget::Budget;
use crate::event::{Guard, Mode};
use crate::ids::{ExecutorName, UnitId};
use crate::plan::problem::Place;

/// The only version of the plan format so far.
pub const PLAN_VERSION: u32 = 1;
/// Attempts after the first where the plan does not say.
pub const DEFAULT_RETRIES: u32 = 1;
/// The most retries that a unit may have: each costs a whole attempt.
pub const MAX_RETRIES: u32 = 10;
/// The most levels of runs inside of runs that a plan may allow: each multiplies what a run costs.
pub const MAX_DEPTH: u32 = 3;
/// Milliseconds without a sign of life where the plan does not say (the contract's 600 s).
pub const DEFAULT_IDLE_MILLIS: u64 = 600_000;
/// Milliseconds until the first output where the plan does not say (design, section 5).
pub const DEFAULT_FIRST_OUTPUT_MILLIS: u64 = 180_000;
/// The executor where the plan names none.
pub const DEFAULT_EXECUTOR: &str = "codex";
/// The executor that runs the plan's own `command`.
pub const COMMAND_EXECUTOR: &str = "command";
/// The executor whose worker is the coordinator's own subagent.
pub const SESSION_EXECUTOR: &str = "session";

/// How long a set-up or a check may take where the plan does not say: half an hour, as builds take minutes.
pub const DEFAULT_CHECK_MILLIS: u64 = 30 * 60 * 1000;

/// A resolved plan. Places are not part of its serialised form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanFile {
    /// [`PLAN_VERSION`].
    pub version: u32,
    /// What the run is about; made from the unit ids where the plan has none.
    pub title: String,
    /// The repository, relative to the plan; `None`: the one of the current directory.
    pub repo: Option<String>,
    /// The revision that units start from.
    pub base: String,
    /// What happens to uncommitted work; `None`: not said.
    pub dirty: Option<Dirty>,
    /// What keeps workers from writing to the user's repository; `None`: nothing does.
    #[serde(default)]
    pub guard: Option<Guard>,
    /// Run once in each clone, before the worker.
    pub setup: Option<CommandLine>,
    /// How long the set-up may take, in milliseconds; `None`: [`DEFAULT_CHECK_MILLIS`].
    #[serde(default)]
    pub setup_limit_millis: Option<u64>,
    /// The run's check: on the base, then on each combination.
    pub verify: Option<CommandLine>,
    /// How long that check, and the check of a unit, may take, in milliseconds; `None`: [`DEFAULT_CHECK_MILLIS`].
    #[serde(default)]
    pub check_limit_millis: Option<u64>,
    /// How many units may run at once; `None`: the sum of the executors' slots.
    pub jobs: Option<u32>,
    /// Levels of runs that workers may start; 0: none.
    #[serde(default)]
    pub depth: u32,
    /// Text that is put before every prompt.
    pub context: Option<Prompt>,
    /// What the run may spend.
    #[serde(default)]
    pub budget: Budget,
    /// The units, in the plan's order.
    pub units: Vec<UnitPlan>,
    /// Units from rows, to be made from them.
    #[serde(default)]
    pub maps: Vec<MapPlan>,
    /// Where the keys stand.
    #[serde(skip)]
    pub places: PlanPlaces,
}

impl PlanFile {
    /// How long the set-up may take.
    #[must_use]
    pub fn setup_limit(&self) -> Duration {
        Duration::from_millis(self.setup_limit_millis.unwrap_or(DEFAULT_CHECK_MILLIS))
    }

    /// How long the run's check, and the check of a unit, may take.
    #[must_use]
    pub fn check_limit(&self) -> Duration {
        Duration::from_millis(self.check_limit_millis.unwrap_or(DEFAULT_CHECK_MILLIS))
    }
}

/// Units from rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapPlan {
    /// Where the rows are.
    pub rows: Rows,
    /// The column with the units' ids; `None`: they are numbered.
    pub column: Option<String>,
    /// A JSON Schema that each result's JSON must meet: its file, relative to the plan; once it was read, its text.
    pub schema: Option<String>,
    /// The unit of every row: its id is the map's name, its prompt a template.
    pub unit: UnitPlan,
    /// Where it stands.
    #[serde(skip)]
    pub place: Option<Place>,
}

/// Where the rows of a map are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rows {
    /// In a file, relative to the plan: CSV with a head, or JSON Lines.
    File(String),
    /// In the plan.
    List(Vec<serde_json::Map<String, serde_json::Value>>),
    /// Each file that matches, relative to the plan.
    Glob(String),
}

/// The row that a unit was made from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// The map's name.
    pub map: String,
    /// Its number, from 1.
    pub number: usize,
    /// Its columns.
    pub fields: serde_json::Map<String, serde_json::Value>,
}

/// A resolved unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitPlan {
    /// Its name.
    pub id: UnitId,
    /// Read or write.
    pub mode: Mode,
    /// Executors that may take it: the first that can, the order is the fallback. Never empty.
    pub executors: Vec<ExecutorName>,
    /// The worker's command line, for the executor `command` alone.
    pub command: Option<CommandLine>,
    /// Where the result of `command` comes from.
    #[serde(default, skip_serializing_if = "ResultFrom::is_file")]
    pub result: ResultFrom,
    /// What the worker is told.
    pub prompt: Prompt,
    /// What it may change, gitignore-style; empty: anything. Always empty for a read unit.
    pub owns: Vec<String>,
    /// The unit's own check, run in its clone after the worker.
    pub verify: Option<CommandLine>,
    /// Files that must exist at the end, relative to the workspace.
    pub deliverables: Vec<String>,
    /// How hard the model is to think, in the client's own words.
    pub effort: Option<String>,
    /// The model, in the client's own words.
    pub model: Option<String>,
    /// Variables to set for the worker.
    pub env: Env,
    /// Attempts after the first.
    pub retries: u32,
    /// Milliseconds in all; `None`: no limit.
    pub timeout_millis: Option<u64>,
    /// Milliseconds without a sign of life; `None`: no limit.
    pub idle_millis: Option<u64>,
    /// Milliseconds until the first output; `None`: no limit.
    pub first_output_millis: Option<u64>,
    /// The panel that it is a member of: units with the same work, of which at most one lands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub panel: Option<UnitId>,
    /// The row that it was made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row: Option<Row>,
    /// What it may spend, all attempts together.
    #[serde(default)]
    pub budget: Budget,
    /// Units with a higher one start first; else in the plan's order.
    #[serde(default)]
    pub priority: i32,
    /// Whether a read unit gets a checkout of the base. Always true for a write unit.
    pub checkout: bool,
    /// Where its keys stand.
    #[serde(skip)]
    pub places: UnitPlaces,
}

impl UnitPlan {
    /// Whether the coordinator's own subagent is meant to do it.
    #[must_use]
    pub fn is_session(&self) -> bool {
        self.executors.first().is_some_and(|executor| executor.as_str() == SESSION_EXECUTOR)
    }
}

/// What happens to uncommitted work in the user's repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Dirty {
    /// Units see it: the base carries it.
    Include,
    /// Units do not see it.
    Ignore,
}

/// Where a command's result comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ResultFrom {
    /// The file that the brief names.
    #[default]
    File,
    /// What it prints.
    Stdout,
}

impl ResultFrom {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
    fn is_file(&self) -> bool {
        *self == Self::File
    }
}

/// A command of the plan: text for `sh -c`, or a program with its arguments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(untagged)]
pub enum CommandLine {
    /// Text for `sh -c`.
    Shell(String),
    /// A program and its arguments, without a shell.
    Argv(Vec<String>),
}

impl CommandLine {
    /// The program and its arguments.
    #[must_use]
    pub fn argv(&self) -> Vec<String> {
        match self {
            Self::Shell(text) => vec!["sh".to_owned(), "-c".to_owned(), text.clone()],
            Self::Argv(argv) => argv.clone(),
        }
    }
}

/// A prompt, in the plan or in a file that it names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Prompt {
    /// It stands in the plan.
    Inline(String),
    /// It stands in a file that was not read yet; relative to the plan.
    File(String),
    /// It was read from a file.
    Loaded {
        /// The file, relative to the plan.
        path: String,
        /// Its text.
        text: String,
    },
}

impl Prompt {
    /// The text, where it is known.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Inline(text) | Self::Loaded { text, .. } => Some(text),
            Self::File(_) => None,
        }
    }

    /// The file that it stands in, where it does.
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        match self {
            Self::File(path) | Self::Loaded { path, .. } => Some(path),
            Self::Inline(_) => None,
        }
    }
}

/// Variables for a worker. Values may be secret: `Debug` shows the names alone.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Env(pub BTreeMap<String, String>);

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// Where the keys of a plan stand, for problems that are found later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlanPlaces {
    /// `repo`.
    pub repo: Option<Place>,
    /// `base`.
    pub base: Option<Place>,
    /// `guard`.
    pub guard: Option<Place>,
    /// `jobs`.
    pub jobs: Option<Place>,
    /// `context_file`.
    pub context_file: Option<Place>,
}

/// Where the keys of a unit stand. `None`: not in the plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnitPlaces {
    /// Its id.
    pub id: Option<Place>,
    /// Its executor, also where `[defaults]` names it.
    pub executor: Option<Place>,
    /// `prompt` or `prompt_file`.
    pub prompt: Option<Place>,
    /// `owns`.
    pub owns: Option<Place>,
}
