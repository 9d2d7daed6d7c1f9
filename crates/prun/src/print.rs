//! Events and units as lines for people. Pure: values in, text out.

use prun_core::digest::{count, counted, duration};
use prun_core::event::{Event, EventKind, RunEvent, UnitEvent};
use prun_core::explain::sentence;
use prun_core::outcome::Outcome;
use prun_core::time::Timestamp;
use prun_core::view::{HoldView, PastHoldView, RunView, UnitView};
use prun_engine::executor::escape_line;

use crate::ui::Tone;

/// A line about an event, for a log that somebody follows; `None` where it is of no interest there.
pub(crate) fn event_line(event: &Event) -> Option<(String, Tone)> {
    let (text, tone) = match &event.kind {
        EventKind::Unit { unit, attempt, event: kind } => {
            let (text, tone) = unit_event(attempt.0, kind)?;
            (format!("{unit}: {text}"), tone)
        }
        EventKind::Run(kind) => run_event(kind)?,
        EventKind::Unknown { name, .. } => (format!("an event of a later version of prun: {name}"), Tone::Dim),
    };
    Some((format!("{} {}", clock(event.at), escape_line(&text)), tone))
}

fn unit_event(attempt: u32, event: &UnitEvent) -> Option<(String, Tone)> {
    let tone = match event {
        UnitEvent::WorkspaceReady { .. } | UnitEvent::ProcessExited { .. } | UnitEvent::StartFailed { .. } => {
            return None;
        }
        UnitEvent::ProcessStarted { .. } => return Some((format!("running (attempt {attempt})"), Tone::Dim)),
        UnitEvent::AttemptBegan { executor, .. } => {
            return Some((format!("preparing on {executor} (attempt {attempt})"), Tone::Dim));
        }
        UnitEvent::UnitSettled { outcome, why, .. } => {
            let tone = if *outcome == Outcome::Succeeded { Tone::Good } else { Tone::Bad };
            return Some((format!("{outcome}: {why}"), tone));
        }
        UnitEvent::RetryScheduled { .. } | UnitEvent::WentQuiet { .. } | UnitEvent::HandedOver => Tone::Warn,
        _ => Tone::Dim,
    };
    Some((sentence(attempt, event), tone))
}

fn run_event(event: &RunEvent) -> Option<(String, Tone)> {
    Some(match event {
        RunEvent::PlanAccepted(setup) => {
            (format!("{}, {} at once: {}", counted(setup.units.len(), "unit"), setup.jobs, setup.title), Tone::Strong)
        }
        RunEvent::SupervisorStarted { process, .. } => (format!("supervisor is process {}", process.pid), Tone::Dim),
        RunEvent::ExecutorHeld { executor, why, .. } => (format!("{executor} is held: {why}"), Tone::Warn),
        RunEvent::ExecutorReleased { executor } => (format!("{executor} is released"), Tone::Good),
        RunEvent::StartsPaused { why } => (format!("no unit starts for now: {why}"), Tone::Warn),
        RunEvent::StartsResumed => ("units start again".to_owned(), Tone::Dim),
        RunEvent::BudgetWarned { why, unit } | RunEvent::BudgetSpent { why, unit } => {
            let whose = unit.as_ref().map(|unit| format!("{unit}: ")).unwrap_or_default();
            (format!("{whose}budget: {why}"), Tone::Warn)
        }
        RunEvent::BudgetSet { .. } => ("the budget was set anew".to_owned(), Tone::Dim),
        RunEvent::RepositoryTouched { what } => {
            (format!("a worker touched the repository: {}", what.join("; ")), Tone::Bad)
        }
        RunEvent::RepositoryMoved { what } => (format!("the repository changed meanwhile: {what}"), Tone::Dim),
        RunEvent::RunStopRequested { .. } => ("the run is being stopped".to_owned(), Tone::Warn),
        RunEvent::RunEnded { cancelled: false } => ("the run has ended".to_owned(), Tone::Strong),
        RunEvent::RunEnded { cancelled: true } => ("the run was stopped".to_owned(), Tone::Warn),
        RunEvent::VerifyFinished { on_base, check, .. } => {
            let what = if *on_base { "the base" } else { "the combination" };
            let (word, tone) = if check.ok { ("passed", Tone::Good) } else { ("failed", Tone::Warn) };
            (format!("the check {word} on {what} after {}", duration(check.millis)), tone)
        }
        RunEvent::Landed { paths, .. } => {
            (format!("landed: {}, uncommitted", counted(paths.len(), "file")), Tone::Good)
        }
        RunEvent::Undone { .. } => ("the landing was taken back".to_owned(), Tone::Warn),
    })
}

