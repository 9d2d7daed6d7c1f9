//! Signs of life beyond the output: CPU time of the worker's tree, and files that change.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::process::tree_cpu_ticks;

/// Less CPU time than this part of the wall time is what an idle event loop uses.
const CPU_SHARE: u64 = 100;

/// How many entries of a workspace are looked at.
const ENTRIES: usize = 20_000;

/// Directories whose content says nothing about the worker's progress that its other files do not, and
/// that hold very many.
const SKIPPED: &[&str] = &[".git", "node_modules", "target"];

/// Looks for signs of life and remembers when each kind was last seen. Times are milliseconds on the
/// watchdog's clock.
pub(super) struct Liveness {
    root: u32,
    workspace: PathBuf,
    has_events: bool,
    looked: u64,
    cpu_ticks: u64,
    newest: SystemTime,
    output: u64,
    cpu: u64,
    files: u64,
}

impl Liveness {
    /// Watches the processes below `root`, which start at `now` to work in `workspace`. With the dispatcher
    /// as the root orphans belong to it too, and the CPU time of those that have ended is not lost.
    pub(super) fn new(root: u32, workspace: &Path, has_events: bool, now: u64) -> Self {
        Self {
            root,
            workspace: workspace.to_owned(),
            has_events,
            looked: now,
            cpu_ticks: tree_cpu_ticks(root),
            newest: SystemTime::now(),
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
        let ticks = tree_cpu_ticks(self.root);
        let used = ticks.saturating_sub(self.cpu_ticks).saturating_mul(1000) / rustix::param::clock_ticks_per_second();
        if used > 0 && used >= now.saturating_sub(self.looked) / CPU_SHARE {
            self.cpu = now;
        }
        if let Some(newest) = newest_change(&self.workspace, ENTRIES).filter(|newest| *newest > self.newest) {
            let age = SystemTime::now().duration_since(newest).unwrap_or_default();
            // It happened after the look before, whatever the wall clock did since.
            let at = now.saturating_sub(u64::try_from(age.as_millis()).unwrap_or(0)).max(self.looked);
            self.files = self.files.max(at);
            self.newest = newest;
        }
        (self.cpu_ticks, self.looked) = (ticks, now);
        self.output.max(self.cpu).max(self.files)
    }

    /// The kinds without a sign since `time`, by the names that the facts use.
    pub(super) fn silent_since(&self, time: u64) -> Vec<String> {
        let output = if self.has_events { "events" } else { "output" };
        let kinds = [(output, self.output), ("cpu", self.cpu), ("files", self.files)];
        kinds.into_iter().filter(|(_, last)| *last <= time).map(|(name, _)| name.to_owned()).collect()
    }
}

/// The newest change below `root`, looking at no more than `entries`.
fn newest_change(root: &Path, mut entries: usize) -> Option<SystemTime> {
    let mut newest = None;
    let mut to_visit = vec![root.to_owned()];
    while let Some(dir) = to_visit.pop() {
        newest = newest.max(std::fs::symlink_metadata(&dir).and_then(|meta| meta.modified()).ok());
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            let Some(left) = entries.checked_sub(1) else { return newest };
            entries = left;
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if !is_dir {
                newest = newest.max(entry.metadata().and_then(|meta| meta.modified()).ok());
            } else if !SKIPPED.iter().any(|skipped| entry.file_name() == *skipped) {
                to_visit.push(entry.path());
            }
        }
    }
    newest
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
        assert!(newest_change(dir.path(), ENTRIES).unwrap() < later);
        touch(&dir.path().join("a/b/x"), later);
        assert_eq!(newest_change(dir.path(), ENTRIES), Some(later));
    }

    #[test]
    fn a_busy_process_and_a_changing_file_are_signs_of_life() {
        let dir = tempfile::tempdir().unwrap();
        let mut busy = std::process::Command::new("/bin/sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let mut liveness = Liveness::new(busy.id(), dir.path(), false, 0);
        while tree_cpu_ticks(busy.id()) < 3 {}
        assert_eq!(liveness.look(1000), 1000);
        assert_eq!(liveness.silent_since(500), ["output", "files"]);
        busy.kill().unwrap();
        busy.wait().unwrap();
        assert_eq!(liveness.look(60_000), 1000, "it is gone");
        std::fs::write(dir.path().join("new"), b"x").unwrap();
        assert!(liveness.look(60_000) > 50_000);
        assert_eq!(liveness.silent_since(50_000), ["output", "cpu"]);
    }
}
