//! One unit that is watched: what is to be seen of it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use prun_core::outcome::Channel;

use super::super::landing::Standing;
use super::super::place::{Place, Stamp, age, is_fallback};
use super::super::record::{self, Dispatcher, Scheme, Settled};
use super::super::waker::Waker;
use super::{Observed, Status, Tail};
use crate::state_dir::StateDir;

/// One unit.
pub(super) struct Unit {
    number: usize,
    dir: StateDir,
    result_path: Option<PathBuf>,
    place: Place,
    growth: Growth,
    /// The facts say it: they are read once.
    settled: Option<Settled>,
    noted: bool,
    pub(super) status: Status,
    pub(super) next_look: Instant,
}

/// Since when a tail has not grown. The clock of the machine only counts for what was before the first
/// look: it may be set, and it goes on while the machine sleeps.
#[derive(Debug)]
struct Growth {
    seen: Option<Stamp>,
    quiet_then: Duration,
    since: Instant,
    looked: Option<Instant>,
}

impl Unit {
    pub(super) fn new(number: usize, dir: &Path) -> Self {
        let now = Instant::now();
        Self {
            number,
            dir: StateDir::at(dir),
            result_path: None,
            place: Place::default(),
            growth: Growth { seen: None, quiet_then: Duration::ZERO, since: now, looked: None },
            settled: None,
            noted: false,
            status: Status::Pending,
            next_look: now,
        }
    }

    pub(super) fn state_dir(&self) -> &Path {
        self.dir.root()
    }

    /// Nobody could move for this long.
    pub(super) fn slept(&mut self, time: Duration) {
        self.growth.slept(time);
    }

    /// Looks at everything; `waker` is asked to tell of changes.
    pub(super) fn observe(&mut self, waker: &mut Waker) -> Observed {
        waker.watch_path(&self.dir.facts(), self.number);
        // The dispatcher first: what it wrote before it went is seen then.
        let (scheme, dispatcher) = record::dispatcher(self.dir.root());
        if let Dispatcher::Alive(process) = &dispatcher {
            waker.watch_process(process, self.number);
        }
        if self.settled.is_none() && scheme == Scheme::Prun {
            self.settled = record::settled(self.dir.root());
        }
        let (result, stamp) = self.look_at_result(waker);
        let is_fallback = stamp.is_some() && self.result_path.as_deref().is_some_and(is_fallback);
        Observed {
            result,
            is_fallback,
            writer: record::writer(scheme, &dispatcher, self.settled.as_ref(), stamp),
            dispatcher_gone: dispatcher == Dispatcher::Gone,
            misplaced_fallback: self.misplaced().is_some_and(|(channel, _)| channel == Channel::Salvage),
            tail: self.tail(),
        }
    }

    /// What nobody would find out otherwise, once.
    pub(super) fn note(&mut self, seen: &Observed) -> Option<String> {
        if self.noted {
            return None;
        }
        let path = self.result_path.as_deref()?.display();
        let note = match (self.misplaced(), seen.result) {
            (Some((_, elsewhere)), _) => {
                format!("the result could not be written to {path}; it is at {elsewhere}")
            }
            (None, Standing::Other(kind)) => format!("{path} is {kind}, not a result"),
            _ => return None,
        };
        self.noted = true;
        Some(note)
    }

    fn look_at_result(&mut self, waker: &mut Waker) -> (Standing, Option<Stamp>) {
        if self.result_path.is_none() {
            self.result_path = record::result_path(self.dir.root());
        }
        let Some(path) = &self.result_path else {
            waker.watch_path(&self.dir.root().join("result-file"), self.number);
            return (Standing::Nothing, None);
        };
        waker.watch_path(path, self.number);
        let (standing, stamp) = self.place.look(path);
        match stamp {
            Some(stamp) if self.settled.is_none() && self.stood_before(stamp) => (Standing::Nothing, None),
            _ => (standing, stamp),
        }
    }

    /// Whether this is the file that stood there before the dispatch.
    fn stood_before(&self, stamp: Stamp) -> bool {
        let before: Option<i64> = record::number_entry(self.dir.root(), "pre-mtime");
        before.is_some_and(|before| before != 0 && before == stamp.time().0)
    }

    /// Where the result is if it could not be written where it was asked for.
    fn misplaced(&self) -> Option<(Channel, &str)> {
        let result = self.settled.as_ref()?.facts.result.as_ref()?;
        result.misplaced.then_some((result.channel, result.path.as_str()))
    }

