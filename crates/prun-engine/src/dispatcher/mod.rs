//! One worker's life, to its very end: starts it, watches it, ends its whole tree, settles its result.
//!
//! The dispatcher of a run and `prun dispatch-task` are this one piece of code. It is synchronous and
//! owns its process: it sets signal dispositions, becomes a subreaper and collects every child, so it is
//! the only thing that a process does.

mod check;
mod dead;
mod ending;
mod environment;
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
mod watch;
mod watchdog;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use prun_core::contract::FallbackWhy;
use prun_core::event::ProcessIdentity;
use prun_core::outcome::{AttemptFacts, Exit, FACTS_VERSION, FinalEvent, StopReason, SweepFacts};
use prun_core::time::Timestamp;
use rustix::io::fcntl_dupfd_cloexec;

use self::ending::{Ending, exit_code, reaped_line};
use self::environment::{Places, worker_env};
use self::notes::Notes;
use self::output::{Outputs, last_lines, read_end};
use self::reap::Reaper;
use self::result_file::ResultFile;
use self::signals::Signals;
use self::spawn::{Launch, StartError, Streams, open_append, open_null};
use self::watch::{Watch, Watched};
use crate::contain::{become_subreaper, keep_descriptors_private};
use crate::executor::stream::{StreamKind, StreamReader, StreamSummary};
use crate::files::{Durability, FileError, create_private_dir, read_regular};
use crate::home::{AttemptDir, Home};
use crate::process::{identity, own_identity};
use crate::spec::{AttemptSpec, SPEC_VERSION, WorkerSpec};
use crate::state_dir::{IDENTITY_VERSION, Identity, StateDir, canonical_result, random_hex};

pub use self::dead::settle_dead;
pub use self::environment::DEPTH_VARIABLE;
pub use self::notes::Note;

/// No spec is larger.
const SPEC_LIMIT: u64 = 16 * 1024 * 1024;

/// Of the worker's output, `dispatch-task` repeats at most these lines and bytes on stderr.
const STDERR_TAIL: (usize, u64) = (80, 64 * 1024);

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

/// One attempt under way.
struct Attempt {
    spec: AttemptSpec,
    options: DispatchOptions,
    state: StateDir,
    result: ResultFile,
    cwd: PathBuf,
    env: Vec<(OsString, OsString)>,
    token: String,
    prompt: File,
    notes: Notes,
    signals: Signals,
    is_subreaper: bool,
    started_at: Timestamp,
}

/// How the worker lived and ended.
struct Lived {
    exit: Exit,
    watched: Watched,
    stream: StreamSummary,
    sweep: SweepFacts,
    setup: Option<prun_core::outcome::CheckFacts>,
    used: Option<(u64, u64)>,
    worker_millis: u64,
}

impl Attempt {
    fn begin(spec: &AttemptSpec, options: DispatchOptions) -> Result<Self, DispatchError> {
        let system = |act| move |source| DispatchError::System { act, source };
        let signals = Signals::install().map_err(system("set up signal handling"))?;
        keep_descriptors_private();
        let is_subreaper = become_subreaper();
        let prompt = open_prompt(&spec.prompt_file).map_err(FileError::at("read the prompt", &spec.prompt_file))?;
        let caller_dir = std::env::current_dir().map_err(system("tell the working directory"))?;
        let state = StateDir::create(&spec.state_parent, &caller_dir, &spec.unit)?;
        let result = ResultFile::observe(&spec.result_file);
        let started_at = now();
        let cwd = make_entries(&state, spec, &options, &result, started_at)?;
        let token = random_hex::<16>().map_err(system("make a token"))?;
        let ceiling = spec.attempt_dir.as_deref().unwrap_or(state.root());
        let env = worker_env(std::env::vars_os(), spec, &Places { ceiling, token: &token });
        let notes = Notes(options.notes.clone());
        let spec = spec.clone();
        let attempt =
            Self { spec, options, state, result, cwd, env, token, prompt, notes, signals, is_subreaper, started_at };
        attempt.write_identity(None);
        attempt.make_known();
        Ok(attempt)
    }

    /// Tells where the state dir is, before anything of the worker can be seen.
    fn make_known(&self) {
        if let Some(home) = &self.options.by_result {
            let path = home.by_result(&canonical_result(&self.spec.result_file));
            let written = create_private_dir(path.parent().unwrap_or(home.root())).and_then(|()| {
                let mut text = self.state.root().as_os_str().as_encoded_bytes().to_vec();
                text.push(b'\n');
                crate::files::write_atomically(&path, &text, Durability::Cached)
            });
            if let Err(error) = written {
                diagnose(&error.to_string());
            }
        }
        if self.options.announce == Announce::StateDir {
            let mut stdout = io::stdout().lock();
            let mut line = b"STATE-DIR ".to_vec();
            line.extend_from_slice(self.state.root().as_os_str().as_encoded_bytes());
            line.push(b'\n');
            // A reader that has gone away is no reason to drop the unit.
            let _ = stdout.write_all(&line).and_then(|()| stdout.flush());
        }
    }

