//! Uncommitted work in the user's repository: what there is, and how it is carried into a base.
//!
//! Everything works on a copy of the user's index, so git has no reason to write theirs.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::clone::copy_index;
use super::mirror;
use super::source::{Source, SourceError};
use super::store::{Quarantine, Store};
use super::worktree::WorkTree;
use super::{Base, WorkspaceError, encode};
use crate::files::FileError;
use crate::home::Home;

/// Uncommitted work, sorted, relative to the top of the work tree, lossy where not UTF-8.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dirty {
    /// Tracked files with uncommitted changes, and untracked files that are not ignored.
    pub paths: Vec<String>,
    /// Untracked repositories inside the work tree, which cannot be carried.
    pub nested: Vec<String>,
}

/// What is dirty could not be told.
#[derive(Debug, thiserror::Error)]
pub enum DirtyError {
    /// The repository cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The temporary store failed.
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
}

impl Source {
    /// Finds the uncommitted work, without a trace in the repository. `ignore` are absolute paths of files or
    /// directories that never count: the plan, the prompts, prun's home.
    ///
    /// # Errors
    /// Git fails, or there is no room for a copy of the index in the temporary directory.
    pub fn dirty(&self, ignore: &[PathBuf]) -> Result<Dirty, DirtyError> {
        let temp = tempfile::tempdir().map_err(FileError::at("create a directory in", &std::env::temp_dir()));
        let temp = temp.map_err(WorkspaceError::from)?;
        find(self, &Store::create(&temp.path().join("store.git"), self)?, ignore)
    }
}

/// Finds the uncommitted work by way of a store that is there already.
///
/// # Errors
/// As [`Source::dirty`].
pub fn find(source: &Source, store: &Store, ignore: &[PathBuf]) -> Result<Dirty, DirtyError> {
    if source.is_bare {
        return Ok(Dirty::default());
    }
    let quarantine = store.quarantine()?;
    let work_tree = open(source, &quarantine)?;
    let head = source.resolve("HEAD")?;
    // Exit code 1 says that something needs an update, which is what is asked next.
    reading(store, &work_tree, ["update-index", "-q", "--refresh"])
        .run_accepting(&[0, 1])
        .map_err(WorkspaceError::from)?;
    let changed = reading(store, &work_tree, ["diff-index", "-z", "--name-only", "--ignore-submodules=dirty"])
        .args([head.tree.as_str(), "--"])
        .run()
        .map_err(WorkspaceError::from)?;
    let mut listing = work_tree.list().map_err(WorkspaceError::from)?;
    listing.untracked.extend(changed.fields().map(<[u8]>::to_owned));
    listing.remove(is_ignored(source, ignore));
    let texts = |paths: &BTreeSet<Vec<u8>>| paths.iter().map(|path| encode::lossy(path)).collect();
    Ok(Dirty { paths: texts(&listing.untracked), nested: texts(&listing.nested) })
}

/// Makes a base of `base` and the uncommitted work: a commit in the store, whose parent is `base`. The same work
/// gives the same commit. Fills the mirror with `base` on the way, because that is what writing compares with.
///
/// # Errors
/// `base` is not HEAD and both changed the same files; git or a file operation fails.
pub fn snapshot(
    home: &Home,
    source: &Source,
    store: &Store,
    base: &Base,
    ignore: &[PathBuf],
) -> Result<Base, DirtyError> {
    mirror::ensure(home, store, base)?;
    let head = source.resolve("HEAD")?;
    let quarantine = store.quarantine()?;
    let work_tree = open(source, &quarantine)?;
    let mut listing = work_tree.list().map_err(WorkspaceError::from)?;
    listing.remove(is_ignored(source, ignore));
    work_tree.take(&listing)?;
    let commit = commit(store, &quarantine, &work_tree, base, &head)?;
    quarantine.admit()?;
    Ok(store.base(&commit)?)
}

