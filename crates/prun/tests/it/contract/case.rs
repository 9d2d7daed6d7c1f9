//! One case: what is set up, what is run, what is expected.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;

use super::pattern::lines_match;

const PRUN: &str = env!("CARGO_BIN_EXE_prun");

const VERBS: [&str; 5] = ["dispatch-task", "gather", "monitor", "report-state", "reap-orphans"];

/// No case takes longer.
const BOUND: Duration = Duration::from_secs(60);

/// What is tested.
pub(super) enum Target {
    /// `prun VERB`.
    Binary,
    /// Our scripts, which have to find the binary.
    Scripts(PathBuf),
    /// Somebody else's.
    Other(PathBuf),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseFile {
    verb: String,
    #[serde(default)]
    env: BTreeMap<String, String>,
    case: Vec<Case>,
}

/// One case. In every text `{dir}` is the case's own directory, the working directory of all that runs;
/// `tmp` and `home` in it are TMPDIR and HOME. Scripts find the five verbs in PATH, `$STATE` is the only
/// state dir in `tmp`, and processes whose numbers are in the file `pids` are ended with the case.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Case {
    /// A sentence of the contract, or what is right in a numbered case, as a fact.
    pub(super) name: String,
    /// It says more than the contract does: left out for other implementations.
    #[serde(default)]
    own: bool,
    #[serde(skip)]
    verb: String,
    /// The program `codex`.
    codex: Option<String>,
    /// Run before, to its end.
    setup: Option<String>,
    /// Started together with the verb.
    meanwhile: Option<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    args: Vec<String>,
    /// A script instead of the verb with `args`.
    run: Option<String>,
    exit: i32,
    /// Lines of stdout; not looked at where there are none given.
    stdout: Option<Vec<String>>,
    stderr: Option<Vec<String>>,
    /// stdout is JSON with these values, by JSON pointer; `absent` for one that is not there.
    #[serde(default)]
    json: BTreeMap<String, toml::Value>,
    /// Files and their lines.
    #[serde(default)]
    files: BTreeMap<String, Vec<String>>,
    /// A script that has to succeed in the end.
    after: Option<String>,
    /// The verb takes at least this many seconds.
    at_least: Option<f64>,
    /// The verb takes less than this many seconds.
    within: Option<f64>,
}

/// The cases of a file that apply to `target`.
pub(super) fn read_cases(file: &str, text: &str, target: &Target) -> Vec<Case> {
    let read: CaseFile = toml::from_str(text).unwrap_or_else(|error| panic!("{file}.toml: {error}"));
    let of_file = |mut case: Case| {
        case.verb.clone_from(&read.verb);
        for (name, value) in &read.env {
            case.env.entry(name.clone()).or_insert_with(|| value.clone());
        }
        case
    };
    let applies = |case: &Case| !case.own || !matches!(target, Target::Other(_));
    read.case.into_iter().filter(applies).map(of_file).collect()
}

impl Case {
    /// Runs it; what is not as expected.
    pub(super) fn run(&self, target: &Target) -> Result<(), String> {
        let dir = tempfile::tempdir().unwrap();
        let place = Place { dir: dir.path().canonicalize().unwrap(), case: self, target };
        let done = place.run();
        place.end_processes();
        done
    }
}

/// A case under way.
struct Place<'a> {
    dir: PathBuf,
    case: &'a Case,
    target: &'a Target,
}

