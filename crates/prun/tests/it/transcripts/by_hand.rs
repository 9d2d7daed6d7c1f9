//! The old verbs, from clones to a landing: workers that are dispatched by hand, watched, and made a run of.

use insta::assert_snapshot;
use prun_testkit::env::TestEnv;
use serde_json::json;

use super::{Shell, assert_untouched_but};
use crate::mcp::client::Client;
use crate::support::{PRUN, WORDS};

/// What stands for codex: it does what its prompt says.
const CODEX: &str = r#"prompt=$(cat); eval "$prompt""#;

/// Twenty prompts.
fn twenty() -> Shell {
    let mut env = TestEnv::new(PRUN);
    let codex = env.script("codex", CODEX);
    env.set("CODEX_BIN", codex);
    std::fs::create_dir(env.at("work")).unwrap();
    for at in 1..=20 {
        let result = env.at(&format!("work/part-{at}.result.md"));
        let words =
            WORDS.replace("$PRUN_RESULT", result.to_str().unwrap()).replace("$PRUN_UNIT", &format!("part-{at}"));
        let prompt = format!("{words}\necho {at} > part-{at}.txt; result 'wrote part {at}' part-{at}.txt\n");
        std::fs::write(env.at(&format!("work/part-{at}.md")), prompt).unwrap();
    }
    Shell::new(env)
}

/// Clones, dispatches and watches; the state dirs.
fn dispatch(shell: &Shell) -> String {
    shell.gets("for at in $(seq 20); do prun clone --base HEAD ../work/part-$at; done");
    // As a coordinator's shell does it: each in the background, its first line kept.
    shell.gets(
        "for at in $(seq 20); do
             PRUN_SCRATCH_CWD=../work/part-$at prun dispatch-task --prompt-file ../work/part-$at.md \
                 --result-file $PWD/../work/part-$at.result.md --unit-id part-$at > ../work/$at.line 2>/dev/null &
         done; wait",
    );
    let dirs = shell.gets("for at in $(seq 20); do sed 's/^STATE-DIR //' ../work/$at.line; done | tr '\\n' ' '");
    let watched = shell.gets(&format!("PRUN_MONITOR_STABLE_WINDOW=0 PRUN_MONITOR_POLL=1 prun monitor {dirs}"));
    assert!(
        watched.starts_with("MONITOR-START units=20 ") && watched.contains("MONITOR-EVENT all-done\n"),
        "{watched}"
    );
    assert_eq!(watched.lines().filter(|line| line.starts_with("UNIT ") && line.ends_with(" done")).count(), 20);
    let gathered = shell.gets("PRUN_GATHER_STABLE_WINDOW=0 prun gather $(seq -f ../work/part-%g.result.md 20)");
    assert_eq!(gathered.lines().filter(|line| line.starts_with("DONE ")).count(), 20, "{gathered}");
    dirs
}

#[test]
fn what_was_dispatched_by_hand_lands_by_a_shell() {
    let shell = twenty();
    let env = &shell.env;
    let head = env.git("rev-parse HEAD");
    let dirs = dispatch(&shell);
    let run = shell.gets(&format!("prun import {dirs}")).trim_end().to_owned();
    assert_snapshot!(shell.session(&[
        &format!("prun status {run} | head -1"),
        &format!("prun reconcile {run}"),
        &format!("prun integrate {run} --dry-run | tail -1"),
    ]), @r"
    $ prun status [run] | head -1
    [run] 20/20 done · [span] · next [n]
    $ prun reconcile [run]
    ready · 20 units go in · next: prun integrate [run] --dry-run
    $ prun integrate [run] --dry-run | tail -1
    ready · tree 31b01a2aa3ab · 20 files +20 -0 · not verified · 0 conflicts
    ");
    assert!(shell.gets(&format!("prun diff {run} --stat")).contains("unit part-20\n part-20.txt | 1 +\n"));
    assert_untouched_but(env, &head, "");
    let tree = crate::support::tree_shown(&shell.types(&format!("prun integrate {run} --dry-run")));
    shell.gets(&format!("prun integrate {run} --tree {tree}"));
    assert_eq!((env.read("part-20.txt"), env.git("rev-parse HEAD")), ("20\n".to_owned(), head));
    env.assert_all_gone();
}

#[test]
fn what_was_dispatched_by_hand_lands_by_tools() {
    let shell = twenty();
    let env = &shell.env;
    let head = env.git("rev-parse HEAD");
    let dirs = dispatch(&shell);
    let run = shell.gets(&format!("prun import {dirs}")).trim_end().to_owned();
    let mut client = Client::new(env);
    let (text, _) = client.good("status", json!({"run": run}));
    assert!(text.contains("20/20 done"), "{text}");
    let (text, _) = client.good("reconcile", json!({"run": run}));
    assert!(text.starts_with("ready · 20 units go in"), "{text}");
    let (text, _) = client.good("diff", json!({"run": run}));
    assert!(text.contains("part-20  1 file +1 -0"), "{text}");
    let (_, tried) = client.good("integrate", json!({"run": run}));
    assert_untouched_but(env, &head, "");
    client.good("integrate", json!({"run": run, "tree": tried["tree"]}));
    client.leave();
    assert_eq!((env.read("part-20.txt"), env.git("rev-parse HEAD")), ("20\n".to_owned(), head));
    env.assert_all_gone();
}
