//! Every decision of a live run: an input and the time go in, effects come out.
//!
//! [`Supervisor::handle`] is pure and synchronous. It applies each event that it decides to its own
//! [`RunState`] and returns it as [`Effect::Record`]; the driver records those first, carries out the
//! rest, and answers commands last.

mod budget;
mod commands;
mod settle;
#[cfg(test)]
mod simulation;
mod start;
mod vocabulary;

pub use vocabulary::{Command, Effect, Input, Note, Observation, Pressed, Reply};

use std::collections::{BTreeMap, BTreeSet};

use crate::event::{Event, EventKind, ProcessIdentity, RequeuedBy, RetryHow, RunEvent, UnitEvent};
use crate::ids::{Attempt, UnitId};
use crate::outcome::{AttemptFacts, Cause, Outcome, Usage};
use crate::run::RunState;
use crate::schedule::Resources;
use crate::time::Now;
use crate::unit::{AttemptRecord, NextAttempt, Unit, UnitState};

/// Milliseconds that a dispatcher gets from the request to stop until it is told again, and again until
/// it is killed. It needs the worker's grace (2 s), the sweep's bound (10 s) and the time of a harvest.
pub const STOP_PATIENCE_MILLIS: u64 = 60_000;

/// The supervisor's mind.
#[derive(Clone, Debug)]
pub struct Supervisor {
    run: RunState,
    resources: Resources,
    /// When the patience with a stopping unit ends, on the monotonic clock, by unit.
    patience: BTreeMap<UnitId, u64>,
    /// Units of which is not known yet what became of them under the supervisor before.
    observing: BTreeSet<UnitId>,
    /// The last attempt of each unit that this supervisor had started: once is enough.
    spawned: BTreeMap<UnitId, Attempt>,
    /// What attempts that are under way have used so far: it counts towards budgets, and is recorded at their ends.
    using: BTreeMap<UnitId, Usage>,
    repository: RepositoryCheck,
    /// The run's check of the base is still under way.
    verifying_base: bool,
    look_again: Option<u64>,
    /// Its own beginning is recorded.
    is_up: bool,
    /// What the machine is short of, as a sentence.
    pressed: Option<String>,
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
            observing: BTreeSet::new(),
            spawned: BTreeMap::new(),
            using: BTreeMap::new(),
            repository: RepositoryCheck::Due,
            verifying_base: false,
            look_again: None,
            is_up: false,
            pressed: None,
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
            Input::Started { process, version, resume } => self.start(process, version, resume, now),
            Input::Tick => self.lose_patience(now),
            Input::Asked { token, command } => self.obey(token, command, now),
            Input::SlotsTaken { executor, wanted, taken } => {
                self.note_slots(&executor, wanted, taken, now);
            }
            Input::Pressed(pressed) => self.note_pressure(pressed, now),
            Input::RepositoryChecked { touched, moved } => self.note_repository(touched, moved, now),
            Input::BaseVerified { tree, check } => {
                self.verifying_base = false;
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
                self.cleaned(&unit, facts, now);
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
        // What comes before its own beginning is recorded is no time to start anything.
        if self.is_up {
            self.release_due(now);
            self.check_budgets(now);
            self.give_up_waiting(now);
            self.start_units(now);
        }
        self.end_if_over(now);
        std::mem::take(&mut self.effects)
    }

    fn is_current(&self, unit: &UnitId, attempt: Attempt) -> bool {
        self.run.unit(unit).is_some_and(|found| found.attempt() == attempt)
    }

    fn start(&mut self, process: ProcessIdentity, version: String, resume: bool, now: Now) {
        self.record(RunEvent::SupervisorStarted { process, version }, now);
        self.is_up = true;
        if resume {
            self.release_endless(now);
            self.requeue_stopped(now);
        }
        self.verify_base();
        let active: Vec<(UnitId, Attempt)> =
            self.run.active().map(|unit| (unit.setup.id.clone(), unit.attempt())).collect();
        for (unit, attempt) in active {
            if !matches!(self.state(&unit), Some(UnitState::Lost { .. })) {
                self.record_unit(&unit, UnitEvent::UnitLost, now);
            }
            self.observing.insert(unit.clone());
            self.effects.push(Effect::Observe { unit, attempt });
        }
    }

    fn verify_base(&mut self) {
        let Some(setup) = self.run.setup.as_ref().filter(|setup| setup.verifies) else { return };
        if setup.base_tree.as_ref().is_some_and(|tree| !self.run.verified.contains_key(tree)) {
            self.verifying_base = true;
            self.effects.push(Effect::VerifyBase);
        }
    }

    /// Units that the stop of the run ended go on where they were: their workspaces are kept.
    fn requeue_stopped(&mut self, now: Now) {
        let stopped = self.run.units.iter().filter(|unit| unit.goes_on_after_resume());
        let units: Vec<(UnitId, NextAttempt)> = stopped.map(|unit| (unit.setup.id.clone(), after_stop(unit))).collect();
        for (unit, NextAttempt { how, message }) in units {
            self.record_unit(&unit, UnitEvent::UnitRequeued { by: RequeuedBy::Recovery, how, message }, now);
        }
    }

