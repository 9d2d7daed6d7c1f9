//! What a run is started from: a plan on stdin, JSON, prompts on the command line, and a dirty tree.

use insta::assert_snapshot;
use prun_testkit::env::{TestEnv, read_if_there};

use crate::support::{PRUN, json, place, plan, run, start, tree_shown, unit, unit_of, wait_for_end, wait_for_state};

const COMMAND: &str = "printf '# %s result\\nConclusion: %s\\nFiles: see\\nOpen items: none\\nVerification: none\\n\\nx\\n' \
                       $PRUN_UNIT \"$(head -n 1)\" > $PRUN_RESULT; echo $PRUN_UNIT > $PRUN_UNIT.txt";

#[test]
fn prompts_on_the_command_line_make_a_run() {
    let env = TestEnv::new(PRUN);
    let ran = env.prun_args(&["run", "-p", "First thing", "-p", "Second thing", "--command", COMMAND]);
    assert_eq!(ran.code, 0, "{ran}");
    assert_snapshot!(env.prun("result --brief"), @r"
    exit 0
    --- stdout
    p1  succeeded: First thing
    p2  succeeded: Second thing
    --- stderr
    run [run] (First thing)
    ");
    let read = env.prun_args(&["run", "--read", "-p", "Look", "--command", COMMAND, "-d"]);
    assert_eq!(read.code, 0, "{read}");
    assert_eq!(env.prun(&format!("wait {}", read.stdout.trim_end())).code, 0);
    // The same prompts are the same plan only while they run.
    assert_eq!(env.run_ids().len(), 2);
}

#[test]
fn a_plan_is_read_from_stdin_and_as_json() {
    let env = TestEnv::new(PRUN);
    let toml = plan("title = \"From stdin\"", &[unit("a", "echo a > a.txt; result")]);
    let ran = env.prun_fed("run -", &toml);
    assert_eq!(ran.code, 0, "{ran}");
    let checked = env.prun_fed("check -", "version = 2\n");
    assert_snapshot!(checked, @r"
    exit 2
    --- stderr
    error: -:1:1: the plan has no unit
    hint: add one: [[unit]] with id and prompt
    -:1:11: `version` is 2; this prun reads plans of version 1
    ");
    let plan = serde_json::json!({
        "version": 1,
        "title": "As JSON",
        "unit": [{ "id": "j", "prompt": "Say it", "command": ["sh", "-c", COMMAND] }],
    });
    env.write("plan.json", plan.to_string());
    let by_file = env.prun("run plan.json");
    assert_eq!(by_file.code, 0, "{by_file}");
    std::fs::remove_file(env.repo().join("plan.json")).unwrap();
    let by_stdin = env.prun_fed("run -", &plan.to_string());
    assert_eq!(by_stdin.code, 0, "{by_stdin}");
    assert_eq!(json(&env, "status --json")["title"], "As JSON");
    assert_eq!(env.git("status --porcelain -uall"), "", "the tree is as it was");
}

/// A tree with a changed, a staged, a removed and some new files.
fn dirty() -> TestEnv {
    let look = "cat src/one.txt; ls; test -e new/9.txt && echo sees the new ones; echo u > u.txt; result done u.txt";
    let env = place("", &[unit("looks", look)]);
    env.write("src/one.txt", "one, changed\n");
    env.write("staged.txt", "staged\n");
    env.git("add staged.txt");
    std::fs::remove_file(env.repo().join("README.md")).unwrap();
    for number in 0..12 {
        env.write(&format!("new/{number}.txt"), "new\n");
    }
    env
}

#[test]
fn uncommitted_work_must_be_decided_on() {
    let env = dirty();
    let before = (env.tree("home"), env.tree("repo"));
    let said = env.prun("run").to_string();
    assert_snapshot!(said, @r#"
    exit 2
    --- stderr
    warning: prun.toml:5:6: looks has no `verify`, and the plan has none either
    error: prun.toml: 15 uncommitted files, and the plan does not say `dirty`:
      README.md
      new/0.txt
      new/1.txt
      new/10.txt
      new/11.txt
      new/2.txt
      new/3.txt
      new/4.txt
      new/5.txt
      new/6.txt
      and 5 more
    hint: say dirty = "include" (units see them) or dirty = "ignore" (they do not)
    "#);
    assert_eq!(env.prun("check").to_string(), said);
    assert_eq!(before.0.changes(&env.tree("home")), [""; 0]);
    assert_eq!(before.1.changes(&env.tree("repo")), [""; 0]);
}

#[test]
fn included_work_is_seen_and_never_comes_back_as_a_change() {
    let env = dirty();
    let before = env.tree("repo");
    let ran = env.prun("run --dirty include");
    assert_eq!(ran.code, 0, "{ran}");
    assert_snapshot!(env.prun("logs looks"), @r"
    exit 0
    --- stdout
    one, changed
    new
    src
    staged.txt
    sees the new ones
    --- stderr
    run [run] (looks)
    ");
    assert_eq!(env.prun("diff looks --name-only").stdout, "u.txt\n");
    assert_eq!(before.changes(&env.tree("repo")), [""; 0]);
    let dry_run = env.prun("integrate --dry-run");
    assert_snapshot!(dry_run, @r"
    exit 0
    --- stdout
      u.txt  looks
    ready · tree dc05dfef216f · 1 file +1 -0 · not verified · 0 conflicts
    --- stderr
    run [run] (looks)
    ");
    assert_eq!(env.prun(&format!("integrate --tree {}", tree_shown(&dry_run))).code, 0);
    assert_eq!(before.changes(&env.tree("repo")), ["+u.txt"]);
}

#[test]
fn ignored_work_is_named_in_the_brief() {
    let env = dirty();
    let before = env.tree("repo");
    let ran = env.prun("run --dirty ignore");
    assert_eq!(ran.code, 0, "{ran}");
    assert_snapshot!(env.prun("logs looks"), @r"
    exit 0
    --- stdout
    one
    README.md
    src
    --- stderr
    run [run] (looks)
    ");
    let brief = env.prun("brief looks");
    assert!(brief.stdout.contains("You cannot see: 15 uncommitted files"), "{brief}");
    let dry_run = env.prun("integrate --dry-run");
    assert_eq!(env.prun(&format!("integrate --tree {}", tree_shown(&dry_run))).code, 0, "{dry_run}");
    assert_eq!(before.changes(&env.tree("repo")), ["+u.txt"]);
}

#[test]
fn the_plan_and_its_prompt_files_never_count_as_uncommitted() {
    let env = TestEnv::new(PRUN);
    env.write("prompts/a.md", "Do a.\n");
    env.write("prompts/context.md", "We are here.\n");
    let text = "context_file = \"prompts/context.md\"\n[[unit]]\nid = \"a\"\nprompt_file = \"prompts/a.md\"\n";
    env.write("prun.toml", format!("version = 1\n{text}command = '''{COMMAND}'''\n"));
    let id = run(&env);
    let prompt = read_if_there(&env.attempt("a", 1).join("prompt.md"));
    assert!(prompt.starts_with("We are here.\n\nDo a.\n\n---\n"), "{prompt}");
    assert!(!prompt.contains("You cannot see"), "{prompt}");
    assert_eq!(unit_of(&env, &id, "a")["conclusion"], "We are here.");
}

#[test]
fn a_home_inside_the_repository_is_no_uncommitted_work() {
    let mut env = place("", &[unit("a", "echo a > a.txt; result")]);
    env.set("PRUN_HOME", env.repo().join(".prun"));
    for _ in 0..2 {
        let ran = env.prun("run");
        assert_eq!(ran.code, 0, "{ran}");
    }
    assert_eq!(env.prun("diff a --name-only").stdout, "a.txt\n");
    assert_eq!(env.prun("integrate --dry-run").code, 0);
}

#[test]
fn a_runtime_directory_that_is_too_deep_for_a_socket_does_not_stop_a_run() {
    let mut env = place("", &[unit("a", "await go; echo a > a.txt; result")]);
    let deep = env.at(&format!("run/{}", "deep/".repeat(30)));
    std::fs::create_dir_all(&deep).unwrap();
    env.set("XDG_RUNTIME_DIR", deep);
    let id = start(&env);
    wait_for_state(&env, &id, "a", "running");
    let stopped = env.prun(&format!("stop {id}/a"));
    assert_eq!(stopped.code, 0, "{stopped}");
    assert_eq!(wait_for_end(&env, &id).code, 3);
}
