//! A run as the fold of its events. [`RunState::apply`] serves the live run, replay and every display.

use std::collections::BTreeMap;

use crate::budget::{Budget, Level};
use crate::event::{Event, EventKind, ProcessIdentity, RequeuedBy, RunEvent, RunSetup, UnitEvent};
use crate::ids::{Attempt, ExecutorName, Seq, UnitId};
use crate::outcome::{AttemptFacts, Cause, CheckFacts, Outcome, Usage};
use crate::policy::Spends;
use crate::queue::Queue;
use crate::time::Timestamp;
use crate::unit::{IllegalTransition, Unit, UnitState};

/// Everything that the events of a run say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunState {
    /// What the run was started with; `None` before the first event.
    pub setup: Option<RunSetup>,
    /// Its units, in the plan's order.
    pub units: Vec<Unit>,
    places: BTreeMap<UnitId, usize>,
    queue: Queue,
    /// Executors on which no unit starts for now.
    pub holds: BTreeMap<ExecutorName, Hold>,
    /// Holds that are over, oldest first.
    pub past_holds: Vec<PastHold>,
    /// Holds of each executor in a row, without a good attempt in between.
    pub faults: BTreeMap<ExecutorName, u32>,
    /// Attempts that were nobody's fault and were repeated without a retry.
    pub repeats: u32,
    /// The supervisor that took over last.
    pub supervisor: Option<ProcessIdentity>,
    /// The end of the run was asked for: `Some(true)` without grace.
    pub stop: Option<bool>,
    /// The supervisor has left: `Some(true)` after a stop.
    pub ended: Option<bool>,
    /// What workers changed in the user's repository, as far as was detected.
    pub touched: Vec<String>,
    /// The last check of each tree.
    pub verified: BTreeMap<String, Verified>,
    /// Landings, oldest first.
    pub landings: Vec<Landing>,
    /// Why no unit starts for now, where the machine is too busy for one more.
    pub paused: Option<String>,
    /// What the run may spend.
    pub budget: Budget,
    /// How far the budget was found to be spent, by unit; of the run where there is no unit.
    pub levels: BTreeMap<Option<UnitId>, (Level, String)>,
    /// What all settled attempts used.
    pub used: Usage,
    /// Events of kinds that this version does not know.
    pub unknown: u32,
    /// The last event's place.
    pub seq: Seq,
    /// The first event's time.
    pub began: Timestamp,
    /// The last event's time.
    pub last_at: Timestamp,
}

/// Why an executor takes no units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The class of error that caused it.
    pub cause: Cause,
    /// Since when.
    pub since: Timestamp,
    /// Until when; `None` until somebody releases it.
    pub until: Option<Timestamp>,
    /// Why, in a sentence.
    pub why: String,
}

impl Hold {
    /// Whether it is more than a pause: it takes minutes, or somebody has to see to it.
    #[must_use]
    pub fn is_lasting(&self) -> bool {
        const PAUSE_MILLIS: u64 = 10 * 60_000;
        self.until.is_none_or(|until| until.since(self.since) >= PAUSE_MILLIS)
    }
}

/// A hold that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastHold {
    /// The executor.
    pub executor: ExecutorName,
    /// The class of error that caused it.
    pub cause: Cause,
    /// When it began.
    pub since: Timestamp,
    /// When it ended.
    pub ended: Timestamp,
}

/// The run's check of one tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// Whether it is the base's tree.
    pub on_base: bool,
    /// How it ended.
    pub check: CheckFacts,
}

/// One landing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Landing {
    /// Its number, from 1.
    pub number: u32,
    /// The tree that was landed.
    pub tree: String,
    /// The paths that were written or removed.
    pub paths: Vec<String>,
    /// It was taken back.
    pub undone: bool,
}

