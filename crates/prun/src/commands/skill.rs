//! `prun skill`: puts the agent skill where a client finds it, or takes it out again.

use std::path::{Path, PathBuf};

use prun_core::digest::counted;

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

/// Where.
#[derive(Debug, clap::Args)]
struct Place {
    /// For Claude Code; without --claude and --codex, for both
    #[arg(long)]
    claude: bool,
    /// For Codex
    #[arg(long)]
    codex: bool,
    /// In the repository of the current directory
    #[arg(long, conflicts_with = "user")]
    project: bool,
    /// In your home directory, the default
    #[arg(long)]
    user: bool,
    /// Show what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
}

pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    match &args.act {
        Act::Install(place) => {
            let dirs = place.dirs(context)?;
            // All are looked at before one is written.
            for dir in &dirs {
                refuse_edited(dir, &skill::install(dir, true)?)?;
            }
            for dir in &dirs {
                tell(context, dir, &skill::install(dir, place.dry_run)?, place.dry_run)?;
            }
        }
        Act::Uninstall(place) => {
            for dir in place.dirs(context)? {
                tell(context, &dir, &skill::uninstall(&dir, place.dry_run)?, place.dry_run)?;
            }
        }
    }
    Ok(ExitCode::Ok)
}

impl Place {
    fn dirs(&self, context: &Context) -> CliResult<Vec<PathBuf>> {
        let root = if self.project {
            context.repository().ok_or_else(|| CliError::usage("there is no repository here").hint("use --user"))?
        } else {
            std::env::home_dir().ok_or_else(|| CliError::usage("HOME is not set"))?
        };
        let both = !self.claude && !self.codex;
        let claude_home = || std::env::var_os("CLAUDE_CONFIG_DIR").filter(|dir| !dir.is_empty() && !self.project);
        let mut dirs = Vec::new();
        if self.claude || both {
            let home = claude_home().map_or_else(|| root.join(".claude"), PathBuf::from);
            dirs.push(home.join("skills/prun"));
        }
        if self.codex || both {
            dirs.push(root.join(".agents/skills/prun"));
        }
        Ok(dirs)
    }
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
