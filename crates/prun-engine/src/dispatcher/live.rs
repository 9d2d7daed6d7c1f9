//! The worker's life: set-up, start, watch, and the end of its whole tree.

use std::io::{self, Read};
use std::time::{Duration, Instant};

use prun_core::event::ProcessIdentity;
use prun_core::outcome::{CheckFacts, Exit, StopReason, SweepFacts};

use super::attempt::Attempt;
use super::check::run_check;
use super::diagnose;
use super::output::Outputs;
use super::reap::Reaper;
use super::session::wait_for_submission;
use super::spawn::{Launch, StartError, Streams, open_append, open_null, reopen};
use super::understand::Ended;
use super::watch::{Watch, Watched};
use crate::contain::GroupUsage;
use crate::executor::command::{ARGUMENT_LIMIT, PROMPT, PROMPT_FILE};
use crate::executor::stream::beats::BeatReader;
use crate::executor::stream::{StreamKind, StreamReader, StreamSummary};
use crate::process::{identity, own_identity};
use crate::spec::{PromptChannel, WorkerSpec};

/// The grace of a worker whose output outgrew the limit.
const FLOOD_GRACE: Duration = Duration::from_millis(200);

/// How the worker lived and ended.
pub(super) struct Lived {
    pub(super) exit: Exit,
    pub(super) watched: Watched,
    pub(super) stream: StreamSummary,
    pub(super) sweep: SweepFacts,
    pub(super) setup: Option<CheckFacts>,
    pub(super) used: Used,
    pub(super) worker_millis: u64,
}

/// What the worker and all that it started used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Used {
    pub(super) peak_rss_kib: Option<u64>,
    pub(super) cpu_millis: Option<u64>,
    pub(super) peak_memory_kib: Option<u64>,
    pub(super) oom_killed: bool,
}

impl Used {
    /// The group has counted the set-up too. It counts what nobody waited for, so its word on CPU time goes
    /// before the sum over collected children.
    fn of(reaper: &Reaper, before: GroupUsage, after: GroupUsage) -> Self {
        let in_group = after.cpu_millis.map(|after| after.saturating_sub(before.cpu_millis.unwrap_or(0)));
        let collected = reaper.used();
        Self {
            peak_rss_kib: collected.map(|(peak, _)| peak),
            cpu_millis: in_group.or(collected.map(|(_, cpu)| cpu)),
            peak_memory_kib: after.peak_memory_kib,
            oom_killed: after.oom_kills > before.oom_kills,
        }
    }
}

impl Attempt {
    /// Runs the set-up and the worker until nothing of them is left.
    pub(super) fn live(&mut self) -> Lived {
        let mut lived = Lived {
            exit: Exit::Unobserved,
            watched: Watched::default(),
            stream: StreamReader::new(StreamKind::Plain).summary().clone(),
            sweep: SweepFacts::default(),
            setup: None,
            used: Used::default(),
            worker_millis: 0,
        };
        if let Some(setup) = self.spec.setup.clone() {
            let checked = run_check(self, "setup", &setup);
            lived.watched.stop = checked.interrupted.then_some(StopReason::Signal);
            lived.setup = Some(checked.facts);
            if lived.setup.as_ref().is_some_and(|setup| !setup.ok) {
                return lived;
            }
        }
        let began = Instant::now();
        match self.spec.worker.clone() {
            Some(worker) => self.live_with(&worker, &mut lived),
            None => lived.watched.stop = wait_for_submission(self),
        }
        lived.worker_millis = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        lived
    }

