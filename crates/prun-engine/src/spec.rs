//! What a dispatcher is told: `spec.json`, written by the supervisor, read once by the dispatcher.
//!
//! It holds names of secret variables, never their values.

use std::path::PathBuf;

use prun_core::ids::{Attempt, RunId, UnitId};
use prun_core::outcome::{Cause, Usage};
use serde::{Deserialize, Serialize};

use crate::executor::stream::StreamKind;

/// The version of the `spec.json` format.
pub const SPEC_VERSION: u32 = 1;

/// One attempt at one unit, ready to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptSpec {
    /// [`SPEC_VERSION`].
    pub version: u32,
    /// The run; `None` for `dispatch-task`.
    pub run: Option<RunId>,
    /// The unit.
    pub unit: UnitId,
    /// The attempt; 1 for `dispatch-task`.
    pub attempt: Attempt,
    /// The attempt's directory; `None` for `dispatch-task`, which has only a state dir.
    pub attempt_dir: Option<PathBuf>,
    /// Where the state dir `prun-task-…` is made.
    pub state_parent: PathBuf,
    /// The worker's process; `None` for a session unit, which somebody else works on.
    pub worker: Option<WorkerSpec>,
    /// The session of the client's that it goes on in; `None` where it begins one.
    #[serde(default)]
    pub resumes: Option<Resumed>,
    /// The prompt, given on stdin byte for byte.
    pub prompt_file: PathBuf,
    /// Where the result is to stand; absolute.
    pub result_file: PathBuf,
    /// The worker's working directory; `None` = `work/` in the state dir.
    pub cwd: Option<PathBuf>,
    /// Variables to set for the worker, beside the inherited environment.
    pub env: Vec<(String, String)>,
    /// Where the unit stands among those of its run: no two of one run get the same ports.
    #[serde(default)]
    pub place: u32,
    /// When the dispatcher ends the worker.
    pub limits: Limits,
    /// Run in `cwd` before the worker; a failure ends the attempt as `setup`.
    pub setup: Option<CheckSpec>,
    /// Run in `cwd` after the worker; what makes the unit checkable.
    pub verify: Option<CheckSpec>,
    /// Paths relative to the workspace that must exist at the end.
    pub deliverables: Vec<String>,
    /// A diff is expected (a write unit).
    pub expects_changes: bool,
    /// What to harvest; `None` where there is no checkout.
    pub harvest: Option<HarvestSpec>,
    /// What its processes must not write; `None`: nothing keeps them from anything.
    #[serde(default)]
    pub guard: Option<GuardSpec>,
    /// Levels of runs that the worker may start; 0 = none.
    #[serde(default)]
    pub depth: u32,
}

/// Paths that the processes of an attempt cannot write. All are absolute, links resolved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardSpec {
    /// Directories that they see read-only, with all that is in them.
    pub read_only: Vec<PathBuf>,
    /// Directories inside of those that they can write all the same.
    pub writable: Vec<PathBuf>,
}

/// A worker's process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerSpec {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// How its stdout is understood.
    pub stream: StreamKind,
    /// The client writes its last message to `last-message` in the state dir: this placeholder among the
    /// arguments stands for that path. `None` where it has no such option.
    pub last_message_placeholder: Option<String>,
    /// The model that it was asked to use; `None` for the client's default.
    #[serde(default)]
    pub model: Option<String>,
    /// How the prompt reaches it.
    #[serde(default)]
    pub prompt: PromptChannel,
    /// Variables that its client needs; those of the attempt go before them.
    #[serde(default)]
    pub env: Vec<(String, String)>,
    /// What its output means where it fails.
    #[serde(default)]
    pub errors: Vec<ErrorRule>,
}

/// How a prompt reaches a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PromptChannel {
    /// On stdin.
    #[default]
    Stdin,
    /// In place of `{prompt}` in its arguments.
    Argument,
    /// In a file whose path stands in place of `{prompt-file}` in its arguments.
    File,
}

/// The class of a failure, told by a line of the output. It is asked only about a worker that failed by its exit
/// code: ordinary work may well write about errors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ErrorRule {
    /// The class.
    pub class: Cause,
    /// A regular expression that is looked for in each line.
    pub pattern: String,
}

/// A client's session that goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resumed {
    /// The client's name for it.
    pub session: String,
    /// What earlier attempts spent in it: clients count from the session's start.
    pub spent: Usage,
}

/// A command that prun runs beside the worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckSpec {
    /// The program and its arguments (`sh -c TEXT` for a string in the plan).
    pub argv: Vec<String>,
    /// Its own time limit in milliseconds.
    pub limit_millis: u64,
}

/// When the dispatcher ends the worker. `None` turns a limit off.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Milliseconds until the first output; the idle clock stands still until then.
    pub first_output_millis: Option<u64>,
    /// Milliseconds without a sign of life.
    pub idle_millis: Option<u64>,
    /// Milliseconds in all.
    pub hard_millis: Option<u64>,
    /// Milliseconds that the worker may live on after its final event.
    pub linger_millis: Option<u64>,
    /// Milliseconds between TERM and KILL.
    pub grace_millis: u64,
    /// Bytes that `tail` and `events.jsonl` may hold, each.
    pub output_bytes: Option<u64>,
    /// What counts as a sign of life.
    pub liveness: Liveness,
}

/// What counts as a sign of life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Liveness {
    /// Growth of `tail` alone (`dispatch-task`, as the contract says).
    Tail,
    /// Output, parsed events that are progress, CPU time of the tree, files changing in the workspace.
    All,
}

/// What to harvest, and with what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HarvestSpec {
    /// The checkout (the clone, or `repo/` in the scratch directory).
    pub work_tree: PathBuf,
    /// The run's own bare store: harvested objects go here, and its config is the trusted one.
    pub store: PathBuf,
    /// The index as prepared.
    pub trusted_index: PathBuf,
    /// The tree id of the base.
    pub base_tree: String,
    /// The base, a commit id.
    pub base: String,
    /// Paths (relative, `/`-separated) that are prun's own and never part of a unit's changes.
    pub exclude: Vec<String>,
}
