//! A client's event stream, read incrementally with bounded memory.
//!
//! The reader believes only whole lines that parse. Noise between them, a last line cut by a kill,
//! lines that come twice, NUL bytes and invalid UTF-8 change nothing. What a line of a known client
//! means is [`super::codex`]'s business.

use jiff::ZonedDateTime;
use prun_core::outcome::{ClientError, FinalEvent, Usage};
use serde::{Deserialize, Serialize};

use super::codex;

/// The longest line that is understood, in bytes. Codex cuts a command's output at 1 MiB, and JSON
/// escapes can make six of each byte.
pub const LINE_CAP: usize = 16 * 1024 * 1024;

/// The longest [`Activity::line`], in characters.
pub const ACTIVITY_CAP: usize = 200;

/// How a worker's stdout is understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StreamKind {
    /// Plain text: it goes to `tail` together with stderr.
    Plain,
    /// `codex exec --json`.
    Codex,
}

/// One readable line of what a worker does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Activity {
    /// For people: one line, control characters escaped, cut to [`ACTIVITY_CAP`] characters.
    pub line: String,
    /// Whether it means progress; a retry or reconnect line does not.
    pub is_progress: bool,
}

/// What a stream has said so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamSummary {
    /// The client's session or thread.
    pub session: Option<String>,
    /// Tokens, as totals.
    pub usage: Option<Usage>,
    /// The last message of the agent that is not blank, as it was written.
    pub message: Option<String>,
    /// The client's last word.
    pub final_event: FinalEvent,
    /// Its error. Without a final event, the last error that no work followed.
    pub error: Option<ClientError>,
}

impl StreamSummary {
    /// The same with the time at which a limit is lifted, where the error's message tells it.
    /// Clients print it in local time and without a date, so it takes the moment of reading.
    #[must_use]
    pub fn with_reset_time(mut self, now: &ZonedDateTime) -> Self {
        if let Some(error) = &mut self.error {
            error.resets_at = codex::errors::reset_time(&error.message, now);
        }
        self
    }
}

/// Reads a stream piece by piece.
#[derive(Debug)]
pub struct StreamReader {
    kind: StreamKind,
    lines: Lines,
    summary: StreamSummary,
}

impl StreamReader {
    /// A reader for a stream of this kind.
    #[must_use]
    pub fn new(kind: StreamKind) -> Self {
        Self::with_line_cap(kind, LINE_CAP)
    }

    fn with_line_cap(kind: StreamKind, cap: usize) -> Self {
        let final_event = if kind == StreamKind::Plain { FinalEvent::NotApplicable } else { FinalEvent::Missing };
        let summary = StreamSummary { session: None, usage: None, message: None, final_event, error: None };
        Self { kind, lines: Lines::new(cap), summary }
    }

    /// Takes the next bytes, in pieces of any size; returns what they tell. Plain text tells nothing.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<Activity> {
        match self.kind {
            StreamKind::Plain => Vec::new(),
            StreamKind::Codex => self.feed_codex(bytes),
        }
    }

    /// What was said so far. A line that was cut off does not count.
    #[must_use]
    pub fn summary(&self) -> &StreamSummary {
        &self.summary
    }

    fn feed_codex(&mut self, bytes: &[u8]) -> Vec<Activity> {
        let Self { lines, summary, .. } = self;
        let mut activities = Vec::new();
        lines.feed(bytes, |line| match line {
            Line::Whole(line) => activities.extend(codex::events::apply(summary, line)),
            Line::TooLong(cap) => activities
                .push(Activity { line: format!("(a line of more than {cap} bytes was skipped)"), is_progress: false }),
        });
        activities
    }
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
mod tests;
