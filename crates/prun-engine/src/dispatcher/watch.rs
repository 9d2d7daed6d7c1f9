//! Watches a living worker until it ends or must be ended.

use std::path::Path;
use std::time::{Duration, Instant};

use prun_core::outcome::{StopReason, Usage};

use super::liveness::Liveness;
use super::notes::{Note, Notes};
use super::output::Outputs;
use super::reap::Reaper;
use super::result_file::ResultFile;
use super::signals::Signals;
use super::watchdog::{QuietChange, Watchdog};
use crate::spec::{self, Limits, Resumed};

/// Milliseconds between two looks at output that grows, and at most between two at output that stands still.
const LOOKS: (u64, u64) = (500, 6000);

/// Milliseconds until the first look, and at least between two: a flood is met before it costs much disk.
const FIRST_LOOK: u64 = 100;

/// A turn that takes longer than the wait in it by this much was a sleep of the machine, or a stop of
/// everything, not the worker's silence.
pub(super) const SLEEP: Duration = Duration::from_secs(2);

/// A worker that is being watched.
pub(super) struct Watch<'a> {
    /// Its leading process.
    pub(super) leader: u32,
    /// When it is ended.
    pub(super) limits: &'a Limits,
    /// The session of its client's that it goes on in.
    pub(super) resumes: Option<&'a Resumed>,
    /// Where it works.
    pub(super) workspace: &'a Path,
    /// Where its result is to stand.
    pub(super) result: &'a ResultFile,
    /// Who is told of its silence, and of what it uses.
    pub(super) notes: &'a Notes,
    /// Its output.
    pub(super) outputs: &'a mut Outputs,
    /// Its end.
    pub(super) reaper: &'a mut Reaper,
    /// Ours.
    pub(super) signals: &'a mut Signals,
}

/// Why the watch ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Watched {
    /// Why the worker must be ended; `None` where it has ended by itself.
    pub(super) stop: Option<StopReason>,
    /// The signals that were silent when a limit struck.
    pub(super) silent: Vec<String>,
}

