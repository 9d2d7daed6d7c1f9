//! `prun executors`: who can take units here, and who is held in which run.

use prun_core::answer::{ExecutorView, ExecutorsView};
use prun_core::gate::Login;
use prun_core::ids::ExecutorName;
use prun_core::supervise::Command;
use prun_core::view::VIEW_VERSION;
use prun_engine::executor::preflight;
use prun_engine::survey::facts;

use crate::context::{Context, Intent};
use crate::error::CliResult;
use crate::exit_code::ExitCode;
use crate::print::hold_lines;

/// List the executors, with version, slots, login and holds
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Let units start again on an executor that is held in a run
    #[arg(long, value_name = "NAME")]
    release: Option<ExecutorName>,
    /// The run in which it is released; the newest one of this repository by default
    #[arg(long, value_name = "RUN", requires = "release")]
    run: Option<String>,
    /// Print JSON
    #[arg(long, conflicts_with = "release")]
    json: bool,
}

pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    if let Some(executor) = args.release.clone() {
        let run = context.find_run(args.run.as_deref(), Intent::Change)?;
        let said = context.command(&run, &Command::Release { executor })?;
        context.ui.line(said)?;
        return Ok(ExitCode::Ok);
    }
    let registry = context.registry_here()?;
    let found = registry.iter().map(|executor| {
        let found = preflight::check(executor);
        let notes = found.notes.clone();
        (executor, facts(executor, found), notes)
    });
    if args.json {
        let executors = found.map(|(executor, found, _)| ExecutorView::of(&executor.name, &found)).collect();
        context.ui.json(&ExecutorsView { version: VIEW_VERSION, executors })?;
        return Ok(ExitCode::Ok);
    }
    for (executor, found, notes) in found {
        let mut parts = vec![executor.name.to_string()];
        parts.extend(found.version);
        parts.push(format!("{} slots", found.slots));
        match found.login {
            Login::LoggedIn => parts.push("logged in".to_owned()),
            Login::LoggedOut => parts.push("not logged in".to_owned()),
            Login::NotNeeded | Login::Unknown => {}
        }
        if let Some(problem) = found.problem {
            parts.push(problem.message);
            parts.extend(problem.hint.map(|hint| format!("({hint})")));
        }
        parts.extend(notes);
        context.ui.line(parts.join(" · "))?;
    }
    for run in context.driven_runs() {
        let mut view = run.view();
        view.past_holds.clear();
        view.paused = None;
        for line in hold_lines(&view) {
            context.ui.line(format!("{line} in run {}", run.card.run.short()))?;
        }
    }
    Ok(ExitCode::Ok)
}
