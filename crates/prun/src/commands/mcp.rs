//! `prun mcp`: serves the coordinator's tools to an agent client, and registers that server with clients.

use crate::context::Context;
use crate::error::{CliError, CliResult};
use crate::exit_code::ExitCode;
use crate::mcp;
use crate::registration::{self, Client, Known, Scope};

/// Serve the coordinator's tools over the Model Context Protocol, on stdin and stdout
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    act: Option<Act>,
}

#[derive(Debug, clap::Subcommand)]
enum Act {
    /// Register the server with Claude Code and Codex, by their own `mcp add`
    Install(Place),
    /// Take it out again
    Uninstall(Place),
}

/// With whom.
#[derive(Debug, clap::Args)]
struct Place {
    /// With Claude Code; without --claude and --codex, with each that is in PATH
    #[arg(long)]
    claude: bool,
    /// With Codex
    #[arg(long)]
    codex: bool,
    /// For the repository of the current directory; Claude Code alone can do that
    #[arg(long, conflicts_with_all = ["user", "codex"])]
    project: bool,
    /// For all of your projects, the default
    #[arg(long)]
    user: bool,
    /// Show the commands, and run none
    #[arg(long)]
    dry_run: bool,
}

pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    match &args.act {
        None => mcp::serve(context.clone()),
        Some(Act::Install(place)) => each(place, |client| install(context, place, client)),
        Some(Act::Uninstall(place)) => each(place, |client| uninstall(context, place, client)),
    }
}

fn each(place: &Place, mut act: impl FnMut(Client) -> CliResult<()>) -> CliResult {
    let named = place.claude || place.codex;
    let is_meant = |client: &Client| match client {
        Client::Claude => place.claude || !named,
        Client::Codex => (place.codex || !named) && !place.project,
    };
    let meant: Vec<Client> = Client::ALL.into_iter().filter(is_meant).collect();
    let installed: Vec<Client> = meant.iter().copied().filter(|client| client.is_installed()).collect();
    let missing = meant.iter().find(|client| !client.is_installed());
    if let Some(client) = missing.filter(|_| named || installed.is_empty()) {
        let error = CliError::usage(format!("{} is not in PATH", client.name()));
        return Err(error.hint("docs/mcp.md tells how to register the server by hand"));
    }
    installed.into_iter().try_for_each(&mut act)?;
    Ok(ExitCode::Ok)
}

impl Place {
    fn scope(&self) -> Scope {
        if self.project { Scope::Project } else { Scope::User }
    }
}

fn install(context: &Context, place: &Place, client: Client) -> CliResult<()> {
    let program = registration::program()?;
    match client.known(&program)? {
        Known::Same => return context.ui.line(format!("{}: registered already", client.name())),
        Known::Other(command) => {
            let message = format!("{} has another server of the name prun: {command}", client.name());
            return Err(CliError::usage(message).hint("`prun mcp uninstall` takes it out"));
        }
        Known::Absent => {}
    }
    act(context, place, client, &client.add(place.scope(), &program), "registered")
}

fn uninstall(context: &Context, place: &Place, client: Client) -> CliResult<()> {
    if client.known(&registration::program()?)? == Known::Absent {
        return context.ui.line(format!("{}: nothing to do", client.name()));
    }
    act(context, place, client, &client.remove(place.scope()), "taken out")
}

fn act(context: &Context, place: &Place, client: Client, line: &[String], done: &str) -> CliResult<()> {
    if place.dry_run {
        return context.ui.line(line.join(" "));
    }
    let (ok, said) = registration::run(line)?;
    if !ok {
        let message = format!("{} failed: {}", line.join(" "), said.trim());
        return Err(CliError::new(ExitCode::Unexpected, message));
    }
    context.ui.line(format!("{}: {done}", client.name()))
}
