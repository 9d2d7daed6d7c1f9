//! One attempt under way: what it needs, made before the worker starts, and what is said of it.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use prun_core::event::ProcessIdentity;
use prun_core::time::Timestamp;

use super::claim::Claim;
use super::environment::{Places, worker_env};
use super::notes::Notes;
use super::output::{last_lines, read_end};
use super::result_file::ResultFile;
use super::signals::Signals;
use super::spawn::open_append;
use super::{Announce, DispatchError, DispatchOptions, diagnose, now};
use crate::contain::{CONTAIN_VARIABLE, Containment, Rungs, keep_descriptors_private};
use crate::executor::escape_text;
use crate::files::{FileError, create_private_dir};
use crate::process::own_identity;
use crate::spec::AttemptSpec;
use crate::state_dir::{IDENTITY_VERSION, Identity, StateDir, canonical_result, random_hex};

/// Of the worker's output, `dispatch-task` repeats at most these lines and bytes on stderr.
const STDERR_TAIL: (usize, u64) = (80, 64 * 1024);

/// One attempt under way.
pub(super) struct Attempt {
    pub(super) spec: AttemptSpec,
    pub(super) options: DispatchOptions,
    pub(super) state: StateDir,
    pub(super) result: ResultFile,
    pub(super) cwd: PathBuf,
    pub(super) env: Vec<(OsString, OsString)>,
    pub(super) token: String,
    pub(super) prompt: File,
    /// The worker's output, open from the start: the file at the path may not be it any more.
    pub(super) tail: File,
    pub(super) notes: Notes,
    pub(super) signals: Signals,
    pub(super) containment: Containment,
    pub(super) started_at: Timestamp,
    /// Lets who cleans up after us wait for what we were just starting.
    _held: Option<File>,
}

impl Attempt {
    pub(super) fn begin(spec: &AttemptSpec, options: DispatchOptions) -> Result<Self, DispatchError> {
        let system = |act| move |source| DispatchError::System { act, source };
        let signals = Signals::install().map_err(system("set up signal handling"))?;
        keep_descriptors_private();
        let prompt = open_prompt(&spec.prompt_file).map_err(FileError::at("read the prompt", &spec.prompt_file))?;
        if is_blank_file(&prompt) {
            return Err(DispatchError::EmptyPrompt(spec.prompt_file.clone()));
        }
        let caller_dir = std::env::current_dir().map_err(system("tell the working directory"))?;
        if let Some(cwd) = spec.cwd.as_ref().filter(|_| spec.run.is_none()) {
            // Before the state dir, so that a failure leaves nothing behind. A run prepares its workspaces: one
            // that has vanished must not come back as an empty directory.
            std::fs::create_dir_all(cwd).map_err(FileError::at("create the working directory", cwd))?;
        }
        // A run's result paths are its attempts' own, and the fence keeps an attempt alone.
        let claim = match options.by_result.as_ref().filter(|_| spec.run.is_none()) {
            Some(home) => Some(Claim::take(home, &canonical_result(&spec.result_file))?),
            None => None,
        };
        let state = StateDir::create(&spec.state_parent, &caller_dir, &spec.unit)?;
        let held = state.hold();
        let result = ResultFile::observe(&spec.result_file);
        let started_at = now();
        let tail = open_append(&state.tail()).map_err(FileError::at("create", &state.tail()))?;
        let cwd = make_entries(&state, spec, &options, &result, started_at)?;
        let token = random_hex::<16>().map_err(system("make a token"))?;
        let ceiling = spec.attempt_dir.as_deref().unwrap_or(state.root());
        let containment = Containment::plan(rungs(), &token);
        let env = worker_env(std::env::vars_os(), spec, &Places { ceiling, token: containment.token() });
        let notes = Notes(options.notes.clone());
        let spec = spec.clone();
        let mut attempt = Self {
            spec,
            options,
            state,
            result,
            cwd,
            env,
            token,
            prompt,
            tail,
            notes,
            signals,
            containment,
            started_at,
            _held: held,
        };
        // Without a record nobody could end what a killed dispatcher leaves behind.
        attempt.state.write_identity(&attempt.identity(None))?;
        attempt.containment.make_group();
        attempt.make_known(claim);
        Ok(attempt)
    }

