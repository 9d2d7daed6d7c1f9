//! From a reconciled run to the user's working tree, with every step in the ledger: trial, landing, undo.
//!
//! Whoever lands holds the run's lock from the trial to the record, so no supervisor and no second landing
//! can come in between.

mod combined;
mod cut_off;
mod error;
mod merge;

pub use combined::combined;
pub use cut_off::abandoned;
pub use error::LandingError;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use prun_core::event::{Event, EventKind, RunEvent, UnitEvent};
use prun_core::ids::{Seq, UnitId};
use prun_core::outcome::CheckFacts;
use prun_core::reconcile::{Blocker, Reconciliation, reconcile_only};
use prun_core::run::RunState;
use prun_core::unit::{Disposition, Unit};
use serde::{Deserialize, Serialize};

use crate::clock::wall_now;
use crate::driver::{DriverError, read_state};
use crate::files::{FileError, write_atomically};
use crate::integrate::journal::{Journal, Phase};
use crate::integrate::land::{self, StopAfter};
use crate::integrate::prepare::Verified;
use crate::integrate::resolve;
use crate::integrate::{Check, DryRun, IntegrateError, Prepared, Request, Target, prepare};
use crate::ledger::{Reader, RunLock, Writer};
use crate::reharvest::changed_since;
use crate::spec::GuardSpec;
use crate::workshop::Workshop;
use crate::workspace::source::Source;
use merge::Merge;

/// How a trial is made.
#[derive(Clone, Debug, Default)]
pub struct TrialOptions {
    /// Overlaps that the user accepted, by path.
    pub accepted: BTreeSet<String>,
    /// Only these units go in, and only they can block; empty: all.
    pub only: BTreeSet<UnitId>,
    /// Leave the check out.
    pub no_verify: bool,
    /// Take what the user made of the merge workspace instead of the units' own trees.
    pub resolved: bool,
}

/// A run that is being landed: its lock is held.
#[derive(Debug)]
pub struct Desk<'a> {
    workshop: &'a Workshop,
    state: RunState,
    writer: Writer,
}

/// What would land, tried and checked.
#[derive(Debug)]
pub struct Trial {
    /// What would land.
    pub dry_run: DryRun,
    prepared: Prepared,
    material: Material,
    /// A checkout of what lands, in which nothing was ever run.
    bytes: PathBuf,
    verify_skipped: bool,
    /// Removes the quarantine and the checkouts at the end.
    place: tempfile::TempDir,
}

impl Trial {
    /// What the user should know of the units.
    #[must_use]
    pub fn reconciliation(&self) -> &Reconciliation {
        &self.material.reconciliation
    }
}

/// What goes into a trial.
#[derive(Debug)]
struct Material {
    reconciliation: Reconciliation,
    base_tree: String,
    units: Vec<(UnitId, String)>,
    /// The units that are in the working tree afterwards.
    applies: Vec<UnitId>,
    /// It is what the user made of them in a merge workspace.
    resolved: bool,
    store: PathBuf,
    /// The units that were named, where some were.
    only: BTreeSet<UnitId>,
}

/// What a landing was, beside its journal, so that one that was cut off can be recorded later.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Record {
    tree: String,
    units: Vec<UnitId>,
    paths: Vec<String>,
    verify_skipped: bool,
}

impl<'a> Desk<'a> {
    /// Takes the run's lock and reads its ledger.
    ///
    /// # Errors
    /// A supervisor drives the run, or its ledger cannot be read.
    pub fn open(workshop: &'a Workshop) -> Result<Self, LandingError> {
        let lock =
            RunLock::try_take(&workshop.run_dir)?.ok_or_else(|| DriverError::Driven(workshop.run.to_string()))?;
        workshop.end_combination_check();
        let state = read_state(workshop)?;
        let writer = Writer::open(&workshop.run_dir, lock, workshop.durability)?;
        Ok(Self { workshop, state, writer })
    }

