//! What every command starts from: the home, the current directory, and the run or unit that was named.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use prun_core::event::Event;
use prun_core::ids::{LookupError, RunId, Seq, UnitId, find_run};
use prun_core::run::RunState;
use prun_core::supervise::{Command, Reply};
use prun_core::unit::Unit;
use prun_core::view::RunView;
use prun_engine::clock::wall_now;
use prun_engine::control::{self, ControlError};
use prun_engine::depth::Depth;
use prun_engine::driver::{DriverError, command_offline};
use prun_engine::executor::Registry;
use prun_engine::files::Durability;
use prun_engine::git::Git;
use prun_engine::home::{AttemptDir, Home, RunDir};
use prun_engine::landing::{self, LandingError};
use prun_engine::ledger::Reader;
use prun_engine::recover::{self, Presence};
use prun_engine::runs::{self, RunCard};
use prun_engine::survey::LoadedPlan;
use prun_engine::workshop::Workshop;
use prun_engine::workspace::source::Source;

use crate::error::{CliError, CliResult};
use crate::exit_code::ExitCode;
use crate::ui::Ui;

/// How long a supervisor may take to leave once its run has ended.
const LEAVING: Duration = Duration::from_secs(5);

/// What every command starts from.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    /// The printer.
    pub(crate) ui: Ui,
    /// The home.
    pub(crate) home: Home,
    /// The current directory.
    pub(crate) cwd: PathBuf,
}

/// A run with all that its ledger says.
#[derive(Debug)]
pub(crate) struct OpenRun {
    /// Its card.
    pub(crate) card: RunCard,
    /// Its directory.
    pub(crate) dir: RunDir,
    /// Its events.
    pub(crate) events: Vec<Event>,
    /// Their fold.
    pub(crate) state: RunState,
    /// A supervisor drives it.
    pub(crate) driven: bool,
    reader: Reader,
}

/// The top of the repository that `dir` is in.
fn top_of(dir: &Path) -> Option<PathBuf> {
    Source::open(&Git::from_env(), dir).ok().map(|source| source.top)
}

/// How many CPUs there are.
fn cpus() -> u32 {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    u32::try_from(cpus).unwrap_or(u32::MAX)
}

/// What a command does to a run that was not named: only looks, or changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    /// The newest run will do.
    Look,
    /// It has to be clear which one.
    Change,
}

impl Context {
    /// The context of this process.
    ///
    /// # Errors
    /// No home can be told, or the current directory is gone.
    pub(crate) fn from_env(ui: Ui) -> CliResult<Self> {
        let home = Home::from_env(|name| std::env::var_os(name))?;
        let cwd = std::env::current_dir()
            .map_err(|error| CliError::usage(format!("cannot tell the current directory: {error}")))?;
        Ok(Self { ui, home, cwd })
    }

    /// The executors there are.
    ///
    /// # Errors
    /// The user's configuration cannot be used.
    pub(crate) fn registry(&self) -> CliResult<Registry> {
        Ok(Registry::load(|name| std::env::var_os(name), cpus())?)
    }

    /// The executors there are, as the repository with its top at `repo` tunes them.
    ///
    /// # Errors
    /// The user's or the repository's configuration cannot be used.
    pub(crate) fn registry_in(&self, repo: Option<&Path>) -> CliResult<Registry> {
        let registry = self.registry()?;
        Ok(repo.map_or(Ok(registry.clone()), |top| registry.in_repository(top, cpus()))?)
    }

    /// The executors there are in the repository of the current directory.
    ///
    /// # Errors
    /// As [`Self::registry_in`].
    pub(crate) fn registry_here(&self) -> CliResult<Registry> {
        self.registry_in(top_of(&self.cwd).as_deref())
    }

    /// The executors there are for a plan, which is given those that it leaves open.
    ///
    /// # Errors
    /// As [`Self::registry_in`].
    pub(crate) fn registry_for(&self, loaded: &mut LoadedPlan) -> CliResult<Registry> {
        let repo = loaded.dir.join(loaded.plan.repo.as_deref().unwrap_or("."));
        let registry = self.registry_in(top_of(&repo).as_deref())?;
        loaded.choose(&registry);
        Ok(registry)
    }

