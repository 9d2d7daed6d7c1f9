//! OpenAI's chat completions.

use serde_json::{Value, json};

use super::{Reply, data, pieces, tool_call};
use crate::fake_model::request::Asked;

/// A stream, or one message where the client asks for no stream.
pub(super) fn reply(asked: &Asked, body: &Value, id: u64) -> Reply {
    let tokens = asked.step.usage.unwrap_or_default();
    let usage = json!({
        "prompt_tokens": tokens.input, "completion_tokens": tokens.output,
        "total_tokens": tokens.input + tokens.output, "prompt_tokens_details": {"cached_tokens": tokens.cached},
    });
    let call = tool_call(asked).map(|(name, args)| {
        let function = json!({"name": name, "arguments": args.to_string()});
        json!({"index": 0, "id": format!("call_{id}"), "type": "function", "function": function})
    });
    let finish = if call.is_some() { "tool_calls" } else { "stop" };
    let envelope = |kind: &str, choices: Value, usage: &Value| {
        json!({"id": format!("chatcmpl-{id}"), "object": kind, "created": 1, "model": body["model"],
               "choices": choices, "usage": usage})
    };
    if body["stream"] != Value::Bool(true) {
        let mut message = json!({"role": "assistant", "content": asked.step.text});
        if let Some(call) = call {
            message["tool_calls"] = json!([call]);
        }
        let choices = json!([{"index": 0, "message": message, "finish_reason": finish}]);
        return Reply::Whole(envelope("chat.completion", choices, &usage));
    }
    let chunk = |delta: Value, finish: Value| {
        let choices = json!([{"index": 0, "delta": delta, "finish_reason": finish}]);
        data(&envelope("chat.completion.chunk", choices, &Value::Null))
    };
    let mut events = vec![chunk(json!({"role": "assistant", "content": ""}), Value::Null)];
    let text = asked.step.text.as_deref().unwrap_or_default();
    events.extend(pieces(text).into_iter().map(|piece| chunk(json!({"content": piece}), Value::Null)));
    events.extend(call.map(|call| chunk(json!({"tool_calls": [call]}), Value::Null)));
    events.push(chunk(json!({}), finish.into()));
    events.push(data(&envelope("chat.completion.chunk", json!([]), &usage)));
    events.push("data: [DONE]\n\n".to_owned());
    Reply::Events(events)
}
