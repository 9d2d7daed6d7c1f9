//! What the user wants done beside a run: commands at its end or when it calls for attention, and a machine
//! that does not go to sleep. It comes from the user's command line or configuration, never from a plan.
//!
//! The supervisor does it, so it works with nobody watching. A failure never changes the run; it is kept in a
//! file of the run, which `status` shows.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use prun_core::digest;
use prun_core::ids::RunId;
use prun_core::run::RunState;
use prun_core::view::RunView;
use serde::{Deserialize, Serialize};

use crate::clock::wall_now;
use crate::files::{Durability, FileError, read_regular, write_atomically};
use crate::home::{RunDir, sha256_hex};
use crate::integrate::stage::CheckSite;

/// How long a command of the user's may take before it is ended with all that it started.
pub const HOOK_LIMIT: Duration = Duration::from_secs(60);

/// The program that keeps a machine with systemd awake.
const INHIBITOR: &str = "systemd-inhibit";

/// No file of wishes or failures is larger.
const FILE_LIMIT: u64 = 1 << 20;

/// What the user wants done beside a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Wishes {
    /// Run by `sh -c` when the run has ended.
    pub on_done: Option<String>,
    /// Run by `sh -c` when the run calls for attention before its end.
    pub on_attention: Option<String>,
    /// The machine is kept from going to sleep while the run lasts.
    pub keep_awake: bool,
}

impl Wishes {
    /// These, and from `other` what they leave open.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            on_done: self.on_done.or(other.on_done),
            on_attention: self.on_attention.or(other.on_attention),
            keep_awake: self.keep_awake || other.keep_awake,
        }
    }

    /// Keeps them with the run, for every supervisor of it.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn save(&self, run: &RunDir) -> Result<(), FileError> {
        let text = serde_json::to_vec_pretty(self).expect("plain data with string keys");
        write_atomically(&run.wishes(), &text, Durability::from_env())
    }

    /// Those of a run; none where nothing was kept.
    #[must_use]
    pub fn load(run: &RunDir) -> Self {
        let text = read_regular(&run.wishes(), FILE_LIMIT).ok();
        text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
    }
}

/// Which of the user's commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// `--on-done`.
    Done,
    /// `--on-attention`.
    Attention,
}

impl Hook {
    fn name(self) -> &'static str {
        match self {
            Self::Done => "on-done",
            Self::Attention => "on-attention",
        }
    }
}

/// What a command is told in its environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// `PRUN_RUN`: the run's id.
    pub run: String,
    /// `PRUN_TITLE`: the plan's title.
    pub title: String,
    /// `PRUN_SUMMARY`: one line, as `wait` prints it first.
    pub summary: String,
    /// `PRUN_DIGEST`: all that `wait` prints.
    pub digest: String,
    /// `PRUN_STATE`: `running`, `ended`, `cancelled` or `supervisor-lost`.
    pub state: String,
    /// The directory it runs in, where that is there.
    pub dir: Option<PathBuf>,
}

impl Told {
    /// What is to be told of a run that stands so now.
    #[must_use]
    pub fn of(id: &RunId, run: &RunState, driven: bool) -> Self {
        let view = RunView::of(id.as_str(), run, driven, wall_now());
        Self {
            run: id.to_string(),
            title: view.title.clone(),
            summary: digest::header(&view, id.short()),
            digest: digest::digest(&view, id.short()),
            state: view.state.name().to_owned(),
            dir: view.repo.as_ref().map(PathBuf::from),
        }
    }
}

impl Told {
    /// What is to be told of a run whose supervisor has to leave it.
    #[must_use]
    pub fn of_trouble(id: &RunId, why: &str) -> Self {
        let summary = format!("{} {why}", id.short());
        let digest = format!("{summary}\nLOST the supervisor has left   prun resume {}", id.short());
        Self { run: id.to_string(), summary, digest, state: "supervisor-lost".to_owned(), ..Self::default() }
    }
}

/// Runs one command to its end, bounded in time. A failure is kept for `status`; a success removes an older one.
pub fn run_hook(run: &RunDir, hook: Hook, command: &str, told: &Told) {
    let failure = run_bounded(run, hook, command, told, HOOK_LIMIT).err();
    note(run, hook.name(), failure.as_deref());
}

