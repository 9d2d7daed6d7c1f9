//! Processes as the kernel lists them: who they are, whether they live, what descends from them.
//!
//! A process is its boot, its number and its start time; a number alone is never signalled, and none
//! is ever found by name.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use prun_core::event::ProcessIdentity;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

/// How long processes that are too brief to be listed are waited for at most.
const AMBUSH: Duration = Duration::from_secs(1);

/// One process, as `/proc/PID/stat` tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessStat {
    /// Its number.
    pub pid: u32,
    /// Its parent.
    pub parent: u32,
    /// The kernel's letter for its state.
    pub state: u8,
    /// Its session.
    pub session: u32,
    /// Its threads.
    pub threads: u32,
    /// CPU time of its own, in clock ticks.
    pub own_ticks: u64,
    /// CPU time of it and of the children that it waited for, in clock ticks.
    pub cpu_ticks: u64,
    /// Its start, in clock ticks since boot.
    pub start_ticks: u64,
}

impl ProcessStat {
    /// Whether it is only an entry that its parent has not collected. A leader whose other threads go
    /// on is listed as a zombie too, but lives.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x') && self.threads <= 1
    }

    /// Its identity.
    #[must_use]
    pub fn identity(&self) -> ProcessIdentity {
        ProcessIdentity { boot_id: boot_id().to_owned(), pid: self.pid, start_ticks: self.start_ticks }
    }
}

/// The id of this boot of the machine; empty where the system does not tell.
#[must_use]
pub fn boot_id() -> &'static str {
    static BOOT_ID: OnceLock<String> = OnceLock::new();
    BOOT_ID.get_or_init(|| {
        let id = read_kernel_file(Path::new("/proc/sys/kernel/random/boot_id")).unwrap_or_default();
        String::from_utf8_lossy(&id).trim().to_owned()
    })
}

