//! The place of the result: what stands there, whose it is, and how something is put there.
//!
//! Only regular files are read or replaced; a link, a directory, a FIFO or a device is left alone.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use prun_core::contract;
use rustix::fs::OFlags;

use crate::files::{Durability, FileError, write_atomically_with_mode};

/// Bytes of a result in which the contract's head is looked for.
const HEAD: u64 = 256 * 1024;

/// Where the result is to stand, and what stood there before the dispatch.
#[derive(Clone, Debug)]
pub(super) struct ResultFile {
    path: PathBuf,
    before: Option<Stamp>,
}

/// What tells a file from a later one at the same path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    size: u64,
    seconds: i64,
    nanos: i64,
}

/// The result as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// Its first 256 KiB.
    pub(super) head: Vec<u8>,
    /// Its size in bytes.
    pub(super) bytes: u64,
}

impl ResultFile {
    /// Looks at `path` before the worker starts.
    pub(super) fn observe(path: &Path) -> Self {
        Self { path: path.to_owned(), before: stamp(path) }
    }

    /// A path at which nothing stood before.
    pub(super) fn absent_before(path: &Path) -> Self {
        Self { path: path.to_owned(), before: None }
    }

    /// The path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// When a file that stood before the dispatch was changed, in Unix seconds; else 0.
    pub(super) fn seconds_before(&self) -> i64 {
        self.before.map_or(0, |stamp| stamp.seconds)
    }

    /// Whether the worker has left a result: a regular file that is not the one from before, with
    /// something in it.
    pub(super) fn is_from_worker(&self) -> bool {
        self.find().is_some()
    }

    /// The result that the worker left.
    pub(super) fn find(&self) -> Option<Found> {
        let stamp = stamp(&self.path).filter(|now| Some(*now) != self.before)?;
        let mut file = open_regular(&self.path).ok()?;
        let mut head = Vec::new();
        file.by_ref().take(HEAD).read_to_end(&mut head).ok()?;
        let is_blank = contract::is_blank(&head) && rest_is_blank(file);
        (!is_blank).then_some(Found { head, bytes: stamp.size })
    }

    /// Makes the result that stands there durable.
    pub(super) fn sync(&self) {
        // A file system that cannot is no reason to lose the attempt.
        let _ = open_regular(&self.path).and_then(|file| file.sync_data());
    }

    /// Puts `bytes` there. A file from before is kept as `kept` first.
    ///
    /// # Errors
    /// Something that is no regular file stands there, or the file cannot be kept or written. What stands
    /// there is unchanged then.
    pub(super) fn replace(&self, bytes: &[u8], kept: &Path, durability: Durability) -> Result<(), FileError> {
        match std::fs::symlink_metadata(&self.path) {
            Ok(meta) if !meta.is_file() => {
                let error = io::Error::new(io::ErrorKind::AlreadyExists, "something that is no regular file is there");
                return Err(FileError::at("write the result", &self.path)(error));
            }
            Ok(_) if self.before.is_some() && self.before == stamp(&self.path) => {
                let copied =
                    open_regular(&self.path).and_then(|mut from| io::copy(&mut from, &mut File::create(kept)?));
                copied.map_err(FileError::at("keep what stood before at", &self.path))?;
            }
            _ => {}
        }
        write_atomically_with_mode(&self.path, bytes, durability, 0o666)
    }
}

/// Opens a regular file without following a link or waiting for the other end of a FIFO.
pub(super) fn open_regular(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
    let file = OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::from(io::ErrorKind::InvalidInput)) }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let meta = std::fs::symlink_metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    Some(Stamp { inode: meta.ino(), size: meta.size(), seconds: meta.mtime(), nanos: meta.mtime_nsec() })
}

fn rest_is_blank(mut file: File) -> bool {
    let mut piece = [0; 8192];
    while let Ok(count) = file.read(&mut piece) {
        if count == 0 {
            return true;
        }
        if !contract::is_blank(&piece[..count]) {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_from_before_is_no_result_until_it_changes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out.md");
        std::fs::write(&path, "old").unwrap();
        let result = ResultFile::observe(&path);
        assert!(result.find().is_none() && result.seconds_before() > 0);
        std::fs::write(&path, "newer").unwrap();
        assert_eq!(result.find().unwrap(), Found { head: b"newer".to_vec(), bytes: 5 });
        std::fs::write(&path, " \n").unwrap();
        assert!(result.find().is_none());
        std::fs::write(&path, "\n".repeat(300_000) + "x").unwrap();
        assert_eq!(result.find().unwrap().bytes, 300_001);
    }

    #[test]
    fn what_stood_before_is_kept_when_it_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out.md");
        let kept = dir.path().join("result.before");
        std::fs::write(&path, "old").unwrap();
        ResultFile::observe(&path).replace(b"new", &kept, Durability::Cached).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(std::fs::read_to_string(&kept).unwrap(), "old");
    }

    #[test]
    fn only_a_regular_file_is_read_or_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir(at("dir")).unwrap();
        std::fs::write(at("real"), "text").unwrap();
        std::os::unix::fs::symlink(at("real"), at("link")).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, at("fifo"), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        for name in ["dir", "link", "fifo"] {
            let result = ResultFile { path: at(name), before: None };
            assert!(result.find().is_none(), "{name}");
            assert!(result.replace(b"x", &at("kept"), Durability::Cached).is_err(), "{name}");
        }
        assert_eq!(std::fs::read_to_string(at("real")).unwrap(), "text");
        assert!(ResultFile::observe(&at("no/dir")).replace(b"x", &at("kept"), Durability::Cached).is_err());
    }
}
