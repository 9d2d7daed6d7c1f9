//! How an attempt ended: the facts that were observed, and the verdict computed from them.
//!
//! [`AttemptFacts`] is what a dispatcher saw and wrote to `facts.json`; [`crate::judge`] turns it into an
//! [`Outcome`]. A failed observation is recorded as such and never reads as a good one.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{Attempt, UnitId};
use crate::time::Timestamp;

/// The version of the `facts.json` format.
pub const FACTS_VERSION: u32 = 1;

/// The verdict on a settled unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "kind", content = "why")]
pub enum Outcome {
    /// Everything that success needs was seen.
    Succeeded,
    /// The worker ended well, but something that was asked for is missing.
    Incomplete(Gap),
    /// The attempt failed.
    Failed(Cause),
    /// Somebody stopped it.
    Stopped(StopReason),
}

/// What an incomplete unit lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Gap {
    /// No authentic result; what could be saved is under the FALLBACK header.
    NoResult,
    /// A result that does not meet the return contract.
    Contract,
    /// A declared deliverable is not there.
    Deliverable,
    /// A write unit that changed nothing.
    NoChange,
    /// The client ended without its own final event.
    NoFinalEvent,
    /// The changes could not be harvested.
    Harvest,
}

/// Why an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The program could not be started.
    SpawnError,
    /// The workspace or its set-up command failed, before money was spent.
    Setup,
    /// The worker's own exit code was not 0.
    ExitCode,
    /// The worker died of a signal that was not ours.
    Signal,
    /// The kernel ended it for memory.
    Oom,
    /// Not logged in, or the key is refused.
    Auth,
    /// The account's usage limit or quota is spent.
    UsageLimit,
    /// Too many requests, or an overloaded provider.
    RateLimit,
    /// The provider could not be reached.
    Network,
    /// The conversation outgrew the model's context.
    Context,
    /// The client denied the worker what it needed.
    Permission,
    /// The worker reported success without any work.
    NoWork,
    /// The unit's own check failed.
    Verify,
    /// Silent for longer than the idle limit.
    IdleStall,
    /// Silent from the start for longer than the first-output limit.
    FirstOutput,
    /// Longer than the hard limit.
    HardTimeout,
    /// It wrote more than a tail may hold.
    OutputLimit,
    /// Some of its processes could not be ended.
    KillFailed,
    /// Its dispatcher died.
    DispatchDead,
    /// The client reported an error of no other class.
    Worker,
}

/// Who or what ended an attempt that had not ended by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StopReason {
    /// `prun stop UNIT`.
    User,
    /// The whole run was stopped.
    RunStopped,
    /// A budget was spent.
    Budget,
    /// The dispatcher got a signal.
    Signal,
    /// No growth for the idle limit.
    IdleStall,
    /// No output at all for the first-output limit.
    FirstOutput,
    /// The hard limit.
    HardTimeout,
    /// The worker lived on after its final event.
    Lingered,
    /// The tail's cap.
    OutputLimit,
    /// The executor is held and the unit gives way.
    Hold,
}

impl StopReason {
    /// Whether a person or the run asked for it, as against a limit of the dispatcher's.
    #[must_use]
    pub fn is_asked_for(self) -> bool {
        matches!(self, Self::User | Self::RunStopped | Self::Budget | Self::Signal)
    }
}

/// How the worker's leader process ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Exit {
    /// It exited with a code.
    Code {
        /// The code, 0 to 255.
        code: i32,
    },
    /// A signal ended it.
    Signal {
        /// The signal's number.
        signal: i32,
    },
    /// It was never started.
    NotStarted {
        /// 126 or 127, as a shell would say.
        code: i32,
        /// What the system said, with the program's name.
        error: String,
    },
    /// Nobody was there to see it (a dead dispatcher), or there was no worker (a session unit).
    Unobserved,
}

/// Where the result came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Channel {
    /// The result file that the worker wrote.
    ResultFile,
    /// The file into which the client wrote its last message.
    LastMessage,
    /// The final message in the client's event stream.
    FinalEvent,
    /// None was authentic: the tail was saved under the FALLBACK header.
    Salvage,
}

