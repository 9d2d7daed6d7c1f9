//! A client's event stream, read incrementally with bounded memory.

use prun_core::outcome::{ClientError, FinalEvent, Usage};
use serde::{Deserialize, Serialize};

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
    /// For people: one line, control characters escaped, cut to 200 characters.
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
    /// The last message of the agent.
    pub message: Option<String>,
    /// The client's last word.
    pub final_event: FinalEvent,
    /// Its error.
    pub error: Option<ClientError>,
}

/// Reads a stream piece by piece.
#[derive(Debug)]
pub struct StreamReader {
    kind: StreamKind,
    summary: StreamSummary,
}

impl StreamReader {
    /// A reader for a stream of this kind.
    #[must_use]
    pub fn new(kind: StreamKind) -> Self {
        let final_event = if kind == StreamKind::Plain { FinalEvent::NotApplicable } else { FinalEvent::Missing };
        let summary = StreamSummary { session: None, usage: None, message: None, final_event, error: None };
        Self { kind, summary }
    }

    /// Takes the next bytes, in pieces of any size; returns what they tell.
    pub fn feed(&mut self, _bytes: &[u8]) -> Vec<Activity> {
        Vec::new()
    }

    /// What was said so far. A line that was cut off does not count.
    #[must_use]
    pub fn summary(&self) -> &StreamSummary {
        let _ = self.kind;
        &self.summary
    }
}
