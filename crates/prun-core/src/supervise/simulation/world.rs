//! The world around a simulated supervisor: its ledger, its dispatchers, what is under way to it, what fails.

use std::collections::{BTreeMap, BTreeSet};

use super::super::*;
use crate::budget::{Budget, Level};
use crate::event::{Mode, RunSetup, UnitSetup};
use crate::outcome::tests::good_facts;
use crate::outcome::{CheckFacts, ClientError, Exit, FinalEvent, Usage};
use crate::panel::panels;
use crate::policy::{MOST_REPEATS_OF_A_UNIT, Spends, run_allowance};
use crate::run::RunState;
use crate::schedule::{Account, Capacity};
use crate::time::Timestamp;
use crate::unit::Disposition;

pub(super) const JOBS: u32 = 3;
pub(super) const SLOTS: u32 = 2;
pub(super) const EXECUTORS: [&str; 2] = ["codex", "command"];

/// What has become of one dispatcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dispatcher {
    Alive,
    /// It wrote its facts and left.
    Settled,
    /// It died without facts.
    Dead,
    /// It died before it left any trace.
    Vanished,
    /// It died, and a successor wrote down what could still be seen.
    WrittenDown,
}

/// The world outside: which dispatchers there are, and what is under way to the supervisor.
pub(super) struct World {
    pub(super) ledger: Vec<Event>,
    /// The fold of the ledger, event by event: every beginning of it replays.
    replayed: RunState,
    pub(super) dispatchers: BTreeMap<(UnitId, Attempt), Dispatcher>,
    /// What each dispatcher that settled wrote.
    pub(super) facts: BTreeMap<(UnitId, Attempt), AttemptFacts>,
    processes: BTreeMap<(UnitId, Attempt), u32>,
    /// Attempts whose fence a successor has taken.
    fenced: BTreeSet<(UnitId, Attempt)>,
    pub(super) pending: Vec<Input>,
    /// Messages that arrive a second time, much later.
    pub(super) late: Vec<Input>,
    pub(super) now: Now,
    pub(super) left: bool,
    pub(super) answers: BTreeMap<u64, Reply>,
    pub(super) faults: Faults,
    /// Slots of the shared account that are taken and not used yet.
    slots_in_hand: u32,
    /// How often slots were asked for.
    asks: u32,
}

/// What fails next.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    pub(super) spawn: bool,
    pub(super) prepare: bool,
    pub(super) disk: bool,
    /// The supervisor is killed after so many acts of the next turn.
    pub(super) crash: Option<usize>,
    /// Executors that the next supervisor does not find: 1 = the first, 2 = the second, 3 = both.
    pub(super) without: u8,
}

/// What became of a supervisor in a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Done,
    /// It was killed, or left because the turn could not be recorded.
    Died,
}

fn facts_of_the_dead() -> Box<AttemptFacts> {
    Box::new(AttemptFacts { dispatcher_died: true, exit: Exit::Unobserved, ..good_facts() })
}

fn process(pid: u32) -> ProcessIdentity {
    ProcessIdentity { boot_id: "b".into(), pid, start_ticks: 1 }
}

/// Some workers use a tenth of it.
fn budget() -> Budget {
    Budget { tokens: Some(600), ..Budget::default() }
}

fn setup(units: usize, retries: u32) -> RunSetup {
    let unit = |number: usize| UnitSetup {
        id: format!("u{number}").parse().unwrap(),
        mode: Mode::Write,
        executors: vec!["codex".parse().unwrap(), "command".parse().unwrap()],
        retries,
        owns: Vec::new(),
        // Two of them do the same work.
        panel: (units > 2 && number < 2).then(|| "p".parse().unwrap()),
        priority: 0,
        // One has little to spend.
        budget: Budget { tokens: (number == 2).then_some(150), ..Budget::default() },
    };
    RunSetup {
        title: "t".into(),
        plan_digest: "d".into(),
        repo: None,
        subdir: String::new(),
        base: None,
        base_tree: Some("tree".into()),
        carried: 0,
        unseen: 0,
        guard: None,
        jobs: JOBS,
        jobs_are_chosen: false,
        verifies: true,
        budget: budget(),
        units: (0..units).map(unit).collect(),
    }
}