    fn prepared(&mut self, unit: &UnitId, attempt: Attempt, result: Result<u64, String>, now: Now) {
        if self.spawned.get(unit) == Some(&attempt) {
            return;
        }
        match (result, self.state(unit)) {
            (Ok(millis), Some(UnitState::Preparing)) => {
                self.record_unit(unit, UnitEvent::WorkspaceReady { millis }, now);
                self.spawned.insert(unit.clone(), attempt);
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
        if !matches!(self.state(unit), Some(UnitState::Preparing | UnitState::Stopping { process: None, .. })) {
            return;
        }
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
        // What is being observed is told of by the observation, or watched after it.
        let known = !self.observing.contains(unit);
        if !known || !matches!(self.state(unit), Some(UnitState::Running(_) | UnitState::Stopping { .. })) {
            return;
        }
        self.record_unit(unit, UnitEvent::ProcessExited { settled_itself: facts.is_some() }, now);
        if facts.is_some() {
            self.settle(unit, facts, None, now);
        } else {
            self.effects.push(Effect::Clean { unit: unit.clone(), attempt });
        }
    }

    fn cleaned(&mut self, unit: &UnitId, facts: Option<Box<AttemptFacts>>, now: Now) {
        if matches!(self.state(unit), Some(UnitState::Settling { .. })) {
            self.settle(unit, facts, None, now);
        }
    }

    fn observed(&mut self, unit: &UnitId, attempt: Attempt, found: Observation, now: Now) {
        if !self.observing.remove(unit) {
            return;
        }
        let found = match found {
            // It was started, and died before it left a trace.
            Observation::NeverStarted if self.run.unit(unit).is_some_and(Unit::was_started) => Observation::Dead(None),
            found => found,
        };
        match found {
            Observation::Settled(facts) => {
                self.record_unit(unit, UnitEvent::ProcessExited { settled_itself: !facts.dispatcher_died }, now);
                self.settle(unit, Some(facts), None, now);
            }
            Observation::Dead(facts) => {
                self.record_unit(unit, UnitEvent::ProcessExited { settled_itself: false }, now);
                self.settle(unit, facts, None, now);
            }
            Observation::Alive(process) => self.adopt(unit, attempt, process, now),
            Observation::NeverStarted if self.run.unit(unit).and_then(Unit::stop).is_some() => {
                self.fail_start(unit, Cause::Setup, "stopped before its worker was started".to_owned(), now);
            }
            Observation::NeverStarted => {
                let last = self.run.unit(unit).and_then(|unit| unit.attempts.last());
                let next = last.map(|last| last.begins.clone()).unwrap_or_default();
                let by = RequeuedBy::Recovery;
                self.record_unit(unit, UnitEvent::UnitRequeued { by, how: next.how, message: next.message }, now);
            }
        }
    }

    fn adopt(&mut self, unit: &UnitId, attempt: Attempt, process: ProcessIdentity, now: Now) {
        // A stop that came while nobody knew has moved it on already.
        if matches!(self.state(unit), Some(UnitState::Lost { .. })) {
            self.record_unit(unit, UnitEvent::UnitAdopted, now);
        }
        if matches!(self.state(unit), Some(UnitState::Preparing | UnitState::Stopping { process: None, .. })) {
            self.record_unit(unit, UnitEvent::ProcessStarted { process: process.clone() }, now);
        }
        if matches!(self.state(unit), Some(UnitState::Stopping { .. })) {
            self.terminate(unit, process.clone(), now);
        }
        self.effects.push(Effect::Watch { unit: unit.clone(), attempt, process });
    }

    fn noted(&mut self, unit: &UnitId, note: Note, now: Now) {
        if let Note::Used(usage) = note {
            if self.run.unit(unit).is_some_and(Unit::is_active) {
                self.using.insert(unit.clone(), usage);
            }
            return;
        }
        let Some(UnitState::Running(running)) = self.state(unit) else { return };
        let event = match note {
            Note::Quiet(seconds) if !running.quiet => UnitEvent::WentQuiet { seconds },
            Note::Active if running.quiet => UnitEvent::BecameActive,
            Note::HandedOver if !running.handed_over => UnitEvent::HandedOver,
            _ => return,
        };
        self.record_unit(unit, event, now);
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

    fn note_repository(&mut self, touched: Vec<String>, moved: Option<String>, now: Now) {
        // A retry that came meanwhile makes another look due.
        if self.repository == RepositoryCheck::UnderWay {
            self.repository = RepositoryCheck::Done;
        }
        if !touched.is_empty() {
            self.record(RunEvent::RepositoryTouched { what: touched }, now);
        }
        if let Some(what) = moved {
            self.record(RunEvent::RepositoryMoved { what }, now);
        }
    }

    fn end_if_over(&mut self, now: Now) {
        if self.run.ended.is_some()
            || self.run.supervisor.is_none()
            || !self.run.is_settled()
            || self.waits_for_base_check()
        {
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

    /// A run that is being stopped does not wait for a check that may take as long as the work.
    fn waits_for_base_check(&self) -> bool {
        self.verifying_base && self.run.stop.is_none()
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

/// The directory of an attempt, relative to the run's.
#[must_use]
pub fn attempt_dir(unit: &UnitId, attempt: Attempt) -> String {
    format!("units/{unit}/{attempt}")
}

/// How a unit goes on that the stop of the run ended.
fn after_stop(unit: &Unit) -> NextAttempt {
    match unit.attempts.last() {
        Some(last) if !was_interrupted(last) => unit.next.clone(),
        Some(last) if last.was_started() => NextAttempt {
            how: RetryHow::Continue,
            message: Some("You were interrupted; go on where you stopped.".to_owned()),
        },
        Some(last) => last.begins.clone(),
        None => unit.next.clone(),
    }
}

fn was_interrupted(last: &AttemptRecord) -> bool {
    matches!(last.outcome, Some(Outcome::Stopped(_) | Outcome::Failed(Cause::Auth | Cause::UsageLimit)))
}
