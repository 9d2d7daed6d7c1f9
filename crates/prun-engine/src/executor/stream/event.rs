//! What the parsers of event streams share: lines of JSON, and activities made from them.

use prun_core::outcome::{ClientError, FinalEvent};
use serde_json::Value;

use super::{ACTIVITY_CAP, Activity, StreamSummary};
use crate::executor::errors::classify;
use crate::executor::escape::cut;

/// The longest [`ClientError::message`], in characters.
const MESSAGE_CAP: usize = 1000;

/// One line as JSON; `None` for noise.
pub(in crate::executor) fn parse(line: &[u8]) -> Option<Value> {
    let text = String::from_utf8_lossy(line);
    serde_json::from_str(text.trim_matches(|c: char| c == '\0' || c.is_whitespace())).ok()
}

/// A text below `value`, or an empty one.
pub(in crate::executor) fn text_of<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or("")
}

/// A whole number below `value`, or 0.
pub(in crate::executor) fn number_of(value: &Value, key: &str) -> u64 {
    value.get(key).and_then(Value::as_u64).unwrap_or(0)
}

/// A list below `value`, or an empty one.
pub(in crate::executor) fn list_of<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// US dollars as millionths.
pub(in crate::executor) fn micro_usd(dollars: &Value) -> Option<u64> {
    let micro = (dollars.as_f64()? * 1e6).round();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is in range, and whole")]
    (0.0..1e15).contains(&micro).then_some(micro as u64)
}

/// A line that means progress.
pub(in crate::executor) fn progress(line: &str) -> Activity {
    Activity { line: Some(cut(line, ACTIVITY_CAP)), is_progress: true }
}

/// A line that means none, such as a retry.
pub(in crate::executor) fn no_progress(line: &str) -> Activity {
    Activity { line: Some(cut(line, ACTIVITY_CAP)), is_progress: false }
}

/// Progress with nothing to show, such as a piece of a message that is still being written.
pub(in crate::executor) fn pulse() -> Activity {
    Activity { line: None, is_progress: true }
}

/// Progress through work. Work that follows an error shows that the error was not the end.
pub(in crate::executor) fn worked(summary: &mut StreamSummary, activity: Activity) -> Activity {
    if summary.final_event == FinalEvent::Missing {
        summary.error = None;
    }
    activity
}

/// An error in the client's words, classed by them.
pub(in crate::executor) fn client_error(message: &str) -> ClientError {
    ClientError { class: classify(message), message: cut(message, MESSAGE_CAP), resets_at: None }
}
