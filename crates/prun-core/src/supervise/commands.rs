//! What people may ask of a supervisor, and what it answers.

use super::{Command, Effect, Reply, RepositoryCheck, Supervisor};
use crate::digest::counted;
use crate::event::{RequeuedBy, RetryHow, RunEvent, UnitEvent};
use crate::ids::{ExecutorName, UnitId};
use crate::outcome::{Channel, Outcome, StopReason};
use crate::time::Now;
use crate::unit::{AttemptRecord, Disposition, Unit, UnitState};

/// Why not, and what to do instead.
pub(super) type Refusal = (String, Option<String>);
/// What happened, in a sentence.
pub(super) type Obeyed = Result<String, Refusal>;

impl Supervisor {
    /// Does what is asked, and answers.
    pub(super) fn obey(&mut self, token: u64, command: Command, now: Now) {
        let done = match command {
            Command::Ping => Ok("alive".to_owned()),
            Command::Stop { unit: Some(unit), now: at_once } => self.stop_unit(&unit, StopReason::User, at_once, now),
            Command::Stop { unit: None, now: at_once } => Ok(self.stop_run(at_once, now)),
            Command::Submit { unit } => self.submit(&unit),
            Command::Retry { unit, how, message } => self.retry(&unit, how, message, now),
            Command::Accept { unit, why, salvaged } => self.accept(&unit, why, salvaged, now),
            Command::Exclude { unit, why } => self.exclude(&unit, why, now),
            Command::Unreview { unit } => self.unreview(&unit, now),
            Command::SetBudget { budget } => {
                self.record(RunEvent::BudgetSet { budget }, now);
                Ok("the budget is set".to_owned())
            }
            Command::Release { executor } => self.release_by_hand(executor, now),
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
        let mut stopped = 0_usize;
        for unit in units {
            // Settled units refuse, and have nothing to stop.
            stopped += usize::from(self.stop_unit(&unit, StopReason::RunStopped, at_once, now).is_ok());
        }
        format!("stopping {}", counted(stopped, "unit"))
    }

    pub(super) fn stop_unit(&mut self, id: &UnitId, reason: StopReason, at_once: bool, now: Now) -> Obeyed {
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
        if self.run.stop.is_some() && self.run.ended.is_none() {
            let hint = "`prun resume` goes on with the whole run once it has stopped".to_owned();
            return Err(("the run is being stopped".to_owned(), Some(hint)));
        }
        if self.run.is_spent() {
            let hint = "`prun resume --budget tokens=…` raises it and goes on".to_owned();
            return Err(("the budget of the run is spent".to_owned(), Some(hint)));
        }
        if how == RetryHow::Continue && !unit.attempts.iter().any(AttemptRecord::was_started) {
            return Err((format!("{id} has no attempt to continue"), Some("retry it without --continue".to_owned())));
        }
        self.record_unit(id, UnitEvent::UnitRequeued { by: RequeuedBy::User, how, message }, now);
        // What it makes now is not what was chosen.
        self.take_back_passed_over(id, now);
        self.repository = RepositoryCheck::Due;
        Ok(format!("{id} is queued again"))
    }

    fn accept(&mut self, id: &UnitId, why: String, salvaged: bool, now: Now) -> Obeyed {
        let unit = self.reviewable(id)?;
        let facts = unit.facts();
        let is_salvage =
            facts.and_then(|facts| facts.result.as_ref()).is_some_and(|result| result.channel == Channel::Salvage);
        if is_salvage && !salvaged {
            let hint = format!("read it with `prun result {id}`, then `prun accept {id} --salvaged -m WHY`");
            return Err((format!("the result of {id} was only salvaged from its output"), Some(hint)));
        }
        let passed_over = self.passed_over_by(id)?;
        for other in &passed_over {
            let event = UnitEvent::Excluded { why: why.clone(), instead: Some(id.clone()) };
            self.record_unit(other, event, now);
        }
        self.record_unit(id, UnitEvent::Accepted { why, salvaged }, now);
        Ok(match passed_over.as_slice() {
            [] => format!("{id} is accepted"),
            [other] => format!("{id} is accepted; {other} stays out"),
            others => format!("{id} is accepted; {} of its panel stay out", others.len()),
        })
    }

    /// The other members of its panel, which stay out when it is accepted: at most one of them lands.
    fn passed_over_by(&self, id: &UnitId) -> Result<Vec<UnitId>, Refusal> {
        let Some(panel) = self.known(id)?.setup.panel.clone() else { return Ok(Vec::new()) };
        let others = self.run.units.iter().filter(|unit| unit.setup.panel.as_ref() == Some(&panel));
        let mut passed_over = Vec::new();
        for other in others.filter(|unit| unit.setup.id != *id) {
            let name = &other.setup.id;
            if !other.is_settled() {
                let hint = format!("wait for it, or `prun stop {name}`, then choose");
                return Err((format!("{name} of the same panel is {}", other.state.name()), Some(hint)));
            }
            match other.disposition {
                Disposition::Applied { .. } => {
                    let message = format!("{name} of the same panel has landed, and at most one of them does");
                    return Err((message, Some("`prun undo` takes the landing back".to_owned())));
                }
                Disposition::Excluded { instead: None, .. } => {}
                Disposition::Unreviewed | Disposition::Accepted { .. } | Disposition::Excluded { .. } => {
                    passed_over.push(name.clone());
                }
            }
        }
        Ok(passed_over)
    }

    fn exclude(&mut self, id: &UnitId, why: String, now: Now) -> Obeyed {
        self.reviewable(id)?;
        self.record_unit(id, UnitEvent::Excluded { why, instead: None }, now);
        self.take_back_passed_over(id, now);
        Ok(format!("{id} is excluded"))
    }

    fn unreview(&mut self, id: &UnitId, now: Now) -> Obeyed {
        let unit = self.reviewable(id)?;
        let panel = unit.setup.panel.clone();
        self.record_unit(id, UnitEvent::Unreviewed, now);
        let came_back = self.take_back_passed_over(id, now);
        Ok(match panel.filter(|_| came_back) {
            Some(panel) => format!("{panel} is undecided again"),
            None => format!("{id} is undecided again"),
        })
    }

    /// Once `id` is not taken any more, who was passed over for it is undecided with it. Whom the user excluded by name
    /// stays out. Whether there was anybody.
    fn take_back_passed_over(&mut self, id: &UnitId, now: Now) -> bool {
        let is_out = |unit: &&Unit| match &unit.disposition {
            Disposition::Excluded { instead, .. } => instead.as_ref() == Some(id),
            _ => false,
        };
        let others: Vec<UnitId> = self.run.units.iter().filter(is_out).map(|unit| unit.setup.id.clone()).collect();
        for other in &others {
            self.record_unit(other, UnitEvent::Unreviewed, now);
        }
        !others.is_empty()
    }

    fn release_by_hand(&mut self, executor: ExecutorName, now: Now) -> Obeyed {
        if !self.run.holds.contains_key(&executor) {
            return Err((format!("{executor} is not held in this run"), None));
        }
        let message = format!("{executor} is released");
        self.record(RunEvent::ExecutorReleased { executor }, now);
        Ok(message)
    }

    fn reviewable(&self, id: &UnitId) -> Result<&Unit, Refusal> {
        let unit = self.known(id)?;
        if !unit.is_settled() {
            return Err((
                format!("{id} is {}, not settled", unit.state.name()),
                Some("wait for it, or stop it".into()),
            ));
        }
        if matches!(unit.disposition, Disposition::Applied { .. }) {
            return Err((format!("{id} has landed already"), Some("`prun undo` takes the landing back".to_owned())));
        }
        Ok(unit)
    }

    fn known(&self, id: &UnitId) -> Result<&Unit, Refusal> {
        self.run.unit(id).ok_or_else(|| (format!("this run has no unit {id}"), None))
    }
}