/// What is known of the result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ResultFacts {
    /// Where it came from.
    pub channel: Channel,
    /// Where it stands now, absolute, lossy where the path is not UTF-8.
    pub path: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// What the return contract misses in it; empty when it meets the contract.
    pub contract_gaps: Vec<String>,
    /// The `Conclusion:` line, cut to 400 characters.
    pub conclusion: Option<String>,
    /// The `Open items:` line, cut to 400 characters.
    pub open_items: Option<String>,
    /// The `Files:` line, cut to 2000 characters.
    pub files_claimed: Option<String>,
    /// Set where the result could not be written at the path that was asked for.
    pub misplaced: bool,
}

/// The client's own last word.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum FinalEvent {
    /// The executor has no event stream.
    NotApplicable,
    /// It said it was done, without an error.
    Completed,
    /// It said that it failed.
    Failed,
    /// It never said anything final.
    Missing,
}

/// An error that the client reported in its own words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ClientError {
    /// The class it belongs to.
    pub class: Cause,
    /// The client's message, cut to 1000 characters.
    pub message: String,
    /// When a limit is lifted, where the client says.
    pub resets_at: Option<Timestamp>,
}

/// A command that prun ran beside the worker (set-up, the unit's verify, the run's verify).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct CheckFacts {
    /// Whether it exited with 0 within its limit.
    pub ok: bool,
    /// How it ended.
    pub exit: Exit,
    /// It ran into its time limit.
    pub timed_out: bool,
    /// Milliseconds it took.
    pub millis: u64,
    /// The file that holds its output.
    pub log: String,
}

/// What a unit's workspace holds that the base does not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Changes {
    /// The tree id of the harvested workspace, in the run's own object store.
    pub tree: String,
    /// The tree id of the base.
    pub base_tree: String,
    /// Every changed path.
    pub files: Vec<FileChange>,
    /// What a tree cannot show, by name: nested repositories, other branches, stashes, ignored files.
    pub unseen: Vec<String>,
    /// The clone's HEAD is not the base any more.
    pub head_moved: bool,
}

impl Changes {
    /// Whether nothing changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }
}

/// One changed path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct FileChange {
    /// Relative to the repository's root, `/`-separated, lossy where not UTF-8.
    pub path: String,
    /// What happened to it.
    pub kind: ChangeKind,
    /// Lines added; `None` for binary files.
    pub added: Option<u64>,
    /// Lines removed; `None` for binary files.
    pub removed: Option<u64>,
}

/// What happened to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeKind {
    /// It is new.
    Added,
    /// Its content or mode changed.
    Modified,
    /// It is gone.
    Deleted,
    /// A file became a link or a submodule, or the other way round.
    TypeChanged,
}

/// Tokens and money, as far as the client reports them. Counters are totals of the attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Usage {
    /// Tokens sent, cached ones included.
    pub input_tokens: u64,
    /// Tokens of these that came from a cache.
    pub cached_input_tokens: u64,
    /// Tokens received, reasoning included.
    pub output_tokens: u64,
    /// Millionths of a US dollar, where the client reports money.
    pub cost_micro_usd: Option<u64>,
    /// Turns, where the client reports them.
    pub turns: Option<u32>,
}

impl Eq for Usage {}

impl Usage {
    /// Input and output together.
    #[must_use]
    pub fn total_tokens(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }

    /// Both together.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            input_tokens: self.input_tokens.saturating_add(other.input_tokens),
            cached_input_tokens: self.cached_input_tokens.saturating_add(other.cached_input_tokens),
            output_tokens: self.output_tokens.saturating_add(other.output_tokens),
            cost_micro_usd: either(self.cost_micro_usd, other.cost_micro_usd, u64::saturating_add),
            turns: either(self.turns, other.turns, u32::saturating_add),
        }
    }

    /// What was added since the totals were `before`. Turns are no totals: clients count those of one process.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let cost = before.cost_micro_usd.unwrap_or(0);
        Self {
            input_tokens: self.input_tokens.saturating_sub(before.input_tokens),
            cached_input_tokens: self.cached_input_tokens.saturating_sub(before.cached_input_tokens),
            output_tokens: self.output_tokens.saturating_sub(before.output_tokens),
            cost_micro_usd: self.cost_micro_usd.map(|total| total.saturating_sub(cost)),
            turns: self.turns,
        }
    }
}

