//! Tools that only look: status, results, logs, briefs, diffs, usage.

use std::fs::File;
use std::io::Read;

use prun_core::answer::{BriefView, DiffView};
use prun_core::digest::{count, counted, duration, header, of_the_run};
use prun_core::outcome::{ChangeKind, FileChange};
use prun_core::usage::{By, Sum, USAGE_VERSION};
use prun_core::view::{UnitView, VIEW_VERSION};
use prun_engine::files::FileError;
use prun_engine::workspace::PatchOptions;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::answer::{Answer, BODY, piece};
use super::super::call::Call;
use super::super::shared::Shared;
use super::{RunArgs, UnitArgs};
use crate::commands::compare::{self as comparisons, Bounds};
use crate::commands::{diff as changes, logs as tails, result as results, usage as usages};
use crate::context::Intent;
use crate::error::{CliError, CliResult};
use crate::print::unit_line;

/// Lines of a log where the call does not say.
const LINES: usize = 40;

/// Units that a status lists; beyond that, those that are fine are only counted.
const UNITS: usize = 60;

pub(super) fn status(shared: &Shared, args: &RunArgs, _: &Call) -> CliResult<Answer> {
    let run = shared.context.find_run(args.run.as_deref(), Intent::Look)?;
    let (view, name) = (run.view(), run.card.run.short());
    let is_plain = |outcome: Option<&str>, state: &str| outcome == Some("succeeded") || state == "queued";
    let (mut lines, mut left_out) = (vec![header(&view, name)], 0);
    let mut units = Vec::new();
    for unit in &view.units {
        if view.units.len() > UNITS && (units.len() >= UNITS || is_plain(unit.outcome.as_deref(), &unit.state)) {
            left_out += 1;
            continue;
        }
        lines.push(unit_line(unit, 0, None).0);
        units.push(of_unit(unit));
    }
    let header = lines[0].clone();
    let more = (left_out > 0).then(|| format!("and {left_out} more: prun status {name}"));
    lines.extend(more.clone());
    let of_the_run = of_the_run(&view, name);
    lines.extend(of_the_run.clone());
    let data = json!({
        "version": VIEW_VERSION, "run": name, "state": view.state, "header": header, "counts": view.counts, "next": view.next,
        "landed": view.landed, "repository_touched": view.repository_touched, "units": units, "left_out": left_out, "message": more,
        "attention": of_the_run,
    });
    Ok(Answer::new(lines.join("\n"), &data))
}

/// What the line of a unit says.
fn of_unit(unit: &UnitView) -> Value {
    let attempt = (unit.attempt > 1).then(|| format!("{}/{}", unit.attempt, unit.attempts_allowed));
    let disposition = (unit.disposition != "unreviewed").then_some(&unit.disposition);
    let succeeded = unit.outcome.as_deref() == Some("succeeded");
    json!({
        "unit": unit.unit, "state": unit.outcome.as_ref().unwrap_or(&unit.state), "handed_over": unit.handed_over,
        "quiet": unit.quiet, "attempt": attempt, "millis": unit.millis, "files": unit.files, "added": unit.added,
        "removed": unit.removed, "tokens": unit.tokens, "disposition": disposition,
        "why": if succeeded { None } else { unit.why.as_ref() },
        "conclusion": if succeeded { unit.conclusion.as_ref() } else { None },
    })
}

/// Whose result.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ResultArgs {
    /// Run id. Default: the newest run of this repository.
    run: Option<String>,
    /// Unit id. Left out: every unit in brief.
    unit: Option<String>,
}

pub(super) fn result(shared: &Shared, args: &ResultArgs, _: &Call) -> CliResult<Answer> {
    let Some(unit) = &args.unit else {
        let run = shared.context.find_run(args.run.as_deref(), Intent::Look)?;
        let view = BriefView::of(&run.view(), run.card.run.short());
        return Ok(Answer::new(results::brief_lines(&view).join("\n"), &view));
    };
    let (run, unit) = shared.unit(args.run.as_deref(), unit, Intent::Look)?;
    let (view, _) = results::read(&run, &unit, BODY as u64)?;
    let mut text = view.text.clone();
    if view.salvaged {
        text.insert_str(0, "(no result was delivered; this was salvaged from the output)\n");
    }
    if view.cut {
        text.push_str(&format!("\n(cut: the first {BODY} of {} bytes; all of it: {})", view.bytes, view.path));
    }
    Ok(Answer::new(text, &view))
}

