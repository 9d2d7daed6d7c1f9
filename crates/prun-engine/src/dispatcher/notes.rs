//! What a living dispatcher tells its supervisor: one JSON object a line, each written at once.

use std::io::Write;
use std::path::{Path, PathBuf};

use prun_core::outcome::Usage;
use serde::{Deserialize, Serialize};

use super::output::read_end;
use super::result_file::open_regular;
use super::spawn::open_append;

/// One line of the notes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "note")]
pub enum Note {
    /// No sign of life for half the idle limit.
    Quiet {
        /// Seconds of silence so far.
        seconds: u64,
    },
    /// The worker moves again.
    Active,
    /// A session unit waits for somebody else's work.
    HandedOver,
    /// What the attempt has used so far.
    Used {
        /// As a total.
        usage: Usage,
    },
}

/// Where the notes go; nowhere for `dispatch-task`.
#[derive(Clone, Debug)]
pub(super) struct Notes(pub(super) Option<PathBuf>);

impl Notes {
    /// Appends a line. Nothing depends on it: what cannot be written is not said.
    pub(super) fn write(&self, note: &Note) {
        let Some(path) = &self.0 else { return };
        if let (Ok(mut file), Ok(text)) = (open_append(path), serde_json::to_string(note)) {
            let _ = file.write_all(format!("{text}\n").as_bytes());
        }
    }
}

/// What the dispatcher said last of what its attempt had used.
pub(super) fn last_told_usage(path: &Path) -> Option<Usage> {
    const SEARCHED: u64 = 64 << 10;
    let (end, _) = read_end(&open_regular(path).ok()?, SEARCHED).ok()?;
    let notes = end.split(|byte| *byte == b'\n').rev().filter_map(|line| serde_json::from_slice(line).ok());
    notes.into_iter().find_map(|note| match note {
        Note::Used { usage } => Some(usage),
        Note::Quiet { .. } | Note::Active | Note::HandedOver => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_json_lines() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notes.jsonl");
        let notes = Notes(Some(path.clone()));
        notes.write(&Note::HandedOver);
        notes.write(&Note::Quiet { seconds: 7 });
        notes.write(&Note::Active);
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, "{\"note\":\"handed-over\"}\n{\"note\":\"quiet\",\"seconds\":7}\n{\"note\":\"active\"}\n");
    }
}
