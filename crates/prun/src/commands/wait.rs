//! `prun wait`: the coordinator's sleep. Wakes at the first event that calls for action.

use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use prun_core::digest::{digest, header, is_actionable, is_all_well};
use prun_core::ids::Seq;

use super::run::lost;
use crate::context::{Context, Intent, OpenRun};
use crate::error::CliResult;
use crate::exit_code::ExitCode;
use crate::interrupt;
use crate::pace::Pace;

/// Wait for the first event of a run that calls for action
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The run; the newest one of this repository by default
    run: Option<String>,
    /// Only events after this one count: the `next` of the last digest
    #[arg(long, value_name = "SEQ", default_value_t = 0)]
    since: u64,
    /// Seconds to wait at most; 0 waits for ever
    #[arg(long, value_name = "SECONDS", default_value_t = 95)]
    timeout: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    let mut run = context.find_run(args.run.as_deref(), Intent::Look)?;
    let deadline = (args.timeout > 0).then(|| Instant::now() + Duration::from_secs(args.timeout));
    let interrupted = interrupt::listen()?;
    let (mut pace, mut seen) = (Pace::new(), run.state.seq);
    loop {
        if let Some(code) = woken(&run, Seq(args.since)) {
            return report(context, &run, args.json, code);
        }
        if !run.driven && run.state.ended.is_none() {
            report(context, &run, args.json, ExitCode::Attention)?;
            return Err(lost(context, &run.card.run));
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            let view = run.view();
            if args.json {
                context.ui.json(&view)?;
            } else {
                context.ui.line(header(&view, run.card.run.short()))?;
            }
            return Ok(ExitCode::TimedOut);
        }
        let is_new = run.state.seq != seen;
        seen = run.state.seq;
        match interrupted.recv_timeout(pace.after(is_new)) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return Ok(ExitCode::Interrupted),
        }
        run.refresh()?;
    }
}

/// The exit code to leave with, once something calls for action.
fn woken(run: &OpenRun, since: Seq) -> Option<ExitCode> {
    let mut new = run.events.iter().filter(|event| event.seq > since);
    match run.state.ended {
        Some(true) => Some(ExitCode::Cancelled),
        Some(false) if is_all_well(&run.view()) => Some(ExitCode::Ok),
        Some(false) => Some(ExitCode::Attention),
        None => new.any(|event| is_actionable(event, &run.state)).then_some(ExitCode::Attention),
    }
}

fn report(context: &Context, run: &OpenRun, json: bool, code: ExitCode) -> CliResult {
    let view = run.view();
    if json {
        context.ui.json(&view)?;
    } else {
        context.ui.line(digest(&view, run.card.run.short()))?;
    }
    Ok(code)
}