    /// Tells where the state dir is, before anything of the worker can be seen.
    fn make_known(&self, claim: Option<Claim>) {
        let own = || {
            let home = self.options.by_result.as_ref()?;
            Some(Claim::of_run(home, &canonical_result(&self.spec.result_file)))
        };
        if let Some(claim) = claim.or_else(own)
            && let Err(error) = claim.lead_to(self.state.root())
        {
            diagnose(&error.to_string());
        }
        if self.options.announce == Announce::StateDir {
            let mut stdout = io::stdout().lock();
            let mut line = b"STATE-DIR ".to_vec();
            line.extend_from_slice(self.state.root().as_os_str().as_encoded_bytes());
            line.push(b'\n');
            // A reader that has gone away is no reason to drop the unit; stderr may still be read.
            if let Err(error) = stdout.write_all(&line).and_then(|()| stdout.flush()) {
                diagnose(&format!("cannot write to stdout: {error}; the state dir is {}", self.state.root().display()));
            }
        }
    }

    /// Records the worker. It is found by its token, too.
    pub(super) fn write_identity(&self, worker: ProcessIdentity) {
        if let Err(error) = self.state.write_identity(&self.identity(Some(worker))) {
            diagnose(&error.to_string());
        }
    }

    fn identity(&self, worker: Option<ProcessIdentity>) -> Identity {
        Identity {
            version: IDENTITY_VERSION,
            dispatcher: own_identity(),
            worker,
            containment: self.containment.names(),
            cgroup: self.containment.group_path().map(Path::to_owned),
            read_only: self.spec.guard.as_ref().map(|guard| guard.read_only.clone()).unwrap_or_default(),
            token: self.token.clone(),
        }
    }

    pub(super) fn repeat_tail(&self) {
        let (lines, limit) = STDERR_TAIL;
        let (end, _) = read_end(&self.tail, limit).unwrap_or_default();
        let end = last_lines(&end, lines);
        let mut stderr = io::stderr().lock();
        let shown = if stderr.is_terminal() { escape_text(end).into_bytes() } else { end.to_vec() };
        let _ = stderr.write_all(&shown);
    }
}

/// The rungs that the user allows.
fn rungs() -> Rungs {
    let (rungs, unknown) = Rungs::parse(std::env::var_os(CONTAIN_VARIABLE).as_deref());
    for word in unknown {
        diagnose(&format!("{CONTAIN_VARIABLE} names {word:?}, which is not cgroup, subreaper or token"));
    }
    rungs
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
    if as_given.is_relative() {
        // What is given counts from the caller's directory, which nobody else can tell.
        state.write_entry("result-path", spec.result_file.as_os_str().as_encoded_bytes())?;
    }
    state.write_entry("dispatch-pid", std::process::id().to_string().as_bytes())?;
    let cwd = match &spec.cwd {
        Some(cwd) => cwd.clone(),
        None => create_private_dir(&state.work()).map(|()| state.work())?,
    };
    // For `prun import`.
    state.write_entry(crate::state_dir::CWD_ENTRY, cwd.as_os_str().as_encoded_bytes())?;
    Ok(cwd)
}

/// A pipe will do; a directory can be opened and not be read.
fn open_prompt(path: &Path) -> io::Result<File> {
    let prompt = File::open(path)?;
    if prompt.metadata()?.is_dir() { Err(io::ErrorKind::IsADirectory.into()) } else { Ok(prompt) }
}

/// Whether a regular file holds nothing but white space. A pipe is not looked into: what is read from it
/// is gone.
fn is_blank_file(prompt: &File) -> bool {
    if !prompt.metadata().is_ok_and(|meta| meta.is_file()) {
        return false;
    }
    let mut piece = [0; 4096];
    let mut at = 0;
    // Read at places, so that the worker still gets all of it.
    while let Ok(count) = prompt.read_at(&mut piece, at) {
        if count == 0 {
            return true;
        }
        if !piece[..count].iter().all(u8::is_ascii_whitespace) {
            return false;
        }
        at += count as u64;
    }
    false
}