/// A unit as one line of a table.
pub(crate) fn unit_line(unit: &UnitView, name_width: usize, activity: Option<&str>) -> (String, Tone) {
    let word = unit.outcome.clone().unwrap_or_else(|| {
        let flag = if unit.handed_over {
            " (handed over)"
        } else if unit.quiet {
            " (quiet)"
        } else {
            ""
        };
        format!("{}{flag}", unit.state)
    });
    let tone = match unit.outcome.as_deref() {
        Some("succeeded") => Tone::Good,
        Some(_) => Tone::Bad,
        None if unit.quiet || unit.handed_over => Tone::Warn,
        None if unit.state == "queued" => Tone::Dim,
        None => Tone::Strong,
    };
    let mut line = format!("{:<name_width$}  {word:<22} {:>6}", unit.unit, duration(unit.millis));
    if unit.attempt > 1 {
        line.push_str(&format!("  attempt {}/{}", unit.attempt, unit.attempts_allowed));
    }
    if unit.files > 0 {
        line.push_str(&format!("  {} +{} -{}", counted(unit.files, "file"), unit.added, unit.removed));
    }
    if unit.tokens > 0 {
        line.push_str(&format!("  {} tok", count(unit.tokens)));
    }
    if unit.disposition != "unreviewed" {
        line.push_str(&format!("  {}", unit.disposition));
    }
    let succeeded = unit.outcome.as_deref() == Some("succeeded");
    let last = if succeeded { unit.conclusion.as_deref() } else { unit.why.as_deref().or(activity) };
    if let Some(last) = last.filter(|last| !last.is_empty()) {
        line.push_str(&format!("  {}", escape_line(last)));
    }
    (line, tone)
}

/// What keeps units from starting: holds of executors, also past ones that were more than a pause, and a busy machine.
pub(crate) fn hold_lines(view: &RunView) -> Vec<String> {
    const PAUSE_MILLIS: u64 = 60_000;
    let minute = |at| clock(at).chars().take(5).collect::<String>();
    let past = view.past_holds.iter().filter(|hold| hold.ended.since(hold.since) >= PAUSE_MILLIS).map(|hold| {
        let PastHoldView { executor, cause, moved, .. } = hold;
        let times = format!("{}–{}", minute(hold.since), minute(hold.ended));
        let moved = if *moved == 0 { String::new() } else { format!(", {} moved on", counted(*moved, "unit")) };
        format!("held    {executor} {times} ({cause}){moved}")
    });
    let now = view.holds.iter().map(|hold| {
        let HoldView { executor, cause, .. } = hold;
        let until = hold.until.map_or_else(|| "until it is released".to_owned(), |at| format!("until {}", minute(at)));
        let stuck = match hold.stuck {
            0 => String::new(),
            1 => ", 1 unit waits for it".to_owned(),
            more => format!(", {more} units wait for it"),
        };
        format!("held    {executor} since {} {until} ({cause}){stuck}", minute(hold.since))
    });
    let paused = view.paused.iter().map(|why| format!("paused  no unit starts for now: {why}"));
    past.chain(now).chain(paused).collect()
}

/// The wall clock in local time: `15:04:05`.
pub(crate) fn clock(at: Timestamp) -> String {
    local(at).map_or_else(|| "--:--:--".to_owned(), |time| time.strftime("%H:%M:%S").to_string())
}

/// A day and a time in local time: `2026-11-30 15:04`.
pub(crate) fn date(at: Timestamp) -> String {
    local(at).map_or_else(|| "-".to_owned(), |time| time.strftime("%Y-%m-%d %H:%M").to_string())
}

fn local(at: Timestamp) -> Option<jiff::ZonedDateTime> {
    let time = jiff::Timestamp::from_millisecond(at.0).ok()?;
    Some(time.to_zoned_datetime(jiff::tz::TimeZone::system()))
}

/// Cuts a line to a terminal's width, in characters.
pub(crate) fn fit(line: &str, width: usize) -> String {
    if line.chars().count() <= width {
        return line.to_owned();
    }
    let cut: String = line.chars().take(width.saturating_sub(1)).collect();
    cut + "…"
}

/// A moment as mails write it, in UTC.
pub(crate) fn mail_date(at: Timestamp) -> String {
    let time = jiff::Timestamp::from_millisecond(at.0).unwrap_or_default();
    time.strftime("%a, %d %b %Y %H:%M:%S +0000").to_string()
}

/// Bytes for people: `512 B`, `3.4 MB`.
pub(crate) fn bytes(count: u64) -> String {
    let units = [(1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB")];
    match units.into_iter().find(|(size, _)| count >= *size) {
        Some((size, unit)) => format!("{}.{} {unit}", count / size, count % size * 10 / size),
        None => format!("{count} B"),
    }
}