fn run_bounded(run: &RunDir, hook: Hook, command: &str, told: &Told, limit: Duration) -> Result<(), String> {
    let pair = |name: &str, value: &str| format!("{name}={value}");
    let argv = [
        "env".to_owned(),
        pair("PRUN_RUN", &told.run),
        pair("PRUN_TITLE", &told.title),
        pair("PRUN_SUMMARY", &told.summary),
        pair("PRUN_DIGEST", &told.digest),
        pair("PRUN_STATE", &told.state),
        pair("PRUN_HOOK", hook.name()),
        "sh".to_owned(),
        "-c".to_owned(),
        command.to_owned(),
    ];
    let dir = told.dir.as_deref().filter(|dir| dir.is_dir()).unwrap_or(run.root());
    let token = sha256_hex(format!("{} {}", told.run, hook.name()).as_bytes());
    let log = run.hooks_log();
    let site = CheckSite { dir, log: &log, token: &token, guard: None };
    let check = site.run(&argv, limit).map_err(|error| error.to_string())?;
    if check.ok {
        return Ok(());
    }
    let how = match check.exit {
        _ if check.timed_out => format!("was ended after {} s", limit.as_secs()),
        exit => format!("failed: {}", prun_core::explain::exit_sentence(&exit)),
    };
    Err(format!("{how}; its output is in {}", log.display()))
}

/// Keeps what went wrong, or forgets what went wrong before.
fn note(run: &RunDir, name: &str, failure: Option<&str>) {
    let path = run.wish_trouble(name);
    match failure {
        None => {
            // There is none most of the time.
            let _ = std::fs::remove_file(path);
        }
        Some(failure) => {
            // The supervisor's log; where not even that can be written, nothing is left to say it to.
            let _ = writeln!(std::io::stderr(), "{name} {failure}");
            let _ = write_atomically(&path, format!("{name} {failure}\n").as_bytes(), Durability::Cached);
        }
    }
}

/// What went wrong with the wishes of a run, a line each.
#[must_use]
pub fn troubles(run: &RunDir) -> Vec<String> {
    let names = [Hook::Done.name(), Hook::Attention.name(), KEEP_AWAKE];
    let texts = names.iter().filter_map(|name| read_regular(&run.wish_trouble(name), FILE_LIMIT).ok());
    texts.map(|text| String::from_utf8_lossy(&text).trim_end().to_owned()).collect()
}

const KEEP_AWAKE: &str = "keep-awake";

/// Runs a command whenever it is told, one at a time: what happens meanwhile is told once, afterwards.
#[derive(Debug)]
pub struct Caller {
    sender: Option<Sender<Told>>,
    thread: Option<JoinHandle<()>>,
}

impl Caller {
    /// A caller of `command` for `run`.
    ///
    /// # Errors
    /// A thread cannot be made.
    pub fn start(run: &RunDir, hook: Hook, command: String) -> std::io::Result<Self> {
        let (sender, told): (_, Receiver<Told>) = channel();
        let run = run.clone();
        let call = move || {
            while let Ok(first) = told.recv() {
                let latest = told.try_iter().last().unwrap_or(first);
                run_hook(&run, hook, &command, &latest);
            }
        };
        let thread = std::thread::Builder::new().name(hook.name().into()).spawn(call)?;
        Ok(Self { sender: Some(sender), thread: Some(thread) })
    }

    /// Has the command run soon.
    pub fn tell(&self, told: Told) {
        if let Some(sender) = &self.sender {
            // The thread ends only with this.
            let _ = sender.send(told);
        }
    }
}

