//! Which units of a run wait, work or are over, kept up to date event by event: a run may have ten thousand, and
//! looking through them all at every step would cost more than the work.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use crate::time::Timestamp;
use crate::unit::{Unit, UnitState};

/// The places of a run's units by what they do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    /// By place in the plan: the place in the order of starts.
    ranks: Vec<usize>,
    /// The other way round.
    places: Vec<usize>,
    /// Ranks of units that wait.
    waiting: BTreeSet<usize>,
    /// Of these, those that pause: when the pause ends, and the rank.
    pausing: BTreeSet<(Timestamp, usize)>,
    /// When the pause of each ends, by place.
    pauses: Vec<Option<Timestamp>>,
    /// Places of units of which something may be alive.
    active: BTreeSet<usize>,
}

impl Queue {
    /// The queue of a run that has just begun: the more urgent first, else in the plan's order.
    #[must_use]
    pub fn of(units: &[Unit]) -> Self {
        let mut places: Vec<usize> = (0..units.len()).collect();
        places.sort_by_key(|place| (Reverse(units[*place].setup.priority), *place));
        let mut ranks = vec![0; units.len()];
        for (rank, place) in places.iter().enumerate() {
            ranks[*place] = rank;
        }
        let waiting = (0..units.len()).collect();
        let (pausing, pauses, active) = (BTreeSet::new(), vec![None; units.len()], BTreeSet::new());
        Self { ranks, places, waiting, pausing, pauses, active }
    }

    /// Takes down where the unit at `place` stands now.
    pub fn note(&mut self, place: usize, unit: &Unit) {
        let rank = self.ranks[place];
        if let Some(until) = self.pauses[place].take() {
            self.pausing.remove(&(until, rank));
        }
        if let UnitState::Backoff { until } = unit.state {
            self.pauses[place] = Some(until);
            self.pausing.insert((until, rank));
        }
        keep(&mut self.waiting, rank, unit.is_waiting());
        keep(&mut self.active, place, unit.is_active());
    }

    /// Places of units that wait, in the order in which they are to start.
    pub fn waiting(&self) -> impl Iterator<Item = usize> {
        self.waiting.iter().map(|rank| self.places[*rank])
    }

    /// Places of units of which something may be alive, in the plan's order.
    pub fn active(&self) -> impl Iterator<Item = usize> {
        self.active.iter().copied()
    }

    /// When the next pause ends that has not ended yet.
    #[must_use]
    pub fn next_backoff(&self, now: Timestamp) -> Option<Timestamp> {
        let later = (Timestamp(now.0.saturating_add(1)), 0)..;
        self.pausing.range(later).next().map(|(until, _)| *until)
    }

    /// Whether nothing waits and nothing works: every unit is settled.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.active.is_empty()
    }
}

fn keep(set: &mut BTreeSet<usize>, item: usize, is_in: bool) {
    if is_in {
        set.insert(item);
    } else {
        set.remove(&item);
    }
}
