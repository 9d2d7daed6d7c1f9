//! The runs of a home: one small card each, written when the run was started, found by listing.

use std::path::{Path, PathBuf};

use prun_core::event::ProcessIdentity;
use prun_core::ids::RunId;
use prun_core::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::files::{Durability, FileError, read_regular, write_atomically};
use crate::home::{Home, RunDir};
use crate::ledger::{LockHolder, RunLock};

/// No card is larger.
const CARD_LIMIT: u64 = 1 << 20;

/// What is known of a run without its ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunCard {
    /// The run.
    pub run: RunId,
    /// The plan's title.
    pub title: String,
    /// The repository's top level.
    pub repo: Option<PathBuf>,
    /// The plan's directory, by which a run without a repository is found.
    #[serde(default)]
    pub dir: Option<PathBuf>,
    /// SHA-256 over the plan and its prompts.
    pub plan_digest: String,
    /// When it was started.
    pub began: Timestamp,
}

impl RunCard {
    /// Whether it is meant by whoever names no run in `cwd`, in the repository `here`: it is that repository's, or
    /// has none and was started from there.
    #[must_use]
    pub fn belongs(&self, here: Option<&Path>, cwd: &Path) -> bool {
        match (&self.repo, here) {
            (_, None) => true,
            (Some(repo), Some(here)) => repo == here,
            (None, Some(here)) => self.dir.as_ref().is_some_and(|dir| dir.starts_with(here) || dir == cwd),
        }
    }

    /// Writes the card of a new run.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, run: &RunDir, durability: Durability) -> Result<(), FileError> {
        let text = serde_json::to_vec_pretty(self).expect("plain data with string keys");
        write_atomically(&card(run), &text, durability)
    }
}

/// All runs of `home` whose card can be read, oldest first.
#[must_use]
pub fn list(home: &Home) -> Vec<RunCard> {
    let entries = std::fs::read_dir(home.runs()).into_iter().flatten().flatten();
    let mut cards: Vec<RunCard> = entries
        .filter_map(|entry| {
            serde_json::from_slice(&read_regular(&card(&RunDir::at(entry.path())), CARD_LIMIT).ok()?).ok()
        })
        .collect();
    // An id tells the second alone; two runs of one second have no order by it.
    cards.sort_by(|one, other| (one.began, &one.run).cmp(&(other.began, &other.run)));
    cards
}

/// The supervisor that drives a run now: `Some(None)` where one does and did not say who it is.
#[must_use]
pub fn supervisor(run: &RunDir) -> Option<Option<ProcessIdentity>> {
    match RunLock::holder(run) {
        Ok(LockHolder::Somebody(process)) => Some(process),
        Ok(LockHolder::Nobody) | Err(_) => None,
    }
}

fn card(run: &RunDir) -> PathBuf {
    run.root().join("run.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_without_a_repository_is_found_where_it_was_started() {
        let card = |repo: Option<&str>, dir: &str| RunCard {
            run: "261130-000000-abcd".parse().unwrap(),
            title: String::new(),
            repo: repo.map(PathBuf::from),
            dir: Some(dir.into()),
            plan_digest: String::new(),
            began: Timestamp(0),
        };
        let here = |card: &RunCard| card.belongs(Some(Path::new("/r")), Path::new("/r/sub"));
        assert!(here(&card(Some("/r"), "/plans")) && !here(&card(Some("/other"), "/r")));
        assert!(here(&card(None, "/r/plans")) && here(&card(None, "/r/sub")) && !here(&card(None, "/elsewhere")));
        assert!(card(Some("/other"), "/x").belongs(None, Path::new("/tmp")), "outside of any repository all are meant");
    }
}
