//! Containment on Linux: subreaper and token. A control group is a rung above these.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use prun_core::event::ProcessIdentity;
use prun_core::outcome::{Exit, SweepFacts};
use rustix::event::poll;
use rustix::process::{Signal, getpid, set_child_subreaper};
use rustix::time::Timespec;

use super::{Collected, Reaped, SWEEP_BOUND, TOKEN_VARIABLE};
use crate::process::{ProcessStat, descendants, is_alive, own_identity, signal_process, stat, with_environment_entry};
use crate::state_dir::Identity;

/// Between two looks at processes that were killed and have not gone yet.
const PAUSE: Duration = Duration::from_millis(2);

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

/// Ends everything that descends from this process, a subreaper. `collect` takes the ended children
/// (it repeats [`reap_one`]) and tells whether any child is left.
///
/// The tree is stopped first and looked over again until nothing new turns up, so that it cannot fork
/// away between the look and the kill.
pub fn sweep(is_subreaper: bool, collect: &mut dyn FnMut() -> bool) -> SweepFacts {
    let own = std::process::id();
    let mut facts =
        SweepFacts { containment: containment(is_subreaper), leftovers: 0, proven: false, survivors: Vec::new() };
    if !collect() {
        return SweepFacts { proven: is_subreaper, ..facts };
    }
    let mut hunt = Hunt::new(SWEEP_BOUND);
    while collect() {
        hunt.freeze_and_kill(&mut || descendants(own));
        if hunt.is_over() {
            facts.survivors = descendants(own).iter().filter(|stat| !stat.is_dead()).map(|stat| stat.pid).collect();
            break;
        }
        // A killed process needs a moment to go; its end is collected in the next turn.
        pause(if collect() { PAUSE } else { Duration::ZERO });
    }
    facts.leftovers = hunt.count();
    facts.proven = is_subreaper && facts.survivors.is_empty();
    facts
}

/// Ends what is left of an attempt whose dispatcher is gone: the worker that it recorded, what descends
/// from it, and every process that carries its token, with what descends from those.
#[must_use]
pub fn reap_by_token(identity: &Identity) -> SweepFacts {
    reap_marked(&identity.token, identity.worker.as_ref())
}

/// Ends `leader`, every process that carries `token`, and what descends from any of them.
pub fn reap_marked(token: &str, leader: Option<&ProcessIdentity>) -> SweepFacts {
    let entry = format!("{TOKEN_VARIABLE}={token}");
    let own = own_identity();
    let mut hunt = Hunt::new(SWEEP_BOUND);
    let mut find = || {
        let mut found: Vec<ProcessStat> = with_environment_entry(entry.as_bytes());
        let leader = leader.filter(|leader| is_alive(leader));
        found.extend(leader.and_then(|leader| stat(leader.pid)));
        let below: Vec<ProcessStat> = found.iter().flat_map(|root| descendants(root.pid)).collect();
        found.extend(below);
        found.retain(|stat| !stat.is_dead() && stat.pid != own.pid);
        found
    };
    loop {
        hunt.freeze_and_kill(&mut find);
        let left = hunt.living();
        if left.is_empty() && find().is_empty() {
            break;
        }
        if hunt.is_over() {
            break;
        }
        pause(PAUSE);
    }
    SweepFacts {
        containment: vec!["token".to_owned()],
        leftovers: hunt.count(),
        proven: false,
        survivors: hunt.living().iter().map(|process| process.pid).collect(),
    }
}

/// A bounded hunt for the processes of a tree.
struct Hunt {
    deadline: Instant,
    seen: BTreeMap<(u32, u64), Prey>,
}

struct Prey {
    process: ProcessIdentity,
    lived: bool,
}

impl Hunt {
    fn new(bound: Duration) -> Self {
        Self { deadline: Instant::now() + bound, seen: BTreeMap::new() }
    }

    fn is_over(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// Processes that were seen alive.
    fn count(&self) -> u32 {
        u32::try_from(self.seen.values().filter(|prey| prey.lived).count()).unwrap_or(u32::MAX)
    }

    fn living(&self) -> Vec<&ProcessIdentity> {
        self.seen.values().map(|prey| &prey.process).filter(|process| is_alive(process)).collect()
    }

    /// Stops what `find` finds until it finds nothing new, then kills all of it.
    fn freeze_and_kill(&mut self, find: &mut dyn FnMut() -> Vec<ProcessStat>) {
        loop {
            let new: Vec<ProcessStat> =
                find().into_iter().filter(|stat| !self.seen.contains_key(&(stat.pid, stat.start_ticks))).collect();
            if new.is_empty() || self.is_over() {
                break;
            }
            for stat in new {
                let prey = Prey { process: stat.identity(), lived: !stat.is_dead() };
                signal(&prey.process, Signal::STOP);
                self.seen.insert((stat.pid, stat.start_ticks), prey);
            }
        }
        for prey in self.seen.values() {
            signal(&prey.process, Signal::KILL);
        }
    }
}

/// A signal that is refused shows in the survivors.
fn signal(process: &ProcessIdentity, signal: Signal) {
    let _ = signal_process(process, signal);
}

fn containment(is_subreaper: bool) -> Vec<String> {
    let names = is_subreaper.then_some("subreaper").into_iter().chain(["token"]);
    names.map(str::to_owned).collect()
}

/// Waits; a signal ends the wait early.
fn pause(time: Duration) {
    if let Ok(timeout) = Timespec::try_from(time) {
        let _ = poll(&mut [], Some(&timeout));
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

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn what_carries_the_token_is_ended_although_its_parent_is_gone() {
        let token = crate::state_dir::random_hex::<16>().unwrap();
        // The leader starts a child in a session of its own and leaves; the child says its number.
        let mut leader = Command::new("/bin/sh")
            .args(["-c", "setsid sh -c 'echo $$; exec sleep 600 >/dev/null' & exit 0"])
            .env(TOKEN_VARIABLE, &token)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        leader.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        leader.wait().unwrap();
        let child = crate::process::identity(said.trim().parse().unwrap()).unwrap();
        let identity = Identity {
            version: crate::state_dir::IDENTITY_VERSION,
            dispatcher: own_identity(),
            worker: None,
            containment: Vec::new(),
            cgroup: None,
            token,
        };
        let facts = reap_by_token(&identity);
        assert_eq!((facts.leftovers, facts.proven, facts.survivors), (1, false, vec![]));
        assert!(!is_alive(&child));
    }
}
