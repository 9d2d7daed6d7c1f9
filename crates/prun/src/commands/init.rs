//! `prun init`: writes a plan to begin with.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;

use prun_core::plan::TEMPLATE;

use crate::context::Context;
use crate::error::{CliError, CliResult};
use crate::exit_code::ExitCode;

/// Write a commented plan file
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where to write it; nothing is overwritten
    #[arg(value_name = "PLAN", default_value = "prun.toml")]
    plan: PathBuf,
}

pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    let path = context.cwd.join(&args.plan);
    let mut file = File::create_new(&path).map_err(|error| {
        let failure = CliError::usage(format!("cannot create {}: {error}", path.display()));
        if error.kind() == ErrorKind::AlreadyExists { failure.hint("name another file") } else { failure }
    })?;
    file.write_all(TEMPLATE.as_bytes())?;
    context.ui.say(format!("wrote {}; next: prun check, then prun run", args.plan.display()));
    Ok(ExitCode::Ok)
}
