//! Carrying out what the core has decided, after it was recorded.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use prun_core::event::ProcessIdentity;
use prun_core::ids::{Attempt, ExecutorName, UnitId};
use prun_core::supervise::{Effect, Input, Observation};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, Signal, pidfd_open};

use super::watcher::{Seen, Watched};
use super::{Driver, Event};
use crate::process;
use crate::recover::{self, Found};
use crate::workshop::base_of;
use crate::workshop::repository::workspaces;

impl Driver {
    pub(super) fn carry_out(&mut self, effect: Effect) {
        match effect {
            // Both are the turn's own business.
            Effect::Record(_) | Effect::Answer { .. } => {}
            Effect::TakeSlots { executor, count } => self.take_slots(executor, count),
            Effect::GiveSlotsBack { executor, count } => {
                let slots = self.slots_in_hand.entry(executor).or_default();
                slots.truncate(slots.len().saturating_sub(count as usize));
            }
            Effect::Prepare { unit, attempt, executor, next } => {
                if let Some(slot) = self.slots_in_hand.get_mut(&executor).and_then(Vec::pop) {
                    self.slots.insert((unit.clone(), attempt), slot);
                }
                let order = self.workshop.order(self.core.run(), &unit, attempt, executor, next);
                self.in_pool(move |workshop| Event::Prepared(unit, attempt, workshop.prepare(&order)));
            }
            Effect::Spawn { unit, attempt } => {
                let result = self.spawn(&unit, attempt);
                self.send(Input::Spawned { unit, attempt, result });
            }
            Effect::Watch { unit, attempt, process } => self.watch(unit, attempt, &process),
            Effect::Terminate { process, kill } => {
                let signal = if kill { Signal::KILL } else { Signal::TERM };
                // One that is gone already is told of by its watch.
                let _ = process::signal_process(&process, signal);
            }
            Effect::Submit { unit, attempt, process } => {
                let dir = self.workshop.attempt_dir(&unit, attempt);
                if File::create(dir.submitted()).is_ok() {
                    let _ = process::signal_process(&process, Signal::USR1);
                }
            }
            Effect::Clean { unit, attempt } => self.in_pool(move |workshop| {
                let facts = recover::clean(workshop, &unit, attempt).map(Box::new);
                Event::Input(Box::new(Input::Cleaned { unit, attempt, facts }))
            }),
            Effect::Observe { unit, attempt } => self.in_pool(move |workshop| {
                let found = match recover::observe(workshop, &unit, attempt) {
                    Found::Settled(facts) => Observation::Settled(facts),
                    Found::Alive(process) => Observation::Alive(process),
                    Found::NeverStarted => Observation::NeverStarted,
                    Found::Dead(facts) => Observation::Dead(facts),
                };
                Event::Input(Box::new(Input::Observed { unit, attempt, found }))
            }),
            Effect::CheckRepository => {
                let workspaces = workspaces(self.core.run(), &self.workshop.run_dir);
                self.in_pool(move |workshop| {
                    let (touched, moved) = workshop.compare_repository(&workspaces);
                    Event::Input(Box::new(Input::RepositoryChecked { touched, moved }))
                });
            }
            Effect::VerifyBase => {
                let setup = self.core.run().setup.as_ref();
                let (base, repo) = (setup.and_then(base_of), setup.and_then(|setup| setup.repo.clone()));
                self.in_pool(move |workshop| {
                    let (tree, check) = workshop.verify_base(base, repo.as_deref());
                    Event::Input(Box::new(Input::BaseVerified { tree, check }))
                });
            }
            // A command of the same turn may have begun the run anew.
            Effect::Leave => self.left = self.core.run().ended.is_some(),
        }
    }

    /// Without its lock files an account is not shared: a run's own limit still holds.
    fn take_slots(&mut self, executor: ExecutorName, wanted: u32) {
        let taken = match self.workshop.take_slots(&executor, wanted) {
            Ok(slots) => {
                let taken = u32::try_from(slots.len()).unwrap_or(wanted);
                self.slots_in_hand.entry(executor.clone()).or_default().extend(slots);
                taken
            }
            Err(_) => wanted,
        };
        self.send(Input::SlotsTaken { executor, wanted, taken });
    }

