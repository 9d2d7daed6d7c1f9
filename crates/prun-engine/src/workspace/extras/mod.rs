//! What a clone gets beside the files of its base: submodules and LFS content from the user's machine, and the
//! ignored files that `.worktreeinclude` names. Nothing is fetched and no filter runs.

mod include;
mod lfs;
pub(super) mod submodules;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use super::source::Source;
use super::{Base, WorkspaceError, encode};
use crate::git::GitCommand;
use crate::home::Home;

/// The most names in one sentence.
const MAX_NAMED: usize = 5;

/// What a clone of one base gets, and what it cannot get.
#[derive(Debug)]
pub struct Extras {
    /// The top of the user's work tree.
    top: PathBuf,
    submodules: Vec<submodules::Submodule>,
    lfs: Vec<lfs::Pointer>,
    include: Vec<PathBuf>,
    /// What stays out, a phrase each.
    pub unseen: Vec<String>,
}

impl Extras {
    /// Looks at what there is for `base`. `read` makes a command that reads objects of the base.
    ///
    /// # Errors
    /// Git fails.
    pub fn find(source: &Source, base: &Base, read: &dyn Fn(&[&str]) -> GitCommand) -> Result<Self, WorkspaceError> {
        let mut unseen = Vec::new();
        let listed = read(&["ls-tree", "-r", "-z", "--full-tree", base.tree.as_str()]).run()?;
        let entries: Vec<TreeEntry> = listed.fields().filter_map(TreeEntry::parse).collect();
        let submodules = submodules::find(source, &entries, &mut unseen);
        let lfs = lfs::find(source, base, &entries, read, &mut unseen)?;
        let include = include::find(source, &mut unseen)?;
        Ok(Self { top: source.top.clone(), submodules, lfs, include, unseen })
    }

    /// Puts everything into a clone that was just made. A list of what the harvest must know goes beside the
    /// trusted index.
    ///
    /// # Errors
    /// The disk is full, or git fails.
    pub fn add(&self, home: &Home, clone: &Path, trusted_index: &Path) -> Result<(), WorkspaceError> {
        lfs::add(&self.lfs, clone, trusted_index)?;
        submodules::add(&self.submodules, home, clone, trusted_index)?;
        include::add(&self.include, &self.top, clone)?;
        Ok(())
    }
}

/// An entry of a tree.
#[derive(Debug)]
struct TreeEntry {
    mode: String,
    id: String,
    path: Vec<u8>,
}

impl TreeEntry {
    fn parse(line: &[u8]) -> Option<Self> {
        let tab = line.iter().position(|byte| *byte == b'\t')?;
        let meta = encode::lossy(&line[..tab]);
        let mut words = meta.split(' ');
        let (mode, _, id) = (words.next()?, words.next()?, words.next()?);
        Some(Self { mode: mode.to_owned(), id: id.to_owned(), path: line[tab + 1..].to_owned() })
    }
}

/// The first few names, and how many more there are.
fn some(names: &[String]) -> String {
    let first = names.iter().take(MAX_NAMED).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > MAX_NAMED { format!("{first} and {} more", names.len() - MAX_NAMED) } else { first }
}
