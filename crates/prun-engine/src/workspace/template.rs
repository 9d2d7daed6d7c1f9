//! The files of one checkout, back to back in one file: clones of the same base are written from it instead of by
//! git, which would unpack every object again.
//!
//! The file has no name any more, so no worker comes upon it; what is left are ways through `/proc`, and against
//! those its status is compared around each use. One that is not as it was is spoilt, and git writes the clones.

use std::fs::{self, File};
use std::io::{BufWriter, Read, Write};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, copy_file_range, fstat, futimens, mkdirat,
    openat, readlinkat, statat, symlinkat, utimensat,
};
use rustix::io::Errno;

use super::index_file::{EntryStat, IndexFile};
use super::{Base, encode};
use crate::files::FileError;

/// Mode of a link in an index.
const LINK: u32 = 0o120_000;
/// Mode of a submodule in an index.
const SUBMODULE: u32 = 0o160_000;
/// Files from which it pays to copy with several threads.
const MANY: usize = 500;
/// Threads that one copy uses at most; several clones are copied at once.
const MAX_THREADS: usize = 4;
/// Bytes from which the kernel copies a file by itself. It shares blocks where the file system can, if they begin
/// at a multiple of the block size.
const LARGE: u64 = 64 << 10;
const BLOCK: u64 = 4096;
/// Bytes of small files that are read at once.
const WINDOW: usize = 1 << 20;
/// Seconds by which the files of a clone are older than its index, so that git trusts the index (its "racy" rule
/// compares whole seconds).
const AGE: i64 = 2;

/// The files of a checkout.
#[derive(Debug)]
pub struct Template {
    base: Base,
    index: IndexFile,
    file: File,
    /// Where the bytes of each entry stand: a file's content, a link's text.
    places: Vec<Range<u64>>,
    seal: EntryStat,
    /// The time that the files of all clones get.
    time: Timespec,
    is_spoilt: AtomicBool,
}

impl Template {
    /// Takes the files of a clone of `base` that git has just written and nobody has worked in. The bytes go into
    /// a file without a name in the directory `place`. `None`: the index is of a version that is not known here.
    ///
    /// # Errors
    /// A file cannot be read or is not as git wrote it; the disk is full.
    pub fn take(base: &Base, clone: &Path, object_format: &str, place: &Path) -> Result<Option<Self>, FileError> {
        let path = clone.join(".git/index");
        let bytes = fs::read(&path).map_err(FileError::at("read", &path))?;
        let Some(index) = IndexFile::parse(bytes, object_format) else { return Ok(None) };
        let file = tempfile::tempfile_in(place).map_err(FileError::at("create a file in", place))?;
        let places = collect(&index, clone, &file)?;
        let seal = EntryStat::of(&fstat(&file).map_err(|errno| FileError::at("read", place)(errno.into()))?);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let time = Timespec { tv_sec: i64::try_from(now).unwrap_or(0) - AGE, tv_nsec: 0 };
        Ok(Some(Self { base: base.clone(), index, file, places, seal, time, is_spoilt: AtomicBool::new(false) }))
    }

    /// Whether `base` can be had from it.
    #[must_use]
    pub fn holds(&self, base: &Base) -> bool {
        self.base == *base && !self.is_spoilt.load(Relaxed)
    }

    /// Writes the files into the empty work tree `to`, and an index that knows them at `index`. `false`: the
    /// template is spoilt, and `to` is not to be trusted.
    pub(super) fn copy(&self, to: &Path, index: &Path) -> Result<bool, FileError> {
        make_directories(&self.index, to)?;
        let stats = self.copy_all(to)?;
        // Afterwards: a change before or during the copy shows just as well.
        if fstat(&self.file).map_or(true, |stat| EntryStat::of(&stat) != self.seal) {
            self.is_spoilt.store(true, Relaxed);
            return Ok(false);
        }
        fs::write(index, self.index.with_stats(&stats)).map_err(FileError::at("write", index))?;
        Ok(true)
    }

