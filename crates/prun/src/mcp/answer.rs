//! What a tool answers: the text a person would read in a terminal, and the same as data.

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
        let data = serde_json::to_value(data).expect("plain data with string keys");
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
    use super::*;

    #[test]
    fn a_long_text_comes_in_pieces_of_whole_lines() {
        let text = "one\ntwo\nthree\n";
        assert_eq!(piece(text, 0, 9), ("one\ntwo\n", Some(8)));
        assert_eq!(piece(text, 8, 9), ("three\n", None));
        assert_eq!(piece(text, 99, 9), ("", None));
        assert_eq!(piece("äöü", 1, 3), ("ä", Some(2)));
    }
}
