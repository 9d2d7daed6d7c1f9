//! `--run ID` and `--all-runs`: the state dirs of the runs in prun's home.

use std::path::PathBuf;

use prun_core::ids::{LookupError, RunId, find_run};

use super::arguments::{Arguments, UsageError};
use crate::home::{Home, RunDir};
use crate::runs;
use crate::state_dir;

const RUN: &str = "--run";
const ALL_RUNS: &str = "--all-runs";

/// The runs that a command line names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OfRuns {
    /// By their beginnings.
    pub named: Vec<String>,
    /// Every run there is.
    pub all: bool,
}

/// Which attempts of a unit are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempts {
    /// The last one alone: an old one says nothing of the unit any more.
    Latest,
    /// All that there were.
    All,
}

impl OfRuns {
    /// Takes the option `name`; `false` where it is none of these.
    pub(super) fn take<I: Iterator<Item = std::ffi::OsString>>(
        &mut self,
        name: &str,
        arguments: &mut Arguments<I>,
    ) -> Result<bool, UsageError> {
        match name {
            RUN => self.named.push(arguments.text(RUN)?),
            ALL_RUNS => self.all = true,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Whether no run is named.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.all && self.named.is_empty()
    }

    /// The state dirs of these runs' attempts, by run, unit and attempt.
    ///
    /// # Errors
    /// A name that no run has, or several.
    pub fn state_dirs(&self, home: &Home, attempts: Attempts) -> Result<Vec<PathBuf>, LookupError> {
        if self.is_empty() {
            return Ok(Vec::new());
        }
        let cards = runs::list(home);
        let ids: Vec<&RunId> = cards.iter().map(|card| &card.run).collect();
        let chosen: Vec<RunId> = if self.all {
            ids.into_iter().cloned().collect()
        } else {
            self.named.iter().map(|part| find_run(ids.iter().copied(), part)).collect::<Result<_, _>>()?
        };
        Ok(chosen.iter().flat_map(|run| in_run(&home.run(run), attempts)).collect())
    }
}

fn in_run(run: &RunDir, attempts: Attempts) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for unit in entries(run.root().join("units")) {
        let mut numbered: Vec<(u32, PathBuf)> =
            entries(unit).into_iter().filter_map(|dir| Some((dir.file_name()?.to_str()?.parse().ok()?, dir))).collect();
        numbered.sort();
        let first = if attempts == Attempts::Latest { numbered.len().saturating_sub(1) } else { 0 };
        found.extend(numbered[first..].iter().filter_map(|(_, dir)| state_dir::find_in(dir)));
    }
    found
}

/// The entries of a directory in the order of their names.
fn entries(dir: PathBuf) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

#[cfg(test)]
mod tests {
    use prun_core::time::Timestamp;

    use super::*;
    use crate::files::Durability;
    use crate::runs::RunCard;

    fn home_with_attempts(attempts: &[&str]) -> (tempfile::TempDir, Home) {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path());
        for attempt in attempts {
            let run: RunId = attempt.split('/').next().unwrap().parse().unwrap();
            let rest = attempt.split_once('/').unwrap().1;
            let run_dir = home.run(&run);
            std::fs::create_dir_all(run_dir.root().join("units").join(rest).join("prun-task-x")).unwrap();
            let card = RunCard {
                dir: None,
                run: run.clone(),
                title: String::new(),
                repo: None,
                plan_digest: String::new(),
                began: Timestamp(0),
            };
            card.write(&run_dir, Durability::Cached).unwrap();
        }
        (dir, home)
    }

    /// C70.
    #[test]
    fn the_latest_attempt_decides_and_all_of_them_are_left_overs() {
        let (_dir, home) = home_with_attempts(&[
            "261130-155200-k3f9/a/1",
            "261130-155200-k3f9/a/2",
            "261130-155200-k3f9/a/10",
            "261130-155200-k3f9/b/1",
            "261130-155201-z2z2/a/1",
        ]);
        let names = |of: &OfRuns, attempts| -> Vec<String> {
            let dirs = of.state_dirs(&home, attempts).unwrap();
            dirs.iter()
                .map(|dir| dir.parent().unwrap().strip_prefix(home.runs()).unwrap().display().to_string())
                .collect()
        };
        let one = OfRuns { named: vec!["k3f9".into()], all: false };
        assert_eq!(names(&one, Attempts::Latest), ["261130-155200-k3f9/units/a/10", "261130-155200-k3f9/units/b/1"]);
        let all = OfRuns { named: Vec::new(), all: true };
        assert_eq!(names(&all, Attempts::All).len(), 5);
        assert!(OfRuns::default().state_dirs(&home, Attempts::All).unwrap().is_empty());
        assert!(OfRuns { named: vec!["nope".into()], all: false }.state_dirs(&home, Attempts::All).is_err());
    }
}
