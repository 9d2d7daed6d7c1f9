//! A control group (version 2) of an attempt's own: what is born in it stays in it, and it is ended as one.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FsWord, statfs};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::scope::LEAF;
use crate::process::read_kernel_file;

/// How the name of every group begins; the attempt's token follows.
const NAME_PREFIX: &str = "prun-";

/// What `statfs` says of the version 2 hierarchy (`linux/magic.h`).
const CGROUP2_MAGIC: FsWord = 0x6367_7270;

/// How deep groups inside a group are looked at. A worker may make some (a nested prun, a container).
const DEPTH: usize = 16;

/// A group of one attempt.
#[derive(Debug)]
pub struct Group {
    path: PathBuf,
    /// Removes it when dropped: who made a group removes it.
    is_ours: bool,
}

/// What a group has used since it was made, as far as its controllers are delegated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupUsage {
    /// Peak memory of all its processes together, in KiB; needs the memory controller.
    pub peak_memory_kib: Option<u64>,
    /// CPU time of all its processes, in milliseconds.
    pub cpu_millis: Option<u64>,
    /// Processes in it that the kernel ended for memory; needs the memory controller.
    pub oom_kills: u64,
}

/// Where this process's groups go: inside its own group, and beside it where that is the leaf of a run's scope.
/// Whether a group can be made there shows when it is tried.
#[must_use]
pub fn own_place() -> Option<PathBuf> {
    let own = own_directory()?;
    if own.file_name().is_some_and(|name| name == LEAF) { own.parent().map(Path::to_owned) } else { Some(own) }
}

/// This process's own group, whether the version 2 hierarchy is the only one or stands beside others.
fn own_directory() -> Option<PathBuf> {
    let read = |path: &str| read_kernel_file(Path::new(path)).ok();
    place(&read("/proc/self/mountinfo")?, &read("/proc/self/cgroup")?)
}

impl Group {
    /// The path that the group of the attempt with this token has inside `parent`.
    pub(super) fn path_in(parent: &Path, token: &str) -> PathBuf {
        parent.join(format!("{NAME_PREFIX}{token}"))
    }

    /// Makes it.
    pub(super) fn make(path: PathBuf) -> io::Result<Self> {
        std::fs::create_dir(&path)?;
        Ok(Self { path, is_ours: true })
    }

    /// The group that somebody recorded for the attempt with this token; it may be gone. `None` where the path
    /// cannot be one: it is told to the reader by a file that a worker can write.
    pub(super) fn recorded(path: &Path, token: &str) -> Option<Self> {
        let parent = path.parent()?;
        let is_named = token.len() >= 16 && path == Self::path_in(parent, token);
        let is_control_group = || statfs(parent).is_ok_and(|found| found.f_type == CGROUP2_MAGIC);
        // Links are followed: the directory itself must be the hierarchy's.
        (is_named && path.is_absolute() && is_control_group()).then(|| Self { path: path.to_owned(), is_ours: false })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file by which a process enters it: it writes `0`.
    ///
    /// # Errors
    /// It may not be opened.
    pub fn entrance(&self) -> io::Result<File> {
        OpenOptions::new().write(true).open(self.path.join("cgroup.procs"))
    }

    /// Whether this process, which nobody has collected, is in it.
    #[must_use]
    pub fn holds(&self, pid: u32) -> bool {
        let listed = read_kernel_file(Path::new(&format!("/proc/{pid}/cgroup"))).unwrap_or_default();
        own_group(&listed).is_some_and(|group| Path::new(&*group).file_name() == self.path.file_name())
    }

    /// Whether any process lives in it or in a group inside it. What cannot be told counts as life.
    #[must_use]
    pub fn is_populated(&self) -> bool {
        match read_kernel_file(&self.path.join("cgroup.events")) {
            Ok(text) => value(&String::from_utf8_lossy(&text), "populated") != Some(0),
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        }
    }

    /// The processes that live in it and in the groups inside it.
    #[must_use]
    pub fn processes(&self) -> Vec<u32> {
        let texts: Vec<String> = self.tree().iter().map(|dir| text(&dir.join("cgroup.procs"))).collect();
        // 0 stands for a process of another number space, which cannot be named from here.
        texts.iter().flat_map(|text| text.lines()).filter_map(|line| line.parse().ok()).filter(|pid| *pid > 0).collect()
    }

    /// Kills everything in it. What a fork brings in at the same moment may need another call.
    pub fn kill(&self) {
        if std::fs::write(self.path.join("cgroup.kill"), "1").is_err() {
            self.freeze_and_kill();
        }
    }

    /// What kernels before 5.14 need: nothing in a frozen group can fork away between the look and the kill.
    fn freeze_and_kill(&self) {
        let freeze = |word| std::fs::write(self.path.join("cgroup.freeze"), word);
        // Kernels before 5.2 have no freezer; the caller's next turn finds what got away.
        let _ = freeze("1");
        for pid in self.processes() {
            let Some(number) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { continue };
            let Ok(pidfd) = pidfd_open(number, PidfdFlags::empty()) else { continue };
            // The number may have been another's when it was opened.
            if self.processes().contains(&pid) {
                // One that has gone needs none.
                let _ = pidfd_send_signal(&pidfd, Signal::KILL);
            }
        }
        let _ = freeze("0");
    }

    /// What it has used so far.
    #[must_use]
    pub fn usage(&self) -> GroupUsage {
        let read = |name: &str| text(&self.path.join(name));
        usage(&read("memory.peak"), &read("cpu.stat"), &read("memory.events"))
    }

    /// Whether it is there.
    pub(super) fn exists(&self) -> bool {
        std::fs::symlink_metadata(&self.path).is_ok()
    }

    /// Removes it where nothing lives in it; whether it is gone.
    pub(super) fn remove(&self) -> bool {
        if std::fs::remove_dir(&self.path).is_ok() {
            return true;
        }
        for dir in self.tree().iter().rev() {
            // One that is busy stays, and shows.
            let _ = std::fs::remove_dir(dir);
        }
        !self.exists()
    }

    /// It and the groups inside it, outer ones first.
    fn tree(&self) -> Vec<PathBuf> {
        let mut found = vec![self.path.clone()];
        let mut level = found.clone();
        for _ in 0..DEPTH {
            let entries = level.iter().flat_map(|dir| std::fs::read_dir(dir).into_iter().flatten().flatten());
            level = entries
                .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
                .map(|entry| entry.path())
                .collect();
            found.extend(level.iter().cloned());
        }
        found
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.is_ours {
            self.remove();
        }
    }
}

/// The directory of the own group, from the texts of `/proc/self/mountinfo` and `/proc/self/cgroup`.
fn place(mounts: &[u8], groups: &[u8]) -> Option<PathBuf> {
    let own = own_group(groups)?;
    mounts.split(|byte| *byte == b'\n').find_map(|line| {
        let line = std::str::from_utf8(line).ok()?;
        let (before, after) = line.split_once(" - ")?;
        if after.split(' ').next() != Some("cgroup2") {
            return None;
        }
        let fields: Vec<&str> = before.split(' ').collect();
        // The mount may show only a part of the hierarchy; a group outside of it cannot be reached.
        let inside = Path::new(&own).strip_prefix(unescaped(fields.get(3)?)).ok()?;
        let is_inside = inside.components().all(|part| matches!(part, std::path::Component::Normal(_)));
        is_inside.then(|| unescaped(fields[4]).join(inside))
    })
}

/// The group in the version 2 hierarchy, from the text of `/proc/PID/cgroup`.
fn own_group(groups: &[u8]) -> Option<std::ffi::OsString> {
    let line = groups.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"0::"))?;
    Some(std::ffi::OsStr::from_bytes(line).to_owned())
}

