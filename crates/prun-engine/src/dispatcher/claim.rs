//! The claim on a result's path: two dispatches never write one result at the same time.

use std::fs::{File, TryLockError};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::poll;
use rustix::time::Timespec;

use super::DispatchError;
use crate::files::{Durability, FileError, create_private_dir, read_regular, write_atomically};
use crate::home::Home;
use crate::process::is_alive;
use crate::state_dir::{StateDir, read_identity};

/// A claim takes a millisecond. Whoever holds the lock for longer is stopped or stuck, and is not
/// waited for: the check is lost then, the dispatch is not.
const LOCK_BOUND: Duration = Duration::from_secs(2);

/// No pointer is larger.
const POINTER_LIMIT: u64 = 64 * 1024;

/// A result's path that is about to lead to a new state dir. Others wait while this is held.
pub(super) struct Claim {
    pointer: PathBuf,
    _lock: Option<File>,
}

impl Claim {
    /// Claims `result` (canonical).
    ///
    /// # Errors
    /// A dispatch that lives writes it.
    pub(super) fn take(home: &Home, result: &Path) -> Result<Self, DispatchError> {
        let pointer = home.by_result(result);
        let claim = Self { _lock: pointer.parent().and_then(lock), pointer };
        match claim.holder() {
            Some(state_dir) => Err(DispatchError::Taken { result: result.to_owned(), state_dir }),
            None => Ok(claim),
        }
    }

    /// The path of a run's own result, which nobody else can claim.
    pub(super) fn of_run(home: &Home, result: &Path) -> Self {
        let pointer = home.by_result(result);
        // The write below says what is wrong with a directory that cannot be made.
        let _ = pointer.parent().map(create_private_dir);
        Self { pointer, _lock: None }
    }

    /// Lets the result's path lead to `state_dir`.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn lead_to(self, state_dir: &Path) -> Result<(), FileError> {
        let text = [state_dir.as_os_str().as_bytes(), b"\n"].concat();
        write_atomically(&self.pointer, &text, Durability::Cached)
    }

    /// The state dir of the living dispatch that the path leads to.
    fn holder(&self) -> Option<PathBuf> {
        let mut text = read_regular(&self.pointer, POINTER_LIMIT).ok()?;
        text.pop_if(|last| *last == b'\n');
        let state_dir = PathBuf::from(std::ffi::OsStr::from_bytes(&text));
        let identity = read_identity(&state_dir).ok()?;
        let is_settled = StateDir::at(&state_dir).facts().exists();
        (!is_settled && is_alive(&identity.dispatcher)).then_some(state_dir)
    }
}

fn lock(dir: &Path) -> Option<File> {
    create_private_dir(dir).ok()?;
    let file = File::open(dir).ok()?;
    let deadline = Instant::now() + LOCK_BOUND;
    loop {
        match file.try_lock() {
            Ok(()) => return Some(file),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                let pause = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
                let _ = poll(&mut [], Some(&pause));
            }
            Err(_) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::own_identity;
    use crate::state_dir::{IDENTITY_VERSION, Identity};

    /// C63.
    #[test]
    fn a_result_is_free_when_nobody_writes_it_any_more() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path().join("home"));
        let state = StateDir::at(dir.path());
        let take = |name: &str| Claim::take(&home, Path::new(name));
        take("/r").unwrap().lead_to(state.root()).unwrap();
        assert!(take("/r").is_ok(), "no identity, no dispatch");
        let mut identity = Identity {
            version: IDENTITY_VERSION,
            dispatcher: own_identity(),
            worker: None,
            containment: Vec::new(),
            cgroup: None,
            read_only: Vec::new(),
            token: String::new(),
        };
        state.write_identity(&identity).unwrap();
        assert!(matches!(take("/r"), Err(DispatchError::Taken { .. })));
        assert!(take("/other").is_ok());
        std::fs::write(state.facts(), "{}").unwrap();
        assert!(take("/r").is_ok(), "settled");
        std::fs::remove_file(state.facts()).unwrap();
        identity.dispatcher.start_ticks += 1;
        state.write_identity(&identity).unwrap();
        assert!(take("/r").is_ok(), "its dispatcher is gone");
    }
}
