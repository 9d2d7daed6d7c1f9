//! Slots of an account, shared by all runs of a user: one lock file each.
//!
//! A slot belongs to whoever has its file open and locked: the supervisor for a moment, then the dispatcher, which
//! inherits the descriptor as its stdout. The kernel frees the lock when the last of them is gone, however it died;
//! there is nothing to clean up.

use std::fs::File;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

use crate::files::{FileError, create_private_dir};

/// A slot that is taken as long as this, or a descriptor that was made from it, is open.
#[derive(Debug)]
pub struct Slot(File);

impl Slot {
    /// For the process that is to keep it.
    #[must_use]
    pub fn into_file(self) -> File {
        self.0
    }
}

/// Takes up to `wanted` of an account's `slots`, as many as are free now.
///
/// # Errors
/// The lock files cannot be made.
pub fn take(dir: &Path, account: &str, slots: u32, wanted: u32) -> Result<Vec<Slot>, FileError> {
    create_private_dir(dir)?;
    let mut taken = Vec::new();
    for number in 0..slots {
        if taken.len() >= wanted as usize {
            break;
        }
        let path = dir.join(format!("{account}.{number}"));
        let mut options = File::options();
        // For reading alone: nothing that is written to the dispatcher's stdout can get in here.
        let file = match options.read(true).open(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                options.write(true).create(true).truncate(false).open(&path).and_then(|_| File::open(&path))
            }
            opened => opened,
        };
        let file = file.map_err(FileError::at("open", &path))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => taken.push(Slot(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => {}
            Err(error) => return Err(FileError::at("lock", &path)(error.into())),
        }
    }
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_slot_is_free_again_when_the_last_process_that_has_it_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("slots");
        let mut taken = take(&dir, "codex", 3, 2).unwrap();
        assert_eq!(taken.len(), 2);
        assert_eq!(take(&dir, "codex", 3, 5).unwrap().len(), 1, "one is left");
        assert_eq!(take(&dir, "claude", 1, 5).unwrap().len(), 1, "another account has its own");
        // A dispatcher has it as its stdout.
        let slot = taken.pop().unwrap().into_file();
        let mut holder = Command::new("sleep").arg("600").stdout(Stdio::from(slot)).spawn().unwrap();
        drop(taken);
        assert_eq!(take(&dir, "codex", 3, 5).unwrap().len(), 2);
        holder.kill().unwrap();
        holder.wait().unwrap();
        assert_eq!(take(&dir, "codex", 3, 5).unwrap().len(), 3);
    }
}
