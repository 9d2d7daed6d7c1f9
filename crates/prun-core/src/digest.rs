//! The coordinator's digest: one header, one line for each unit that calls for action. The same on every
//! surface; healthy units are only counted.

use crate::event::{Event, EventKind, Mode, RunEvent, UnitEvent};
use crate::outcome::Outcome;
use crate::run::RunState;
use crate::unit::{Disposition, Unit, UnitState};
use crate::view::{BudgetView, HoldView, PanelView, RunView, RunViewState, UnitView};

/// Whether an event calls for action: what `wait` returns at. One that was overtaken, such as the failure of
/// an attempt that was retried since, does not any more.
#[must_use]
pub fn is_actionable(event: &Event, run: &RunState) -> bool {
    match &event.kind {
        EventKind::Unit { unit, attempt, event } => {
            run.unit(unit).filter(|unit| unit.attempt() == *attempt).is_some_and(|unit| still_calls(event, unit))
        }
        EventKind::Run(kind) => match **kind {
            RunEvent::RunEnded { .. } => run.ended.is_some(),
            // A hold with a fallback moves units by itself, and a short one ends by itself.
            RunEvent::ExecutorHeld { ref executor, .. } => run.holds.get(executor).is_some_and(|hold| {
                hold.since == event.at && hold.is_lasting() && run.stuck_on(executor).next().is_some()
            }),
            RunEvent::BudgetWarned { ref unit, ref why } | RunEvent::BudgetSpent { ref unit, ref why } => {
                run.levels.get(unit).is_some_and(|(_, last)| last == why)
            }
            RunEvent::RepositoryTouched { .. } => true,
            _ => false,
        },
        EventKind::Unknown { .. } => false,
    }
}

fn still_calls(event: &UnitEvent, unit: &Unit) -> bool {
    match (event, &unit.state) {
        (UnitEvent::UnitSettled { outcome, .. }, UnitState::Settled { .. }) => {
            *outcome != Outcome::Succeeded && unit.disposition == Disposition::Unreviewed
        }
        (UnitEvent::HandedOver, UnitState::Running(running)) => running.handed_over,
        (UnitEvent::WentQuiet { .. }, UnitState::Running(running)) => running.quiet,
        _ => false,
    }
}

/// Whether a run is over and every unit did what it was to do, or was decided by name.
#[must_use]
pub fn is_all_well(view: &RunView) -> bool {
    let well = |unit: &UnitView| unit.outcome.as_deref() == Some("succeeded") || unit.disposition != "unreviewed";
    let is_untroubled = view.repository_touched.is_empty() && view.landing_trouble.is_none();
    let is_decided = view.panels.iter().all(|panel| !panel.is_open);
    view.state == RunViewState::Ended && is_untroubled && is_decided && view.units.iter().all(well)
}

/// Bytes of the lines on units: with them a digest stays below 300 tokens, however many units call for action.
const UNIT_LINES: usize = 560;

/// Bytes of the lines on what workers changed in the repository.
const TOUCHED_LINES: usize = 160;

/// Bytes of the lines on panels.
const PANEL_LINES: usize = 200;

/// Bytes of the lines on budgets.
const BUDGET_LINES: usize = 200;

/// The digest of a run. `run` is how the user names it.
#[must_use]
pub fn digest(view: &RunView, run: &str) -> String {
    let mut text = header(view, run);
    for line in attention(view, run) {
        text.push('\n');
        text.push_str(&line);
    }
    text
}

/// `BUDGET 16.2M of 20M tokens are used (81 %)   prun usage k3f9`.
#[must_use]
pub fn budget_line(budget: &BudgetView, run: &str) -> String {
    let BudgetView { unit, why, is_spent } = budget;
    let whose = unit.as_ref().map(|unit| format!("{unit}: ")).unwrap_or_default();
    let next = match (is_spent, unit) {
        (true, None) => format!("prun resume {run} --budget …"),
        (true, Some(unit)) => format!("prun retry {run}/{unit}"),
        (false, _) => format!("prun usage {run}"),
    };
    format!("BUDGET {whose}{why}   {next}")
}

