//! Compares a work tree with an index, and takes what differs into a tree, with a git directory of our own:
//! the configuration, hooks, filters and git directories that lie in the work tree count for nothing.
//!
//! Files are named to git one by one and never by a walk that adds, so a nested repository is not entered.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;

use super::store::Quarantine;
use super::{WorkspaceError, encode};
use crate::git::{GitCommand, GitError};

/// The mode of a link to a commit of another repository.
const GITLINK: &[u8] = b"160000";

/// How long one command may work on a work tree. A FIFO that is named like a file of git's makes it hang.
const GIT_LIMIT: Duration = Duration::from_secs(300);

/// A work tree, the index to compare it with, and where new objects go.
pub(super) struct WorkTree<'a> {
    pub(super) quarantine: &'a Quarantine<'a>,
    /// A copy that may be written.
    pub(super) index: PathBuf,
    pub(super) dir: &'a Path,
}

/// How a work tree differs from its index.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Listing {
    /// Tracked paths of which content or mode may differ.
    pub(super) modified: BTreeSet<Vec<u8>>,
    /// Tracked paths that are no file or link any more.
    pub(super) deleted: BTreeSet<Vec<u8>>,
    /// Files and links that are not tracked and not ignored.
    pub(super) untracked: BTreeSet<Vec<u8>>,
    /// Repositories inside the work tree, with a `/` at the end.
    pub(super) nested: BTreeSet<Vec<u8>>,
    /// What git said of directories that it could not look into for untracked files.
    pub(super) closed: Vec<String>,
}

impl Listing {
    /// Leaves out every path for which `is_out` holds.
    pub(super) fn remove(&mut self, is_out: impl Fn(&[u8]) -> bool) {
        for paths in [&mut self.modified, &mut self.deleted, &mut self.untracked, &mut self.nested] {
            paths.retain(|path| !is_out(path));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.modified.is_empty() && self.deleted.is_empty() && self.untracked.is_empty()
    }
}

impl WorkTree<'_> {
    /// Compares. Hashes nothing: a tracked file that was only touched counts as modified here.
    pub(super) fn list(&self) -> Result<Listing, WorkspaceError> {
        let mut listing = Listing::default();
        let compared = self.git(["diff-files", "-z", "--raw", "--ignore-submodules=all", "--no-renames"]).run()?;
        // Git complains about a tracked file that it cannot look at, and then takes it for unchanged.
        if !compared.stderr.is_empty() {
            listing.deleted = self.behind_loops()?;
        }
        let mut fields = compared.fields();
        while let (Some(meta), Some(path)) = (fields.next(), fields.next()) {
            let new_mode = meta.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
            let place = self.dir.join(encode::path(path));
            if new_mode == GITLINK {
                // Git does not list a repository whose name is that of a tracked file.
                listing.nested.insert([path, b"/"].concat());
            }
            let gone = meta.ends_with(b"D") || new_mode == GITLINK || !is_file_or_link(&place);
            let paths = if gone { &mut listing.deleted } else { &mut listing.modified };
            paths.insert(path.to_owned());
        }
        let others = self.git(["ls-files", "-z", "--others", "--exclude-standard"]).run()?;
        listing.closed = encode::lossy(&others.stderr)
            .lines()
            .map(|line| line.strip_prefix("warning: ").unwrap_or(line).to_owned())
            .collect();
        for path in others.fields() {
            let paths = if path.ends_with(b"/") { &mut listing.nested } else { &mut listing.untracked };
            paths.insert(path.to_owned());
        }
        Ok(listing)
    }

    /// Tracked paths that lead through a link to itself: nothing is there any more.
    fn behind_loops(&self) -> Result<BTreeSet<Vec<u8>>, WorkspaceError> {
        let (mut gone, mut unreadable) = (BTreeSet::new(), Vec::new());
        for path in self.git(["ls-files", "-z"]).run()?.fields() {
            match rustix::fs::lstat(self.dir.join(encode::path(path))) {
                Ok(_) | Err(Errno::NOENT | Errno::NOTDIR) => {}
                Err(Errno::LOOP) => drop(gone.insert(path.to_owned())),
                Err(_) => unreadable.push(encode::lossy(path)),
            }
        }
        if unreadable.is_empty() {
            return Ok(gone);
        }
        unreadable.truncate(10);
        Err(WorkspaceError::Unreadable { dir: self.dir.to_owned(), paths: unreadable })
    }

    /// Takes everything that is listed into the index. Returns untracked files that could not be read, or have
    /// names that no tree may hold.
    pub(super) fn take(&self, listing: &Listing) -> Result<Vec<String>, WorkspaceError> {
        let (readable, unreadable): (Vec<&Vec<u8>>, Vec<&Vec<u8>>) =
            listing.modified.union(&listing.untracked).partition(|path| self.is_readable(path));
        if let Some(first) = unreadable.iter().find(|path| listing.modified.contains(**path)) {
            return Err(WorkspaceError::Unreadable { dir: self.dir.to_owned(), paths: vec![encode::lossy(first)] });
        }
        if !listing.deleted.is_empty() {
            let gone = encode::nul_list(listing.deleted.iter().map(Vec::as_slice));
            self.git(["update-index", "-z", "--force-remove", "--stdin"]).input(gone).run()?;
        }
        let mut left: Vec<String> =
            unreadable.into_iter().map(|path| format!("{} cannot be read", encode::lossy(path))).collect();
        if !readable.is_empty() {
            let paths = encode::nul_list(readable.into_iter().map(Vec::as_slice));
            let said =
                self.git(["update-index", "-z", "--add", "--remove", "--replace", "--stdin"]).input(paths).run()?;
            let refused = encode::lossy(&said.stderr);
            let names = refused.lines().filter_map(|line| line.strip_prefix("Ignoring path "));
            left.extend(names.map(|path| format!("{path} has a name that git refuses")));
        }
        Ok(left)
    }

    /// Writes the index as a tree.
    pub(super) fn write_tree(&self) -> Result<String, GitError> {
        Ok(self.git(["write-tree", "--missing-ok"]).run()?.text())
    }

    /// Submodules of the index whose directory holds something: it is in no tree.
    pub(super) fn filled_submodules(&self) -> Result<Vec<String>, GitError> {
        let listed = self.git(["ls-files", "-z", "--stage"]).run()?;
        let links = listed.fields().filter(|entry| entry.starts_with(GITLINK));
        let paths = links.filter_map(|entry| entry.split(|byte| *byte == b'\t').nth(1));
        let is_filled = |path: &&[u8]| {
            let path = self.dir.join(encode::path(path));
            fs::read_dir(&path).map_or_else(|_| path.symlink_metadata().is_ok(), |mut entries| entries.next().is_some())
        };
        Ok(paths.filter(is_filled).map(encode::lossy).collect())
    }

    /// A command on this work tree.
    pub(super) fn git<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> GitCommand {
        self.quarantine.command(args).work_tree(self.dir).index(&self.index).dir(self.dir).limit(GIT_LIMIT)
    }

    fn is_readable(&self, path: &[u8]) -> bool {
        let path = self.dir.join(encode::path(path));
        let is_link = path.symlink_metadata().is_ok_and(|meta| meta.is_symlink());
        is_link || accessat(CWD, &path, Access::READ_OK, AtFlags::EACCESS).is_ok()
    }
}

fn is_file_or_link(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|meta| meta.is_file() || meta.is_symlink())
}
