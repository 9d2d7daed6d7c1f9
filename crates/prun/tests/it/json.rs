//! The shapes of `--json`: published as schemas, and printed as published.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use prun_testkit::clients::node_modules;
use prun_testkit::env::TestEnv;
use serde_json::{Value, json};

use crate::json_pages;
use crate::support::{PRUN, place, tree_shown, unit};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

fn names(env: &TestEnv) -> Vec<String> {
    let listed = env.prun("schema").stdout;
    listed.lines().map(|line| line.split(' ').next().unwrap().to_owned()).collect()
}

/// Holds each document against the published schema of its name, by a validator that is not ours.
fn assert_valid(documents: &[(String, Value)]) {
    const SCRIPT: &str = r#"
        const { default: Ajv } = require("ajv/dist/2020");
        const ajv = new Ajv({ strict: false, logger: false });
        const { docs, documents } = JSON.parse(require("fs").readFileSync(0, "utf8"));
        const validators = {};
        for (const [name, document] of documents) {
            validators[name] ??= ajv.compile(require(`${docs}/${name}.json`));
            if (!validators[name](document)) {
                console.log(name, ajv.errorsText(validators[name].errors), JSON.stringify(document));
            }
        }"#;
    let Some(modules) = node_modules() else { return };
    let mut node = Command::new("node");
    node.args(["-e", SCRIPT]).env("NODE_PATH", modules).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut node = node.spawn().unwrap();
    let given = json!({"docs": docs().join("schema").canonicalize().unwrap(), "documents": documents});
    node.stdin.take().unwrap().write_all(given.to_string().as_bytes()).unwrap();
    let output = node.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
}

/// `PRUN_UPDATE=1` writes the files.
#[test]
fn the_schemas_in_the_docs_are_up_to_date_and_the_page_names_each() {
    let env = TestEnv::new(PRUN);
    let page = std::fs::read_to_string(docs().join("json.md")).unwrap();
    for name in names(&env) {
        let path = docs().join(format!("schema/{name}.json"));
        let wanted = env.prun(&format!("schema {name}")).stdout;
        if std::env::var_os("PRUN_UPDATE").is_some() {
            std::fs::write(&path, &wanted).unwrap();
        }
        let now = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(now, wanted, "docs/schema/{name}.json is stale; run this test with PRUN_UPDATE=1");
        assert!(page.contains(&format!("| [{name}](json/{name}.md) |")), "docs/json.md does not name {name}");
        let path = docs().join(format!("json/{name}.md"));
        let wanted = json_pages::page(&name, &serde_json::from_str(&wanted).unwrap());
        if std::env::var_os("PRUN_UPDATE").is_some() {
            std::fs::write(&path, &wanted).unwrap();
        }
        let now = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(now, wanted, "docs/json/{name}.md is stale; run this test with PRUN_UPDATE=1");
    }
    let refused = env.prun("schema nonsense");
    assert_eq!(refused.code, 2, "{refused}");
}

