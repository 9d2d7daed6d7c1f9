//! `prun demo`: the whole walk on a small real repository, without an account.

use std::path::{Path, PathBuf};
use std::process::Command;

use prun_core::ids::Seq;
use prun_engine::git::Git;
use prun_engine::hooks::Wishes;
use prun_engine::landing::TrialOptions;
use prun_engine::survey::LoadedPlan;

use super::{integrate, reconcile, run};
use crate::context::{Context, Intent};
use crate::demo::{self, DemoExecutor};
use crate::error::{CliError, CliResult};
use crate::exit_code::ExitCode;
use crate::ui::Tone;

/// Walk through a whole run on a small real repository, without an account
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A directory of its own for the demo; a fresh temporary one by default
    dir: Option<PathBuf>,
    /// Who works on the units: scripts that come with the demo, or Codex
    #[arg(long, value_name = "scripts|codex", value_parser = parse_executor, default_value = "scripts")]
    executor: DemoExecutor,
}

fn parse_executor(text: &str) -> Result<DemoExecutor, String> {
    match text {
        "scripts" => Ok(DemoExecutor::Scripts),
        "codex" => Ok(DemoExecutor::Codex),
        _ => Err("scripts or codex".to_owned()),
    }
}

pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    let dir = match &args.dir {
        Some(dir) => context.cwd.join(dir),
        None => tempfile::Builder::new().prefix("prun-demo-").tempdir()?.keep(),
    };
    let demo = demo::write(&dir, args.executor).map_err(CliError::usage)?;
    step(context, &format!("A small program with five bugs is in {}. Its tests:", demo.repo.display()))?;
    run_tests(context, &demo.repo)?;

    step(context, "Six units at once: five repair a module each in a clone of their own, one reads.")?;
    let mut loaded = LoadedPlan::read(&demo.plan, &context.cwd)?;
    let id = run::start(context, &mut loaded, run::Twin::Refuse, &Wishes::default())?.run;
    let code = run::view(context, &id, Seq(0))?;
    let name = id.short();
    if code != ExitCode::Ok {
        context.ui.say(format!("Not every unit succeeded. To go on: prun status {name} · prun explain {name}/UNIT"));
        return Ok(code);
    }

    step(context, "May it be integrated? All changes together, tried and checked in a clean clone first:")?;
    let open = context.find_run(Some(id.as_str()), Intent::Look)?;
    let workshop = context.workshop(&id)?;
    let mut desk =
        integrate::open_desk(context, &workshop, &open).map_err(|error| integrate::failure(context, error, &open))?;
    let trial = desk.trial(&TrialOptions::default()).map_err(|error| integrate::failure(context, error, &open))?;
    reconcile::show(context.ui, trial.reconciliation(), name)?;
    integrate::show(context, &trial)?;
    let code = integrate::verdict(&trial.dry_run);
    if code != ExitCode::Ok {
        return Ok(code);
    }
    let tree = trial.dry_run.tree.clone().unwrap_or_default();
    integrate::land_tree(context, &mut desk, &trial, &tree, &open, false)?;

    step(context, "In the working tree now, uncommitted (git status --short), and its tests:")?;
    let git = Git::from_env();
    for line in git.command(["status", "--short"]).dir(&demo.repo).run()?.text().lines() {
        context.ui.line(format!("  {line}"))?;
    }
    run_tests(context, &demo.repo)?;
    step(context, "What to try next:")?;
    next_steps(context, &demo.repo, &demo.plan, name)?;
    Ok(ExitCode::Ok)
}

fn next_steps(context: &Context, repo: &Path, plan: &Path, name: &str) -> CliResult<()> {
    context.ui.line(format!("  cd {}", repo.display()))?;
    for (command, what) in [
        ("git diff; git commit -am 'Repair textstat'".to_owned(), "what landed is yours to review and commit"),
        (format!("prun explain {name}/top"), "how the unit that failed once came to its end"),
        (format!("prun result {name} --brief"), "what the workers answered"),
        (format!("prun undo {name}"), "the landing taken back"),
        (format!("$EDITOR {}", plan.display()), "the plan, to write your own"),
    ] {
        context.ui.line(format!("  {command:<44} {what}"))?;
    }
    Ok(())
}

/// On stdout with all the rest, so that the walk reads the same in a file.
fn step(context: &Context, text: &str) -> CliResult<()> {
    context.ui.line(format!("\n{}", context.ui.paint(text, Tone::Strong)))
}

/// Runs the repository's own tests and shows each one's verdict; a failing test is no failure of ours.
fn run_tests(context: &Context, repo: &Path) -> CliResult<()> {
    let output = Command::new("./run-tests").current_dir(repo).output();
    let output = output.map_err(|error| {
        CliError::new(ExitCode::Unexpected, format!("cannot run the tests in {}: {error}", repo.display()))
    })?;
    let text = String::from_utf8_lossy(&output.stdout);
    let is_verdict = |line: &str| ["ok ", "FAIL "].iter().any(|word| line.starts_with(word));
    for line in text.lines().filter(|line| is_verdict(line)) {
        context.ui.line(format!("  {line}"))?;
    }
    Ok(())
}
