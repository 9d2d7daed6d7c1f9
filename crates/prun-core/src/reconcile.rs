//! Which units may be integrated, which block, and why.
//!
//! A run is ready when every unit is settled and either succeeded, or was accepted or excluded by name.
//! Units that were applied do not go in again. What a result claims is compared with what changed; a
//! difference is shown and blocks nothing.

use ignore::gitignore::{Gitignore, GitignoreBuilder};
use serde::Serialize;

use crate::event::Mode;
use crate::ids::UnitId;
use crate::outcome::{Changes, Channel, Outcome};
use crate::unit::{Disposition, Unit, UnitState};

/// The state of a run on the way into the working tree.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Reconciliation {
    /// Nothing blocks.
    pub ready: bool,
    /// Units whose changes go in, in the plan's order.
    pub landing: Vec<Landing>,
    /// What blocks.
    pub blockers: Vec<Blocker>,
    /// What the user should know and that blocks nothing.
    pub notes: Vec<Note>,
    /// Units that stay out by the user's decision.
    pub excluded: Vec<UnitId>,
    /// Units whose changes are in the working tree already.
    pub applied: Vec<UnitId>,
    /// Units that are fine and have nothing to land.
    pub unchanged: Vec<UnitId>,
}

/// A unit's changes, ready to be combined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Landing {
    /// The unit.
    pub unit: UnitId,
    /// Its harvested tree.
    pub tree: String,
    /// The tree it started from.
    pub base_tree: String,
}

/// A unit that keeps the run from being integrated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Blocker {
    /// The unit.
    pub unit: UnitId,
    /// Why it blocks.
    pub why: String,
    /// What the user may do about it.
    pub hint: String,
}

/// Something about a unit that blocks nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Note {
    /// The unit.
    pub unit: UnitId,
    /// What it is about.
    pub kind: NoteKind,
    /// The paths or names.
    pub what: Vec<String>,
}

/// What a note is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NoteKind {
    /// The result's `Files:` line names paths that did not change.
    ClaimedUnchanged,
    /// Paths changed that the result's `Files:` line does not name.
    ChangedUnclaimed,
    /// Paths changed that the unit does not own.
    OutsideOwns,
    /// Work that a tree cannot show.
    Unseen,
    /// A read unit's edits, kept and not landed.
    ReadEdits,
    /// The user accepted it although its outcome alone would not let it in; the words are the user's.
    Accepted,
}

/// Weighs all units of a run, in the plan's order.
#[must_use]
pub fn reconcile<'a>(units: impl IntoIterator<Item = &'a Unit>) -> Reconciliation {
    let mut found = Reconciliation::default();
    for unit in units {
        weigh(unit, &mut found);
    }
    found.ready = found.blockers.is_empty();
    found
}

fn weigh(unit: &Unit, found: &mut Reconciliation) {
    let id = unit.setup.id.clone();
    let UnitState::Settled { outcome, why } = &unit.state else {
        let hint = format!("wait for it, or stop it: prun stop {id}");
        return found.blockers.push(Blocker { unit: id, why: format!("it is {}", unit.state.name()), hint });
    };
    match &unit.disposition {
        Disposition::Applied { .. } => found.applied.push(id),
        Disposition::Excluded { .. } => found.excluded.push(id),
        Disposition::Accepted { why, salvaged } => {
            found.notes.push(Note { unit: id, kind: NoteKind::Accepted, what: vec![why.clone()] });
            weigh_accepted(unit, outcome, *salvaged, found);
        }
        Disposition::Unreviewed if *outcome != Outcome::Succeeded => {
            let why = if why.is_empty() { outcome.to_string() } else { format!("{outcome}: {why}") };
            let hint = format!("prun retry {id}, prun accept {id} -m WHY or prun exclude {id} -m WHY");
            found.blockers.push(Blocker { unit: id, why, hint });
        }
        Disposition::Unreviewed if unit.setup.mode == Mode::Read => {
            let edits = changed_paths(unit);
            found.unchanged.push(id.clone());
            note(found, &id, NoteKind::ReadEdits, edits);
        }
        Disposition::Unreviewed => land(unit, found),
    }
}

