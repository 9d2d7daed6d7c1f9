//! When a worker is ended for its silence or its length: a pure function of times.
//!
//! All times are milliseconds on one monotonic clock.

use prun_core::outcome::StopReason;

use crate::spec::Limits;

/// While a worker is quiet, its next sign of life is looked for after this part of the idle limit.
const QUIET_CHECKS: u64 = 10;

/// The shortest time between two looks for signs of life.
const SHORTEST_CHECK: u64 = 200;

/// Holds a worker's limits against the signs of life that were seen.
#[derive(Clone, Debug)]
pub(super) struct Watchdog {
    limits: Limits,
    started: u64,
    last_sign: u64,
    checked: u64,
    has_output: bool,
    finished: Option<u64>,
    warns: bool,
    is_quiet: bool,
}

/// A change that the supervisor is told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QuietChange {
    /// No sign of life for half the idle limit.
    Quiet {
        /// Seconds of silence.
        seconds: u64,
    },
    /// It moves again.
    Active,
}

impl Watchdog {
    /// A worker that started at `now`. `warns`: say so at half the idle limit.
    pub(super) fn new(limits: Limits, warns: bool, now: u64) -> Self {
        Self {
            limits,
            started: now,
            last_sign: now,
            checked: now,
            has_output: false,
            finished: None,
            warns,
            is_quiet: false,
        }
    }

    /// The worker wrote something.
    pub(super) fn output_at(&mut self, at: u64) {
        if !self.has_output {
            self.has_output = true;
            self.last_sign = self.last_sign.max(at);
        }
    }

    /// There was a sign of life.
    pub(super) fn sign_at(&mut self, at: u64) {
        self.last_sign = self.last_sign.max(at);
    }

    /// Signs of life were looked for.
    pub(super) fn checked_at(&mut self, at: u64) {
        self.checked = at;
    }

    /// The client said its last word.
    pub(super) fn finished_at(&mut self, at: u64) {
        self.finished.get_or_insert(at);
    }

    /// Nobody could move for this long: it counts for nothing.
    pub(super) fn slept(&mut self, millis: u64) {
        for time in [&mut self.started, &mut self.last_sign, &mut self.checked] {
            *time = time.saturating_add(millis);
        }
        self.finished = self.finished.map(|at| at.saturating_add(millis));
    }

    /// When signs of life must be looked for next.
    pub(super) fn check_at(&self) -> Option<u64> {
        if let Some(limit) = self.first_output() {
            return Some(self.started.saturating_add(limit));
        }
        let limit = self.limits.idle_millis?;
        let end = self.last_sign.saturating_add(limit);
        if !self.warns {
            return Some(end);
        }
        if self.is_quiet {
            let step = (limit / QUIET_CHECKS).max(SHORTEST_CHECK);
            return Some(end.min(self.checked.saturating_add(step)));
        }
        Some(self.last_sign.saturating_add(limit / 2))
    }

    /// When anything may be due next.
    pub(super) fn next(&self) -> Option<u64> {
        [self.check_at(), self.hard_end(), self.linger_end()].into_iter().flatten().min()
    }

    /// The limit that is overdue at `now`, where signs of life were just looked for.
    pub(super) fn overdue(&self, now: u64) -> Option<StopReason> {
        let is_past = |end: Option<u64>| end.is_some_and(|end| now >= end);
        if is_past(self.linger_end()) {
            return Some(StopReason::Lingered);
        }
        if is_past(self.hard_end()) {
            return Some(StopReason::HardTimeout);
        }
        if let Some(limit) = self.first_output() {
            return (now >= self.started.saturating_add(limit)).then_some(StopReason::FirstOutput);
        }
        let idle_end = self.limits.idle_millis.map(|limit| self.last_sign.saturating_add(limit));
        is_past(idle_end).then_some(StopReason::IdleStall)
    }

    /// Whether the worker went quiet or moves again.
    pub(super) fn quiet_change(&mut self, now: u64) -> Option<QuietChange> {
        if !self.warns || self.first_output().is_some() {
            return None;
        }
        let silence = now.saturating_sub(self.last_sign);
        let is_quiet = silence >= self.limits.idle_millis? / 2;
        if is_quiet == self.is_quiet {
            return None;
        }
        self.is_quiet = is_quiet;
        Some(if is_quiet { QuietChange::Quiet { seconds: silence / 1000 } } else { QuietChange::Active })
    }

