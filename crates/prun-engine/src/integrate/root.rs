//! A directory that is worked in by descriptors: no path below it ever leads through a symbolic link.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::path::RepoPath;
use crate::files::FileError;

/// An open top level.
#[derive(Debug)]
pub struct Root {
    fd: OwnedFd,
    path: PathBuf,
}

/// What stands at a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Seen {
    /// Nothing.
    Absent,
    /// A regular file.
    File {
        /// SHA-256 of its bytes.
        sha256: String,
        /// Its permission bits.
        mode: u32,
    },
    /// A symbolic link.
    Link {
        /// Where it points, as bytes.
        target: Vec<u8>,
    },
    /// A directory.
    Dir,
    /// A socket, a FIFO, a device.
    Special,
}

impl Seen {
    /// Whether git would see a file or a link here.
    #[must_use]
    pub fn is_content(&self) -> bool {
        matches!(self, Self::File { .. } | Self::Link { .. })
    }
}

/// A name and the open directory that holds it.
pub(super) struct Place {
    pub(super) dir: OwnedFd,
    pub(super) name: OsString,
}

const DIR: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

impl Root {
    /// Opens a top level.
    ///
    /// # Errors
    /// It is no directory or cannot be read.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(|e| FileError::at("open", path)(e.into()))?;
        Ok(Self { fd, path: path.to_owned() })
    }

    /// Its path, for messages.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directory that holds `path`, walked one component at a time without following a link.
    ///
    /// # Errors
    /// `NOT_FOUND` where a directory is missing; `NOT_A_DIRECTORY` where a file or a link stands in its place.
    pub(super) fn place(&self, path: &RepoPath) -> io::Result<Place> {
        self.walk(path, |_, _, _| Err(io::ErrorKind::NotFound.into()))
    }

    /// As [`Root::place`], and makes the directories that are missing, with the modes that `mode_of` tells.
    pub(super) fn place_made(&self, path: &RepoPath, mode_of: impl Fn(&RepoPath) -> u32) -> io::Result<Place> {
        let ancestors: Vec<RepoPath> = path.ancestors().collect();
        self.walk(path, |dir, name, depth| {
            let mode = ancestors.get(depth).map_or(0o777, &mode_of);
            match rustix::fs::mkdirat(dir, name, Mode::from_raw_mode(mode)) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
                Err(error) => Err(error.into()),
            }
        })
    }

    fn walk(
        &self,
        path: &RepoPath,
        mut missing: impl FnMut(&OwnedFd, &OsStr, usize) -> io::Result<()>,
    ) -> io::Result<Place> {
        let mut dir = rustix::fs::openat(&self.fd, ".", DIR, Mode::empty())?;
        let mut components: Vec<&[u8]> = path.components().collect();
        let name = components.pop().unwrap_or_default();
        for (depth, component) in components.into_iter().enumerate() {
            let component = OsStr::from_bytes(component);
            if component == ".." || component.is_empty() {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            dir = match rustix::fs::openat(&dir, component, DIR, Mode::empty()) {
                Err(rustix::io::Errno::NOENT) => {
                    missing(&dir, component, depth)?;
                    rustix::fs::openat(&dir, component, DIR, Mode::empty())?
                }
                other => other?,
            };
        }
        Ok(Place { dir, name: OsStr::from_bytes(name).to_owned() })
    }

    /// What stands at `path`. Behind a link or a file nothing stands.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn see(&self, path: &RepoPath) -> Result<Seen, FileError> {
        let seen = match self.place(path) {
            Ok(place) => see_at(&place.dir, &place.name),
            Err(error) if is_nothing_there(&error) => Ok(Seen::Absent),
            Err(error) => Err(error),
        };
        seen.map_err(FileError::at("read", &self.path.join(path.as_path())))
    }

    /// The permission bits of a directory, where one stands there.
    #[must_use]
    pub fn dir_mode(&self, path: &RepoPath) -> Option<u32> {
        let place = self.place(path).ok()?;
        let stat = rustix::fs::statat(&place.dir, &place.name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        (FileType::from_raw_mode(stat.st_mode) == FileType::Directory).then_some(stat.st_mode & 0o7777)
    }

    /// Whether anything at all stands at `path`.
    #[must_use]
    pub fn exists(&self, path: &RepoPath) -> bool {
        let stat = |place: Place| rustix::fs::statat(&place.dir, &place.name, AtFlags::SYMLINK_NOFOLLOW).ok();
        self.place(path).ok().and_then(stat).is_some()
    }

    /// Everything below the directory `path`: files, links and the like, not directories.
    ///
    /// # Errors
    /// A directory cannot be read.
    pub fn files_below(&self, path: &RepoPath) -> Result<Vec<RepoPath>, FileError> {
        let mut found = Vec::new();
        let mut open = vec![path.clone()];
        while let Some(dir) = open.pop() {
            let full = self.path.join(dir.as_path());
            for entry in std::fs::read_dir(&full).map_err(FileError::at("list", &full))? {
                let entry = entry.map_err(FileError::at("list", &full))?;
                let mut name = dir.as_prefix().as_bytes().to_vec();
                name.extend_from_slice(entry.file_name().as_bytes());
                let is_dir = entry.file_type().map_err(FileError::at("list", &full))?.is_dir();
                if is_dir { open.push(RepoPath::new(&name)) } else { found.push(RepoPath::new(&name)) }
            }
        }
        found.sort();
        Ok(found)
    }

    /// Its file system.
    ///
    /// # Errors
    /// It cannot be asked.
    pub fn device(&self) -> io::Result<u64> {
        Ok(rustix::fs::fstat(&self.fd)?.st_dev)
    }
}

fn is_nothing_there(error: &io::Error) -> bool {
    // A link in place of a directory is `ELOOP` with `O_NOFOLLOW`, or `ENOTDIR` with `O_DIRECTORY`.
    let raw = error.raw_os_error();
    error.kind() == io::ErrorKind::NotFound
        || [rustix::io::Errno::LOOP, rustix::io::Errno::NOTDIR].map(|errno| Some(errno.raw_os_error())).contains(&raw)
}

/// What stands at a name in an open directory.
pub(super) fn see_at(dir: &OwnedFd, name: &OsStr) -> io::Result<Seen> {
    let stat = match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(rustix::io::Errno::NOENT) => return Ok(Seen::Absent),
        other => other?,
    };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let file = std::fs::File::from(rustix::fs::openat(dir, name, flags, Mode::empty())?);
            Ok(Seen::File { sha256: hash(file)?, mode: stat.st_mode & 0o7777 })
        }
        FileType::Symlink => Ok(Seen::Link { target: rustix::fs::readlinkat(dir, name, Vec::new())?.into_bytes() }),
        FileType::Directory => Ok(Seen::Dir),
        _ => Ok(Seen::Special),
    }
}

fn hash(mut file: std::fs::File) -> io::Result<String> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            count => hasher.update(&buffer[..count]),
        }
    }
    Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Moves a name; with `NOREPLACE` only where nothing stands, with `EXCHANGE` both change places.
pub(super) fn rename(from: &Place, to: &Place, flags: RenameFlags) -> io::Result<()> {
    Ok(rustix::fs::renameat_with(&from.dir, &from.name, &to.dir, &to.name, flags)?)
}

/// The bytes of a link's target as a path.
pub(super) fn link_target(bytes: &[u8]) -> OsString {
    OsString::from_vec(bytes.to_vec())
}
