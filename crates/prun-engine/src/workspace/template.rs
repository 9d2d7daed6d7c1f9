//! One checkout of a base, written by git once a run; clones copy it instead of having git write theirs.
//!
//! Workers can reach it by path. So it is described by an index that is kept in memory, and every file is compared
//! with it, open, before it is copied: size, times and inode. One that is not as it was spoils the template, and
//! clones are checked out by git from then on.

use std::fs;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, Stat, Timespec, Timestamps, UTIME_OMIT, copy_file_range, fstat, futimens,
    ioctl_ficlone, mkdirat, openat, readlinkat, statat, symlinkat, utimensat,
};
use rustix::io::Errno;

use super::clone;
use super::index_file::{EntryStat, IndexFile};
use super::mirror::Mirror;
use super::store::Store;
use super::{Base, WorkspaceError, encode};
use crate::files::{FileError, create_private_dir};

/// Mode of a link in an index.
const LINK: u32 = 0o120_000;
/// Mode of a submodule in an index.
const SUBMODULE: u32 = 0o160_000;
/// Files from which it pays to copy with several threads.
const MANY: usize = 500;
/// Threads that one copy uses at most; several clones are copied at once.
const MAX_THREADS: usize = 4;
/// Bytes from which the kernel copies a file by itself.
const LARGE: i64 = 1 << 20;
/// Seconds by which the files of a clone are older than its index, so that git trusts the index (its "racy" rule
/// compares whole seconds).
const AGE: i64 = 2;

/// A checkout that clones are copied from.
#[derive(Debug)]
pub struct Template {
    /// The base that is checked out.
    base: Base,
    tree: PathBuf,
    index: IndexFile,
    /// The time that the files of all clones get.
    time: Timespec,
    is_spoilt: AtomicBool,
    /// The file system shares blocks between files, as far as is known.
    shares_blocks: AtomicBool,
}

/// Why a template was not copied.
#[derive(Debug)]
enum CopyError {
    /// It is not as git wrote it.
    Spoilt,
    File(FileError),
}

impl From<FileError> for CopyError {
    fn from(error: FileError) -> Self {
        Self::File(error)
    }
}

impl Template {
    /// Checks `base` out below `dir`, which must not be there.
    ///
    /// # Errors
    /// The place is taken, git fails, or its index cannot be read.
    pub fn prepare(store: &Store, mirror: &Mirror, base: &Base, dir: &Path) -> Result<Self, WorkspaceError> {
        if dir.symlink_metadata().is_ok() {
            return Err(WorkspaceError::Exists(dir.to_owned()));
        }
        create_private_dir(dir)?;
        let (git_dir, tree) = (dir.join("git"), dir.join("tree"));
        create_private_dir(&tree)?;
        clone::write_git_dir(store, mirror, base, &git_dir)?;
        clone::check_out(store, base, &git_dir, &tree)?;
        let path = git_dir.join("index");
        let bytes = fs::read(&path).map_err(FileError::at("read", &path))?;
        let index = IndexFile::parse(bytes, &store.facts.object_format)
            .ok_or_else(|| WorkspaceError::unexpected("read-tree", "an index of an unknown version"))?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let time = Timespec { tv_sec: i64::try_from(now).unwrap_or(0) - AGE, tv_nsec: 0 };
        let shares_blocks = AtomicBool::new(true);
        Ok(Self { base: base.clone(), tree, index, time, is_spoilt: AtomicBool::new(false), shares_blocks })
    }

    /// Whether `base` can be had from it.
    #[must_use]
    pub fn holds(&self, base: &Base) -> bool {
        self.base == *base && !self.is_spoilt.load(Relaxed)
    }

    /// Copies the checkout into the empty work tree `to` and writes its index. `false`: the template is spoilt,
    /// and `to` holds a part of it.
    pub(super) fn copy(&self, to: &Path, index: &Path) -> Result<bool, FileError> {
        match self.copy_all(to) {
            Ok(stats) => {
                fs::write(index, self.index.with_stats(&stats)).map_err(FileError::at("write", index))?;
                Ok(true)
            }
            Err(CopyError::Spoilt) => {
                self.is_spoilt.store(true, Relaxed);
                Ok(false)
            }
            Err(CopyError::File(error)) => Err(error),
        }
    }

