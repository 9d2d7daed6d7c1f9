//! Files that another process reads are written whole or not at all.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// How the temporary file of a write that is under way is named; after a crash it may stay behind.
pub const TEMPORARY_PREFIX: &str = ".prun-";

/// Whether a write must survive a power cut. Off for tests and benchmarks by `PRUN_DURABLE=off`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Data and directory entry are on the disk before the call returns.
    Synced,
    /// The kernel has them.
    Cached,
}

impl Durability {
    /// What the environment asks for.
    #[must_use]
    pub fn from_env() -> Self {
        if std::env::var_os("PRUN_DURABLE").is_some_and(|value| value.eq_ignore_ascii_case("off")) {
            Self::Cached
        } else {
            Self::Synced
        }
    }
}

/// A file operation that failed: the act and the path come first.
#[derive(Debug, thiserror::Error)]
#[error("cannot {act} {}: {source}", path.display())]
pub struct FileError {
    /// The act, as a verb phrase.
    pub act: &'static str,
    /// The path.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

impl FileError {
    /// For `map_err`: names the act and the path.
    pub fn at(act: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self { act, path, source }
    }
}

/// Writes `bytes` to `path` by way of a temporary file beside it and a rename.
///
/// # Errors
/// Any step failed; the old content of `path` stands then, and the temporary file is gone.
pub fn write_atomically(path: &Path, bytes: &[u8], durability: Durability) -> Result<(), FileError> {
    write_atomically_with_mode(path, bytes, durability, 0o600)
}

/// The same for a file that others may read: `mode` is cut by the umask.
///
/// # Errors
/// As [`write_atomically`].
pub fn write_atomically_with_mode(
    path: &Path,
    bytes: &[u8],
    durability: Durability,
    mode: u32,
) -> Result<(), FileError> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let create = |beside: &Path| OpenOptions::new().write(true).create_new(true).mode(mode).open(beside);
    let mut temp =
        tempfile::Builder::new().prefix(TEMPORARY_PREFIX).make_in(dir, create).map_err(FileError::at("write", path))?;
    temp.write_all(bytes).map_err(FileError::at("write", path))?;
    if durability == Durability::Synced {
        temp.as_file().sync_data().map_err(FileError::at("sync", path))?;
    }
    temp.persist(path).map_err(|error| FileError::at("replace", path)(error.error))?;
    if durability == Durability::Synced {
        sync_dir(dir)?;
    }
    Ok(())
}

/// Makes the entries of `dir` durable.
///
/// # Errors
/// The directory cannot be opened or synced.
pub fn sync_dir(dir: &Path) -> Result<(), FileError> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(FileError::at("sync", dir))
}

/// Makes the content of regular files durable, several at a time: a file system with a journal commits together
/// what waits together.
///
/// # Errors
/// One of them cannot be opened or synced.
pub fn sync_files(paths: &[PathBuf]) -> Result<(), FileError> {
    /// Threads that only wait for the disk.
    const AT_ONCE: usize = 16;
    let sync = |path: &PathBuf| File::open(path).and_then(|file| file.sync_all()).map_err(FileError::at("sync", path));
    let share = paths.len().div_ceil(AT_ONCE).max(1);
    std::thread::scope(|scope| {
        let start = |chunk| scope.spawn(move || <[PathBuf]>::iter(chunk).try_for_each(sync));
        let waiting: Vec<_> = paths.chunks(share).map(start).collect();
        waiting.into_iter().try_for_each(|one| one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// Creates `dir` and its parents with mode 0700. One that stands is left as it is.
///
/// # Errors
/// It cannot be made.
pub fn create_private_dir(dir: &Path) -> Result<(), FileError> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(FileError::at("create", dir))
}

/// Reads at most `limit` bytes of a regular file; never blocks on a FIFO or a device.
///
/// # Errors
/// It is no regular file, larger than `limit`, or cannot be read.
pub fn read_regular(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let nonblock = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0);
    let file = OpenOptions::new().read(true).custom_flags(nonblock).open(path)?;
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(meta.len().min(limit)).unwrap_or(0));
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("larger than {limit} bytes")));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_replaces_the_file_and_leaves_nothing_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        write_atomically(&path, b"one", Durability::Cached).unwrap();
        write_atomically(&path, b"two", Durability::Synced).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_directory_or_a_large_file_is_no_text() {
        let dir = tempfile::tempdir().unwrap();
        assert!(read_regular(dir.path(), 10).is_err());
        std::fs::write(dir.path().join("big"), b"0123456789x").unwrap();
        assert!(read_regular(&dir.path().join("big"), 10).is_err());
        assert_eq!(read_regular(&dir.path().join("big"), 11).unwrap().len(), 11);
    }

    #[test]
    fn many_files_are_synced_and_the_one_that_is_gone_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let paths: Vec<PathBuf> = (0..40).map(|at| dir.path().join(format!("{at}"))).collect();
        paths.iter().for_each(|path| std::fs::write(path, "x").unwrap());
        sync_files(&[]).unwrap();
        sync_files(&paths).unwrap();
        std::fs::remove_file(&paths[33]).unwrap();
        assert_eq!(sync_files(&paths).unwrap_err().path, paths[33]);
    }
}
