//! `prun compare`: the members of a panel beside each other.

use prun_core::budget::usd;
use prun_core::comparison::{CompareView, MemberView, Text};
use prun_core::digest::{count, counted, duration};
use prun_core::event::Mode;
use prun_core::ids::UnitId;
use prun_core::panel::panels;
use prun_engine::clock::wall_now;
use prun_engine::executor::escape_line;
use prun_engine::workspace::PatchOptions;

use super::{diff, result};
use crate::context::{Context, Intent, OpenRun};
use crate::error::{CliError, CliResult};
use crate::exit_code::ExitCode;

/// Compare what the members of a panel answered and changed
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The panel, or one of its members, as UNIT or RUN/UNIT
    #[arg(value_name = "UNIT")]
    what: String,
    /// Leave results and patches out
    #[arg(long)]
    stat: bool,
    /// Show all of every result and patch, not the beginning
    #[arg(long, conflicts_with = "stat")]
    full: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// How much is shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Files.
    pub(crate) files: usize,
    /// Bytes of each member's result.
    pub(crate) result: usize,
    /// Bytes of each patch of one file.
    pub(crate) patch: usize,
    /// Bytes of all patches together.
    pub(crate) patches: usize,
}

impl Bounds {
    /// The table and the files alone.
    pub(crate) const STAT: Self = Self { files: 60, result: 0, patch: 0, patches: 0 };
    /// What one reads at a sitting.
    const USUAL: Self = Self { result: 4 << 10, patch: 4 << 10, patches: 32 << 10, ..Self::STAT };
    const FULL: Self = Self { files: usize::MAX, result: usize::MAX, patch: usize::MAX, patches: usize::MAX };
}

pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    let (run, panel) = find(context, &args.what)?;
    let bounds = match args {
        Args { stat: true, .. } => Bounds::STAT,
        Args { full: true, .. } => Bounds::FULL,
        _ => Bounds::USUAL,
    };
    let view = compare(context, &run, &panel, bounds)?;
    if args.json {
        context.ui.json(&view)?;
        return Ok(ExitCode::Ok);
    }
    for line in table(&view) {
        context.ui.line(line)?;
    }
    show_texts(context, &view)?;
    context.ui.line(next(&view))?;
    Ok(ExitCode::Ok)
}

/// The panel that `text` names, itself or by a member.
///
/// # Errors
/// No such run or panel.
pub(crate) fn find(context: &Context, text: &str) -> CliResult<(OpenRun, UnitId)> {
    let (part, name) = match text.split_once('/') {
        Some((part, name)) => (Some(part), name),
        None => (None, text),
    };
    let run = context.find_run(part, Intent::Look)?;
    context.warn_if_lost(&run);
    let name: UnitId = name.parse()?;
    let of_run = panels(&run.state.units);
    if of_run.iter().any(|panel| *panel.name == name) {
        return Ok((run, name));
    }
    if let Some(panel) = run.state.unit(&name).and_then(|unit| unit.setup.panel.clone()) {
        return Ok((run, panel));
    }
    let names: Vec<&str> = of_run.iter().take(20).map(|panel| panel.name.as_str()).collect();
    let hint = match names.as_slice() {
        [] => "a unit with `panel` or `samples` in the plan is one; this run has none".to_owned(),
        names => format!("its panels: {}", names.join(", ")),
    };
    Err(CliError::usage(format!("run {} has no panel {name}", run.card.run.short())).hint(hint))
}

/// The members beside each other, with as much of results and patches as `bounds` allow.
///
/// # Errors
/// A result cannot be read, or git fails.
pub(crate) fn compare(context: &Context, run: &OpenRun, name: &UnitId, bounds: Bounds) -> CliResult<CompareView> {
    let of_run = panels(&run.state.units);
    let panel = of_run.iter().find(|panel| panel.name == name).expect("it was found before");
    let mut view = CompareView::of(panel, run.card.run.short(), wall_now(), bounds.files);
    for (member, unit) in view.members.iter_mut().zip(&panel.members) {
        if bounds.result > 0 && unit.facts().is_some_and(|facts| facts.result.is_some()) {
            let (_, bytes) = result::read(run, &unit.setup.id, u64::MAX)?;
            member.result = Some(Text::beginning(&bytes, bounds.result));
        }
    }
    let mut room = bounds.patches;
    for row in &mut view.files {
        for change in &mut row.changes {
            let most = bounds.patch.min(room);
            if most == 0 {
                continue;
            }
            let options = PatchOptions { paths: vec![row.path.clone()], ..PatchOptions::default() };
            let patch = diff::patch_of(context, run, &change.unit.parse()?, &options)?;
            let text = Text::beginning(&patch, most);
            room -= text.text.len().min(room);
            change.patch = Some(text);
        }
    }
    Ok(view)
}

