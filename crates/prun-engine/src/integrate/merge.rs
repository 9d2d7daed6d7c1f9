//! One three-way merge by git, in the bare quarantine.

use std::collections::BTreeSet;

use super::IntegrateError;
use super::overlap::Region;
use super::path::RepoPath;
use super::quarantine::Quarantine;
use super::tree::unexpected;
use crate::git::GitError;

/// What git made of two trees over a base.
#[derive(Clone, Debug)]
pub(super) struct Merged {
    /// The merged tree, with conflict markers where there are conflicts.
    pub(super) tree: String,
    /// Paths in conflict.
    pub(super) conflicts: BTreeSet<RepoPath>,
}

/// The first git whose `merge-tree` merges trees; those before it merge commits only.
const MERGES_TREES: (u32, u32) = (2, 45);

/// A tree that others are merged over.
pub(super) struct Base<'a> {
    quarantine: &'a Quarantine,
    tree: &'a str,
    /// Its commit, where this git needs commits. Nothing refers to it.
    root: Option<String>,
}

impl<'a> Base<'a> {
    /// Makes `tree` ready to be merged over.
    pub(super) fn of(quarantine: &'a Quarantine, tree: &'a str) -> Result<Self, GitError> {
        let merges_trees = quarantine.git().version()? >= MERGES_TREES;
        let root = if merges_trees { None } else { Some(root_commit(quarantine, tree)?) };
        Ok(Self { quarantine, tree, root })
    }

    pub(super) fn tree(&self) -> &'a str {
        self.tree
    }

    pub(super) fn quarantine(&self) -> &'a Quarantine {
        self.quarantine
    }

    /// Merges two trees over it.
    pub(super) fn merge(&self, first: &str, second: &str) -> Result<Merged, GitError> {
        let side = |tree: &str, root: &str| commit(self.quarantine, tree, Some(root));
        match &self.root {
            None => run_merge(self.quarantine, &[&format!("--merge-base={}", self.tree), first, second]),
            Some(root) => run_merge(self.quarantine, &[&side(first, root)?, &side(second, root)?]),
        }
    }
}

/// The commit of a base tree, over which [`merge_named`] merges.
pub(super) fn root_commit(quarantine: &Quarantine, base: &str) -> Result<String, GitError> {
    commit(quarantine, base, None)
}

/// Merges two trees over the tree of the commit `root`, and the markers of a conflict call the sides by these names.
pub(super) fn merge_named(
    quarantine: &Quarantine,
    root: &str,
    first: (&str, &str),
    second: (&str, &str),
) -> Result<Merged, GitError> {
    for (name, tree) in [first, second] {
        let commit = commit(quarantine, tree, Some(root))?;
        quarantine.bare(["update-ref", &format!("refs/heads/{name}"), &commit]).run()?;
    }
    run_merge(quarantine, &[first.0, second.0])
}

fn run_merge(quarantine: &Quarantine, sides: &[&str]) -> Result<Merged, GitError> {
    let args = ["merge-tree", "--write-tree", "-z", "--no-messages"].iter().chain(sides);
    let output = quarantine.bare(args).run_accepting(&[0, 1])?;
    let mut fields = output.stdout.split(|byte| *byte == 0).filter(|field| !field.is_empty());
    let tree = fields.next().map(|tree| String::from_utf8_lossy(tree).into_owned()).unwrap_or_default();
    let is_clean = output.status.code() == Some(0);
    let mut conflicts = BTreeSet::new();
    for field in fields {
        // `<mode> <oid> <stage>\t<path>`
        let tab = field.iter().position(|byte| *byte == b'\t').ok_or_else(|| unexpected("merge-tree", field))?;
        conflicts.insert(RepoPath::new(&field[tab + 1..]));
    }
    if tree.is_empty() || is_clean != conflicts.is_empty() {
        return Err(unexpected("merge-tree", &output.stdout));
    }
    Ok(Merged { tree, conflicts })
}

fn commit(quarantine: &Quarantine, tree: &str, parent: Option<&str>) -> Result<String, GitError> {
    let mut command = quarantine
        .bare(["commit-tree", "-m", "side"])
        .env("GIT_AUTHOR_DATE", "@0 +0000")
        .env("GIT_COMMITTER_DATE", "@0 +0000");
    if let Some(parent) = parent {
        command = command.args(["-p", parent]);
    }
    Ok(command.arg(tree).run()?.text())
}

/// At most this many clashing regions are listed for a file.
const MAX_REGIONS: usize = 50;

/// The clashing regions of a path in a merged tree; none where it is no text there.
pub(super) fn regions(quarantine: &Quarantine, tree: &str, path: &RepoPath) -> Result<Vec<Region>, IntegrateError> {
    let mut name = format!("{tree}:").into_bytes();
    name.extend_from_slice(path.as_bytes());
    let name = <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(&name);
    let output = quarantine.bare(["cat-file", "blob"]).arg(name).run_accepting(&[0, 128])?;
    Ok(find_regions(&output.stdout))
}

/// The regions between conflict markers in a text.
pub(super) fn find_regions(text: &[u8]) -> Vec<Region> {
    let mut found = Vec::new();
    let mut open: Option<(Region, bool)> = None;
    for (at, line) in text.split(|byte| *byte == b'\n').enumerate() {
        open = match open {
            None if line.starts_with(b"<<<<<<< ") => {
                let line = u32::try_from(at + 1).unwrap_or(u32::MAX);
                Some((Region { line, first: 0, second: 0 }, false))
            }
            None => None,
            Some((region, false)) if line == b"=======" || line == b"=======\r" => Some((region, true)),
            Some((region, true)) if line.starts_with(b">>>>>>> ") => {
                found.push(region);
                None
            }
            Some((region, false)) => Some((Region { first: region.first + 1, ..region }, false)),
            Some((region, true)) => Some((Region { second: region.second + 1, ..region }, true)),
        };
    }
    found.truncate(MAX_REGIONS);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_counted_in_lines() {
        let text = b"a\n<<<<<<< one\nx\ny\n=======\nz\n>>>>>>> two\nb\n<<<<<<< one\n=======\nq\n>>>>>>> two\n";
        let expected = [Region { line: 2, first: 2, second: 1 }, Region { line: 9, first: 0, second: 1 }];
        assert_eq!(find_regions(text), expected);
        assert_eq!(find_regions(b"<<<<<<< one\nnever closed\n"), []);
    }
}
