//! The verdict on an attempt and what follows from it: retries, holds of executors, units that nobody can take.

use super::Supervisor;
use crate::event::{RetryHow, RunEvent, UnitEvent};
use crate::explain::outcome_sentence;
use crate::ids::{ExecutorName, UnitId};
use crate::judge::judge;
use crate::outcome::{AttemptFacts, Cause, Outcome, StopReason};
use crate::policy::{Decision, HoldFor, Next, Situation, decide, run_allowance, seed_of};
use crate::run::Hold;
use crate::time::{Now, Timestamp};
use crate::unit::{Unit, UnitState};

/// Resets that are told at different times mean the same within these milliseconds.
const SAME_RESET_MILLIS: u64 = 5 * 60_000;

impl Supervisor {
    /// Gives the verdict on an attempt whose dispatcher is gone; `overrule` where none was started.
    pub(super) fn settle(
        &mut self,
        id: &UnitId,
        facts: Option<Box<AttemptFacts>>,
        overrule: Option<Outcome>,
        now: Now,
    ) {
        self.patience.remove(id);
        self.using.remove(id);
        let Some(unit) = self.run.unit(id) else { return };
        let stop = unit.stop();
        let judged = overrule.or_else(|| facts.as_deref().map(judge)).unwrap_or(Outcome::Failed(Cause::DispatchDead));
        let outcome = match stop {
            // What was complete before the stop reached it stays complete.
            Some(_) if judged == Outcome::Succeeded => judged,
            Some(reason) => Outcome::Stopped(reason),
            None => judged,
        };
        let verdict = explain_outcome(&outcome, facts.as_deref(), unit);
        if stop.is_some() || self.run.stop.is_some() {
            return self.record_unit(id, UnitEvent::UnitSettled { facts, outcome, why: verdict }, now);
        }
        let Decision { hold, mut next, mut why } = self.decide(unit, &outcome, &verdict, facts.as_deref(), now);
        if let Some(spent) = self.check_unit_budget(id, facts.as_deref(), now).filter(|_| next != Next::Settle) {
            (next, why) = (Next::Settle, format!("its budget is spent: {spent}"));
        }
        let last = self.run.unit(id).and_then(|unit| unit.attempts.last());
        if let Some((hold, executor)) = hold.zip(last.map(|last| last.executor.clone())) {
            self.hold(&executor, hold, &verdict, now);
        }
        let why = if why.is_empty() { verdict } else { format!("{verdict}; {why}") };
        let event = match next {
            Next::Settle => UnitEvent::UnitSettled { facts, outcome, why },
            Next::Again { at, spends, begins, bars } => {
                UnitEvent::RetryScheduled { facts, outcome, at, why, spends, begins, bars }
            }
        };
        self.record_unit(id, event, now);
    }

    fn decide(
        &self,
        unit: &Unit,
        outcome: &Outcome,
        verdict: &str,
        facts: Option<&AttemptFacts>,
        now: Now,
    ) -> Decision {
        let Some(last) = unit.attempts.last() else {
            return Decision { hold: None, next: Next::Settle, why: String::new() };
        };
        let others: Vec<ExecutorName> = self.open_to(unit).filter(|name| **name != last.executor).cloned().collect();
        let faults = self.run.faults.get(&last.executor).copied().unwrap_or(0);
        // An attempt that began before the hold is not one more in a row.
        let faults = faults.saturating_sub(u32::from(self.run.holds.contains_key(&last.executor)));
        let has_session = facts.is_some_and(|facts| facts.session.is_some() && !facts.dispatcher_died);
        decide(&Situation {
            outcome,
            verdict,
            // What went wrong twice in one session is better begun anew.
            can_go_on: has_session && last.begins.how == RetryHow::Fresh,
            resets_at: facts.and_then(|facts| facts.error.as_ref()?.resets_at),
            executor: &last.executor,
            attempt: last.attempt,
            others: &others,
            retries_left: unit.setup.retries.saturating_sub(unit.retries_spent),
            retries_spent: unit.retries_spent,
            repeats: unit.repeats,
            allowance: run_allowance(self.run.units.len()).saturating_sub(self.run.repeats),
            faults,
            seed: seed_of(self.resources.seed, unit.setup.id.as_str(), last.attempt.0),
            now: now.wall,
        })
    }