    fn copy_all(&self, to: &Path) -> Result<Vec<EntryStat>, CopyError> {
        let count = self.index.len();
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let threads = if count < MANY { 1 } else { cpus.min(MAX_THREADS) };
        self.make_directories(to)?;
        let share = count.div_ceil(threads).max(1);
        let ranges: Vec<_> = (0..count).step_by(share).map(|from| from..(from + share).min(count)).collect();
        if let [range] = &ranges[..] {
            return self.copy_range(to, range.clone());
        }
        let copied: Vec<Result<Vec<EntryStat>, CopyError>> = std::thread::scope(|scope| {
            let copies: Vec<_> =
                ranges.into_iter().map(|range| scope.spawn(move || self.copy_range(to, range))).collect();
            copies.into_iter().map(|copy| copy.join().expect("a copy does not panic")).collect()
        });
        let mut stats = Vec::with_capacity(count);
        for part in copied {
            stats.extend(part?);
        }
        Ok(stats)
    }

    /// Every directory, before threads need it. Entries are sorted, so a parent comes before its children.
    fn make_directories(&self, to: &Path) -> Result<(), FileError> {
        let top = open_dir(to)?;
        let mut last: &[u8] = b"";
        for n in 0..self.index.len() {
            let path = self.index.path(n);
            let is_submodule = self.index.mode(n) == SUBMODULE;
            let dir = if is_submodule { path } else { parent(path) };
            if dir == last {
                continue;
            }
            let common = last.iter().zip(dir).take_while(|(one, other)| one == other).count();
            let ends = dir.iter().enumerate().filter(|(at, byte)| **byte == b'/' && *at >= common).map(|(at, _)| at);
            for end in ends.chain((!dir.is_empty()).then_some(dir.len())) {
                match mkdirat(&top, &dir[..end], Mode::RWXU | Mode::RWXG | Mode::RWXO) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(errno) => return Err(failed("create", to, &dir[..end], errno)),
                }
            }
            last = dir;
        }
        Ok(())
    }

    fn copy_range(&self, to: &Path, range: std::ops::Range<usize>) -> Result<Vec<EntryStat>, CopyError> {
        let mut stats = Vec::with_capacity(range.len());
        let mut buffer = vec![0; 1 << 16];
        let mut place: Option<(&[u8], OwnedFd, OwnedFd)> = None;
        for n in range {
            let path = self.index.path(n);
            let dir = parent(path);
            let (_, from, into) = match place.take().filter(|(last, ..)| *last == dir) {
                Some(same) => place.insert(same),
                None => {
                    let from = open_dir(&self.tree.join(encode::path(dir))).map_err(|_| CopyError::Spoilt)?;
                    place.insert((dir, from, open_dir(&to.join(encode::path(dir)))?))
                }
            };
            let name = path.get(if dir.is_empty() { 0 } else { dir.len() + 1 }..).unwrap_or_default();
            let stat = match self.index.mode(n) {
                // Git looks into a submodule instead of at its directory.
                SUBMODULE => Ok(self.index.stat(n)),
                LINK => self.copy_link(n, name, from, into),
                mode => self.copy_file(n, name, from, into, mode & 0o777, &mut buffer),
            };
            stats.push(stat.map_err(|error| match error {
                Failure::Spoilt => CopyError::Spoilt,
                Failure::Writing(errno) => CopyError::File(failed("write", to, path, errno)),
            })?);
        }
        Ok(stats)
    }

    fn copy_file(
        &self,
        n: usize,
        name: &[u8],
        from: &OwnedFd,
        into: &OwnedFd,
        mode: u32,
        buffer: &mut [u8],
    ) -> Result<EntryStat, Failure> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let source = fs::File::from(openat(from, name, flags, Mode::empty()).map_err(|_| Failure::Spoilt)?);
        let stat = fstat(&source).map_err(|_| Failure::Spoilt)?;
        self.insist(n, &stat, FileType::RegularFile)?;
        // As git makes them: the umask takes away what others may not do.
        let mode = Mode::from_raw_mode(if mode & 0o100 == 0 { 0o666 } else { 0o777 });
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let target = openat(into, name, flags, mode).map_err(Failure::Writing)?;
        let target = self.copy_bytes(&source, target, stat.st_size, buffer)?;
        // Again, for a write that came in between.
        self.insist(n, &fstat(&source).map_err(|_| Failure::Spoilt)?, FileType::RegularFile)?;
        futimens(&target, &self.times()).map_err(Failure::Writing)?;
        Ok(EntryStat::of(&fstat(&target).map_err(Failure::Writing)?))
    }

    fn copy_bytes(
        &self,
        source: &fs::File,
        target: OwnedFd,
        size: i64,
        buffer: &mut [u8],
    ) -> Result<fs::File, Failure> {
        if size > 0 && self.shares_blocks.load(Relaxed) {
            match ioctl_ficlone(&target, source) {
                Ok(()) => return Ok(target.into()),
                Err(_) => self.shares_blocks.store(false, Relaxed),
            }
        }
        let mut left = size;
        if size >= LARGE {
            while left > 0 {
                let chunk = usize::try_from(left).unwrap_or(usize::MAX);
                match copy_file_range(source, None, &target, None, chunk) {
                    Ok(copied @ 1..) => left -= i64::try_from(copied).unwrap_or(left),
                    // Not every file system can; the positions of both are where it stopped.
                    Ok(0) | Err(_) => break,
                }
            }
        }
        let (mut source, mut target) = (source, fs::File::from(target));
        while left > 0 {
            let read = source.read(buffer).map_err(|_| Failure::Spoilt)?;
            if read == 0 {
                return Err(Failure::Spoilt);
            }
            target.write_all(&buffer[..read]).map_err(|error| Failure::Writing(errno_of(&error)))?;
            left -= i64::try_from(read).unwrap_or(left);
        }
        Ok(target)
    }

    fn copy_link(&self, n: usize, name: &[u8], from: &OwnedFd, into: &OwnedFd) -> Result<EntryStat, Failure> {
        let look = |dir: &OwnedFd| statat(dir, name, AtFlags::SYMLINK_NOFOLLOW);
        self.insist(n, &look(from).map_err(|_| Failure::Spoilt)?, FileType::Symlink)?;
        let text = readlinkat(from, name, Vec::new()).map_err(|_| Failure::Spoilt)?;
        symlinkat(&text, into, name).map_err(Failure::Writing)?;
        utimensat(into, name, &self.times(), AtFlags::SYMLINK_NOFOLLOW).map_err(Failure::Writing)?;
        Ok(EntryStat::of(&look(into).map_err(Failure::Writing)?))
    }

    /// The file is the one that git wrote.
    fn insist(&self, n: usize, stat: &Stat, kind: FileType) -> Result<(), Failure> {
        let is_same = FileType::from_raw_mode(stat.st_mode) == kind && EntryStat::of(stat) == self.index.stat(n);
        if is_same { Ok(()) } else { Err(Failure::Spoilt) }
    }

    fn times(&self) -> Timestamps {
        let omit = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
        Timestamps { last_access: omit, last_modification: self.time }
    }
}

/// Why one entry was not copied.
enum Failure {
    Spoilt,
    Writing(Errno),
}

fn parent(path: &[u8]) -> &[u8] {
    path.iter().rposition(|byte| *byte == b'/').map_or(b"", |at| &path[..at])
}

fn open_dir(dir: &Path) -> Result<OwnedFd, FileError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    rustix::fs::open(dir, flags, Mode::empty()).map_err(|errno| FileError::at("open", dir)(errno.into()))
}

fn failed(act: &'static str, dir: &Path, path: &[u8], errno: Errno) -> FileError {
    FileError::at(act, &dir.join(encode::path(path)))(errno.into())
}

fn errno_of(error: &std::io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)
}

#[cfg(test)]
mod tests;
