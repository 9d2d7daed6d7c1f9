//! What would land: the units combined, put together with the working tree as it is now.

use std::collections::BTreeSet;
use std::path::Path;

use prun_core::ids::UnitId;
use prun_core::outcome::CheckFacts;
use serde::Serialize;

use super::combine::{Combination, Side, combine_sides, unit_sides};
use super::obstacle::{in_the_way, submodules};
use super::overlap::{Conflict, Overlap, Party};
use super::path::RepoPath;
use super::quarantine::{Quarantine, Target};
use super::side::{WorkingTree, read_working_tree};
use super::tree::{TreeChanges, changes};
use super::{IntegrateError, Refusal};
use crate::git::Git;

/// What to integrate, and where.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The git to use.
    pub git: &'a Git,
    /// The user's checkout.
    pub target: &'a Target,
    /// The run's own store, which holds the units' trees.
    pub store: &'a Path,
    /// A directory that does not exist yet, for the quarantine.
    pub quarantine: &'a Path,
    /// The tree that the units started from.
    pub base_tree: &'a str,
    /// The units and their trees.
    pub units: &'a [(UnitId, String)],
    /// Overlaps that the user accepted, by path.
    pub accepted: &'a BTreeSet<String>,
}

/// What would land, for people and for JSON.
#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
pub struct DryRun {
    /// The working tree with everything in it, as a tree id: what `--tree` takes. `None` with conflicts.
    pub tree: Option<String>,
    /// Nothing stands in the way.
    pub ready: bool,
    /// Paths that would be written or removed in the working tree, sorted.
    pub files: Vec<Landed>,
    /// Lines added, binary files apart.
    pub added: u64,
    /// Lines removed, binary files apart.
    pub removed: u64,
    /// Paths that several change and that could be combined.
    pub overlaps: Vec<Overlap>,
    /// Paths that could not.
    pub conflicts: Vec<Conflict>,
    /// The run's check, where it was run.
    pub verify: Option<Verified>,
}

/// One path that lands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Landed {
    /// The path, lossy where not UTF-8.
    pub path: String,
    /// Whose changes it takes.
    pub units: Vec<UnitId>,
    /// It also holds work of the user's own that is in no commit.
    pub also_yours: bool,
    /// A sparse checkout left it out; it is written all the same.
    pub outside_sparse: bool,
}

/// The run's check on the combination, beside its result on the base.
#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
pub struct Verified {
    /// On the base, where it was run.
    pub base: Option<CheckFacts>,
    /// On the combination.
    pub combination: CheckFacts,
}

/// A combination that stands ready.
#[derive(Debug)]
pub struct Prepared {
    /// What would land.
    pub dry_run: DryRun,
    pub(super) quarantine: Quarantine,
    pub(super) target: Target,
    pub(super) working: WorkingTree,
    pub(super) landing: TreeChanges,
}

/// Works out what would land. Nothing of the user's is changed.
///
/// # Errors
/// A precondition does not hold, a unit's tree is hostile, or git fails. Conflicts are no error.
pub fn prepare(request: &Request<'_>) -> Result<Prepared, IntegrateError> {
    refuse_in_the_middle(request.target)?;
    let quarantine = Quarantine::create(request.git, request.quarantine, request.store, request.target)?;
    let sides = unit_sides(&quarantine, request.base_tree, request.units)?;
    let units = combine_sides(&quarantine, request.base_tree, &sides)?;
    if units.parties.is_empty() {
        return Err(Refusal::NothingToLand.into());
    }
    let asked: BTreeSet<RepoPath> = units.parties.keys().cloned().collect();
    let mut with = with_working_tree(&quarantine, request, &units, asked)?;
    refuse_applied(&sides, &with.mine)?;
    let mut conflicts = in_the_way(&quarantine, request.target, &with, &units)?;
    conflicts.extend(submodules(&units, &with.theirs));
    conflicts.extend(units.conflicts.iter().cloned());
    with.combination.conflicts.append(&mut conflicts);
    with.combination.overlaps.extend(units.overlaps.iter().cloned());
    let dry_run = describe(&quarantine, request, &with, &units)?;
    if dry_run.ready && with.landing.is_empty() {
        return Err(Refusal::NothingToLand.into());
    }
    let With { working, landing, .. } = with;
    Ok(Prepared { dry_run, quarantine, target: request.target.clone(), working, landing })
}

/// The units put together with the working tree.
pub(super) struct With {
    pub(super) working: WorkingTree,
    pub(super) combination: Combination,
    mine: TreeChanges,
    pub(super) theirs: TreeChanges,
    pub(super) landing: TreeChanges,
}

