//! What the gate is told about the world.

use std::collections::BTreeMap;

use crate::ids::ExecutorName;

/// What the caller saw, as plain data.
#[derive(Clone, Debug, Default)]
pub struct GateWorld {
    /// The repository, where there is one.
    pub repo: Option<RepoFacts>,
    /// The registry: every executor that a unit may name, `command` and `session` too.
    pub executors: BTreeMap<ExecutorName, ExecutorFacts>,
    /// Room for workspaces, where it could be measured.
    pub disk: Option<DiskFacts>,
}

/// The repository at its base.
#[derive(Clone, Debug, Default)]
pub struct RepoFacts {
    /// The base, a commit id.
    pub base: String,
    /// Paths of the base relative to the top level, with `/`; `None`: not listed.
    pub tracked: Option<Vec<String>>,
    /// How many paths have uncommitted work, without the plan and the files that it names.
    pub dirty: usize,
    /// The first ten of them.
    pub dirty_first: Vec<String>,
}

/// An executor as its preflight found it.
#[derive(Clone, Debug, Default)]
pub struct ExecutorFacts {
    /// Units that it may run at once.
    pub slots: u32,
    /// The client's version, where it has one.
    pub version: Option<String>,
    /// Whether somebody is logged in.
    pub login: Login,
    /// Why it cannot work at all, such as a program that is not there.
    pub problem: Option<ExecutorProblem>,
}

/// Whether an executor's account can be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Login {
    /// It has no account.
    #[default]
    NotNeeded,
    /// Somebody is logged in.
    LoggedIn,
    /// Nobody is.
    LoggedOut,
    /// It could not be told.
    Unknown,
}

/// Why an executor cannot work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutorProblem {
    /// What is wrong, without the executor's name.
    pub message: String,
    /// The next step.
    pub hint: Option<String>,
}

/// Room for workspaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskFacts {
    /// The directory that they are made in.
    pub path: String,
    /// Bytes that are free there.
    pub free_bytes: u64,
    /// Bytes that the run needs at least.
    pub needed_bytes: u64,
}
