//! A ledger that was lost, made again from what still stands: the events that could be read, and what each attempt's
//! directory holds.
//!
//! Attempts that were followed by another one, and those that succeeded, are settled here. The rest is left as it
//! was under way: the next supervisor looks at it as it does after any death, with the whole policy of retries.

use std::collections::BTreeMap;

use crate::event::{Event, EventKind, ProcessIdentity, RequeuedBy, RetryHow, UnitEvent};
use crate::explain::outcome_sentence;
use crate::ids::{Attempt, UnitId};
use crate::judge::judge;
use crate::outcome::{AttemptFacts, Cause, Outcome};
use crate::policy::Spends;
use crate::run::{ApplyError, RunState};
use crate::supervise::attempt_dir;
use crate::time::Timestamp;
use crate::unit::{Disposition, NextAttempt, Unit, UnitState};

/// What stands in the directory of one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundAttempt {
    /// Its number.
    pub attempt: Attempt,
    /// When it was made.
    pub began: Timestamp,
    /// Its dispatcher, where it said who it is.
    pub process: Option<ProcessIdentity>,
    /// How it ended, where that was written.
    pub facts: Option<Box<AttemptFacts>>,
}

/// The events that follow `run`, so that it knows of every attempt in `found` (in order, by unit).
///
/// # Errors
/// A bug: what was decided here cannot follow.
pub fn rebuild(
    run: &RunState,
    found: &BTreeMap<UnitId, Vec<FoundAttempt>>,
    now: Timestamp,
) -> Result<Vec<Event>, ApplyError> {
    let mut builder = Builder { run: run.clone(), events: Vec::new(), now };
    for (unit, attempts) in found.iter().filter(|(unit, _)| run.unit(unit).is_some()) {
        for (at, attempt) in attempts.iter().enumerate() {
            builder.take(unit, attempt, at + 1 < attempts.len())?;
        }
    }
    Ok(builder.events)
}

struct Builder {
    run: RunState,
    events: Vec<Event>,
    now: Timestamp,
}

impl Builder {
    fn take(&mut self, id: &UnitId, found: &FoundAttempt, is_followed: bool) -> Result<(), ApplyError> {
        let known = self.unit(id).attempt();
        if found.attempt < known || (found.attempt == known && !self.unit(id).is_active()) {
            return Ok(());
        }
        if found.attempt > known {
            if matches!(self.unit(id).disposition, Disposition::Applied { .. }) {
                return Ok(());
            }
            // Attempts that left no directory never began to work.
            for attempt in known.0 + 1..found.attempt.0 {
                self.begin(id, Attempt(attempt), found.began)?;
            }
            self.begin(id, found.attempt, found.began)?;
            if let Some(process) = &found.process {
                self.push(id, found.attempt, UnitEvent::ProcessStarted { process: process.clone() }, found.began)?;
            }
        }
        let outcome = found.facts.as_deref().map(judge);
        if is_followed || outcome == Some(Outcome::Succeeded) {
            self.settle(id, found.facts.clone(), is_followed)?;
        }
        Ok(())
    }

    fn begin(&mut self, id: &UnitId, attempt: Attempt, at: Timestamp) -> Result<(), ApplyError> {
        if self.unit(id).is_active() {
            self.settle(id, None, true)?;
        }
        if self.unit(id).is_settled() {
            let requeued = UnitEvent::UnitRequeued { by: RequeuedBy::Recovery, how: RetryHow::Fresh, message: None };
            self.push(id, self.unit(id).attempt(), requeued, self.now)?;
        }
        let executors = &self.unit(id).setup.executors;
        let Some(executor) = executors.first().cloned() else { return Ok(()) };
        let why = "read back from its directory; who took it is not known, this is the first that the unit names";
        let began = UnitEvent::AttemptBegan { executor, dir: attempt_dir(id, attempt), why: why.to_owned() };
        self.push(id, attempt, began, at)
    }

    /// Ends the current attempt, by its facts or without any.
    fn settle(&mut self, id: &UnitId, facts: Option<Box<AttemptFacts>>, is_followed: bool) -> Result<(), ApplyError> {
        let attempt = self.unit(id).attempt();
        let at = facts.as_ref().map_or(self.now, |facts| facts.ended_at);
        let settled_itself = facts.as_ref().is_some_and(|facts| !facts.dispatcher_died);
        if !matches!(self.unit(id).state, UnitState::Settling { .. }) {
            if !matches!(self.unit(id).state, UnitState::Lost { .. }) {
                self.push(id, attempt, UnitEvent::UnitLost, at)?;
            }
            self.push(id, attempt, UnitEvent::ProcessExited { settled_itself }, at)?;
        }
        let outcome = facts.as_deref().map_or(Outcome::Failed(Cause::DispatchDead), judge);
        let why = outcome_sentence(&outcome, facts.as_deref());
        let event = if is_followed && self.unit(id).stop().is_none() {
            let (spends, begins, bars) = (Spends::Retry, NextAttempt::default(), false);
            UnitEvent::RetryScheduled { facts, outcome, at, why, spends, begins, bars }
        } else {
            UnitEvent::UnitSettled { facts, outcome, why }
        };
        self.push(id, attempt, event, at)
    }

