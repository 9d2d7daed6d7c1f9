//! Every decision of a live run: an input and the time go in, effects come out.
//!
//! [`Supervisor::handle`] is pure and synchronous. It applies each event that it decides to its own
//! [`RunState`] and returns it as [`Effect::Record`]; the driver records those first, carries out the
//! rest, and answers commands last.

use std::collections::BTreeMap;

use crate::event::{Event, EventKind, ProcessIdentity, RequeuedBy, RetryHow, RunEvent, UnitEvent};
use crate::ids::{Attempt, ExecutorName, Seq, UnitId};
use crate::outcome::{AttemptFacts, Cause, Channel, Outcome, StopReason, is_worth_a_retry, judge};
use crate::run::RunState;
use crate::schedule::{Resources, Start, schedule};
use crate::time::Now;
use crate::unit::{Disposition, Unit, UnitState};

/// Milliseconds that a dispatcher gets from the request to stop until it is told again, and again until
/// it is killed. It needs the worker's grace (2 s), the sweep's bound (10 s) and the time of a harvest.
pub const STOP_PATIENCE_MILLIS: u64 = 60_000;

/// The pause before a second attempt, in milliseconds; it doubles with each further one.
pub const RETRY_PAUSE_MILLIS: i64 = 1_000;

/// The same after a rate limit or a network fault.
pub const BACKOFF_PAUSE_MILLIS: i64 = 15_000;

/// What can happen to a supervisor.
#[derive(Clone, Debug)]
pub enum Input {
    /// It has just come up, on a new run or on one that another supervisor left.
    Started {
        /// Who it is.
        process: ProcessIdentity,
        /// Version of prun.
        version: String,
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
        check: crate::outcome::CheckFacts,
    },
    /// Somebody wants something.
    Asked {
        /// To answer by.
        token: u64,
        /// What.
        command: Command,
    },
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
}

/// What somebody can ask for.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
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
    /// Answer, and nothing else.
    Ping,
}