/// Whose output, and how much.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct LogsArgs {
    /// Run id. Default: the newest run of this repository.
    run: Option<String>,
    /// Unit id.
    unit: String,
    /// Last lines to show. Default 40.
    #[schemars(range(min = 1, max = 400))]
    lines: Option<usize>,
    /// Attempt. Default: the last one.
    attempt: Option<u32>,
}

pub(super) fn logs(shared: &Shared, args: &LogsArgs, _: &Call) -> CliResult<Answer> {
    let (run, unit) = shared.unit(args.run.as_deref(), &args.unit, Intent::Look)?;
    let dir = tails::attempt_dir(&run, &unit, args.attempt)?;
    let tail = tails::tail_of(&run, &unit, &dir)?;
    let (begin, end) = tails::read_end(&tail, BODY as u64).map_err(FileError::at("read", &tail))?;
    let lines = args.lines.unwrap_or(LINES).clamp(1, 400);
    let shown = tails::last_lines(&end, lines);
    let is_cut = begin > 0 || shown.len() < end.len();
    let (text, path) = (String::from_utf8_lossy(shown).into_owned(), tail.display().to_string());
    let data = json!({
        "version": VIEW_VERSION, "run": run.card.run.short(), "unit": unit, "path": path, "text": text, "cut": is_cut,
    });
    let shown = if is_cut { format!("{text}\n(the end; all of it: {path})") } else { text };
    Ok(Answer::new(shown, &data))
}

pub(super) fn brief(shared: &Shared, args: &UnitArgs, _: &Call) -> CliResult<Answer> {
    let (run, unit) = shared.unit(args.run.as_deref(), &args.unit, Intent::Look)?;
    let path = run.last_attempt(&unit)?.prompt();
    let mut bytes = Vec::new();
    let file = File::open(&path).map_err(FileError::at("open", &path))?;
    file.take(BODY as u64 + 1).read_to_end(&mut bytes).map_err(FileError::at("read", &path))?;
    let is_cut = bytes.len() > BODY;
    bytes.truncate(BODY);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let path = path.display().to_string();
    let data = json!({
        "version": VIEW_VERSION, "run": run.card.run.short(), "unit": unit, "path": path, "text": text, "cut": is_cut,
    });
    let shown = if is_cut { format!("{text}\n(cut; all of it: {path})") } else { text };
    Ok(Answer::new(shown, &data))
}

/// Whose changes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DiffArgs {
    /// Run id. Default: the newest run of this repository.
    run: Option<String>,
    /// Unit id. Left out: every unit.
    unit: Option<String>,
    /// A path that the unit changed: shows its patch.
    file: Option<String>,
    /// Where in the patch to go on.
    offset: Option<usize>,
}

pub(super) fn diff(shared: &Shared, args: &DiffArgs, _: &Call) -> CliResult<Answer> {
    let Some(unit) = &args.unit else {
        if args.file.is_some() {
            return Err(CliError::usage("a file's patch is a unit's").hint("give the unit too"));
        }
        let run = shared.context.find_run(args.run.as_deref(), Intent::Look)?;
        return Ok(stat(&changes::view(&run, None)?));
    };
    let (run, unit) = shared.unit(args.run.as_deref(), unit, Intent::Look)?;
    let view = changes::view(&run, Some(&unit))?;
    let Some(file) = &args.file else { return Ok(stat(&view)) };
    if !view.units.iter().flat_map(|unit| &unit.files).any(|known| known.path == *file) {
        let hint = "diff without file lists what it changed";
        return Err(CliError::usage(format!("{unit} did not change {file}")).hint(hint));
    }
    let options = PatchOptions { paths: vec![file.clone()], ..PatchOptions::default() };
    let patch = changes::patch_of(&shared.context, &run, &unit, &options)?;
    let patch = String::from_utf8_lossy(&patch);
    let (shown, next) = piece(&patch, args.offset.unwrap_or(0), BODY);
    let data = json!({
        "version": VIEW_VERSION, "run": run.card.run.short(), "unit": unit, "file": file, "patch": shown,
        "bytes": patch.len(), "next_offset": next,
    });
    let more = next.map(|next| format!("(goes on at offset {next} of {} bytes)\n", patch.len())).unwrap_or_default();
    Ok(Answer::new(format!("{shown}{more}"), &data))
}

