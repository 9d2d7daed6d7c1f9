//! What a client's words come to once it is known how it ended.

use std::fs::File;

use prun_core::outcome::{ClientError, Exit, FinalEvent, StopReason};
use regex::bytes::Regex;

use super::output::read_end;
use crate::executor::errors::pattern;
use crate::executor::escape::cut;
use crate::executor::stream::{StreamKind, StreamSummary};
use crate::spec::{ErrorRule, WorkerSpec};

/// The end of the output in which an error is looked for.
const SEARCHED: u64 = 64 * 1024;

/// The longest line that is kept as an error's message, in characters.
const MESSAGE_CAP: usize = 1000;

/// How a worker ended.
pub(super) struct Ended<'a> {
    pub(super) exit: &'a Exit,
    pub(super) stopped: Option<StopReason>,
    pub(super) tail: &'a File,
}

impl Ended<'_> {
    pub(super) fn understand(&self, worker: &WorkerSpec, mut stream: StreamSummary) -> StreamSummary {
        let ended_well = self.stopped.is_none() && *self.exit == (Exit::Code { code: 0 });
        if worker.stream == StreamKind::Text && !ended_well {
            // What it had printed by then is no answer.
            stream.message = None;
        }
        let failed = self.stopped.is_none() && matches!(self.exit, Exit::Code { code: 1.. });
        if failed && stream.error.is_none() && stream.final_event != FinalEvent::Completed {
            stream.error = self.error(&worker.errors);
        }
        stream
    }

    /// The last line of the output that a rule knows, by the first rule that knows it.
    fn error(&self, rules: &[ErrorRule]) -> Option<ClientError> {
        if rules.is_empty() {
            return None;
        }
        // They were checked when they were read; one that a newer prun wrote is passed over.
        let rules: Vec<(Regex, &ErrorRule)> =
            rules.iter().filter_map(|rule| Some((pattern(&rule.pattern).ok()?, rule))).collect();
        let (end, _) = read_end(self.tail, SEARCHED).ok()?;
        let text = String::from_utf8_lossy(&end);
        text.lines().rev().find_map(|line| {
            let (_, rule) = rules.iter().find(|(pattern, _)| pattern.is_match(line.as_bytes()))?;
            Some(ClientError { class: rule.class, message: cut(line, MESSAGE_CAP), resets_at: None })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use prun_core::outcome::Cause;

    use super::*;
    use crate::executor::stream::StreamReader;

    fn understood(output: &str, code: i32, stopped: Option<StopReason>, kind: StreamKind) -> StreamSummary {
        let mut tail = tempfile::tempfile().unwrap();
        tail.write_all(output.as_bytes()).unwrap();
        let rule = |class, pattern: &str| ErrorRule { class, pattern: pattern.to_owned() };
        let worker = WorkerSpec {
            stream: kind,
            errors: vec![rule(Cause::UsageLimit, "(?i)quota|limit reached"), rule(Cause::Auth, r"\b401\b")],
            ..crate::dispatcher::task::tests::spec(&[]).worker.unwrap()
        };
        let mut reader = StreamReader::new(kind);
        reader.feed(b"the answer");
        let exit = Exit::Code { code };
        Ended { exit: &exit, stopped, tail: &tail }.understand(&worker, reader.summary().clone())
    }

    fn class(output: &str, code: i32, stopped: Option<StopReason>) -> Option<Cause> {
        understood(output, code, stopped, StreamKind::Plain).error.map(|error| error.class)
    }

    #[test]
    fn a_rule_gives_a_failed_command_its_class() {
        assert_eq!(class("start\nHTTP 401\nbye\n", 1, None), Some(Cause::Auth));
        assert_eq!(
            class("HTTP 401\nQuota exceeded, 401\n", 2, None),
            Some(Cause::UsageLimit),
            "the last line, the first rule"
        );
        assert_eq!(class("something else 4011\n", 1, None), None);
        let error = understood("limit reached, try again in 5m\n", 1, None, StreamKind::Plain).error.unwrap();
        assert_eq!(error.message, "limit reached, try again in 5m");
    }

    /// **C112**: the words alone are no failure; nor are they where prun itself ended the worker.
    #[test]
    fn words_of_failure_are_none_where_the_command_did_not_fail() {
        assert_eq!(class("documented: quota, 401\n", 0, None), None);
        assert_eq!(class("documented: quota, 401\n", 143, Some(StopReason::IdleStall)), None);
    }

    #[test]
    fn what_was_printed_before_a_bad_end_is_no_answer() {
        let message = |code, stopped| understood("", code, stopped, StreamKind::Text).message;
        assert_eq!(message(0, None).as_deref(), Some("the answer"));
        assert_eq!(message(1, None), None);
        assert_eq!(message(0, Some(StopReason::IdleStall)), None);
    }
}
