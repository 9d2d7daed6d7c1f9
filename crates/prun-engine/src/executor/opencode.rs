//! The event stream of `opencode run --format json`.

use prun_core::outcome::{ClientError, FinalEvent, Usage};
use serde_json::Value;

use super::errors::class_of_status;
use super::escape::first_line;
use super::stream::event::{client_error, micro_usd, no_progress, number_of, parse, progress, pulse, text_of, worked};
use super::stream::{ACTIVITY_CAP, Activity, Memory, StreamSummary};

/// How many steps are remembered as counted.
const COUNTED_CAP: usize = 100_000;

/// Takes one line of the stream; a line that is none of opencode's changes nothing.
pub(super) fn apply(summary: &mut StreamSummary, memory: &mut Memory, line: &[u8]) -> Option<Activity> {
    let event = parse(line)?;
    let part = &event["part"];
    match text_of(&event, "type") {
        "step_start" => Some(step_start(summary, &event)),
        "text" => Some(text(summary, text_of(part, "text"))),
        "tool_use" => Some(worked(summary, progress(&tool_line(part)))),
        "step_finish" => Some(step_finish(summary, memory, part)),
        "error" => Some(error(summary, &event)),
        _ => None,
    }
}

fn step_start(summary: &mut StreamSummary, event: &Value) -> Activity {
    let session = text_of(event, "sessionID");
    if summary.session.is_some() || session.is_empty() {
        return worked(summary, pulse());
    }
    summary.session = Some(session.to_owned());
    progress(&format!("session {session}"))
}

fn text(summary: &mut StreamSummary, text: &str) -> Activity {
    if text.trim().is_empty() {
        return pulse();
    }
    summary.message = Some(text.to_owned());
    worked(summary, progress(&first_line(text, ACTIVITY_CAP)))
}

fn tool_line(part: &Value) -> String {
    let (tool, state) = (text_of(part, "tool"), &part["state"]);
    let line = match (text_of(&state["input"], "command"), text_of(&state["input"], "filePath")) {
        ("", "") => format!("calls {tool}"),
        ("", path) => format!("{tool} {path}"),
        (command, _) => format!("$ {command}"),
    };
    match text_of(state, "error") {
        "" => line,
        error => format!("{line}: {}", first_line(error, ACTIVITY_CAP)),
    }
}

/// Each step tells its own tokens; the one that ends with `stop` is the last.
fn step_finish(summary: &mut StreamSummary, memory: &mut Memory, part: &Value) -> Activity {
    let (id, tokens) = (text_of(part, "id"), &part["tokens"]);
    if tokens.is_object() && memory.counted.len() < COUNTED_CAP && memory.counted.insert(id.to_owned()) {
        let cache = &tokens["cache"];
        let step = Usage {
            input_tokens: number_of(tokens, "input") + number_of(cache, "read") + number_of(cache, "write"),
            cached_input_tokens: number_of(cache, "read"),
            output_tokens: number_of(tokens, "output") + number_of(tokens, "reasoning"),
            cost_micro_usd: micro_usd(&part["cost"]),
            turns: Some(1),
        };
        summary.counted = Some(summary.counted.unwrap_or_default().plus(&step));
    }
    if text_of(part, "reason") != "stop" {
        return worked(summary, pulse());
    }
    summary.final_event = FinalEvent::Completed;
    summary.error = None;
    progress("finished")
}

fn error(summary: &mut StreamSummary, event: &Value) -> Activity {
    let session = text_of(event, "sessionID");
    if !session.is_empty() {
        summary.session.get_or_insert_with(|| session.to_owned());
    }
    let (name, data) = (text_of(&event["error"], "name"), &event["error"]["data"]);
    let message = Some(text_of(data, "message")).filter(|message| !message.is_empty()).unwrap_or(name);
    let error = client_error(message);
    // The words know of a limit that is used up; the status knows the rest.
    let by_status = data["statusCode"].as_u64().and_then(|status| status.try_into().ok()).map(class_of_status);
    let class = match (error.class, by_status) {
        (prun_core::outcome::Cause::UsageLimit | prun_core::outcome::Cause::Context, _) | (_, None) => error.class,
        (_, Some(class)) => class,
    };
    let activity = no_progress(&format!("error: {}", error.message));
    summary.final_event = FinalEvent::Failed;
    summary.error = Some(ClientError { class, ..error });
    activity
}