fn commit(
    store: &Store,
    quarantine: &Quarantine<'_>,
    work_tree: &WorkTree<'_>,
    base: &Base,
    head: &Base,
) -> Result<String, WorkspaceError> {
    let here = work_tree.write_tree()?;
    let tree = if base.tree == head.tree { here } else { onto(store, quarantine, base, head, &here)? };
    let date = store.command(["show", "-s", "--format=%ct +0000", base.commit.as_str()]).run()?.text();
    let commit = quarantine
        .command(["commit-tree", tree.as_str(), "-p", base.commit.as_str(), "-m", "Uncommitted work"])
        .env("GIT_AUTHOR_DATE", format!("@{date}"))
        .env("GIT_COMMITTER_DATE", format!("@{date}"))
        .run()?;
    Ok(commit.text())
}

/// Puts what leads from HEAD to the tree `here` onto another base.
fn onto(
    store: &Store,
    quarantine: &Quarantine<'_>,
    base: &Base,
    head: &Base,
    here: &str,
) -> Result<String, WorkspaceError> {
    let theirs =
        store.command(["diff-tree", "-r", "-z", "--name-only", "--no-renames", &head.tree, &base.tree]).run()?;
    let theirs: BTreeSet<&[u8]> = theirs.fields().collect();
    let work = quarantine
        .command(["diff-tree", "-r", "-z", "--raw", "--full-index", "--no-renames", &head.tree, here])
        .run()?;
    let (mut lines, mut both) = (Vec::new(), Vec::new());
    let mut fields = work.fields();
    while let (Some(meta), Some(path)) = (fields.next(), fields.next()) {
        if theirs.contains(path) {
            both.push(encode::lossy(path));
        }
        let mut words = meta.split(|byte| *byte == b' ').skip(1);
        let (mode, _, id) = (words.next(), words.next(), words.next());
        lines.push([mode.unwrap_or_default(), b" ", id.unwrap_or_default(), b"\t", path, b"\0"].concat());
    }
    if !both.is_empty() {
        both.truncate(10);
        return Err(WorkspaceError::DirtyOnOtherBase { base: base.commit.clone(), paths: both });
    }
    let index = quarantine.file("onto.index");
    quarantine.command(["read-tree", base.tree.as_str()]).index(&index).run()?;
    quarantine.command(["update-index", "-z", "--index-info"]).index(&index).input(lines.concat()).run()?;
    Ok(quarantine.command(["write-tree", "--missing-ok"]).index(&index).run()?.text())
}

/// The user's work tree with a copy of their index. A split index has a second part, which git looks for in the
/// git directory that it is told.
fn open<'a>(source: &'a Source, quarantine: &'a Quarantine<'a>) -> Result<WorkTree<'a>, WorkspaceError> {
    let index = quarantine.file("index");
    let theirs = source.git_dir.join("index");
    if theirs.exists() {
        copy_index(&theirs, &index)?;
    }
    for entry in fs::read_dir(&source.git_dir).into_iter().flatten().flatten() {
        if entry.file_name().as_encoded_bytes().starts_with(b"sharedindex.") {
            let to = quarantine.store().git_dir.join(entry.file_name());
            fs::copy(entry.path(), &to).map_err(FileError::at("copy", &entry.path()))?;
        }
    }
    Ok(WorkTree { quarantine, index, dir: &source.top })
}

/// A command on the work tree that sees the user's objects, and so must write none.
fn reading<'a>(
    store: &Store,
    work_tree: &WorkTree<'_>,
    args: impl IntoIterator<Item = &'a str>,
) -> crate::git::GitCommand {
    store.command(args).work_tree(work_tree.dir).index(&work_tree.index).dir(work_tree.dir)
}

fn is_ignored(source: &Source, ignore: &[PathBuf]) -> impl Fn(&[u8]) -> bool {
    let real = |path: &PathBuf| path.canonicalize().unwrap_or_else(|_| path.clone());
    let own: Vec<PathBuf> =
        ignore.iter().map(real).filter_map(|path| Some(path.strip_prefix(&source.top).ok()?.to_owned())).collect();
    move |path| own.iter().any(|own| Path::new(&encode::path(path)).starts_with(own))
}
