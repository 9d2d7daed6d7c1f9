//! `prun skill`: puts the agent skill where a client finds it, or takes it out again.

use std::path::{Path, PathBuf};

use prun_core::digest::counted;

use crate::clients::{Client, Place, Scope, claude_config_dir};
use crate::context::Context;
use crate::error::{CliError, CliResult};
use crate::exit_code::ExitCode;
use crate::skill::{self, Change, Step};

/// Install or remove the agent skill for Claude Code and Codex
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    act: Act,
}

#[derive(Debug, clap::Subcommand)]
enum Act {
    /// Install it, or bring it up to date
    Install(Place),
    /// Remove it; files that you edited stay
    Uninstall(Place),
}

pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    match &args.act {
        Act::Install(place) => {
            let dirs = dirs(place, context)?;
            // All are looked at before one is written.
            for dir in &dirs {
                refuse_edited(dir, &skill::install(dir, true)?)?;
            }
            for dir in &dirs {
                tell(context, dir, &skill::install(dir, place.dry_run)?, place.dry_run)?;
            }
        }
        Act::Uninstall(place) => {
            for dir in dirs(place, context)? {
                tell(context, &dir, &skill::uninstall(&dir, place.dry_run)?, place.dry_run)?;
            }
        }
    }
    Ok(ExitCode::Ok)
}

/// Where the clients that are meant look for skills.
fn dirs(place: &Place, context: &Context) -> CliResult<Vec<PathBuf>> {
    let scope = place.scope(context)?;
    let dir = |client| match (client, &scope) {
        (Client::Claude, Scope::User(home)) => claude_config_dir().unwrap_or_else(|| home.join(".claude")),
        (Client::Claude, Scope::Project(root)) => root.join(".claude"),
        (Client::Codex, Scope::User(root) | Scope::Project(root)) => root.join(".agents"),
    };
    Ok(place.clients().map(|client| dir(client).join("skills/prun")).collect())
}

fn refuse_edited(dir: &Path, steps: &[Step]) -> CliResult<()> {
    let edited: Vec<&str> =
        steps.iter().filter(|step| step.change == Change::Edited).map(|step| step.path.as_str()).collect();
    if edited.is_empty() {
        return Ok(());
    }
    let message = format!("{} holds files that prun did not write: {}", dir.display(), edited.join(", "));
    Err(CliError::usage(message).hint("nothing was changed; move them away to have prun's own"))
}

fn tell(context: &Context, dir: &Path, steps: &[Step], dry_run: bool) -> CliResult<()> {
    let count = |change| steps.iter().filter(|step| step.change == change).count();
    let words = [(Change::Add, "added"), (Change::Update, "updated"), (Change::Remove, "removed")];
    let mut parts: Vec<String> = words
        .into_iter()
        .filter(|(change, _)| count(*change) > 0)
        .map(|(change, what)| format!("{} {what}", counted(count(change), "file")))
        .collect();
    let edited: Vec<&str> =
        steps.iter().filter(|step| step.change == Change::Edited).map(|step| step.path.as_str()).collect();
    if !edited.is_empty() {
        parts.push(format!("yours, so they stay: {}", edited.join(", ")));
    }
    if parts.is_empty() {
        parts.push("nothing to do".to_owned());
    }
    let would = if dry_run { "would be: " } else { "" };
    context.ui.line(format!("{}: {would}{}", dir.display(), parts.join(", ")))
}
