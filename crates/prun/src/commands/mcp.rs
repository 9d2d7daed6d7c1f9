//! `prun mcp`: serves the coordinator's tools to an agent client, and registers that server with clients.

use crate::clients::{Client, Place};
use crate::context::Context;
use crate::error::{CliError, CliResult};
use crate::exit_code::ExitCode;
use crate::mcp;
use crate::registration::{Known, Registration};

/// Serve the coordinator's tools over the Model Context Protocol, on stdin and stdout
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    act: Option<Act>,
}

#[derive(Debug, clap::Subcommand)]
enum Act {
    /// Register the server with the clients in PATH, by their own `mcp add`
    Install(Place),
    /// Take it out again
    Uninstall(Place),
}

pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    match &args.act {
        None => return mcp::serve(context.clone()),
        Some(Act::Install(place)) => {
            for (registration, known) in look(context, place)? {
                match known {
                    Known::Same => tell(context, &registration, "registered already")?,
                    Known::Absent => act(context, place, &registration, &registration.add(), "registered")?,
                }
            }
        }
        Some(Act::Uninstall(place)) => {
            for (registration, known) in look(context, place)? {
                match known {
                    Known::Same => act(context, place, &registration, &registration.remove(), "taken out")?,
                    Known::Absent => tell(context, &registration, "nothing to do")?,
                }
            }
        }
    }
    Ok(ExitCode::Ok)
}

/// What each client that is meant knows of the server. Nothing was changed yet.
///
/// # Errors
/// A client has something else under that name, which is somebody's own; or it is not in PATH.
fn look(context: &Context, place: &Place) -> CliResult<Vec<(Registration, Known)>> {
    let look = |client| {
        let registration = Registration::new(client, place.scope(context)?)?;
        let known = registration.known()?;
        Ok((registration, known))
    };
    clients(place)?.into_iter().map(look).collect()
}

/// The clients that are meant and in PATH.
fn clients(place: &Place) -> CliResult<Vec<Client>> {
    // Where a user names none, those are meant that can do it.
    let meant = place.clients().filter(|client| place.names_clients() || !place.project || client.has_projects());
    let (installed, missing): (Vec<Client>, Vec<Client>) = meant.partition(|client| client.is_installed());
    match missing.first().filter(|_| place.names_clients() || installed.is_empty()) {
        None => Ok(installed),
        Some(client) => {
            let error = CliError::usage(format!("{} is not in PATH", client.name()));
            Err(error.hint("docs/mcp.md tells how to register the server by hand"))
        }
    }
}

fn act(context: &Context, place: &Place, registration: &Registration, line: &[String], done: &str) -> CliResult<()> {
    if place.dry_run {
        return context.ui.line(line.join(" "));
    }
    registration.run(line)?.success(line)?;
    tell(context, registration, done)
}

fn tell(context: &Context, registration: &Registration, what: &str) -> CliResult<()> {
    context.ui.line(format!("{}: {what}", registration.client().name()))
}
