//! The record of a landing: everything that will be done, written before anything is done.
//!
//! Each operation has a slot, a file beside the journal. What goes in is prepared there; what comes out is
//! kept there. What a slot holds tells whether its operation was done, so a crash at any point is understood.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::land::LandError;
use super::path::RepoPath;
use super::root::{Root, Seen, link_target};
use crate::files::{Durability, FileError, create_private_dir, sync_dir, sync_files, write_atomically};

/// The version of the journal's format.
pub const JOURNAL_VERSION: u32 = 1;

/// What will be done to the working tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// [`JOURNAL_VERSION`].
    pub version: u32,
    /// The top level that is landed in.
    pub work_tree: PathBuf,
    /// The tree that is landed.
    pub tree: String,
    /// Where the slots are, on the file system of the work tree.
    pub slots: PathBuf,
    /// Deletions first, the deepest first; then the rest.
    pub ops: Vec<Op>,
    /// Directories that were not there before, outermost first.
    pub made: Vec<RepoPath>,
    /// Permission bits of the directories that deletions may empty.
    pub dir_modes: BTreeMap<RepoPath, u32>,
}

/// One operation on one path. Its place in the plan names its slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Op {
    /// The path.
    pub path: RepoPath,
    /// What is done.
    pub kind: OpKind,
    /// What stands there before; never [`Seen::Absent`] but for a creation.
    pub before: Seen,
    /// What stands there after.
    pub after: Seen,
}

/// What is done to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OpKind {
    /// What stands there moves into the slot.
    Delete,
    /// It changes places with the slot.
    Replace,
    /// The slot moves there.
    Create,
}

/// How far a landing has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Everything is in its slot; the work tree is untouched.
    Prepared,
    /// Operations are being done.
    Landing,
    /// All are done.
    Landed,
    /// They are being taken back.
    Undoing,
    /// All are taken back.
    Undone,
}

/// A landing's directory.
#[derive(Clone, Debug)]
pub struct Journal {
    dir: PathBuf,
    plan: Plan,
    durability: Durability,
}

impl Journal {
    /// Writes the plan into `dir`, where [`Journal::filling`] says that the slots are filled.
    pub(super) fn create(dir: &Path, plan: Plan, durability: Durability) -> Result<Self, FileError> {
        let journal = Self { dir: dir.to_owned(), plan, durability };
        let file = journal.dir.join("plan.json");
        let bytes = serde_json::to_vec(&journal.plan).map_err(|e| FileError::at("write", &file)(e.into()))?;
        journal.sync(&Self::filling(dir, &journal.plan))?;
        write_atomically(&file, &bytes, durability)?;
        journal.enter(Phase::Prepared)?;
        Ok(journal)
    }

    /// Opens the landing in `dir`.
    ///
    /// # Errors
    /// There is none, or it is of a newer version.
    pub fn open(dir: &Path, durability: Durability) -> Result<Self, FileError> {
        let file = dir.join("plan.json");
        let bytes = std::fs::read(&file).map_err(FileError::at("read", &file))?;
        let plan: Plan = serde_json::from_slice(&bytes).map_err(|e| FileError::at("read", &file)(e.into()))?;
        if plan.version > JOURNAL_VERSION {
            let what = format!("it is of version {}, newer than this prun", plan.version);
            return Err(FileError::at("read", &file)(io::Error::other(what)));
        }
        Ok(Self { dir: dir.to_owned(), plan, durability })
    }

