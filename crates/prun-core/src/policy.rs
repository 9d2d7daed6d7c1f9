//! What follows from the verdict on an attempt: the table of classes, as a pure function.
//!
//! | class | the executor | the unit |
//! |---|---|---|
//! | auth, spawn-error | held until somebody releases it | goes to the next executor that it names, else it has failed |
//! | usage-limit | held until the reset; where none is told 15 min, doubling, at most five times | waits or goes to the next one |
//! | rate-limit, network | held for a pause: 15 s, doubling, at most 16 min | waits, or goes to the next one where the pause is long |
//! | context, permission | – | goes to another executor, never back; spends a retry |
//! | setup, kill-failed | – | has failed |
//! | anything else | – | another attempt while it has retries, in the same session where that saves the work |
//!
//! What is not the unit's fault spends none of its retries: it counts against what the whole run may repeat
//! ([`run_allowance`]). Every decision comes with its sentence.

use serde::{Deserialize, Serialize};

use crate::digest::duration;
use crate::event::RetryHow;
use crate::ids::{Attempt, ExecutorName};
use crate::outcome::{Cause, Gap, Outcome};
use crate::plan::model::COMMAND_EXECUTOR;
use crate::time::Timestamp;
use crate::unit::NextAttempt;

/// The pause before a second attempt, in milliseconds; it doubles with each further one, up to 64 times.
pub const RETRY_PAUSE_MILLIS: i64 = 1_000;

/// The first pause after a rate limit or a network fault; it doubles with each further one in a row.
pub const BACKOFF_PAUSE_MILLIS: i64 = 15_000;

/// The first hold after a usage limit whose end is not told. The clients' windows are hours long.
pub const PROBE_PAUSE_MILLIS: i64 = 15 * 60_000;

/// Holds of unknown length in a row, after which an executor is held until somebody releases it.
pub const MOST_PROBES: u32 = 5;

/// A pause that is longer than this sends a unit to another executor, where it names one.
pub const SHORT_PAUSE_MILLIS: i64 = 60_000;

/// Attempts of one unit that were not its fault, after which further ones count as its own.
pub const MOST_REPEATS_OF_A_UNIT: u32 = 6;

/// How many attempts that were nobody's fault a run of so many units may repeat.
#[must_use]
pub fn run_allowance(units: usize) -> u32 {
    u32::try_from(units).unwrap_or(u32::MAX).saturating_mul(4).saturating_add(10)
}

/// What another attempt is paid with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Spends {
    /// One of the unit's retries.
    #[default]
    Retry,
    /// One of the repeats of the whole run.
    Repeat,
}

/// All that a decision depends on.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// The verdict on the attempt.
    pub outcome: &'a Outcome,
    /// The verdict as a sentence.
    pub verdict: &'a str,
    /// The session that the next attempt can go on in is there, and this attempt did not itself go on in one.
    pub can_go_on: bool,
    /// When the limit is lifted, where the client said so.
    pub resets_at: Option<Timestamp>,
    /// Who did the attempt.
    pub executor: &'a ExecutorName,
    /// The attempt's number.
    pub attempt: Attempt,
    /// The other executors that could still take the unit, now or after a hold that ends by itself.
    pub others: &'a [ExecutorName],
    /// The unit's retries that are left.
    pub retries_left: u32,
    /// The unit's retries that were spent.
    pub retries_spent: u32,
    /// Attempts of the unit that were not its fault.
    pub repeats: u32,
    /// What is left of [`run_allowance`].
    pub allowance: u32,
    /// Holds of the executor in a row, without a good attempt in between.
    pub faults: u32,
    /// Spreads pauses: another number for each attempt of each unit of each run.
    pub seed: u64,
    /// The wall clock.
    pub now: Timestamp,
}

/// What follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// No unit starts on the executor for now.
    pub hold: Option<HoldFor>,
    /// What becomes of the unit.
    pub next: Next,
    /// Why, as the end of a sentence that begins with the verdict.
    pub why: String,
}

/// How long an executor is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldFor {
    /// The class of error.
    pub cause: Cause,
    /// Until when; `None` until somebody releases it.
    pub until: Option<Timestamp>,
}

