//! A client's stderr, read incrementally beside its event stream: signs of life that the events do not give.

use prun_core::outcome::Usage;

use super::event::{progress, pulse};
use super::{Activity, Line, Lines, StreamKind};
use crate::executor::codex::beats::{Beat, beat, goes_on};

/// No line that is a sign of life is longer.
const LINE_CAP: usize = 64 * 1024;

/// Reads a client's stderr piece by piece.
#[derive(Debug)]
pub struct BeatReader {
    lines: Lines,
    /// In the middle of a record of many lines.
    inside: bool,
    usage: Option<Usage>,
    model: Option<String>,
}

impl BeatReader {
    /// A reader for clients of this kind; `None` where their stderr is for people alone.
    #[must_use]
    pub fn new(kind: StreamKind) -> Option<Self> {
        (kind == StreamKind::Codex).then(|| Self {
            lines: Lines::new(LINE_CAP),
            inside: false,
            usage: None,
            model: None,
        })
    }

    /// Takes the next bytes. What the client says to people comes back as a line that is no progress.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<Activity> {
        let Self { lines, inside, usage, model } = self;
        let mut activities = Vec::new();
        lines.feed(bytes, |line| {
            let Line::Whole(line) = line else { return };
            let text = String::from_utf8_lossy(line);
            let was_inside = std::mem::replace(inside, goes_on(&text, *inside));
            match beat(&text) {
                _ if was_inside => {}
                Beat::Progress => activities.push(pulse()),
                Beat::Answered { usage: answer, model: named } => {
                    *usage = Some(usage.unwrap_or_default().plus(&answer));
                    *model = named.map(str::to_owned).or(model.take());
                    activities.push(pulse());
                }
                Beat::Quiet => {}
                Beat::Said => activities.push(Activity { is_progress: false, ..progress(&text) }),
            }
        });
        activities
    }

    /// The tokens of this process so far.
    #[must_use]
    pub fn usage(&self) -> Option<Usage> {
        self.usage
    }

    /// The model that answers.
    #[must_use]
    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_summed_and_words_for_people_are_kept() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/executor/fixtures/codex/otel.stderr");
        let recorded = std::fs::read(path).unwrap();
        let mut reader = BeatReader::new(StreamKind::Codex).unwrap();
        let activities: Vec<Activity> = recorded.chunks(100).flat_map(|piece| reader.feed(piece)).collect();
        let usage = reader.usage().unwrap();
        assert_eq!((usage.input_tokens, usage.output_tokens), (2400, 68));
        assert_eq!(reader.model(), Some("fake-model"));
        let lines: Vec<&str> = activities.iter().filter_map(|activity| activity.line.as_deref()).collect();
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].starts_with("WARNING: proceeding"), "{lines:?}");
        assert!(activities.iter().filter(|activity| activity.is_progress).count() >= 8);
        assert!(BeatReader::new(StreamKind::Claude).is_none());
    }
}
