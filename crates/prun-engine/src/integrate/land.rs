//! Puts a combination into the working tree, all of it or nothing, while others may be writing there.
//!
//! New paths arrive by a rename that replaces nothing; existing ones change places with the prepared file,
//! and what came out is compared with what was expected. A surprise puts everything back.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use rustix::fs::RenameFlags;

use super::exchange::{CHANGED, GONE, STANDS, Surprise, blocked, exchange_expecting, move_expecting};
use super::journal::{Journal, Op, OpKind, Phase, slot};
use super::path::RepoPath;
use super::root::{Place, Root, Seen, rename};
use crate::files::FileError;

/// A landing that did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum LandError {
    /// The working tree was not as expected. It is as it was before.
    #[error("{path}: {why}; nothing was changed")]
    Conflict {
        /// Where.
        path: RepoPath,
        /// What was found.
        why: &'static str,
    },
    /// Paths changed after the landing: undo would lose what was done to them. Nothing was changed.
    #[error("changed since the landing: {}", list(paths))]
    ChangedSince {
        /// Which.
        paths: Vec<RepoPath>,
    },
    /// Paths changed under our hands while everything was put back; they were left as they are.
    #[error("changed while being put back, left as they are: {}; what was there is in {}", list(paths), kept.display())]
    LeftBehind {
        /// Which.
        paths: Vec<RepoPath>,
        /// Where their other versions are.
        kept: std::path::PathBuf,
    },
    /// The file system cannot exchange two names.
    #[error("the file system of {} cannot exchange two files in one step: {source}", path.display())]
    Unsupported {
        /// Where it was tried.
        path: std::path::PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// There is nothing to undo: it was never done, or was taken back already.
    #[error("nothing of this landing is in the working tree")]
    NotLanded,
    /// A fault was injected.
    #[error("stopped after the given number of steps")]
    Interrupted,
    /// The system refused an operation.
    #[error(transparent)]
    File(#[from] FileError),
}

fn list(paths: &[RepoPath]) -> String {
    paths.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Injects a fault: `Some(n)` lets `n` steps pass and then stops as a kill would.
#[derive(Clone, Copy, Debug, Default)]
pub struct StopAfter(pub Option<usize>);

impl StopAfter {
    fn step(&mut self) -> Result<(), LandError> {
        match &mut self.0 {
            None => Ok(()),
            Some(0) => Err(LandError::Interrupted),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
        }
    }
}

/// Carries a prepared landing out, or finishes one that was cut off. One that is done stays as it is.
///
/// # Errors
/// A conflict (everything is put back then), or the system refuses something (the journal stands; see [`resume`]).
pub fn land(journal: &Journal, stop_after: StopAfter) -> Result<(), LandError> {
    let phase = journal.phase()?;
    match phase {
        Phase::Prepared | Phase::Landing => {}
        Phase::Landed => return Ok(()),
        Phase::Undoing | Phase::Undone => return Err(LandError::NotLanded),
    }
    let mut work = Work::open(journal, stop_after)?;
    if phase == Phase::Prepared {
        work.begin()?;
    }
    match work.finish() {
        Err(error @ (LandError::Conflict { .. } | LandError::File(_))) => {
            work.put_back()?;
            Err(error)
        }
        other => other,
    }
}

/// Brings a landing that was cut off to an end: one that was being done is finished, one that was being
/// undone is undone. Tells what it came to.
///
/// # Errors
/// As [`land`] and [`undo`].
pub fn resume(journal: &Journal, stop_after: StopAfter) -> Result<Phase, LandError> {
    match journal.phase()? {
        Phase::Landing => land(journal, stop_after)?,
        Phase::Undoing => Work::open(journal, stop_after)?.put_back()?,
        Phase::Prepared | Phase::Landed | Phase::Undone => journal.clear_work_tree()?,
    }
    Ok(journal.phase()?)
}

/// Takes a landing back, also one that was cut off.
///
/// # Errors
/// Paths changed since, by name; nothing is changed then. Or the system refuses something.
pub fn undo(journal: &Journal, stop_after: StopAfter) -> Result<(), LandError> {
    match journal.phase()? {
        Phase::Prepared | Phase::Undone => return Err(LandError::NotLanded),
        Phase::Landing | Phase::Landed | Phase::Undoing => {}
    }
    let mut work = Work::open(journal, stop_after)?;
    let mut paths = Vec::new();
    for (at, op) in journal.plan().ops.iter().enumerate() {
        if work.is_done(at, op)? && !work.is_as_landed(op)? {
            paths.push(op.path.clone());
        }
    }
    if !paths.is_empty() {
        return Err(LandError::ChangedSince { paths });
    }
    work.put_back()
}

/// The open directories of a landing.
struct Work<'a> {
    journal: &'a Journal,
    root: Root,
    slots: Root,
    stop_after: StopAfter,
}

impl<'a> Work<'a> {
    fn open(journal: &'a Journal, stop_after: StopAfter) -> Result<Self, LandError> {
        let (root, slots) = (Root::open(&journal.plan().work_tree)?, journal.slots()?);
        Ok(Self { journal, root, slots, stop_after })
    }

    /// Last looks before anything is touched.
    fn begin(&mut self) -> Result<(), LandError> {
        let journal = self.journal;
        if let Err(error) = journal.plan().check(&self.root).and_then(|()| self.probe()) {
            journal.enter(Phase::Undone)?;
            journal.clear_work_tree()?;
            return Err(error);
        }
        self.stop_after.step()?;
        Ok(journal.enter(Phase::Landing)?)
    }

    /// Whether names can be exchanged here, before anything is touched.
    fn probe(&self) -> Result<(), LandError> {
        let names = ["probe-a", "probe-b"].map(|name| self.slots.path().join(name));
        for name in &names {
            std::fs::write(name, "").map_err(FileError::at("write", name))?;
        }
        let (a, b) = (self.slot_place("probe-a")?, self.slot_place("probe-b")?);
        let tried = rename(&a, &b, RenameFlags::EXCHANGE);
        for name in &names {
            std::fs::remove_file(name).map_err(FileError::at("remove", name))?;
        }
        tried.map_err(|source| LandError::Unsupported { path: self.slots.path().to_owned(), source })
    }

    fn slot_place(&self, name: &str) -> Result<Place, FileError> {
        self.slots.place(&RepoPath::from(name)).map_err(FileError::at("open", self.slots.path()))
    }

    /// What the slot holds tells whether the operation was done.
    fn is_done(&self, at: usize, op: &Op) -> Result<bool, LandError> {
        let held = self.slots.see(&slot(at))?;
        Ok(match op.kind {
            OpKind::Create => held == Seen::Absent,
            OpKind::Delete => held != Seen::Absent,
            OpKind::Replace => held != op.after,
        })
    }

    /// Whether the path is as the landing left it. In place of a deleted file a directory of landed files may
    /// stand.
    fn is_as_landed(&self, op: &Op) -> Result<bool, LandError> {
        let now = self.root.see(&op.path)?;
        if op.kind != OpKind::Delete || now != Seen::Dir {
            return Ok(now == op.after);
        }
        let ours =
            |path: &RepoPath| self.journal.plan().ops.iter().any(|op| op.kind == OpKind::Create && op.path == *path);
        Ok(self.root.files_below(&op.path)?.iter().all(ours))
    }

    fn finish(&mut self) -> Result<(), LandError> {
        let plan = self.journal.plan();
        let (deletions, rest): (Vec<_>, Vec<_>) =
            plan.ops.iter().enumerate().partition(|(_, op)| op.kind == OpKind::Delete);
        for (at, op) in deletions {
            self.forward(at, op)?;
        }
        for dir in plan.dir_modes.keys().rev() {
            self.remove_if_empty(dir)?;
        }
        for (at, op) in rest {
            self.forward(at, op)?;
        }
        self.check_what_came_out()?;
        self.sync()?;
        self.stop_after.step()?;
        self.journal.enter(Phase::Landed)?;
        self.stop_after.step()?;
        Ok(self.journal.clear_work_tree()?)
    }

    /// An editor that had a file open may have written into it after it came out.
    fn check_what_came_out(&self) -> Result<(), LandError> {
        for (at, op) in self.journal.plan().ops.iter().enumerate().filter(|(_, op)| op.kind != OpKind::Create) {
            if self.slots.see(&slot(at))? != op.before {
                return Err(LandError::Conflict { path: op.path.clone(), why: CHANGED });
            }
        }
        Ok(())
    }

    fn forward(&mut self, at: usize, op: &Op) -> Result<(), LandError> {
        if self.is_done(at, op)? {
            return Ok(());
        }
        self.stop_after.step()?;
        self.try_forward(at, op).map_err(|surprise| match surprise {
            Surprise::At(why) => LandError::Conflict { path: op.path.clone(), why },
            Surprise::System(error) => LandError::File(self.failed(op, error)),
        })
    }

    fn try_forward(&self, at: usize, op: &Op) -> Result<(), Surprise> {
        let held = self.slots.place(&slot(at))?;
        match op.kind {
            OpKind::Create => {
                let place = self.root.place_made(&op.path, |_| 0o777).map_err(|error| blocked(error, GONE))?;
                rename(&held, &place, RenameFlags::NOREPLACE).map_err(|error| blocked(error, STANDS))
            }
            OpKind::Replace => {
                let place = self.root.place(&op.path).map_err(|error| blocked(error, GONE))?;
                exchange_expecting(&held, &place, &op.before)
            }
            OpKind::Delete => {
                let place = self.root.place(&op.path).map_err(|error| blocked(error, GONE))?;
                move_expecting(&place, &held, &op.before)
            }
        }
    }

    /// Takes back everything that was done.
    fn put_back(&mut self) -> Result<(), LandError> {
        self.stop_after.step()?;
        // A full disk may be why everything goes back, and renames need no space. Without the mark a crash from
        // here on is taken for one in the landing, which can be finished as well.
        self.journal.enter(Phase::Undoing).ok();
        let plan = self.journal.plan();
        let (deletions, rest): (Vec<_>, Vec<_>) =
            plan.ops.iter().enumerate().rev().partition(|(_, op)| op.kind == OpKind::Delete);
        let mut paths = Vec::new();
        for (at, op) in rest {
            self.backward(at, op, &mut paths)?;
        }
        for dir in plan.made.iter().rev() {
            self.remove_if_empty(dir)?;
        }
        for (at, op) in deletions {
            self.backward(at, op, &mut paths)?;
        }
        self.sync()?;
        self.stop_after.step()?;
        self.journal.enter(Phase::Undone)?;
        self.journal.clear_work_tree()?;
        if paths.is_empty() { Ok(()) } else { Err(LandError::LeftBehind { paths, kept: plan.slots.clone() }) }
    }

    fn backward(&mut self, at: usize, op: &Op, left: &mut Vec<RepoPath>) -> Result<(), LandError> {
        if !self.is_done(at, op)? {
            return Ok(());
        }
        self.stop_after.step()?;
        match self.try_backward(at, op) {
            Ok(()) => Ok(()),
            Err(Surprise::At(_)) => {
                left.push(op.path.clone());
                Ok(())
            }
            Err(Surprise::System(error)) => Err(LandError::File(self.failed(op, error))),
        }
    }

    fn try_backward(&self, at: usize, op: &Op) -> Result<(), Surprise> {
        let held = self.slots.place(&slot(at))?;
        match op.kind {
            OpKind::Create => {
                let place = self.root.place(&op.path).map_err(|error| blocked(error, GONE))?;
                move_expecting(&place, &held, &op.after)
            }
            OpKind::Replace => {
                let place = self.root.place(&op.path).map_err(|error| blocked(error, GONE))?;
                exchange_expecting(&held, &place, &op.after)
            }
            OpKind::Delete => {
                let modes = &self.journal.plan().dir_modes;
                let mode_of = |dir: &RepoPath| modes.get(dir).copied().unwrap_or(0o777);
                let place = self.root.place_made(&op.path, mode_of).map_err(|error| blocked(error, GONE))?;
                rename(&held, &place, RenameFlags::NOREPLACE).map_err(|error| blocked(error, STANDS))
            }
        }
    }

    fn remove_if_empty(&mut self, dir: &RepoPath) -> Result<(), LandError> {
        self.stop_after.step()?;
        let Ok(place) = self.root.place(dir) else { return Ok(()) };
        // Not empty, or no directory any more: it stays.
        rustix::fs::unlinkat(&place.dir, &place.name, rustix::fs::AtFlags::REMOVEDIR).ok();
        Ok(())
    }

    fn sync(&self) -> Result<(), FileError> {
        let plan = self.journal.plan();
        let parents: BTreeSet<&Path> = plan.ops.iter().filter_map(|op| op.path.as_path().parent()).collect();
        for parent in parents.into_iter().map(|parent| plan.work_tree.join(parent)).filter(|dir| dir.is_dir()) {
            self.journal.sync(&parent)?;
        }
        self.journal.sync(&plan.slots)
    }

    fn failed(&self, op: &Op, error: io::Error) -> FileError {
        let act = match op.kind {
            OpKind::Create => "create",
            OpKind::Replace => "replace",
            OpKind::Delete => "remove",
        };
        FileError::at(act, &self.root.path().join(op.path.as_path()))(error)
    }
}
