//! Meets processes where they are born.
//!
//! What forks the next and ends, all the time, lives for a tenth of a millisecond: a list of processes is out of date
//! when it is read, and on a busy machine it is in none. But the kernel gives numbers one after the other
//! (`idr_alloc_cyclic`) and tells the last one that it gave.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::process::stat;

/// How long the next birth is waited for. Whoever forks all the time does it several times in that, while it runs.
const NEXT_BIRTH: Duration = Duration::from_micros(500);

/// How many numbers before the last one are still worth a look: who has an older one has forked already.
const BEHIND: u32 = 2;

/// How many numbers after the last one are looked at: births go on meanwhile.
const AHEAD: u32 = 4;

/// How far up from a newborn process this one is looked for.
const GENERATIONS: usize = 8;

/// The births of the whole machine, as the kernel tells them.
#[derive(Debug)]
pub(super) struct Births(File);

impl Births {
    /// `None` where the kernel tells nothing of them.
    pub(super) fn open() -> Option<Self> {
        File::open("/proc/loadavg").ok().map(Self)
    }

    /// Kills what is born of this process's descendants, until nothing is or the time is `deadline`.
    pub(super) fn kill_descendants(&self, deadline: Instant) {
        let mut until = Instant::now() + NEXT_BIRTH;
        let mut looked_at = 0;
        while Instant::now() < until.min(deadline) {
            let Some(last) = self.last() else { return };
            for number in worth_a_look(last, looked_at) {
                // The descriptor holds the process: nobody who gets its number later is touched.
                let Some(process) = pid(number).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else {
                    continue;
                };
                if is_descendant(number) {
                    let _ = pidfd_send_signal(&process, Signal::KILL);
                    until = Instant::now() + NEXT_BIRTH;
                }
                looked_at = number;
            }
        }
    }

    /// The number that was given last.
    fn last(&self) -> Option<u32> {
        let mut text = [0; 128];
        let count = self.0.read_at(&mut text, 0).ok()?;
        std::str::from_utf8(&text[..count]).ok()?.split_ascii_whitespace().last()?.parse().ok()
    }
}

/// The numbers around the `last` one that come after `looked_at`; numbers start again at the bottom some time.
fn worth_a_look(last: u32, looked_at: u32) -> std::ops::RangeInclusive<u32> {
    let all = last.saturating_sub(BEHIND)..=last.saturating_add(AHEAD);
    if all.contains(&looked_at) { looked_at + 1..=*all.end() } else { all }
}

/// Whether the process with this number descends from this one now.
fn is_descendant(number: u32) -> bool {
    let own = std::process::id();
    let line = std::iter::successors(stat(number), |child| stat(child.parent));
    line.take(GENERATIONS).any(|one| one.parent == own)
}

fn pid(number: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(number).ok()?)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_last_number_is_that_of_the_newest_process_or_a_newer_one() {
        let births = Births::open().unwrap();
        let mut child = Command::new("/bin/true").spawn().unwrap();
        // Other tests start processes too, and numbers start again at the bottom some time.
        assert!(births.last().is_some_and(|last| last >= child.id() || last < child.id() / 2));
        child.wait().unwrap();
    }

    #[test]
    fn no_number_is_looked_at_twice() {
        assert_eq!(worth_a_look(100, 0), 98..=104);
        assert_eq!(worth_a_look(100, 99), 100..=104);
        assert!(worth_a_look(100, 104).is_empty());
        assert_eq!(worth_a_look(300, 4_000_000), 298..=304, "they started again");
    }

    #[test]
    fn a_child_and_its_child_descend_and_a_parent_does_not() {
        let mut shell = Command::new("/bin/sh").args(["-c", "sleep 600 & wait"]).spawn().unwrap();
        let below = || crate::process::descendants(shell.id());
        while below().is_empty() {
            std::thread::yield_now();
        }
        let grandchild = below()[0].pid;
        assert!(is_descendant(shell.id()) && is_descendant(grandchild));
        assert!(!is_descendant(std::process::id()) && !is_descendant(std::os::unix::process::parent_id()));
        for process in below() {
            crate::process::signal_process(&process.identity(), Signal::KILL).unwrap();
        }
        shell.kill().unwrap();
        shell.wait().unwrap();
    }
}