/// Combines with the working tree, read to the byte wherever something would land. A merge across a rename
/// can land on a path that no unit named; then it is read again with that path.
fn with_working_tree(
    quarantine: &Quarantine,
    request: &Request<'_>,
    units: &Combination,
    mut asked: BTreeSet<RepoPath>,
) -> Result<With, IntegrateError> {
    loop {
        let working = read_working_tree(quarantine, request.target, request.base_tree, &asked)?;
        let mine = changes(quarantine, request.base_tree, &working.tree)?;
        let Some(tree) = &units.tree else {
            let (combination, theirs, landing) = Default::default();
            return Ok(With { working, combination, mine, theirs, landing });
        };
        let theirs = units.changes.clone();
        let you = mine.keys().map(|path| (path.clone(), vec![Party::You])).collect();
        let sides = [
            Side { parties: you, tree: working.tree.clone(), changes: mine.clone() },
            Side { parties: units.parties.clone(), tree: tree.clone(), changes: theirs.clone() },
        ];
        let combination = combine_sides(quarantine, request.base_tree, &sides)?;
        let landing = match &combination.tree {
            Some(_) if working.tree == request.base_tree => theirs.clone(),
            Some(result) => changes(quarantine, &working.tree, result)?,
            None => TreeChanges::new(),
        };
        let before = asked.len();
        asked.extend(landing.keys().cloned());
        if asked.len() == before {
            return Ok(With { working, combination, mine, theirs, landing });
        }
    }
}

/// What git leaves in its directory while it is in the middle of something.
const MIDDLES: &[(&str, &str)] = &[
    ("MERGE_HEAD", "merge"),
    ("rebase-merge", "rebase"),
    ("rebase-apply", "rebase or am"),
    ("CHERRY_PICK_HEAD", "cherry-pick"),
    ("REVERT_HEAD", "revert"),
    ("sequencer", "cherry-pick or revert"),
    ("BISECT_LOG", "bisect"),
];

fn refuse_in_the_middle(target: &Target) -> Result<(), Refusal> {
    match MIDDLES.iter().find(|(name, _)| target.git_dir.join(name).exists()) {
        Some((_, what)) => Err(Refusal::InTheMiddle(what)),
        None => Ok(()),
    }
}

/// A unit whose every change is in the working tree already was applied before, whoever did it.
fn refuse_applied(sides: &[Side], mine: &TreeChanges) -> Result<(), Refusal> {
    let is_in = |side: &&Side| side.changes.iter().all(|(path, change)| mine.get(path) == Some(change));
    let applied = sides.iter().filter(|side| !side.changes.is_empty()).filter(is_in);
    let units: Vec<UnitId> = applied.filter_map(|side| side.parties.values().flatten().find_map(Party::unit)).collect();
    if units.is_empty() { Ok(()) } else { Err(Refusal::AppliedBefore(units)) }
}

fn describe(
    quarantine: &Quarantine,
    request: &Request<'_>,
    with: &With,
    units: &Combination,
) -> Result<DryRun, IntegrateError> {
    let (mut overlaps, mut conflicts) = (with.combination.overlaps.clone(), with.combination.conflicts.clone());
    for overlap in &mut overlaps {
        overlap.blocks &= !request.accepted.contains(&overlap.path);
    }
    overlaps.sort();
    overlaps.dedup();
    conflicts.sort();
    conflicts.dedup();
    let tree = with.combination.tree.clone().filter(|_| conflicts.is_empty());
    let (added, removed) = match &tree {
        Some(tree) => count_lines(quarantine, &with.working.tree, tree)?,
        None => (0, 0),
    };
    let ready = tree.is_some() && !overlaps.iter().any(|overlap| overlap.blocks);
    let files = with.landing.keys().map(|path| landed(path, &with.working, units)).collect();
    Ok(DryRun { tree, ready, files, added, removed, overlaps, conflicts, verify: None })
}

fn landed(path: &RepoPath, working: &WorkingTree, units: &Combination) -> Landed {
    Landed {
        path: path.to_string(),
        units: units.parties.get(path).into_iter().flatten().filter_map(Party::unit).collect(),
        also_yours: working.own.contains(path),
        outside_sparse: working.sparse.contains(path),
    }
}

fn count_lines(quarantine: &Quarantine, old: &str, new: &str) -> Result<(u64, u64), IntegrateError> {
    let output = quarantine.bare(["diff-tree", "-r", "-z", "--numstat", "--no-renames", old, new]).run()?;
    let mut total = (0, 0);
    for field in output.fields() {
        let text = String::from_utf8_lossy(field);
        let mut words = text.split('\t');
        // Binary files have dashes.
        let mut number = || words.next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
        total = (total.0 + number(), total.1 + number());
    }
    Ok(total)
}

impl Prepared {
    /// Refuses where the combination cannot land, or is not the tree that was shown.
    ///
    /// # Errors
    /// Conflicts, overlaps that were not accepted, or another tree.
    pub fn insist_on(&self, shown: &str) -> Result<(), Refusal> {
        match &self.dry_run.tree {
            Some(now) if self.dry_run.ready && is_named(now, shown) => Ok(()),
            Some(now) if self.dry_run.ready => Err(Refusal::NotAsShown { shown: shown.to_owned(), now: now.clone() }),
            _ => Err(Refusal::Conflicts),
        }
    }
}

/// Whether `shown` is the tree, by its id or by at least six of its first digits.
fn is_named(tree: &str, shown: &str) -> bool {
    shown.len() >= 6 && tree.starts_with(shown)
}
