//! Which ignore rules count in a harvest: the base's and the user's own.
//!
//! What the base ignores stays out, also if the unit rewrote the rules. What only the unit's own rules ignore
//! stays out too, but is listed: a unit must not be able to hide its work unseen.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::store::Store;
use super::worktree::{Listing, WorkTree};
use super::{WorkspaceError, encode};
use crate::files::FileError;

/// The most paths of one kind that are listed by name.
const MAX_LISTED: usize = 20;

/// Applies the rules to `listing` and returns what is to be said about it. Where the unit changed no
/// `.gitignore`, git has applied the right ones already. The index must still be that of the base.
pub(super) fn apply(
    store: &Store,
    work_tree: &WorkTree<'_>,
    listing: &mut Listing,
) -> Result<Vec<String>, WorkspaceError> {
    let is_rules = |path: &Vec<u8>| path == b".gitignore" || path.ends_with(b"/.gitignore");
    let changed = [&listing.modified, &listing.deleted, &listing.untracked];
    if !changed.into_iter().any(|paths| paths.iter().any(is_rules)) {
        return Ok(Vec::new());
    }
    let rules = work_tree.quarantine.file("rules");
    write_base_rules(store, work_tree, &rules)?;
    let ignored_by_base = |paths: &BTreeSet<Vec<u8>>| check(store, &rules, paths);
    let uncovered = ignored_by_base(&listing.untracked)?;
    listing.untracked.retain(|path| !uncovered.contains(path));
    let hidden = ignored_now(work_tree)?;
    let by_base = ignored_by_base(&hidden)?;
    let hidden: BTreeSet<Vec<u8>> = hidden.difference(&by_base).cloned().collect();
    let mut said = named("ignored by the base, no longer by the unit's own .gitignore", &uncovered);
    said.extend(named("ignored only by the unit's own .gitignore", &hidden));
    Ok(said)
}

/// Files that the unit's own git tracks although they are ignored: it added them by force, and they stay out. Its
/// index is only data here; one that git cannot read tells nothing. The other index must still be that of the base.
pub(super) fn forced(work_tree: &WorkTree<'_>) -> Result<Vec<String>, WorkspaceError> {
    let theirs = work_tree.dir.join(".git/index");
    if !theirs.symlink_metadata().is_ok_and(|meta| meta.is_file()) {
        return Ok(Vec::new());
    }
    let copy = work_tree.quarantine.file("their.index");
    fs::copy(&theirs, &copy).map_err(FileError::at("copy", &theirs))?;
    let list = || work_tree.git(["ls-files", "-z", "--cached", "--ignored", "--exclude-standard"]);
    let listed = list().index(&copy).run_accepting(&[0, 128])?;
    let mut forced: BTreeSet<Vec<u8>> = listed.fields().map(<[u8]>::to_owned).collect();
    if !forced.is_empty() {
        let base = list().run()?;
        base.fields().for_each(|path| drop(forced.take(path)));
    }
    Ok(named("added by force although ignored", &forced))
}

/// Files that the rules in the work tree ignore.
fn ignored_now(work_tree: &WorkTree<'_>) -> Result<BTreeSet<Vec<u8>>, WorkspaceError> {
    let listed = work_tree.git(["ls-files", "-z", "--others", "--ignored", "--exclude-standard"]).run()?;
    Ok(listed.fields().map(<[u8]>::to_owned).collect())
}

/// The subset of `paths` that the rules in the directory `rules` ignore.
fn check(store: &Store, rules: &Path, paths: &BTreeSet<Vec<u8>>) -> Result<BTreeSet<Vec<u8>>, WorkspaceError> {
    if paths.is_empty() {
        return Ok(BTreeSet::new());
    }
    // The dot keeps a name that starts with a colon from being taken for a pattern.
    let asked: Vec<Vec<u8>> = paths.iter().map(|path| [b"./", path.as_slice()].concat()).collect();
    let output = store
        .command(["check-ignore", "-z", "--stdin", "--no-index"])
        .work_tree(rules)
        .dir(rules)
        .input(encode::nul_list(asked.iter().map(Vec::as_slice)))
        .run_accepting(&[0, 1])?;
    Ok(output.fields().filter_map(|path| path.strip_prefix(b"./")).map(<[u8]>::to_owned).collect())
}

/// Writes the `.gitignore` files of the base, and nothing else, into the directory `dir`.
fn write_base_rules(store: &Store, work_tree: &WorkTree<'_>, dir: &Path) -> Result<(), WorkspaceError> {
    fs::create_dir_all(dir).map_err(FileError::at("create", dir))?;
    let listed = work_tree.git(["ls-files", "-z", "--", ":(glob)**/.gitignore"]).run()?;
    if !listed.stdout.is_empty() {
        let write = store.command(["checkout-index", "-z", "--stdin"]).index(&work_tree.index);
        write.work_tree(dir).dir(dir).input(listed.stdout).run()?;
    }
    Ok(())
}

/// Lines for a report: how many, then the first by name.
fn named(what: &str, paths: &BTreeSet<Vec<u8>>) -> Vec<String> {
    if paths.is_empty() {
        return Vec::new();
    }
    let count = format!("{} {} {what}", paths.len(), if paths.len() == 1 { "file" } else { "files" });
    let names = paths.iter().take(MAX_LISTED).map(|path| format!("{what}: {}", encode::lossy(path)));
    std::iter::once(count).chain(names).collect()
}
