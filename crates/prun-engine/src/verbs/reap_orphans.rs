//! `prun reap-orphans`: ends the workers whose dispatcher is gone. It deletes nothing, and touches only
//! what a state dir of this user's records by boot, number and start, or what carries its token.

mod candidate;

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use prun_core::outcome::SweepFacts;

use self::candidate::Candidate;
use super::arguments::{Argument, Arguments, UsageError, unknown};
use super::of_runs::OfRuns;
use super::record;
use crate::contain::{reap_by_token, remove_group};
use crate::state_dir::{Identity, NAME_PREFIX};

/// How it is used.
pub const USAGE: &str = "usage: prun reap-orphans [--dry-run] [--state-dir DIR]... [--run ID]... [--all-runs]";

/// What the command line says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReapArgs {
    /// Only tell what would be ended.
    pub dry_run: bool,
    /// These state dirs instead of those in the temporary directory.
    pub state_dirs: Vec<PathBuf>,
    /// Runs whose attempts are looked at as well.
    pub runs: OfRuns,
}

/// Why a worker is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Nothing says that this was a dispatch.
    NoDispatchRecord,
    /// Its dispatcher watches it.
    DispatcherAlive,
    /// No worker was recorded, and none is found.
    NoWorkerRecord,
    /// What is recorded cannot be read, understood or trusted.
    UnknownIdentity,
    /// Recorded by another version of prun, in a way that this one does not know.
    ForeignScheme,
    /// It is gone, and so is all that it started.
    WorkerExited,
    /// Its number belongs to another process now, and nothing of it is left.
    IdentityMismatch,
    /// Some of its processes could not be ended.
    KillFailed,
}

/// What is said on the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReapLine {
    /// The first line.
    Start {
        /// The temporary directory.
        base: PathBuf,
        /// How many state dirs are looked at.
        candidates: usize,
    },
    /// The kernel vouches that the whole tree is gone.
    Reaped(String, u32),
    /// Every process that was seen is gone.
    Terminated(String, u32),
    /// A dry run: this one would be ended.
    WouldReap(String, u32),
    /// Nothing was done.
    Left(String, Reason),
    /// The last line.
    Done {
        /// How many were reaped.
        reaped: usize,
        /// How many were terminated.
        terminated: usize,
        /// How many were left.
        left: usize,
    },
}

/// What a state dir says of its dispatch.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Recorded {
    /// Nothing.
    Nothing,
    /// The old scripts' dispatcher, and no worker.
    OldScripts,
    /// Something that cannot be read, understood or trusted.
    Unknown,
    /// A format of another version.
    Foreign,
    /// All that is needed.
    Identity(Box<Identity>),
}

/// What became of the recorded worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Worker {
    NotRecorded,
    Alive(u32),
    Gone,
    /// Its number belongs to another process.
    Replaced,
}

/// What was seen of a candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Observed {
    recorded: Recorded,
    dispatcher_alive: bool,
    worker: Worker,
    /// Another process of the attempt, by its token or its control group.
    other: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    Leave(Reason),
    End { pid: u32, identity: Box<Identity> },
}

impl ReapArgs {
    /// Reads the arguments after the verb.
    ///
    /// # Errors
    /// An unknown argument, or an option without its value.
    pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, UsageError> {
        let mut args = Self::default();
        let mut line = Arguments::new(arguments.into_iter());
        while let Some(argument) = line.next()? {
            match argument {
                Argument::Option(name) if name == "--dry-run" => args.dry_run = true,
                Argument::Option(name) if name == "--state-dir" => {
                    args.state_dirs.push(line.value("--state-dir")?.into());
                }
                Argument::Option(name) if args.runs.take(&name, &mut line)? => {}
                Argument::Option(name) => return Err(unknown(name.as_ref())),
                Argument::Value(value) => return Err(unknown(&value)),
            }
        }
        Ok(args)
    }
}

