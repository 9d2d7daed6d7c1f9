//! The event stream of `claude -p --output-format stream-json`, which qwen speaks too.
//!
//! An API error comes as `subtype: success` with `is_error: true`: only the latter counts.

use prun_core::outcome::{Cause, ClientError, FinalEvent, Usage};
use prun_core::time::Timestamp;
use serde_json::Value;

use super::errors::{Refusal, status_of};
use crate::executor::escape::first_line;
use crate::executor::stream::event::{
    client_error, list_of, micro_usd, no_progress, number_of, parse, progress, pulse, text_of, worked,
};
use crate::executor::stream::{ACTIVITY_CAP, Activity, Memory, StreamSummary};

/// Tools that nobody could allow: without a person at the terminal they are always denied.
const NEEDS_A_PERSON: &[&str] = &["AskUserQuestion", "EnterPlanMode", "ExitPlanMode"];

/// How many denied tools are remembered by name.
const DENIED_CAP: usize = 32;

/// How many messages are remembered as counted.
const COUNTED_CAP: usize = 100_000;

/// Takes one line of the stream; a line that is none of Claude's changes nothing.
pub(in crate::executor) fn apply(summary: &mut StreamSummary, memory: &mut Memory, line: &[u8]) -> Option<Activity> {
    let event = parse(line)?;
    match text_of(&event, "type") {
        "system" => system(summary, memory, &event),
        "assistant" => assistant(summary, memory, &event),
        "user" => user(summary, memory, &event),
        "stream_event" => stream_event(summary, memory, &event),
        "rate_limit_event" => limit_event(memory, &event["rate_limit_info"]),
        "result" => Some(result(summary, memory, &event)),
        // `tool_progress` comes by the clock, whether or not the tool gets on.
        _ => None,
    }
}

fn system(summary: &mut StreamSummary, memory: &mut Memory, event: &Value) -> Option<Activity> {
    match text_of(event, "subtype") {
        "init" => Some(init(summary, event)),
        "api_retry" => {
            memory.was_retried = true;
            let line = retry_line(event);
            let status = event["error_status"].as_u64().and_then(|status| status.try_into().ok());
            let refusal = Refusal { kind: text_of(event, "error").to_owned(), status, ..Refusal::default() };
            let class = match refusal.class("", &line, false) {
                // Claude tries again where no answer came, and never for a fault of its own.
                Cause::Worker => Cause::Network,
                class => class,
            };
            note_refusal(summary, class, &line);
            Some(no_progress(&line))
        }
        // qwen's.
        "retry" => {
            memory.was_retried = true;
            let (attempt, delay) = (number_of(&event["data"], "attempt"), number_of(&event["data"], "delayMs"));
            let line = format!("retry {attempt} in {} s", delay / 1000);
            if event["data"]["maxRetries"].is_u64() {
                // It counts the tries of nothing but a rate limit, and says no more of it until it has given up.
                note_refusal(summary, Cause::RateLimit, &line);
            }
            Some(no_progress(&line))
        }
        "permission_denied" => {
            let tool = text_of(event, "tool_name");
            deny(summary, tool);
            Some(no_progress(&format!("denied {tool}: {}", first_line(text_of(event, "message"), ACTIVITY_CAP))))
        }
        _ => None,
    }
}

/// What the client is trying again for: its last error, unless it gets on with its work.
fn note_refusal(summary: &mut StreamSummary, class: Cause, line: &str) {
    if summary.final_event == FinalEvent::Missing {
        summary.error = Some(ClientError { class, ..client_error(line) });
    }
}

fn init(summary: &mut StreamSummary, event: &Value) -> Activity {
    let (session, model) = (text_of(event, "session_id"), text_of(event, "model"));
    if !session.is_empty() {
        summary.session.get_or_insert_with(|| session.to_owned());
    }
    if !model.is_empty() {
        summary.model.get_or_insert_with(|| model.to_owned());
    }
    let mode = text_of(event, "permissionMode");
    progress(&format!("session {session}, model {model}, permissions {mode}"))
}

fn retry_line(event: &Value) -> String {
    let (attempt, most, delay) =
        (number_of(event, "attempt"), number_of(event, "max_retries"), number_of(event, "retry_delay_ms"));
    let status = event["error_status"].as_u64().map_or_else(String::new, |status| format!("{status} "));
    format!("retry {attempt}/{most} in {} s: {status}{}", delay / 1000, text_of(event, "error"))
}

