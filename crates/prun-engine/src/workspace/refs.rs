//! Reads the refs of a clone as plain files: git is never run in a directory that a worker could write.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::source::is_object_id;
use crate::files::read_regular;

/// The largest `packed-refs` that is read, in bytes.
const MAX_PACKED: u64 = 64 << 20;
/// The deepest directory of loose refs that is looked into.
const MAX_DEPTH: usize = 16;
/// The most loose refs that are read.
const MAX_LOOSE: usize = 10_000;

/// What a clone's git directory says about itself.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct CloneRefs {
    /// The ref that HEAD names; `None` when it names a commit.
    pub(super) branch: Option<String>,
    /// The commit that HEAD leads to.
    pub(super) head: Option<String>,
    /// All refs, full name to object id.
    pub(super) refs: BTreeMap<String, String>,
    /// Entries of the stash.
    pub(super) stashes: usize,
    /// Names of linked worktrees.
    pub(super) worktrees: Vec<String>,
}

/// Reads the clone at `clone`; `None` if its `.git` is no directory any more.
pub(super) fn read(clone: &Path) -> Option<CloneRefs> {
    let git_dir = clone.join(".git");
    if !git_dir.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
        return None;
    }
    let mut refs = parse_packed(&text(&git_dir.join("packed-refs")).unwrap_or_default());
    read_loose(&git_dir.join("refs"), "refs", 0, &mut refs);
    let head = text(&git_dir.join("HEAD")).unwrap_or_default();
    let branch = head.trim_end().strip_prefix("ref: ").map(|name| name.trim().to_owned());
    let commit = match &branch {
        Some(name) => refs.get(name).cloned(),
        None => Some(head.trim_end().to_owned()).filter(|id| is_object_id(id)),
    };
    let stashes = match refs.contains_key("refs/stash") {
        true => text(&git_dir.join("logs/refs/stash")).map_or(1, |log| log.lines().count().max(1)),
        false => 0,
    };
    let worktrees = fs::read_dir(git_dir.join("worktrees")).into_iter().flatten().flatten();
    let worktrees = worktrees.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    Some(CloneRefs { branch, head: commit, refs, stashes, worktrees })
}

/// Refs by name from the text of a `packed-refs` file.
pub(super) fn parse_packed(text: &str) -> BTreeMap<String, String> {
    let entries = text.lines().filter_map(|line| line.split_once(' ')).filter(|(id, _)| is_object_id(id));
    entries.map(|(id, name)| (name.to_owned(), id.to_owned())).collect()
}

/// Loose refs win over packed ones. Links are not followed into directories.
fn read_loose(dir: &Path, name: &str, depth: usize, refs: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if depth > MAX_DEPTH || refs.len() > MAX_LOOSE {
            return;
        }
        let name = format!("{name}/{}", entry.file_name().to_string_lossy());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            read_loose(&entry.path(), &name, depth + 1, refs);
        } else if let Some(id) = text(&entry.path()).map(|text| text.trim().to_owned()).filter(|id| is_object_id(id)) {
            refs.insert(name, id);
        }
    }
}

fn text(path: &Path) -> Option<String> {
    read_regular(path, MAX_PACKED).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}
