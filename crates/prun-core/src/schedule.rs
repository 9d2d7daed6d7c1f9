//! Which waiting units may start now: a pool, not waves. The more urgent first, else in the plan's order.

use std::collections::BTreeMap;

use crate::ids::{ExecutorName, UnitId};
use crate::policy::spread;
use crate::route::{Candidate, Route, route};
use crate::run::RunState;
use crate::time::{Now, Timestamp};
use crate::unit::{Unit, UnitState};

/// Milliseconds until an account is asked again that had no free slot: another run holds them all.
pub const ASK_AGAIN_MILLIS: u64 = 1_000;

/// Milliseconds between two looks at the machine while it is under pressure.
pub const PRESSURE_LOOK_MILLIS: u64 = 2_000;

/// Under pressure one unit starts all the same when none has for so long.
pub const PRESSURE_PATIENCE_MILLIS: u64 = 60_000;

/// What an executor allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Units at once.
    pub slots: u32,
    /// Milliseconds between two starts, at least; spread by up to a quarter.
    pub stagger_millis: u64,
    /// It starts agents: seconds of CPU time each. The unit's own commands are not held back by a busy CPU.
    pub is_agent: bool,
}

/// What the scheduler knows beside the run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// Units at once, over all executors.
    pub jobs: u32,
    /// Each executor's own limits. One that is not listed takes no units.
    pub executors: BTreeMap<ExecutorName, Capacity>,
    /// Executors whose slots are shared with other runs: a unit starts only with one in hand.
    pub accounts: BTreeMap<ExecutorName, Account>,
    /// When each executor was last started, on the monotonic clock.
    pub last_start: BTreeMap<ExecutorName, u64>,
    /// What the machine is short of.
    pub pressure: Option<Pressure>,
    /// Spreads pauses and starts; another number for each run.
    pub seed: u64,
}

/// The slots of an account, as far as this run knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Slots that were taken for units that are about to start.
    pub in_hand: u32,
    /// They were asked for, and the answer is under way.
    pub is_asked: bool,
    /// None was free; it is asked again at this time of the monotonic clock.
    pub ask_again_at: Option<u64>,
}

/// What a machine is short of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pressure {
    /// Processes wait for a CPU.
    Cpu,
    /// Processes wait for memory.
    Memory,
}

/// A unit that may start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// The unit.
    pub unit: UnitId,
    /// Who takes it.
    pub executor: ExecutorName,
    /// Why this executor, in a sentence.
    pub why: String,
}

/// What may start now, and when to look again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// In the order of their starts.
    pub starts: Vec<Start>,
    /// How many slots of which account are wanted for units that could start.
    pub wants: BTreeMap<ExecutorName, u32>,
    /// A unit could start on a machine that is less busy.
    pub is_pressed: bool,
    /// The monotonic time of the next start that only waits for time.
    pub look_again: Option<u64>,
}

/// Fills free slots.
#[must_use]
pub fn schedule(run: &RunState, resources: &Resources, now: Now) -> Schedule {
    if run.stop.is_some() || run.setup.is_none() || run.is_spent() {
        return Schedule::default();
    }
    let mut pass = Pass::new(run, resources, now);
    for until in run.holds.values().filter_map(|hold| hold.until) {
        pass.look_again_at(until);
    }
    for unit in run.waiting() {
        if pass.is_full() {
            break;
        }
        pass.place(unit);
    }
    // A pause may end before a slot is free.
    if let Some(until) = run.next_backoff(now.wall) {
        pass.look_again_at(until);
    }
    pass.plan
}

struct Pass<'a> {
    run: &'a RunState,
    resources: &'a Resources,
    now: Now,
    /// Slots that are left, of executors that have any and are not held.
    room: BTreeMap<&'a ExecutorName, u32>,
    in_hand: BTreeMap<&'a ExecutorName, u32>,
    last_start: BTreeMap<&'a ExecutorName, u64>,
    total: u32,
    plan: Schedule,
}

impl<'a> Pass<'a> {
    fn new(run: &'a RunState, resources: &'a Resources, now: Now) -> Self {
        let mut used: BTreeMap<&ExecutorName, u32> = BTreeMap::new();
        let mut total = 0_u32;
        for executor in run.active().filter_map(|unit| unit.attempts.last().map(|last| &last.executor)) {
            *used.entry(executor).or_default() += 1;
            total += 1;
        }
        let mut pass = Self {
            run,
            resources,
            now,
            room: BTreeMap::new(),
            in_hand: resources.accounts.iter().map(|(name, account)| (name, account.in_hand)).collect(),
            last_start: resources.last_start.iter().map(|(name, at)| (name, *at)).collect(),
            total,
            plan: Schedule::default(),
        };
        for (name, capacity) in &resources.executors {
            let left = capacity.slots.saturating_sub(used.get(name).copied().unwrap_or(0));
            if left > 0 && !run.holds.contains_key(name) && !pass.is_exhausted(name) {
                pass.room.insert(name, left);
            }
        }
        pass
    }

