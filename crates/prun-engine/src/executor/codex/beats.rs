//! Codex's log on stderr: its only sign of life while a model thinks or writes, for `--json` prints no pieces.
//!
//! With `RUST_LOG` as in [`super::LOG`] there is one line for each event of the model's stream, and with the last
//! one of an answer its tokens, which `--json` tells only at the very end of a turn.

use prun_core::outcome::Usage;

/// What marks the first line of a record of that log.
const MARK: &str = "codex_otel.log_only";

/// What stands near the end of each record. One that quotes a tool's output has many lines.
const END: &str = " conversation.id=";

/// Whether a record goes on in the next line; `inside`: it began before this one.
pub(in crate::executor) fn goes_on(line: &str, inside: bool) -> bool {
    (inside || line.contains(MARK)) && !line.contains(END)
}

/// One line of Codex's stderr.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::executor) enum Beat<'a> {
    /// The model is at work.
    Progress,
    /// An answer has ended.
    Answered {
        /// Its tokens.
        usage: Usage,
        /// The model.
        model: Option<&'a str>,
    },
    /// A line of the log that says nothing of progress.
    Quiet,
    /// Something that Codex says to people.
    Said,
}

/// Understands one line.
pub(in crate::executor) fn beat(line: &str) -> Beat<'_> {
    if !line.contains(MARK) {
        return Beat::Said;
    }
    let value = |key: &str| {
        let (_, rest) = line.split_once(&format!(" {key}="))?;
        rest.split(' ').next().map(|value| value.trim_matches('"'))
    };
    if value("event.name") != Some("codex.sse_event") {
        return Beat::Quiet;
    }
    let number = |key: &str| value(key).and_then(|text| text.parse().ok());
    match (value("event.kind"), number("input_token_count")) {
        (Some("response.completed"), Some(input_tokens)) => Beat::Answered {
            usage: Usage {
                input_tokens,
                cached_input_tokens: number("cached_token_count").unwrap_or(0),
                output_tokens: number("output_token_count").unwrap_or(0),
                turns: Some(1),
                ..Usage::default()
            },
            model: value("model").filter(|model| !model.is_empty()),
        },
        // Said by the server before the model does anything.
        (Some("response.created" | "response.queued" | "response.in_progress"), _) => Beat::Quiet,
        (Some(kind), _) if kind.starts_with("response.") => Beat::Progress,
        _ => Beat::Quiet,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAIL: &str = "conversation.id=01a22ccb app.version=0.171.0 model=fake-model slug=fake-model";

    fn line(name: &str, rest: &str) -> String {
        format!("2026-11-30T14:10:50.753Z  INFO codex_otel.log_only: event.name=\"{name}\" {rest} {TAIL}")
    }

    #[test]
    fn the_models_events_are_progress_and_the_servers_are_not() {
        let sse = |kind: &str| line("codex.sse_event", &format!("event.kind={kind} duration_ms=0"));
        for (line, expected) in [
            (sse("response.output_text.delta"), Beat::Progress),
            (sse("response.reasoning_summary_text.delta"), Beat::Progress),
            (sse("response.completed"), Beat::Progress),
            (sse("response.created"), Beat::Quiet),
            (sse("keepalive"), Beat::Quiet),
            (line("codex.api_request", "http.response.status_code=500 attempt=3"), Beat::Quiet),
            ("WARNING: proceeding, even though".to_owned(), Beat::Said),
            (String::new(), Beat::Said),
        ] {
            assert_eq!(beat(&line), expected, "{line}");
        }
    }

    #[test]
    fn a_record_that_quotes_a_tool_ends_with_its_own_end() {
        let record = [
            "INFO codex_otel.log_only: event.name=\"codex.tool_result\" output=\"one",
            "two",
            "three\" conversation.id=1",
        ];
        let inside = record.iter().scan(false, |inside, line| {
            *inside = goes_on(line, *inside);
            Some(*inside)
        });
        assert_eq!(inside.collect::<Vec<_>>(), [true, true, false]);
        assert!(!goes_on("for people", false) && !goes_on(&line("codex.sse_event", ""), false));
    }

    #[test]
    fn an_answer_tells_its_tokens_and_its_model() {
        let rest = "event.kind=response.completed input_token_count=1200 output_token_count=34 cached_token_count=1000";
        let (input_tokens, cached_input_tokens, output_tokens) = (1200, 1000, 34);
        let usage = Usage { input_tokens, cached_input_tokens, output_tokens, turns: Some(1), ..Usage::default() };
        assert_eq!(beat(&line("codex.sse_event", rest)), Beat::Answered { usage, model: Some("fake-model") });
    }
}
