//! One state dir that may have left a worker behind: what it records, and what of that still lives.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::poll;
use rustix::time::Timespec;

use super::super::record::{self, Dispatcher};
use super::{Observed, Recorded, Worker};
use crate::contain::TOKEN_VARIABLE;
use crate::files::read_regular;
use crate::process::{boot_id, environment_values, is_alive, stat, with_environment_entry};
use crate::state_dir::{IDENTITY_VERSION, Identity, StateDir, read_identity};

/// No record of a dispatch is larger.
const RECORD_LIMIT: u64 = 1 << 20;

/// How long a start that was under way is waited for.
const START_BOUND: Duration = Duration::from_secs(2);

/// Directories below a control group that are looked into.
const CGROUP_DEPTH: u32 = 8;

/// The processes that carry a token, by the token: one look at all processes serves every state dir.
pub(super) struct Candidate {
    by_token: HashMap<Vec<u8>, u32>,
}

impl Candidate {
    /// Looks at all processes once.
    pub(super) fn look_around() -> Self {
        let mut by_token: HashMap<Vec<u8>, u32> = HashMap::new();
        for (process, token) in environment_values(TOKEN_VARIABLE.as_bytes()) {
            if process.is_dead() || process.pid == std::process::id() {
                continue;
            }
            let lowest = by_token.entry(token).or_insert(process.pid);
            *lowest = process.pid.min(*lowest);
        }
        Self { by_token }
    }

    /// Looks at one state dir.
    pub(super) fn observe(&self, dir: &Path) -> Observed {
        let recorded = recorded(dir);
        let dispatcher_alive = match &recorded {
            Recorded::Identity(identity) => is_alive(&identity.dispatcher),
            _ => matches!(record::dispatcher(dir).1, Dispatcher::Alive(_)),
        };
        let (worker, other) = match &recorded {
            Recorded::Identity(identity) => {
                if !dispatcher_alive {
                    wait_for_start(dir);
                }
                let other = self.other(identity);
                let missed = || if dispatcher_alive { None } else { brief(dir, identity) };
                (worker(identity), other.or_else(missed))
            }
            _ => (Worker::NotRecorded, None),
        };
        Observed { recorded, dispatcher_alive, worker, other }
    }

    fn other(&self, identity: &Identity) -> Option<u32> {
        let carrier = self.by_token.get(identity.token.as_bytes()).copied();
        carrier.or_else(|| identity.cgroup.as_deref().and_then(|group| member(group, CGROUP_DEPTH)))
    }
}

/// Waits for what a dispatcher was starting when it was killed: until it has become its program, nothing marks it.
fn wait_for_start(dir: &Path) {
    let dir = StateDir::at(dir);
    let until = Instant::now() + START_BOUND;
    while dir.is_held() && Instant::now() < until {
        let pause = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        let _ = poll(&mut [], Some(&pause));
    }
}

fn recorded(dir: &Path) -> Recorded {
    let path = StateDir::at(dir).identity();
    if path.symlink_metadata().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
        return recorded_by_old_scripts(dir);
    }
    if !is_ours_alone(dir) || !is_ours_alone(&path) {
        return Recorded::Unknown;
    }
    match read_version(&path) {
        Some(IDENTITY_VERSION) => {}
        Some(_) => return Recorded::Foreign,
        None => return Recorded::Unknown,
    }
    match read_identity(dir) {
        Ok(identity) if is_complete(&identity) => Recorded::Identity(Box::new(identity)),
        _ => Recorded::Unknown,
    }
}

fn recorded_by_old_scripts(dir: &Path) -> Recorded {
    if record::number_entry::<u32>(dir, "dispatch-pid").is_some() {
        Recorded::OldScripts
    } else if dir.join("dispatch-pid").symlink_metadata().is_ok() {
        Recorded::Unknown
    } else {
        Recorded::Nothing
    }
}

/// Whether nobody else could have written what is there: anybody may make a directory in the temporary
/// directory, and name any process in it.
fn is_ours_alone(path: &Path) -> bool {
    const OTHERS_MAY_WRITE: u32 = 0o022;
    path.symlink_metadata().is_ok_and(|meta| {
        !meta.file_type().is_symlink()
            && meta.uid() == rustix::process::geteuid().as_raw()
            && meta.mode() & OTHERS_MAY_WRITE == 0
    })
}

fn read_version(path: &Path) -> Option<u32> {
    let record: serde_json::Value = serde_json::from_slice(&read_regular(path, RECORD_LIMIT).ok()?).ok()?;
    record.get("version")?.as_u64()?.try_into().ok()
}

