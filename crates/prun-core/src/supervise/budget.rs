//! Budgets: a warning at 80 %, and at 100 % the end of what spends them, also in the middle of an attempt.

use super::Supervisor;
use crate::budget::{Level, Spent};
use crate::event::{RunEvent, UnitEvent};
use crate::ids::UnitId;
use crate::outcome::{AttemptFacts, Outcome, StopReason};
use crate::time::Now;
use crate::unit::UnitState;

impl Supervisor {
    /// Looks at the run's budget and at those of units that work.
    pub(super) fn check_budgets(&mut self, now: Now) {
        if self.run.ended.is_some() {
            return;
        }
        let usage = self.using.values().fold(self.run.used, |sum, one| sum.plus(one));
        let spent = Spent { usage, millis: now.wall.since(self.run.began) };
        let (level, why) = self.run.budget.level(&spent);
        self.note_level(None, level, &why, now);
        // Spent is spent, also where an attempt turns out in the end to have used less than it told on its way.
        let said = self.run.levels.get(&None).filter(|(level, _)| *level == Level::Spent).map(|(_, why)| why.clone());
        if let Some(why) = said.filter(|_| !self.run.is_settled()) {
            self.stop_all(&why, now);
        }
        let limited: Vec<UnitId> = self
            .run
            .active()
            .filter(|unit| !unit.setup.budget.is_unlimited())
            .map(|unit| unit.setup.id.clone())
            .collect();
        for id in limited {
            let Some(unit) = self.run.unit(&id) else { continue };
            let (level, why) = unit.setup.budget.level(&unit.spent(self.using.get(&id), now.wall));
            let is_stopping = unit.stop().is_some();
            self.note_level(Some(&id), level, &why, now);
            if level == Level::Spent && !is_stopping {
                self.stop_for_budget(&id, now);
            }
        }
    }

    /// The monotonic time at which a budget of time reaches its next level.
    pub(super) fn next_budget_look(&self, now: Now) -> Option<u64> {
        // The monotonic clock stands still while the machine sleeps.
        const LONGEST_MILLIS: u64 = 60_000;
        let of_run = self.run.budget.time_left(now.wall.since(self.run.began)).filter(|_| !self.run.is_settled());
        let of_units =
            self.run.active().filter_map(|unit| unit.setup.budget.time_left(unit.spent(None, now.wall).millis));
        let left = of_run.into_iter().chain(of_units).min()?;
        Some(now.mono.saturating_add(left.min(LONGEST_MILLIS)))
    }

    /// Notes what a unit has spent with this attempt; the sentence where that is all it may.
    pub(super) fn check_unit_budget(&mut self, id: &UnitId, facts: Option<&AttemptFacts>, now: Now) -> Option<String> {
        let unit = self.run.unit(id).filter(|unit| !unit.setup.budget.is_unlimited())?;
        let spent = unit.spent(facts.and_then(|facts| facts.usage.as_ref()), now.wall);
        let (level, why) = unit.setup.budget.level(&spent);
        self.note_level(Some(id), level, &why, now);
        (level == Level::Spent).then_some(why)
    }

    fn note_level(&mut self, unit: Option<&UnitId>, level: Level, why: &str, now: Now) {
        let known = self.run.levels.get(&unit.cloned()).map_or(Level::Fine, |(level, _)| *level);
        if level <= known {
            return;
        }
        let (why, unit) = (why.to_owned(), unit.cloned());
        let event = match level {
            Level::Spent => RunEvent::BudgetSpent { why, unit },
            _ => RunEvent::BudgetWarned { why, unit },
        };
        self.record(event, now);
    }

    fn stop_all(&mut self, why: &str, now: Now) {
        let waiting: Vec<UnitId> = self.run.waiting().map(|unit| unit.setup.id.clone()).collect();
        for unit in waiting {
            let (outcome, why) =
                (Outcome::Stopped(StopReason::Budget), format!("the budget of the run is spent: {why}"));
            self.record_unit(&unit, UnitEvent::UnitSettled { facts: None, outcome, why }, now);
        }
        let active = self.run.active().filter(|unit| unit.stop().is_none());
        let active: Vec<UnitId> = active.map(|unit| unit.setup.id.clone()).collect();
        for unit in active {
            self.stop_for_budget(&unit, now);
        }
    }

    fn stop_for_budget(&mut self, id: &UnitId, now: Now) {
        // What is being settled is not stopped: it has come to its own end.
        if !matches!(self.state(id), Some(UnitState::Settling { .. })) {
            // It is active, so it does not refuse.
            let _ = self.stop_unit(id, StopReason::Budget, false, now);
        }
    }
}
