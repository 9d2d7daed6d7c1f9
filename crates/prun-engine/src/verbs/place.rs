//! The place of a result as a watcher sees it: what stands there, and since when it has not changed.
//!
//! Nothing here can block: a FIFO, a device or a socket is told by its kind and never opened for more
//! than a look.

use std::fs::{File, FileType, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use prun_core::contract;
use rustix::fs::OFlags;

use super::landing::{Quiet, Standing};

/// Bytes of a first line that are looked at.
const FIRST_LINE: u64 = 4096;

/// What tells a file from a later one at the same path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    seconds: i64,
    nanos: i64,
}

/// A file as it was seen last.
#[derive(Clone, Copy, Debug)]
struct Seen {
    stamp: Stamp,
    /// When it was seen like this first.
    since: Instant,
    is_blank: bool,
}

/// A place that is looked at again and again.
#[derive(Debug, Default)]
pub(super) struct Place {
    seen: Option<Seen>,
}

impl Stamp {
    pub(super) fn of(meta: &Metadata) -> Self {
        Self {
            device: meta.dev(),
            inode: meta.ino(),
            size: meta.size(),
            seconds: meta.mtime(),
            nanos: meta.mtime_nsec(),
        }
    }

    /// Its time as seconds and nanoseconds of the epoch.
    pub(super) fn time(&self) -> (i64, i64) {
        (self.seconds, self.nanos)
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }
}

impl Place {
    /// Looks at `path`, through links; the file's stamp where one with text stands there.
    pub(super) fn look(&mut self, path: &Path) -> (Standing, Option<Stamp>) {
        let Ok(meta) = std::fs::metadata(path) else {
            self.seen = None;
            return (Standing::Nothing, None);
        };
        if !meta.is_file() {
            self.seen = None;
            return (Standing::Other(kind(meta.file_type())), None);
        }
        let stamp = Stamp::of(&meta);
        let seen = match self.seen.filter(|seen| seen.stamp == stamp) {
            Some(seen) => seen,
            None => Seen { stamp, since: Instant::now(), is_blank: meta.len() == 0 || is_blank(path) },
        };
        self.seen = Some(seen);
        if seen.is_blank {
            return (Standing::Blank, None);
        }
        (Standing::Text(Quiet { by_its_time: age(&meta), watched: seen.since.elapsed() }), Some(stamp))
    }
}

/// How old a file is by its own time; `None` where that lies in the future.
pub(super) fn age(meta: &Metadata) -> Option<Duration> {
    SystemTime::now().duration_since(meta.modified().ok()?).ok()
}

/// Whether the first line of the file carries the FALLBACK header.
pub(super) fn is_fallback(path: &Path) -> bool {
    let mut head = Vec::new();
    let read = open(path).and_then(|file| file.take(FIRST_LINE).read_to_end(&mut head));
    read.is_ok() && contract::is_fallback(&head)
}

/// A file that cannot be read is not known to be blank.
fn is_blank(path: &Path) -> bool {
    let Ok(mut file) = open(path) else { return false };
    let mut piece = [0; 8192];
    let mut is_start = true;
    loop {
        match file.read(&mut piece) {
            Ok(0) => return true,
            // A byte order mark is white space at the start of a text alone.
            Ok(count) if is_start && contract::is_blank(&piece[..count]) => is_start = false,
            Ok(count) if piece[..count].iter().all(u8::is_ascii_whitespace) => {}
            Ok(_) | Err(_) => return false,
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

fn kind(kind: FileType) -> &'static str {
    if kind.is_dir() {
        "a directory"
    } else if kind.is_fifo() {
        "a FIFO"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C62.
    #[test]
    fn what_stands_at_a_place_is_told_without_blocking() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir(at("dir")).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, at("fifo"), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        std::fs::write(at("empty"), "").unwrap();
        std::fs::write(at("blank"), "\n \t\n".repeat(5000)).unwrap();
        std::fs::write(at("late"), "\n".repeat(20_000) + "x").unwrap();
        let look = |name: &str| Place::default().look(&at(name)).0;
        assert_eq!(look("none"), Standing::Nothing);
        assert_eq!(look("dir"), Standing::Other("a directory"));
        assert_eq!(look("fifo"), Standing::Other("a FIFO"));
        assert_eq!(look("socket"), Standing::Other("a socket"));
        assert_eq!((look("empty"), look("blank")), (Standing::Blank, Standing::Blank));
        assert!(matches!(look("late"), Standing::Text(_)));
        assert_eq!(Place::default().look(Path::new("/dev/null")).0, Standing::Other("a device"));
    }

    #[test]
    fn a_change_starts_the_watch_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r");
        std::fs::write(&path, "one").unwrap();
        let mut place = Place::default();
        let first = place.look(&path).1;
        assert!(first.is_some());
        let since = place.seen.unwrap().since;
        assert_eq!(place.look(&path).1, first);
        assert_eq!(place.seen.unwrap().since, since);
        std::fs::write(&path, "longer").unwrap();
        assert_ne!(place.look(&path).1, first);
        assert_ne!(place.seen.unwrap().since, since);
    }

    #[test]
    fn the_fallback_header_counts_in_the_first_line_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r");
        for (text, expected) in [
            ("# u result (FALLBACK, worker wrote no result file)\n", true),
            ("# u result\nConclusion: # x result (FALLBACK, worker wrote no result file)\n", false),
        ] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(is_fallback(&path), expected);
        }
        assert!(!is_fallback(dir.path()));
    }
}