/// What a supervisor wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Write this into the ledger, before anything else of this turn.
    Record(Event),
    /// Make the workspace, write the spec; then [`Input::Prepared`].
    Prepare {
        /// The unit.
        unit: UnitId,
        /// The attempt.
        attempt: Attempt,
        /// Who will do it.
        executor: ExecutorName,
        /// How it begins.
        next: crate::unit::NextAttempt,
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
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
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

/// The supervisor's mind.
#[derive(Clone, Debug)]
pub struct Supervisor {
    run: RunState,
    resources: Resources,
    /// When the patience with a stopping unit ends, on the monotonic clock, by unit.
    patience: BTreeMap<UnitId, u64>,
    /// Attempts whose remains are being cleaned.
    cleaning: BTreeMap<UnitId, Attempt>,
    repository: RepositoryCheck,
    look_again: Option<u64>,
    effects: Vec<Effect>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RepositoryCheck {
    Due,
    UnderWay,
    Done,
}

impl Supervisor {
    /// A supervisor of a run whose ledger says `run`.
    #[must_use]
    pub fn new(run: RunState, resources: Resources) -> Self {
        Self {
            run,
            resources,
            patience: BTreeMap::new(),
            cleaning: BTreeMap::new(),
            repository: RepositoryCheck::Due,
            look_again: None,
            effects: Vec::new(),
        }
    }

    /// What the ledger says, the events of the last turn included.
    #[must_use]
    pub fn run(&self) -> &RunState {
        &self.run
    }

    /// The monotonic time at which [`Input::Tick`] is due.
    #[must_use]
    pub fn next_wake(&self) -> Option<u64> {
        self.patience.values().copied().chain(self.look_again).min()
    }

    /// Decides what follows from `input`. Inputs of an attempt that is not the current one are late and
    /// change nothing.
    pub fn handle(&mut self, input: Input, now: Now) -> Vec<Effect> {
        match input {
            Input::Started { process, version } => self.start(process, version, now),
            Input::Tick => self.lose_patience(now),
            Input::Asked { token, command } => self.obey(token, command, now),
            Input::RepositoryChecked { touched, moved } => self.note_repository(touched, moved, now),
            Input::BaseVerified { tree, check } => {
                self.record(RunEvent::VerifyFinished { tree, on_base: true, check }, now);
            }
            Input::Prepared { unit, attempt, result } if self.is_current(&unit, attempt) => {
                self.prepared(&unit, attempt, result, now);
            }
            Input::Spawned { unit, attempt, result } if self.is_current(&unit, attempt) => {
                self.spawned(&unit, attempt, result, now);
            }
            Input::DispatcherExited { unit, attempt, facts } if self.is_current(&unit, attempt) => {
                self.exited(&unit, attempt, facts, now);
            }
            Input::Cleaned { unit, attempt, facts } if self.is_current(&unit, attempt) => {
                self.cleaning.remove(&unit);
                self.settle(&unit, facts, Some(Outcome::Failed(Cause::DispatchDead)), now);
            }
            Input::Observed { unit, attempt, found } if self.is_current(&unit, attempt) => {
                self.observed(&unit, attempt, found, now);
            }
            Input::Noted { unit, attempt, note } if self.is_current(&unit, attempt) => self.noted(&unit, note, now),
            Input::Prepared { .. }
            | Input::Spawned { .. }
            | Input::DispatcherExited { .. }
            | Input::Cleaned { .. }
            | Input::Observed { .. }
            | Input::Noted { .. } => {}
        }
        self.start_units(now);
        self.end_if_over(now);
        std::mem::take(&mut self.effects)
    }

    fn is_current(&self, unit: &UnitId, attempt: Attempt) -> bool {
        self.run.unit(unit).is_some_and(|found| found.attempt() == attempt)
    }

    fn start(&mut self, process: ProcessIdentity, version: String, now: Now) {
        let was_stopped = self.run.stop.is_some();
        self.record(RunEvent::SupervisorStarted { process, version }, now);
        if was_stopped {
            self.requeue_stopped(now);
        }
        let active: Vec<(UnitId, Attempt)> =
            self.run.active().map(|unit| (unit.setup.id.clone(), unit.attempt())).collect();
        for (unit, attempt) in active {
            if !matches!(self.state(&unit), Some(UnitState::Lost { .. })) {
                self.record_unit(&unit, UnitEvent::UnitLost, now);
            }
            self.effects.push(Effect::Observe { unit, attempt });
        }
    }

    /// Units that the stop of the run ended go on where they were: their workspaces are kept.
    fn requeue_stopped(&mut self, now: Now) {
        let stopped = Outcome::Stopped(StopReason::RunStopped);
        let units: Vec<(UnitId, bool)> = self
            .run
            .units
            .iter()
            .filter(|unit| unit.outcome() == Some(&stopped) && unit.disposition == Disposition::Unreviewed)
            .map(|unit| (unit.setup.id.clone(), unit.attempts.last().is_some_and(|last| last.started.is_some())))
            .collect();
        for (unit, was_started) in units {
            let how = if was_started { RetryHow::Continue } else { RetryHow::Fresh };
            let message = was_started.then(|| "You were interrupted; go on where you stopped.".to_owned());
            self.record_unit(&unit, UnitEvent::UnitRequeued { by: RequeuedBy::Recovery, how, message }, now);
        }
    }

    fn start_units(&mut self, now: Now) {
        let plan = schedule(&self.run, &self.resources, now);
        self.look_again = plan.look_again;
        for Start { unit, executor, why } in plan.starts {
            let Some(found) = self.run.unit(&unit) else { continue };
            let (attempt, next) = (found.attempt().next(), found.next.clone());
            let dir = attempt_dir(&unit, attempt);
            self.resources.last_start.insert(executor.clone(), now.mono);
            let began = UnitEvent::AttemptBegan { executor: executor.clone(), dir, why };
            self.push_event(EventKind::unit(&unit, attempt, began), now);
            self.effects.push(Effect::Prepare { unit, attempt, executor, next });
        }
    }

    fn prepared(&mut self, unit: &UnitId, attempt: Attempt, result: Result<u64, String>, now: Now) {
        match (result, self.state(unit)) {
            (Ok(millis), Some(UnitState::Preparing)) => {
                self.record_unit(unit, UnitEvent::WorkspaceReady { millis }, now);
                self.effects.push(Effect::Spawn { unit: unit.clone(), attempt });
            }
            (Ok(_), Some(UnitState::Stopping { process: None, .. })) => {
                let message = "stopped before its worker was started".to_owned();
                self.fail_start(unit, Cause::Setup, message, now);
            }
            (Err(message), Some(UnitState::Preparing | UnitState::Stopping { process: None, .. })) => {
                self.fail_start(unit, Cause::Setup, message, now);
            }
            _ => {}
        }
    }

    fn fail_start(&mut self, unit: &UnitId, cause: Cause, message: String, now: Now) {
        self.record_unit(unit, UnitEvent::StartFailed { cause, message }, now);
        self.settle(unit, None, Some(Outcome::Failed(cause)), now);
    }

    fn spawned(&mut self, unit: &UnitId, attempt: Attempt, result: Result<ProcessIdentity, String>, now: Now) {
        match result {
            Err(message) => self.fail_start(unit, Cause::SpawnError, message, now),
            Ok(process) => {
                self.record_unit(unit, UnitEvent::ProcessStarted { process: process.clone() }, now);
                if matches!(self.state(unit), Some(UnitState::Stopping { .. })) {
                    self.terminate(unit, process.clone(), now);
                }
                self.effects.push(Effect::Watch { unit: unit.clone(), attempt, process });
            }
        }
    }

    fn exited(&mut self, unit: &UnitId, attempt: Attempt, facts: Option<Box<AttemptFacts>>, now: Now) {
        if !matches!(self.state(unit), Some(UnitState::Running(_) | UnitState::Stopping { .. })) {
            return;
        }
        self.record_unit(unit, UnitEvent::ProcessExited { settled_itself: facts.is_some() }, now);
        if facts.is_some() {
            self.settle(unit, facts, None, now);
        } else {
            self.cleaning.insert(unit.clone(), attempt);
            self.effects.push(Effect::Clean { unit: unit.clone(), attempt });
        }
    }

    fn observed(&mut self, unit: &UnitId, attempt: Attempt, found: Observation, now: Now) {
        let Some(UnitState::Lost { from }) = self.state(unit).cloned() else { return };
        match found {
            Observation::Settled(facts) => {
                self.record_unit(unit, UnitEvent::ProcessExited { settled_itself: true }, now);
                self.settle(unit, Some(facts), None, now);
            }
            Observation::Dead(facts) => {
                self.record_unit(unit, UnitEvent::ProcessExited { settled_itself: false }, now);
                self.settle(unit, facts, Some(Outcome::Failed(Cause::DispatchDead)), now);
            }
            Observation::Alive(process) => {
                self.record_unit(unit, UnitEvent::UnitAdopted, now);
                if matches!(*from, UnitState::Preparing | UnitState::Stopping { process: None, .. }) {
                    self.record_unit(unit, UnitEvent::ProcessStarted { process: process.clone() }, now);
                }
                if matches!(self.state(unit), Some(UnitState::Stopping { .. })) {
                    self.terminate(unit, process.clone(), now);
                }
                self.effects.push(Effect::Watch { unit: unit.clone(), attempt, process });
            }
            Observation::NeverStarted if self.run.unit(unit).and_then(Unit::stop).is_some() => {
                self.fail_start(unit, Cause::Setup, "stopped before its worker was started".to_owned(), now);
            }
            Observation::NeverStarted => {
                let by = RequeuedBy::Recovery;
                let next = self.run.unit(unit).map(|unit| unit.next.clone()).unwrap_or_default();
                self.record_unit(unit, UnitEvent::UnitRequeued { by, how: next.how, message: next.message }, now);
            }
        }
    }

    fn noted(&mut self, unit: &UnitId, note: Note, now: Now) {
        let Some(UnitState::Running(running)) = self.state(unit) else { return };
        let event = match note {
            Note::Quiet(seconds) if !running.quiet => UnitEvent::WentQuiet { seconds },
            Note::Active if running.quiet => UnitEvent::BecameActive,
            Note::HandedOver if !running.handed_over => UnitEvent::HandedOver,
            _ => return,
        };
        self.record_unit(unit, event, now);
    }

    /// Gives the verdict on an attempt whose dispatcher is gone; `overrule` where nobody saw its end.
    fn settle(&mut self, id: &UnitId, facts: Option<Box<AttemptFacts>>, overrule: Option<Outcome>, now: Now) {
        self.patience.remove(id);
        let Some(unit) = self.run.unit(id) else { return };
        let stop = unit.stop();
        let judged = overrule.or_else(|| facts.as_deref().map(judge)).unwrap_or(Outcome::Failed(Cause::DispatchDead));
        let outcome = match stop {
            // What was complete before the stop reached it stays complete.
            Some(_) if judged == Outcome::Succeeded => judged,
            Some(reason) => Outcome::Stopped(reason),
            None => judged,
        };
        let why = explain_outcome(&outcome, facts.as_deref(), unit);
        let retries_left = unit.setup.retries.saturating_sub(unit.retries_spent);
        let event = if stop.is_none() && self.run.stop.is_none() && retries_left > 0 && is_worth_a_retry(&outcome) {
            let at = now.wall.plus(retry_pause(unit, &outcome));
            let why = format!("{why}; attempt {} follows", unit.attempt().next());
            UnitEvent::RetryScheduled { facts, outcome, at, why }
        } else {
            UnitEvent::UnitSettled { facts, outcome, why }
        };
        self.record_unit(id, event, now);
    }

    fn obey(&mut self, token: u64, command: Command, now: Now) {
        let done = match command {
            Command::Ping => Ok("alive".to_owned()),
            Command::Stop { unit: Some(unit), now: at_once } => self.stop_unit(&unit, StopReason::User, at_once, now),
            Command::Stop { unit: None, now: at_once } => Ok(self.stop_run(at_once, now)),
            Command::Submit { unit } => self.submit(&unit),
            Command::Retry { unit, how, message } => self.retry(&unit, how, message, now),
            Command::Accept { unit, why, salvaged } => self.accept(&unit, why, salvaged, now),
            Command::Exclude { unit, why } => self.exclude(&unit, why, now),
            Command::Unreview { unit } => self.unreview(&unit, now),
        };
        let reply = match done {
            Ok(message) => Reply::Done { seq: self.run.seq, message },
            Err((message, hint)) => Reply::Refused { message, hint },
        };
        self.effects.push(Effect::Answer { token, reply });
    }

    fn stop_run(&mut self, at_once: bool, now: Now) -> String {
        self.record(RunEvent::RunStopRequested { now: at_once }, now);
        let units: Vec<UnitId> = self.run.units.iter().map(|unit| unit.setup.id.clone()).collect();
        let mut stopped = 0;
        for unit in units {
            // Settled units refuse, and have nothing to stop.
            stopped += u32::from(self.stop_unit(&unit, StopReason::RunStopped, at_once, now).is_ok());
        }
        format!("stopping {stopped} units")
    }

    fn stop_unit(&mut self, id: &UnitId, reason: StopReason, at_once: bool, now: Now) -> Obeyed {
        match self.known(id)?.state.clone() {
            UnitState::Queued | UnitState::Backoff { .. } => {
                let outcome = Outcome::Stopped(reason);
                let why = "stopped while it waited".to_owned();
                self.record_unit(id, UnitEvent::UnitSettled { facts: None, outcome, why }, now);
                Ok(format!("{id} stopped; it had not started"))
            }
            UnitState::Preparing | UnitState::Running(_) | UnitState::Lost { .. } => {
                self.record_unit(id, UnitEvent::StopRequested { reason }, now);
                self.terminate_known(id, now);
                if at_once {
                    self.escalate(id, now);
                }
                Ok(format!("{id} is being stopped"))
            }
            UnitState::Stopping { escalated, .. } => {
                if at_once && !escalated {
                    self.escalate(id, now);
                }
                Ok(format!("{id} is being stopped"))
            }
            UnitState::Settling { .. } => {
                self.record_unit(id, UnitEvent::StopRequested { reason }, now);
                Ok(format!("{id} is being settled; no retry follows"))
            }
            UnitState::Settled { outcome, .. } => Err((format!("{id} is settled already: {outcome}"), None)),
        }
    }

    fn terminate_known(&mut self, id: &UnitId, now: Now) {
        if let Some(process) = self.run.unit(id).and_then(Unit::process).cloned() {
            self.terminate(id, process, now);
        }
    }

    fn terminate(&mut self, id: &UnitId, process: ProcessIdentity, now: Now) {
        self.patience.insert(id.clone(), now.mono.saturating_add(STOP_PATIENCE_MILLIS));
        self.effects.push(Effect::Terminate { process, kill: false });
    }

    fn escalate(&mut self, id: &UnitId, now: Now) {
        self.record_unit(id, UnitEvent::StopEscalated, now);
        // A second request makes the dispatcher skip its worker's grace.
        self.terminate_known(id, now);
    }

    fn lose_patience(&mut self, now: Now) {
        let due: Vec<UnitId> =
            self.patience.iter().filter(|(_, at)| **at <= now.mono).map(|(unit, _)| unit.clone()).collect();
        for unit in due {
            self.patience.remove(&unit);
            match self.state(&unit).cloned() {
                Some(UnitState::Stopping { escalated: false, .. }) => self.escalate(&unit, now),
                Some(UnitState::Stopping { process: Some(process), .. }) => {
                    self.effects.push(Effect::Terminate { process, kill: true });
                }
                _ => {}
            }
        }
    }

    fn submit(&mut self, id: &UnitId) -> Obeyed {
        let unit = self.known(id)?;
        let attempt = unit.attempt();
        match &unit.state {
            UnitState::Running(running) if running.handed_over => {
                let process = running.process.clone();
                self.effects.push(Effect::Submit { unit: id.clone(), attempt, process });
                Ok(format!("{id} is being settled"))
            }
            state => {
                let message = format!("{id} was not handed over; it is {}", state.name());
                Err((message, Some("only a running unit of the executor `session` is submitted".to_owned())))
            }
        }
    }

    fn retry(&mut self, id: &UnitId, how: RetryHow, message: Option<String>, now: Now) -> Obeyed {
        let unit = self.known(id)?;
        if !unit.is_settled() {
            let hint = format!("`prun stop {id}` ends it first");
            return Err((format!("{id} is {}: already under way", unit.state.name()), Some(hint)));
        }
        if matches!(unit.disposition, Disposition::Applied { .. }) {
            return Err((format!("{id} has landed already"), Some("`prun undo` takes the landing back".to_owned())));
        }
        if how == RetryHow::Continue && unit.attempts.is_empty() {
            return Err((format!("{id} has no attempt to continue"), Some("retry it without --continue".to_owned())));
        }
        self.record_unit(id, UnitEvent::UnitRequeued { by: RequeuedBy::User, how, message }, now);
        self.repository = RepositoryCheck::Due;
        Ok(format!("{id} is queued again"))
    }

    fn accept(&mut self, id: &UnitId, why: String, salvaged: bool, now: Now) -> Obeyed {
        let unit = self.reviewable(id)?;
        let facts = unit.facts();
        let is_salvage = facts
            .and_then(|facts| facts.result.as_ref())
            .is_some_and(|result| result.channel == Channel::Salvage);
        if is_salvage && !salvaged {
            let hint = format!("read it with `prun result {id}`, then `prun accept {id} --salvaged -m WHY`");
            return Err((format!("the result of {id} was only salvaged from its output"), Some(hint)));
        }
        self.record_unit(id, UnitEvent::Accepted { why, salvaged }, now);
        Ok(format!("{id} is accepted"))
    }

    fn exclude(&mut self, id: &UnitId, why: String, now: Now) -> Obeyed {
        self.reviewable(id)?;
        self.record_unit(id, UnitEvent::Excluded { why }, now);
        Ok(format!("{id} is excluded"))
    }

    fn unreview(&mut self, id: &UnitId, now: Now) -> Obeyed {
        self.reviewable(id)?;
        self.record_unit(id, UnitEvent::Unreviewed, now);
        Ok(format!("{id} is undecided again"))
    }

    fn reviewable(&self, id: &UnitId) -> Result<&Unit, Refusal> {
        let unit = self.known(id)?;
        if !unit.is_settled() {
            return Err((format!("{id} is {}, not settled", unit.state.name()), Some("wait for it, or stop it".into())));
        }
        if matches!(unit.disposition, Disposition::Applied { .. }) {
            return Err((format!("{id} has landed already"), Some("`prun undo` takes the landing back".to_owned())));
        }
        Ok(unit)
    }

    fn known(&self, id: &UnitId) -> Result<&Unit, Refusal> {
        self.run.unit(id).ok_or_else(|| (format!("this run has no unit {id}"), None))
    }

    fn note_repository(&mut self, touched: Vec<String>, moved: Option<String>, now: Now) {
        self.repository = RepositoryCheck::Done;
        if !touched.is_empty() {
            self.record(RunEvent::RepositoryTouched { what: touched }, now);
        }
        if let Some(what) = moved {
            self.record(RunEvent::RepositoryMoved { what }, now);
        }
    }

    fn end_if_over(&mut self, now: Now) {
        if self.run.ended.is_some() || self.run.supervisor.is_none() || !self.run.is_settled() {
            return;
        }
        match self.repository {
            RepositoryCheck::Due => {
                self.repository = RepositoryCheck::UnderWay;
                self.effects.push(Effect::CheckRepository);
            }
            RepositoryCheck::UnderWay => {}
            RepositoryCheck::Done => {
                self.record(RunEvent::RunEnded { cancelled: self.run.stop.is_some() }, now);
                self.effects.push(Effect::Leave);
            }
        }
    }

    fn state(&self, unit: &UnitId) -> Option<&UnitState> {
        self.run.unit(unit).map(|unit| &unit.state)
    }

    fn record(&mut self, event: RunEvent, now: Now) {
        self.push_event(EventKind::run(event), now);
    }

    fn record_unit(&mut self, unit: &UnitId, event: UnitEvent, now: Now) {
        let attempt = self.run.unit(unit).map_or(Attempt(0), Unit::attempt);
        self.push_event(EventKind::unit(unit, attempt, event), now);
    }

    /// # Panics
    /// The event is not legal here, which is a bug in this file: better loud than a damaged ledger.
    fn push_event(&mut self, kind: EventKind, now: Now) {
        let event = Event { seq: self.run.seq.next(), at: now.wall, kind };
        if let Err(error) = self.run.apply(&event) {
            panic!("the supervisor decided on an illegal event: {error}");
        }
        self.effects.push(Effect::Record(event));
    }
}

type Refusal = (String, Option<String>);
type Obeyed = Result<String, Refusal>;

/// The directory of an attempt, relative to the run's.
#[must_use]
pub fn attempt_dir(unit: &UnitId, attempt: Attempt) -> String {
    format!("units/{unit}/{attempt}")
}

/// Doubles with each attempt, up to 64 times, plus up to a quarter that differs from unit to unit.
fn retry_pause(unit: &Unit, outcome: &Outcome) -> i64 {
    let first = match outcome {
        Outcome::Failed(Cause::RateLimit | Cause::Network) => BACKOFF_PAUSE_MILLIS,
        _ => RETRY_PAUSE_MILLIS,
    };
    let pause = first << unit.retries_spent.min(6);
    let spread = unit.setup.id.as_str().bytes().fold(0_i64, |sum, byte| (sum * 31 + i64::from(byte)) % 256);
    pause + pause * spread / 1024
}

fn explain_outcome(outcome: &Outcome, facts: Option<&AttemptFacts>, unit: &Unit) -> String {
    if let UnitState::Settling { start_failed: Some((_, message)), .. } = &unit.state {
        return message.clone();
    }
    crate::explain::outcome_sentence(outcome, facts)
}
