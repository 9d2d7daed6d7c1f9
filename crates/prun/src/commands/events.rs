//! `prun events`: a run's ledger as a stream, a JSON object a line.

use std::sync::mpsc::RecvTimeoutError;

use prun_core::answer::EventView;
use prun_core::ids::Seq;

use super::run::lost;
use crate::context::{Context, Intent};
use crate::error::CliResult;
use crate::exit_code::ExitCode;
use crate::interrupt;
use crate::pace::Pace;

/// Print the events of a run as JSON, one a line
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The run; the newest one of this repository by default
    run: Option<String>,
    /// Only events after this one
    #[arg(long, value_name = "SEQ", default_value_t = 0)]
    since: u64,
    /// Go on as they come, until the run has ended
    #[arg(short, long)]
    follow: bool,
}

pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    let mut run = context.find_run(args.run.as_deref(), Intent::Look)?;
    let interrupted = interrupt::listen()?;
    let (mut shown, mut pace) = (Seq(args.since), Pace::new());
    loop {
        let new: Vec<EventView> = run.events.iter().filter(|event| event.seq > shown).map(EventView::of).collect();
        for event in &new {
            let line = serde_json::to_string(event).expect("plain data with string keys");
            context.ui.line(line)?;
        }
        shown = shown.max(run.state.seq);
        if !args.follow || run.state.ended.is_some() {
            return Ok(ExitCode::Ok);
        }
        if !run.driven {
            return Err(lost(context, &run.card.run));
        }
        match interrupted.recv_timeout(pace.after(!new.is_empty())) {
            Err(RecvTimeoutError::Timeout) => run.refresh()?,
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return Ok(ExitCode::Interrupted),
        }
    }
}
