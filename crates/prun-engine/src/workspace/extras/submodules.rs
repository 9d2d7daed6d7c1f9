//! Submodules: each is a throwaway clone of the user's own checkout of it, without a remote.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::super::clone::{self, ClonePlan, copy_index};
use super::super::source::Source;
use super::super::store::Store;
use super::super::worktree::WorkTree;
use super::super::{Base, WorkspaceError, encode, mirror, refs};
use super::{Extras, TreeEntry, some};
use crate::files::{FileError, create_private_dir, read_regular};
use crate::home::Home;

/// Mode of a submodule in a tree.
const SUBMODULE: &str = "160000";

/// A submodule that a clone can have.
#[derive(Debug)]
pub(super) struct Submodule {
    path: String,
    source: Source,
    base: Base,
}

/// A submodule that a clone was given, for the harvest.
#[derive(Debug, Serialize, Deserialize)]
pub(in super::super) struct Given {
    /// Its path in the clone.
    pub(in super::super) path: String,
    commit: String,
}

/// Submodules whose commit is on this machine: the user has them checked out.
pub(super) fn find(source: &Source, entries: &[TreeEntry], unseen: &mut Vec<String>) -> Vec<Submodule> {
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for entry in entries.iter().filter(|entry| entry.mode == SUBMODULE) {
        match open(source, entry) {
            Some(submodule) => found.push(submodule),
            None => missing.push(encode::lossy(&entry.path)),
        }
    }
    if !missing.is_empty() {
        unseen.push(format!("submodules that are not checked out in the user's repository: {}", some(&missing)));
    }
    found
}

fn open(source: &Source, entry: &TreeEntry) -> Option<Submodule> {
    let path = String::from_utf8(entry.path.clone()).ok()?;
    let top = source.top.join(&path);
    // Without a `.git` of its own the directory belongs to the repository around it.
    top.join(".git").symlink_metadata().ok()?;
    let inner = Source::open(&source.git, &top).ok().filter(|inner| inner.top == top)?;
    let base = inner.resolve(&entry.id).ok()?;
    Some(Submodule { path, source: inner, base })
}

/// Clones each into its empty directory.
pub(super) fn add(
    submodules: &[Submodule],
    home: &Home,
    clone: &Path,
    trusted_index: &Path,
) -> Result<(), WorkspaceError> {
    if submodules.is_empty() {
        return Ok(());
    }
    let place = place(trusted_index);
    create_private_dir(&place)?;
    let mut given = Vec::new();
    for (n, Submodule { path, source, base }) in submodules.iter().enumerate() {
        let dir = clone.join(path);
        fs::remove_dir(&dir).map_err(FileError::at("replace", &dir))?;
        let temp = tempfile::tempdir_in(&place).map_err(FileError::at("create a directory in", &place))?;
        let store = Store::create(&temp.path().join("store.git"), source)?;
        let mirror = mirror::ensure(home, &store, base)?;
        let trusted_index = &index_of(&place, n);
        clone::prepare(&ClonePlan { store: &store, mirror: &mirror, base, dir: &dir, trusted_index, template: None })?;
        Extras::find(source, base, &|args| store.command(args.iter().copied()))?.add(home, &dir, trusted_index)?;
        given.push(Given { path: path.clone(), commit: base.commit.clone() });
    }
    let list = place.join("list.json");
    let text = serde_json::to_vec(&given).expect("plain data with string keys");
    Ok(fs::write(&list, text).map_err(FileError::at("write", &list))?)
}

/// The submodules that a clone was given.
pub(in super::super) fn given(trusted_index: &Path) -> Vec<Given> {
    let list = read_regular(&place(trusted_index).join("list.json"), 16 << 20);
    list.ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
}

/// What became of them: a tree cannot carry it, so it is told.
pub(in super::super) fn changes(
    given: &[Given],
    work_tree: &WorkTree<'_>,
    trusted_index: &Path,
) -> Result<Vec<String>, WorkspaceError> {
    let mut said = Vec::new();
    for (n, Given { path, commit }) in given.iter().enumerate() {
        let dir = work_tree.dir.join(path);
        if !dir.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
            continue;
        }
        let index = work_tree.quarantine.file(&format!("module-{n}"));
        copy_index(&index_of(&place(trusted_index), n), &index)?;
        let listing = WorkTree { quarantine: work_tree.quarantine, index, dir: &dir }.list()?;
        let paths = [&listing.modified, &listing.deleted, &listing.untracked].into_iter().flatten();
        let paths: Vec<String> = paths.map(|path| encode::lossy(path)).collect();
        if !paths.is_empty() {
            said.push(format!("changes in the submodule {path}: {}", some(&paths)));
        }
        if refs::read(&dir).is_none_or(|clone| clone.head.as_deref() != Some(commit)) {
            said.push(format!("commits in the submodule {path}"));
        }
    }
    Ok(said)
}

fn place(trusted_index: &Path) -> PathBuf {
    trusted_index.with_extension("modules")
}

fn index_of(place: &Path, n: usize) -> PathBuf {
    place.join(format!("{n}.index"))
}