/// Files that one answer lists.
const FILES: usize = 200;

fn stat(view: &DiffView) -> Answer {
    let (mut lines, mut left, mut left_out) = (Vec::new(), FILES, 0);
    let mut listed = view.clone();
    for unit in &mut listed.units {
        let (added, removed) = unit.files.iter().fold((0, 0), |(added, removed), file| {
            (added + file.added.unwrap_or(0), removed + file.removed.unwrap_or(0))
        });
        lines.push(format!("{}  {} +{added} -{removed}", unit.unit, counted(unit.files.len(), "file")));
        left_out += unit.files.len().saturating_sub(left);
        unit.files.truncate(left);
        left -= unit.files.len();
        for file in &unit.files {
            let lines_of = |count: Option<u64>| count.map_or_else(|| "binary".to_owned(), |count| count.to_string());
            lines.push(format!("  {}  +{} -{}", file.path, lines_of(file.added), lines_of(file.removed)));
        }
    }
    let more = (left_out > 0)
        .then(|| format!("and {left_out} more files: ask unit by unit, or prun diff {} --stat", view.run));
    let none = listed.units.is_empty().then(|| "no unit changed anything".to_owned());
    let message = more.or(none);
    lines.extend(message.clone());
    let units: Vec<Value> = listed
        .units
        .iter()
        .map(|unit| json!({"unit": unit.unit, "files": unit.files.iter().map(file).collect::<Vec<_>>()}))
        .collect();
    let data =
        json!({"version": VIEW_VERSION, "run": view.run, "units": units, "left_out": left_out, "message": message});
    Answer::new(lines.join("\n"), &data)
}

/// A file that changed. That it was modified goes without saying.
fn file(change: &FileChange) -> Value {
    let kind = (change.kind != ChangeKind::Modified).then_some(change.kind);
    let is_binary = change.added.is_none();
    json!({"path": change.path, "kind": kind, "added": change.added, "removed": change.removed, "binary": is_binary})
}

pub(super) fn compare(shared: &Shared, args: &UnitArgs, _: &Call) -> CliResult<Answer> {
    let name = match &args.run {
        Some(run) if !args.unit.contains('/') => format!("{run}/{}", args.unit),
        _ => args.unit.clone(),
    };
    let (run, panel) = comparisons::find(&shared.context, &name)?;
    let view = comparisons::compare(&shared.context, &run, &panel, Bounds::STAT)?;
    Ok(Answer::new(comparisons::table(&view).join("\n"), &view))
}

pub(super) fn usage(shared: &Shared, args: &RunArgs, _: &Call) -> CliResult<Answer> {
    let run = shared.context.find_run(args.run.as_deref(), Intent::Look)?;
    let (view, name) = (run.view(), run.card.run.short());
    let by_executor = usages::of_run(&shared.context, run.card.run.as_str(), By::Executor)?;
    let mut by_unit = usages::of_run(&shared.context, run.card.run.as_str(), By::Unit)?.rows;
    let mut lines = vec![format!("{name} · {} tok · {}", count(view.tokens), duration(view.millis))];
    let line = |sum: &Sum| {
        let tokens = count(sum.usage.total_tokens());
        format!(
            "{}  {} · {tokens} tok",
            sum.name,
            counted(usize::try_from(sum.attempts).unwrap_or(usize::MAX), "attempt")
        )
    };
    lines.extend(by_executor.rows.iter().map(line));
    by_unit.retain(|unit| unit.usage.total_tokens() > 0);
    by_unit.sort_by_key(|unit| std::cmp::Reverse(unit.usage.total_tokens()));
    by_unit.truncate(UNITS);
    lines.extend(by_unit.iter().map(|unit| format!("  {}", line(unit))));
    let data = json!({
        "version": USAGE_VERSION, "run": name, "total": by_executor.total, "executors": by_executor.rows, "units": by_unit,
    });
    Ok(Answer::new(lines.join("\n"), &data))
}
