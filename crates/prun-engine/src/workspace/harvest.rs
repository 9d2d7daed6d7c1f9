//! Takes what a unit left in its workspace, as a tree in the run's store.
//!
//! The workspace is a heap of files here: its git directory is read as plain files for the report, and decides
//! nothing. Committed, staged, unstaged and untracked work are all alike.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use prun_core::outcome::{ChangeKind, Changes, FileChange};

use super::clone::{copy_index, trusted_refs};
use super::extras::submodules;
use super::refs::{self, CloneRefs};
use super::store::{Quarantine, Store};
use super::worktree::{Listing, WorkTree};
use super::{WorkspaceError, encode, ignored};
use crate::files::read_regular;
use crate::git::Git;
use crate::spec::HarvestSpec;

/// The most refs that are listed by name.
const MAX_REFS: usize = 50;

/// Bytes above which a new file stays where it is: no review reads it, and every later clone would carry it.
const MAX_NEW_FILE: u64 = 100 << 20;
/// The most ignored paths that are listed by name.
const MAX_IGNORED: usize = 10;

/// A workspace that could not be harvested.
#[derive(Debug, thiserror::Error)]
pub enum HarvestError {
    /// The work tree is not there, or something else took its place.
    #[error("cannot harvest {}: it is no directory", .0.display())]
    NoWorkTree(std::path::PathBuf),
    /// Git, a file operation or the store failed.
    #[error("cannot harvest {}: {source}", path.display())]
    Failed {
        /// The work tree.
        path: std::path::PathBuf,
        /// What failed.
        source: WorkspaceError,
    },
}

/// Takes the changes of a workspace. It may be done again after a person edited there.
///
/// # Errors
/// The work tree is gone, a changed file cannot be read, or git fails. The store is unchanged then.
pub fn harvest(git: &Git, spec: &HarvestSpec) -> Result<Changes, HarvestError> {
    if !spec.work_tree.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
        return Err(HarvestError::NoWorkTree(spec.work_tree.clone()));
    }
    take(git, spec).map_err(|source| HarvestError::Failed { path: spec.work_tree.clone(), source })
}

/// Writing compares with the mirror, to which workers have access, and which may hold objects that the user's
/// repository has dropped since. A tree that is not complete without it is taken again, without it.
fn take(git: &Git, spec: &HarvestSpec) -> Result<Changes, WorkspaceError> {
    let store = Store::open(git, &spec.store)?;
    take_by(&store, store.quarantine()?, spec).or_else(|_| take_by(&store, store.quarantine()?.without_mirror(), spec))
}

fn take_by(store: &Store, quarantine: Quarantine<'_>, spec: &HarvestSpec) -> Result<Changes, WorkspaceError> {
    let work_tree = WorkTree { quarantine: &quarantine, index: quarantine.file("index"), dir: &spec.work_tree };
    copy_index(&spec.trusted_index, &work_tree.index)?;
    let mut listing = work_tree.list()?;
    listing.remove(|path| is_own(&spec.exclude, path));
    let mut unseen = leave_out_large(&spec.work_tree, &mut listing);
    let mut by_rules = ignored::apply(store, &work_tree, &mut listing)?;
    by_rules.extend(ignored::forced(&work_tree)?);
    if by_rules.is_empty() {
        by_rules.extend(ignored_files(&work_tree, &spec.exclude)?);
    }
    unseen.extend(by_rules);
    let mut tree = spec.base_tree.clone();
    if !listing.is_empty() {
        unseen.extend(work_tree.take(&listing)?);
        tree = work_tree.write_tree()?;
    }
    unseen.append(&mut listing.closed);
    unseen.extend(listing.nested.iter().map(|path| format!("nested repository {}", encode::lossy(path))));
    let given = submodules::given(&spec.trusted_index);
    unseen.extend(submodules::changes(&given, &work_tree, &spec.trusted_index)?);
    let filled = work_tree.filled_submodules()?.into_iter();
    let others = filled.filter(|path| given.iter().all(|given| given.path != *path));
    unseen.extend(others.map(|path| format!("content of the submodule {path}")));
    unseen.extend(special_files(spec, &listing.deleted));
    let clone = refs::read(&spec.work_tree);
    unseen.extend(clone.as_ref().map_or_else(|| vec!["its .git is gone".to_owned()], |clone| other_refs(spec, clone)));
    quarantine.admit()?;
    let files = compare(store, &spec.base_tree, &tree)?;
    let head_moved = clone.is_none_or(|clone| clone.head.as_deref() != Some(spec.base.as_str()));
    Ok(Changes { tree, base_tree: spec.base_tree.clone(), files, unseen, head_moved })
}

/// Every path in which two trees differ, with the counted lines. Reads every object in which they differ, so
/// it also proves that they are complete.
///
/// # Errors
/// Git fails; a tree is not there, or not complete.
pub fn compare(store: &Store, base_tree: &str, tree: &str) -> Result<Vec<FileChange>, WorkspaceError> {
    if base_tree == tree {
        return Ok(Vec::new());
    }
    let output = store
        .command(["diff-tree", "-r", "-z", "--raw", "--numstat", "--no-renames", "--no-ext-diff", "--no-textconv"])
        .args(["--ignore-submodules=none", base_tree, tree])
        .run()?;
    parse_changes(output.fields()).ok_or_else(|| WorkspaceError::unexpected("diff-tree", encode::lossy(&output.stdout)))
}

