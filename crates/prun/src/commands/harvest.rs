//! `prun harvest`: takes a unit's workspace again after a person edited it.

use prun_engine::driver::DriverError;
use prun_engine::executor::escape_line;
use prun_engine::reharvest::{ReharvestError, reharvest};

use crate::context::{Context, Intent};
use crate::error::{CliError, CliResult};
use crate::exit_code::ExitCode;

/// Take a settled unit's workspace again after you edited it
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The unit, as UNIT or RUN/UNIT
    unit: String,
}

pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    let (run, unit) = context.find_unit(&args.unit, Intent::Change)?;
    let name = format!("{}/{unit}", run.card.run.short());
    let done = reharvest(&context.workshop(&run.card.run)?, &unit).map_err(|error| {
        let hint = match &error {
            ReharvestError::Driver(DriverError::Driven(_)) => {
                Some(format!("wait until the run has ended: prun wait {}", run.card.run.short()))
            }
            ReharvestError::NotSettled { .. } => Some(format!("stop it first: prun stop {name}")),
            ReharvestError::Applied(_) => Some(format!("prun undo {} takes the landing back", run.card.run.short())),
            _ => None,
        };
        let error = match error {
            ReharvestError::Driver(DriverError::Driven(_)) => {
                CliError::usage(format!("cannot harvest {name} while the run is going on"))
            }
            ReharvestError::Driver(error) => error.into(),
            error => CliError::usage(error),
        };
        hint.into_iter().fold(error, CliError::hint)
    })?;
    let files = done.changes.files.len();
    let news = if done.is_new { "" } else { ", as before" };
    context.ui.line(format!("{name}: {files} {} changed{news}", if files == 1 { "file" } else { "files" }))?;
    for what in &done.changes.unseen {
        context.ui.line(format!("  not part of it: {}", escape_line(what)))?;
    }
    if done.lost_acceptance {
        context.ui.line(format!("it was accepted as it was before; next: prun accept {name} -m WHY"))?;
    }
    Ok(ExitCode::Ok)
}
