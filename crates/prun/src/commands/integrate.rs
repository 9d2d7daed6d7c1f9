//! `prun integrate`: lands all units together in the user's working tree, uncommitted, or nothing.

use std::collections::BTreeSet;

use prun_core::answer::{LandedView, OfRun};
use prun_core::digest::{counted, duration};
use prun_core::outcome::CheckFacts;
use prun_core::view::VIEW_VERSION;
use prun_engine::driver::DriverError;
use prun_engine::executor::escape_line;
use prun_engine::integrate::overlap::{Edit, OverlapKind, Party};
use prun_engine::integrate::{DryRun, add_lines};
use prun_engine::landing::{Desk, LandingError, Outcome, Trial, TrialOptions};
use prun_engine::workshop::Workshop;

use super::reconcile;
use crate::context::{Context, Intent, OpenRun};
use crate::error::{CliError, CliResult};
use crate::exit_code::ExitCode;
use crate::ui::Tone;

/// Land all units together in the working tree, uncommitted
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The run; the newest one of this repository by default
    run: Option<String>,
    /// Show what would land, and change nothing
    #[arg(long, group = "act")]
    dry_run: bool,
    /// Land this tree, as a dry run showed it, or nothing
    #[arg(long, value_name = "ID", group = "act")]
    tree: Option<String>,
    /// Make a merge workspace outside the repository for what is at odds, and print its path
    #[arg(long, group = "act")]
    resolve: bool,
    /// Finish a landing that was cut off, or take what was resolved
    #[arg(long = "continue")]
    continues: bool,
    /// Drop the merge workspace
    #[arg(long, group = "act")]
    abort: bool,
    /// Land only this unit, whatever the others are; repeatable
    #[arg(long, value_name = "UNIT", conflicts_with_all = ["continues", "abort"])]
    only: Vec<String>,
    /// Take a reported overlap as it was combined; repeatable
    #[arg(long, value_name = "PATH")]
    accept_overlap: Vec<String>,
    /// Leave the plan's check out; it is recorded
    #[arg(long)]
    no_verify: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    // Whoever only looks sees which run was taken before anything lands.
    let intent = if args.dry_run { Intent::Look } else { Intent::Change };
    let run = context.find_run(args.run.as_deref(), intent)?;
    context.warn_if_lost(&run);
    let workshop = context.workshop(&run.card.run)?;
    let mut desk = open_desk(context, &workshop, &run).map_err(|error| failure(context, error, &run))?;
    if args.abort {
        desk.abort().map_err(|error| failure(context, error, &run))?;
        context.ui.line("the merge workspace is dropped; nothing else was changed")?;
        return Ok(ExitCode::Ok);
    }
    if args.continues && desk.is_cut_off().map_err(|error| failure(context, error, &run))? {
        return go_on(context, &mut desk, &run);
    }
    let accepted: BTreeSet<String> = args.accept_overlap.iter().cloned().collect();
    let only = run.units(&args.only)?.into_iter().collect();
    let options = TrialOptions { accepted, only, no_verify: args.no_verify || args.resolve, resolved: args.continues };
    let trial = desk.trial(&options).map_err(|error| failure(context, error, &run))?;
    let lands = !args.dry_run && !args.resolve && verdict(&trial.dry_run) == ExitCode::Ok;
    if !args.json {
        show(context, &trial)?;
    } else if !lands {
        context.ui.json(&OfRun::new(run.card.run.short(), &trial.dry_run))?;
    }
    if args.resolve {
        return resolve(context, &desk, trial, &run);
    }
    if args.dry_run {
        return Ok(verdict(&trial.dry_run));
    }
    match verdict(&trial.dry_run) {
        ExitCode::Ok => land(context, &mut desk, &trial, args, &run),
        ExitCode::VerifyFailed => {
            Err(CliError::new(ExitCode::VerifyFailed, "the check failed on the combination; nothing was changed")
                .hint("the log is named above; --no-verify lands all the same, and is recorded"))
        }
        code => Err(CliError::new(code, "conflicts or overlaps stand in the way; nothing was changed")
            .hint(format!("by hand: prun integrate {} --resolve", run.card.run.short()))
            .hint("or exclude a unit, or retry one with the other's change in its prompt")
            .hint("an overlap that was combined is taken by --accept-overlap PATH")),
    }
}