    /// Whether the account's slots are all in other runs, as far as was seen lately.
    fn is_exhausted(&mut self, executor: &ExecutorName) -> bool {
        let account = self.resources.accounts.get(executor);
        let Some(at) = account.and_then(|account| account.ask_again_at).filter(|at| *at > self.now.mono) else {
            return false;
        };
        self.look_again(at);
        true
    }

    fn is_full(&self) -> bool {
        self.total >= self.resources.jobs || self.room.is_empty()
    }

    /// Starts a unit, has a slot asked for it, or leaves it where it is.
    fn place(&mut self, unit: &Unit) {
        if matches!(unit.state, UnitState::Backoff { until } if until > self.now.wall) {
            return;
        }
        let Route::Take { executor, why } = route(&unit.setup.executors, &self.candidates(unit)) else { return };
        let Some((executor, capacity)) = self.resources.executors.get_key_value(&executor) else { return };
        if self.must_wait(executor, capacity) {
            return;
        }
        if let Some(left) = self.in_hand.get_mut(executor) {
            match left.checked_sub(1) {
                Some(rest) => *left = rest,
                None => return self.want(executor),
            }
        }
        self.occupy(executor);
        self.last_start.insert(executor, self.now.mono);
        self.plan.starts.push(Start { unit: unit.setup.id.clone(), executor: executor.clone(), why });
    }

    fn candidates(&self, unit: &Unit) -> Vec<Candidate> {
        let open = unit.setup.executors.iter().filter(|name| !unit.barred.contains(name));
        let known = open.filter(|name| self.resources.executors.contains_key(*name));
        known
            .map(|name| Candidate {
                executor: name.clone(),
                free_slots: self.room.get(name).copied().unwrap_or(0),
                held: self.run.holds.get(name).map(|hold| hold.cause.to_string()),
            })
            .collect()
    }

    /// Whether the next start on this executor is only a matter of time.
    fn must_wait(&mut self, executor: &ExecutorName, capacity: &Capacity) -> bool {
        let last = self.last_start.get(executor).copied();
        // Each start is followed by a pause of its own length.
        let ready_at = last.map_or(0, |last| {
            let stagger = i64::try_from(capacity.stagger_millis).unwrap_or(i64::MAX);
            last.saturating_add(u64::try_from(spread(stagger, self.resources.seed ^ last)).unwrap_or(0))
        });
        if ready_at > self.now.mono {
            self.look_again(ready_at);
            return true;
        }
        if self.is_pressed(capacity) {
            self.plan.is_pressed = true;
            self.look_again(self.now.mono.saturating_add(PRESSURE_LOOK_MILLIS));
            return true;
        }
        false
    }

    /// Whether the machine is too busy for one more. The first unit always starts, and one now and then.
    fn is_pressed(&self, capacity: &Capacity) -> bool {
        let is_short = match self.resources.pressure {
            Some(Pressure::Cpu) => capacity.is_agent,
            Some(Pressure::Memory) => true,
            None => false,
        };
        let last = self.last_start.values().max();
        let is_recent = last.is_some_and(|last| self.now.mono.saturating_sub(*last) < PRESSURE_PATIENCE_MILLIS);
        is_short && self.total > 0 && is_recent
    }

    fn want(&mut self, executor: &'a ExecutorName) {
        if self.resources.accounts.get(executor).is_some_and(|account| !account.is_asked) {
            *self.plan.wants.entry(executor.clone()).or_default() += 1;
        }
        self.occupy(executor);
    }

    fn occupy(&mut self, executor: &'a ExecutorName) {
        self.total += 1;
        if let Some(room) = self.room.get_mut(executor) {
            *room -= 1;
            if *room == 0 {
                self.room.remove(executor);
            }
        }
    }

    /// The monotonic clock stands still while the machine sleeps, so a time of the wall clock is asked for again.
    fn look_again_at(&mut self, until: Timestamp) {
        const LONGEST_MILLIS: u64 = 60_000;
        self.look_again(self.now.mono.saturating_add(until.since(self.now.wall).min(LONGEST_MILLIS)));
    }

    fn look_again(&mut self, at: u64) {
        self.plan.look_again = Some(self.plan.look_again.map_or(at, |other| other.min(at)));
    }
}
