//! The real Codex and the real Claude Code as coordinators of a run: each registers prun by its own `mcp add` or as
//! a plugin, finds the skill, and goes from a plan to the working tree, with four workers that are real agents too.
//! The model of all of them is a script.

mod claude;
mod codex;
mod figures;

use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use prun_testkit::clients::{Client, client_home};
use prun_testkit::fake_model::{Server, Step, directive};
use serde_json::{Value, json};
use tempfile::TempDir;

const PRUN: &str = env!("CARGO_BIN_EXE_prun");

/// The units of the plan.
const WINDS: [&str; 4] = ["north", "south", "east", "west"];

/// A user's machine: a home, a repository with a plan of four units, prun and the coordinator's client in PATH.
struct World {
    /// The coordinator's client.
    client: Client,
    /// Who works, in turns.
    workers: &'static [Client],
    server: Server,
    home: TempDir,
    dir: TempDir,
}

impl World {
    /// `None` where a client is not installed: the test is skipped then.
    fn new(client: Client, workers: &'static [Client]) -> Option<Self> {
        let program = client.installed()?;
        let installed: Vec<PathBuf> = workers.iter().filter_map(|worker| worker.installed()).collect();
        if installed.len() < workers.len() {
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let world = Self { client, workers, server: Server::start(), home: client_home(), dir };
        for place in ["repo/src", "bin", "run"] {
            std::fs::create_dir_all(world.at(place)).unwrap();
        }
        symlink(PRUN, world.at("bin/prun")).unwrap();
        symlink(program, world.at("bin").join(client.name())).unwrap();
        // Codex's tool is a login shell, which makes its own PATH.
        let profile = format!("PATH={}:$PATH\n", world.at("bin").display());
        std::fs::write(world.home.path().join(".bash_profile"), profile).unwrap();
        std::fs::create_dir_all(world.home.path().join(".config/prun")).unwrap();
        let configs = workers.iter().zip(&installed).map(|(worker, program)| worker.config(program, &world.server));
        std::fs::write(world.home.path().join(".config/prun/config.toml"), configs.collect::<String>()).unwrap();
        std::fs::write(world.at("repo/prun.toml"), world.plan()).unwrap();
        std::fs::write(world.at("repo/src/base.txt"), "base\n").unwrap();
        for args in [
            &["init", "-q"][..],
            &["add", "src"],
            &["-c", "user.name=u", "-c", "user.email=u@x", "commit", "-qm", "first"],
        ] {
            assert!(world.command(Path::new("git"), args).status().unwrap().success());
        }
        Some(world)
    }

    fn plan(&self) -> String {
        let units = WINDS.iter().zip(self.workers.iter().cycle()).map(|(id, worker)| {
            let form = format!("# {id} result\\nConclusion: wrote {id}\\nFiles: src/{id}.txt\\nOpen items: none\\nVerification: none\\n");
            let work = format!("echo {id} > src/{id}.txt; printf '{form}' > \"$PRUN_RESULT\"");
            let script = directive(&[Step::sh(work), Step::text("Done.")]);
            let worker = worker.name();
            format!("[[unit]]\nid = \"{id}\"\nexecutor = \"{worker}\"\nowns = [\"src/{id}.txt\"]\nprompt = '''\nWrite {id}.\n{script}\n'''\n")
        });
        let head = "version = 1\ntitle = \"Four winds\"\nverify = \"test -e src/base.txt\"\n";
        format!("{head}{}", units.collect::<String>())
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    fn env(&self) -> Vec<(String, String)> {
        let clients = std::iter::once(&self.client).chain(self.workers);
        let mut env: Vec<(String, String)> =
            clients.flat_map(|client| client.env(self.home.path(), &self.server)).collect();
        for (name, value) in &mut env {
            if name == "PATH" {
                *value = format!("{}:{value}", self.at("bin").display());
            }
        }
        env.push(("XDG_RUNTIME_DIR".into(), self.at("run").display().to_string()));
        env.push(("PRUN_DURABLE".into(), "off".into()));
        env.push(("PRUN_DEPTH".into(), "0".into()));
        env
    }

    fn command(&self, program: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(args).env_clear().envs(self.env()).current_dir(self.at("repo")).stdin(Stdio::null());
        command
    }

    /// Runs the coordinator's client.
    fn client(&self, args: &[&str]) -> Output {
        self.command(&self.at("bin").join(self.client.name()), args).output().unwrap()
    }

    /// Runs it; it has to succeed. What it said.
    fn client_does(&self, args: &[&str]) -> String {
        let output = self.client(args);
        assert!(output.status.success(), "{args:?}: {}", said(&output));
        said(&output)
    }

    fn prun(&self, args: &[&str]) -> Output {
        self.command(Path::new(PRUN), args).output().unwrap()
    }

    /// Lets the session coordinate by this script: its transcript. The client reads its prompt from stdin.
    #[expect(clippy::print_stdout, reason = "the transcript belongs to the output of the test")]
    fn session(&self, args: &[&str], prompt: &str, steps: &[Step]) -> Vec<Value> {
        let mut session = self.command(&self.at("bin").join(self.client.name()), args);
        session.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut session = session.spawn().unwrap();
        let prompt = format!("You are the coordinator. {prompt}\n{}", directive(steps));
        session.stdin.take().unwrap().write_all(prompt.as_bytes()).unwrap();
        let output = session.wait_with_output().unwrap();
        let text = said(&output);
        println!("{text}");
        assert!(output.status.success(), "{text}");
        String::from_utf8_lossy(&output.stdout).lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// What the client put before its model first.
    fn first_request(&self) -> String {
        let bodies = self.server.bodies();
        let ours = bodies.iter().find(|body| body.to_string().contains("You are the coordinator"));
        ours.unwrap_or_else(|| panic!("no request of the coordinator among {}", bodies.len())).to_string()
    }

    /// The last request in which the client put the whole conversation before its model.
    fn last_request(&self) -> Value {
        let mut bodies = self.server.bodies();
        bodies.retain(|body| body.to_string().contains("You are the coordinator"));
        bodies.into_iter().max_by_key(|body| body.to_string().len()).unwrap()
    }

    fn assert_landed(&self) {
        for id in WINDS {
            let text = std::fs::read_to_string(self.at(&format!("repo/src/{id}.txt"))).unwrap_or_default();
            assert_eq!(text, format!("{id}\n"), "{}", said(&self.prun(&["status"])));
        }
        let log = self.command(Path::new("git"), &["log", "--format=%s"]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&log.stdout), "first\n", "nobody commits but the user");
    }

    /// `prun mcp ACT` for the coordinator's client; what it said.
    fn registration(&self, args: &[&str]) -> String {
        let client = format!("--{}", self.client.name());
        said(&self.prun(&[&["mcp"], args, &[&client]].concat()))
    }
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// The walk by tools, whose names the client begins with `server`, for a plan of so many units.
fn flow(server: &str, units: usize) -> Vec<Step> {
    let call = |name: &str, arguments: Value| Step::call(format!("{server}__{name}"), arguments);
    vec![
        call("check", json!({})),
        call("start", json!({})),
        call("wait", json!({})).until(&format!("{units}/{units} done")),
        call("result", json!({})),
        call("diff", json!({})),
        call("reconcile", json!({})),
        call("integrate", json!({})),
        call("integrate", json!({"tree": "$hex-after:tree"})),
        Step::text("It has landed, uncommitted."),
    ]
}

/// The walk of the four winds, with a look at one patch.
fn by_tools(server: &str) -> Vec<Step> {
    let mut steps = flow(server, WINDS.len());
    steps.insert(5, Step::call(format!("{server}__diff"), json!({"unit": "east", "file": "src/east.txt"})));
    steps
}

/// The walk in a shell.
fn by_shell() -> Vec<Step> {
    let tree = "$(prun integrate --dry-run --json 2>/dev/null | sed -n 's/^  \"tree\": \"\\(.*\\)\",$/\\1/p')";
    vec![
        Step::sh("prun check"),
        Step::sh("prun run -d"),
        Step::sh("prun wait").until("4/4 done"),
        Step::sh("prun result --brief"),
        Step::sh("prun diff --stat"),
        Step::sh("prun reconcile"),
        Step::sh("prun integrate --dry-run"),
        Step::sh(format!("prun integrate --tree {tree}")),
        Step::text("It has landed, uncommitted."),
    ]
}

/// Every call of the walk was made, in order, and succeeded; as many waits as it took. `calls` are the names of the
/// tools and how each call ended.
fn assert_walked(calls: &[String]) {
    let walk = ["check", "start", "wait", "result", "diff", "diff", "reconcile", "integrate", "integrate"];
    let mut expected: Vec<String> = walk.iter().map(|tool| format!("{tool} completed")).collect();
    let waits = calls.iter().filter(|call| call.starts_with("wait")).count();
    expected.splice(2..3, vec!["wait completed".to_owned(); waits]);
    assert_eq!(calls, expected);
}