fn either<T>(one: Option<T>, other: Option<T>, both: impl FnOnce(T, T) -> T) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(both(one, other)),
        (one, other) => one.or(other),
    }
}

/// What ended the tree, and what it could prove.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SweepFacts {
    /// Names of the containment in force: `cgroup`, `subreaper`, `token`.
    pub containment: Vec<String>,
    /// Processes that were still there after the leader had ended.
    pub leftovers: u32,
    /// The kernel vouched that no descendant is left (`ECHILD` under a subreaper, or an empty cgroup).
    pub proven: bool,
    /// Processes that could not be ended within the bound.
    pub survivors: Vec<u32>,
}

/// Everything a dispatcher saw of one attempt. Written last and atomically: its presence means settled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct AttemptFacts {
    /// [`FACTS_VERSION`].
    pub version: u32,
    /// The unit.
    pub unit: UnitId,
    /// The attempt, 1 for `dispatch-task`.
    pub attempt: Attempt,
    /// How the worker's leader ended.
    pub exit: Exit,
    /// Why the dispatcher ended it, where it did.
    pub stopped: Option<StopReason>,
    /// The signal that the dispatcher itself got, where it got one.
    pub dispatcher_signal: Option<i32>,
    /// The dispatcher died: its successor wrote down what could still be seen.
    #[serde(default)]
    pub dispatcher_died: bool,
    /// The set-up command, where there was one.
    pub setup: Option<CheckFacts>,
    /// The client's own last word.
    pub final_event: FinalEvent,
    /// The client's own error.
    pub error: Option<ClientError>,
    /// The result; `None` only where none could be written anywhere.
    pub result: Option<ResultFacts>,
    /// Declared deliverables that are not there.
    pub missing_deliverables: Vec<String>,
    /// The unit's own check, where there is one and it was reached.
    pub verify: Option<CheckFacts>,
    /// Whether a diff is expected (a write unit).
    pub expects_changes: bool,
    /// What changed in the workspace; `None` where nothing was to be harvested.
    pub changes: Option<Changes>,
    /// Why the harvest failed, where it did.
    pub harvest_error: Option<String>,
    /// What ended the tree.
    pub sweep: SweepFacts,
    /// Paths of the user's repository that the attempt's processes could not write; empty: nothing kept them from it.
    #[serde(default)]
    pub read_only: Vec<String>,
    /// Tokens and money.
    pub usage: Option<Usage>,
    /// The model that did the work: as the client names it, else as it was asked for.
    #[serde(default)]
    pub model: Option<String>,
    /// Tools that the client denied to the worker, each once. What nobody could have allowed (a question to
    /// the user) is not among them.
    #[serde(default)]
    pub denied: Vec<String>,
    /// The client's session or thread, to resume.
    pub session: Option<String>,
    /// Liveness signals that were silent when a limit struck: `output`, `events`, `cpu`, `files`.
    pub silent: Vec<String>,
    /// Peak resident memory of the largest process, in KiB, where the system tells.
    pub peak_rss_kib: Option<u64>,
    /// CPU time of the worker and all that it started, in milliseconds; without a control group only of what
    /// was waited for.
    pub cpu_millis: Option<u64>,
    /// Peak memory of all processes of the attempt together, in KiB, where its control group tells.
    #[serde(default)]
    pub peak_memory_kib: Option<u64>,
    /// The kernel ended one of its processes for memory, as its control group tells.
    #[serde(default)]
    pub oom_killed: bool,
    /// When the dispatcher began.
    pub started_at: Timestamp,
    /// When the facts were written.
    pub ended_at: Timestamp,
    /// Milliseconds from the worker's start to its end, on the monotonic clock.
    pub worker_millis: u64,
}