/// The rule: ended is only what surely belongs to a dispatch whose dispatcher surely is gone.
fn decide(seen: Observed) -> Verdict {
    if seen.dispatcher_alive {
        return Verdict::Leave(Reason::DispatcherAlive);
    }
    let identity = match seen.recorded {
        Recorded::Nothing => return Verdict::Leave(Reason::NoDispatchRecord),
        Recorded::OldScripts => return Verdict::Leave(Reason::NoWorkerRecord),
        Recorded::Unknown => return Verdict::Leave(Reason::UnknownIdentity),
        Recorded::Foreign => return Verdict::Leave(Reason::ForeignScheme),
        Recorded::Identity(identity) => identity,
    };
    match (seen.worker, seen.other) {
        (Worker::Alive(pid), _) | (_, Some(pid)) => Verdict::End { pid, identity },
        (Worker::NotRecorded, None) => Verdict::Leave(Reason::NoWorkerRecord),
        (Worker::Gone, None) => Verdict::Leave(Reason::WorkerExited),
        (Worker::Replaced, None) => Verdict::Leave(Reason::IdentityMismatch),
    }
}

/// What is said of a worker that was to be ended.
fn ended(name: String, pid: u32, sweep: &SweepFacts) -> ReapLine {
    if !sweep.survivors.is_empty() {
        ReapLine::Left(name, Reason::KillFailed)
    } else if sweep.proven {
        ReapLine::Reaped(name, pid)
    } else if sweep.leftovers == 0 {
        ReapLine::Left(name, Reason::WorkerExited)
    } else {
        ReapLine::Terminated(name, pid)
    }
}

/// The state dirs in `base`, in the order of their names; links are none.
#[must_use]
pub fn state_dirs_in(base: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(base).into_iter().flatten().flatten();
    let ours = entries.filter(|entry| {
        entry.file_name().as_encoded_bytes().starts_with(NAME_PREFIX.as_bytes())
            && entry.file_type().is_ok_and(|kind| kind.is_dir())
    });
    let mut dirs: Vec<PathBuf> = ours.map(|entry| entry.path()).collect();
    dirs.sort();
    dirs
}

/// Looks at every state dir, ends what is orphaned, and says what was done. `base` is for the first line.
pub fn reap_orphans(base: &Path, state_dirs: &[PathBuf], dry_run: bool, say: &mut dyn FnMut(&ReapLine)) {
    say(&ReapLine::Start { base: base.to_owned(), candidates: state_dirs.len() });
    let (mut reaped, mut terminated, mut left) = (0, 0, 0);
    let look = Candidate::look_around();
    for dir in state_dirs {
        let name = record::name(dir);
        let seen = look.observe(dir);
        if let Recorded::Identity(identity) = &seen.recorded
            && !(dry_run || seen.dispatcher_alive)
        {
            // Its worker may have ended without it.
            remove_group(identity);
        }
        let line = match decide(seen) {
            Verdict::Leave(reason) => ReapLine::Left(name, reason),
            Verdict::End { pid, .. } if dry_run => ReapLine::WouldReap(name, pid),
            Verdict::End { pid, identity } => ended(name, pid, &reap_by_token(&identity)),
        };
        match &line {
            ReapLine::Reaped(..) => reaped += 1,
            ReapLine::Terminated(..) => terminated += 1,
            _ => left += 1,
        }
        say(&line);
    }
    say(&ReapLine::Done { reaped, terminated, left });
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoDispatchRecord => "no-dispatch-record",
            Self::DispatcherAlive => "dispatcher-alive",
            Self::NoWorkerRecord => "no-worker-record",
            Self::UnknownIdentity => "unknown-identity",
            Self::ForeignScheme => "foreign-scheme",
            Self::WorkerExited => "worker-exited",
            Self::IdentityMismatch => "identity-mismatch",
            Self::KillFailed => "kill-failed",
        })
    }
}

