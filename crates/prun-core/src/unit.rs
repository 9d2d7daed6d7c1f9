//! The state machine of one unit. READ FIRST.
//!
//! [`Unit::apply`] is the only place where a unit's state changes: live, on replay and in every display.
//!
//! | event | legal from | to |
//! |---|---|---|
//! | AttemptBegan | Queued, Backoff | Preparing |
//! | WorkspaceReady | Preparing, Stopping | same |
//! | ProcessStarted | Preparing; Stopping | Running; Stopping |
//! | StartFailed | Preparing, Stopping, Lost | Settling (only if nothing was started) |
//! | HandedOver, WentQuiet, BecameActive | Running | Running |
//! | StopRequested | Preparing, Running, Lost; Settling | Stopping; Settling |
//! | StopEscalated | Stopping | Stopping |
//! | ProcessExited | Running, Stopping, Lost | Settling |
//! | RetryScheduled | Settling (unless a stop was asked for) | Backoff |
//! | UnitSettled | Settling; Queued, Backoff (only Stopped) | Settled |
//! | UnitLost | Preparing, Running, Stopping, Settling | Lost |
//! | UnitAdopted | Lost | the state it was lost from |
//! | UnitRequeued | Settled (not Applied); Lost | Queued |
//! | Accepted, Excluded, Unreviewed, Applied, Reharvested | Settled | same |

use serde::{Deserialize, Serialize};

use crate::budget::{Level, Spent};
use crate::event::{ProcessIdentity, RequeuedBy, RetryHow, UnitEvent, UnitSetup};
use crate::ids::{Attempt, ExecutorName, UnitId};
use crate::outcome::{AttemptFacts, Cause, Outcome, StopReason, Usage};
use crate::policy::Spends;
use crate::time::Timestamp;

/// A unit and all that is known of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// What the plan says.
    pub setup: UnitSetup,
    /// Where it stands.
    pub state: UnitState,
    /// Whether its changes take part in landing, as decided by the user.
    pub disposition: Disposition,
    /// The attempts so far, oldest first. The last one decides.
    pub attempts: Vec<AttemptRecord>,
    /// How the next attempt begins, set by a requeue.
    pub next: NextAttempt,
    /// Retries that were spent since the last requeue by a person.
    pub retries_spent: u32,
    /// Attempts since then that were not its fault, and were repeated without a retry.
    pub repeats: u32,
    /// Executors that cannot finish it, as was seen since then.
    pub barred: Vec<ExecutorName>,
    /// How many attempts there were before then: its budget is for those after them.
    pub paid_attempts: usize,
    /// When it last changed its state.
    pub since: Timestamp,
}

/// Where a unit stands. Each state holds the data that only it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnitState {
    /// It waits for a slot.
    Queued,
    /// It waits for its next attempt.
    Backoff {
        /// When that may begin.
        until: Timestamp,
    },
    /// Its workspace is being made.
    Preparing,
    /// Its dispatcher runs.
    Running(Running),
    /// Its end was asked for.
    Stopping {
        /// Who or what asked.
        reason: StopReason,
        /// Its dispatcher, once it was started.
        process: Option<ProcessIdentity>,
        /// The end was asked for again.
        escalated: bool,
    },
    /// Its dispatcher is gone, or nothing was started; the verdict is being made.
    Settling {
        /// A stop was asked for: no retry follows.
        stop: Option<StopReason>,
        /// Why nothing was started, where nothing was.
        start_failed: Option<(Cause, String)>,
    },
    /// It is over.
    Settled {
        /// The verdict.
        outcome: Outcome,
        /// Why, in a sentence.
        why: String,
    },
    /// A new supervisor does not know yet what became of it.
    Lost {
        /// The state it was lost from; never `Lost` itself.
        from: Box<UnitState>,
    },
}

/// A running unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    /// Its dispatcher.
    pub process: ProcessIdentity,
    /// It waits for the coordinator's own subagent.
    pub handed_over: bool,
    /// No sign of life for half its idle limit.
    pub quiet: bool,
}

