//! `prun dispatch-task` without its printing: arguments and environment to what is run. Pure.

mod worker;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use prun_core::ids::{Attempt, ExecutorName, IdError, UnitId};

use crate::depth::{DEFAULT_LIMIT, DEPTH_VARIABLE, Depth, LIMIT_VARIABLE};
use crate::executor::{ConfigError, LaunchError, Registry, UnknownExecutor};
use crate::settings::whole_number;
use crate::spec::{AttemptSpec, Limits, Liveness, SPEC_VERSION};

/// How it is used.
pub const USAGE: &str = "usage: prun dispatch-task --prompt-file PROMPT --result-file RESULT --unit-id ID \
                         [--executor NAME] [-- PROGRAM [ARGUMENT...]]";

/// Seconds without growth of the tail that `PRUN_STALL_THRESHOLD` changes.
const STALL_SECONDS: u64 = 600;

/// Milliseconds between TERM and KILL.
const GRACE_MILLIS: u64 = 2000;

/// Bytes that a tail may hold.
const OUTPUT_BYTES: u64 = 256 * 1024 * 1024;

/// What the command line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskArgs {
    /// The prompt.
    pub prompt_file: PathBuf,
    /// Where the result is to stand, as given.
    pub result_file: PathBuf,
    /// The unit.
    pub unit: UnitId,
    /// The executor whose command line is run, instead of the contract's own.
    pub executor: Option<ExecutorName>,
    /// The worker's own command line.
    pub command: Option<Vec<OsString>>,
}