    fn copy_all(&self, to: &Path) -> Result<Vec<EntryStat>, FileError> {
        let count = self.index.len();
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let threads = if count < MANY { 1 } else { cpus.min(MAX_THREADS) };
        let share = count.div_ceil(threads).max(1);
        let ranges: Vec<_> = (0..count).step_by(share).map(|from| from..(from + share).min(count)).collect();
        if let [range] = &ranges[..] {
            return self.copy_range(to, range.clone());
        }
        let copied: Vec<Result<Vec<EntryStat>, FileError>> = std::thread::scope(|scope| {
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

    fn copy_range(&self, to: &Path, range: Range<usize>) -> Result<Vec<EntryStat>, FileError> {
        let mut stats = Vec::with_capacity(range.len());
        let mut window = Window { file: &self.file, at: 0, bytes: Vec::new() };
        let mut last: Option<(&[u8], OwnedFd)> = None;
        for n in range {
            let path = self.index.path(n);
            let (dir, name) = split(path);
            let (_, into) = match last.take().filter(|(last, _)| *last == dir) {
                Some(same) => last.insert(same),
                None => last.insert((dir, open_dir(&to.join(encode::path(dir)))?)),
            };
            let place = self.places[n].clone();
            let written = match self.index.mode(n) {
                // Git looks into a submodule instead of at its directory.
                SUBMODULE => Ok(self.index.stat(n)),
                LINK => window.get(&place).and_then(|text| self.make_link(text, name, into)),
                mode => self.write_file(&mut window, &place, name, into, mode),
            };
            stats.push(written.map_err(FileError::at("write", &to.join(encode::path(path))))?);
        }
        Ok(stats)
    }

    fn write_file(
        &self,
        window: &mut Window<'_>,
        place: &Range<u64>,
        name: &[u8],
        into: &OwnedFd,
        mode: u32,
    ) -> std::io::Result<EntryStat> {
        // As git makes them: the umask takes away what others may not do.
        let mode = Mode::from_raw_mode(if mode & 0o100 == 0 { 0o666 } else { 0o777 });
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut target = File::from(openat(into, name, flags, mode)?);
        if place.end - place.start < LARGE {
            target.write_all(window.get(place)?)?;
        } else {
            self.copy_large(place, &mut target)?;
        }
        futimens(&target, &self.times())?;
        Ok(EntryStat::of(&fstat(&target)?))
    }

    fn copy_large(&self, place: &Range<u64>, target: &mut File) -> std::io::Result<()> {
        let mut at = place.start;
        while at < place.end {
            let left = usize::try_from(place.end - at).unwrap_or(usize::MAX);
            match copy_file_range(&self.file, Some(&mut at), &*target, None, left) {
                Ok(1..) => {}
                // Not every file system can.
                Ok(0) | Err(_) => break,
            }
        }
        let mut window = Window { file: &self.file, at: 0, bytes: Vec::new() };
        while at < place.end {
            let end = place.end.min(at + WINDOW as u64);
            target.write_all(window.get(&(at..end))?)?;
            at = end;
        }
        Ok(())
    }

    fn make_link(&self, text: &[u8], name: &[u8], into: &OwnedFd) -> std::io::Result<EntryStat> {
        symlinkat(text, into, name)?;
        utimensat(into, name, &self.times(), AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(EntryStat::of(&statat(into, name, AtFlags::SYMLINK_NOFOLLOW)?))
    }

    fn times(&self) -> Timestamps {
        let omit = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
        Timestamps { last_access: omit, last_modification: self.time }
    }
}

/// A piece of the template's file that was read at once.
struct Window<'a> {
    file: &'a File,
    at: u64,
    bytes: Vec<u8>,
}

impl Window<'_> {
    fn get(&mut self, place: &Range<u64>) -> std::io::Result<&[u8]> {
        let end = self.at + self.bytes.len() as u64;
        if place.start < self.at || place.end > end {
            self.at = place.start;
            let wanted = usize::try_from(place.end - place.start).unwrap_or(usize::MAX);
            self.bytes.resize(wanted.max(WINDOW), 0);
            let mut filled = 0;
            while filled < self.bytes.len() {
                match self.file.read_at(&mut self.bytes[filled..], self.at + filled as u64)? {
                    0 => break,
                    count => filled += count,
                }
            }
            self.bytes.truncate(filled);
        }
        let from = usize::try_from(place.start - self.at).unwrap_or(usize::MAX);
        let to = usize::try_from(place.end - self.at).unwrap_or(usize::MAX);
        self.bytes.get(from..to).ok_or_else(|| std::io::ErrorKind::UnexpectedEof.into())
    }
}

/// Writes the bytes of every entry of `index` to `file`, each compared with what git said of it.
fn collect(index: &IndexFile, clone: &Path, file: &File) -> Result<Vec<Range<u64>>, FileError> {
    let mut places = Vec::with_capacity(index.len());
    let mut output = BufWriter::with_capacity(WINDOW, file);
    let mut at: u64 = 0;
    for n in 0..index.len() {
        let path = clone.join(encode::path(index.path(n)));
        let bytes = match index.mode(n) {
            SUBMODULE => Vec::new(),
            LINK => read_link(index, n, &path)?,
            _ => read_file(index, n, &path)?,
        };
        let size = bytes.len() as u64;
        let gap = if size < LARGE { 0 } else { at.next_multiple_of(BLOCK) - at };
        let padding = vec![0; usize::try_from(gap).unwrap_or(0)];
        output.write_all(&padding).and_then(|()| output.write_all(&bytes)).map_err(FileError::at("copy", &path))?;
        places.push(at + gap..at + gap + size);
        at += gap + size;
    }
    output.flush().map_err(FileError::at("copy", clone))?;
    Ok(places)
}

fn read_file(index: &IndexFile, n: usize, path: &Path) -> Result<Vec<u8>, FileError> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let read = || -> std::io::Result<Option<Vec<u8>>> {
        let mut file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
        let stat = fstat(&file)?;
        let mut bytes = Vec::new();
        if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
            file.read_to_end(&mut bytes)?;
        }
        Ok((EntryStat::of(&fstat(&file)?) == index.stat(n)).then_some(bytes))
    };
    insist(read(), path)
}

