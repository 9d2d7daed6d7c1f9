//! What a state dir says of its dispatch: the dispatcher and whether it lives, the result's path.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use prun_core::event::ProcessIdentity;
use prun_core::outcome::AttemptFacts;
use rustix::time::{ClockId, clock_gettime};

use super::landing::Writer;
use super::place::Stamp;
use crate::files::read_regular;
use crate::process::{ProcessStat, is_alive, stat};
use crate::state_dir::{StateDir, read_facts, read_identity};

/// No entry of the contract is larger.
pub(super) const ENTRY_LIMIT: u64 = 64 * 1024;

/// A process that began this much later than the dispatch only has the dispatcher's number. The two
/// times come from clocks that may have been set in between.
const RECYCLED_AFTER: Duration = Duration::from_secs(60);

/// The dispatcher that a state dir records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Dispatcher {
    /// It lives.
    Alive(ProcessIdentity),
    /// It is certain that it is gone.
    Gone,
    /// None is recorded, or nothing certain can be said.
    Unknown,
}

/// Whose dispatcher it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    /// prun's: it records an identity, and facts at its end.
    Prun,
    /// The old scripts', or nobody's.
    Old,
}

/// The dispatcher that `state_dir` records, as it is now.
pub(super) fn dispatcher(state_dir: &Path) -> (Scheme, Dispatcher) {
    if let Ok(identity) = read_identity(state_dir) {
        let alive = is_alive(&identity.dispatcher);
        let dispatcher = if alive { Dispatcher::Alive(identity.dispatcher) } else { Dispatcher::Gone };
        return (Scheme::Prun, dispatcher);
    }
    (Scheme::Old, old_dispatcher(state_dir))
}

/// A dispatcher of which only the number is known.
fn old_dispatcher(state_dir: &Path) -> Dispatcher {
    let Some(pid) = number_entry(state_dir, "dispatch-pid") else { return Dispatcher::Unknown };
    let Some(process) = stat(pid).filter(|process| !process.is_dead()) else { return Dispatcher::Gone };
    let recorded = number_entry(state_dir, "timestamp").map(Duration::from_secs);
    match (recorded, started_at(&process)) {
        (Some(recorded), Some(started)) if is_recycled(started, recorded) => Dispatcher::Gone,
        _ => Dispatcher::Alive(process.identity()),
    }
}

/// Whether a process that started then cannot be the dispatcher of a dispatch of that time; both since
/// the epoch. A dispatcher is there before it writes the time.
fn is_recycled(started: Duration, recorded: Duration) -> bool {
    started > recorded + RECYCLED_AFTER
}

/// When a process started, since the epoch, by the clock as it is set now.
fn started_at(process: &ProcessStat) -> Option<Duration> {
    let clock = |id| Duration::try_from(clock_gettime(id)).ok();
    let since_boot = Duration::from_millis(
        process.start_ticks.saturating_mul(1000) / rustix::param::clock_ticks_per_second().max(1),
    );
    clock(ClockId::Realtime)?.checked_sub(clock(ClockId::Boottime)?)?.checked_add(since_boot)
}

/// Who writes the result with this stamp, by the record of its dispatch. The dispatcher is to have been
/// looked at *before* the result, so that what a dispatcher wrote last is not missed.
pub(super) fn writer(
    scheme: Scheme,
    dispatcher: &Dispatcher,
    settled: Option<&Settled>,
    stamp: Option<Stamp>,
) -> Writer {
    match (scheme, settled, stamp) {
        (Scheme::Prun, Some(settled), Some(stamp)) if settled.at >= stamp.time() => Writer::Settled,
        (Scheme::Prun, None, _) if matches!(dispatcher, Dispatcher::Alive(_)) => Writer::Living,
        _ => Writer::Unknown,
    }
}

/// A dispatch that has settled.
#[derive(Clone, Debug)]
pub(super) struct Settled {
    /// When, as the file system tells: seconds and nanoseconds of the epoch. Facts are written after the
    /// result, by the same clock as the result's own time.
    pub(super) at: (i64, i64),
    /// What was found.
    pub(super) facts: AttemptFacts,
}

/// The facts of a dispatch, where it has settled.
pub(super) fn settled(state_dir: &Path) -> Option<Settled> {
    let meta = std::fs::symlink_metadata(StateDir::at(state_dir).facts()).ok()?;
    let facts = read_facts(state_dir).ok()?;
    Some(Settled { at: Stamp::of(&meta).time(), facts })
}

