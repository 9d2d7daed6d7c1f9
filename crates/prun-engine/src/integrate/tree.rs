//! Trees as changes against another tree, and trees put together from such changes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::path::RepoPath;
use super::quarantine::Quarantine;
use crate::git::GitError;

/// The mode of a symbolic link in a tree.
pub const LINK: u32 = 0o120_000;
/// The mode of a submodule in a tree.
pub const GITLINK: u32 = 0o160_000;

/// What a tree holds at a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// `0o100644`, `0o100755`, [`LINK`] or [`GITLINK`].
    pub mode: u32,
    /// The object id.
    pub oid: String,
}

impl Entry {
    /// A file, a link and a submodule are different types; the executable bit is not.
    #[must_use]
    pub fn file_type(&self) -> u32 {
        self.mode & 0o170_000
    }
}

/// One changed path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// What was there.
    pub old: Option<Entry>,
    /// What is there.
    pub new: Option<Entry>,
}

/// The changed paths between two trees.
pub type TreeChanges = BTreeMap<RepoPath, Change>;

/// The changes that lead from tree `old` to tree `new`. A rename is a deletion and an addition.
///
/// # Errors
/// A tree is missing or damaged.
pub fn changes(quarantine: &Quarantine, old: &str, new: &str) -> Result<TreeChanges, GitError> {
    if old == new {
        return Ok(TreeChanges::new());
    }
    Ok(changes_of_each(quarantine, old, [new])?.pop().unwrap_or_default())
}

/// As [`changes`] for several trees, by one process.
///
/// # Errors
/// A tree is missing or damaged.
pub fn changes_of_each<'a>(
    quarantine: &Quarantine,
    old: &str,
    trees: impl IntoIterator<Item = &'a str>,
) -> Result<Vec<TreeChanges>, GitError> {
    let pairs: String = trees.into_iter().map(|new| format!("{old} {new}\n")).collect();
    let args = ["diff-tree", "--stdin", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", "--ignore-submodules=none"];
    let output = quarantine.bare(args).input(pairs.clone()).run()?;
    let found = parse_pairs(&output.stdout).ok_or_else(|| unexpected("diff-tree", &output.stdout))?;
    if found.len() == pairs.lines().count() { Ok(found) } else { Err(unexpected("diff-tree", &output.stdout)) }
}

/// For each pair of trees a line with their ids, then `:<meta>\0<path>\0` for each change.
fn parse_pairs(mut rest: &[u8]) -> Option<Vec<TreeChanges>> {
    let mut found: Vec<TreeChanges> = Vec::new();
    while let Some(first) = rest.first() {
        if *first == b':' {
            let (meta, after) = split_at(rest, 0)?;
            let (path, after) = split_at(after, 0)?;
            found.last_mut()?.insert(RepoPath::new(path), parse_raw(meta)?);
            rest = after;
        } else {
            rest = split_at(rest, b'\n')?.1;
            found.push(TreeChanges::new());
        }
    }
    Some(found)
}

fn split_at(bytes: &[u8], end: u8) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|byte| *byte == end)?;
    Some((&bytes[..at], &bytes[at + 1..]))
}

/// One `:<mode> <mode> <oid> <oid> <letter>`.
fn parse_raw(meta: &[u8]) -> Option<Change> {
    let text = std::str::from_utf8(meta).ok()?.strip_prefix(':')?;
    let mut words = text.split(' ');
    let (old_mode, new_mode) = (words.next()?, words.next()?);
    let (old, new) = (words.next()?, words.next()?);
    let entry = |mode: &str, oid: &str| {
        let mode = u32::from_str_radix(mode, 8).ok()?;
        Some((mode != 0).then(|| Entry { mode, oid: oid.to_owned() }))
    };
    Some(Change { old: entry(old_mode, old)?, new: entry(new_mode, new)? })
}

pub(super) fn unexpected(act: &str, what: &[u8]) -> GitError {
    let what = String::from_utf8_lossy(what).chars().take(200).collect();
    GitError::Unexpected { act: act.to_owned(), what }
}