/// Reads a file that the kernel makes up as it is read. It tells no size, so that a plain read would feel its way
/// in small steps.
///
/// # Errors
/// It is not there, or may not be read.
pub fn read_kernel_file(path: &Path) -> io::Result<Vec<u8>> {
    const ONE_READ: usize = 4096;
    let mut bytes = Vec::with_capacity(ONE_READ);
    File::open(path)?.take(u64::MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads the text of `/proc/PID/stat`. The program's name, between the first `(` and the *last* `)`, may
/// hold anything.
#[must_use]
pub fn parse_stat(text: &[u8]) -> Option<ProcessStat> {
    let open = text.iter().position(|byte| *byte == b'(')?;
    let close = text.iter().rposition(|byte| *byte == b')')?;
    let pid = std::str::from_utf8(text.get(..open)?).ok()?.trim().parse().ok()?;
    let rest = std::str::from_utf8(text.get(close + 1..)?).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // The state is field 3 of the manual page and the first one after the name.
    let number = |field: usize| fields.get(field - 3).and_then(|text| text.parse::<u64>().ok());
    Some(ProcessStat {
        pid,
        parent: u32::try_from(number(4)?).ok()?,
        state: *fields.first()?.as_bytes().first()?,
        session: u32::try_from(number(6)?).ok()?,
        threads: u32::try_from(number(20)?).unwrap_or(u32::MAX),
        own_ticks: (14..=15).filter_map(number).sum(),
        cpu_ticks: (14..=17).filter_map(number).sum(),
        start_ticks: number(22)?,
    })
}

/// What the kernel says of the process with this number now.
#[must_use]
pub fn stat(pid: u32) -> Option<ProcessStat> {
    parse_stat(&read_kernel_file(Path::new(&format!("/proc/{pid}/stat"))).ok()?)
}

/// The identity of the process that has this number now.
#[must_use]
pub fn identity(pid: u32) -> Option<ProcessIdentity> {
    stat(pid).map(|stat| stat.identity())
}

/// This process. prun never goes on in a fork of itself, so one look is enough.
#[must_use]
pub fn own_identity() -> ProcessIdentity {
    static OWN: OnceLock<ProcessIdentity> = OnceLock::new();
    let look = || {
        let pid = std::process::id();
        identity(pid).unwrap_or_else(|| ProcessIdentity { boot_id: boot_id().to_owned(), pid, start_ticks: 0 })
    };
    OWN.get_or_init(look).clone()
}

/// Whether this very process lives. A zombie does not.
#[must_use]
pub fn is_alive(process: &ProcessIdentity) -> bool {
    process.boot_id == boot_id()
        && stat(process.pid).is_some_and(|stat| stat.start_ticks == process.start_ticks && !stat.is_dead())
}

/// Sends a signal to this very process; `false` where it is gone.
///
/// The pidfd is opened before the identity is checked, so that a number that is reused in between
/// cannot be hit.
///
/// # Errors
/// The kernel refused it.
pub fn signal_process(process: &ProcessIdentity, signal: Signal) -> io::Result<bool> {
    let Some(pid) = i32::try_from(process.pid).ok().and_then(Pid::from_raw) else { return Ok(false) };
    let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => Some(pidfd),
        Err(Errno::SRCH) => return Ok(false),
        // Kernels before 5.3, and sandboxes, have no pidfds: the check right before the signal must do.
        Err(Errno::NOSYS | Errno::PERM) => None,
        Err(error) => return Err(error.into()),
    };
    if process.boot_id != boot_id() || stat(process.pid).is_none_or(|stat| stat.start_ticks != process.start_ticks) {
        return Ok(false);
    }
    let sent = pidfd.map_or_else(|| kill_process(pid, signal), |pidfd| pidfd_send_signal(&pidfd, signal));
    match sent {
        Ok(()) => Ok(true),
        Err(Errno::SRCH) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Every process that descends from `root`, without it, parents before children.
#[must_use]
pub fn descendants(root: u32) -> Vec<ProcessStat> {
    if std::fs::metadata(format!("/proc/{root}/task/{root}/children")).is_err() {
        return descendants_in(root, &all());
    }
    let mut found: Vec<ProcessStat> = Vec::new();
    let mut seen = HashSet::from([root]);
    let mut to_visit = vec![root];
    while let Some(parent) = to_visit.pop() {
        for child in children(parent).into_iter().filter(|child| seen.insert(*child)).collect::<Vec<_>>() {
            to_visit.push(child);
            found.extend(stat(child));
        }
    }
    found
}

/// CPU time in clock ticks of `root` and all that descends from it: of the processes in the session `client`, and
/// of the rest with all that has ended.
#[must_use]
pub fn tree_cpu_ticks(root: u32, client: Option<u32>) -> (u64, u64) {
    let tree = stat(root).into_iter().chain(descendants(root));
    tree.fold((0, 0), |(own, rest), stat| match client {
        Some(session) if stat.session == session => {
            (own + stat.own_ticks, rest + stat.cpu_ticks.saturating_sub(stat.own_ticks))
        }
        _ => (own, rest + stat.cpu_ticks),
    })
}

/// Every process whose environment holds `entry` (`NAME=value`), as far as this user may look.
///
/// A process that forks the next and ends, all the time, lives too briefly to be listed. So where the listing
/// finds none, what was born meanwhile is looked at, until nothing is left to look at or [`AMBUSH`] is over: the
/// first of these that is met alive is returned.
#[must_use]
pub fn with_environment_entry(entry: &[u8]) -> Vec<ProcessStat> {
    let until = Instant::now() + AMBUSH;
    loop {
        let before = newest();
        let found: Vec<ProcessStat> = all().into_iter().filter(|stat| carries(stat, entry)).collect();
        if !found.is_empty() {
            return found;
        }
        match before.map_or(Met::Nobody, |before| ambush(entry, before, until)) {
            Met::One(stat) => return vec![stat],
            Met::Nobody => return Vec::new(),
            Met::TooMany => {}
        }
    }
}

enum Met {
    One(ProcessStat),
    /// Everything that lives was looked at, or time is over.
    Nobody,
    /// More were born than can be looked at; or their numbers started again.
    TooMany,
}

/// Looks at every process that is born after the one with the number `seen`.
fn ambush(entry: &[u8], mut seen: u32, until: Instant) -> Met {
    const MANY: u32 = 256;
    loop {
        // What lives now and was born before a look was alive at that look: once nothing was born since, all
        // of it has been looked at.
        let Some(last) = newest().filter(|last| *last != seen && Instant::now() < until) else { return Met::Nobody };
        if last < seen || last - seen > MANY {
            return Met::TooMany;
        }
        let met = (seen + 1..=last).rev().find_map(|pid| stat(pid).filter(|stat| carries(stat, entry)));
        if let Some(met) = met {
            return Met::One(met);
        }
        seen = last;
    }
}

/// The number that was given out last.
fn newest() -> Option<u32> {
    let text = read_kernel_file(Path::new("/proc/loadavg")).ok()?;
    std::str::from_utf8(&text).ok()?.split_ascii_whitespace().last()?.parse().ok()
}

fn carries(stat: &ProcessStat, entry: &[u8]) -> bool {
    environ(stat).is_some_and(|environ| environ.split(|byte| *byte == 0).any(|found| found == entry))
}

/// The environment of a process. One whose main thread has ended, or is just ending, shows it only at its other
/// threads.
fn environ(stat: &ProcessStat) -> Option<Vec<u8>> {
    let read = |task: u32| read_kernel_file(Path::new(&format!("/proc/{}/task/{task}/environ", stat.pid))).ok();
    let has_content = |environ: &Vec<u8>| !environ.is_empty();
    if stat.is_dead() {
        return None;
    }
    let others = || numbered_entries(&format!("/proc/{}/task", stat.pid)).filter_map(read).find(has_content);
    read(stat.pid).filter(has_content).or_else(|| if stat.threads > 1 { others() } else { None })
}

/// Every process that has the file at `path` open, as far as this user may look.
#[must_use]
pub fn with_open_file(path: &Path) -> Vec<ProcessIdentity> {
    let Ok(wanted) = std::fs::metadata(path) else { return Vec::new() };
    let holds = |stat: &ProcessStat| {
        numbered_entries(&format!("/proc/{}/fd", stat.pid)).any(|fd| {
            // Following the link leads to the open file itself, also where its name is gone.
            std::fs::metadata(format!("/proc/{}/fd/{fd}", stat.pid))
                .is_ok_and(|found| (found.dev(), found.ino()) == (wanted.dev(), wanted.ino()))
        })
    };
    all().into_iter().filter(holds).map(|stat| stat.identity()).collect()
}

/// Every process in whose environment the variable `name` is set, with its value, as far as this user may
/// look.
#[must_use]
pub fn environment_values(name: &[u8]) -> Vec<(ProcessStat, Vec<u8>)> {
    let value = |stat: &ProcessStat| {
        let environ = environ(stat)?;
        let mut entries = environ.split(|byte| *byte == 0);
        entries.find_map(|entry| Some(entry.strip_prefix(name)?.strip_prefix(b"=")?.to_vec()))
    };
    all().into_iter().filter_map(|stat| Some((stat, value(&stat)?))).collect()
}

/// The values of a variable in the environments that this process and its ancestors were started with, nearest
/// first, as far as this user may look. A program in between may have kept it from its children.
#[must_use]
pub fn inherited_values(name: &[u8]) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let mut next = stat(std::process::id());
    // A chain of parents is never this long; numbers that are given again must not lead in a circle.
    for _ in 0..256 {
        let Some(current) = next else { break };
        let environ = environ(&current).unwrap_or_default();
        let mut entries = environ.split(|byte| *byte == 0);
        found.extend(entries.find_map(|entry| Some(entry.strip_prefix(name)?.strip_prefix(b"=")?.to_vec())));
        next = if current.parent > 1 { stat(current.parent) } else { None };
    }
    found
}

/// The processes of `all` that descend from `root`, parents before children.
fn descendants_in(root: u32, all: &[ProcessStat]) -> Vec<ProcessStat> {
    let mut by_parent: HashMap<u32, Vec<&ProcessStat>> = HashMap::new();
    for stat in all {
        by_parent.entry(stat.parent).or_default().push(stat);
    }
    let mut found = Vec::new();
    let mut to_visit = vec![root];
    while let Some(parent) = to_visit.pop() {
        for child in by_parent.remove(&parent).unwrap_or_default() {
            to_visit.push(child.pid);
            found.push(*child);
        }
    }
    found
}

fn children(parent: u32) -> Vec<u32> {
    let mut found = Vec::new();
    for task in numbered_entries(&format!("/proc/{parent}/task")) {
        let path = format!("/proc/{parent}/task/{task}/children");
        let listed = String::from_utf8(read_kernel_file(Path::new(&path)).unwrap_or_default()).unwrap_or_default();
        found.extend(listed.split_ascii_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
    }
    found
}

fn all() -> Vec<ProcessStat> {
    numbered_entries("/proc").filter_map(stat).collect()
}

fn numbered_entries(dir: &str) -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str().and_then(|name| name.parse().ok()))
}

/// Raises the soft limit of open files to the hard one: whoever watches many processes needs a descriptor for
/// each. Where it cannot be raised, polling does the rest.
pub fn raise_descriptor_limit() {
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current = limit.maximum;
    let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, limit);
}

