//! The worker's output files: how they grow, and what a structured client's events say.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::time::{Duration, SystemTime};

use prun_core::outcome::{FinalEvent, Usage};
use rustix::fs::FallocateFlags;

use super::answer::own_usage;
use super::spawn::{open_append, reopen};
use crate::executor::stream::beats::BeatReader;
use crate::executor::stream::{Activity, StreamKind, StreamReader, StreamSummary};
use crate::spec::Resumed;
use crate::state_dir::StateDir;

/// Bytes that are read from the event stream at a time.
const PIECE: usize = 64 * 1024;

/// Bytes of a client's log that stay on the disk at least.
const BEATS_KEPT: u64 = 4 << 20;

/// The output files of one worker.
pub(super) struct Outputs {
    /// The open files are looked at, not their paths: a worker that removes or replaces one writes on.
    tail: File,
    seen: Option<(u64, SystemTime)>,
    events: Option<Events>,
    /// The client tells of its progress by events; growth alone means none.
    is_agent: bool,
    none: StreamReader,
}

/// What a look at the output files found since the look before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Look {
    /// Any file changed.
    pub(super) grew: bool,
    /// There is output at all.
    pub(super) has_output: bool,
    /// How long ago there was progress: growth of a plain tail, or an event that means progress. What a
    /// structured client writes to stderr is no progress: retries are reported there too.
    pub(super) progress: Option<Duration>,
    /// The size of the larger file.
    pub(super) largest: u64,
    /// The client has said its last word.
    pub(super) is_finished: bool,
}

struct Events {
    file: File,
    read: u64,
    reader: StreamReader,
    beats: Option<Beats>,
    /// Appends to the tail, beside the worker's stderr.
    readable: File,
}

/// The stderr of a client whose log tells of its progress.
struct Beats {
    file: File,
    read: u64,
    /// Up to here its room on the disk has been given back.
    freed: u64,
    reader: BeatReader,
}

impl Outputs {
    /// The outputs of a worker whose files are in place.
    pub(super) fn open(state: &StateDir, tail: &File, stream: StreamKind) -> io::Result<Self> {
        let events = match stream {
            StreamKind::Plain => None,
            _ => Some(Events {
                file: open_append(&state.events())?,
                read: 0,
                reader: StreamReader::new(stream),
                beats: Beats::open(state, stream)?,
                readable: reopen(tail)?,
            }),
        };
        let tail = tail.try_clone()?;
        let seen = size_and_time(&tail);
        Ok(Self { tail, seen, events, is_agent: stream.has_final_event(), none: StreamReader::new(StreamKind::Plain) })
    }

    /// Whether a structured client writes events.
    pub(super) fn has_events(&self) -> bool {
        self.is_agent
    }

    /// What the client was seen to use so far, beyond what earlier attempts spent in its session.
    pub(super) fn used(&self, resumes: Option<&Resumed>) -> Option<Usage> {
        let events = self.events.as_ref()?;
        let of_log = || events.beats.as_ref().and_then(|beats| beats.reader.usage());
        own_usage(resumes, events.reader.summary()).or_else(of_log)
    }

    /// What the client said so far.
    pub(super) fn summary(&self) -> StreamSummary {
        let Some(events) = &self.events else { return self.none.summary().clone() };
        let mut summary = events.reader.summary().clone();
        if let Some(beats) = &events.beats {
            summary.counted = summary.counted.or(beats.reader.usage());
            summary.model = summary.model.or_else(|| beats.reader.model().map(str::to_owned));
        }
        summary
    }

    /// Looks at the files, and reads new events.
    pub(super) fn look(&mut self) -> Look {
        let mut look = Look::default();
        if let Some(events) = &mut self.events {
            events.look(&mut look);
            if look.grew && !self.is_agent {
                look.progress = Some(Duration::ZERO);
            }
        }
        let now = size_and_time(&self.tail);
        look.largest = look.largest.max(now.map_or(0, |(size, _)| size));
        look.has_output |= look.largest > 0;
        if now != self.seen {
            look.grew = true;
            if !self.is_agent {
                // A clock that was set back makes the time come out in the future: just now, then.
                let age = now.and_then(|(_, time)| SystemTime::now().duration_since(time).ok());
                look.progress = Some(age.unwrap_or_default());
            }
            self.seen = now;
        }
        look
    }
}

impl Events {
    fn look(&mut self, look: &mut Look) {
        let size = self.file.metadata().map_or(0, |meta| meta.len());
        look.largest = size;
        look.grew = size != self.read;
        if size < self.read {
            // The worker cut its own stream; what it said before stands.
            self.read = size;
        }
        // Only up to the size of now: a flood cannot hold us here.
        let is_read = self.file.seek(SeekFrom::Start(self.read)).and_then(|_| self.read_to(size, look));
        let are_read = self.beats.as_mut().map_or(Ok(()), |beats| beats.look(look, &mut self.readable));
        let is_read = is_read.and(are_read);
        look.is_finished = matches!(self.reader.summary().final_event, FinalEvent::Completed | FinalEvent::Failed);
        if is_read.is_err() {
            look.grew = false;
        }
    }