    /// A run's directory, opened by its supervisor: with its executors as the repository tunes them.
    ///
    /// # Errors
    /// It cannot be read, or a configuration cannot be used.
    pub(crate) fn workshop_to_drive(&self, run: &RunId) -> CliResult<Workshop> {
        let repo = runs::list(&self.home).into_iter().find(|card| card.run == *run).and_then(|card| card.repo);
        let registry = self.registry_in(repo.as_deref())?;
        Ok(Workshop::open(self.home.clone(), run.clone(), registry, Durability::from_env())?)
    }

    /// A run's directory, opened for work.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn workshop(&self, run: &RunId) -> CliResult<Workshop> {
        Ok(Workshop::open(self.home.clone(), run.clone(), self.registry()?, Durability::from_env())?)
    }

    /// The run that `part` names, or the newest one of this repository.
    ///
    /// # Errors
    /// None, or several that could be meant.
    pub(crate) fn find_run(&self, part: Option<&str>, intent: Intent) -> CliResult<OpenRun> {
        let Some(part) = part else { return self.newest_run(&runs::list(&self.home), intent) };
        self.open(self.find_card(part)?)
    }

    /// The card of the run that `part` names; its ledger is not looked at.
    ///
    /// # Errors
    /// None, or several that could be meant.
    pub(crate) fn find_card(&self, part: &str) -> CliResult<RunCard> {
        let cards = runs::list(&self.home);
        let ids: Vec<&RunId> = cards.iter().map(|card| &card.run).collect();
        let run = find_run(ids, part).map_err(|error| match error {
            LookupError::None(_) => CliError::usage(error).hint("`prun runs` lists them"),
            LookupError::Many { .. } => CliError::usage(error).hint("name it by more characters"),
        })?;
        Ok(cards.into_iter().find(|card| card.run == run).expect("it was found among the cards"))
    }

    fn newest_run(&self, cards: &[RunCard], intent: Intent) -> CliResult<OpenRun> {
        let ours = self.runs_here(cards);
        let Some(newest) = ours.last() else {
            let here = self.repository();
            let place = here.map_or_else(|| "in this home".to_owned(), |repo| format!("of {}", repo.display()));
            return Err(CliError::usage(format!("there is no run {place}")).hint("`prun run` starts one"));
        };
        let run = self.open((*newest).clone())?;
        if intent == Intent::Change && !self.ui.can_ask() {
            self.refuse_to_guess(&ours)?;
        }
        self.ui.say(format!("run {} ({})", run.card.run.short(), run.card.title));
        Ok(run)
    }

    /// The runs that are meant by whoever names none: those of this repository, or, for a person in a unit's
    /// workspace, the run that it belongs to. Workers are in workspaces too, and no run is theirs to change.
    fn runs_here<'a>(&self, cards: &'a [RunCard]) -> Vec<&'a RunCard> {
        let place =
            self.home.runs().canonicalize().ok().and_then(|runs| self.cwd.strip_prefix(runs).ok().map(PathBuf::from));
        let name = place.as_deref().and_then(|place| place.iter().next());
        if let Some(name) = name.filter(|_| Depth::current().level == 0) {
            return cards.iter().filter(|card| name == card.run.as_str()).collect();
        }
        let here = self.repository();
        cards.iter().filter(|card| card.belongs(here.as_deref(), &self.cwd)).collect()
    }

    /// Off a terminal nobody sees which run was taken, so it has to be clear.
    fn refuse_to_guess(&self, cards: &[&RunCard]) -> CliResult<()> {
        let open = cards.iter().filter(|card| {
            let run = self.open((**card).clone());
            run.is_ok_and(|run| run.state.landings.iter().all(|landing| landing.undone))
        });
        let names: Vec<&str> = open.map(|card| card.run.short()).collect();
        if names.len() < 2 {
            return Ok(());
        }
        let message = format!("{} runs could be meant: {}", names.len(), names.join(", "));
        Err(CliError::usage(message).hint("name the run"))
    }

    /// The repository of the current directory.
    pub(crate) fn repository(&self) -> Option<PathBuf> {
        Source::open(&Git::from_env(), &self.cwd).ok().map(|source| source.top)
    }

    /// Every run that is driven now and can be read.
    pub(crate) fn driven_runs(&self) -> Vec<OpenRun> {
        let cards = runs::list(&self.home).into_iter();
        let driven = cards.filter(|card| runs::supervisor(&self.home.run(&card.run)).is_some());
        driven.filter_map(|card| self.open(card).ok()).collect()
    }

    fn open(&self, card: RunCard) -> CliResult<OpenRun> {
        let dir = self.home.run(&card.run);
        // Asked first: a supervisor that leaves has recorded its last event before.
        let driven = runs::supervisor(&dir).is_some();
        let mut reader = Reader::open(&dir)?;
        let events = reader.after(Seq(0))?;
        let state =
            RunState::replay(&events).map_err(|error| DriverError::Damaged { run: card.run.to_string(), error })?;
        Ok(OpenRun { card, dir, events, state, driven, reader })
    }

    /// The unit that `text` names: `RUN/UNIT`, or `UNIT` in the newest run.
    ///
    /// # Errors
    /// No such run or unit.
    pub(crate) fn find_unit(&self, text: &str, intent: Intent) -> CliResult<(OpenRun, UnitId)> {
        let (part, name) = match text.split_once('/') {
            Some((part, name)) => (Some(part), name),
            None => (None, text),
        };
        let run = self.find_run(part, intent)?;
        let id: UnitId = name.parse()?;
        if run.state.unit(&id).is_none() {
            let units: Vec<&str> = run.state.units.iter().take(20).map(|unit| unit.setup.id.as_str()).collect();
            let message = format!("run {} has no unit {id}", run.card.run.short());
            return Err(CliError::usage(message).hint(format!("its units: {}", units.join(", "))));
        }
        self.warn_if_lost(&run);
        Ok((run, id))
    }

    /// Says that nobody drives a run which is not over, and what to do.
    pub(crate) fn warn_if_lost(&self, run: &OpenRun) {
        if run.is_lost() {
            let name = run.card.run.short();
            self.ui.warn(format!("the supervisor of run {name} is gone; `prun resume {name}` takes over"));
        }
    }

    /// What `text` names: a unit as RUN/UNIT, a run by its whole name, a unit of the newest run, or a run by the
    /// beginning of its name, in this order. Without a text the newest run.
    ///
    /// # Errors
    /// It names none of them, or several could be meant.
    pub(crate) fn find_either(&self, text: Option<&str>, intent: Intent) -> CliResult<(OpenRun, Option<UnitId>)> {
        let Some(text) = text else { return Ok((self.find_run(None, intent)?, None)) };
        let cards = runs::list(&self.home);
        let is_run = cards.iter().any(|card| [card.run.as_str(), card.run.short()].contains(&text));
        if text.contains('/') || (!is_run && self.newest_has(&cards, text)) {
            return self.find_unit(text, intent).map(|(run, unit)| (run, Some(unit)));
        }
        Ok((self.find_run(Some(text), intent)?, None))
    }

    /// Whether the newest run of this repository has a unit of that name.
    fn newest_has(&self, cards: &[RunCard], unit: &str) -> bool {
        let run = self.runs_here(cards).last().and_then(|card| self.open((*card).clone()).ok());
        run.is_some_and(|run| run.state.units.iter().any(|known| known.setup.id.as_str() == unit))
    }

    /// Does what needs the run's lock. Who heard of the end of a run may be here before its supervisor has left.
    ///
    /// # Errors
    /// Those of `act`; `is_driven` tells the one that says that a supervisor holds the lock.
    pub(crate) fn once_left<T, E>(
        &self,
        run: &OpenRun,
        is_driven: impl Fn(&E) -> bool,
        mut act: impl FnMut() -> Result<T, E>,
    ) -> Result<T, E> {
        let deadline = Instant::now() + LEAVING;
        let mut is_told = false;
        loop {
            match act() {
                Err(error) if is_driven(&error) && run.state.ended.is_some() && Instant::now() < deadline => {
                    if !is_told {
                        self.ui
                            .say(format!("run {} has ended; its supervisor is about to leave", run.card.run.short()));
                    }
                    is_told = true;
                    std::thread::park_timeout(Duration::from_millis(20));
                }
                done => return done,
            }
        }
    }

    /// Has a command carried out by the run's supervisor, or by ourselves where there is none.
    ///
    /// # Errors
    /// It was refused, or the ledger cannot be written.
    pub(crate) fn command(&self, run: &OpenRun, command: &Command) -> CliResult<String> {
        // A supervisor may come or leave between a look and an act.
        for _ in 0..3 {
            let reply = match control::ask(&run.dir, command) {
                Ok(reply) => reply,
                Err(ControlError::NoSupervisor) => {
                    match command_offline(&self.workshop(&run.card.run)?, command.clone()) {
                        Ok(reply) => reply,
                        Err(DriverError::Driven(_)) => continue,
                        Err(error) => return Err(error.into()),
                    }
                }
                Err(ControlError::Protocol { version }) => {
                    let message = format!("the run is driven by prun {version}, which speaks another protocol");
                    return Err(CliError::usage(message).hint("use that version, or wait until the run has ended"));
                }
                Err(error @ ControlError::Broken(_)) => return Err(CliError::new(ExitCode::Unexpected, error)),
            };
            return match reply {
                Reply::Done { message, .. } => Ok(message),
                Reply::Refused { message, hint } => {
                    let error = CliError::usage(message);
                    Err(match hint {
                        Some(hint) => error.hint(hint),
                        None => error,
                    })
                }
            };
        }
        Err(CliError::new(ExitCode::Unexpected, "a supervisor holds the run's lock and does not answer")
            .hint(format!("see {}", run.dir.supervisor_log().display())))
    }
}