/// Takes the run's lock for a landing, or to take one back.
///
/// # Errors
/// The run is under way, or its ledger cannot be read.
pub(crate) fn open_desk<'a>(
    context: &Context,
    workshop: &'a Workshop,
    run: &OpenRun,
) -> Result<Desk<'a>, LandingError> {
    let is_driven = |error: &LandingError| matches!(error, LandingError::Driver(DriverError::Driven(_)));
    context.once_left(run, is_driven, || Desk::open(workshop))
}

/// The exit code that a dry run stands for.
pub(crate) fn verdict(dry_run: &DryRun) -> ExitCode {
    if dry_run.verify.as_ref().is_some_and(|verify| !verify.combination.ok) {
        ExitCode::VerifyFailed
    } else if dry_run.ready {
        ExitCode::Ok
    } else {
        ExitCode::Conflicts
    }
}

fn land(context: &Context, desk: &mut Desk<'_>, trial: &Trial, args: &Args, run: &OpenRun) -> CliResult {
    let name = run.card.run.short();
    let tree = trial.dry_run.tree.clone().unwrap_or_default();
    let shown = match &args.tree {
        Some(tree) => tree.clone(),
        None if context.ui.can_ask() => {
            let answer = context.ui.ask("Land this in your working tree, uncommitted? [y/N]").unwrap_or_default();
            if !["y", "yes"].contains(&answer.to_ascii_lowercase().as_str()) {
                return Err(CliError::new(ExitCode::NotReady, "not landed; nothing was changed"));
            }
            tree
        }
        None => {
            let message = "nothing was changed: off a terminal the tree of a dry run has to be named";
            let short = tree.get(..12).unwrap_or(&tree);
            let continues = if args.continues { " --continue" } else { "" };
            let only: String = args.only.iter().map(|unit| format!(" --only {unit}")).collect();
            let hint = format!("for the user: prun integrate {name}{continues}{only} --tree {short}");
            return Err(CliError::new(ExitCode::NotReady, message).hint(hint));
        }
    };
    land_tree(context, desk, trial, &shown, run, args.json)
}

/// Lands the tree that was shown, and says what is the user's to do now, as JSON if wanted.
///
/// # Errors
/// It is not that tree any more, or the working tree is not as it was.
pub(crate) fn land_tree(
    context: &Context,
    desk: &mut Desk<'_>,
    trial: &Trial,
    shown: &str,
    run: &OpenRun,
    json: bool,
) -> CliResult {
    desk.land(trial, shown).map_err(|error| failure(context, error, run))?;
    let landed = landed(&trial.dry_run, run);
    if json {
        context.ui.json(&landed)?;
        return Ok(ExitCode::Ok);
    }
    for line in landed_lines(&landed) {
        context.ui.line(line)?;
    }
    Ok(ExitCode::Ok)
}

/// A landing as data, once it is done.
pub(crate) fn landed(dry_run: &DryRun, run: &OpenRun) -> LandedView {
    let name = run.card.run.short();
    let (theirs, also_yours) = add_lines(&dry_run.files);
    LandedView {
        version: VIEW_VERSION,
        run: name.to_owned(),
        tree: dry_run.tree.clone().unwrap_or_default(),
        files: dry_run.files.len(),
        add: theirs.into_iter().collect(),
        add_also_yours: also_yours.into_iter().collect(),
        undo: format!("prun undo {name}"),
    }
}

/// What is the user's to do after a landing, in lines.
pub(crate) fn landed_lines(landed: &LandedView) -> Vec<String> {
    let mut lines = vec![format!("landed, uncommitted; HEAD and index untouched · undo: {}", landed.undo)];
    lines.extend(landed.add.iter().map(|line| format!("yours to review and commit:  {}", escape_line(line))));
    let also_yours = landed.add_also_yours.iter();
    lines.extend(also_yours.map(|line| format!("these also hold your own edits:  {}", escape_line(line))));
    lines
}

