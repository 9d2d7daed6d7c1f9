//! A child that is born in a control group.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, WaitOptions, waitpid};

use crate::contain::Group;

/// The flag (`linux/sched.h`).
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// What the child says first.
const BORN: u8 = b'b';

/// Starts `command` as a child that is in `group` from its first moment (`CLONE_INTO_CGROUP`, Linux 5.7); its number.
/// `None` where this system cannot, or not in this group: nothing is left of an attempt to then.
///
/// Some kernels (6.18 among them) kill at its birth what is born into a group that was killed as a whole before.
///
/// This process must have one thread, as a dispatcher has: the child goes on in a copy of it until it becomes the
/// program.
pub(super) fn spawn_into(command: &mut Command, group: &Group) -> Option<io::Result<u32>> {
    let dir = File::open(group.path()).ok()?;
    let (read, write) = pipe_with(PipeFlags::CLOEXEC).ok()?;
    let Some(child) = fork_into(&dir)? else {
        let mut write = File::from(write);
        // The dispatcher may be gone; then the program is not started.
        let _ = write.write_all(&[BORN]);
        // It returns only where it failed.
        let error = command.exec();
        let _ = write.write_all(&error.raw_os_error().unwrap_or(libc::EPIPE).to_ne_bytes());
        leave();
    };
    drop(write);
    let mut said = Vec::new();
    // The pipe ends once the child has become the program, or is dead.
    let _ = File::from(read).read_to_end(&mut said);
    match said.split_first() {
        Some((_, [])) => Some(Ok(child)),
        Some((_, error)) => {
            collect(child);
            let number = error.try_into().map_or(libc::EPIPE, i32::from_ne_bytes);
            Some(Err(io::Error::from_raw_os_error(number)))
        }
        None => {
            collect(child);
            None
        }
    }
}

/// Collects a child that has nothing more to do than to end.
fn collect(child: u32) {
    if let Some(pid) = i32::try_from(child).ok().and_then(Pid::from_raw) {
        let _ = waitpid(Some(pid), WaitOptions::empty());
    }
}

/// The child's number; `Some(None)` in the child.
#[expect(unsafe_code, reason = "clone3 has no safe wrapper")]
fn fork_into(group: &File) -> Option<Option<u32>> {
    let fd = u64::try_from(group.as_raw_fd()).ok()?;
    // SAFETY: all-zero bytes are a valid `clone_args`.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = CLONE_INTO_CGROUP;
    args.exit_signal = libc::SIGCHLD as u64;
    args.cgroup = fd;
    // SAFETY: `args` is a live variable of the size that is told. Without CLONE_VM this is a fork: the child has a
    // copy of this process's memory and of its only thread, so that no lock can be held by another.
    let child = unsafe { libc::syscall(libc::SYS_clone3, &raw mut args, size_of::<libc::clone_args>()) };
    match child {
        0 => Some(None),
        child => u32::try_from(child).ok().map(Some),
    }
}

/// Ends the child without running anything of its parent's.
#[expect(unsafe_code, reason = "there is no safe _exit")]
fn leave() -> ! {
    // SAFETY: it runs no code of this process.
    unsafe { libc::_exit(127) }
}
