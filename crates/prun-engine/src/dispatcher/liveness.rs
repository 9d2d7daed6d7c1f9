//! Signs of life beyond the output: CPU time of the worker's tree, and files that change.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::process::tree_cpu_ticks;

/// Less CPU time than this part of the wall time is what an idle event loop uses.
const CPU_SHARE: u64 = 100;

/// The same of an agent's client, which computes a little all the time: Codex that waits for a hung server was
/// measured at 2.7 %. Its tools run in sessions of their own, and the pieces of what its model says are events.
const CLIENT_SHARE: u64 = 5;

/// How many entries of a workspace are looked at.
const ENTRIES: usize = 20_000;

/// Directories whose content says nothing about the worker's progress that its other files do not, and
/// that hold very many.
const SKIPPED: &[&str] = &[".git", "node_modules", "target"];

/// Looks for signs of life and remembers when each kind was last seen. Times are milliseconds on the
/// watchdog's clock.
pub(super) struct Liveness {
    root: Option<u32>,
    workspace: PathBuf,
    /// The session of an agent's client, where there is one.
    client: Option<u32>,
    looked: u64,
    /// Of the client, and of the rest.
    cpu_ticks: (u64, u64),
    newest: SystemTime,
    /// What all entries together looked like; unknown before the first look.
    entries: Option<Entries>,
    output: u64,
    cpu: u64,
    files: u64,
}

impl Liveness {
    /// Watches the processes below `root`, which start at `now` to work in `workspace`; `client` is the session of
    /// an agent's client that tells of its progress by events. With the dispatcher
    /// as the root orphans belong to it too, and the CPU time of those that have ended is not lost.
    pub(super) fn new(root: Option<u32>, workspace: &Path, client: Option<u32>, now: u64) -> Self {
        Self {
            root,
            workspace: workspace.to_owned(),
            client,
            looked: now,
            cpu_ticks: root.map_or((0, 0), |root| tree_cpu_ticks(root, client)),
            newest: SystemTime::now(),
            entries: None,
            output: now,
            cpu: now,
            files: now,
        }
    }

    /// There was output that means progress.
    pub(super) fn output_at(&mut self, at: u64) {
        self.output = self.output.max(at);
    }

    /// Looks at CPU time and files; the time of the newest sign.
    pub(super) fn look(&mut self, now: u64) -> u64 {
        let ticks = self.root.map_or((0, 0), |root| tree_cpu_ticks(root, self.client));
        let passed = now.saturating_sub(self.looked);
        let is_busy = |ticks: u64, before: u64, share: u64| {
            let used = ticks.saturating_sub(before).saturating_mul(1000) / rustix::param::clock_ticks_per_second();
            used > 0 && used >= passed / share
        };
        if is_busy(ticks.0, self.cpu_ticks.0, CLIENT_SHARE) || is_busy(ticks.1, self.cpu_ticks.1, CPU_SHARE) {
            self.cpu = now;
        }
        let entries = Entries::of(&self.workspace, ENTRIES);
        if let Some(newest) = entries.newest.filter(|newest| *newest > self.newest) {
            let age = SystemTime::now().duration_since(newest).unwrap_or_default();
            // It happened after the look before, whatever the wall clock did since.
            let at = now.saturating_sub(u64::try_from(age.as_millis()).unwrap_or(0)).max(self.looked);
            self.files = self.files.max(at);
            self.newest = newest;
        } else if self.entries.is_some_and(|before| before != entries) {
            // The wall clock was set back, or what is new is old: it happened since the look before.
            self.files = now;
        }
        self.entries = Some(entries);
        (self.cpu_ticks, self.looked) = (ticks, now);
        self.output.max(self.cpu).max(self.files)
    }

    /// The kinds without a sign since `time`, by the names that the facts use.
    pub(super) fn silent_since(&self, time: u64) -> Vec<String> {
        let output = if self.client.is_some() { "events" } else { "output" };
        let kinds = [(output, self.output), ("cpu", self.cpu), ("files", self.files)];
        kinds.into_iter().filter(|(_, last)| *last <= time).map(|(name, _)| name.to_owned()).collect()
    }
}

