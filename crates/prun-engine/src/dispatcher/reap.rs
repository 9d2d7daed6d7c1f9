//! Collects ended children, and ends a worker: TERM, a grace, then its whole tree.

use std::time::{Duration, Instant};

use prun_core::event::ProcessIdentity;
use prun_core::outcome::{Exit, SweepFacts};
use rustix::process::Signal;

use super::signals::Signals;
use crate::contain::{Collected, Containment, reap_one};
use crate::process::signal_process;

/// How many children are collected before anything else is looked at: what forks the next and ends, all the time, may
/// do so faster than they are collected.
const AT_ONCE: u32 = 200;

/// Collects children and remembers how the leader among them ended, and what all of them used.
#[derive(Debug, Default)]
pub(super) struct Reaper {
    leader: Option<u32>,
    exit: Option<Exit>,
    peak_rss_kib: u64,
    cpu_millis: u64,
    has_more: bool,
}

impl Reaper {
    /// Waits for the end of this leader among others.
    pub(super) fn of(leader: u32) -> Self {
        Self { leader: Some(leader), ..Self::default() }
    }

    /// How the leader ended, once it has.
    pub(super) fn exit(&self) -> Option<&Exit> {
        self.exit.as_ref()
    }

    /// Peak resident memory of the largest process, in KiB, and CPU time of all, in milliseconds; `None`
    /// where nothing was collected.
    pub(super) fn used(&self) -> Option<(u64, u64)> {
        (self.peak_rss_kib > 0).then_some((self.peak_rss_kib, self.cpu_millis))
    }

    /// Whether [`collect`](Self::collect) has left some that have ended: it is called again before anything is waited for.
    pub(super) fn has_more(&self) -> bool {
        self.has_more
    }

    /// Collects what has ended, but not too much in one go; whether any child is left.
    pub(super) fn collect(&mut self) -> bool {
        self.has_more = false;
        for _ in 0..AT_ONCE {
            match reap_one() {
                Collected::Child(child) => {
                    self.peak_rss_kib = self.peak_rss_kib.max(child.peak_rss_kib);
                    self.cpu_millis = self.cpu_millis.saturating_add(child.cpu_millis);
                    if self.leader == Some(child.pid) && self.exit.is_none() {
                        self.exit = Some(child.exit);
                    }
                }
                Collected::NoneEnded => return true,
                Collected::NoChildren => return false,
            }
        }
        self.has_more = true;
        true
    }

    /// Asks the leader to end and gives it `grace`, which another signal to the dispatcher cuts short.
    /// A stopped process gets TERM only once it goes on.
    pub(super) fn end_leader(&mut self, leader: &ProcessIdentity, grace: Duration, signals: &mut Signals) {
        let deadline = Instant::now() + grace;
        let asked = signals.stops();
        for signal in [Signal::TERM, Signal::CONT] {
            // A leader that has gone by itself is as good as one that obeyed.
            let _ = signal_process(leader, signal);
        }
        while self.collect() && self.exit.is_none() && signals.stops() == asked {
            match deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
                Some(left) => signals.wait(Some(if self.has_more { Duration::ZERO } else { left })),
                None => break,
            };
        }
    }

    /// Ends everything that is left.
    pub(super) fn sweep(&mut self, containment: &Containment) -> SweepFacts {
        containment.sweep(&mut || self.collect())
    }
}
