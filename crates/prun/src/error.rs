//! The one error of the command line: what failed, what to do next, and the exit code.

use std::fmt;

use prun_core::answer::{ErrorBody, ErrorView};
use prun_core::ids::{IdError, LookupError};
use prun_core::plan::{Problem, render};
use prun_core::view::VIEW_VERSION;
use prun_engine::begin::BeginError;
use prun_engine::depth::TooDeep;
use prun_engine::driver::DriverError;
use prun_engine::executor::registry::ConfigError;
use prun_engine::files::FileError;
use prun_engine::git::GitError;
use prun_engine::home::NoHome;
use prun_engine::integrate::{IntegrateError, LandError, Refusal};
use prun_engine::ledger::LedgerError;
use prun_engine::survey::PlanError;
use prun_engine::workshop::WorkshopError;
use prun_engine::workspace::WorkspaceError;

use crate::exit_code::ExitCode;

/// A command that failed.
#[derive(Debug)]
pub(crate) struct CliError {
    /// The exit code.
    pub(crate) code: ExitCode,
    /// What failed: the act and the path. May have several lines.
    pub(crate) message: String,
    /// Next steps, a line each.
    pub(crate) hints: Vec<String>,
}

/// What a command gives back.
pub(crate) type CliResult<T = ExitCode> = Result<T, CliError>;

impl CliError {
    /// A failure of that kind.
    pub(crate) fn new(code: ExitCode, message: impl fmt::Display) -> Self {
        Self { code, message: message.to_string(), hints: Vec::new() }
    }

    /// A wrong command line or precondition.
    pub(crate) fn usage(message: impl fmt::Display) -> Self {
        Self::new(ExitCode::Usage, message)
    }

    /// Adds a next step.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// The failure as data.
    pub(crate) fn view(&self) -> ErrorView {
        let error = ErrorBody {
            kind: self.code.name().to_owned(),
            exit_code: self.code as u8,
            message: self.message.clone(),
            hints: self.hints.clone(),
        };
        ErrorView { version: VIEW_VERSION, error }
    }

    /// The problems of a plan, each with its place.
    pub(crate) fn plan(name: &str, problems: &[Problem]) -> Self {
        Self::usage(render(problems, name).trim_end())
    }
}

macro_rules! from_error {
    ($($error:ty => $code:ident),* $(,)?) => {$(
        impl From<$error> for CliError {
            fn from(error: $error) -> Self {
                Self::new(ExitCode::$code, error)
            }
        }
    )*};
}
from_error! {
    ConfigError => Usage,
    FileError => Unexpected,
    GitError => Unexpected,
    IdError => Usage,
    LookupError => Usage,
    WorkshopError => Unexpected,
    WorkspaceError => Unexpected,
    std::io::Error => Unexpected,
}

impl From<BeginError> for CliError {
    fn from(error: BeginError) -> Self {
        match &error {
            // Some sandboxes forbid what the file's mode allows.
            BeginError::File(failed) if is_forbidden(&failed.source) => {
                Self::usage(error).hint("let your sandbox write there, or name another directory with PRUN_HOME")
            }
            BeginError::Ledger(_) => Self::new(ExitCode::NotWritten, error),
            _ => Self::new(ExitCode::Unexpected, error),
        }
    }
}

fn is_forbidden(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem)
}

impl From<NoHome> for CliError {
    fn from(error: NoHome) -> Self {
        Self::usage(error).hint("set PRUN_HOME to a directory of your own on a local disk")
    }
}

impl From<TooDeep> for CliError {
    fn from(error: TooDeep) -> Self {
        Self::usage(error)
            .hint("say in your result what you would have split off")
            .hint("the plan of the outer run can allow it: depth = 1")
    }
}

impl From<PlanError> for CliError {
    fn from(error: PlanError) -> Self {
        Self::plan(&error.name, &error.problems)
    }
}

impl From<LedgerError> for CliError {
    fn from(error: LedgerError) -> Self {
        let holds = "every attempt's own directory still holds its facts and results";
        let way_out = error.is_damage().map(|path| rebuild_hint(&path));
        let failed = Self::new(ExitCode::NotWritten, error).hint(holds);
        way_out.into_iter().fold(failed, Self::hint)
    }
}

/// What makes the ledger at `path` again.
fn rebuild_hint(path: &std::path::Path) -> String {
    let run = path.parent().and_then(std::path::Path::file_name).unwrap_or_default();
    format!("`prun ledger rebuild {}` makes it again from what the attempts left", run.to_string_lossy())
}

impl From<DriverError> for CliError {
    fn from(error: DriverError) -> Self {
        match error {
            DriverError::Driven(_) => Self::usage(error),
            DriverError::Ledger(error) => error.into(),
            DriverError::Damaged { ref run, .. } => {
                let hint = format!("`prun ledger rebuild {run}` makes it again from what the attempts left");
                Self::new(ExitCode::NotWritten, error).hint(hint)
            }
            _ => Self::new(ExitCode::Unexpected, error),
        }
    }
}

impl From<IntegrateError> for CliError {
    fn from(error: IntegrateError) -> Self {
        let hint = error.hint();
        let failure = match error {
            IntegrateError::Land(error) => error.into(),
            IntegrateError::Refused(Refusal::Conflicts | Refusal::Unresolved(_)) | IntegrateError::Hazard { .. } => {
                Self::new(ExitCode::Conflicts, error)
            }
            IntegrateError::Refused(Refusal::NotAsShown { .. } | Refusal::NothingToLand)
            | IntegrateError::Moving { .. } => Self::new(ExitCode::NotReady, error),
            IntegrateError::Refused(_) => Self::usage(error),
            IntegrateError::Git(_) | IntegrateError::File(_) => Self::new(ExitCode::Unexpected, error),
        };
        match hint {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

impl From<LandError> for CliError {
    fn from(error: LandError) -> Self {
        let code = match &error {
            LandError::File(_) | LandError::Interrupted => ExitCode::Unexpected,
            LandError::Unsupported { .. } => ExitCode::Usage,
            LandError::NotLanded => ExitCode::NotReady,
            LandError::Conflict { .. } | LandError::ChangedSince { .. } | LandError::LeftBehind { .. } => {
                ExitCode::Conflicts
            }
        };
        Self::new(code, error)
    }
}
