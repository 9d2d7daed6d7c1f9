//! The event stream of `codex exec --json`.

use prun_core::outcome::{FinalEvent, Usage};
use serde_json::Value;

use crate::executor::escape::first_line;
use crate::executor::stream::event::{client_error, list_of, no_progress, number_of, parse, progress, text_of, worked};
use crate::executor::stream::{ACTIVITY_CAP, Activity, Memory, StreamSummary};

/// Takes one line of the stream; a line that is none of Codex's changes nothing.
pub(in crate::executor) fn apply(summary: &mut StreamSummary, _: &mut Memory, line: &[u8]) -> Option<Activity> {
    let event = parse(line)?;
    match text_of(&event, "type") {
        "thread.started" => thread_started(summary, &event),
        "turn.started" => Some(progress("turn started")),
        "item.started" | "item.updated" => item_begun(summary, &event["item"]),
        "item.completed" => item_completed(summary, &event["item"]),
        "turn.completed" => Some(turn_completed(summary, &event)),
        "turn.failed" => Some(turn_failed(summary, text_of(&event["error"], "message"))),
        "error" => Some(error_line(summary, text_of(&event, "message"))),
        _ => None,
    }
}

fn thread_started(summary: &mut StreamSummary, event: &Value) -> Option<Activity> {
    let thread = Some(text_of(event, "thread_id")).filter(|id| !id.is_empty())?;
    summary.session.get_or_insert_with(|| thread.to_owned());
    Some(progress(&format!("session {thread}")))
}

fn item_begun(summary: &mut StreamSummary, item: &Value) -> Option<Activity> {
    let line = match text_of(item, "type") {
        "command_execution" => format!("$ {}", shell_text(text_of(item, "command"))),
        "mcp_tool_call" => format!("calls {}", mcp_tool(item)),
        "web_search" => format!("searches {}", text_of(item, "query")),
        "todo_list" => todo(item),
        // A begun edit, message or thought tells nothing that its end does not tell better.
        "file_change" | "agent_message" | "reasoning" | "error" | "" => return None,
        other => other.to_owned(),
    };
    Some(worked(summary, progress(&line)))
}

fn item_completed(summary: &mut StreamSummary, item: &Value) -> Option<Activity> {
    let line = match text_of(item, "type") {
        // Said in passing (a model without metadata, a deprecated setting); the turn goes on.
        "error" => return Some(no_progress(&format!("warning: {}", text_of(item, "message")))),
        "agent_message" => agent_message(summary, text_of(item, "text")),
        "reasoning" => format!("thinks: {}", first_line(text_of(item, "text"), ACTIVITY_CAP)),
        "command_execution" => command_ended(item),
        "file_change" => files_changed(item),
        "mcp_tool_call" => match text_of(&item["error"], "message") {
            "" => format!("called {}", mcp_tool(item)),
            error => format!("called {}: {}", mcp_tool(item), first_line(error, ACTIVITY_CAP)),
        },
        "web_search" => format!("searched {}", text_of(item, "query")),
        "todo_list" => todo(item),
        "" => return None,
        other => other.to_owned(),
    };
    Some(worked(summary, progress(&line)))
}

fn agent_message(summary: &mut StreamSummary, text: &str) -> String {
    if !text.trim().is_empty() {
        summary.message = Some(text.to_owned());
    }
    match first_line(text, ACTIVITY_CAP) {
        line if line.is_empty() => "(an empty message)".to_owned(),
        line => line,
    }
}

fn command_ended(item: &Value) -> String {
    let command = shell_text(text_of(item, "command"));
    match item["exit_code"].as_i64() {
        Some(code) => format!("exit {code}: {command}"),
        None => format!("{}: {command}", text_of(item, "status")),
    }
}

fn files_changed(item: &Value) -> String {
    let names =
        list_of(item, "changes").iter().map(|change| match (text_of(change, "kind"), text_of(change, "path")) {
            ("add", path) => format!("+{path}"),
            ("delete", path) => format!("-{path}"),
            (_, path) => path.to_owned(),
        });
    format!("edits {}", names.take(8).collect::<Vec<_>>().join(", "))
}

fn mcp_tool(item: &Value) -> String {
    format!("{}.{}", text_of(item, "server"), text_of(item, "tool"))
}

fn todo(item: &Value) -> String {
    let items = list_of(item, "items");
    let done = items.iter().filter(|item| item["completed"] == Value::Bool(true)).count();
    let next =
        items.iter().find(|item| item["completed"] != Value::Bool(true)).map_or("", |item| text_of(item, "text"));
    format!("to do {done}/{}: {next}", items.len())
}

fn turn_completed(summary: &mut StreamSummary, event: &Value) -> Activity {
    let usage = &event["usage"];
    if usage.is_object() {
        summary.usage = Some(Usage {
            input_tokens: number_of(usage, "input_tokens"),
            cached_input_tokens: number_of(usage, "cached_input_tokens"),
            output_tokens: number_of(usage, "output_tokens"),
            cost_micro_usd: None,
            turns: None,
        });
    }
    summary.final_event = FinalEvent::Completed;
    summary.error = None;
    progress("turn completed")
}

fn turn_failed(summary: &mut StreamSummary, message: &str) -> Activity {
    summary.final_event = FinalEvent::Failed;
    let error = client_error(&error_text(message));
    let activity = no_progress(&format!("turn failed: {}", error.message));
    summary.error = Some(error);
    activity
}

/// An `error` line is either a retry or the announcement of `turn.failed`.
fn error_line(summary: &mut StreamSummary, message: &str) -> Activity {
    if message.starts_with("Reconnecting") {
        return no_progress(message);
    }
    let error = client_error(&error_text(message));
    let activity = no_progress(&format!("error: {}", error.message));
    if summary.final_event == FinalEvent::Missing {
        summary.error = Some(error);
    }
    activity
}

/// For a 400 the message is the response's body; its own message is what people want to read.
fn error_text(message: &str) -> String {
    let body: Option<Value> = serde_json::from_str(message).ok();
    let inner = body.as_ref().map_or("", |body| text_of(&body["error"], "message"));
    if inner.is_empty() { message.to_owned() } else { inner.to_owned() }
}

/// The text inside `/bin/bash -lc '…'`, the way in which Codex shows every command.
fn shell_text(command: &str) -> String {
    let script = command.split_once(" -lc ").or_else(|| command.split_once(" -c "));
    let Some((_, script)) = script.filter(|(shell, _)| shell.ends_with("sh") && !shell.contains(' ')) else {
        return command.to_owned();
    };
    let inside = |quote: char| script.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
    match (inside('\''), inside('"')) {
        (Some(text), _) if !text.contains('\'') => text.to_owned(),
        (_, Some(text)) if !text.contains("\"'") => unescape(text),
        _ => script.to_owned(),
    }
}

fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match chars.peek() {
            Some(next @ ('"' | '\\' | '$' | '`')) if c == '\\' => {
                plain.push(*next);
                chars.next();
            }
            _ => plain.push(c),
        }
    }
    plain
}
