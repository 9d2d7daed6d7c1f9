//! `prun status`: where every unit is.

use std::time::{Duration, Instant};

use prun_core::digest::{budget_line, header, of_the_run};
use prun_engine::hooks::troubles;
use prun_engine::remove::disk_use;

use crate::context::{Context, Intent};
use crate::error::CliResult;
use crate::exit_code::ExitCode;
use crate::print::{bytes, event_line, hold_lines, unit_line};
use crate::ui::Tone;

/// How long `status` looks for what a run takes on the disk.
const DISK_TIME: Duration = Duration::from_millis(100);

/// Show where every unit of a run is
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The run; the newest one of this repository by default
    run: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    let run = context.find_run(args.run.as_deref(), Intent::Look)?;
    let view = run.view();
    if args.json {
        context.ui.json(&view)?;
        return Ok(ExitCode::Ok);
    }
    let ui = context.ui;
    ui.line(header(&view, run.card.run.short()))?;
    let width = view.units.iter().map(|unit| unit.unit.len()).max().unwrap_or(0).min(40);
    for unit in &view.units {
        let (line, tone) = unit_line(unit, width, None);
        ui.line(ui.paint(&line, tone))?;
    }
    for line in hold_lines(&view) {
        ui.line(ui.paint(&line, Tone::Warn))?;
    }
    // What a unit's line cannot say: the last word on the repository, checks and landings.
    for event in run.events.iter().filter(|event| is_of_the_run(event)) {
        if let Some((line, tone)) = event_line(event) {
            ui.line(ui.paint(&line, tone))?;
        }
    }
    if view.guard.is_some() {
        ui.line(ui.paint("guard   the repository is read-only to workers", Tone::Dim))?;
    }
    // A large run takes long to walk, and status is asked often.
    let (used, is_all) = disk_use(run.dir.root(), Some(Instant::now() + DISK_TIME));
    ui.line(ui.paint(&format!("disk    {}{}", if is_all { "" } else { "at least " }, bytes(used)), Tone::Dim))?;
    for budget in &view.budgets {
        ui.line(ui.paint(&budget_line(budget, run.card.run.short()), Tone::Warn))?;
    }
    for line in of_the_run(&view, run.card.run.short()) {
        ui.line(line)?;
    }
    for trouble in troubles(&run.dir) {
        ui.line(ui.paint(&format!("HOOK {trouble}"), Tone::Warn))?;
    }
    Ok(ExitCode::Ok)
}

fn is_of_the_run(event: &prun_core::event::Event) -> bool {
    use prun_core::event::{EventKind, RunEvent};
    let EventKind::Run(event) = &event.kind else { return false };
    matches!(
        **event,
        RunEvent::RepositoryTouched { .. }
            | RunEvent::RepositoryMoved { .. }
            | RunEvent::VerifyFinished { .. }
            | RunEvent::Landed { .. }
            | RunEvent::Undone { .. }
    )
}
