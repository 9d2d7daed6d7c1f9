//! Nothing of a worker gets away: every kind of escape against every rung of containment.
//!
//! `PRUN_ESCAPE_TRIALS` sets how often each kind is tried on each rung (3), `PRUN_ESCAPE_KINDS` which kinds, with
//! commas between them (all), `PRUN_KILL_TRIALS` at how many moments a dispatcher is killed (34).

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use prun_core::outcome::SweepFacts;
use prun_engine::contain::reap_by_token;
use prun_engine::process::{identity, is_alive, own_identity};
use prun_engine::state_dir::{find_in, random_hex, read_facts, read_identity};
use rustix::process::Signal;

use super::{Bench, PRUN, kill, wait_until};

/// The kinds of `escapee`.
const KINDS: &[&str] = &[
    "child",
    "setsid",
    "double-fork",
    "nohup",
    "env-i",
    "respawn",
    "hopper",
    "stopped",
    "intermediates",
    "traced",
    "thread",
    "subreaper",
    "closed",
    "storm",
    "quiet",
    "namespace",
    "leave-group",
];

/// Documented limits: an environment that was dropped cannot be searched for a token, and root may move a
/// process out of a control group.
const LIMITS: &[(&str, &str)] = &[("token", "env-i"), ("cgroup", "leave-group")];

#[test]
fn nothing_gets_away_from_a_control_group() {
    try_all("cgroup");
}

#[test]
fn nothing_gets_away_from_a_subreaper() {
    try_all("subreaper");
}

#[test]
fn nothing_that_keeps_its_environment_gets_away_from_a_token() {
    try_all("token");
}

#[test]
fn nothing_gets_away_from_a_control_group_and_a_subreaper() {
    try_all("cgroup,subreaper");
}

#[test]
fn nothing_gets_away_from_all_rungs_together() {
    try_all("");
}

#[test]
fn what_a_killed_dispatcher_left_is_ended_and_no_look_alike() {
    let bench = Bench::new();
    for trial in 0..count("PRUN_KILL_TRIALS", 34) {
        let kinds = kinds();
        let rungs = ["", "subreaper,token", "token", "cgroup"][trial % 4];
        let kind = kinds[trial / 4 % kinds.len()];
        if is_limit(rungs, kind) || rungs == "subreaper,token" && kind == "env-i" {
            continue;
        }
        let mark = mark(&bench);
        let mut innocent = Command::new(escapee());
        let mut innocent = innocent.args(["child", &mark, "stay"]).stdout(Stdio::null()).spawn().unwrap();
        // Its child is there, and carries the mark as well.
        wait_until(|| marked(&mark).len() >= 2);
        let innocents = marked(&mark);
        let mut child = task(&bench, kind, &mark, rungs, true).spawn().unwrap();
        let after = random_pause(64);
        kill(&child, Signal::KILL);
        child.wait().unwrap();
        let said = reap_all(&bench);
        let left =
            |mark: &str| -> Vec<u32> { marked(mark).into_iter().filter(|pid| !innocents.contains(pid)).collect() };
        assert_eq!(left(&mark), [0; 0], "{kind} from {rungs:?} after {after:?}: {said}");
        assert!(innocents.iter().all(|pid| marked(&mark).contains(pid)), "a look-alike was ended: {kind} {rungs:?}");
        end(&innocents);
        innocent.wait().unwrap();
        // What was killed a moment ago lets go only now.
        let until = Instant::now() + Duration::from_secs(10);
        while !is_let_go(&mark) {
            assert!(Instant::now() < until, "{kind} got away from {rungs:?} after {after:?}, unseen: {said}");
            std::thread::yield_now();
        }
        std::fs::remove_dir_all(bench.at("tmp")).unwrap();
        std::fs::create_dir(bench.at("tmp")).unwrap();
    }
}

#[test]
fn a_number_that_was_given_to_another_process_is_left_alone() {
    let bench = Bench::new();
    let mark = mark(&bench);
    let child = task(&bench, "child", &mark, "subreaper", true).spawn().unwrap();
    wait_until(|| bench_tail(&bench).contains("ready"));
    let state = find_in(&bench.at("tmp")).unwrap();
    wait_until(|| read_identity(&state).is_ok_and(|identity| identity.worker.is_some()));
    kill(&child, Signal::KILL);
    child.wait_with_output().unwrap();
    let mut recorded = read_identity(&state).unwrap();
    let worker = recorded.worker.clone().unwrap();
    recorded.worker.as_mut().unwrap().start_ticks += 1;
    let facts = reap_by_token(&recorded);
    assert_eq!((facts.leftovers, is_alive(&worker)), (0, true));
    recorded.worker.as_mut().unwrap().boot_id = "another boot".to_owned();
    recorded.worker.as_mut().unwrap().start_ticks -= 1;
    assert_eq!((reap_by_token(&recorded).leftovers, is_alive(&worker)), (0, true));
    let facts = reap_by_token(&read_identity(&state).unwrap());
    assert_eq!((facts.leftovers, facts.proven, marked(&mark)), (2, false, vec![]));
}

/// Each kind on these rungs, by turns with a worker that leaves by itself and one that is ended.
#[track_caller]
fn try_all(rungs: &str) {
    let bench = Bench::new();
    for kind in kinds().iter().filter(|kind| !is_limit(rungs, kind)) {
        for trial in 0..count("PRUN_ESCAPE_TRIALS", 3) {
            let mark = mark(&bench);
            let Some(facts) = dispatch(&bench, kind, &mark, rungs, trial % 2 == 1) else { return };
            assert_eq!(marked(&mark), [0; 0], "{kind} got away from {rungs:?}: {facts:?}");
            assert!(is_let_go(&mark), "{kind} got away from {rungs:?}, unseen: {facts:?}");
            assert!(facts.survivors.is_empty(), "{kind}, {rungs:?}: {facts:?}");
            assert_eq!(facts.proven, rungs != "token", "{kind}, {rungs:?}: {facts:?}");
            std::fs::remove_dir_all(bench.at("tmp")).unwrap();
            std::fs::create_dir(bench.at("tmp")).unwrap();
        }
    }
}

