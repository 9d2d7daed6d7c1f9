//! `prun clean`: removes workspaces that are no longer the only copy of anything.

use prun_engine::driver::DriverError;
use prun_engine::executor::escape_line;
use prun_engine::retention::{Cleaning, Item};

use crate::context::{Context, Intent};
use crate::error::{CliError, CliResult};
use crate::exit_code::ExitCode;
use crate::print::bytes;
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
}

pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    let intent = if args.yes { Intent::Change } else { Intent::Look };
    let run = context.find_run(args.run.as_deref(), intent)?;
    let discard = run.units(&args.discard)?;
    let workshop = context.workshop(&run.card.run)?;
    let cleaning = Cleaning::open(&workshop).map_err(|error| match error {
        DriverError::Driven(_) => CliError::usage(format!("run {} is going on", run.card.run.short()))
            .hint(format!("prun wait {} tells when it has ended", run.card.run.short())),
        error => error.into(),
    })?;
    let items = cleaning.look(&discard);
    let failed = if args.yes { cleaning.remove(&items) } else { Vec::new() };
    for item in &items {
        show(context, item, args.yes)?;
    }
    let sum: u64 = items.iter().filter(|item| item.keeps.is_none()).map(|item| item.bytes).sum();
    if !failed.is_empty() {
        let lines: Vec<String> = failed.iter().map(|error| escape_line(&error.to_string())).collect();
        return Err(CliError::new(ExitCode::Attention, lines.join("\n")));
    }
    let name = run.card.run.short();
    let discards: String = args.discard.iter().map(|unit| format!(" --discard {unit}")).collect();
    context.ui.line(match (args.yes, sum) {
        (true, _) => format!("freed {}", bytes(sum)),
        (false, 0) => "nothing can be removed".to_owned(),
        (false, _) => format!("{} can be freed · next: prun clean {name}{discards} --yes", bytes(sum)),
    })?;
    Ok(ExitCode::Ok)
}

fn show(context: &Context, item: &Item, removed: bool) -> CliResult<()> {
    let ui = context.ui;
    match &item.keeps {
        None => {
            let act = if removed { "removed" } else { "can go" };
            ui.line(format!("{act}  {}  {}", item.name, bytes(item.bytes)))
        }
        Some(keeps) => {
            let hint = keeps.discard.as_ref().map(|unit| format!("   --discard {unit}")).unwrap_or_default();
            let line = format!("stays   {}  {}  {}{hint}", item.name, bytes(item.bytes), escape_line(&keeps.why));
            ui.line(ui.paint(&line, Tone::Dim))
        }
    }
}
