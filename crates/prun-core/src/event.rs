//! The durable vocabulary of a run: what the ledger holds, in order.
//!
//! Events are owned, small and serialisable; they point at output files and never carry output. A kind
//! that this version does not know is kept as [`EventKind::Unknown`] and shown as such.

use serde::{Deserialize, Serialize};

use crate::budget::Budget;
use crate::ids::{Attempt, ExecutorName, Seq, UnitId};
use crate::outcome::{AttemptFacts, Cause, CheckFacts, Outcome, StopReason};
use crate::policy::Spends;
use crate::time::Timestamp;
use crate::unit::NextAttempt;

/// The version of the vocabulary. A reader refuses a newer one; older ones stay readable.
pub const LEDGER_VERSION: u32 = 1;

/// One recorded step of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its place in the ledger.
    pub seq: Seq,
    /// When it was recorded, on the wall clock.
    pub at: Timestamp,
    /// What happened.
    pub kind: EventKind,
}

/// What happened, to whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// To one unit.
    Unit {
        /// The unit.
        unit: UnitId,
        /// The attempt that the event belongs to; before the first attempt, 0.
        attempt: Attempt,
        /// What happened.
        event: Box<UnitEvent>,
    },
    /// To the run as a whole.
    Run(Box<RunEvent>),
    /// Something that a later version of prun recorded.
    Unknown {
        /// Its stored name.
        name: String,
        /// Its stored text.
        data: String,
    },
}

/// What happens to a unit. The legal order is the table in [`crate::unit`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "event")]
pub enum UnitEvent {
    /// An attempt was given a number and a directory; its workspace is being prepared.
    AttemptBegan {
        /// Who will do it.
        executor: ExecutorName,
        /// The attempt's directory, relative to the run's.
        dir: String,
        /// Why this executor, in a sentence.
        why: String,
    },
    /// The workspace is ready.
    WorkspaceReady {
        /// Milliseconds it took.
        millis: u64,
    },
    /// The attempt's dispatcher runs.
    ProcessStarted {
        /// The dispatcher.
        process: ProcessIdentity,
    },
    /// Nothing was started.
    StartFailed {
        /// `setup` or `spawn-error`.
        cause: Cause,
        /// What failed, with the path and the act.
        message: String,
    },
    /// A session unit waits for the coordinator's own subagent.
    HandedOver,
    /// No sign of life for half the idle limit.
    WentQuiet {
        /// Seconds of silence so far.
        seconds: u64,
    },
    /// Signs of life again.
    BecameActive,
    /// Somebody asked for its end.
    StopRequested {
        /// Who or what.
        reason: StopReason,
    },
    /// The end was asked for again, without grace.
    StopEscalated,
    /// The dispatcher is gone. Its facts, where it left any, are settled next.
    ProcessExited {
        /// Whether it wrote its facts before it ended.
        settled_itself: bool,
    },
    /// Another attempt will follow.
    RetryScheduled {
        /// What was seen of this attempt.
        facts: Option<Box<AttemptFacts>>,
        /// The verdict on this attempt.
        outcome: Outcome,
        /// When the next attempt may begin.
        at: Timestamp,
        /// Why, in a sentence.
        why: String,
        /// What it is paid with.
        #[serde(default)]
        spends: Spends,
        /// Where it begins, and what its worker is told.
        #[serde(default)]
        begins: NextAttempt,
        /// It never goes back to this attempt's executor.
        #[serde(default)]
        bars: bool,
    },
    /// The unit is settled.
    UnitSettled {
        /// What was seen; `None` where nothing was ever started.
        facts: Option<Box<AttemptFacts>>,
        /// The verdict.
        outcome: Outcome,
        /// Why, in a sentence.
        why: String,
    },
    /// A new supervisor does not know yet what became of it.
    UnitLost,
    /// Its dispatcher lives and is watched again.
    UnitAdopted,
    /// It waits for another attempt.
    UnitRequeued {
        /// Who or what asked for it.
        by: RequeuedBy,
        /// Whether to go on in the old workspace.
        how: RetryHow,
        /// What to tell the worker, where something is to be said.
        message: Option<String>,
    },
    /// It takes part in landing although it did not succeed, or although it is a read unit.
    Accepted {
        /// Why, in the user's words.
        why: String,
        /// Also a result that was only salvaged.
        salvaged: bool,
    },
    /// It takes no part in landing.
    Excluded {
        /// Why, in the user's words.
        why: String,
        /// The member of its panel that was taken instead; `None`: it was excluded by its own name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        instead: Option<UnitId>,
    },
    /// The decision is taken back.
    Unreviewed,
    /// Its changes are in the user's working tree.
    Applied {
        /// The tree that was landed.
        tree: String,
    },
    /// Its workspace was harvested again after a person's edit.
    Reharvested {
        /// The facts with the new changes.
        facts: Box<AttemptFacts>,
    },
}

