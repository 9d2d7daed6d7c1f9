//! The event stream of `gemini -o stream-json`.

use prun_core::outcome::{FinalEvent, Usage};
use serde_json::Value;

use super::escape::first_line;
use super::stream::event::{client_error, no_progress, number_of, parse, progress, pulse, text_of, worked};
use super::stream::{ACTIVITY_CAP, Activity, Memory, StreamSummary};

/// The longest message that is put together from its pieces, in bytes.
const MESSAGE_CAP: usize = 1 << 20;

/// Takes one line of the stream; a line that is none of gemini's changes nothing.
pub(super) fn apply(summary: &mut StreamSummary, memory: &mut Memory, line: &[u8]) -> Option<Activity> {
    let event = parse(line)?;
    match text_of(&event, "type") {
        "init" => Some(init(summary, &event)),
        "message" if text_of(&event, "role") == "assistant" => Some(message(summary, memory, &event)),
        "tool_use" => {
            memory.text.clear();
            Some(worked(summary, progress(&tool_line(&event))))
        }
        "tool_result" => Some(worked(summary, tool_result(&event))),
        "error" => Some(no_progress(&format!("error: {}", first_line(text_of(&event, "message"), ACTIVITY_CAP)))),
        "result" => Some(result(summary, memory, &event)),
        _ => None,
    }
}

fn init(summary: &mut StreamSummary, event: &Value) -> Activity {
    let (session, model) = (text_of(event, "session_id"), text_of(event, "model"));
    summary.session.get_or_insert_with(|| session.to_owned());
    summary.model.get_or_insert_with(|| model.to_owned());
    progress(&format!("session {session}, model {model}"))
}

/// Messages come in pieces without a name; a tool call ends one.
fn message(summary: &mut StreamSummary, memory: &mut Memory, event: &Value) -> Activity {
    let text = text_of(event, "content");
    if event["delta"] != Value::Bool(true) {
        memory.text.clear();
    }
    if memory.text.len() + text.len() <= MESSAGE_CAP {
        memory.text.push_str(text);
    }
    worked(summary, pulse())
}

fn tool_line(event: &Value) -> String {
    let given = &event["parameters"];
    let tool = text_of(event, "tool_name");
    match (text_of(given, "command"), text_of(given, "file_path")) {
        ("", "") => format!("calls {tool}"),
        ("", path) => format!("{tool} {path}"),
        (command, _) => format!("$ {command}"),
    }
}

fn tool_result(event: &Value) -> Activity {
    match text_of(event, "status") {
        "error" => progress(&format!("failed: {}", first_line(text_of(&event["error"], "message"), ACTIVITY_CAP))),
        _ => pulse(),
    }
}

fn result(summary: &mut StreamSummary, memory: &mut Memory, event: &Value) -> Activity {
    let stats = &event["stats"];
    if stats.is_object() {
        summary.usage = Some(Usage {
            input_tokens: number_of(stats, "input_tokens"),
            cached_input_tokens: number_of(stats, "cached"),
            output_tokens: number_of(stats, "output_tokens"),
            ..Usage::default()
        });
    }
    if text_of(event, "status") == "success" {
        summary.final_event = FinalEvent::Completed;
        summary.error = None;
        if !memory.text.trim().is_empty() {
            summary.message = Some(std::mem::take(&mut memory.text));
        }
        return progress("finished");
    }
    let error = client_error(text_of(&event["error"], "message"));
    let activity = no_progress(&format!("failed: {}", error.message));
    summary.final_event = FinalEvent::Failed;
    summary.error = Some(error);
    activity
}
