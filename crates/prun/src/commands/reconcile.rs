//! `prun reconcile`: whether a run may be integrated, and what stands in the way.

use prun_core::answer::OfRun;
use prun_core::reconcile::{Note, NoteKind, Reconciliation, reconcile};
use prun_engine::executor::escape_line;

use crate::context::{Context, Intent};
use crate::error::CliResult;
use crate::exit_code::ExitCode;
use crate::ui::{Tone, Ui};

/// Say whether a run may be integrated, and what stands in the way
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
    context.warn_if_lost(&run);
    let found = reconcile(&run.state.units);
    if args.json {
        context.ui.json(&OfRun::new(run.card.run.short(), &found))?;
    } else {
        show(context.ui, &found, run.card.run.short())?;
    }
    Ok(if found.ready { ExitCode::Ok } else { ExitCode::NotReady })
}

/// Prints what was found.
///
/// # Errors
/// Stdout is gone.
pub(crate) fn show(ui: Ui, found: &Reconciliation, run: &str) -> CliResult<()> {
    for line in lines(found, run) {
        let is_blocker = line.starts_with("BLOCKS ");
        ui.line(if is_blocker { ui.paint(&line, Tone::Bad) } else { line })?;
    }
    Ok(())
}

/// What was found, in lines.
pub(crate) fn lines(found: &Reconciliation, run: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for blocker in &found.blockers {
        lines.push(format!("BLOCKS {}  {}   {}", blocker.unit, escape_line(&blocker.why), blocker.hint));
    }
    for note in &found.notes {
        lines.push(note_line(note));
    }
    let mut parts = match found.landing.len() {
        0 if found.ready => vec!["nothing to land".to_owned()],
        1 => vec!["1 unit goes in".to_owned()],
        count => vec![format!("{count} units go in")],
    };
    for (units, what) in
        [(&found.unchanged, "have nothing to land"), (&found.excluded, "stay out"), (&found.applied, "are in already")]
    {
        if !units.is_empty() {
            parts.push(format!("{} {what}", units.len()));
        }
    }
    let parts = parts.join(" · ");
    lines.push(match found.ready {
        true if found.landing.is_empty() => parts,
        true => format!("ready · {parts} · next: prun integrate {run} --dry-run"),
        false => format!("not ready · {} block · {parts}", found.blockers.len()),
    });
    lines
}

/// What the user should know of a unit, in a line.
pub(crate) fn note_line(note: &Note) -> String {
    let what: Vec<String> = note.what.iter().take(10).map(|path| escape_line(path)).collect();
    let more = if note.what.len() > 10 { format!(" and {} more", note.what.len() - 10) } else { String::new() };
    format!("note {}  {}: {}{more}", note.unit, words(note.kind), what.join(", "))
}

fn words(kind: NoteKind) -> &'static str {
    match kind {
        NoteKind::ClaimedUnchanged => "says it changed, and did not",
        NoteKind::ChangedUnclaimed => "changed and does not say so",
        NoteKind::OutsideOwns => "changed outside what it owns",
        NoteKind::Unseen => "not part of what lands",
        NoteKind::ReadEdits => "a read unit's edits, not landed unless accepted",
        NoteKind::Accepted => "accepted",
    }
}
