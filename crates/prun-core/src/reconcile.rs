//! Which units may be integrated, which block, and why.
//!
//! A run is ready when every unit is settled and either succeeded, or was accepted or excluded by name.
//! Units that were applied do not go in again. Of a panel at most one member goes in: the one that the user chose.
//! What a result claims is compared with what changed; a
//! difference is shown and blocks nothing.

use std::collections::{HashMap, HashSet};

use ignore::gitignore::{Gitignore, GitignoreBuilder};
use serde::Serialize;

use crate::event::Mode;
use crate::ids::UnitId;
use crate::outcome::{Changes, Channel, Outcome};
use crate::panel::{Choice, Panel, panels};
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
    /// The unit, or the panel.
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
    let units: Vec<&Unit> = units.into_iter().collect();
    reconcile_only(&units, |_| true)
}

/// Weighs some units of a run, in the plan's order. `all` are its units: what was said of one member of a panel
/// decides on the others, whether they are meant or not.
#[must_use]
pub fn reconcile_only(all: &[&Unit], is_meant: impl Fn(&UnitId) -> bool) -> Reconciliation {
    let mut found = Reconciliation::default();
    let panels = panels(all.iter().copied());
    let panels: HashMap<&UnitId, &Panel<'_>> = panels.iter().map(|panel| (panel.name, panel)).collect();
    let mut asked: HashSet<&UnitId> = HashSet::new();
    for unit in all.iter().filter(|unit| is_meant(&unit.setup.id)) {
        match unit.setup.panel.as_ref().and_then(|name| panels.get(name)) {
            Some(panel) if unit.is_settled() => weigh_member(unit, panel, &mut asked, &mut found),
            _ => weigh(unit, &mut found),
        }
    }
    found.ready = found.blockers.is_empty();
    found
}

/// A settled member of a panel goes in only if it is the one.
fn weigh_member<'a>(unit: &Unit, panel: &Panel<'a>, asked: &mut HashSet<&'a UnitId>, found: &mut Reconciliation) {
    let id = &unit.setup.id;
    let is_decided = !matches!(unit.disposition, Disposition::Unreviewed);
    match panel.choice() {
        Choice::Member(chosen) if chosen == id => weigh(unit, found),
        // It was passed over by the word on another one.
        Choice::Member(_) => found.excluded.push(id.clone()),
        Choice::Several(named) if named.contains(&id) && !matches!(unit.disposition, Disposition::Applied { .. }) => {
            let others: Vec<&str> = named.into_iter().filter(|other| *other != id).map(UnitId::as_str).collect();
            let why = format!("{} of its panel was taken too, and at most one member lands", others.join(", "));
            let hint = format!("prun exclude {id} -m WHY");
            found.blockers.push(Blocker { unit: id.clone(), why, hint });
        }
        Choice::Several(named) if !named.contains(&id) => found.excluded.push(id.clone()),
        Choice::Open if !is_decided && unit.setup.mode == Mode::Write => {
            if asked.insert(panel.name) {
                found.blockers.push(unchosen(panel));
            }
        }
        Choice::Open | Choice::Nobody | Choice::Several(_) => weigh(unit, found),
    }
}

