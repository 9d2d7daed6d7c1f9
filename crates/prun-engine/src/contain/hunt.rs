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

/// How many looks in a row have to find nothing where the token is all that prun has: a process that keeps forking can
/// be between two of its lives, and in no listing, while one look passes.
const CLEAN_LOOKS: u32 = 5;

/// How many looks at a tree are taken to stop all of it before it is killed. What still turns up then is being born
/// all the time.
const LOOKS: u32 = 8;

/// The processes that were found so far, and how long the hunt may go on.
pub(super) struct Hunt {
    deadline: Instant,
    seen: BTreeMap<(u32, u64), Prey>,
    clean_looks: u32,
}

struct Prey {
    process: ProcessIdentity,
    lived: bool,
}

impl Hunt {
    pub(super) fn new(bound: Duration) -> Self {
        Self { deadline: Instant::now() + bound, seen: BTreeMap::new(), clean_looks: 0 }
    }

    pub(super) fn is_over(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// Whether enough looks in a row found nothing, this one included: what to go by where the kernel does not tell.
    pub(super) fn is_quiet(&mut self, found_nothing: bool) -> bool {
        self.clean_looks = if found_nothing { self.clean_looks + 1 } else { 0 };
        self.clean_looks >= CLEAN_LOOKS
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

    /// Stops what `find` finds alive until it finds nothing new, then kills all of it, so that nothing can fork
    /// away between the look and the kill. Whether anything was new.
    pub(super) fn freeze_and_kill(&mut self, find: &mut dyn FnMut() -> Vec<ProcessStat>) -> bool {
        let known = self.seen.len();
        for _ in 0..LOOKS {
            let is_new = |stat: &ProcessStat| !stat.is_dead() && !self.seen.contains_key(&(stat.pid, stat.start_ticks));
            let new: Vec<ProcessStat> = find().into_iter().filter(is_new).collect();
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
        self.seen.len() > known
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_look_that_finds_nothing_is_no_proof() {
        let mut hunt = Hunt::new(Duration::from_secs(1));
        let looks = [true, true, true, true, false, true, true, true, true, true];
        let quiet = looks.map(|found_nothing| hunt.is_quiet(found_nothing));
        assert_eq!(quiet.iter().position(|quiet| *quiet), Some(9));
    }

    /// What forks the next and ends, all the time, is new in each look, and leaves its dead in each.
    #[test]
    fn looks_that_always_find_something_new_come_to_an_end() {
        for state in [b'Z', b'R'] {
            let mut hunt = Hunt::new(Duration::from_secs(600));
            let mut looks = 0;
            let mut find = || {
                looks += 1;
                // No process has such a number.
                let text = format!("{} (x) {} 1{}", u32::MAX - looks, char::from(state), " 0".repeat(48));
                crate::process::parse_stat(text.as_bytes()).into_iter().collect()
            };
            let is_new = hunt.freeze_and_kill(&mut find);
            assert_eq!((is_new, looks <= LOOKS, looks > 0), (state == b'R', true, true));
        }
    }
}
