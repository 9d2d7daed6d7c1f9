//! Google's `generateContent` and `streamGenerateContent`.

use serde_json::{Value, json};

use super::{Reply, data, pieces, tool_call};
use crate::fake_model::request::Asked;
use crate::fake_model::server::STREAMED;

/// A stream, or one answer where the path asks for no stream.
pub(super) fn reply(asked: &Asked, body: &Value) -> Reply {
    let tokens = asked.step.usage.unwrap_or_default();
    let usage = json!({
        "promptTokenCount": tokens.input, "candidatesTokenCount": tokens.output,
        "totalTokenCount": tokens.input + tokens.output, "cachedContentTokenCount": tokens.cached,
    });
    let answer = |parts: Vec<Value>, finish: Option<&str>| {
        let mut candidate = json!({"index": 0, "content": {"role": "model", "parts": parts}});
        if let Some(finish) = finish {
            candidate["finishReason"] = finish.into();
        }
        json!({"candidates": [candidate], "usageMetadata": usage, "modelVersion": "fake"})
    };
    let text = asked.step.text.as_deref().unwrap_or_default();
    let call = tool_call(asked).map(|(name, args)| json!({"functionCall": {"name": name, "args": args}}));
    let last = call.unwrap_or_else(|| json!({"text": ""}));
    if body[STREAMED] != Value::Bool(true) {
        return Reply::Whole(answer(vec![json!({"text": text}), last], Some("STOP")));
    }
    let mut events: Vec<String> =
        pieces(text).into_iter().map(|piece| data(&answer(vec![json!({"text": piece})], None))).collect();
    events.push(data(&answer(vec![last], Some("STOP"))));
    Reply::Events(events)
}
