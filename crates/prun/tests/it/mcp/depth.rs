//! A worker that finds prun cannot fan out again, whatever its client does to its environment.

use prun_testkit::env::TestEnv;
use serde_json::json;

use crate::support::{PRUN, place, plan, run, unit};

/// A shell line that starts prun as Codex starts a server: with next to nothing in its environment.
fn bare(env: &TestEnv, arguments: &str) -> String {
    format!("env -i PATH=\"$PATH\" PRUN_HOME='{}' {PRUN} {arguments} 2>&1", env.home().display())
}

/// A shell line that asks such a server to start a run.
fn ask_to_start(env: &TestEnv) -> String {
    let greeting = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "w", "version": "1"}}});
    let inner = json!({"version": 1, "unit": [{"id": "in", "mode": "read", "prompt": "x", "command": "true"}]});
    let start = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call",
        "params": {"name": "start", "arguments": {"plan": inner.to_string()}}});
    format!("printf '%s\\n' '{greeting}' '{start}' | {}", bare(env, "mcp"))
}

fn log(env: &TestEnv, id: &str) -> String {
    env.prun(&format!("logs {id} -n 0")).stdout
}

#[test]
fn a_worker_is_refused_by_server_and_shell_also_without_its_variables() {
    let env = TestEnv::new(PRUN);
    let script =
        format!("{}; {}; echo a > a; result", ask_to_start(&env), bare(&env, "run -d -p x --read --command true"));
    env.write("prun.toml", plan("", &[unit("deep", &script)]));
    run(&env);
    let log = log(&env, "deep");
    // The server says it in text and in data.
    assert_eq!(log.matches("this is a worker of prun at depth 1").count(), 3, "{log}");
    assert_eq!(env.run_ids().len(), 1);
    env.assert_all_gone();
}

#[test]
fn a_plan_can_allow_one_level_more_and_no_further() {
    let env = TestEnv::new(PRUN);
    let inner = format!("{PRUN} run -p y --read --command true 2>&1; echo code $?; result");
    let inner = json!({"version": 1, "title": "inner", "unit": [
        {"id": "in", "mode": "read", "prompt": "x", "command": format!("{}{inner}", crate::support::WORDS)}]});
    std::fs::write(env.at("inner.json"), inner.to_string()).unwrap();
    let outer = unit("out", "\"$PRUN\" run \"$INNER\"; echo a > a; result");
    env.write("prun.toml", plan("depth = 1\n[defaults]\nretries = 0", &[outer]));
    let mut env = env;
    env.set("PRUN", PRUN);
    env.set("INNER", env.at("inner.json"));
    run(&env);
    let runs = env.run_ids();
    assert_eq!(runs.len(), 2, "{}", log(&env, "out"));
    let inner = runs[1].rsplit('-').next().unwrap();
    let log = log(&env, &format!("{inner}/in"));
    assert!(log.contains("this is a worker of prun at depth 2"), "{log}");
    assert!(log.contains("code 2"), "{log}");
    env.assert_all_gone();
}

#[test]
fn a_plan_allows_no_more_levels_than_anybody_can_pay() {
    let env = place("depth = 4", &[unit("a", "true")]);
    let checked = env.prun("check");
    assert_eq!(checked.code, 2);
    assert!(checked.stderr.contains("`depth` is 0 to 3, not 4"), "{checked}");
}