/// What becomes of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// The verdict stands.
    Settle,
    /// Another attempt.
    Again {
        /// When it may begin; a hold may keep it longer.
        at: Timestamp,
        /// What it is paid with.
        spends: Spends,
        /// Where, and what its worker is told.
        begins: NextAttempt,
        /// It never goes back to this executor.
        bars: bool,
    },
}

/// Decides what follows from an attempt that nobody stopped.
#[must_use]
pub fn decide(situation: &Situation<'_>) -> Decision {
    match situation.outcome {
        Outcome::Succeeded | Outcome::Stopped(_) => settle(String::new()),
        Outcome::Incomplete(_) => retry(situation),
        Outcome::Failed(cause) => match cause {
            Cause::Auth => without_end(situation, *cause),
            // The unit's own command is the unit's own fault.
            Cause::SpawnError if situation.executor.as_str() != COMMAND_EXECUTOR => without_end(situation, *cause),
            Cause::UsageLimit => until_reset(situation),
            Cause::RateLimit | Cause::Network => back_off(situation, *cause),
            Cause::Context | Cause::Permission => elsewhere(situation),
            // Once may be chance; the last attempt, or the one after the second silence, is better made by another one.
            Cause::IdleStall | Cause::FirstOutput
                if !situation.others.is_empty() && (situation.retries_left == 1 || situation.retries_spent > 0) =>
            {
                elsewhere(situation)
            }
            Cause::SpawnError | Cause::Setup | Cause::KillFailed => settle(String::new()),
            _ => retry(situation),
        },
    }
}

fn settle(why: String) -> Decision {
    Decision { hold: None, next: Next::Settle, why }
}

fn retry(situation: &Situation<'_>) -> Decision {
    if situation.retries_left == 0 {
        return settle(String::new());
    }
    let first = RETRY_PAUSE_MILLIS << situation.retries_spent.min(6);
    let at = situation.now.plus(spread(first, situation.seed));
    let goes_on = situation.can_go_on && leaves_work(situation.outcome);
    let (how, where_) = if goes_on { (RetryHow::Continue, " in its session") } else { (RetryHow::Fresh, "") };
    let message = if goes_on {
        format!("Your last attempt was not accepted: {}.", situation.verdict)
    } else {
        format!("An attempt before this one, of which nothing is here, was not accepted: {}.", situation.verdict)
    };
    let begins = NextAttempt { how, message: Some(message) };
    let next = Next::Again { at, spends: Spends::Retry, begins, bars: false };
    Decision { hold: None, next, why: format!("attempt {} follows{where_}", situation.attempt.next()) }
}

/// Whether an attempt that ended so has left work that is worth going on with, and a workspace and a session that
/// can be trusted.
fn leaves_work(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Succeeded | Outcome::Stopped(_) => false,
        // What could not be harvested could not be harvested again.
        Outcome::Incomplete(gap) => *gap != Gap::Harvest,
        Outcome::Failed(cause) => matches!(
            cause,
            Cause::Verify
                | Cause::ExitCode
                | Cause::Signal
                | Cause::Oom
                | Cause::IdleStall
                | Cause::HardTimeout
                | Cause::Worker
        ),
    }
}

/// Until somebody did something about it.
fn without_end(situation: &Situation<'_>, cause: Cause) -> Decision {
    let hold = Some(HoldFor { cause, until: None });
    let held = format!("{} is held until it is released", situation.executor);
    if situation.others.is_empty() {
        return Decision { hold, next: Next::Settle, why: format!("{held}, and the unit names no other executor") };
    }
    interrupted(situation, hold, &held, situation.now)
}

fn until_reset(situation: &Situation<'_>) -> Decision {
    let Situation { now, seed, faults, executor, .. } = *situation;
    let pause = match situation.resets_at {
        Some(at) if at > now => Some(a_little_after(i64::try_from(at.since(now)).unwrap_or(i64::MAX), seed)),
        // Clocks differ, and what was told may be over.
        Some(_) => Some(spread(SHORT_PAUSE_MILLIS, seed)),
        None if faults < MOST_PROBES => Some(spread(PROBE_PAUSE_MILLIS << faults, seed)),
        None => None,
    };
    let Some(pause) = pause else { return without_end(situation, Cause::UsageLimit) };
    let until = now.plus(pause);
    let hold = Some(HoldFor { cause: Cause::UsageLimit, until: Some(until) });
    let told = if situation.resets_at.is_some() { "until the reset, " } else { "" };
    let held = format!("{executor} is held {told}for {}", span(pause));
    interrupted(situation, hold, &held, now)
}

