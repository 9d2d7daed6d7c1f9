//! Locks that stand in prun's way.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

/// Holds a write lock on one byte of a file until the file is dropped.
///
/// # Errors
/// The file cannot be opened, or somebody else holds the byte.
#[expect(unsafe_code, reason = "a lock on a part of a file has no safe wrapper")]
pub fn hold_byte(path: &Path, offset: i64) -> io::Result<File> {
    let file = File::options().read(true).write(true).open(path)?;
    // SAFETY: all-zero bytes are a valid `flock`: no process, as a lock of an open file demands.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = offset;
    lock.l_len = 1;
    // SAFETY: the descriptor is open, and the pointer is to a live variable of the right type.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(file),
    }
}
