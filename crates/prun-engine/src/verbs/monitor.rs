//! `prun monitor`: watches state dirs and tells of the first event that calls for action. It never
//! signals a process or writes a file.

mod unit;

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use self::unit::Unit;
use super::arguments::{Argument, Arguments, UsageError, unknown};
use super::gather::poll_interval;
use super::landing::{Landing, Standing, Writer, landing};
use super::of_runs::OfRuns;
use super::record;
use super::waker::Waker;
use crate::settings::whole_number;

/// How it is used.
pub const USAGE: &str = "usage: prun monitor STATE-DIR... [--run ID]... [--all-runs]";

/// A wait that is longer than asked by this much was a stop of everything.
const SLEEP: Duration = Duration::from_secs(2);

/// What the command line says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MonitorArgs {
    /// The state dirs, in order.
    pub state_dirs: Vec<PathBuf>,
    /// Runs whose last attempts are watched as well.
    pub runs: OfRuns,
}

/// What the environment says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MonitorSettings {
    /// Seconds without growth of the tail after which a unit is stalled; 0 = never.
    pub threshold: u64,
    /// The longest time between two looks, in seconds.
    pub poll: u64,
    /// Seconds after which to give up.
    pub timeout: u64,
    /// For how many seconds a result of an unknown writer has to be quiet.
    pub window: u64,
}

/// How a unit is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It left a result.
    Done,
    /// Its result was made up by its dispatcher.
    Fallback,
    /// Its dispatcher is gone and there is no result.
    DispatchDead,
    /// Its tail has not grown for these seconds.
    Stalled(u64),
    /// It has said something, and not too long ago.
    Growing,
    /// Its result is there and not yet known to be whole.
    Finishing,
    /// It has said nothing yet.
    Pending,
}

/// What ends a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MonitorEvent {
    /// Every unit left a result.
    AllDone,
    /// A unit failed.
    Fail,
    /// A unit is stalled.
    Stall,
    /// Time ran out.
    Timeout,
}

/// What is said on the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MonitorLine {
    /// The first line.
    Start {
        /// How many units are watched.
        units: usize,
        /// The stall threshold in seconds.
        threshold: u64,
        /// For how many seconds at most.
        timeout: u64,
    },
    /// What ended the watch.
    Event(MonitorEvent),
    /// One unit: the name of its state dir, and how it is doing.
    Unit(String, Status),
    /// Something that no line of the contract tells, for stderr.
    Note(String),
}

/// What was seen of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Observed {
    result: Standing,
    /// The result's first line carries the FALLBACK header.
    is_fallback: bool,
    writer: Writer,
    /// It is certain that the dispatcher is gone.
    dispatcher_gone: bool,
    /// The dispatcher settled, and what it made up for the result could not be written to its place.
    misplaced_fallback: bool,
    tail: Tail,
}

/// What was seen of a tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tail {
    is_empty: bool,
    /// For how long it has not grown.
    quiet: Duration,
}

impl MonitorArgs {
    /// Reads the arguments after the verb.
    ///
    /// # Errors
    /// An unknown option, or nothing to watch.
    pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, UsageError> {
        let mut args = Self::default();
        let mut line = Arguments::new(arguments.into_iter());
        while let Some(argument) = line.next()? {
            match argument {
                Argument::Value(path) => args.state_dirs.push(path.into()),
                Argument::Option(name) if args.runs.take(&name, &mut line)? => {}
                Argument::Option(name) => return Err(unknown(name.as_ref())),
            }
        }
        if args.state_dirs.is_empty() && args.runs.is_empty() {
            return Err(UsageError::Nothing("STATE-DIR"));
        }
        Ok(args)
    }
}

impl MonitorSettings {
    /// What the contract's variables ask for.
    #[must_use]
    pub fn from_env(var: impl Fn(&str) -> Option<OsString>) -> Self {
        Self {
            threshold: whole_number(&var, "PRUN_STALL_THRESHOLD", 600),
            poll: whole_number(&var, "PRUN_MONITOR_POLL", 15),
            timeout: whole_number(&var, "PRUN_MONITOR_TIMEOUT", 3600),
            window: whole_number(&var, "PRUN_MONITOR_STABLE_WINDOW", 10),
        }
    }
}

