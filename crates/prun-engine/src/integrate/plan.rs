//! From a combination to the operations that land it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::journal::{JOURNAL_VERSION, Journal, Op, OpKind, Plan, copy_entries, slot};
use super::path::RepoPath;
use super::prepare::Prepared;
use super::root::{Root, Seen};
use super::{IntegrateError, Refusal};
use crate::files::{Durability, FileError, create_private_dir};

impl Prepared {
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
        let plan = self.plan(&root, stage, tree, slots)?;
        let filled = fill_slots(&plan, stage, &Journal::filling(dir, &plan), durability);
        let journal = filled.and_then(|()| Journal::create(dir, plan, durability));
        if journal.is_err() {
            // Half a journal must not be taken for one; the error that led here is the one to tell.
            std::fs::remove_dir_all(dir).ok();
        }
        Ok(journal?)
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

fn fill_slots(plan: &Plan, stage: &Path, slots: &Path, durability: Durability) -> Result<(), FileError> {
    create_private_dir(slots)?;
    let arriving = || plan.ops.iter().enumerate().filter(|(_, op)| op.kind != OpKind::Delete);
    let place = |at: usize| slots.join(slot(at).as_path());
    copy_entries(arriving().map(|(at, op)| (stage.join(op.path.as_path()), place(at))), durability)?;
    for (at, op) in arriving() {
        if let Seen::File { mode, .. } = op.after {
            let (to, mode) = (place(at), std::os::unix::fs::PermissionsExt::from_mode(mode));
            std::fs::set_permissions(&to, mode).map_err(FileError::at("set the mode of", &to))?;
        }
    }
    Ok(())
}
