//! A whole supervisor in a fake world: slow, late, repeated and missing messages, crashes at any step.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::budget::Budget;
use crate::event::{Mode, RunSetup, UnitSetup};
use crate::outcome::tests::good_facts;
use crate::outcome::{CheckFacts, ClientError, Exit, FinalEvent, StopReason, Usage};
use crate::policy::{MOST_REPEATS_OF_A_UNIT, Spends, run_allowance};
use crate::run::RunState;
use crate::schedule::{Account, Capacity, Pressure};
use crate::time::Timestamp;

const JOBS: u32 = 3;
const SLOTS: u32 = 2;

/// What has become of one dispatcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dispatcher {
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
struct World {
    ledger: Vec<Event>,
    dispatchers: BTreeMap<(UnitId, Attempt), Dispatcher>,
    /// Attempts whose fence a successor has taken.
    fenced: BTreeSet<(UnitId, Attempt)>,
    pending: Vec<Input>,
    now: Now,
    left: bool,
    answers: BTreeMap<u64, Reply>,
    /// Slots of the shared account that are taken and not used yet.
    slots_in_hand: u32,
    /// How often slots were asked for.
    asks: u32,
}

fn facts_of_the_dead() -> Box<AttemptFacts> {
    Box::new(AttemptFacts { dispatcher_died: true, exit: Exit::Unobserved, ..good_facts() })
}

fn process(attempt: Attempt) -> ProcessIdentity {
    ProcessIdentity { boot_id: "b".into(), pid: attempt.0, start_ticks: 1 }
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
        priority: 0,
        budget: Budget::default(),
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
        verifies: true,
        budget: budget(),
        units: (0..units).map(unit).collect(),
    }
}

fn resources() -> Resources {
    let capacity = Capacity { slots: SLOTS, stagger_millis: 50, is_agent: true };
    let executors = ["codex", "command"].map(|name| (name.parse().unwrap(), capacity));
    // One has an account that other runs use too.
    let accounts = [("codex".parse().unwrap(), Account::default())].into();
    Resources { jobs: JOBS, executors: executors.into(), accounts, seed: 7, ..Resources::default() }
}

impl World {
    fn new(units: usize, retries: u32) -> Self {
        let kind = EventKind::run(RunEvent::PlanAccepted(Box::new(setup(units, retries))));
        let first = Event { seq: crate::ids::Seq(1), at: Timestamp(0), kind };
        Self {
            ledger: vec![first],
            dispatchers: BTreeMap::new(),
            fenced: BTreeSet::new(),
            pending: Vec::new(),
            now: Now::default(),
            left: false,
            answers: BTreeMap::new(),
            slots_in_hand: 0,
            asks: 0,
        }
    }

    /// A supervisor as a new process makes it: from the ledger alone.
    fn supervisor(&mut self, resume: bool) -> Supervisor {
        let run = RunState::replay(&self.ledger).expect("the ledger replays");
        self.pending.clear();
        // They were its process's.
        self.slots_in_hand = 0;
        let mut supervisor = Supervisor::new(run, resources());
        let started = Input::Started { process: process(Attempt(999)), version: "v".into(), resume };
        self.feed(&mut supervisor, started, None);
        supervisor
    }