impl Place<'_> {
    fn run(&self) -> Result<(), String> {
        self.prepare();
        if let Some(setup) = &self.case.setup {
            self.script("setup", setup)?;
        }
        let meanwhile = self.case.meanwhile.as_ref().map(|text| self.shell(text).spawn().unwrap());
        let began = Instant::now();
        let stream = |name: &str| File::create(self.dir.join(name)).unwrap();
        let mut command = self.command();
        let child = command.stdin(Stdio::null()).stdout(stream("stdout")).stderr(stream("stderr")).spawn().unwrap();
        let status = wait(child)?;
        let took = began.elapsed();
        if let Some(meanwhile) = meanwhile {
            wait(meanwhile)?;
        }
        self.check(status, took).map_err(|what| {
            let said = |name: &str| String::from_utf8_lossy(&std::fs::read(self.dir.join(name)).unwrap()).into_owned();
            format!("{what}\n  stdout: {:?}\n  stderr: {:?}", said("stdout"), said("stderr"))
        })
    }

    /// Puts the verbs into PATH, and `codex`, where the case has one.
    fn prepare(&self) {
        for name in ["tmp", "home", "bin"] {
            std::fs::create_dir(self.dir.join(name)).unwrap();
        }
        let mut programs: Vec<(String, String)> = Vec::new();
        for verb in VERBS {
            let target = match self.target {
                Target::Binary => format!("'{PRUN}' {verb}"),
                Target::Scripts(dir) | Target::Other(dir) => format!("'{}/{verb}.sh'", dir.display()),
            };
            programs.push((format!("bin/{verb}"), format!("exec {target} \"$@\"")));
        }
        if let Some(codex) = &self.case.codex {
            programs.push(("codex".into(), self.fill(codex)));
        }
        // Another process writes them: a descriptor of ours, open for writing and inherited by a fork of a
        // neighbouring case, would make their start fail as busy.
        let mut script = String::new();
        for (name, text) in programs {
            let _ =
                write!(script, "cat >{name} <<'END_OF_PROGRAM'\n#!/bin/sh\n{text}\nEND_OF_PROGRAM\nchmod +x {name}\n");
        }
        let mut writer = self.shell("exec sh -s").stdin(Stdio::piped()).spawn().unwrap();
        writer.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
        assert!(writer.wait().unwrap().success());
    }

    fn command(&self) -> Command {
        if let Some(run) = &self.case.run {
            return self.shell(run);
        }
        let verb = &self.case.verb;
        let mut command = match self.target {
            Target::Binary => {
                let mut command = Command::new(PRUN);
                command.arg(verb);
                command
            }
            Target::Scripts(dir) | Target::Other(dir) => Command::new(dir.join(format!("{verb}.sh"))),
        };
        command.args(self.case.args.iter().map(|argument| self.fill(argument)));
        self.environment(&mut command);
        command
    }

    fn shell(&self, text: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &self.fill(text)]).stdin(Stdio::null());
        self.environment(&mut command);
        command
    }

    fn environment(&self, command: &mut Command) {
        let path = format!("{}/bin:{}", self.dir.display(), std::env::var("PATH").unwrap());
        command.env_clear().current_dir(&self.dir).env("PATH", path).env("HOME", self.dir.join("home"));
        command.env("TMPDIR", self.dir.join("tmp")).env("CODEX_BIN", self.dir.join("codex"));
        command.env("PRUN_DURABLE", "off").env("PRUN_BIN", PRUN);
        if let Some(state) = prun_engine::state_dir::find_in(&self.dir.join("tmp")) {
            command.env("STATE", state);
        }
        command.envs(self.case.env.iter().map(|(name, value)| (name, self.fill(value))));
    }

    fn script(&self, what: &str, text: &str) -> Result<(), String> {
        let output = self.shell(&format!("set -e\n{text}")).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        if output.status.success() { Ok(()) } else { Err(format!("{what} fails: {} {said}", output.status)) }
    }

    fn check(&self, status: ExitStatus, took: Duration) -> Result<(), String> {
        let case = self.case;
        if status.code() != Some(case.exit) {
            return Err(format!("it ends with {status} instead of {}", case.exit));
        }
        let seconds = took.as_secs_f64();
        if case.at_least.is_some_and(|least| seconds < least) || case.within.is_some_and(|most| seconds >= most) {
            return Err(format!("it takes {seconds:.2} s"));
        }
        if let Some(expected) = &case.stdout {
            self.check_lines("stdout", expected)?;
        }
        if let Some(expected) = &case.stderr {
            self.check_lines("stderr", expected)?;
        }
        self.check_json()?;
        for (name, expected) in &case.files {
            self.check_lines(&self.fill(name), expected)?;
        }
        case.after.as_ref().map_or(Ok(()), |after| self.script("what has to hold after", after))
    }

    /// The lines of a file, each of which ends with a newline.
    fn check_lines(&self, name: &str, expected: &[String]) -> Result<(), String> {
        let path = match name.strip_prefix("STATE/") {
            Some(name) => prun_engine::state_dir::find_in(&self.dir.join("tmp")).ok_or("no state dir")?.join(name),
            None => self.dir.join(name),
        };
        let bytes = std::fs::read(&path).map_err(|error| format!("{name}: {error}"))?;
        let text = String::from_utf8_lossy(&bytes);
        if !text.is_empty() && !text.ends_with('\n') {
            return Err(format!("{name} has no final newline: {text:?}"));
        }
        let lines: Vec<&str> = text.lines().collect();
        let expected: Vec<String> = expected.iter().map(|line| self.fill(line)).collect();
        if lines_match(&expected, &lines) {
            return Ok(());
        }
        Err(format!("{name} is {lines:?} instead of {expected:?}"))
    }

    fn check_json(&self) -> Result<(), String> {
        if self.case.json.is_empty() {
            return Ok(());
        }
        let text = std::fs::read(self.dir.join("stdout")).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&text).map_err(|error| format!("no JSON: {error}"))?;
        for (pointer, expected) in &self.case.json {
            let text = self.fill(&serde_json::to_string(expected).unwrap()).replace("\"null\"", "null");
            let expected: serde_json::Value = serde_json::from_str(&text).unwrap();
            let found = json.pointer(pointer);
            let is_right = if expected == "absent" { found.is_none() } else { found == Some(&expected) };
            if !is_right {
                return Err(format!("{pointer} is {found:?} instead of {expected}"));
            }
        }
        Ok(())
    }

    fn fill(&self, text: &str) -> String {
        text.replace("{dir}", self.dir.to_str().unwrap())
    }

    fn end_processes(&self) {
        let pids = std::fs::read_to_string(self.dir.join("pids")).unwrap_or_default();
        for pid in pids.split_ascii_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)) {
            // It may have gone by itself, as most do.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "polls the end of a process, with a deadline")]
fn wait(mut child: std::process::Child) -> Result<ExitStatus, String> {
    let deadline = Instant::now() + BOUND;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return Ok(status);
        }
        if Instant::now() >= deadline {
            child.kill().unwrap();
            child.wait().unwrap();
            return Err("it does not end".into());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

impl Target {
    /// Whether the directory of the target is there, for a clear message.
    #[must_use]
    pub(super) fn is_there(&self) -> bool {
        match self {
            Self::Binary => Path::new(PRUN).exists(),
            Self::Scripts(dir) | Self::Other(dir) => dir.join("gather.sh").exists(),
        }
    }
}
