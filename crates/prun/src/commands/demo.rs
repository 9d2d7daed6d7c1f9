//! `prun demo`: the whole walk on a small real repository, without an account.

use crate::context::Context;
use crate::error::CliResult;
use crate::exit_code::ExitCode;

/// Walk through a whole run on a small real repository, without an account
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_context: &Context, _args: &Args) -> CliResult {
    Ok(ExitCode::Ok)
}