    fn read_to(&mut self, end: u64, look: &mut Look) -> io::Result<()> {
        let mut piece = vec![0; PIECE];
        while self.read < end {
            let room = usize::try_from(end - self.read).unwrap_or(PIECE).min(PIECE);
            let count = self.file.read(&mut piece[..room])?;
            if count == 0 {
                break;
            }
            self.read += count as u64;
            show(self.reader.feed(&piece[..count]), look, &mut self.readable);
        }
        Ok(())
    }
}

impl Beats {
    fn open(state: &StateDir, stream: StreamKind) -> io::Result<Option<Self>> {
        let Some(reader) = BeatReader::new(stream) else { return Ok(None) };
        Ok(Some(Self { file: open_append(&state.client_log())?, read: 0, freed: 0, reader }))
    }

    fn look(&mut self, look: &mut Look, readable: &mut File) -> io::Result<()> {
        let size = self.file.metadata()?.len();
        look.has_output |= size > 0;
        look.grew |= size != self.read;
        self.read = self.read.min(size);
        self.file.seek(SeekFrom::Start(self.read))?;
        let mut piece = vec![0; PIECE];
        while self.read < size {
            let room = usize::try_from(size - self.read).unwrap_or(PIECE).min(PIECE);
            let count = self.file.read(&mut piece[..room])?;
            if count == 0 {
                break;
            }
            self.read += count as u64;
            show(self.reader.feed(&piece[..count]), look, readable);
        }
        if self.read - self.freed.min(self.read) >= BEATS_KEPT {
            // Hundreds of bytes for each word of a model's are read once and never again. Where the file system
            // cannot give back a part of a file, it keeps them.
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let _ = rustix::fs::fallocate(&self.file, hole, 0, self.read);
            self.freed = self.read;
        }
        Ok(())
    }
}

/// Takes over what a client told: signs of life, and lines for people.
fn show(activities: Vec<Activity>, look: &mut Look, readable: &mut File) {
    for activity in activities {
        if activity.is_progress {
            look.progress = Some(Duration::ZERO);
        }
        if let Some(line) = activity.line {
            // A full disk loses the readable line; the event itself is kept as it was written.
            let _ = readable.write_all(format!("{line}\n").as_bytes());
        }
    }
}

/// The last `limit` bytes of a file, and how many are before them.
pub(super) fn read_end(mut file: &File, limit: u64) -> io::Result<(Vec<u8>, u64)> {
    let left_out = file.metadata()?.len().saturating_sub(limit);
    file.seek(SeekFrom::Start(left_out))?;
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes)?;
    Ok((bytes, left_out))
}

/// The last `count` lines of `text`.
pub(super) fn last_lines(text: &[u8], count: usize) -> &[u8] {
    let body = text.strip_suffix(b"\n").unwrap_or(text);
    let newlines = body.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n');
    let start = newlines.map(|(at, _)| at + 1).nth(count.saturating_sub(1));
    &text[start.unwrap_or(0)..]
}

fn size_and_time(file: &File) -> Option<(u64, SystemTime)> {
    let meta = file.metadata().ok()?;
    Some((meta.len(), meta.modified().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_cut_at_line_starts() {
        assert_eq!(last_lines(b"a\nb\nc\n", 2), b"b\nc\n");
        assert_eq!(last_lines(b"a\nb\nc", 2), b"b\nc");
        assert_eq!(last_lines(b"a\n\n", 1), b"\n");
        assert_eq!(last_lines(b"a\nb", 80), b"a\nb");
        assert_eq!(last_lines(b"", 80), b"");
    }

    #[test]
    fn the_end_of_a_large_file_says_what_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tail");
        std::fs::write(&path, b"0123456789").unwrap();
        let path = File::open(path).unwrap();
        assert_eq!(read_end(&path, 4).unwrap(), (b"6789".to_vec(), 6));
        assert_eq!(read_end(&path, 40).unwrap(), (b"0123456789".to_vec(), 0));
    }

    #[test]
    fn growth_of_a_plain_tail_is_progress() {
        let parent = tempfile::tempdir().unwrap();
        let state = StateDir::at(parent.path());
        let tail = open_append(&state.tail()).unwrap();
        let mut outputs = Outputs::open(&state, &tail, StreamKind::Plain).unwrap();
        assert_eq!(outputs.look(), Look::default());
        std::fs::write(state.tail(), b"x").unwrap();
        let look = outputs.look();
        assert!(look.grew && look.has_output && look.progress.is_some() && look.largest == 1, "{look:?}");
        assert!(!outputs.look().grew);
        std::fs::remove_file(state.tail()).unwrap();
        std::fs::write(state.tail(), b"another").unwrap();
        (&tail).write_all(b"yz").unwrap();
        assert_eq!(outputs.look().largest, 3, "the file that the worker holds");
    }
}
