//! `supervisor.lock`: its holder is the run's one writer.
//!
//! It is a lock of an open file description: unlike one of `flock` it can be asked about without being
//! taken, so that whoever only looks never keeps a supervisor from starting.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use prun_core::event::ProcessIdentity;

use crate::files::FileError;
use crate::home::RunDir;

/// The held lock of a run. Dropping it lets the next one write.
#[derive(Debug)]
pub struct RunLock {
    file: File,
}

/// Who holds a run's lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockHolder {
    /// Nobody.
    Nobody,
    /// Somebody; who, where it could be read.
    Somebody(Option<ProcessIdentity>),
}

impl RunLock {
    /// Takes the lock, or gives `None` where somebody holds it.
    ///
    /// # Errors
    /// The lock file cannot be made or locked.
    pub fn try_take(run: &RunDir) -> Result<Option<Self>, FileError> {
        let path = run.supervisor_lock();
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(&path).map_err(FileError::at("open", &path))?;
        match lock_command(&file, libc::F_OFD_SETLK) {
            Ok(_) => Ok(Some(Self { file })),
            // Both are allowed by POSIX for a lock that another one holds.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(None),
            Err(error) => Err(FileError::at("lock", &path)(error)),
        }
    }

    /// Writes down who holds it, for people; the lock itself is what counts.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn sign(&mut self, process: &ProcessIdentity) -> std::io::Result<()> {
        let text = serde_json::to_vec(process)?;
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.file.write_all(&text)
    }

    /// Who holds the lock of `run`. It is not taken, not even for a moment.
    ///
    /// # Errors
    /// The lock file cannot be opened or asked about.
    pub fn holder(run: &RunDir) -> Result<LockHolder, FileError> {
        let path = run.supervisor_lock();
        let mut file = match File::open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(LockHolder::Nobody),
            opened => opened.map_err(FileError::at("open", &path))?,
        };
        let found = lock_command(&file, libc::F_OFD_GETLK).map_err(FileError::at("look at the lock", &path))?;
        if i32::from(found.l_type) == libc::F_UNLCK {
            return Ok(LockHolder::Nobody);
        }
        let mut text = String::new();
        let read = file.read_to_string(&mut text);
        Ok(LockHolder::Somebody(read.ok().and_then(|_| serde_json::from_str(&text).ok())))
    }
}

/// Takes a write lock on the whole of `file`, or asks what stands in its way.
#[expect(unsafe_code, reason = "locks of open file descriptions have no safe wrapper")]
fn lock_command(file: &File, command: libc::c_int) -> io::Result<libc::flock> {
    // SAFETY: all-zero bytes are a valid `flock`: the whole file, and no process, as these commands demand.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    // SAFETY: the descriptor is open, and the pointer is to a live variable of the right type.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(lock),
    }
}
