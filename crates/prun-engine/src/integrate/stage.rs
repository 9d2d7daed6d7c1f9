//! A clean clone of a combination: where it is checked, and where the bytes that land come from.

use std::fs::File;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use prun_core::outcome::{CheckFacts, Exit};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use super::IntegrateError;
use super::quarantine::Quarantine;
use crate::contain::{TOKEN_VARIABLE, reap_marked};
use crate::files::FileError;

/// Checks `tree` out at `dir`, which must not exist: a repository of its own, without a remote, whose HEAD is
/// that tree. Line ends, modes and links are as the user's settings and the tree's attributes say.
///
/// # Errors
/// Git fails, or the directory cannot be made.
pub fn checkout(quarantine: &Quarantine, tree: &str, dir: &Path) -> Result<(), IntegrateError> {
    quarantine.init_stage(dir)?;
    let git = |args: &[&str]| quarantine.git().command(args).dir(dir).git_dir(dir.join(".git")).work_tree(dir);
    git(&["read-tree", "--reset", "-u", tree]).run()?;
    let commit = git(&["commit-tree", "-m", "combination", tree])
        .env("GIT_AUTHOR_DATE", "@0 +0000")
        .env("GIT_COMMITTER_DATE", "@0 +0000")
        .run()?
        .text();
    git(&["update-ref", "HEAD", &commit]).run()?;
    Ok(())
}

/// Runs a check in `dir`, its output appended to `log`, and ends afterwards in any case what it started: its
/// process group, and whatever carries `token`. Whoever finds that a caller died ends that by the token, too.
///
/// # Errors
/// The log cannot be opened. A program that cannot be started is a fact of the check.
pub fn run_check(
    argv: &[String],
    dir: &Path,
    limit: Duration,
    log: &Path,
    token: &str,
) -> Result<CheckFacts, FileError> {
    let output = File::options().create(true).append(true).open(log).map_err(FileError::at("open", log))?;
    let second = output.try_clone().map_err(FileError::at("open", log))?;
    let facts = |exit: Exit, timed_out: bool, began: Instant| CheckFacts {
        ok: exit == Exit::Code { code: 0 } && !timed_out,
        exit,
        timed_out,
        millis: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        log: log.to_string_lossy().into_owned(),
    };
    let began = Instant::now();
    let (program, args) = argv.split_first().map_or(("", &[][..]), |(program, args)| (program.as_str(), args));
    let mut command = Command::new(program);
    command.args(args).current_dir(dir).stdin(Stdio::null()).stdout(output).stderr(second).process_group(0);
    command.env(TOKEN_VARIABLE, token);
    for name in GIT_LOCATIONS {
        command.env_remove(name);
    }
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            let code = if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 };
            return Ok(facts(Exit::NotStarted { code, error: format!("{program}: {error}") }, false, began));
        }
    };
    let ended = wait(&mut child, limit);
    reap_marked(token);
    let (status, timed_out) = ended.map_err(FileError::at("wait for the check in", dir))?;
    Ok(facts(exit_of(status), timed_out, began))
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

fn wait(child: &mut Child, limit: Duration) -> std::io::Result<(ExitStatus, bool)> {
    let pid = Pid::from_child(child);
    let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
    let deadline = Instant::now() + limit;
    let mut timed_out = false;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).ok();
        match poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], timeout.as_ref()) {
            Ok(0) if Instant::now() >= deadline => {
                timed_out = true;
                break;
            }
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => break,
            Err(error) => return Err(error.into()),
        }
    }
    // The leader is not waited for yet, so the group's number cannot belong to anybody else. The group may be
    // empty but for the leader.
    kill_process_group(pid, Signal::KILL).ok();
    Ok((child.wait()?, timed_out))
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

    fn check(script: &str, limit: Duration) -> (CheckFacts, String) {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let argv = ["sh", "-c", script].map(str::to_owned);
        let facts = run_check(&argv, dir.path(), limit, &log, &token()).unwrap();
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
        let facts = run_check(&["/no/such".into()], dir.path(), minute, &dir.path().join("log"), &token()).unwrap();
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
