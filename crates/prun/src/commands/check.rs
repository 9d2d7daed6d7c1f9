//! `prun check`: the gate. Every problem at once, and nothing is started.

use std::path::PathBuf;

use prun_core::answer::CheckView;
use prun_core::digest::counted;
use prun_core::gate::{self, Gate, Warning};
use prun_core::plan::{Dirty, Problem};
use prun_engine::git::Git;
use prun_engine::survey::{LoadedPlan, Survey};

use crate::context::Context;
use crate::error::{CliError, CliResult};
use crate::exit_code::ExitCode;

/// Check a plan without starting anything
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The plan file; `-` reads it from stdin
    #[arg(value_name = "PLAN", default_value = "prun.toml")]
    plan: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    let mut loaded = LoadedPlan::read(&args.plan, &context.cwd);
    if args.json {
        let view = match &mut loaded {
            Ok(loaded) => examine(context, loaded)?.view(loaded),
            Err(error) => CheckView::unreadable(&error.problems),
        };
        context.ui.json(&view)?;
        return Ok(if view.ok { ExitCode::Ok } else { ExitCode::Usage });
    }
    let mut loaded = loaded?;
    let survey = pass(context, &mut loaded)?;
    context.ui.line(gate::summary(&loaded.plan, &survey.world))?;
    for line in gate::executor_lines(&loaded.plan, &survey.world) {
        context.ui.line(line)?;
    }
    if let Some((major, minor)) = survey.git_version {
        context.ui.line(format!("git {major}.{minor} · home {}", context.home.root().display()))?;
    }
    if let Some(line) = gate::guard_line(&loaded.plan, &survey.world) {
        context.ui.line(line)?;
    }
    Ok(ExitCode::Ok)
}

/// A plan beside the world.
#[derive(Debug)]
pub(crate) struct Examined {
    survey: Survey,
    problems: Vec<Problem>,
    warnings: Vec<Warning>,
}

impl Examined {
    /// What was found, as data.
    pub(crate) fn view(&self, loaded: &LoadedPlan) -> CheckView {
        CheckView::of(&loaded.plan, &self.survey.world, &self.problems, &self.warnings, &self.survey.notes)
    }

    /// The problems, as text that names the plan.
    pub(crate) fn problem_text(&self, name: &str) -> String {
        CliError::plan(name, &self.problems).message
    }

    /// Warnings, as lines that name the plan.
    pub(crate) fn warning_lines(&self, name: &str) -> Vec<String> {
        let line = |warning: &Warning| match warning.place {
            Some(place) => format!("{name}:{}:{}: {}", place.line, place.column, warning.message),
            None => warning.message.clone(),
        };
        self.warnings.iter().map(line).collect()
    }
}

/// Looks at the world and holds the plan against it; says nothing.
///
/// # Errors
/// The user's configuration cannot be used.
pub(crate) fn examine(context: &Context, loaded: &mut LoadedPlan) -> CliResult<Examined> {
    let registry = context.registry_for(loaded)?;
    let survey = Survey::take(loaded, &context.home, &Git::from_env(), &registry);
    Ok(judge(loaded, survey))
}

/// Looks at the world and passes the plan through the gate; warnings go to stderr.
///
/// # Errors
/// Every problem there is.
pub(crate) fn pass(context: &Context, loaded: &mut LoadedPlan) -> CliResult<Survey> {
    let examined = examine(context, loaded)?;
    tell(context, loaded, examined)
}

/// The same, but somebody at a terminal is asked what is to happen to uncommitted work.
///
/// # Errors
/// Every problem there is.
pub(crate) fn pass_or_ask(context: &Context, loaded: &mut LoadedPlan) -> CliResult<Survey> {
    let registry = context.registry_for(loaded)?;
    let survey = Survey::take(loaded, &context.home, &Git::from_env(), &registry);
    if gate::must_say_dirty(&loaded.plan, &survey.world) && context.ui.can_ask() {
        loaded.plan.dirty = ask_about(context, &survey);
    }
    tell(context, loaded, judge(loaded, survey))
}

fn judge(loaded: &LoadedPlan, survey: Survey) -> Examined {
    let Gate { mut problems, warnings } = gate::check(&loaded.plan, &survey.world);
    if !survey.problems.is_empty() && survey.source.is_none() {
        // The repository's own problem explains why there seems to be none.
        problems.retain(|problem| !problem.message.contains("no repository"));
    }
    problems.extend(survey.problems.iter().cloned());
    problems.sort_by_key(|problem| problem.place);
    Examined { survey, problems, warnings }
}

fn tell(context: &Context, loaded: &LoadedPlan, examined: Examined) -> CliResult<Survey> {
    for warning in examined.warning_lines(&loaded.name) {
        context.ui.warn(warning);
    }
    for note in &examined.survey.notes {
        context.ui.say(format!("note: {note}"));
    }
    let Examined { survey, problems, .. } = examined;
    if problems.is_empty() { Ok(survey) } else { Err(CliError::plan(&loaded.name, &problems)) }
}

fn ask_about(context: &Context, survey: &Survey) -> Option<Dirty> {
    let repo = survey.world.repo.as_ref()?;
    context.ui.say(format!("uncommitted work in {}:", counted(repo.dirty, "file")));
    for path in &repo.dirty_first {
        context.ui.say(format!("  {path}"));
    }
    let question = "Shall workers see it (i: include, g: ignore, anything else: stop)?";
    match context.ui.ask(question)?.as_str() {
        "i" | "include" => Some(Dirty::Include),
        "g" | "ignore" => Some(Dirty::Ignore),
        _ => None,
    }
}
