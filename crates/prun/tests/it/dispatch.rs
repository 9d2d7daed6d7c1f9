//! One worker through `prun __dispatch` and `prun dispatch-task`, with shell scripts as workers.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use prun_core::event::ProcessIdentity;
use prun_core::ids::Attempt;
use prun_core::outcome::{AttemptFacts, Cause, Channel, Exit, Gap, Outcome, StopReason, judge};
use prun_engine::executor::stream::StreamKind;
use prun_engine::process::{identity, is_alive};
use prun_engine::spec::{AttemptSpec, CheckSpec, Limits, Liveness, SPEC_VERSION, WorkerSpec};
use prun_engine::state_dir::{find_in, read_facts, read_identity};
use rustix::process::{Pid, Signal, kill_process};

const PRUN: &str = env!("CARGO_BIN_EXE_prun");

/// Writes a result in contract form.
const GOOD: &str = r##"printf '# u1 result\nConclusion: done\nFiles: none\nOpen items: none\nVerification: none\n\nbody\n' > "$PRUN_RESULT"; "##;

/// A place for one attempt.
struct Bench {
    dir: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let bench = Self { dir: tempfile::tempdir().unwrap() };
        for name in ["attempt", "cwd", "tmp", "home"] {
            std::fs::create_dir(bench.at(name)).unwrap();
        }
        std::fs::write(bench.at("prompt.md"), "the prompt\n").unwrap();
        bench
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.at(name)).unwrap_or_default()
    }

    /// A unit whose worker is this shell script.
    fn spec(&self, script: &str) -> AttemptSpec {
        AttemptSpec {
            version: SPEC_VERSION,
            run: Some("261130-155200-k3f9".parse().unwrap()),
            unit: "u1".parse().unwrap(),
            attempt: Attempt(1),
            attempt_dir: Some(self.at("attempt")),
            state_parent: self.at("attempt"),
            worker: Some(WorkerSpec {
                argv: vec!["/bin/sh".into(), "-c".into(), script.into()],
                stream: StreamKind::Plain,
                last_message_placeholder: None,
            }),
            prompt_file: self.at("prompt.md"),
            result_file: self.at("result.md"),
            cwd: Some(self.at("cwd")),
            env: Vec::new(),
            limits: Limits {
                first_output_millis: None,
                idle_millis: None,
                hard_millis: Some(60_000),
                linger_millis: None,
                grace_millis: 200,
                output_bytes: None,
                liveness: Liveness::Tail,
            },
            setup: None,
            verify: None,
            deliverables: Vec::new(),
            expects_changes: false,
            harvest: None,
        }
    }

    fn command(&self, args: &[&str]) -> Command {
        self.program(PRUN, args)
    }

    fn program(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(args).env_clear().current_dir(self.dir.path()).stdin(Stdio::null());
        command.env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", self.at("home"));
        command.env("TMPDIR", self.at("tmp")).env("PRUN_DURABLE", "off");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn start(&self, spec: &AttemptSpec) -> Child {
        let path = self.at("spec.json");
        std::fs::write(&path, serde_json::to_vec(spec).unwrap()).unwrap();
        self.command(&["__dispatch", path.to_str().unwrap()]).spawn().unwrap()
    }

    fn dispatch(&self, spec: &AttemptSpec) -> (i32, AttemptFacts) {
        self.finish(self.start(spec))
    }

    fn finish(&self, child: Child) -> (i32, AttemptFacts) {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.code().is_some(), "{output:?}");
        let state = self.state().unwrap_or_else(|| panic!("no state dir: {output:?}"));
        (output.status.code().unwrap(), read_facts(&state).unwrap())
    }

    fn state(&self) -> Option<PathBuf> {
        find_in(&self.at("attempt"))
    }

    /// A process whose number the worker wrote into a file of its working directory.
    fn process(&self, file: &str) -> ProcessIdentity {
        let path = format!("cwd/{file}");
        wait_until(|| self.read(&path).ends_with('\n'));
        identity(self.read(&path).trim().parse().unwrap()).unwrap()
    }

    /// `prun dispatch-task` with this shell script as `codex`.
    fn task(&self, script: &str) -> Command {
        let args = ["--prompt-file", "prompt.md", "--result-file", "result.md", "--unit-id", "u1"];
        let codex = self.at("codex");
        // Another process writes the script: a descriptor of ours, open for writing and inherited by a fork
        // of a neighbouring test, would make its start fail as busy.
        let mut writer = Command::new("/bin/sh")
            .args(["-c", "cat > \"$1\" && chmod +x \"$1\"", "sh", codex.to_str().unwrap()])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        writer.stdin.take().unwrap().write_all(format!("#!/bin/sh\n{script}\n").as_bytes()).unwrap();
        assert!(writer.wait().unwrap().success());
        let mut command = self.command(&[&["dispatch-task"], &args[..]].concat());
        command.env("CODEX_BIN", codex);
        command
    }

    /// The state dir that `dispatch-task` made.
    fn task_state(&self) -> PathBuf {
        find_in(&self.at("tmp")).unwrap()
    }
}