fn hold_line(hold: &HoldView, run: &str) -> String {
    let HoldView { executor, cause, why, .. } = hold;
    let wait = if hold.stuck == 1 { "waits" } else { "wait" };
    let until =
        hold.left_millis.map_or_else(|| "until it is released".to_owned(), |left| format!("for {}", duration(left)));
    let why: String = why.chars().take(100).collect();
    let why = if why.starts_with(cause.as_str()) { why } else { format!("{cause}: {why}") };
    let units = counted(hold.stuck, "unit");
    format!("HELD {executor} {until}  {why}, {units} {wait} for it   prun executors --release {executor} --run {run}")
}

/// The lines of the digest after its header: one for each unit that calls for action, as far as they fit, and
/// what concerns the run as a whole.
#[must_use]
pub fn attention(view: &RunView, run: &str) -> Vec<String> {
    let units: Vec<&UnitView> = view.units.iter().filter(|unit| calls_for_action(unit)).collect();
    let mut lines = fitting(units.iter().map(|unit| line(unit, run)), UNIT_LINES);
    if lines.len() < units.len() {
        lines.push(format!("MORE {} units call for action   prun status {run}", units.len() - lines.len()));
    }
    let touched = &view.repository_touched;
    let told = fitting(touched.iter().map(|what| format!("TOUCHED the repository: {what}")), TOUCHED_LINES);
    let untold = touched.len() - told.len();
    lines.extend(told);
    if untold > 0 {
        lines.push(format!("TOUCHED the repository: {untold} more   prun status {run}"));
    }
    let held = view.holds.iter().filter(|hold| hold.is_lasting && hold.stuck > 0);
    lines.extend(held.map(|hold| hold_line(hold, run)));
    lines.extend(fitting(view.budgets.iter().map(|budget| budget_line(budget, run)), BUDGET_LINES));
    lines.extend(of_the_run(view, run));
    lines
}

/// `CHOOSE one of parser-codex, parser-claude   prun compare k3f9/parser`.
fn panel_line(panel: &PanelView, run: &str) -> String {
    const NAMED: usize = 3;
    let names = panel.members.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    let more = if panel.members.len() > NAMED { ", …" } else { "" };
    format!("CHOOSE one of {names}{more}   prun compare {run}/{}", panel.panel)
}

/// The first lines that fit into so many bytes; one in any case.
fn fitting(lines: impl Iterator<Item = String>, room: usize) -> Vec<String> {
    let mut used = 0;
    let mut fits = |line: &String| {
        let is_first = used == 0;
        used += line.len() + 1;
        is_first || used <= room
    };
    lines.take_while(|line| fits(line)).collect()
}

/// Whether a unit has something that takes part in landing.
fn has_changes(unit: &UnitView) -> bool {
    let takes_part = unit.mode == Mode::Write || unit.disposition == "accepted";
    unit.files > 0 && takes_part && unit.disposition != "excluded"
}

/// One line that counts: `k3f9 19/20 done · 1 failed · 24m · 3.1M tok · next 418`.
#[must_use]
pub fn header(view: &RunView, run: &str) -> String {
    let counts = &view.counts;
    let mut parts = vec![format!("{run} {}/{} done", counts.succeeded, counts.total)];
    let mut part = |count: usize, what: &str| {
        if count > 0 {
            parts.push(format!("{count} {what}"));
        }
    };
    part(counts.unsuccessful, "failed");
    part(counts.active - counts.handed_over, "running");
    part(counts.queued, "queued");
    part(counts.handed_over, "handed over");
    if view.state == RunViewState::Cancelled {
        parts.push("stopped".to_owned());
    }
    parts.push(duration(view.millis));
    if view.tokens > 0 {
        parts.push(format!("{} tok", count(view.tokens)));
    }
    parts.push(format!("next {}", view.next));
    parts.join(" · ")
}

