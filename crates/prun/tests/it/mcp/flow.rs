//! The walk of a coordinator, from a plan to a change in the working tree, by tools alone.

use prun_testkit::env::TestEnv;
use serde_json::json;

use super::client::Client;
use crate::support::{PRUN, open_gate, place, plan, unit, wait_for_state};

/// Four writers.
fn four() -> Vec<String> {
    ["a", "b", "c", "d"]
        .map(|id| unit(id, &format!("echo noise; echo more >&2; echo {id} > {id}.txt; result 'wrote {id}' {id}.txt")))
        .to_vec()
}

#[test]
fn four_units_go_from_a_plan_to_the_working_tree() {
    let env = place("verify = \"echo checked; test -f README.md\"", &four());
    let head = env.git("rev-parse HEAD");
    let mut client = Client::new(&env);
    let (text, checked) = client.good("check", json!({}));
    assert!(text.starts_with("ok 4 units (4 write)"), "{text}");
    assert_eq!((checked["ok"].clone(), checked.get("problems")), (json!(true), None));

    let (text, started) = client.good("start", json!({}));
    let run = started["run"].as_str().unwrap().to_owned();
    assert_eq!(text, format!("{run} started · next: wait"));
    let ended = client.wait_for_end(&run);
    assert_eq!(ended["woke"], "ended");
    assert!(ended["header"].as_str().unwrap().contains(" 4/4 done"), "{ended}");

    let (brief, _) = client.good("result", json!({"run": run}));
    assert_eq!(brief.lines().next(), Some("a  succeeded: wrote a"));
    let (body, result) = client.good("result", json!({"run": run, "unit": "b"}));
    assert!(body.contains("Body of b.") && result.get("cut").is_none(), "{body}");
    let (stat, _) = client.good("diff", json!({"run": run}));
    assert!(stat.contains("c  1 file +1 -0\n  c.txt  +1 -0"), "{stat}");
    let (patch, _) = client.good("diff", json!({"run": run, "unit": "c", "file": "c.txt"}));
    assert!(patch.starts_with("diff --git a/c.txt b/c.txt") && patch.ends_with("+c\n"), "{patch}");

    let (text, found) = client.good("reconcile", json!({"run": run}));
    assert!(text.starts_with("ready · 4 units go in") && found["ready"] == true, "{text}");
    let guessed = env.git("rev-parse HEAD^{tree}");
    let (text, error) = client.bad("integrate", json!({"run": run, "tree": guessed}));
    assert!(text.contains("no dry run of this session showed tree"), "{text}");
    assert_eq!(error["error"]["kind"], "not-ready");
    let (text, tried) = client.good("integrate", json!({"run": run}));
    assert!(text.contains("nothing was changed. On the user's word: integrate with tree"), "{text}");
    assert_eq!(tried["verify"]["combination"]["ok"], true);
    assert_eq!(env.git("status --short"), "?? prun.toml");
    let tree = tried["tree"].as_str().unwrap();
    let (text, landed) = client.good("integrate", json!({"run": run, "tree": &tree[..12]}));
    assert!(text.contains("git add -- a.txt b.txt c.txt d.txt"), "{text}");
    assert_eq!(
        (&landed["files"], &landed["message"]),
        (&json!(4), &json!("landed, uncommitted; HEAD and index untouched"))
    );
    assert_eq!((env.read("d.txt").as_str(), env.git("rev-parse HEAD")), ("d\n", head));
    let (_, last, _) = client.leave();
    assert!(last.is_empty(), "{last:?}");
    env.assert_all_gone();
}

#[test]
fn a_plan_can_be_handed_over_and_is_not_started_twice() {
    let env = TestEnv::new(PRUN);
    let text = plan("title = \"inline\"", &[unit("one", "await go; echo x > x; result")]);
    let mut client = Client::new(&env);
    let (_, first) = client.good("start", json!({"plan": text}));
    let run = first["run"].as_str().unwrap().to_owned();
    let (said, second) = client.good("start", json!({"plan": text}));
    assert_eq!((second["run"].clone(), second["existing"].clone()), (json!(run), json!(true)));
    assert!(said.contains("is under way already"), "{said}");
    // Also where another server is asked.
    let (_, third) = Client::new(&env).good("start", json!({"plan": text}));
    assert_eq!((third["run"].clone(), third["existing"].clone()), (json!(run), json!(true)));
    assert_eq!(env.run_ids().len(), 1);
    open_gate(&env, "go");
    client.wait_for_end(&run);
    drop(client);
    env.assert_all_gone();
}