/// The members in columns, then the files that they changed.
pub(crate) fn table(view: &CompareView) -> Vec<String> {
    let chosen = view.chosen.as_ref().map_or_else(|| "none chosen".to_owned(), |unit| format!("{unit} is chosen"));
    let head = format!("{}/{} · {} beside each other · {chosen}", view.run, view.panel, view.members.len());
    let cells: Vec<[String; 9]> = view.members.iter().map(column).collect();
    let names = ["", "executor", "outcome", "check", "decision", "changes", "used", "attempts", "time"];
    let mut rows: Vec<Vec<String>> = names
        .iter()
        .enumerate()
        .map(|(at, name)| [(*name).to_owned()].into_iter().chain(cells.iter().map(|cell| cell[at].clone())).collect())
        .collect();
    rows.extend(view.files.iter().map(|row| {
        let of = |member: &MemberView| row.changes.iter().find(|change| change.unit == member.unit.unit);
        let cells = view.members.iter().map(|member| match of(member) {
            None => "-".to_owned(),
            Some(change) => lines_of(change.added, change.removed),
        });
        [escape_line(&row.path)].into_iter().chain(cells).collect()
    }));
    let mut lines = vec![head];
    lines.extend(aligned(&rows));
    if view.files_left_out > 0 {
        lines.push(format!("and {} more", counted(view.files_left_out, "file")));
    }
    lines.extend(alike(view));
    lines
}

/// What one member's column says: its name first.
fn column(member: &MemberView) -> [String; 9] {
    let MemberView { unit, model, check_passed, usage, .. } = member;
    let executor = unit.executor.clone().unwrap_or_else(|| "-".to_owned());
    let mut used = match usage.total_tokens() {
        0 => "-".to_owned(),
        tokens => format!("{} tok", count(tokens)),
    };
    used.extend(usage.cost_micro_usd.map(|money| format!(", {}", usd(money))));
    used.extend(
        usage.turns.map(|turns| format!(", {}", counted(usize::try_from(turns).unwrap_or(usize::MAX), "turn"))),
    );
    [
        unit.unit.clone(),
        escape_line(&model.as_ref().map_or(executor.clone(), |model| format!("{executor} ({model})"))),
        unit.outcome.clone().unwrap_or_else(|| unit.state.clone()),
        match check_passed {
            None => "-",
            Some(true) => "passed",
            Some(false) => "failed",
        }
        .to_owned(),
        unit.disposition.clone(),
        match (member.tree.is_some(), unit.files) {
            (false, _) => "-".to_owned(),
            (true, files) => format!("{} +{} -{}", counted(files, "file"), unit.added, unit.removed),
        },
        used,
        unit.attempt.to_string(),
        duration(unit.millis),
    ]
}

fn lines_of(added: Option<u64>, removed: Option<u64>) -> String {
    match (added, removed) {
        (Some(added), Some(removed)) => format!("+{added} -{removed}"),
        _ => "binary".to_owned(),
    }
}

/// Pads each column to its longest cell.
fn aligned(rows: &[Vec<String>]) -> Vec<String> {
    let wide = |text: &String| text.chars().count();
    let width = |at: usize| rows.iter().filter_map(|row| row.get(at)).map(wide).max().unwrap_or(0);
    let widths: Vec<usize> = (0..rows.first().map_or(0, Vec::len)).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// Members that made the same tree: there is nothing to choose between them.
fn alike(view: &CompareView) -> Vec<String> {
    let mut told = Vec::new();
    for (at, member) in view.members.iter().enumerate() {
        let Some(tree) = &member.tree else { continue };
        let first = view.members[..at].iter().find(|other| other.tree.as_ref() == Some(tree) && other.unit.files > 0);
        told.extend(first.map(|first| format!("{} changed the same as {}", member.unit.unit, first.unit.unit)));
    }
    told
}

fn show_texts(context: &Context, view: &CompareView) -> CliResult<()> {
    for member in &view.members {
        let Some(result) = &member.result else { continue };
        let salvaged = if member.unit.salvaged { " (salvaged from the output)" } else { "" };
        context.ui.line(format!("\n── result of {}{salvaged}", member.unit.unit))?;
        show_text(context, result)?;
    }
    for row in &view.files {
        for change in &row.changes {
            let Some(patch) = &change.patch else { continue };
            let file = escape_line(&row.path);
            context.ui.line(format!("\n── {file} by {} {}", change.unit, lines_of(change.added, change.removed)))?;
            show_text(context, patch)?;
        }
    }
    let is_without = |row: &prun_core::comparison::FileRow| row.changes.iter().any(|change| change.patch.is_none());
    let without = view.files.iter().filter(|row| is_without(row)).count();
    let has_texts = view.files.iter().flat_map(|row| &row.changes).any(|change| change.patch.is_some());
    if has_texts && without > 0 {
        context.ui.line(format!("\n(no room for {}: --full)", counted(without, "more file")))?;
    }
    context.ui.line("")
}

fn show_text(context: &Context, text: &Text) -> CliResult<()> {
    context.ui.foreign(text.text.as_bytes())?;
    if !text.text.ends_with('\n') {
        context.ui.line("")?;
    }
    if text.cut {
        context.ui.line(format!("(the beginning of {} bytes: --full)", text.bytes))?;
    }
    Ok(())
}

/// What can be done now.
fn next(view: &CompareView) -> String {
    let run = &view.run;
    let is_reading = view.members.iter().all(|member| member.unit.mode == Mode::Read);
    match &view.chosen {
        Some(unit) => format!("{unit} lands · next: prun reconcile {run}"),
        None if is_reading => format!("they change nothing · the whole of one: prun result {run}/{}-…", view.panel),
        None => {
            let choices = view.members.iter().map(|member| format!("prun accept {run}/{} -m WHY", member.unit.unit));
            format!("choose: {}", choices.collect::<Vec<_>>().join(" · "))
        }
    }
}