    fn tail(&mut self) -> Tail {
        let meta = std::fs::symlink_metadata(self.dir.tail()).ok().filter(std::fs::Metadata::is_file);
        let stamp = meta.as_ref().map(Stamp::of);
        let age = meta.as_ref().map_or_else(|| self.age_of_dispatch(), age);
        Tail { is_empty: stamp.is_none_or(|stamp| stamp.size() == 0), quiet: self.growth.look(stamp, age) }
    }

    /// Without a tail the dispatch itself is what came last.
    fn age_of_dispatch(&self) -> Option<Duration> {
        let seconds: u64 = record::number_entry(self.dir.root(), "timestamp")?;
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))?).ok()
    }
}

impl Growth {
    fn slept(&mut self, time: Duration) {
        self.since += time;
        self.looked = self.looked.map(|looked| looked + time);
    }

    /// How long the tail has been quiet; `age` is what its own time says, `None` where that is in the future.
    fn look(&mut self, stamp: Option<Stamp>, age: Option<Duration>) -> Duration {
        let now = Instant::now();
        if self.looked.is_none() || stamp != self.seen {
            let age = age.unwrap_or_default();
            // It grew since the look before, whatever the clocks say.
            self.quiet_then = self.looked.map_or(age, |looked| age.min(now.duration_since(looked)));
            self.since = now;
            self.seen = stamp;
        }
        self.looked = Some(now);
        self.quiet_then + now.duration_since(self.since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(path: &Path) -> Option<Stamp> {
        std::fs::symlink_metadata(path).ok().as_ref().map(Stamp::of)
    }

    #[test]
    fn quiet_counts_from_the_tails_own_time_at_first_and_from_what_was_seen_later() {
        let dir = tempfile::tempdir().unwrap();
        let tail = dir.path().join("tail");
        std::fs::write(&tail, "x").unwrap();
        let hour = Duration::from_secs(3600);
        let now = Instant::now();
        let mut growth = Growth { seen: None, quiet_then: Duration::ZERO, since: now, looked: None };
        assert!(growth.look(stamp(&tail), Some(hour)) >= hour);
        assert!(growth.look(stamp(&tail), Some(hour * 9)) < hour * 2, "the clock was set, or the machine slept");
        std::fs::write(&tail, "xy").unwrap();
        assert!(growth.look(stamp(&tail), Some(hour)) < Duration::from_secs(60), "it grew a moment ago");
        assert!(growth.look(stamp(&tail), None) < Duration::from_secs(60));
    }

    #[test]
    fn a_time_in_which_nobody_could_move_is_no_silence() {
        let dir = tempfile::tempdir().unwrap();
        let tail = dir.path().join("tail");
        std::fs::write(&tail, "x").unwrap();
        let hour = Duration::from_secs(3600);
        let before = Instant::now().checked_sub(hour).unwrap();
        let mut growth = Growth { seen: stamp(&tail), quiet_then: Duration::ZERO, since: before, looked: Some(before) };
        assert!(growth.look(stamp(&tail), Some(hour)) >= hour);
        growth.slept(hour);
        assert!(growth.look(stamp(&tail), Some(hour)) < Duration::from_secs(60));
        // What it wrote just before the stop is not an hour old either.
        let mut growth = Growth { seen: None, quiet_then: Duration::ZERO, since: before, looked: Some(before) };
        growth.slept(hour);
        assert!(growth.look(stamp(&tail), Some(hour)) < Duration::from_secs(60));
    }

    #[test]
    fn a_file_from_before_the_dispatch_is_no_result() {
        let dir = tempfile::tempdir().unwrap();
        let result = dir.path().join("r.md");
        std::fs::write(&result, "old").unwrap();
        let seconds = std::os::unix::fs::MetadataExt::mtime(&std::fs::metadata(&result).unwrap());
        std::fs::write(dir.path().join("result-file"), format!("{}\n", result.display())).unwrap();
        let look = |before: i64| {
            std::fs::write(dir.path().join("pre-mtime"), format!("{before}\n")).unwrap();
            Unit::new(0, dir.path()).observe(&mut Waker::new()).result
        };
        assert_eq!(look(seconds), Standing::Nothing);
        assert!(matches!(look(seconds - 1), Standing::Text(_)));
        assert!(matches!(look(0), Standing::Text(_)));
    }
}
