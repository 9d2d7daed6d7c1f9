//! The only code that runs git: explicit directories, a clean environment, and nothing of anybody's
//! configuration that could start a program.

mod times;

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// The oldest git that prun works with: `merge-tree --write-tree` came with it.
pub const MIN_VERSION: (u32, u32) = (2, 38);

/// A git program.
#[derive(Clone, Debug)]
pub struct Git {
    program: PathBuf,
}

/// Git failed, or could not be started.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// The program could not be started.
    #[error("cannot start {}: {source}", program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It ended with an error.
    #[error("`git {act}` failed in {} ({status}): {stderr}", dir.display())]
    Failed {
        /// The subcommand and its first arguments.
        act: String,
        /// Where.
        dir: PathBuf,
        /// How it ended.
        status: ExitStatus,
        /// What it said, cut to 2000 characters.
        stderr: String,
    },
    /// Too old, or it does not say its version.
    #[error("{} says {said:?}; git {}.{} or newer is needed", program.display(), MIN_VERSION.0, MIN_VERSION.1)]
    Version {
        /// The program.
        program: PathBuf,
        /// What it said.
        said: String,
    },
    /// It was ended because it took too long.
    #[error("`git {act}` in {} was ended after {} s", dir.display(), limit.as_secs_f32())]
    TooLong {
        /// The subcommand and its first arguments.
        act: String,
        /// Where.
        dir: PathBuf,
        /// The limit.
        limit: Duration,
    },
    /// It printed something that was not understood.
    #[error("`git {act}` printed something unexpected: {what}")]
    Unexpected {
        /// The subcommand.
        act: String,
        /// What.
        what: String,
    },
}

/// What a git command printed.
#[derive(Clone, Debug)]
pub struct GitOutput {
    /// How it ended.
    pub status: ExitStatus,
    /// Its stdout, as bytes.
    pub stdout: Vec<u8>,
    /// Its stderr, as bytes.
    pub stderr: Vec<u8>,
}

impl GitOutput {
    /// Stdout as text without its last newline, lossy.
    #[must_use]
    pub fn text(&self) -> String {
        let text = String::from_utf8_lossy(&self.stdout);
        text.strip_suffix('\n').unwrap_or(&text).to_owned()
    }

    /// Stdout split at NUL bytes (for `-z`).
    pub fn fields(&self) -> impl Iterator<Item = &[u8]> {
        let end = self.stdout.strip_suffix(b"\0").unwrap_or(&self.stdout);
        end.split(|byte| *byte == 0).filter(|_| !end.is_empty())
    }
}

impl Git {
    /// The git that `PRUN_GIT` names, else the first one on the `PATH`.
    #[must_use]
    pub fn from_env() -> Self {
        Self { program: std::env::var_os("PRUN_GIT").map_or_else(|| PathBuf::from("git"), PathBuf::from) }
    }

    /// The git at `program`.
    #[must_use]
    pub fn at(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into() }
    }

    /// The program.
    #[must_use]
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Its version, checked against [`MIN_VERSION`].
    ///
    /// # Errors
    /// It cannot be started, is too old, or does not tell.
    pub fn version(&self) -> Result<(u32, u32), GitError> {
        let said = self.command(["version"]).run()?.text();
        let mut numbers =
            said.rsplit(' ').find(|word| word.starts_with(|c: char| c.is_ascii_digit())).unwrap_or("").split('.');
        let mut number = || numbers.next().and_then(|part| part.parse::<u32>().ok());
        match number().zip(number()).filter(|version| *version >= MIN_VERSION) {
            Some(version) => Ok(version),
            None => Err(GitError::Version { program: self.program.clone(), said }),
        }
    }

    /// A git command with a clean environment.
    pub fn command<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> GitCommand {
        GitCommand {
            program: self.program.clone(),
            config: Vec::new(),
            args: args.into_iter().map(|arg| arg.as_ref().to_owned()).collect(),
            env: Vec::new(),
            dir: None,
            input: Vec::new(),
            user_config: false,
            keep_times: false,
            limit: None,
        }
    }
}

