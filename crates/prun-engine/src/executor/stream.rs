//! A client's event stream, read incrementally with bounded memory.
//!
//! The reader believes only whole lines that parse. Noise between them, a last line cut by a kill,
//! lines that come twice, NUL bytes and invalid UTF-8 change nothing. What a line of a known client
//! means is the business of [`super::codex`], [`super::claude`], [`super::gemini`] and [`super::opencode`].

pub mod beats;
pub(super) mod event;

use std::collections::HashSet;

use jiff::ZonedDateTime;
use prun_core::outcome::{ClientError, FinalEvent, Usage};
use prun_core::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::{claude, codex, gemini, opencode, reset};

/// The longest line that is understood, in bytes. Codex cuts a command's output at 1 MiB, and JSON
/// escapes can make six of each byte.
pub const LINE_CAP: usize = 16 * 1024 * 1024;

/// The longest [`Activity::line`], in characters.
pub const ACTIVITY_CAP: usize = 200;

/// The longest text that counts as a [`StreamKind::Text`] worker's answer, in bytes.
const TEXT_CAP: usize = 1 << 20;

/// How a worker's stdout is understood.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StreamKind {
    /// Plain text: it goes to `tail` together with stderr.
    #[default]
    Plain,
    /// Plain text that is the worker's answer; stderr is apart.
    Text,
    /// `codex exec --json`.
    Codex,
    /// `claude -p --output-format stream-json`, and clients with the same stream (qwen).
    Claude,
    /// `gemini -o stream-json`.
    Gemini,
    /// `opencode run --format json`.
    Opencode,
}

impl StreamKind {
    /// Whether the client says its last word in an event.
    #[must_use]
    pub fn has_final_event(self) -> bool {
        !matches!(self, Self::Plain | Self::Text)
    }
}

/// One readable line of what a worker does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Activity {
    /// For people: one line, control characters escaped, cut to [`ACTIVITY_CAP`] characters; `None` where there
    /// is nothing worth a line.
    pub line: Option<String>,
    /// Whether it means progress; a retry, a reconnect or a mere heartbeat does not.
    pub is_progress: bool,
}

/// What a stream has said so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamSummary {
    /// The client's session or thread.
    pub session: Option<String>,
    /// Tokens and money, as totals of what the client counts, over all processes of its session.
    pub usage: Option<Usage>,
    /// What this process alone was seen to use, message by message; all there is of a client that was ended.
    pub counted: Option<Usage>,
    /// The model that did most of the work, where the client names it.
    pub model: Option<String>,
    /// Tools that the client denied, each once.
    pub denied: Vec<String>,
    /// The last message of the agent that is not blank, as it was written.
    pub message: Option<String>,
    /// The client's last word.
    pub final_event: FinalEvent,
    /// The client ended because a limit of turns or money was reached that it had been given.
    pub is_spent: bool,
    /// Its error. Without a final event, the last error that no work followed.
    pub error: Option<ClientError>,
}

impl StreamSummary {
    /// The same with the time at which a limit is lifted, where the error's message tells it.
    /// Clients print it in local time and without a date, so it takes the moment of reading.
    #[must_use]
    pub fn with_reset_time(mut self, now: &ZonedDateTime) -> Self {
        if let Some(error) = &mut self.error {
            error.resets_at = error.resets_at.or_else(|| reset::reset_time(&error.message, now));
        }
        self
    }
}

/// What a parser remembers from line to line, beside the summary.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// What a [`StreamKind::Text`] worker has written.
    bytes: Vec<u8>,
    is_too_long: bool,
    /// A message that is still being written, in pieces.
    pub(super) text: String,
    /// The client has tried again since it last got on.
    pub(super) was_retried: bool,
    /// When a limit is lifted, as an event of its own said.
    pub(super) resets_at: Option<Timestamp>,
    /// The kind, HTTP status and type of the last error of the provider's.
    pub(super) refusal: claude::errors::Refusal,
    /// Messages and steps whose tokens have been counted, so that lines that come twice count once.
    pub(super) counted: HashSet<String>,
}

