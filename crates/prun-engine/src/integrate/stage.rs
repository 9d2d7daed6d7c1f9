//! A clean clone of a combination: where it is checked, and where the bytes that land come from.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use prun_core::outcome::{CheckFacts, Exit};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use super::IntegrateError;
use super::path::RepoPath;
use super::quarantine::Quarantine;
use super::tree::{Entry, change_index};
use crate::contain::{TOKEN_VARIABLE, reap_marked};
use crate::files::{FileError, create_private_dir};
use crate::spec::GuardSpec;
use crate::workspace::guard::Guard;

/// Checks `tree` out at `dir`, which must not exist: a repository of its own, without a remote, whose HEAD is
/// that tree. Line ends, modes and links are as the user's settings and the tree's attributes say.
///
/// # Errors
/// Git fails, or the directory cannot be made.
pub fn checkout(quarantine: &Quarantine, tree: &str, dir: &Path) -> Result<(), IntegrateError> {
    quarantine.init_stage(dir)?;
    let git = |args: &[&str]| quarantine.in_stage(dir, args);
    git(&["read-tree", "--reset", "-u", tree]).run()?;
    let commit = git(&["commit-tree", "-m", "combination", tree])
        .env("GIT_AUTHOR_DATE", "@0 +0000")
        .env("GIT_COMMITTER_DATE", "@0 +0000")
        .run()?
        .text();
    git(&["update-ref", "HEAD", &commit]).run()?;
    Ok(())
}

/// Writes these files at `dir`, which must not exist, as [`checkout`] would write them, and nothing else.
pub(super) fn checkout_entries(
    quarantine: &Quarantine,
    digits: usize,
    entries: &BTreeMap<RepoPath, Entry>,
    dir: &Path,
) -> Result<(), IntegrateError> {
    create_private_dir(dir)?;
    let index = quarantine.scratch_file("entries.index");
    change_index(quarantine, &index, digits, entries.iter().map(|(path, entry)| (path, Some(entry))))?;
    if !entries.is_empty() {
        quarantine.beside(dir, ["checkout-index", "--all", "--quiet"]).index(&index).run()?;
    }
    Ok(())
}

/// Where a check is run, and what holds it.
#[derive(Clone, Copy, Debug)]
pub struct CheckSite<'a> {
    /// Its directory.
    pub dir: &'a Path,
    /// What its output is appended to.
    pub log: &'a Path,
    /// The mark of all that it starts.
    pub token: &'a str,
    /// What it must not write.
    pub guard: Option<&'a GuardSpec>,
}

impl CheckSite<'_> {
    /// Runs a command of the check, for `limit` at most, and ends afterwards in any case what it started: its process group, and whatever
    /// carries the token. Where this process is killed meanwhile, the group ends with it, and whoever finds that ends
    /// the rest by the token.
    ///
    /// # Errors
    /// The log cannot be opened. A program that cannot be started is a fact of the check.
    pub fn run(&self, argv: &[String], limit: Duration) -> Result<CheckFacts, FileError> {
        let output =
            File::options().create(true).append(true).open(self.log).map_err(FileError::at("open", self.log))?;
        let second = output.try_clone().map_err(FileError::at("open", self.log))?;
        let facts = |exit: Exit, timed_out: bool, began: Instant| CheckFacts {
            ok: exit == Exit::Code { code: 0 } && !timed_out,
            exit,
            timed_out,
            millis: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
            log: self.log.to_string_lossy().into_owned(),
        };
        let began = Instant::now();
        let (program, args) = argv.split_first().map_or(("", &[][..]), |(program, args)| (program.as_str(), args));
        let mut keeper = Keeper::start().map_err(FileError::at("run the check in", self.dir))?;
        let mut command = Command::new(program);
        command.args(args).current_dir(self.dir).stdin(Stdio::null()).stdout(output).stderr(second);
        command.process_group(keeper.group().as_raw_nonzero().get()).env(TOKEN_VARIABLE, self.token);
        for name in GIT_LOCATIONS {
            command.env_remove(name);
        }
        if let Some(spec) = self.guard {
            Guard::new(spec, self.dir).map_err(FileError::at("guard the check in", self.dir))?.apply(&mut command);
        }
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                let code = if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 };
                return Ok(facts(Exit::NotStarted { code, error: format!("{program}: {error}") }, false, began));
            }
        };
        let timed_out = wait(&child, limit);
        keeper.end();
        let status = child.wait();
        reap_marked(self.token);
        let (timed_out, status) = timed_out
            .and_then(|timed_out| Ok((timed_out, status?)))
            .map_err(FileError::at("wait for the check in", self.dir))?;
        Ok(facts(exit_of(status), timed_out, began))
    }
}

