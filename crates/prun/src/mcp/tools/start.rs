//! `check` and `start`: a plan, by path or handed over as it is.

use std::path::{Path, PathBuf};

use prun_core::answer::CheckView;
use prun_core::plan::Dirty;
use prun_engine::survey::{LoadedPlan, PlanError};
use schemars::JsonSchema;
use serde::Deserialize;

use super::super::answer::Answer;
use super::super::call::Call;
use super::super::shared::Shared;
use crate::commands::check as gate;
use crate::commands::run::{self, Twin};
use crate::error::{CliError, CliResult};

/// A plan.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CheckArgs {
    /// Path of the plan file (TOML or JSON). Default: prun.toml.
    plan_file: Option<String>,
    /// The plan itself instead, as TOML or JSON text.
    plan: Option<String>,
    /// Directory that paths are relative to. Default: where the server was started.
    dir: Option<String>,
    /// What workers see of uncommitted work; must be said when there is any.
    dirty: Option<DirtyArg>,
}

/// What happens to uncommitted work.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum DirtyArg {
    Include,
    Ignore,
}

/// A plan to start.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct StartArgs {
    /// Path of the plan file (TOML or JSON). Default: prun.toml.
    plan_file: Option<String>,
    /// The plan itself instead, as TOML or JSON text.
    plan: Option<String>,
    /// Directory that paths are relative to. Default: where the server was started.
    dir: Option<String>,
    /// What workers see of uncommitted work; must be said when there is any.
    dirty: Option<DirtyArg>,
    /// Start although the same plan is under way.
    again: Option<bool>,
}

/// Reads the plan.
///
/// # Errors
/// Two plans are named. A plan with problems is the inner error.
fn load(shared: &Shared, args: &CheckArgs) -> CliResult<Result<LoadedPlan, PlanError>> {
    let cwd = &shared.context.cwd;
    let dir: PathBuf = args.dir.as_ref().map_or_else(|| cwd.clone(), |dir| cwd.join(dir));
    let mut loaded = match (&args.plan, &args.plan_file) {
        (Some(_), Some(_)) => return Err(CliError::usage("both plan and plan_file are given").hint("give one of them")),
        (Some(text), None) => LoadedPlan::from_text(text, "plan", &dir),
        (None, Some(file)) if file == "-" => return Err(CliError::usage("a server has no stdin to read a plan from")),
        (None, file) => LoadedPlan::read(Path::new(file.as_deref().unwrap_or("prun.toml")), &dir),
    };
    if let Ok(loaded) = &mut loaded {
        let dirty = args.dirty.map(|dirty| match dirty {
            DirtyArg::Include => Dirty::Include,
            DirtyArg::Ignore => Dirty::Ignore,
        });
        loaded.plan.dirty = dirty.or(loaded.plan.dirty);
    }
    Ok(loaded)
}

pub(super) fn check(shared: &Shared, args: &CheckArgs, _: &Call) -> CliResult<Answer> {
    let mut loaded = match load(shared, args)? {
        Ok(loaded) => loaded,
        Err(error) => {
            let text = CliError::plan(&error.name, &error.problems).message;
            return Ok(Answer::new(text, &CheckView::unreadable(&error.problems)).failed());
        }
    };
    let examined = gate::examine(&shared.context, &mut loaded)?;
    let view = examined.view(&loaded);
    let mut lines: Vec<String> =
        examined.warning_lines(&loaded.name).iter().map(|line| format!("warn {line}")).collect();
    lines.extend(view.notes.iter().map(|note| format!("note {note}")));
    match &view.summary {
        Some(summary) => {
            lines.insert(0, summary.clone());
            Ok(Answer::new(lines.join("\n"), &view))
        }
        None => {
            lines.insert(0, examined.problem_text(&loaded.name));
            Ok(Answer::new(lines.join("\n"), &view).failed())
        }
    }
}

pub(super) fn start(shared: &Shared, args: &StartArgs, _: &Call) -> CliResult<Answer> {
    run::refuse_depth()?;
    let StartArgs { plan_file, plan, dir, dirty, again } = args.clone();
    let mut loaded = load(shared, &CheckArgs { plan_file, plan, dir, dirty })??;
    let twin = if again == Some(true) { Twin::StartAnother } else { Twin::Take };
    let wishes = shared.context.registry()?.wishes().clone();
    let started = run::start(&shared.context, &mut loaded, twin, &wishes)?;
    let view = started.view();
    let what = if view.existing { "is under way already" } else { "started" };
    Ok(Answer::new(format!("{} {what} · next: wait", view.run), &view))
}