fn deny(summary: &mut StreamSummary, tool: &str) {
    let is_known = summary.denied.iter().any(|known| known == tool);
    if !tool.is_empty() && !is_known && !NEEDS_A_PERSON.contains(&tool) && summary.denied.len() < DENIED_CAP {
        summary.denied.push(tool.to_owned());
    }
}

fn assistant(summary: &mut StreamSummary, memory: &mut Memory, event: &Value) -> Option<Activity> {
    let content = list_of(&event["message"], "content");
    let text = content.iter().map(|block| text_of(block, "text")).find(|text| !text.trim().is_empty());
    if let Some(refusal) = Refusal::of(event) {
        let text = text.unwrap_or("an error without words");
        note_reset(memory, &event["rate_limit_info"]);
        let error = refused(&refusal, "", text, memory);
        memory.refusal = refusal;
        if summary.final_event == FinalEvent::Missing {
            summary.error = Some(error);
        }
        return Some(no_progress(&format!("error: {text}")));
    }
    memory.was_retried = false;
    let is_subagents = !event["parent_tool_use_id"].is_null();
    if let Some(text) = text.filter(|_| !is_subagents) {
        summary.message = Some(text.to_owned());
    }
    let last = content.last()?;
    let line = match text_of(last, "type") {
        "tool_use" => tool_line(text_of(last, "name"), &last["input"]),
        "thinking" => format!("thinks: {}", first_line(text_of(last, "thinking"), ACTIVITY_CAP)),
        "text" => first_line(text_of(last, "text"), ACTIVITY_CAP),
        _ => return Some(worked(summary, pulse())),
    };
    let line = if line.is_empty() { "(an empty message)".to_owned() } else { line };
    Some(worked(summary, progress(&line)))
}

fn tool_line(tool: &str, input: &Value) -> String {
    let given = |key: &str| Some(text_of(input, key)).filter(|text| !text.is_empty());
    let path = given("file_path").or_else(|| given("notebook_path"));
    match (given("command"), path, given("pattern").or_else(|| given("description"))) {
        (Some(command), ..) => format!("$ {command}"),
        (None, Some(path), _) => format!("{tool} {path}"),
        (None, None, Some(what)) => format!("{tool} {what}"),
        (None, None, None) => format!("calls {tool}"),
    }
}

fn user(summary: &mut StreamSummary, memory: &mut Memory, event: &Value) -> Option<Activity> {
    let mut content = list_of(&event["message"], "content").iter();
    let Some(result) = content.find(|block| text_of(block, "type") == "tool_result") else {
        let text = list_of(&event["message"], "content").first().map_or("", |block| text_of(block, "text"));
        return (!text.is_empty()).then(|| no_progress(text));
    };
    memory.was_retried = false;
    if result["is_error"] != Value::Bool(true) {
        return Some(worked(summary, pulse()));
    }
    let text = result["content"].as_str().or_else(|| result["content"][0]["text"].as_str()).unwrap_or("");
    Some(worked(summary, progress(&format!("failed: {}", first_line(text, ACTIVITY_CAP)))))
}

/// A piece of a message that is being written, with `--include-partial-messages`.
fn stream_event(summary: &mut StreamSummary, memory: &mut Memory, event: &Value) -> Option<Activity> {
    let inner = &event["event"];
    match text_of(inner, "type") {
        "content_block_start" | "content_block_delta" => {
            memory.was_retried = false;
            Some(worked(summary, pulse()))
        }
        "message_delta" => {
            // A subagent's turns are its own; its tokens are not.
            let is_main = event["parent_tool_use_id"].is_null();
            count_message(summary, memory, text_of(event, "api_message_id"), &inner["usage"], is_main);
            None
        }
        _ => None,
    }
}

/// Adds a message's tokens; a worker that is ended has no `result` that would tell them.
fn count_message(summary: &mut StreamSummary, memory: &mut Memory, id: &str, usage: &Value, is_main: bool) {
    let is_new = !id.is_empty() && memory.counted.len() < COUNTED_CAP && memory.counted.insert(id.to_owned());
    if usage.is_object() && is_new {
        let message =
            tokens(usage, ["input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens"]);
        let before = summary.counted.unwrap_or_default();
        let turns = Some(u32::from(is_main));
        summary.counted = Some(before.plus(&Usage { turns, ..message }));
    }
}

