//! A run whose supervisor died: what became of each attempt. Also a live run whose dispatcher died.
//!
//! The fence tells: held, somebody of the attempt lives; free, nobody does, and nobody can begin again
//! once it is taken and `fenced` is written.

use std::fs::File;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

use prun_core::event::ProcessIdentity;
use prun_core::ids::{Attempt, UnitId};
use prun_core::outcome::AttemptFacts;
use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;

use crate::files::{Durability, TEMPORARY_PREFIX, write_atomically};
use crate::home::AttemptDir;
use crate::workshop::{Workshop, remove_workspace};
use crate::{contain, dispatcher, process, state_dir};

/// How long a dispatcher may need from its start until it has written down who it is. One that needs
/// longer is ended: it can be found, but not be adopted.
const START_LIMIT: Duration = Duration::from_secs(20);

/// What became of an attempt.
#[derive(Debug)]
pub enum Found {
    /// Its dispatcher wrote its facts.
    Settled(Box<AttemptFacts>),
    /// Its dispatcher lives.
    Alive(ProcessIdentity),
    /// No dispatcher was ever started; it is fenced.
    NeverStarted,
    /// Its dispatcher died; it is fenced, its tree ended, the rest saved.
    Dead(Option<Box<AttemptFacts>>),
}

/// What there is of an attempt that nobody drives, as far as it can be seen without touching anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Its dispatcher wrote its facts; nobody has recorded them.
    Settled,
    /// Its dispatcher lives, in this boot and under its own start time.
    Alive,
    /// Its dispatcher is dead, and something of its worker lives.
    WorkerAlone,
    /// Nothing of it lives.
    Gone,
}

impl Presence {
    /// What that means, in a phrase; the run's next supervisor sees to it.
    #[must_use]
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Settled => "it has settled meanwhile; a resume records it",
            Self::Alive => "its dispatcher goes on without a supervisor",
            Self::WorkerAlone => {
                "its dispatcher is dead and its worker is not; a resume ends it and saves what it wrote"
            }
            Self::Gone => "nothing of it lives any more; a resume saves what it wrote and tries again",
        }
    }
}

/// Looks at an attempt without taking its fence, so that whoever takes the run over is in nobody's way.
#[must_use]
pub fn presence(dir: &AttemptDir) -> Presence {
    let Some(state_dir) = state_dir::find_in(dir.root()) else { return Presence::Gone };
    if state_dir::read_facts(&state_dir).is_ok() {
        return Presence::Settled;
    }
    let Ok(identity) = state_dir::read_identity(&state_dir) else { return Presence::Gone };
    if process::is_alive(&identity.dispatcher) {
        return Presence::Alive;
    }
    let in_group = identity.cgroup.as_deref().is_some_and(|group| contain::lives_in(group, &identity.token));
    let worker = identity.worker.as_ref().is_some_and(process::is_alive);
    if in_group || worker { Presence::WorkerAlone } else { Presence::Gone }
}

/// Looks at an attempt of the supervisor before, and fences it where nobody lives.
#[must_use]
pub fn observe(workshop: &Workshop, unit: &UnitId, attempt: Attempt) -> Found {
    let dir = workshop.attempt_dir(unit, attempt);
    let deadline = Instant::now() + START_LIMIT;
    loop {
        let Some(_fence) = take_fence(&dir, workshop.durability) else {
            if let Some(process) = living(&dir) {
                return Found::Alive(process);
            }
            if Instant::now() >= deadline {
                end_holders(&dir);
            }
            pause();
            continue;
        };
        remove_half_written(&dir);
        if let Some(facts) = workshop.facts(unit, attempt) {
            return Found::Settled(Box::new(facts));
        }
        let cannot_tell = std::fs::read_dir(dir.root()).is_err_and(|error| error.kind() != ErrorKind::NotFound);
        if !cannot_tell && state_dir::find_in(dir.root()).is_none() {
            remove_workspace(&dir);
            return Found::NeverStarted;
        }
        return Found::Dead(dispatcher::settle_dead(&dir, workshop.durability).map(Box::new));
    }
}

/// Ends and saves what a dispatcher left that died under its own supervisor.
#[must_use]
pub fn clean(workshop: &Workshop, unit: &UnitId, attempt: Attempt) -> Option<AttemptFacts> {
    loop {
        match observe(workshop, unit, attempt) {
            Found::Settled(facts) => return Some(*facts),
            Found::Dead(facts) => return facts.map(|facts| *facts),
            Found::NeverStarted => return None,
            // Somebody said that it is gone, and it is not: nothing may begin in its place before it is.
            Found::Alive(_) => pause(),
        }
    }
}