    /// The landing's directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The plan.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// How far it has come.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn phase(&self) -> Result<Phase, FileError> {
        let file = self.dir.join("phase.json");
        let bytes = std::fs::read(&file).map_err(FileError::at("read", &file))?;
        serde_json::from_slice(&bytes).map_err(|e| FileError::at("read", &file)(e.into()))
    }

    pub(super) fn enter(&self, phase: Phase) -> Result<(), FileError> {
        let file = self.dir.join("phase.json");
        let bytes = serde_json::to_vec(&phase).map_err(|e| FileError::at("write", &file)(e.into()))?;
        write_atomically(&file, &bytes, self.durability)
    }

    /// Makes a directory's entries durable, where that is asked for.
    pub(super) fn sync(&self, dir: &Path) -> Result<(), FileError> {
        match self.durability {
            Durability::Synced => sync_dir(dir),
            Durability::Cached => Ok(()),
        }
    }

    /// Where the slots of a new landing are filled. Those that have to stand in the work tree go there only
    /// for the landing itself.
    pub(super) fn filling(dir: &Path, plan: &Plan) -> PathBuf {
        if plan.slots.starts_with(dir) { plan.slots.clone() } else { dir.join("kept") }
    }

    /// The open slots, brought into the work tree from `kept` where they have to stand there.
    pub(super) fn slots(&self) -> Result<Root, FileError> {
        let kept = self.kept();
        if !self.plan.slots.exists() && kept.exists() {
            let temp = self.plan.slots.with_extension("tmp");
            copy_dir(&kept, &temp, self.durability)?;
            std::fs::rename(&temp, &self.plan.slots).map_err(FileError::at("create", &self.plan.slots))?;
        }
        Root::open(&self.plan.slots)
    }

    /// Takes slots that had to stand in the work tree out of it. They are kept beside the journal.
    pub(super) fn clear_work_tree(&self) -> Result<(), FileError> {
        let slots = &self.plan.slots;
        let half = slots.with_extension("tmp");
        if !slots.starts_with(&self.dir) && half.exists() {
            std::fs::remove_dir_all(&half).map_err(FileError::at("remove", &half))?;
        }
        if slots.starts_with(&self.dir) || !slots.exists() {
            return Ok(());
        }
        let (kept, temp) = (self.kept(), self.dir.join("kept.tmp"));
        copy_dir(slots, &temp, self.durability)?;
        if kept.exists() {
            std::fs::remove_dir_all(&kept).map_err(FileError::at("remove", &kept))?;
        }
        std::fs::rename(&temp, &kept).map_err(FileError::at("create", &kept))?;
        self.sync(&self.dir)?;
        std::fs::remove_dir_all(slots).map_err(FileError::at("remove", slots))
    }

    fn kept(&self) -> PathBuf {
        self.dir.join("kept")
    }
}

/// A slot's name.
pub(super) fn slot(at: usize) -> RepoPath {
    RepoPath::from(format!("{at}").as_str())
}

/// Copies files and links, their permission bits included, and makes them durable together where that is asked for.
pub(super) fn copy_entries(
    pairs: impl IntoIterator<Item = (PathBuf, PathBuf)>,
    durability: Durability,
) -> Result<(), FileError> {
    let mut files = Vec::new();
    for (from, to) in pairs {
        let meta = std::fs::symlink_metadata(&from).map_err(FileError::at("read", &from))?;
        if meta.is_symlink() {
            let target = std::fs::read_link(&from).map_err(FileError::at("read", &from))?;
            std::os::unix::fs::symlink(link_target(target.as_os_str().as_encoded_bytes()), &to)
                .map_err(FileError::at("create", &to))?;
        } else {
            std::fs::copy(&from, &to).map_err(FileError::at("copy", &from))?;
            files.push(to);
        }
    }
    if durability == Durability::Synced { sync_files(&files) } else { Ok(()) }
}

fn copy_dir(from: &Path, to: &Path, durability: Durability) -> Result<(), FileError> {
    if to.exists() {
        std::fs::remove_dir_all(to).map_err(FileError::at("remove", to))?;
    }
    create_private_dir(to)?;
    let mut pairs = Vec::new();
    for entry in std::fs::read_dir(from).map_err(FileError::at("list", from))? {
        let name = entry.map_err(FileError::at("list", from))?.file_name();
        pairs.push((from.join(&name), to.join(&name)));
    }
    copy_entries(pairs, durability)?;
    if durability == Durability::Synced { sync_dir(to) } else { Ok(()) }
}

impl Plan {
    /// Refuses a plan that could not be carried out whole.
    pub(super) fn check(&self, root: &Root) -> Result<(), LandError> {
        let deleted = |path: &RepoPath| self.ops.iter().any(|op| op.kind == OpKind::Delete && op.path == *path);
        for op in self.ops.iter().filter(|op| op.kind == OpKind::Create) {
            if root.see(&op.path)? == Seen::Dir
                && let Some(path) = root.files_below(&op.path)?.into_iter().find(|path| !deleted(path))
            {
                return Err(LandError::Conflict { path, why: "it stands in the way and git does not know it" });
            }
        }
        Ok(())
    }
}