    fn push(&mut self, id: &UnitId, attempt: Attempt, event: UnitEvent, at: Timestamp) -> Result<(), ApplyError> {
        let event = Event { seq: self.run.seq.next(), at, kind: EventKind::unit(id, attempt, event) };
        self.run.apply(&event)?;
        self.events.push(event);
        Ok(())
    }

    fn unit(&self, id: &UnitId) -> &Unit {
        self.run.unit(id).expect("it was asked for before")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::outcome::Exit;
    use crate::outcome::tests::good_facts;
    use crate::run::tests::{one_unit, push_unit};

    fn process() -> ProcessIdentity {
        ProcessIdentity { boot_id: "b".into(), pid: 9, start_ticks: 1 }
    }

    /// `what`: 0 = nothing but the directory, 1 = a dispatcher, 2 = a failure, 3 = a success.
    fn found(attempt: u32, what: u8) -> FoundAttempt {
        let facts = match what {
            2 => Some(AttemptFacts { exit: Exit::Code { code: 1 }, ..good_facts() }),
            3 => Some(good_facts()),
            _ => None,
        };
        let process = (what > 0).then(process);
        FoundAttempt { attempt: Attempt(attempt), began: Timestamp(5), process, facts: facts.map(Box::new) }
    }

    fn rebuilt(mut run: RunState, attempts: Vec<FoundAttempt>) -> RunState {
        let found = BTreeMap::from([("u".parse().unwrap(), attempts)]);
        for event in rebuild(&run, &found, Timestamp(99)).unwrap() {
            run.apply(&event).unwrap();
        }
        run
    }

    #[test]
    fn results_come_back_and_what_was_under_way_is_left_to_the_next_supervisor() {
        let run = rebuilt(one_unit(), vec![found(1, 2), found(2, 3)]);
        let unit = &run.units[0];
        assert_eq!(unit.outcome(), Some(&Outcome::Succeeded));
        assert_eq!(unit.attempts[0].outcome, Some(Outcome::Failed(Cause::ExitCode)));
        assert_eq!((unit.attempts.len(), unit.retries_spent), (2, 1));
        let run = rebuilt(one_unit(), vec![found(1, 1)]);
        assert!(matches!(run.units[0].state, UnitState::Running(_)));
        let run = rebuilt(one_unit(), vec![found(1, 2)]);
        assert!(run.units[0].is_active(), "whether it is tried again is the supervisor's to decide");
        let run = rebuilt(one_unit(), vec![]);
        assert_eq!(run.units[0].state, UnitState::Queued);
    }

    #[test]
    fn what_could_be_read_is_kept_as_it_was() {
        let mut run = one_unit();
        let (executor, dir, why) = ("codex".parse().unwrap(), "units/u/1".into(), "first".into());
        push_unit(&mut run, 1, UnitEvent::AttemptBegan { executor, dir, why });
        push_unit(&mut run, 1, UnitEvent::ProcessStarted { process: process() });
        let run = rebuilt(run, vec![found(1, 3)]);
        assert_eq!(run.units[0].outcome(), Some(&Outcome::Succeeded));
        let before = run.clone();
        assert_eq!(rebuilt(run, vec![found(1, 3)]), before, "nothing is left to be read back");
    }

    proptest! {
        /// Whatever stands in the directories, beside whatever could be read: it replays, and no success is lost.
        #[test]
        fn every_ledger_that_is_made_again_replays(
            first in prop::collection::vec(0_u8..4, 0..4),
            more in prop::collection::vec((0_u8..3, 0_u8..4), 0..4),
        ) {
            let with = |whats: &[u8]| whats.iter().zip(1..).map(|(what, at)| found(at, *what)).collect::<Vec<_>>();
            let run = rebuilt(one_unit(), with(&first));
            // Later, with gaps between the numbers.
            let mut attempts = with(&first);
            for (gap, what) in more {
                let next = attempts.last().map_or(0, |last| last.attempt.0) + 1 + u32::from(gap);
                attempts.push(found(next, what));
            }
            let run = rebuilt(run, attempts.clone());
            let unit = &run.units[0];
            prop_assert_eq!(unit.attempt().0, attempts.last().map_or(0, |last| last.attempt.0));
            for one in attempts.iter().filter(|one| one.facts.as_deref() == Some(&good_facts())) {
                let record = unit.attempts.iter().find(|record| record.attempt == one.attempt).unwrap();
                prop_assert_eq!(record.outcome.as_ref(), Some(&Outcome::Succeeded));
            }
        }
    }
}
