//! One worker through `prun __dispatch` and `prun dispatch-task`, with shell scripts as workers.

mod escape;
mod life;
mod loss;
mod settle;
mod tails;
mod task;

use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use prun_core::event::ProcessIdentity;
use prun_core::ids::Attempt;
use prun_core::outcome::AttemptFacts;
use prun_engine::process::identity;
use prun_engine::spec::{AttemptSpec, Limits, Liveness, SPEC_VERSION, WorkerSpec};
use prun_engine::state_dir::{find_in, read_facts};
use rustix::process::{Pid, Signal, kill_process};

const PRUN: &str = env!("CARGO_BIN_EXE_prun");

/// Writes a result in contract form.
const GOOD: &str = r##"printf '# u1 result\nConclusion: done\nFiles: none\nOpen items: none\nVerification: none\n\nbody\n' > "$PRUN_RESULT"; "##;

/// A place for one attempt.
struct Bench {
    dir: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let bench = Self { dir: tempfile::tempdir().unwrap() };
        for name in ["attempt", "cwd", "tmp", "home"] {
            std::fs::create_dir(bench.at(name)).unwrap();
        }
        std::fs::write(bench.at("prompt.md"), "the prompt\n").unwrap();
        bench
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.at(name)).unwrap_or_default()
    }

    /// A unit whose worker is this shell script.
    fn spec(&self, script: &str) -> AttemptSpec {
        AttemptSpec {
            version: SPEC_VERSION,
            run: Some("261130-155200-k3f9".parse().unwrap()),
            unit: "u1".parse().unwrap(),
            attempt: Attempt(1),
            attempt_dir: Some(self.at("attempt")),
            state_parent: self.at("attempt"),
            worker: Some(WorkerSpec {
                argv: vec!["/bin/sh".into(), "-c".into(), script.into()],
                ..WorkerSpec::default()
            }),
            resumes: None,
            prompt_file: self.at("prompt.md"),
            result_file: self.at("result.md"),
            cwd: Some(self.at("cwd")),
            env: Vec::new(),
            place: 0,
            limits: Limits {
                first_output_millis: None,
                idle_millis: None,
                hard_millis: Some(60_000),
                linger_millis: None,
                grace_millis: 200,
                output_bytes: None,
                liveness: Liveness::Tail,
            },
            setup: None,
            verify: None,
            deliverables: Vec::new(),
            expects_changes: false,
            harvest: None,
            guard: None,
            depth: 0,
        }
    }

    fn command(&self, args: &[&str]) -> Command {
        self.program(PRUN, args)
    }

    fn program(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(args).env_clear().current_dir(self.dir.path()).stdin(Stdio::null());
        command.env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", self.at("home"));
        command.env("TMPDIR", self.at("tmp")).env("PRUN_DURABLE", "off");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn start(&self, spec: &AttemptSpec) -> Child {
        let path = self.at("spec.json");
        std::fs::write(&path, serde_json::to_vec(spec).unwrap()).unwrap();
        self.command(&["__dispatch", path.to_str().unwrap()]).spawn().unwrap()
    }

    fn dispatch(&self, spec: &AttemptSpec) -> (i32, AttemptFacts) {
        self.finish(self.start(spec))
    }

    fn finish(&self, child: Child) -> (i32, AttemptFacts) {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.code().is_some(), "{output:?}");
        let state = self.state().unwrap_or_else(|| panic!("no state dir: {output:?}"));
        (output.status.code().unwrap(), read_facts(&state).unwrap())
    }

    fn state(&self) -> Option<PathBuf> {
        find_in(&self.at("attempt"))
    }

    /// A process whose number the worker wrote into a file of its working directory.
    fn process(&self, file: &str) -> ProcessIdentity {
        let path = format!("cwd/{file}");
        wait_until(|| self.read(&path).ends_with('\n'));
        identity(self.read(&path).trim().parse().unwrap()).unwrap()
    }

    /// `prun dispatch-task` with this shell script as `codex`.
    fn task(&self, script: &str) -> Command {
        let args = ["--prompt-file", "prompt.md", "--result-file", "result.md", "--unit-id", "u1"];
        let codex = self.at("codex");
        // Another process writes the script: a descriptor of ours, open for writing and inherited by a fork
        // of a neighbouring test, would make its start fail as busy.
        let mut writer = Command::new("/bin/sh")
            .args(["-c", "cat > \"$1\" && chmod +x \"$1\"", "sh", codex.to_str().unwrap()])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        writer.stdin.take().unwrap().write_all(format!("#!/bin/sh\n{script}\n").as_bytes()).unwrap();
        assert!(writer.wait().unwrap().success());
        let mut command = self.command(&[&["dispatch-task"], &args[..]].concat());
        command.env("CODEX_BIN", codex);
        command
    }

    /// The state dir that `dispatch-task` made.
    fn task_state(&self) -> PathBuf {
        find_in(&self.at("tmp")).unwrap()
    }
}

#[expect(clippy::disallowed_methods, reason = "polls a condition of other processes, with a deadline")]
fn wait_until(mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < deadline, "the condition never became true");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn kill(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