/// Why an event cannot follow the ones before it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// Its place is not the next one.
    #[error("event {found} follows event {last}")]
    Gap {
        /// The last event's place.
        last: Seq,
        /// This one's.
        found: Seq,
    },
    /// The unit is not in the plan.
    #[error("event {seq} is about the unit {unit}, which the plan does not have")]
    NoUnit {
        /// The event's place.
        seq: Seq,
        /// The unit.
        unit: UnitId,
    },
    /// The unit's state does not allow it.
    #[error("event {seq}, unit {unit}: {illegal}")]
    Unit {
        /// The event's place.
        seq: Seq,
        /// The unit.
        unit: UnitId,
        /// What is not allowed.
        illegal: IllegalTransition,
    },
    /// The run's state does not allow it.
    #[error("event {seq}: {event} is not legal here")]
    Run {
        /// The event's place.
        seq: Seq,
        /// The event's name.
        event: String,
    },
}

impl RunState {
    /// The fold of `events`.
    ///
    /// # Errors
    /// An event cannot follow the ones before it: the ledger is damaged there.
    pub fn replay<'a>(events: impl IntoIterator<Item = &'a Event>) -> Result<Self, ApplyError> {
        let mut run = Self::default();
        for event in events {
            run.apply(event)?;
        }
        Ok(run)
    }

    /// Moves the run by one event.
    ///
    /// # Errors
    /// The event cannot follow. The run is unchanged then.
    pub fn apply(&mut self, event: &Event) -> Result<(), ApplyError> {
        let seq = event.seq;
        if seq != self.seq.next() {
            return Err(ApplyError::Gap { last: self.seq, found: seq });
        }
        match &event.kind {
            EventKind::Unit { unit, attempt, event: kind } => self.apply_unit(seq, unit, *attempt, kind, event.at)?,
            EventKind::Run(kind) => self.apply_run(kind, event)?,
            EventKind::Unknown { .. } => self.unknown = self.unknown.saturating_add(1),
        }
        if self.seq == Seq(0) {
            self.began = event.at;
        }
        self.seq = seq;
        self.last_at = event.at;
        Ok(())
    }

    fn apply_unit(
        &mut self,
        seq: Seq,
        id: &UnitId,
        attempt: Attempt,
        event: &UnitEvent,
        at: Timestamp,
    ) -> Result<(), ApplyError> {
        let place = *self.places.get(id).ok_or_else(|| ApplyError::NoUnit { seq, unit: id.clone() })?;
        self.units[place].apply(attempt, event, at).map_err(|illegal| ApplyError::Unit {
            seq,
            unit: id.clone(),
            illegal,
        })?;
        self.queue.note(place, &self.units[place]);
        match event {
            // A unit that waits again is not the end of the run, whoever wrote that it had ended.
            UnitEvent::UnitRequeued { by, .. } => {
                self.ended = None;
                if *by == RequeuedBy::User {
                    // Its budget is for what follows.
                    self.levels.remove(&Some(id.clone()));
                }
            }
            UnitEvent::RetryScheduled { spends, outcome, facts, .. } => {
                self.note_usage(facts.as_deref());
                self.repeats = self.repeats.saturating_add(u32::from(*spends == Spends::Repeat));
                self.note_end(place, outcome);
            }
            UnitEvent::UnitSettled { outcome, facts, .. } => {
                self.note_usage(facts.as_deref());
                self.note_end(place, outcome);
            }
            _ => {}
        }
        Ok(())
    }

    fn note_usage(&mut self, facts: Option<&AttemptFacts>) {
        if let Some(usage) = facts.and_then(|facts| facts.usage) {
            self.used = self.used.plus(&usage);
        }
    }

    /// An executor whose worker came to its own end works again.
    fn note_end(&mut self, place: usize, outcome: &Outcome) {
        if matches!(outcome, Outcome::Succeeded | Outcome::Incomplete(_) | Outcome::Failed(Cause::Verify))
            && let Some(last) = self.units[place].attempts.last()
        {
            self.faults.remove(&last.executor);
        }
    }

    fn end_hold(&mut self, executor: &ExecutorName, hold: &Hold, at: Timestamp) {
        let Hold { cause, since, .. } = *hold;
        self.past_holds.push(PastHold { executor: executor.clone(), cause, since, ended: at });
    }

    /// Whether units stand as an earlier stop of the run left them, for a resume to go on with.
    #[must_use]
    pub fn has_stopped_units(&self) -> bool {
        self.units.iter().any(Unit::goes_on_after_resume)
    }

    fn apply_run(&mut self, kind: &RunEvent, event: &Event) -> Result<(), ApplyError> {
        let illegal = || ApplyError::Run { seq: event.seq, event: event.kind.name() };
        if self.setup.is_some() == matches!(kind, RunEvent::PlanAccepted(_)) {
            return Err(illegal());
        }
        match kind {
            RunEvent::PlanAccepted(setup) => {
                self.places = setup.units.iter().enumerate().map(|(at, unit)| (unit.id.clone(), at)).collect();
                self.units = setup.units.iter().map(|unit| Unit::new(unit.clone(), event.at)).collect();
                self.queue = Queue::of(&self.units);
                self.budget = setup.budget;
                self.setup = Some((**setup).clone());
            }
            RunEvent::SupervisorStarted { process, .. } => {
                self.supervisor = Some(process.clone());
                self.ended = None;
                self.stop = None;
                self.paused = None;
            }
            RunEvent::ExecutorHeld { executor, cause, until, why } => {
                let hold = Hold { cause: *cause, since: event.at, until: *until, why: why.clone() };
                if let Some(before) = self.holds.insert(executor.clone(), hold) {
                    self.end_hold(executor, &before, event.at);
                }
                let faults = self.faults.entry(executor.clone()).or_default();
                *faults = faults.saturating_add(1);
            }
            RunEvent::ExecutorReleased { executor } => {
                let hold = self.holds.remove(executor).ok_or_else(illegal)?;
                self.end_hold(executor, &hold, event.at);
            }
            RunEvent::StartsPaused { why } => self.paused = Some(why.clone()),
            RunEvent::StartsResumed => drop(self.paused.take().ok_or_else(illegal)?),
            RunEvent::BudgetWarned { why, unit } => {
                self.levels.insert(unit.clone(), (Level::Warning, why.clone()));
            }
            RunEvent::BudgetSpent { why, unit } => {
                self.levels.insert(unit.clone(), (Level::Spent, why.clone()));
            }
            RunEvent::BudgetSet { budget } => {
                self.budget = *budget;
                self.levels.remove(&None);
            }
            RunEvent::RepositoryTouched { what } => self.touched.extend(what.iter().cloned()),
            RunEvent::RepositoryMoved { .. } => {}
            RunEvent::RunStopRequested { now } => self.stop = Some(*now || self.stop == Some(true)),
            RunEvent::RunEnded { cancelled } => {
                if !self.is_settled() {
                    return Err(illegal());
                }
                self.ended = Some(*cancelled);
            }
            RunEvent::VerifyFinished { tree, on_base, check } => {
                self.verified.insert(tree.clone(), Verified { on_base: *on_base, check: check.clone() });
            }
            RunEvent::Landed { tree, landing, paths, .. } => {
                let landing = Landing { number: *landing, tree: tree.clone(), paths: paths.clone(), undone: false };
                self.landings.push(landing);
            }
            RunEvent::Undone { landing } => {
                let found = self.landings.iter_mut().find(|one| one.number == *landing && !one.undone);
                found.ok_or_else(illegal)?.undone = true;
            }
        }
        Ok(())
    }

    /// Whether the run has spent all that it may.
    #[must_use]
    pub fn is_spent(&self) -> bool {
        self.levels.get(&None).is_some_and(|(level, _)| *level == Level::Spent)
    }

    /// The unit of that id.
    #[must_use]
    pub fn unit(&self, id: &UnitId) -> Option<&Unit> {
        self.places.get(id).map(|place| &self.units[*place])
    }

    /// Units that wait and can go nowhere while this executor is held, because all others that they name are too.
    pub fn stuck_on<'a>(&'a self, executor: &'a ExecutorName) -> impl Iterator<Item = &'a Unit> {
        let open = |unit: &'a Unit| unit.setup.executors.iter().filter(|name| !unit.barred.contains(name));
        self.waiting().filter(move |unit| {
            open(unit).any(|name| name == executor) && open(unit).all(|name| self.holds.contains_key(name))
        })
    }

    /// Units of which something may be alive.
    pub fn active(&self) -> impl Iterator<Item = &Unit> {
        self.queue.active().map(|place| &self.units[place])
    }

    /// Units that wait for their first or next attempt, in the order in which they are to start.
    pub fn waiting(&self) -> impl Iterator<Item = &Unit> {
        self.queue.waiting().map(|place| &self.units[place])
    }

    /// When the next pause of a waiting unit ends that has not ended yet.
    #[must_use]
    pub fn next_backoff(&self, now: Timestamp) -> Option<Timestamp> {
        self.queue.next_backoff(now)
    }

    /// Whether every unit is settled.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.queue.is_empty()
    }

    /// How many units are in a state.
    pub fn count(&self, is: impl Fn(&UnitState) -> bool) -> usize {
        self.units.iter().filter(|unit| is(&unit.state)).count()
    }

    /// Tokens of all settled attempts.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        self.used.total_tokens()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::event::{Mode, UnitSetup};

    /// A run of the one unit `u`, just accepted.
    pub(crate) fn one_unit() -> RunState {
        let unit = UnitSetup {
            id: "u".parse().unwrap(),
            mode: Mode::Write,
            executors: vec!["codex".parse().unwrap()],
            retries: 1,
            owns: Vec::new(),
            panel: None,
            priority: 0,
            budget: Budget::default(),
        };
        let setup = RunSetup {
            title: "t".into(),
            plan_digest: "d".into(),
            repo: None,
            subdir: String::new(),
            base: None,
            base_tree: None,
            carried: 0,
            unseen: 0,
            guard: None,
            jobs: 1,
            jobs_are_chosen: false,
            verifies: false,
            budget: Budget::default(),
            units: vec![unit],
        };
        let mut run = RunState::default();
        push(&mut run, EventKind::run(RunEvent::PlanAccepted(Box::new(setup)))).unwrap();
        run
    }

    fn push(run: &mut RunState, kind: EventKind) -> Result<Event, ApplyError> {
        let event = Event { seq: run.seq.next(), at: Timestamp(i64::try_from(run.seq.0).unwrap()), kind };
        run.apply(&event).map(|()| event)
    }

    /// Records a legal event of the unit `u`.
    pub(crate) fn push_unit(run: &mut RunState, attempt: u32, event: UnitEvent) -> Event {
        push(run, EventKind::unit(&"u".parse().unwrap(), Attempt(attempt), event)).unwrap()
    }

    #[test]
    fn what_cannot_follow_changes_nothing() {
        let mut run = one_unit();
        let before = run.clone();
        let accepted_again = EventKind::run(RunEvent::PlanAccepted(Box::new(run.setup.clone().unwrap())));
        assert!(matches!(push(&mut run, accepted_again), Err(ApplyError::Run { .. })));
        let ended = EventKind::run(RunEvent::RunEnded { cancelled: false });
        assert!(matches!(push(&mut run, ended), Err(ApplyError::Run { .. })), "a unit is not settled");
        let undone = EventKind::run(RunEvent::Undone { landing: 1 });
        assert!(matches!(push(&mut run, undone), Err(ApplyError::Run { .. })));
        let stranger = EventKind::unit(&"x".parse().unwrap(), Attempt(0), UnitEvent::HandedOver);
        assert!(matches!(push(&mut run, stranger), Err(ApplyError::NoUnit { .. })));
        let late =
            Event { seq: Seq(9), at: Timestamp(0), kind: EventKind::run(RunEvent::RunStopRequested { now: true }) };
        assert!(matches!(run.apply(&late), Err(ApplyError::Gap { .. })));
        assert_eq!(run, before);
    }

    #[test]
    fn an_event_of_a_later_version_is_counted_and_passed_over() {
        let mut run = one_unit();
        push(&mut run, EventKind::Unknown { name: "new".into(), data: "{}".into() }).unwrap();
        assert_eq!((run.unknown, run.seq), (1, Seq(2)));
    }
}
