//! What a run of twenty units puts before the model of a real session, call by call, counted by a real tokenizer
//! (`o200k_base`) in the last request that the client sends.

use serde_json::Value;

use super::{World, claude, codex, flow};
use crate::figures::tokens;
use crate::support::unit;

/// So many units.
const UNITS: usize = 20;

fn twenty(world: &World) {
    let script =
        |at: usize| format!("echo {at} > part-{at}.txt; result 'moved part {at} to the new error type' part-{at}.txt");
    let units: Vec<String> = (1..=UNITS).map(|at| unit(&format!("part-{at:03}"), &script(at))).collect();
    let plan = crate::support::plan("jobs = 8\nverify = \"true\"", &units);
    std::fs::write(world.at("repo/prun.toml"), plan).unwrap();
}

/// What concerns prun in a request: each call and each answer, as its model reads them.
struct Heard {
    calls: Vec<String>,
    answers: Vec<String>,
    /// Definitions of tools that a session of Claude's looked up. Codex's request does not have them.
    definitions: Vec<String>,
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

impl Heard {
    fn by_claude(body: &Value) -> Self {
        let is_ours = |name: &Value| name.as_str().is_some_and(|name| name.starts_with("mcp__prun__"));
        let blocks: Vec<&Value> = body["messages"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|message| message["content"].as_array().map(Vec::as_slice).unwrap_or_default())
            .collect();
        let calls: Vec<&Value> = blocks.iter().copied().filter(|block| is_ours(&block["name"])).collect();
        let answer = |call: &&Value| blocks.iter().find(|block| block["tool_use_id"] == call["id"]).unwrap();
        let tools = body["tools"].as_array().unwrap().iter().filter(|tool| is_ours(&tool["name"]));
        Self {
            answers: calls.iter().map(|call| text(&answer(call)["content"])).collect(),
            calls: calls.iter().map(|call| format!("{} {}", text(&call["name"]), call["input"])).collect(),
            definitions: tools.map(Value::to_string).collect(),
        }
    }

    fn by_codex(body: &Value) -> Self {
        let items = body["input"].as_array().unwrap();
        let calls: Vec<&Value> = items.iter().filter(|item| item["namespace"] == "mcp__prun").collect();
        let answer = |call: &&Value| {
            let is_its = |item: &&Value| item["type"] == "function_call_output" && item["call_id"] == call["call_id"];
            items.iter().find(is_its).unwrap()
        };
        Self {
            answers: calls.iter().map(|call| text(&answer(call)["output"])).collect(),
            calls: calls.iter().map(|call| format!("{} {}", text(&call["name"]), text(&call["arguments"]))).collect(),
            definitions: Vec::new(),
        }
    }

    #[expect(clippy::print_stdout, reason = "figures belong to the output of the test")]
    fn weigh(&self, client: &str) {
        assert!((8..=12).contains(&self.calls.len()), "{} calls: {:?}", self.calls.len(), self.calls);
        assert!(self.answers.iter().any(|answer| answer.contains("moved part 20")), "{:?}", self.answers);
        let count = |texts: &[String]| tokens(texts).map(|counts| counts.iter().sum::<usize>());
        let (Some(asked), Some(heard)) = (count(&self.calls), count(&self.answers)) else { return };
        println!(
            "{client}: {} calls of prun's tools for {UNITS} units; {} tokens a unit in all, results included \
             ({asked} in calls, {heard} in answers)",
            self.calls.len(),
            (asked + heard) / UNITS
        );
        if let Some(loaded) = count(&self.definitions).filter(|count| *count > 0) {
            println!("{client}: {loaded} tokens for the definitions of {} tools, once", self.definitions.len());
        }
        assert!((asked + heard) / UNITS <= 150, "{asked} + {heard}");
    }
}

#[test]
fn twenty_units_cost_a_real_claude_session_at_most_150_tokens_each_and_12_calls() {
    let Some(world) = claude::world() else { return };
    twenty(&world);
    assert_eq!(world.registration(&["install"]), "claude: registered\n");
    let mut steps = vec![claude::load("mcp__prun")];
    steps.extend(flow("mcp__prun", UNITS));
    claude::session(&world, "mcp__prun", &[], "Move twenty parts.", &steps);
    let heard = Heard::by_claude(&world.last_request());
    heard.weigh("claude");
    assert_eq!(heard.definitions.len(), 7, "what it looked up");
    assert!(world.at("repo/part-20.txt").exists());
}

#[test]
fn twenty_units_cost_a_real_codex_session_at_most_150_tokens_each_and_12_calls() {
    let Some(world) = codex::world() else { return };
    twenty(&world);
    assert_eq!(world.registration(&["install"]), "codex: registered\n");
    codex::session(&world, "Move twenty parts.", &flow("mcp__prun", UNITS));
    Heard::by_codex(&world.last_request()).weigh("codex");
    assert!(world.at("repo/part-20.txt").exists());
}