    /// Combines the units with the working tree as it is now, and checks the combination in a clean clone.
    ///
    /// # Errors
    /// The run is not reconciled, a precondition does not hold, git fails. Conflicts and a failed check are
    /// told in the trial.
    pub fn trial(&mut self, options: &TrialOptions) -> Result<Trial, LandingError> {
        self.refuse_cut_off()?;
        let (target, material) = self.material(options)?;
        let place = tempfile::Builder::new()
            .prefix("trial-")
            .tempdir_in(self.workshop.run_dir.root())
            .map_err(FileError::at("create a directory in", self.workshop.run_dir.root()))?;
        let request = Request {
            git: &self.workshop.git,
            target: &target,
            store: &material.store,
            quarantine: &place.path().join("quarantine"),
            base_tree: &material.base_tree,
            units: &material.units,
            accepted: &options.accepted,
        };
        let prepared = prepare(&request)?;
        let verify_skipped = options.no_verify && self.workshop.plan.verify.is_some();
        let bytes = place.path().join("bytes");
        let mut trial = Trial { dry_run: prepared.dry_run.clone(), prepared, material, bytes, verify_skipped, place };
        if trial.dry_run.tree.is_some() {
            trial.prepared.stage_landing(&trial.bytes)?;
            if !options.no_verify {
                self.verify(&mut trial)?;
            }
        }
        Ok(trial)
    }

    /// What goes in: the units' trees, or what the user made of them.
    fn material(&self, options: &TrialOptions) -> Result<(Target, Material), LandingError> {
        let resolved = options.resolved;
        let merge = if resolved { Some(self.merge()?.ok_or(LandingError::NoLanding("continue"))?) } else { None };
        let only = merge.as_ref().map_or(&options.only, |merge| &merge.only);
        let all: Vec<&Unit> = self.state.units.iter().collect();
        let mut reconciliation = reconcile_only(&all, |unit| only.is_empty() || only.contains(unit));
        let setup = self.state.setup.as_ref().ok_or(LandingError::NoRepository)?;
        let (Some(repo), Some(base_tree)) = (setup.repo.clone(), setup.base_tree.clone()) else {
            return Err(LandingError::NoRepository);
        };
        if !reconciliation.ready {
            return Err(LandingError::NotReconciled(Box::new(reconciliation)));
        }
        let source = Source::open(&self.workshop.git, Path::new(&repo))?;
        if source.is_bare {
            return Err(LandingError::Bare(source.top));
        }
        let target = Target::of(&self.workshop.git, Path::new(&repo)).map_err(IntegrateError::from)?;
        if !resolved {
            self.refuse_changed(&mut reconciliation)?;
        }
        if let Some(Merge { resolution, units, only: _ }) = merge {
            let now = reconciliation.landing.iter().map(|one| (&one.unit, &one.tree));
            if !now.eq(units.iter().map(|(unit, tree)| (unit, tree))) {
                return Err(LandingError::MergeOutdated(resolution.dir));
            }
            let made = resolve::resolved(&self.workshop.git, &target, &resolution)?;
            let name = "resolved".parse().expect("a plain word is a unit id");
            let (applies, base_tree) = (resolution.units, resolution.base_tree);
            let units = vec![(name, made.tree)];
            let (store, only) = (made.store, BTreeSet::new());
            return Ok((target, Material { reconciliation, base_tree, units, applies, store, only, resolved: true }));
        }
        let landing = reconciliation.landing.iter().map(|one| (one.unit.clone(), one.tree.clone()));
        let units: Vec<(UnitId, String)> = landing.collect();
        let applies = units.iter().map(|(unit, _)| unit.clone()).collect();
        let store = self.workshop.run_dir.store();
        let only = options.only.clone();
        Ok((target, Material { reconciliation, base_tree, units, applies, store, only, resolved: false }))
    }