fn back_off(situation: &Situation<'_>, cause: Cause) -> Decision {
    let Situation { now, seed, faults, executor, .. } = *situation;
    let pause = spread(BACKOFF_PAUSE_MILLIS << faults.min(6), seed);
    let until = now.plus(pause);
    let hold = Some(HoldFor { cause, until: Some(until) });
    let held = format!("{executor} pauses for {}", span(pause));
    // A short pause is not worth the loss of the client's session.
    let moves = pause > SHORT_PAUSE_MILLIS && !situation.others.is_empty();
    interrupted(situation, hold, &held, if moves { now } else { until })
}

/// The unit goes on later or elsewhere with what it has done so far.
fn interrupted(situation: &Situation<'_>, hold: Option<HoldFor>, held: &str, at: Timestamp) -> Decision {
    let (spends, because) = if situation.allowance == 0 {
        (Spends::Retry, "the run has repeated as much as it may")
    } else if situation.repeats >= MOST_REPEATS_OF_A_UNIT {
        (Spends::Retry, "it was repeated often enough")
    } else {
        (Spends::Repeat, "")
    };
    if spends == Spends::Retry && situation.retries_left == 0 {
        let why = format!("{held}; {because}, and the unit has no retry left");
        return Decision { hold, next: Next::Settle, why };
    }
    let goes = match situation.others {
        [] => "the unit waits".to_owned(),
        others => format!("the unit waits or goes on with {}", listed(others)),
    };
    let paid = match spends {
        Spends::Repeat => "spends no retry".to_owned(),
        Spends::Retry => format!("spends a retry, because {because}"),
    };
    let begins = NextAttempt {
        how: RetryHow::Continue,
        message: Some(format!(
            "You go on where {} was interrupted; what was done so far is there.",
            situation.executor
        )),
    };
    Decision { hold, next: Next::Again { at, spends, begins, bars: false }, why: format!("{held}; {goes} and {paid}") }
}

/// The same executor would come to the same end.
fn elsewhere(situation: &Situation<'_>) -> Decision {
    if situation.others.is_empty() {
        return settle("the unit names no other executor".to_owned());
    }
    if situation.retries_left == 0 {
        return settle("it has no retry left for another executor".to_owned());
    }
    let begins = NextAttempt {
        how: RetryHow::Continue,
        message: Some(format!("Another worker, {}, could not finish this; what it did is there.", situation.executor)),
    };
    let at = situation.now.plus(spread(RETRY_PAUSE_MILLIS, situation.seed));
    let next = Next::Again { at, spends: Spends::Retry, begins, bars: true };
    Decision { hold: None, next, why: format!("it goes to {}, not back", listed(situation.others)) }
}

/// Whoever comes at the very second of a reset meets everybody else: at most 20 s later.
fn a_little_after(millis: i64, seed: u64) -> i64 {
    let spreads = millis.min(80_000);
    millis.saturating_add(spread(spreads, seed) - spreads)
}

/// Between the pause and a quarter more, by the seed: who failed together does not come back together.
#[must_use]
pub fn spread(millis: i64, seed: u64) -> i64 {
    let share = i64::try_from(mix(seed) % 256).unwrap_or(0);
    millis.saturating_add(millis / 1024 * share + millis % 1024 * share / 1024)
}

