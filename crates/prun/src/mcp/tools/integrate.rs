//! `reconcile` and `integrate`. A combination is checked on a thread of its own, however long that takes: a call
//! comes back after a while and the next one with the same arguments takes it up.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use prun_core::answer::OfRun;
use prun_core::outcome::CheckFacts;
use prun_core::reconcile::{Reconciliation, reconcile as weigh};
use prun_core::view::VIEW_VERSION;
use prun_engine::integrate::DryRun;
use prun_engine::landing::{LandingError, TrialOptions};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::answer::Answer;
use super::super::call::{Call, Progress};
use super::super::shared::Shared;
use super::RunArgs;
use super::wait::LONGEST;
use crate::commands::{integrate as landing, reconcile as verdicts};
use crate::context::Intent;
use crate::error::{CliError, CliResult};
use crate::exit_code::ExitCode;

/// How often a call looks whether its client is still there.
const LOOK: Duration = Duration::from_millis(100);

/// How often a client hears that the call is alive.
const SIGN_OF_LIFE: Duration = Duration::from_secs(5);

/// The fewest characters of a tree id that name it.
const SHORTEST_TREE: usize = 7;

pub(super) fn reconcile(shared: &Shared, args: &RunArgs, _: &Call) -> CliResult<Answer> {
    let run = shared.context.find_run(args.run.as_deref(), Intent::Look)?;
    let found = weigh(&run.state.units);
    Ok(Answer::new(verdicts::lines(&found, run.card.run.short()).join("\n"), &weighed(&found, run.card.run.short())))
}

/// A reconciliation without the ids of trees, which no tool takes.
fn weighed(found: &Reconciliation, run: &str) -> Value {
    let mut data = serde_json::to_value(OfRun::new(run, found)).expect("plain data with string keys");
    data["landing"] = found.landing.iter().map(|landing| landing.unit.as_str()).collect();
    data
}

/// What to land.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    /// Run id. Default: the newest run of this repository.
    run: Option<String>,
    /// Tree id that the call without tree showed: lands it, or nothing.
    tree: Option<String>,
    /// Paths whose reported overlap is taken as it was combined.
    accept_overlap: Option<Vec<String>>,
    /// Units that land, whatever the others are. Default: all.
    only: Option<Vec<String>>,
    /// Leave the plan's check out; recorded.
    no_verify: Option<bool>,
}

/// What was asked for: the same question is not asked twice at once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Question {
    run: String,
    tree: Option<String>,
    accepted: BTreeSet<String>,
    only: Vec<String>,
    no_verify: bool,
}

/// A trial, or a landing, that goes on by itself.
#[derive(Debug, Default)]
struct Job {
    state: Mutex<JobState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct JobState {
    answer: Option<Answer>,
    /// The client took its word back.
    abandoned: bool,
}

/// Trials of this server.
#[derive(Debug, Default)]
pub(crate) struct Trials {
    jobs: Mutex<BTreeMap<Question, Arc<Job>>>,
    /// Trees that a dry run of this server showed, with their runs.
    shown: Mutex<BTreeSet<(String, String)>>,
}

pub(super) fn integrate(shared: &Shared, args: &Args, call: &Call) -> CliResult<Answer> {
    let intent = if args.tree.is_some() { Intent::Change } else { Intent::Look };
    let run = shared.context.find_run(args.run.as_deref(), intent)?;
    let name = run.card.run.to_string();
    if let Some(tree) = &args.tree {
        insist_on_own_dry_run(&shared.trials, &name, tree, run.card.run.short())?;
    }
    let question = Question {
        run: name,
        tree: args.tree.clone(),
        accepted: args.accept_overlap.iter().flatten().cloned().collect(),
        only: args.only.clone().unwrap_or_default(),
        no_verify: args.no_verify == Some(true),
    };
    let job = shared.trials.job(shared, &question)?;
    let began = Instant::now();
    let mut told = None;
    let mut state = locked(&job.state);
    state.abandoned = false;
    loop {
        if let Some(answer) = state.answer.take() {
            drop(state);
            locked(&shared.trials.jobs).remove(&question);
            return Ok(answer);
        }
        if call.is_gone() {
            state.abandoned = true;
            return Err(CliError::new(ExitCode::Interrupted, "the call was cancelled"));
        }
        if began.elapsed() >= Duration::from_secs(LONGEST) {
            let text = "still checking the combination; call integrate again with the same arguments";
            let data = json!({"version": VIEW_VERSION, "run": run.card.run.short(), "pending": true, "message": text});
            return Ok(Answer::new(text, &data));
        }
        if told.is_none_or(|at: Instant| at.elapsed() >= SIGN_OF_LIFE) {
            told = Some(Instant::now());
            let seconds = began.elapsed().as_secs();
            call.tell(|| Progress { done: 0, total: 1, message: format!("combining and checking, {seconds} s") });
        }
        state = job.changed.wait_timeout(state, LOOK).unwrap_or_else(PoisonError::into_inner).0;
    }
}

/// What lands is what this session was shown.
fn insist_on_own_dry_run(trials: &Trials, run: &str, tree: &str, short: &str) -> CliResult<()> {
    let shown = locked(&trials.shown);
    let is_shown = |(of, known): &(String, String)| of == run && known.starts_with(tree);
    if tree.len() >= SHORTEST_TREE && shown.iter().any(is_shown) {
        return Ok(());
    }
    let message = format!("nothing was changed: no dry run of this session showed tree {tree}");
    let error =
        CliError::new(ExitCode::NotReady, message).hint("call integrate without tree first, and show it to the user");
    Err(error.hint(format!("or for the user: prun integrate {short}")))
}

impl Trials {
    /// The job that answers the question: the one under way, or a new one.
    fn job(&self, shared: &Shared, question: &Question) -> CliResult<Arc<Job>> {
        let mut jobs = locked(&self.jobs);
        if let Some(job) = jobs.get(question) {
            return Ok(Arc::clone(job));
        }
        let job = Arc::<Job>::default();
        let worker = Worker { shared: shared.handle(), question: question.clone(), job: Arc::clone(&job) };
        std::thread::Builder::new().name("integrate".into()).spawn(move || worker.work())?;
        jobs.insert(question.clone(), Arc::clone(&job));
        Ok(job)
    }
}

struct Worker {
    shared: Arc<Shared>,
    question: Question,
    job: Arc<Job>,
}

impl Worker {
    fn work(self) {
        let answer = self.answer().unwrap_or_else(|error| Answer::error(&error));
        locked(&self.job.state).answer = Some(answer);
        self.job.changed.notify_all();
    }