impl MonitorEvent {
    /// The verb's exit code.
    #[must_use]
    pub fn exit_code(self) -> i32 {
        match self {
            Self::AllDone => 0,
            Self::Fail | Self::Stall => 3,
            Self::Timeout => 2,
        }
    }

    /// What calls for action in these, if anything does. A failure comes before a stall: the one is over,
    /// the other may yet move.
    fn of(statuses: &[Status]) -> Option<Self> {
        let any = |wanted: fn(&Status) -> bool| statuses.iter().any(wanted);
        if any(|status| matches!(status, Status::Fallback | Status::DispatchDead)) {
            Some(Self::Fail)
        } else if any(|status| matches!(status, Status::Stalled(_))) {
            Some(Self::Stall)
        } else if statuses.iter().all(|status| *status == Status::Done) {
            Some(Self::AllDone)
        } else {
            None
        }
    }
}

impl fmt::Display for MonitorEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AllDone => "all-done",
            Self::Fail => "fail",
            Self::Stall => "stall",
            Self::Timeout => "timeout",
        })
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str("done"),
            Self::Fallback => f.write_str("failed(fallback)"),
            Self::DispatchDead => f.write_str("failed(dispatch-dead)"),
            Self::Stalled(seconds) => write!(f, "stalled({seconds}s)"),
            Self::Growing => f.write_str("growing"),
            Self::Finishing => f.write_str("finishing"),
            Self::Pending => f.write_str("pending"),
        }
    }
}

impl fmt::Display for MonitorLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start { units, threshold, timeout } => {
                write!(f, "MONITOR-START units={units} stall-threshold={threshold}s timeout={timeout}s")
            }
            Self::Event(event) => write!(f, "MONITOR-EVENT {event}"),
            Self::Unit(name, status) => write!(f, "UNIT {name} {status}"),
            Self::Note(text) => write!(f, "monitor: {text}"),
        }
    }
}

/// The contract's rule: how a unit is doing, and when time alone can change that.
fn classify(seen: &Observed, window: Duration, threshold: Option<Duration>) -> (Status, Option<Duration>) {
    match landing(seen.result, seen.writer, window) {
        Landing::Landed if seen.is_fallback => return (Status::Fallback, None),
        Landing::Landed => return (Status::Done, None),
        Landing::NotYet { again_in } if matches!(seen.result, Standing::Text(_)) => {
            return (Status::Finishing, again_in);
        }
        Landing::NotYet { .. } => {}
    }
    if seen.misplaced_fallback {
        return (Status::Fallback, None);
    }
    if seen.dispatcher_gone {
        return (Status::DispatchDead, None);
    }
    let left = threshold.map(|threshold| threshold.saturating_sub(seen.tail.quiet));
    match left {
        Some(Duration::ZERO) => (Status::Stalled(seen.tail.quiet.as_secs()), None),
        again_in if seen.tail.is_empty => (Status::Pending, again_in),
        again_in => (Status::Growing, again_in),
    }
}

/// The state dirs among `dirs` that are none, for a message.
#[must_use]
pub fn not_state_dirs(dirs: &[PathBuf]) -> Vec<&PathBuf> {
    dirs.iter().filter(|dir| !record::is_state_dir(dir)).collect()
}

/// Watches `state_dirs` until something calls for action, and says what it was.
pub fn monitor(state_dirs: &[PathBuf], settings: &MonitorSettings, say: &mut dyn FnMut(&MonitorLine)) -> MonitorEvent {
    let (threshold, timeout) = (settings.threshold, settings.timeout);
    say(&MonitorLine::Start { units: state_dirs.len(), threshold, timeout });
    let mut watch = Watch::new(state_dirs, settings);
    let event = watch.run(say);
    say(&MonitorLine::Event(event));
    for unit in &watch.units {
        say(&MonitorLine::Unit(record::name(unit.state_dir()), unit.status));
    }
    event
}