    fn write_identity(&self, worker: Option<ProcessIdentity>) {
        let subreaper = self.is_subreaper.then_some("subreaper");
        let identity = Identity {
            version: IDENTITY_VERSION,
            dispatcher: own_identity(),
            worker,
            containment: subreaper.into_iter().chain(["token"]).map(str::to_owned).collect(),
            cgroup: None,
            token: self.token.clone(),
        };
        if let Err(error) = self.state.write_identity(&identity) {
            diagnose(&error.to_string());
        }
    }

    /// Runs the set-up and the worker until nothing of them is left.
    fn live(&mut self) -> Lived {
        let mut lived = Lived {
            exit: Exit::Unobserved,
            watched: Watched::default(),
            stream: StreamReader::new(StreamKind::Plain).summary().clone(),
            sweep: SweepFacts::default(),
            setup: None,
            used: None,
            worker_millis: 0,
        };
        if let Some(setup) = self.spec.setup.clone() {
            let checked = check::run_check(self, "setup", &setup);
            lived.watched.stop = checked.interrupted.then_some(StopReason::Signal);
            lived.setup = Some(checked.facts);
            if lived.setup.as_ref().is_some_and(|setup| !setup.ok) {
                return lived;
            }
        }
        let began = Instant::now();
        match self.spec.worker.clone() {
            Some(worker) => self.live_with(&worker, &mut lived),
            None => lived.watched.stop = session::wait_for_submission(self),
        }
        lived.worker_millis = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        lived
    }

    fn live_with(&mut self, worker: &WorkerSpec, lived: &mut Lived) {
        lived.stream = StreamReader::new(worker.stream).summary().clone();
        let (leader, mut outputs) = match self.start(worker) {
            Ok(started) => started,
            Err(error) => {
                diagnose(&error.message);
                lived.exit = Exit::NotStarted { code: error.code, error: error.message };
                return;
            }
        };
        let mut reaper = Reaper::of(leader);
        // It cannot have been collected yet, so its number is its own.
        let process = identity(leader).unwrap_or_else(|| ProcessIdentity { pid: leader, ..own_identity() });
        self.write_identity(Some(process.clone()));
        let watch = Watch {
            limits: &self.spec.limits,
            workspace: &self.cwd,
            result: &self.result,
            notes: &self.notes,
            outputs: &mut outputs,
            reaper: &mut reaper,
            signals: &mut self.signals,
        };
        lived.watched = watch.run();
        if lived.watched.stop.is_some() {
            let grace = Duration::from_millis(self.spec.limits.grace_millis);
            reaper.end_leader(&process, grace, &mut self.signals);
        }
        lived.sweep = reaper.sweep(self.is_subreaper);
        outputs.look();
        lived.stream = with_reset_time(outputs.summary().clone());
        lived.exit = reaper.exit().cloned().unwrap_or(Exit::Unobserved);
        lived.used = reaper.used();
    }

    fn start(&self, worker: &WorkerSpec) -> Result<(u32, Outputs), StartError> {
        let streams = || -> io::Result<Streams> {
            let tail = open_append(&self.state.tail())?;
            let stdout = match worker.stream {
                StreamKind::Plain => tail.try_clone()?,
                _ => open_append(&self.state.events())?,
            };
            // The prompt was opened once, so that the file that was checked is the one that is read.
            let stdin = self.prompt.try_clone().or_else(|_| open_null())?;
            Ok(Streams { stdin, stdout, stderr: tail })
        };
        let opened = streams().and_then(|streams| Ok((streams, Outputs::open(&self.state, worker.stream)?)));
        let (streams, outputs) =
            opened.map_err(|error| StartError { code: 126, message: format!("cannot start the worker: {error}") })?;
        let argv = self.argv(worker);
        let pid = Launch { argv: &argv, cwd: &self.cwd, env: &self.env, streams }.start()?;
        Ok((pid, outputs))
    }

    fn argv(&self, worker: &WorkerSpec) -> Vec<String> {
        let Some(placeholder) = &worker.last_message_placeholder else { return worker.argv.clone() };
        let path = self.state.last_message().to_string_lossy().into_owned();
        worker.argv.iter().map(|argument| argument.replace(placeholder, &path)).collect()
    }

