//! SIGKILL at random moments: of the viewer, the supervisor, both, dispatchers. Whatever dies, `status`
//! tells the truth, `resume` ends the run with every result, no unit runs twice at a time, and nothing is
//! left behind.
//!
//! `PRUN_CHAOS_ROUNDS` makes each test longer, `PRUN_CHAOS_SEED` starts it elsewhere. A failure names the
//! seed of its round.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use prun_core::ids::Seq;
use prun_core::outcome::{Channel, Outcome};
use prun_core::run::RunState;
use prun_engine::home::{Home, RunDir};
use prun_engine::ledger::Reader;
use prun_engine::process::{ProcessStat, is_alive, signal_process, with_environment_entry};
use prun_engine::runs;
use rustix::process::Signal;

const PRUN: &str = env!("CARGO_BIN_EXE_prun");

/// Marks every process of a round.
const MARK: &str = "PRUN_TEST_CHAOS";

/// How long anything that must come may take: two cores may be shared by many tests.
const LIMIT: Duration = Duration::from_secs(120);

/// What every worker does first and last: it says so in the journal, after a look whether an earlier
/// process of its unit still lives.
const BEGIN: &str = r#"
journal=$CHAOS_JOURNAL
while read -r what unit attempt pid; do
    [ "$what" = start ] && [ "$unit" = "$PRUN_UNIT" ] && [ "$pid" != $$ ] || continue
    if tr '\0' '\n' 2>/dev/null <"/proc/$pid/environ" | grep -qx "PRUN_UNIT=$unit"; then
        echo "overlap $unit $attempt $PRUN_ATTEMPT" >>"$journal"
    fi
done <"$journal"
echo "start $PRUN_UNIT $PRUN_ATTEMPT $$" >>"$journal"
"#;

const END: &str = r##"
printf '# %s result\nConclusion: done\nFiles: none\nOpen items: none\nVerification: none\n' "$PRUN_UNIT" >"$PRUN_RESULT"
echo "stop $PRUN_UNIT $PRUN_ATTEMPT $$" >>"$journal"
"##;

const SLOW: &str = "for n in 1 2 3 4 5 6 7 8; do echo $n; sleep 0.15; done; echo slow >>slow.txt";
const SETSID: &str = r#"setsid sh -c 'echo "start $PRUN_UNIT $PRUN_ATTEMPT $$" >>"$CHAOS_JOURNAL"; exec sleep 600' &
sleep 0.4; echo a >left.txt"#;
const FLAKY: &str = r#"[ "$PRUN_ATTEMPT" != 1 ] || exit 9; echo b >flaky.txt"#;
const STUBBORN: &str = "trap '' TERM; sleep 0.6; echo c >stubborn.txt";
const COMMITS: &str =
    "echo d >committed.txt; git add . && git -c user.name=a -c user.email=a@b commit -qm x; sleep 0.3";

/// The run's check on the base; it leaves something behind.
const CHECK: &str = r#"setsid sh -c 'echo "start $PRUN_UNIT $PRUN_ATTEMPT $$" >>"$CHAOS_JOURNAL"; exec sleep 600' &
sleep 0.7"#;

/// The units: name, mode, what the worker does.
const UNITS: &[(&str, &str, &str)] = &[
    ("quick-1", "write", "echo 1 >q1.txt"),
    ("slow-1", "write", SLOW),
    ("setsid-1", "write", SETSID),
    ("flaky", "write", FLAKY),
    ("slow-2", "write", SLOW),
    ("stubborn", "write", STUBBORN),
    ("quick-2", "write", "echo 2 >q2.txt"),
    ("reader-1", "read", "ls repo >/dev/null; sleep 0.2"),
    ("commits", "write", COMMITS),
    ("setsid-2", "write", SETSID),
    ("reader-2", "read", "sleep 0.5"),
    ("quick-3", "write", "echo 3 >q3.txt"),
];

/// What gets killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Viewer,
    Supervisor,
    ViewerAndSupervisor,
    Dispatcher,
    EveryDispatcher,
    SupervisorAndDispatcher,
}

#[test]
fn a_run_goes_on_when_its_viewer_is_killed() {
    rounds(1, &[Victim::Viewer]);
}

/// C31: no worker dies with the thread, or the process, that started its dispatcher.
#[test]
fn a_run_whose_supervisor_is_killed_is_resumed_with_every_result() {
    rounds(1, &[Victim::Supervisor]);
}

#[test]
fn a_run_whose_viewer_and_supervisor_are_killed_is_resumed_with_every_result() {
    rounds(1, &[Victim::ViewerAndSupervisor]);
}

#[test]
fn the_work_of_a_killed_dispatcher_is_ended_and_done_again() {
    rounds(1, &[Victim::Dispatcher, Victim::EveryDispatcher]);
}