/// The entries of a workspace at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Entries {
    /// The newest change.
    newest: Option<SystemTime>,
    /// Of all times of change and sizes together: another value means a change, without regard to clocks.
    sum: u64,
}

impl Entries {
    /// What is below `root`, looking at no more than `limit` entries.
    fn of(root: &Path, mut limit: usize) -> Self {
        let mut found = Self::default();
        let mut to_visit = vec![root.to_owned()];
        while let Some(dir) = to_visit.pop() {
            found.add(std::fs::symlink_metadata(&dir).ok());
            for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
                let Some(left) = limit.checked_sub(1) else { return found };
                limit = left;
                let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
                if !is_dir {
                    found.add(entry.metadata().ok());
                } else if !SKIPPED.iter().any(|skipped| entry.file_name() == *skipped) {
                    to_visit.push(entry.path());
                }
            }
        }
        found
    }

    fn add(&mut self, meta: Option<Metadata>) {
        let Some(meta) = meta else { return };
        self.newest = self.newest.max(meta.modified().ok());
        let nanos = meta.mtime().wrapping_mul(1_000_000_000).wrapping_add(meta.mtime_nsec());
        self.sum = self.sum.wrapping_add(nanos.cast_unsigned()).wrapping_add(meta.size());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_change_is_found_at_any_depth_but_not_in_skipped_directories() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("a/b/.git");
        std::fs::create_dir_all(&deep).unwrap();
        let later = SystemTime::now() + std::time::Duration::from_secs(100);
        let touch = |path: &Path, time| std::fs::File::create(path).unwrap().set_modified(time).unwrap();
        touch(&deep.join("index"), later);
        assert!(Entries::of(dir.path(), ENTRIES).newest.unwrap() < later);
        touch(&dir.path().join("a/b/x"), later);
        assert_eq!(Entries::of(dir.path(), ENTRIES).newest, Some(later));
    }

    #[test]
    fn a_file_written_after_the_clock_was_set_back_is_a_sign_of_life() {
        let dir = tempfile::tempdir().unwrap();
        let mut liveness = Liveness::new(None, dir.path(), None, 0);
        let earlier = SystemTime::now() - std::time::Duration::from_secs(3600);
        let write = |name: &str| {
            std::fs::File::create(dir.path().join(name)).unwrap().set_modified(earlier).unwrap();
            std::fs::File::open(dir.path()).unwrap().set_modified(earlier).unwrap();
        };
        write("a");
        liveness.look(1000);
        write("b");
        assert_eq!(liveness.look(2000), 2000);
        assert_eq!(liveness.look(3000), 2000, "nothing new");
    }

    #[test]
    fn a_busy_process_and_a_changing_file_are_signs_of_life() {
        let dir = tempfile::tempdir().unwrap();
        let mut busy = std::process::Command::new("/bin/sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let mut liveness = Liveness::new(Some(busy.id()), dir.path(), None, 0);
        while tree_cpu_ticks(busy.id(), None).1 < 3 {}
        assert_eq!(liveness.look(1000), 1000);
        assert_eq!(liveness.silent_since(500), ["output", "files"]);
        busy.kill().unwrap();
        busy.wait().unwrap();
        assert_eq!(liveness.look(60_000), 1000, "it is gone");
        std::fs::write(dir.path().join("new"), b"x").unwrap();
        assert!(liveness.look(60_000) > 50_000);
        assert_eq!(liveness.silent_since(50_000), ["output", "cpu"]);
    }

    #[test]
    fn a_client_that_computes_a_little_is_not_alive_by_that() {
        let dir = tempfile::tempdir().unwrap();
        let mut busy = std::process::Command::new("/bin/sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let session = crate::process::stat(busy.id()).unwrap().session;
        let mut liveness = Liveness::new(Some(busy.id()), dir.path(), Some(session), 0);
        while tree_cpu_ticks(busy.id(), Some(session)).0 < 5 {}
        // A little over 5 ticks, 50 ms: more than a hundredth of 2 s, and less than a fifth.
        assert_eq!(liveness.look(2000), 0);
        while tree_cpu_ticks(busy.id(), Some(session)).0 < 30 {}
        assert_eq!(liveness.look(2500), 2500, "it computes in earnest");
        busy.kill().unwrap();
        busy.wait().unwrap();
    }
}