    /// What lands is what was harvested, and that is what lies in the workspaces: else somebody works there.
    fn refuse_changed(&self, reconciliation: &mut Reconciliation) -> Result<(), LandingError> {
        let units: Vec<UnitId> = reconciliation.landing.iter().map(|one| one.unit.clone()).collect();
        let changed = changed_since(self.workshop, &self.state, &units);
        if changed.is_empty() {
            return Ok(());
        }
        let run = self.workshop.run.short();
        let blocker = |(unit, why)| Blocker { hint: format!("prun harvest {run}/{unit}"), unit, why };
        reconciliation.blockers.extend(changed.into_iter().map(blocker));
        reconciliation.ready = false;
        Err(LandingError::NotReconciled(Box::new(reconciliation.clone())))
    }

    /// The check runs in a second checkout: what lands comes from one that no command ever ran in.
    fn verify(&mut self, trial: &mut Trial) -> Result<(), LandingError> {
        let Some(command) = &self.workshop.plan.verify else { return Ok(()) };
        let (tree, base_tree) = (trial.dry_run.tree.clone().unwrap_or_default(), self.base_tree());
        let known = self.state.verified.get(&base_tree).map(|verified| verified.check.clone());
        let mut check = Check {
            setup: self.workshop.plan.setup.as_ref().map(prun_core::plan::CommandLine::argv),
            setup_limit: self.workshop.plan.setup_limit(),
            argv: command.argv(),
            limit: self.workshop.plan.check_limit(),
            on_base: known,
            token: self.workshop.combination_check_token(),
            guard: self.guard(&trial.place)?,
        };
        let stage = trial.place.path().join("checked");
        trial.prepared.stage(&stage)?;
        let combination = trial.prepared.verify(&check, &stage, &self.log(&tree))?.combination.clone();
        self.record_check(tree, false, &combination)?;
        if check.on_base.is_none() && !combination.ok {
            // A red combination is only worth as much as the base is green.
            let stage = trial.place.path().join("checked-base");
            trial.prepared.stage_tree(&base_tree, &stage)?;
            let on_base = trial.prepared.verify(&check, &stage, &self.log(&base_tree))?.combination.clone();
            self.record_check(base_tree, true, &on_base)?;
            check.on_base = Some(on_base);
        }
        trial.dry_run = trial.prepared.dry_run.clone();
        trial.dry_run.ready &= combination.ok;
        trial.dry_run.verify = Some(Verified { base: check.on_base, combination });
        Ok(())
    }

    /// Without the guard that the plan asks for no check is run.
    fn guard(&self, place: &tempfile::TempDir) -> Result<Option<GuardSpec>, LandingError> {
        let repo = self.state.setup.as_ref().and_then(|setup| setup.repo.as_deref());
        let guard = self.workshop.guard(repo, &[place.path().to_owned()]).map_err(std::io::Error::other);
        let Some(guard) = guard.map_err(FileError::at("guard", Path::new(repo.unwrap_or_default())))? else {
            return Ok(None);
        };
        guard.probe().map_err(FileError::at("make read-only for the check", Path::new(repo.unwrap_or_default())))?;
        Ok(Some(guard))
    }

    fn record_check(&mut self, tree: String, on_base: bool, check: &CheckFacts) -> Result<(), LandingError> {
        self.record(vec![EventKind::run(RunEvent::VerifyFinished { tree, on_base, check: check.clone() })])
    }

    fn log(&self, tree: &str) -> PathBuf {
        self.workshop.run_dir.root().join(format!("verify-{}.log", tree.get(..12).unwrap_or(tree)))
    }

    fn base_tree(&self) -> String {
        self.state.setup.as_ref().and_then(|setup| setup.base_tree.clone()).unwrap_or_default()
    }