impl fmt::Display for ReapLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start { base, candidates } => {
                let base = crate::executor::escape_line(&base.to_string_lossy());
                write!(f, "REAP-START base={base} candidates={candidates}")
            }
            Self::Reaped(name, pid) => write!(f, "REAPED {name} pid={pid}"),
            Self::Terminated(name, pid) => write!(f, "TERMINATED {name} pid={pid}"),
            Self::WouldReap(name, pid) => write!(f, "WOULD-REAP {name} pid={pid}"),
            Self::Left(name, reason) => write!(f, "LEFT {name} {reason}"),
            Self::Done { reaped, terminated, left } => {
                write!(f, "REAP-DONE reaped={reaped} terminated={terminated} left={left}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state_dir::IDENTITY_VERSION;

    fn identity() -> Box<Identity> {
        Box::new(Identity {
            version: IDENTITY_VERSION,
            dispatcher: crate::process::own_identity(),
            worker: None,
            containment: Vec::new(),
            cgroup: None,
            read_only: Vec::new(),
            token: "t".into(),
        })
    }

    fn seen(worker: Worker, other: Option<u32>) -> Observed {
        Observed { recorded: Recorded::Identity(identity()), dispatcher_alive: false, worker, other }
    }

    #[test]
    fn only_an_identified_worker_of_a_dead_dispatcher_is_ended() {
        let leave = Verdict::Leave;
        let end = |pid| Verdict::End { pid, identity: identity() };
        for (seen, verdict) in [
            (seen(Worker::Alive(7), None), end(7)),
            (seen(Worker::Alive(7), Some(9)), end(7)),
            (seen(Worker::Gone, Some(9)), end(9)),
            (seen(Worker::NotRecorded, Some(9)), end(9)),
            (seen(Worker::Replaced, Some(9)), end(9)),
            (seen(Worker::Gone, None), leave(Reason::WorkerExited)),
            (seen(Worker::NotRecorded, None), leave(Reason::NoWorkerRecord)),
            (seen(Worker::Replaced, None), leave(Reason::IdentityMismatch)),
            (Observed { dispatcher_alive: true, ..seen(Worker::Alive(7), Some(9)) }, leave(Reason::DispatcherAlive)),
        ] {
            assert_eq!(decide(seen.clone()), verdict, "{seen:?}");
        }
        for (recorded, reason) in [
            (Recorded::Nothing, Reason::NoDispatchRecord),
            (Recorded::OldScripts, Reason::NoWorkerRecord),
            (Recorded::Unknown, Reason::UnknownIdentity),
            (Recorded::Foreign, Reason::ForeignScheme),
        ] {
            assert_eq!(decide(Observed { recorded, ..seen(Worker::Alive(7), Some(9)) }), leave(reason));
        }
    }

    #[test]
    fn reaped_is_said_on_proof_alone() {
        let say = |proven, leftovers, survivors: &[u32]| {
            let sweep = SweepFacts { containment: Vec::new(), leftovers, proven, survivors: survivors.to_vec() };
            ended("n".into(), 7, &sweep).to_string()
        };
        assert_eq!(say(true, 2, &[]), "REAPED n pid=7");
        assert_eq!(say(false, 2, &[]), "TERMINATED n pid=7");
        assert_eq!(say(false, 0, &[]), "LEFT n worker-exited");
        assert_eq!(say(false, 2, &[8]), "LEFT n kill-failed");
    }

    #[test]
    fn lines_are_the_contracts() {
        let start = ReapLine::Start { base: "/tmp".into(), candidates: 3 };
        assert_eq!(start.to_string(), "REAP-START base=/tmp candidates=3");
        assert_eq!(ReapLine::WouldReap("n".into(), 4).to_string(), "WOULD-REAP n pid=4");
        let done = ReapLine::Done { reaped: 1, terminated: 2, left: 3 };
        assert_eq!(done.to_string(), "REAP-DONE reaped=1 terminated=2 left=3");
    }

    #[test]
    fn the_command_line_names_state_dirs() {
        let parse = |line: &[&str]| ReapArgs::parse(line.iter().map(OsString::from));
        let args = parse(&["--dry-run", "--state-dir", "a", "--state-dir=b"]).unwrap();
        assert_eq!((args.dry_run, args.state_dirs), (true, vec!["a".into(), "b".into()]));
        assert_eq!(parse(&["x"]), Err(UsageError::Unknown("x".into())));
        assert_eq!(parse(&["--state-dir"]), Err(UsageError::NoValue("--state-dir")));
        assert_eq!(parse(&["--what"]), Err(UsageError::Unknown("--what".into())));
    }
}