/// `None` where this system has no control groups for us, and they are all that was asked for.
fn dispatch(bench: &Bench, kind: &str, mark: &str, rungs: &str, stays: bool) -> Option<SweepFacts> {
    let mut child = task(bench, kind, mark, rungs, stays).spawn().unwrap();
    let state = state_dir(&mut child);
    let names = read_identity(&state).unwrap().containment;
    if stays {
        wait_until(|| std::fs::read_to_string(state.join("tail")).unwrap_or_default().contains("ready"));
        kill(&child, Signal::TERM);
    }
    let output = child.wait_with_output().unwrap();
    let code = if stays { 143 } else { 0 };
    assert_eq!(output.status.code(), Some(code), "{kind}, {rungs:?}: {output:?}");
    let facts = read_facts(&state).unwrap();
    for name in rungs.split(',').filter(|name| !name.is_empty() && *name != "cgroup") {
        assert!(names.iter().any(|known| known == name), "{names:?}");
    }
    if let Some(group) = read_identity(&state).unwrap().cgroup {
        assert!(!group.exists(), "the group was left: {}", group.display());
    }
    (rungs != "cgroup" || names == ["cgroup"]).then_some(facts.sweep)
}

fn task(bench: &Bench, kind: &str, mark: &str, rungs: &str, stays: bool) -> Command {
    let place = ["dispatch-task", "--prompt-file", "prompt.md", "--result-file", "result.md", "--unit-id", "u1", "--"];
    let mut command = bench.command(&place);
    command.arg(escapee()).args([kind, mark]).args(stays.then_some("stay"));
    command.env("PRUN_CONTAIN", rungs);
    command
}

/// From the one line that `dispatch-task` says.
fn state_dir(child: &mut Child) -> PathBuf {
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    PathBuf::from(line.strip_prefix("STATE-DIR ").unwrap().trim_end())
}

/// What `prun reap-orphans` says of the only dispatch there is.
fn reap_all(bench: &Bench) -> String {
    let output = bench.command(&["reap-orphans"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn bench_tail(bench: &Bench) -> String {
    let state = find_in(&bench.at("tmp"));
    state.and_then(|state| std::fs::read_to_string(state.join("tail")).ok()).unwrap_or_default()
}

fn is_limit(rungs: &str, kind: &str) -> bool {
    LIMITS.contains(&(rungs, kind))
}

/// The kinds that are asked for.
fn kinds() -> Vec<&'static str> {
    let asked = std::env::var("PRUN_ESCAPE_KINDS").unwrap_or_default();
    let is_asked = |kind: &&str| asked.is_empty() || asked.split(',').any(|asked| asked == *kind);
    KINDS.iter().copied().filter(is_asked).collect()
}

/// Lets up to so many milliseconds pass, less than 256; how many they were.
pub(super) fn random_pause(millis: u64) -> Duration {
    let random = u64::from(u8::from_str_radix(&random_hex::<1>().unwrap(), 16).unwrap());
    let pause = Duration::from_micros(random * 1000 * millis / 256);
    let (_sender, receiver) = std::sync::mpsc::channel::<()>();
    assert!(receiver.recv_timeout(pause).is_err());
    pause
}

pub(super) fn count(variable: &str, short: usize) -> usize {
    std::env::var(variable).ok().and_then(|count| count.parse().ok()).unwrap_or(short)
}

fn mark(bench: &Bench) -> String {
    bench.at(&format!("mark-{}", random_hex::<8>().unwrap())).into_os_string().into_string().unwrap()
}

/// Whether nobody holds the mark's lock: what is too brief to be listed still holds it.
fn is_let_go(mark: &str) -> bool {
    std::fs::File::open(mark).map_or(true, |file| file.try_lock().is_ok())
}

/// The living processes with this word in their command line. Of a process whose main thread has ended
/// only its other threads have one.
fn marked(mark: &str) -> Vec<u32> {
    let numbers = |dir: &Path| -> Vec<u32> {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    };
    let is_marked = |pid: &u32| {
        let tasks = PathBuf::from(format!("/proc/{pid}/task"));
        numbers(&tasks).iter().any(|task| {
            let line = std::fs::read(tasks.join(task.to_string()).join("cmdline")).unwrap_or_default();
            line.split(|byte| *byte == 0).any(|word| word == mark.as_bytes())
        })
    };
    let own = own_identity().pid;
    numbers(Path::new("/proc")).into_iter().filter(|pid| *pid != own).filter(is_marked).collect()
}

fn end(pids: &[u32]) {
    for process in pids.iter().filter_map(|pid| identity(*pid)) {
        prun_engine::process::signal_process(&process, Signal::KILL).unwrap();
    }
}

/// The testkit's program. It is there after a build of the whole workspace; a build of this package alone
/// makes it here.
fn escapee() -> PathBuf {
    let path = Path::new(PRUN).with_file_name("escapee");
    if !path.exists() {
        let built =
            Command::new(env!("CARGO")).args(["build", "-q", "-p", "prun-testkit", "--bin", "escapee"]).status();
        assert!(built.unwrap().success());
    }
    path
}