    fn answer(&self) -> CliResult<Answer> {
        let context = &self.shared.context;
        let run = context.find_run(Some(&self.question.run), Intent::Look)?;
        let workshop = context.workshop(&run.card.run)?;
        let failure = |error| landing::refusal(error, &run);
        let mut desk = landing::open_desk(context, &workshop, &run).map_err(failure)?;
        let options = TrialOptions {
            accepted: self.question.accepted.clone(),
            only: run.units(&self.question.only)?.into_iter().collect(),
            no_verify: self.question.no_verify,
            resolved: false,
        };
        let trial = match desk.trial(&options) {
            Ok(trial) => trial,
            Err(LandingError::NotReconciled(found)) => {
                let text = verdicts::lines(&found, run.card.run.short()).join("\n");
                let data = weighed(&found, run.card.run.short());
                return Ok(Answer::new(format!("nothing was changed\n{text}"), &data).failed());
            }
            Err(error) => return Err(failure(error)),
        };
        let lines = landing::lines(&trial.dry_run).into_iter().map(|(line, _)| line);
        let mut text = bounded(lines.collect());
        let mut next = None;
        let is_good = landing::verdict(&trial.dry_run) == ExitCode::Ok;
        let Some(tree) = self.question.tree.as_ref().filter(|_| is_good) else {
            if let Some(tree) = trial.dry_run.tree.clone().filter(|_| is_good) {
                next = Some(format!("nothing was changed. On the user's word: integrate with tree {}", &tree[..12]));
                locked(&self.shared.trials.shown).insert((self.question.run.clone(), tree));
            }
            text.extend(next.iter().flat_map(|next| ["\n", next]));
            let answer = Answer::new(text, &brief(&trial.dry_run, run.card.run.short(), next));
            return Ok(if is_good { answer } else { answer.failed() });
        };
        let _until_landed = self.shared.landing.read().unwrap_or_else(PoisonError::into_inner);
        if locked(&self.job.state).abandoned {
            return Err(CliError::new(ExitCode::NotReady, "the call was cancelled; nothing was changed"));
        }
        desk.land(&trial, tree).map_err(failure)?;
        let landed = landing::landed(&trial.dry_run, &run);
        let text = landing::landed_lines(&landed).join("\n");
        let mut data = serde_json::to_value(landed).expect("plain data with string keys");
        data["message"] = "landed, uncommitted; HEAD and index untouched".into();
        Ok(Answer::new(text, &data))
    }
}

/// Lines of a dry run that one answer shows, and paths of each kind that its data names.
const LINES: usize = 80;
/// Edits that it names of one overlap.
const EDITS: usize = 8;

/// A dry run with no more paths than one reads; `left_out` counts the others. Of checks only what one asks first:
/// how they ended, and where a failed one wrote.
fn brief(dry_run: &DryRun, run: &str, message: Option<String>) -> Value {
    let mut data = serde_json::to_value(OfRun::new(run, dry_run)).expect("plain data with string keys");
    let mut left_out = 0;
    for kind in ["files", "overlaps", "conflicts"] {
        if let Some(Value::Array(paths)) = data.get_mut(kind) {
            left_out += paths.len().saturating_sub(LINES);
            paths.truncate(LINES);
        }
    }
    for overlap in data["overlaps"].as_array_mut().into_iter().flatten() {
        if let Some(Value::Array(edits)) = overlap.get_mut("edits") {
            edits.truncate(EDITS);
        }
    }
    let check = |facts: &CheckFacts| {
        let log = (!facts.ok).then_some(&facts.log);
        json!({"ok": facts.ok, "timed_out": facts.timed_out, "millis": facts.millis, "log": log})
    };
    if let Some(verify) = &dry_run.verify {
        let base = verify.base.as_ref().map(check);
        data["verify"] = json!({"base": base, "combination": check(&verify.combination)});
    }
    data["left_out"] = left_out.into();
    data["message"] = message.into();
    data
}

fn bounded(mut lines: Vec<String>) -> String {
    let Some(sum) = lines.pop() else { return String::new() };
    // What stands in the way comes last; it is what one has to read.
    let left_out = lines.len().saturating_sub(LINES);
    lines.drain(..left_out);
    if left_out > 0 {
        lines.insert(0, format!("  … and {left_out} more files"));
    }
    lines.push(sum);
    lines.join("\n")
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