/// Whether a unit's changes take part in landing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Disposition {
    /// Nobody decided; the outcome does.
    #[default]
    Unreviewed,
    /// They do, although the outcome alone would not let them.
    Accepted {
        /// Why, in the user's words.
        why: String,
        /// Also a result that was only salvaged.
        salvaged: bool,
    },
    /// They do not.
    Excluded {
        /// Why, in the user's words.
        why: String,
        /// The member of its panel that was taken instead, where it was not excluded by its own name.
        instead: Option<UnitId>,
    },
    /// They are in the user's working tree.
    Applied {
        /// The tree that was landed.
        tree: String,
    },
}

/// One attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptRecord {
    /// Its number.
    pub attempt: Attempt,
    /// Who does it.
    pub executor: ExecutorName,
    /// Its directory, relative to the run's.
    pub dir: String,
    /// How it was to begin.
    pub begins: NextAttempt,
    /// When it began.
    pub began: Timestamp,
    /// When its dispatcher was started.
    pub started: Option<Timestamp>,
    /// When it was settled.
    pub ended: Option<Timestamp>,
    /// The verdict on it, once there is one.
    pub outcome: Option<Outcome>,
    /// What was seen of it.
    pub facts: Option<Box<AttemptFacts>>,
}

impl AttemptRecord {
    /// Whether its workspace was handed to a dispatcher. One that a dead supervisor started is known by its
    /// facts alone.
    #[must_use]
    pub fn was_started(&self) -> bool {
        self.started.is_some() || self.facts.is_some()
    }
}

/// How the next attempt begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NextAttempt {
    /// Where.
    pub how: RetryHow,
    /// What to tell the worker.
    pub message: Option<String>,
}

impl Default for NextAttempt {
    fn default() -> Self {
        Self { how: RetryHow::Fresh, message: None }
    }
}

/// An event that the state does not allow. Live a bug; on replay the ledger is damaged there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{event} is not legal for a unit that is {state}")]
pub struct IllegalTransition {
    /// The event's name.
    pub event: String,
    /// The state's name.
    pub state: &'static str,
}

impl Unit {
    /// A unit that waits for its first attempt.
    #[must_use]
    pub fn new(setup: UnitSetup, at: Timestamp) -> Self {
        Self {
            setup,
            state: UnitState::Queued,
            disposition: Disposition::Unreviewed,
            attempts: Vec::new(),
            next: NextAttempt::default(),
            retries_spent: 0,
            repeats: 0,
            barred: Vec::new(),
            paid_attempts: 0,
            since: at,
        }
    }

    /// The number of the current or last attempt; 0 before the first.
    #[must_use]
    pub fn attempt(&self) -> Attempt {
        self.attempts.last().map_or(Attempt(0), |record| record.attempt)
    }

    /// The facts of the last attempt, where it is settled and there are any.
    #[must_use]
    pub fn facts(&self) -> Option<&AttemptFacts> {
        self.attempts.last().and_then(|record| record.facts.as_deref())
    }

    /// What earlier attempts spent in this session of the client's.
    #[must_use]
    pub fn spent_in(&self, session: &str) -> Usage {
        let facts = self.attempts.iter().filter_map(|record| record.facts.as_deref());
        let shares = facts.filter(|facts| facts.session.as_deref() == Some(session)).filter_map(|facts| facts.usage);
        shares.fold(Usage::default(), |sum, share| sum.plus(&share))
    }

    /// What counts towards its budget: its attempts since it began, or since a person had it tried again; `using` is
    /// what the one under way has used so far.
    #[must_use]
    pub fn spent(&self, using: Option<&Usage>, now: Timestamp) -> Spent {
        let attempts = &self.attempts[self.paid_attempts.min(self.attempts.len())..];
        let ended = attempts.iter().filter_map(|record| record.facts.as_ref()?.usage.as_ref());
        Spent {
            usage: ended.chain(using).fold(Usage::default(), |sum, one| sum.plus(one)),
            millis: attempts.iter().map(|record| record.ended.unwrap_or(now).since(record.began)).sum(),
        }
    }