    /// Finds out what came of it.
    fn settle(&mut self, lived: Lived) -> AttemptFacts {
        let mut stopped = lived.watched.stop;
        let signal_so_far = self.signals.stop().filter(|_| stopped == Some(StopReason::Signal));
        let final_event = lived.stream.final_event.clone();
        let ending = Ending { exit: &lived.exit, stopped, signal: signal_so_far, final_event: &final_event };
        if let Some(reason) = ending.reason() {
            self.append_reaped(&reason, ending.exit_code());
        }
        let why = fallback_why(&lived, &ending);
        let result = settle::settle_result(self, &lived.stream, &why);
        let missing_deliverables = settle::missing_deliverables(&self.cwd, &self.spec.deliverables);
        let verify = settle::verify(self, &lived.exit, &mut stopped);
        let (changes, harvest_error) = settle::take_changes(self);
        AttemptFacts {
            version: FACTS_VERSION,
            unit: self.spec.unit.clone(),
            attempt: self.spec.attempt,
            exit: lived.exit,
            stopped,
            dispatcher_signal: self.signals.stop(),
            setup: lived.setup,
            final_event: if self.spec.worker.is_some() { final_event } else { FinalEvent::NotApplicable },
            error: lived.stream.error,
            result,
            missing_deliverables,
            verify,
            expects_changes: self.spec.expects_changes,
            changes,
            harvest_error,
            sweep: lived.sweep,
            usage: lived.stream.usage,
            session: lived.stream.session,
            silent: lived.watched.silent,
            peak_rss_kib: lived.used.map(|(peak, _)| peak),
            cpu_millis: lived.used.map(|(_, cpu)| cpu),
            started_at: self.started_at,
            ended_at: now(),
            worker_millis: lived.worker_millis,
        }
    }

    fn append_reaped(&self, reason: &str, code: i32) {
        let path = self.state.tail();
        let ends_with_newline = read_end(&path, 1).is_ok_and(|(last, _)| last.is_empty() || last == b"\n");
        let line = reaped_line(reason, code, ends_with_newline);
        if let Err(error) = open_append(&path).and_then(|mut tail| tail.write_all(line.as_bytes())) {
            diagnose(&format!("cannot append to {}: {error}", path.display()));
        }
    }

    fn repeat_tail(&self) {
        let (lines, limit) = STDERR_TAIL;
        let (end, _) = read_end(&self.state.tail(), limit).unwrap_or_default();
        let _ = io::stderr().lock().write_all(last_lines(&end, lines));
    }
}

/// Writes the contract's entries; the worker's working directory.
fn make_entries(
    state: &StateDir,
    spec: &AttemptSpec,
    options: &DispatchOptions,
    result: &ResultFile,
    started_at: Timestamp,
) -> Result<PathBuf, FileError> {
    let as_given = options.result_as_given.as_deref().unwrap_or(&spec.result_file);
    state.write_entry("pre-mtime", result.seconds_before().to_string().as_bytes())?;
    state.write_entry("timestamp", (started_at.0 / 1000).to_string().as_bytes())?;
    state.write_entry("result-file", as_given.as_os_str().as_encoded_bytes())?;
    state.write_entry("dispatch-pid", std::process::id().to_string().as_bytes())?;
    open_append(&state.tail()).map_err(FileError::at("create", &state.tail()))?;
    let cwd = spec.cwd.clone().unwrap_or_else(|| state.work());
    // A run prepares its workspaces; one that has vanished must not come back as an empty directory.
    if spec.run.is_none() {
        std::fs::create_dir_all(&cwd).map_err(FileError::at("create the working directory", &cwd))?;
    }
    Ok(cwd)
}

/// A pipe will do; a directory can be opened and not be read.
fn open_prompt(path: &Path) -> io::Result<File> {
    let prompt = File::open(path)?;
    if prompt.metadata()?.is_dir() { Err(io::ErrorKind::IsADirectory.into()) } else { Ok(prompt) }
}

fn fallback_why(lived: &Lived, ending: &Ending<'_>) -> FallbackWhy {
    if let Some(reason) = ending.reason() {
        return FallbackWhy::Reaped(reason);
    }
    if let Some(setup) = lived.setup.as_ref().filter(|setup| !setup.ok) {
        return FallbackWhy::NotStarted(format!("its set-up failed, see {}", setup.log));
    }
    match &lived.exit {
        Exit::NotStarted { error, .. } => FallbackWhy::NotStarted(error.clone()),
        _ => FallbackWhy::Missing,
    }
}

/// Clients tell when a limit is lifted in local time. Only an error makes the time zone worth loading.
fn with_reset_time(stream: StreamSummary) -> StreamSummary {
    if stream.error.is_some() { stream.with_reset_time(&jiff::ZonedDateTime::now()) } else { stream }
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
