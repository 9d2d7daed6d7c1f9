//! What goes into a supervisor and what comes out: plain values.

use serde::{Deserialize, Serialize};

use crate::budget::Budget;
use crate::event::{Event, ProcessIdentity, RetryHow};
use crate::ids::{Attempt, ExecutorName, Seq, UnitId};
use crate::outcome::{AttemptFacts, CheckFacts, Usage};
use crate::schedule::Pressure;
use crate::unit::NextAttempt;

/// What can happen to a supervisor.
#[derive(Clone, Debug)]
pub enum Input {
    /// It has just come up, on a new run or on one that another supervisor left.
    Started {
        /// Who it is.
        process: ProcessIdentity,
        /// Version of prun.
        version: String,
        /// Units that an earlier stop of the run ended are to go on.
        resume: bool,
    },
    /// Time has passed.
    Tick,
    /// A workspace is ready, or could not be made.
    Prepared {
        /// The unit.
        unit: UnitId,
        /// The attempt.
        attempt: Attempt,
        /// Milliseconds it took, or what failed.
        result: Result<u64, String>,
    },
    /// A dispatcher runs, or could not be started.
    Spawned {
        /// The unit.
        unit: UnitId,
        /// The attempt.
        attempt: Attempt,
        /// The dispatcher, or what failed.
        result: Result<ProcessIdentity, String>,
    },
    /// A dispatcher is gone.
    DispatcherExited {
        /// The unit.
        unit: UnitId,
        /// The attempt.
        attempt: Attempt,
        /// What it wrote last; `None`: it died before.
        facts: Option<Box<AttemptFacts>>,
    },
    /// What a dead dispatcher left was fenced, ended and saved.
    Cleaned {
        /// The unit.
        unit: UnitId,
        /// The attempt.
        attempt: Attempt,
        /// What could still be seen.
        facts: Option<Box<AttemptFacts>>,
    },
    /// What became of an attempt of the supervisor before.
    Observed {
        /// The unit.
        unit: UnitId,
        /// The attempt.
        attempt: Attempt,
        /// What was found.
        found: Observation,
    },
    /// A dispatcher says something about its worker.
    Noted {
        /// The unit.
        unit: UnitId,
        /// The attempt.
        attempt: Attempt,
        /// What.
        note: Note,
    },
    /// Slots of an account were asked for.
    SlotsTaken {
        /// The executor.
        executor: ExecutorName,
        /// How many were wanted.
        wanted: u32,
        /// How many were free.
        taken: u32,
    },
    /// The machine became too busy for one more unit; `None`: it is not any more.
    Pressed(Option<Pressed>),
    /// The user's repository was compared with what it was at the start.
    RepositoryChecked {
        /// Changes that a worker made.
        touched: Vec<String>,
        /// The user's own, in a sentence.
        moved: Option<String>,
    },
    /// The run's check of the base ended.
    BaseVerified {
        /// The base's tree.
        tree: String,
        /// How it ended.
        check: CheckFacts,
    },
    /// Somebody wants something.
    Asked {
        /// To answer by.
        token: u64,
        /// What.
        command: Command,
    },
}

/// What a machine is short of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pressed {
    /// What.
    pub what: Pressure,
    /// As a sentence, with the figures.
    pub why: String,
}

/// What a new supervisor finds of an attempt.
#[derive(Clone, Debug)]
pub enum Observation {
    /// Its dispatcher wrote its facts.
    Settled(Box<AttemptFacts>),
    /// Its dispatcher lives.
    Alive(ProcessIdentity),
    /// No dispatcher was ever started; the attempt is fenced.
    NeverStarted,
    /// Its dispatcher died; the attempt is fenced, its tree ended, the rest saved.
    Dead(Option<Box<AttemptFacts>>),
}

/// What a dispatcher says while its worker runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// No sign of life for so many seconds.
    Quiet(u64),
    /// Signs of life again.
    Active,
    /// A session unit waits for the coordinator.
    HandedOver,
    /// The attempt has used so much so far.
    Used(Usage),
}

