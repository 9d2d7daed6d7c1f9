//! A bounded hunt for the processes of a tree.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use prun_core::event::ProcessIdentity;
use rustix::event::poll;
use rustix::process::Signal;
use rustix::time::Timespec;

use crate::process::{ProcessStat, is_alive, signal_process, stat};

/// Between two looks at processes that were killed and have not gone yet.
const PAUSE: Duration = Duration::from_millis(2);

/// The processes that were found so far, and how long the hunt may go on.
pub(super) struct Hunt {
    deadline: Instant,
    seen: BTreeMap<(u32, u64), Prey>,
}

struct Prey {
    process: ProcessIdentity,
    lived: bool,
}

impl Hunt {
    pub(super) fn new(bound: Duration) -> Self {
        Self { deadline: Instant::now() + bound, seen: BTreeMap::new() }
    }

    pub(super) fn is_over(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// Processes that were seen alive.
    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.seen.values().filter(|prey| prey.lived).count()).unwrap_or(u32::MAX)
    }

    pub(super) fn living(&self) -> Vec<u32> {
        self.seen.values().map(|prey| &prey.process).filter(|prey| is_alive(prey)).map(|prey| prey.pid).collect()
    }

    /// Remembers these numbers' processes, which something else ends.
    pub(super) fn note(&mut self, pids: Vec<u32>) {
        for stat in pids.into_iter().filter_map(stat) {
            self.remember(&stat);
        }
    }

    /// Stops what `find` finds until it finds nothing new, then kills all of it, so that nothing can fork
    /// away between the look and the kill.
    pub(super) fn freeze_and_kill(&mut self, find: &mut dyn FnMut() -> Vec<ProcessStat>) {
        loop {
            let new: Vec<ProcessStat> =
                find().into_iter().filter(|stat| !self.seen.contains_key(&(stat.pid, stat.start_ticks))).collect();
            if new.is_empty() || self.is_over() {
                break;
            }
            for stat in new {
                signal(&self.remember(&stat).process, Signal::STOP);
            }
        }
        for prey in self.seen.values() {
            signal(&prey.process, Signal::KILL);
        }
    }

    fn remember(&mut self, stat: &ProcessStat) -> &Prey {
        let prey = || Prey { process: stat.identity(), lived: !stat.is_dead() };
        self.seen.entry((stat.pid, stat.start_ticks)).or_insert_with(prey)
    }
}

/// Gives killed processes a moment to go; a signal ends the wait early.
pub(super) fn pause() {
    if let Ok(timeout) = Timespec::try_from(PAUSE) {
        let _ = poll(&mut [], Some(&timeout));
    }
}

/// A signal that is refused shows in the survivors.
fn signal(process: &ProcessIdentity, signal: Signal) {
    let _ = signal_process(process, signal);
}
