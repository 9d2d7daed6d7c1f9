//! Which lines sides edit in the files that they share.

use std::collections::{BTreeMap, BTreeSet};

use super::combine::Side;
use super::overlap::Edit;
use super::path::RepoPath;
use super::quarantine::Quarantine;
use super::tree::{Change, Entry};
use crate::git::GitError;

/// At most this many edits of one side are listed for a file.
const MAX_EDITS: usize = 50;
/// So many paths are given to one git process: a command line has its limits.
const PATHS_AT_ONCE: usize = 200;

/// Lines that are edited, by the ids of the two blobs: the old one and the new one.
#[derive(Debug, Default)]
pub(super) struct Edits(BTreeMap<(String, String), Vec<Lines>>);

/// Lines of the old blob, from 1. No lines: something is put in behind `line`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lines {
    line: u32,
    lines: u32,
}

impl Edits {
    /// Finds the edits that `sides` make in `paths`, which are relative to the base tree.
    pub(super) fn find(
        quarantine: &Quarantine,
        base: &str,
        sides: &[Side],
        paths: &BTreeSet<&RepoPath>,
    ) -> Result<Self, GitError> {
        let mut found = Self::default();
        let paths: Vec<&RepoPath> = paths.iter().copied().collect();
        for some in paths.chunks(PATHS_AT_ONCE) {
            let with_one = |side: &&Side| some.iter().any(|path| side.changes.contains_key(*path));
            let pairs: String = sides.iter().filter(with_one).map(|side| format!("{base} {}\n", side.tree)).collect();
            let args = ["--literal-pathspecs", "diff-tree", "--stdin", "-r", "-p", "-U0", "--full-index"];
            let options = ["--no-renames", "--no-ext-diff", "--no-textconv", "--no-color", "--"];
            let command = quarantine.bare(args).args(options).args(some.iter().map(|path| path.as_path()));
            found.take(&command.input(pairs).run()?.stdout);
        }
        Ok(found)
    }

    /// Takes the hunks of a patch. No line of a file's content can be taken for a header: those begin with a sign.
    fn take(&mut self, patch: &[u8]) {
        let mut blobs = None;
        for line in patch.split(|byte| *byte == b'\n') {
            let Ok(line) = std::str::from_utf8(line) else { continue };
            if let Some(ids) = line.strip_prefix("index ") {
                let ids = ids.split(' ').next().and_then(|ids| ids.split_once(".."));
                blobs = ids.map(|(old, new)| (old.to_owned(), new.to_owned()));
                if let Some(blobs) = &blobs {
                    self.0.insert(blobs.clone(), Vec::new());
                }
            } else if let Some(lines) = line.strip_prefix("@@ -").and_then(parse_hunk) {
                let edits = blobs.as_ref().and_then(|blobs| self.0.get_mut(blobs));
                edits.into_iter().filter(|edits| edits.len() < MAX_EDITS).for_each(|edits| edits.push(lines));
            }
        }
    }

    /// The edits of the sides in one path, in the order of their lines.
    pub(super) fn of<'a>(&self, path: &RepoPath, sides: impl IntoIterator<Item = &'a Side>) -> Vec<Edit> {
        let mut edits = Vec::new();
        for side in sides {
            let Some(Change { old: Some(Entry { oid: old, .. }), new: Some(Entry { oid: new, .. }) }) =
                side.changes.get(path)
            else {
                continue;
            };
            let lines = self.0.get(&(old.clone(), new.clone()));
            let parties = side.parties.get(path).cloned().unwrap_or_default();
            let edit = |lines: &Lines| Edit { line: lines.line, lines: lines.lines, parties: parties.clone() };
            edits.extend(lines.into_iter().flatten().map(edit));
        }
        edits.sort();
        edits
    }
}

/// `<line>[,<lines>] +…` of a hunk's header.
fn parse_hunk(rest: &str) -> Option<Lines> {
    let old = rest.split(' ').next()?;
    let (line, lines) = old.split_once(',').unwrap_or((old, "1"));
    Some(Lines { line: line.parse().ok()?, lines: lines.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hunks_are_known_by_their_blobs_whatever_the_text_says() {
        let patch = "aa bb\ndiff --git a/x b/x\nindex 11..22 100644\n--- a/x\n+++ b/x\n@@ -3 +3 @@ fn a\n-old\n+index 9..8\n\
                     @@ -7,0 +8,2 @@\n+@@ -1 +1 @@\n+two\ndiff --git a/y b/y\nindex 33..44 100644\nBinary files differ\n";
        let mut edits = Edits::default();
        edits.take(patch.as_bytes());
        let key = |old: &str, new: &str| (old.to_owned(), new.to_owned());
        let expected = [
            (key("11", "22"), vec![Lines { line: 3, lines: 1 }, Lines { line: 7, lines: 0 }]),
            (key("33", "44"), vec![]),
        ];
        assert_eq!(edits.0, BTreeMap::from(expected));
    }
}
