//! Why a run was not landed.

use std::path::PathBuf;

use prun_core::reconcile::Reconciliation;

use crate::driver::DriverError;
use crate::files::FileError;
use crate::integrate::{DryRun, IntegrateError, LandError};
use crate::ledger::LedgerError;
use crate::workspace::source::SourceError;

/// Why a run was not landed. But for `Land`, nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum LandingError {
    /// Units block, or the run has nothing to land in.
    #[error("the run is not ready to be integrated")]
    NotReconciled(Box<Reconciliation>),
    /// The run has no repository.
    #[error("the run has no repository to land in")]
    NoRepository,
    /// The run's repository is gone, or git refuses it.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The run's repository has no work tree.
    #[error("{} is a bare repository: it has no work tree to land in", .0.display())]
    Bare(PathBuf),
    /// A landing was cut off and is to be finished or undone first.
    #[error("landing {0} was cut off in the middle")]
    CutOff(u32),
    /// There is no such landing.
    #[error("there is no landing to {0}")]
    NoLanding(&'static str),
    /// A merge workspace is asked for where nothing is at odds.
    #[error("nothing is at odds; there is nothing to resolve")]
    NothingToResolve,
    /// A merge workspace stands already.
    #[error("a merge workspace stands already: {}", .0.display())]
    MergeStands(PathBuf),
    /// The merge workspace was made of other trees than those that would land now.
    #[error("the units have changed since the merge workspace {} was made; nothing was changed", .0.display())]
    MergeOutdated(PathBuf),
    /// The check failed on the combination.
    #[error("the check failed on the combination")]
    VerifyFailed(Box<DryRun>),
    /// It could not be combined.
    #[error(transparent)]
    Integrate(#[from] IntegrateError),
    /// It could not be landed, or taken back.
    #[error(transparent)]
    Land(#[from] LandError),
    /// The ledger, or whoever drives the run.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// A file operation.
    #[error(transparent)]
    File(#[from] FileError),
}

impl From<LedgerError> for LandingError {
    fn from(error: LedgerError) -> Self {
        Self::Driver(error.into())
    }
}