/// A git command that is being put together.
#[derive(Clone, Debug)]
#[must_use]
pub struct GitCommand {
    program: PathBuf,
    config: Vec<String>,
    args: Vec<OsString>,
    env: Vec<(&'static str, OsString)>,
    dir: Option<PathBuf>,
    input: Vec<u8>,
    user_config: bool,
    keep_times: bool,
    limit: Option<Duration>,
}

/// Configuration that keeps git from starting anything or changing anything on the side.
const SAFE_CONFIG: &[&str] = &[
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.untrackedCache=false",
    "core.pager=cat",
    "diff.external=",
    "gc.auto=0",
    "maintenance.auto=false",
    "submodule.recurse=false",
    "fetch.recurseSubmodules=false",
    "diff.ignoreSubmodules=all",
    "clone.rejectShallow=false",
    "core.quotePath=false",
    "merge.directoryRenames=false",
    "user.name=prun",
    "user.email=prun@localhost",
    "commit.gpgSign=false",
];

/// What leads git to the user's own configuration. `SUDO_UID` makes root accept the repository of the user
/// who called sudo.
const USER_CONFIG_VARIABLES: [&str; 6] =
    ["HOME", "XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "SUDO_UID"];

impl GitCommand {
    /// Runs in `dir` (`git -C dir`).
    pub fn dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.dir = Some(dir.into());
        self
    }

    /// Uses this git directory, whatever the working directory holds.
    pub fn git_dir(self, dir: impl AsRef<Path>) -> Self {
        self.env("GIT_DIR", dir.as_ref())
    }

    /// Uses this work tree.
    pub fn work_tree(self, dir: impl AsRef<Path>) -> Self {
        self.env("GIT_WORK_TREE", dir.as_ref())
    }

    /// Uses this index file.
    pub fn index(self, file: impl AsRef<Path>) -> Self {
        self.env("GIT_INDEX_FILE", file.as_ref())
    }

    /// Sets a variable.
    pub fn env(mut self, name: &'static str, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name, value.as_ref().to_owned()));
        self
    }

    /// Adds `-c setting`.
    pub fn config(mut self, setting: impl Into<String>) -> Self {
        self.config.push(setting.into());
        self
    }

    /// Adds an argument.
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    pub fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Gives these bytes on stdin.
    pub fn input(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.input = bytes.into();
        self
    }

    /// Ends it after `limit`. For work trees of others: git waits for ever on a FIFO that is named like one of its
    /// own files.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Changes the time of no file: for what writes objects and sees the user's.
    pub fn keep_times(mut self) -> Self {
        self.keep_times = true;
        self
    }

    /// Lets the user's own global and system configuration count. Only for reading settings
    /// (`git config`), never for a command that could start what they name.
    pub fn with_user_config(mut self) -> Self {
        self.user_config = true;
        self
    }

    /// Runs it to its end; an exit code other than 0 is an error.
    ///
    /// # Errors
    /// It cannot be started or fails.
    pub fn run(self) -> Result<GitOutput, GitError> {
        self.run_accepting(&[0])
    }

    /// Runs it to its end; exit codes outside `codes` are errors.
    ///
    /// # Errors
    /// It cannot be started or ends otherwise.
    pub fn run_accepting(self, codes: &[i32]) -> Result<GitOutput, GitError> {
        let output = self.output()?;
        if output.status.code().is_some_and(|code| codes.contains(&code)) {
            return Ok(output);
        }
        let stderr: String = String::from_utf8_lossy(&output.stderr).trim().chars().take(2000).collect();
        Err(GitError::Failed { act: self.act(), dir: self.place(), status: output.status, stderr })
    }

    fn output(&self) -> Result<GitOutput, GitError> {
        let start = |source| GitError::Start { program: self.program.clone(), source };
        let stdin = if self.input.is_empty() { Stdio::null() } else { Stdio::piped() };
        let mut child =
            self.build().stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(start)?;
        let pipe = child.stdin.take();
        let (ended, watch) = mpsc::channel::<()>();
        let watched = self.limit.zip(pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).ok());
        // A thread feeds stdin, so that a command that prints before it has read all cannot block us.
        let (output, too_long) = std::thread::scope(|scope| {
            if let Some(mut pipe) = pipe {
                // A command may end before it has read everything; its exit code tells then.
                scope.spawn(move || pipe.write_all(&self.input).is_ok());
            }
            let watcher = watched.map(|(limit, pidfd)| {
                scope.spawn(move || {
                    let too_long = watch.recv_timeout(limit) == Err(RecvTimeoutError::Timeout);
                    too_long && pidfd_send_signal(pidfd, Signal::KILL).is_ok()
                })
            });
            let output = child.wait_with_output();
            drop(ended);
            (output, watcher.is_some_and(|watcher| watcher.join().unwrap_or(false)))
        });
        if let Some(limit) = self.limit.filter(|_| too_long) {
            return Err(GitError::TooLong { act: self.act(), dir: self.place(), limit });
        }
        let output = output.map_err(start)?;
        Ok(GitOutput { status: output.status, stdout: output.stdout, stderr: output.stderr })
    }