/// A command line or an environment that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum UsageError {
    /// An argument that is not known.
    #[error("unknown argument {0:?}")]
    Unknown(String),
    /// An option at the end of the line.
    #[error("{0} needs a value")]
    NoValue(&'static str),
    /// An option that is not there.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// A unit id outside the alphabet.
    #[error(transparent)]
    Unit(#[from] IdError),
    /// An executor that nobody knows.
    #[error(transparent)]
    Executor(#[from] UnknownExecutor),
    /// An executor that cannot take this unit.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// Executors cannot be told.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// An executor that starts nothing.
    #[error("the executor {0} starts nothing; dispatch-task runs a worker")]
    NothingToStart(ExecutorName),
    /// prun inside prun.
    #[error("this is a worker of prun already (PRUN_DEPTH is {}, below {} is allowed)", .0.level, .0.limit)]
    Depth(Depth),
}

const PROMPT_FILE: &str = "--prompt-file";
const RESULT_FILE: &str = "--result-file";
const UNIT_ID: &str = "--unit-id";
const EXECUTOR: &str = "--executor";
const COMMAND: &str = "--";

impl TaskArgs {
    /// Reads the arguments after the verb. Of an option that is given twice the last one counts.
    ///
    /// # Errors
    /// An unknown or missing argument, an option without its value, a bad unit id.
    pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, UsageError> {
        let (mut prompt_file, mut result_file, mut unit) = (None, None, None);
        let (mut executor, mut command) = (None, None);
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let (slot, name) = match argument.to_str() {
                Some(PROMPT_FILE) => (&mut prompt_file, PROMPT_FILE),
                Some(RESULT_FILE) => (&mut result_file, RESULT_FILE),
                Some(UNIT_ID) => (&mut unit, UNIT_ID),
                Some(EXECUTOR) => (&mut executor, EXECUTOR),
                Some(COMMAND) => {
                    command = Some(arguments.by_ref().collect()).filter(|command: &Vec<_>| !command.is_empty());
                    if command.is_none() {
                        return Err(UsageError::NoValue(COMMAND));
                    }
                    break;
                }
                _ => return Err(UsageError::Unknown(argument.to_string_lossy().into_owned())),
            };
            *slot = Some(arguments.next().filter(|value| !value.is_empty()).ok_or(UsageError::NoValue(name))?);
        }
        let unit = unit.ok_or(UsageError::Missing(UNIT_ID))?;
        Ok(Self {
            prompt_file: prompt_file.ok_or(UsageError::Missing(PROMPT_FILE))?.into(),
            result_file: result_file.ok_or(UsageError::Missing(RESULT_FILE))?.into(),
            unit: unit.to_string_lossy().parse()?,
            executor: executor.map(|name| name.to_string_lossy().parse()).transpose()?,
            command,
        })
    }
}

/// What the contract's variables and arguments ask for; `caller_dir` is the caller's working directory.
/// `registry` is asked only where an executor is named.
///
/// # Errors
/// prun was called by one of its own workers, or the executor cannot take the unit.
pub fn spec_from_contract(
    args: &TaskArgs,
    var: impl Fn(&str) -> Option<OsString>,
    registry: impl FnOnce() -> Result<Registry, ConfigError>,
    caller_dir: &Path,
) -> Result<AttemptSpec, UsageError> {
    let number = |name: &str| text(&var, name).and_then(|text| text.parse().ok());
    let depth =
        Depth { level: number(DEPTH_VARIABLE).unwrap_or(0), limit: number(LIMIT_VARIABLE).unwrap_or(DEFAULT_LIMIT) };
    depth.check().map_err(|_| UsageError::Depth(depth))?;
    let (worker, env) = worker::worker(args, &var, registry, caller_dir)?;
    let directory = |name: &str| var(name).filter(|dir| !dir.is_empty()).map(|dir| caller_dir.join(dir));
    Ok(AttemptSpec {
        version: SPEC_VERSION,
        run: None,
        unit: args.unit.clone(),
        attempt: Attempt(1),
        attempt_dir: None,
        state_parent: directory("TMPDIR").unwrap_or_else(|| PathBuf::from("/tmp")),
        worker: Some(worker),
        resumes: None,
        prompt_file: caller_dir.join(&args.prompt_file),
        result_file: caller_dir.join(&args.result_file),
        cwd: directory("PRUN_SCRATCH_CWD"),
        env,
        place: 0,
        limits: Limits {
            first_output_millis: None,
            idle_millis: limit(whole_number(&var, "PRUN_STALL_THRESHOLD", STALL_SECONDS)),
            hard_millis: limit(whole_number(&var, "CODEX_DISPATCH_TIMEOUT", 0)),
            linger_millis: None,
            grace_millis: GRACE_MILLIS,
            output_bytes: Some(OUTPUT_BYTES),
            liveness: Liveness::Tail,
        },
        setup: None,
        verify: None,
        deliverables: Vec::new(),
        expects_changes: false,
        harvest: None,
        guard: None,
        depth: 0,
    })
}

/// 0 turns a limit off.
fn limit(seconds: u64) -> Option<u64> {
    (seconds > 0).then(|| seconds.saturating_mul(1000))
}

/// The text of a variable, lossy.
fn text(var: &impl Fn(&str) -> Option<OsString>, name: &str) -> Option<String> {
    var(name).map(|value| value.to_string_lossy().into_owned())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(super) const LINE: [&str; 6] = ["--prompt-file", "p.md", "--result-file", "out.md", "--unit-id", "u1"];

    pub(super) fn registry() -> Result<Registry, ConfigError> {
        Ok(Registry::built_in(2))
    }

    pub(super) fn parse(line: &[&str]) -> Result<TaskArgs, UsageError> {
        TaskArgs::parse(line.iter().map(OsString::from))
    }

    /// The spec of `dispatch-task` from `/here` with these variables.
    pub(in crate::dispatcher) fn spec(vars: &[(&str, &str)]) -> AttemptSpec {
        let var = |name: &str| vars.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value));
        spec_from_contract(&parse(&LINE).unwrap(), var, registry, Path::new("/here")).unwrap()
    }

    #[test]
    fn limits_come_from_whole_numbers_alone() {
        let limits = |stall, timeout| {
            let spec = spec(&[("PRUN_STALL_THRESHOLD", stall), ("CODEX_DISPATCH_TIMEOUT", timeout)]);
            (spec.limits.idle_millis, spec.limits.hard_millis)
        };
        assert_eq!(limits("", ""), (Some(600_000), None));
        assert_eq!(limits("3", "7"), (Some(3000), Some(7000)));
        assert_eq!(limits("0", "0"), (None, None));
        for junk in ["-1", "1.5", "ten", "+5", " 5"] {
            assert_eq!(limits(junk, junk), (Some(600_000), None), "{junk:?}");
        }
    }

    #[test]
    fn relative_paths_are_the_callers() {
        let spec = spec(&[("TMPDIR", "up"), ("PRUN_SCRATCH_CWD", "work/a")]);
        assert_eq!(spec.state_parent, Path::new("/here/up"));
        assert_eq!(spec.cwd.as_deref(), Some(Path::new("/here/work/a")));
        assert_eq!(
            (spec.prompt_file.as_path(), spec.result_file.as_path()),
            (Path::new("/here/p.md"), Path::new("/here/out.md"))
        );
        assert_eq!(tests::spec(&[]).state_parent, Path::new("/tmp"));
    }

    #[test]
    fn a_bad_command_line_is_told_apart() {
        #[track_caller]
        fn refused(line: &[&str], error: &str) {
            assert_eq!(parse(line).unwrap_err().to_string(), error, "{line:?}");
        }
        refused(&[], "--unit-id is missing");
        refused(&LINE[..5], "--unit-id needs a value");
        refused(&LINE[2..], "--prompt-file is missing");
        refused(&["--what"], "unknown argument \"--what\"");
        refused(&[&LINE[..], &["--"]].concat(), "-- needs a value");
        for bad in ["../x", "-rf", "a/b", ".", "é"] {
            assert!(matches!(parse(&[&LINE[..5], &[bad]].concat()), Err(UsageError::Unit(_))), "{bad:?}");
        }
        assert!(matches!(parse(&[&LINE[..], &["--executor", "Big"]].concat()), Err(UsageError::Unit(_))));
    }

    #[test]
    fn a_worker_does_not_dispatch_workers() {
        let var = |name: &str| (name == DEPTH_VARIABLE).then(|| OsString::from("1"));
        let error = spec_from_contract(&parse(&LINE).unwrap(), var, registry, Path::new("/here")).unwrap_err();
        assert!(matches!(error, UsageError::Depth(Depth { level: 1, limit: 1 })));
    }
}
