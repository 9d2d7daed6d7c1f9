//! No result is lost: whatever fails between the worker's last word and the coordinator's look, there is a result,
//! what could be saved of it, or a loud end that names where the bytes are.
//!
//! `PRUN_KILL_TRIALS` sets at how many moments a dispatcher is killed (24).

use std::process::{Output, Stdio};
use std::time::Duration;

use prun_core::outcome::{Channel, StopReason};
use prun_engine::state_dir::{read_facts, read_identity};
use rustix::fs::{CWD, FileType, mknodat};
use rustix::process::Signal;

use super::escape::{count, random_pause};
use super::{Bench, PRUN, kill, stderr, wait_until};

const LINE: &str = "--prompt-file prompt.md --unit-id u1";

/// What `dispatch-task` of `worker`, which is to write `result`, comes to in a mount namespace in which `mount` was
/// run. `None` where this user may not mount.
fn in_mount(bench: &Bench, mount: &str, result: &str, worker: &str) -> Option<Output> {
    std::fs::create_dir_all(bench.at("out")).unwrap();
    std::fs::write(bench.at("worker"), worker).unwrap();
    let script = format!("{mount} || exit 77; {PRUN} dispatch-task {LINE} --result-file {result} -- sh worker");
    let args = ["--mount", "--map-root-user", "sh", "-c", &script];
    let output = bench.program("unshare", &args).env("PRUN_SCRATCH_CWD", bench.dir.path()).output().unwrap();
    if matches!(output.status.code(), Some(77 | 1)) {
        assert!(std::env::var_os("PRUN_TEST_REQUIRE_ALL").is_none_or(|value| value != "1"), "cannot mount: {output:?}");
        return None;
    }
    Some(output)
}

/// What `dispatch-task` of this shell script comes to.
fn dispatch(bench: &Bench, result: &str, script: &str) -> Output {
    let mut command = bench.command(&["dispatch-task"]);
    command.args(LINE.split(' ')).args(["--result-file", result, "--", "/bin/sh", "-c", script]);
    command.env("PRUN_SCRATCH_CWD", bench.dir.path()).output().unwrap()
}

fn state_file(bench: &Bench, name: &str) -> String {
    std::fs::read_to_string(bench.task_state().join(name)).unwrap()
}

#[track_caller]
fn says(output: &Output, code: i32, words: &[&str]) {
    let said = stderr(output);
    assert_eq!(output.status.code(), Some(code), "{said}");
    for word in words {
        assert!(said.contains(word), "{word:?} is not in {said:?}");
    }
}

#[test]
fn a_result_goes_into_the_state_dir_where_its_own_place_is_full_or_read_only() {
    for (mount, word) in [
        ("mount -t tmpfs -o size=32k none out; ! head -c 1000000 /dev/zero >out/fill 2>/dev/null", "No space left"),
        ("mount -t tmpfs -o ro none out", "Read-only"),
    ] {
        let bench = Bench::new();
        let Some(output) = in_mount(&bench, mount, "out/r.md", "echo said") else { return };
        let place = bench.task_state().join("result.md");
        says(&output, 7, &[word, "out/r.md", &format!("the result is at {}", place.display())]);
        assert!(state_file(&bench, "result.md").ends_with("\n\nsaid\n"));
        assert!(read_facts(&bench.task_state()).unwrap().result.unwrap().misplaced);
    }
}

#[test]
fn a_worker_that_fills_the_disk_with_the_state_dir_on_it_loses_nothing_that_it_said() {
    let mount = "mount -t tmpfs -o size=256k none out; export TMPDIR=$PWD/out";
    let fill = "echo said; head -c 10000000 /dev/zero >out/fill 2>/dev/null";
    let bench = Bench::new();
    let Some(output) = in_mount(&bench, mount, "out/r.md", &format!("{fill}; exit 0")) else { return };
    says(&output, 7, &["No space left", "there is no result, only what the worker said, in", "/tail"]);
    assert!(stderr(&output).ends_with("\nsaid\n"), "{output:?}");
    let bench = Bench::new();
    let result = "# u1 result\nConclusion: whole\n";
    let worker = format!("printf '{result}' >out/r.md; {fill}; cp out/r.md kept; exit 0");
    let output = in_mount(&bench, mount, "out/r.md", &worker).unwrap();
    // The facts cannot be written, which is said; the result is the worker's, and whole.
    says(&output, 0, &["facts.json", "No space left"]);
    assert_eq!(bench.read("kept"), result);
}

