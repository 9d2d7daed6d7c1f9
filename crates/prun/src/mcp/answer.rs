//! What a tool answers: the text a person would read in a terminal, and the same as data.
//!
//! Claude Code and Codex show their model the data and leave the text out, but for failures, of which Claude Code shows
//! the text. So the data has to say all that the text
//! says, and nothing that says nothing: what a session reads here it pays for in every later turn.

use rmcp::model::{CallToolResult, ContentBlock};
use serde::Serialize;
use serde_json::Value;

use crate::error::CliError;

/// Bytes of a body in an answer: 16 KiB. Each costs its reader about a quarter of a token.
pub(super) const BODY: usize = 16 << 10;

/// An answer.
#[derive(Debug)]
pub(super) struct Answer {
    text: String,
    data: Value,
    is_error: bool,
}

impl Answer {
    /// Text and data.
    pub(super) fn new(text: impl Into<String>, data: &impl Serialize) -> Self {
        let mut data = serde_json::to_value(data).expect("plain data with string keys");
        compact(&mut data);
        Self { text: text.into(), data, is_error: false }
    }

    /// The same, as something that the caller has to see to.
    pub(super) fn failed(self) -> Self {
        Self { is_error: true, ..self }
    }

    /// A failure: what, and what to do next.
    pub(super) fn error(error: &CliError) -> Self {
        let mut text = format!("error: {}", error.message);
        for hint in &error.hints {
            text.push_str("\nhint: ");
            text.push_str(hint);
        }
        Self::new(text, &error.view()).failed()
    }

    /// As the protocol wants it.
    pub(super) fn into_result(self) -> CallToolResult {
        let content = vec![ContentBlock::text(self.text)];
        let mut result = if self.is_error { CallToolResult::error(content) } else { CallToolResult::success(content) };
        result.structured_content = Some(self.data);
        result
    }
}

/// Members that are told whatever they are: a reader may not take their absence for an answer.
const TOLD: &[&str] = &["ok", "ready"];

/// Leaves out what is null, false, 0 or empty.
fn compact(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.values_mut().for_each(compact);
            members.retain(|name, value| TOLD.contains(&name.as_str()) || !is_nothing(value));
        }
        Value::Array(values) => values.iter_mut().for_each(compact),
        _ => {}
    }
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_u64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(values) => values.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(true) => false,
    }
}

/// A piece of a text from `offset` on, whole lines where it can be, and where the next piece begins.
pub(super) fn piece(text: &str, offset: usize, most: usize) -> (&str, Option<usize>) {
    let begin = boundary(text, offset);
    let rest = &text[begin..];
    if rest.len() <= most {
        return (rest, None);
    }
    let cut = boundary(rest, most);
    let end = rest[..cut].rfind('\n').map_or(cut, |at| at + 1);
    (&rest[..end], Some(begin + end))
}

/// The last place at or before `at` where a character begins.
fn boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn data_leaves_out_what_says_nothing() {
        let data = json!({
            "version": 1, "ok": false, "notes": [], "hint": null, "counts": {"failed": 0, "total": 2},
            "units": [{"unit": "a", "salvaged": false, "open_items": null}, {"unit": "b", "salvaged": true}],
        });
        let told = json!({
            "version": 1, "ok": false, "counts": {"total": 2},
            "units": [{"unit": "a"}, {"unit": "b", "salvaged": true}],
        });
        assert_eq!(Answer::new("", &data).data, told);
    }

    #[test]
    fn a_long_text_comes_in_pieces_of_whole_lines() {
        let text = "one\ntwo\nthree\n";
        assert_eq!(piece(text, 0, 9), ("one\ntwo\n", Some(8)));
        assert_eq!(piece(text, 8, 9), ("three\n", None));
        assert_eq!(piece(text, 99, 9), ("", None));
        assert_eq!(piece("äöü", 1, 3), ("ä", Some(2)));
    }
}