/// Reads `diff-tree -z --raw --numstat`: all raw records (two fields each), then all counts.
fn parse_changes<'a>(fields: impl Iterator<Item = &'a [u8]>) -> Option<Vec<FileChange>> {
    let mut fields = fields.peekable();
    let mut kinds: Vec<(&[u8], ChangeKind)> = Vec::new();
    while let Some(meta) = fields.next_if(|field| field.starts_with(b":")) {
        let kind = match meta.last()? {
            b'A' => ChangeKind::Added,
            b'D' => ChangeKind::Deleted,
            b'T' => ChangeKind::TypeChanged,
            _ => ChangeKind::Modified,
        };
        kinds.push((fields.next()?, kind));
    }
    let mut counts: BTreeMap<&[u8], (Option<u64>, Option<u64>)> = BTreeMap::new();
    for field in fields {
        let mut parts = field.splitn(3, |byte| *byte == b'\t');
        let mut count = || Some(encode::lossy(parts.next()?).parse::<u64>().ok());
        let (added, removed) = (count()?, count()?);
        counts.insert(parts.next()?, (added, removed));
    }
    let change = |(path, kind): (&[u8], ChangeKind)| {
        let (added, removed) = counts.get(path).copied().unwrap_or((None, None));
        FileChange { path: encode::lossy(path), kind, added, removed }
    };
    Some(kinds.into_iter().map(change).collect())
}

/// New files that are too large; a tracked one that grew is taken as any other.
fn leave_out_large(work_tree: &Path, listing: &mut Listing) -> Vec<String> {
    let size = |path: &[u8]| {
        work_tree
            .join(encode::path(path))
            .symlink_metadata()
            .ok()
            .filter(std::fs::Metadata::is_file)
            .map_or(0, |it| it.len())
    };
    let large: Vec<Vec<u8>> = listing.untracked.iter().filter(|path| size(path) > MAX_NEW_FILE).cloned().collect();
    listing.untracked.retain(|path| !large.contains(path));
    large.iter().map(|path| format!("{} is larger than {} MiB", encode::lossy(path), MAX_NEW_FILE >> 20)).collect()
}

/// What the rules ignore: it stays in the workspace. A directory stands for all that is in it.
fn ignored_files(work_tree: &WorkTree<'_>, exclude: &[String]) -> Result<Option<String>, WorkspaceError> {
    let listed =
        work_tree.git(["ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory"]).run()?;
    let names: Vec<String> = listed.fields().filter(|path| !is_own(exclude, path)).map(encode::lossy).collect();
    if names.is_empty() {
        return Ok(None);
    }
    let more =
        if names.len() > MAX_IGNORED { format!(" and {} more", names.len() - MAX_IGNORED) } else { String::new() };
    let first = names.iter().take(MAX_IGNORED).map(String::as_str).collect::<Vec<_>>().join(", ");
    Ok(Some(format!("ignored: {first}{more}")))
}

fn is_own(exclude: &[String], path: &[u8]) -> bool {
    exclude.iter().any(|own| {
        let own = own.trim_end_matches('/').as_bytes();
        path.strip_prefix(own).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
    })
}

/// Tracked paths at which there is now something that no tree can hold.
fn special_files(spec: &HarvestSpec, deleted: &BTreeSet<Vec<u8>>) -> Vec<String> {
    let is_special = |path: &&Vec<u8>| {
        let meta = spec.work_tree.join(encode::path(path)).symlink_metadata();
        meta.is_ok_and(|meta| !meta.is_dir() && !meta.is_file() && !meta.is_symlink())
    };
    deleted.iter().filter(is_special).map(|path| format!("special file {}", encode::lossy(path))).collect()
}

/// Branches, tags, stashes and worktrees that the unit made or moved. The branch it is on shows in the tree.
fn other_refs(spec: &HarvestSpec, clone: &CloneRefs) -> Vec<String> {
    let prepared = read_regular(&trusted_refs(&spec.trusted_index), 64 << 20).unwrap_or_default();
    let prepared = refs::parse_packed(&encode::lossy(&prepared));
    let changed = clone.refs.iter().filter(|(name, id)| {
        prepared.get(*name) != Some(id) && Some(*name) != clone.branch.as_ref() && *name != "refs/stash"
    });
    let mut said: Vec<String> = changed.take(MAX_REFS).map(|(name, _)| describe(name)).collect();
    if clone.stashes > 0 {
        said.push(format!(
            "{} stashed",
            if clone.stashes == 1 { "1 change".to_owned() } else { format!("{} changes", clone.stashes) }
        ));
    }
    said.extend(clone.worktrees.iter().map(|name| format!("linked worktree {name}")));
    said
}

fn describe(name: &str) -> String {
    if let Some(branch) = name.strip_prefix("refs/heads/") {
        format!("branch {branch}")
    } else if let Some(tag) = name.strip_prefix("refs/tags/") {
        format!("tag {tag}")
    } else {
        format!("ref {name}")
    }
}

#[cfg(test)]
mod tests;