/// The text of one of a group's files; empty where the file is not there.
fn text(path: &Path) -> String {
    String::from_utf8(read_kernel_file(path).unwrap_or_default()).unwrap_or_default()
}

/// Undoes the `\040` of the kernel's lists.
fn unescaped(field: &str) -> PathBuf {
    let mut bytes = Vec::new();
    let mut rest = field.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| *first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => (bytes.push(byte), rest = &after[3..]),
            None => (bytes.push(*first), rest = after),
        };
    }
    PathBuf::from(std::ffi::OsString::from(std::ffi::OsStr::from_bytes(&bytes)))
}

fn usage(peak: &str, cpu: &str, events: &str) -> GroupUsage {
    GroupUsage {
        peak_memory_kib: peak.trim().parse::<u64>().ok().map(|bytes| bytes / 1024),
        cpu_millis: value(cpu, "usage_usec").map(|micros| micros / 1000),
        oom_kills: value(events, "oom_kill").unwrap_or(0),
    }
}

/// The number beside `name` in one of the kernel's lists.
fn value(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_group_is_found_on_unified_and_hybrid_systems_and_in_containers() {
        let unified = b"29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
        let scope = b"0::/user.slice/user-1000.slice/app.scope\n";
        let found = |mounts: &[u8], groups: &[u8]| place(mounts, groups);
        assert_eq!(found(unified, scope), Some("/sys/fs/cgroup/user.slice/user-1000.slice/app.scope".into()));
        let hybrid: &[u8] = b"40 32 0:35 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
            41 32 0:36 / /sys/fs/cgroup/uni\\040fied rw shared:9 master:1 - cgroup2 none rw\n";
        assert_eq!(found(hybrid, b"4:memory:/a\n0::/\n"), Some("/sys/fs/cgroup/uni fied".into()));
        let part = b"29 23 0:26 /docker/c1 /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
        assert_eq!(found(part, b"0::/docker/c1/x\n"), Some("/sys/fs/cgroup/x".into()));
        assert_eq!(found(part, b"0::/docker/c2\n"), None, "it cannot be seen from here");
        assert_eq!(found(unified, b"0::/../other\n"), None);
        assert_eq!(found(unified, b"4:memory:/a\n"), None, "only version 1");
        assert_eq!(found(b"", scope), None);
    }

    #[test]
    fn what_a_group_used_is_read_where_it_is_told() {
        let all = usage("1048576\n", "usage_usec 2500\nuser_usec 1\n", "low 0\noom 3\noom_kill 2\noom_group_kill 0\n");
        assert_eq!(all, GroupUsage { peak_memory_kib: Some(1024), cpu_millis: Some(2), oom_kills: 2 });
        assert_eq!(usage("", "", ""), GroupUsage::default());
    }

    #[test]
    fn a_recorded_path_that_is_no_group_of_the_attempt_is_refused() {
        let token = "0123456789abcdef0123456789abcdef";
        let dir = tempfile::tempdir().unwrap();
        let group = Group::path_in(dir.path(), token);
        std::fs::create_dir(&group).unwrap();
        assert!(Group::recorded(&group, token).is_none(), "a directory elsewhere");
        let Some(place) = own_place() else { return };
        assert!(Group::recorded(&Group::path_in(&place, token), token).is_some());
        assert!(Group::recorded(&place, token).is_none());
        assert!(Group::recorded(&Group::path_in(&place, "other0123456789abcdef"), token).is_none());
        assert!(Group::recorded(&Group::path_in(&place, ""), "").is_none());
        assert!(Group::recorded(Path::new("prun-x"), "x").is_none());
    }
}
