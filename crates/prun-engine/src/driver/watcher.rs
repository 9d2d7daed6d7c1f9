//! Waits for dispatchers: their exits by pidfd, their notes by inotify, in one thread for all.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use prun_core::ids::{Attempt, UnitId};
use prun_core::supervise::Note;
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::fs::inotify;

use crate::home::AttemptDir;

/// Milliseconds between two looks at the notes where inotify is not to be had.
const NOTES_POLL_MILLIS: i64 = 2_000;

/// What the watcher sees.
#[derive(Debug)]
pub(super) enum Seen {
    /// A dispatcher is gone.
    Exited(UnitId, Attempt),
    /// A dispatcher said something.
    Noted(UnitId, Attempt, Note),
}

/// A dispatcher to be watched.
#[derive(Debug)]
pub(super) struct Watched {
    /// Its unit.
    pub(super) unit: UnitId,
    /// Its attempt.
    pub(super) attempt: Attempt,
    /// Its process.
    pub(super) pidfd: OwnedFd,
    /// Where its notes appear.
    pub(super) dir: AttemptDir,
}

/// A handle on the watching thread; it ends when the handle is dropped.
#[derive(Debug)]
pub(super) struct Watcher {
    requests: Sender<Watched>,
    wake: OwnedFd,
}

impl Watcher {
    /// Starts the thread; `report` is called there.
    ///
    /// # Errors
    /// The kernel refuses a descriptor or a thread.
    pub(super) fn start(report: impl FnMut(Seen) + Send + 'static) -> std::io::Result<Self> {
        let (requests, incoming) = channel();
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let seat = Seat::new(incoming, wake.try_clone()?, Box::new(report))?;
        thread::Builder::new().name("watcher".into()).spawn(move || seat.run())?;
        Ok(Self { requests, wake })
    }