/// What calls for action on the run as a whole, and what to do next where nothing does.
#[must_use]
pub fn of_the_run(view: &RunView, run: &str) -> Vec<String> {
    let open: Vec<&PanelView> = view.panels.iter().filter(|panel| panel.is_open).collect();
    let mut lines = fitting(open.iter().map(|panel| panel_line(panel, run)), PANEL_LINES);
    if lines.len() < open.len() {
        lines.push(format!("CHOOSE of {} more panels   prun reconcile {run}", open.len() - lines.len()));
    }
    if let Some(trouble) = &view.landing_trouble {
        lines.push(format!("LANDING {trouble}   prun integrate {run} --continue · prun undo {run}"));
    }
    match view.state {
        RunViewState::SupervisorLost => {
            lines.push(format!("LOST the supervisor is gone{}   prun resume {run}", lost(view)));
        }
        RunViewState::Ended if is_all_well(view) && view.landed.is_empty() && view.counts.total > 0 => {
            let next = match view.units.iter().any(has_changes) {
                true => format!("integrate {run} --dry-run"),
                false => format!("result {run} --brief"),
            };
            lines.push(format!("ended, all well   prun {next}"));
        }
        _ => {}
    }
    lines
}

/// How many units go on without a supervisor, and how many nobody works on any more.
fn lost(view: &RunView) -> String {
    let lost = view.units.iter().filter(|unit| unit.state == "lost").count();
    let alive = view.counts.active.saturating_sub(lost);
    let part = |count: usize, one: &str, many: &str| match count {
        0 => String::new(),
        1 => format!("; 1 unit {one}"),
        _ => format!("; {count} units {many}"),
    };
    part(alive, "goes on", "go on") + &part(lost, "is lost", "are lost")
}

fn calls_for_action(unit: &UnitView) -> bool {
    let failed = unit.outcome.as_deref().is_some_and(|outcome| outcome != "succeeded");
    (failed && unit.disposition == "unreviewed") || unit.handed_over || unit.quiet
}

fn line(unit: &UnitView, run: &str) -> String {
    let name = &unit.unit;
    if unit.handed_over {
        return format!("HANDOFF {name}   prun brief {run}/{name}");
    }
    let Some(outcome) = &unit.outcome else {
        return format!("QUIET {name}  no sign of life for half its limit   prun logs {run}/{name} -n 40");
    };
    let why: String = unit.why.as_deref().unwrap_or(outcome).chars().take(120).collect();
    let word = if outcome.starts_with("stopped") { "STOPPED" } else { "FAIL" };
    if unit.attempt == 0 {
        return format!("{word} {name}  {why}   prun retry {run}/{name}");
    }
    let attempts = format!("attempt {}/{}", unit.attempt, unit.attempts_allowed);
    format!("{word} {name}  {why}, {attempts}   prun logs {run}/{name} -n 40")
}

/// A time span for people: `850ms`, `12s`, `24m`, `3h05m`.
#[must_use]
pub fn duration(millis: u64) -> String {
    match millis {
        0..1_000 => format!("{millis}ms"),
        1_000..120_000 => format!("{}s", millis / 1_000),
        120_000..7_200_000 => format!("{}m", millis / 60_000),
        _ => format!("{}h{:02}m", millis / 3_600_000, millis / 60_000 % 60),
    }
}

