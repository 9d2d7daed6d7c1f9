//! How a worker lives and is ended.

use std::os::unix::process::ExitStatusExt;

use prun_core::judge::judge;
use prun_core::outcome::{Cause, Channel, Exit, Outcome, StopReason};
use prun_engine::process::{is_alive, signal_process};
use prun_engine::spec::Liveness;
use prun_engine::state_dir::read_identity;
use rustix::process::Signal;

use super::{Bench, GOOD, PRUN, kill, stderr, wait_until};

#[test]
fn what_a_worker_leaves_behind_is_ended_after_a_normal_exit() {
    let bench = Bench::new();
    let one = "setsid sh -c 'echo $$ > one; exec sleep 600' & ";
    let two = "(setsid sh -c 'trap \"\" TERM; echo $$ > two; exec sleep 600' &); ";
    let go = "while [ ! -e go ]; do sleep 0.01; done; ";
    let child = bench.start(&bench.spec(&format!("{one}{two}{go}{GOOD}")));
    let (one, two) = (bench.process("one"), bench.process("two"));
    assert!(is_alive(&one) && is_alive(&two));
    std::fs::write(bench.at("cwd/go"), "").unwrap();
    let (code, facts) = bench.finish(child);
    assert_eq!((code, judge(&facts)), (0, Outcome::Succeeded));
    assert_eq!((facts.sweep.leftovers, facts.sweep.proven), (2, true));
    assert!(!is_alive(&one) && !is_alive(&two));
}

/// C49, C51.
#[test]
fn a_worker_that_ignores_term_or_forks_away_is_ended_after_the_grace() {
    let scripts = [
        "trap '' TERM; while :; do sleep 600; done",
        "trap 'setsid sleep 600 & exit 0' TERM; sleep 600 & wait",
        // A name that looks like the fields of a process listing.
        "cp /bin/sleep './a) R 1 1 (x'; './a) R 1 1 (x' 600 & sleep 600",
        // It forks away all the time.
        r#"printf 'setsid sh "$0" &\n' > hop; sh hop; sleep 600"#,
    ];
    for script in scripts {
        let bench = Bench::new();
        let mut spec = bench.spec(script);
        spec.limits.hard_millis = Some(300);
        let (code, facts) = bench.dispatch(&spec);
        assert_eq!((code, facts.stopped), (124, Some(StopReason::HardTimeout)));
        assert!(facts.sweep.proven && facts.sweep.survivors.is_empty());
        assert_eq!(judge(&facts), Outcome::Failed(Cause::HardTimeout));
    }
}

/// C44.
#[test]
fn a_stopped_worker_is_ended_for_its_silence() {
    let bench = Bench::new();
    let mut spec = bench.spec("kill -STOP $$; sleep 600");
    spec.limits.idle_millis = Some(300);
    let (code, facts) = bench.dispatch(&spec);
    assert_eq!((code, facts.stopped), (124, Some(StopReason::IdleStall)));
    assert_eq!(facts.exit, Exit::Signal { signal: 15 }, "it got TERM and then CONT");
    assert_eq!(facts.silent, ["output"]);
}

#[test]
fn a_time_in_which_nobody_could_move_is_no_silence() {
    let bench = Bench::new();
    let mut spec =
        bench.spec(&format!("echo $$ > pid; i=0; while [ $i -lt 8 ]; do i=$((i+1)); sleep 0.2; echo; done; {GOOD}"));
    spec.limits.idle_millis = Some(1500);
    let child = bench.start(&spec);
    let worker = bench.process("pid");
    kill(&child, Signal::STOP);
    signal_process(&worker, Signal::STOP).unwrap();
    let timer = std::sync::mpsc::channel::<()>();
    assert!(timer.1.recv_timeout(std::time::Duration::from_millis(4500)).is_err());
    // The dispatcher is awake first, and sees a long silence.
    kill(&child, Signal::CONT);
    assert!(timer.1.recv_timeout(std::time::Duration::from_millis(100)).is_err());
    signal_process(&worker, Signal::CONT).unwrap();
    let (code, facts) = bench.finish(child);
    assert_eq!((code, facts.stopped), (0, None));
}

#[test]
fn growth_of_the_tail_puts_the_idle_limit_off() {
    let bench = Bench::new();
    let mut spec = bench.spec(&format!("for i in 1 2 3 4 5 6 7 8; do sleep 0.1; echo $i; done; {GOOD}"));
    spec.limits.idle_millis = Some(400);
    let (code, facts) = bench.dispatch(&spec);
    assert_eq!((code, facts.stopped), (0, None));
}

#[test]
fn silence_from_the_start_is_told_apart() {
    let bench = Bench::new();
    let mut spec = bench.spec("sleep 600");
    spec.limits.first_output_millis = Some(200);
    spec.limits.idle_millis = Some(60_000);
    assert_eq!(bench.dispatch(&spec).1.stopped, Some(StopReason::FirstOutput));
}

