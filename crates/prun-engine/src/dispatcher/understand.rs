//! What a client's words come to once it is known how it ended.

use std::fs::File;

use prun_core::outcome::{Cause, ClientError, Exit, FinalEvent, StopReason};
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
        // A client that fell silent between its tries may have told only people what it tries again for.
        let silent = matches!(self.stopped, Some(StopReason::IdleStall | StopReason::FirstOutput));
        let tries_again = stream.error.as_ref().is_some_and(|error| error.class == Cause::RateLimit);
        if silent && tries_again && stream.final_event == FinalEvent::Missing {
            stream.error = self.error(&worker.errors).or(stream.error);
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

    use super::*;
    use crate::executor::Registry;
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

    /// What qwen 0.24.4 does at a usage limit, as it was seen: an event without a reason, and a line on stderr.
    #[test]
    fn a_client_that_is_ended_while_it_waits_to_try_again_has_the_class_that_it_told_people() {
        let registry = Registry::built_in(2);
        let qwen = registry.get(&"qwen".parse().unwrap()).unwrap();
        let worker = WorkerSpec {
            stream: qwen.stream,
            errors: qwen.errors.clone(),
            ..crate::dispatcher::task::tests::spec(&[]).worker.unwrap()
        };
        let class = |said: &str, events: &str| {
            let mut tail = tempfile::tempfile().unwrap();
            tail.write_all(said.as_bytes()).unwrap();
            let mut reader = StreamReader::new(qwen.stream);
            reader.feed(events.as_bytes());
            let (exit, stopped) = (Exit::Signal { signal: 15 }, Some(StopReason::IdleStall));
            let ended = Ended { exit: &exit, stopped, tail: &tail };
            ended.understand(&worker, reader.summary().clone()).error.map(|error| error.class)
        };
        let limit = "Retrying in 60s (attempt 1/10): [API Error: 429 The usage limit has been reached]\n";
        let busy = "Retrying in 60s (attempt 1/10): [API Error: 429 Too many requests]\n";
        let retry = "{\"type\":\"system\",\"subtype\":\"retry\",\"data\":{\"reason\":\"retry\",\"attempt\":1,\
                     \"maxRetries\":10,\"delayMs\":60000}}\n";
        assert_eq!(class(limit, retry), Some(Cause::UsageLimit));
        assert_eq!(class(busy, retry), Some(Cause::RateLimit));
        assert_eq!(class(limit, ""), None, "words alone are none");
    }

    #[test]
    fn what_was_printed_before_a_bad_end_is_no_answer() {
        let message = |code, stopped| understood("", code, stopped, StreamKind::Text).message;
        assert_eq!(message(0, None).as_deref(), Some("the answer"));
        assert_eq!(message(1, None), None);
        assert_eq!(message(0, Some(StopReason::IdleStall)), None);
    }
}
