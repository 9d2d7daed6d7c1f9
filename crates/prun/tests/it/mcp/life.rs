//! The connection's life: greeting, bad lines, cancelling, leaving.

use std::time::Duration;

use prun_testkit::env::TestEnv;
use serde_json::{Value, json};

use super::client::Client;
use crate::support::{PRUN, open_gate, place, unit, wait_for_end, wait_for_state};

/// How long an answer may take that is owed: generous, for a loaded machine must not fail a test.
const PATIENCE: Duration = Duration::from_secs(60);

/// C119.
#[test]
fn every_version_of_the_protocol_is_spoken_and_an_unknown_one_answered_with_our_own() {
    let env = TestEnv::new(PRUN);
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut client = Client::silent(&env);
        assert_eq!(client.handshake(version), version);
        assert!(client.request("tools/list", json!({}))["result"]["tools"].as_array().unwrap().len() > 10);
    }
    let mut client = Client::silent(&env);
    assert_eq!(client.handshake("1999-12-31"), "2025-11-25");
    assert_eq!(client.request("ping", json!({}))["result"], json!({}));
}

#[test]
fn the_newest_version_needs_no_greeting() {
    let env = TestEnv::new(PRUN);
    let mut client = Client::silent(&env);
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let found = client.request("server/discover", json!({"_meta": meta}));
    assert!(found["result"].to_string().contains("2026-07-28"), "{found}");
    let tools = client.request("tools/list", json!({"_meta": meta}));
    assert!(tools["result"]["tools"].as_array().is_some(), "{tools}");
}

/// C119.
#[test]
fn what_comes_before_the_greeting_is_refused_and_the_greeting_still_taken() {
    let env = TestEnv::new(PRUN);
    let mut client = Client::silent(&env);
    client.notify("notifications/initialized", json!({}));
    client.notify("notifications/cancelled", json!({"requestId": 5}));
    let refused = client.request("tools/call", json!({"name": "status", "arguments": {}}));
    assert_eq!(refused["error"]["code"], -32600, "{refused}");
    client.handshake("2025-06-18");
    client.bad("status", json!({}));
}

