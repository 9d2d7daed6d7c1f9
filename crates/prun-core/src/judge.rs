//! The verdict on an attempt, computed from its facts. What follows from it is [`crate::policy`]'s.

use crate::outcome::{AttemptFacts, Cause, Changes, Channel, Exit, FinalEvent, Gap, Outcome, StopReason};

/// The signal by which the kernel ends a process for memory.
const SIGKILL: i32 = 9;

/// Computes the verdict: the first thing in this order that stands in the way of success.
///
/// Success needs all of: exit 0, the client's own final event without an error (where it has one), a
/// result from an authentic channel that meets the contract, the declared deliverables, the unit's own
/// check, and a diff for a write unit. Nor may the client have denied the worker a tool: what it could not
/// look at or run may be missing from an answer that looks complete (clients say success all the same).
#[must_use]
pub fn judge(facts: &AttemptFacts) -> Outcome {
    if !facts.sweep.survivors.is_empty() {
        return Outcome::Failed(Cause::KillFailed);
    }
    if facts.dispatcher_died {
        return Outcome::Failed(Cause::DispatchDead);
    }
    if let Some(reason) = facts.stopped.filter(|reason| reason.is_asked_for() || *reason == StopReason::Hold) {
        return Outcome::Stopped(reason);
    }
    if facts.setup.as_ref().is_some_and(|setup| !setup.ok) {
        return Outcome::Failed(Cause::Setup);
    }
    if let Exit::NotStarted { .. } = facts.exit {
        return Outcome::Failed(Cause::SpawnError);
    }
    if let Some(cause) = facts.stopped.and_then(limit_cause) {
        return Outcome::Failed(provider_of_silence(cause, facts).unwrap_or(cause));
    }
    if facts.final_event != FinalEvent::Completed
        && let Some(error) = &facts.error
    {
        return Outcome::Failed(error.class);
    }
    let denied = || (!facts.denied.is_empty()).then_some(Outcome::Failed(Cause::Permission));
    judge_exit(facts).or_else(denied).or_else(|| judge_work(facts)).unwrap_or(Outcome::Succeeded)
}

fn limit_cause(reason: StopReason) -> Option<Cause> {
    match reason {
        StopReason::IdleStall => Some(Cause::IdleStall),
        StopReason::FirstOutput => Some(Cause::FirstOutput),
        StopReason::HardTimeout => Some(Cause::HardTimeout),
        StopReason::OutputLimit => Some(Cause::OutputLimit),
        // The work was done when it lingered; the rest of the facts decide.
        StopReason::Lingered => None,
        StopReason::User | StopReason::RunStopped | StopReason::Budget | StopReason::Signal | StopReason::Hold => None,
    }
}

/// Who falls silent after it was refused, and has done nothing since, waits for its provider and is not stuck itself.
fn provider_of_silence(cause: Cause, facts: &AttemptFacts) -> Option<Cause> {
    let class = facts.error.as_ref()?.class;
    let is_silence = matches!(cause, Cause::IdleStall | Cause::FirstOutput) && facts.final_event == FinalEvent::Missing;
    let is_of_provider = matches!(class, Cause::UsageLimit | Cause::RateLimit | Cause::Network | Cause::Auth);
    (is_silence && is_of_provider).then_some(class)
}

fn judge_exit(facts: &AttemptFacts) -> Option<Outcome> {
    let lingered = facts.stopped == Some(StopReason::Lingered);
    match facts.exit {
        // Whatever ended it: a client that said it failed has failed.
        Exit::Signal { .. } | Exit::Code { .. } if lingered && facts.final_event != FinalEvent::Failed => None,
        Exit::Signal { signal: SIGKILL } if facts.oom_killed => Some(Outcome::Failed(Cause::Oom)),
        // A shell tells of its command's end by such a code.
        Exit::Code { code } if code == 128 + SIGKILL && facts.oom_killed => Some(Outcome::Failed(Cause::Oom)),
        Exit::Signal { .. } => Some(Outcome::Failed(Cause::Signal)),
        Exit::Code { code } if code != 0 => Some(Outcome::Failed(Cause::ExitCode)),
        _ if facts.final_event == FinalEvent::Failed => Some(Outcome::Failed(Cause::Worker)),
        _ if facts.final_event == FinalEvent::Missing => Some(Outcome::Incomplete(Gap::NoFinalEvent)),
        _ => None,
    }
}

