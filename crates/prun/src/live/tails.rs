//! The last line that a worker wrote, looked up anew only when its tail has grown.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use prun_engine::executor::escape_line;
use prun_engine::state_dir;

/// Bytes at the end of a tail in which a whole line is looked for.
const WINDOW: u64 = 4096;

/// What is known of the tails of a run.
#[derive(Debug, Default)]
pub(crate) struct Tails {
    known: HashMap<PathBuf, Tail>,
}

#[derive(Debug, Default)]
struct Tail {
    path: Option<PathBuf>,
    size: u64,
    line: Option<String>,
}

impl Tails {
    /// The last whole line of the tail in `attempt_dir`, escaped for a terminal.
    pub(crate) fn last_line(&mut self, attempt_dir: &Path) -> Option<String> {
        let tail = self.known.entry(attempt_dir.to_owned()).or_default();
        if tail.path.is_none() {
            tail.path = state_dir::find_in(attempt_dir).map(|dir| dir.join("tail"));
        }
        let path = tail.path.as_ref()?;
        let size = std::fs::metadata(path).ok()?.len();
        if size != tail.size {
            tail.size = size;
            tail.line = read_last_line(path, size);
        }
        tail.line.clone()
    }
}

fn read_last_line(path: &Path, size: u64) -> Option<String> {
    let mut file = File::open(path).ok()?;
    file.seek(SeekFrom::Start(size.saturating_sub(WINDOW))).ok()?;
    let mut end = Vec::new();
    file.take(WINDOW).read_to_end(&mut end).ok()?;
    let text = String::from_utf8_lossy(&end);
    text.lines().rev().map(str::trim).find(|line| !line.is_empty()).map(escape_line)
}