fn resources(without: u8) -> Resources {
    let capacity = Capacity { slots: SLOTS, stagger_millis: 50, is_agent: true };
    let names = EXECUTORS.iter().enumerate().filter(|(at, _)| without & (1 << at) == 0);
    let executors = names.map(|(_, name)| (name.parse().unwrap(), capacity)).collect();
    // One has an account that other runs use too.
    let accounts = [("codex".parse().unwrap(), Account::default())].into();
    Resources { jobs: JOBS, executors, accounts, seed: 7, ..Resources::default() }
}

impl World {
    pub(super) fn new(units: usize, retries: u32) -> Self {
        let mut world = Self {
            ledger: Vec::new(),
            replayed: RunState::default(),
            dispatchers: BTreeMap::new(),
            facts: BTreeMap::new(),
            processes: BTreeMap::new(),
            fenced: BTreeSet::new(),
            pending: Vec::new(),
            late: Vec::new(),
            now: Now::default(),
            left: false,
            answers: BTreeMap::new(),
            faults: Faults::default(),
            slots_in_hand: 0,
            asks: 0,
        };
        let kind = EventKind::run(RunEvent::PlanAccepted(Box::new(setup(units, retries))));
        world.write(Event { seq: crate::ids::Seq(1), at: Timestamp(0), kind });
        world
    }

    fn write(&mut self, event: Event) {
        check_event(&self.replayed, &event);
        self.replayed.apply(&event).expect("every beginning of a ledger replays");
        self.ledger.push(event);
    }

    /// A supervisor as a new process makes it: from the ledger alone.
    pub(super) fn supervisor(&mut self, resume: bool) -> Supervisor {
        let run = RunState::replay(&self.ledger).expect("the ledger replays");
        assert_eq!(run, self.replayed);
        // Nothing that was under way to the one before reaches its successor.
        self.pending.clear();
        self.late.clear();
        // They were its process's.
        self.slots_in_hand = 0;
        self.faults = Faults { without: self.faults.without, ..Faults::default() };
        let mut supervisor = Supervisor::new(run, resources(self.faults.without));
        let started = Input::Started { process: process(0), version: "v".into(), resume };
        self.feed(&mut supervisor, started);
        supervisor
    }

    /// One turn as the driver takes it: decide, record, carry out.
    pub(super) fn feed(&mut self, supervisor: &mut Supervisor, input: Input) -> Turn {
        let effects = supervisor.handle(input, self.now);
        if std::mem::take(&mut self.faults.disk) {
            return Turn::Died;
        }
        let (records, acts): (Vec<_>, Vec<_>) =
            effects.into_iter().partition(|effect| matches!(effect, Effect::Record(_)));
        for record in records {
            if let Effect::Record(event) = record {
                self.write(event);
            }
        }
        let crash_after = self.faults.crash.take();
        for (number, act) in acts.into_iter().enumerate() {
            if crash_after == Some(number) {
                return Turn::Died;
            }
            self.carry_out(act);
        }
        if crash_after.is_some() { Turn::Died } else { Turn::Done }
    }

    fn identity(&self, key: &(UnitId, Attempt)) -> ProcessIdentity {
        process(self.processes[key])
    }