impl Watch<'_> {
    /// Watches until the worker's leader ends or must be ended.
    pub(super) fn run(mut self) -> Watched {
        let base = Instant::now();
        // The worker leads a session of its own, whose number is its own.
        let client = self.outputs.has_events().then_some(self.leader);
        let mut state = State {
            dog: Watchdog::new(self.limits.clone(), self.notes.0.is_some(), 0),
            life: Liveness::new(self.tree(), self.workspace, client, 0),
            looked: 0,
            look_at: FIRST_LOOK,
            interval: FIRST_LOOK,
            size: 0,
            used: None,
        };
        loop {
            self.reaper.collect();
            if self.reaper.exit().is_some() {
                return Watched::default();
            }
            let now = millis(base.elapsed());
            if let Some(stop) = self.turn(&mut state, now) {
                let silent = if stop == StopReason::Signal { Vec::new() } else { self.silent(&mut state, now) };
                return Watched { stop: Some(stop), silent };
            }
            let until =
                if self.reaper.has_more() { now } else { state.dog.next().unwrap_or(u64::MAX).min(state.look_at) };
            let pause = until.saturating_sub(now);
            self.signals.wait(Some(Duration::from_millis(pause)));
            // From one turn to the next, so that nobody can be stopped between two of our looks at the clock.
            let overslept = millis(base.elapsed()).saturating_sub(now.saturating_add(pause));
            if overslept > millis(SLEEP) {
                state.dog.slept(overslept);
                state.look_at = millis(base.elapsed());
            }
        }
    }

    /// The processes that count as signs of life: none where output alone does.
    fn tree(&self) -> Option<u32> {
        (self.limits.liveness == spec::Liveness::All).then(std::process::id)
    }

    /// One look around; the reason to end the worker, where there is one.
    fn turn(&mut self, state: &mut State, now: u64) -> Option<StopReason> {
        if self.signals.stop().is_some() {
            return Some(StopReason::Signal);
        }
        let check_is_due = state.dog.check_at().is_some_and(|at| now >= at);
        if check_is_due || now >= state.look_at {
            let largest = self.look_at_output(state, now);
            if self.limits.output_bytes.is_some_and(|limit| largest > limit) {
                return Some(StopReason::OutputLimit);
            }
        }
        if check_is_due {
            if self.limits.liveness == spec::Liveness::All {
                let sign = state.life.look(now);
                state.dog.sign_at(sign);
            }
            state.dog.checked_at(now);
        }
        match state.dog.quiet_change(now) {
            Some(QuietChange::Quiet { seconds }) => self.notes.write(&Note::Quiet { seconds }),
            Some(QuietChange::Active) => self.notes.write(&Note::Active),
            None => {}
        }
        state.dog.overdue(now).map(|reason| self.reason(reason))
    }

    fn look_at_output(&mut self, state: &mut State, now: u64) -> u64 {
        let look = self.outputs.look();
        if look.has_output {
            state.dog.output_at(now);
        }
        if let Some(age) = look.progress {
            // It happened after the look before, whatever the wall clock did since.
            let at = now.saturating_sub(millis(age)).max(state.looked);
            state.dog.sign_at(at);
            state.life.output_at(at);
        }
        if look.is_finished {
            state.dog.finished_at(now);
        } else if look.grew {
            self.tell_usage(state);
        }
        // Output that stands still is looked at less and less often, so that a hundred idle workers cost
        // next to nothing.
        let growth = look.largest.saturating_sub(state.size);
        state.interval = if look.grew {
            let room = self.limits.output_bytes.map(|limit| limit.saturating_sub(look.largest));
            pace(growth, now.saturating_sub(state.looked), room)
        } else {
            (state.interval * 2).min(LOOKS.1)
        };
        (state.looked, state.look_at, state.size) = (now, now + state.interval, look.largest);
        look.largest
    }

    /// What it has used counts while it works; once it has said its last word, nothing is to be stopped any more.
    fn tell_usage(&self, state: &mut State) {
        let used = self.outputs.used(self.resumes);
        if let Some(usage) = used.filter(|_| used != state.used) {
            self.notes.write(&Note::Used { usage });
            state.used = used;
        }
    }

    /// A worker that has left its result and only lives on has done its work.
    fn reason(&self, reason: StopReason) -> StopReason {
        let is_done = reason == StopReason::IdleStall
            && self.limits.liveness == spec::Liveness::All
            && self.result.is_from_worker();
        if is_done { StopReason::Lingered } else { reason }
    }

    fn silent(&self, state: &mut State, now: u64) -> Vec<String> {
        let since = state.dog.silent_since(now);
        if self.limits.liveness == spec::Liveness::All {
            state.life.look(now);
            return state.life.silent_since(since);
        }
        let silent = state.life.silent_since(since);
        silent.into_iter().filter(|name| name == "output" || name == "events").collect()
    }
}

struct State {
    dog: Watchdog,
    life: Liveness,
    looked: u64,
    look_at: u64,
    interval: u64,
    size: u64,
    /// What was last told of its usage.
    used: Option<Usage>,
}

/// Milliseconds until output that grew by `growth` in `millis` may have filled the `room` that is left.
fn pace(growth: u64, millis: u64, room: Option<u64>) -> u64 {
    let until_full = room.and_then(|room| room.saturating_mul(millis.max(1)).checked_div(growth));
    until_full.map_or(LOOKS.0, |until| until.clamp(FIRST_LOOK, LOOKS.0))
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_that_will_soon_be_too_much_is_looked_at_sooner() {
        assert_eq!(pace(10, 500, None), 500);
        assert_eq!(pace(10, 500, Some(1_000_000)), 500);
        assert_eq!(pace(1000, 500, Some(600)), 300);
        assert_eq!(pace(1000, 500, Some(0)), 100);
        assert_eq!(pace(0, 0, Some(5)), 500, "it shrank");
    }
}