impl OpenRun {
    /// The units that these names, as UNIT or RUN/UNIT, stand for.
    ///
    /// # Errors
    /// One is no unit of this run.
    pub(crate) fn units(&self, names: &[String]) -> CliResult<Vec<UnitId>> {
        let unit = |name: &String| {
            let id: UnitId = name.rsplit('/').next().unwrap_or(name).parse()?;
            match self.state.unit(&id) {
                Some(_) => Ok(id),
                None => Err(CliError::usage(format!("run {} has no unit {id}", self.card.run.short()))),
            }
        };
        names.iter().map(unit).collect()
    }

    /// Takes in what has been recorded since.
    ///
    /// # Errors
    /// The ledger cannot be read, or is damaged.
    pub(crate) fn refresh(&mut self) -> CliResult<()> {
        // Asked first: a supervisor that leaves has recorded its last event before.
        self.driven = runs::supervisor(&self.dir).is_some();
        for event in self.reader.after(self.state.seq)? {
            let run = self.card.run.to_string();
            self.state.apply(&event).map_err(|error| DriverError::Damaged { run, error })?;
            self.events.push(event);
        }
        Ok(())
    }

    /// How it looks now.
    pub(crate) fn view(&self) -> RunView {
        let mut view = RunView::of(self.card.run.as_str(), &self.state, self.driven, wall_now());
        if self.is_lost() {
            for (unit, view) in self.state.units.iter().zip(&mut view.units) {
                if let Some(presence) = self.presence(unit) {
                    view.lose(presence == Presence::Alive, presence.sentence());
                }
            }
        }
        view.landing_trouble = match landing::abandoned(&self.dir, &self.state) {
            Ok(number) => number.map(|number| LandingError::CutOff(number).to_string()),
            Err(error) => Some(error.to_string()),
        };
        view
    }

    /// Nobody drives it, and it is not over.
    pub(crate) fn is_lost(&self) -> bool {
        !self.driven && self.state.ended.is_none()
    }

    /// What there is of a unit that the ledger calls active, in a run that nobody drives.
    pub(crate) fn presence(&self, unit: &Unit) -> Option<Presence> {
        let last = unit.attempts.last().filter(|_| unit.is_active())?;
        Some(recover::presence(&self.dir.attempt(&last.dir)))
    }

    /// A unit that is known to be there.
    pub(crate) fn unit(&self, id: &UnitId) -> &Unit {
        self.state.unit(id).expect("it was looked up before")
    }

    /// The directory of a unit's last attempt.
    ///
    /// # Errors
    /// There was none yet.
    pub(crate) fn last_attempt(&self, id: &UnitId) -> CliResult<AttemptDir> {
        let last = self.unit(id).attempts.last();
        let last = last.ok_or_else(|| CliError::usage(format!("{id} has not begun yet")))?;
        Ok(self.dir.attempt(&last.dir))
    }
}
