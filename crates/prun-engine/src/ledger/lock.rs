//! `supervisor.lock`: its holder is the run's one writer.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;

use prun_core::event::ProcessIdentity;
use rustix::fs::{FlockOperation, flock};

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
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self { file })),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(FileError::at("lock", &path)(error.into())),
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

    /// Who holds the lock of `run`, without taking it for longer than the look.
    ///
    /// # Errors
    /// The lock file cannot be opened or locked.
    pub fn holder(run: &RunDir) -> Result<LockHolder, FileError> {
        if Self::try_take(run)?.is_some() {
            return Ok(LockHolder::Nobody);
        }
        let path = run.supervisor_lock();
        let mut text = String::new();
        let read = File::open(&path).and_then(|mut file| file.read_to_string(&mut text));
        Ok(LockHolder::Somebody(read.ok().and_then(|_| serde_json::from_str(&text).ok())))
    }
}
