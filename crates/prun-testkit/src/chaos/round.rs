//! One chaotic run in a world of its own.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{Random, Victim, again, plan};
use crate::env::{Printed, Process, TestEnv, Tree, read_if_there};

/// How long anything that must come may take: a few cores may be shared by many rounds.
const LIMIT: Duration = Duration::from_secs(120);

pub(super) struct Round {
    pub(super) env: TestEnv,
    pub(super) random: Random,
    pub(super) before: Tree,
    prun: PathBuf,
    seed: u64,
}

impl Round {
    pub(super) fn new(prun: &Path, seed: u64) -> Self {
        let mut env = TestEnv::new(prun.to_str().expect("its path is text"));
        let config = "[executor.command]\nslots = 6\n";
        std::fs::write(env.at("user/config/prun/config.toml"), config).expect("write the configuration");
        env.set("CHAOS_JOURNAL", env.at("journal"));
        std::fs::write(env.at("journal"), "").expect("write the journal");
        std::fs::create_dir(env.at("plans")).expect("make a directory");
        std::fs::write(env.at("plans/plan.toml"), plan::text()).expect("write the plan");
        // Work of the user's that is under way: staged, unstaged, untracked.
        env.write("src/staged.txt", "staged\n");
        env.git("add src/staged.txt");
        env.write("README.md", "unstaged\n");
        env.write("new.txt", "untracked\n");
        let before = env.tree("repo");
        Self { env, random: Random(seed), before, prun: prun.to_owned(), seed }
    }

    pub(super) fn play(mut self, victims: &[Victim], lands: bool) {
        let mut viewer = self.start();
        self.pause(600);
        for _ in 0..self.random.below(4) + 2 {
            if self.is_over() {
                break;
            }
            let victim = victims[usize::try_from(self.random.below(victims.len() as u64)).expect("it is small")];
            self.kill(victim, &mut viewer);
            self.check_status();
            if self.state() == "supervisor-lost" {
                reap(&mut viewer);
                viewer = self.spawn(&["resume", &self.id()]);
            }
            self.pause(700);
        }
        reap(&mut viewer);
        self.resume_to_the_end();
        if victims.contains(&Victim::Git) {
            self.retry_what_git_broke();
        }
        self.check();
        if lands {
            self.land_and_undo();
        }
    }

    /// Starts the run with a viewer, and waits until it is driven.
    fn start(&self) -> Child {
        let plan = self.env.at("plans/plan.toml");
        let child = self.spawn(&["run", plan.to_str().expect("its path is text")]);
        self.wait_for("the run", || !self.env.run_ids().is_empty());
        // A supervisor that dies before its first step takes its run with it: nothing had begun.
        let has_begun = |units: &[Value]| units.iter().any(|unit| unit["state"] != "queued");
        self.wait_for("its first step", || !self.env.run_ids().is_empty() && has_begun(&self.units()));
        child
    }

    pub(super) fn spawn(&self, args: &[&str]) -> Child {
        let mut command = self.env.command(args);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("start prun")
    }

    fn kill(&self, victim: Victim, viewer: &mut Child) {
        match victim {
            Victim::Viewer => reap(viewer),
            Victim::Supervisor => self.kill_all("__supervise", usize::MAX),
            Victim::ViewerAndSupervisor => {
                self.kill_all("__supervise", usize::MAX);
                reap(viewer);
            }
            Victim::Dispatcher => self.kill_all("__dispatch", 1),
            Victim::EveryDispatcher => self.kill_all("__dispatch", usize::MAX),
            Victim::SupervisorAndDispatcher => {
                self.kill_all("__dispatch", 1);
                self.kill_all("__supervise", usize::MAX);
                self.kill_all("__dispatch", 1);
            }
            Victim::Git => self.kill_git(),
        }
    }

    /// Kills and waits for the end: what is still dying would be taken for alive.
    fn kill_all(&self, verb: &str, most: usize) {
        for process in self.env.doing(verb).iter().take(most) {
            process.end();
            self.wait_for("a killed process to go", || !process.lives());
        }
    }

    /// The git that prun itself runs; a worker's own is the worker's business.
    pub(super) fn kill_git(&self) {
        let is_git = |process: &&Process| process.command.split(' ').next().is_some_and(|name| name.ends_with("git"));
        let processes = self.env.processes();
        processes.iter().filter(is_git).filter(|process| !process.has_variable("PRUN_UNIT")).for_each(Process::end);
    }

    /// `status` says that the supervisor is lost exactly where nobody drives a run that is not over.
    fn check_status(&self) {
        let before = self.state();
        let said = self.env.prun(&format!("status {}", self.id()));
        assert_eq!(said.code, 0, "{}: {said}", self.name());
        if before == self.state() {
            let says_lost = said.stdout.contains("LOST the supervisor is gone");
            assert_eq!(says_lost, before == "supervisor-lost", "{}: {said}", self.name());
        }
        for unit in plan::units() {
            assert!(said.stdout.contains(unit), "{}: {unit} is missing: {said}", self.name());
        }
    }

