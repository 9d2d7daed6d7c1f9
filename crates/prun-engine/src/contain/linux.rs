//! The system calls of containment on Linux: subreaper, descriptors, collecting children.

use std::fs::File;
use std::os::unix::fs::FileExt;

use prun_core::outcome::Exit;
use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, kill_process, pidfd_open, pidfd_send_signal, set_child_subreaper,
};

use super::{Collected, Reaped};

/// How deep below this process a strike goes. What flees is forked by what is about to end, and becomes our child
/// only when that is over: it has to be met as a grandchild or deeper.
const STRIKE_DEPTH: usize = 8;

/// The kernel's list of a process's children, held open: one call reads it afresh. The children of other threads than
/// the first are not in it.
#[derive(Debug)]
pub(super) struct Children(File);

impl Children {
    /// Opens the list of this process, which has one thread. `None` where the kernel keeps none.
    pub(super) fn own() -> Option<Self> {
        Self::of(std::process::id())
    }

    fn of(pid: u32) -> Option<Self> {
        File::open(format!("/proc/{pid}/task/{pid}/children")).ok().map(Self)
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

    /// Kills this process's children and what is below them, with as little as possible between the look and the
    /// kill: what forks the next and ends, all the time, lives for a tenth of a millisecond.
    pub(super) fn kill(&self) {
        for child in self.list() {
            // A child that only this process can collect keeps its number until then.
            let Some(number) = number(child) else { continue };
            if let Some(below) = Self::of(child) {
                below.kill_below(STRIKE_DEPTH);
            }
            // One that has ended meanwhile needs none.
            let _ = kill_process(number, Signal::KILL);
        }
    }

    /// Kills the children in this list of another process, deeper ones first.
    fn kill_below(&self, depth: usize) {
        for child in self.list() {
            let Some(pidfd) = number(child).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else { continue };
            // Listed still after it was opened: it is the listed one, and no other that got the number.
            if !self.list().contains(&child) {
                continue;
            }
            // The list that was opened by the number is its own if it holds the number even now.
            let below = Self::of(child).filter(|_| depth > 0 && pidfd_send_signal(&pidfd, Signal::STOP).is_ok());
            if let Some(below) = below {
                below.kill_below(depth - 1);
            }
            let _ = pidfd_send_signal(&pidfd, Signal::KILL);
        }
    }
}

fn number(pid: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(pid).ok()?)
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