#[test]
fn a_run_survives_whatever_is_killed_in_it() {
    use Victim::{Dispatcher, EveryDispatcher, Supervisor, SupervisorAndDispatcher, Viewer, ViewerAndSupervisor};
    let all = [Viewer, Supervisor, ViewerAndSupervisor, Dispatcher, EveryDispatcher, SupervisorAndDispatcher];
    rounds(2, &all);
}

#[test]
fn of_two_that_resume_at_once_one_is_refused() {
    let mut random = Random::new(seed());
    let round = Round::new(random.0);
    let mut viewer = round.start();
    round.wait_for("a worker", || round.journal().contains("start "));
    for _ in 0..5 {
        round.kill_by_argument("__supervise");
        // Whoever holds the lock by a hair is gone after the wait for its end.
        round.wait_for("the lock to be free", || runs::supervisor(&round.run_dir()).is_none());
        let ended = round.state().ended.is_some();
        let two = [0, 1].map(|_| round.prun(&["resume", "-d", round.id().as_str()]));
        let ends = two.map(|mut command| {
            let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            round.pause(random.below(3));
            child
        });
        let ends = ends.map(|child| child.wait_with_output().unwrap());
        let mut codes = ends.each_ref().map(|end| end.status.code());
        codes.sort_unstable();
        assert_eq!(codes, if ended { [Some(2), Some(2)] } else { [Some(0), Some(2)] }, "{ends:?}");
        round.pause(random.below(100));
    }
    let _ = viewer.wait();
    round.resume_to_the_end();
    round.check();
}

fn rounds(count: u64, victims: &[Victim]) {
    let count = std::env::var("PRUN_CHAOS_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(count);
    let first = seed();
    for seed in (first..).step_by(1_000_003).take(usize::try_from(count).unwrap()) {
        let mut round = Round::new(seed);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| round.play(victims)));
        if let Err(panic) = outcome {
            round.keep();
            std::panic::resume_unwind(panic);
        }
    }
}

fn seed() -> u64 {
    let given = std::env::var("PRUN_CHAOS_SEED").ok().and_then(|text| text.parse().ok());
    given.unwrap_or_else(|| {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        u64::from(since.subsec_nanos()) ^ since.as_secs()
    })
}

/// A small generator (SplitMix64): a seed must mean the same kills on every machine.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }
}

/// One run in a world of its own.
struct Round {
    seed: u64,
    dir: tempfile::TempDir,
    before: BTreeMap<PathBuf, String>,
}

impl Round {
    fn new(seed: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["home", "user", "repo/src", "plans"] {
            std::fs::create_dir_all(at(name)).unwrap();
        }
        std::fs::write(at("journal"), "").unwrap();
        for number in 0..12 {
            std::fs::write(at("repo/src").join(format!("{number}.txt")), format!("{number}\n").repeat(30)).unwrap();
        }
        std::fs::write(at("plans/plan.toml"), plan()).unwrap();
        let mut round = Self { seed, dir, before: BTreeMap::new() };
        round.git(&["init", "-q"]);
        round.git(&["add", "."]);
        round.git(&["-c", "user.name=u", "-c", "user.email=u@x", "commit", "-qm", "first"]);
        // Work of the user's that is under way: staged, unstaged, untracked.
        std::fs::write(round.repo().join("src/0.txt"), "staged\n").unwrap();
        round.git(&["add", "src/0.txt"]);
        std::fs::write(round.repo().join("src/1.txt"), "unstaged\n").unwrap();
        std::fs::write(round.repo().join("new.txt"), "untracked\n").unwrap();
        round.before = snapshot(&round.repo());
        round
    }

    fn play(&self, victims: &[Victim]) {
        let mut random = Random::new(self.seed);
        let mut viewer = self.start();
        self.pause(random.below(600));
        for _ in 0..random.below(4) + 2 {
            if self.is_over() {
                break;
            }
            let victim = victims[usize::try_from(random.below(victims.len() as u64)).unwrap()];
            self.kill(victim, &mut viewer);
            self.check_status();
            if runs::supervisor(&self.run_dir()).is_none() && !self.is_over() {
                viewer = self.prun(&["resume", self.id().as_str()]).spawn().unwrap();
            }
            self.pause(random.below(700));
        }
        reap(&mut viewer);
        self.resume_to_the_end();
        self.check();
    }

    /// Starts the run with a viewer, and waits until it is there.
    fn start(&self) -> Child {
        let plan = self.at("plans/plan.toml");
        let child = self.prun(&["run", plan.to_str().unwrap()]).spawn().unwrap();
        self.wait_for("the run", || {
            let cards = runs::list(&self.home());
            cards.first().is_some_and(|card| runs::supervisor(&self.home().run(&card.run)).is_some())
        });
        child
    }

