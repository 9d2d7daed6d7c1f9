//! A viewer of a run: follows its ledger, shows it as a block of lines on a terminal, as plain lines
//! elsewhere. It may die at any time; the run does not notice.

mod keys;
mod tails;

use std::sync::mpsc::{Receiver, channel};

use prun_core::digest::header;
use prun_core::event::Event;
use prun_core::ids::{RunId, Seq};
use prun_core::run::RunState;
use prun_core::supervise::Command;
use prun_core::view::RunView;
use prun_engine::clock::wall_now;
use prun_engine::driver::DriverError;
use prun_engine::home::RunDir;
use prun_engine::ledger::Reader;
use prun_engine::{control, runs};

use crate::context::Context;
use crate::error::CliResult;
use crate::interrupt;
use crate::pace::Pace;
use crate::print::{event_line, fit, unit_line};
use crate::ui::Ui;
use keys::Keys;
use tails::Tails;

/// What Ctrl-C does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnInterrupt {
    /// Stops the run; a second one at once; a third one leaves.
    StopRun,
    /// Leaves; the run goes on.
    Leave,
}

/// How a viewer came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ViewEnd {
    /// The run has ended.
    Ended,
    /// The viewer was interrupted; the run goes on.
    Interrupted,
    /// The user detached; the run goes on.
    Detached,
    /// Nobody drives the run any more.
    SupervisorLost,
}

/// The key that detaches.
const DETACH: u8 = b'd';

struct Viewer<'a> {
    context: &'a Context,
    dir: RunDir,
    id: RunId,
    reader: Reader,
    state: RunState,
    tails: Tails,
    block: usize,
    interrupts: u32,
}

/// Follows a run to its end, or until the user leaves. Events up to `shown` are not printed.
///
/// # Errors
/// The ledger cannot be read.
pub(crate) fn follow(context: &Context, id: &RunId, shown: Seq, on_interrupt: OnInterrupt) -> CliResult<ViewEnd> {
    let dir = context.home.run(id);
    let reader = Reader::open(&dir)?;
    let (state, tails) = (RunState::default(), Tails::default());
    let mut viewer = Viewer { context, dir, id: id.clone(), reader, state, tails, block: 0, interrupts: 0 };
    let interrupted = interrupt::listen()?;
    let (sender, keys) = channel();
    let takes_keys = on_interrupt == OnInterrupt::StopRun && context.ui.can_ask();
    let _keys = takes_keys.then(|| {
        Keys::listen(move |key| {
            // The viewer may have left meanwhile.
            let _ = sender.send(key);
        })
    });
    viewer.run(&interrupted, &keys, shown, on_interrupt)
}

impl Viewer<'_> {
    fn run(
        &mut self,
        interrupted: &Receiver<()>,
        keys: &Receiver<u8>,
        shown: Seq,
        on_interrupt: OnInterrupt,
    ) -> CliResult<ViewEnd> {
        let (mut quiet_looks, mut pace) = (0, Pace::new());
        loop {
            let events = self.reader.after(self.state.seq)?;
            quiet_looks = if events.is_empty() { quiet_looks + 1 } else { 0 };
            for event in &events {
                let run = self.id.to_string();
                self.state.apply(event).map_err(|error| DriverError::Damaged { run, error })?;
                if event.seq > shown {
                    self.print(event);
                }
            }
            self.draw(on_interrupt);
            if self.state.ended.is_some() {
                return Ok(ViewEnd::Ended);
            }
            // A look at the lock costs more than a look at the ledger.
            if quiet_looks % 10 == 5
                && runs::supervisor(&self.dir).is_none()
                && self.reader.after(self.state.seq)?.is_empty()
            {
                return Ok(ViewEnd::SupervisorLost);
            }
            if keys.try_iter().any(|key| key == DETACH) {
                return Ok(ViewEnd::Detached);
            }
            let pause = pace.after(!events.is_empty());
            if interrupted.recv_timeout(pause).is_ok() && self.interrupted(on_interrupt) {
                return Ok(ViewEnd::Interrupted);
            }
        }
    }

    /// Whether the viewer leaves.
    fn interrupted(&mut self, on_interrupt: OnInterrupt) -> bool {
        self.interrupts += 1;
        if on_interrupt == OnInterrupt::Leave || self.interrupts > 2 {
            return true;
        }
        let now = self.interrupts == 2;
        let (dir, ui) = (self.dir.clone(), self.context.ui);
        // A supervisor that does not answer must not keep the next Ctrl-C from leaving.
        std::thread::spawn(move || {
            if let Err(error) = control::ask(&dir, &Command::Stop { unit: None, now }) {
                ui.warn(format!("cannot stop the run: {error}"));
            }
        });
        false
    }

    fn print(&mut self, event: &Event) {
        let ui = self.context.ui;
        if self.is_drawn() {
            return;
        }
        if let Some((line, tone)) = event_line(event) {
            ui.say(ui.paint_err(&line, tone));
        }
    }

    fn is_drawn(&self) -> bool {
        Ui::has_screen()
    }

    fn draw(&mut self, on_interrupt: OnInterrupt) {
        if !self.is_drawn() {
            return;
        }
        let ui = self.context.ui;
        let (columns, rows) = Ui::screen();
        let view = RunView::of(self.id.as_str(), &self.state, true, wall_now());
        let mut lines = self.unit_lines(&view, columns, rows.saturating_sub(3).max(3));
        lines.push(fit(&footer(&view, self.id.short(), on_interrupt, self.state.stop.is_some()), columns));
        ui.redraw(self.block, &lines);
        self.block = lines.len();
    }

    /// The units that fit on the screen: what is under way first, then what needs a look, then the rest.
    fn unit_lines(&mut self, view: &RunView, columns: usize, room: usize) -> Vec<String> {
        let ui = self.context.ui;
        let width = view.units.iter().map(|unit| unit.unit.len()).max().unwrap_or(0).min(24);
        let rank = |at: &usize| match view.units[*at].outcome.as_deref() {
            None if view.units[*at].state == "queued" => 3,
            None => 0,
            Some("succeeded") => 2,
            Some(_) => 1,
        };
        let mut order: Vec<usize> = (0..view.units.len()).collect();
        if order.len() > room {
            order.sort_by_key(rank);
            order.truncate(room - 1);
            order.sort_unstable();
        }
        let hidden = view.units.len() - order.len();
        let mut lines = Vec::new();
        for at in order {
            let unit = &view.units[at];
            let is_active = unit.outcome.is_none() && unit.state != "queued";
            let activity = if is_active { self.activity(at) } else { None };
            let (line, tone) = unit_line(unit, width, activity.as_deref());
            lines.push(ui.paint_err(&fit(&line, columns), tone));
        }
        if hidden > 0 {
            lines.push(format!("… and {hidden} more units"));
        }
        lines
    }

    fn activity(&mut self, at: usize) -> Option<String> {
        let last = self.state.units.get(at)?.attempts.last()?;
        self.tails.last_line(self.dir.attempt(&last.dir).root())
    }
}

fn footer(view: &RunView, run: &str, on_interrupt: OnInterrupt, stopping: bool) -> String {
    let keys = match on_interrupt {
        OnInterrupt::StopRun if stopping => "stopping · Ctrl-C again: at once",
        OnInterrupt::StopRun => "d: detach · Ctrl-C: stop",
        OnInterrupt::Leave => "Ctrl-C: leave, the run goes on",
    };
    format!("{} · {keys}", header(view, run))
}
