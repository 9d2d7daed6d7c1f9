//! One worker's life, to its very end: starts it, watches it, ends its whole tree, settles its result.
//!
//! The dispatcher of a run and `prun dispatch-task` are this one piece of code. It is synchronous and
//! owns its process: it sets signal dispositions, becomes a subreaper and collects every child, so it is
//! the only thing that a process does.

mod answer;
mod attempt;
mod birth;
mod check;
mod claim;
mod dead;
mod ending;
mod environment;
mod live;
mod liveness;
mod notes;
mod output;
mod reap;
mod result_file;
mod session;
mod settle;
mod signals;
mod spawn;
pub mod task;
mod understand;
mod watch;
mod watchdog;

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use prun_core::outcome::AttemptFacts;
use prun_core::time::Timestamp;
use rustix::io::fcntl_dupfd_cloexec;

use self::attempt::Attempt;
use self::ending::exit_code;
use self::spawn::open_null;
use crate::files::{Durability, FileError, read_regular};
use crate::home::{AttemptDir, Home};
use crate::spec::{AttemptSpec, SPEC_VERSION};

pub use self::dead::settle_dead;
pub use self::notes::Note;

/// No spec is larger.
const SPEC_LIMIT: u64 = 16 * 1024 * 1024;

/// How a dispatcher behaves apart from what it is to run.
#[derive(Debug)]
pub struct DispatchOptions {
    /// Whether stdout is told where the state dir is.
    pub announce: Announce,
    /// Whether results and facts must survive a power cut.
    pub durability: Durability,
    /// The home in which the result's path leads to the state dir.
    pub by_result: Option<Home>,
    /// The fence: open to the very end, never in the worker.
    pub fence: Option<File>,
    /// Repeat the end of the worker's output on stderr.
    pub stderr_tail: bool,
    /// Where the supervisor reads [`Note`]s.
    pub notes: Option<PathBuf>,
    /// The result's path as the caller gave it, where that is not the spec's.
    pub result_as_given: Option<PathBuf>,
}

/// What is said on stdout before the worker starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announce {
    /// `STATE-DIR <path>`, flushed.
    StateDir,
    /// Nothing.
    Nothing,
}

/// How a dispatch ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DispatchEnd {
    /// The dispatcher's own exit code.
    pub exit_code: i32,
    /// What it saw.
    pub facts: AttemptFacts,
    /// Where it worked.
    pub state_dir: PathBuf,
}

/// A dispatch that did not begin.
#[derive(Debug, thiserror::Error)]
pub enum DispatchError {
    /// A file or directory that it needs.
    #[error(transparent)]
    File(#[from] FileError),
    /// Something else of the system.
    #[error("cannot {act}: {source}")]
    System {
        /// The act.
        act: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// A dispatch that lives writes the same result.
    #[error("{} is written by another dispatch that still runs, see {}", result.display(), state_dir.display())]
    Taken {
        /// The result.
        result: PathBuf,
        /// That dispatch's state dir.
        state_dir: PathBuf,
    },
    /// There is nothing in the prompt.
    #[error("the prompt is empty: {}", .0.display())]
    EmptyPrompt(PathBuf),
    /// A spec of another version.
    #[error("{} has version {found}; this prun reads version {SPEC_VERSION}", path.display())]
    Version {
        /// The spec.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
}

/// What the hidden command `prun __dispatch SPEC` does; its exit code.
///
/// Descriptor 0 is the fence, an open file whose lock is inherited; anything else there does no harm.
#[must_use]
pub fn dispatch_spec_file(path: &Path) -> i32 {
    let dispatched = detach().and_then(|fence| {
        let spec = read_spec(path)?;
        let options = DispatchOptions {
            announce: Announce::Nothing,
            durability: Durability::from_env(),
            by_result: Home::from_env(|name| std::env::var_os(name)).ok(),
            fence,
            stderr_tail: false,
            notes: spec.attempt_dir.as_ref().map(|dir| AttemptDir::at(dir).notes()),
            result_as_given: None,
        };
        run(&spec, options)
    });
    dispatched.map_or_else(
        |error| {
            diagnose(&error.to_string());
            2
        },
        |end| end.exit_code,
    )
}

/// Runs one attempt to its end. It takes the whole process over.
///
/// # Errors
/// It did not begin: the state dir or the working directory cannot be made, the prompt cannot be read.
pub fn run(spec: &AttemptSpec, options: DispatchOptions) -> Result<DispatchEnd, DispatchError> {
    let mut attempt = Attempt::begin(spec, options)?;
    let lived = attempt.live();
    let facts = attempt.settle(lived);
    if let Err(error) = attempt.state.write_facts(&facts, attempt.options.durability) {
        diagnose(&error.to_string());
    }
    if attempt.options.stderr_tail {
        attempt.repeat_tail();
    }
    Ok(DispatchEnd { exit_code: exit_code(&facts), facts, state_dir: attempt.state.root().to_owned() })
}

/// Takes the fence from descriptor 0 and leaves the session of whoever started us.
fn detach() -> Result<Option<File>, DispatchError> {
    let system = |act| move |error: rustix::io::Errno| DispatchError::System { act, source: error.into() };
    let fence = fcntl_dupfd_cloexec(io::stdin(), 3).ok().map(File::from);
    let null = open_null().map_err(|source| DispatchError::System { act: "open /dev/null", source })?;
    rustix::stdio::dup2_stdin(&null).map_err(system("replace stdin"))?;
    // A process that leads a group already has a session that is as good.
    let _ = rustix::process::setsid();
    Ok(fence)
}

fn read_spec(path: &Path) -> Result<AttemptSpec, DispatchError> {
    let bytes = read_regular(path, SPEC_LIMIT).map_err(FileError::at("read", path))?;
    let spec: AttemptSpec =
        serde_json::from_slice(&bytes).map_err(io::Error::from).map_err(FileError::at("understand", path))?;
    if spec.version == SPEC_VERSION {
        Ok(spec)
    } else {
        Err(DispatchError::Version { path: path.to_owned(), found: spec.version })
    }
}

/// Says something on stderr. Nobody may be there to read it.
fn diagnose(message: &str) {
    let _ = writeln!(io::stderr().lock(), "dispatch-task: {message}");
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