/// What somebody can ask for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "command")]
pub enum Command {
    /// End a unit, or the whole run.
    Stop {
        /// The unit; `None`: the run.
        unit: Option<UnitId>,
        /// Without grace.
        now: bool,
    },
    /// Try a settled unit again.
    Retry {
        /// The unit.
        unit: UnitId,
        /// Where.
        how: RetryHow,
        /// What to tell the worker.
        message: Option<String>,
    },
    /// A session unit is finished.
    Submit {
        /// The unit.
        unit: UnitId,
    },
    /// Let a unit take part in landing.
    Accept {
        /// The unit.
        unit: UnitId,
        /// Why.
        why: String,
        /// Also a result that was only salvaged.
        salvaged: bool,
    },
    /// Keep a unit out of landing.
    Exclude {
        /// The unit.
        unit: UnitId,
        /// Why.
        why: String,
    },
    /// Take either back.
    Unreview {
        /// The unit.
        unit: UnitId,
    },
    /// Let units start again on an executor that is held.
    Release {
        /// The executor.
        executor: ExecutorName,
    },
    /// Let the run spend so much, in all.
    SetBudget {
        /// How much.
        budget: Budget,
    },
    /// Answer, and nothing else.
    Ping,
}

/// What a supervisor wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Write this into the ledger, before anything else of this turn.
    Record(Event),
    /// Take slots of the executor's account, as many as are free; then [`Input::SlotsTaken`].
    TakeSlots {
        /// The executor.
        executor: ExecutorName,
        /// How many are wanted.
        count: u32,
    },
    /// Give back slots that were taken and are not needed.
    GiveSlotsBack {
        /// The executor.
        executor: ExecutorName,
        /// How many.
        count: u32,
    },
    /// Make the workspace, write the spec; then [`Input::Prepared`].
    Prepare {
        /// The unit.
        unit: UnitId,
        /// The attempt.
        attempt: Attempt,
        /// Who will do it.
        executor: ExecutorName,
        /// How it begins.
        next: NextAttempt,
    },
    /// Start the dispatcher; then [`Input::Spawned`].
    Spawn {
        /// The unit.
        unit: UnitId,
        /// The attempt.
        attempt: Attempt,
    },
    /// Watch a dispatcher that a supervisor before started; then [`Input::DispatcherExited`].
    Watch {
        /// The unit.
        unit: UnitId,
        /// The attempt.
        attempt: Attempt,
        /// The dispatcher.
        process: ProcessIdentity,
    },
    /// Ask a dispatcher to end its worker, or kill it.
    Terminate {
        /// The dispatcher.
        process: ProcessIdentity,
        /// With SIGKILL; what it leaves is cleaned up after its exit.
        kill: bool,
    },
    /// Fence, end and save what a dead dispatcher left; then [`Input::Cleaned`].
    Clean {
        /// The unit.
        unit: UnitId,
        /// The attempt.
        attempt: Attempt,
    },
    /// See what became of an attempt of the supervisor before; then [`Input::Observed`].
    Observe {
        /// The unit.
        unit: UnitId,
        /// The attempt.
        attempt: Attempt,
    },
    /// Tell a session unit's dispatcher that the work is done.
    Submit {
        /// The unit.
        unit: UnitId,
        /// The attempt.
        attempt: Attempt,
        /// The dispatcher.
        process: ProcessIdentity,
    },
    /// Run the run's check on the base; then [`Input::BaseVerified`].
    VerifyBase,
    /// Compare the user's repository with what it was; then [`Input::RepositoryChecked`].
    CheckRepository,
    /// Answer a command; after everything else of this turn.
    Answer {
        /// Whom.
        token: u64,
        /// What.
        reply: Reply,
    },
    /// The run is over.
    Leave,
}

/// The answer to a command, given after it took effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "reply")]
pub enum Reply {
    /// It took effect.
    Done {
        /// The last event that made it true.
        seq: Seq,
        /// What happened, in a sentence.
        message: String,
    },
    /// It cannot be done.
    Refused {
        /// Why.
        message: String,
        /// What to do instead.
        hint: Option<String>,
    },
}
