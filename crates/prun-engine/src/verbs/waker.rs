//! Waits for what watchers wait for: a name that changes in a directory, a process that ends, a time.
//!
//! Every part may be missing (no inotify instance left, a kernel without pidfds, a file system whose
//! changes come from another machine): the callers look again at their poll interval in any case.

use std::collections::{BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use prun_core::event::ProcessIdentity;
use rustix::event::epoll;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::time::Timespec;

use crate::process::{is_alive, raise_descriptor_limit};

/// What makes a name worth a look. Writes are not among it: a file that is written to again and again
/// would wake us again and again, and its close or the poll tells as well.
const CHANGES: WatchFlags = WatchFlags::CLOSE_WRITE
    .union(WatchFlags::CREATE)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::ONLYDIR);

/// After events that concern nobody.
const QUIET: Duration = Duration::from_millis(3);

/// The mark of the inotify instance among the events.
const INOTIFY: u64 = u64::MAX;

/// What a wait ended with.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Woken {
    /// Whoever is to be looked at.
    pub(super) targets: BTreeSet<usize>,
    /// Events were lost: everybody is.
    pub(super) all: bool,
}

/// A process, by number and start, and the target that waits for its end.
type Watched = (u32, u64, usize);

/// One thread's way to wait for many things. Targets are numbers of the caller's.
pub(super) struct Waker {
    epoll: Option<OwnedFd>,
    inotify: Option<OwnedFd>,
    dirs: HashMap<PathBuf, i32>,
    names: HashMap<i32, HashMap<OsString, BTreeSet<usize>>>,
    processes: HashMap<Watched, OwnedFd>,
    by_mark: HashMap<u64, Watched>,
    next_mark: u64,
}

impl Waker {
    pub(super) fn new() -> Self {
        raise_descriptor_limit();
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).ok();
        let mut waker = Self {
            epoll,
            inotify: None,
            dirs: HashMap::new(),
            names: HashMap::new(),
            processes: HashMap::new(),
            by_mark: HashMap::new(),
            next_mark: 0,
        };
        waker.inotify = waker.open_inotify();
        waker
    }

    /// Wakes `target` when `path` is made, replaced, closed after a write, or goes. Where directories on
    /// the way to it are missing, when the first of them is made.
    pub(super) fn watch_path(&mut self, path: &Path, target: usize) {
        let mut nearest = None;
        while let Some((dir, name)) = self.watch_nearest(path, target) {
            // What was made between the failed look below and this watch gave no event: look down again, as
            // long as that leads further down.
            let is_missing_still = dir.join(&name).symlink_metadata().is_err();
            if is_missing_still || nearest.as_ref() == Some(&dir) {
                return;
            }
            nearest = Some(dir);
        }
    }

    /// Watches the nearest directory on the way to `path` that is there; it, and the name to wait for in it.
    fn watch_nearest(&mut self, path: &Path, target: usize) -> Option<(PathBuf, OsString)> {
        let mut path = path;
        while let (Some(dir), Some(name)) = (path.parent(), path.file_name()) {
            if let Some(watch) = self.watch_dir(dir) {
                let targets = self.names.entry(watch).or_default();
                targets.entry(name.to_owned()).or_default().insert(target);
                return Some((dir.to_owned(), name.to_owned()));
            }
            path = dir;
        }
        None
    }

    /// Wakes `target` when the process ends.
    pub(super) fn watch_process(&mut self, process: &ProcessIdentity, target: usize) {
        let key = (process.pid, process.start_ticks, target);
        let Some(epoll) = self.epoll.as_ref().filter(|_| !self.processes.contains_key(&key)) else { return };
        let pid = i32::try_from(process.pid).ok().and_then(Pid::from_raw);
        let Some(pidfd) = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else { return };
        // The number may have been reused before the pidfd was opened.
        if !is_alive(process) {
            return;
        }
        let mark = self.next_mark;
        self.next_mark += 1;
        if epoll::add(epoll, &pidfd, epoll::EventData::new_u64(mark), epoll::EventFlags::IN).is_ok() {
            self.by_mark.insert(mark, key);
            self.processes.insert(key, pidfd);
        }
    }

    /// Waits for any of it, at most for `timeout`.
    pub(super) fn wait(&mut self, timeout: Duration) -> Woken {
        let began = Instant::now();
        loop {
            let woken = self.wait_once(timeout.saturating_sub(began.elapsed()));
            if woken != Woken::default() || began.elapsed() >= timeout {
                return woken;
            }
            // Other names changed, as they may do all the time: what comes next is taken in one piece.
            pause(QUIET.min(timeout.saturating_sub(began.elapsed())));
        }
    }

    fn wait_once(&mut self, timeout: Duration) -> Woken {
        let mut woken = Woken::default();
        let Some(epoll) = &self.epoll else {
            pause(timeout);
            return woken;
        };
        // Rounded up: to be woken a moment early would mean to be woken twice.
        let timeout = Timespec::try_from(timeout.saturating_add(Duration::from_micros(500))).ok();
        let mut events = Vec::with_capacity(64);
        // An interrupted wait is a short one.
        if epoll::wait(epoll, rustix::buffer::spare_capacity(&mut events), timeout.as_ref()).is_err() {
            return woken;
        }
        for event in events {
            match event.data.u64() {
                INOTIFY => self.read_inotify(&mut woken),
                mark => self.process_ended(mark, &mut woken),
            }
        }
        woken
    }

    fn open_inotify(&self) -> Option<OwnedFd> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
        let data = epoll::EventData::new_u64(INOTIFY);
        epoll::add(self.epoll.as_ref()?, &inotify, data, epoll::EventFlags::IN).ok()?;
        Some(inotify)
    }

    fn watch_dir(&mut self, dir: &Path) -> Option<i32> {
        if let Some(watch) = self.dirs.get(dir) {
            return Some(*watch);
        }
        let watch = inotify::add_watch(self.inotify.as_ref()?, dir, CHANGES).ok()?;
        self.dirs.insert(dir.to_owned(), watch);
        Some(watch)
    }

    fn process_ended(&mut self, mark: u64, woken: &mut Woken) {
        if let Some(key) = self.by_mark.remove(&mark) {
            woken.targets.insert(key.2);
            // Closed, it leaves the set.
            self.processes.remove(&key);
        }
    }

    fn read_inotify(&mut self, woken: &mut Woken) {
        let Some(fd) = &self.inotify else { return };
        let mut gone = Vec::new();
        let mut buffer = [MaybeUninit::uninit(); 16 * 1024];
        let mut reader = inotify::Reader::new(fd, &mut buffer);
        while let Ok(event) = reader.next() {
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                woken.all = true;
            }
            let Some(names) = self.names.get(&event.wd()) else { continue };
            let name = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()));
            match name {
                Some(name) => woken.targets.extend(names.get(name).into_iter().flatten()),
                None => woken.targets.extend(names.values().flatten()),
            }
            if event.events().contains(ReadFlags::IGNORED) {
                gone.push(event.wd());
            }
        }
        for watch in gone {
            self.names.remove(&watch);
            self.dirs.retain(|_, known| *known != watch);
        }
    }
}