/// C72.
#[test]
fn a_directory_that_vanishes_takes_no_result_with_it() {
    // That of the result.
    let bench = Bench::new();
    std::fs::create_dir(bench.at("out")).unwrap();
    says(&dispatch(&bench, "out/r.md", "echo said; rmdir out"), 7, &["out", "the result is at"]);
    assert!(state_file(&bench, "result.md").ends_with("\n\nsaid\n"));
    // The state dir: the worker's output is still open.
    let bench = Bench::new();
    says(&dispatch(&bench, "r.md", "echo said; rm -rf tmp/*"), 0, &["facts.json", "said"]);
    assert!(bench.read("r.md").ends_with("\n\nsaid\n"));
    // The working directory.
    let bench = Bench::new();
    std::fs::create_dir(bench.at("work")).unwrap();
    let mut command = bench.task("echo said; rmdir \"$PWD\"");
    let output = command.env("PRUN_SCRATCH_CWD", bench.at("work")).output().unwrap();
    says(&output, 0, &["said"]);
    assert!(bench.read("result.md").ends_with("\n\nsaid\n"));
    // Both: what is left is said on stderr.
    let bench = Bench::new();
    std::fs::create_dir(bench.at("out")).unwrap();
    let output = dispatch(&bench, "out/r.md", "echo said; rm -rf tmp/* out");
    says(&output, 7, &["there is no result"]);
    assert!(stderr(&output).ends_with("\nsaid\n"), "{output:?}");
}

/// C62.
#[test]
fn what_is_no_regular_file_in_the_results_place_stays_and_is_not_waited_for() {
    let bench = Bench::new();
    std::fs::create_dir(bench.at("dir")).unwrap();
    mknodat(CWD, bench.at("fifo"), FileType::Fifo, 0o600.into(), 0).unwrap();
    mknodat(CWD, bench.at("socket"), FileType::Socket, 0o600.into(), 0).unwrap();
    // Root may make one; /dev/full is 1, 7.
    let device = rustix::fs::makedev(1, 7);
    let has_device = mknodat(CWD, bench.at("device"), FileType::CharacterDevice, 0o666.into(), device).is_ok();
    for name in ["dir", "fifo", "socket", "device"].iter().filter(|name| has_device || **name != "device") {
        let kind = || std::fs::symlink_metadata(bench.at(name)).unwrap().file_type();
        let before = kind();
        let output = dispatch(&bench, name, "echo said");
        says(&output, 7, &[&format!("/{name}: "), "no regular file", "the result is at"]);
        assert_eq!(kind(), before, "{name}");
        assert!(state_file(&bench, "result.md").ends_with("\n\nsaid\n"), "{name}");
        std::fs::remove_dir_all(bench.task_state()).unwrap();
    }
}

/// C63.
#[test]
fn a_link_that_the_caller_gave_leads_to_the_result() {
    for (worker, channel) in [("echo mine >\"$PRUN_RESULT\"", Channel::ResultFile), ("echo said", Channel::Salvage)] {
        let bench = Bench::new();
        std::fs::create_dir(bench.at("real")).unwrap();
        std::os::unix::fs::symlink("real/r.md", bench.at("link.md")).unwrap();
        says(&dispatch(&bench, "link.md", worker), 0, &[]);
        assert_eq!(read_facts(&bench.task_state()).unwrap().result.unwrap().channel, channel);
        assert!(std::fs::symlink_metadata(bench.at("link.md")).unwrap().is_symlink());
        assert!(!bench.read("real/r.md").is_empty());
        let gathered = bench.command(&["gather", "link.md"]).env("PRUN_GATHER_STABLE_WINDOW", "60").output().unwrap();
        assert_eq!(gathered.status.code(), Some(0), "its dispatcher's word is found: {gathered:?}");
    }
    // A worker's own link is not followed: it would make prun read what is somebody else's.
    let bench = Bench::new();
    std::fs::write(bench.at("secret"), "secret\n").unwrap();
    says(&dispatch(&bench, "r.md", "ln -s secret r.md"), 7, &["no regular file", "the result is at"]);
    assert!(!state_file(&bench, "result.md").contains("secret"));
    assert_eq!(bench.read("secret"), "secret\n");
}

