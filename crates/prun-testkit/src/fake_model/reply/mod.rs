//! Answers, in the words of each API.

mod chat;
mod gemini;
mod messages;
mod refusal;
mod responses;

use serde_json::{Value, json};

pub(super) use self::refusal::refusal;
use super::request::{Api, Asked, ShellTool, shell_tool};

/// An answer that is ready to be sent.
pub(super) enum Reply {
    /// Server-sent events, in order.
    Events(Vec<String>),
    /// One JSON text.
    Whole(Value),
}

/// The answer to a request. `id` must be new for each answer: clients keep items by their ids.
pub(super) fn reply(api: Api, asked: &Asked, body: &Value, id: u64) -> Reply {
    match api {
        Api::Responses => Reply::Events(responses::events(asked, id)),
        Api::Messages => messages::reply(asked, body, id),
        Api::Chat => chat::reply(asked, body, id),
        Api::Gemini => gemini::reply(asked, body),
    }
}

/// The tool that a step calls, by name, and its arguments.
fn tool_call(asked: &Asked) -> Option<(String, Value)> {
    if let Some(call) = &asked.step.call {
        return Some((call.tool.clone(), call.args.clone()));
    }
    let command = asked.step.sh.as_ref()?;
    let described = json!({"command": command, "description": "a step of the script"});
    Some(match shell_tool(&asked.tools) {
        Some(ShellTool::RunShellCommand) => {
            let args = json!({"command": command, "description": "a step of the script", "is_background": false});
            ("run_shell_command".to_owned(), args)
        }
        Some(ShellTool::SmallBash) => ("bash".to_owned(), described),
        _ => ("Bash".to_owned(), described),
    })
}

/// A text in a few pieces, as models write it.
fn pieces(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let size = chars.len().div_ceil(4).max(1);
    chars.chunks(size).map(|piece| piece.iter().collect()).collect()
}

/// A server-sent event without a name.
fn data(data: &Value) -> String {
    format!("data: {data}\n\n")
}

/// A server-sent event that is named by its `type`.
fn named(event: &Value) -> String {
    format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default())
}