#[test]
fn servers_that_start_the_same_plan_at_the_same_moment_make_one_run() {
    let env = place("", &[unit("one", "await go; echo x > x; result")]);
    let mut servers: Vec<Client> = (0..6).map(|_| Client::new(&env)).collect();
    let asked: Vec<u64> =
        servers.iter_mut().map(|server| server.ask("tools/call", json!({"name": "start", "arguments": {}}))).collect();
    let started: Vec<serde_json::Value> = servers
        .iter_mut()
        .zip(asked)
        .map(|(server, id)| server.answer_to(id)["result"]["structuredContent"].clone())
        .collect();
    let runs = env.run_ids();
    assert_eq!(runs.len(), 1, "{started:?}");
    assert!(started.iter().all(|one| one["id"] == runs[0].as_str()), "{started:?}");
    assert_eq!(started.iter().filter(|one| one["existing"] == true).count(), 5, "{started:?}");
    open_gate(&env, "go");
    servers[0].wait_for_end(&runs[0]);
    drop(servers);
    env.assert_all_gone();
}

#[test]
fn every_problem_of_a_plan_is_told_with_its_place() {
    let env = TestEnv::new(PRUN);
    let mut client = Client::new(&env);
    let bad = "version = 1\nunits = 3\n[[unit]]\nid = \"a b\"\n";
    let (text, checked) = client.bad("check", json!({"plan": bad}));
    assert!(text.contains("plan:2:1:"), "{text}");
    assert_eq!(checked["ok"], false);
    assert_eq!(checked["problems"][0]["line"], 2);
    let (text, _) = client.bad("start", json!({"plan": bad}));
    assert!(text.contains("plan:2:1:"), "{text}");
    client.bad("check", json!({"plan_file": "no-such.toml"}));
    client.bad("check", json!({"plan": bad, "plan_file": "prun.toml"}));
    env.write("src/one.txt", "changed\n");
    let good = plan("", &[unit("a", "true")]);
    let (text, _) = client.bad("check", json!({"plan": good}));
    assert!(text.contains("uncommitted"), "{text}");
    client.good("check", json!({"plan": good, "dirty": "include"}));
    assert!(env.run_ids().is_empty());
}

#[test]
fn a_unit_that_fails_is_looked_at_retried_and_left_out() {
    let fails = unit("bad", "echo what went wrong; if [ $PRUN_ATTEMPT = 1 ]; then exit 3; fi; exit 4");
    let env = place("[defaults]\nretries = 0", &[fails, unit("good", "echo g > g.txt; result")]);
    let mut client = Client::new(&env);
    let run = client.good("start", json!({})).1["run"].as_str().unwrap().to_owned();
    let ended = client.wait_for_end(&run);
    assert_eq!(ended["woke"], "attention");
    assert!(ended["attention"][0].as_str().unwrap().starts_with("FAIL bad"), "{ended}");
    // Clients show their model the data alone, so it says why.
    let (_, status) = client.good("status", json!({"run": run}));
    let bad = &status["units"][0];
    assert!(bad["why"].as_str().unwrap().contains("exit code 3"), "{bad}");
    let (log, _) = client.good("logs", json!({"run": run, "unit": "bad", "lines": 5}));
    assert!(log.contains("what went wrong"), "{log}");
    let (text, _) = client.bad("integrate", json!({"run": run}));
    assert!(text.contains("BLOCKS bad"), "{text}");
    client.good("retry", json!({"run": run, "unit": "bad", "continue": true, "message": "try harder"}));
    client.wait_for_end(&run);
    let (brief, _) = client.good("brief", json!({"run": run, "unit": "bad"}));
    assert!(brief.contains("try harder"), "{brief}");
    let (text, _) = client.bad("exclude", json!({"run": run, "unit": "bad", "why": " "}));
    assert!(text.contains("the reason is empty"), "{text}");
    client.good("exclude", json!({"run": run, "unit": "bad", "why": "wrong idea"}));
    let (status, _) = client.good("status", json!({"run": run}));
    assert!(status.contains("1/2 done"), "{status}");
    let (text, _) = client.good("reconcile", json!({"run": run}));
    assert!(text.contains("ready · 1 unit goes in · 1 stay out"), "{text}");
    let (usage, _) = client.good("usage", json!({"run": run}));
    assert!(usage.contains("command  3 attempts"), "{usage}");
    drop(client);
    env.assert_all_gone();
}