/// Leads the process group of a check and ends it once prun is gone: it reads from a pipe that closes with prun,
/// however prun ends.
struct Keeper {
    shell: Child,
}

impl Keeper {
    fn start() -> std::io::Result<Self> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "read -r _; kill -s KILL 0"]).process_group(0);
        let shell = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        Ok(Self { shell })
    }

    fn group(&self) -> Pid {
        Pid::from_child(&self.shell)
    }

    /// Ends the group. It is not waited for before, so the group's number cannot belong to anybody else.
    fn end(&mut self) {
        kill_process_group(self.group(), Signal::KILL).ok();
        // Killed, it has nothing to tell.
        self.shell.wait().ok();
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if matches!(self.shell.try_wait(), Ok(None)) {
            self.end();
        }
    }
}

/// Variables that would lead a check's git to another repository.
const GIT_LOCATIONS: &[&str] = &[
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_NAMESPACE",
    "GIT_PREFIX",
    "GIT_CONFIG",
    "GIT_CONFIG_PARAMETERS",
    "GIT_CONFIG_COUNT",
];

/// Waits for its end; whether the time ran out first.
fn wait(child: &Child, limit: Duration) -> std::io::Result<bool> {
    let pidfd = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    let deadline = Instant::now() + limit;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).ok();
        match poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], timeout.as_ref()) {
            Ok(0) if Instant::now() >= deadline => return Ok(true),
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
    }
}

fn exit_of(status: ExitStatus) -> Exit {
    match (status.code(), status.signal()) {
        (Some(code), _) => Exit::Code { code },
        (None, Some(signal)) => Exit::Signal { signal },
        (None, None) => Exit::Unobserved,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token() -> String {
        crate::state_dir::random_hex::<16>().unwrap()
    }

    fn site<'a>(dir: &'a Path, log: &'a Path, token: &'a str) -> CheckSite<'a> {
        CheckSite { dir, log, token, guard: None }
    }

    fn check(script: &str, limit: Duration) -> (CheckFacts, String) {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let argv = ["sh", "-c", script].map(str::to_owned);
        let facts = site(dir.path(), &log, &token()).run(&argv, limit).unwrap();
        (facts, std::fs::read_to_string(log).unwrap())
    }

    #[test]
    fn a_check_is_known_by_its_exit_and_its_log() {
        let minute = Duration::from_secs(60);
        let (facts, log) = check("echo out; echo err >&2; exit 3", minute);
        assert_eq!((facts.ok, facts.exit, log.as_str()), (false, Exit::Code { code: 3 }, "out\nerr\n"));
        assert!(check("true", minute).0.ok);
        assert_eq!(check("kill -9 $$", minute).0.exit, Exit::Signal { signal: 9 });
        let dir = tempfile::tempdir().unwrap();
        let facts = site(dir.path(), &dir.path().join("log"), &token()).run(&["/no/such".into()], minute).unwrap();
        assert!(matches!(facts.exit, Exit::NotStarted { code: 127, .. }));
    }

    #[test]
    fn a_check_over_its_limit_is_ended_with_its_group() {
        let (facts, _) = check("sleep 600 & sleep 600", Duration::from_millis(50));
        assert!(facts.timed_out && !facts.ok && facts.millis < 60_000);
    }

    #[test]
    fn a_check_leaves_nothing_behind_that_it_started() {
        let (facts, log) = check("setsid sleep 600 & echo $!", Duration::from_secs(60));
        assert!(facts.ok);
        // Whoever inherited it may not have collected it yet.
        let left = crate::process::stat(log.trim().parse().unwrap());
        assert!(left.is_none_or(|stat| stat.is_dead()));
    }
}