#[expect(clippy::disallowed_methods, reason = "polls a condition of other processes, with a deadline")]
fn wait_until(mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < deadline, "the condition never became true");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn kill(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_worker_that_ends_well_succeeds() {
    let bench = Bench::new();
    let mut spec = bench.spec(&format!("cat; echo err >&2; {GOOD} pwd; ls /proc/self/fd; env > env.txt"));
    spec.deliverables = vec!["env.txt".into(), "not-there".into()];
    let (code, facts) = bench.dispatch(&spec);
    assert_eq!((code, &facts.exit, facts.stopped), (0, &Exit::Code { code: 0 }, None));
    assert_eq!(judge(&facts), Outcome::Incomplete(Gap::Deliverable));
    assert_eq!(facts.missing_deliverables, ["not-there"]);
    let result = facts.result.as_ref().unwrap();
    assert_eq!((result.channel, result.conclusion.as_deref()), (Channel::ResultFile, Some("done")));
    assert!(facts.sweep.proven && facts.sweep.leftovers == 0, "{:?}", facts.sweep);
    assert!(facts.peak_rss_kib.is_some());
    let tail = std::fs::read_to_string(bench.state().unwrap().join("tail")).unwrap();
    // `ls` opens the directory itself as 3.
    assert_eq!(tail, format!("the prompt\nerr\n{}\n0\n1\n2\n3\n", bench.at("cwd").display()));
    let env = bench.read("cwd/env.txt");
    for line in ["PRUN_UNIT=u1", "PRUN_ATTEMPT=1", "PRUN_DEPTH=1", "PRUN_RUN=261130-155200-k3f9"] {
        assert!(env.lines().any(|known| known == line), "{line} in {env}");
    }
    let identity = read_identity(&bench.state().unwrap()).unwrap();
    assert!(env.contains(&format!("PRUN_TOKEN={}", identity.token)));
    assert!(identity.worker.is_some());
}

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
fn a_result_from_before_is_no_result_and_is_kept() {
    let bench = Bench::new();
    std::fs::write(bench.at("result.md"), "an old result\n").unwrap();
    let (code, facts) = bench.dispatch(&bench.spec("echo hello"));
    assert_eq!((code, facts.result.unwrap().channel), (0, Channel::Salvage));
    assert!(bench.read("result.md").starts_with("# u1 result (FALLBACK, worker wrote no result file)\n"));
    let state = bench.state().unwrap();
    assert_eq!(std::fs::read_to_string(state.join("result.before")).unwrap(), "an old result\n");
    assert_ne!(std::fs::read_to_string(state.join("pre-mtime")).unwrap(), "0\n");
}

#[test]
fn a_result_that_cannot_stand_where_it_was_asked_for_is_in_the_state_dir() {
    let bench = Bench::new();
    std::fs::create_dir(bench.at("result.md")).unwrap();
    let child = bench.start(&bench.spec("echo hello"));
    let (code, facts) = bench.finish(child);
    let result = facts.result.unwrap();
    assert_eq!((code, result.misplaced), (7, true));
    assert_eq!(Path::new(&result.path), bench.state().unwrap().join("result.md"));
    assert!(std::fs::read_to_string(&result.path).unwrap().ends_with("\n\nhello\n"));
}

#[test]
fn the_clients_last_message_becomes_the_result() {
    let bench = Bench::new();
    let mut spec = bench.spec("");
    let worker = spec.worker.as_mut().unwrap();
    worker.argv =
        vec!["/bin/sh".into(), "-c".into(), "echo 'just words' > \"$1\"".into(), "sh".into(), "{last}".into()];
    worker.last_message_placeholder = Some("{last}".into());
    let (code, facts) = bench.dispatch(&spec);
    assert_eq!((code, judge(&facts)), (0, Outcome::Incomplete(Gap::Contract)));
    assert_eq!(facts.result.unwrap().channel, Channel::LastMessage);
    assert_eq!(bench.read("result.md"), "just words\n");
}

/// A worker that says these lines as Codex's event stream does, and something on stderr.
fn codex_worker(bench: &Bench, lines: &str, then: &str) -> AttemptSpec {
    let mut spec = bench.spec(&format!("printf '%s\\n' \"$EVENTS\"; echo 'a warning' >&2; {then}"));
    spec.env = vec![("EVENTS".into(), lines.into())];
    spec.worker.as_mut().unwrap().stream = StreamKind::Codex;
    spec.limits.linger_millis = Some(200);
    spec
}

const SAID: &str = r##"{"type":"thread.started","thread_id":"t-1"}
{"type":"turn.started"}
{"type":"item.completed","item":{"id":"item_0","type":"agent_message","text":"# u1 result\nConclusion: said\nFiles: none\nOpen items: none\nVerification: none\n\nbody"}}
{"type":"turn.completed","usage":{"input_tokens":10,"cached_input_tokens":4,"output_tokens":2}}"##;

#[test]
fn the_final_message_of_an_event_stream_becomes_the_result() {
    let bench = Bench::new();
    let (code, facts) = bench.dispatch(&codex_worker(&bench, SAID, ""));
    assert_eq!((code, judge(&facts)), (0, Outcome::Succeeded), "{facts:?}");
    let result = facts.result.unwrap();
    assert_eq!((result.channel, result.conclusion.as_deref()), (Channel::FinalEvent, Some("said")));
    assert_eq!((facts.session.as_deref(), facts.usage.unwrap().input_tokens), (Some("t-1"), 10));
    let state = bench.state().unwrap();
    assert_eq!(std::fs::read_to_string(state.join("events.jsonl")).unwrap(), format!("{SAID}\n"));
    let tail = std::fs::read_to_string(state.join("tail")).unwrap();
    assert!(tail.contains("a warning\n") && !tail.contains("turn.completed"), "{tail}");
}

#[test]
fn a_client_that_lives_on_after_its_last_word_is_ended() {
    let bench = Bench::new();
    let (code, facts) = bench.dispatch(&codex_worker(&bench, SAID, "sleep 600"));
    assert_eq!((code, facts.stopped, judge(&facts)), (0, Some(StopReason::Lingered), Outcome::Succeeded));
}

#[test]
fn a_stream_without_its_end_gives_no_result() {
    let bench = Bench::new();
    let unfinished = SAID.rsplit_once('\n').unwrap().0;
    let (code, facts) = bench.dispatch(&codex_worker(&bench, unfinished, ""));
    assert_eq!((code, judge(&facts)), (0, Outcome::Incomplete(Gap::NoFinalEvent)));
    assert_eq!(facts.result.unwrap().channel, Channel::Salvage);
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
    assert_eq!((facts.leftovers, facts.proven, facts.survivors.is_empty()), (1, false, true));
    assert!(!is_alive(&worker));
}

#[test]
fn set_up_and_check_are_run_and_contained() {
    let bench = Bench::new();
    let check = |script: &str, limit_millis| {
        Some(CheckSpec { argv: vec!["/bin/sh".into(), "-c".into(), script.into()], limit_millis })
    };
    let mut spec = bench.spec(&format!("cat made; {GOOD}"));
    spec.setup = check("echo from-setup > made; setsid sleep 600 & echo $! > bg", 60_000);
    spec.verify = check("echo checking; sleep 600", 200);
    let (code, facts) = bench.dispatch(&spec);
    assert_eq!((code, judge(&facts)), (0, Outcome::Failed(Cause::Verify)));
    assert!(facts.setup.unwrap().ok && facts.sweep.leftovers == 0);
    let verify = facts.verify.unwrap();
    assert!(verify.timed_out && !verify.ok);
    assert_eq!(std::fs::read_to_string(&verify.log).unwrap(), "checking\n");
    assert!(identity(bench.read("cwd/bg").trim().parse().unwrap()).is_none());
}

#[test]
fn a_failed_set_up_starts_no_worker() {
    let bench = Bench::new();
    let mut spec = bench.spec("echo worker > ran");
    spec.setup = Some(CheckSpec { argv: vec!["/bin/false".into()], limit_millis: 60_000 });
    let (code, facts) = bench.dispatch(&spec);
    assert_eq!((code, judge(&facts)), (1, Outcome::Failed(Cause::Setup)));
    assert!(!bench.at("cwd/ran").exists());
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
fn dispatch_task_says_where_its_state_is_before_the_worker_starts() {
    let bench = Bench::new();
    let mut child = bench.task("echo \"$@\"; cat; read line < \"$OLDPWD/hold\"; :").spawn().unwrap();
    drop(child.stdin.take());
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    let state = PathBuf::from(line.strip_prefix("STATE-DIR ").unwrap().trim_end());
    assert!(state.is_absolute() && state.starts_with(bench.at("tmp")));
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
    let pid = child.id();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let entry = |name: &str| std::fs::read_to_string(state.join(name)).unwrap();
    assert_eq!((entry("pre-mtime"), entry("result-file")), ("0\n".into(), "result.md\n".into()));
    assert_eq!(entry("dispatch-pid"), format!("{pid}\n"));
    assert!(entry("timestamp").trim_end().parse::<u64>().unwrap() > 1_700_000_000);
    let arguments = "exec --sandbox danger-full-access --skip-git-repo-check --ignore-user-config -c model_reasoning_effort=xhigh -\n";
    assert!(entry("tail").starts_with(&format!("{arguments}the prompt\n")), "{}", entry("tail"));
    assert!(state.join("work").is_dir() && state.join("facts.json").exists());
    assert!(bench.read("result.md").starts_with("# u1 result (FALLBACK, worker wrote no result file)\n"));
    let hash = prun_engine::home::sha256_hex(bench.at("result.md").as_os_str().as_encoded_bytes());
    let pointer = bench.read(&format!("home/.local/state/prun/by-result/{hash}"));
    assert_eq!(pointer, format!("{}\n", state.display()));
}

#[test]
fn dispatch_task_reaps_a_silent_worker_as_the_contract_says() {
    let bench = Bench::new();
    let output = bench.task("printf begun; sleep 600").env("PRUN_STALL_THRESHOLD", "1").output().unwrap();
    assert_eq!(output.status.code(), Some(124));
    let tail = std::fs::read_to_string(bench.task_state().join("tail")).unwrap();
    assert_eq!(tail, "begun\n\ndispatch-task: worker reaped (idle-stall); exit code 124.\n");
    assert_eq!(stderr(&output), tail);
    assert!(bench.read("result.md").contains("INCOMPLETE; worker was reaped by dispatch-task (idle-stall)"));
}

#[test]
fn dispatch_task_keeps_a_result_also_of_a_reaped_worker() {
    let bench = Bench::new();
    let output =
        bench.task("echo mine > \"$PRUN_RESULT\"; sleep 600").env("CODEX_DISPATCH_TIMEOUT", "1").output().unwrap();
    assert_eq!((output.status.code(), bench.read("result.md").as_str()), (Some(124), "mine\n"));
}

#[test]
fn dispatch_task_repeats_the_last_80_lines_on_stderr() {
    let bench = Bench::new();
    let output = bench.task("i=0; while [ $i -lt 200 ]; do i=$((i+1)); echo line $i; done; exit 5").output().unwrap();
    let text = stderr(&output);
    assert_eq!((output.status.code(), text.lines().count()), (Some(5), 80));
    assert!(text.starts_with("line 121\n") && text.ends_with("line 200\n"), "{text}");
}

#[test]
fn dispatch_task_refuses_a_bad_command_line() {
    let bench = Bench::new();
    let run = |args: &[&str]| {
        let output = bench.command(&[&["dispatch-task"], args].concat()).output().unwrap();
        assert!(output.stdout.is_empty());
        (output.status.code(), stderr(&output))
    };
    let good = ["--prompt-file", "prompt.md", "--result-file", "r.md", "--unit-id", "u1"];
    for args in [&[][..], &good[..4], &good[..5], &["--what"], &[&good[..5], &["a/b"]].concat()] {
        let (code, text) = run(args);
        assert_eq!(code, Some(2), "{args:?}");
        assert!(text.contains("usage: prun dispatch-task"), "{text}");
    }
    let (code, text) = run(&[&["--prompt-file", "nowhere.md"], &good[2..]].concat());
    assert!(code == Some(2) && text.contains("nowhere.md"), "{text}");
    let output = bench.task("exit 0").env("TMPDIR", "/nonexistent/tmp").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let output = bench.task("exit 0").env("PRUN_SCRATCH_CWD", "prompt.md/x").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let output = bench.task("exit 0").env("PRUN_DEPTH", "1").output().unwrap();
    assert!(output.status.code() == Some(2) && stderr(&output).contains("PRUN_DEPTH is 1"), "{output:?}");
}

#[test]
fn dispatch_task_goes_on_when_its_reader_goes_away() {
    let bench = Bench::new();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = bench.task("echo x > \"$PRUN_RESULT\"; exit 3").stdout(writer).output().unwrap();
    assert_eq!((output.status.code(), bench.read("result.md").as_str()), (Some(3), "x\n"));
}