    /// The verdict, once settled.
    #[must_use]
    pub fn outcome(&self) -> Option<&Outcome> {
        match &self.state {
            UnitState::Settled { outcome, .. } => Some(outcome),
            _ => None,
        }
    }

    /// Whether it is over.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.outcome().is_some()
    }

    /// Whether a resume of the run takes it up again: it was stopped with the run, or what stood in its way was
    /// no fault of its own, and nobody decided on it since. One that has spent its own budget waits for a retry.
    #[must_use]
    pub fn goes_on_after_resume(&self) -> bool {
        let is_spent = || self.setup.budget.level(&self.spent(None, self.since)).0 == Level::Spent;
        self.disposition == Disposition::Unreviewed
            && !is_spent()
            && matches!(
                self.outcome(),
                Some(
                    Outcome::Stopped(StopReason::RunStopped | StopReason::Hold | StopReason::Budget)
                        | Outcome::Failed(Cause::Auth | Cause::UsageLimit)
                )
            )
    }

    /// Whether it waits for its first or its next attempt.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        matches!(self.state, UnitState::Queued | UnitState::Backoff { .. })
    }

    /// Whether it holds a slot: something of it may be alive.
    #[must_use]
    pub fn is_active(&self) -> bool {
        !matches!(self.state, UnitState::Queued | UnitState::Backoff { .. } | UnitState::Settled { .. })
    }

    /// Moves the unit by one event of `attempt`, recorded at `at`.
    ///
    /// # Errors
    /// The event is not legal in this state, or belongs to another attempt. The unit is unchanged then.
    pub fn apply(&mut self, attempt: Attempt, event: &UnitEvent, at: Timestamp) -> Result<(), IllegalTransition> {
        let expected = match event {
            UnitEvent::AttemptBegan { .. } => self.attempt().next(),
            _ => self.attempt(),
        };
        if attempt != expected {
            return Err(self.illegal(event));
        }
        let state = self.next_state(event)?;
        self.note(event, at);
        if state != self.state {
            self.since = at;
            self.state = state;
        }
        Ok(())
    }

    fn next_state(&self, event: &UnitEvent) -> Result<UnitState, IllegalTransition> {
        use UnitState::{Backoff, Lost, Preparing, Queued, Running as Run, Settled, Settling, Stopping};
        let same = || Ok(self.state.clone());
        match (event, &self.state) {
            (UnitEvent::AttemptBegan { .. }, Queued | Backoff { .. }) => Ok(Preparing),
            (UnitEvent::WorkspaceReady { .. }, Preparing | Stopping { .. }) => same(),
            (UnitEvent::ProcessStarted { process }, Preparing) => {
                Ok(Run(Running { process: process.clone(), handed_over: false, quiet: false }))
            }
            (UnitEvent::ProcessStarted { process }, Stopping { reason, process: None, escalated }) => {
                Ok(Stopping { reason: *reason, process: Some(process.clone()), escalated: *escalated })
            }
            (UnitEvent::StartFailed { cause, message }, Preparing | Stopping { process: None, .. } | Lost { .. })
                if !self.was_started() =>
            {
                Ok(Settling { stop: self.stop(), start_failed: Some((*cause, message.clone())) })
            }
            (UnitEvent::HandedOver, Run(run)) => Ok(Run(Running { handed_over: true, ..run.clone() })),
            (UnitEvent::WentQuiet { .. }, Run(run)) => Ok(Run(Running { quiet: true, ..run.clone() })),
            (UnitEvent::BecameActive, Run(run)) => Ok(Run(Running { quiet: false, ..run.clone() })),
            (UnitEvent::StopRequested { reason }, Preparing | Run(_) | Lost { .. }) => Ok(Stopping {
                reason: self.stop().unwrap_or(*reason),
                process: self.process().cloned(),
                escalated: false,
            }),
            (UnitEvent::StopRequested { reason }, Settling { stop, start_failed }) => {
                Ok(Settling { stop: stop.or(Some(*reason)), start_failed: start_failed.clone() })
            }
            (UnitEvent::StopEscalated, Stopping { reason, process, .. }) => {
                Ok(Stopping { reason: *reason, process: process.clone(), escalated: true })
            }
            (UnitEvent::ProcessExited { .. }, Run(_) | Stopping { .. } | Lost { .. }) => {
                Ok(Settling { stop: self.stop(), start_failed: None })
            }
            (UnitEvent::RetryScheduled { at, .. }, Settling { stop: None, .. }) => Ok(Backoff { until: *at }),
            (UnitEvent::UnitSettled { outcome, why, .. }, Settling { .. }) => {
                Ok(Settled { outcome: outcome.clone(), why: why.clone() })
            }
            (UnitEvent::UnitSettled { outcome: outcome @ Outcome::Stopped(_), why, .. }, Queued | Backoff { .. }) => {
                Ok(Settled { outcome: outcome.clone(), why: why.clone() })
            }
            (UnitEvent::UnitLost, Preparing | Run(_) | Stopping { .. } | Settling { .. }) => {
                Ok(Lost { from: Box::new(self.state.clone()) })
            }
            (UnitEvent::UnitAdopted, Lost { from }) => Ok((**from).clone()),
            (UnitEvent::UnitRequeued { .. }, Settled { .. }) if !self.is_applied() => Ok(Queued),
            (UnitEvent::UnitRequeued { by: RequeuedBy::Recovery, .. }, Lost { .. }) => Ok(Queued),
            (UnitEvent::Accepted { .. } | UnitEvent::Excluded { .. }, Settled { .. }) if !self.is_applied() => same(),
            (UnitEvent::Unreviewed | UnitEvent::Applied { .. } | UnitEvent::Reharvested { .. }, Settled { .. }) => {
                same()
            }
            _ => Err(self.illegal(event)),
        }
    }

    /// Takes down what an event says beside the state.
    fn note(&mut self, event: &UnitEvent, at: Timestamp) {
        match event {
            UnitEvent::AttemptBegan { executor, dir, .. } => {
                let record = AttemptRecord {
                    attempt: self.attempt().next(),
                    executor: executor.clone(),
                    dir: dir.clone(),
                    begins: std::mem::take(&mut self.next),
                    began: at,
                    started: None,
                    ended: None,
                    outcome: None,
                    facts: None,
                };
                self.attempts.push(record);
            }
            UnitEvent::ProcessStarted { .. } => self.with_last(|last| last.started = Some(at)),
            UnitEvent::RetryScheduled { facts, outcome, spends, begins, bars, .. } => {
                self.end_last(facts.as_deref(), outcome, at);
                self.next = begins.clone();
                match spends {
                    Spends::Retry => self.retries_spent = self.retries_spent.saturating_add(1),
                    Spends::Repeat => self.repeats = self.repeats.saturating_add(1),
                }
                self.barred.extend(self.attempts.last().filter(|_| *bars).map(|last| last.executor.clone()));
            }
            // A unit that is settled while it waits keeps the verdict on its last attempt.
            UnitEvent::UnitSettled { facts, outcome, .. } if matches!(self.state, UnitState::Settling { .. }) => {
                self.end_last(facts.as_deref(), outcome, at);
            }
            UnitEvent::UnitRequeued { by, how, message } => {
                self.next = NextAttempt { how: *how, message: message.clone() };
                self.disposition = Disposition::Unreviewed;
                if *by == RequeuedBy::User {
                    self.retries_spent = 0;
                    self.repeats = 0;
                    self.barred.clear();
                    self.paid_attempts = self.attempts.len();
                }
            }
            UnitEvent::Accepted { why, salvaged } => {
                self.disposition = Disposition::Accepted { why: why.clone(), salvaged: *salvaged };
            }
            UnitEvent::Excluded { why, instead } => {
                self.disposition = Disposition::Excluded { why: why.clone(), instead: instead.clone() };
            }
            UnitEvent::Unreviewed => self.disposition = Disposition::Unreviewed,
            UnitEvent::Applied { tree } => self.disposition = Disposition::Applied { tree: tree.clone() },
            UnitEvent::Reharvested { facts } => self.with_last(|last| last.facts = Some(facts.clone())),
            _ => {}
        }
    }

    fn with_last(&mut self, change: impl FnOnce(&mut AttemptRecord)) {
        if let Some(last) = self.attempts.last_mut() {
            change(last);
        }
    }

    fn end_last(&mut self, facts: Option<&AttemptFacts>, outcome: &Outcome, at: Timestamp) {
        self.with_last(|last| {
            last.ended = Some(at);
            last.outcome = Some(outcome.clone());
            last.facts = facts.cloned().map(Box::new);
        });
    }

    fn is_applied(&self) -> bool {
        matches!(self.disposition, Disposition::Applied { .. })
    }

    /// Whether a dispatcher of the current attempt was started, as far as was recorded.
    #[must_use]
    pub fn was_started(&self) -> bool {
        self.attempts.last().is_some_and(AttemptRecord::was_started)
    }

    /// The stop that was asked for, also before the unit was lost.
    #[must_use]
    pub fn stop(&self) -> Option<StopReason> {
        fn of(state: &UnitState) -> Option<StopReason> {
            match state {
                UnitState::Stopping { reason, .. } => Some(*reason),
                UnitState::Settling { stop, .. } => *stop,
                UnitState::Lost { from } => of(from),
                _ => None,
            }
        }
        of(&self.state)
    }

    /// Its dispatcher, where one was started and may be alive.
    #[must_use]
    pub fn process(&self) -> Option<&ProcessIdentity> {
        fn of(state: &UnitState) -> Option<&ProcessIdentity> {
            match state {
                UnitState::Running(run) => Some(&run.process),
                UnitState::Stopping { process, .. } => process.as_ref(),
                UnitState::Lost { from } => of(from),
                _ => None,
            }
        }
        of(&self.state)
    }

    fn illegal(&self, event: &UnitEvent) -> IllegalTransition {
        let unit = &self.setup.id;
        IllegalTransition {
            event: crate::event::EventKind::unit(unit, self.attempt(), event.clone()).name(),
            state: self.state.name(),
        }
    }
}

