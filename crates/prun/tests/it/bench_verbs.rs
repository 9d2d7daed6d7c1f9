//! What the old verbs cost: tables on stdout, nothing asserted. Run one at a time, on a quiet machine:
//! `cargo test --release -p prun-cli --test it bench_verbs -- --ignored --nocapture --test-threads=1`.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use prun_engine::process::own_identity;
use prun_engine::state_dir::{IDENTITY_VERSION, Identity, StateDir};
use rustix::process::{Pid, Signal, kill_process};

const PRUN: &str = env!("CARGO_BIN_EXE_prun");

struct Bench(tempfile::TempDir);

impl Bench {
    fn new() -> Self {
        let bench = Self(tempfile::tempdir().unwrap());
        for name in ["tmp", "home"] {
            std::fs::create_dir(bench.at(name)).unwrap();
        }
        std::fs::write(bench.at("p.md"), "p\n").unwrap();
        bench
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, verb: &str) -> Command {
        let mut command = Command::new(PRUN);
        command.arg(verb).current_dir(self.0.path()).env("TMPDIR", self.at("tmp")).env("HOME", self.at("home"));
        command.env_remove("PRUN_HOME").env_remove("XDG_STATE_HOME").env_remove("PRUN_DEPTH");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        command
    }

    /// A dispatch of this shell script, and the state dir that it announced.
    fn dispatch(&self, unit: &str, script: &str) -> (Child, PathBuf) {
        self.dispatch_on("", unit, script)
    }

    /// The same on these rungs of containment.
    fn dispatch_on(&self, rungs: &str, unit: &str, script: &str) -> (Child, PathBuf) {
        let result = format!("{unit}.md");
        let mut command = self.command("dispatch-task");
        command.args([
            "--prompt-file",
            "p.md",
            "--result-file",
            &result,
            "--unit-id",
            unit,
            "--",
            "/bin/sh",
            "-c",
            script,
        ]);
        let mut child = command.env("PRUN_CONTAIN", rungs).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        (child, PathBuf::from(line.trim_end().strip_prefix("STATE-DIR ").unwrap()))
    }

    /// A state dir of a dispatcher that lives, as if it were watched: this process.
    fn idle_state_dir(&self, name: &str) -> PathBuf {
        let dir = self.at("tmp").join(name);
        std::fs::create_dir(&dir).unwrap();
        for (entry, text) in [("tail", "x\n"), ("pre-mtime", "0\n"), ("timestamp", "1\n"), ("dispatch-pid", "1\n")] {
            std::fs::write(dir.join(entry), text).unwrap();
        }
        std::fs::write(dir.join("result-file"), format!("{}\n", self.at("none").join(name).display())).unwrap();
        dir
    }
}

fn pass(time: Duration) {
    let (_sender, receiver) = channel::<()>();
    let _ = receiver.recv_timeout(time);
}

/// The first line that begins so, and when it came.
fn line_at(stdout: ChildStdout, begins: &str) -> Instant {
    let found = BufReader::new(stdout).lines().map(Result::unwrap).find(|line| line.starts_with(begins));
    assert!(found.is_some());
    Instant::now()
}

/// Seconds that a process ran on a CPU: nanoseconds, unlike the ticks of its `stat`.
fn cpu_seconds(pid: u32) -> f64 {
    let mut nanos = 0_u64;
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten() {
        let text = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        nanos += text.split(' ').next().and_then(|nanos| nanos.parse::<u64>().ok()).unwrap_or(0);
    }
    Duration::from_nanos(nanos).as_secs_f64()
}

fn end(mut child: Child) {
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    child.wait().unwrap();
}

fn quantiles(mut times: Vec<Duration>) -> String {
    times.sort();
    let at = |part: usize| times[(times.len() - 1) * part / 100].as_secs_f64() * 1000.0;
    format!("n={} median {:.2} ms, p99 {:.2} ms, max {:.2} ms", times.len(), at(50), at(99), at(100))
}

#[test]
#[ignore = "a benchmark"]
fn latency_from_the_workers_exit_to_the_event() {
    const TRIALS: usize = 200;
    for verb in ["gather", "monitor"] {
        let bench = Bench::new();
        let times = (0..TRIALS).map(|trial| {
            let unit = format!("u{trial}");
            let fifo = bench.at(&format!("{unit}.fifo"));
            rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
            let script = format!("read go <{}; echo x >\"$PRUN_RESULT\"", fifo.display());
            let (mut dispatch, state) = bench.dispatch(&unit, &script);
            let mut go = std::fs::File::options().write(true).open(&fifo).unwrap();
            let mut command = bench.command(verb);
            let target = if verb == "gather" { bench.at(&format!("{unit}.md")) } else { state };
            command.arg(target).env("PRUN_GATHER_POLL", "60").env("PRUN_MONITOR_POLL", "60");
            let mut watcher = command.spawn().unwrap();
            let stdout = watcher.stdout.take().unwrap();
            // It is asleep by then.
            pass(Duration::from_millis(30));
            let began = Instant::now();
            go.write_all(b"go\n").unwrap();
            let took = line_at(stdout, if verb == "gather" { "DONE" } else { "MONITOR-EVENT" }) - began;
            watcher.wait().unwrap();
            dispatch.wait().unwrap();
            took
        });
        let took = quantiles(times.collect());
        println!("{verb}: a worker is let go -> event (its own shell, settling and facts included): {took}");
    }
}