#[test]
fn of_a_panel_a_session_lands_one_member() {
    let work = unit("p", "echo $PRUN_UNIT > p.txt; result $PRUN_UNIT") + "samples = 2\n";
    let env = place("", &[work]);
    let mut client = Client::new(&env);
    assert!(client.good("check", json!({})).0.starts_with("ok 2 units"));
    let run = client.good("start", json!({})).1["run"].as_str().unwrap().to_owned();
    assert_eq!(client.wait_for_end(&run)["woke"], "attention");
    for only in [json!([]), json!(["p-1"]), json!(["p-1", "p-2"])] {
        let (text, _) = client.bad("integrate", json!({"run": run, "only": only}));
        assert!(text.contains("BLOCKS p  a panel of 2"), "{text}");
    }
    let (text, view) = client.good("compare", json!({"run": run, "unit": "p"}));
    assert!(text.contains("p.txt"), "{text}");
    assert_eq!(view["members"].as_array().unwrap().len(), 2);
    client.good("accept", json!({"run": run, "unit": "p-2", "why": "the user likes it"}));
    let (_, tried) = client.good("integrate", json!({"run": run}));
    client.good("integrate", json!({"run": run, "tree": tried["tree"]}));
    assert_eq!(env.read("p.txt"), "p-2\n");
    client.bad("accept", json!({"run": run, "unit": "p-1", "why": "too"}));
    drop(client);
    env.assert_all_gone();
}

#[test]
fn a_unit_without_its_result_is_accepted_by_name() {
    let env = place("[defaults]\nretries = 0", &[unit("a", "echo a > a.txt; echo done anyway")]);
    let mut client = Client::new(&env);
    let run = client.good("start", json!({})).1["run"].as_str().unwrap().to_owned();
    client.wait_for_end(&run);
    client.bad("integrate", json!({"run": run}));
    client.good("accept", json!({"run": run, "unit": "a", "why": "the diff is right", "salvaged": true}));
    let (_, tried) = client.good("integrate", json!({"run": run}));
    client.good("integrate", json!({"run": run, "tree": tried["tree"]}));
    assert_eq!(env.read("a.txt"), "a\n");
    drop(client);
    env.assert_all_gone();
}

#[test]
fn a_unit_that_is_handed_over_is_done_by_the_sessions_own_subagent() {
    let handed =
        "\n[[unit]]\nid = \"mine\"\nmode = \"read\"\nexecutor = \"session\"\nprompt = \"Look around.\"\n".to_owned();
    let env = place("", &[handed]);
    let mut client = Client::new(&env);
    let run = client.good("start", json!({})).1["run"].as_str().unwrap().to_owned();
    let (text, woken) = client.good("wait", json!({"run": run}));
    assert!(text.contains("HANDOFF mine"), "{text}");
    let (brief, _) = client.good("brief", json!({"run": run, "unit": "mine"}));
    assert!(brief.contains("Look around."), "{brief}");
    let result = env.prun(&format!("path {run}/mine --result")).stdout;
    let form = "# mine result\nConclusion: nothing there\nFiles: none\nOpen items: none\nVerification: none\n";
    std::fs::write(result.trim_end(), form).unwrap();
    client.good("submit", json!({"run": run, "unit": "mine"}));
    let (_, ended) = client.good("wait", json!({"run": run, "since": woken["next"]}));
    assert_eq!(ended["woke"], "ended", "{ended}");
    drop(client);
    env.assert_all_gone();
}

#[test]
fn a_run_can_be_stopped() {
    let env = place("", &[unit("a", "await never"), unit("b", "await never")]);
    let mut client = Client::new(&env);
    let run = client.good("start", json!({})).1["run"].as_str().unwrap().to_owned();
    wait_for_state(&env, &run, "a", "running");
    client.good("stop", json!({"run": run, "unit": "a", "now": true}));
    client.good("stop", json!({"run": run}));
    let ended = client.wait_for_end(&run);
    assert_eq!(ended["woke"], "cancelled", "{ended}");
    drop(client);
    env.assert_all_gone();
}

#[test]
fn a_wait_tells_how_far_the_run_is() {
    let env = place("", &[unit("a", "echo a > a; result"), unit("b", "await go; echo b > b; result")]);
    let mut client = Client::new(&env);
    let run = client.good("start", json!({})).1["run"].as_str().unwrap().to_owned();
    let params = json!({"name": "wait", "arguments": {"run": run}, "_meta": {"progressToken": "p1"}});
    let waiting = client.ask("tools/call", params);
    let is_first_done = |message: &serde_json::Value| message["params"]["progress"] == 1.0;
    while !client.aside.iter().any(is_first_done) {
        let message = client.next(std::time::Duration::from_secs(60)).expect("progress");
        assert_eq!(message["method"], "notifications/progress", "{message}");
        assert_eq!(
            (message["params"]["progressToken"].clone(), message["params"]["total"].clone()),
            (json!("p1"), json!(2.0))
        );
        client.aside.push(message);
    }
    open_gate(&env, "go");
    assert_eq!(client.answer_to(waiting)["result"]["structuredContent"]["woke"], "ended");
    drop(client);
    env.assert_all_gone();
}