    fn build(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.env_clear();
        for name in ["PATH", "TMPDIR", "LD_LIBRARY_PATH"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        if self.user_config {
            for name in USER_CONFIG_VARIABLES {
                if let Some(value) = std::env::var_os(name) {
                    command.env(name, value);
                }
            }
        } else {
            command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_ATTR_NOSYSTEM", "1");
        }
        command
            .env("LC_ALL", "C")
            .env("GIT_OPTIONAL_LOCKS", "0")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_NO_LAZY_FETCH", "1")
            // Gits before 2.45 do not know the line above; this keeps a partial clone from fetching there.
            .env("GIT_ALLOW_PROTOCOL", "file")
            .env("GIT_NO_REPLACE_OBJECTS", "1");
        if self.keep_times {
            times::keep(&mut command);
        }
        if let Some(dir) = &self.dir {
            command.arg("-C").arg(dir);
        }
        for setting in SAFE_CONFIG.iter().copied().chain(self.config.iter().map(String::as_str)) {
            command.arg("-c").arg(setting);
        }
        command.args(&self.args);
        for (name, value) in &self.env {
            command.env(name, value);
        }
        command
    }

    fn act(&self) -> String {
        self.args.iter().take(4).map(|arg| arg.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    fn place(&self) -> PathBuf {
        let named = self.env.iter().find(|(name, _)| *name == "GIT_DIR").map(|(_, dir)| PathBuf::from(dir));
        self.dir.clone().or(named).unwrap_or_else(|| PathBuf::from("."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_configuration_is_not_seen() {
        let dir = tempfile::tempdir().unwrap();
        let git = Git::from_env();
        git.command(["init", "-q", "--template="]).arg(dir.path()).run().unwrap();
        let listed = git.command(["config", "--list", "--show-origin"]).dir(dir.path()).run().unwrap().text();
        assert!(
            listed.lines().all(|line| line.starts_with("command line:") || line.starts_with("file:.git/config")),
            "{listed}"
        );
    }

    #[test]
    fn a_command_that_hangs_is_ended_at_its_limit() {
        let dir = tempfile::tempdir().unwrap();
        let git = Git::from_env();
        git.command(["init", "-q", "--template="]).arg(dir.path()).run().unwrap();
        let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
        rustix::fs::mknodat(rustix::fs::CWD, dir.path().join(".gitignore"), kind, mode, 0).unwrap();
        let list = git.command(["ls-files", "--others", "--exclude-standard"]).dir(dir.path());
        let said = list.limit(Duration::from_millis(100)).run().unwrap_err().to_string();
        assert!(said.contains("ls-files") && said.contains("0.1 s"), "{said}");
    }

    #[test]
    fn an_old_git_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let fake = dir.path().join("git");
        std::fs::write(&fake, "#!/bin/sh\necho git version 2.37.9\n").unwrap();
        std::fs::set_permissions(&fake, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let error = Git::at(&fake).version().unwrap_err().to_string();
        assert!(error.contains("2.37.9") && error.contains("2.38"), "{error}");
        assert!(Git::from_env().version().is_ok());
    }
}
