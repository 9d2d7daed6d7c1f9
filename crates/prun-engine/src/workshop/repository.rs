//! The user's repository around a run: what it looked like, what changed in it, what the check says of the base.

use std::path::PathBuf;

use prun_core::outcome::{CheckFacts, Exit};
use prun_core::run::RunState;
use serde::{Deserialize, Serialize};

use super::Workshop;
use crate::contain;
use crate::home::{RunDir, sha256_hex};
use crate::integrate::stage::CheckSite;
use crate::workspace::Base;
use crate::workspace::clone::{self, ClonePlan};
use crate::workspace::fingerprint::{Finding, Fingerprint, compare, objects_in_clones};
use crate::workspace::scratch;
use crate::workspace::source::Source;
use crate::workspace::store::Store;

/// The user's repository as it was when a run was started.
#[derive(Debug, Serialize, Deserialize)]
pub struct StoredFingerprint {
    /// Its top level.
    pub top: PathBuf,
    /// Paths that never count as uncommitted work: the plan, its prompts, prun's home.
    pub ignore: Vec<PathBuf>,
    /// What it looked like.
    pub fingerprint: Fingerprint,
}

impl Workshop {
    /// What workers and what the user changed in the user's repository since the run was started.
    #[must_use]
    pub fn compare_repository(&self, workspaces: &[PathBuf]) -> (Vec<String>, Option<String>) {
        let Some(store) = &self.store else { return (Vec::new(), None) };
        match self.findings(store, workspaces) {
            Ok(found) => {
                let (loud, quiet): (Vec<Finding>, Vec<Finding>) = found.into_iter().partition(|finding| finding.loud);
                let quiet: Vec<String> = quiet.into_iter().map(|finding| finding.what).collect();
                let moved = (!quiet.is_empty()).then(|| quiet.join("; "));
                (loud.into_iter().map(|finding| finding.what).collect(), moved)
            }
            // What cannot be compared cannot be vouched for.
            Err(why) => (vec![format!("the repository could not be compared with what it was: {why}")], None),
        }
    }

    fn findings(&self, store: &Store, workspaces: &[PathBuf]) -> Result<Vec<Finding>, String> {
        let path = self.run_dir.fingerprint();
        let text = std::fs::read(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        let before: StoredFingerprint =
            serde_json::from_slice(&text).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        let source = Source::open(&self.git, &before.top).map_err(|error| error.to_string())?;
        let after = Fingerprint::take(&source, store, &before.ignore).map_err(|error| error.to_string())?;
        let tips = after.new_tips(&before.fingerprint);
        let from_clones = objects_in_clones(store, workspaces, &tips).map_err(|error| error.to_string())?;
        Ok(compare(&before.fingerprint, &after, &from_clones))
    }

    /// Ends what a check of the base has started and not ended yet.
    pub fn end_base_check(&self) {
        contain::reap_marked(&self.base_check_token());
    }

    /// Ends what the check of a combination has left of itself, where whoever ran it was killed. The caller holds the
    /// run's lock, so that none goes on.
    pub(crate) fn end_combination_check(&self) {
        let entries = std::fs::read_dir(self.run_dir.root()).into_iter().flatten().flatten();
        let was_cut_off = |entry: std::fs::DirEntry| {
            let is_trial = entry.file_name().as_encoded_bytes().starts_with(b"trial-");
            is_trial && ["checked", "checked-base"].iter().any(|name| entry.path().join(name).exists())
        };
        if entries.into_iter().any(was_cut_off) {
            contain::reap_marked(&self.combination_check_token());
        }
    }

    /// The mark of the check of a combination. At most one runs at a time.
    pub(crate) fn combination_check_token(&self) -> String {
        sha256_hex(format!("{} combination check", self.run).as_bytes())
    }

    /// The same for every supervisor of this run: one that was killed may have left its check behind.
    fn base_check_token(&self) -> String {
        sha256_hex(format!("{} base check", self.run).as_bytes())
    }

    /// Runs the run's check on a clean checkout of the base: what a red combination is compared with.
    #[must_use]
    pub fn verify_base(&self, base: Option<Base>, repo: Option<&str>) -> (String, CheckFacts) {
        let tree = base.as_ref().map(|base| base.tree.clone()).unwrap_or_default();
        let dir = self.run_dir.root().join("base-check");
        let log = self.run_dir.root().join("base-check.log");
        let token = self.base_check_token();
        let run = || -> Result<CheckFacts, String> {
            contain::reap_marked(&token);
            let store = self.store.as_ref().ok_or("the run has no repository")?;
            let base = base.ok_or("the run has no base")?;
            let argv = self.plan.verify.as_ref().ok_or("the plan has no check")?.argv();
            let mirror = self.mirror(store, &base)?;
            if dir.exists() {
                // A supervisor before did not get to its end.
                std::fs::remove_dir_all(&dir).map_err(|error| format!("cannot remove {}: {error}", dir.display()))?;
            }
            let trusted_index = self.run_dir.root().join("base-check.index");
            let (trusted_index, template) = (&trusted_index, None);
            let plan = ClonePlan { store, mirror, base: &base, dir: &dir, trusted_index, template };
            clone::prepare(&plan).map_err(|error| error.to_string())?;
            let guard = self.guard(repo, std::slice::from_ref(&dir))?;
            let site = CheckSite { dir: &dir, log: &log, token: &token, guard: guard.as_ref() };
            if let Some(setup) = &self.plan.setup {
                let facts = site.run(&setup.argv(), self.plan.setup_limit()).map_err(|error| error.to_string())?;
                if !facts.ok {
                    return Ok(facts);
                }
            }
            site.run(&argv, self.plan.check_limit()).map_err(|error| error.to_string())
        };
        let check = run().unwrap_or_else(|error| CheckFacts {
            ok: false,
            exit: Exit::NotStarted { code: 126, error },
            timed_out: false,
            millis: 0,
            log: log.to_string_lossy().into_owned(),
        });
        // Only the log is of any further use; a rest is removed with the run.
        let _ = std::fs::remove_dir_all(&dir);
        (tree, check)
    }
}

/// Where units worked, for telling a worker's traces in the user's repository from the user's own.
pub fn workspaces(run: &RunState, run_dir: &RunDir) -> Vec<PathBuf> {
    let attempts = run.units.iter().flat_map(|unit| &unit.attempts);
    let dirs = attempts.map(|record| run_dir.attempt(&record.dir));
    dirs.flat_map(|dir| [dir.clone_dir(), dir.scratch().join(scratch::CHECKOUT)]).filter(|dir| dir.is_dir()).collect()
}