    /// The facts that stand in the state directory of an attempt.
    fn written(&self, key: &(UnitId, Attempt)) -> Option<Box<AttemptFacts>> {
        match self.dispatchers.get(key) {
            Some(Dispatcher::Settled) => Some(Box::new(self.facts[key].clone())),
            Some(Dispatcher::WrittenDown) => Some(facts_of_the_dead()),
            _ => None,
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Record(_) => {}
            // Whoever watches a dispatcher that is gone already hears of it at once.
            Effect::Watch { unit, attempt, .. } => {
                let key = (unit.clone(), attempt);
                match self.dispatchers.get(&key) {
                    Some(Dispatcher::Alive) => {}
                    Some(_) => {
                        let facts = self.written(&key);
                        self.pending.push(Input::DispatcherExited { unit, attempt, facts });
                    }
                    None => panic!("{unit} is watched and was never started"),
                }
            }
            Effect::Prepare { unit, attempt, executor, .. } => {
                if executor.as_str() == "codex" {
                    self.slots_in_hand = self.slots_in_hand.checked_sub(1).expect("nothing starts without a slot");
                }
                let fails = std::mem::take(&mut self.faults.prepare);
                let result = if fails { Err("no space".into()) } else { Ok(3) };
                self.pending.push(Input::Prepared { unit, attempt, result });
            }
            Effect::Spawn { unit, attempt } => {
                let key = (unit.clone(), attempt);
                let living = self.dispatchers.iter().any(|((other, _), is)| *other == unit && *is == Dispatcher::Alive);
                assert!(!living, "{unit} would run twice at a time");
                assert!(!self.fenced.contains(&key), "a fenced attempt was started");
                assert!(!self.dispatchers.contains_key(&key), "an attempt was started twice");
                if std::mem::take(&mut self.faults.spawn) {
                    let result = Err("no more processes".into());
                    return self.pending.push(Input::Spawned { unit, attempt, result });
                }
                let pid = u32::try_from(self.processes.len()).expect("it is small") + 1;
                self.processes.insert(key.clone(), pid);
                self.dispatchers.insert(key, Dispatcher::Alive);
                self.pending.push(Input::Spawned { unit, attempt, result: Ok(process(pid)) });
            }
            Effect::Terminate { process, kill } => self.end_by_pid(&process, kill),
            Effect::Submit { process, .. } => self.end_by_pid(&process, false),
            Effect::Clean { unit, attempt } => {
                let key = (unit.clone(), attempt);
                let facts = match self.dispatchers.get(&key) {
                    Some(Dispatcher::Dead | Dispatcher::WrittenDown) => {
                        self.dispatchers.insert(key.clone(), Dispatcher::WrittenDown);
                        Some(facts_of_the_dead())
                    }
                    _ => None,
                };
                self.fenced.insert(key);
                self.pending.push(Input::Cleaned { unit, attempt, facts });
            }
            Effect::Observe { unit, attempt } => {
                let key = (unit.clone(), attempt);
                let found = match self.dispatchers.get(&key) {
                    None | Some(Dispatcher::Vanished) => Observation::NeverStarted,
                    Some(Dispatcher::Alive) => Observation::Alive(self.identity(&key)),
                    Some(Dispatcher::Settled) => Observation::Settled(Box::new(self.facts[&key].clone())),
                    Some(Dispatcher::Dead) => Observation::Dead(Some(facts_of_the_dead())),
                    Some(Dispatcher::WrittenDown) => Observation::Settled(facts_of_the_dead()),
                };
                if matches!(found, Observation::Dead(_)) {
                    self.dispatchers.insert(key.clone(), Dispatcher::WrittenDown);
                }
                if !matches!(found, Observation::Alive(_)) {
                    self.fenced.insert(key);
                }
                self.pending.push(Input::Observed { unit, attempt, found });
            }
            Effect::TakeSlots { executor, count } => {
                // Now and then the other runs have them all.
                self.asks += 1;
                let taken = if self.asks % 4 == 3 { count / 2 } else { count };
                self.slots_in_hand += taken;
                self.pending.push(Input::SlotsTaken { executor, wanted: count, taken });
            }
            Effect::GiveSlotsBack { count, .. } => {
                self.slots_in_hand = self.slots_in_hand.checked_sub(count).expect("they were taken");
            }
            Effect::CheckRepository => {
                self.pending.push(Input::RepositoryChecked { touched: Vec::new(), moved: None });
            }
            Effect::VerifyBase => {
                let check =
                    CheckFacts { ok: true, exit: Exit::Code { code: 0 }, timed_out: false, millis: 1, log: "l".into() };
                self.pending.push(Input::BaseVerified { tree: "tree".into(), check });
            }
            Effect::Answer { token, reply } => {
                self.answers.insert(token, reply);
            }
            Effect::Leave => self.left = true,
        }
    }

    fn end_by_pid(&mut self, process: &ProcessIdentity, kill: bool) {
        let found = self.processes.iter().find(|(_, pid)| **pid == process.pid).map(|(key, _)| key.clone());
        if let Some(key) = found {
            self.end(&key, if kill { Dispatcher::Dead } else { Dispatcher::Settled }, 0);
        }
    }

    pub(super) fn end(&mut self, key: &(UnitId, Attempt), how: Dispatcher, flavour: u8) {
        if self.dispatchers.get(key) != Some(&Dispatcher::Alive) {
            return;
        }
        self.dispatchers.insert(key.clone(), how);
        let mut facts = good_facts();
        if flavour % 3 == 1 {
            facts.exit = Exit::Code { code: 1 };
        }
        if flavour > 200 {
            facts.usage = Some(Usage { input_tokens: 60, ..Usage::default() });
        }
        if let Some(class) = class_of(flavour) {
            let resets_at = (flavour > 128).then(|| self.now.wall.plus(600_000));
            facts.final_event = FinalEvent::Failed;
            facts.error = Some(ClientError { class, message: "m".into(), resets_at });
        }
        if how == Dispatcher::Settled {
            self.facts.insert(key.clone(), facts);
        }
        let facts = self.written(key);
        self.pending.push(Input::DispatcherExited { unit: key.0.clone(), attempt: key.1, facts });
    }