/// How many units a supervisor may have alive at once where it may have no more than so many files open; `None`
/// where there is no limit. Each has its fence, its slot, a descriptor of its dispatcher, and one to spare for its start.
#[must_use]
pub fn units_within(open_files: Option<u64>) -> u32 {
    /// The ledger, the socket and its viewers, logs, and git at work on one workspace.
    const OTHERS: u64 = 24;
    const EACH: u64 = 4;
    let room = open_files.map_or(u64::MAX, |limit| limit.saturating_sub(OTHERS) / EACH);
    u32::try_from(room).unwrap_or(u32::MAX).max(1)
}

/// How many files this process may have open; `None` where there is no limit.
#[must_use]
pub fn descriptor_limit() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn row(pid: u32, parent: u32) -> ProcessStat {
        let state = b'S';
        ProcessStat {
            pid,
            parent,
            state,
            session: 1,
            threads: 1,
            own_ticks: 0,
            cpu_ticks: 0,
            start_ticks: u64::from(pid),
        }
    }

    /// C49.
    #[test]
    fn a_name_with_brackets_and_spaces_does_not_shift_the_fields() {
        let text = b"42 (a) R 1 1 (x) S 7 42 42 0 -1 4194304 1 2 3 4 10 20 30 40 20 0 3 0 999 1 2";
        let parsed = parse_stat(text).unwrap();
        assert_eq!(parsed.pid, 42);
        assert_eq!((parsed.state, parsed.parent, parsed.threads), (b'S', 7, 3));
        assert_eq!((parsed.cpu_ticks, parsed.start_ticks), (100, 999));
        assert_eq!(parse_stat(b"42 (x"), None);
        assert_eq!(parse_stat(b""), None);
    }

    /// C48.
    #[test]
    fn a_zombie_is_dead_unless_its_threads_go_on() {
        let zombie = ProcessStat { state: b'Z', ..row(1, 0) };
        assert!(zombie.is_dead());
        assert!(!ProcessStat { threads: 2, ..zombie }.is_dead());
        assert!(!row(1, 0).is_dead());
    }

    #[test]
    fn descendants_of_a_listing_are_found_at_any_depth() {
        let listed = [row(5, 3), row(2, 1), row(3, 2), row(4, 1), row(9, 8)];
        let found: Vec<u32> = descendants_in(2, &listed).iter().map(|stat| stat.pid).collect();
        assert_eq!(found, [3, 5]);
    }

    /// C30.
    #[test]
    fn few_descriptors_mean_few_units_at_once_and_never_none() {
        assert_eq!([None, Some(0), Some(32), Some(1024)].map(units_within), [u32::MAX, 1, 2, 250]);
    }

    #[test]
    fn a_process_is_known_by_its_start() {
        let mut child = Command::new("/bin/sh")
            .args(["-c", "read line"])
            .env("PRUN_TEST_MARK", "process-rs")
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let known = identity(child.id()).unwrap();
        assert!(is_alive(&known));
        let marks = environment_values(b"PRUN_TEST_MARK");
        assert!(marks.iter().any(|(stat, value)| stat.pid == child.id() && value == b"process-rs"));
        assert!(descendants(std::process::id()).iter().any(|stat| stat.pid == child.id()));
        assert!(descendants_in(std::process::id(), &all()).iter().any(|stat| stat.pid == child.id()));
        let other = ProcessIdentity { start_ticks: known.start_ticks + 1, ..known.clone() };
        assert!(!is_alive(&other));
        assert!(!signal_process(&other, Signal::KILL).unwrap());
        assert!(signal_process(&known, Signal::KILL).unwrap());
        // Nobody has collected it: it is listed, and dead.
        while is_alive(&known) {}
        assert!(stat(child.id()).is_some());
        child.wait().unwrap();
        assert!(!signal_process(&known, Signal::KILL).unwrap());
    }
}
