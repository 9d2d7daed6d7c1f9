//! `prun gather`: says of each result when it has landed.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::arguments::{Argument, Arguments, UsageError, unknown};
use super::landing::{Landing, Standing, Writer, landing};
use super::of_runs::OfRuns;
use super::place::{Place, Stamp};
use super::record::{self, Dispatcher, Scheme};
use super::waker::Waker;
use crate::files::read_regular;
use crate::home::Home;
use crate::settings::whole_number;
use crate::state_dir::{StateDir, canonical_result};

/// How it is used.
pub const USAGE: &str = "usage: prun gather RESULT... [--run ID]... [--all-runs]";

/// The time between two looks that nothing else caused.
pub(super) fn poll_interval(seconds: u64) -> Duration {
    const SHORTEST: Duration = Duration::from_millis(50);
    const LONGEST: Duration = Duration::from_secs(24 * 3600);
    Duration::from_secs(seconds).clamp(SHORTEST, LONGEST)
}

/// What the command line says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GatherArgs {
    /// The results, in order; one that is given twice is reported twice.
    pub results: Vec<PathBuf>,
    /// Runs whose results are waited for as well.
    pub runs: OfRuns,
}

/// What the environment says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatherSettings {
    /// Seconds after which to give up.
    pub timeout: u64,
    /// The longest time between two looks, in seconds.
    pub poll: u64,
    /// For how many seconds a file of an unknown writer has to be quiet.
    pub window: u64,
}

/// What is said on the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GatherLine {
    /// The first line.
    Start {
        /// How many results are waited for.
        count: usize,
        /// For how many seconds at most.
        timeout: u64,
    },
    /// A result has landed; its absolute path.
    Done(PathBuf),
    /// Time ran out; how many results have not landed.
    Timeout(usize),
    /// Something that no line of the contract tells, for stderr.
    Note(String),
}

impl GatherArgs {
    /// Reads the arguments after the verb.
    ///
    /// # Errors
    /// An unknown option, or nothing to wait for.
    pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, UsageError> {
        let mut args = Self::default();
        let mut line = Arguments::new(arguments.into_iter());
        while let Some(argument) = line.next()? {
            match argument {
                Argument::Value(path) => args.results.push(path.into()),
                Argument::Option(name) if args.runs.take(&name, &mut line)? => {}
                Argument::Option(name) => return Err(unknown(name.as_ref())),
            }
        }
        if args.results.is_empty() && args.runs.is_empty() {
            return Err(UsageError::Nothing("RESULT"));
        }
        Ok(args)
    }
}

impl GatherSettings {
    /// What the contract's variables ask for.
    #[must_use]
    pub fn from_env(var: impl Fn(&str) -> Option<OsString>) -> Self {
        Self {
            timeout: whole_number(&var, "AGENT_CONFIG_GATHER_TIMEOUT", 3600),
            poll: whole_number(&var, "PRUN_GATHER_POLL", 5),
            window: whole_number(&var, "PRUN_GATHER_STABLE_WINDOW", 10),
        }
    }
}

impl GatherLine {
    /// The line as bytes, without its end: a path is not changed.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Start { count, timeout } => format!("GATHER-START count={count} timeout={timeout}s").into_bytes(),
            Self::Done(path) => [b"DONE ", path.as_os_str().as_bytes()].concat(),
            Self::Timeout(remaining) => format!("TIMEOUT remaining={remaining}").into_bytes(),
            Self::Note(text) => format!("gather: {text}").into_bytes(),
        }
    }
}

/// The results of these runs' last attempts.
#[must_use]
pub fn results_of(state_dirs: &[PathBuf]) -> Vec<PathBuf> {
    state_dirs.iter().filter_map(|dir| record::result_path(dir)).collect()
}

/// Waits for `results` and says what happens; whether all of them have landed.
pub fn gather(
    results: &[PathBuf],
    settings: &GatherSettings,
    home: Option<&Home>,
    say: &mut dyn FnMut(&GatherLine),
) -> bool {
    let deadline = Instant::now().checked_add(Duration::from_secs(settings.timeout));
    let poll = poll_interval(settings.poll);
    let window = Duration::from_secs(settings.window);
    say(&GatherLine::Start { count: results.len(), timeout: settings.timeout });
    let mut waker = Waker::new();
    let mut waiting: Vec<Target> = results.iter().enumerate().map(|(at, path)| Target::new(at, path)).collect();
    loop {
        let now = Instant::now();
        waiting.retain_mut(|target| {
            if target.next_look > now {
                return true;
            }
            match target.look(window, home, &mut waker, say) {
                Landing::Landed => {
                    say(&GatherLine::Done(target.path.clone()));
                    false
                }
                Landing::NotYet { again_in } => {
                    target.next_look = now + again_in.unwrap_or(poll).min(poll);
                    true
                }
            }
        });
        let Some(next) = waiting.iter().map(|target| target.next_look).min() else { return true };
        let now = Instant::now();
        if deadline.is_some_and(|deadline| now >= deadline) {
            say(&GatherLine::Timeout(waiting.len()));
            return false;
        }
        let until = deadline.map_or(next, |deadline| deadline.min(next));
        let woken = waker.wait(until.saturating_duration_since(now));
        let now = Instant::now();
        for target in waiting.iter_mut().filter(|target| woken.all || woken.targets.contains(&target.number)) {
            target.next_look = now;
        }
        if deadline.is_some_and(|deadline| now >= deadline) {
            // Whatever lands in the last moment counts.
            waiting.iter_mut().for_each(|target| target.next_look = now);
        }
    }
}