/// A process, told apart from a later one with the same number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ProcessIdentity {
    /// The boot it belongs to.
    pub boot_id: String,
    /// Its number.
    pub pid: u32,
    /// Its start, in clock ticks since boot (field 22 of `/proc/PID/stat`).
    pub start_ticks: u64,
}

/// Who put a unit back into the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RequeuedBy {
    /// `prun retry`.
    User,
    /// A new supervisor, after the fence of the lost attempt.
    Recovery,
}

/// How a retry begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RetryHow {
    /// In a fresh workspace at the base; the old attempt is kept.
    Fresh,
    /// In the workspace and session of the attempt before.
    Continue,
}

/// What happens to the run as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "event")]
pub enum RunEvent {
    /// The plan passed the gate; these are its units, in order.
    PlanAccepted(Box<RunSetup>),
    /// A supervisor took over.
    SupervisorStarted {
        /// Who.
        process: ProcessIdentity,
        /// Version of prun.
        version: String,
    },
    /// No unit starts on this executor for now.
    ExecutorHeld {
        /// Which.
        executor: ExecutorName,
        /// The class of error that caused it.
        cause: Cause,
        /// Until when; `None` until somebody releases it.
        until: Option<Timestamp>,
        /// Why, in a sentence.
        why: String,
    },
    /// Units may start on it again.
    ExecutorReleased {
        /// Which.
        executor: ExecutorName,
    },
    /// The machine is too busy for one more unit.
    StartsPaused {
        /// What it is short of, in a sentence.
        why: String,
    },
    /// Units start again.
    StartsResumed,
    /// 80 % of a budget are spent.
    BudgetWarned {
        /// What is counted, used and allowed, in a sentence.
        why: String,
        /// Whose budget; `None`: the run's.
        #[serde(default)]
        unit: Option<UnitId>,
    },
    /// A budget is spent.
    BudgetSpent {
        /// What is counted, used and allowed, in a sentence.
        why: String,
        /// Whose budget; `None`: the run's.
        #[serde(default)]
        unit: Option<UnitId>,
    },
    /// The run may spend so much from now on, in all.
    BudgetSet {
        /// How much.
        budget: Budget,
    },
    /// The user's repository was changed by a worker.
    RepositoryTouched {
        /// What changed, one line each.
        what: Vec<String>,
    },
    /// The user's repository was changed, by the user as far as can be told.
    RepositoryMoved {
        /// What changed, in a sentence.
        what: String,
    },
    /// Somebody asked for the end of the run.
    RunStopRequested {
        /// Again, and without grace.
        now: bool,
    },
    /// Every unit is settled and the supervisor leaves.
    RunEnded {
        /// It was stopped rather than finished.
        cancelled: bool,
    },
    /// The run's check ended: once on the base, then on each combination.
    VerifyFinished {
        /// The tree that was checked.
        tree: String,
        /// Whether it is the base's tree.
        on_base: bool,
        /// How it ended.
        check: CheckFacts,
    },
    /// The combination is in the user's working tree, uncommitted.
    Landed {
        /// What was landed.
        tree: String,
        /// Number of the landing in this run, from 1.
        landing: u32,
        /// The paths that were written or removed.
        paths: Vec<String>,
        /// The check was skipped on request.
        verify_skipped: bool,
    },
    /// A landing was taken back.
    Undone {
        /// Which.
        landing: u32,
    },
}

