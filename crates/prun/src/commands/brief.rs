//! `prun brief`: what a worker was told, to the letter.

use prun_engine::files::FileError;

use crate::context::{Context, Intent};
use crate::error::CliResult;
use crate::exit_code::ExitCode;

/// Show what a unit's worker is told
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The unit, as UNIT or RUN/UNIT
    unit: String,
}

pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    let (run, unit) = context.find_unit(&args.unit, Intent::Look)?;
    let path = run.last_attempt(&unit)?.prompt();
    let bytes = std::fs::read(&path).map_err(FileError::at("read", &path))?;
    context.ui.foreign(&bytes)?;
    Ok(ExitCode::Ok)
}