    pub(super) fn living(&self) -> Vec<(UnitId, Attempt)> {
        let alive = self.dispatchers.iter().filter(|(_, is)| **is == Dispatcher::Alive);
        alive.map(|(key, _)| key.clone()).collect()
    }

    /// What holds once a run has come to its end.
    pub(super) fn check_end(&self) {
        assert!(self.living().is_empty(), "the supervisor left a living dispatcher");
        for ((unit, attempt), facts) in &self.facts {
            let unit = self.replayed.unit(unit).expect("the unit is the plan's");
            let record = unit.attempts.iter().find(|record| record.attempt == *attempt).expect("it began");
            assert_eq!(record.facts.as_deref(), Some(facts), "the result of {} {attempt} was lost", unit.setup.id);
        }
        for unit in &self.replayed.units {
            assert!(unit.retries_spent <= unit.setup.retries, "{} was retried too often", unit.setup.id);
        }
    }

    /// Whoever died did not succeed, whenever and by whomever that was found out.
    fn check_the_dead(&self, run: &RunState) {
        for ((unit, attempt), dispatcher) in &self.dispatchers {
            let records = run.unit(unit).map_or(&[][..], |unit| &unit.attempts);
            let outcome =
                records.iter().find(|record| record.attempt == *attempt).and_then(|record| record.outcome.as_ref());
            let died = !matches!(dispatcher, Dispatcher::Alive | Dispatcher::Settled);
            assert!(!died || outcome != Some(&Outcome::Succeeded), "{unit} {attempt} succeeded in death");
        }
    }

    /// What holds after every step.
    pub(super) fn check(&self, supervisor: &Supervisor) {
        assert_eq!(&self.replayed, supervisor.run(), "live state equals replay");
        self.check_the_dead(&self.replayed);
        assert!(self.replayed.active().count() <= JOBS as usize, "more units than jobs");
        for name in EXECUTORS {
            let on = |unit: &&Unit| unit.attempts.last().is_some_and(|last| last.executor.as_str() == name);
            assert!(self.replayed.active().filter(on).count() <= SLOTS as usize, "more units on {name} than slots");
        }
        for panel in panels(&self.replayed.units) {
            let accepted = |unit: &&&Unit| matches!(unit.disposition, Disposition::Accepted { .. });
            assert!(panel.members.iter().filter(accepted).count() <= 1, "two members of a panel are taken");
        }
    }
}

/// The class of error that a worker ends with, for some of the flavours.
pub(super) fn class_of(flavour: u8) -> Option<Cause> {
    let classes = [
        Cause::UsageLimit,
        Cause::RateLimit,
        Cause::Network,
        Cause::UsageLimit,
        Cause::Auth,
        Cause::Context,
        Cause::Permission,
    ];
    classes.get(usize::from(flavour.checked_sub(64)? % 14)).copied()
}

/// Nothing begins on an executor that is held or after a stop, and an interruption costs a unit nothing while the
/// run may repeat. `run` is what stands before the event.
fn check_event(run: &RunState, event: &Event) {
    let EventKind::Unit { unit, event: kind, .. } = &event.kind else { return };
    let before = run.unit(unit).expect("the unit is the plan's");
    match &**kind {
        UnitEvent::AttemptBegan { executor, .. } => {
            assert!(!run.is_spent(), "{unit} began without a budget");
            let own = before.setup.budget.level(&before.spent(None, event.at)).0;
            assert_ne!(own, Level::Spent, "{unit} began with nothing to spend");
            assert!(!run.holds.contains_key(executor), "{unit} began on {executor}, which is held");
            assert!(!before.barred.contains(executor), "{unit} went back to {executor}");
            assert!(run.stop.is_none(), "{unit} began after the run was stopped");
        }
        UnitEvent::RetryScheduled { outcome: Outcome::Failed(cause), spends: Spends::Retry, .. } => {
            let fault_of_nobody = matches!(cause, Cause::UsageLimit | Cause::Auth | Cause::RateLimit | Cause::Network);
            let spent = run.repeats >= run_allowance(run.units.len());
            assert!(!fault_of_nobody || spent || before.repeats >= MOST_REPEATS_OF_A_UNIT, "{unit}: {cause}");
        }
        _ => {}
    }
}
