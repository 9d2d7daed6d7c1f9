//! What is read stays small, however much there is; resources, the prompt, and the page about all this.

use std::fs::OpenOptions;

use serde_json::json;

use super::client::Client;
use crate::support::{place, run, unit};

/// Bytes of the largest body in an answer, and a little for what stands around it.
const BODY: usize = (16 << 10) + 400;

#[test]
fn large_results_logs_and_diffs_come_in_pieces_that_fit() {
    let script = "i=0; while [ $i -lt 9000 ]; do echo \"line $i of many\"; i=$((i+1)); done > big.txt; cat big.txt; \
        result; cat big.txt >> \"$PRUN_RESULT\"";
    let env = place("", &[unit("big", script)]);
    let id = run(&env);
    let mut client = Client::new(&env);
    let (text, result) = client.good("result", json!({"run": id, "unit": "big"}));
    let path = result["path"].as_str().unwrap();
    assert!(
        text.len() < BODY && result["cut"] == true && text.ends_with(&format!("all of it: {path})")),
        "{}",
        text.len()
    );
    let (text, _) = client.good("logs", json!({"run": id, "unit": "big", "lines": 3}));
    assert!(text.starts_with("line 8997 of many\n"), "{text}");
    let (text, _) = client.good("logs", json!({"run": id, "unit": "big", "lines": 400}));
    assert!(text.len() < BODY, "{}", text.len());

    let (mut patch, mut offset) = (String::new(), Some(0));
    while let Some(at) = offset {
        let (text, piece) = client.good("diff", json!({"run": id, "unit": "big", "file": "big.txt", "offset": at}));
        assert!(text.len() < BODY, "{}", text.len());
        patch.push_str(piece["patch"].as_str().unwrap());
        offset = piece["next_offset"].as_u64();
    }
    assert_eq!(patch, env.prun(&format!("diff {id}/big")).stdout);

    // C116: of a tail of two gigabytes only the end is read.
    let tail = env.prun(&format!("path {id}/big --tail")).stdout;
    let file = OpenOptions::new().write(true).open(tail.trim_end()).unwrap();
    file.set_len(2 << 30).unwrap();
    let before = client.peak_kib();
    let (text, _) = client.good("logs", json!({"run": id, "unit": "big"}));
    assert!(text.len() < BODY * 6, "{}", text.len());
    assert!(client.peak_kib() < before + (32 << 10), "{} KiB", client.peak_kib());
}

#[test]
fn plans_results_and_diffs_are_resources() {
    let env = place("title = \"R\"", &[unit("a", "echo '<script>' > a.txt; result 'wrote <b>'")]);
    let id = run(&env);
    let mut client = Client::new(&env);
    let listed = client.request("resources/list", json!({}));
    let uris: Vec<&str> =
        listed["result"]["resources"].as_array().unwrap().iter().map(|one| one["uri"].as_str().unwrap()).collect();
    assert_eq!(uris, [format!("prun://{id}/plan"), format!("prun://{id}/a/result"), format!("prun://{id}/a/diff")]);
    let mut read = |uri: &str| client.request("resources/read", json!({"uri": uri}));
    let text = |answer: serde_json::Value| answer["result"]["contents"][0]["text"].as_str().unwrap().to_owned();
    assert!(text(read(uris[0])).contains("\"title\": \"R\""));
    assert!(text(read(uris[1])).contains("Conclusion: wrote <b>"));
    assert_eq!(text(read(uris[2])), env.prun(&format!("diff {id}/a")).stdout);
    for missing in ["prun://nope/plan".to_owned(), format!("prun://{id}/b/result"), "file:///etc/passwd".into()] {
        assert!(read(&missing)["error"]["code"].as_i64().is_some(), "{missing}");
    }
    let templates = client.request("resources/templates/list", json!({}));
    assert_eq!(templates["result"]["resourceTemplates"].as_array().unwrap().len(), 3);
}

#[test]
fn the_prompt_tells_the_flow_and_carries_the_task() {
    let env = place("", &[]);
    let mut client = Client::new(&env);
    let listed = client.request("prompts/list", json!({}));
    assert_eq!(listed["result"]["prompts"][0]["name"], "fan-out");
    let prompt = client.request("prompts/get", json!({"name": "fan-out", "arguments": {"task": "Port the parsers"}}));
    let text = prompt["result"]["messages"][0]["content"]["text"].as_str().unwrap();
    assert!(text.contains("`reconcile`") && text.ends_with("Port the parsers\n"), "{text}");
    assert_eq!(client.request("prompts/get", json!({"name": "other"}))["error"]["code"], -32602);
}

#[test]
fn the_page_on_mcp_names_every_tool() {
    let env = place("", &[]);
    let mut client = Client::new(&env);
    let page = include_str!("../../../../../docs/mcp.md");
    let listed = client.request("tools/list", json!({}));
    for tool in listed["result"]["tools"].as_array().unwrap() {
        let name = tool["name"].as_str().unwrap();
        assert!(page.contains(&format!("| `{name}` |")), "docs/mcp.md does not tell of {name}");
    }
}