    fn live_with(&mut self, worker: &WorkerSpec, lived: &mut Lived) {
        lived.stream = StreamReader::new(worker.stream).summary().clone();
        // A group in which nothing has run yet has used nothing.
        let before = if lived.setup.is_some() { self.containment.usage() } else { GroupUsage::default() };
        let (leader, mut outputs) = match self.start(worker) {
            Ok(started) => started,
            Err(error) => {
                diagnose(&error.message);
                lived.exit = Exit::NotStarted { code: error.code, error: error.message };
                return;
            }
        };
        let mut reaper = Reaper::of(leader);
        // It cannot have been collected yet, so its number is its own.
        let process = identity(leader).unwrap_or_else(|| ProcessIdentity { pid: leader, ..own_identity() });
        self.write_identity(process.clone());
        let watch = Watch {
            leader,
            limits: &self.spec.limits,
            resumes: self.spec.resumes.as_ref(),
            workspace: &self.cwd,
            result: &self.result,
            notes: &self.notes,
            outputs: &mut outputs,
            reaper: &mut reaper,
            signals: &mut self.signals,
        };
        lived.watched = watch.run();
        if lived.watched.stop.is_some() {
            let grace = grace(lived.watched.stop, self.spec.limits.grace_millis);
            reaper.end_leader(&process, grace, &mut self.signals);
        }
        lived.sweep = reaper.sweep(&self.containment);
        outputs.look();
        lived.exit = reaper.exit().cloned().unwrap_or(Exit::Unobserved);
        let ended = Ended { exit: &lived.exit, stopped: lived.watched.stop, tail: &self.tail };
        lived.stream = with_reset_time(ended.understand(worker, outputs.summary()));
        lived.used = Used::of(&reaper, before, self.containment.usage());
    }

    fn start(&mut self, worker: &WorkerSpec) -> Result<(u32, Outputs), StartError> {
        let streams = || -> io::Result<Streams> {
            let tail = reopen(&self.tail)?;
            let stdout = match worker.stream {
                StreamKind::Plain => tail.try_clone()?,
                _ => open_append(&self.state.events())?,
            };
            // The prompt was opened once, so that the file that was checked is the one that is read.
            let stdin = match worker.prompt {
                PromptChannel::Stdin => self.prompt.try_clone().or_else(|_| open_null())?,
                PromptChannel::Argument | PromptChannel::File => open_null()?,
            };
            let stderr = match BeatReader::new(worker.stream) {
                Some(_) => open_append(&self.state.client_log())?,
                None => tail,
            };
            Ok(Streams { stdin, stdout, stderr })
        };
        let opened =
            streams().and_then(|streams| Ok((streams, Outputs::open(&self.state, &self.tail, worker.stream)?)));
        let (streams, outputs) =
            opened.map_err(|error| StartError { code: 126, message: format!("cannot start the worker: {error}") })?;
        let argv = self.argv(worker).map_err(|error| StartError {
            code: 126,
            message: format!("cannot start the worker: the prompt cannot be an argument: {error}"),
        })?;
        let (group, guard) = (self.containment.group(), self.spec.guard.as_ref());
        let started = Launch { argv: &argv, cwd: &self.cwd, env: &self.env, streams, group, guard }.start()?;
        self.containment.confirm(started.pid, started.is_born_in_group);
        Ok((started.pid, outputs))
    }

    /// The command line with all that only this attempt knows.
    fn argv(&self, worker: &WorkerSpec) -> io::Result<Vec<String>> {
        let mut argv = worker.argv.clone();
        let mut put = |mark: &str, value: &str| {
            argv.iter_mut().for_each(|argument| *argument = argument.replace(mark, value));
        };
        if let Some(placeholder) = &worker.last_message_placeholder {
            put(placeholder, &self.state.last_message().to_string_lossy());
        }
        match worker.prompt {
            PromptChannel::Stdin => {}
            PromptChannel::File => put(PROMPT_FILE, &self.spec.prompt_file.to_string_lossy()),
            PromptChannel::Argument => put(PROMPT, &self.prompt_text()?),
        }
        Ok(argv)
    }

    /// The prompt as an argument can hold it.
    fn prompt_text(&self) -> io::Result<String> {
        let mut text = String::new();
        (&self.prompt).take(ARGUMENT_LIMIT + 1).read_to_string(&mut text)?;
        if text.len() as u64 > ARGUMENT_LIMIT {
            return Err(io::ErrorKind::ArgumentListTooLong.into());
        }
        Ok(text)
    }
}

/// What floods its output goes on with it while it is given time.
fn grace(stop: Option<StopReason>, millis: u64) -> Duration {
    let grace = Duration::from_millis(millis);
    if stop == Some(StopReason::OutputLimit) { grace.min(FLOOD_GRACE) } else { grace }
}

/// Clients tell when a limit is lifted in local time. Only an error makes the time zone worth loading.
pub(super) fn with_reset_time(stream: StreamSummary) -> StreamSummary {
    if stream.error.is_some() { stream.with_reset_time(&jiff::ZonedDateTime::now()) } else { stream }
}
