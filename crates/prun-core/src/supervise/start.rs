//! Starts of units: slots in hand, a machine that can take one more, and then the attempt begins.

use super::{Effect, Pressed, Supervisor, attempt_dir};
use crate::event::{EventKind, RunEvent, UnitEvent};
use crate::ids::ExecutorName;
use crate::schedule::{ASK_AGAIN_MILLIS, Start, schedule};
use crate::time::Now;

impl Supervisor {
    pub(super) fn start_units(&mut self, now: Now) {
        let plan = schedule(&self.run, &self.resources, now);
        self.look_again = plan.look_again.into_iter().chain(self.next_budget_look(now)).min();
        if let Some(why) = self.pressed.clone().filter(|_| plan.is_pressed && self.run.paused.is_none()) {
            self.record(RunEvent::StartsPaused { why }, now);
        }
        for Start { unit, executor, why } in plan.starts {
            let Some(found) = self.run.unit(&unit) else { continue };
            let (attempt, next) = (found.attempt().next(), found.next.clone());
            let dir = attempt_dir(&unit, attempt);
            self.resources.last_start.insert(executor.clone(), now.mono);
            if let Some(account) = self.resources.accounts.get_mut(&executor) {
                account.in_hand = account.in_hand.saturating_sub(1);
            }
            let began = UnitEvent::AttemptBegan { executor: executor.clone(), dir, why };
            self.push_event(EventKind::unit(&unit, attempt, began), now);
            self.effects.push(Effect::Prepare { unit, attempt, executor, next });
        }
        self.give_slots_back();
        for (executor, count) in plan.wants {
            if let Some(account) = self.resources.accounts.get_mut(&executor) {
                account.is_asked = true;
                self.effects.push(Effect::TakeSlots { executor, count });
            }
        }
    }

    /// A slot that no unit needs now may be another run's.
    fn give_slots_back(&mut self) {
        for (executor, account) in &mut self.resources.accounts {
            let count = std::mem::take(&mut account.in_hand);
            if count > 0 {
                self.effects.push(Effect::GiveSlotsBack { executor: executor.clone(), count });
            }
        }
    }

    pub(super) fn note_slots(&mut self, executor: &ExecutorName, wanted: u32, taken: u32, now: Now) {
        let Some(account) = self.resources.accounts.get_mut(executor) else { return };
        account.is_asked = false;
        account.in_hand = account.in_hand.saturating_add(taken);
        account.ask_again_at = (taken < wanted).then(|| now.mono.saturating_add(ASK_AGAIN_MILLIS));
    }

    /// It is told in the ledger once it keeps a unit from starting.
    pub(super) fn note_pressure(&mut self, pressed: Option<Pressed>, now: Now) {
        self.resources.pressure = pressed.as_ref().map(|pressed| pressed.what);
        self.pressed = pressed.map(|pressed| pressed.why);
        if self.pressed.is_none() && self.run.paused.is_some() {
            self.record(RunEvent::StartsResumed, now);
        }
    }
}