/// What a run was started with: the resolved plan in the form that the state machine needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunSetup {
    /// The plan's title.
    pub title: String,
    /// SHA-256 over the plan and the prompt files it names, in hex: the same plan again?
    pub plan_digest: String,
    /// The repository's top level, where there is one.
    pub repo: Option<String>,
    /// The directory inside the repository, relative to its top level, in which workers start.
    pub subdir: String,
    /// The base, a commit id.
    pub base: Option<String>,
    /// The tree id of the base.
    pub base_tree: Option<String>,
    /// Paths of uncommitted work that the base carries (`dirty = "include"`).
    pub carried: u32,
    /// Paths of uncommitted work that workers cannot see (`dirty = "ignore"`).
    pub unseen: u32,
    /// What keeps workers from writing to the repository.
    #[serde(default)]
    pub guard: Option<Guard>,
    /// How many units may run at once.
    pub jobs: u32,
    /// The user said how many. Else it is the sum of the executors' slots, and each keeps to its own.
    #[serde(default)]
    pub jobs_are_chosen: bool,
    /// Whether the plan has a check for the base and the combination.
    pub verifies: bool,
    /// What the run may spend.
    #[serde(default)]
    pub budget: Budget,
    /// The units, in the plan's order.
    pub units: Vec<UnitSetup>,
}

/// A unit as the state machine needs it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitSetup {
    /// Its id.
    pub id: UnitId,
    /// Read or write.
    pub mode: Mode,
    /// Executors that may take it, in order.
    pub executors: Vec<ExecutorName>,
    /// Attempts after the first.
    pub retries: u32,
    /// What it may change, gitignore-style; empty: anything.
    pub owns: Vec<String>,
    /// The panel that it is a member of: at most one of its members lands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub panel: Option<UnitId>,
    /// The higher starts first.
    #[serde(default)]
    pub priority: i32,
    /// What it may spend, all attempts together.
    #[serde(default)]
    pub budget: Budget,
}

/// What keeps workers from writing to the user's repository by its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Guard {
    /// They run in a mount namespace in which it is read-only.
    Mount,
}

/// What a unit does to the repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// It changes code, in a clone of its own.
    Write,
    /// It reads; edits are kept and shown, and landed only if accepted by name.
    Read,
}

impl EventKind {
    /// A unit's event.
    #[must_use]
    pub fn unit(unit: &UnitId, attempt: Attempt, event: UnitEvent) -> Self {
        Self::Unit { unit: unit.clone(), attempt, event: Box::new(event) }
    }

    /// A run's event.
    #[must_use]
    pub fn run(event: RunEvent) -> Self {
        Self::Run(Box::new(event))
    }

    /// The stored text: a JSON object whose `event` member names the kind. `Unknown` gives its text back.
    ///
    /// # Panics
    /// Never: every payload is a plain structure with string keys.
    #[must_use]
    pub fn to_json(&self) -> String {
        match self {
            Self::Unit { event, .. } => serde_json::to_string(event),
            Self::Run(event) => serde_json::to_string(event),
            Self::Unknown { data, .. } => Ok(data.clone()),
        }
        .expect("events are plain structures with string keys")
    }

    /// The event that was stored as `data`, of `unit` at `attempt` where both are given.
    #[must_use]
    pub fn from_json(unit: Option<UnitId>, attempt: Option<Attempt>, data: &str) -> Self {
        let parsed = match unit.zip(attempt) {
            Some((unit, attempt)) => {
                serde_json::from_str(data).map(|event| Self::Unit { unit, attempt, event: Box::new(event) })
            }
            None => serde_json::from_str(data).map(|event| Self::Run(Box::new(event))),
        };
        parsed.unwrap_or_else(|_| Self::Unknown { name: stored_name(data), data: data.to_owned() })
    }

    /// The kind's stable name, such as `attempt-began`.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Unknown { name, .. } => name.clone(),
            _ => stored_name(&self.to_json()),
        }
    }
}

fn stored_name(data: &str) -> String {
    serde_json::from_str::<serde_json::Value>(data)
        .ok()
        .and_then(|value| value.get("event")?.as_str().map(str::to_owned))
        .unwrap_or_else(|| "unreadable".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_kind_is_kept_to_the_letter() {
        let data = r#"{"event":"from-the-future","x":1}"#;
        let kind = EventKind::from_json(None, None, data);
        assert_eq!(kind.name(), "from-the-future");
        assert_eq!(kind.to_json(), data);
    }

    #[test]
    fn stored_names_are_kebab_case() {
        let kind = EventKind::unit(&"a".parse().unwrap(), Attempt(1), UnitEvent::HandedOver);
        assert_eq!(kind.to_json(), r#"{"event":"handed-over"}"#);
        assert_eq!(EventKind::from_json(Some("a".parse().unwrap()), Some(Attempt(1)), &kind.to_json()), kind);
    }
}
