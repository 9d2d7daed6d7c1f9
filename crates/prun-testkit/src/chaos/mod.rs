//! Chaos on real processes: a real plan with fake workers, and SIGKILL at random moments to the viewer, the supervisor,
//! dispatchers, git, `integrate` and `undo`. Then whatever is left is resumed, and what must hold is looked at: no result
//! lost, no unit twice at a time, no process left, the user's repository as it was, a ledger that replays.
//!
//! It sees prun from outside alone, as a user does, so it takes any build of it.

mod landing;
mod plan;
mod round;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use round::Round;

/// What gets killed while a run is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    /// `prun run` or `prun resume`.
    Viewer,
    /// The supervisor.
    Supervisor,
    /// Both.
    ViewerAndSupervisor,
    /// One dispatcher.
    Dispatcher,
    /// All of them.
    EveryDispatcher,
    /// A dispatcher, the supervisor, and another dispatcher.
    SupervisorAndDispatcher,
    /// Whatever git runs at that moment.
    Git,
}

impl Victim {
    /// Every kind.
    pub const ALL: [Self; 7] = [
        Self::Viewer,
        Self::Supervisor,
        Self::ViewerAndSupervisor,
        Self::Dispatcher,
        Self::EveryDispatcher,
        Self::SupervisorAndDispatcher,
        Self::Git,
    ];
}

/// What is to be played.
#[derive(Clone, Debug)]
pub struct Chaos {
    /// The program.
    pub prun: PathBuf,
    /// How many runs.
    pub rounds: u64,
    /// The first round's seed; the next ones follow from it.
    pub seed: u64,
    /// How many at the same time.
    pub jobs: usize,
    /// What may be killed.
    pub victims: Vec<Victim>,
    /// Whether each run is landed and taken back at its end, both under fire.
    pub lands: bool,
}

/// A round that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Its seed.
    pub seed: u64,
    /// What did not hold.
    pub what: String,
}

impl Chaos {
    /// Plays all rounds, or until one fails; `after_each` is told how many are done.
    ///
    /// # Errors
    /// The round that failed. Its directory is kept where `PRUN_TEST_KEEP` is set.
    ///
    /// # Panics
    /// A thread of its own panicked.
    pub fn play(&self, after_each: impl Fn(u64) + Sync) -> Result<(), Failure> {
        let (next, done) = (AtomicU64::new(0), AtomicU64::new(0));
        let failed: Mutex<Option<Failure>> = Mutex::new(None);
        let work = || {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= self.rounds || failed.lock().expect("nobody panics with it").is_some() {
                    return;
                }
                let seed = self.seed.wrapping_add(number);
                match catch_unwind(AssertUnwindSafe(|| Round::new(&self.prun, seed).play(&self.victims, self.lands))) {
                    Ok(()) => after_each(done.fetch_add(1, Ordering::Relaxed) + 1),
                    Err(panic) => {
                        let what = said(panic.as_ref());
                        failed.lock().expect("nobody panics with it").get_or_insert(Failure { seed, what });
                    }
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..self.jobs.max(1) {
                scope.spawn(work);
            }
        });
        failed.into_inner().expect("nobody panics with it").map_or(Ok(()), Err)
    }
}

fn said(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

/// How to play one round again.
#[must_use]
pub fn again(prun: &Path, seed: u64) -> String {
    format!("cargo run -p prun-testkit --bin chaos -- --rounds 1 --seed {seed} --prun {}", prun.display())
}

/// A small generator (SplitMix64): a seed must mean the same kills on every machine.
#[derive(Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }
}