    /// Lands what the trial showed, and records it.
    ///
    /// # Errors
    /// The check failed, the tree is not `shown`, or the working tree is not as it was. All or nothing has
    /// changed then.
    pub fn land(&mut self, trial: &Trial, shown: &str) -> Result<Landed, LandingError> {
        if trial.dry_run.verify.as_ref().is_some_and(|verify| !verify.combination.ok) {
            return Err(LandingError::VerifyFailed(Box::new(trial.dry_run.clone())));
        }
        trial.prepared.insist_on(shown).map_err(IntegrateError::from)?;
        let number = self.next_number();
        let dir = self.workshop.run_dir.landing(number);
        let durability = self.workshop.durability;
        let name = self.workshop.run.short();
        let journal = trial.prepared.journal(&trial.bytes, &dir, name, durability)?;
        let record = Record {
            tree: trial.dry_run.tree.clone().unwrap_or_default(),
            units: trial.material.applies.clone(),
            paths: trial.dry_run.files.iter().map(|file| file.path.clone()).collect(),
            verify_skipped: trial.verify_skipped,
        };
        let text = serde_json::to_vec_pretty(&record).expect("plain data with string keys");
        write_atomically(&dir.join("landing.json"), &text, durability)?;
        land::land(&journal, StopAfter(None))?;
        self.record_landing(number, &record)?;
        if trial.material.resolved {
            // It has landed; a workspace that cannot be removed now is removed by `--abort`.
            let _ = self.abort();
        }
        Ok(Landed { number, paths: record.paths })
    }

    /// Whether a landing or an undo was cut off.
    ///
    /// # Errors
    /// A journal cannot be read.
    pub fn is_cut_off(&self) -> Result<bool, LandingError> {
        Ok(cut_off::find(&self.workshop.run_dir, &self.state)?.is_some())
    }

    /// Finishes a landing, or an undo, that was cut off.
    ///
    /// # Errors
    /// There is none, or it cannot be finished.
    pub fn go_on(&mut self) -> Result<Outcome, LandingError> {
        let number = cut_off::find(&self.workshop.run_dir, &self.state)?.ok_or(LandingError::NoLanding("continue"))?;
        let dir = self.workshop.run_dir.landing(number);
        let journal = Journal::open(&dir, self.workshop.durability)?;
        let record = read_record(&dir)?;
        let is_recorded = self.state.landings.iter().any(|landing| landing.number == number);
        match land::resume(&journal, StopAfter(None))? {
            Phase::Landed => {
                self.record_landing(number, &record)?;
                Ok(Outcome::Landed(Landed { number, paths: record.paths }))
            }
            _ => {
                if is_recorded {
                    self.record_undo(number)?;
                }
                Ok(Outcome::TakenBack)
            }
        }
    }

    /// Takes the last landing back, also one that was cut off.
    ///
    /// # Errors
    /// There is none, or paths changed since: they are named and nothing is changed.
    pub fn undo(&mut self) -> Result<u32, LandingError> {
        let standing = self.state.landings.iter().rev().find(|landing| !landing.undone).map(|landing| landing.number);
        let number =
            cut_off::find(&self.workshop.run_dir, &self.state)?.or(standing).ok_or(LandingError::NoLanding("undo"))?;
        let journal = Journal::open(&self.workshop.run_dir.landing(number), self.workshop.durability)?;
        let is_recorded = self.state.landings.iter().any(|landing| landing.number == number && !landing.undone);
        // An undo that was killed before it was recorded is done; only the record is missing.
        if journal.phase()? != Phase::Undone || !is_recorded {
            land::undo(&journal, StopAfter(None))?;
        }
        if self.state.landings.iter().any(|landing| landing.number == number) {
            self.record_undo(number)?;
        }
        Ok(number)
    }

    fn refuse_cut_off(&self) -> Result<(), LandingError> {
        cut_off::find(&self.workshop.run_dir, &self.state)?.map_or(Ok(()), |number| Err(LandingError::CutOff(number)))
    }

