//! Anthropic's Messages API.

use serde_json::{Value, json};

use super::{Reply, named, pieces, tool_call};
use crate::fake_model::request::Asked;

/// A stream, or one message where the client asks for no stream.
pub(super) fn reply(asked: &Asked, body: &Value, id: u64) -> Reply {
    let message = message(asked, body, id);
    if body["stream"] != Value::Bool(true) {
        return Reply::Whole(message);
    }
    let usage = &message["usage"];
    let start = json!({"content": [], "stop_reason": null, "usage": with_output(usage, 1)});
    let mut events = vec![named(&json!({"type": "message_start", "message": merged(&message, start)}))];
    for (index, block) in message["content"].as_array().into_iter().flatten().enumerate() {
        events.extend(block_events(index, block));
    }
    let delta = json!({"stop_reason": message["stop_reason"], "stop_sequence": null});
    events.push(named(&json!({"type": "message_delta", "delta": delta, "usage": usage})));
    events.push(named(&json!({"type": "message_stop"})));
    Reply::Events(events)
}

fn message(asked: &Asked, body: &Value, id: u64) -> Value {
    let mut content = Vec::new();
    if let Some(text) = &asked.step.text {
        content.push(json!({"type": "text", "text": text}));
    }
    let call = tool_call(asked);
    let stop = if call.is_some() { "tool_use" } else { "end_turn" };
    if let Some((name, input)) = call {
        content.push(json!({"type": "tool_use", "id": format!("toolu_{id}"), "name": name, "input": input}));
    }
    let tokens = asked.step.usage.unwrap_or_default();
    json!({
        "id": format!("msg_{id}"), "type": "message", "role": "assistant", "model": body["model"],
        "content": content, "stop_reason": stop, "stop_sequence": null,
        "usage": {
            // Tokens from the cache are counted apart.
            "input_tokens": tokens.input.saturating_sub(tokens.cached),
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": tokens.cached,
            "output_tokens": tokens.output,
        },
    })
}

fn block_events(index: usize, block: &Value) -> Vec<String> {
    let (start, deltas): (Value, Vec<Value>) = if block["type"] == "text" {
        let text = block["text"].as_str().unwrap_or_default();
        let deltas = pieces(text).into_iter().map(|piece| json!({"type": "text_delta", "text": piece}));
        (json!({"type": "text", "text": ""}), deltas.collect())
    } else {
        let delta = json!({"type": "input_json_delta", "partial_json": block["input"].to_string()});
        (merged(block, json!({"input": {}})), vec![delta])
    };
    let begin = named(&json!({"type": "content_block_start", "index": index, "content_block": start}));
    let deltas =
        deltas.iter().map(|delta| named(&json!({"type": "content_block_delta", "index": index, "delta": delta})));
    let end = named(&json!({"type": "content_block_stop", "index": index}));
    [begin].into_iter().chain(deltas).chain([end]).collect()
}

fn with_output(usage: &Value, tokens: u64) -> Value {
    merged(usage, json!({"output_tokens": tokens}))
}

/// `base` with the keys of `over` in place of its own.
fn merged(base: &Value, over: Value) -> Value {
    let mut merged = base.clone();
    if let (Some(merged), Value::Object(over)) = (merged.as_object_mut(), over) {
        merged.extend(over);
    }
    merged
}