impl UnitState {
    /// The state's stable name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Backoff { .. } => "backoff",
            Self::Preparing => "preparing",
            Self::Running(_) => "running",
            Self::Stopping { .. } => "stopping",
            Self::Settling { .. } => "settling",
            Self::Settled { .. } => "settled",
            Self::Lost { .. } => "lost",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budget;
    use crate::event::Mode;

    fn process() -> ProcessIdentity {
        ProcessIdentity { boot_id: "b".into(), pid: 7, start_ticks: 9 }
    }

    /// Every event that there is, one of each kind (two where a condition depends on it).
    fn events() -> Vec<(&'static str, UnitEvent)> {
        let stopped = Outcome::Stopped(StopReason::User);
        vec![
            (
                "AttemptBegan",
                UnitEvent::AttemptBegan {
                    executor: "codex".parse().unwrap(),
                    dir: "units/u/1".into(),
                    why: "w".into(),
                },
            ),
            ("WorkspaceReady", UnitEvent::WorkspaceReady { millis: 1 }),
            ("ProcessStarted", UnitEvent::ProcessStarted { process: process() }),
            ("StartFailed", UnitEvent::StartFailed { cause: Cause::Setup, message: "m".into() }),
            ("HandedOver", UnitEvent::HandedOver),
            ("WentQuiet", UnitEvent::WentQuiet { seconds: 3 }),
            ("BecameActive", UnitEvent::BecameActive),
            ("StopRequested", UnitEvent::StopRequested { reason: StopReason::User }),
            ("StopEscalated", UnitEvent::StopEscalated),
            ("ProcessExited", UnitEvent::ProcessExited { settled_itself: true }),
            (
                "RetryScheduled",
                UnitEvent::RetryScheduled {
                    facts: None,
                    outcome: Outcome::Failed(Cause::ExitCode),
                    at: Timestamp(5),
                    why: "w".into(),
                    spends: Spends::Retry,
                    begins: NextAttempt::default(),
                    bars: false,
                },
            ),
            ("UnitSettled", UnitEvent::UnitSettled { facts: None, outcome: Outcome::Succeeded, why: "w".into() }),
            ("UnitSettled/stopped", UnitEvent::UnitSettled { facts: None, outcome: stopped, why: "w".into() }),
            ("UnitLost", UnitEvent::UnitLost),
            ("UnitAdopted", UnitEvent::UnitAdopted),
            ("UnitRequeued/user", requeued(RequeuedBy::User)),
            ("UnitRequeued/recovery", requeued(RequeuedBy::Recovery)),
            ("Accepted", UnitEvent::Accepted { why: "w".into(), salvaged: false }),
            ("Excluded", UnitEvent::Excluded { why: "w".into(), instead: None }),
            ("Unreviewed", UnitEvent::Unreviewed),
            ("Applied", UnitEvent::Applied { tree: "t".into() }),
            ("Reharvested", UnitEvent::Reharvested { facts: Box::new(crate::outcome::tests::good_facts()) }),
        ]
    }

