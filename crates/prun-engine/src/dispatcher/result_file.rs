//! The place of the result: what stands there, whose it is, and how something is put there.
//!
//! Only regular files are read or replaced; a directory, a FIFO or a device is left alone. A link that stood there
//! before the dispatch is the caller's own way to say where the result goes; one that came later is left alone, too.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use prun_core::contract;
use rustix::fs::OFlags;

use crate::files::{Durability, FileError, write_atomically_with_mode};
use crate::state_dir::canonical_result;

/// Bytes of a result in which the contract's head is looked for.
const HEAD: u64 = 256 * 1024;

/// Where the result is to stand, and what stood there before the dispatch.
#[derive(Clone, Debug)]
pub(super) struct ResultFile {
    /// As it was asked for.
    path: PathBuf,
    /// Where a link that stands there led to before the worker started.
    linked: Option<PathBuf>,
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
        let linked = is_link(path).then(|| canonical_result(path));
        Self { path: path.to_owned(), before: stamp(linked.as_deref().unwrap_or(path)), linked }
    }

    /// A path at which nothing stood before.
    pub(super) fn absent_before(path: &Path) -> Self {
        Self { path: path.to_owned(), linked: None, before: None }
    }

    /// The path: the caller's link as long as it leads where it did.
    pub(super) fn path(&self) -> &Path {
        let is_as_before = |linked: &&PathBuf| is_link(&self.path) && canonical_result(&self.path) == **linked;
        self.linked.as_ref().filter(is_as_before).unwrap_or(&self.path)
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
        let path = self.path();
        let stamp = stamp(path).filter(|now| Some(*now) != self.before && now.size > 0)?;
        let mut head = Vec::new();
        // What cannot be read is not known to be blank: it is there, and stays.
        let is_blank = open_regular(path).is_ok_and(|mut file| {
            file.by_ref().take(HEAD).read_to_end(&mut head).is_ok() && contract::is_blank(&head) && rest_is_blank(file)
        });
        (!is_blank).then_some(Found { head, bytes: stamp.size })
    }

    /// Makes the result that stands there durable.
    pub(super) fn sync(&self) {
        // A file system that cannot is no reason to lose the attempt.
        let _ = open_regular(self.path()).and_then(|file| file.sync_data());
    }

    /// Puts `bytes` there. A file from before is kept as `kept` first.
    ///
    /// # Errors
    /// Something that is no regular file stands there, or the file cannot be kept or written. What stands
    /// there is unchanged then.
    pub(super) fn replace(&self, bytes: &[u8], kept: &Path, durability: Durability) -> Result<(), FileError> {
        let path = self.path();
        match std::fs::symlink_metadata(path) {
            Ok(meta) if !meta.is_file() => {
                let error = io::Error::new(io::ErrorKind::AlreadyExists, "something that is no regular file is there");
                return Err(FileError::at("write the result", path)(error));
            }
            Ok(_) if self.before.is_some() && self.before == stamp(path) => {
                let copied = open_regular(path).and_then(|mut from| io::copy(&mut from, &mut File::create(kept)?));
                copied.map_err(FileError::at("keep what stood before at", path))?;
            }
            _ => {}
        }
        write_atomically_with_mode(path, bytes, durability, 0o666)
    }
}

/// Opens a regular file without following a link or waiting for the other end of a FIFO.
pub(super) fn open_regular(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
    let file = OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::from(io::ErrorKind::InvalidInput)) }
}

fn is_link(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|meta| meta.is_symlink())
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
    fn a_link_of_the_callers_leads_to_the_result_and_one_of_the_workers_to_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let link = |to: &str| std::os::unix::fs::symlink(to, at("link")).unwrap();
        let kept = at("kept");
        link("real");
        let result = ResultFile::observe(&at("link"));
        result.replace(b"salvaged", &kept, Durability::Cached).unwrap();
        assert_eq!(std::fs::read(at("real")).unwrap(), b"salvaged");
        assert!(is_link(&at("link")) && result.find().is_some());
        let again = ResultFile::observe(&at("link"));
        assert!(again.find().is_none() && again.seconds_before() > 0, "it stood before");
        std::fs::remove_file(at("link")).unwrap();
        std::fs::write(at("secret"), "of somebody else").unwrap();
        link("secret");
        assert!(again.find().is_none() && again.replace(b"x", &kept, Durability::Cached).is_err());
        assert_eq!(std::fs::read(at("secret")).unwrap(), b"of somebody else");
        std::fs::remove_file(at("link")).unwrap();
        std::fs::write(at("link"), "the worker's own").unwrap();
        assert_eq!(again.find().unwrap().head, b"the worker's own");
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
            let result = ResultFile::absent_before(&at(name));
            assert!(result.find().is_none(), "{name}");
            assert!(result.replace(b"x", &at("kept"), Durability::Cached).is_err(), "{name}");
        }
        assert_eq!(std::fs::read_to_string(at("real")).unwrap(), "text");
        assert!(ResultFile::observe(&at("no/dir")).replace(b"x", &at("kept"), Durability::Cached).is_err());
    }
}