    fn feed(&mut self, supervisor: &mut Supervisor, input: Input, crash_after: Option<usize>) -> bool {
        let effects = supervisor.handle(input, self.now);
        let (records, acts): (Vec<_>, Vec<_>) =
            effects.into_iter().partition(|effect| matches!(effect, Effect::Record(_)));
        for record in records {
            if let Effect::Record(event) = record {
                self.ledger.push(event);
            }
        }
        for (number, act) in acts.into_iter().enumerate() {
            if crash_after == Some(number) {
                return false;
            }
            self.carry_out(act);
        }
        crash_after.is_none()
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Record(_) => {}
            // Whoever watches a dispatcher that is gone already hears of it at once.
            Effect::Watch { unit, attempt, .. } => match self.dispatchers.get(&(unit.clone(), attempt)) {
                Some(Dispatcher::Alive) => {}
                Some(how) => {
                    let facts = match how {
                        Dispatcher::Settled => Some(Box::new(good_facts())),
                        Dispatcher::WrittenDown => Some(facts_of_the_dead()),
                        Dispatcher::Alive | Dispatcher::Dead | Dispatcher::Vanished => None,
                    };
                    self.pending.push(Input::DispatcherExited { unit, attempt, facts });
                }
                None => panic!("{unit} is watched and was never started"),
            },
            Effect::Prepare { unit, attempt, executor, .. } => {
                if executor.as_str() == "codex" {
                    self.slots_in_hand = self.slots_in_hand.checked_sub(1).expect("nothing starts without a slot");
                }
                let result = if attempt.0 % 7 == 6 { Err("no space".into()) } else { Ok(3) };
                self.pending.push(Input::Prepared { unit, attempt, result });
            }
            Effect::Spawn { unit, attempt } => {
                let living = self.dispatchers.iter().any(|((other, _), is)| *other == unit && *is == Dispatcher::Alive);
                assert!(!living, "{unit} would run twice at a time");
                assert!(!self.fenced.contains(&(unit.clone(), attempt)), "a fenced attempt was started");
                self.dispatchers.insert((unit.clone(), attempt), Dispatcher::Alive);
                self.pending.push(Input::Spawned { unit, attempt, result: Ok(process(attempt)) });
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
                    Some(Dispatcher::Alive) => Observation::Alive(process(attempt)),
                    Some(Dispatcher::Settled) => Observation::Settled(Box::new(good_facts())),
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
        let keys: Vec<_> = self.dispatchers.keys().filter(|(_, attempt)| attempt.0 == process.pid).cloned().collect();
        for key in keys {
            self.end(&key, if kill { Dispatcher::Dead } else { Dispatcher::Settled }, 0);
        }
    }

    fn end(&mut self, key: &(UnitId, Attempt), how: Dispatcher, flavour: u8) {
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
        let facts = (how == Dispatcher::Settled).then(|| Box::new(facts));
        self.pending.push(Input::DispatcherExited { unit: key.0.clone(), attempt: key.1, facts });
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

    fn check(&self, supervisor: &Supervisor) {
        let replayed = RunState::replay(&self.ledger).expect("every ledger replays");
        assert_eq!(&replayed, supervisor.run(), "live state equals replay");
        self.check_the_dead(&replayed);
        assert!(replayed.active().count() <= JOBS as usize, "more units than jobs");
        for name in ["codex", "command"] {
            let on = |unit: &&Unit| unit.attempts.last().is_some_and(|last| last.executor.as_str() == name);
            assert!(replayed.active().filter(on).count() <= SLOTS as usize, "more units on {name} than slots");
        }
    }
}

/// The class of error that a worker ends with, for some of the flavours.
fn class_of(flavour: u8) -> Option<Cause> {
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

/// Nothing begins on an executor that is held, and an interruption costs a unit nothing while the run may repeat.
fn check_holds(ledger: &[Event]) {
    let mut run = RunState::default();
    for event in ledger {
        if let EventKind::Unit { unit, event: kind, .. } = &event.kind {
            let before = run.unit(unit).expect("the unit is the plan's");
            match &**kind {
                UnitEvent::AttemptBegan { executor, .. } => {
                    assert!(!run.is_spent(), "{unit} began without a budget");
                    assert!(!run.holds.contains_key(executor), "{unit} began on {executor}, which is held");
                    assert!(!before.barred.contains(executor), "{unit} went back to {executor}");
                }
                UnitEvent::RetryScheduled { outcome: Outcome::Failed(cause), spends: Spends::Retry, .. } => {
                    let fault_of_nobody =
                        matches!(cause, Cause::UsageLimit | Cause::Auth | Cause::RateLimit | Cause::Network);
                    let spent = run.repeats >= run_allowance(run.units.len());
                    assert!(!fault_of_nobody || spent || before.repeats >= MOST_REPEATS_OF_A_UNIT, "{unit}: {cause}");
                }
                _ => {}
            }
        }
        run.apply(event).expect("the ledger replays");
    }
}

/// One thing that the world does.
#[derive(Clone, Debug)]
enum Step {
    /// Deliver a message that is under way, twice if it says so.
    Deliver { which: usize, twice: bool },
    /// A dispatcher ends.
    End { which: usize, dies: bool, flavour: u8 },
    /// Time passes.
    Wait { millis: u32 },
    /// The machine becomes busy, or is not any more.
    Press(bool),
    /// Somebody asks for something.
    Ask { unit: usize, what: u8 },
    /// The supervisor is killed in the middle of carrying out what follows from a tick.
    Crash { after: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (any::<usize>(), prop::bool::weighted(0.1)).prop_map(|(which, twice)| Step::Deliver { which, twice }),
        3 => (any::<usize>(), prop::bool::weighted(0.2), any::<u8>())
            .prop_map(|(which, dies, flavour)| Step::End { which, dies, flavour }),
        3 => (0_u32..70_000).prop_map(|millis| Step::Wait { millis }),
        1 => any::<bool>().prop_map(Step::Press),
        1 => (any::<usize>(), any::<u8>()).prop_map(|(unit, what)| Step::Ask { unit, what }),
        1 => (0_usize..4).prop_map(|after| Step::Crash { after }),
    ];
    prop::collection::vec(step, 0..120)
}

fn command(unit: UnitId, what: u8) -> Command {
    match what % 9 {
        0 => Command::Stop { unit: Some(unit), now: false },
        1 => Command::Stop { unit: Some(unit), now: true },
        2 => Command::Stop { unit: None, now: what > 128 },
        3 => Command::Retry { unit, how: RetryHow::Fresh, message: None },
        4 => Command::Retry { unit, how: RetryHow::Continue, message: Some("m".into()) },
        5 => Command::Accept { unit, why: "w".into(), salvaged: what > 128 },
        6 => Command::Exclude { unit, why: "w".into() },
        7 => Command::Unreview { unit },
        _ => Command::Submit { unit },
    }
}

fn play(units: usize, retries: u32, steps: Vec<Step>) {
    let mut world = World::new(units, retries);
    let mut supervisor = world.supervisor(false);
    let mut token = 0;
    for step in steps {
        if world.left {
            // Whoever wants more after the end starts another supervisor.
            world.left = false;
            supervisor = world.supervisor(true);
        }
        match step {
            Step::Deliver { which, twice } if !world.pending.is_empty() => {
                let place = which % world.pending.len();
                let input = world.pending.remove(place);
                // An answer of the driver's own comes once.
                if twice && !matches!(input, Input::SlotsTaken { .. }) {
                    world.feed(&mut supervisor, input.clone(), None);
                }
                world.feed(&mut supervisor, input, None);
            }
            Step::Deliver { .. } => {}
            Step::End { which, dies, flavour } => {
                let alive: Vec<_> = living(&world);
                if !alive.is_empty() {
                    let how = match (dies, flavour % 2) {
                        (true, 0) => Dispatcher::Vanished,
                        (true, _) => Dispatcher::Dead,
                        (false, _) => Dispatcher::Settled,
                    };
                    let key = alive[which % alive.len()].clone();
                    world.end(&key, how, flavour);
                }
            }
            Step::Wait { millis } => {
                world.now.mono += u64::from(millis);
                world.now.wall = world.now.wall.plus(i64::from(millis));
                world.feed(&mut supervisor, Input::Tick, None);
            }
            Step::Press(is_busy) => {
                let pressed = is_busy.then(|| Pressed { what: Pressure::Cpu, why: "w".into() });
                world.feed(&mut supervisor, Input::Pressed(pressed), None);
            }
            Step::Ask { unit, what } => {
                token += 1;
                let unit = format!("u{}", unit % units).parse().unwrap();
                world.feed(&mut supervisor, Input::Asked { token, command: command(unit, what) }, None);
                assert!(world.answers.contains_key(&token), "every command is answered");
            }
            Step::Crash { after } => {
                world.feed(&mut supervisor, Input::Tick, Some(after));
                supervisor = world.supervisor(after % 2 == 0);
            }
        }
        world.check(&supervisor);
    }
    finish(world, supervisor);
}

fn living(world: &World) -> Vec<(UnitId, Attempt)> {
    let alive = world.dispatchers.iter().filter(|(_, is)| **is == Dispatcher::Alive);
    alive.map(|(key, _)| key.clone()).collect()
}

/// With a world that answers everything and ends every worker, each run comes to its end.
fn finish(mut world: World, mut supervisor: Supervisor) {
    for _ in 0..2_000 {
        if world.left {
            assert!(living(&world).is_empty(), "the supervisor left a living dispatcher");
            return check_holds(&world.ledger);
        }
        if world.pending.is_empty() {
            living(&world).iter().for_each(|key| world.end(key, Dispatcher::Settled, 0));
        }
        let input = if world.pending.is_empty() { Input::Tick } else { world.pending.remove(0) };
        // While nothing is under way a hold may be what is waited for.
        let millis = if matches!(input, Input::Tick) { 60_000 } else { 1_000 };
        world.now.mono += millis;
        world.now.wall = world.now.wall.plus(i64::try_from(millis).unwrap());
        world.feed(&mut supervisor, input, None);
        world.check(&supervisor);
    }
    panic!("the run never ends: {:?}", supervisor.run().units.iter().map(|unit| &unit.state).collect::<Vec<_>>());
}

/// Delivers everything that is under way, and what a short time brings.
fn deliver(world: &mut World, supervisor: &mut Supervisor) {
    for _ in 0..2 {
        while !world.pending.is_empty() {
            let input = world.pending.remove(0);
            world.feed(supervisor, input, None);
        }
        world.now.mono += 100;
        world.feed(supervisor, Input::Tick, None);
    }
}

fn first_attempt(unit: &str) -> (UnitId, Attempt) {
    (unit.parse().unwrap(), Attempt(1))
}

#[test]
fn what_a_retry_was_told_survives_the_death_of_its_supervisor() {
    let mut world = World::new(1, 0);
    let mut supervisor = world.supervisor(false);
    deliver(&mut world, &mut supervisor);
    world.end(&first_attempt("u0"), Dispatcher::Settled, 1);
    deliver(&mut world, &mut supervisor);
    let (unit, message) = ("u0".parse().unwrap(), Some("shorter".to_owned()));
    let retry = Command::Retry { unit, how: RetryHow::Continue, message };
    world.feed(&mut supervisor, Input::Asked { token: 1, command: retry }, None);
    let slot = world.pending.remove(0);
    world.feed(&mut supervisor, slot, None);
    // Its workspace is being prepared; nobody hears of its end.
    assert!(matches!(supervisor.run().units[0].state, UnitState::Preparing));
    let mut supervisor = world.supervisor(false);
    deliver(&mut world, &mut supervisor);
    let third = &supervisor.run().units[0].attempts[2];
    assert_eq!((third.begins.how, third.begins.message.as_deref()), (RetryHow::Continue, Some("shorter")));
}

#[test]
fn units_that_meet_a_limit_together_tell_it_once_and_all_go_on_elsewhere() {
    let mut world = World::new(2, 0);
    let mut supervisor = world.supervisor(false);
    deliver(&mut world, &mut supervisor);
    let limit = 64;
    assert_eq!(class_of(limit), Some(Cause::UsageLimit));
    for unit in ["u0", "u1"] {
        world.end(&first_attempt(unit), Dispatcher::Settled, limit);
    }
    deliver(&mut world, &mut supervisor);
    let held = world.ledger.iter().filter(|event| event.kind.name() == "executor-held").count();
    assert_eq!(held, 1);
    for unit in &supervisor.run().units {
        let second = unit.attempts.get(1).expect("it went on");
        assert_eq!((second.executor.as_str(), second.begins.how), ("command", RetryHow::Continue));
        assert_eq!((unit.retries_spent, unit.repeats), (0, 1));
    }
}

#[test]
fn only_a_unit_that_the_stop_interrupted_goes_on_in_its_workspace() {
    let mut world = World::new(2, 1);
    let mut supervisor = world.supervisor(false);
    deliver(&mut world, &mut supervisor);
    // The first unit failed and waits for its second attempt, the second one works.
    world.end(&first_attempt("u0"), Dispatcher::Settled, 1);
    deliver(&mut world, &mut supervisor);
    world.feed(&mut supervisor, Input::Asked { token: 1, command: Command::Stop { unit: None, now: false } }, None);
    let interrupted = AttemptFacts { stopped: Some(StopReason::Signal), ..good_facts() };
    let (unit, attempt) = first_attempt("u1");
    world.dispatchers.insert((unit.clone(), attempt), Dispatcher::Settled);
    world.pending.clear();
    let exited = Input::DispatcherExited { unit, attempt, facts: Some(Box::new(interrupted)) };
    world.feed(&mut supervisor, exited, None);
    let supervisor = world.supervisor(true);
    let how = |unit: &Unit| unit.next.how;
    let begun = |unit: &Unit| unit.attempts.get(1).map(|second| second.begins.how);
    let hows: Vec<RetryHow> = supervisor.run().units.iter().map(|unit| begun(unit).unwrap_or(how(unit))).collect();
    assert_eq!(hows, [RetryHow::Fresh, RetryHow::Continue]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn no_order_of_events_breaks_a_run(units in 1_usize..6, retries in 0_u32..3, steps in steps()) {
        play(units, retries, steps);
    }

    #[test]
    fn every_prefix_of_a_ledger_replays(units in 1_usize..4, steps in steps()) {
        let mut world = World::new(units, 1);
        let mut supervisor = world.supervisor(false);
        for step in steps {
            match step {
                Step::Deliver { which, .. } if !world.pending.is_empty() => {
                    let place = which % world.pending.len();
                    let input = world.pending.remove(place);
                    world.feed(&mut supervisor, input, None);
                }
                Step::End { which, dies, flavour } => {
                    let alive = living(&world);
                    if let Some(key) = alive.get(which % alive.len().max(1)) {
                        world.end(key, if dies { Dispatcher::Dead } else { Dispatcher::Settled }, flavour);
                    }
                }
                _ => {}
            }
        }
        for end in 0..=world.ledger.len() {
            prop_assert!(RunState::replay(&world.ledger[..end]).is_ok());
        }
    }
}