    /// A signal without a sign since then was silent.
    pub(super) fn silent_since(&self, now: u64) -> u64 {
        let idle = self.limits.idle_millis.unwrap_or(60_000);
        now.saturating_sub(self.first_output().unwrap_or(idle / 2))
    }

    /// The first-output limit, while it rules.
    fn first_output(&self) -> Option<u64> {
        self.limits.first_output_millis.filter(|_| !self.has_output)
    }

    fn hard_end(&self) -> Option<u64> {
        self.limits.hard_millis.map(|limit| self.started.saturating_add(limit))
    }

    fn linger_end(&self) -> Option<u64> {
        Some(self.finished?.saturating_add(self.limits.linger_millis?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Liveness;

    fn limits() -> Limits {
        Limits {
            first_output_millis: None,
            idle_millis: Some(600),
            hard_millis: None,
            linger_millis: Some(30),
            grace_millis: 2,
            output_bytes: None,
            liveness: Liveness::All,
        }
    }

    #[test]
    fn silence_is_counted_from_the_last_sign() {
        let mut dog = Watchdog::new(limits(), false, 1000);
        assert_eq!((dog.next(), dog.overdue(1599)), (Some(1600), None));
        dog.sign_at(1550);
        assert_eq!((dog.next(), dog.overdue(2149)), (Some(2150), None));
        assert_eq!(dog.overdue(2150), Some(StopReason::IdleStall));
        assert_eq!(dog.quiet_change(2000), None, "nobody wants to know");
    }

    #[test]
    fn the_idle_clock_stands_still_until_the_first_output() {
        let limits = Limits { first_output_millis: Some(5000), ..limits() };
        let mut dog = Watchdog::new(limits, true, 0);
        assert_eq!((dog.overdue(4999), dog.quiet_change(4999)), (None, None));
        assert_eq!(dog.overdue(5000), Some(StopReason::FirstOutput));
        dog.output_at(4000);
        assert_eq!((dog.overdue(4599), dog.overdue(4600)), (None, Some(StopReason::IdleStall)));
    }

    #[test]
    fn a_sleep_is_no_silence() {
        let mut dog = Watchdog::new(Limits { hard_millis: Some(5000), ..limits() }, false, 0);
        dog.slept(100_000);
        assert_eq!(dog.overdue(100_599), None);
        assert_eq!(dog.overdue(100_600), Some(StopReason::IdleStall));
        dog.sign_at(105_000);
        assert_eq!(dog.overdue(105_000), Some(StopReason::HardTimeout));
    }

    #[test]
    fn quiet_is_said_once_at_half_and_taken_back() {
        let mut dog = Watchdog::new(limits(), true, 0);
        assert_eq!(dog.next(), Some(300));
        assert_eq!(dog.quiet_change(299), None);
        assert_eq!(dog.quiet_change(300), Some(QuietChange::Quiet { seconds: 0 }));
        dog.checked_at(300);
        assert_eq!(dog.quiet_change(310), None);
        assert_eq!(dog.next(), Some(500), "it is looked at more often now");
        dog.sign_at(400);
        assert_eq!(dog.quiet_change(500), Some(QuietChange::Active));
        assert_eq!(dog.next(), Some(700));
    }

    #[test]
    fn a_worker_may_not_live_on_for_long_after_its_last_word() {
        let mut dog = Watchdog::new(limits(), false, 0);
        dog.finished_at(100);
        dog.finished_at(120);
        assert_eq!((dog.next(), dog.overdue(129)), (Some(130), None));
        assert_eq!(dog.overdue(130), Some(StopReason::Lingered));
    }

    #[test]
    fn limits_that_are_off_never_strike() {
        let off = Limits { idle_millis: None, linger_millis: None, ..limits() };
        let mut dog = Watchdog::new(off, true, 0);
        dog.finished_at(1);
        assert_eq!((dog.next(), dog.overdue(u64::MAX), dog.quiet_change(u64::MAX)), (None, None, None));
    }
}