    fn kill(&self, victim: Victim, viewer: &mut Child) {
        let kill_viewer = |viewer: &mut Child| {
            viewer.kill().unwrap();
            viewer.wait().unwrap();
        };
        match victim {
            Victim::Viewer => kill_viewer(viewer),
            Victim::Supervisor => self.kill_by_argument("__supervise"),
            Victim::ViewerAndSupervisor => {
                self.kill_by_argument("__supervise");
                kill_viewer(viewer);
            }
            Victim::Dispatcher => self.kill_dispatchers(1),
            Victim::EveryDispatcher => self.kill_dispatchers(usize::MAX),
            Victim::SupervisorAndDispatcher => {
                self.kill_dispatchers(1);
                self.kill_by_argument("__supervise");
                self.kill_dispatchers(1);
            }
        }
    }

    fn kill_dispatchers(&self, most: usize) {
        for stat in self.ours("__dispatch").iter().take(most) {
            signal_process(&stat.identity(), Signal::KILL).unwrap();
        }
    }

    /// Kills and waits for the end: what is still dying would be taken for alive.
    fn kill_by_argument(&self, argument: &str) {
        for stat in self.ours(argument) {
            signal_process(&stat.identity(), Signal::KILL).unwrap();
            self.wait_for("a killed process to go", || !is_alive(&stat.identity()));
        }
    }

    /// Processes of this round whose first argument is this one.
    fn ours(&self, argument: &str) -> Vec<ProcessStat> {
        let is_it = |stat: &ProcessStat| {
            let line = std::fs::read(format!("/proc/{}/cmdline", stat.pid)).unwrap_or_default();
            line.split(|byte| *byte == 0).nth(1) == Some(argument.as_bytes())
        };
        self.marked().into_iter().filter(is_it).collect()
    }

    fn marked(&self) -> Vec<ProcessStat> {
        with_environment_entry(format!("{MARK}={}", self.mark()).as_bytes())
    }

    /// `status` says that the supervisor is lost exactly where nobody drives a run that is not over.
    fn check_status(&self) {
        let driven = || runs::supervisor(&self.run_dir()).is_some();
        let before = (driven(), self.state().ended.is_some());
        let output = self.output(&["status", self.id().as_str()]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(0), "seed {}: {output:?}", self.seed);
        if before == (driven(), self.state().ended.is_some()) {
            let says_lost = text.contains("LOST the supervisor is gone");
            assert_eq!(says_lost, before == (false, false), "seed {}: {text}", self.seed);
        }
        for (unit, ..) in UNITS {
            assert!(text.contains(unit), "seed {}: {unit} is missing: {text}", self.seed);
        }
    }

    /// Resumes whatever is not driven until the run is over.
    fn resume_to_the_end(&self) {
        let deadline = Instant::now() + LIMIT;
        while !self.is_over() || runs::supervisor(&self.run_dir()).is_some() {
            assert!(Instant::now() < deadline, "seed {}: the run does not end: {}", self.seed, self.story());
            if runs::supervisor(&self.run_dir()).is_none() && !self.is_over() {
                let output = self.output(&["resume", "-d", self.id().as_str()]);
                assert_eq!(output.status.code(), Some(0), "seed {}: {output:?}", self.seed);
            }
            self.pause(20);
        }
    }

    /// What has to hold after any run.
    fn check(&self) {
        let seed = self.seed;
        let state = self.state();
        assert_eq!(state.ended, Some(false), "seed {seed}: {}", self.story());
        for unit in &state.units {
            assert_eq!(unit.outcome(), Some(&Outcome::Succeeded), "seed {seed}: {}", self.story());
            let result = unit.facts().and_then(|facts| facts.result.as_ref()).unwrap();
            assert_eq!(result.channel, Channel::ResultFile, "seed {seed}");
            assert!(Path::new(&result.path).is_file(), "seed {seed}: {}", result.path);
        }
        let journal = self.journal();
        assert!(!journal.contains("overlap"), "seed {seed}: a unit ran twice at a time:\n{journal}\n{}", self.story());
        for (unit, ..) in UNITS {
            let stops = journal.lines().filter(|line| line.starts_with(&format!("stop {unit} "))).count();
            assert!(stops >= 1, "seed {seed}: {unit} never came to its end:\n{journal}");
        }
        self.wait_for("the last process to go", || self.marked().is_empty());
        assert!(state.touched.is_empty(), "seed {seed}: {:?}", state.touched);
        assert_eq!(snapshot(&self.repo()), self.before, "seed {seed}: the user's repository changed");
        for unit in &state.units {
            for record in &unit.attempts {
                let dir = self.run_dir().attempt(&record.dir);
                let half_written = names(dir.root()).into_iter().find(|name| name.starts_with(".prun-"));
                assert_eq!(half_written, None, "seed {seed}: {}", dir.root().display());
            }
        }
    }