/// Without a boot or a token nothing could be told from a look-alike.
fn is_complete(identity: &Identity) -> bool {
    !boot_id().is_empty() && !identity.dispatcher.boot_id.is_empty() && !identity.token.is_empty()
}

fn worker(identity: &Identity) -> Worker {
    let Some(worker) = &identity.worker else { return Worker::NotRecorded };
    if is_alive(worker) {
        return Worker::Alive(worker.pid);
    }
    match stat(worker.pid) {
        Some(now) if worker.boot_id == boot_id() && now.start_ticks != worker.start_ticks => Worker::Replaced,
        _ => Worker::Gone,
    }
}

/// A process that was too brief to be seen in one look at all of them, of a dispatch that nobody settled.
fn brief(dir: &Path, identity: &Identity) -> Option<u32> {
    if StateDir::at(dir).facts().symlink_metadata().is_ok() {
        return None;
    }
    let entry = format!("{TOKEN_VARIABLE}={}", identity.token);
    with_environment_entry(entry.as_bytes()).iter().map(|stat| stat.pid).min()
}

/// A process in a control group or below it.
fn member(group: &Path, depth: u32) -> Option<u32> {
    let own = std::fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    let first = own.lines().find_map(|line| line.trim().parse().ok()).filter(|pid| *pid != 0);
    if first.is_some() || depth == 0 {
        return first;
    }
    let below = std::fs::read_dir(group).into_iter().flatten().flatten();
    below
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .find_map(|dir| member(&dir.path(), depth - 1))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use prun_core::event::ProcessIdentity;

    use super::*;
    use crate::process::own_identity;

    fn dead() -> ProcessIdentity {
        ProcessIdentity { start_ticks: 1, ..own_identity() }
    }

    fn identity(dispatcher: ProcessIdentity, worker: Option<ProcessIdentity>) -> Identity {
        Identity {
            version: IDENTITY_VERSION,
            dispatcher,
            worker,
            containment: Vec::new(),
            cgroup: None,
            read_only: Vec::new(),
            token: crate::state_dir::random_hex::<16>().unwrap(),
        }
    }

    fn state_dir(identity: &Identity) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        StateDir::at(dir.path()).write_identity(identity).unwrap();
        dir
    }

    fn observe(dir: &Path) -> Observed {
        Candidate::look_around().observe(dir)
    }

    #[test]
    fn a_recycled_number_is_no_worker_and_no_dispatcher() {
        let seen = observe(state_dir(&identity(dead(), Some(dead()))).path());
        assert_eq!((seen.dispatcher_alive, seen.worker, seen.other), (false, Worker::Replaced, None));
        let before = ProcessIdentity { boot_id: "another boot".into(), ..own_identity() };
        let seen = observe(state_dir(&identity(before.clone(), Some(before))).path());
        assert_eq!((seen.dispatcher_alive, seen.worker), (false, Worker::Gone));
        let seen = observe(state_dir(&identity(own_identity(), Some(own_identity()))).path());
        assert_eq!((seen.dispatcher_alive, seen.worker), (true, Worker::Alive(std::process::id())));
    }

    #[test]
    fn a_record_that_others_could_have_written_is_not_trusted() {
        let dir = state_dir(&identity(dead(), Some(own_identity())));
        let mode = |mode| std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        for writable in [0o777, 0o770, 0o1777] {
            mode(writable);
            assert_eq!(recorded(dir.path()), Recorded::Unknown, "{writable:o}");
        }
        mode(0o755);
        assert!(matches!(recorded(dir.path()), Recorded::Identity(_)));
        let link = dir.path().parent().unwrap().join(format!("link-{}", std::process::id()));
        std::os::unix::fs::symlink(dir.path(), &link).unwrap();
        let through_link = recorded(&link);
        std::fs::remove_file(&link).unwrap();
        assert_eq!(through_link, Recorded::Unknown);
    }

    #[test]
    fn what_is_recorded_is_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(recorded(dir.path()), Recorded::Nothing);
        assert_eq!(recorded(Path::new("/nowhere/at/all")), Recorded::Nothing);
        write("dispatch-pid", "x\n");
        assert_eq!(recorded(dir.path()), Recorded::Unknown);
        write("dispatch-pid", "4194304\n");
        assert_eq!(recorded(dir.path()), Recorded::OldScripts);
        write("identity.json", r#"{"version": 99, "scheme": "other"}"#);
        assert_eq!(recorded(dir.path()), Recorded::Foreign);
        for text in ["", "{", "[]", r#"{"version": 1}"#, r#"{"version": "1"}"#] {
            write("identity.json", text);
            assert_eq!(recorded(dir.path()), Recorded::Unknown, "{text:?}");
        }
    }
}
