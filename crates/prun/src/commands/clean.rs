//! `prun clean`: removes workspaces that are no longer the only copy of anything.

use prun_core::answer::OfRun;
use prun_engine::driver::DriverError;
use prun_engine::executor::escape_line;
use prun_engine::retention::{Cleaning, Item};
use schemars::JsonSchema;
use serde::Serialize;

use crate::context::{Context, Intent};
use crate::error::{CliError, CliResult};
use crate::exit_code::ExitCode;
use crate::print::bytes as size;
use crate::ui::Tone;

/// Show which workspaces of a run could be removed, or remove them
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The run; the newest one of this repository by default
    run: Option<String>,
    /// Remove them instead of only showing them
    #[arg(long)]
    yes: bool,
    /// Also the workspace of this unit, though its work was not landed
    #[arg(long, value_name = "UNIT")]
    discard: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What takes room, and what of it may go or is gone.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Cleaned {
    /// Those without `keeps` were removed; else they only could be.
    removed: bool,
    /// Bytes that were freed, or could be.
    bytes: u64,
    /// Each place.
    items: Vec<Item>,
    /// What could not be removed, and why.
    failed: Vec<String>,
}

pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    let intent = if args.yes { Intent::Change } else { Intent::Look };
    let run = context.find_run(args.run.as_deref(), intent)?;
    let discard = run.units(&args.discard)?;
    let workshop = context.workshop(&run.card.run)?;
    let is_driven = |error: &DriverError| matches!(error, DriverError::Driven(_));
    let cleaning = context.once_left(&run, is_driven, || Cleaning::open(&workshop)).map_err(|error| match error {
        DriverError::Driven(_) => CliError::usage(format!("run {} is going on", run.card.run.short()))
            .hint(format!("prun wait {} tells when it has ended", run.card.run.short())),
        error => error.into(),
    })?;
    let items = cleaning.look(&discard);
    let failed = if args.yes { cleaning.remove(&items) } else { Vec::new() };
    let failed: Vec<String> = failed.iter().map(|error| escape_line(&error.to_string())).collect();
    let bytes = items.iter().filter(|item| item.keeps.is_none()).map(|item| item.bytes).sum();
    let cleaned = Cleaned { removed: args.yes, bytes, items, failed };
    let name = run.card.run.short();
    if args.json {
        context.ui.json(&OfRun::new(name, &cleaned))?;
        return Ok(if cleaned.failed.is_empty() { ExitCode::Ok } else { ExitCode::Attention });
    }
    for item in &cleaned.items {
        show(context, item, args.yes)?;
    }
    if !cleaned.failed.is_empty() {
        return Err(CliError::new(ExitCode::Attention, cleaned.failed.join("\n")));
    }
    let discards: String = args.discard.iter().map(|unit| format!(" --discard {unit}")).collect();
    context.ui.line(match (args.yes, bytes) {
        (true, _) => format!("freed {}", size(bytes)),
        (false, 0) => "nothing can be removed".to_owned(),
        (false, _) => format!("{} can be freed · next: prun clean {name}{discards} --yes", size(bytes)),
    })?;
    Ok(ExitCode::Ok)
}

fn show(context: &Context, item: &Item, removed: bool) -> CliResult<()> {
    let ui = context.ui;
    match &item.keeps {
        None => {
            let act = if removed { "removed" } else { "can go" };
            ui.line(format!("{act}  {}  {}", item.name, size(item.bytes)))
        }
        Some(keeps) => {
            let hint = keeps.discard.as_ref().map(|unit| format!("   --discard {unit}")).unwrap_or_default();
            let line = format!("stays   {}  {}  {}{hint}", item.name, size(item.bytes), escape_line(&keeps.why));
            ui.line(ui.paint(&line, Tone::Dim))
        }
    }
}
