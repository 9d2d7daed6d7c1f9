//! Plans, results and diffs as resources, for clients that show or attach them.

use prun_core::ids::UnitId;
use prun_engine::files::read_regular;
use prun_engine::runs;
use prun_engine::workspace::PatchOptions;
use rmcp::ErrorData;
use rmcp::model::{ReadResourceResult, Resource, ResourceContents, ResourceTemplate};

use super::answer::piece;
use super::shared::Shared;
use crate::commands::{diff, result};
use crate::context::{Intent, OpenRun};
use crate::error::{CliError, CliResult};

/// Runs that are listed: the newest ones of this repository.
const RUNS: usize = 3;

/// Resources that are listed of a run; more are to be had by their address.
const EACH: usize = 100;

/// Bytes of a resource that are shown: 1 MiB.
const MOST: usize = 1 << 20;

/// What can be read, by address.
pub(super) fn templates() -> Vec<ResourceTemplate> {
    let template = |path: &str, name: &str, what: &str, kind: &str| {
        ResourceTemplate::new(format!("prun://{path}"), name).with_description(what).with_mime_type(kind)
    };
    vec![
        template("{run}/plan", "plan", "The plan of a run, as it was accepted", "application/json"),
        template("{run}/{unit}/result", "result", "What a unit answered", "text/markdown"),
        template("{run}/{unit}/diff", "diff", "What a unit changed, as git says it", "text/x-diff"),
    ]
}

/// What the newest runs of this repository have.
pub(super) fn list(shared: &Shared) -> Vec<Resource> {
    let context = &shared.context;
    let here = context.repository();
    let cards = runs::list(&context.home);
    let ours = cards.iter().rev().filter(|card| here.is_none() || card.repo == here);
    // A damaged run must not hide the others.
    let open = ours.take(RUNS).filter_map(|card| context.find_run(Some(card.run.as_str()), Intent::Look).ok());
    open.flat_map(|run| of_run(&run)).collect()
}

fn of_run(run: &OpenRun) -> Vec<Resource> {
    let name = run.card.run.short();
    let resource = |path: String, kind: &str| Resource::new(format!("prun://{path}"), path).with_mime_type(kind);
    let mut found = vec![resource(format!("{name}/plan"), "application/json").with_description(run.card.title.clone())];
    for unit in &run.state.units {
        let Some(facts) = unit.facts() else { continue };
        let id = &unit.setup.id;
        found.extend(facts.result.as_ref().map(|_| resource(format!("{name}/{id}/result"), "text/markdown")));
        let changed = facts.changes.as_ref().is_some_and(|changes| !changes.is_empty());
        found.extend(changed.then(|| resource(format!("{name}/{id}/diff"), "text/x-diff")));
    }
    found.truncate(EACH);
    found
}

/// Reads one.
///
/// # Errors
/// There is no such resource, or it cannot be read.
pub(super) fn read(shared: &Shared, uri: &str) -> Result<ReadResourceResult, ErrorData> {
    let missing = || ErrorData::resource_not_found(format!("there is no resource {uri}"), None);
    let path = uri.strip_prefix("prun://").ok_or_else(missing)?;
    let parts: Vec<&str> = path.split('/').collect();
    let (text, kind) = match parts[..] {
        [run, "plan"] => (plan(shared, run), "application/json"),
        [run, unit, "result"] => (unit_text(shared, run, unit, result_of), "text/markdown"),
        [run, unit, "diff"] => (unit_text(shared, run, unit, diff_of), "text/x-diff"),
        _ => return Err(missing()),
    };
    let text = text.map_err(|error| ErrorData::resource_not_found(error.message, None))?;
    Ok(ReadResourceResult::new(vec![ResourceContents::text(text, uri).with_mime_type(kind)]))
}

fn plan(shared: &Shared, run: &str) -> CliResult<String> {
    let run = shared.context.find_run(Some(run), Intent::Look)?;
    let path = run.dir.plan();
    let fail = |error| CliError::usage(format!("cannot read {}: {error}", path.display()));
    Ok(cut(&String::from_utf8_lossy(&read_regular(&path, 64 << 20).map_err(fail)?)))
}

fn unit_text(
    shared: &Shared,
    run: &str,
    unit: &str,
    read: fn(&Shared, &OpenRun, &UnitId) -> CliResult<String>,
) -> CliResult<String> {
    let (run, unit) = shared.unit(Some(run), unit, Intent::Look)?;
    read(shared, &run, &unit)
}

fn result_of(_: &Shared, run: &OpenRun, unit: &UnitId) -> CliResult<String> {
    let (view, _) = result::read(run, unit, MOST as u64)?;
    let more = if view.cut { format!("\n(cut; all of it: {})\n", view.path) } else { String::new() };
    Ok(view.text + &more)
}

fn diff_of(shared: &Shared, run: &OpenRun, unit: &UnitId) -> CliResult<String> {
    let patch = diff::patch_of(&shared.context, run, unit, &PatchOptions::default())?;
    Ok(cut(&String::from_utf8_lossy(&patch)))
}

fn cut(text: &str) -> String {
    match piece(text, 0, MOST) {
        (whole, None) => whole.to_owned(),
        (begin, Some(_)) => format!("{begin}(cut at {MOST} bytes of {})\n", text.len()),
    }
}
