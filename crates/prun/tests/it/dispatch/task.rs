//! The interface of `dispatch-task`.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;

use super::{Bench, stderr};

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

/// C37.
#[test]
fn dispatch_task_goes_on_when_its_reader_goes_away() {
    let bench = Bench::new();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = bench.task("echo x > \"$PRUN_RESULT\"; exit 3").stdout(writer).output().unwrap();
    assert_eq!((output.status.code(), bench.read("result.md").as_str()), (Some(3), "x\n"));
}

#[test]
fn dispatch_task_leaves_nothing_behind_where_it_did_not_begin() {
    let bench = Bench::new();
    let output = bench.task("exit 0").env("PRUN_SCRATCH_CWD", "prompt.md/x").output().unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
    assert_eq!(std::fs::read_dir(bench.at("tmp")).unwrap().count(), 0);
}

#[test]
fn a_scratch_directory_inside_a_repository_does_not_find_it() {
    let bench = Bench::new();
    let git = prun_engine::git::Git::from_env();
    git.command(["init", "-q"]).arg(bench.at("tmp")).run().unwrap();
    let output =
        bench.task("git rev-parse --show-toplevel; git init -q sub && cd sub && git rev-parse --show-toplevel");
    let output = { output }.env("GIT_DIR", bench.at("tmp/.git")).output().unwrap();
    let text = stderr(&output);
    let found: Vec<&str> = text.lines().filter(|line| line.starts_with('/')).collect();
    assert_eq!(found, [bench.task_state().join("work/sub").to_str().unwrap()], "{text}");
}

/// C32.
#[test]
fn a_worker_that_cuts_its_tail_leaves_no_hole() {
    let bench = Bench::new();
    let output = bench.task("echo AAAAAAAAAA; echo bb >&2; : > ../tail; echo CCC; echo dd >&2").output().unwrap();
    assert_eq!(stderr(&output), "CCC\ndd\n");
}