/// Where the result is to stand: as prun recorded it, absolute; else as given, where a relative path
/// counts from this process's own directory, as it did for the old scripts.
pub(super) fn result_path(state_dir: &Path) -> Option<PathBuf> {
    let entry = |name: &str| entry(state_dir, name).ok().filter(|path| !path.as_os_str().is_empty());
    entry("result-path").or_else(|| std::path::absolute(entry("result-file")?).ok())
}

/// An entry of the contract without its final newline: all of it, for a path may hold a newline.
fn entry(state_dir: &Path, name: &str) -> io::Result<PathBuf> {
    let mut bytes = read_regular(&state_dir.join(name), ENTRY_LIMIT)?;
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
    }
    Ok(std::ffi::OsString::from_vec(bytes).into())
}

/// An entry that is a whole number.
pub(super) fn number_entry<N: std::str::FromStr>(state_dir: &Path, name: &str) -> Option<N> {
    entry(state_dir, name).ok()?.to_str()?.trim().parse().ok()
}

/// Whether `dir` is a state dir: it holds one of the entries that the contract names.
pub(super) fn is_state_dir(dir: &Path) -> bool {
    ["result-file", "tail", "dispatch-pid", "timestamp"].iter().any(|name| dir.join(name).symlink_metadata().is_ok())
}

/// The name of a state dir, in one line, for a line of output.
pub(super) fn name(state_dir: &Path) -> String {
    let name = state_dir.file_name().unwrap_or(state_dir.as_os_str());
    crate::executor::escape_line(&String::from_utf8_lossy(OsStr::as_bytes(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state_dir(entries: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in entries {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        dir
    }

    fn now() -> u64 {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
    }

    #[test]
    fn an_old_dispatcher_is_known_by_its_number_and_its_start() {
        let own = std::process::id().to_string();
        let of = |entries: &[(&str, &str)]| dispatcher(state_dir(entries).path());
        let here = Dispatcher::Alive(crate::process::own_identity());
        assert_eq!(of(&[("dispatch-pid", &own), ("timestamp", &now().to_string())]), (Scheme::Old, here.clone()));
        assert_eq!(of(&[("dispatch-pid", &own)]).1, here, "no time to compare with");
        assert_eq!(of(&[("dispatch-pid", &own), ("timestamp", "1000\n")]).1, Dispatcher::Gone, "a recycled number");
        assert_eq!(of(&[("dispatch-pid", "4194304\n")]).1, Dispatcher::Gone, "no such process");
        for junk in ["", "x", "-1", "12 13", "99999999999999"] {
            assert_eq!(of(&[("dispatch-pid", junk)]).1, Dispatcher::Unknown, "{junk:?}");
        }
        assert_eq!(of(&[]).1, Dispatcher::Unknown);
    }

    #[test]
    fn a_start_within_a_minute_of_the_dispatch_proves_nothing() {
        let seconds = Duration::from_secs;
        assert!(!is_recycled(seconds(1000), seconds(2000)));
        assert!(!is_recycled(seconds(1060), seconds(1000)));
        assert!(is_recycled(seconds(1061), seconds(1000)));
    }

    #[test]
    fn this_process_started_a_moment_ago() {
        let started = started_at(&stat(std::process::id()).unwrap()).unwrap();
        assert!(now().abs_diff(started.as_secs()) < 3600, "{started:?}");
    }

    #[test]
    fn a_path_is_the_whole_entry_but_its_final_newline() {
        let dir = state_dir(&[("result-file", "/a\nb\n")]);
        assert_eq!(result_path(dir.path()).as_deref(), Some(Path::new("/a\nb")));
        std::fs::write(dir.path().join("result-path"), "/real\n").unwrap();
        assert_eq!(result_path(dir.path()).as_deref(), Some(Path::new("/real")));
        assert_eq!(result_path(state_dir(&[("result-file", "\n")]).path()), None);
    }

    /// C67.
    #[test]
    fn an_entry_that_is_no_file_blocks_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("dispatch-pid");
        rustix::fs::mknodat(rustix::fs::CWD, fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        std::fs::write(dir.path().join("result-file"), vec![b'x'; 70_000]).unwrap();
        assert_eq!(dispatcher(dir.path()).1, Dispatcher::Unknown);
        assert_eq!(result_path(dir.path()), None);
        assert!(is_state_dir(dir.path()));
    }
}