/// The paths of a tree that an index does not hold.
///
/// # Errors
/// The tree or the index is missing or damaged.
pub(super) fn missing_in_index(
    quarantine: &Quarantine,
    tree: &str,
    index: &Path,
) -> Result<BTreeSet<RepoPath>, GitError> {
    let args = ["diff-index", "--cached", "--name-only", "-z", "--diff-filter=D", "--no-renames", tree];
    let output = quarantine.bare(args).index(index).run()?;
    Ok(output.fields().map(RepoPath::new).collect())
}

/// Every path of a tree.
///
/// # Errors
/// The tree is missing or damaged.
pub fn paths(quarantine: &Quarantine, tree: &str) -> Result<BTreeSet<RepoPath>, GitError> {
    let output = quarantine.bare(["ls-tree", "-r", "-z", "--name-only", "--full-tree", tree]).run()?;
    Ok(output.fields().map(RepoPath::new).collect())
}

/// What a tree holds at the paths that `wanted` picks.
///
/// # Errors
/// The tree is missing or damaged.
pub fn entries(
    quarantine: &Quarantine,
    tree: &str,
    wanted: impl Fn(&RepoPath) -> bool,
) -> Result<BTreeMap<RepoPath, Entry>, GitError> {
    let output = quarantine.bare(["ls-tree", "-r", "-z", "--full-tree", tree]).run()?;
    let mut found = BTreeMap::new();
    for field in output.fields() {
        let (meta, path) = split_at(field, b'\t').ok_or_else(|| unexpected("ls-tree", field))?;
        let path = RepoPath::new(path);
        if wanted(&path) {
            let entry = parse_listed(meta).ok_or_else(|| unexpected("ls-tree", field))?;
            found.insert(path, entry);
        }
    }
    Ok(found)
}

/// One `<mode> <type> <oid>`.
fn parse_listed(meta: &[u8]) -> Option<Entry> {
    let mut words = std::str::from_utf8(meta).ok()?.split(' ');
    let mode = u32::from_str_radix(words.next()?, 8).ok()?;
    Some(Entry { mode, oid: words.nth(1)?.to_owned() })
}

/// The tree that `changes` make of `base`, by index operations alone: nothing is merged.
///
/// # Errors
/// An object is missing, or git refuses a path.
pub fn splice<'a>(
    quarantine: &Quarantine,
    base: &str,
    changes: impl IntoIterator<Item = (&'a RepoPath, Option<&'a Entry>)>,
) -> Result<String, GitError> {
    let index = quarantine.scratch_file("splice.index");
    quarantine.bare(["read-tree", base]).index(&index).run()?;
    change_index(quarantine, &index, base.len(), changes)?;
    Ok(quarantine.bare(["write-tree", "--missing-ok"]).index(&index).run()?.text())
}

/// Changes entries of an index, which may be a new one, by their names alone. `digits` is the length of an object id.
///
/// # Errors
/// Git refuses a path.
pub(super) fn change_index<'a>(
    quarantine: &Quarantine,
    index: &Path,
    digits: usize,
    changes: impl IntoIterator<Item = (&'a RepoPath, Option<&'a Entry>)>,
) -> Result<(), GitError> {
    let (mut removals, mut additions) = (Vec::new(), Vec::new());
    let zero = "0".repeat(digits);
    for (path, entry) in changes {
        match entry {
            None => index_line(&mut removals, 0, &zero, path),
            Some(entry) => index_line(&mut additions, entry.mode, &entry.oid, path),
        }
    }
    // A directory that became a file must lose its entries first.
    removals.append(&mut additions);
    if !removals.is_empty() {
        quarantine.bare(["update-index", "-z", "--index-info"]).index(index).input(removals).run()?;
    }
    Ok(())
}

fn index_line(lines: &mut Vec<u8>, mode: u32, oid: &str, path: &RepoPath) {
    lines.extend_from_slice(format!("{mode:o} {oid}\t").as_bytes());
    lines.extend_from_slice(path.as_bytes());
    lines.push(0);
}

/// What git prints or reads for a list of paths with `-z`.
#[must_use]
pub(super) fn nul_list<'a>(paths: impl IntoIterator<Item = &'a RepoPath>) -> Vec<u8> {
    let mut list = Vec::new();
    for path in paths {
        list.extend_from_slice(path.as_bytes());
        list.push(0);
    }
    list
}
