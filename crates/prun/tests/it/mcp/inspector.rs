//! The MCP Inspector's command line lists the tools and calls each of them.

use std::process::{Command, Stdio};

use prun_testkit::clients;
use prun_testkit::env::TestEnv;
use serde_json::Value;

use crate::support::{PRUN, place, run, unit};

struct Inspector<'a> {
    env: &'a TestEnv,
    program: std::path::PathBuf,
}

impl Inspector<'_> {
    fn ask(&self, args: &[&str]) -> Value {
        let mut command: Command = self.env.program("node");
        command.arg(&self.program);
        command.args([PRUN, "mcp"]).args(args);
        let output = command.stdin(Stdio::null()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        serde_json::from_str(&text)
            .unwrap_or_else(|error| panic!("{args:?}: {error}: {text}{}", String::from_utf8_lossy(&output.stderr)))
    }

    /// Calls a tool; whether it succeeded.
    fn call(&self, tool: &str, args: &[&str]) -> bool {
        let mut line = vec!["--method", "tools/call", "--tool-name", tool];
        line.extend(args.iter().flat_map(|arg| ["--tool-arg", arg]));
        let answer = self.ask(&line);
        assert!(
            answer["content"][0]["text"].is_string() && answer["structuredContent"].is_object(),
            "{tool}: {answer}"
        );
        answer["isError"] != true
    }
}

#[test]
fn the_inspector_lists_and_calls_every_tool() {
    let Some(program) = clients::inspector() else { return };
    let fails = unit("bad", "exit 3") + "retries = 0\n";
    let env = place("", &[unit("a", "echo a > a.txt; result"), fails]);
    let inspector = Inspector { env: &env, program };
    let listed = inspector.ask(&["--method", "tools/list"]);
    let mut left: Vec<String> =
        listed["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect();
    run(&env);
    let tree = {
        env.prun("exclude bad -m later");
        let shown = env.prun("integrate --dry-run");
        env.prun("unreview bad");
        crate::support::tree_shown(&shown)
    };
    let tree = format!("tree={tree}");
    let walk: &[(&str, &[&str], bool)] = &[
        ("check", &[], true),
        ("start", &["plan_file=none.toml"], false),
        ("wait", &["timeout_s=1"], true),
        ("status", &[], true),
        ("result", &["unit=a"], true),
        ("logs", &["unit=bad"], true),
        ("brief", &["unit=a"], true),
        ("diff", &["unit=a", "file=a.txt"], true),
        ("compare", &["unit=a"], false),
        ("usage", &[], true),
        ("reconcile", &[], true),
        ("accept", &["unit=bad", "why=nothing to land"], false),
        ("submit", &["unit=a"], false),
        ("stop", &["unit=a"], false),
        ("exclude", &["unit=bad", "why=wrong idea"], true),
        ("integrate", &[], true),
        ("integrate", &[&tree], false),
        ("retry", &["unit=bad", "message=again"], true),
    ];
    for (tool, args, succeeds) in walk {
        assert_eq!(inspector.call(tool, args), *succeeds, "{tool} {args:?}");
        left.retain(|name| name != tool);
    }
    assert_eq!(left, [""; 0], "these were not called");
    crate::support::wait_for_end(&env, env.run_ids()[0].rsplit('-').next().unwrap());
}
