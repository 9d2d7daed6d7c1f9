//! Which queued units may start now.

use std::collections::BTreeMap;

use crate::ids::{ExecutorName, UnitId};
use crate::route::{Candidate, Route, route};
use crate::run::RunState;
use crate::time::{Now, Timestamp};
use crate::unit::{Unit, UnitState};

/// What an executor allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Units at once.
    pub slots: u32,
    /// Milliseconds between two starts.
    pub stagger_millis: u64,
}

/// What the scheduler knows beside the run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// Units at once, over all executors.
    pub jobs: u32,
    /// Each executor's own limits. One that is not listed takes no units.
    pub executors: BTreeMap<ExecutorName, Capacity>,
    /// When each executor was last started, on the monotonic clock.
    pub last_start: BTreeMap<ExecutorName, u64>,
    /// Spreads pauses and starts; another number for each run.
    pub seed: u64,
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
    /// In the plan's order.
    pub starts: Vec<Start>,
    /// The monotonic time of the next start that only waits for time.
    pub look_again: Option<u64>,
}

/// Fills free slots in the plan's order: a pool, not waves.
#[must_use]
pub fn schedule(run: &RunState, resources: &Resources, now: Now) -> Schedule {
    let mut plan = Schedule::default();
    if run.stop.is_some() || run.setup.is_none() {
        return plan;
    }
    let mut used: BTreeMap<ExecutorName, u32> = BTreeMap::new();
    let mut total = 0_u32;
    for executor in run.active().filter_map(|unit| unit.attempts.last().map(|last| &last.executor)) {
        *used.entry(executor.clone()).or_default() += 1;
        total += 1;
    }
    let mut last_start = resources.last_start.clone();
    for until in run.holds.values().filter_map(|hold| hold.until) {
        look_again_at(&mut plan, until, now);
    }
    for unit in &run.units {
        if total >= resources.jobs {
            break;
        }
        if !may_start(unit, now, &mut plan) {
            continue;
        }
        let candidates = candidates(unit, run, resources, &used);
        let Route::Take { executor, why } = route(&unit.setup.executors, &candidates) else { continue };
        let stagger = resources.executors.get(&executor).map_or(0, |capacity| capacity.stagger_millis);
        let ready_at = last_start.get(&executor).map_or(0, |last| last.saturating_add(stagger));
        if ready_at > now.mono {
            look_again(&mut plan, ready_at);
            continue;
        }
        last_start.insert(executor.clone(), now.mono);
        *used.entry(executor.clone()).or_default() += 1;
        total += 1;
        plan.starts.push(Start { unit: unit.setup.id.clone(), executor, why });
    }
    plan
}

fn may_start(unit: &Unit, now: Now, plan: &mut Schedule) -> bool {
    match unit.state {
        UnitState::Queued => true,
        UnitState::Backoff { until } if until <= now.wall => true,
        UnitState::Backoff { until } => {
            look_again_at(plan, until, now);
            false
        }
        _ => false,
    }
}

/// The monotonic clock stands still while the machine sleeps, so a time of the wall clock is asked for again.
fn look_again_at(plan: &mut Schedule, until: Timestamp, now: Now) {
    const LONGEST_MILLIS: u64 = 60_000;
    look_again(plan, now.mono.saturating_add(until.since(now.wall).min(LONGEST_MILLIS)));
}

fn look_again(plan: &mut Schedule, at: u64) {
    plan.look_again = Some(plan.look_again.map_or(at, |other| other.min(at)));
}

fn candidates(
    unit: &Unit,
    run: &RunState,
    resources: &Resources,
    used: &BTreeMap<ExecutorName, u32>,
) -> Vec<Candidate> {
    let open = unit.setup.executors.iter().filter(|name| !unit.barred.contains(name));
    let known = open.filter_map(|name| resources.executors.get(name).map(|capacity| (name, capacity)));
    known
        .map(|(name, capacity)| Candidate {
            executor: name.clone(),
            free_slots: capacity.slots.saturating_sub(used.get(name).copied().unwrap_or(0)),
            held: run.holds.get(name).map(|hold| hold.cause.to_string()),
        })
        .collect()
}
