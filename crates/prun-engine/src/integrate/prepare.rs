//! What would land: the units combined, put together with the working tree as it is now.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use prun_core::ids::UnitId;
use prun_core::outcome::CheckFacts;
use serde::Serialize;

use super::combine::{Combination, Conflict, ConflictKind, Overlap, Party, Side, attribute, combine, combine_sides};
use super::journal::{JOURNAL_VERSION, Journal, Op, OpKind, Plan, copy_entry, slot};
use super::path::RepoPath;
use super::quarantine::{Quarantine, Target};
use super::root::{Root, Seen};
use super::side::{WorkingTree, read_working_tree};
use super::tree::{TreeChanges, changes, paths};
use super::{IntegrateError, Refusal};
use crate::files::{Durability, FileError, create_private_dir};
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
#[derive(Clone, Debug, Serialize)]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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
#[derive(Clone, Debug, Serialize)]
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
    quarantine: Quarantine,
    target: Target,
    working: WorkingTree,
    landing: TreeChanges,
}

/// Works out what would land. Nothing of the user's is changed.
///
/// # Errors
/// A precondition does not hold, a unit's tree is hostile, or git fails. Conflicts are no error.
pub fn prepare(request: &Request<'_>) -> Result<Prepared, IntegrateError> {
    refuse_in_the_middle(request.target)?;
    let quarantine = Quarantine::create(request.git, request.quarantine, request.store, request.target)?;
    let units = combine(&quarantine, request.base_tree, request.units)?;
    if units.parties.is_empty() {
        return Err(Refusal::NothingToLand.into());
    }
    let asked: BTreeSet<RepoPath> = units.parties.keys().cloned().collect();
    let mut with = with_working_tree(&quarantine, request, &units, asked)?;
    refuse_applied(&quarantine, request, &with.working)?;
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
struct With {
    working: WorkingTree,
    combination: Combination,
    theirs: TreeChanges,
    landing: TreeChanges,
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
        let Some(tree) = &units.tree else {
            let (combination, theirs, landing) = Default::default();
            return Ok(With { working, combination, theirs, landing });
        };
        let mine = changes(quarantine, request.base_tree, &working.tree)?;
        let theirs = changes(quarantine, request.base_tree, tree)?;
        let you = mine.keys().map(|path| (path.clone(), vec![Party::You])).collect();
        let sides = [
            Side { parties: you, tree: working.tree.clone(), changes: mine },
            Side { parties: units.parties.clone(), tree: tree.clone(), changes: theirs.clone() },
        ];
        let combination = combine_sides(quarantine, request.base_tree, &sides)?;
        let landing = match &combination.tree {
            Some(result) => changes(quarantine, &working.tree, result)?,
            None => TreeChanges::new(),
        };
        let before = asked.len();
        asked.extend(landing.keys().cloned());
        if asked.len() == before {
            return Ok(With { working, combination, theirs, landing });
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
fn refuse_applied(quarantine: &Quarantine, request: &Request<'_>, working: &WorkingTree) -> Result<(), IntegrateError> {
    let mine = changes(quarantine, request.base_tree, &working.tree)?;
    let mut applied = Vec::new();
    for (unit, tree) in request.units {
        let theirs = changes(quarantine, request.base_tree, tree)?;
        if !theirs.is_empty() && theirs.iter().all(|(path, change)| mine.get(path) == Some(change)) {
            applied.push(unit.clone());
        }
    }
    applied.sort();
    if applied.is_empty() { Ok(()) } else { Err(Refusal::AppliedBefore(applied).into()) }
}

fn submodules(units: &Combination, theirs: &TreeChanges) -> Vec<Conflict> {
    let is_gitlink = |entry: &super::tree::Entry| entry.mode == super::tree::GITLINK;
    let changed = theirs.iter().filter(|(_, change)| {
        change.old.as_ref().is_some_and(is_gitlink) || change.new.as_ref().is_some_and(is_gitlink)
    });
    changed.map(|(path, _)| conflict(units, path, ConflictKind::Submodule, None)).collect()
}

fn conflict(units: &Combination, path: &RepoPath, kind: ConflictKind, detail: Option<String>) -> Conflict {
    let parties = units.parties.get(path).cloned().unwrap_or_default();
    let why = match detail {
        None => kind.sentence().to_owned(),
        Some(detail) => format!("{} ({detail})", kind.sentence()),
    };
    Conflict { path: path.to_string(), parties, kind, why, regions: Vec::new() }
}

/// What the trees cannot tell: files that git does not know, filters, names that the target takes for one.
fn in_the_way(
    quarantine: &Quarantine,
    target: &Target,
    with: &With,
    units: &Combination,
) -> Result<Vec<Conflict>, IntegrateError> {
    let Some(result) = &with.combination.tree else { return Ok(Vec::new()) };
    let root = Root::open(&target.work_tree)?;
    let mut found = Vec::new();
    for (path, change) in &with.landing {
        if change.new.is_some()
            && let Some(obstacle) = obstacle(&root, path, &with.working.seen[path], &with.landing)?
        {
            found.push(conflict(units, path, ConflictKind::InTheWay, Some(obstacle)));
        }
    }
    let filters = attribute(quarantine, result, "filter", with.landing.keys())?;
    for (path, filter) in filters.iter().filter(|(_, filter)| quarantine.has_filter(filter)) {
        found.push(conflict(units, path, ConflictKind::Filter, Some(filter.clone())));
    }
    if quarantine.ignores_case() {
        found.extend(case_clashes(quarantine, result, with, units)?);
    }
    Ok(found)
}

/// What stands in the way of a path that is to be written, in words.
fn obstacle(
    root: &Root,
    path: &RepoPath,
    seen: &Seen,
    landing: &TreeChanges,
) -> Result<Option<String>, IntegrateError> {
    for dir in path.ancestors() {
        if root.exists(&RepoPath::new(&[dir.as_bytes(), b"/.git"].concat())) {
            return Ok(Some(format!("{dir} is a repository of its own")));
        }
    }
    match seen {
        Seen::Special => Ok(Some("a socket, a FIFO or a device".to_owned())),
        Seen::Dir => {
            let is_leaving = |path: &RepoPath| landing.get(path).is_some_and(|change| change.new.is_none());
            let stays = root.files_below(path)?.into_iter().find(|path| !is_leaving(path));
            Ok(stays.map(|path| format!("{path} in the directory of that name")))
        }
        Seen::Absent | Seen::File { .. } | Seen::Link { .. } => Ok(None),
    }
}

fn case_clashes(
    quarantine: &Quarantine,
    result: &str,
    with: &With,
    units: &Combination,
) -> Result<Vec<Conflict>, IntegrateError> {
    let mut spellings: BTreeMap<String, BTreeSet<RepoPath>> = BTreeMap::new();
    for path in paths(quarantine, result)? {
        for name in path.ancestors().chain([path.clone()]) {
            spellings.entry(name.to_string().to_lowercase()).or_default().insert(name);
        }
    }
    let mut found = Vec::new();
    for path in with.landing.iter().filter(|(_, change)| change.new.is_some()).map(|(path, _)| path) {
        for name in path.ancestors().chain([path.clone()]) {
            let other = spellings.get(&name.to_string().to_lowercase());
            if let Some(other) = other.and_then(|all| all.iter().find(|other| **other != name)) {
                found.push(conflict(units, path, ConflictKind::CaseClash, Some(other.to_string())));
            }
        }
    }
    Ok(found)
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
    let unit = |party: &Party| match party {
        Party::Unit(unit) => Some(unit.clone()),
        Party::You => None,
    };
    Landed {
        path: path.to_string(),
        units: units.parties.get(path).into_iter().flatten().filter_map(unit).collect(),
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

    /// Checks the combination out at `dir`, as a clean clone.
    ///
    /// # Errors
    /// There are conflicts, or git fails.
    pub fn stage(&self, dir: &Path) -> Result<(), IntegrateError> {
        super::stage::checkout(&self.quarantine, self.dry_run.tree.as_ref().ok_or(Refusal::Conflicts)?, dir)
    }

    /// Checks the base out at `dir`, to see what the check says there.
    ///
    /// # Errors
    /// Git fails.
    pub fn stage_base(&self, base_tree: &str, dir: &Path) -> Result<(), IntegrateError> {
        super::stage::checkout(&self.quarantine, base_tree, dir)
    }

    /// Writes the landing's journal in `dir`, with the bytes of the checkout at `stage`. To be called before
    /// anything is run in `stage`.
    ///
    /// `name` tells the directory apart that has to stand in the work tree where `dir` is on another file system.
    ///
    /// # Errors
    /// There are conflicts, or a file cannot be copied (no space). The work tree is untouched then.
    pub fn journal(
        &self,
        stage: &Path,
        dir: &Path,
        name: &str,
        durability: Durability,
    ) -> Result<Journal, IntegrateError> {
        let tree = self.dry_run.tree.clone().filter(|_| self.dry_run.ready).ok_or(Refusal::Conflicts)?;
        let root = Root::open(&self.target.work_tree)?;
        create_private_dir(dir)?;
        let slots = self.slots_dir(&root, dir, name)?;
        create_private_dir(&slots)?;
        let plan = self.plan(&root, stage, tree, slots.clone())?;
        let filled = fill_slots(&plan, stage, durability);
        if filled.is_err() && !slots.starts_with(dir) {
            // The work tree is left as it was; the error that led here is the one to tell.
            std::fs::remove_dir_all(&slots).ok();
        }
        filled?;
        Ok(Journal::create(dir, plan, durability)?)
    }

    /// Names can only be exchanged within one file system.
    fn slots_dir(&self, root: &Root, dir: &Path, name: &str) -> Result<PathBuf, IntegrateError> {
        let work_tree = &self.target.work_tree;
        let same = root.device().map_err(FileError::at("read", work_tree))?
            == Root::open(dir)?.device().map_err(FileError::at("read", dir))?;
        Ok(if same { dir.join("slots") } else { work_tree.join(format!(".prun-landing-{name}")) })
    }

    fn plan(&self, root: &Root, stage: &Path, tree: String, slots: PathBuf) -> Result<Plan, IntegrateError> {
        let staged = Root::open(stage)?;
        let mut ops = Vec::new();
        for (path, change) in &self.landing {
            let before = self.working.seen[path].clone();
            let after = match change.new {
                Some(_) => keep_mode(&before, staged.see(path)?),
                None => Seen::Absent,
            };
            ops.extend(op(path, before, after));
        }
        let (mut deletions, mut rest): (Vec<Op>, Vec<Op>) = ops.into_iter().partition(|op| op.kind == OpKind::Delete);
        deletions.reverse();
        let emptied = deletions.iter().flat_map(|op| op.path.ancestors().collect::<Vec<_>>());
        let dir_modes = emptied.filter_map(|dir| Some((root.dir_mode(&dir)?, dir))).map(|(mode, dir)| (dir, mode));
        let dir_modes = dir_modes.collect();
        let needed: BTreeSet<RepoPath> = rest.iter().flat_map(|op| op.path.ancestors().collect::<Vec<_>>()).collect();
        let made = needed.into_iter().filter(|dir| root.dir_mode(dir).is_none()).collect();
        deletions.append(&mut rest);
        let work_tree = self.target.work_tree.clone();
        Ok(Plan { version: JOURNAL_VERSION, work_tree, tree, slots, ops: deletions, made, dir_modes })
    }
}

/// Whether `shown` is the tree, by its id or by at least six of its first digits.
fn is_named(tree: &str, shown: &str) -> bool {
    shown.len() >= 6 && tree.starts_with(shown)
}

fn op(path: &RepoPath, before: Seen, after: Seen) -> Option<Op> {
    let kind = match (&before, &after) {
        _ if before == after => return None,
        (Seen::Dir, Seen::Absent) => return None,
        (_, Seen::Absent) => OpKind::Delete,
        (Seen::Absent | Seen::Dir, _) => OpKind::Create,
        _ => OpKind::Replace,
    };
    Some(Op { path: path.clone(), kind, before, after })
}

/// A file keeps the permission bits that the user gave it, unless the executable bit is what changed.
fn keep_mode(before: &Seen, after: Seen) -> Seen {
    match (before, after) {
        (Seen::File { mode: old, .. }, Seen::File { sha256, mode }) if (old & 0o100) == (mode & 0o100) => {
            Seen::File { sha256, mode: *old }
        }
        (_, after) => after,
    }
}

fn fill_slots(plan: &Plan, stage: &Path, durability: Durability) -> Result<(), FileError> {
    for (at, op) in plan.ops.iter().enumerate().filter(|(_, op)| op.kind != OpKind::Delete) {
        let to = plan.slots.join(slot(at).as_path());
        copy_entry(&stage.join(op.path.as_path()), &to, durability)?;
        if let Seen::File { mode, .. } = op.after {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
            std::fs::set_permissions(&to, mode).map_err(FileError::at("set the mode of", &to))?;
        }
    }
    Ok(())
}

/// The `git add` lines after a landing: files that are the units' alone, and apart from them files that also
/// hold work of the user's own. A line is left out where it would name nothing.
#[must_use]
pub fn add_lines(files: &[Landed]) -> (Option<String>, Option<String>) {
    let line = |yours: bool| {
        let mut line = "git add --".to_owned();
        let mut any = false;
        for file in files.iter().filter(|file| file.also_yours == yours) {
            any = true;
            // Writing to a string cannot fail.
            write!(line, " {}", quote(&file.path)).ok();
        }
        any.then_some(line)
    };
    (line(false), line(true))
}

/// Quotes a word for sh, where it needs quotes.
fn quote(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./+,=:@%".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}
