//! A developer starts twelve units in the evening, closes the terminal, and lands eleven in the morning.

use insta::assert_snapshot;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::{Shell, assert_untouched_but};
use crate::holds;
use crate::mcp::client::Client;
use crate::support::wait_for_state;

/// Twelve units on codex, with another executor behind it. `ini` cannot be done; the fifth start meets a usage limit.
fn evening() -> Shell {
    let ids = ["csv", "tsv", "toml", "json", "yaml", "xml", "md", "rst", "env", "log", "sql"];
    let config = "[executor.codex]\nslots = 3\nstagger = \"0s\"\n\
                  [executor.aider]\nkind = \"command\"\nprogram = \"WORKER\"\nslots = 2\n";
    let plan = "[defaults]\nexecutor = [\"codex\", \"aider\"]\nretries = 0\n".to_owned()
        + "[[unit]]\nid = \"ini\"\nexecutor = \"codex\"\nprompt = \"Do ini.\"\n"
        + &holds::units(ids.map(str::to_owned));
    let meets = "while [ ! -e \"$PRUN_TEST_MARK/closed\" ]; do sleep 0.02; done\n\
                 if [ $PRUN_UNIT = ini ]; then fail 'it cannot be done'; fi\n\
                 if [ $n = 5 ]; then fail \"You've hit your usage limit; try again in 2s.\"; fi";
    let mut shell = Shell::new(holds::place(meets, config, ""));
    // The other executor takes its time until codex has met its limit, so that there is something to meet it with.
    let patient = "while [ ! -e \"$PRUN_TEST_MARK/start.5\" ]; do sleep 0.02; done\nexec \"$PRUN_TEST_MARK/worker\"";
    let patient = shell.env.script("patient", patient);
    let config = config.replace("WORKER", patient.to_str().unwrap());
    std::fs::write(shell.env.at("user/config/prun/config.toml"), config).unwrap();
    let plan = format!("version = 1\ndirty = \"ignore\"\nverify = \"test -e README.md\"\n{plan}");
    std::fs::write(shell.env.at("the-plan"), plan).unwrap();
    let editor = shell.env.script("editor", "cat \"$PRUN_TEST_MARK/the-plan\" > \"$1\"");
    shell.env.set("EDITOR", editor);
    std::fs::remove_file(shell.env.repo().join("prun.toml")).unwrap();
    shell
}

/// The night: the run goes on when its terminal is closed.
fn night(shell: &Shell) -> String {
    let env = &shell.env;
    let terminal =
        shell.opens("prun run --keep-awake --on-done 'printf \"%s\\n\" \"$PRUN_SUMMARY\" > \"$PRUN_TEST_MARK/told\"'");
    env.wait_until("the run is there", || !env.run_ids().is_empty());
    let run = env.run_ids().pop().unwrap().rsplit('-').next().unwrap().to_owned();
    wait_for_state(env, &run, "ini", "running");
    kill_process(Pid::from_child(&terminal), Signal::HUP).unwrap();
    env.finish(terminal);
    std::fs::write(env.at("closed"), "").unwrap();
    env.wait_until("the run has ended", || shell.gets("prun status --json").contains("\"state\": \"ended\""));
    env.wait_until("it was told", || env.at("told").exists());
    env.assert_all_gone();
    run
}

/// What stands in the repository in the end.
fn assert_landed(shell: &Shell, head: &str) {
    let env = &shell.env;
    assert_eq!((env.read("csv.txt").as_str(), env.read("sql.txt").as_str()), ("by csv\nby hand\n", "by sql\n"));
    assert_eq!((env.read("ini.txt"), env.git("rev-parse HEAD")), (String::new(), head.to_owned()));
    env.assert_all_gone();
}