/// One result that has not landed yet.
struct Target {
    number: usize,
    path: PathBuf,
    place: Place,
    next_look: Instant,
    /// The last thing that was noted, so that it is noted once.
    noted: Option<String>,
}

impl Target {
    fn new(number: usize, path: &Path) -> Self {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Self { number, path, place: Place::default(), next_look: Instant::now(), noted: None }
    }

    fn look(
        &mut self,
        window: Duration,
        home: Option<&Home>,
        waker: &mut Waker,
        say: &mut dyn FnMut(&GatherLine),
    ) -> Landing {
        // Watched before it is looked at, so that no change falls in between.
        waker.watch_path(&self.path, self.number);
        let dispatch = home.and_then(|home| Dispatch::of(&self.path, home, self.number, waker));
        let (standing, stamp) = self.place.look(&self.path);
        let note = self.note(standing, dispatch.as_ref());
        if let Some(note) = note.filter(|note| self.noted.as_ref() != Some(note)) {
            say(&GatherLine::Note(note.clone()));
            self.noted = Some(note);
        }
        landing(standing, dispatch.map_or(Writer::Unknown, |dispatch| dispatch.writer(stamp)), window)
    }

    /// What the coordinator would not find out otherwise until time runs out.
    fn note(&self, standing: Standing, dispatch: Option<&Dispatch>) -> Option<String> {
        let path = self.path.display();
        if let Some(elsewhere) = dispatch.and_then(Dispatch::misplaced) {
            return Some(format!("the result could not be written to {path}; it is at {elsewhere}"));
        }
        match standing {
            Standing::Other(kind) => Some(format!("{path} is {kind}, not a result")),
            _ => None,
        }
    }
}

/// The newest dispatch of prun's that writes a result.
struct Dispatch {
    dispatcher: Dispatcher,
    settled: Option<record::Settled>,
}

impl Dispatch {
    /// Finds it by the result's path, and wakes `target` when it ends.
    fn of(result: &Path, home: &Home, target: usize, waker: &mut Waker) -> Option<Self> {
        let result = canonical_result(result);
        let mut state_dir = read_regular(&home.by_result(&result), record::ENTRY_LIMIT).ok()?;
        state_dir.pop_if(|last| *last == b'\n');
        let state_dir = PathBuf::from(std::ffi::OsStr::from_bytes(&state_dir));
        waker.watch_path(&StateDir::at(&state_dir).facts(), target);
        let (scheme, dispatcher) = record::dispatcher(&state_dir);
        if scheme != Scheme::Prun || canonical_result(&record::result_path(&state_dir)?) != result {
            return None;
        }
        if let Dispatcher::Alive(process) = &dispatcher {
            waker.watch_process(process, target);
        }
        Some(Self { settled: record::settled(&state_dir), dispatcher })
    }

    fn writer(&self, stamp: Option<Stamp>) -> Writer {
        record::writer(Scheme::Prun, &self.dispatcher, self.settled.as_ref(), stamp)
    }

    /// Where the result is, if it could not be written where it was asked for.
    fn misplaced(&self) -> Option<&str> {
        let result = self.settled.as_ref()?.facts.result.as_ref()?;
        result.misplaced.then_some(result.path.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &[&str]) -> Result<GatherArgs, UsageError> {
        GatherArgs::parse(line.iter().map(OsString::from))
    }

    #[test]
    fn results_are_taken_as_they_are_given() {
        let args = parse(&["a", "-b", "a", "--", "--c"]).unwrap();
        assert_eq!(args.results, ["a", "-b", "a", "--c"].map(PathBuf::from));
        assert_eq!(parse(&[]), Err(UsageError::Nothing("RESULT")));
        assert_eq!(parse(&["--what"]), Err(UsageError::Unknown("--what".into())));
        assert!(parse(&["--all-runs"]).unwrap().runs.all);
    }

    #[test]
    fn the_contracts_variables_have_their_defaults() {
        let settings = GatherSettings::from_env(|_| None);
        assert_eq!(settings, GatherSettings { timeout: 3600, poll: 5, window: 10 });
    }

    #[test]
    fn lines_are_the_contracts() {
        let line = |line: GatherLine| String::from_utf8(line.to_bytes()).unwrap();
        assert_eq!(line(GatherLine::Start { count: 2, timeout: 9 }), "GATHER-START count=2 timeout=9s");
        assert_eq!(line(GatherLine::Done("/a b".into())), "DONE /a b");
        assert_eq!(line(GatherLine::Timeout(3)), "TIMEOUT remaining=3");
    }
}
