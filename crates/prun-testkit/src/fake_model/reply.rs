//! Answers as server-sent events.

use serde_json::{Value, json};

use super::request::{ShellTool, shell_tool};
use super::script::{Step, Tokens};

/// The events of an answer, ready to be sent, in order.
///
/// `id` must be new for each answer: clients keep items by their ids.
pub(super) fn events(step: &Step, body: &Value, id: u64) -> Vec<String> {
    let mut events = vec![event("response.created", json!({"response": response(id, "in_progress")}))];
    let mut index = 0;
    if let Some(text) = &step.text {
        events.extend(message(text, id, index));
        index += 1;
    }
    if let Some(command) = &step.sh {
        let item = shell_call(shell_tool(body), command, id);
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

fn shell_call(tool: Option<ShellTool>, command: &str, id: u64) -> Value {
    let call = |name: &str, arguments: Value| {
        json!({"type": "function_call", "id": format!("fc_{id}"), "call_id": format!("call_{id}"),
               "name": name, "arguments": arguments.to_string(), "status": "completed"})
    };
    match tool {
        Some(ShellTool::ExecCommand) | None => call("exec_command", json!({"cmd": command})),
        Some(ShellTool::ShellCommand) => call("shell_command", json!({"command": command})),
        Some(ShellTool::Shell) => call("shell", json!({"command": ["sh", "-c", command]})),
        Some(ShellTool::Code) => {
            let script = format!("text(JSON.stringify(await tools.exec_command({})));", json!({"cmd": command}));
            json!({"type": "custom_tool_call", "id": format!("ctc_{id}"), "call_id": format!("call_{id}"),
                   "name": "exec", "input": script, "status": "completed"})
        }
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
    format!("event: {kind}\ndata: {data}\n\n")
}
