//! Plain data for people's and machines' displays: the only stable output shapes.

use serde::Serialize;

use crate::budget::Level;
use crate::event::{Guard, Mode};
use crate::ids::UnitId;
use crate::outcome::{Channel, Outcome};
use crate::panel::{Choice, Panel, panels};
use crate::run::{PastHold, RunState};
use crate::time::Timestamp;
use crate::unit::{AttemptRecord, Disposition, Unit, UnitState};

/// The version of the shapes in this file; it grows when a member changes its meaning.
pub const VIEW_VERSION: u32 = 1;

/// A run at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct RunView {
    /// [`VIEW_VERSION`].
    pub version: u32,
    /// The run's id.
    pub run: String,
    /// The plan's title.
    pub title: String,
    /// Whether somebody drives it.
    pub state: RunViewState,
    /// The repository's top level.
    pub repo: Option<String>,
    /// The base, a commit id.
    pub base: Option<String>,
    /// What keeps workers from writing to the repository; `None`: nothing, it is only detected.
    pub guard: Option<Guard>,
    /// When it began.
    pub began: Timestamp,
    /// Milliseconds since then, up to its end.
    pub millis: u64,
    /// Tokens of all settled attempts.
    pub tokens: u64,
    /// How many units are where.
    pub counts: Counts,
    /// Each unit.
    pub units: Vec<UnitView>,
    /// Panels: units with the same work, of which at most one lands.
    pub panels: Vec<PanelView>,
    /// Executors on which no unit starts for now.
    pub holds: Vec<HoldView>,
    /// Holds that are over, oldest first.
    pub past_holds: Vec<PastHoldView>,
    /// Budgets of which 80 % or more are spent: the run's own, then those of units.
    pub budgets: Vec<BudgetView>,
    /// Why no unit starts for now, where the machine is too busy for one more.
    pub paused: Option<String>,
    /// What workers changed in the user's repository.
    pub repository_touched: Vec<String>,
    /// Trees that landed and were not taken back.
    pub landed: Vec<String>,
    /// What keeps the run from landing until somebody sees to it: a landing that was cut off in the middle. The
    /// ledger cannot tell; whoever sees the run's directory fills it in.
    pub landing_trouble: Option<String>,
    /// What to give `wait --since` to hear of what comes next.
    pub next: u64,
}

/// A panel at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct PanelView {
    /// Its name.
    pub panel: String,
    /// Its units.
    pub members: Vec<String>,
    /// The one that lands, where the user has said so.
    pub chosen: Option<String>,
    /// All members are over, and the run cannot land before one is chosen.
    pub is_open: bool,
}

impl PanelView {
    fn of(panel: &Panel<'_>) -> Self {
        Self {
            panel: panel.name.to_string(),
            members: panel.members.iter().map(|unit| unit.setup.id.to_string()).collect(),
            chosen: match panel.choice() {
                Choice::Member(unit) => Some(unit.to_string()),
                Choice::Open | Choice::Nobody | Choice::Several(_) => None,
            },
            is_open: panel.is_open(),
        }
    }
}

/// A budget of which 80 % or more are spent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct BudgetView {
    /// Whose; `None`: the run's.
    pub unit: Option<String>,
    /// What is used of what, in a sentence.
    pub why: String,
    /// Nothing is left of it.
    pub is_spent: bool,
}

impl BudgetView {
    fn of((unit, (level, why)): (&Option<UnitId>, &(Level, String))) -> Self {
        Self { unit: unit.as_ref().map(ToString::to_string), why: why.clone(), is_spent: *level == Level::Spent }
    }
}

/// An executor on which no unit starts for now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct HoldView {
    /// The executor.
    pub executor: String,
    /// The class of error that caused it, such as `usage-limit`.
    pub cause: String,
    /// Since when.
    pub since: Timestamp,
    /// Until when; `None` until somebody releases it.
    pub until: Option<Timestamp>,
    /// Milliseconds until then.
    pub left_millis: Option<u64>,
    /// Why, in a sentence.
    pub why: String,
    /// It is more than a pause of minutes.
    pub is_lasting: bool,
    /// Units that wait and can go nowhere else.
    pub stuck: usize,
}