fn limit_event(memory: &mut Memory, info: &Value) -> Option<Activity> {
    note_reset(memory, info);
    let is_rejected = text_of(info, "status") == "rejected";
    is_rejected.then(|| no_progress(&format!("the limit {} is used up", text_of(info, "rateLimitType"))))
}

fn note_reset(memory: &mut Memory, info: &Value) {
    if text_of(info, "status") == "rejected"
        && let Some(seconds) = info["resetsAt"].as_i64()
    {
        memory.resets_at = Some(Timestamp(seconds.saturating_mul(1000)));
    }
}

fn result(summary: &mut StreamSummary, memory: &mut Memory, event: &Value) -> Activity {
    count(summary, event);
    for denial in list_of(event, "permission_denials") {
        deny(summary, text_of(denial, "tool_name"));
    }
    let is_error = event["is_error"] == Value::Bool(true) || text_of(event, "subtype").starts_with("error");
    if !is_error {
        summary.final_event = FinalEvent::Completed;
        summary.error = None;
        summary.message = answer(event);
        return progress("finished");
    }
    summary.is_spent = matches!(text_of(event, "subtype"), "error_max_turns" | "error_max_budget_usd");
    let message = error_text(event);
    let refusal = Refusal { status: status_of(event).or(memory.refusal.status), ..memory.refusal.clone() };
    let error = refused(&refusal, text_of(event, "terminal_reason"), &message, memory);
    let activity = no_progress(&format!("failed: {}", error.message));
    summary.final_event = FinalEvent::Failed;
    summary.error = Some(error);
    activity
}

fn refused(refusal: &Refusal, reason: &str, message: &str, memory: &Memory) -> ClientError {
    let class = refusal.class(reason, message, !memory.was_retried);
    ClientError { class, resets_at: memory.resets_at, ..client_error(message) }
}

/// The final answer; a `--json-schema` puts it into a field of its own.
fn answer(event: &Value) -> Option<String> {
    let text = Some(text_of(event, "result")).filter(|text| !text.trim().is_empty());
    let structured = || event.get("structured_output").filter(|value| !value.is_null()).map(Value::to_string);
    text.map(str::to_owned).or_else(structured)
}

fn error_text(event: &Value) -> String {
    let told = [text_of(event, "result"), text_of(&event["error"], "message")];
    let listed = list_of(event, "errors").iter().filter_map(Value::as_str);
    let text = told.into_iter().chain(listed).find(|text| !text.trim().is_empty());
    text.unwrap_or_else(|| text_of(event, "subtype")).to_owned()
}

/// `modelUsage` knows of every model and of runs that were cut short; `usage` does not.
fn count(summary: &mut StreamSummary, event: &Value) {
    let models = event["modelUsage"].as_object().filter(|models| !models.is_empty());
    let sums = models.map(|models| {
        let of_model =
            |usage| tokens(usage, ["inputTokens", "cacheReadInputTokens", "cacheCreationInputTokens", "outputTokens"]);
        let most = models.iter().max_by_key(|(_, usage)| number_of(usage, "outputTokens"));
        summary.model = most.map(|(name, _)| name.clone()).or(summary.model.take());
        models.values().map(of_model).fold(Usage::default(), |sum, usage| sum.plus(&usage))
    });
    let total = sums.or_else(|| event["usage"].is_object().then(|| usage_of_result(&event["usage"])));
    if let Some(total) = total {
        summary.usage = Some(Usage {
            cost_micro_usd: micro_usd(&event["total_cost_usd"]),
            turns: event["num_turns"].as_u64().and_then(|turns| turns.try_into().ok()),
            ..total
        });
    }
}

/// qwen counts cached tokens as part of `input_tokens` and says the total; Claude counts them apart.
fn usage_of_result(usage: &Value) -> Usage {
    if usage.get("total_tokens").is_some() {
        return Usage {
            input_tokens: number_of(usage, "input_tokens"),
            cached_input_tokens: number_of(usage, "cache_read_input_tokens"),
            output_tokens: number_of(usage, "output_tokens"),
            ..Usage::default()
        };
    }
    tokens(usage, ["input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens"])
}

/// Tokens by the names of fresh, cached, newly cached and output ones.
fn tokens(usage: &Value, [fresh, cached, stored, output]: [&str; 4]) -> Usage {
    let cached = number_of(usage, cached);
    Usage {
        input_tokens: number_of(usage, fresh) + cached + number_of(usage, stored),
        cached_input_tokens: cached,
        output_tokens: number_of(usage, output),
        ..Usage::default()
    }
}