fn judge_work(facts: &AttemptFacts) -> Option<Outcome> {
    let unchanged = facts.changes.as_ref().is_none_or(Changes::is_empty);
    let Some(result) = facts.result.as_ref().filter(|result| result.channel != Channel::Salvage) else {
        let says_success = facts.final_event == FinalEvent::Completed;
        let nothing = says_success && unchanged && facts.harvest_error.is_none();
        return Some(if nothing { Outcome::Failed(Cause::NoWork) } else { Outcome::Incomplete(Gap::NoResult) });
    };
    if !result.contract_gaps.is_empty() {
        return Some(Outcome::Incomplete(Gap::Contract));
    }
    if !facts.missing_deliverables.is_empty() {
        return Some(Outcome::Incomplete(Gap::Deliverable));
    }
    if facts.harvest_error.is_some() {
        return Some(Outcome::Incomplete(Gap::Harvest));
    }
    if facts.verify.as_ref().is_some_and(|verify| !verify.ok) {
        return Some(Outcome::Failed(Cause::Verify));
    }
    (facts.expects_changes && unchanged).then_some(Outcome::Incomplete(Gap::NoChange))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::tests::good_facts;
    use crate::outcome::{CheckFacts, ClientError};

    fn check(ok: bool) -> CheckFacts {
        CheckFacts { ok, exit: Exit::Code { code: i32::from(!ok) }, timed_out: false, millis: 1, log: "/l".into() }
    }

    fn error(class: Cause) -> ClientError {
        ClientError { class, message: "m".into(), resets_at: None }
    }

    type Spoil = fn(&mut AttemptFacts);

    #[test]
    fn success_needs_everything_at_once() {
        assert_eq!(judge(&good_facts()), Outcome::Succeeded);
        let cases: &[(Spoil, Outcome)] = &[
            (|f| f.exit = Exit::Code { code: 1 }, Outcome::Failed(Cause::ExitCode)),
            (|f| f.exit = Exit::Signal { signal: 9 }, Outcome::Failed(Cause::Signal)),
            (
                |f| {
                    f.exit = Exit::Signal { signal: 9 };
                    f.oom_killed = true;
                },
                Outcome::Failed(Cause::Oom),
            ),
            (
                |f| {
                    f.exit = Exit::Code { code: 137 };
                    f.oom_killed = true;
                },
                Outcome::Failed(Cause::Oom),
            ),
            (|f| f.exit = Exit::Code { code: 137 }, Outcome::Failed(Cause::ExitCode)),
            (
                |f| {
                    f.exit = Exit::Signal { signal: 11 };
                    f.oom_killed = true;
                },
                Outcome::Failed(Cause::Signal),
            ),
            (|f| f.exit = Exit::NotStarted { code: 127, error: "e".into() }, Outcome::Failed(Cause::SpawnError)),
            (|f| f.final_event = FinalEvent::Missing, Outcome::Incomplete(Gap::NoFinalEvent)),
            (|f| f.final_event = FinalEvent::Failed, Outcome::Failed(Cause::Worker)),
            (
                |f| {
                    f.final_event = FinalEvent::Failed;
                    f.error = Some(error(Cause::UsageLimit));
                    f.exit = Exit::Code { code: 1 };
                },
                Outcome::Failed(Cause::UsageLimit),
            ),
            (|f| f.setup = Some(check(false)), Outcome::Failed(Cause::Setup)),
            (|f| f.verify = Some(check(false)), Outcome::Failed(Cause::Verify)),
            (|f| f.result = None, Outcome::Incomplete(Gap::NoResult)),
            (|f| f.result.as_mut().unwrap().channel = Channel::Salvage, Outcome::Incomplete(Gap::NoResult)),
            (|f| f.result.as_mut().unwrap().contract_gaps.push("Files".into()), Outcome::Incomplete(Gap::Contract)),
            (|f| f.missing_deliverables.push("d".into()), Outcome::Incomplete(Gap::Deliverable)),
            (
                |f| {
                    f.result = None;
                    f.changes = Some(Changes::default());
                },
                Outcome::Failed(Cause::NoWork),
            ),
            (
                |f| {
                    f.result = None;
                    f.changes = None;
                    f.final_event = FinalEvent::NotApplicable;
                },
                Outcome::Incomplete(Gap::NoResult),
            ),
            (|f| f.denied.push("Bash".into()), Outcome::Failed(Cause::Permission)),
            (|f| f.changes = Some(Changes::default()), Outcome::Incomplete(Gap::NoChange)),
            (|f| f.changes = None, Outcome::Incomplete(Gap::NoChange)),
            (|f| f.harvest_error = Some("e".into()), Outcome::Incomplete(Gap::Harvest)),
            (|f| f.stopped = Some(StopReason::IdleStall), Outcome::Failed(Cause::IdleStall)),
            (
                |f| {
                    f.stopped = Some(StopReason::IdleStall);
                    f.final_event = FinalEvent::Missing;
                    f.error = Some(error(Cause::RateLimit));
                },
                Outcome::Failed(Cause::RateLimit),
            ),
            (
                |f| {
                    f.stopped = Some(StopReason::IdleStall);
                    f.final_event = FinalEvent::Missing;
                    f.error = Some(error(Cause::Worker));
                },
                Outcome::Failed(Cause::IdleStall),
            ),
            (|f| f.stopped = Some(StopReason::User), Outcome::Stopped(StopReason::User)),
            (|f| f.sweep.survivors.push(9), Outcome::Failed(Cause::KillFailed)),
        ];
        for (number, (spoil, expected)) in cases.iter().enumerate() {
            let mut facts = good_facts();
            spoil(&mut facts);
            assert_eq!(judge(&facts), *expected, "case {number}");
        }
    }

    #[test]
    fn a_worker_that_lingered_after_its_work_has_done_it() {
        let mut facts = good_facts();
        facts.stopped = Some(StopReason::Lingered);
        facts.exit = Exit::Signal { signal: 15 };
        assert_eq!(judge(&facts), Outcome::Succeeded);
        facts.final_event = FinalEvent::Failed;
        assert_ne!(judge(&facts), Outcome::Succeeded, "it lingered after it had failed");
    }

    #[test]
    fn a_read_unit_needs_no_change() {
        let mut facts = good_facts();
        facts.expects_changes = false;
        facts.changes = None;
        assert_eq!(judge(&facts), Outcome::Succeeded);
    }

    #[test]
    fn what_a_dead_dispatcher_left_is_no_success() {
        let facts = AttemptFacts { dispatcher_died: true, ..good_facts() };
        assert_eq!(judge(&facts), Outcome::Failed(Cause::DispatchDead));
    }
}