fn read_link(index: &IndexFile, n: usize, path: &Path) -> Result<Vec<u8>, FileError> {
    let read = || -> std::io::Result<Option<Vec<u8>>> {
        let text = readlinkat(rustix::fs::CWD, path, Vec::new())?;
        let stat = rustix::fs::lstat(path)?;
        Ok((EntryStat::of(&stat) == index.stat(n)).then(|| text.into_bytes()))
    };
    insist(read(), path)
}

fn insist(read: std::io::Result<Option<Vec<u8>>>, path: &Path) -> Result<Vec<u8>, FileError> {
    let changed = || std::io::Error::other("it is not as git wrote it");
    read.and_then(|bytes| bytes.ok_or_else(changed)).map_err(FileError::at("copy", path))
}

/// Every directory, before threads need it. Entries are sorted, so a parent comes before its children.
fn make_directories(index: &IndexFile, to: &Path) -> Result<(), FileError> {
    let top = open_dir(to)?;
    let mut last: &[u8] = b"";
    for n in 0..index.len() {
        let path = index.path(n);
        let dir = if index.mode(n) == SUBMODULE { path } else { split(path).0 };
        if dir == last {
            continue;
        }
        let common = last.iter().zip(dir).take_while(|(one, other)| one == other).count();
        let ends = dir.iter().enumerate().filter(|(at, byte)| **byte == b'/' && *at >= common).map(|(at, _)| at);
        for end in ends.chain((!dir.is_empty()).then_some(dir.len())) {
            match mkdirat(&top, &dir[..end], Mode::RWXU | Mode::RWXG | Mode::RWXO) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(FileError::at("create", &to.join(encode::path(&dir[..end])))(errno.into())),
            }
        }
        last = dir;
    }
    Ok(())
}

/// A path's directory, empty for the top, and its last name.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}

fn open_dir(dir: &Path) -> Result<OwnedFd, FileError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(dir, flags, Mode::empty()).map_err(|errno| FileError::at("open", dir)(errno.into()))
}

#[cfg(test)]
mod tests;
