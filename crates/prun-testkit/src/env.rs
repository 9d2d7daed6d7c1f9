//! A hermetic place to run `prun` in: a directory with a home of its own, a repository, and an environment
//! in which nothing of the user's is seen.
//!
//! Every process that is started here carries a mark in its environment. When the place is dropped, none of
//! them may be left; what is left of a failed test is ended.

mod normal;
mod processes;
mod tree;

use std::ffi::OsString;
use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tempfile::TempDir;

pub use processes::Process;
pub use tree::Tree;

/// The variable that marks what a test started; its value is the test's directory.
pub const MARK: &str = "PRUN_TEST_MARK";

/// How long a condition may take to come true. Generous: a loaded machine must not fail a test.
const PATIENCE: Duration = Duration::from_secs(30);

/// Between two looks at a condition.
const LOOK: Duration = Duration::from_millis(10);

/// When every commit of a test was made, so that its id is always the same.
const DATE: &str = "2026-01-02T03:04:05Z";

/// The same number of slots on every machine.
const CONFIG: &str = "[executor.command]\nslots = 4\n";

/// The place. Its repository is `repo/`, its home of prun `home/`.
#[derive(Debug)]
pub struct TestEnv {
    dir: TempDir,
    root: PathBuf,
    prun: PathBuf,
    vars: Vec<(OsString, OsString)>,
    cwd: PathBuf,
    runs: Mutex<Vec<String>>,
}

/// How a command ended and what it printed. Shown, all that differs from one time to the next has a name in
/// brackets instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Printed {
    /// The exit code; 128 and the number of the signal that ended it.
    pub code: i32,
    /// What it wrote to stdout, as it was.
    pub stdout: String,
    /// What it wrote to stderr, as it was.
    pub stderr: String,
    shown: String,
}

impl fmt::Display for Printed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl TestEnv {
    /// A place with a repository that has one commit: `README.md`, `src/one.txt` and `src/two.txt`.
    ///
    /// # Panics
    /// It cannot be made.
    #[must_use]
    pub fn new(prun: &str) -> Self {
        let env = Self::without_repository(prun);
        env.git("init -q -b main");
        env.write("README.md", "A project\n");
        env.write("src/one.txt", "one\n");
        env.write("src/two.txt", "1\n2\n3\n4\n5\n6\n7\n8\n9\n");
        env.commit("The base");
        env
    }

    /// A place whose `repo/` is an empty directory.
    ///
    /// # Panics
    /// It cannot be made.
    #[must_use]
    pub fn without_repository(prun: &str) -> Self {
        let dir = tempfile::Builder::new().prefix("prun-it-").tempdir().expect("make a temporary directory");
        let root = dir.path().canonicalize().expect("resolve the temporary directory");
        for name in ["repo", "home", "user/config/prun", "tmp", "run"] {
            std::fs::create_dir_all(root.join(name)).expect("make a directory in it");
        }
        std::fs::write(root.join("user/config/prun/config.toml"), CONFIG).expect("write the configuration");
        let path = std::env::var_os("PATH").expect("PATH is set");
        let mut vars = vec![("PATH".into(), path), (MARK.into(), root.clone().into_os_string())];
        let places = [
            ("PRUN_HOME", "home"),
            ("HOME", "user"),
            ("XDG_CONFIG_HOME", "user/config"),
            ("XDG_STATE_HOME", "user/state"),
            ("XDG_CACHE_HOME", "user/cache"),
            ("XDG_RUNTIME_DIR", "run"),
            ("TMPDIR", "tmp"),
            ("GIT_CONFIG_GLOBAL", "user/gitconfig"),
        ];
        vars.extend(places.map(|(name, place)| (name.into(), root.join(place).into_os_string())));
        let fixed = [
            ("PRUN_DURABLE", "off"),
            // Other tests beside this one keep the machine busy.
            ("PRUN_PRESSURE", "off"),
            // Also where the tests themselves are run by a worker of prun.
            ("PRUN_DEPTH", "0"),
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("GIT_AUTHOR_NAME", "A U Thor"),
            ("GIT_AUTHOR_EMAIL", "author@localhost"),
            ("GIT_AUTHOR_DATE", DATE),
            ("GIT_COMMITTER_NAME", "A U Thor"),
            ("GIT_COMMITTER_EMAIL", "author@localhost"),
            ("GIT_COMMITTER_DATE", DATE),
            ("LC_ALL", "C"),
            ("TZ", "UTC"),
        ];
        vars.extend(fixed.map(|(name, value)| (name.into(), value.into())));
        let cwd = root.join("repo");
        Self { dir, root, prun: prun.into(), vars, cwd, runs: Mutex::new(Vec::new()) }
    }