#[test]
fn what_is_printed_is_as_published() {
    let fails = unit("bad", "echo oops; exit 3");
    let ask = unit("ask", "echo x > repo/x.txt; result yes none") + "mode = \"read\"\nsamples = 2\n";
    let units = [unit("a", "echo a > a.txt; result 'wrote a'"), unit("b", "echo b >> src/one.txt; result"), fails, ask];
    let env = place("verify = \"test -e README.md\"\n[defaults]\nretries = 0", &units);
    let mut seen = Vec::new();
    let mut check = |name: &str, line: &str, code: i32| -> Value {
        let printed = env.prun(line);
        assert_eq!(printed.code, code, "{line}: {printed}");
        let document: Value =
            serde_json::from_str(&printed.stdout).unwrap_or_else(|error| panic!("{line}: {error}: {printed}"));
        assert_eq!(document["version"], 1, "{line}");
        seen.push((name.to_owned(), document.clone()));
        document
    };
    check("check", "check --json", 0);
    check("executors", "executors --json", 0);
    let run = check("run", "run -d --json", 0)["run"].as_str().unwrap().to_owned();
    env.wait_until("the run has ended", || {
        env.prun(&format!("wait {run} --timeout 1")).code != 124 && {
            let status: Value = serde_json::from_str(&env.prun(&format!("status {run} --json")).stdout).unwrap();
            status["state"] == "ended"
        }
    });
    check("wait", &format!("wait {run} --json"), 3);
    check("status", &format!("status {run} --json"), 0);
    check("runs", "runs --json", 0);
    check("result", &format!("result {run}/a --json"), 0);
    check("brief", &format!("result {run} --brief --json"), 0);
    check("explain", &format!("explain {run}/bad --json"), 0);
    check("diff", &format!("diff {run} --json"), 0);
    check("diff", &format!("diff {run}/b --json"), 0);
    check("compare", &format!("compare {run}/ask --json"), 0);
    check("reconcile", &format!("reconcile {run} --json"), 5);
    assert_eq!(env.prun_args(&["exclude", &run, "-m", "x"]).code, 2);
    assert_eq!(env.prun_args(&["exclude", &format!("{run}/bad"), "-m", "wrong"]).code, 0);
    check("reconcile", &format!("reconcile {run} --json"), 0);
    check("usage", &format!("usage {run} --json"), 0);
    check("integrate", &format!("integrate {run} --dry-run --json"), 0);
    let tree = tree_shown(&env.prun(&format!("integrate {run} --dry-run")));
    check("clean", &format!("clean {run} --json"), 0);
    check("landed", &format!("integrate {run} --tree {tree} --json"), 0);
    let cleaned = check("clean", &format!("clean {run} --yes --json"), 0);
    assert!(cleaned["removed"] == true && cleaned["bytes"].as_u64() > Some(0), "{cleaned}");

    // How the machine is decides the exit code.
    seen.push(("doctor".to_owned(), serde_json::from_str(&env.prun("doctor --json").stdout).unwrap()));
    let events = env.prun(&format!("events {run}"));
    let mut last = 0;
    for line in events.stdout.lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        assert!(event["seq"].as_u64().unwrap() > last, "{event}");
        last = event["seq"].as_u64().unwrap();
        seen.push(("events".to_owned(), event));
    }
    assert_eq!(env.prun(&format!("events {run} --since {last}")).stdout, "");
    assert_eq!(env.prun(&format!("events {run} -f")).stdout, events.stdout, "an ended run has no more to say");

    for (line, code) in [
        ("status nope --json", 2),
        ("integrate --json", 5),
        ("result --json --nonsense", 2),
        ("check none.toml --json", 2),
    ] {
        let failed = env.prun(line);
        assert_eq!(failed.code, code, "{line}: {failed}");
        if line.starts_with("check") {
            let checked: Value = serde_json::from_str(&failed.stdout).unwrap();
            seen.push(("check".to_owned(), checked));
            continue;
        }
        assert_eq!(failed.stdout, "", "{line}");
        let error: Value =
            serde_json::from_str(failed.stderr.lines().last().unwrap()).unwrap_or_else(|_| panic!("{failed}"));
        assert_eq!(error["error"]["exit_code"], code, "{line}");
        seen.push(("error".to_owned(), error));
    }
    let unseen: Vec<String> =
        names(&env).into_iter().filter(|name| !seen.iter().any(|(seen, _)| seen == name)).collect();
    assert_eq!(unseen, [""; 0], "no test prints these");
    assert_valid(&seen);
}

#[test]
fn a_stream_of_events_can_be_followed() {
    let env = place("", &[unit("a", "await go; echo a > a; result")]);
    let run = crate::support::start(&env);
    let follow = env.start(&["events", &run, "-f"]);
    crate::support::wait_for_state(&env, &run, "a", "running");
    crate::support::open_gate(&env, "go");
    let printed = env.finish(follow);
    assert_eq!(printed.code, 0, "{printed}");
    let last: Value = serde_json::from_str(printed.stdout.lines().last().unwrap()).unwrap();
    assert_eq!(last["event"], "run-ended", "{printed}");
    env.assert_all_gone();
}

/// The commands without `--json`, and why.
const WITHOUT: &[(&str, &[&str])] = &[
    (
        "changes something and says so in a sentence",
        &["accept", "exclude", "unreview", "retry", "stop", "resume", "submit", "undo", "harvest", "ledger"],
    ),
    ("prints what it made: a path or a run's name", &["clone", "import", "init", "path"]),
    ("prints a text as it is", &["brief", "logs", "completions", "man"]),
    ("prints JSON in any case", &["events"]),
    ("shows a run as it goes on; `events -f` is its data", &["attach", "demo"]),
    ("the lines of the contract", &["dispatch-task", "gather", "monitor", "reap-orphans"]),
    ("sets something up", &["mcp", "skill"]),
];

#[test]
fn every_command_that_shows_state_has_json() {
    let env = TestEnv::new(PRUN);
    let help = env.prun("--help").stdout;
    let commands = help.split("Commands:").nth(1).unwrap().split("Options:").next().unwrap();
    let names = commands.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let names: Vec<&str> = names.filter(|name| !name.is_empty() && *name != "help").collect();
    assert!(names.len() > 30, "{names:?}");
    for name in names {
        let has_json = env.prun(&format!("{name} --help")).stdout.contains("--json");
        let reason = WITHOUT.iter().find(|(_, commands)| commands.contains(&name)).map(|(why, _)| why);
        assert!(has_json != reason.is_some(), "{name}: --json {has_json}, {reason:?}");
    }
}