/// A unit that did not succeed goes in with what was harvested; its result may have to be salvaged.
fn weigh_accepted(unit: &Unit, outcome: &Outcome, salvaged: bool, found: &mut Reconciliation) {
    let id = &unit.setup.id;
    let result = unit.facts().and_then(|facts| facts.result.as_ref());
    let authentic = result.is_some_and(|result| result.channel != Channel::Salvage);
    if *outcome != Outcome::Succeeded && !authentic && !salvaged {
        let why = "it was accepted, but its result was only salvaged".to_owned();
        let hint = format!("prun accept {id} --salvaged -m WHY or prun exclude {id} -m WHY");
        return found.blockers.push(Blocker { unit: id.clone(), why, hint });
    }
    if let Some(error) = unit.facts().and_then(|facts| facts.harvest_error.as_ref()) {
        let why = format!("it was accepted, but its changes could not be harvested: {error}");
        let hint = format!("prun harvest {id} or prun exclude {id} -m WHY");
        return found.blockers.push(Blocker { unit: id.clone(), why, hint });
    }
    land(unit, found);
}

fn land(unit: &Unit, found: &mut Reconciliation) {
    let id = unit.setup.id.clone();
    let Some(changes) = changes(unit).filter(|changes| !changes.is_empty()) else {
        note(found, &id, NoteKind::Unseen, changes(unit).map(|changes| changes.unseen.clone()).unwrap_or_default());
        note(found, &id, NoteKind::ClaimedUnchanged, claims(unit));
        return found.unchanged.push(id);
    };
    let changed = changed_paths(unit);
    let claimed = claims(unit);
    let idle = claimed.iter().filter(|claim| !changed.iter().any(|path| names(claim, path))).cloned().collect();
    let silent = changed.iter().filter(|path| !claimed.iter().any(|claim| names(claim, path))).cloned().collect();
    note(found, &id, NoteKind::ClaimedUnchanged, idle);
    if !claimed.is_empty() {
        note(found, &id, NoteKind::ChangedUnclaimed, silent);
    }
    note(found, &id, NoteKind::OutsideOwns, outside(&unit.setup.owns, &changed));
    note(found, &id, NoteKind::Unseen, changes.unseen.clone());
    found.landing.push(Landing { unit: id, tree: changes.tree.clone(), base_tree: changes.base_tree.clone() });
}

fn note(found: &mut Reconciliation, unit: &UnitId, kind: NoteKind, what: Vec<String>) {
    if !what.is_empty() {
        found.notes.push(Note { unit: unit.clone(), kind, what });
    }
}

fn changes(unit: &Unit) -> Option<&Changes> {
    unit.facts().and_then(|facts| facts.changes.as_ref())
}

fn changed_paths(unit: &Unit) -> Vec<String> {
    changes(unit).map(|changes| changes.files.iter().map(|file| file.path.clone()).collect()).unwrap_or_default()
}

fn claims(unit: &Unit) -> Vec<String> {
    let result = unit.facts().and_then(|facts| facts.result.as_ref());
    result.and_then(|result| result.files_claimed.as_deref()).map(claimed_paths).unwrap_or_default()
}

/// The paths that a `Files:` line names: its words that look like paths, without decoration.
#[must_use]
pub fn claimed_paths(line: &str) -> Vec<String> {
    let line = line.trim_start().strip_prefix("Files:").unwrap_or(line);
    let decoration = |c: char| matches!(c, '`' | '"' | '\'' | '(' | ')' | '[' | ']' | '*' | ':');
    line.split(|c: char| c.is_whitespace() || c == ',' || c == ';')
        .map(|word| word.trim_matches(decoration).trim_end_matches('.'))
        .map(|word| word.split_once(':').map_or(word, |(path, _)| path))
        .map(|word| word.strip_prefix("./").unwrap_or(word))
        .filter(|word| word.contains('/') || word.contains('.'))
        .map(str::to_owned)
        .collect()
}

/// Whether a claim means this path: the same, a directory above it, or an absolute spelling of it.
fn names(claim: &str, path: &str) -> bool {
    let claim = claim.trim_end_matches('/');
    let ends_with = |long: &str, short: &str| long.strip_suffix(short).is_some_and(|rest| rest.ends_with('/'));
    claim == path
        || path.strip_prefix(claim).is_some_and(|rest| rest.starts_with('/'))
        || ends_with(claim, path)
        || ends_with(path, claim)
}