    /// Executors that may take the unit, now or after a hold that ends by itself.
    fn open_to<'a>(&'a self, unit: &'a Unit) -> impl Iterator<Item = &'a ExecutorName> {
        let is_open = |name: &&ExecutorName| {
            let is_held = self.run.holds.get(*name).is_some_and(|hold| hold.until.is_none());
            self.resources.executors.contains_key(*name) && !unit.barred.contains(name) && !is_held
        };
        unit.setup.executors.iter().filter(is_open)
    }

    fn hold(&mut self, executor: &ExecutorName, hold: HoldFor, why: &str, now: Now) {
        let HoldFor { cause, until } = hold;
        // Who failed together tells it once.
        if self.run.holds.get(executor).is_some_and(|known| covers(known, cause, until)) {
            return;
        }
        let (executor, why) = (executor.clone(), why.to_owned());
        self.record(RunEvent::ExecutorHeld { executor, cause, until, why }, now);
    }

    /// Ends holds whose time has come.
    pub(super) fn release_due(&mut self, now: Now) {
        self.release(now, |hold| hold.until.is_some_and(|until| until <= now.wall));
    }

    /// Ends holds that only a person ends: who resumes a run has seen to what was wrong.
    pub(super) fn release_endless(&mut self, now: Now) {
        self.release(now, |hold| hold.until.is_none());
    }

    fn release(&mut self, now: Now, ends: impl Fn(&Hold) -> bool) {
        let due: Vec<ExecutorName> =
            self.run.holds.iter().filter(|(_, hold)| ends(hold)).map(|(executor, _)| executor.clone()).collect();
        for executor in due {
            self.record(RunEvent::ExecutorReleased { executor }, now);
        }
    }

    /// Settles waiting units that nobody will ever take: all their executors are held without end, or are no
    /// longer configured.
    pub(super) fn give_up_waiting(&mut self, now: Now) {
        // Without resources this is no supervisor of a run, and nothing is to start.
        if self.resources.jobs == 0 {
            return;
        }
        let waiting = self.run.units.iter().filter(|unit| unit.is_waiting() && self.open_to(unit).next().is_none());
        let stuck: Vec<(UnitId, String)> =
            waiting.filter_map(|unit| Some((unit.setup.id.clone(), self.why_stuck(unit)?))).collect();
        for (unit, why) in stuck {
            let outcome = Outcome::Stopped(StopReason::Hold);
            self.record_unit(&unit, UnitEvent::UnitSettled { facts: None, outcome, why }, now);
        }
    }

    /// `None`: no hold stands in its way.
    fn why_stuck(&self, unit: &Unit) -> Option<String> {
        let held = unit.setup.executors.iter().filter_map(|name| {
            if !self.resources.executors.contains_key(name) {
                return Some(format!("the executor {name} is no longer configured"));
            }
            let hold = self.run.holds.get(name)?;
            Some(format!("{name} is held until it is released ({})", hold.why))
        });
        let held: Vec<String> = held.collect();
        (!held.is_empty()).then(|| held.join(", "))
    }
}

/// Whether a hold that is in force says what another one of this cause would say.
fn covers(known: &Hold, cause: Cause, until: Option<Timestamp>) -> bool {
    match (known.until, until) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(known_until), Some(until)) => {
            let is_longer = until.since(known_until) > SAME_RESET_MILLIS;
            known.cause == cause && !(cause == Cause::UsageLimit && is_longer)
        }
    }
}

fn explain_outcome(outcome: &Outcome, facts: Option<&AttemptFacts>, unit: &Unit) -> String {
    if let UnitState::Settling { start_failed: Some((_, message)), .. } = &unit.state {
        return message.clone();
    }
    outcome_sentence(outcome, facts)
}