/// C119.
#[test]
fn bad_lines_are_answered_and_the_next_one_is_read() {
    let env = TestEnv::new(PRUN);
    let mut client = Client::new(&env);
    let mut error = |line: &[u8]| -> i64 {
        client.line(line);
        let answer = client.next(PATIENCE).expect("an answer");
        answer["error"]["code"].as_i64().unwrap_or_else(|| panic!("{answer}"))
    };
    assert_eq!(error(b"{\"jsonrpc\":"), -32700);
    assert_eq!(error(b"\xff\xfe\xfd"), -32700);
    assert_eq!(error(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xc3\x28\"}"), -32700);
    assert_eq!(error(br#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#), -32600);
    assert_eq!(error(br#"{"jsonrpc":"2.0","id":1}"#), -32600);
    assert_eq!(error(br#"{"jsonrpc":"2.0","id":1,"method":"no/such"}"#), -32601);
    assert_eq!(error(br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[]}"#), -32602);
    assert_eq!(error(br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"no-such"}}"#), -32602);
    let typo = br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"status","arguments":{"rum":"x"}}}"#;
    assert_eq!(error(typo), -32602);
    // Ten megabytes in one line are read; more than a plan can have is refused, not kept.
    let long = json!({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"pad": "x".repeat(10 << 20)}});
    client.line(long.to_string().as_bytes());
    assert_eq!(client.next(PATIENCE).unwrap()["result"], json!({}));
    client.line(&vec![b'x'; 17 << 20]);
    assert_eq!(client.next(PATIENCE).unwrap()["error"]["code"], -32600);
    assert_eq!(client.request("ping", json!({}))["result"], json!({}));
    assert!(client.peak_kib() < 200 << 10, "{} KiB", client.peak_kib());
    let (status, last, _) = client.leave();
    assert!(status.success() && last.is_empty(), "{status} {last:?}");
}

#[test]
fn the_version_that_has_batches_gets_them_answered_together() {
    let env = place("", &[unit("slow", "await go; echo x > x; result")]);
    let mut client = Client::silent(&env);
    client.handshake("2025-03-26");
    let run = client.good("start", json!({})).1["run"].as_str().unwrap().to_owned();
    let call = |id: u64, tool: &str| json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": tool, "arguments": {"run": run}}});
    let cancel = |id: u64| json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
    let ids = |answers: &[Value]| {
        let mut ids: Vec<String> = answers.iter().map(|answer| answer["id"].to_string()).collect();
        ids.sort();
        ids
    };
    client.line(json!([call(1, "status"), cancel(99), 7, call(2, "diff"), call(3, "no-such")]).to_string().as_bytes());
    let answers = client.next_batch();
    assert_eq!(ids(&answers), ["1", "2", "3", "null"], "{answers:?}");
    // Nothing is owed for notifications, and nothing for a call that is cancelled; others do not wait for it.
    client.line(json!([cancel(98)]).to_string().as_bytes());
    client.line(json!([call(4, "wait"), call(5, "status")]).to_string().as_bytes());
    wait_for_state(&env, &run, "slow", "running");
    client.notify("notifications/cancelled", json!({"requestId": 4}));
    assert_eq!(ids(&client.next_batch()), ["5"]);
    open_gate(&env, "go");
    client.wait_for_end(&run);
    assert!(client.aside.is_empty(), "{:?}", client.aside);
    client.leave();
    env.assert_all_gone();
}

/// C118.
#[test]
fn a_cancelled_wait_ends_without_an_answer_and_the_run_goes_on() {
    let env = place("", &[unit("slow", "await go; echo x > x; result")]);
    let mut client = Client::new(&env);
    let (_, started) = client.good("start", json!({}));
    let run = started["run"].as_str().unwrap().to_owned();
    let waiting = client.ask("tools/call", json!({"name": "wait", "arguments": {"run": run}}));
    // Other calls are answered meanwhile.
    client.good("status", json!({"run": run}));
    client.notify("notifications/cancelled", json!({"requestId": waiting, "reason": "the user said so"}));
    client.notify("notifications/cancelled", json!({"requestId": 99_999}));
    client.notify("notifications/cancelled", json!({"requestId": 1_000}));
    client.good("status", json!({"run": run}));
    wait_for_state(&env, &run, "slow", "running");
    open_gate(&env, "go");
    assert_eq!(client.wait_for_end(&run)["woke"], "ended");
    assert!(client.aside.iter().all(|message| message["id"] != waiting), "{:?}", client.aside);
    let (_, last, _) = client.leave();
    assert_eq!(last, [Value::Null; 0]);
    env.assert_all_gone();
}

/// C119.
#[test]
fn a_client_that_leaves_ends_the_server_at_once_and_nothing_else() {
    let env = place("", &[unit("slow", "await go; echo x > x; result")]);
    let mut client = Client::new(&env);
    let run = client.good("start", json!({})).1["run"].as_str().unwrap().to_owned();
    client.ask("tools/call", json!({"name": "wait", "arguments": {"run": run}}));
    wait_for_state(&env, &run, "slow", "running");
    let (status, _, _) = client.leave();
    assert!(status.success(), "{status}");
    // It is gone, and what it waited for has not come.
    assert_eq!(crate::support::unit_of(&env, &run, "slow")["state"], "running");
    open_gate(&env, "go");
    assert_eq!(wait_for_end(&env, &run).code, 0);
}

#[test]
fn answers_to_what_was_asked_are_given_before_the_end() {
    let env = TestEnv::new(PRUN);
    let mut client = Client::new(&env);
    let asked: Vec<u64> =
        (0..20).map(|_| client.ask("tools/call", json!({"name": "status", "arguments": {}}))).collect();
    let (_, last, _) = client.leave();
    assert!(asked.iter().all(|id| last.iter().any(|message| message["id"] == *id)), "{last:?}");
}

#[test]
fn a_check_of_a_combination_ends_with_the_server() {
    let env =
        place("verify = \"test -e README.md && { [ ! -e new ] || sleep 600; }\"", &[unit("a", "echo a > new; result")]);
    let mut client = Client::new(&env);
    let run = client.good("start", json!({})).1["run"].as_str().unwrap().to_owned();
    client.wait_for_end(&run);
    client.ask("tools/call", json!({"name": "integrate", "arguments": {"run": run}}));
    let checks = || env.processes().into_iter().filter(|process| process.command.contains("sleep 600")).count();
    env.wait_until("the check runs", || checks() > 0);
    client.leave();
    env.wait_until("the check has ended", || checks() == 0);
    assert_eq!(env.read("new"), "");
}
