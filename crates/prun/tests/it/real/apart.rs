//! Workers are kept apart from what a user has configured for himself.

use prun_core::outcome::Outcome;
use prun_testkit::clients::Client;
use serde_json::json;

use super::{Bench, work};

/// An MCP server that starts and never says a word, and leaves a trace.
fn hanging_server(bench: &Bench) -> (String, Vec<String>) {
    let trace = bench.at("mcp-started");
    ("/bin/sh".to_owned(), vec!["-c".to_owned(), format!("touch {}; exec tail -f /dev/null", trace.display())])
}

#[test]
fn a_users_own_configuration_does_not_reach_codex_workers() {
    let Some(bench) = Bench::new(Client::Codex) else { return };
    let (command, args) = hanging_server(&bench);
    let config = format!("model = \"of-the-user\"\n[mcp_servers.hang]\ncommand = {command:?}\nargs = {args:?}\n");
    std::fs::write(bench.home.path().join(".codex/config.toml"), config).unwrap();
    let ended = bench.run(&work());
    assert_eq!(ended.outcome, Outcome::Succeeded, "{:?} {}", ended.facts, bench.tail());
    assert!(!bench.at("mcp-started").exists());
    assert!(bench.server.bodies().iter().all(|body| body["model"] != "of-the-user"));
}

#[test]
fn a_users_own_configuration_does_not_reach_claude_workers() {
    let Some(bench) = Bench::new(Client::Claude) else { return };
    let (command, args) = hanging_server(&bench);
    let home = bench.home.path();
    let servers = json!({"mcpServers": {"hang": {"type": "stdio", "command": command, "args": args}}});
    std::fs::write(home.join(".claude.json"), servers.to_string()).unwrap();
    std::fs::create_dir(home.join(".claude")).unwrap();
    let hook =
        json!([{"hooks": [{"type": "command", "command": format!("touch {}", bench.at("hook-ran").display())}]}]);
    let hooks = json!({"hooks": {"SessionStart": hook, "UserPromptSubmit": hook}, "model": "of-the-user"});
    std::fs::write(home.join(".claude/settings.json"), hooks.to_string()).unwrap();
    std::fs::write(home.join(".claude/CLAUDE.md"), "A WORD OF THE USER'S OWN").unwrap();
    // The same beside the code: a repository's servers start for nobody, its CLAUDE.md is read.
    std::fs::write(bench.at("work/.mcp.json"), servers.to_string()).unwrap();
    std::fs::write(bench.at("work/CLAUDE.md"), "A WORD OF THE REPOSITORY'S").unwrap();
    let ended = bench.run(&work());
    assert_eq!(ended.outcome, Outcome::Succeeded, "{:?} {}", ended.facts, bench.tail());
    assert!(!bench.at("mcp-started").exists() && !bench.at("hook-ran").exists());
    let asked = serde_json::to_string(&bench.server.bodies()).unwrap();
    assert!(asked.contains("A WORD OF THE REPOSITORY'S") && !asked.contains("A WORD OF THE USER'S OWN"));
    assert!(!asked.contains("of-the-user"));
}

#[test]
fn clients_work_without_a_home() {
    for client in [Client::Codex, Client::Claude] {
        let Some(mut bench) = Bench::new(client) else { return };
        bench.env.retain(|(name, _)| name != "HOME" && name != "CODEX_HOME");
        let ended = bench.run(&work());
        assert_eq!(ended.outcome, Outcome::Succeeded, "{client:?} {:?} {}", ended.facts, bench.tail());
    }
}
