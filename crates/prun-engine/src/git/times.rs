//! Keeps git from changing the times of files. An object that it would write and finds in the user's repository it
//! does not write: it renews the time of the user's file instead. Where that is refused it writes the object where it
//! was told to, so that nothing of the user's changes, not even a time.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use libc::{BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, sock_filter, sock_fprog};

/// The system calls that change a file's times.
#[cfg(target_arch = "x86_64")]
const CALLS: [libc::c_long; 4] = [libc::SYS_utimensat, libc::SYS_utime, libc::SYS_utimes, libc::SYS_futimesat];
#[cfg(not(target_arch = "x86_64"))]
const CALLS: [libc::c_long; 1] = [libc::SYS_utimensat];

/// Load the call's number; for each of the calls, compare; allow; refuse.
static FILTER: [sock_filter; CALLS.len() + 3] = filter();

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "numbers and codes of the kernel's, all small"
)]
const fn filter() -> [sock_filter; CALLS.len() + 3] {
    const fn step(code: u32, k: u32, jt: u8) -> sock_filter {
        sock_filter { code: code as u16, jt, jf: 0, k }
    }
    // The number stands first in what the filter is given.
    let mut steps = [step(BPF_LD | BPF_W | BPF_ABS, 0, 0); CALLS.len() + 3];
    let mut at = 0;
    while at < CALLS.len() {
        steps[at + 1] = step(BPF_JMP | BPF_JEQ | BPF_K, CALLS[at] as u32, (CALLS.len() - at) as u8);
        at += 1;
    }
    steps[CALLS.len() + 1] = step(BPF_RET | BPF_K, libc::SECCOMP_RET_ALLOW, 0);
    steps[CALLS.len() + 2] = step(BPF_RET | BPF_K, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32, 0);
    steps
}

/// Has `command` refuse to itself every change of a time, where the system can.
#[expect(unsafe_code, reason = "a filter is put on between fork and exec")]
pub(super) fn keep(command: &mut Command) {
    // SAFETY: the closure makes system calls alone, and allocates nothing.
    unsafe {
        command.pre_exec(|| {
            // Without it git does what it always does.
            let _ = put_on();
            Ok(())
        })
    };
}

#[expect(unsafe_code, reason = "a filter has no safe wrapper")]
fn put_on() -> io::Result<()> {
    // Else only root may put one on. Git starts nothing that could need more rights.
    rustix::thread::set_no_new_privs(true)?;
    let program = sock_fprog { len: FILTER.len() as u16, filter: FILTER.as_ptr().cast_mut() };
    // SAFETY: the program and its steps live longer than the call, which copies them and writes nothing.
    let status = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_keeps_times_does_all_else() {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "echo x > new; cp new copy; touch -d @0 new; echo $?"]).current_dir(dir.path());
        keep(&mut command);
        assert_eq!(command.output().unwrap().stdout, b"1\n");
        assert_eq!(std::fs::read(dir.path().join("copy")).unwrap(), b"x\n");
    }
}