/// The paths that the gitignore-style patterns do not own; none where there are no patterns.
#[must_use]
pub fn outside(owns: &[String], paths: &[String]) -> Vec<String> {
    if owns.is_empty() {
        return Vec::new();
    }
    let mut builder = GitignoreBuilder::new("");
    for pattern in owns {
        // The gate refuses bad patterns; one that got past it owns nothing.
        builder.add_line(None, pattern).ok();
    }
    let owned = builder.build().unwrap_or_else(|_| Gitignore::empty());
    // The matcher panics at a path that no tree holds.
    let is_plain = |path: &str| path.split('/').all(|part| !matches!(part, "" | "." | ".."));
    let is_owned = |path: &str| is_plain(path) && owned.matched_path_or_any_parents(path, false).is_ignore();
    paths.iter().filter(|path| !is_owned(path)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budget;
    use crate::event::{UnitEvent, UnitSetup};
    use crate::ids::Attempt;
    use crate::outcome::{AttemptFacts, Cause, ChangeKind, Exit, FileChange, FinalEvent, Gap, ResultFacts, SweepFacts};
    use crate::time::Timestamp;
    use crate::unit::{AttemptRecord, NextAttempt};

    struct Case {
        mode: Mode,
        outcome: Option<Outcome>,
        channel: Channel,
        changed: &'static [&'static str],
        claimed: Option<&'static str>,
        owns: &'static [&'static str],
        disposition: Disposition,
    }

    const GOOD: Case = Case {
        mode: Mode::Write,
        outcome: Some(Outcome::Succeeded),
        channel: Channel::ResultFile,
        changed: &["src/a.rs"],
        claimed: None,
        owns: &[],
        disposition: Disposition::Unreviewed,
    };

    fn accepted(salvaged: bool) -> Disposition {
        Disposition::Accepted { why: "good enough".into(), salvaged }
    }

    fn unit(case: Case) -> Unit {
        let setup = UnitSetup {
            id: "u".parse().unwrap(),
            mode: case.mode,
            executors: vec!["command".parse().unwrap()],
            retries: 0,
            owns: case.owns.iter().map(ToString::to_string).collect(),
            priority: 0,
            budget: Budget::default(),
        };
        let at = Timestamp::default();
        let file = |path: &&str| FileChange {
            path: path.to_string(),
            kind: ChangeKind::Modified,
            added: Some(1),
            removed: Some(1),
        };
        let changes = Changes {
            tree: "t".into(),
            base_tree: "b".into(),
            files: case.changed.iter().map(file).collect(),
            ..Changes::default()
        };
        let result = ResultFacts {
            channel: case.channel,
            path: "/r".into(),
            bytes: 1,
            contract_gaps: vec![],
            conclusion: None,
            open_items: None,
            files_claimed: case.claimed.map(str::to_owned),
            misplaced: false,
        };
        let facts = AttemptFacts {
            version: 1,
            unit: setup.id.clone(),
            attempt: Attempt(1),
            exit: Exit::Code { code: 0 },
            stopped: None,
            dispatcher_signal: None,
            dispatcher_died: false,
            setup: None,
            final_event: FinalEvent::NotApplicable,
            error: None,
            result: Some(result),
            missing_deliverables: vec![],
            verify: None,
            expects_changes: case.mode == Mode::Write,
            changes: Some(changes),
            harvest_error: None,
            sweep: SweepFacts::default(),
            read_only: Vec::new(),
            usage: None,
            model: None,
            denied: Vec::new(),
            session: None,
            silent: vec![],
            peak_rss_kib: None,
            cpu_millis: None,
            peak_memory_kib: None,
            oom_killed: false,
            started_at: at,
            ended_at: at,
            worker_millis: 1,
        };
        let mut unit = Unit::new(setup, at);
        unit.attempts.push(AttemptRecord {
            attempt: Attempt(1),
            executor: "command".parse().unwrap(),
            dir: "d".into(),
            begins: NextAttempt::default(),
            began: at,
            started: Some(at),
            ended: Some(at),
            outcome: case.outcome.clone(),
            facts: Some(Box::new(facts)),
        });
        if let Some(outcome) = case.outcome {
            unit.state = UnitState::Settled { outcome, why: String::new() };
        }
        unit.disposition = case.disposition;
        unit
    }

    /// What became of the one unit: `land`, `block`, `out`, `applied` or `none`.
    fn fate(case: Case) -> &'static str {
        let found = reconcile([&unit(case)]);
        assert_eq!(found.ready, found.blockers.is_empty());
        match &found {
            _ if !found.blockers.is_empty() => "block",
            _ if !found.landing.is_empty() => "land",
            _ if !found.excluded.is_empty() => "out",
            _ if !found.applied.is_empty() => "applied",
            _ => "none",
        }
    }

    #[test]
    fn only_settled_and_good_or_decided_units_let_a_run_through() {
        let failed = || Some(Outcome::Failed(Cause::ExitCode));
        let no_result = || Some(Outcome::Incomplete(Gap::NoResult));
        let read = Mode::Read;
        let excluded = || Disposition::Excluded { why: "no".into() };
        let applied = || Disposition::Applied { tree: "t".into() };
        for (expected, case) in [
            ("land", GOOD),
            ("none", Case { changed: &[], ..GOOD }),
            ("none", Case { mode: read, ..GOOD }),
            ("land", Case { mode: read, disposition: accepted(false), ..GOOD }),
            ("none", Case { mode: read, changed: &[], disposition: accepted(false), ..GOOD }),
            ("block", Case { outcome: None, ..GOOD }),
            ("block", Case { outcome: failed(), ..GOOD }),
            ("land", Case { outcome: failed(), disposition: accepted(false), ..GOOD }),
            ("out", Case { outcome: failed(), disposition: excluded(), ..GOOD }),
            ("out", Case { disposition: excluded(), ..GOOD }),
            ("applied", Case { disposition: applied(), ..GOOD }),
            ("block", Case { outcome: no_result(), channel: Channel::Salvage, disposition: accepted(false), ..GOOD }),
            ("land", Case { outcome: no_result(), channel: Channel::Salvage, disposition: accepted(true), ..GOOD }),
            ("block", Case { outcome: Some(Outcome::Stopped(crate::outcome::StopReason::User)), ..GOOD }),
        ] {
            let shown = format!("{:?} {:?} {:?}", case.mode, case.outcome, case.disposition);
            assert_eq!(fate(case), expected, "{shown}");
        }
    }

    #[test]
    fn a_requeued_unit_blocks_again() {
        let mut unit = unit(Case { disposition: accepted(false), ..GOOD });
        let requeue = UnitEvent::UnitRequeued {
            by: crate::event::RequeuedBy::User,
            how: crate::event::RetryHow::Fresh,
            message: None,
        };
        unit.apply(Attempt(1), &requeue, Timestamp::default()).unwrap();
        let found = reconcile([&unit]);
        assert!(!found.ready);
        assert_eq!(found.blockers[0].why, "it is queued");
    }

    fn notes(case: Case) -> Vec<(NoteKind, Vec<String>)> {
        reconcile([&unit(case)]).notes.into_iter().map(|note| (note.kind, note.what)).collect()
    }

    #[test]
    fn claims_are_held_against_what_changed() {
        let claim = |claimed| notes(Case { changed: &["src/a.rs", "src/b.rs"], claimed: Some(claimed), ..GOOD });
        assert_eq!(claim("src/a.rs, src/b.rs"), []);
        assert_eq!(claim("`./src/a.rs` (new), src/b.rs:12."), []);
        assert_eq!(claim("/somewhere/clone/src/a.rs b.rs"), []);
        assert_eq!(claim("src/"), []);
        assert_eq!(claim("none"), []);
        assert_eq!(
            claim("orders.json, src/a.rs"),
            [
                (NoteKind::ClaimedUnchanged, vec!["orders.json".to_owned()]),
                (NoteKind::ChangedUnclaimed, vec!["src/b.rs".to_owned()])
            ]
        );
        let nothing = notes(Case { changed: &[], claimed: Some("orders.json"), ..GOOD });
        assert_eq!(nothing, [(NoteKind::ClaimedUnchanged, vec!["orders.json".to_owned()])]);
    }

    #[test]
    fn changes_outside_owns_are_named() {
        let owned = |owns: &'static [&'static str]| {
            notes(Case { changed: &["src/csv/a.rs", "src/mod.rs", "/odd"], owns, ..GOOD })
        };
        assert_eq!(owned(&[]), []);
        assert_eq!(owned(&["src/csv/**"])[0].1, ["src/mod.rs", "/odd"]);
        assert_eq!(owned(&["src/", "!src/mod.rs"])[0].1, ["src/mod.rs", "/odd"]);
        assert_eq!(owned(&["/src/*.rs", "csv/"])[0].1, ["/odd"]);
    }

    #[test]
    fn a_read_units_edits_are_kept_and_said() {
        assert_eq!(notes(Case { mode: Mode::Read, ..GOOD })[0].0, NoteKind::ReadEdits);
    }
}