    /// Resumes whatever is not driven until the run is over and its supervisor has left.
    pub(super) fn resume_to_the_end(&self) {
        let deadline = Instant::now() + LIMIT;
        while !self.is_over() || !self.env.doing("__supervise").is_empty() {
            assert!(Instant::now() < deadline, "{}: the run does not end: {}", self.name(), self.story());
            if self.state() == "supervisor-lost" {
                let said = self.env.prun(&format!("resume -d {}", self.id()));
                assert!(said.code == 0 || self.state() != "supervisor-lost", "{}: {said}", self.name());
            }
            wait(20);
        }
    }

    /// A workspace that git could not make, or changes that it could not harvest, are no fault of the run's: they are
    /// told, and another attempt works.
    fn retry_what_git_broke(&self) {
        for _ in 0..3 {
            let broken: Vec<String> = self
                .units()
                .into_iter()
                .filter(|unit| unit["outcome"] != "succeeded")
                .map(|unit| {
                    let outcome = unit["outcome"].as_str().unwrap_or_default();
                    let is_git = ["failed(setup)", "incomplete(harvest)"].contains(&outcome);
                    assert!(is_git, "{}: {unit}: {}", self.name(), self.story());
                    unit["unit"].as_str().unwrap_or_default().to_owned()
                })
                .collect();
            if broken.is_empty() {
                return;
            }
            for unit in broken {
                let said = self.env.prun(&format!("retry {}/{unit}", self.id()));
                assert_eq!(said.code, 0, "{}: {said}", self.name());
            }
            self.resume_to_the_end();
        }
    }

    /// What has to hold after any run.
    fn check(&self) {
        let name = self.name();
        assert_eq!(self.state(), "ended", "{name}: {}", self.story());
        for unit in self.units() {
            let id = unit["unit"].as_str().unwrap_or_default();
            assert_eq!(unit["outcome"], "succeeded", "{name}: {}", self.story());
            assert_eq!(unit["salvaged"], false, "{name}: {unit}");
            let result = self.env.prun(&format!("result {}/{id}", self.id()));
            assert!(result.stdout.contains("Conclusion: done"), "{name}: {result}");
            assert!(self.journal().lines().any(|line| line.starts_with(&format!("stop {id} "))), "{name}: {id}");
        }
        let journal = self.journal();
        assert!(!journal.contains("overlap"), "{name}: a unit ran twice at a time:\n{journal}\n{}", self.story());
        self.wait_for("the last process to go", || self.env.processes().is_empty());
        let status = self.status();
        assert_eq!(status["repository_touched"], Value::Array(Vec::new()), "{name}");
        self.check_repository();
        let run = self.env.home().join("runs").join(&self.env.run_ids()[0]);
        for attempt in entries(&run.join("units")).iter().flat_map(|unit| entries(unit)) {
            let rest = entries(&attempt).into_iter().find(|path| path.to_string_lossy().contains("/.prun-"));
            assert_eq!(rest, None, "{name}: half written");
        }
    }

    pub(super) fn check_repository(&self) {
        let changes = self.before.changes(&self.env.tree("repo"));
        assert!(changes.is_empty(), "{}: the user's repository changed: {changes:?}", self.name());
    }

    /// The seed, and how to play it again.
    pub(super) fn name(&self) -> String {
        format!("seed {} ({})", self.seed, again(&self.prun, self.seed))
    }

    pub(super) fn id(&self) -> String {
        self.env.run_ids()[0].clone()
    }

    /// That it can be told at all shows that the ledger replays.
    pub(super) fn status(&self) -> Value {
        let said: Printed = self.env.prun(&format!("status {} --json", self.id()));
        serde_json::from_str(&said.stdout).unwrap_or_else(|error| panic!("{}: {error}: {said}", self.name()))
    }

    fn state(&self) -> String {
        self.status()["state"].as_str().unwrap_or_default().to_owned()
    }

    fn is_over(&self) -> bool {
        ["ended", "cancelled"].contains(&self.state().as_str())
    }

    fn units(&self) -> Vec<Value> {
        self.status()["units"].as_array().cloned().unwrap_or_default()
    }

    fn journal(&self) -> String {
        read_if_there(&self.env.at("journal"))
    }

    /// What happened to every unit, for a failure.
    pub(super) fn story(&self) -> String {
        let told = plan::units().map(|unit| self.env.prun(&format!("explain {}/{unit}", self.id())).stdout);
        let log = read_if_there(&self.env.home().join("runs").join(self.id()).join("supervisor.log"));
        told.collect::<Vec<_>>().join("\n") + &log
    }

    pub(super) fn wait_for(&self, what: &str, mut is: impl FnMut() -> bool) {
        let deadline = Instant::now() + LIMIT;
        while !is() {
            let left = self.env.processes();
            assert!(Instant::now() < deadline, "{}: waited in vain for {what}; {left:?}", self.name());
            wait(5);
        }
    }

    pub(super) fn pause(&mut self, most: u64) {
        wait(self.random.below(most));
    }
}

/// Kills a child, where it has not ended by itself, and collects it.
pub(super) fn reap(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

#[expect(clippy::disallowed_methods, reason = "a kill at a random moment needs a random wait; polls have a deadline")]
fn wait(millis: u64) {
    std::thread::sleep(Duration::from_millis(millis));
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}