/// C38.
#[test]
fn files_that_change_are_a_sign_of_life_in_a_run_and_silence_is_noted() {
    let bench = Bench::new();
    let script = "for i in 1 2 3 4 5 6 7 8 9 10; do echo x > f$i; sleep 0.1; done; sleep 600";
    let mut spec = bench.spec(script);
    spec.limits.liveness = Liveness::All;
    spec.limits.idle_millis = Some(600);
    let (code, facts) = bench.dispatch(&spec);
    assert_eq!((code, facts.stopped), (124, Some(StopReason::IdleStall)));
    assert!(bench.at("cwd/f10").exists());
    assert!(facts.worker_millis >= 1400, "{}", facts.worker_millis);
    assert_eq!(facts.silent, ["output", "cpu", "files"]);
    assert!(bench.read("attempt/notes.jsonl").contains(r#"{"note":"quiet","seconds":0}"#));
}

/// C34, C42.
#[test]
fn a_worker_that_has_left_its_result_and_lives_on_lingered() {
    let bench = Bench::new();
    let mut spec = bench.spec(&format!("{GOOD} sleep 600"));
    spec.limits.liveness = Liveness::All;
    spec.limits.idle_millis = Some(300);
    let (code, facts) = bench.dispatch(&spec);
    assert_eq!((code, facts.stopped), (0, Some(StopReason::Lingered)));
    assert_eq!(judge(&facts), Outcome::Succeeded);
}

/// C43, C58.
#[test]
fn a_flood_is_ended_and_the_last_mebibyte_is_salvaged() {
    let bench = Bench::new();
    let mut spec = bench.spec("yes 0123456789");
    spec.limits.output_bytes = Some(4 * 1024 * 1024);
    let (code, facts) = bench.dispatch(&spec);
    assert_eq!((code, facts.stopped), (124, Some(StopReason::OutputLimit)));
    let result = facts.result.unwrap();
    assert_eq!(result.channel, Channel::Salvage);
    assert!(result.bytes < 1024 * 1024 + 4096, "{}", result.bytes);
    assert!(bench.read("result.md").contains("bytes left out; the full tail is at"));
}

/// C28.
#[test]
fn a_worker_that_cannot_be_started_is_told_by_its_code() {
    let bench = Bench::new();
    std::fs::write(bench.at("plain"), "x").unwrap();
    for (program, code) in
        [("/nonexistent/codex", 127), ("no-such-program", 127), (bench.at("plain").to_str().unwrap(), 126)]
    {
        let mut spec = bench.spec("");
        spec.worker.as_mut().unwrap().argv = vec![program.to_owned()];
        let (exit_code, facts) = bench.dispatch(&spec);
        assert_eq!(exit_code, code, "{program}");
        assert_eq!(judge(&facts), Outcome::Failed(Cause::SpawnError));
        std::fs::remove_dir_all(bench.state().unwrap()).unwrap();
    }
}

#[test]
fn a_signal_to_the_dispatcher_ends_the_unit_properly() {
    for (signal, number) in [(Signal::TERM, 15), (Signal::INT, 2), (Signal::HUP, 1)] {
        let bench = Bench::new();
        let child = bench.start(&bench.spec("setsid sleep 600 & echo $! > bg; echo said; sleep 600"));
        let background = bench.process("bg");
        kill(&child, signal);
        let (code, facts) = bench.finish(child);
        assert_eq!(
            (code, facts.dispatcher_signal, facts.stopped),
            (128 + number, Some(number), Some(StopReason::Signal))
        );
        assert!(!is_alive(&background));
        assert!(bench.read("result.md").contains(&format!("(signal-{number})")), "{}", bench.read("result.md"));
        assert_eq!(judge(&facts), Outcome::Stopped(StopReason::Signal));
    }
}

/// C52.
#[test]
fn a_second_signal_skips_the_grace() {
    let bench = Bench::new();
    let mut spec = bench.spec("trap 'echo term >> terms' TERM; echo $$ > pid; while :; do sleep 0.05; done");
    spec.limits.grace_millis = 600_000;
    let child = bench.start(&spec);
    bench.process("pid");
    kill(&child, Signal::TERM);
    wait_until(|| bench.at("cwd/terms").exists());
    kill(&child, Signal::INT);
    let (code, facts) = bench.finish(child);
    assert_eq!((code, facts.exit), (143, Exit::Signal { signal: 9 }));
}

/// C52.
#[test]
fn inherited_ignored_signals_do_not_count() {
    let bench = Bench::new();
    let path = bench.at("spec.json");
    std::fs::write(&path, serde_json::to_vec(&bench.spec("echo $$ > pid; exec sleep 600")).unwrap()).unwrap();
    let script = format!("trap '' INT TERM CHLD HUP; exec {PRUN} __dispatch {}", path.display());
    let child = bench.program("/bin/sh", &["-c", &script]).spawn().unwrap();
    let worker = bench.process("pid");
    let ignored = std::fs::read_to_string(format!("/proc/{}/status", worker.pid)).unwrap();
    let ignored = ignored.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap().trim().to_owned();
    // Signals 32 and 33 belong to the C library, which lets nobody change them.
    assert_eq!(u64::from_str_radix(&ignored, 16).unwrap() & 0x7fff_ffff, 0, "a worker ignores nothing");
    kill(&child, Signal::INT);
    assert_eq!(bench.finish(child).0, 130);
}

#[test]
fn the_fence_is_held_until_the_end_and_is_not_in_the_worker() {
    let bench = Bench::new();
    let lock = std::fs::File::create(bench.at("attempt/lock")).unwrap();
    lock.try_lock().unwrap();
    let path = bench.at("spec.json");
    std::fs::write(&path, serde_json::to_vec(&bench.spec("echo $$ > pid; exec sleep 600")).unwrap()).unwrap();
    let child = bench.command(&["__dispatch", path.to_str().unwrap()]).stdin(lock).spawn().unwrap();
    let worker = bench.process("pid");
    let again = std::fs::File::open(bench.at("attempt/lock")).unwrap();
    assert!(again.try_lock().is_err(), "the dispatcher lives");
    for entry in std::fs::read_dir(format!("/proc/{}/fd", worker.pid)).unwrap().flatten() {
        assert_ne!(std::fs::read_link(entry.path()).ok(), Some(bench.at("attempt/lock")));
    }
    kill(&child, Signal::KILL);
    wait_until(|| again.try_lock().is_ok());
    assert!(is_alive(&worker), "only the dispatcher was killed");
    assert_eq!(child.wait_with_output().unwrap().status.signal(), Some(9));
    let facts = prun_engine::contain::reap_by_token(&read_identity(&bench.state().unwrap()).unwrap());
    assert_eq!((facts.leftovers, facts.survivors.is_empty()), (1, true));
    assert_eq!(facts.proven, facts.containment.iter().any(|name| name == "cgroup"), "{facts:?}");
    assert!(!is_alive(&worker));
}

#[test]
fn a_session_unit_waits_for_its_submission() {
    let bench = Bench::new();
    let mut spec = bench.spec("");
    spec.worker = None;
    let child = bench.start(&spec);
    wait_until(|| bench.read("attempt/notes.jsonl").contains("handed-over"));
    let text = "# u1 result\nConclusion: c\nFiles: none\nOpen items: none\nVerification: none\n";
    std::fs::write(bench.at("result.md"), text).unwrap();
    std::fs::write(bench.at("attempt/submitted"), "").unwrap();
    kill(&child, Signal::USR1);
    let (code, facts) = bench.finish(child);
    assert_eq!((code, &facts.exit, judge(&facts)), (0, &Exit::Unobserved, Outcome::Succeeded));
}

#[test]
fn a_spec_that_cannot_be_used_is_refused() {
    let bench = Bench::new();
    std::fs::write(bench.at("spec.json"), "{}").unwrap();
    for name in ["spec.json", "nowhere.json"] {
        let output = bench.command(&["__dispatch", bench.at(name).to_str().unwrap()]).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(name), "{output:?}");
    }
}

#[test]
fn nothing_is_left_of_a_dispatcher_that_was_killed_at_any_moment() {
    for millis in (0..24).step_by(3) {
        let bench = Bench::new();
        let lock = std::fs::File::create(bench.at("attempt/lock")).unwrap();
        lock.try_lock().unwrap();
        let path = bench.at("spec.json");
        let spec = bench.spec("setsid sleep 600 & (setsid sleep 600 &) ; exec sleep 600");
        std::fs::write(&path, serde_json::to_vec(&spec).unwrap()).unwrap();
        let mut child = bench.command(&["__dispatch", path.to_str().unwrap()]).stdin(lock).spawn().unwrap();
        let timer = std::sync::mpsc::channel::<()>();
        assert!(timer.1.recv_timeout(std::time::Duration::from_millis(millis)).is_err());
        kill(&child, Signal::KILL);
        child.wait().unwrap();
        // A worker between fork and exec has no token yet, but it holds the fence.
        let fence = std::fs::File::open(bench.at("attempt/lock")).unwrap();
        wait_until(|| fence.try_lock().is_ok());
        if let Some(identity) = bench.state().and_then(|state| read_identity(&state).ok()) {
            assert!(prun_engine::contain::reap_by_token(&identity).survivors.is_empty());
        }
        assert_eq!(processes_in(&bench.at("cwd")), Vec::<String>::new(), "after {millis} ms");
    }
}

/// The processes that work in this directory.
fn processes_in(dir: &std::path::Path) -> Vec<String> {
    let works_there =
        |entry: &std::fs::DirEntry| std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == dir);
    let processes = std::fs::read_dir("/proc").unwrap().flatten().filter(works_there);
    processes.map(|entry| std::fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default()).collect()
}
