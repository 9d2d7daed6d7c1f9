//! Claude Code, with workers of both vendors.

use std::path::Path;

use prun_testkit::clients::Client;
use prun_testkit::fake_model::Step;
use serde_json::{Value, json};

use super::{PRUN, World, assert_walked, by_shell, by_tools, said};

pub(super) fn world() -> Option<World> {
    World::new(Client::Claude, &[Client::Codex, Client::Claude])
}

/// `tools` are those that need no question: what a user allows once in the terminal.
pub(super) fn session(world: &World, tools: &str, more: &[&str], prompt: &str, steps: &[Step]) -> Vec<Value> {
    let args = ["-p", "--output-format", "stream-json", "--verbose", "--allowedTools", tools];
    world.session(&[&args[..], more].concat(), prompt, steps)
}

/// The blocks of this kind in the messages of a transcript.
fn blocks<'a>(transcript: &'a [Value], kind: &str) -> impl Iterator<Item = &'a Value> {
    let messages = transcript.iter().filter_map(|event| event["message"]["content"].as_array());
    messages.flatten().filter(move |block| block["type"] == kind)
}

/// The calls of prun's tools in a transcript, by the names that stand after `server`, and how each ended.
fn calls(transcript: &[Value], server: &str) -> Vec<String> {
    let call = |block: &Value| {
        let tool = block["name"].as_str()?.strip_prefix(server)?.strip_prefix("__")?;
        let result = blocks(transcript, "tool_result").find(|result| result["tool_use_id"] == block["id"])?;
        Some(format!("{tool} {}", if result["is_error"] == true { "failed" } else { "completed" }))
    };
    blocks(transcript, "tool_use").filter_map(call).collect()
}

/// What a session does before it can call a tool: Claude Code tells its model no more than the names.
pub(super) fn load(server: &str) -> Step {
    let names = ["check", "start", "wait", "result", "diff", "reconcile", "integrate"];
    let names: Vec<String> = names.iter().map(|name| format!("{server}__{name}")).collect();
    Step::call("ToolSearch", json!({"query": format!("select:{}", names.join(",")), "max_results": names.len()}))
}

#[test]
fn claude_coordinates_workers_of_both_vendors_by_mcp() {
    let Some(world) = world() else { return };
    assert_eq!(world.registration(&["install"]), "claude: registered\n");
    let installed = world.prun(&["skill", "install", "--claude"]);
    assert!(installed.status.success(), "{}", said(&installed));
    let mut steps = vec![Step::call("Skill", json!({"skill": "prun"})), load("mcp__prun")];
    steps.extend(by_tools("mcp__prun"));
    let transcript = session(&world, "mcp__prun,Skill", &[], "Use the skill prun to write the four winds.", &steps);
    assert_eq!(transcript[0]["mcp_servers"][0]["status"], "connected", "{}", transcript[0]);
    let seen = world.first_request();
    assert!(seen.contains("prun: Give independent units of work on a git repository"), "the skill is not offered");
    let pages =
        blocks(&transcript, "text").filter(|block| block["text"].to_string().contains("# prun: fan a task out"));
    assert_eq!(pages.count(), 1, "the skill was not read");
    assert_walked(&calls(&transcript, "mcp__prun"));
    world.assert_landed();
}

#[test]
fn claude_coordinates_by_the_plugin() {
    let Some(world) = world() else { return };
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    world.client_does(&["plugin", "validate", source.to_str().unwrap()]);
    world.client_does(&["plugin", "marketplace", "add", source.to_str().unwrap()]);
    world.client_does(&["plugin", "install", "prun@prun"]);
    let server = "mcp__plugin_prun_prun";
    let mut steps = vec![Step::call("Skill", json!({"skill": "prun:prun"})), load(server)];
    steps.extend(by_tools(server));
    let transcript = session(&world, &format!("{server},Skill"), &[], "Write the four winds.", &steps);
    let seen = world.first_request();
    assert!(seen.contains("prun:prun: Give independent units of work"), "the plugin's skill is not offered");
    assert_walked(&calls(&transcript, server));
    world.assert_landed();
}

#[test]
fn claude_takes_the_plugins_folder_as_it_is() {
    let Some(world) = world() else { return };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../skills").canonicalize().unwrap();
    let server = "mcp__plugin_prun_prun";
    let steps = [Step::call(format!("{server}__check"), json!({})), Step::text("It can start.")];
    let transcript = session(&world, server, &["--plugin-dir", folder.to_str().unwrap()], "Check the plan.", &steps);
    assert_eq!(calls(&transcript, server), ["check completed"]);
    let commands = transcript[0]["slash_commands"].to_string();
    assert!(commands.contains("\"prun:fan-out\"") && commands.contains("\"prun:prun\""), "{commands}");
}

#[test]
fn claude_coordinates_by_the_shell() {
    let Some(world) = world() else { return };
    let transcript = session(&world, "Bash", &[], "Write the four winds.", &by_shell());
    let failed: Vec<&Value> = blocks(&transcript, "tool_result").filter(|block| block["is_error"] == true).collect();
    assert!(failed.is_empty(), "{failed:?}");
    world.assert_landed();
}

#[test]
fn prun_registers_itself_with_claude_once_and_takes_itself_out() {
    let Some(world) = world() else { return };
    let has_it = || world.client(&["mcp", "get", "prun"]).status.success();
    let dry = world.registration(&["install", "--dry-run"]);
    assert!(dry.starts_with("claude mcp add -s user prun -- /") && dry.ends_with(" mcp\n"), "{dry}");
    assert!(!has_it(), "a dry run registers nothing");
    assert_eq!(world.registration(&["install"]), "claude: registered\n");
    assert_eq!(world.registration(&["install"]), "claude: registered already\n");
    assert!(world.client_does(&["mcp", "get", "prun"]).contains("Connected"));
    // Each scope is a registration of its own, and the repository's file says nothing of this machine.
    assert_eq!(world.registration(&["install", "--project"]), "claude: registered\n");
    assert_eq!(world.registration(&["install", "--project"]), "claude: registered already\n");
    let shared = std::fs::read_to_string(world.at("repo/.mcp.json")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&shared).unwrap()["mcpServers"]["prun"]["command"], "prun");
    assert_eq!(world.registration(&["uninstall", "--dry-run"]), "claude mcp remove -s user prun\n");
    assert_eq!(world.registration(&["uninstall"]), "claude: taken out\n");
    assert_eq!(world.registration(&["uninstall"]), "claude: nothing to do\n");
    assert!(has_it(), "the repository's stays");
    assert_eq!(world.registration(&["uninstall", "--project"]), "claude: taken out\n");
    assert!(!has_it());
}

#[test]
fn an_entry_of_claudes_that_somebody_edited_is_neither_written_over_nor_taken_out() {
    let Some(world) = world() else { return };
    world.client_does(&["mcp", "add", "-s", "user", "prun", "-e", "PRUN_HOME=/elsewhere", "--", PRUN, "mcp"]);
    for act in ["install", "uninstall"] {
        let refused = world.registration(&[act]);
        let words = format!("claude has another server of the name prun: {PRUN} mcp, with an environment of its own");
        assert!(refused.contains(&words), "{refused}");
        assert!(refused.contains("`claude mcp remove -s user prun` takes it out"), "{refused}");
    }
    let entry = std::fs::read_to_string(world.home.path().join(".claude.json")).unwrap();
    assert!(entry.contains("/elsewhere"), "{entry}");
}
