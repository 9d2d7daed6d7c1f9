//! `prun completions` and `prun man`: what shells and `man` want to know, made from the command line itself.

use std::path::PathBuf;

use clap::CommandFactory;
use clap_complete::Shell;
use prun_engine::files::{Durability, FileError, write_atomically};

use crate::cli::Cli;
use crate::context::Context;
use crate::error::CliResult;
use crate::exit_code::ExitCode;

/// Print a completion script for a shell
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

/// Write a man page for each command into a directory
#[derive(Debug, clap::Args)]
pub(crate) struct ManArgs {
    /// The directory
    dir: PathBuf,
}

pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "prun", &mut script);
    context.ui.bytes(&script)?;
    Ok(ExitCode::Ok)
}

pub(crate) fn man(context: &Context, args: &ManArgs) -> CliResult {
    let dir = context.cwd.join(&args.dir);
    std::fs::create_dir_all(&dir).map_err(FileError::at("create", &dir))?;
    let mut command = Cli::command();
    command.build();
    page(&command, "prun", &dir)?;
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        let name = format!("prun-{}", sub.get_name());
        page(sub, &name, &dir)?;
        for act in sub.get_subcommands().filter(|act| act.get_name() != "help") {
            page(act, &format!("{name}-{}", act.get_name()), &dir)?;
        }
    }
    Ok(ExitCode::Ok)
}

fn page(command: &clap::Command, name: &str, dir: &std::path::Path) -> CliResult<()> {
    let mut text = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut text)?;
    Ok(write_atomically(&dir.join(format!("{name}.1")), &text, Durability::Cached)?)
}
