//! What the verbs of the old scripts share: their streams and exit codes are the contract's, so they
//! pass by the command line parser of the others.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use prun_engine::home::Home;
use prun_engine::verbs::UsageError;
use prun_engine::verbs::of_runs::{Attempts, OfRuns};

/// The exit code of a command line that cannot be used.
pub(crate) const USAGE_ERROR: i32 = 2;

/// One line on stdout, flushed: a coordinator acts on it while we go on. Nobody may be there to read it.
pub(crate) fn say(line: &[u8]) {
    let mut stdout = std::io::stdout().lock();
    let _ = stdout.write_all(&[line, b"\n"].concat()).and_then(|()| stdout.flush());
}

/// One line on stderr.
pub(crate) fn note(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// Tells what is wrong with the command line, and how the verb is used.
pub(crate) fn refuse(verb: &str, error: &UsageError, usage: &str) -> i32 {
    if *error == UsageError::Help {
        say(usage.as_bytes());
        return 0;
    }
    fail(verb, &error.to_string());
    note(usage);
    USAGE_ERROR
}

/// Tells why the verb cannot begin.
pub(crate) fn fail(verb: &str, error: &str) -> i32 {
    note(&format!("{verb}: {error}"));
    USAGE_ERROR
}

/// A variable of the environment.
pub(crate) fn var(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

/// The temporary directory: where dispatches without a run have their state dirs. Without a slash at its
/// end.
pub(crate) fn temp_dir() -> PathBuf {
    let named = var("TMPDIR").filter(|dir| !dir.is_empty()).map_or_else(|| PathBuf::from("/tmp"), PathBuf::from);
    let absolute = std::path::absolute(&named).unwrap_or(named);
    absolute.components().collect()
}

/// The state dirs of the runs that a command line names.
pub(crate) fn of_runs(runs: &OfRuns, attempts: Attempts) -> Result<Vec<PathBuf>, String> {
    if runs.is_empty() {
        return Ok(Vec::new());
    }
    let home = Home::from_env(var).map_err(|error| error.to_string())?;
    runs.state_dirs(&home, attempts).map_err(|error| error.to_string())
}