/// A hold that is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct PastHoldView {
    /// The executor.
    pub executor: String,
    /// The class of error that caused it.
    pub cause: String,
    /// When it began.
    pub since: Timestamp,
    /// When it ended.
    pub ended: Timestamp,
    /// Units that it interrupted and that went on with another executor.
    pub moved: usize,
}

/// Holds that are in force at `now`. One whose time has come while nobody drove the run is over.
fn holds(run: &RunState, now: Timestamp) -> Vec<HoldView> {
    let in_force = run.holds.iter().filter(|(_, hold)| hold.until.is_none_or(|until| until > now));
    let view = in_force.map(|(executor, hold)| HoldView {
        executor: executor.to_string(),
        cause: hold.cause.to_string(),
        since: hold.since,
        until: hold.until,
        left_millis: hold.until.map(|until| until.since(now)),
        why: hold.why.clone(),
        is_lasting: hold.is_lasting(),
        stuck: run.stuck_on(executor).count(),
    });
    view.collect()
}

impl PastHoldView {
    fn of(hold: &PastHold, run: &RunState) -> Self {
        let is_its = |record: &AttemptRecord| {
            let ended = record.ended.is_some_and(|ended| ended >= hold.since && ended <= hold.ended);
            ended && record.executor == hold.executor && record.outcome == Some(Outcome::Failed(hold.cause))
        };
        let has_moved = |unit: &&Unit| {
            let pairs = unit.attempts.iter().zip(unit.attempts.iter().skip(1));
            pairs.into_iter().any(|(record, next)| is_its(record) && next.executor != hold.executor)
        };
        Self {
            executor: hold.executor.to_string(),
            cause: hold.cause.to_string(),
            since: hold.since,
            ended: hold.ended,
            moved: run.units.iter().filter(has_moved).count(),
        }
    }
}

/// Whether somebody drives a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RunViewState {
    /// Its supervisor lives.
    Running,
    /// Every unit is settled.
    Ended,
    /// It was stopped.
    Cancelled,
    /// It is not over, and its supervisor is gone: `prun resume`.
    SupervisorLost,
}

/// How many units are where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Counts {
    /// In all.
    pub total: usize,
    /// Waiting for a slot or for their next attempt.
    pub queued: usize,
    /// Being prepared, running, stopping, settling or lost.
    pub active: usize,
    /// Of these, handed over to the coordinator.
    pub handed_over: usize,
    /// Settled as succeeded.
    pub succeeded: usize,
    /// Settled otherwise.
    pub unsuccessful: usize,
}

/// A unit at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct UnitView {
    /// Its id.
    pub unit: String,
    /// Read or write.
    pub mode: Mode,
    /// The state's stable name.
    pub state: String,
    /// The verdict, once settled.
    pub outcome: Option<String>,
    /// Why, in a sentence.
    pub why: Option<String>,
    /// The number of the current or last attempt.
    pub attempt: u32,
    /// Attempts it may have in all.
    pub attempts_allowed: u32,
    /// Who does it.
    pub executor: Option<String>,
    /// Milliseconds of the current or last attempt.
    pub millis: u64,
    /// `unreviewed`, `accepted`, `excluded` or `applied`.
    pub disposition: String,
    /// It waits for the coordinator's own subagent.
    pub handed_over: bool,
    /// No sign of life for half its idle limit.
    pub quiet: bool,
    /// The result's conclusion.
    pub conclusion: Option<String>,
    /// The result's open items.
    pub open_items: Option<String>,
    /// The result was only salvaged from the output.
    pub salvaged: bool,
    /// Files it changed.
    pub files: usize,
    /// Lines it added.
    pub added: u64,
    /// Lines it removed.
    pub removed: u64,
    /// Its tokens, all attempts together.
    pub tokens: u64,
}

impl RunViewState {
    /// Its stable name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Ended => "ended",
            Self::Cancelled => "cancelled",
            Self::SupervisorLost => "supervisor-lost",
        }
    }
}