#[test]
fn a_developer_lands_in_the_morning_what_ran_at_night() {
    let shell = evening();
    let env = &shell.env;
    let head = env.git("rev-parse HEAD");
    shell.gets("prun init && $EDITOR prun.toml && prun check");
    let doctor = shell.types("prun doctor");
    assert!([0, 3].contains(&doctor.code), "{doctor}");
    night(&shell);
    let told = std::fs::read_to_string(env.at("told")).unwrap();
    assert!(env.normal(&told).starts_with("[run] 11/12 done · 1 failed · "), "{told}");
    let status = env.normal(&shell.gets("prun status"));
    for part in [
        "[run] 11/12 done · 1 failed",
        "ini   failed(worker)  [span]  worker: it cannot be done",
        "csv   succeeded  [span]  1 file +1 -0  110 tok  done",
        "attempt 2/2  1 file +1 -0  done",
    ] {
        assert!(status.contains(part), "no {part}: {status}");
    }
    assert_eq!(shell.gets("prun diff csv | tail -1"), "+by csv\n");
    assert_snapshot!(shell.session(&[
        "cd \"$(prun path csv)\" && echo 'by hand' >> csv.txt && prun harvest csv 2>/dev/null",
        "prun diff csv --stat 2>/dev/null",
        "prun exclude ini -m 'wrong idea' 2>&1 | tail -1",
    ]), @r#"
    $ cd "$(prun path csv)" && echo 'by hand' >> csv.txt && prun harvest csv 2>/dev/null
    [run]/csv: 1 file changed
    run [run] (ini, csv, tsv and 9 more)
    $ prun diff csv --stat 2>/dev/null
     csv.txt | 2 ++
     1 file changed, 2 insertions(+)
    $ prun exclude ini -m 'wrong idea' 2>&1 | tail -1
    ini is excluded
    "#);
    assert_untouched_but(env, &head, "?? prun.toml");
    let landed = env.normal(&shell.gets("echo y | script -qec 'prun integrate' /dev/null").replace('\r', ""));
    assert_snapshot!(landed.lines().rev().take(3).collect::<Vec<_>>().join("\n"), @r"
    yours to review and commit:  git add -- csv.txt env.txt json.txt log.txt md.txt rst.txt sql.txt toml.txt tsv.txt xml.txt yaml.txt
    Land this in your working tree, uncommitted? [y/N] landed, uncommitted; HEAD and index untouched · undo: prun undo [run]
    ready · tree 7d398075ded9 · 11 files +12 -0 · verify ok after [span] (base ok) · 0 conflicts
    ");
    assert_landed(&shell, &head);
}

#[test]
fn the_same_morning_by_tools() {
    let shell = evening();
    let env = &shell.env;
    let head = env.git("rev-parse HEAD");
    shell.gets("prun init && $EDITOR prun.toml");
    let run = night(&shell);
    let mut client = Client::new(env);
    let (text, status) = client.good("status", json!({}));
    assert!(text.contains("11/12 done · 1 failed"), "{text}");
    let ini = status["units"].as_array().unwrap().iter().find(|unit| unit["unit"] == "ini").unwrap();
    assert_eq!(ini["state"], "failed(worker)");
    let (text, _) = client.bad("integrate", json!({"run": run}));
    assert!(text.contains("BLOCKS ini"), "{text}");
    assert!(client.good("diff", json!({"unit": "csv", "file": "csv.txt"})).0.ends_with("+by csv\n"));
    // A person's edits are a person's to hand in.
    shell.gets("cd \"$(prun path csv)\" && echo 'by hand' >> csv.txt && prun harvest csv");
    assert_eq!(client.good("diff", json!({"unit": "csv"})).1["units"][0]["files"][0]["added"], 2);
    client.good("exclude", json!({"run": run, "unit": "ini", "why": "wrong idea"}));
    let (_, tried) = client.good("integrate", json!({"run": run}));
    assert_untouched_but(env, &head, "?? prun.toml");
    client.good("integrate", json!({"run": run, "tree": tried["tree"]}));
    client.leave();
    assert_landed(&shell, &head);
}

/// In a unit's workspace the run is meant that it belongs to, but a worker is no coordinator.
#[test]
fn a_worker_in_its_workspace_has_no_run_to_change() {
    let script = "prun stop > said 2>&1; echo $? > code; result done";
    let shell = Shell::new(crate::support::place("", &[crate::support::unit("a", script)]));
    crate::support::run(&shell.env);
    let clone = shell.gets("prun path a").trim_end().to_owned();
    let read = |name: &str| std::fs::read_to_string(format!("{clone}/{name}")).unwrap();
    assert_eq!(read("code"), "2\n", "{}", read("said"));
    assert!(read("said").contains("there is no run"), "{}", read("said"));
    shell.env.assert_all_gone();
}