/// A number that tells this attempt of this unit from all others; FNV-1a.
#[must_use]
pub fn seed_of(run: u64, unit: &str, attempt: u32) -> u64 {
    let bytes = run.to_le_bytes().into_iter().chain(unit.bytes()).chain(attempt.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The finalizer of SplitMix64: every bit of the seed reaches every bit of the number.
fn mix(seed: u64) -> u64 {
    let mixed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn span(millis: i64) -> String {
    duration(u64::try_from(millis).unwrap_or(0))
}

fn listed(executors: &[ExecutorName]) -> String {
    executors.iter().map(ExecutorName::as_str).collect::<Vec<_>>().join(" or ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_000_000_000);

    struct Case {
        outcome: Outcome,
        executor: &'static str,
        others: &'static [&'static str],
        change: fn(&mut Situation<'_>),
    }

    fn failed(cause: Cause) -> Case {
        Case { outcome: Outcome::Failed(cause), executor: "codex", others: &[], change: |_| {} }
    }

    fn with_other(cause: Cause) -> Case {
        Case { others: &["claude"], ..failed(cause) }
    }

    /// `hold | what becomes of the unit | why`, times in milliseconds from now.
    fn told(case: &Case) -> String {
        let others: Vec<ExecutorName> = case.others.iter().map(|name| name.parse().unwrap()).collect();
        let mut situation = Situation {
            outcome: &case.outcome,
            verdict: "no result",
            can_go_on: false,
            resets_at: None,
            executor: &case.executor.parse().unwrap(),
            attempt: Attempt(1),
            others: &others,
            retries_left: 1,
            retries_spent: 0,
            repeats: 0,
            allowance: 10,
            faults: 0,
            seed: 0,
            now: NOW,
        };
        (case.change)(&mut situation);
        let decision = decide(&situation);
        let hold = match decision.hold {
            None => "-".to_owned(),
            Some(HoldFor { cause, until: None }) => format!("{cause} without end"),
            Some(HoldFor { cause, until: Some(until) }) => format!("{cause} {}", until.since(NOW)),
        };
        let next = match decision.next {
            Next::Settle => "settle".to_owned(),
            Next::Again { at, spends, begins, bars } => {
                let bars = if bars { ", never back" } else { "" };
                format!("{:?} at {}, {spends:?}{bars}", begins.how, at.since(NOW))
            }
        };
        let why = if decision.why.is_empty() { "-" } else { &decision.why };
        format!("{hold} | {next} | {why}")
    }

    #[test]
    fn every_class_has_its_row() {
        let rows: &[(&str, Case)] = &[
            ("succeeded", Case { outcome: Outcome::Succeeded, ..failed(Cause::Worker) }),
            ("incomplete", Case { outcome: Outcome::Incomplete(Gap::NoResult), ..failed(Cause::Worker) }),
            (
                "incomplete, session",
                Case {
                    change: |s| s.can_go_on = true,
                    outcome: Outcome::Incomplete(Gap::NoResult),
                    ..failed(Cause::Worker)
                },
            ),
            ("verify, session", Case { change: |s| s.can_go_on = true, ..failed(Cause::Verify) }),
            ("no work, session", Case { change: |s| s.can_go_on = true, ..failed(Cause::NoWork) }),
            ("worker", failed(Cause::Worker)),
            ("worker, third", Case { change: |s| s.retries_spent = 2, ..failed(Cause::Worker) }),
            ("worker, none left", Case { change: |s| s.retries_left = 0, ..failed(Cause::Worker) }),
            ("setup", failed(Cause::Setup)),
            ("auth", failed(Cause::Auth)),
            ("auth, other", with_other(Cause::Auth)),
            ("spawn", with_other(Cause::SpawnError)),
            ("spawn, own command", Case { executor: "command", ..with_other(Cause::SpawnError) }),
            ("usage, reset", Case { change: |s| s.resets_at = Some(NOW.plus(7_200_000)), ..failed(Cause::UsageLimit) }),
            ("usage, past", Case { change: |s| s.resets_at = Some(NOW.plus(-5)), ..with_other(Cause::UsageLimit) }),
            ("usage, unknown", failed(Cause::UsageLimit)),
            ("usage, third", Case { change: |s| s.faults = 2, ..failed(Cause::UsageLimit) }),
            ("usage, sixth", Case { change: |s| s.faults = 5, ..failed(Cause::UsageLimit) }),
            ("rate", with_other(Cause::RateLimit)),
            ("rate, fourth", Case { change: |s| s.faults = 3, ..with_other(Cause::RateLimit) }),
            ("network, fourth", Case { change: |s| s.faults = 3, ..failed(Cause::Network) }),
            ("network, 99th", Case { change: |s| s.faults = 99, ..failed(Cause::Network) }),
            ("network, again and again", Case { change: |s| s.repeats = 6, ..failed(Cause::Network) }),
            (
                "network, spent",
                Case {
                    change: |s| {
                        s.allowance = 0;
                        s.retries_left = 0;
                    },
                    ..failed(Cause::Network)
                },
            ),
            ("context", failed(Cause::Context)),
            ("context, other", with_other(Cause::Context)),
            ("silence, other", with_other(Cause::IdleStall)),
            ("silence, of many", Case { change: |s| s.retries_left = 3, ..with_other(Cause::IdleStall) }),
            (
                "silence, again",
                Case {
                    change: |s| {
                        s.retries_left = 2;
                        s.retries_spent = 1;
                    },
                    ..with_other(Cause::FirstOutput)
                },
            ),
            ("silence", failed(Cause::IdleStall)),
            ("permission, none left", Case { change: |s| s.retries_left = 0, ..with_other(Cause::Permission) }),
        ];
        let table: String = rows.iter().map(|(name, case)| format!("{name}: {}\n", told(case))).collect();
        insta::assert_snapshot!(table, @r##"
        succeeded: - | settle | -
        incomplete: - | Fresh at 1000, Retry | attempt 2 follows
        incomplete, session: - | Continue at 1000, Retry | attempt 2 follows in its session
        verify, session: - | Continue at 1000, Retry | attempt 2 follows in its session
        no work, session: - | Fresh at 1000, Retry | attempt 2 follows
        worker: - | Fresh at 1000, Retry | attempt 2 follows
        worker, third: - | Fresh at 4000, Retry | attempt 2 follows
        worker, none left: - | settle | -
        setup: - | settle | -
        auth: auth without end | settle | codex is held until it is released, and the unit names no other executor
        auth, other: auth without end | Continue at 0, Repeat | codex is held until it is released; the unit waits or goes on with claude and spends no retry
        spawn: spawn-error without end | Continue at 0, Repeat | codex is held until it is released; the unit waits or goes on with claude and spends no retry
        spawn, own command: - | settle | -
        usage, reset: usage-limit 7200000 | Continue at 0, Repeat | codex is held until the reset, for 2h00m; the unit waits and spends no retry
        usage, past: usage-limit 60000 | Continue at 0, Repeat | codex is held until the reset, for 60s; the unit waits or goes on with claude and spends no retry
        usage, unknown: usage-limit 900000 | Continue at 0, Repeat | codex is held for 15m; the unit waits and spends no retry
        usage, third: usage-limit 3600000 | Continue at 0, Repeat | codex is held for 60m; the unit waits and spends no retry
        usage, sixth: usage-limit without end | settle | codex is held until it is released, and the unit names no other executor
        rate: rate-limit 15000 | Continue at 15000, Repeat | codex pauses for 15s; the unit waits or goes on with claude and spends no retry
        rate, fourth: rate-limit 120000 | Continue at 0, Repeat | codex pauses for 2m; the unit waits or goes on with claude and spends no retry
        network, fourth: network 120000 | Continue at 120000, Repeat | codex pauses for 2m; the unit waits and spends no retry
        network, 99th: network 960000 | Continue at 960000, Repeat | codex pauses for 16m; the unit waits and spends no retry
        network, again and again: network 15000 | Continue at 15000, Retry | codex pauses for 15s; the unit waits and spends a retry, because it was repeated often enough
        network, spent: network 15000 | settle | codex pauses for 15s; the run has repeated as much as it may, and the unit has no retry left
        context: - | settle | the unit names no other executor
        context, other: - | Continue at 1000, Retry, never back | it goes to claude, not back
        silence, other: - | Continue at 1000, Retry, never back | it goes to claude, not back
        silence, of many: - | Fresh at 1000, Retry | attempt 2 follows
        silence, again: - | Continue at 1000, Retry, never back | it goes to claude, not back
        silence: - | Fresh at 1000, Retry | attempt 2 follows
        permission, none left: - | settle | it has no retry left for another executor
        "##);
    }

    #[test]
    fn pauses_are_spread_by_at_most_a_quarter() {
        let pauses: Vec<i64> = (0..100).map(|unit| spread(15_000, seed_of(7, &format!("u{unit}"), 1))).collect();
        assert!(pauses.iter().all(|pause| (15_000..=18_750).contains(pause)), "{pauses:?}");
        let mut different = pauses.clone();
        different.sort_unstable();
        different.dedup();
        assert!(different.len() > 60, "{different:?}");
        assert_eq!(spread(i64::MAX, 255), i64::MAX, "nothing overflows");
    }
}
