//! An agent coordinates twenty units: eighteen writers, a reader, and one that its own subagent does.

use insta::assert_snapshot;
use prun_testkit::env::TestEnv;
use serde_json::json;

use super::{Shell, assert_untouched_but};
use crate::mcp::client::Client;
use crate::support::{PRUN, open_gate, plan, tree_shown, unit, wait_for_state};

/// The parsers that are moved. The first four fill the slots.
const PARSERS: [&str; 18] = [
    "csv", "tsv", "ini", "toml", "json", "yaml", "xml", "html", "md", "rst", "env", "log", "sql", "url", "mime",
    "http", "dns", "tar",
];

/// Eighteen writers, of which `tsv` leaves no result twice; a reader; a unit of the session's.
fn twenty() -> TestEnv {
    let env = TestEnv::new(PRUN);
    let writer = |id: &&str| {
        let work = format!("echo {id} > {id}.rs; result 'moved {id} to ParseError' {id}.rs");
        let script = match *id {
            "tsv" => {
                format!(
                    "await go; if [ $PRUN_ATTEMPT -lt 3 ]; then echo {id} > {id}.rs; echo half done; exit 0; fi; {work}"
                )
            }
            _ => format!("await go; {work}"),
        };
        let owns =
            if ["csv", "tsv"].contains(id) { format!("[\"{id}.rs\", \"mod.rs\"]") } else { format!("[\"{id}.rs\"]") };
        unit(id, &script) + &format!("owns = {owns}\n")
    };
    let mut units: Vec<String> = PARSERS.iter().map(writer).collect();
    units.push(unit("callers", "await go; result 'two callers match on the old error' none") + "mode = \"read\"\n");
    units.push(
        "\n[[unit]]\nid = \"mail-facts\"\nmode = \"read\"\nexecutor = \"session\"\nprompt = \"What did the users write?\"\n"
            .to_owned(),
    );
    env.write(
        "plan.toml",
        plan("title = \"Port parsers\"\nverify = \"test -e README.md\"\ndirty = \"ignore\"", &units),
    );
    env
}

/// Until the four slots are taken and the session has its unit.
fn wait_for_the_first(env: &TestEnv, run: &str) {
    for id in &PARSERS[..4] {
        wait_for_state(env, run, id, "running");
    }
    wait_for_state(env, run, "mail-facts", "running");
}

/// What the session's subagent does.
const SUBAGENT: &str = "printf '# mail-facts result\\nConclusion: nobody matches on the text\\nFiles: none\\nOpen items: none\\nVerification: read 12 mails\\n'";