/// Takes the fence and marks the attempt as fenced; `None` while somebody holds it.
fn take_fence(dir: &AttemptDir, durability: Durability) -> Option<Option<File>> {
    let file = match File::open(dir.lock()) {
        // Not even the fence was made: nobody can have begun.
        Err(error) if error.kind() == ErrorKind::NotFound => return Some(None),
        opened => opened.ok()?,
    };
    flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
    // Without the mark the lock alone still holds as long as this process looks.
    let _ = write_atomically(&dir.fenced(), b"fenced\n", durability);
    Some(Some(file))
}

/// Removes what a supervisor had half written when it died. Nobody else writes here while the fence is ours.
fn remove_half_written(dir: &AttemptDir) {
    for entry in std::fs::read_dir(dir.root()).into_iter().flatten().flatten() {
        if entry.file_name().as_encoded_bytes().starts_with(TEMPORARY_PREFIX.as_bytes()) {
            // A rest is never read, and goes with the run.
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Ends who holds the fence and has not said who it is. Nothing of a worker can be alive yet.
fn end_holders(dir: &AttemptDir) {
    for process in process::with_open_file(&dir.lock()) {
        if process.pid != std::process::id() {
            // One that cannot be ended keeps the fence, and with it this attempt open.
            let _ = process::signal_process(&process, Signal::KILL);
        }
    }
}

fn living(dir: &AttemptDir) -> Option<ProcessIdentity> {
    let state_dir = state_dir::find_in(dir.root())?;
    let identity = state_dir::read_identity(&state_dir).ok()?;
    process::is_alive(&identity.dispatcher).then_some(identity.dispatcher)
}

#[expect(clippy::disallowed_methods, reason = "a lock has no event to wait for; the loop has a deadline")]
fn pause() {
    std::thread::sleep(Duration::from_millis(20));
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn what_was_half_written_is_removed_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        for name in [".prun-M3nwVJ", "prompt.md", "fenced"] {
            std::fs::write(dir.path().join(name), "x").unwrap();
        }
        remove_half_written(&AttemptDir::at(dir.path()));
        let mut left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["fenced", "prompt.md"]);
    }

    #[test]
    fn the_fence_is_free_only_where_nobody_holds_it() {
        let dir = tempfile::tempdir().unwrap();
        let dir = AttemptDir::at(dir.path());
        assert!(matches!(take_fence(&dir, Durability::Cached), Some(None)), "nobody can have begun");
        let fence = File::create(dir.lock()).unwrap();
        flock(&fence, FlockOperation::NonBlockingLockExclusive).unwrap();
        // A dispatcher inherits it as its stdin and has said nothing yet.
        let mut holder = Command::new("sleep").arg("600").stdin(Stdio::from(fence)).spawn().unwrap();
        assert!(take_fence(&dir, Durability::Cached).is_none());
        assert!(living(&dir).is_none());
        end_holders(&dir);
        holder.wait().unwrap();
        assert!(matches!(take_fence(&dir, Durability::Cached), Some(Some(_))));
        assert!(dir.fenced().exists());
    }

    /// After a reboot a number may be anybody's, even with the same start time.
    #[test]
    fn a_process_of_another_boot_is_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let dir = AttemptDir::at(dir.path());
        let state = state_dir::StateDir::create(dir.root(), Path::new("/x"), &"u".parse().unwrap()).unwrap();
        let mut identity = state_dir::Identity {
            version: state_dir::IDENTITY_VERSION,
            dispatcher: process::own_identity(),
            worker: Some(process::own_identity()),
            containment: Vec::new(),
            cgroup: None,
            token: String::new(),
            read_only: Default::default(),
        };
        state.write_identity(&identity).unwrap();
        assert_eq!(living(&dir), Some(process::own_identity()));
        assert_eq!(presence(&dir), Presence::Alive);
        for process in [Some(&mut identity.dispatcher), identity.worker.as_mut()].into_iter().flatten() {
            process.boot_id = "another boot".into();
        }
        state.write_identity(&identity).unwrap();
        assert_eq!(living(&dir), None);
        assert_eq!(presence(&dir), Presence::Gone);
        identity.worker = Some(process::own_identity());
        state.write_identity(&identity).unwrap();
        assert_eq!(presence(&dir), Presence::WorkerAlone);
    }

    #[test]
    fn what_never_began_is_gone_and_half_written_facts_are_none() {
        let dir = tempfile::tempdir().unwrap();
        let dir = AttemptDir::at(dir.path());
        assert_eq!(presence(&dir), Presence::Gone);
        let state = state_dir::StateDir::create(dir.root(), Path::new("/x"), &"u".parse().unwrap()).unwrap();
        std::fs::write(state.root().join(".prun-AbCdEf"), "{\"version\":1,").unwrap();
        std::fs::write(state.facts(), "{\"version\":1,\"unit\":\"u\",").unwrap();
        assert_eq!(presence(&dir), Presence::Gone);
    }
}
