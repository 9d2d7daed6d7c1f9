//! `prun wait`: the coordinator's sleep. Wakes at the first event that calls for action.

use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use prun_core::answer::{WaitView, Woke};
use prun_core::digest::{attention, digest, header, is_actionable, is_all_well};
use prun_core::ids::Seq;
use prun_core::view::VIEW_VERSION;

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
    let woke = watch(&mut run, Seq(args.since), deadline, |_, pause| {
        matches!(interrupted.recv_timeout(pause), Err(RecvTimeoutError::Timeout))
    })?;
    let Some(woke) = woke else { return Ok(ExitCode::Interrupted) };
    if args.json {
        context.ui.json(&view(&run, woke))?;
    } else {
        context.ui.line(text(&run, woke))?;
    }
    match woke {
        Woke::SupervisorLost => Err(lost(context, &run.card.run)),
        woke => Ok(code(woke)),
    }
}

/// Looks at the run until something after `since` calls for action or the time is up. Between two looks `pause`
/// waits; once it says no, nobody wants to know any more, and there is no answer.
///
/// # Errors
/// The ledger cannot be read.
pub(crate) fn watch(
    run: &mut OpenRun,
    since: Seq,
    deadline: Option<Instant>,
    mut pause: impl FnMut(&OpenRun, Duration) -> bool,
) -> CliResult<Option<Woke>> {
    let (mut pace, mut seen) = (Pace::new(), run.state.seq);
    loop {
        if let Some(woke) = woken(run, since) {
            return Ok(Some(woke));
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Ok(Some(Woke::TimedOut));
        }
        let is_new = run.state.seq != seen;
        seen = run.state.seq;
        if !pause(run, pace.after(is_new)) {
            return Ok(None);
        }
        run.refresh()?;
    }
}

/// Why one has to wake, once something calls for action.
fn woken(run: &OpenRun, since: Seq) -> Option<Woke> {
    let mut new = run.events.iter().filter(|event| event.seq > since);
    match run.state.ended {
        Some(true) => Some(Woke::Cancelled),
        Some(false) if is_all_well(&run.view()) => Some(Woke::Ended),
        Some(false) => Some(Woke::Attention),
        None if new.any(|event| is_actionable(event, &run.state)) => Some(Woke::Attention),
        None => (!run.driven).then_some(Woke::SupervisorLost),
    }
}

/// What `wait` says: the digest, or only its first line where nothing happened.
pub(crate) fn text(run: &OpenRun, woke: Woke) -> String {
    let (view, name) = (run.view(), run.card.run.short());
    if woke == Woke::TimedOut { header(&view, name) } else { digest(&view, name) }
}

/// The same as data.
pub(crate) fn view(run: &OpenRun, woke: Woke) -> WaitView {
    let (view, name) = (run.view(), run.card.run.short());
    WaitView {
        version: VIEW_VERSION,
        run: name.to_owned(),
        woke,
        state: view.state,
        header: header(&view, name),
        attention: if woke == Woke::TimedOut { Vec::new() } else { attention(&view, name) },
        counts: view.counts,
        next: view.next,
    }
}

fn code(woke: Woke) -> ExitCode {
    match woke {
        Woke::Ended => ExitCode::Ok,
        Woke::Attention | Woke::SupervisorLost => ExitCode::Attention,
        Woke::Cancelled => ExitCode::Cancelled,
        Woke::TimedOut => ExitCode::TimedOut,
    }
}
