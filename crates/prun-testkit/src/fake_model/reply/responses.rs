//! OpenAI's Responses API.

use serde_json::{Value, json};

use super::named;
use crate::fake_model::request::{Asked, ShellTool, shell_tool};
use crate::fake_model::script::{Call, Tokens};

/// The events of an answer.
pub(super) fn events(asked: &Asked, id: u64) -> Vec<String> {
    let step = &asked.step;
    let mut events = vec![event("response.created", json!({"response": response(id, "in_progress")}))];
    let mut index = 0;
    if let Some(text) = &step.text {
        events.extend(message(text, id, index));
        index += 1;
    }
    let called = step.call.as_ref().map(|call| tool_call(call, id));
    let shell = || step.sh.as_ref().map(|command| shell_call(shell_tool(&asked.tools), command, id));
    if let Some(item) = called.or_else(shell) {
        events.push(event("response.output_item.added", json!({"output_index": index, "item": item})));
        events.push(event("response.output_item.done", json!({"output_index": index, "item": item})));
    }
    events.push(event("response.completed", json!({"response": completed(step.usage.unwrap_or_default(), id)})));
    events
}

fn message(text: &str, id: u64, index: u32) -> Vec<String> {
    let item_id = format!("msg_{id}");
    let item = |status: &str, content: Value| json!({"type": "message", "role": "assistant", "id": item_id, "status": status, "content": content});
    let part = json!({"type": "output_text", "text": text, "annotations": []});
    let delta = json!({"item_id": item_id, "output_index": index, "content_index": 0, "delta": text});
    vec![
        event("response.output_item.added", json!({"output_index": index, "item": item("in_progress", json!([]))})),
        event("response.output_text.delta", delta),
        event("response.output_item.done", json!({"output_index": index, "item": item("completed", json!([part]))})),
    ]
}

/// Codex calls an MCP server's tools by a namespace and a name of its own.
fn tool_call(call: &Call, id: u64) -> Value {
    let (namespace, name) = match call.tool.strip_prefix("mcp__").and_then(|rest| rest.split_once("__")) {
        Some((server, name)) => (Some(format!("mcp__{server}")), name),
        None => (None, call.tool.as_str()),
    };
    let mut item = json!({"type": "function_call", "id": format!("fc_{id}"), "call_id": format!("call_{id}"),
                          "name": name, "arguments": call.args.to_string(), "status": "completed"});
    if let Some(namespace) = namespace {
        item["namespace"] = namespace.into();
    }
    item
}

fn shell_call(tool: Option<ShellTool>, command: &str, id: u64) -> Value {
    let call = |name: &str, arguments: Value| {
        json!({"type": "function_call", "id": format!("fc_{id}"), "call_id": format!("call_{id}"),
               "name": name, "arguments": arguments.to_string(), "status": "completed"})
    };
    match tool {
        Some(ShellTool::ShellCommand) => call("shell_command", json!({"command": command})),
        Some(ShellTool::Shell) => call("shell", json!({"command": ["sh", "-c", command]})),
        Some(ShellTool::Code) => {
            let script = format!("text(JSON.stringify(await tools.exec_command({})));", json!({"cmd": command}));
            json!({"type": "custom_tool_call", "id": format!("ctc_{id}"), "call_id": format!("call_{id}"),
                   "name": "exec", "input": script, "status": "completed"})
        }
        _ => call("exec_command", json!({"cmd": command})),
    }
}

fn completed(tokens: Tokens, id: u64) -> Value {
    let mut response = response(id, "completed");
    response["usage"] = json!({
        "input_tokens": tokens.input,
        "input_tokens_details": {"cached_tokens": tokens.cached},
        "output_tokens": tokens.output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": tokens.input + tokens.output,
    });
    response
}

fn response(id: u64, status: &str) -> Value {
    json!({"id": format!("resp_{id}"), "object": "response", "status": status, "output": []})
}

fn event(kind: &str, mut data: Value) -> String {
    data["type"] = kind.into();
    named(&data)
}