impl Drop for Caller {
    /// Waits for what was told; each command is bounded.
    fn drop(&mut self) {
        self.sender = None;
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Whether this machine can be kept awake.
///
/// # Errors
/// Why it cannot, in a sentence.
pub fn can_keep_awake() -> Result<(), String> {
    match inhibit("a test").arg("true").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            let said = said.lines().last().unwrap_or("it failed").trim().to_owned();
            Err(format!("{INHIBITOR} says: {said}"))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(format!("there is no {INHIBITOR} here")),
        Err(error) => Err(format!("{INHIBITOR} cannot be started: {error}")),
    }
}

/// While it lives the machine does not go to sleep by itself.
#[derive(Debug)]
pub struct Awake {
    child: Child,
}

impl Awake {
    /// Keeps the machine awake for `run`; a failure is kept for `status`.
    #[must_use]
    pub fn start(run: &RunDir) -> Option<Self> {
        if let Err(why) = can_keep_awake() {
            note(run, KEEP_AWAKE, Some(&format!("is not possible: {why}")));
            return None;
        }
        let why = format!("prun run {}", run.root().file_name().unwrap_or_default().to_string_lossy());
        // It ends when its input does: with the supervisor, however that ends.
        let child = inhibit(&why).arg("cat").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let failure = child.as_ref().err().map(|error| format!("is not possible: {INHIBITOR}: {error}"));
        note(run, KEEP_AWAKE, failure.as_deref());
        child.ok().map(|child| Self { child })
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // `cat` has seen the end of its input.
        let _ = self.child.wait();
    }
}

fn inhibit(why: &str) -> Command {
    let mut command = Command::new(INHIBITOR);
    command.args(["--what=sleep:idle", "--who=prun", "--mode=block"]).arg(format!("--why={why}"));
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> (tempfile::TempDir, RunDir) {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir::at(dir.path());
        (dir, run)
    }

    fn told() -> Told {
        Told { run: "261130-000000-abcd".into(), summary: "1/2 done; $(false)".into(), ..Told::default() }
    }

    #[test]
    fn a_command_is_told_by_its_environment_and_a_failure_is_kept_until_it_works() {
        let (dir, run) = place();
        run_hook(&run, Hook::Done, "echo \"$PRUN_RUN $PRUN_SUMMARY\" > told; exit 3", &told());
        let written = std::fs::read_to_string(dir.path().join("told")).unwrap();
        assert_eq!(written, "261130-000000-abcd 1/2 done; $(false)\n");
        let troubles = super::troubles(&run);
        assert!(troubles.len() == 1 && troubles[0].starts_with("on-done failed: exit code 3"), "{troubles:?}");
        run_hook(&run, Hook::Done, "true", &told());
        assert_eq!(super::troubles(&run), [""; 0]);
    }

    #[test]
    fn a_command_that_does_not_end_is_ended() {
        let (_dir, run) = place();
        let limit = Duration::from_millis(50);
        // What a command of the same run leaves is ended with it, also where that is another test's.
        let told = Told { run: "261130-000000-efgh".into(), ..told() };
        let error = run_bounded(&run, Hook::Attention, "sleep 600 & sleep 600", &told, limit).unwrap_err();
        assert!(error.starts_with("was ended after"), "{error}");
    }

    #[test]
    fn what_happens_while_a_command_runs_is_told_once() {
        let (dir, run) = place();
        let script = "echo $PRUN_SUMMARY >> told; while [ ! -e go ]; do sleep 0.01; done";
        let caller = Caller::start(&run, Hook::Attention, script.to_owned()).unwrap();
        let tell = |summary: &str| caller.tell(Told { summary: summary.into(), ..told() });
        tell("one");
        let told = || std::fs::read_to_string(dir.path().join("told")).unwrap_or_default();
        while told() != "one\n" {
            std::thread::yield_now();
        }
        ["two", "three", "four"].iter().for_each(|summary| tell(summary));
        std::fs::write(dir.path().join("go"), "").unwrap();
        drop(caller);
        assert_eq!(told(), "one\nfour\n");
    }

    #[test]
    fn wishes_are_kept_with_the_run() {
        let (_dir, run) = place();
        assert_eq!(Wishes::load(&run), Wishes::default());
        let wishes = Wishes { on_done: Some("a".into()), ..Wishes::default() };
        wishes.save(&run).unwrap();
        assert_eq!(Wishes::load(&run), wishes);
        let other = Wishes { on_done: Some("b".into()), on_attention: Some("c".into()), keep_awake: true };
        let both = wishes.or(other);
        assert_eq!((both.on_done.as_deref(), both.on_attention.as_deref()), (Some("a"), Some("c")));
        assert!(both.keep_awake);
    }
}
