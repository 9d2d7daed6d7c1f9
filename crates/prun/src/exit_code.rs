//! The exit codes of prun: one list, kept for automation. The old verbs keep the contract's.

/// How a command ended. The numbers never change their meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum ExitCode {
    /// It did what was asked.
    Ok = 0,
    /// Something went wrong that nobody expected.
    Unexpected = 1,
    /// The command line, the plan or a precondition is wrong. Nothing was changed.
    Usage = 2,
    /// The run needs a look: a unit did not succeed, or a worker touched the repository.
    Attention = 3,
    /// The run was cancelled.
    Cancelled = 4,
    /// Not ready to integrate. Nothing was changed.
    NotReady = 5,
    /// Conflicts. Nothing was changed.
    Conflicts = 6,
    /// The ledger or a result could not be written.
    NotWritten = 7,
    /// The check failed on the combination. Nothing was changed.
    VerifyFailed = 8,
    /// `wait` timed out, or a worker was reaped.
    TimedOut = 124,
    /// This viewer was interrupted; the run goes on.
    Interrupted = 130,
}

impl ExitCode {
    /// Its stable name, for machines.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Unexpected => "unexpected",
            Self::Usage => "usage",
            Self::Attention => "attention",
            Self::Cancelled => "cancelled",
            Self::NotReady => "not-ready",
            Self::Conflicts => "conflicts",
            Self::NotWritten => "not-written",
            Self::VerifyFailed => "verify-failed",
            Self::TimedOut => "timed-out",
            Self::Interrupted => "interrupted",
        }
    }
}

impl From<ExitCode> for std::process::ExitCode {
    fn from(code: ExitCode) -> Self {
        Self::from(code as u8)
    }
}
