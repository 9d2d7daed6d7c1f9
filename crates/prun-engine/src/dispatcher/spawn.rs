//! Starts a program in a session of its own, with files for its streams and nothing else of ours.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};

use rustix::fs::OFlags;
use rustix::process::{Pid, getpid, getppid};

use super::birth;
use super::signals::give_back_dispositions;
use crate::contain::Group;
use crate::spec::GuardSpec;
use crate::workspace::guard::Guard;

/// What to start.
pub(super) struct Launch<'a> {
    /// The program and its arguments.
    pub(super) argv: &'a [String],
    /// Where.
    pub(super) cwd: &'a Path,
    /// Its whole environment.
    pub(super) env: &'a [(OsString, OsString)],
    /// Its streams: files, never pipes, which others could hold open or leave unread.
    pub(super) streams: Streams,
    /// The control group that it enters before it becomes the program.
    pub(super) group: Option<&'a Group>,
    /// What it must not write.
    pub(super) guard: Option<&'a GuardSpec>,
}

/// Open files for descriptors 0, 1 and 2.
pub(super) struct Streams {
    /// 0.
    pub(super) stdin: File,
    /// 1.
    pub(super) stdout: File,
    /// 2.
    pub(super) stderr: File,
}

/// A program that could not be started.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct StartError {
    /// 126 or 127, as a shell would say.
    pub(super) code: i32,
    /// What the system said, with the program's name, in one line.
    pub(super) message: String,
}

/// A program that was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Started {
    /// Its number. Nobody but `wait4` collects it.
    pub(super) pid: u32,
    /// It was born in its group, by the kernel's word.
    pub(super) is_born_in_group: bool,
}

impl Launch<'_> {
    /// Starts it.
    pub(super) fn start(self) -> Result<Started, StartError> {
        let (program, arguments) = self.argv.split_first().ok_or_else(|| StartError {
            code: 127,
            message: "cannot start a worker: its command line is empty".to_owned(),
        })?;
        let mut command = Command::new(program);
        command.args(arguments).current_dir(self.cwd).env_clear();
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command.stdin(self.streams.stdin).stdout(self.streams.stdout).stderr(self.streams.stderr);
        let guard = self.guard.map(|spec| Guard::new(spec, self.cwd)).transpose().map_err(|error| unguarded(&error))?;
        spawn(&mut command, self.group, guard).map_err(|error| match self.guard.map(GuardSpec::probe) {
            // The program's own fault is the better word where the guard is none.
            Some(Err(error)) => unguarded(&error),
            _ => start_error(program, self.cwd, self.env, &error),
        })
    }
}

/// Without the guard that was asked for nothing is started.
fn unguarded(error: &io::Error) -> StartError {
    StartError { code: 126, message: format!("cannot make the repository read-only for it: {error}") }
}

/// Starts `command` in a session of its own: in the group from its birth where the kernel can do that. To enter
/// a group later is the slower way by milliseconds, for which all of the machine's forks are held up.
#[expect(unsafe_code, reason = "the child must leave our session between fork and exec")]
fn spawn(command: &mut Command, group: Option<&Group>, guard: Option<Guard>) -> io::Result<Started> {
    let entrance = Arc::new(OnceLock::new());
    let (dispatcher, opened) = (getpid(), entrance.clone());
    // SAFETY: the closure makes system calls alone, which are async-signal-safe, and allocates nothing.
    unsafe { command.pre_exec(move || become_worker(opened.get(), dispatcher)) };
    if let Some(guard) = guard {
        guard.apply(command);
    }
    if let Some(group) = group {
        if let Some(born) = birth::spawn_into(command, group) {
            return born.map(|pid| Started { pid, is_born_in_group: true });
        }
        // Nobody has set it before.
        let _ = group.entrance().map(|file| entrance.set(file));
    }
    command.spawn().map(|child| Started { pid: child.id(), is_born_in_group: false })
}

/// What the child does before it becomes the program.
fn become_worker(entrance: Option<&File>, dispatcher: Pid) -> io::Result<()> {
    give_back_dispositions();
    if let Some(entrance) = entrance {
        // Where it fails, the dispatcher sees it afterwards and does not claim the group.
        let _ = rustix::io::write(entrance, b"0");
    }
    rustix::process::setsid()?;
    // A dispatcher that was killed meanwhile could not end it.
    if getppid() == Some(dispatcher) { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
}

/// Opens a regular file for appending and reading, and makes it where it is not there. Nothing that somebody
/// put in its place is followed or waited for.
pub(super) fn open_append(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = OpenOptions::new().append(true).read(true).create(true).custom_flags(flags).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

/// Opens the same file again for appending, wherever its path leads by now: a worker may change the flags of
/// its own opening.
pub(super) fn reopen(file: &File) -> io::Result<File> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    OpenOptions::new().append(true).open(path).or_else(|_| file.try_clone())
}

/// Nothing to read.
pub(super) fn open_null() -> io::Result<File> {
    File::open("/dev/null")
}

/// A missing program is 127; one that is there and cannot be started is 126.
fn start_error(program: &str, cwd: &Path, env: &[(OsString, OsString)], error: &io::Error) -> StartError {
    if !cwd.is_dir() {
        return StartError { code: 126, message: format!("cannot start {program}: no directory {}", cwd.display()) };
    }
    let path = env.iter().find(|(name, _)| name == "PATH").map_or(OsStr::new(""), |(_, value)| value);
    match find_program(program, cwd, path) {
        None => {
            let message = format!("cannot start {program}: {error} (PATH={})", path.to_string_lossy());
            StartError { code: 127, message: message.replace('\n', " ") }
        }
        Some(found) => {
            let interpreter =
                if error.kind() == io::ErrorKind::NotFound { " (its interpreter is missing)" } else { "" };
            StartError { code: 126, message: format!("cannot start {}: {error}{interpreter}", found.display()) }
        }
    }
}

fn find_program(program: &str, cwd: &Path, path: &OsStr) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(cwd.join(program)).filter(|found| found.exists());
    }
    std::env::split_paths(path).map(|dir| dir.join(program)).find(|found| found.is_file())
}
