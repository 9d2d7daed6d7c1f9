//! The user's side: the working tree as it is now, as a tree.
//!
//! A copy of the user's index finds out what is tracked and what changed; nothing of the user's is written,
//! not even the index's own cache of file times. Untracked files count only where a unit touches their path,
//! or where the base carried them.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::PathBuf;

use super::path::RepoPath;
use super::quarantine::{Quarantine, Target};
use super::root::{Root, Seen};
use super::tree::{GITLINK, changes, missing_in_index, nul_list, paths, unexpected};
use super::{IntegrateError, Refusal};
use crate::files::FileError;
use crate::git::GitError;

/// The working tree at one moment.
#[derive(Clone, Debug)]
pub struct WorkingTree {
    /// As a tree in the quarantine.
    pub tree: String,
    /// What stood at the paths that were asked for, to the byte.
    pub seen: BTreeMap<RepoPath, Seen>,
    /// Paths of these that a sparse checkout left out.
    pub sparse: BTreeSet<RepoPath>,
    /// Paths of these that differ from the last commit: they hold work of the user's own.
    pub own: BTreeSet<RepoPath>,
}

/// An entry of the user's index.
struct Indexed {
    mode: u32,
    assumed: bool,
    skipped: bool,
}

type Index = BTreeMap<RepoPath, Indexed>;

/// Reads the working tree. `asked` are the paths that must be right to the byte.
///
/// # Errors
/// Git fails, a file cannot be read, or one changed while it was read.
pub fn read_working_tree(
    quarantine: &Quarantine,
    target: &Target,
    base_tree: &str,
    asked: &BTreeSet<RepoPath>,
) -> Result<WorkingTree, IntegrateError> {
    let root = Root::open(&target.work_tree)?;
    let copy = copy_index(quarantine, target)?;
    let index = list_index(quarantine, target, &copy)?;
    let mut wanted = asked.clone();
    wanted.extend(missing_in_index(quarantine, base_tree, &copy)?);
    wanted.extend(obstacles(&root, asked)?);
    let seen = see_all(&root, asked)?;
    clear_flags(quarantine, target, &copy, &root, &index, &wanted)?;
    let changed = changed_files(quarantine, target, &copy)?;
    wanted.extend(changed);
    take(quarantine, target, &copy, &root, &index, &wanted)?;
    if let Some((path, _)) = see_all(&root, asked)?.into_iter().find(|(path, now)| seen[path] != *now) {
        return Err(IntegrateError::Moving { path });
    }
    let tree = quarantine.beside(&target.work_tree, ["write-tree", "--missing-ok"]).index(&copy).run()?.text();
    let own = uncommitted(quarantine, target, &tree, asked)?;
    let sparse = asked.iter().filter(|path| is_sparse(&index, path, &seen[*path])).cloned().collect();
    Ok(WorkingTree { tree, seen, sparse, own })
}

fn is_sparse(index: &Index, path: &RepoPath, seen: &Seen) -> bool {
    *seen == Seen::Absent && index.get(path).is_some_and(|entry| entry.skipped)
}

/// Paths that differ from the last commit.
fn uncommitted(
    quarantine: &Quarantine,
    target: &Target,
    tree: &str,
    asked: &BTreeSet<RepoPath>,
) -> Result<BTreeSet<RepoPath>, IntegrateError> {
    let command = quarantine.git().command(["rev-parse", "--verify", "--quiet", "HEAD^{tree}"]);
    let head = command.git_dir(&target.git_dir).run_accepting(&[0, 1])?.text();
    let held = if head.is_empty() {
        paths(quarantine, tree)?
    } else {
        changes(quarantine, &head, tree)?.into_keys().collect()
    };
    Ok(asked.intersection(&held).cloned().collect())
}

/// Copies the index with its time: entries as young as the index itself are compared by content, and a
/// younger copy would hide an edit made in the same tick. Parts of a split index are copied beside it.
fn copy_index(quarantine: &Quarantine, target: &Target) -> Result<PathBuf, IntegrateError> {
    let copy = quarantine.settings_dir().join("index");
    let from = &target.index_file;
    match std::fs::copy(from, &copy) {
        Ok(_) => {
            let time = std::fs::metadata(from).and_then(|meta| meta.modified()).map_err(FileError::at("read", from))?;
            let file = std::fs::File::options().write(true).open(&copy);
            file.and_then(|file| file.set_modified(time)).map_err(FileError::at("set the time of", &copy))?;
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            std::fs::remove_file(&copy).ok();
        }
        Err(error) => return Err(FileError::at("copy", from)(error).into()),
    }
    let dir = from.parent().unwrap_or(&target.git_dir);
    for entry in std::fs::read_dir(dir).map_err(FileError::at("list", dir))?.flatten() {
        if entry.file_name().as_encoded_bytes().starts_with(b"sharedindex.") {
            let to = quarantine.settings_dir().join(entry.file_name());
            std::fs::copy(entry.path(), &to).map_err(FileError::at("copy", &entry.path()))?;
        }
    }
    Ok(copy)
}

