//! The real Codex as the coordinator of a run: it registers prun by its own `mcp add`, finds the skill, and goes from
//! a plan to the working tree, with four workers that are real Codexes too. The model of all of them is a script.

use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use prun_testkit::clients::{self, client_home, codex_args, codex_config, codex_env};
use prun_testkit::fake_model::{Server, Step, directive};
use serde_json::{Value, json};
use tempfile::TempDir;

const PRUN: &str = env!("CARGO_BIN_EXE_prun");

/// A user's machine: a home, a repository with a plan of four units, prun in PATH.
struct World {
    codex: PathBuf,
    server: Server,
    home: TempDir,
    dir: TempDir,
}

impl World {
    /// `None` where the client is not installed: the test is skipped then.
    fn new() -> Option<Self> {
        let codex = clients::codex()?;
        let world = Self { codex, server: Server::start(), home: client_home(), dir: tempfile::tempdir().unwrap() };
        for place in ["repo/src", "bin", "run"] {
            std::fs::create_dir_all(world.at(place)).unwrap();
        }
        symlink(PRUN, world.at("bin/prun")).unwrap();
        // Codex's tool is a login shell, which makes its own PATH.
        let profile = format!("PATH={}:$PATH\n", world.at("bin").display());
        std::fs::write(world.home.path().join(".bash_profile"), profile).unwrap();
        std::fs::create_dir_all(world.home.path().join(".config/prun")).unwrap();
        let config = codex_config(&world.codex, &world.server);
        std::fs::write(world.home.path().join(".config/prun/config.toml"), config).unwrap();
        let units = ["north", "south", "east", "west"].map(|id| {
            let form = format!("# {id} result\\nConclusion: wrote {id}\\nFiles: src/{id}.txt\\nOpen items: none\\nVerification: none\\n");
            let work = format!("echo {id} > src/{id}.txt; printf '{form}' > \"$PRUN_RESULT\"");
            let script = directive(&[Step::sh(work), Step::text("Done.")]);
            format!("[[unit]]\nid = \"{id}\"\nowns = [\"src/{id}.txt\"]\nprompt = '''\nWrite {id}.\n{script}\n'''\n")
        });
        let head = "version = 1\ntitle = \"Four winds\"\nverify = \"test -e src/base.txt\"\n[defaults]\nexecutor = \"codex\"\n";
        std::fs::write(world.at("repo/prun.toml"), format!("{head}{}", units.concat())).unwrap();
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

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    fn env(&self) -> Vec<(String, String)> {
        let mut env = codex_env(self.home.path());
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

    fn codex(&self, args: &[&str]) -> Output {
        self.command(&self.codex, args).output().unwrap()
    }

    fn prun(&self, args: &[&str]) -> Output {
        self.command(Path::new(PRUN), args).output().unwrap()
    }

    /// Codex gives servers and tools next to nothing of its environment, so the key has to be in its files, as a
    /// user's login is.
    fn log_in(&self) {
        let mut login = self.command(&self.codex, &["login", "--with-api-key"]);
        let mut login = login.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        login.stdin.take().unwrap().write_all(b"test-key").unwrap();
        let output = login.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
    }

    /// Lets the session coordinate by this script: its transcript.
    #[expect(clippy::print_stdout, reason = "the transcript belongs to the output of the test")]
    fn session(&self, prompt: &str, steps: &[Step]) -> Vec<Value> {
        let prompt = format!("{prompt}\n{}", directive(steps));
        let mut args: Vec<String> =
            ["exec", "--json", "--sandbox", "danger-full-access", "--skip-git-repo-check"].map(str::to_owned).to_vec();
        args.extend(codex_args(&self.server));
        args.push(prompt);
        let output = self.codex(&args.iter().map(String::as_str).collect::<Vec<_>>());
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

    fn assert_landed(&self) {
        for id in ["north", "south", "east", "west"] {
            let text = std::fs::read_to_string(self.at(&format!("repo/src/{id}.txt"))).unwrap_or_default();
            assert_eq!(text, format!("{id}\n"), "{}", said(&self.prun(&["status"])));
        }
        let log = self.command(Path::new("git"), &["log", "--format=%s"]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&log.stdout), "first\n", "nobody commits but the user");
    }
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// The walk by tools.
fn by_tools(server: &str) -> Vec<Step> {
    let call = |name: &str, arguments: Value| Step::call(format!("mcp__{server}__{name}"), arguments);
    vec![
        call("check", json!({})),
        call("start", json!({})),
        call("wait", json!({})).until("4/4 done"),
        call("result", json!({})),
        call("diff", json!({})),
        call("diff", json!({"unit": "east", "file": "src/east.txt"})),
        call("reconcile", json!({})),
        call("integrate", json!({})),
        call("integrate", json!({"tree": "$hex-after:tree"})),
        Step::text("It has landed, uncommitted."),
    ]
}

/// The MCP calls of a transcript and whether each succeeded.
fn calls(transcript: &[Value]) -> Vec<String> {
    let done = transcript.iter().filter(|event| event["type"] == "item.completed");
    let calls = done.map(|event| &event["item"]).filter(|item| item["type"] == "mcp_tool_call");
    calls.map(|item| format!("{} {}", item["tool"].as_str().unwrap(), item["status"].as_str().unwrap())).collect()
}

/// Every call of the walk was made, in order, and succeeded; as many waits as it took.
fn assert_walked(transcript: &[Value]) {
    let calls = calls(transcript);
    let walk = ["check", "start", "wait", "result", "diff", "diff", "reconcile", "integrate", "integrate"];
    let mut expected: Vec<String> = walk.iter().map(|tool| format!("{tool} completed")).collect();
    let waits = calls.iter().filter(|call| call.starts_with("wait")).count();
    expected.splice(2..3, vec!["wait completed".to_owned(); waits]);
    assert_eq!(calls, expected);
}

#[test]
fn codex_coordinates_four_codex_workers_by_mcp() {
    let Some(world) = World::new() else { return };
    world.log_in();
    let added = world.codex(&["mcp", "add", "prun", "--", "prun", "mcp"]);
    assert!(added.status.success(), "{}", said(&added));
    let installed = world.prun(&["skill", "install", "--codex"]);
    assert!(installed.status.success(), "{}", said(&installed));

    let transcript = world.session("You are the coordinator. Use $prun to write the four winds.", &by_tools("prun"));
    assert_walked(&transcript);
    let seen = world.first_request();
    assert!(seen.contains("prun: Give independent units of work on a git repository"), "the skill is not offered");
    world.assert_landed();
}

#[test]
fn codex_coordinates_by_the_plugin() {
    let Some(world) = World::new() else { return };
    world.log_in();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let added = world.codex(&["plugin", "marketplace", "add", source.to_str().unwrap()]);
    assert!(added.status.success(), "{}", said(&added));
    let added = world.codex(&["plugin", "add", "prun@prun"]);
    assert!(added.status.success(), "{}", said(&added));
    let listed = said(&world.codex(&["mcp", "list"]));
    assert!(listed.contains("prun"), "{listed}");
    let transcript = world.session("You are the coordinator. Write the four winds.", &by_tools("prun"));
    assert_walked(&transcript);
    world.assert_landed();
    let seen = world.first_request();
    assert!(seen.contains("prun:prun: Give independent units of work"), "the plugin's skill is not offered");
}

#[test]
fn codex_coordinates_by_the_shell() {
    let Some(world) = World::new() else { return };
    world.log_in();
    let tree = "$(prun integrate --dry-run --json 2>/dev/null | sed -n 's/^  \"tree\": \"\\(.*\\)\",$/\\1/p')";
    let steps = [
        Step::sh("prun check"),
        Step::sh("prun run -d"),
        Step::sh("prun wait").until("4/4 done"),
        Step::sh("prun result --brief"),
        Step::sh("prun diff --stat"),
        Step::sh("prun reconcile"),
        Step::sh("prun integrate --dry-run"),
        Step::sh(format!("prun integrate --tree {tree}")),
        Step::text("It has landed, uncommitted."),
    ];
    world.session("You are the coordinator. Write the four winds.", &steps);
    world.assert_landed();
}

#[test]
fn prun_registers_itself_with_codex_once_and_takes_itself_out() {
    let Some(world) = World::new() else { return };
    symlink(&world.codex, world.at("bin/codex")).unwrap();
    let install = |args: &[&str]| said(&world.prun(&[&["mcp"], args, &["--codex"]].concat()));
    let dry = install(&["install", "--dry-run"]);
    assert!(dry.starts_with("codex mcp add prun -- ") && dry.ends_with(" mcp\n"), "{dry}");
    assert!(said(&world.codex(&["mcp", "get", "prun"])).contains("No MCP server"), "a dry run registers nothing");
    assert_eq!(install(&["install"]), "codex: registered\n");
    assert_eq!(install(&["install"]), "codex: registered already\n");
    assert!(said(&world.codex(&["mcp", "get", "prun"])).contains("mcp"));
    assert_eq!(install(&["uninstall"]), "codex: taken out\n");
    assert_eq!(install(&["uninstall"]), "codex: nothing to do\n");
    world.codex(&["mcp", "add", "prun", "--", "somebody-elses"]);
    let refused = install(&["install"]);
    assert!(refused.contains("codex has another server of the name prun: somebody-elses"), "{refused}");
}
