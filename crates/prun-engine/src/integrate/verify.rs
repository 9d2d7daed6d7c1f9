//! The run's check on a combination, in a clean clone.

use std::path::Path;
use std::time::Duration;

use prun_core::outcome::CheckFacts;

use super::attribute::attribute;
use super::prepare::{Prepared, Verified};
use super::root::{Root, Seen};
use super::stage::{CheckSite, checkout, checkout_entries};
use super::tree::{entries, paths};
use super::{IntegrateError, Refusal};
use crate::files::FileError;
use crate::spec::GuardSpec;

/// The run's check.
#[derive(Clone, Debug)]
pub struct Check {
    /// Run first in a fresh clone, where the plan has a set-up; a failure fails the check.
    pub setup: Option<Vec<String>>,
    /// How long the set-up may take.
    pub setup_limit: Duration,
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// How long it may take.
    pub limit: Duration,
    /// Its result on the base, where that is known.
    pub on_base: Option<CheckFacts>,
    /// The mark of all that it starts.
    pub token: String,
    /// What it must not write.
    pub guard: Option<GuardSpec>,
}

impl Prepared {
    /// Checks the combination out at `dir`, as a clean clone.
    ///
    /// # Errors
    /// There are conflicts, or git fails.
    pub fn stage(&self, dir: &Path) -> Result<(), IntegrateError> {
        let tree = self.dry_run.tree.as_ref().ok_or(Refusal::Conflicts)?;
        checkout(&self.quarantine, tree, dir)?;
        self.carry_filtered(tree, dir)
    }

    /// Files that a filter of the user's writes (large files, say) come from the working tree as they are: no
    /// filter is run, and their blobs may be pointers only.
    fn carry_filtered(&self, tree: &str, dir: &Path) -> Result<(), IntegrateError> {
        if !self.quarantine.has_filters() {
            return Ok(());
        }
        let root = Root::open(&self.target.work_tree)?;
        let all = paths(&self.quarantine, tree)?;
        let filters = attribute(&self.quarantine, tree, "filter", all.iter())?;
        for (path, _) in filters.iter().filter(|(_, name)| self.quarantine.has_filter(name)) {
            let (from, to) = (root.path().join(path.as_path()), dir.join(path.as_path()));
            if matches!(root.see(path)?, Seen::File { .. }) && !self.landing.contains_key(path) {
                std::fs::copy(&from, &to).map_err(FileError::at("copy", &from))?;
            }
        }
        Ok(())
    }

    /// Writes at `dir` only what lands, with the attributes that govern it: enough for [`Prepared::journal`] where
    /// no check is run. It is no clone.
    ///
    /// # Errors
    /// There are conflicts, or git fails.
    pub fn stage_landing(&self, dir: &Path) -> Result<(), IntegrateError> {
        let tree = self.dry_run.tree.as_ref().ok_or(Refusal::Conflicts)?;
        let held = entries(&self.quarantine, tree, |path| {
            self.landing.contains_key(path) || path.components().next_back() == Some(b".gitattributes")
        })?;
        checkout_entries(&self.quarantine, tree.len(), &held, dir)
    }

    /// Checks another tree out at `dir`: the base, to see what the check says there.
    ///
    /// # Errors
    /// Git fails.
    pub fn stage_tree(&self, tree: &str, dir: &Path) -> Result<(), IntegrateError> {
        checkout(&self.quarantine, tree, dir)
    }

    /// Runs the check in the clean clone at `stage` and notes it in the dry run.
    ///
    /// # Errors
    /// The log cannot be written, or a process not be waited for.
    pub fn verify(&mut self, check: &Check, stage: &Path, log: &Path) -> Result<&Verified, FileError> {
        let site = CheckSite { dir: stage, log, token: &check.token, guard: check.guard.as_ref() };
        let setup = check.setup.as_deref().map(|argv| site.run(argv, check.setup_limit)).transpose()?;
        let combination = match setup.filter(|facts| !facts.ok) {
            Some(failed) => failed,
            None => site.run(&check.argv, check.limit)?,
        };
        Ok(self.dry_run.verify.insert(Verified { base: check.on_base.clone(), combination }))
    }
}
