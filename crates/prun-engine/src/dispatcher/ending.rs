//! What a dispatcher says at its end: its exit code and its words about a worker that it ended.

use prun_core::outcome::{AttemptFacts, Exit, FinalEvent, StopReason};

/// The exit code of a dispatcher that reaped its worker.
const REAPED: i32 = 124;

/// The exit code where a worker that ended with 0 left no result and none could be written in its place.
const NO_RESULT: i32 = 7;

/// What ended the worker, as far as it decides the exit code.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ending<'a> {
    /// How the leader ended.
    pub(super) exit: &'a Exit,
    /// Why the dispatcher ended it.
    pub(super) stopped: Option<StopReason>,
    /// The signal that the dispatcher got.
    pub(super) signal: Option<i32>,
    /// The client's last word.
    pub(super) final_event: &'a FinalEvent,
}

impl Ending<'_> {
    /// The dispatcher's exit code, before its result is looked at.
    pub(super) fn exit_code(&self) -> i32 {
        match (self.signal, self.stopped, self.exit) {
            (Some(signal), ..) => 128 + signal,
            (None, None, Exit::Signal { signal }) => 128 + *signal,
            // Its work was done; it only did not leave.
            (None, Some(StopReason::Lingered), _) if *self.final_event != FinalEvent::Failed => 0,
            (None, Some(_), _) => REAPED,
            (None, None, Exit::Code { code } | Exit::NotStarted { code, .. }) => *code,
            (None, None, Exit::Unobserved) => 0,
        }
    }

    /// Why the worker was reaped, in one word; `None` where it ended by itself.
    pub(super) fn reason(&self) -> Option<String> {
        let stopped = self.stopped?;
        Some(self.signal.map_or_else(|| stopped.to_string(), |signal| format!("signal-{signal}")))
    }
}

/// The dispatcher's exit code: the contract's table.
pub(super) fn exit_code(facts: &AttemptFacts) -> i32 {
    if facts.setup.as_ref().is_some_and(|setup| !setup.ok) && facts.dispatcher_signal.is_none() {
        return 1;
    }
    let ending = Ending {
        exit: &facts.exit,
        stopped: facts.stopped,
        signal: facts.dispatcher_signal,
        final_event: &facts.final_event,
    };
    let is_misplaced = facts.result.as_ref().is_none_or(|result| result.misplaced);
    match ending.exit_code() {
        0 if is_misplaced => NO_RESULT,
        code => code,
    }
}

/// What is appended to the tail of a worker that was reaped: a blank line and a sentence.
pub(super) fn reaped_line(reason: &str, code: i32, ends_with_newline: bool) -> String {
    let gap = if ends_with_newline { "\n" } else { "\n\n" };
    format!("{gap}dispatch-task: worker reaped ({reason}); exit code {code}.\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(exit: &Exit, stopped: Option<StopReason>, signal: Option<i32>, code: i32, reason: Option<&str>) {
        let ending = Ending { exit, stopped, signal, final_event: &FinalEvent::NotApplicable };
        assert_eq!((ending.exit_code(), ending.reason().as_deref()), (code, reason), "{ending:?}");
    }

    #[test]
    fn the_exit_code_tells_who_ended_the_worker() {
        let code = |code| Exit::Code { code };
        check(&code(0), None, None, 0, None);
        check(&code(124), None, None, 124, None);
        check(&Exit::Signal { signal: 9 }, None, None, 137, None);
        check(&Exit::NotStarted { code: 127, error: String::new() }, None, None, 127, None);
        check(&Exit::Signal { signal: 15 }, Some(StopReason::IdleStall), None, 124, Some("idle-stall"));
        check(&Exit::Signal { signal: 9 }, Some(StopReason::HardTimeout), None, 124, Some("hard-timeout"));
        check(&code(0), Some(StopReason::Signal), Some(15), 143, Some("signal-15"));
        check(&code(1), Some(StopReason::Lingered), None, 0, Some("lingered"));
        check(&code(0), None, Some(2), 130, None);
        check(&Exit::Unobserved, None, None, 0, None);
    }

    #[test]
    fn a_blank_line_stands_before_the_word_about_a_reaped_worker() {
        assert_eq!(
            reaped_line("idle-stall", 124, true),
            "\ndispatch-task: worker reaped (idle-stall); exit code 124.\n"
        );
        assert!(reaped_line("x", 124, false).starts_with("\n\ndispatch-task"));
    }
}