    /// A directory that holds a landing is never used again.
    fn next_number(&self) -> u32 {
        let mut number = self.state.landings.last().map_or(1, |landing| landing.number + 1);
        while self.workshop.run_dir.landing(number).exists() {
            number += 1;
        }
        number
    }

    fn record_landing(&mut self, number: u32, record: &Record) -> Result<(), LandingError> {
        let landed = RunEvent::Landed {
            tree: record.tree.clone(),
            landing: number,
            paths: record.paths.clone(),
            verify_skipped: record.verify_skipped,
        };
        let mut kinds = vec![EventKind::run(landed)];
        for unit in record.units.iter().filter_map(|id| self.state.unit(id)) {
            let applied = UnitEvent::Applied { tree: record.tree.clone() };
            kinds.push(EventKind::unit(&unit.setup.id, unit.attempt(), applied));
        }
        self.record(kinds)
    }

    /// A unit is decided again as it was before the landing.
    fn record_undo(&mut self, number: u32) -> Result<(), LandingError> {
        let before = self.state_before(number)?;
        let tree = self.state.landings.iter().find(|landing| landing.number == number).map(|landing| &landing.tree);
        let units = self.state.units.iter().filter(|unit| match &unit.disposition {
            Disposition::Applied { tree: applied } => Some(applied) == tree,
            _ => false,
        });
        let mut kinds = vec![EventKind::run(RunEvent::Undone { landing: number })];
        for unit in units {
            kinds.push(EventKind::unit(&unit.setup.id, unit.attempt(), UnitEvent::Unreviewed));
            let was = before.unit(&unit.setup.id).filter(|was| was.attempt() == unit.attempt());
            if let Some(Disposition::Accepted { why, salvaged }) = was.map(|was| &was.disposition) {
                let accepted = UnitEvent::Accepted { why: why.clone(), salvaged: *salvaged };
                kinds.push(EventKind::unit(&unit.setup.id, unit.attempt(), accepted));
            }
        }
        self.record(kinds)
    }

    /// The run as it was when this landing was recorded.
    fn state_before(&self, number: u32) -> Result<RunState, LandingError> {
        let events = Reader::open(&self.workshop.run_dir)?.after(Seq(0))?;
        let is_landing = |event: &Event| match &event.kind {
            EventKind::Run(event) => matches!(**event, RunEvent::Landed { landing, .. } if landing == number),
            _ => false,
        };
        let mut state = RunState::default();
        for event in events.iter().take_while(|event| !is_landing(event)) {
            self.apply(&mut state, event)?;
        }
        Ok(state)
    }

    fn apply(&self, state: &mut RunState, event: &Event) -> Result<(), DriverError> {
        let run = || self.workshop.run.to_string();
        state.apply(event).map_err(|error| DriverError::Damaged { run: run(), error })
    }

    fn record(&mut self, kinds: Vec<EventKind>) -> Result<(), LandingError> {
        let mut events = Vec::new();
        for kind in kinds {
            let event = Event { seq: self.state.seq.next(), at: wall_now(), kind };
            let mut state = std::mem::take(&mut self.state);
            let applied = self.apply(&mut state, &event);
            self.state = state;
            applied?;
            events.push(event);
        }
        Ok(self.writer.append(&events)?)
    }
}

/// A landing that is in the working tree.
#[derive(Clone, Debug)]
pub struct Landed {
    /// Its number in the run.
    pub number: u32,
    /// The paths that were written or removed.
    pub paths: Vec<String>,
}

/// What finishing came to.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// Everything is in the working tree.
    Landed(Landed),
    /// Everything is as it was before.
    TakenBack,
}

fn read_record(dir: &Path) -> Result<Record, FileError> {
    let path = dir.join("landing.json");
    let text = std::fs::read(&path).map_err(FileError::at("read", &path))?;
    serde_json::from_slice(&text).map_err(|error| FileError::at("read", &path)(error.into()))
}