    fn in_pool(&self, job: impl FnOnce(&crate::workshop::Workshop) -> Event + Send + 'static) {
        let (sender, workshop) = (self.sender.clone(), std::sync::Arc::clone(&self.workshop));
        self.pool.submit(move || {
            // The driver may have left meanwhile.
            let _ = sender.send(job(&workshop));
        });
    }

    fn send(&self, input: Input) {
        // The receiver is ours.
        let _ = self.sender.send(Event::Input(Box::new(input)));
    }

    /// Starts a dispatcher. Its stdin is the attempt's locked fence, its stdout the slot of its account: both locks live
    /// as long as it does.
    fn spawn(&mut self, unit: &UnitId, attempt: Attempt) -> Result<ProcessIdentity, String> {
        let key = (unit.clone(), attempt);
        let fence = self.fences.remove(&key).ok_or("its fence was not taken")?;
        let slot = self.slots.remove(&key).map_or_else(Stdio::null, |slot| Stdio::from(slot.into_file()));
        let dir = self.workshop.attempt_dir(unit, attempt);
        let log_path = dir.root().join("dispatcher.log");
        let log = File::create(&log_path).map_err(|error| format!("cannot create {}: {error}", log_path.display()))?;
        let program = own_program().map_err(|error| format!("cannot find prun's own program: {error}"))?;
        let mut child = Command::new(&program)
            .arg("__dispatch")
            .arg(dir.spec())
            .env("PRUN_HOME", self.workshop.home.root())
            .stdin(Stdio::from(fence))
            .stdout(slot)
            .stderr(log)
            .spawn()
            .map_err(|error| format!("cannot start {}: {error}", program.display()))?;
        let pid = child.id();
        // It is our child and not waited for yet, so the number is still its own.
        if let Some(process) = process::identity(pid) {
            self.children.insert(key, child);
            return Ok(process);
        }
        // One that cannot be told apart from others must not go on unwatched.
        let _ = child.kill().and_then(|()| child.wait());
        Err(format!("cannot read the identity of process {pid}"))
    }

    fn watch(&mut self, unit: UnitId, attempt: Attempt, process: &ProcessIdentity) {
        let dir = self.workshop.attempt_dir(&unit, attempt);
        match open_pidfd(process) {
            Ok(Some(pidfd)) => self.watcher.watch(Watched { unit, attempt, pidfd, dir }),
            Ok(None) => {
                let gone = self.exited(unit, attempt);
                self.send(gone);
            }
            // No descriptor is left for it: to be looked at again and again is slower, and as good.
            Err(_) => self.look_until_it_ends(unit, attempt, process.clone()),
        }
    }

    fn look_until_it_ends(&self, unit: UnitId, attempt: Attempt, process: ProcessIdentity) {
        let sender = self.sender.clone();
        std::thread::spawn(move || {
            while process::is_alive(&process) {
                pause();
            }
            // The driver may have left meanwhile.
            let _ = sender.send(Event::Seen(Seen::Exited(unit, attempt)));
        });
    }
}

/// A pidfd of just this process, or `None` where it is gone.
fn open_pidfd(process: &ProcessIdentity) -> std::io::Result<Option<std::os::fd::OwnedFd>> {
    let Some(pid) = i32::try_from(process.pid).ok().and_then(rustix::process::Pid::from_raw) else { return Ok(None) };
    match pidfd_open(pid, PidfdFlags::empty()) {
        // Checked after the opening: the number cannot be given to another process while we hold it.
        Ok(pidfd) => Ok((process::identity(process.pid).as_ref() == Some(process)).then_some(pidfd)),
        Err(Errno::SRCH) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[expect(clippy::disallowed_methods, reason = "without a descriptor there is nothing to wait for")]
fn pause() {
    std::thread::sleep(std::time::Duration::from_millis(500));
}

/// The file of the program that runs; `/proc` also finds one that was replaced meanwhile.
///
/// # Errors
/// The system does not tell.
pub fn own_program() -> std::io::Result<PathBuf> {
    match std::env::current_exe() {
        Ok(path) if path.exists() => Ok(path),
        _ => Ok(PathBuf::from("/proc/self/exe")),
    }
}