/// Reads a stream piece by piece.
#[derive(Debug)]
pub struct StreamReader {
    kind: StreamKind,
    lines: Lines,
    summary: StreamSummary,
    memory: Memory,
}

impl StreamReader {
    /// A reader for a stream of this kind.
    #[must_use]
    pub fn new(kind: StreamKind) -> Self {
        Self::with_line_cap(kind, LINE_CAP)
    }

    fn with_line_cap(kind: StreamKind, cap: usize) -> Self {
        let final_event = if kind.has_final_event() { FinalEvent::Missing } else { FinalEvent::NotApplicable };
        let summary = StreamSummary {
            session: None,
            usage: None,
            counted: None,
            model: None,
            denied: Vec::new(),
            message: None,
            final_event,
            is_spent: false,
            error: None,
        };
        Self { kind, lines: Lines::new(cap), summary, memory: Memory::default() }
    }

    /// Takes the next bytes, in pieces of any size; returns what they tell. Plain text tells nothing.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<Activity> {
        let Self { kind, lines, summary, memory } = self;
        let apply = match kind {
            StreamKind::Plain => return Vec::new(),
            StreamKind::Text => {
                collect(summary, memory, bytes);
                show_text
            }
            StreamKind::Codex => codex::events::apply,
            StreamKind::Claude => claude::events::apply,
            StreamKind::Gemini => gemini::apply,
            StreamKind::Opencode => opencode::apply,
        };
        let mut activities = Vec::new();
        lines.feed(bytes, |line| match line {
            Line::Whole(line) => activities.extend(apply(summary, memory, line)),
            Line::TooLong(cap) => {
                activities.push(event::no_progress(&format!("(a line of more than {cap} bytes was skipped)")));
            }
        });
        activities
    }

    /// What was said so far. A line that was cut off does not count.
    #[must_use]
    pub fn summary(&self) -> &StreamSummary {
        &self.summary
    }
}

/// Keeps plain text whole: it is the worker's answer, unless it is longer than an answer may be.
fn collect(summary: &mut StreamSummary, memory: &mut Memory, bytes: &[u8]) {
    memory.is_too_long |= memory.bytes.len() + bytes.len() > TEXT_CAP;
    if memory.is_too_long {
        memory.bytes = Vec::new();
    } else {
        memory.bytes.extend_from_slice(bytes);
    }
    summary.message = (!memory.bytes.is_empty()).then(|| String::from_utf8_lossy(&memory.bytes).into_owned());
}

fn show_text(_: &mut StreamSummary, _: &mut Memory, line: &[u8]) -> Option<Activity> {
    Some(event::progress(&String::from_utf8_lossy(line)))
}

enum Line<'a> {
    Whole(&'a [u8]),
    TooLong(usize),
}

/// Splits bytes at newlines; holds at most `cap` bytes.
#[derive(Debug)]
struct Lines {
    cap: usize,
    begun: Vec<u8>,
    skipping: bool,
}

impl Lines {
    fn new(cap: usize) -> Self {
        Self { cap, begun: Vec::new(), skipping: false }
    }

    fn feed(&mut self, bytes: &[u8], mut each: impl FnMut(Line<'_>)) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let text = piece.strip_suffix(b"\n");
            self.extend(text.unwrap_or(piece), &mut each);
            if text.is_some() {
                self.end_line(&mut each);
            }
        }
    }

    fn extend(&mut self, piece: &[u8], each: &mut impl FnMut(Line<'_>)) {
        if self.skipping {
            return;
        }
        if self.begun.len() + piece.len() > self.cap {
            self.skipping = true;
            self.begun = Vec::new();
            each(Line::TooLong(self.cap));
        } else {
            self.begun.extend_from_slice(piece);
        }
    }

    fn end_line(&mut self, each: &mut impl FnMut(Line<'_>)) {
        if !std::mem::take(&mut self.skipping) {
            each(Line::Whole(&self.begun));
        }
        self.begun.clear();
        // One line of megabytes is no reason to hold them for hours.
        self.begun.shrink_to(64 * 1024);
    }
}

#[cfg(test)]
mod recordings;
#[cfg(test)]
mod tests;