/// Lets time pass; a signal ends it early.
fn pause(time: Duration) {
    let _ = rustix::event::poll(&mut [], Timespec::try_from(time).ok().as_ref());
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    fn woken(targets: &[usize]) -> Woken {
        Woken { targets: targets.iter().copied().collect(), all: false }
    }

    #[test]
    fn a_name_that_appears_wakes_who_waits_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let mut waker = Waker::new();
        waker.watch_path(&dir.path().join("a"), 1);
        waker.watch_path(&dir.path().join("b"), 2);
        waker.watch_path(&dir.path().join("b"), 3);
        std::fs::write(dir.path().join("other"), "x").unwrap();
        std::fs::write(dir.path().join("b"), "x").unwrap();
        assert_eq!(waker.wait(LONG), woken(&[2, 3]));
        assert_eq!(waker.wait(Duration::from_millis(1)), Woken::default());
    }

    #[test]
    fn a_directory_that_is_not_there_yet_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x/y/r.md");
        let mut waker = Waker::new();
        waker.watch_path(&path, 1);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        assert_eq!(waker.wait(LONG), woken(&[1]));
        waker.watch_path(&path, 1);
        std::fs::write(&path, "x").unwrap();
        assert_eq!(waker.wait(LONG), woken(&[1]));
        std::fs::remove_dir_all(dir.path().join("x")).unwrap();
        assert_eq!(waker.wait(LONG), woken(&[1]));
    }

    #[test]
    fn the_end_of_a_process_wakes() {
        let mut child = Command::new("/bin/cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let process = crate::process::identity(child.id()).unwrap();
        let mut waker = Waker::new();
        waker.watch_process(&process, 7);
        waker.watch_process(&process, 7);
        drop(child.stdin.take());
        assert_eq!(waker.wait(LONG), woken(&[7]));
        assert_eq!(waker.wait(Duration::from_millis(1)), Woken::default());
        child.wait().unwrap();
        waker.watch_process(&process, 7);
        assert!(waker.processes.is_empty());
    }

    #[test]
    fn without_any_of_it_the_time_passes() {
        let mut waker = Waker { inotify: None, epoll: None, ..Waker::new() };
        waker.watch_path(Path::new("/tmp/x"), 1);
        waker.watch_process(&crate::process::own_identity(), 1);
        assert_eq!(waker.wait(Duration::from_millis(2)), Woken::default());
    }

    #[test]
    fn a_file_on_the_way_is_watched_for_what_takes_its_place() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("x"), "no directory").unwrap();
        let mut waker = Waker::new();
        waker.watch_path(&dir.path().join("x/y/r.md"), 1);
        std::fs::remove_file(dir.path().join("x")).unwrap();
        assert_eq!(waker.wait(LONG), woken(&[1]));
    }

    /// Directories that come into being while the way down to them is being watched.
    #[test]
    fn a_name_is_seen_however_fast_the_directories_on_its_way_are_made() {
        let dir = tempfile::tempdir().unwrap();
        for number in 0..300 {
            let path = dir.path().join(format!("{number}/d/e/f"));
            let made = path.clone();
            let maker = std::thread::spawn(move || {
                std::fs::create_dir_all(made.parent().unwrap()).unwrap();
                std::fs::write(made, "x").unwrap();
            });
            let mut waker = Waker::new();
            loop {
                waker.watch_path(&path, 1);
                if path.exists() {
                    break;
                }
                assert_ne!(waker.wait(Duration::from_secs(5)), Woken::default(), "nobody was told of {number}");
            }
            maker.join().unwrap();
        }
    }
}