/// So many of something: `1 file`, `2 files`. The noun takes an `s`.
#[must_use]
pub fn counted(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// A count for people: `950`, `12k`, `3.1M`.
#[must_use]
pub fn count(number: u64) -> String {
    match number {
        0..10_000 => number.to_string(),
        10_000..1_000_000 => format!("{}k", number / 1_000),
        _ => format!("{}.{}M", number / 1_000_000, number / 100_000 % 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Timestamp;
    use crate::view::Counts;

    fn unit(name: &str, outcome: Option<&str>, why: Option<&str>) -> UnitView {
        UnitView {
            unit: name.into(),
            mode: Mode::Write,
            state: if outcome.is_some() { "settled" } else { "running" }.into(),
            outcome: outcome.map(str::to_owned),
            why: why.map(str::to_owned),
            attempt: 2,
            attempts_allowed: 2,
            executor: Some("codex".into()),
            millis: 1,
            disposition: "unreviewed".into(),
            handed_over: false,
            quiet: false,
            conclusion: None,
            open_items: None,
            salvaged: false,
            files: 0,
            added: 0,
            removed: 0,
            tokens: 0,
        }
    }

    fn view(units: Vec<UnitView>, state: RunViewState) -> RunView {
        let succeeded = units.iter().filter(|unit| unit.outcome.as_deref() == Some("succeeded")).count();
        let settled = units.iter().filter(|unit| unit.outcome.is_some()).count();
        let handed_over = units.iter().filter(|unit| unit.handed_over).count();
        let counts = Counts {
            total: units.len(),
            queued: 0,
            active: units.len() - settled,
            handed_over,
            succeeded,
            unsuccessful: settled - succeeded,
        };
        RunView {
            panels: Vec::new(),
            version: 1,
            run: "261130-155200-k3f9".into(),
            title: "t".into(),
            state,
            repo: None,
            base: None,
            guard: None,
            began: Timestamp(0),
            millis: 24 * 60_000,
            tokens: 3_100_000,
            counts,
            units,
            holds: Vec::new(),
            past_holds: Vec::new(),
            budgets: Vec::new(),
            paused: None,
            repository_touched: Vec::new(),
            landed: Vec::new(),
            landing_trouble: None,
            next: 418,
        }
    }

    #[test]
    fn twenty_units_with_one_failure_take_two_lines() {
        let mut units: Vec<UnitView> =
            (0..19).map(|number| unit(&format!("u{number}"), Some("succeeded"), None)).collect();
        units.push(unit("tsv", Some("incomplete(no-result)"), Some("no result file, tail salvaged")));
        let text = digest(&view(units, RunViewState::Running), "k3f9");
        insta::assert_snapshot!(text, @r"
        k3f9 19/20 done · 1 failed · 24m · 3.1M tok · next 418
        FAIL tsv  no result file, tail salvaged, attempt 2/2   prun logs k3f9/tsv -n 40
        ");
    }

    #[test]
    fn a_handed_over_unit_names_its_brief() {
        let mut handed = unit("mail", None, None);
        handed.handed_over = true;
        let text = digest(&view(vec![handed, unit("a", None, None)], RunViewState::Running), "k3f9");
        assert!(text.contains("1 running · 1 handed over"), "{text}");
        assert!(text.ends_with("HANDOFF mail   prun brief k3f9/mail"), "{text}");
    }

    #[test]
    fn a_unit_that_never_began_has_no_logs_to_look_at() {
        let mut waiting = unit("late", Some("stopped(run-stopped)"), Some("stopped while it waited"));
        waiting.attempt = 0;
        let text = digest(&view(vec![waiting], RunViewState::Cancelled), "k3f9");
        assert!(text.ends_with("STOPPED late  stopped while it waited   prun retry k3f9/late"), "{text}");
    }

    #[test]
    fn a_failure_that_was_retried_calls_for_nothing_any_more() {
        let mut run = crate::run::tests::one_unit();
        let failed = UnitEvent::UnitSettled {
            facts: None,
            outcome: Outcome::Stopped(crate::outcome::StopReason::User),
            why: "w".into(),
        };
        let settled = crate::run::tests::push_unit(&mut run, 0, failed);
        assert!(is_actionable(&settled, &run));
        let again = UnitEvent::UnitRequeued {
            by: crate::event::RequeuedBy::User,
            how: crate::event::RetryHow::Fresh,
            message: None,
        };
        crate::run::tests::push_unit(&mut run, 0, again);
        assert!(!is_actionable(&settled, &run));
    }

    /// The bound of 300 tokens that users are promised, at four bytes a token, with every unit failed.
    #[test]
    fn a_digest_of_twenty_units_stays_small() {
        let failed = |number: usize| unit(&format!("unit-{number}"), Some("failed(exit-code)"), Some("exit code 1"));
        let mostly_well = (0..20).map(|number| match number {
            0..5 => failed(number),
            _ => unit(&format!("unit-{number}"), Some("succeeded"), None),
        });
        let text = digest(&view(mostly_well.collect(), RunViewState::Ended), "k3f9");
        assert!(text.len() / 4 <= 300, "{} bytes", text.len());
    }

    #[test]
    fn spans_and_counts_are_short() {
        assert_eq!([850, 12_000, 1_440_000, 11_100_000].map(duration), ["850ms", "12s", "24m", "3h05m"]);
        assert_eq!([950, 12_345, 3_149_999].map(count), ["950", "12k", "3.1M"]);
    }
}
