//! From a reconciled run to the user's working tree, with every step in the ledger: trial, landing, undo.
//!
//! Whoever lands holds the run's lock from the trial to the record, so no supervisor and no second landing
//! can come in between.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use prun_core::event::{Event, EventKind, RunEvent, UnitEvent};
use prun_core::ids::UnitId;
use prun_core::outcome::CheckFacts;
use prun_core::reconcile::{Reconciliation, reconcile};
use prun_core::run::RunState;
use serde::{Deserialize, Serialize};

use crate::driver::clock::wall_now;
use crate::driver::workshop::{CHECK_LIMIT, Workshop};
use crate::driver::{DriverError, read_state};
use crate::files::{FileError, write_atomically};
use crate::integrate::journal::{Journal, Phase};
use crate::integrate::land::{self, StopAfter};
use crate::integrate::prepare::Verified;
use crate::integrate::{DryRun, IntegrateError, LandError, Prepared, Request, Target, prepare, stage};
use crate::ledger::{LedgerError, RunLock, Writer};

/// Why a run was not landed. But for `Land`, nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum LandingError {
    /// Units block, or the run has nothing to land in.
    #[error("the run is not ready to be integrated")]
    NotReconciled(Box<Reconciliation>),
    /// The run has no repository.
    #[error("the run has no repository to land in")]
    NoRepository,
    /// A landing was cut off and is to be finished or undone first.
    #[error("landing {0} was cut off in the middle")]
    CutOff(u32),
    /// There is no such landing.
    #[error("there is no landing to {0}")]
    NoLanding(&'static str),
    /// The check failed on the combination.
    #[error("the check failed on the combination")]
    VerifyFailed(Box<DryRun>),
    /// It could not be combined.
    #[error(transparent)]
    Integrate(#[from] IntegrateError),
    /// It could not be landed, or taken back.
    #[error(transparent)]
    Land(#[from] LandError),
    /// The ledger, or whoever drives the run.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// A file operation.
    #[error(transparent)]
    File(#[from] FileError),
}

impl From<LedgerError> for LandingError {
    fn from(error: LedgerError) -> Self {
        Self::Driver(error.into())
    }
}

/// How a trial is made.
#[derive(Clone, Debug, Default)]
pub struct TrialOptions {
    /// Overlaps that the user accepted, by path.
    pub accepted: BTreeSet<String>,
    /// Leave the check out.
    pub no_verify: bool,
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
    /// What the user should know of the units.
    pub reconciliation: Reconciliation,
    prepared: Prepared,
    units: Vec<UnitId>,
    journal_stage: PathBuf,
    verify_skipped: bool,
    // Removes the quarantine and the stages at the end.
    _place: tempfile::TempDir,
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
        let reconciliation = reconcile(&self.state.units);
        let setup = self.state.setup.as_ref().ok_or(LandingError::NoRepository)?;
        let (Some(repo), Some(base_tree)) = (setup.repo.clone(), setup.base_tree.clone()) else {
            return Err(LandingError::NoRepository);
        };
        if !reconciliation.ready {
            return Err(LandingError::NotReconciled(Box::new(reconciliation)));
        }
        let landing = reconciliation.landing.iter().map(|one| (one.unit.clone(), one.tree.clone()));
        let units: Vec<(UnitId, String)> = landing.collect();
        let place = tempfile::Builder::new()
            .prefix("trial-")
            .tempdir_in(self.workshop.run_dir.root())
            .map_err(FileError::at("create a directory in", self.workshop.run_dir.root()))?;
        let target = Target::of(&self.workshop.git, Path::new(&repo)).map_err(IntegrateError::from)?;
        let request = Request {
            git: &self.workshop.git,
            target: &target,
            store: &self.workshop.run_dir.store(),
            quarantine: &place.path().join("quarantine"),
            base_tree: &base_tree,
            units: &units,
            accepted: &options.accepted,
        };
        let prepared = prepare(&request)?;
        let mut trial = Trial {
            dry_run: prepared.dry_run.clone(),
            reconciliation,
            prepared,
            units: units.into_iter().map(|(unit, _)| unit).collect(),
            journal_stage: place.path().join("bytes"),
            verify_skipped: options.no_verify && self.workshop.plan.verify.is_some(),
            _place: place,
        };
        if trial.dry_run.tree.is_some() {
            trial.prepared.stage(&trial.journal_stage)?;
            if !options.no_verify {
                self.verify(&mut trial, &base_tree)?;
            }
        }
        Ok(trial)
    }

    /// The check runs in a second checkout: what lands comes from one that no command ever ran in.
    fn verify(&mut self, trial: &mut Trial, base_tree: &str) -> Result<(), LandingError> {
        let Some(command) = &self.workshop.plan.verify else { return Ok(()) };
        let tree = trial.dry_run.tree.clone().unwrap_or_default();
        let stage = trial.journal_stage.with_file_name("checked");
        trial.prepared.stage(&stage)?;
        let combination = self.check(&command.argv(), &stage, &tree)?;
        let known = self.state.verified.get(base_tree).map(|verified| verified.check.clone());
        self.record(vec![EventKind::run(RunEvent::VerifyFinished {
            tree,
            on_base: false,
            check: combination.clone(),
        })])?;
        let base = match known {
            // A red combination is only worth as much as the base is green.
            None if !combination.ok => {
                let stage = trial.journal_stage.with_file_name("checked-base");
                trial.prepared.stage_base(base_tree, &stage)?;
                let check = self.check(&command.argv(), &stage, base_tree)?;
                let (tree, on_base) = (base_tree.to_owned(), true);
                self.record(vec![EventKind::run(RunEvent::VerifyFinished { tree, on_base, check: check.clone() })])?;
                Some(check)
            }
            known => known,
        };
        trial.dry_run.ready &= combination.ok;
        trial.dry_run.verify = Some(Verified { base, combination });
        Ok(())
    }

    fn check(&self, argv: &[String], dir: &Path, tree: &str) -> Result<CheckFacts, FileError> {
        let log = self.workshop.run_dir.root().join(format!("verify-{}.log", tree.get(..12).unwrap_or(tree)));
        if let Some(setup) = &self.workshop.plan.setup {
            let facts = stage::run_check(&setup.argv(), dir, CHECK_LIMIT, &log)?;
            if !facts.ok {
                return Ok(facts);
            }
        }
        stage::run_check(argv, dir, CHECK_LIMIT, &log)
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
        let journal = trial.prepared.journal(&trial.journal_stage, &dir, name, durability)?;
        let record = Record {
            tree: trial.dry_run.tree.clone().unwrap_or_default(),
            units: trial.units.clone(),
            paths: trial.dry_run.files.iter().map(|file| file.path.clone()).collect(),
            verify_skipped: trial.verify_skipped,
        };
        let text = serde_json::to_vec_pretty(&record).expect("plain data with string keys");
        write_atomically(&dir.join("landing.json"), &text, durability)?;
        land::land(&journal, StopAfter(None))?;
        self.record_landing(number, &record)?;
        Ok(Landed { number, paths: record.paths })
    }

    /// Finishes a landing, or an undo, that was cut off.
    ///
    /// # Errors
    /// There is none, or it cannot be finished.
    pub fn go_on(&mut self) -> Result<Outcome, LandingError> {
        let number = self.cut_off()?.ok_or(LandingError::NoLanding("continue"))?;
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
        let number = self.cut_off()?.or(standing).ok_or(LandingError::NoLanding("undo"))?;
        let journal = Journal::open(&self.workshop.run_dir.landing(number), self.workshop.durability)?;
        land::undo(&journal, StopAfter(None))?;
        if self.state.landings.iter().any(|landing| landing.number == number) {
            self.record_undo(number)?;
        }
        Ok(number)
    }

    fn refuse_cut_off(&self) -> Result<(), LandingError> {
        self.cut_off()?.map_or(Ok(()), |number| Err(LandingError::CutOff(number)))
    }

    /// A landing whose journal says other than the ledger.
    fn cut_off(&self) -> Result<Option<u32>, LandingError> {
        let number = self.state.landings.last().map_or(1, |landing| landing.number);
        for number in [number, number + 1] {
            let dir = self.workshop.run_dir.landing(number);
            if !dir.join("phase.json").exists() {
                continue;
            }
            let phase = Journal::open(&dir, self.workshop.durability)?.phase()?;
            let recorded = self.state.landings.iter().find(|landing| landing.number == number);
            let agrees = match (phase, recorded) {
                (Phase::Landed, Some(landing)) => !landing.undone,
                (Phase::Undone, recorded) => recorded.is_none_or(|landing| landing.undone),
                (Phase::Prepared, None) => true,
                _ => false,
            };
            if !agrees {
                return Ok(Some(number));
            }
        }
        Ok(None)
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

    fn record_undo(&mut self, number: u32) -> Result<(), LandingError> {
        let tree = self.state.landings.iter().find(|landing| landing.number == number).map(|landing| &landing.tree);
        let units = self.state.units.iter().filter(|unit| match &unit.disposition {
            prun_core::unit::Disposition::Applied { tree: applied } => Some(applied) == tree,
            _ => false,
        });
        let mut kinds = vec![EventKind::run(RunEvent::Undone { landing: number })];
        kinds.extend(units.map(|unit| EventKind::unit(&unit.setup.id, unit.attempt(), UnitEvent::Unreviewed)));
        self.record(kinds)
    }

    fn record(&mut self, kinds: Vec<EventKind>) -> Result<(), LandingError> {
        let mut events = Vec::new();
        for kind in kinds {
            let event = Event { seq: self.state.seq.next(), at: wall_now(), kind };
            let run = self.workshop.run.to_string();
            self.state.apply(&event).map_err(|error| DriverError::Damaged { run, error })?;
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