macro_rules! display_as_serde {
    ($($name:ty),*) => {$(
        impl fmt::Display for $name {
            /// The stable name that is also stored and printed in JSON.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.serialize(f)
            }
        }
    )*};
}
display_as_serde!(Gap, Cause, StopReason, Channel, ChangeKind);

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Succeeded => f.write_str("succeeded"),
            Self::Incomplete(gap) => write!(f, "incomplete({gap})"),
            Self::Failed(cause) => write!(f, "failed({cause})"),
            Self::Stopped(reason) => write!(f, "stopped({reason})"),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The facts of an attempt in which everything went well.
    pub(crate) fn good_facts() -> AttemptFacts {
        let result = ResultFacts {
            channel: Channel::ResultFile,
            path: "/r".into(),
            bytes: 10,
            contract_gaps: Vec::new(),
            conclusion: Some("done".into()),
            open_items: Some("none".into()),
            files_claimed: Some("a".into()),
            misplaced: false,
        };
        let file = FileChange { path: "a".into(), kind: ChangeKind::Modified, added: Some(1), removed: Some(0) };
        AttemptFacts {
            version: FACTS_VERSION,
            unit: "u".parse().unwrap(),
            attempt: Attempt(1),
            exit: Exit::Code { code: 0 },
            stopped: None,
            dispatcher_signal: None,
            dispatcher_died: false,
            setup: None,
            final_event: FinalEvent::Completed,
            error: None,
            result: Some(result),
            missing_deliverables: Vec::new(),
            verify: None,
            expects_changes: true,
            changes: Some(Changes { files: vec![file], ..Changes::default() }),
            harvest_error: None,
            sweep: SweepFacts::default(),
            read_only: Vec::new(),
            usage: None,
            model: None,
            denied: Vec::new(),
            session: None,
            silent: Vec::new(),
            peak_rss_kib: None,
            cpu_millis: None,
            peak_memory_kib: None,
            oom_killed: false,
            started_at: Timestamp(0),
            ended_at: Timestamp(1),
            worker_millis: 1,
        }
    }

    #[test]
    fn facts_survive_their_file() {
        let text = serde_json::to_string(&good_facts()).unwrap();
        assert_eq!(serde_json::from_str::<AttemptFacts>(&text).unwrap(), good_facts());
    }

    #[test]
    fn facts_of_an_older_prun_are_read() {
        let mut value = serde_json::to_value(good_facts()).unwrap();
        let fields = value.as_object_mut().unwrap();
        for field in ["oom_killed", "peak_memory_kib", "model", "denied"] {
            assert!(fields.remove(field).is_some(), "{field}");
        }
        assert_eq!(serde_json::from_value::<AttemptFacts>(value).unwrap(), good_facts());
    }

    #[test]
    fn names_are_the_stored_ones() {
        assert_eq!(Outcome::Failed(Cause::DispatchDead).to_string(), "failed(dispatch-dead)");
        assert_eq!(Outcome::Incomplete(Gap::NoResult).to_string(), "incomplete(no-result)");
    }

    #[test]
    fn tokens_of_a_session_that_goes_on_are_counted_once() {
        let usage = |input, output| Usage { input_tokens: input, output_tokens: output, ..Usage::default() };
        let (first, total) = (usage(200, 20), Usage { turns: Some(3), ..usage(300, 35) });
        let second = total.since(&first);
        assert_eq!((second.input_tokens, second.output_tokens, second.turns), (100, 15, Some(3)));
        assert_eq!(first.plus(&second), total);
        // A client that counts from anew is believed, and not below nothing.
        assert_eq!(usage(50, 5).since(&first), usage(0, 0));
        let money = Usage { cost_micro_usd: Some(7), ..usage(1, 1) };
        assert_eq!(money.plus(&usage(1, 1)).cost_micro_usd, Some(7));
    }
}