#[test]
fn an_agent_coordinates_twenty_units_in_a_shell() {
    let shell = Shell::new(twenty());
    let env = &shell.env;
    let head = env.git("rev-parse HEAD");
    assert_snapshot!(shell.session(&["prun check plan.toml"]), @r"
    $ prun check plan.toml
    ok 20 units (18 write, 1 read, 1 session) · base bb40ac6 · command 4 slots
    command · 4 slots
    git [version] · home [home]
    guard off: what a worker writes to the repository by its path is detected, not prevented
    warning: plan.toml:30:8: csv, tsv both own mod.rs
    warning: plan.toml:17:8: 18 units own paths where the base has no file: csv (csv.rs, mod.rs), tsv, ini, toml, json, yaml and 12 more
    ");
    let run = shell.gets("prun run -d plan.toml").trim_end().to_owned();
    wait_for_the_first(env, &run);
    assert_snapshot!(shell.session(&[&format!("prun wait {run}")]), @r"
    $ prun wait [run]
    [run] 0/20 done · 4 running · 15 queued · 1 handed over · [span] · next [n]
    HANDOFF mail-facts   prun brief [run]/mail-facts
    (exit 3)
    ");
    let brief = shell.gets(&format!("prun brief {run}/mail-facts"));
    assert!(brief.contains("What did the users write?"), "{brief}");
    shell.gets(&format!("{SUBAGENT} > \"$(prun path {run}/mail-facts --result)\""));
    assert_snapshot!(shell.session(&[&format!("prun submit {run}/mail-facts")]), @r"
    $ prun submit [run]/mail-facts
    mail-facts is being settled
    ");
    wait_for_state(env, &run, "mail-facts", "settled");
    let since = crate::support::json(env, &format!("status {run} --json"))["next"].clone();
    open_gate(env, "go");
    env.wait_until("all but one are done", || shell.gets("prun status --json").contains("\"succeeded\": 19"));
    assert_snapshot!(shell.session(&[&format!("prun wait {run} --since {since}")]), @r"
    $ prun wait [run] --since [seq]
    [run] 19/20 done · 1 failed · [span] · next [n]
    FAIL tsv  no result file, tail salvaged, attempt 2/2   prun logs [run]/tsv -n 40
    (exit 3)
    ");
    assert_eq!(shell.gets(&format!("prun logs {run}/tsv -n 40")), "half done\n");
    let again = shell.types(&format!("prun retry {run}/tsv --continue -m 'write the result file first'"));
    assert!(again.code == 0 && again.stderr.starts_with("tsv is queued again\n"), "{again}");
    assert_snapshot!(shell.session(&[&format!("prun wait {run}")]), @r"
    $ prun wait [run]
    [run] 20/20 done · [span] · next [n]
    ended, all well   prun integrate [run] --dry-run
    ");
    let brief = shell.gets(&format!("prun result {run} --brief"));
    assert_eq!(brief.lines().count(), 20, "{brief}");
    assert!(brief.contains("tsv  succeeded: moved tsv to ParseError\n"), "{brief}");
    assert!(shell.gets(&format!("prun diff {run} --stat")).contains("unit dns\n dns.rs | 1 +\n"));
    let dry_run = format!("prun integrate {run} --dry-run");
    assert_snapshot!(shell.session(&[&format!("{dry_run} | tail -1")]), @r"
    $ prun integrate [run] --dry-run | tail -1
    ready · tree c3d3b5caf65a · 18 files +18 -0 · verify ok after [span] (base ok) · 0 conflicts
    ");
    let brief = shell.gets(&format!("prun brief {run}/tsv"));
    assert!(brief.contains("write the result file first"), "{brief}");
    assert_untouched_but(env, &head, "?? plan.toml");
    let refused = shell.types(&format!("prun integrate {run}"));
    assert_eq!(refused.code, 5, "off a terminal the tree has to be named: {refused}");
    let tree = tree_shown(&shell.types(&dry_run));
    assert_snapshot!(shell.session(&[&format!("prun integrate {run} --tree {tree} | tail -2")]), @r"
    $ prun integrate [run] --tree c3d3b5caf65a | tail -2
    landed, uncommitted; HEAD and index untouched · undo: prun undo [run]
    yours to review and commit:  git add -- csv.rs dns.rs env.rs html.rs http.rs ini.rs json.rs log.rs md.rs mime.rs rst.rs sql.rs tar.rs toml.rs tsv.rs url.rs xml.rs yaml.rs
    ");
    assert_eq!((env.read("tsv.rs"), env.git("rev-parse HEAD")), ("tsv\n".to_owned(), head));
    env.assert_all_gone();
}

#[test]
fn an_agent_coordinates_twenty_units_by_tools() {
    let env = twenty();
    let head = env.git("rev-parse HEAD");
    let mut client = Client::new(&env);
    let plan = json!({"plan_file": "plan.toml"});
    let (text, checked) = client.good("check", plan.clone());
    assert!(text.starts_with("ok 20 units (18 write, 1 read, 1 session)"), "{text}");
    let warnings = checked["warnings"].to_string();
    assert!(warnings.contains("csv, tsv both own mod.rs"), "{warnings}");
    let run = client.good("start", plan).1["run"].as_str().unwrap().to_owned();
    wait_for_the_first(&env, &run);
    let (text, woken) = client.good("wait", json!({"run": run}));
    assert_snapshot!(env.normal(&text), @r"
    [run] 0/20 done · 4 running · 15 queued · 1 handed over · [span] · next [n]
    HANDOFF mail-facts   prun brief [run]/mail-facts
    ");
    let (brief, _) = client.good("brief", json!({"run": run, "unit": "mail-facts"}));
    assert!(brief.contains("What did the users write?"), "{brief}");
    let result = env.prun(&format!("path {run}/mail-facts --result")).stdout;
    assert!(brief.contains(result.trim_end()), "the brief tells where the result belongs: {brief}");
    let done = env.program("/bin/sh").args(["-c", &format!("{SUBAGENT} > \"$1\""), "sh", result.trim_end()]).status();
    assert!(done.unwrap().success());
    client.good("submit", json!({"run": run, "unit": "mail-facts"}));
    wait_for_state(&env, &run, "mail-facts", "settled");
    open_gate(&env, "go");
    let status = |client: &mut Client| client.good("status", json!({"run": run})).1;
    env.wait_until("all but one are done", || status(&mut client)["counts"]["succeeded"] == 19);
    let (text, _) = client.good("wait", json!({"run": run, "since": woken["next"]}));
    assert_snapshot!(env.normal(&text), @r"
    [run] 19/20 done · 1 failed · [span] · next [n]
    FAIL tsv  no result file, tail salvaged, attempt 2/2   prun logs [run]/tsv -n 40
    ");
    assert_eq!(client.good("logs", json!({"run": run, "unit": "tsv"})).0, "half done\n");
    let again = json!({"run": run, "unit": "tsv", "continue": true, "message": "write the result file first"});
    client.good("retry", again);
    assert_eq!(client.wait_for_end(&run)["woke"], "ended");
    let (brief, results) = client.good("result", json!({"run": run}));
    assert!(brief.contains("mail-facts  succeeded: nobody matches on the text"), "{brief}");
    assert_eq!(results["units"].as_array().map(Vec::len), Some(20));
    client.good("diff", json!({"run": run}));
    let (_, tried) = client.good("integrate", json!({"run": run}));
    assert_untouched_but(&env, &head, "?? plan.toml");
    let (text, _) = client.good("integrate", json!({"run": run, "tree": tried["tree"]}));
    assert!(text.contains("landed, uncommitted; HEAD and index untouched"), "{text}");
    assert_eq!((env.read("tsv.rs"), env.git("rev-parse HEAD")), ("tsv\n".to_owned(), head));
    client.leave();
    env.assert_all_gone();
}
