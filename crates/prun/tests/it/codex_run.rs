//! The real Codex and Claude Code through a whole run: units that edit files with the client's own shell tool, a
//! spent usage limit, and a session that goes on.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use prun_core::event::RetryHow;
use prun_core::ids::Seq;
use prun_core::outcome::{Cause, Channel, Gap, Outcome, StopReason};
use prun_core::run::RunState;
use prun_core::unit::Unit;
use prun_engine::home::Home;
use prun_engine::ledger::Reader;
use prun_engine::runs;
use prun_testkit::clients::{Client, client_home};
use prun_testkit::fake_model::{Server, Step, directive};
use tempfile::TempDir;

const PRUN: &str = env!("CARGO_BIN_EXE_prun");

/// A repository, and a prun whose client knows nobody but the scripted model.
struct World {
    client: Client,
    server: Server,
    client_home: TempDir,
    dir: TempDir,
}

impl World {
    /// `None` where the client is not installed: the test is skipped then.
    fn new() -> Option<Self> {
        Self::of(Client::Codex)
    }

    fn of(client: Client) -> Option<Self> {
        let server = Server::start();
        let config = client.config(&client.installed()?, &server);
        let world = Self { client, server, client_home: client_home(), dir: tempfile::tempdir().unwrap() };
        std::fs::create_dir_all(world.at("repo/src")).unwrap();
        std::fs::create_dir(world.at("home")).unwrap();
        std::fs::write(world.at("config.toml"), config).unwrap();
        for name in ["a", "b", "c"] {
            std::fs::write(world.at(&format!("repo/src/{name}.txt")), format!("{name}\n")).unwrap();
        }
        for args in [
            &["init", "-q"][..],
            &["add", "."],
            &["-c", "user.name=u", "-c", "user.email=u@x", "commit", "-qm", "first"],
        ] {
            assert!(world.command("git", args).status().unwrap().success());
        }
        Some(world)
    }

    /// Runs a plan of units of the client: a name and what the model says.
    fn run(&self, units: &[(&str, &[Step])]) -> Output {
        self.run_with(units, &["run", "../plan.toml"])
    }

    fn run_with(&self, units: &[(&str, &[Step])], args: &[&str]) -> Output {
        self.run_plan("", 0, units, args)
    }

    /// The same with other keys of the plan, and with retries.
    fn run_plan(&self, keys: &str, retries: u32, units: &[(&str, &[Step])], args: &[&str]) -> Output {
        let name = self.client.name();
        let header = format!("[defaults]\nexecutor = \"{name}\"\nretries = {retries}\n");
        let unit = |(id, steps): &(&str, &[Step])| {
            format!("[[unit]]\nid = \"{id}\"\nprompt = '''\nDo as the model says.\n{}\n'''\n", directive(steps))
        };
        let plan: String = units.iter().map(unit).collect();
        let head = format!("version = 1\ntitle = \"t\"\nrepo = \"repo\"\n{keys}{header}");
        std::fs::write(self.at("plan.toml"), head + &plan).unwrap();
        self.prun(args)
    }

    fn prun(&self, args: &[&str]) -> Output {
        let mut command = self.command(PRUN, args);
        command.env("PRUN_HOME", self.at("home")).env("PRUN_CONFIG", self.at("config.toml"));
        command.env("PRUN_DURABLE", "off").output().unwrap()
    }

    fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(args)
            .env_clear()
            .envs(self.client.env(self.client_home.path(), &self.server))
            .current_dir(self.at("repo"));
        command.env("XDG_RUNTIME_DIR", self.dir.path()).stdin(Stdio::null());
        command
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.at("repo").join(name)).unwrap_or_default()
    }

    fn state(&self) -> RunState {
        let home = Home::at(self.at("home"));
        let run = home.run(&runs::list(&home)[0].run);
        RunState::replay(&Reader::open(&run).unwrap().after(Seq(0)).unwrap()).unwrap()
    }

    fn unit(&self, id: &str) -> Unit {
        self.state().unit(&id.parse().unwrap()).unwrap().clone()
    }
}