    fn requeued(by: RequeuedBy) -> UnitEvent {
        UnitEvent::UnitRequeued { by, how: RetryHow::Fresh, message: None }
    }

    /// A unit after the named events, with the attempt number that each needs.
    fn after(names: &[&str]) -> Unit {
        let setup = UnitSetup {
            id: "u".parse().unwrap(),
            mode: Mode::Write,
            executors: vec!["codex".parse().unwrap()],
            retries: 1,
            owns: Vec::new(),
            panel: None,
            priority: 0,
            budget: Budget::default(),
        };
        let mut unit = Unit::new(setup, Timestamp(0));
        for name in names {
            let event = events().into_iter().find(|(known, _)| known == name).unwrap().1;
            try_apply(&mut unit, name, &event).unwrap();
        }
        unit
    }

    fn try_apply(unit: &mut Unit, name: &str, event: &UnitEvent) -> Result<(), IllegalTransition> {
        let attempt = if name == "AttemptBegan" { unit.attempt().next() } else { unit.attempt() };
        unit.apply(attempt, event, Timestamp(1))
    }

    const RUN: [&str; 2] = ["AttemptBegan", "ProcessStarted"];

    fn path(extra: &[&'static str]) -> Vec<&'static str> {
        RUN.iter().copied().chain(extra.iter().copied()).collect()
    }

    /// The table at the head of this file, row by row: from these states, to that one.
    #[test]
    fn the_whole_table_holds() {
        let from: Vec<(&str, Vec<&str>)> = vec![
            ("queued", vec![]),
            ("backoff", path(&["ProcessExited", "RetryScheduled"])),
            ("preparing", vec!["AttemptBegan"]),
            ("running", path(&[])),
            ("stopping-before-start", vec!["AttemptBegan", "StopRequested"]),
            ("stopping", path(&["StopRequested"])),
            ("settling", path(&["ProcessExited"])),
            ("settling-stop", path(&["StopRequested", "ProcessExited"])),
            ("settled", path(&["ProcessExited", "UnitSettled"])),
            ("applied", path(&["ProcessExited", "UnitSettled", "Applied"])),
            ("lost-preparing", vec!["AttemptBegan", "UnitLost"]),
            ("lost-running", path(&["UnitLost"])),
            ("lost-stopping", path(&["StopRequested", "UnitLost"])),
            ("lost-settling", path(&["ProcessExited", "UnitLost"])),
        ];
        let legal: &[(&str, &[(&str, &str)])] = &[
            ("AttemptBegan", &[("queued", "preparing"), ("backoff", "preparing")]),
            (
                "WorkspaceReady",
                &[("preparing", "preparing"), ("stopping", "stopping"), ("stopping-before-start", "stopping")],
            ),
            ("ProcessStarted", &[("preparing", "running"), ("stopping-before-start", "stopping")]),
            (
                "StartFailed",
                &[("preparing", "settling"), ("stopping-before-start", "settling"), ("lost-preparing", "settling")],
            ),
            ("HandedOver", &[("running", "running")]),
            ("WentQuiet", &[("running", "running")]),
            ("BecameActive", &[("running", "running")]),
            (
                "StopRequested",
                &[
                    ("preparing", "stopping"),
                    ("running", "stopping"),
                    ("settling", "settling"),
                    ("settling-stop", "settling"),
                    ("lost-preparing", "stopping"),
                    ("lost-running", "stopping"),
                    ("lost-stopping", "stopping"),
                    ("lost-settling", "stopping"),
                ],
            ),
            ("StopEscalated", &[("stopping", "stopping"), ("stopping-before-start", "stopping")]),
            (
                "ProcessExited",
                &[
                    ("running", "settling"),
                    ("stopping", "settling"),
                    ("stopping-before-start", "settling"),
                    ("lost-preparing", "settling"),
                    ("lost-running", "settling"),
                    ("lost-stopping", "settling"),
                    ("lost-settling", "settling"),
                ],
            ),
            ("RetryScheduled", &[("settling", "backoff")]),
            ("UnitSettled", &[("settling", "settled"), ("settling-stop", "settled")]),
            (
                "UnitSettled/stopped",
                &[("settling", "settled"), ("settling-stop", "settled"), ("queued", "settled"), ("backoff", "settled")],
            ),
            (
                "UnitLost",
                &[
                    ("preparing", "lost"),
                    ("running", "lost"),
                    ("stopping", "lost"),
                    ("stopping-before-start", "lost"),
                    ("settling", "lost"),
                    ("settling-stop", "lost"),
                ],
            ),
            (
                "UnitAdopted",
                &[
                    ("lost-preparing", "preparing"),
                    ("lost-running", "running"),
                    ("lost-stopping", "stopping"),
                    ("lost-settling", "settling"),
                ],
            ),
            ("UnitRequeued/user", &[("settled", "queued")]),
            (
                "UnitRequeued/recovery",
                &[
                    ("settled", "queued"),
                    ("lost-preparing", "queued"),
                    ("lost-running", "queued"),
                    ("lost-stopping", "queued"),
                    ("lost-settling", "queued"),
                ],
            ),
            ("Accepted", &[("settled", "settled")]),
            ("Excluded", &[("settled", "settled")]),
            ("Unreviewed", &[("settled", "settled"), ("applied", "settled")]),
            ("Applied", &[("settled", "settled"), ("applied", "settled")]),
            ("Reharvested", &[("settled", "settled"), ("applied", "settled")]),
        ];
        for (state, path) in &from {
            for (name, event) in events() {
                let row = legal.iter().find(|(known, _)| *known == name).expect("every event has a row").1;
                let expected = row.iter().find(|(from, _)| from == state).map(|(_, to)| *to);
                let before = after(path);
                let mut unit = before.clone();
                let found = try_apply(&mut unit, name, &event).ok().map(|()| unit.state.name());
                assert_eq!(found, expected, "{name} while {state}");
                if expected.is_none() {
                    assert_eq!(unit, before, "a refused {name} changed a unit that is {state}");
                }
            }
        }
    }

    #[test]
    fn events_of_another_attempt_are_refused() {
        let mut unit = after(&RUN);
        assert!(unit.apply(Attempt(2), &UnitEvent::HandedOver, Timestamp(1)).is_err());
        assert!(unit.apply(Attempt(0), &UnitEvent::HandedOver, Timestamp(1)).is_err());
    }

    #[test]
    fn a_stop_is_not_forgotten_by_a_lost_supervisor() {
        let mut unit = after(&path(&["StopRequested", "UnitLost"]));
        assert_eq!(unit.stop(), Some(StopReason::User));
        try_apply(&mut unit, "ProcessExited", &UnitEvent::ProcessExited { settled_itself: true }).unwrap();
        assert_eq!(unit.stop(), Some(StopReason::User));
    }

    #[test]
    fn a_retry_takes_the_users_decision_back() {
        let unit = after(&path(&["ProcessExited", "UnitSettled", "Accepted", "UnitRequeued/user"]));
        assert_eq!(unit.disposition, Disposition::Unreviewed);
        assert_eq!(unit.attempts.len(), 1, "the old attempt is kept");
    }
}
