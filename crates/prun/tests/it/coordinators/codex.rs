//! Codex.

use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use prun_testkit::clients::{Client, codex_args};
use prun_testkit::fake_model::Step;
use serde_json::Value;

use super::{World, assert_walked, by_shell, by_tools, said};

/// A machine with Codex, logged in.
pub(super) fn world() -> Option<World> {
    let world = World::new(Client::Codex, &[Client::Codex])?;
    log_in(&world);
    Some(world)
}

/// Codex gives servers and tools next to nothing of its environment, so the key has to be in its files, as a
/// user's login is.
fn log_in(world: &World) {
    let mut login = world.command(&world.at("bin/codex"), &["login", "--with-api-key"]);
    let mut login = login.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    login.stdin.take().unwrap().write_all(b"test-key").unwrap();
    let output = login.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
}

pub(super) fn session(world: &World, prompt: &str, steps: &[Step]) -> Vec<Value> {
    let model = codex_args(&world.server);
    let mut args = vec!["exec", "--json", "--sandbox", "danger-full-access", "--skip-git-repo-check"];
    args.extend(model.iter().map(String::as_str));
    args.push("-");
    world.session(&args, prompt, steps)
}

/// The MCP calls of a transcript and how each ended.
fn calls(transcript: &[Value]) -> Vec<String> {
    let done = transcript.iter().filter(|event| event["type"] == "item.completed");
    let calls = done.map(|event| &event["item"]).filter(|item| item["type"] == "mcp_tool_call");
    calls.map(|item| format!("{} {}", item["tool"].as_str().unwrap(), item["status"].as_str().unwrap())).collect()
}

#[test]
fn codex_coordinates_four_codex_workers_by_mcp() {
    let Some(world) = world() else { return };
    world.client_does(&["mcp", "add", "prun", "--", "prun", "mcp"]);
    let installed = world.prun(&["skill", "install", "--codex"]);
    assert!(installed.status.success(), "{}", said(&installed));

    let transcript = session(&world, "Use $prun to write the four winds.", &by_tools("mcp__prun"));
    assert_walked(&calls(&transcript));
    let seen = world.first_request();
    assert!(seen.contains("prun: Give independent units of work on a git repository"), "the skill is not offered");
    world.assert_landed();
}

#[test]
fn codex_coordinates_by_the_plugin() {
    let Some(world) = world() else { return };
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    world.client_does(&["plugin", "marketplace", "add", source.to_str().unwrap()]);
    world.client_does(&["plugin", "add", "prun@prun"]);
    let listed = world.client_does(&["mcp", "list"]);
    assert!(listed.contains("prun"), "{listed}");
    let transcript = session(&world, "Write the four winds.", &by_tools("mcp__prun"));
    assert_walked(&calls(&transcript));
    world.assert_landed();
    let seen = world.first_request();
    assert!(seen.contains("prun:prun: Give independent units of work"), "the plugin's skill is not offered");
}

#[test]
fn codex_coordinates_by_the_shell() {
    let Some(world) = world() else { return };
    session(&world, "Write the four winds.", &by_shell());
    world.assert_landed();
}

#[test]
fn prun_registers_itself_with_codex_once_and_takes_itself_out() {
    let Some(world) = world() else { return };
    let dry = world.registration(&["install", "--dry-run"]);
    assert!(dry.starts_with("codex mcp add prun -- ") && dry.ends_with(" mcp\n"), "{dry}");
    assert!(said(&world.client(&["mcp", "get", "prun"])).contains("No MCP server"), "a dry run registers nothing");
    assert_eq!(world.registration(&["install"]), "codex: registered\n");
    assert_eq!(world.registration(&["install"]), "codex: registered already\n");
    assert!(world.client_does(&["mcp", "get", "prun"]).contains("mcp"));
    assert_eq!(world.registration(&["uninstall"]), "codex: taken out\n");
    assert_eq!(world.registration(&["uninstall"]), "codex: nothing to do\n");
    world.client_does(&["mcp", "add", "prun", "--", "somebody-elses"]);
    let refused = world.registration(&["install"]);
    assert!(refused.contains("codex has another server of the name prun: somebody-elses"), "{refused}");
    assert!(world.registration(&["uninstall"]).contains("`codex mcp remove prun` takes it out"));
    let refused = world.registration(&["install", "--project"]);
    assert!(refused.contains("Codex knows servers for all projects only"), "{refused}");
}