fn list_index(quarantine: &Quarantine, target: &Target, copy: &PathBuf) -> Result<Index, IntegrateError> {
    let output = quarantine.beside(&target.work_tree, ["ls-files", "-s", "-v", "-z"]).index(copy).run()?;
    let mut index = Index::new();
    let mut unmerged = BTreeSet::new();
    for field in output.fields() {
        let (stage, path, entry) = parse_index_line(field).ok_or_else(|| unexpected("ls-files", field))?;
        if stage != "0" {
            unmerged.insert(path.to_string());
        }
        index.insert(path, entry);
    }
    if unmerged.is_empty() {
        return Ok(index);
    }
    Err(IntegrateError::Refused(Refusal::Unmerged(unmerged.into_iter().collect())))
}

/// `<tag> <mode> <oid> <stage>\t<path>`; a small tag is assumed unchanged, `S` is left out of the checkout.
fn parse_index_line(field: &[u8]) -> Option<(&str, RepoPath, Indexed)> {
    let tab = field.iter().position(|byte| *byte == b'\t')?;
    let mut words = std::str::from_utf8(&field[..tab]).ok()?.split(' ');
    let (tag, mode) = (words.next()?, words.next()?);
    let stage = words.nth(1)?;
    let mode = u32::from_str_radix(mode, 8).ok()?;
    let assumed = tag.chars().all(char::is_lowercase);
    Some((stage, RepoPath::new(&field[tab + 1..]), Indexed { mode, assumed, skipped: tag.eq_ignore_ascii_case("S") }))
}

/// Files and links that stand where a unit's path needs a directory. A repository nested there is an error.
fn obstacles(root: &Root, asked: &BTreeSet<RepoPath>) -> Result<BTreeSet<RepoPath>, IntegrateError> {
    let dirs: BTreeSet<RepoPath> = asked.iter().flat_map(RepoPath::ancestors).collect();
    let mut found = BTreeSet::new();
    for dir in dirs {
        match root.see(&dir)? {
            Seen::File { .. } | Seen::Link { .. } | Seen::Special => {
                found.insert(dir);
            }
            Seen::Dir | Seen::Absent => {}
        }
    }
    Ok(found)
}

fn see_all(root: &Root, asked: &BTreeSet<RepoPath>) -> Result<BTreeMap<RepoPath, Seen>, FileError> {
    asked.iter().map(|path| Ok((path.clone(), root.see(path)?))).collect()
}

/// Takes the flags off that would hide an edit on disk. A path that a sparse checkout left out keeps its entry.
fn clear_flags(
    quarantine: &Quarantine,
    target: &Target,
    copy: &PathBuf,
    root: &Root,
    index: &Index,
    wanted: &BTreeSet<RepoPath>,
) -> Result<(), IntegrateError> {
    let flagged = |flag: fn(&Indexed) -> bool| wanted.iter().filter(move |path| index.get(path).is_some_and(flag));
    let skipped: Vec<&RepoPath> = flagged(|entry| entry.skipped).filter(|path| root.exists(path)).collect();
    let assumed: Vec<&RepoPath> = flagged(|entry| entry.assumed).collect();
    for (option, list) in [("--no-skip-worktree", skipped), ("--no-assume-unchanged", assumed)] {
        update(quarantine, target, copy, &[option], &nul_list(list))?;
    }
    Ok(())
}

fn update(
    quarantine: &Quarantine,
    target: &Target,
    copy: &PathBuf,
    options: &[&str],
    list: &[u8],
) -> Result<(), GitError> {
    if list.is_empty() {
        return Ok(());
    }
    let command = quarantine.beside(&target.work_tree, ["update-index"]).args(options.iter().map(OsStr::new));
    command.args(["-z", "--stdin"]).index(copy).input(list).run().map(drop)
}

/// Tracked paths whose file differs from the index, or was only touched. Submodules are left out: git would run
/// in them.
fn changed_files(
    quarantine: &Quarantine,
    target: &Target,
    copy: &PathBuf,
) -> Result<BTreeSet<RepoPath>, IntegrateError> {
    let args = ["diff-files", "--name-only", "-z", "--ignore-submodules=all"];
    let output = quarantine.beside(&target.work_tree, args).index(copy).run()?;
    Ok(output.fields().map(RepoPath::new).collect())
}

/// Brings the copy of the index up to date with the disk at the wanted paths.
fn take(
    quarantine: &Quarantine,
    target: &Target,
    copy: &PathBuf,
    root: &Root,
    index: &Index,
    wanted: &BTreeSet<RepoPath>,
) -> Result<(), IntegrateError> {
    let (mut gone, mut there) = (Vec::new(), Vec::new());
    for path in wanted {
        let entry = index.get(path);
        let is_left_out = entry.is_some_and(|entry| entry.skipped) && !root.exists(path);
        if is_left_out || entry.is_some_and(|entry| entry.mode == GITLINK) {
            continue;
        }
        match root.see(path)? {
            Seen::File { .. } | Seen::Link { .. } => there.push(path),
            Seen::Absent | Seen::Dir | Seen::Special if entry.is_some() => gone.push(path),
            Seen::Absent | Seen::Dir | Seen::Special => {}
        }
    }
    update(quarantine, target, copy, &["--force-remove"], &nul_list(gone))?;
    update(quarantine, target, copy, &["--add", "--replace"], &nul_list(there))?;
    Ok(())
}
