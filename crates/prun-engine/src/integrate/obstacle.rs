//! What keeps a combination out of the working tree although its trees go together.

use std::collections::{BTreeMap, BTreeSet};

use super::IntegrateError;
use super::attribute::attribute;
use super::combine::Combination;
use super::overlap::{Conflict, ConflictKind};
use super::path::RepoPath;
use super::prepare::With;
use super::quarantine::{Quarantine, Target};
use super::root::{Root, Seen};
use super::tree::{TreeChanges, paths};

/// Submodules that units change.
pub(super) fn submodules(units: &Combination, theirs: &TreeChanges) -> Vec<Conflict> {
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
pub(super) fn in_the_way(
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
    let filters = match quarantine.has_filters() {
        true => attribute(quarantine, result, "filter", with.landing.keys())?,
        false => BTreeMap::new(),
    };
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
        if root.see(&dir)? == Seen::Special {
            return Ok(Some(format!("{dir} is a socket, a FIFO or a device")));
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