#[test]
fn a_result_that_cannot_be_read_is_not_touched() {
    let bench = Bench::new();
    let script = format!(
        "chmod 711 . && chmod 777 tmp home && \
         exec setpriv --reuid 65534 --regid 65534 --clear-groups {PRUN} dispatch-task {LINE} --result-file tmp/r.md -- \
         sh -c 'echo mine >\"$PRUN_RESULT\"; chmod 000 \"$PRUN_RESULT\"'"
    );
    // For anybody but root the plain thing is the same.
    let script = if rustix::process::geteuid().is_root() {
        script
    } else {
        script.replace("setpriv --reuid 65534 --regid 65534 --clear-groups ", "")
    };
    std::fs::set_permissions(bench.at("prompt.md"), std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let output = bench.program("/bin/sh", &["-c", &script]).output().unwrap();
    says(&output, 0, &[]);
    std::fs::set_permissions(bench.at("tmp/r.md"), std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    assert_eq!(bench.read("tmp/r.md"), "mine\n");
    let result = read_facts(&bench.task_state()).unwrap().result.unwrap();
    assert_eq!((result.channel, result.contract_gaps.is_empty()), (Channel::ResultFile, false));
}

#[test]
fn a_limit_on_the_size_of_files_does_not_end_the_dispatcher() {
    let bench = Bench::new();
    // 2 KiB, in the 512 byte blocks of POSIX.
    let script =
        format!("ulimit -f 4; exec {PRUN} dispatch-task {LINE} --result-file r.md -- sh -c 'seq 1 900; exit 0'");
    let output = bench.program("/bin/sh", &["-c", &script]).output().unwrap();
    let tail = bench.task_state().join("tail");
    // The worker's `seq` is ended by the limit; what it made up for the result is too large as well.
    // A shell may become its last command, or tell of its end by a code of its own.
    let code = output.status.code().unwrap();
    says(&output, code, &["there is no result", tail.to_str().unwrap()]);
    assert!(matches!(code, 7 | 153), "{output:?}");
    assert_eq!(std::fs::metadata(&tail).unwrap().len(), 2048);
    // A worker has the limit, and the signal as it was.
    let bench = Bench::new();
    let script =
        format!("exec {PRUN} dispatch-task {LINE} --result-file r.md -- sh -c 'grep SigIgn /proc/self/status'");
    let output = bench.program("/bin/sh", &["-c", &script]).output().unwrap();
    let said = stderr(&output);
    let ignored = u64::from_str_radix(said.trim().strip_prefix("SigIgn:\t").unwrap(), 16).unwrap();
    // Signals 32 and 33 belong to the C library, which lets nobody change them.
    assert_eq!(ignored & 0x7fff_ffff, 0, "a worker ignores nothing");
}

/// C37.
#[test]
fn streams_that_nobody_can_write_to_lose_nothing() {
    for streams in [">&- 2>&-", ">/dev/full 2>/dev/full", "| true", "2>&1 | true"] {
        let bench = Bench::new();
        let script =
            format!("{PRUN} dispatch-task {LINE} --result-file r.md -- sh -c 'echo said; echo err >&2' {streams}");
        bench.program("/bin/sh", &["-c", &script]).output().unwrap();
        wait_until(|| read_facts(&bench.task_state()).is_ok());
        assert!(bench.read("r.md").ends_with("\n\nsaid\nerr\n"), "{streams}: {}", bench.read("r.md"));
    }
    let bench = Bench::new();
    let script = format!("exec {PRUN} dispatch-task {LINE} --result-file r.md -- true >/dev/full");
    let output = bench.program("/bin/sh", &["-c", &script]).output().unwrap();
    says(&output, 0, &["cannot write to stdout", bench.task_state().to_str().unwrap()]);
}

#[test]
fn a_broken_pipe_is_no_end_and_quit_is_one() {
    let bench = Bench::new();
    let child = bench.start(&bench.spec("echo $$ > pid; while [ ! -e go ]; do sleep 0.02; done; echo said"));
    bench.process("pid");
    kill(&child, Signal::PIPE);
    std::fs::write(bench.at("cwd/go"), "").unwrap();
    let (code, facts) = bench.finish(child);
    assert_eq!((code, facts.dispatcher_signal), (0, None));
    assert!(bench.read("result.md").ends_with("\n\nsaid\n"));
    let bench = Bench::new();
    let child = bench.start(&bench.spec("echo $$ > pid; exec sleep 600"));
    bench.process("pid");
    kill(&child, Signal::QUIT);
    let (code, facts) = bench.finish(child);
    assert_eq!((code, facts.stopped), (131, Some(StopReason::Signal)));
}

/// Workers by what they leave, and what a killed dispatcher may lose of it: nothing.
const WORKERS: [&str; 3] = [
    // It has a result, says so, and lives on.
    "printf whole >\"$PRUN_RESULT\"; echo said; : >wrote; exec sleep 600",
    // It leaves, so that its dispatcher settles.
    "printf whole >\"$PRUN_RESULT\"; echo said; : >wrote",
    // It leaves nothing, so that its dispatcher saves what it said.
    "echo said; : >said",
];

#[test]
fn a_dispatcher_that_is_killed_at_any_moment_loses_no_result() {
    ended_at_random(Signal::KILL, "PRUN_KILL_TRIALS");
}

#[test]
fn a_dispatcher_that_is_asked_to_end_at_any_moment_loses_no_result() {
    ended_at_random(Signal::TERM, "PRUN_KILL_TRIALS");
}

#[track_caller]
fn ended_at_random(signal: Signal, trials: &str) {
    for trial in 0..count(trials, 24) {
        let bench = Bench::new();
        std::fs::write(bench.at("result.md"), "from before").unwrap();
        let mut command = bench.command(&["dispatch-task"]);
        command.args(LINE.split(' ')).args(["--result-file", "result.md", "--", "/bin/sh", "-c", WORKERS[trial % 3]]);
        command.env("PRUN_SCRATCH_CWD", bench.at("cwd")).stderr(Stdio::null());
        let child = command.spawn().unwrap();
        let after = random_pause(64);
        kill(&child, signal);
        let code = child.wait_with_output().unwrap().status.code();
        let reaped = bench.command(&["reap-orphans"]).output().unwrap();
        assert_eq!(reaped.status.code(), Some(0), "{reaped:?}");
        check_kept(&bench, signal, code, after);
        let left = processes_in(&bench);
        assert!(left.is_empty(), "{left:?} after {after:?}: {reaped:?}");
    }
}

/// That everything which was there is there still, in one of the places that are told.
#[track_caller]
fn check_kept(bench: &Bench, signal: Signal, code: Option<i32>, after: Duration) {
    let has = |name: &str| bench.at(name).exists();
    let result = bench.read("result.md");
    let Some(state) = prun_engine::state_dir::find_in(&bench.at("tmp")) else {
        assert_eq!(result, "from before", "{after:?}");
        return;
    };
    let read = |name: &str| std::fs::read_to_string(state.join(name)).unwrap_or_default();
    let where_from = format!("{signal:?} after {after:?}, exit {code:?}: {result:?}, tail {:?}", read("tail"));
    if has("cwd/wrote") {
        assert_eq!(result, "whole", "{where_from}");
        assert_eq!(read("tail").lines().next(), Some("said"), "{where_from}");
    } else if has("cwd/said") {
        assert_eq!(read("tail").lines().next(), Some("said"), "{where_from}");
    }
    // What stood before is where it was, or beside the facts; a salvage is whole.
    assert!(["from before", "whole", ""].contains(&result.as_str()) || result.starts_with("# u1 result ("));
    if result.starts_with("# u1") {
        assert_eq!(read("result.before"), "from before", "{where_from}");
        assert!(result.contains("\nVerification: none (salvaged by dispatch-task"), "{where_from}");
    }
    if signal == Signal::TERM && code.is_some() {
        // It had begun: so it settled, and said how.
        assert!(read_facts(&state).is_ok(), "{where_from}");
    }
    if code.is_none() && read_identity(&state).is_ok() && read_facts(&state).is_err() && result == "from before" {
        let monitor = bench.command(&["monitor", state.to_str().unwrap()]).output().unwrap();
        let said = String::from_utf8_lossy(&monitor.stdout).into_owned();
        assert!(monitor.status.code() == Some(3) && said.contains("failed(dispatch-dead)"), "{said}; {where_from}");
    }
}

/// The processes that work where the worker did.
fn processes_in(bench: &Bench) -> Vec<String> {
    let cwd = bench.at("cwd");
    let works_there = |entry: &std::fs::DirEntry| {
        std::fs::read_link(entry.path().join("cwd")).is_ok_and(|found| found == cwd)
            && !std::fs::read_to_string(entry.path().join("stat")).is_ok_and(|stat| stat.contains(") Z "))
    };
    let processes = std::fs::read_dir("/proc").unwrap().flatten().filter(works_there);
    processes.map(|entry| std::fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default()).collect()
}

#[test]
fn no_entry_of_a_dispatch_that_cannot_be_recorded_starts_a_worker() {
    let bench = Bench::new();
    let mount = "mount -t tmpfs -o size=20k none out; head -c 8192 /dev/zero >out/a; export TMPDIR=$PWD/out";
    let Some(output) = in_mount(&bench, mount, "r.md", "echo begun >begun; cat") else { return };
    let said = stderr(&output);
    assert!(output.status.code() == Some(2) && said.contains("No space left"), "{output:?}");
    assert!(!bench.at("begun").exists(), "no worker without a record");
}