/// A watch under way.
struct Watch {
    units: Vec<Unit>,
    waker: Waker,
    poll: Duration,
    window: Duration,
    threshold: Option<Duration>,
    deadline: Option<Instant>,
}

impl Watch {
    fn new(state_dirs: &[PathBuf], settings: &MonitorSettings) -> Self {
        let now = Instant::now();
        Self {
            units: state_dirs.iter().enumerate().map(|(number, dir)| Unit::new(number, dir)).collect(),
            waker: Waker::new(),
            poll: poll_interval(settings.poll),
            window: Duration::from_secs(settings.window),
            threshold: (settings.threshold > 0).then(|| Duration::from_secs(settings.threshold)),
            deadline: now.checked_add(Duration::from_secs(settings.timeout)),
        }
    }

    fn run(&mut self, say: &mut dyn FnMut(&MonitorLine)) -> MonitorEvent {
        loop {
            self.look(Instant::now(), say);
            if self.event().is_some() {
                // Of the others only what was seen last is known; what is said is to be of now.
                self.look_at_all(say);
                if let Some(event) = self.event() {
                    return event;
                }
            }
            if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                self.look_at_all(say);
                return self.event().unwrap_or(MonitorEvent::Timeout);
            }
            self.wait();
        }
    }

    fn event(&self) -> Option<MonitorEvent> {
        let statuses: Vec<Status> = self.units.iter().map(|unit| unit.status).collect();
        MonitorEvent::of(&statuses)
    }

    fn look_at_all(&mut self, say: &mut dyn FnMut(&MonitorLine)) {
        let now = Instant::now();
        self.units.iter_mut().for_each(|unit| unit.next_look = now);
        self.look(now, say);
    }

    /// Looks at the units whose time has come.
    fn look(&mut self, now: Instant, say: &mut dyn FnMut(&MonitorLine)) {
        for unit in self.units.iter_mut().filter(|unit| unit.next_look <= now) {
            let seen = unit.observe(&mut self.waker);
            let (status, again_in) = classify(&seen, self.window, self.threshold);
            unit.status = status;
            unit.next_look = now + again_in.unwrap_or(self.poll).min(self.poll);
            if let Some(note) = unit.note(&seen) {
                say(&MonitorLine::Note(note));
            }
        }
    }

    /// Nobody could move for this long: it is no unit's silence, and not our time.
    fn slept(&mut self, time: Duration) {
        self.units.iter_mut().for_each(|unit| unit.slept(time));
        self.deadline = self.deadline.and_then(|deadline| deadline.checked_add(time));
    }

    fn wait(&mut self) {
        let began = Instant::now();
        let next = self.units.iter().map(|unit| unit.next_look).chain(self.deadline).min().unwrap_or(began);
        let pause = next.saturating_duration_since(began);
        let woken = self.waker.wait(pause);
        let now = Instant::now();
        let overslept = now.duration_since(began).saturating_sub(pause);
        if overslept > SLEEP {
            self.slept(overslept);
        }
        for (number, unit) in self.units.iter_mut().enumerate() {
            if woken.all || woken.targets.contains(&number) {
                unit.next_look = now;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::landing::Quiet;
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn text(seconds: u64) -> Standing {
        Standing::Text(Quiet { by_its_time: Some(SECOND * u32::try_from(seconds).unwrap()), watched: Duration::ZERO })
    }

    fn running() -> Observed {
        Observed {
            result: Standing::Nothing,
            is_fallback: false,
            writer: Writer::Unknown,
            dispatcher_gone: false,
            misplaced_fallback: false,
            tail: Tail { is_empty: false, quiet: SECOND * 3 },
        }
    }

    #[track_caller]
    fn check(seen: &Observed, status: Status, again_in: Option<u64>) {
        let again_in = again_in.map(Duration::from_secs);
        assert_eq!(classify(seen, SECOND * 10, Some(SECOND * 60)), (status, again_in), "{seen:?}");
    }

    #[test]
    fn a_unit_without_a_result_is_told_by_its_tail() {
        check(&running(), Status::Growing, Some(57));
        let quiet = |seconds, is_empty| Observed { tail: Tail { is_empty, quiet: SECOND * seconds }, ..running() };
        check(&quiet(0, true), Status::Pending, Some(60));
        check(&quiet(61, false), Status::Stalled(61), None);
        check(&quiet(60, true), Status::Stalled(60), None);
        assert_eq!(classify(&quiet(9999, false), SECOND, None), (Status::Growing, None), "a threshold of 0");
        for result in [Standing::Blank, Standing::Other("a directory")] {
            check(&Observed { result, ..running() }, Status::Growing, Some(57));
        }
    }

    #[test]
    fn a_dead_dispatcher_without_a_result_fails_at_once() {
        check(&Observed { dispatcher_gone: true, ..running() }, Status::DispatchDead, None);
        let blank = Observed { result: Standing::Blank, dispatcher_gone: true, ..running() };
        check(&blank, Status::DispatchDead, None);
    }

    #[test]
    fn a_result_is_never_stalled_or_dead_but_finishing_until_it_is_quiet() {
        let fresh = Observed {
            result: text(4),
            dispatcher_gone: true,
            tail: Tail { is_empty: false, quiet: SECOND * 999 },
            ..running()
        };
        check(&fresh, Status::Finishing, Some(6));
        check(&Observed { result: text(10), ..fresh }, Status::Done, None);
        check(&Observed { writer: Writer::Settled, ..fresh }, Status::Done, None);
        check(&Observed { result: text(999), writer: Writer::Living, ..fresh }, Status::Finishing, None);
    }

    #[test]
    fn a_made_up_result_is_a_failure_once_it_is_whole() {
        let made_up = Observed { result: text(1), is_fallback: true, ..running() };
        check(&made_up, Status::Finishing, Some(9));
        check(&Observed { writer: Writer::Settled, ..made_up }, Status::Fallback, None);
        check(&Observed { misplaced_fallback: true, dispatcher_gone: true, ..running() }, Status::Fallback, None);
    }

    #[test]
    fn the_worst_status_is_the_event() {
        use MonitorEvent as E;
        use Status::{DispatchDead, Done, Fallback, Finishing, Growing, Pending, Stalled};
        for (statuses, event) in [
            (&[Done, Done][..], Some(E::AllDone)),
            (&[Done, Growing], None),
            (&[Finishing, Pending], None),
            (&[Done, Stalled(7), Growing], Some(E::Stall)),
            (&[Stalled(7), Fallback], Some(E::Fail)),
            (&[Growing, DispatchDead], Some(E::Fail)),
        ] {
            assert_eq!(MonitorEvent::of(statuses), event, "{statuses:?}");
        }
        assert_eq!([E::AllDone, E::Fail, E::Stall, E::Timeout].map(E::exit_code), [0, 3, 3, 2]);
    }

    #[test]
    fn lines_are_the_contracts() {
        let start = MonitorLine::Start { units: 2, threshold: 600, timeout: 3600 };
        assert_eq!(start.to_string(), "MONITOR-START units=2 stall-threshold=600s timeout=3600s");
        assert_eq!(MonitorLine::Event(MonitorEvent::AllDone).to_string(), "MONITOR-EVENT all-done");
        assert_eq!(
            MonitorLine::Unit("prun-task-x".into(), Status::Stalled(12)).to_string(),
            "UNIT prun-task-x stalled(12s)"
        );
        let settings = MonitorSettings::from_env(|_| None);
        assert_eq!(settings, MonitorSettings { threshold: 600, poll: 15, timeout: 3600, window: 10 });
    }

    #[test]
    fn the_command_line_names_state_dirs() {
        let parse = |line: &[&str]| MonitorArgs::parse(line.iter().map(OsString::from));
        assert_eq!(parse(&["a", "b", "a"]).unwrap().state_dirs.len(), 3);
        assert_eq!(parse(&["--run", "k3f9"]).unwrap().runs.named, ["k3f9"]);
        assert_eq!(parse(&[]), Err(UsageError::Nothing("STATE-DIR")));
    }
}