fn resolve(context: &Context, desk: &Desk<'_>, trial: Trial, run: &OpenRun) -> CliResult {
    let resolution = desk.resolve(trial).map_err(|error| failure(context, error, run))?;
    let name = run.card.run.short();
    context.ui.line(resolution.dir.display().to_string())?;
    context.ui.say(format!("resolve there: {}", resolution.conflicts.join(", ")));
    context.ui.say(format!("then: prun integrate {name} --continue · or drop it: prun integrate {name} --abort"));
    Ok(ExitCode::Ok)
}

fn go_on(context: &Context, desk: &mut Desk<'_>, run: &OpenRun) -> CliResult {
    match desk.go_on().map_err(|error| failure(context, error, run))? {
        Outcome::Landed(landed) => {
            let name = run.card.run.short();
            context.ui.line(format!(
                "landed, uncommitted: {} · undo: prun undo {name}",
                counted(landed.paths.len(), "file")
            ))?;
        }
        Outcome::TakenBack => context.ui.line("taken back; the working tree is as it was before")?,
    }
    Ok(ExitCode::Ok)
}

/// Prints what would land.
///
/// # Errors
/// Stdout is gone.
pub(crate) fn show(context: &Context, trial: &Trial) -> CliResult<()> {
    let ui = context.ui;
    for (line, tone) in lines(&trial.dry_run) {
        ui.line(tone.map_or(line.clone(), |tone| ui.paint(&line, tone)))?;
    }
    Ok(())
}

/// What would land, in lines: files, what overlaps or conflicts, and the sum.
pub(crate) fn lines(dry_run: &DryRun) -> Vec<(String, Option<Tone>)> {
    let mut lines = Vec::new();
    for file in &dry_run.files {
        let units: Vec<&str> = file.units.iter().map(prun_core::ids::UnitId::as_str).collect();
        let yours = if file.also_yours { "  (also your own edits)" } else { "" };
        let sparse = if file.outside_sparse { "  (outside your sparse checkout)" } else { "" };
        lines.push((format!("  {}  {}{yours}{sparse}", escape_line(&file.path), units.join(", ")), None));
    }
    for overlap in &dry_run.overlaps {
        let (word, tone) = if overlap.blocks { ("OVERLAP", Tone::Bad) } else { ("overlap", Tone::Dim) };
        let (path, who) = (escape_line(&overlap.path), parties(&overlap.parties));
        let line = format!("{word} {path}  {who}: {}{}", words(overlap.kind), edits(&overlap.edits));
        lines.push((line, Some(tone)));
    }
    for conflict in &dry_run.conflicts {
        let regions: Vec<String> = conflict.regions.iter().map(|region| format!("line {}", region.line)).collect();
        let at = if regions.is_empty() { String::new() } else { format!(" ({})", regions.join(", ")) };
        let line =
            format!("CONFLICT {}  {}: {}{at}", escape_line(&conflict.path), parties(&conflict.parties), conflict.why);
        lines.push((line, Some(Tone::Bad)));
    }
    lines.push((summary(dry_run), None));
    lines
}

fn summary(dry_run: &DryRun) -> String {
    let mut parts = vec![if dry_run.ready { "ready" } else { "not ready" }.to_owned()];
    if let Some(tree) = &dry_run.tree {
        parts.push(format!("tree {}", tree.get(..12).unwrap_or(tree)));
    }
    parts.push(format!("{} +{} -{}", counted(dry_run.files.len(), "file"), dry_run.added, dry_run.removed));
    match &dry_run.verify {
        None => parts.push("not verified".to_owned()),
        Some(verify) => {
            let base = verify.base.as_ref().map_or("not run", |base| if base.ok { "ok" } else { "failed" });
            parts.push(format!("verify {} (base {base})", check(&verify.combination)));
        }
    }
    parts.push(counted(dry_run.conflicts.len(), "conflict"));
    parts.join(" · ")
}

