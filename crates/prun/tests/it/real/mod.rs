//! The real clients, each started by a dispatcher as prun starts it, against the scripted model: are the flags, the
//! event streams and the error classes still what prun takes them for?
//!
//! Codex and Claude Code are in the short form. The long form, with gemini, opencode and qwen and with failures that
//! only end when the client has given up by itself, prints a table:
//! `scripts/install-test-clients more && cargo test -p prun-cli --test it real:: -- --ignored --nocapture --test-threads 1`.

mod apart;
mod claude;
mod faults;
mod liveness;
mod long;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use prun_core::ids::Attempt;
use prun_core::judge::judge;
use prun_core::outcome::{AttemptFacts, ChangeKind, Changes, FileChange, Outcome};
use prun_engine::executor::launch::launch_with;
use prun_engine::executor::{Executor, LaunchRequest, Registry};
use prun_engine::spec::{AttemptSpec, Limits, Liveness, Resumed, SPEC_VERSION, WorkerSpec};
use prun_engine::state_dir::{find_in, read_facts};
use prun_testkit::clients::{Client, client_home};
use prun_testkit::fake_model::{Server, Step, directive};
use tempfile::TempDir;

const PRUN: &str = env!("CARGO_BIN_EXE_prun");

/// One client with a home, a server and a working directory of its own.
struct Bench {
    client: Client,
    server: Server,
    home: TempDir,
    dir: TempDir,
    executor: Executor,
    env: Vec<(String, String)>,
    /// Milliseconds of silence after which the client is ended.
    idle_millis: u64,
}

/// How an attempt went.
struct Ended {
    facts: AttemptFacts,
    outcome: Outcome,
    seconds: f64,
    requests: u64,
}

impl Bench {
    /// `None` where the client is not installed: the test is skipped then.
    fn new(client: Client) -> Option<Self> {
        let program = client.installed()?;
        let (server, home) = (Server::start(), client_home());
        let registry = Registry::built_in(2).with_config(&client.config(&program, &server), Path::new("c"), 2).unwrap();
        let executor = registry.get(&client.name().parse().unwrap()).unwrap().clone();
        let env = client.env(home.path(), &server);
        let bench =
            Self { client, server, home, dir: tempfile::tempdir().unwrap(), executor, env, idle_millis: 60_000 };
        for name in ["attempt", "work"] {
            std::fs::create_dir(bench.at(name)).unwrap();
        }
        std::fs::write(bench.at("work/target.txt"), "original\n").unwrap();
        Some(bench)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.at("work").join(name)).unwrap_or_default()
    }

    fn set(&mut self, name: &str, value: &str) {
        self.env.retain(|(known, _)| known != name);
        self.env.push((name.to_owned(), value.to_owned()));
    }

    /// The worker of a unit without wishes.
    fn worker(&self, request: &LaunchRequest<'_>) -> WorkerSpec {
        let is_root = rustix::process::getuid().is_root();
        let request = LaunchRequest { model: request.model.or(self.client.model()), is_root, ..*request };
        let var = |name: &str| self.env.iter().find(|(key, _)| key == name).map(|(_, value)| value.into());
        launch_with(&self.executor, &request, var).unwrap().unwrap()
    }

    fn spec(&self, steps: &[Step], worker: WorkerSpec) -> AttemptSpec {
        let result = self.at("attempt/result.md");
        let prompt = format!("Do what the model says.\n{}\n", directive(steps));
        std::fs::write(self.at("prompt.md"), prompt).unwrap();
        AttemptSpec {
            version: SPEC_VERSION,
            run: Some("261130-155200-k3f9".parse().unwrap()),
            unit: "u1".parse().unwrap(),
            attempt: Attempt(1),
            attempt_dir: Some(self.at("attempt")),
            state_parent: self.at("attempt"),
            worker: Some(worker),
            resumes: None,
            prompt_file: self.at("prompt.md"),
            result_file: result,
            cwd: Some(self.at("work")),
            env: self.executor.env.clone(),
            limits: Limits {
                first_output_millis: Some(120_000),
                idle_millis: Some(self.idle_millis),
                hard_millis: Some(900_000),
                linger_millis: Some(10_000),
                grace_millis: 2_000,
                output_bytes: None,
                liveness: Liveness::All,
            },
            setup: None,
            verify: None,
            deliverables: Vec::new(),
            expects_changes: true,
            harvest: None,
            guard: None,
            depth: 0,
            place: 0,
        }
    }

    fn start(&self, spec: &AttemptSpec) -> Child {
        let path = self.at("spec.json");
        std::fs::write(&path, serde_json::to_vec(spec).unwrap()).unwrap();
        // Outside a terminal: no stdin, and the dispatcher leaves our session.
        let mut command = Command::new(PRUN);
        command.arg("__dispatch").arg(path).env_clear().envs(self.env.iter().cloned()).current_dir(self.dir.path());
        command.env("TMPDIR", self.dir.path()).env("PRUN_DURABLE", "off");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    fn dispatch(&self, spec: &AttemptSpec) -> Ended {
        let (began, asked) = (Instant::now(), self.server.requests());
        let status = self.start(spec).wait().unwrap();
        let state = find_in(&self.at("attempt")).unwrap_or_else(|| panic!("no state dir: {status}"));
        let mut facts = read_facts(&state).unwrap();
        // What the harvest of a clone would find.
        let change = FileChange { path: "target.txt".into(), kind: ChangeKind::Modified, added: None, removed: None };
        let files = if self.file("target.txt") == "original\n" { Vec::new() } else { vec![change] };
        facts.changes = Some(Changes { files, ..Changes::default() });
        let outcome = judge(&facts);
        Ended { facts, outcome, seconds: began.elapsed().as_secs_f64(), requests: self.server.requests() - asked }
    }

    /// A unit for which the model plays these steps.
    fn run(&self, steps: &[Step]) -> Ended {
        self.dispatch(&self.spec(steps, self.worker(&LaunchRequest::default())))
    }

    /// The next attempt at the same unit, in the session of the one before.
    fn go_on(&self, before: &Ended, request: &LaunchRequest<'_>, steps: &[Step]) -> Ended {
        std::fs::rename(self.at("attempt"), self.at("attempt-before")).unwrap();
        std::fs::create_dir(self.at("attempt")).unwrap();
        let session = before.facts.session.clone().unwrap();
        let worker = self.worker(&LaunchRequest { resume: Some(&session), ..*request });
        let spent = before.facts.usage.unwrap_or_default();
        self.dispatch(&AttemptSpec { resumes: Some(Resumed { session, spent }), ..self.spec(steps, worker) })
    }

    /// What the worker's output says, for people.
    fn tail(&self) -> String {
        find_in(&self.at("attempt"))
            .and_then(|state| std::fs::read_to_string(state.join("tail")).ok())
            .unwrap_or_default()
    }
}

/// An edit by the client's own shell tool, and a result in contract form at the path that the brief names.
fn work() -> Vec<Step> {
    let form = "# u1 result\\nConclusion: done\\nFiles: target.txt\\nOpen items: none\\nVerification: none\\n";
    let sh = format!("echo edited >> target.txt && printf '{form}' > \"$PRUN_RESULT\"");
    vec![Step::sh(sh), Step::text("Edited target.txt.")]
}

/// `first`, and then the work.
fn then_work(first: Step) -> Vec<Step> {
    [first].into_iter().chain(work()).collect()
}