impl RunView {
    /// How a run looks at `now`; `driven`: its supervisor lives.
    #[must_use]
    pub fn of(id: &str, run: &RunState, driven: bool, now: Timestamp) -> Self {
        let end = if run.ended.is_some() { run.last_at } else { now };
        let setup = run.setup.as_ref();
        Self {
            version: VIEW_VERSION,
            run: id.to_owned(),
            title: setup.map(|setup| setup.title.clone()).unwrap_or_default(),
            state: match run.ended {
                Some(false) => RunViewState::Ended,
                Some(true) => RunViewState::Cancelled,
                None if driven => RunViewState::Running,
                None => RunViewState::SupervisorLost,
            },
            repo: setup.and_then(|setup| setup.repo.clone()),
            base: setup.and_then(|setup| setup.base.clone()),
            guard: setup.and_then(|setup| setup.guard),
            began: run.began,
            millis: end.since(run.began),
            tokens: run.tokens(),
            counts: Counts::of(run),
            units: run.units.iter().map(|unit| UnitView::of(unit, now)).collect(),
            panels: panels(&run.units).iter().map(PanelView::of).collect(),
            holds: holds(run, now),
            past_holds: run.past_holds.iter().map(|hold| PastHoldView::of(hold, run)).collect(),
            budgets: run.levels.iter().map(BudgetView::of).collect(),
            paused: run.paused.clone(),
            repository_touched: run.touched.clone(),
            landed: run.landings.iter().filter(|one| !one.undone).map(|one| one.tree.clone()).collect(),
            landing_trouble: None,
            next: run.seq.0,
        }
    }
}

impl UnitView {
    /// Says of a unit that nobody drives what was seen of it: the ledger alone would still call it running.
    pub fn lose(&mut self, is_alive: bool, why: &str) {
        if !is_alive {
            self.state = "lost".to_owned();
        }
        self.why = Some(why.to_owned());
    }
}

impl Counts {
    fn of(run: &RunState) -> Self {
        let succeeded = |state: &UnitState| matches!(state, UnitState::Settled { outcome: Outcome::Succeeded, .. });
        let settled = |state: &UnitState| matches!(state, UnitState::Settled { .. });
        Self {
            total: run.units.len(),
            queued: run.count(|state| matches!(state, UnitState::Queued | UnitState::Backoff { .. })),
            active: run.active().count(),
            handed_over: run.count(|state| matches!(state, UnitState::Running(running) if running.handed_over)),
            succeeded: run.count(succeeded),
            unsuccessful: run.count(|state| settled(state) && !succeeded(state)),
        }
    }
}

impl UnitView {
    pub(crate) fn of(unit: &Unit, now: Timestamp) -> Self {
        let last = unit.attempts.last();
        let facts = unit.facts();
        let result = facts.and_then(|facts| facts.result.as_ref());
        let changes = facts.and_then(|facts| facts.changes.as_ref());
        let lines = |pick: fn(&crate::outcome::FileChange) -> Option<u64>| {
            changes.map_or(0, |changes| changes.files.iter().filter_map(pick).sum())
        };
        let attempts = unit.attempts.iter().filter_map(|attempt| attempt.facts.as_ref()?.usage);
        Self {
            unit: unit.setup.id.to_string(),
            mode: unit.setup.mode,
            state: unit.state.name().to_owned(),
            outcome: unit.outcome().map(ToString::to_string),
            why: match &unit.state {
                UnitState::Settled { why, .. } => Some(why.clone()),
                _ => None,
            },
            attempt: unit.attempt().0,
            attempts_allowed: unit.attempt().0.max(1) + unit.setup.retries.saturating_sub(unit.retries_spent),
            executor: last.map(|last| last.executor.to_string()),
            millis: last.map_or(0, |last| last.ended.unwrap_or(now).since(last.began)),
            disposition: unit.disposition.name().to_owned(),
            handed_over: matches!(&unit.state, UnitState::Running(running) if running.handed_over),
            quiet: matches!(&unit.state, UnitState::Running(running) if running.quiet),
            conclusion: result.and_then(|result| result.conclusion.clone()),
            open_items: result.and_then(|result| result.open_items.clone()),
            salvaged: result.is_some_and(|result| result.channel == Channel::Salvage),
            files: changes.map_or(0, |changes| changes.files.len()),
            added: lines(|file| file.added),
            removed: lines(|file| file.removed),
            tokens: attempts.map(|usage| usage.total_tokens()).sum(),
        }
    }
}

impl Disposition {
    /// Its stable name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Unreviewed => "unreviewed",
            Self::Accepted { .. } => "accepted",
            Self::Excluded { .. } => "excluded",
            Self::Applied { .. } => "applied",
        }
    }
}