/// The worker ignores TERM, so that it has all of its grace; each of its children has a session of its own.
#[test]
#[ignore = "a benchmark"]
fn a_whole_tree_is_ended_after_the_grace() {
    const TRIALS: usize = 20;
    const GRACE: Duration = Duration::from_secs(2);
    for rungs in ["", "subreaper,token"] {
        let bench = Bench::new();
        let times = (0..TRIALS).map(|trial| {
            let script =
                "trap '' TERM; for i in $(seq 20); do setsid sleep 600 & done; echo ready; while :; do wait; done";
            let (mut dispatch, state) = bench.dispatch_on(rungs, &format!("u{trial}"), script);
            while !std::fs::read_to_string(state.join("tail")).unwrap_or_default().contains("ready") {
                pass(Duration::from_millis(5));
            }
            let began = Instant::now();
            kill_process(Pid::from_child(&dispatch), Signal::TERM).unwrap();
            dispatch.wait().unwrap();
            began.elapsed().saturating_sub(GRACE)
        });
        let took = quantiles(times.collect());
        println!("21 processes that ignore TERM, rungs {rungs:?}: from the end of the grace until settled: {took}");
    }
}

#[test]
#[ignore = "a benchmark"]
fn report_state_over_ten_thousand_dirs() {
    let bench = Bench::new();
    for number in 0..10_000 {
        bench.idle_state_dir(&format!("prun-task-00000000-u{number}-1-0123456789abcdef"));
    }
    for round in 1..=3 {
        let began = Instant::now();
        let output = bench.command("report-state").args(["--json", "--summary"]).output().unwrap();
        println!(
            "report-state over 10,000 dirs, round {round}: {:?}, exit {:?}",
            began.elapsed(),
            output.status.code()
        );
    }
}

#[test]
#[ignore = "a benchmark"]
fn monitor_over_idle_state_dirs() {
    for count in [100, 1000] {
        let bench = Bench::new();
        let identity = Identity {
            version: IDENTITY_VERSION,
            dispatcher: own_identity(),
            worker: None,
            containment: Vec::new(),
            cgroup: None,
            read_only: Vec::new(),
            token: "t".into(),
        };
        let dirs: Vec<PathBuf> = (0..count)
            .map(|number| {
                let dir = bench.idle_state_dir(&format!("prun-task-00000000-u{number}-1-0123456789abcdef"));
                StateDir::at(&dir).write_identity(&identity).unwrap();
                dir
            })
            .collect();
        let began = Instant::now();
        let mut child = bench.command("monitor").args(&dirs).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        lines.read_line(&mut String::new()).unwrap();
        pass(Duration::from_secs(3));
        let (first, at) = (cpu_seconds(child.id()), Instant::now());
        pass(Duration::from_secs(30));
        let share = (cpu_seconds(child.id()) - first) / at.elapsed().as_secs_f64();
        println!(
            "monitor over {count} idle state dirs: first look {:.1} ms of CPU (of {:?}), then {:.4} % of a core",
            first * 1000.0,
            at - began,
            share * 100.0
        );
        end(child);
    }
}

#[test]
#[ignore = "a benchmark"]
fn dispatchers_of_idle_workers() {
    for count in [100, 1000] {
        let bench = Bench::new();
        let began = Instant::now();
        let dispatches: Vec<Child> =
            (0..count).map(|number| bench.dispatch(&format!("u{number}"), "exec sleep 600").0).collect();
        let started = began.elapsed();
        pass(Duration::from_secs(5));
        let cpu = || dispatches.iter().map(|child| cpu_seconds(child.id())).sum::<f64>();
        let (before, at) = (cpu(), Instant::now());
        pass(Duration::from_secs(30));
        let share = (cpu() - before) / at.elapsed().as_secs_f64();
        let pss: u64 = dispatches.iter().map(|child| pss_kib(child.id())).sum();
        println!(
            "{count} idle dispatch-task units: {:.4} % of a core, {} KiB PSS each, started in {started:?}",
            share * 100.0,
            pss / count
        );
        for child in &dispatches {
            kill_process(Pid::from_child(child), Signal::TERM).unwrap();
        }
        for mut child in dispatches {
            child.wait().unwrap();
        }
    }
}

fn pss_kib(pid: u32) -> u64 {
    let text = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("smaps_rollup")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse().unwrap()
}
