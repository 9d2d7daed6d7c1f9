//! An attempt made ready: its directory and fence, its workspace, what its worker is told, its spec.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::sync::PoisonError;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use prun_core::event::{Mode, RetryHow};
use prun_core::plan::UnitPlan;
use prun_core::plan::model::DEFAULT_FIRST_OUTPUT_MILLIS;
use rustix::fs::{FlockOperation, flock};

use super::checkouts::{Workspace, previous_workspace, remove_workspace};
use super::{Order, Previous, Workshop};
use crate::brief::{BriefFacts, compose, follow_up};
use crate::executor::stream::StreamKind;
use crate::executor::{Executor, Kind, LaunchRequest, launch};
use crate::files::{Durability, FileError, create_private_dir, write_atomically};
use crate::home::AttemptDir;
use crate::spec::{AttemptSpec, CheckSpec, Limits, Liveness, SPEC_VERSION};

/// How long a worker may live on after its client's final event (design, section 5).
const LINGER_MILLIS: u64 = 30_000;

/// Between TERM and KILL (contract).
const GRACE_MILLIS: u64 = 2_000;

/// What a tail may hold (design, section 5).
const OUTPUT_BYTES: u64 = 256 << 20;

/// Bytes of a failed check's output that go into the next prompt: its end.
const CHECK_OUTPUT: u64 = 4096;

/// An attempt that is ready to be dispatched.
#[derive(Debug)]
pub struct Prepared {
    /// Its fence, locked.
    pub fence: File,
    /// Milliseconds it took.
    pub millis: u64,
}

impl Workshop {
    /// Makes the attempt's directory, takes its fence, prepares the workspace and writes the spec.
    ///
    /// # Errors
    /// Any step failed; what was half made is removed. The message names the path and the act.
    pub fn prepare(&self, order: &Order) -> Result<Prepared, String> {
        let prepared = self.prepare_ordered(order);
        if self.ordered.fetch_sub(1, SeqCst) == 1 && !order.has_queued {
            // Its bytes are free as soon as it is closed.
            *self.template.write().unwrap_or_else(PoisonError::into_inner) = None;
        }
        prepared
    }

    fn prepare_ordered(&self, order: &Order) -> Result<Prepared, String> {
        let began = Instant::now();
        let dir = self.attempt_dir(&order.unit.id, order.attempt);
        let fence = begin_attempt(&dir).map_err(|error| error.to_string())?;
        match self.prepare_in(&dir, order) {
            Ok(()) => {
                let millis = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
                Ok(Prepared { fence, millis })
            }
            Err(message) => {
                remove_workspace(&dir);
                Err(message)
            }
        }
    }

    fn prepare_in(&self, dir: &AttemptDir, order: &Order) -> Result<(), String> {
        let executor = self.registry.get(&order.executor).map_err(|error| error.to_string())?;
        let continued = order.previous.as_ref().filter(|_| order.next.how == RetryHow::Continue);
        let workspace = match continued {
            Some(previous) => previous_workspace(previous)?,
            None => self.new_workspace(dir, order)?,
        };
        let resumes = continued.and_then(|previous| previous.session.clone()).filter(|_| executor.resumes());
        let command = order.unit.command.as_ref().map(prun_core::plan::CommandLine::argv);
        let is_session = executor.kind == Kind::Session;
        let prompt = self.prompt(dir, order, &workspace, resumes.is_some(), is_session);
        let request = LaunchRequest {
            model: order.unit.model.as_deref(),
            effort: order.unit.effort.as_deref(),
            command: command.as_deref(),
            result: order.unit.result,
            resume: resumes.as_ref().map(|resumed| resumed.session.as_str()),
            most_turns: order.left.turns,
            most_micro_usd: order.left.money_micro_usd,
            version: self.version(executor),
            prompt_bytes: Some(prompt.len() as u64),
            ..LaunchRequest::default()
        };
        let worker = launch(executor, &request).map_err(|error| error.to_string())?;
        // Prompt and spec need not survive a power cut: where they are lost the attempt had only begun.
        write_atomically(&dir.prompt(), prompt.as_bytes(), Durability::Cached).map_err(|error| error.to_string())?;
        // A workspace that goes on is set up once; one in which that was cut short is set up now.
        let is_set_up = continued.is_some_and(|previous| previous.is_set_up);
        let setup = self.plan.setup.as_ref().filter(|_| !is_set_up && workspace.harvest.is_some());
        // A workspace that goes on belongs to an earlier attempt.
        let own = [dir.root().to_owned(), workspace.cwd.clone()];
        let guard = self.guard(order.repo.as_deref(), &own)?;
        let stream = worker.as_ref().map_or(StreamKind::Plain, |worker| worker.stream);
        let spec = AttemptSpec {
            version: SPEC_VERSION,
            run: Some(self.run.clone()),
            unit: order.unit.id.clone(),
            attempt: order.attempt,
            attempt_dir: Some(dir.root().to_owned()),
            state_parent: dir.root().to_owned(),
            worker,
            resumes,
            prompt_file: dir.prompt(),
            result_file: dir.result(),
            cwd: Some(workspace.cwd),
            env: environment(executor, &order.unit),
            place: self.place_of(&order.unit),
            limits: limits(&order.unit, executor, stream),
            setup: setup.map(|command| check(command, self.plan.setup_limit())),
            verify: order.unit.verify.as_ref().map(|command| check(command, self.plan.check_limit())),
            deliverables: order.unit.deliverables.clone(),
            expects_changes: order.unit.mode == Mode::Write,
            harvest: workspace.harvest,
            guard,
            depth: self.plan.depth,
        };
        let text = serde_json::to_vec_pretty(&spec).map_err(|error| format!("cannot write the spec: {error}"))?;
        write_atomically(&dir.spec(), &text, Durability::Cached).map_err(|error| error.to_string())
    }

