//! `prun diff`: what a unit changed, as git says it; of a run, unit by unit.

use prun_core::answer::{DiffView, UnitDiff};
use prun_core::ids::UnitId;
use prun_core::outcome::Changes;
use prun_core::reconcile::{NoteKind, reconcile};
use prun_core::view::VIEW_VERSION;
use prun_engine::landing;
use prun_engine::workspace::{PatchOptions, patch};

use super::integrate::failure;
use super::reconcile::note_line;
use crate::context::{Context, Intent, OpenRun};
use crate::error::{CliError, CliResult};
use crate::exit_code::ExitCode;
use crate::print::mail_date;

/// Show what a unit changed, or every unit of a run, as a git diff
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A unit as UNIT or RUN/UNIT, or a run; the newest run of this repository by default
    what: Option<String>,
    /// Show a summary of each file
    #[arg(long, conflicts_with = "name_only")]
    stat: bool,
    /// Show the paths alone
    #[arg(long)]
    name_only: bool,
    /// Show what all units of a run change together, as one diff
    #[arg(long, conflicts_with = "mbox")]
    combined: bool,
    /// Write a mailbox that `git am` takes, a message for each unit
    #[arg(long, conflicts_with_all = ["stat", "name_only"])]
    mbox: bool,
    /// Print the files with their counts as JSON
    #[arg(long, conflicts_with_all = ["stat", "name_only", "mbox"])]
    json: bool,
}

pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    let (run, unit) = context.find_either(args.what.as_deref(), Intent::Look)?;
    if args.json {
        context.ui.json(&view(&run, unit.as_ref())?)?;
        return Ok(ExitCode::Ok);
    }
    if args.combined {
        if let Some(unit) = unit {
            return Err(CliError::usage(format!("--combined is of a whole run, not of the unit {unit}")));
        }
        let workshop = context.workshop(&run.card.run)?;
        let diff = landing::combined(&workshop, &run.state, &options(args));
        context.ui.foreign(&diff.map_err(|error| failure(context, error, &run))?)?;
        return Ok(ExitCode::Ok);
    }
    if let Some(unit) = unit {
        harvested(&run, &unit)?;
        show(context, &run, &unit, args)?;
        return Ok(ExitCode::Ok);
    }
    let units: Vec<UnitId> = run.state.units.iter().map(|unit| unit.setup.id.clone()).collect();
    for unit in units {
        let changed = run.unit(&unit).facts().and_then(|facts| facts.changes.as_ref()).is_some_and(|it| !it.is_empty());
        if changed {
            if !args.mbox {
                // `git apply` and pagers skip what stands between two diffs.
                context.ui.line(format!("unit {unit}"))?;
            }
            show(context, &run, &unit, args)?;
        }
    }
    Ok(ExitCode::Ok)
}

/// What was harvested of a unit.
///
/// # Errors
/// Nothing was.
fn harvested<'a>(run: &'a OpenRun, unit: &UnitId) -> CliResult<&'a Changes> {
    let changes = run.unit(unit).facts().and_then(|facts| facts.changes.as_ref());
    let state = run.unit(unit).state.name();
    changes.ok_or_else(|| CliError::usage(format!("nothing was harvested of {unit}; it is {state}")))
}

/// What a unit changed, or every unit of the run, file by file.
///
/// # Errors
/// Nothing was harvested of the unit.
pub(crate) fn view(run: &OpenRun, unit: Option<&UnitId>) -> CliResult<DiffView> {
    if let Some(unit) = unit {
        harvested(run, unit)?;
    }
    let wanted = run.state.units.iter().filter(|known| unit.is_none_or(|unit| known.setup.id == *unit));
    let changed = wanted.filter_map(|known| {
        let changes = known.facts()?.changes.as_ref()?;
        (unit.is_some() || !changes.is_empty()).then(|| UnitDiff {
            unit: known.setup.id.to_string(),
            base_tree: changes.base_tree.clone(),
            tree: changes.tree.clone(),
            files: changes.files.clone(),
        })
    });
    Ok(DiffView { version: VIEW_VERSION, run: run.card.run.short().to_owned(), units: changed.collect() })
}

/// A unit's changes in git's own format.
///
/// # Errors
/// Nothing was harvested of it, or git fails.
pub(crate) fn patch_of(context: &Context, run: &OpenRun, unit: &UnitId, options: &PatchOptions) -> CliResult<Vec<u8>> {
    let changes = harvested(run, unit)?;
    let workshop = context.workshop(&run.card.run)?;
    let Some(store) = workshop.store() else { return Ok(Vec::new()) };
    Ok(patch(store, &changes.base_tree, &changes.tree, options)?)
}

fn show(context: &Context, run: &OpenRun, unit: &UnitId, args: &Args) -> CliResult<()> {
    if args.mbox {
        context.ui.foreign(message(run, unit).as_bytes())?;
    }
    context.ui.foreign(&patch_of(context, run, unit, &options(args))?)?;
    // What the unit says of its changes, and what it may change, beside them.
    for note in reconcile([run.unit(unit)]).notes.iter().filter(|note| is_of_paths(note.kind)) {
        context.ui.say(note_line(note));
    }
    // Ends a message: what follows is the next one's.
    if args.mbox { context.ui.foreign(b"-- \nprun\n\n") } else { Ok(()) }
}

fn options(args: &Args) -> PatchOptions {
    PatchOptions { stat: args.stat, name_only: args.name_only, ..PatchOptions::default() }
}

fn is_of_paths(kind: NoteKind) -> bool {
    matches!(kind, NoteKind::OutsideOwns | NoteKind::ClaimedUnchanged | NoteKind::ChangedUnclaimed)
}

/// The head of a mail in the form that git itself writes: the unit and its conclusion.
fn message(run: &OpenRun, unit: &UnitId) -> String {
    let unit = run.unit(unit);
    let facts = unit.facts();
    let conclusion = facts.and_then(|facts| facts.result.as_ref()?.conclusion.clone()).unwrap_or_default();
    let subject: String = format!("{}: {conclusion}", unit.setup.id).chars().filter(|c| !c.is_control()).collect();
    let ended = facts.map_or(run.state.began, |facts| facts.ended_at);
    let executor = unit.attempts.last().map(|attempt| attempt.executor.to_string()).unwrap_or_default();
    // Git takes this fixed date for the mark of its own mails.
    format!(
        "From {} Mon Sep 17 00:00:00 2001\nFrom: {executor} <prun@localhost>\nDate: {}\nSubject: [PATCH] {}\n\nUnit {} of run {}.\n---\n\n",
        "0".repeat(40),
        mail_date(ended),
        subject.trim_end_matches([':', ' ']),
        unit.setup.id,
        run.card.run,
    )
}