/// Writes a result in contract form to the path that the brief names, as an agent does.
fn result(unit: &str) -> Step {
    let form = format!("# {unit} result\\nConclusion: done\\nFiles: src\\nOpen items: none\\nVerification: none\\n");
    Step::sh(format!("printf '{form}' > \"$PRUN_RESULT\""))
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn units_edit_files_through_codex_and_land_together_while_another_meets_its_usage_limit() {
    let Some(world) = World::new() else { return };
    let edits = ["a", "b", "c"].map(|name| {
        let edit = format!("echo 'by {name}' >> src/{name}.txt; echo {name} > src/new-{name}.txt");
        [Step::sh(edit), result(name), Step::text("Done.")]
    });
    let resets_at = jiff::Timestamp::now().as_second() + 2 * 3600;
    let limit = [Step::usage_limit(resets_at)];
    // One at a time, so that the limit comes last.
    let units: [(&str, &[Step]); 4] = [("a", &edits[0]), ("b", &edits[1]), ("c", &edits[2]), ("limited", &limit)];
    let started = world.run_with(&units, &["run", "-d", "-j", "1", "../plan.toml"]);
    assert_eq!(started.status.code(), Some(0), "{}", said(&started));
    let woken = world.prun(&["wait", "--timeout", "100"]);
    assert_eq!(woken.status.code(), Some(3), "{}", said(&woken));
    assert!(said(&woken).contains("HELD codex for "), "{}", said(&woken));
    for name in ["a", "b", "c"] {
        let unit = world.unit(name);
        assert_eq!(unit.outcome(), Some(&Outcome::Succeeded), "{unit:?}");
        let facts = unit.facts().unwrap();
        assert_eq!(facts.result.as_ref().unwrap().channel, Channel::ResultFile);
        // Three answers of 100 and 10 tokens each.
        assert_eq!(facts.usage.map(|usage| usage.total_tokens()), Some(330));
    }
    let limited = world.unit("limited");
    assert_eq!(limited.attempts[0].outcome, Some(Outcome::Failed(Cause::UsageLimit)));
    assert_eq!((limited.retries_spent, limited.repeats), (0, 1));
    let error = limited.facts().unwrap().error.clone().unwrap();
    let told = error.resets_at.unwrap().0 / 1000;
    assert!((resets_at..=resets_at + 60).contains(&told), "{} is {told}", error.message);
    let text = said(&world.prun(&["explain", "limited"]));
    assert!(text.contains("usage limit") && text.contains("try again at"), "{text}");
    assert!(said(&world.prun(&["status"])).contains("(usage-limit), 1 unit waits for it"));

    // It waits; whoever does not want to ends the run.
    assert_eq!(world.prun(&["stop", "limited"]).status.code(), Some(0));
    assert_eq!(world.prun(&["attach"]).status.code(), Some(3));
    assert_eq!(world.prun(&["reconcile"]).status.code(), Some(5), "a unit without an end of its own blocks");
    assert_eq!(world.prun(&["exclude", "limited", "-m", "no tokens left"]).status.code(), Some(0));
    let dry = said(&world.prun(&["integrate", "--dry-run"]));
    let tree = dry.split("tree ").nth(1).and_then(|rest| rest.split_whitespace().next()).expect(&dry);
    let landed = world.prun(&["integrate", "--tree", tree]);
    assert_eq!(landed.status.code(), Some(0), "{}", said(&landed));
    for name in ["a", "b", "c"] {
        assert_eq!(world.file(&format!("src/{name}.txt")), format!("{name}\nby {name}\n"));
        assert_eq!(world.file(&format!("src/new-{name}.txt")), format!("{name}\n"));
    }
}

/// A panel of two vendors: the same prompt, results and costs beside each other, and the one that is named lands.
#[test]
fn codex_and_claude_do_the_same_work_beside_each_other_and_one_of_them_lands() {
    let (Some(world), Some(claude)) = (World::new(), Client::Claude.installed()) else { return };
    let config = world.at("config.toml");
    let both = std::fs::read_to_string(&config).unwrap() + &Client::Claude.config(&claude, &world.server);
    std::fs::write(&config, both).unwrap();
    let prun = |args: &[&str]| {
        let mut command = world.command(PRUN, args);
        command.envs(Client::Claude.env(world.client_home.path(), &world.server));
        command.env("PRUN_HOME", world.at("home")).env("PRUN_CONFIG", &config).env("PRUN_DURABLE", "off");
        command.output().unwrap()
    };
    let edit = Step::sh("echo \"by $PRUN_UNIT\" >> src/a.txt");
    let form = "# %s result\\nConclusion: by %s\\nFiles: src/a.txt\\nOpen items: none\\nVerification: none\\n";
    let result = Step::sh(format!("printf '{form}' \"$PRUN_UNIT\" \"$PRUN_UNIT\" > \"$PRUN_RESULT\""));
    let steps = directive(&[edit, result, Step::text("Done.")]);
    let plan = format!(
        "version = 1\nrepo = \"repo\"\n[[unit]]\nid = \"p\"\npanel = [\"codex\", \"claude\"]\nowns = [\"src/**\"]\n\
         prompt = '''\nDo as the model says.\n{steps}\n'''\n"
    );
    std::fs::write(world.at("plan.toml"), plan).unwrap();
    let ran = prun(&["run", "../plan.toml"]);
    assert!(said(&ran).contains("CHOOSE one of p-codex, p-claude"), "{}", said(&ran));
    let shown = prun(&["compare", "p", "--json"]);
    let view: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap_or_else(|_| panic!("{}", said(&shown)));
    for (at, name) in ["codex", "claude"].iter().enumerate() {
        let member = &view["members"][at];
        assert_eq!((&member["executor"], &member["outcome"]), (&(*name).into(), &"succeeded".into()), "{member}");
        assert_eq!(member["conclusion"], format!("by p-{name}"));
        assert_eq!((&member["usage"]["output_tokens"], &member["usage"]["turns"]), (&30.into(), &3.into()), "{member}");
    }
    assert!(view["members"][1]["usage"]["cost_micro_usd"].as_u64().unwrap() > 0);
    assert_eq!(prun(&["integrate", "--dry-run"]).status.code(), Some(5));
    assert_eq!(prun(&["accept", "p-claude", "-m", "it reads better"]).status.code(), Some(0));
    let dry = said(&prun(&["integrate", "--dry-run"]));
    let tree = dry.split("tree ").nth(1).and_then(|rest| rest.split_whitespace().next()).expect(&dry);
    assert_eq!(prun(&["integrate", "--tree", tree]).status.code(), Some(0));
    assert_eq!(world.file("src/a.txt"), "a\nby p-claude\n");
}

/// Claude knows its turns before it takes them, so it is told how many are left and keeps to that by itself.
#[test]
fn claude_is_told_what_is_left_of_the_budget_and_goes_on_when_it_is_raised() {
    let Some(world) = World::of(Client::Claude) else { return };
    let steps =
        [Step::sh("echo one >> src/a.txt"), Step::sh("echo two >> src/a.txt"), result("u"), Step::text("Done.")];
    let ran = world.run_plan("[budget]\nturns = 2\n", 0, &[("u", &steps)], &["run", "../plan.toml"]);
    assert!(said(&ran).contains("turns are used"), "{}", said(&ran));
    let unit = world.unit("u");
    assert_eq!((unit.outcome(), unit.attempts.len()), (Some(&Outcome::Stopped(StopReason::Budget)), 1), "{unit:?}");
    let asked = world.server.requests();
    assert!(asked < 4, "it would have asked four times, not {asked}");
    let resumed = world.prun(&["resume", "--budget", "turns=20"]);
    assert_eq!(resumed.status.code(), Some(0), "{}", said(&resumed));
    assert_eq!(world.unit("u").outcome(), Some(&Outcome::Succeeded));
}

#[test]
fn a_retry_goes_on_in_the_same_thread_and_counts_only_its_own_tokens() {
    let Some(world) = World::new() else { return };
    let first = [Step::sh("echo one >> src/a.txt"), Step::text("I stop here.")];
    let run = world.run(&[("u", &first)]);
    assert_eq!(run.status.code(), Some(3), "{}", said(&run));
    assert_eq!(world.unit("u").outcome(), Some(&Outcome::Incomplete(Gap::Contract)));

    let more = [Step::sh("echo two >> src/a.txt"), result("u"), Step::text("Done.")];
    let message = format!("Write the result, too.\n{}", directive(&more));
    let retry = world.prun(&["retry", "u", "--continue", "-m", &message]);
    assert_eq!(retry.status.code(), Some(0), "{}", said(&retry));
    let attach = world.prun(&["attach"]);
    assert_eq!(attach.status.code(), Some(0), "{}", said(&attach));

    let unit = world.unit("u");
    assert_eq!(unit.outcome(), Some(&Outcome::Succeeded), "{unit:?}");
    let [one, two] = &unit.attempts[..] else { panic!("{unit:?}") };
    assert_eq!(two.begins.how, RetryHow::Continue);
    let facts = |record: &prun_core::unit::AttemptRecord| record.facts.clone().unwrap();
    assert_eq!(facts(one).session, facts(two).session);
    let tokens = [one, two].map(|record| facts(record).usage.unwrap().total_tokens());
    assert_eq!(tokens, [220, 330], "two answers, then three; Codex itself counts 550 over the thread");
    assert_eq!(world.state().tokens(), 550);
    assert_eq!(facts(two).changes.unwrap().files.len(), 1);
    // The model hears of the first attempt again.
    let asked = world.server.bodies().last().unwrap().to_string();
    assert!(asked.contains("I stop here.") && asked.contains("echo one >> src/a.txt"), "{asked}");
}

#[test]
fn what_codex_starts_carries_the_mark_by_which_it_is_found_when_its_dispatcher_is_dead() {
    let Some(world) = World::new() else { return };
    let steps = [Step::sh("printenv PRUN_TOKEN > src/a.txt"), result("u"), Step::text("Done.")];
    let run = world.run(&[("u", &steps)]);
    assert_eq!(run.status.code(), Some(0), "{}", said(&run));
}

/// The client's own tool cannot write there either, whichever way it takes.
#[test]
fn c18_codex_behind_the_guard_cannot_write_the_repository() {
    let Some(world) = World::new() else { return };
    let repo = world.at("repo").display().to_string();
    let tries = format!(
        "echo evil > {repo}/src/a.txt; touch {repo}/.git/hooks/pre-commit; git commit -q --allow-empty -m x; \
         git push -q {repo} HEAD:refs/heads/evil; echo 'by u' >> src/b.txt"
    );
    let steps = [Step::sh(tries), result("u"), Step::text("Done.")];
    let guard = prun_engine::spec::GuardSpec { read_only: vec![world.at("repo")], writable: Vec::new() };
    if let Err(error) = guard.probe() {
        let is_required = std::env::var_os("PRUN_TEST_REQUIRE_ALL").is_some_and(|value| value == "1");
        assert!(!is_required, "the guard: {error}");
        return eprintln!("LEFT OUT: the guard: {error}");
    }
    let run = world.run_plan("guard = \"mount\"\n", 0, &[("u", &steps)], &["run", "../plan.toml"]);
    assert_eq!(run.status.code(), Some(0), "{}", said(&run));
    let unit = world.unit("u");
    assert_eq!(unit.outcome(), Some(&Outcome::Succeeded), "{unit:?}");
    assert_eq!(unit.facts().unwrap().read_only, [repo.as_str()]);
    assert_eq!((world.file("src/a.txt"), world.file("src/b.txt")), ("a\n".to_owned(), "b\n".to_owned()));
    assert!(!world.at("repo/.git/hooks/pre-commit").exists() && !world.at("repo/.git/refs/heads/evil").exists());
    let asked = world.server.bodies().last().unwrap().to_string();
    assert!(asked.matches("Read-only file system").count() >= 2, "{asked}");
}

#[test]
fn a_retry_goes_on_by_itself_in_the_session_with_the_reason_in_the_prompt() {
    for client in [Client::Codex, Client::Claude] {
        let Some(world) = World::of(client) else { return };
        // It edits and stops without a result; the next attempt knows why it is there.
        let steps =
            [Step::sh("echo more >> src/a.txt"), Step::text("I stop here.").once(), result("u"), Step::text("Done.")];
        let run = world.run_plan("", 1, &[("u", &steps)], &["run", "../plan.toml"]);
        assert_eq!(run.status.code(), Some(0), "{client:?} {}", said(&run));
        let unit = world.unit("u");
        let [one, two] = &unit.attempts[..] else { panic!("{unit:?}") };
        assert_eq!(one.outcome, Some(Outcome::Incomplete(Gap::Contract)), "{client:?}");
        assert_eq!((two.begins.how, &two.outcome), (RetryHow::Continue, &Some(Outcome::Succeeded)), "{client:?}");
        let session = |record: &prun_core::unit::AttemptRecord| record.facts.as_ref().unwrap().session.clone();
        assert_eq!(session(one), session(two), "{client:?}");
        let asked = world.server.bodies().last().unwrap().to_string();
        assert!(asked.contains("Your last attempt was not accepted: the result lacks"), "{client:?} {asked}");
        assert!(asked.contains("I stop here."), "{client:?} {asked}");
        let brief = said(&world.prun(&["brief", "u"]));
        assert!(brief.contains("Your last attempt was not accepted") && brief.contains("prun brief"), "{brief}");
    }
}