    fn place_of(&self, unit: &UnitPlan) -> u32 {
        let place = self.plan.units.iter().position(|other| other.id == unit.id).unwrap_or(0);
        u32::try_from(place).unwrap_or(0)
    }

    fn prompt(
        &self,
        dir: &AttemptDir,
        order: &Order,
        workspace: &Workspace,
        resumes: bool,
        is_session: bool,
    ) -> String {
        let result = dir.result();
        let submit_as = format!("{}/{}", self.run.short(), order.unit.id);
        let mut unseen = unseen(order.unseen);
        if let Some(Ok(Some(extras))) = self.extras.get() {
            unseen.extend(extras.unseen.iter().cloned());
        }
        let facts = BriefFacts {
            unit: &order.unit.id,
            mode: order.unit.mode,
            workspace: &workspace.cwd,
            checkout: workspace.checkout.as_deref(),
            base: order.base.as_ref().map_or("", |base| base.commit.as_str()),
            owns: &order.unit.owns,
            unseen: &unseen,
            result: &result,
            submit_as: is_session.then_some(submit_as.as_str()),
        };
        let message = order.next.message.as_deref().map(|message| with_check(message, order.previous.as_ref()));
        let message = message.as_deref();
        if resumes {
            return follow_up(message.unwrap_or("Go on with the task."), &facts);
        }
        let task = order.unit.prompt.text().unwrap_or_default();
        let task = match message {
            Some(message) => format!("{}\n\nA word on this attempt: {message}", task.trim_end()),
            None => task.to_owned(),
        };
        compose(self.plan.context.as_ref().and_then(prun_core::plan::Prompt::text), &task, &facts)
    }
}

/// What a worker is told of the attempt before, with the end of what the unit's check said to it.
fn with_check(message: &str, previous: Option<&Previous>) -> String {
    let output = previous.and_then(|previous| {
        let mut log = File::open(previous.failed_check.as_ref()?).ok()?;
        let length = log.metadata().ok()?.len();
        log.seek(SeekFrom::Start(length.saturating_sub(CHECK_OUTPUT))).ok()?;
        let mut end = Vec::new();
        log.take(CHECK_OUTPUT).read_to_end(&mut end).ok()?;
        Some(String::from_utf8_lossy(&end).trim().to_owned())
    });
    match output.filter(|output| !output.is_empty()) {
        Some(output) => format!("{message}\n\nThe check of that attempt said:\n\n{output}"),
        None => message.to_owned(),
    }
}

/// Creates an attempt's directory, which must be new, and takes its fence.
fn begin_attempt(dir: &AttemptDir) -> Result<File, FileError> {
    if let Some(parent) = dir.root().parent() {
        create_private_dir(parent)?;
    }
    std::fs::create_dir(dir.root()).map_err(FileError::at("create", dir.root()))?;
    let path = dir.lock();
    let file = File::create(&path).map_err(FileError::at("create", &path))?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)
        .map_err(|error| FileError::at("lock", &path)(error.into()))?;
    Ok(file)
}

fn check(command: &prun_core::plan::CommandLine, limit: Duration) -> CheckSpec {
    let limit_millis = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
    CheckSpec { argv: command.argv(), limit_millis }
}

fn environment(executor: &Executor, unit: &UnitPlan) -> Vec<(String, String)> {
    let own = unit.env.0.iter().map(|(name, value)| (name.clone(), value.clone()));
    executor.env.iter().cloned().chain(own).collect()
}

fn limits(unit: &UnitPlan, executor: &Executor, stream: StreamKind) -> Limits {
    // A plain command may compute in silence; only an agent has to say something soon.
    let is_default = unit.first_output_millis == Some(DEFAULT_FIRST_OUTPUT_MILLIS);
    let first_output_millis = match executor.first_output_millis {
        Some(own) if is_default => Some(own),
        _ => unit.first_output_millis.filter(|_| stream.has_final_event() || !is_default),
    };
    let linger = executor.linger_millis.unwrap_or(LINGER_MILLIS);
    Limits {
        first_output_millis,
        idle_millis: unit.idle_millis,
        hard_millis: unit.timeout_millis,
        linger_millis: stream.has_final_event().then_some(linger),
        grace_millis: GRACE_MILLIS,
        output_bytes: Some(OUTPUT_BYTES),
        liveness: Liveness::All,
    }
}

fn unseen(files: u32) -> Vec<String> {
    let phrase = |files| format!("{files} uncommitted files of the user's working tree");
    Some(files).filter(|files| *files > 0).map(phrase).into_iter().collect()
}