    fn is_over(&self) -> bool {
        self.state().ended.is_some()
    }

    /// The ledger's state; that it replays at all is part of the test.
    fn state(&self) -> RunState {
        let events = Reader::open(&self.run_dir()).unwrap().after(Seq(0)).unwrap();
        RunState::replay(&events).unwrap_or_else(|error| panic!("seed {}: {error}", self.seed))
    }

    /// The ledger and the log, for a failure.
    fn story(&self) -> String {
        let mut text = String::new();
        for event in Reader::open(&self.run_dir()).unwrap().after(Seq(0)).unwrap() {
            writeln!(text, "{} {:?}", event.seq, event.kind).unwrap();
        }
        text + &std::fs::read_to_string(self.run_dir().supervisor_log()).unwrap_or_default()
    }

    fn wait_for(&self, what: &str, mut is: impl FnMut() -> bool) {
        let deadline = Instant::now() + LIMIT;
        while !is() {
            assert!(Instant::now() < deadline, "seed {}: waited in vain for {what}", self.seed);
            self.pause(5);
        }
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "a kill at a random moment needs a random wait; polls have a deadline"
    )]
    #[expect(clippy::unused_self, reason = "reads as what the round does")]
    fn pause(&self, millis: u64) {
        std::thread::sleep(Duration::from_millis(millis));
    }

    fn output(&self, args: &[&str]) -> Output {
        self.prun(args).stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap()
    }

    fn prun(&self, args: &[&str]) -> Command {
        let mut command = self.command(PRUN, args);
        command.env("PRUN_HOME", self.at("home")).env("PRUN_DURABLE", "off").env(MARK, self.mark());
        command.env("CHAOS_JOURNAL", self.at("journal"));
        command
    }

    fn git(&self, args: &[&str]) {
        let output = self.command("git", args).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }

    fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(args).env_clear().current_dir(self.repo());
        command.env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", self.at("user"));
        command.env("TMPDIR", self.dir.path()).env("GIT_CONFIG_NOSYSTEM", "1").env("XDG_RUNTIME_DIR", self.dir.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    fn mark(&self) -> String {
        self.dir.path().file_name().unwrap().to_str().unwrap().to_owned()
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    fn repo(&self) -> PathBuf {
        self.at("repo")
    }

    fn journal(&self) -> String {
        std::fs::read_to_string(self.at("journal")).unwrap()
    }

    fn home(&self) -> Home {
        Home::at(self.at("home"))
    }

    fn id(&self) -> prun_core::ids::RunId {
        runs::list(&self.home()).first().unwrap().run.clone()
    }

    fn run_dir(&self) -> RunDir {
        self.home().run(&self.id())
    }

    /// Leaves the directory of a failed round where it is.
    fn keep(&mut self) {
        self.dir.disable_cleanup(true);
    }
}

impl Drop for Round {
    fn drop(&mut self) {
        // A failed round must not leave its processes to the next one.
        for stat in self.marked() {
            let _ = signal_process(&stat.identity(), Signal::KILL);
        }
    }
}

/// Collects a viewer that has ended, or kills it: the run does not need it.
fn reap(viewer: &mut Child) {
    let _ = viewer.kill();
    let _ = viewer.wait();
}

fn plan() -> String {
    // The dispatchers' deaths spend retries; the plan has some to spare.
    let verify = format!(r#"["env", "PRUN_UNIT=base-check", "PRUN_ATTEMPT=0", "sh", "-c", '''{BEGIN}{CHECK}''']"#);
    let mut text = format!(
        "version = 1\ntitle = \"chaos\"\nrepo = \"../repo\"\ndirty = \"include\"\njobs = 6\n\
                    verify = {verify}\n[defaults]\nexecutor = \"command\"\nretries = 9\ntimeout = \"2m\"\n"
    );
    for (name, mode, work) in UNITS {
        write!(text, "[[unit]]\nid = \"{name}\"\nmode = \"{mode}\"\nprompt = \"work\"\n").unwrap();
        write!(text, "command = '''{BEGIN}\n{work}\n{END}'''\n").unwrap();
    }
    text
}

/// Every file below `dir`: kind, mode, size, times and content; `.git` and its index included.
fn snapshot(dir: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut left = vec![dir.to_owned()];
    while let Some(path) = left.pop() {
        let meta = std::fs::symlink_metadata(&path).unwrap();
        let content = if meta.is_file() {
            prun_engine::home::sha256_hex(&std::fs::read(&path).unwrap())
        } else {
            left.extend(names(&path).into_iter().map(|name| path.join(name)));
            String::new()
        };
        let mode = meta.permissions().mode();
        found.insert(path, format!("{mode:o} {} {}.{} {content}", meta.ino(), meta.mtime(), meta.mtime_nsec()));
    }
    found
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}