    /// Watches a dispatcher until its exit.
    pub(super) fn watch(&self, watched: Watched) {
        // The thread ends only with this handle.
        if self.requests.send(watched).is_ok() {
            ring(&self.wake);
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let (closed, _) = channel();
        self.requests = closed;
        ring(&self.wake);
    }
}

fn ring(wake: &OwnedFd) {
    // A full counter has woken the thread already.
    let _ = rustix::io::write(wake, &1_u64.to_ne_bytes());
}

const WAKE: u64 = u64::MAX;
const NOTES: u64 = u64::MAX - 1;

struct Seat {
    incoming: Receiver<Watched>,
    wake: OwnedFd,
    report: Box<dyn FnMut(Seen) + Send>,
    epoll: OwnedFd,
    /// `None` where the user's inotify instances are used up: the notes are looked at by time then.
    inotify: Option<OwnedFd>,
    watched: HashMap<u64, Entry>,
    by_watch: HashMap<i32, u64>,
    next_key: u64,
}

struct Entry {
    watched: Watched,
    notes_path: PathBuf,
    read_to: u64,
    watch: Option<i32>,
}

impl Seat {
    fn new(incoming: Receiver<Watched>, wake: OwnedFd, report: Box<dyn FnMut(Seen) + Send>) -> std::io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let inotify = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK).ok();
        epoll::add(&epoll, &wake, epoll::EventData::new_u64(WAKE), epoll::EventFlags::IN)?;
        if let Some(inotify) = &inotify {
            epoll::add(&epoll, inotify, epoll::EventData::new_u64(NOTES), epoll::EventFlags::IN)?;
        }
        let (watched, by_watch) = (HashMap::new(), HashMap::new());
        Ok(Self { incoming, wake, report, epoll, inotify, watched, by_watch, next_key: 0 })
    }

    fn run(mut self) {
        let mut events = Vec::with_capacity(64);
        loop {
            let timeout = (self.inotify.is_none() && !self.watched.is_empty())
                .then_some(Timespec { tv_sec: NOTES_POLL_MILLIS / 1000, tv_nsec: 0 });
            events.clear();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(_) => return,
            }
            for event in &events {
                match event.data.u64() {
                    WAKE => {
                        if !self.take_requests() {
                            return;
                        }
                    }
                    NOTES => self.take_notes(),
                    key => self.exited(key),
                }
            }
            if self.inotify.is_none() {
                let keys: Vec<u64> = self.watched.keys().copied().collect();
                keys.into_iter().for_each(|key| self.read_notes(key, |notes| notes));
            }
        }
    }

    /// Takes what was asked for; `false` once the handle is gone.
    fn take_requests(&mut self) -> bool {
        let mut counter = [0; 8];
        // The counter only wakes; its value says nothing.
        let _ = rustix::io::read(&self.wake, &mut counter);
        loop {
            match self.incoming.try_recv() {
                Ok(watched) => self.add(watched),
                Err(std::sync::mpsc::TryRecvError::Empty) => return true,
                Err(std::sync::mpsc::TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn add(&mut self, watched: Watched) {
        let key = self.next_key;
        self.next_key += 1;
        let flags = inotify::WatchFlags::CREATE | inotify::WatchFlags::MODIFY;
        let watch =
            self.inotify.as_ref().and_then(|inotify| inotify::add_watch(inotify, watched.dir.root(), flags).ok());
        if let Some(watch) = watch {
            self.by_watch.insert(watch, key);
        }
        let data = epoll::EventData::new_u64(key);
        let added = epoll::add(&self.epoll, watched.pidfd.as_fd(), data, epoll::EventFlags::IN);
        let notes_path = watched.dir.notes();
        self.watched.insert(key, Entry { watched, notes_path, read_to: 0, watch });
        if added.is_err() {
            // Out of kernel memory: to say that it is gone makes the driver look for itself.
            self.exited(key);
        } else {
            self.read_notes(key, still_true);
        }
    }

    fn exited(&mut self, key: u64) {
        self.read_notes(key, |notes| notes);
        let Some(entry) = self.watched.remove(&key) else { return };
        let _ = epoll::delete(&self.epoll, entry.watched.pidfd.as_fd());
        if let (Some(inotify), Some(watch)) = (&self.inotify, entry.watch) {
            self.by_watch.remove(&watch);
            let _ = inotify::remove_watch(inotify, watch);
        }
        (self.report)(Seen::Exited(entry.watched.unit, entry.watched.attempt));
    }

    fn take_notes(&mut self) {
        let mut changed = Vec::new();
        if let Some(inotify) = &self.inotify {
            let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
            let mut reader = inotify::Reader::new(inotify, &mut buffer);
            while let Ok(event) = reader.next() {
                if event.file_name().is_some_and(|name| name.to_bytes() == b"notes.jsonl") {
                    changed.extend(self.by_watch.get(&event.wd()).copied());
                }
            }
        }
        changed.into_iter().for_each(|key| self.read_notes(key, |notes| notes));
    }

    fn read_notes(&mut self, key: u64, select: impl Fn(Vec<Note>) -> Vec<Note>) {
        let Some(entry) = self.watched.get_mut(&key) else { return };
        for note in select(new_notes(&entry.notes_path, &mut entry.read_to)) {
            (self.report)(Seen::Noted(entry.watched.unit.clone(), entry.watched.attempt, note));
        }
    }
}

/// The notes after `read_to`, whole lines only.
fn new_notes(path: &PathBuf, read_to: &mut u64) -> Vec<Note> {
    let mut text = Vec::new();
    let read = File::open(path).and_then(|mut file| {
        file.seek(SeekFrom::Start(*read_to))?;
        file.take(1 << 20).read_to_end(&mut text)
    });
    if read.is_err() {
        return Vec::new();
    }
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    *read_to += whole as u64;
    text[..whole].split(|byte| *byte == b'\n').filter_map(parse_note).collect()
}

/// Of notes from before the watch, those that still hold: a supervisor that takes over must not tell an old
/// silence again.
fn still_true(notes: Vec<Note>) -> Vec<Note> {
    let is_of_silence = |note: &Note| matches!(note, Note::Quiet(_) | Note::Active);
    let is_of_usage = |note: &Note| matches!(note, Note::Used(_));
    let last = (notes.iter().rposition(is_of_silence), notes.iter().rposition(is_of_usage));
    let holds = |(at, note): &(usize, Note)| match note {
        note if is_of_silence(note) => last.0 == Some(*at),
        note if is_of_usage(note) => last.1 == Some(*at),
        _ => true,
    };
    notes.into_iter().enumerate().filter(holds).map(|(_, note)| note).collect()
}

fn parse_note(line: &[u8]) -> Option<Note> {
    let value: serde_json::Value = serde_json::from_slice(line).ok()?;
    match value.get("note")?.as_str()? {
        "quiet" => Some(Note::Quiet(value.get("seconds")?.as_u64()?)),
        "active" => Some(Note::Active),
        "handed-over" => Some(Note::HandedOver),
        "used" => serde_json::from_value(value.get("usage")?.clone()).ok().map(Note::Used),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use prun_core::outcome::Usage;

    use super::*;

    #[test]
    fn a_note_that_is_not_written_to_its_end_waits() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notes.jsonl");
        let mut read_to = 0;
        std::fs::write(&path, "{\"note\":\"quiet\",\"seconds\":3}\n{\"note\":\"act").unwrap();
        assert_eq!(new_notes(&path, &mut read_to), [Note::Quiet(3)]);
        let used = "{\"note\":\"used\",\"usage\":{\"input_tokens\":7,\"cached_input_tokens\":0,\"output_tokens\":1}}";
        let text = format!("{{\"note\":\"quiet\",\"seconds\":3}}\n{{\"note\":\"active\"}}\n{used}\n");
        std::fs::write(&path, text).unwrap();
        let usage = Usage { input_tokens: 7, output_tokens: 1, ..Usage::default() };
        assert_eq!(new_notes(&path, &mut read_to), [Note::Active, Note::Used(usage)]);
        assert_eq!(new_notes(&path, &mut read_to), []);
    }

    #[test]
    fn a_silence_that_is_over_is_not_told_again() {
        let notes = vec![Note::HandedOver, Note::Quiet(3), Note::Active];
        assert_eq!(still_true(notes), [Note::HandedOver, Note::Active]);
        assert_eq!(still_true(vec![Note::Quiet(3), Note::Active, Note::Quiet(9)]), [Note::Quiet(9)]);
        assert_eq!(still_true(Vec::new()), []);
        let used = |tokens| Note::Used(Usage { input_tokens: tokens, ..Usage::default() });
        assert_eq!(still_true(vec![used(1), Note::Active, used(2)]), [Note::Active, used(2)]);
    }

    #[test]
    fn an_exit_is_seen_at_once() {
        let (seen, seeing) = channel();
        let watcher = Watcher::start(move |what| seen.send(what).unwrap()).unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        watcher.watch(Watched {
            unit: "u".parse().unwrap(),
            attempt: Attempt(1),
            pidfd,
            dir: AttemptDir::at(dir.path()),
        });
        let what = seeing.recv_timeout(std::time::Duration::from_secs(10)).unwrap();
        assert!(matches!(what, Seen::Exited(unit, Attempt(1)) if unit.as_str() == "u"));
        child.wait().unwrap();
    }
}
