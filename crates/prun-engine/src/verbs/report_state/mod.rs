//! `prun report-state`: looks over the state dirs that earlier runs left behind, and writes nothing.
//!
//! Two independent fields a unit instead of one verdict, which would read as leave to act.

mod look;
mod options;
mod render;

use std::path::PathBuf;

use rustix::io::Errno;

pub use self::look::report;
pub use self::options::{ReportArgs, Sort, USAGE};
pub use self::render::{json, text};

/// What is said with every report.
pub const SAFETY: &str =
    "This tells what was observed at one moment; it grants no leave to delete, overwrite or move anything.";

/// What is known of the path at which a unit's result is to stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PathState {
    /// The unit recorded it and it could be read.
    Resolved,
    /// There is no `result-file`.
    AbsentEntry,
    /// The entry is empty, or a relative path that leads out of the unit.
    InvalidEntry,
    /// The entry is there and could not be read.
    Unreadable,
}

/// What is known of a unit's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ResultState {
    /// A regular file with bytes in it.
    Present,
    /// A regular file of zero bytes.
    Empty,
    /// It does not exist.
    Missing,
    /// Nothing is claimed.
    Unknown,
}

/// Every pair of the two that a report can hold.
pub const LEGAL_PAIRS: [(PathState, ResultState); 7] = [
    (PathState::Resolved, ResultState::Present),
    (PathState::Resolved, ResultState::Empty),
    (PathState::Resolved, ResultState::Missing),
    (PathState::Resolved, ResultState::Unknown),
    (PathState::AbsentEntry, ResultState::Unknown),
    (PathState::InvalidEntry, ResultState::Unknown),
    (PathState::Unreadable, ResultState::Unknown),
];

/// The class of a failed observation. The names never change; those of failures of the system are the
/// ones that Python gives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// It is there, and is no regular file: a directory, a link, a FIFO, a socket, a device.
    NotARegularFile,
    /// An entry of more than 64 KiB. It is never cut: a cut path can pass for a whole one.
    EntryTooLarge,
    /// It does not exist.
    FileNotFoundError,
    /// Access is denied.
    PermissionError,
    /// A directory on the way to it is none.
    NotADirectoryError,
    /// Any other failure of the system: an I/O error, a loop of links, a name that is too long.
    OSError,
    /// What is recorded is no path or no text.
    ValueError,
}

/// Where an observation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Reading `result-file`.
    ResultEntry,
    /// Looking at the file that it names.
    ResultTarget,
    /// Telling what the result is.
    Result,
    /// Looking at the tail.
    Tail,
    /// Reading `dispatch-pid`.
    LegacyPid,
}

/// The result of a unit as far as it could be told: only the [`LEGAL_PAIRS`] can be built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResultReport {
    /// The path is known.
    Resolved {
        /// It, absolute.
        target: PathBuf,
        /// What stands there.
        result: ResultState,
    },
    /// It is not, for this reason.
    Unresolved(Unresolved),
}

/// Why a result's path is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unresolved {
    /// See [`PathState::AbsentEntry`].
    AbsentEntry,
    /// See [`PathState::InvalidEntry`].
    InvalidEntry,
    /// See [`PathState::Unreadable`].
    Unreadable,
}

/// One unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitReport {
    /// Its directory, absolute.
    pub unit: PathBuf,
    /// Its result.
    pub result: ResultReport,
    /// The size of its tail; `None` where it could not be told.
    pub tail_bytes: Option<u64>,
    /// What could not be observed.
    pub errors: Vec<(Stage, ErrorClass)>,
    /// The text of `dispatch-pid`, where it was asked for and is there. It may be anybody's number by now.
    pub legacy_pid: Option<String>,
}

/// A place in which units could not be looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiscoveryError {
    /// A root.
    Root(PathBuf, ErrorClass),
    /// An entry of a root that is named like a unit.
    UnitEntry(PathBuf, ErrorClass),
}

/// Everything that was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The directories that were looked over, absolute; the same directory once.
    pub roots: Vec<PathBuf>,
    /// The units, by path.
    pub units: Vec<UnitReport>,
    /// Where units could not be looked for.
    pub discovery_errors: Vec<DiscoveryError>,
}

/// Counts and bytes over all units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Units whose result is missing or empty and whose tail holds bytes.
    pub missing_or_empty_units: u64,
    /// The bytes of their tails.
    pub missing_or_empty_bytes: u64,
    /// Units whose result was never classified and whose tail holds bytes.
    pub unresolved_units: u64,
    /// The bytes of their tails.
    pub unresolved_bytes: u64,
}

impl ResultReport {
    /// The two fields.
    #[must_use]
    pub fn pair(&self) -> (PathState, ResultState) {
        match self {
            Self::Resolved { result, .. } => (PathState::Resolved, *result),
            Self::Unresolved(why) => (why.state(), ResultState::Unknown),
        }
    }
}

impl Unresolved {
    fn state(self) -> PathState {
        match self {
            Self::AbsentEntry => PathState::AbsentEntry,
            Self::InvalidEntry => PathState::InvalidEntry,
            Self::Unreadable => PathState::Unreadable,
        }
    }
}

impl Report {
    /// The verb's exit code: 1 where anything could not be observed.
    #[must_use]
    pub fn exit_code(&self) -> i32 {
        let is_whole = self.discovery_errors.is_empty() && self.units.iter().all(|unit| unit.errors.is_empty());
        i32::from(!is_whole)
    }

    /// The counters. A unit is in one of them at most.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let mut summary = Summary::default();
        for unit in &self.units {
            let bytes = unit.tail_bytes.unwrap_or(0);
            if bytes == 0 {
                continue;
            }
            match unit.result.pair().1 {
                ResultState::Missing | ResultState::Empty => {
                    summary.missing_or_empty_units += 1;
                    summary.missing_or_empty_bytes = summary.missing_or_empty_bytes.saturating_add(bytes);
                }
                ResultState::Unknown => {
                    summary.unresolved_units += 1;
                    summary.unresolved_bytes = summary.unresolved_bytes.saturating_add(bytes);
                }
                ResultState::Present => {}
            }
        }
        summary
    }
}

impl PathState {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Resolved => "resolved",
            Self::AbsentEntry => "absent-entry",
            Self::InvalidEntry => "invalid-entry",
            Self::Unreadable => "unreadable",
        }
    }
}

impl ResultState {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Present => "present",
            Self::Empty => "empty",
            Self::Missing => "missing",
            Self::Unknown => "unknown",
        }
    }
}

impl Stage {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ResultEntry => "result-entry",
            Self::ResultTarget => "result-target",
            Self::Result => "result",
            Self::Tail => "tail",
            Self::LegacyPid => "legacy-pid",
        }
    }
}

impl ErrorClass {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NotARegularFile => "NotARegularFile",
            Self::EntryTooLarge => "EntryTooLarge",
            Self::FileNotFoundError => "FileNotFoundError",
            Self::PermissionError => "PermissionError",
            Self::NotADirectoryError => "NotADirectoryError",
            Self::OSError => "OSError",
            Self::ValueError => "ValueError",
        }
    }
}

impl From<Errno> for ErrorClass {
    fn from(error: Errno) -> Self {
        match error {
            Errno::NOENT => Self::FileNotFoundError,
            Errno::ACCESS | Errno::PERM => Self::PermissionError,
            Errno::NOTDIR => Self::NotADirectoryError,
            // What rustix says of a path with a NUL in it.
            Errno::INVAL => Self::ValueError,
            _ => Self::OSError,
        }
    }
}

#[cfg(test)]
mod tests;
