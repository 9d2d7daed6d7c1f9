//! One loop turn of a supervisor: inputs → core → record → effects → acknowledge.
//!
//! The loop owns the ledger's writing end and the core's [`Supervisor`]. Everything that takes long is done
//! by the [`pool`]; exits and notes come from the [`watcher`], commands from [`crate::control`]. All of them
//! send [`Event`]s up one channel.

mod effects;
pub use effects::own_program;
mod pool;
mod watcher;

use std::collections::HashMap;
use std::path::Path;
use std::process::Child;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use prun_core::digest::is_actionable;
use prun_core::event::Event as Recorded;
use prun_core::ids::{Attempt, ExecutorName, Seq, UnitId};
use prun_core::run::{ApplyError, RunState};
use prun_core::supervise::{Command, Effect, Input, Reply, Supervisor};

use crate::clock::Clock;
use crate::control::{Request, Server};
use crate::files::FileError;
use crate::hooks::{self, Awake, Caller, Hook, Told, Wishes};
use crate::ledger::{LedgerError, Reader, RunLock, Writer};
use crate::pressure::{self, Gauge};
use crate::process::own_identity;
use crate::slots::Slot;
use crate::workshop::{self, Workshop};
use pool::Pool;
use watcher::{Seen, Watcher};

/// Inputs that one turn takes at most: one transaction, one sync.
const TURN_LIMIT: usize = 256;