fn unchosen(panel: &Panel<'_>) -> Blocker {
    let name = panel.name;
    let good = panel.members.iter().filter(|unit| unit.outcome() == Some(&Outcome::Succeeded)).count();
    let why = format!("a panel of {} ({good} succeeded), and none is chosen: at most one lands", panel.members.len());
    let first = panel.members.iter().find(|unit| unit.outcome() == Some(&Outcome::Succeeded));
    let example = first.or(panel.members.first()).map_or(name.as_str(), |unit| unit.setup.id.as_str());
    Blocker {
        unit: name.clone(),
        why,
        hint: format!("prun compare {name}, then prun accept {example} -m WHY or another"),
    }
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
            panel: None,
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
        let excluded = || Disposition::Excluded { why: "no".into(), instead: None };
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

    /// A member of the panel `p` that changed a file.
    fn member(id: &str, state: Option<Outcome>, disposition: Disposition) -> Unit {
        let mut member = unit(Case { outcome: state, disposition, ..GOOD });
        member.setup.id = id.parse().unwrap();
        member.setup.panel = Some("p".parse().unwrap());
        member
    }

    /// What becomes of two members of a panel and a unit beside them: who lands, and what blocks.
    fn of_panel(units: &[Unit], only: &[&str]) -> String {
        let units: Vec<&Unit> = units.iter().collect();
        let found = reconcile_only(&units, |unit| only.is_empty() || only.contains(&unit.as_str()));
        let lands = found.landing.iter().map(|landing| landing.unit.to_string());
        let blocks =
            found.blockers.iter().map(|blocker| format!("BLOCKS {}: {}; {}", blocker.unit, blocker.why, blocker.hint));
        lands.chain(blocks).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn of_a_panel_that_one_lands_which_the_user_chose() {
        let good = || Some(Outcome::Succeeded);
        let failed = || Some(Outcome::Failed(Cause::ExitCode));
        let (undecided, excluded) =
            (|| Disposition::Unreviewed, || Disposition::Excluded { why: "no".into(), instead: None });
        let applied = || Disposition::Applied { tree: "t".into() };
        let pair = |a, b| [member("p-a", good(), a), member("p-b", good(), b), unit(GOOD)];
        insta::assert_snapshot!(of_panel(&pair(undecided(), undecided()), &[]), @r##"
        u
        BLOCKS p: a panel of 2 (2 succeeded), and none is chosen: at most one lands; prun compare p, then prun accept p-a -m WHY or another
        "##);
        insta::assert_snapshot!(of_panel(&pair(undecided(), undecided()), &["p-b"]), @"BLOCKS p: a panel of 2 (2 succeeded), and none is chosen: at most one lands; prun compare p, then prun accept p-a -m WHY or another");
        assert_eq!(of_panel(&pair(undecided(), undecided()), &["u"]), "u", "what nobody asks for is no matter");
        assert_eq!(of_panel(&pair(accepted(false), undecided()), &[]), "p-a\nu");
        assert_eq!(of_panel(&pair(accepted(false), undecided()), &["p-b"]), "");
        assert_eq!(of_panel(&pair(excluded(), undecided()), &[]), "p-b\nu");
        assert_eq!(of_panel(&pair(excluded(), excluded()), &[]), "u");
        assert_eq!(of_panel(&pair(applied(), undecided()), &["p-b"]), "");
        assert_eq!(of_panel(&pair(applied(), excluded()), &[]), "u");
        insta::assert_snapshot!(of_panel(&pair(applied(), accepted(false)), &["p-b"]), @"BLOCKS p-b: p-a of its panel was taken too, and at most one member lands; prun exclude p-b -m WHY");
        insta::assert_snapshot!(of_panel(&pair(accepted(false), accepted(false)), &["p-a"]), @"BLOCKS p-a: p-b of its panel was taken too, and at most one member lands; prun exclude p-a -m WHY");
        let half = [member("p-a", None, undecided()), member("p-b", good(), accepted(false))];
        insta::assert_snapshot!(of_panel(&half, &[]), @r##"
        p-b
        BLOCKS p-a: it is queued; wait for it, or stop it: prun stop p-a
        "##);
        let failed = [member("p-a", failed(), undecided()), member("p-b", good(), undecided())];
        insta::assert_snapshot!(of_panel(&failed, &[]), @"BLOCKS p: a panel of 2 (1 succeeded), and none is chosen: at most one lands; prun compare p, then prun accept p-b -m WHY or another");
        let readers = pair(undecided(), undecided()).map(|mut unit| {
            unit.setup.mode = Mode::Read;
            unit
        });
        assert_eq!(of_panel(&readers, &[]), "", "answers that change nothing need no choice");
    }

    use proptest::prelude::*;

    fn dispositions() -> impl Strategy<Value = Disposition> {
        prop_oneof![
            3 => Just(Disposition::Unreviewed),
            2 => any::<bool>().prop_map(accepted),
            2 => Just(Disposition::Excluded { why: "no".into(), instead: None }),
            1 => Just(Disposition::Applied { tree: "t".into() }),
        ]
    }

    fn outcomes() -> impl Strategy<Value = Option<Outcome>> {
        let outcomes =
            [Some(Outcome::Succeeded), Some(Outcome::Succeeded), Some(Outcome::Failed(Cause::ExitCode)), None];
        prop::sample::select(outcomes.to_vec())
    }

    proptest! {
        /// Whatever was said of whom, whoever is asked for, in whatever mode: never two members of a panel together,
        /// none after another one, and none that nobody named.
        #[test]
        fn at_most_one_member_of_a_panel_ever_lands(
            units in prop::collection::vec((0..3_u8, any::<bool>(), outcomes(), dispositions()), 1..9),
            only in any::<u16>(),
        ) {
            let make = |(at, (panel, reads, outcome, disposition)): (usize, (u8, bool, Option<Outcome>, Disposition))| {
                let mut member = member(&format!("u{at}"), outcome, disposition);
                member.setup.panel = (panel > 0).then(|| format!("p{panel}").parse().unwrap());
                member.setup.mode = if reads { Mode::Read } else { Mode::Write };
                member
            };
            let units: Vec<Unit> = units.into_iter().enumerate().map(make).collect();
            let all: Vec<&Unit> = units.iter().collect();
            let place = |id: &UnitId| all.iter().position(|unit| unit.setup.id == *id).unwrap();
            let found = reconcile_only(&all, |id| only & (1 << place(id)) != 0);
            for panel in panels(all.iter().copied()) {
                let lands = |unit: &&&Unit| found.landing.iter().any(|landing| landing.unit == unit.setup.id);
                let landing: Vec<&&Unit> = panel.members.iter().filter(lands).collect();
                prop_assert!(landing.len() <= 1, "{landing:?}");
                let Some(one) = landing.first() else { continue };
                let others = || panel.members.iter().filter(|unit| unit.setup.id != one.setup.id);
                let has_landed = |unit: &&Unit| matches!(unit.disposition, Disposition::Applied { .. });
                prop_assert!(!others().any(has_landed), "another one has landed");
                let is_out = |unit: &&Unit| matches!(unit.disposition, Disposition::Excluded { .. });
                let is_named = matches!(one.disposition, Disposition::Accepted { .. }) || others().all(is_out);
                prop_assert!(is_named, "{one:?}");
            }
        }
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
