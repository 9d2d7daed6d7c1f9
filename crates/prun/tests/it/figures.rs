//! What a run costs its coordinator: tokens that enter its context beyond the results, and calls. Counted by a real
//! tokenizer (`o200k_base`), on what the real binary says.

use std::io::Write;
use std::process::{Command, Stdio};

use prun_testkit::clients::node_modules;
use prun_testkit::env::TestEnv;
use serde_json::{Value, json};

use crate::mcp::client::Client;
use crate::support::{place, unit};

/// The tokens of each text; `None` where no tokenizer is installed.
pub(crate) fn tokens(texts: &[String]) -> Option<Vec<usize>> {
    const SCRIPT: &str = r#"
        const encoding = require("js-tiktoken").getEncoding("o200k_base");
        const texts = JSON.parse(require("fs").readFileSync(0, "utf8"));
        console.log(JSON.stringify(texts.map((text) => encoding.encode(text, "all").length)));"#;
    let modules = node_modules()?;
    let mut node = Command::new("node");
    node.args(["-e", SCRIPT]).env("NODE_PATH", modules).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut node = node.spawn().unwrap();
    node.stdin.take().unwrap().write_all(json!(texts).to_string().as_bytes()).unwrap();
    let output = node.wait_with_output().unwrap();
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

/// A run of so many units, of which every `nth` fails.
fn ended(units: usize, nth: usize) -> (TestEnv, String) {
    let script = |at: usize| {
        if at.is_multiple_of(nth) {
            "exit 3".to_owned()
        } else {
            format!("echo {at} > part-{at}.txt; result 'moved part {at} to the new error type' part-{at}.txt")
        }
    };
    let units: Vec<String> = (1..=units).map(|at| unit(&format!("part-{at:03}"), &script(at))).collect();
    let env = place("jobs = 8\n[defaults]\nretries = 0", &units);
    let id = crate::support::run(&env);
    (env, id)
}

#[test]
fn a_digest_stays_below_300_tokens_however_many_units_there_are() {
    let mut texts = Vec::new();
    for (units, nth) in [(5, 5), (20, 20), (20, 1), (50, 10)] {
        let (env, id) = ended(units, nth);
        let (text, data) = Client::new(&env).good("wait", json!({"run": id}));
        assert_eq!(format!("{text}\n"), env.prun(&format!("wait {id}")).stdout, "the same on both surfaces");
        texts.extend([text, data.to_string()]);
    }
    let Some(counted) = tokens(&texts) else { return };
    for (pair, name) in counted.chunks(2).zip(["5, 1 failed", "20, 1 failed", "20, all failed", "50, 5 failed"]) {
        println!("digest of {name}: {} tokens as text, {} as data", pair[0], pair[1]);
        assert!(pair.iter().all(|count| *count <= 300), "{name}: {pair:?}");
    }
}

#[test]
fn a_digest_of_500_units_stays_below_300_tokens() {
    let (env, id) = ended(500, 3);
    let (text, data) = Client::new(&env).good("wait", json!({"run": id}));
    let Some(counted) = tokens(&[text, data.to_string()]) else { return };
    println!("digest of 500, 166 failed: {} tokens as text, {} as data", counted[0], counted[1]);
    assert!(counted.iter().all(|count| *count <= 300), "{counted:?}");
}

/// Twenty units that succeed, and a check of the whole.
fn twenty() -> TestEnv {
    let script =
        |at: usize| format!("echo {at} > part-{at}.txt; result 'moved part {at} to the new error type' part-{at}.txt");
    let units: Vec<String> = (1..=20).map(|at| unit(&format!("part-{at:03}"), &script(at))).collect();
    place("jobs = 8\nverify = \"true\"", &units)
}

/// One call and what it answered, as text and as data.
struct Said {
    call: String,
    text: String,
    data: Value,
}

#[test]
fn twenty_units_cost_their_coordinator_at_most_150_tokens_each_and_12_calls() {
    let env = twenty();
    let mut client = Client::new(&env);
    let mut said: Vec<Said> = Vec::new();
    let mut call = |tool: &str, arguments: Value| -> Value {
        let call = format!("{tool} {arguments}");
        let (text, data) = client.good(tool, arguments);
        said.push(Said { call, text, data: data.clone() });
        data
    };
    call("check", json!({}));
    let run = call("start", json!({}))["run"].clone();
    let mut since = json!(0);
    loop {
        let woken = call("wait", json!({"run": run, "since": since}));
        since = woken["next"].clone();
        if woken["state"] != "running" {
            break;
        }
    }
    call("result", json!({"run": run}));
    call("diff", json!({"run": run}));
    call("reconcile", json!({"run": run}));
    let tree = call("integrate", json!({"run": run}))["tree"].clone();
    call("integrate", json!({"run": run, "tree": tree}));
    assert_eq!(env.read("part-20.txt"), "20\n");
    assert!(said.len() <= 12, "{} calls", said.len());
    let text: Vec<String> = said.iter().map(|said| said.text.clone()).collect();
    let data: Vec<String> = said.iter().map(|said| said.data.to_string()).collect();
    let calls: Vec<String> = said.iter().map(|said| said.call.clone()).collect();
    let (Some(text), Some(data), Some(calls)) = (tokens(&text), tokens(&data), tokens(&calls)) else { return };
    for (at, said) in said.iter().enumerate() {
        println!(
            "{:<40} {:>5} tokens as text {:>5} as data",
            said.call.chars().take(40).collect::<String>(),
            text[at],
            data[at]
        );
    }
    // Conclusions are the results themselves; what they cost is not prun's.
    let is_result = |said: &Said| said.call.starts_with("result");
    let of = |counts: &[usize]| -> usize {
        said.iter().zip(counts).filter(|(said, _)| !is_result(said)).map(|(_, count)| count).sum()
    };
    let (in_text, in_data, asked) = (of(&text), of(&data), calls.iter().sum::<usize>());
    let in_all = data.iter().sum::<usize>() + asked;
    println!(
        "{} calls; {} tokens a unit in all; beyond results {} as text, {} as data, {} in the calls",
        said.len(),
        in_all / 20,
        in_text / 20,
        in_data / 20,
        asked / 20
    );
    // Clients show their model the data.
    assert!(in_all / 20 <= 150, "{in_all} for 20 units");
}

#[test]
fn twenty_units_cost_a_coordinator_with_a_shell_at_most_150_tokens_each_and_12_calls() {
    let env = twenty();
    let mut said = Vec::new();
    let mut types = |line: &str| {
        let printed = env.prun(line);
        said.push(format!("prun {line}\n{}{}", printed.stdout, printed.stderr));
        printed
    };
    types("check");
    let run = types("run -d").stdout.trim_end().to_owned();
    while types(&format!("wait {run}")).code == 124 {}
    types(&format!("result {run} --brief"));
    types(&format!("diff {run} --stat"));
    types(&format!("reconcile {run}"));
    let tree = crate::support::tree_shown(&types(&format!("integrate {run} --dry-run")));
    assert_eq!(types(&format!("integrate {run} --tree {tree}")).code, 0);
    assert_eq!(env.read("part-20.txt"), "20\n");
    env.assert_all_gone();
    assert!(said.len() <= 12, "{} calls", said.len());
    let Some(counted) = tokens(&said) else { return };
    for (said, count) in said.iter().zip(&counted) {
        println!("{:<40} {count:>5} tokens", said.lines().next().unwrap_or_default());
    }
    let in_all: usize = counted.iter().sum();
    println!("{} calls; {} tokens a unit in all, results included", said.len(), in_all / 20);
    assert!(in_all / 20 <= 150, "{in_all} for 20 units");
}