/// Why a supervisor could not begin or go on.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// Another one drives the run.
    #[error("another supervisor drives the run {0}")]
    Driven(String),
    /// The ledger cannot be read or written.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The ledger's events do not fit together.
    #[error("the ledger of the run {run} is damaged: {error}")]
    Damaged {
        /// The run.
        run: String,
        /// Where, and how.
        error: ApplyError,
    },
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// The plan or the store of the run cannot be read.
    #[error(transparent)]
    Workshop(#[from] workshop::WorkshopError),
    /// The kernel refused a thread or a descriptor.
    #[error("cannot set up the supervisor: {0}")]
    System(#[from] std::io::Error),
}

/// What comes up the channel.
enum Event {
    /// For the core.
    Input(Box<Input>),
    /// A workspace is ready, with the attempt's fence.
    Prepared(UnitId, Attempt, Result<workshop::Prepared, String>),
    /// A command, to be answered.
    Request(Request),
    /// From the watcher.
    Seen(Seen),
}

/// A supervisor at work.
pub struct Driver {
    // Dropped before the writer: once the lock is free a successor makes its own socket at the same path.
    _server: Server,
    core: Supervisor,
    writer: Writer,
    workshop: Arc<Workshop>,
    clock: Clock,
    pool: Pool,
    watcher: Watcher,
    events: Receiver<Event>,
    sender: Sender<Event>,
    /// Locked attempts that wait for their dispatcher.
    fences: HashMap<(UnitId, Attempt), std::fs::File>,
    /// Dispatchers that are our children and must be waited for.
    children: HashMap<(UnitId, Attempt), Child>,
    /// Slots that were taken for units that are about to start.
    slots_in_hand: HashMap<ExecutorName, Vec<Slot>>,
    /// Slots of attempts that wait for their dispatcher.
    slots: HashMap<(UnitId, Attempt), Slot>,
    gauge: Gauge,
    /// Commands that wait for their answer.
    askers: HashMap<u64, Sender<Reply>>,
    next_token: u64,
    left: bool,
    /// The user's command for what calls for attention.
    attention: Option<Arc<Caller>>,
}

/// Drives the run of `workshop` to its end. `resume`: units that an earlier stop ended go on. `ready` is
/// called once commands can be taken and the beginning is recorded, `trouble` before a run is left that is not over.
///
/// # Errors
/// The run is driven already, its ledger is damaged, or the ledger cannot be written any more; dispatchers
/// that run then go on and settle into their own directories.
pub fn drive(
    workshop: Workshop,
    resume: bool,
    ready: impl FnOnce(),
    trouble: impl FnOnce(&DriverError),
) -> Result<(), DriverError> {
    let run = &workshop.run_dir;
    let lock = RunLock::try_take(run)?.ok_or_else(|| DriverError::Driven(workshop.run.to_string()))?;
    let state = read_state(&workshop)?;
    let mut writer = Writer::open(run, lock, workshop.durability)?;
    let process = own_identity();
    writer.lock_mut().sign(&process)?;
    let (sender, events) = channel();
    let commands = sender.clone();
    let server = Server::start(run, move |request| {
        // A closed channel drops the request, which answers it.
        let _ = commands.send(Event::Request(request));
    })?;
    let seen = sender.clone();
    let watcher = Watcher::start(move |what| {
        let _ = seen.send(Event::Seen(what));
    })?;
    let threads = std::thread::available_parallelism().map_or(2, std::num::NonZero::get).max(2);
    let resources = workshop.resources(&state);
    let wishes = Wishes::load(&workshop.run_dir);
    let attention = wishes.on_attention.map(|command| Caller::start(&workshop.run_dir, Hook::Attention, command));
    let attention = attention.transpose()?.map(Arc::new);
    // Until this function returns, the user's command at the end included.
    let _awake = if wishes.keep_awake { Awake::start(&workshop.run_dir) } else { None };
    let mut driver = Driver {
        core: Supervisor::new(state, resources),
        writer,
        workshop: Arc::new(workshop),
        clock: Clock::start(),
        pool: Pool::new(threads)?,
        watcher,
        events,
        sender,
        fences: HashMap::new(),
        children: HashMap::new(),
        slots_in_hand: HashMap::new(),
        slots: HashMap::new(),
        gauge: Gauge::new(Path::new("/proc/pressure"), std::env::var(pressure::VARIABLE).ok().as_deref()),
        askers: HashMap::new(),
        next_token: 0,
        left: false,
        attention: attention.clone(),
        _server: server,
    };
    driver.stop_on_signals()?;
    let version = env!("CARGO_PKG_VERSION").to_owned();
    driver.turn(vec![Event::Input(Box::new(Input::Started { process, version, resume }))])?;
    // Only now: who waits for the word would otherwise still read an earlier end of the run in the ledger.
    ready();
    let workshop = Arc::clone(&driver.workshop);
    let ended = driver.run();
    // Said while the lock is still held: who finds it free looks for the reason.
    if let Err(error) = &ended {
        trouble(error);
    }
    drop(driver);
    // Its threads end with this process; what they started would not.
    workshop.end_base_check();
    // The run is free from here on: a command of the user's may land it, or start it again.
    match &ended {
        Ok(run) => {
            if let Some(command) = &wishes.on_done {
                hooks::run_hook(&workshop.run_dir, Hook::Done, command, &Told::of(&workshop.run, run, false));
            }
        }
        Err(error) => {
            if let Some(caller) = &attention {
                caller.tell(Told::of_trouble(&workshop.run, &error.to_string()));
            }
        }
    }
    ended.map(drop)
}

/// The state that the ledger of a run tells.
///
/// # Errors
/// The ledger cannot be read, or is damaged.
pub fn read_state(workshop: &Workshop) -> Result<RunState, DriverError> {
    let events = Reader::open(&workshop.run_dir)?.after(Seq(0))?;
    RunState::replay(&events).map_err(|error| DriverError::Damaged { run: workshop.run.to_string(), error })
}

/// Carries out a command on a run that no supervisor drives, as the holder of its lock.
///
/// # Errors
/// Somebody drives it meanwhile, or the ledger cannot be read or written.
pub fn command_offline(workshop: &Workshop, command: Command) -> Result<Reply, DriverError> {
    let run = &workshop.run_dir;
    let lock = RunLock::try_take(run)?.ok_or_else(|| DriverError::Driven(workshop.run.to_string()))?;
    let state = read_state(workshop)?;
    let mut writer = Writer::open(run, lock, workshop.durability)?;
    // Without resources nothing starts: that is left to the next supervisor.
    let mut core = Supervisor::new(state, prun_core::schedule::Resources::default());
    let effects = core.handle(Input::Asked { token: 0, command }, Clock::start().now());
    let mut recorded = Vec::new();
    let mut answer = None;
    for effect in effects {
        match effect {
            Effect::Record(event) => recorded.push(event),
            Effect::Answer { reply, .. } => answer = Some(reply),
            _ => {}
        }
    }
    writer.append(&recorded)?;
    Ok(answer.expect("every command is answered in its own turn"))
}

impl Driver {
    fn run(&mut self) -> Result<RunState, DriverError> {
        while !self.left {
            let first = match self.core.next_wake() {
                None => self.events.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(at) => {
                    let wait = at.saturating_sub(self.clock.now().mono);
                    self.events.recv_timeout(Duration::from_millis(wait))
                }
            };
            let mut batch = match first {
                Ok(event) => vec![event],
                Err(RecvTimeoutError::Timeout) => vec![Event::Input(Box::new(Input::Tick))],
                // We hold a sender ourselves.
                Err(RecvTimeoutError::Disconnected) => break,
            };
            batch.extend(self.events.try_iter().take(TURN_LIMIT));
            self.turn(batch)?;
        }
        Ok(self.core.run().clone())
    }

    /// Decides on all of `batch`, records, and only then carries out.
    fn turn(&mut self, batch: Vec<Event>) -> Result<(), DriverError> {
        let mut effects = Vec::new();
        if let Some(pressed) = self.gauge.look(self.clock.now().mono) {
            effects.extend(self.core.handle(Input::Pressed(pressed), self.clock.now()));
        }
        for event in batch {
            if let Some(input) = self.input(event) {
                effects.extend(self.core.handle(input, self.clock.now()));
            }
        }
        let mut recorded: Vec<Recorded> = Vec::new();
        let mut answers = Vec::new();
        let mut acts = Vec::new();
        for effect in effects {
            match effect {
                Effect::Record(event) => recorded.push(event),
                Effect::Answer { token, reply } => answers.push((token, reply)),
                act => acts.push(act),
            }
        }
        self.writer.append(&recorded)?;
        self.call_attention(&recorded);
        acts.into_iter().for_each(|act| self.carry_out(act));
        self.drop_unused_fences();
        for (token, reply) in answers {
            if let Some(asker) = self.askers.remove(&token) {
                // Who asked may be gone; the command took effect all the same.
                let _ = asker.send(reply);
            }
        }
        Ok(())
    }

    /// Has the user's command run at what `wait` wakes for; the end of the run has a command of its own.
    fn call_attention(&self, recorded: &[Recorded]) {
        let Some(caller) = &self.attention else { return };
        let run = self.core.run();
        let calls = |event: &Recorded| is_actionable(event, run) && run.ended.is_none();
        if recorded.iter().any(calls) {
            caller.tell(Told::of(&self.workshop.run, run, true));
        }
    }

    /// An attempt that was prepared and may not start any more gives back its fence and its workspace.
    fn drop_unused_fences(&mut self) {
        let core = &self.core;
        let is_wanted = |unit: &UnitId, attempt: Attempt| {
            core.run().unit(unit).is_some_and(|unit| unit.attempt() == attempt && unit.is_active())
        };
        let unused = self.fences.extract_if(|(unit, attempt), _| !is_wanted(unit, *attempt));
        for ((unit, attempt), fence) in unused.collect::<Vec<_>>() {
            self.slots.remove(&(unit.clone(), attempt));
            workshop::remove_workspace(&self.workshop.attempt_dir(&unit, attempt));
            drop(fence);
        }
    }

    fn input(&mut self, event: Event) -> Option<Input> {
        match event {
            Event::Input(input) => Some(*input),
            Event::Request(Request { command, answer }) => {
                self.next_token += 1;
                self.askers.insert(self.next_token, answer);
                Some(Input::Asked { token: self.next_token, command })
            }
            Event::Prepared(unit, attempt, result) => {
                let result = result.map(|prepared| {
                    self.fences.insert((unit.clone(), attempt), prepared.fence);
                    prepared.millis
                });
                Some(Input::Prepared { unit, attempt, result })
            }
            Event::Seen(Seen::Noted(unit, attempt, note)) => Some(Input::Noted { unit, attempt, note }),
            Event::Seen(Seen::Exited(unit, attempt)) => Some(self.exited(unit, attempt)),
        }
    }

    fn exited(&mut self, unit: UnitId, attempt: Attempt) -> Input {
        if let Some(mut child) = self.children.remove(&(unit.clone(), attempt)) {
            // It has exited, so this returns at once; its facts say how its worker ended.
            let _ = child.wait();
        }
        let facts = self.workshop.facts(&unit, attempt).map(Box::new);
        Input::DispatcherExited { unit, attempt, facts }
    }

    /// INT and TERM stop the run as a command would; a second one leaves no grace. HUP says nothing to us.
    fn stop_on_signals(&self) -> std::io::Result<()> {
        use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
        let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        let sender = self.sender.clone();
        let listen = move || {
            let mut now = false;
            for signal in &mut signals {
                if signal != SIGHUP {
                    let (answer, _) = channel();
                    let request = Request { command: Command::Stop { unit: None, now }, answer };
                    let _ = sender.send(Event::Request(request));
                    now = true;
                }
            }
        };
        std::thread::Builder::new().name("signals".into()).spawn(listen).map(drop)
    }
}
