//! A merge workspace outside the user's repository, where conflicts are resolved by hand.
//!
//! It holds the user's working tree with the units merged into it one after the other, with standard markers
//! where they clash. What comes back is a side of its own over the working tree as it was then: if the user
//! goes on working meanwhile, that is merged as ever.

use std::path::{Path, PathBuf};

use prun_core::ids::UnitId;
use serde::{Deserialize, Serialize};

use super::merge::{find_regions, merge_named, root_commit};
use super::prepare::Prepared;
use super::quarantine::{Quarantine, Target};
use super::stage::checkout;
use super::{IntegrateError, Refusal};
use crate::files::{FileError, read_regular};
use crate::git::Git;

/// A merge workspace. Stored by the caller until the user continues or aborts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resolution {
    /// Where the user resolves.
    pub dir: PathBuf,
    /// The quarantine that holds its objects. It must stay until the end.
    pub quarantine: PathBuf,
    /// The store of the run.
    pub store: PathBuf,
    /// The user's working tree when the workspace was made: what `units` of the continuation start from.
    pub base_tree: String,
    /// What the workspace was filled with, markers included.
    pub merged_tree: String,
    /// The units that were merged.
    pub units: Vec<UnitId>,
    /// Paths in conflict, lossy where not UTF-8.
    pub conflicts: Vec<String>,
}

/// The largest file that is searched for markers that were left.
const MARKER_LIMIT: u64 = 16 << 20;

impl Prepared {
    /// Makes a merge workspace at `dir` for the units of this combination.
    ///
    /// # Errors
    /// Git fails, or `dir` cannot be made.
    pub fn resolve(
        &self,
        base_tree: &str,
        units: &[(UnitId, String)],
        store: &Path,
        dir: &Path,
    ) -> Result<Resolution, IntegrateError> {
        let quarantine = &self.quarantine;
        let root = root_commit(quarantine, base_tree)?;
        let mut units: Vec<&(UnitId, String)> = units.iter().collect();
        units.sort();
        let mut tree = self.working.tree.clone();
        for (at, (unit, theirs)) in units.iter().enumerate() {
            let sides = ((&*name_of(&units[..at]), &*tree), (&*format!("unit/{unit}"), &**theirs));
            tree = merge_named(quarantine, &root, sides.0, sides.1)?.tree;
        }
        checkout(quarantine, &tree, dir)?;
        // HEAD and the index are the working tree as it was: a plain `git diff` shows what comes in.
        let git = |args: &[&str]| quarantine.in_stage(dir, args);
        git(&["update-ref", "HEAD", &root_commit(quarantine, &self.working.tree)?]).run()?;
        git(&["read-tree", &self.working.tree]).run()?;
        let mut conflicts: Vec<String> = self.dry_run.conflicts.iter().map(|conflict| conflict.path.clone()).collect();
        conflicts.dedup();
        Ok(Resolution {
            dir: dir.to_owned(),
            quarantine: quarantine.root().to_owned(),
            store: store.to_owned(),
            base_tree: self.working.tree.clone(),
            merged_tree: tree,
            units: units.into_iter().map(|(unit, _)| unit.clone()).collect(),
            conflicts,
        })
    }
}

/// What the markers call the side that all units so far were merged into.
fn name_of(units: &[&(UnitId, String)]) -> String {
    const NAMED: usize = 3;
    let own = "your-working-tree".to_owned();
    match units.len() {
        0..=NAMED => units.iter().fold(own, |name, (unit, _)| format!("{name}+{unit}")),
        count => format!("{own}+{count}-units"),
    }
}

/// What the user made of a merge workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The tree, to be integrated as the one unit over [`Resolution::base_tree`].
    pub tree: String,
    /// The store to name in that request.
    pub store: PathBuf,
}

/// Takes the user's resolution out of the workspace. Nothing of the workspace's own configuration counts.
///
/// # Errors
/// Conflict markers are left, or git fails.
pub fn resolved(git: &Git, target: &Target, resolution: &Resolution) -> Result<Resolved, IntegrateError> {
    let marked = resolution.conflicts.iter().filter(|path| has_markers(&resolution.dir.join(path)));
    let marked: Vec<String> = marked.cloned().collect();
    if !marked.is_empty() {
        return Err(Refusal::Unresolved(marked).into());
    }
    let quarantine = Quarantine::open(git, &resolution.quarantine, &resolution.store, target)?;
    let index = quarantine.scratch_file("resolved.index");
    let beside = |args: &[&str]| quarantine.beside(&resolution.dir, args.iter().copied()).index(&index);
    // Paths that are tracked although ignore rules name them stay tracked.
    beside(&["read-tree", &resolution.merged_tree]).run()?;
    beside(&["add", "-A"]).run()?;
    let tree = beside(&["write-tree", "--missing-ok"]).run()?.text();
    Ok(Resolved { tree, store: quarantine.bare_dir() })
}

/// Drops the workspace.
///
/// # Errors
/// It cannot be removed.
pub fn abort(resolution: &Resolution) -> Result<(), FileError> {
    for dir in [&resolution.dir, &resolution.quarantine] {
        match std::fs::remove_dir_all(dir) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(FileError::at("remove", dir)(error));
            }
            _ => {}
        }
    }
    Ok(())
}

fn has_markers(path: &Path) -> bool {
    read_regular(path, MARKER_LIMIT).is_ok_and(|text| !find_regions(&text).is_empty())
}