fn check(check: &CheckFacts) -> String {
    if check.ok {
        return format!("ok after {}", duration(check.millis));
    }
    let how = if check.timed_out { "timed out" } else { "failed" };
    format!("{how}, log {}", check.log)
}

/// Where the first edits are, each with whose it is.
fn edits(edits: &[Edit]) -> String {
    const SHOWN: usize = 6;
    let range = |edit: &Edit| match edit.lines {
        0 => format!("after {}", edit.line),
        1 => format!("{}", edit.line),
        lines => format!("{}-{}", edit.line, u64::from(edit.line) + u64::from(lines) - 1),
    };
    let shown: Vec<String> =
        edits.iter().take(SHOWN).map(|edit| format!("{} {}", range(edit), parties(&edit.parties))).collect();
    let more = if edits.len() > SHOWN { ", …" } else { "" };
    if shown.is_empty() { String::new() } else { format!(" (lines {}{more})", shown.join(", ")) }
}

fn words(kind: OverlapKind) -> &'static str {
    match kind {
        OverlapKind::Same => "make the same change",
        OverlapKind::Content => "change different lines",
        OverlapKind::ModeAgainstContent => "one changes the mode, another the content",
        OverlapKind::EditDelete => "one deletes or renames what another edits",
        OverlapKind::EditAcrossRename => "an edit was carried here across a rename",
        OverlapKind::DriverNotRun => "a merge driver of yours is named for it, and was not run",
    }
}

fn parties(parties: &[Party]) -> String {
    let name = |party: &Party| match party {
        Party::You => "your working tree".to_owned(),
        Party::Unit(unit) => unit.to_string(),
    };
    parties.iter().map(name).collect::<Vec<_>>().join(" and ")
}

/// What a failed landing means for the command line.
pub(crate) fn failure(context: &Context, error: LandingError, run: &OpenRun) -> CliError {
    if let LandingError::NotReconciled(found) = &error {
        // A closed stdout must not hide the refusal.
        let _ = reconcile::show(context.ui, found, run.card.run.short());
    }
    refusal(error, run)
}

/// The same, without a word on the units that block.
pub(crate) fn refusal(error: LandingError, run: &OpenRun) -> CliError {
    let name = run.card.run.short();
    match error {
        LandingError::NotReconciled(_) => {
            CliError::new(ExitCode::NotReady, format!("run {name} is not ready to be integrated; nothing was changed"))
                .hint("retry, accept or exclude the units that block, or name those that are to land: --only UNIT")
        }
        LandingError::CutOff(_) => CliError::new(ExitCode::NotReady, format!("{error}; nothing else was changed"))
            .hint(format!("`prun integrate {name} --continue` finishes it, `prun undo {name}` takes it back")),
        LandingError::NoRepository | LandingError::NothingToResolve => CliError::usage(error),
        LandingError::MergeStands(_) => CliError::usage(error).hint(format!(
            "`prun integrate {name} --continue` takes what lies there, `prun integrate {name} --abort` drops it"
        )),
        LandingError::MergeOutdated(_) => CliError::usage(error).hint(format!(
            "`prun integrate {name} --abort` drops it, `prun integrate {name} --resolve` makes one of the units as they are"
        )),
        LandingError::Bare(_) | LandingError::Source(_) => {
            CliError::usage(error).hint(format!("`prun diff {name}` shows what the units changed"))
        }
        LandingError::NoLanding(_) => CliError::new(ExitCode::NotReady, error),
        LandingError::VerifyFailed(_) => CliError::new(ExitCode::VerifyFailed, error),
        LandingError::Integrate(error) => error.into(),
        LandingError::Land(error) => error.into(),
        LandingError::Driver(DriverError::Driven(_)) => {
            CliError::new(ExitCode::NotReady, format!("run {name} is under way; nothing was changed"))
                .hint(format!("wait for its end: `prun wait {name}`"))
        }
        LandingError::Driver(error) => error.into(),
        LandingError::File(error) => error.into(),
    }
}