    /// Sets a variable for all that is started from now on.
    pub fn set(&mut self, name: &str, value: impl Into<OsString>) {
        self.vars.retain(|(known, _)| known != name);
        self.vars.push((name.into(), value.into()));
    }

    /// Starts everything from now on in `dir`, relative to the place.
    pub fn enter(&mut self, dir: &str) {
        self.cwd = self.at(dir);
    }

    /// A path in the place.
    #[must_use]
    pub fn at(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// The repository's top level.
    #[must_use]
    pub fn repo(&self) -> PathBuf {
        self.at("repo")
    }

    /// prun's home.
    #[must_use]
    pub fn home(&self) -> PathBuf {
        self.at("home")
    }

    /// Writes a file of the repository, with its directories.
    ///
    /// # Panics
    /// It cannot be written.
    pub fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.repo().join(path);
        std::fs::create_dir_all(path.parent().expect("it is in the repository")).expect("make its directory");
        std::fs::write(&path, text).unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
    }

    /// The text of a file of the repository; empty where there is none.
    #[must_use]
    pub fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.repo().join(path)).unwrap_or_default()
    }

    /// Writes an executable script, relative to the place; its path.
    ///
    /// Another process writes it: a descriptor of ours, open for writing and inherited by a fork of a
    /// neighbouring test, would make its start fail as busy.
    ///
    /// # Panics
    /// It cannot be written.
    pub fn script(&self, path: &str, text: &str) -> PathBuf {
        let path = self.at(path);
        let mut shell = self.program("/bin/sh");
        shell.args(["-c", "cat > \"$1\" && chmod +x \"$1\"", "sh"]).arg(&path).stdin(Stdio::piped());
        let mut writer = shell.spawn().expect("start a shell");
        let mut stdin = writer.stdin.take().expect("it was asked for");
        stdin.write_all(format!("#!/bin/sh\n{text}\n").as_bytes()).expect("write the script");
        drop(stdin);
        assert!(writer.wait().expect("wait for the shell").success(), "cannot write {}", path.display());
        path
    }

    /// Runs git in the repository; its output without the white space around it. `args` are separated by blanks.
    ///
    /// # Panics
    /// It fails.
    pub fn git(&self, args: &str) -> String {
        self.git_args(&args.split(' ').collect::<Vec<_>>())
    }

    fn git_args(&self, args: &[&str]) -> String {
        let output = self.program("git").args(args).current_dir(self.repo()).output().expect("start git");
        assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        // The end alone: a status line begins with a blank.
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    /// Commits all that is in the working tree.
    pub fn commit(&self, title: &str) {
        self.git("add -A");
        self.git_args(&["commit", "-q", "-m", title]);
    }

    /// A program in this environment, in the repository, with nothing on stdin.
    #[must_use]
    pub fn program(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env_clear().envs(self.vars.iter().map(|(name, value)| (name, value)));
        command.current_dir(&self.cwd).stdin(Stdio::null());
        command
    }

    /// `prun` with `args`, ready to be started.
    #[must_use]
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = self.program(&self.prun);
        command.args(args);
        command
    }

    /// Runs `prun` to its end; `line` is split at blanks.
    pub fn prun(&self, line: &str) -> Printed {
        self.prun_args(&line.split(' ').collect::<Vec<_>>())
    }

    /// Runs `prun` to its end.
    ///
    /// # Panics
    /// It cannot be started.
    pub fn prun_args(&self, args: &[&str]) -> Printed {
        self.finish(self.start(args))
    }

    /// Runs `prun` to its end with this text on stdin.
    ///
    /// # Panics
    /// It cannot be started.
    pub fn prun_fed(&self, line: &str, text: &str) -> Printed {
        let mut command = self.command(&line.split(' ').collect::<Vec<_>>());
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("start prun");
        // It may end without reading.
        let _ = child.stdin.take().expect("it was asked for").write_all(text.as_bytes());
        self.finish(child)
    }

    /// Starts `prun` and leaves it running; its output is taken by [`Self::finish`].
    ///
    /// # Panics
    /// It cannot be started.
    pub fn start(&self, args: &[&str]) -> Child {
        self.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("start prun")
    }

    /// Waits for the end of a process that was started here.
    ///
    /// # Panics
    /// Its output cannot be read.
    pub fn finish(&self, child: Child) -> Printed {
        use std::os::unix::process::ExitStatusExt;
        let output = child.wait_with_output().expect("wait for it");
        let code = output.status.code().or_else(|| output.status.signal().map(|signal| 128 + signal));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (code, stdout, stderr) = (code.unwrap_or(-1), text(&output.stdout), text(&output.stderr));
        let mut shown = format!("exit {code}\n");
        for (name, text) in [("stdout", &stdout), ("stderr", &stderr)] {
            if !text.is_empty() {
                shown.push_str(&format!("--- {name}\n{}", self.normal(text)));
            }
        }
        Printed { code, stdout, stderr, shown }
    }

    /// `text` with names in brackets for what differs from one time to the next.
    ///
    /// # Panics
    /// Another thread panicked in here.
    #[must_use]
    pub fn normal(&self, text: &str) -> String {
        let mut runs = self.runs.lock().expect("nobody panics with it");
        for run in self.run_ids() {
            if !runs.contains(&run) {
                runs.push(run);
            }
        }
        normal::normal(text, &self.root, &runs)
    }

    /// The ids of all runs in the home, oldest first.
    #[must_use]
    pub fn run_ids(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.home().join("runs")).into_iter().flatten().flatten();
        let mut runs: Vec<(i64, String)> = entries
            .filter_map(|entry| {
                let card = std::fs::read(entry.path().join("run.json")).ok()?;
                let card: serde_json::Value = serde_json::from_slice(&card).ok()?;
                // Two runs of one second have no order by their names.
                Some((card["began"].as_i64()?, entry.file_name().to_string_lossy().into_owned()))
            })
            .collect();
        runs.sort();
        runs.into_iter().map(|(_, run)| run).collect()
    }

    /// The directory of an attempt of a unit, in the newest run.
    ///
    /// # Panics
    /// There is no run.
    #[must_use]
    pub fn attempt(&self, unit: &str, attempt: u32) -> PathBuf {
        let run = self.run_ids().pop().expect("a run was started");
        self.home().join("runs").join(run).join("units").join(unit).join(attempt.to_string())
    }

    /// Waits until `condition` holds.
    ///
    /// # Panics
    /// It does not within half a minute; `what` is told.
    pub fn wait_until(&self, what: &str, mut condition: impl FnMut() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !condition() {
            assert!(Instant::now() < deadline, "waited in vain until {what}; still there: {:?}", self.processes());
            pause();
        }
    }

    /// The processes that were started here and live.
    #[must_use]
    pub fn processes(&self) -> Vec<Process> {
        processes::marked(MARK, &self.root)
    }

    /// Those of them whose first argument is `verb`: `__supervise` or `__dispatch`.
    #[must_use]
    pub fn doing(&self, verb: &str) -> Vec<Process> {
        self.processes().into_iter().filter(|process| process.does(verb)).collect()
    }

    /// Ends those by SIGKILL, and waits until they are gone: what is still dying would be taken for alive.
    ///
    /// # Panics
    /// There is none, or one does not go.
    pub fn kill(&self, verb: &str) {
        let victims = self.doing(verb);
        assert!(!victims.is_empty(), "nobody does {verb}: {:?}", self.processes());
        victims.iter().for_each(Process::end);
        self.wait_until("the killed are gone", || victims.iter().all(|victim| !victim.lives()));
    }

    /// Waits until nothing that was started here lives.
    ///
    /// # Panics
    /// Something stays; it is named.
    pub fn assert_all_gone(&self) {
        self.wait_until("no process is left", || self.processes().is_empty());
    }

    /// Waits until nothing that was started here lives but what does one of these verbs.
    ///
    /// # Panics
    /// Something else stays; it is named.
    pub fn assert_all_gone_but(&self, verbs: &[&str]) {
        let stays = |process: &Process| verbs.iter().any(|verb| process.does(verb));
        self.wait_until("no other process is left", || self.processes().iter().all(stays));
    }

    /// All files below `path` (relative to the place) with their modes and bytes.
    #[must_use]
    pub fn tree(&self, path: &str) -> Tree {
        Tree::of(&self.at(path))
    }
}

impl Drop for TestEnv {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.assert_all_gone();
            return;
        }
        // The supervisor may start one more before it is ended itself.
        for _ in 0..3 {
            self.processes().iter().for_each(Process::end);
        }
        // Whoever looks into a failure finds what was there, if asked for.
        if std::env::var_os("PRUN_TEST_KEEP").is_some() {
            self.dir.disable_cleanup(true);
            let _ = writeln!(std::io::stderr(), "kept: {}", self.root.display());
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "polls a condition of other processes, with a deadline")]
fn pause() {
    std::thread::sleep(LOOK);
}

/// The program `name` of this workspace, found beside the test that runs: `target/debug/deps/it-…` has it one
/// directory up. `cargo nextest run` and `cargo test --workspace` build it; after `cargo test -p …` it may be missing.
///
/// # Panics
/// It is not there.
#[must_use]
pub fn built_program(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the test's own program");
    let dir = test.ancestors().nth(2).expect("target/debug/deps/test");
    let program = dir.join(name);
    assert!(program.is_file(), "{} is missing: cargo build --workspace --bins", program.display());
    program
}

/// Reads a file that may not be there yet.
#[must_use]
pub fn read_if_there(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}
