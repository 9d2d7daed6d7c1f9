//! What becomes of attempts: retries, missing results, limits, reviews, and units that are handed over.

use insta::assert_snapshot;
use prun_testkit::env::{TestEnv, built_program, read_if_there};

use crate::support::{
    PRUN, open_gate, place, plan, run, start, tree_shown, unit, unit_of, wait_for_end, wait_for_state,
};

#[test]
fn a_unit_that_fails_at_first_succeeds_at_the_second_attempt() {
    let script = "echo attempt $PRUN_ATTEMPT; test $PRUN_ATTEMPT -gt 1 || exit 7; echo a > a.txt; result";
    let env = place("", &[unit("twice", script)]);
    let ran = env.prun("run");
    assert_eq!(ran.code, 0, "{ran}");
    assert_snapshot!(env.prun("explain twice"), @r"
    exit 0
    --- stdout
    [time] attempt 1 began on command: command is the unit's only executor
    [time] its workspace was ready after [n] ms
    [time] its dispatcher runs as process [pid]
    [time] its dispatcher settled it and left
    [time] failed(exit-code): exit code 7; attempt 2 follows
    [time] attempt 2 began on command: command is the unit's only executor
    [time] its workspace was ready after [n] ms
    [time] its dispatcher runs as process [pid]
    [time] its dispatcher settled it and left
    [time] settled as succeeded: 1 file changed
    you can: prun result [run]/twice · prun diff [run]/twice · prun exclude [run]/twice -m WHY
    --- stderr
    run [run] (twice)
    ");
    assert_eq!(env.prun("logs twice").stdout, "attempt 2\n");
    assert_eq!(env.prun("logs twice --attempt 1").stdout, "attempt 1\n");
}

#[test]
fn each_way_to_fall_short_has_its_verdict() {
    let cases: &[(&str, &str, &str, &str)] = &[
        ("silent", "echo some words; echo x > x.txt", "", "incomplete(no-result)"),
        ("formless", "echo x > x.txt; echo 'All done, trust me.' > \"$PRUN_RESULT\"", "", "incomplete(contract)"),
        ("lazy", "result", "", "incomplete(no-change)"),
        ("missing", "echo x > x.txt; result", "deliverables = [\"report.md\"]\n", "incomplete(deliverable)"),
        ("red", "echo x > x.txt; result", "verify = \"echo the check says no; false\"\n", "failed(verify)"),
        ("exits", "echo x > x.txt; result; exit 9", "", "failed(exit-code)"),
        ("dies", "kill -SEGV $$", "", "failed(signal)"),
        ("slow", "echo up; await never", "timeout = \"1s\"\n", "failed(hard-timeout)"),
        ("quiet", "echo up; exec sleep 600", "idle_timeout = \"1s\"\n", "failed(idle-stall)"),
        ("mute", "exec sleep 600", "first_output_timeout = \"1s\"\n", "failed(first-output)"),
        ("good", "echo x > x.txt; result", "verify = \"test -f x.txt\"\n", "succeeded"),
        ("reads", "cat repo/README.md; result", "mode = \"read\"\n", "succeeded"),
    ];
    let units: Vec<String> =
        cases.iter().map(|(id, script, keys, _)| unit(id, script) + keys + "retries = 0\n").collect();
    let env = place("jobs = 12", &units);
    let ran = env.prun("run");
    assert_eq!(ran.code, 3, "{ran}");
    env.assert_all_gone();
    let id = run_id(&env);
    let verdicts: Vec<String> = cases.iter().map(|(unit, ..)| verdict(&env, &id, unit)).collect();
    let expected: Vec<&str> = cases.iter().map(|(.., expected)| *expected).collect();
    assert_eq!(verdicts, expected, "{}", env.prun("status"));
    assert_snapshot!(env.prun("wait"), @r"
    exit 3
    --- stdout
    [run] 2/12 done · 10 failed · [span] · next [n]
    FAIL silent  no result file, tail salvaged, attempt 1/1   prun logs [run]/silent -n 40
    FAIL formless  the result lacks title, Conclusion, Files, Open items, Verification, attempt 1/1   prun logs [run]/formless -n 40
    FAIL lazy  it was to change code, and nothing changed, attempt 1/1   prun logs [run]/lazy -n 40
    FAIL missing  not delivered: report.md, attempt 1/1   prun logs [run]/missing -n 40
    FAIL red  its check failed: exit code 1, attempt 1/1   prun logs [run]/red -n 40
    FAIL exits  exit code 9, attempt 1/1   prun logs [run]/exits -n 40
    MORE 4 units call for action   prun status [run]
    --- stderr
    run [run] (silent, formless, lazy and 9 more)
    ");
    // On a busy machine the start of a program can use CPU for so long that it counts as a sign of life.
    let reconciled = env.prun("reconcile").to_string().replace("silent: output, files", "silent: output, cpu, files");
    assert_snapshot!(reconciled, @r"
    exit 5
    --- stdout
    BLOCKS silent  incomplete(no-result): no result file, tail salvaged   prun retry silent, prun accept silent -m WHY or prun exclude silent -m WHY
    BLOCKS formless  incomplete(contract): the result lacks title, Conclusion, Files, Open items, Verification   prun retry formless, prun accept formless -m WHY or prun exclude formless -m WHY
    BLOCKS lazy  incomplete(no-change): it was to change code, and nothing changed   prun retry lazy, prun accept lazy -m WHY or prun exclude lazy -m WHY
    BLOCKS missing  incomplete(deliverable): not delivered: report.md   prun retry missing, prun accept missing -m WHY or prun exclude missing -m WHY
    BLOCKS red  failed(verify): its check failed: exit code 1   prun retry red, prun accept red -m WHY or prun exclude red -m WHY
    BLOCKS exits  failed(exit-code): exit code 9   prun retry exits, prun accept exits -m WHY or prun exclude exits -m WHY
    BLOCKS dies  failed(signal): ended by signal 11   prun retry dies, prun accept dies -m WHY or prun exclude dies -m WHY
    BLOCKS slow  failed(hard-timeout): longer than its time limit   prun retry slow, prun accept slow -m WHY or prun exclude slow -m WHY
    BLOCKS quiet  failed(idle-stall): no sign of life within the idle limit (silent: output, cpu, files)   prun retry quiet, prun accept quiet -m WHY or prun exclude quiet -m WHY
    BLOCKS mute  failed(first-output): no output within the first-output limit (silent: output, cpu, files)   prun retry mute, prun accept mute -m WHY or prun exclude mute -m WHY
    not ready · 10 block · 1 unit goes in · 1 have nothing to land
    --- stderr
    run [run] (silent, formless, lazy and 9 more)
    ");
}

#[test]
fn without_a_result_the_output_is_saved_and_lands_only_when_it_is_named() {
    let env = place("", &[unit("silent", "echo the answer is 42; echo x > x.txt") + "retries = 0\n"]);
    let id = run(&env);
    let result = env.prun("result silent");
    assert_snapshot!(result, @r"
    exit 0
    --- stdout
    # silent result (FALLBACK, worker wrote no result file)
    Conclusion: INCOMPLETE; structured result missing; the worker ended without writing one
    Files: unknown
    Open items: review the raw output below or re-dispatch this unit
    Verification: none (salvaged by dispatch-task from the worker's output)

    the answer is 42
    --- stderr
    run [run] (silent)
    warning: no result was delivered; this was salvaged from the output
    ");
    assert_snapshot!(env.prun("integrate --dry-run"), @r"
    exit 5
    --- stdout
    BLOCKS silent  incomplete(no-result): no result file, tail salvaged   prun retry silent, prun accept silent -m WHY or prun exclude silent -m WHY
    not ready · 1 block · 0 units go in
    --- stderr
    run [run] (silent)
    error: run [run] is not ready to be integrated; nothing was changed
    hint: retry, accept or exclude the units that block, or name those that are to land: --only UNIT
    ");
    assert_snapshot!(env.prun_args(&["accept", "silent", "-m", "read it"]), @r"
    exit 2
    --- stderr
    run [run] (silent)
    error: the result of silent was only salvaged from its output
    hint: read it with `prun result silent`, then `prun accept silent --salvaged -m WHY`
    ");
    assert_snapshot!(env.prun_args(&["accept", "silent", "--salvaged", "-m", "read it"]), @r"
    exit 0
    --- stderr
    run [run] (silent)
    silent is accepted
    ");
    assert_snapshot!(env.prun("reconcile"), @r"
    exit 0
    --- stdout
    note silent  accepted: read it
    ready · 1 unit goes in · next: prun integrate [run] --dry-run
    --- stderr
    run [run] (silent)
    ");
    assert_eq!(unit_of(&env, &id, "silent")["disposition"], "accepted");
    assert_eq!(env.prun("wait").code, 0, "decided by name, so all is well");
    assert_snapshot!(env.prun("unreview silent"), @r"
    exit 0
    --- stderr
    run [run] (silent)
    silent is undecided again
    ");
    assert_eq!(env.prun("reconcile").code, 5);
    assert_eq!(env.prun_args(&["exclude", "silent", "-m", " "]).code, 2);
    assert_snapshot!(env.prun_args(&["exclude", "silent", "-m", "wrong idea"]), @r"
    exit 0
    --- stderr
    run [run] (silent)
    silent is excluded
    ");
    assert_snapshot!(env.prun("integrate --dry-run"), @r"
    exit 5
    --- stderr
    run [run] (silent)
    error: there is nothing to land
    hint: the units changed nothing that is not there already
    ");
}

#[test]
fn a_reader_s_edits_land_only_when_it_is_accepted() {
    let env = place("", &[unit("reads", "echo edited >> repo/src/one.txt; result") + "mode = \"read\"\n"]);
    run(&env);
    assert_snapshot!(env.prun("reconcile"), @r"
    exit 0
    --- stdout
    note reads  a read unit's edits, not landed unless accepted: src/one.txt
    nothing to land · 1 have nothing to land
    --- stderr
    run [run] (reads)
    ");
    assert_eq!(env.prun_args(&["accept", "reads", "-m", "a good edit"]).code, 0);
    let tree = tree_shown(&env.prun("integrate --dry-run"));
    assert_eq!(env.prun(&format!("integrate --tree {tree}")).code, 0);
    assert_eq!(env.read("src/one.txt"), "one\nedited\n");
}

/// C57.
#[test]
fn retry_starts_afresh_and_continue_goes_on_with_the_reason() {
    let script = "cat > seen.txt; echo $PRUN_ATTEMPT >> log.txt; echo $PRUN_ATTEMPT; result done log.txt; \
                  test $PRUN_ATTEMPT -gt 2";
    let env = place("", &[unit("again", script) + "retries = 0\n"]);
    let id = run(&env);
    assert_eq!(verdict(&env, &id, "again"), "failed(exit-code)");
    assert_snapshot!(env.prun("retry again"), @r"
    exit 0
    --- stderr
    run [run] (again)
    again is queued again
    run [run] goes on; `prun attach [run]` shows it
    ");
    wait_for_end(&env, &id);
    let fresh = env.attempt("again", 2).join("clone");
    assert_eq!(read_if_there(&fresh.join("log.txt")), "2\n", "a fresh clone");

    assert_eq!(env.prun_args(&["retry", "again", "--continue", "-m", "mind the gap"]).code, 0);
    assert_eq!(wait_for_end(&env, &id).code, 0);
    assert_eq!(read_if_there(&fresh.join("log.txt")), "2\n3\n", "the same clone");
    let prompt = read_if_there(&env.attempt("again", 3).join("prompt.md"));
    assert!(prompt.contains("mind the gap"), "{prompt}");
    assert_eq!(read_if_there(&fresh.join("seen.txt")), prompt, "the worker was told");
    let first = env.attempt("again", 1).join("clone");
    assert_eq!(read_if_there(&first.join("log.txt")), "1\n", "the old attempt is kept");
    assert_eq!(unit_of(&env, &id, "again")["outcome"], "succeeded");

    // A unit that succeeded can be tried again as well; what was accepted before is undecided then.
    assert_eq!(env.prun("retry again --continue").code, 0);
    assert_eq!(wait_for_end(&env, &id).code, 0);
    assert_eq!(read_if_there(&fresh.join("log.txt")), "2\n3\n4\n");

    // Where the workspace is gone, that is said at once.
    std::fs::remove_dir_all(&fresh).unwrap();
    let gone = env.prun("retry again --continue");
    assert_eq!(gone.code, 2, "{gone}");
    assert!(gone.stderr.contains("is gone\n"), "{gone}");
    assert!(gone.stderr.contains("prun retry again starts it afresh"), "{gone}");
}

#[test]
fn continue_tells_the_worker_what_its_check_said() {
    let script = "cat > seen.txt; echo $PRUN_ATTEMPT > n.txt; result done n.txt";
    let keys = "retries = 0\nverify = \"echo expected two; grep -q 2 n.txt\"\n";
    let env = place("", &[unit("checked", script) + keys]);
    let id = run(&env);
    assert_eq!(verdict(&env, &id, "checked"), "failed(verify)");
    assert_eq!(env.prun("retry checked --continue").code, 0);
    assert_eq!(wait_for_end(&env, &id).code, 0);
    let prompt = read_if_there(&env.attempt("checked", 2).join("prompt.md"));
    assert!(prompt.contains("was not accepted") && prompt.contains("expected two"), "{prompt}");
}

#[test]
fn a_session_unit_is_handed_over_and_settles_when_it_is_submitted() {
    let session = "\n[[unit]]\nid = \"mail\"\nprompt = \"Read the mail.\"\nexecutor = \"session\"\n".to_owned();
    let env = place("", &[session, unit("quick", "echo q > q.txt; result")]);
    let id = start(&env);
    let handed = env.prun(&format!("wait {id}"));
    assert_eq!(handed.code, 3, "{handed}");
    let line = handed.stdout.lines().find(|line| line.starts_with("HANDOFF")).map(|line| env.normal(line));
    assert_snapshot!(line.unwrap_or_default(), @"HANDOFF mail   prun brief [run]/mail");
    wait_for_state(&env, &id, "quick", "settled");
    assert_snapshot!(env.prun(&format!("wait {id}")), @r"
    exit 3
    --- stdout
    [run] 1/2 done · 1 handed over · [span] · next [n]
    HANDOFF mail   prun brief [run]/mail
    ");
    let brief = env.prun(&format!("brief {id}/mail"));
    assert!(
        brief.stdout.starts_with("Read the mail.\n") && brief.stdout.contains(&format!("prun submit {id}/mail")),
        "{brief}"
    );
    assert_eq!(env.prun(&format!("submit {id}/quick")).code, 2);

    let clone = env.prun(&format!("path {id}/mail")).stdout;
    std::fs::write(env.at(clone.trim_end()).join("answer.txt"), "dear\n").unwrap();
    let result = env.prun(&format!("path {id}/mail --result")).stdout;
    let text =
        "# mail result\nConclusion: answered\nFiles: answer.txt\nOpen items: none\nVerification: none\n\nSent.\n";
    std::fs::write(result.trim_end(), text).unwrap();
    assert_snapshot!(env.prun(&format!("submit {id}/mail")), @r"
    exit 0
    --- stderr
    mail is being settled
    ");
    assert_snapshot!(wait_for_end(&env, &id), @r"
    exit 0
    --- stdout
    [run] 2/2 done · [span] · next [n]
    ended, all well   prun integrate [run] --dry-run
    ");
    assert_eq!(verdict(&env, &id, "mail"), "succeeded");
    assert_eq!(env.prun("diff mail --name-only").stdout, "answer.txt\n");
}

#[test]
fn a_session_unit_that_is_submitted_without_a_result_is_incomplete() {
    let session = "\n[[unit]]\nid = \"mail\"\nprompt = \"Read.\"\nexecutor = \"session\"\nretries = 0\n".to_owned();
    let env = place("", &[session]);
    let id = start(&env);
    assert_eq!(env.prun(&format!("wait {id}")).code, 3);
    assert_eq!(env.prun(&format!("submit {id}/mail")).code, 0);
    assert_eq!(wait_for_end(&env, &id).code, 3);
    assert_eq!(verdict(&env, &id, "mail"), "incomplete(no-result)");
}

#[test]
fn processes_that_a_worker_leaves_behind_are_ended() {
    let worker = built_program("fake-worker");
    let prompt = "#!fake\nfork-setsid\ndouble-fork\nwrite a.txt a\nresult\n#!end";
    let unit = format!("\n[[unit]]\nid = \"leaves\"\nprompt = '''{prompt}'''\ncommand = [\"{}\"]\n", worker.display());
    let env = place("", &[unit]);
    let id = run(&env);
    env.assert_all_gone();
    assert_eq!(verdict(&env, &id, "leaves"), "succeeded", "{}", env.prun("status"));
}

#[test]
fn setup_runs_in_each_clone_and_its_failure_is_told() {
    let head = "setup = \"test ! -e stop && echo ready > ready.txt\"";
    let env = place(head, &[unit("uses", "cat ready.txt; echo u > u.txt; result done u.txt")]);
    run(&env);
    assert_eq!(env.prun("logs uses").stdout.lines().last(), Some("ready"));
    let broken = place("setup = \"echo no network; exit 4\"", &[unit("never", "echo n > n.txt") + "retries = 0\n"]);
    let id = run(&broken);
    assert_eq!(verdict(&broken, &id, "never"), "failed(setup)");
    assert!(!broken.attempt("never", 1).join("clone/n.txt").exists());
}

/// C35.
#[test]
fn a_worker_sees_who_it_is_and_cannot_start_a_run() {
    let script = format!(
        "echo $PRUN_UNIT $PRUN_ATTEMPT $PRUN_DEPTH; {} run -p x --command true; echo $?; git remote; echo a > a.txt; result",
        crate::support::PRUN
    );
    let env = place("", &[unit("deep", &script)]);
    run(&env);
    assert_snapshot!(env.prun("logs deep"), @r"
    exit 0
    --- stdout
    deep 1 1
    error: this is a worker of prun at depth 1; it may not start a run of its own
    hint: say in your result what you would have split off
    hint: the plan of the outer run can allow it: depth = 1
    2
    --- stderr
    run [run] (deep)
    ");
    assert_eq!(env.run_ids().len(), 1);
}

#[test]
fn a_worker_that_writes_into_the_users_repository_is_noticed() {
    let env = place("", &[unit("naughty", "await go; echo n > n.txt; result")]);
    let id = start(&env);
    wait_for_state(&env, &id, "naughty", "running");
    env.git("config core.hooksPath /tmp/evil");
    open_gate(&env, "go");
    let ended = wait_for_end(&env, &id);
    assert_snapshot!(ended, @r"
    exit 3
    --- stdout
    [run] 1/1 done · [span] · next [n]
    TOUCHED the repository: the setting core.hookspath was added
    ");
}

#[test]
fn a_units_name_is_never_taken_for_the_beginning_of_a_runs() {
    let env = TestEnv::new(PRUN);
    env.write("prun.toml", plan("", &[unit("first", "echo f > f.txt; result")]));
    let id = run(&env);
    let name = &id[..1];
    env.write("prun.toml", plan("", &[unit(name, "echo second > second.txt; result")]));
    run(&env);
    assert_eq!(env.prun(&format!("diff {name} --name-only")).stdout, "second.txt\n");
    assert_eq!(env.prun(&format!("diff {id} --name-only")).stdout, "unit first\nf.txt\n");
    assert_eq!(env.prun(&format!("stop {name}")).code, 2, "two runs could be meant");
}

fn run_id(env: &TestEnv) -> String {
    env.run_ids().pop().unwrap()
}

fn verdict(env: &TestEnv, run: &str, unit: &str) -> String {
    unit_of(env, run, unit)["outcome"].as_str().unwrap_or("not settled").to_owned()
}
