//! The system calls of containment on Linux: subreaper, descriptors, collecting children.

use std::fs::File;
use std::os::unix::fs::FileExt;

use prun_core::outcome::Exit;
use rustix::process::{Pid, Signal, getpid, kill_process, set_child_subreaper};

use super::{Collected, Reaped};

/// The kernel's list of this process's own children, held open: one call reads it afresh. The children of other
/// threads are not in it; a dispatcher has none.
#[derive(Debug)]
pub(super) struct Children(File);

impl Children {
    /// Opens the list. `None` where the kernel keeps none.
    pub(super) fn open() -> Option<Self> {
        let own = std::process::id();
        File::open(format!("/proc/self/task/{own}/children")).ok().map(Self)
    }

    /// The children as of now, the dead ones that nobody has collected among them.
    pub(super) fn list(&self) -> Vec<u32> {
        let mut text = [0; 4096];
        // Of a longer list the beginning will do: what is in it goes, and the rest comes to the front.
        let count = self.0.read_at(&mut text, 0).unwrap_or(0);
        let whole = if count == text.len() { text.iter().rposition(|byte| *byte == b' ').unwrap_or(0) } else { count };
        let words = std::str::from_utf8(&text[..whole]).unwrap_or_default().split_ascii_whitespace();
        words.filter_map(|pid| pid.parse().ok()).collect()
    }

    /// Kills all of them at once, and returns who they are. A child that only this process can collect keeps its
    /// number until then, so that no other process can be hit: what identifies a process elsewhere would take
    /// longer than some of these live.
    pub(super) fn kill(&self) -> Vec<u32> {
        let children = self.list();
        for pid in children.iter().filter_map(|pid| Pid::from_raw(i32::try_from(*pid).ok()?)) {
            // One that has ended meanwhile needs none.
            let _ = kill_process(pid, Signal::KILL);
        }
        children
    }
}

/// Makes every orphan that descends from this process its child. `false` where the system cannot.
pub fn become_subreaper() -> bool {
    set_child_subreaper(Some(getpid())).is_ok()
}

/// Keeps every descriptor but 0, 1 and 2 from programs that are started from now on.
#[expect(unsafe_code, reason = "close_range has no safe wrapper; it only sets a flag here")]
pub fn keep_descriptors_private() {
    const FIRST: libc::c_uint = 3;
    // SAFETY: with CLOSE_RANGE_CLOEXEC no descriptor is closed; an old kernel answers ENOSYS or EINVAL.
    let status = unsafe { libc::syscall(libc::SYS_close_range, FIRST, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if status == 0 {
        return;
    }
    let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    for fd in open.filter_map(|entry| entry.file_name().to_str()?.parse::<libc::c_int>().ok()).filter(|fd| *fd >= 3) {
        // SAFETY: it sets a flag; a descriptor that is gone by now answers EBADF.
        unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
}

/// Collects one child that has ended, of any kind.
#[expect(unsafe_code, reason = "wait4 tells what the child used, and has no safe wrapper")]
pub fn reap_one() -> Collected {
    let mut status: libc::c_int = 0;
    // SAFETY: all-zero bytes are a valid `rusage`.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: both pointers are to live variables of the right type.
        let pid = unsafe { libc::wait4(-1, &raw mut status, libc::WNOHANG | libc::__WALL, &raw mut usage) };
        match u32::try_from(pid) {
            Ok(0) => return Collected::NoneEnded,
            Ok(pid) => return Collected::Child(reaped(pid, status, &usage)),
            Err(_) if std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return Collected::NoChildren,
        }
    }
}

fn reaped(pid: u32, status: libc::c_int, usage: &libc::rusage) -> Reaped {
    let exit = if libc::WIFSIGNALED(status) {
        Exit::Signal { signal: libc::WTERMSIG(status) }
    } else {
        Exit::Code { code: libc::WEXITSTATUS(status) }
    };
    let peak_rss_kib = u64::try_from(usage.ru_maxrss).unwrap_or(0);
    Reaped { pid, exit, peak_rss_kib, cpu_millis: millis(usage.ru_utime).saturating_add(millis(usage.ru_stime)) }
}

fn millis(time: libc::timeval) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1000).saturating_add(u64::try_from(time.tv_usec / 1000).unwrap_or(0))
}
