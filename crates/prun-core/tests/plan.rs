//! The plan file from outside: what is read, what is refused, and that the docs say the same.

use std::path::PathBuf;

use proptest::prelude::*;
use prun_core::budget::Budget;
use prun_core::event::Mode;
use prun_core::ids::ExecutorName;
use prun_core::plan::schema::{RawDefaults, RawDuration, RawExecutor, RawPlan, RawUnit, reference};
use prun_core::plan::{CommandLine, Dirty, Format, PlanFile, ResultFrom, TEMPLATE, parse, render, schema};
use serde_json::{Value, json};

const FULL: &str = include_str!("fixtures/full.toml");

/// The problems of a TOML plan, as they are shown.
fn problems(text: &str) -> String {
    parse(text, Format::Toml).map_or_else(|problems| render(&problems, "p.toml"), |plan| format!("fine: {plan:?}"))
}

/// The first problem that is shown for a unit with one more line.
fn with_line(line: &str) -> String {
    let told = problems(&format!("version = 1\n[[unit]]\nid = \"a\"\nprompt = \"x\"\n{line}\n"));
    told.trim_end().to_owned()
}

/// The plan without its places.
fn content(plan: &PlanFile) -> Value {
    serde_json::to_value(plan).expect("a plan is plain data")
}

#[test]
fn a_plan_with_every_key_is_resolved() {
    let plan = parse(FULL, Format::Toml).unwrap();
    assert_eq!(plan.dirty, Some(Dirty::Include));
    assert_eq!(plan.verify, Some(CommandLine::Argv(vec!["cargo".into(), "test".into(), "--workspace".into()])));
    let [csv, callers, mail, fmt, judge_codex, judge_claude, lint_1, lint_2] = plan.units.as_slice() else {
        panic!("{plan:?}")
    };
    assert_eq!(csv.mode, Mode::Write);
    assert_eq!(csv.executors.iter().map(ExecutorName::as_str).collect::<Vec<_>>(), ["codex", "command"]);
    assert_eq!(csv.command, Some(CommandLine::Argv(vec!["./worker.sh".into(), String::new()])));
    assert_eq!(csv.verify, Some(CommandLine::Shell("cargo test csv".into())));
    assert_eq!((csv.retries, csv.timeout_millis, csv.idle_millis), (2, Some(2_700_000), Some(300_000)));
    assert!(csv.checkout, "a write unit always has one");
    assert_eq!((callers.retries, callers.timeout_millis, callers.checkout), (0, None, false));
    assert_eq!(callers.command, None);
    let budget = Budget { tokens: Some(1_000_000), ..Budget::default() };
    assert_eq!((csv.priority, csv.budget), (1, budget));
    assert_eq!((plan.budget.tokens, plan.budget.money_micro_usd), (Some(20_000_000), Some(12_500_000)));
    assert_eq!((plan.budget.turns, plan.budget.time_millis), (Some(500), Some(28_800_000)));
    let env: Vec<_> = callers.env.0.iter().map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(env, ["CI=false", "LANG=C", "RUST_BACKTRACE=1"]);
    assert!(mail.is_session() && mail.checkout);
    assert_eq!(fmt.executors[0].as_str(), "command", "a command of its own is closer than the default executor");
    assert_eq!(fmt.command.as_ref().unwrap().argv(), ["sh", "-c", "cargo fmt"]);
    assert_eq!((judge_codex.id.as_str(), judge_claude.id.as_str()), ("judge-codex", "judge-claude"));
    assert_eq!((judge_claude.executors[0].as_str(), judge_claude.mode), ("claude", Mode::Read));
    assert_eq!((lint_1.result, lint_2.result), (ResultFrom::Stdout, ResultFrom::Stdout));
    assert!(!format!("{plan:?}").contains("true\""), "Debug shows no value of a variable");
}

#[test]
fn a_small_plan_gets_the_built_in_defaults() {
    let plan = parse("version = 1\n[[unit]]\nid = \"a\"\nprompt = \"x\"\n", Format::Toml).unwrap();
    insta::assert_snapshot!(serde_json::to_string_pretty(&plan).unwrap(), @r##"
    {
      "version": 1,
      "title": "a",
      "repo": null,
      "base": "HEAD",
      "dirty": null,
      "guard": null,
      "setup": null,
      "setup_limit_millis": null,
      "verify": null,
      "check_limit_millis": null,
      "jobs": null,
      "depth": 0,
      "context": null,
      "budget": {
        "tokens": null,
        "money_micro_usd": null,
        "turns": null,
        "time_millis": null
      },
      "units": [
        {
          "id": "a",
          "mode": "write",
          "executors": [
            "codex"
          ],
          "command": null,
          "prompt": {
            "inline": "x"
          },
          "owns": [],
          "verify": null,
          "deliverables": [],
          "effort": null,
          "model": null,
          "env": {},
          "retries": 1,
          "timeout_millis": null,
          "idle_millis": 600000,
          "first_output_millis": 180000,
          "budget": {
            "tokens": null,
            "money_micro_usd": null,
            "turns": null,
            "time_millis": null
          },
          "priority": 0,
          "checkout": true
        }
      ],
      "maps": []
    }
    "##);
}

#[test]
fn every_problem_is_told_at_once_with_its_place() {
    let text = r#"version = 2
titel = "x"
jobs = 0
depends_on = ["b"]
base = "-x"

[defaults]
owns = ["x"]
retries = 11
executor = "Claude!"

[[unit]]
id = "CSV"
prompt = "ä"
timeout = 45
pompt_file = "x"

[[unit]]
id = "csv"
prompt = "  "
env = { PRUN_X = "1", "1A" = "x", A = 1 }
owns = ["src/{a", "../x", "ok", "ok"]
deliverables = ["/etc/passwd", "a/../b", "./c"]

[[unit]]
needs = "csv"
budget = 1
prompt = "a"
prompt_file = "b"

[[unit]]
id = "csv"
mode = "reed"
command = []
executor = "codex"
"#;
    insta::assert_snapshot!(problems(text), @r##"
    p.toml:1:11: `version` is 2; this prun reads plans of version 1
    p.toml:2:1: unknown key `titel`
    hint: did you mean `title`?
    p.toml:3:8: `jobs` is 1 to 1000, not 0
    p.toml:4:1: `depends_on`: units are independent; use a second run
    hint: put what must come later into a plan of its own, and run it when this one is integrated
    p.toml:5:8: `base` is `-x`, which git takes for an option
    hint: a branch, a tag or a commit, such as "HEAD"
    p.toml:8:1: `owns` is each unit's own, not a default
    p.toml:9:11: `retries` is 0 to 10, not 11
    p.toml:10:12: `executor` names no executor: "Claude!" is no executor name (a-z, 0-9, - and _, at most 32 characters)
    p.toml:15:11: `timeout` is a number without a unit
    hint: "45s" or "45m"?
    p.toml:16:1: unknown key `pompt_file`
    hint: did you mean `prompt_file`?
    p.toml:19:6: the id `csv` is equal but for case to `CSV` at 13:6
    hint: give it a name of its own: it names a directory and the unit in every command
    p.toml:20:10: `prompt` is empty
    p.toml:21:9: `env`: `PRUN_X` is prun's to set
    hint: PRUN_* tell a worker where it is, GIT_* would lead it out of its clone
    p.toml:21:23: `env`: `1A` is no name of a variable
    hint: letters, digits and _, no digit first
    p.toml:21:39: `env`: `A` wants a string, not an integer
    hint: put the value in quotes
    p.toml:22:9: `owns` has a bad pattern: error parsing glob 'src/{a': unclosed alternate group; missing '}' (maybe escape '{' with '[{]'?)
    p.toml:22:19: `owns` has `../x`, which leaves the repository
    p.toml:22:33: `owns` has `ok` twice
    p.toml:23:17: `deliverables` has `/etc/passwd`, which is absolute; paths are relative to the workspace
    p.toml:23:32: `deliverables` has `a/../b`, which leaves the workspace
    p.toml:23:42: `deliverables` has `./c`, which is not in its shortest form (no `.`, no empty part)
    p.toml:25:1: the unit has no `id`
    hint: an id is 1 to 64 of A-Z a-z 0-9 _ - and begins without a dash
    p.toml:26:1: `needs`: units are independent; use a second run
    hint: put what must come later into a plan of its own, and run it when this one is integrated
    p.toml:27:10: `budget` wants a table, not an integer
    p.toml:29:15: the unit has both `prompt` and `prompt_file`
    hint: leave one out
    p.toml:31:1: the unit has no prompt
    hint: give it `prompt` or `prompt_file`
    p.toml:32:6: the id `csv` is equal but for case to `CSV` at 13:6
    hint: give it a name of its own: it names a directory and the unit in every command
    p.toml:33:8: `mode` is "write" or "read", not `reed`
    p.toml:34:11: `command` names no program
    "##);
}

#[test]
fn single_mistakes_get_a_hint() {
    let told: Vec<String> = [
        r#"timeout = "45""#,
        r#"idle_timeout = "soon""#,
        r#"executor = []"#,
        r#"executor = ["codex", "Codex", 3]"#,
        r#"executor = "command""#,
        r#"command = ["", "x"]"#,
        r#"command = "x"
executor = "codex""#,
        r#"checkout = false"#,
        r#"mode = "read"
owns = ["x"]"#,
        r#"effort = "very high""#,
        r#"model = "--model""#,
        r#"result = "json""#,
        r#"result = "stdout""#,
        r#"panel = 3"#,
        r#"panel = ["codex"]"#,
        r#"panel = ["codex", "codex"]"#,
        r#"panel = ["codex", "claude"]
executor = "codex""#,
        r#"panel = ["codex", "claude"]
samples = 2"#,
        r#"panel = ["codex", "claude"]
command = "x""#,
        r#"panel = ["codex", "command"]"#,
        r#"samples = 1"#,
        r#"samples = 9"#,
        r#"idle-timeout = "1m""#,
        "verify = \"a\\u0000\"",
        "\"k\\u001b[2J\" = 1",
        r##"owns = ["#x", ""]"##,
    ]
    .map(with_line)
    .to_vec();
    insta::assert_snapshot!(told.join("\n"), @r##"
    p.toml:5:11: `timeout` is `45`: a duration needs a unit
    hint: for example "90s", "45m", "1h30m", or "off"
    p.toml:5:16: `idle_timeout` is `soon`: not a duration
    hint: for example "90s", "45m", "1h30m", or "off"
    p.toml:5:12: `executor` names no executor
    hint: leave it out for the default
    p.toml:5:22: `executor` names no executor: "Codex" is no executor name (a-z, 0-9, - and _, at most 32 characters)
    p.toml:5:31: `executor` wants a string, not an integer
    p.toml:5:12: the executor `command` needs a `command`
    hint: for example: command = ["python3", "fix.py"]
    p.toml:5:11: `command` names no program
    p.toml:5:11: `command` is given, but the executor is `codex`
    hint: leave `executor` out, or say executor = "command"
    p.toml:5:12: `checkout` = false is for read units
    hint: say mode = "read"
    p.toml:6:8: `owns` is for write units; a read unit changes nothing
    hint: say mode = "write"
    p.toml:5:10: `effort` is one word of at most 128 ASCII characters without a leading dash
    p.toml:5:9: `model` is one word of at most 128 ASCII characters without a leading dash
    p.toml:5:10: `result` is "file" or "stdout", not `json`
    p.toml:5:10: `result` is for a unit with a `command` of its own
    hint: other executors have theirs in the configuration
    p.toml:5:9: `panel` wants a name or an array of names, not an integer
    p.toml:5:9: `panel` has 2 to 8 executors, not 1
    hint: executor = … names a single one; samples = 3 asks it three times
    p.toml:5:19: `panel` has `codex` twice
    p.toml:6:12: the unit has both `panel` and `executor`
    hint: leave `executor` out: the panel names who does it
    p.toml:6:11: the unit has both `panel` and `samples`
    hint: leave one out: `panel` names executors, `samples` asks one several times
    p.toml:6:11: `command` is given, but the executor is `codex`, `claude`
    hint: leave `executor` out, or say executor = "command"
    p.toml:5:9: the executor `command` needs a `command`
    hint: for example: command = ["python3", "fix.py"]
    p.toml:5:11: `samples` is 2 to 8, not 1
    p.toml:5:11: `samples` is 2 to 8, not 9
    p.toml:5:1: unknown key `idle-timeout`
    hint: did you mean `idle_timeout`?
    p.toml:5:10: `verify` holds a NUL character
    p.toml:5:1: unknown key `k\u{1b}[2J`
    p.toml:5:9: `owns` has `#x`, which gitignore takes for a comment; write \#x
    p.toml:5:15: `owns` is empty
    "##);
}

#[test]
fn plans_of_the_wrong_shape_get_one_clear_problem() {
    let cases = [
        "",
        "version = 1",
        "version = 1\nunit = []",
        "version = 1\nunit = 3",
        "version = 1\n[unit]\nid = \"a\"",
        "version = 1\nunit = [1]",
        "version = 1\nversion = 1",
        "version = 1\n[[unit]]\nid = \"a\nprompt = 1",
        "version = 1\n[[unit]]\nid = \"a\"\nprompt = \"x\"\n[defaults]\n[[unit.env]]",
    ];
    insta::assert_snapshot!(cases.map(problems).join("\n"), @r##"
    p.toml:1:1: `version` is missing
    hint: begin the plan with: version = 1
    p.toml:1:1: the plan has no unit
    hint: add one: [[unit]] with id and prompt

    p.toml:1:1: the plan has no unit
    hint: add one: [[unit]] with id and prompt

    p.toml:2:8: `unit` holds no unit

    p.toml:2:8: `unit` wants an array of tables, not an integer

    p.toml:2:1: `unit` wants an array of tables, not a table
    hint: write [[unit]], with two brackets

    p.toml:2:9: a unit is a table, not an integer

    p.toml:2:1: TOML syntax: duplicate key

    p.toml:3:8: TOML syntax: invalid basic string, expected `"`

    p.toml:6:1: `env` wants a table of strings, not an array
    "##);
}

#[test]
fn json_is_strict_and_tells_its_places() {
    let cases = [
        "{\"version\": 1, // no\n \"unit\": []}",
        "{\"version\": 1,\n \"unit\": [{\"id\": \"ä\", \"id\": \"b\"}]}",
        "{\n  \"ä\": 1, \"version\": 1.0, \"unit\": [{\"id\": null, \"prompt\": \"x\"},]}",
        "{\n  \"ä\": 1, \"version\": 1.0, \"unit\": [{\"id\": null, \"prompt\": \"x\"}]}",
        "[]",
        "{'version': 1}",
        "{\"a\": \"\\ud800\"}",
    ];
    let told = cases.map(|text| render(&parse(text, Format::Json).unwrap_err(), "p.json"));
    insta::assert_snapshot!(told.join("\n"), @r##"
    p.json:1:16: JSON syntax: key must be a string

    p.json:2:23: the key `id` stands twice

    p.json:2:64: JSON syntax: trailing comma

    p.json:2:3: unknown key `ä`
    p.json:2:22: `version` wants the integer 1, not a float
    p.json:2:43: `id` wants a string, not null
    hint: an id is 1 to 64 of A-Z a-z 0-9 _ - and begins without a dash

    p.json:1:1: a plan in JSON is one object

    p.json:1:2: JSON syntax: key must be a string

    p.json:1:14: JSON syntax: unexpected end of hex escape
    "##);
}

#[test]
fn huge_plans_are_refused() {
    let long = format!("# {}", "x".repeat(4 << 20));
    assert!(problems(&long).contains("at most 4194304 are allowed"));
    let many = format!("version = 1\nunit = [{}]", "{},".repeat(10_001));
    assert_eq!(problems(&many).lines().count(), 1);
    for deep in ["[".repeat(1 << 20), "{\"a\":".repeat(1 << 18)] {
        assert!(parse(&deep, Format::Json).is_err());
    }
    let dotted = format!("{} = 1", vec!["a"; 1 << 20].join("."));
    for deep in [format!("a = {}", "[".repeat(1 << 20)), format!("a = {}", "{a=".repeat(1 << 20)), dotted] {
        assert!(parse(&deep, Format::Toml).is_err());
    }
}

#[test]
fn the_plan_that_init_writes_passes_and_every_example_in_it_too() {
    let plan = parse(TEMPLATE, Format::Toml).unwrap();
    assert_eq!(plan.units.len(), 1);
    let uncommented: Vec<&str> = TEMPLATE
        .lines()
        .map(|line| {
            line.strip_prefix("# ").filter(|rest| rest.contains(" = ") || rest.starts_with('[')).unwrap_or(line)
        })
        .collect();
    let plan = parse(&uncommented.join("\n"), Format::Toml).unwrap_or_else(|p| panic!("{}", render(&p, "t")));
    let ids: Vec<&str> = plan.units.iter().map(|unit| unit.id.as_str()).collect();
    assert_eq!(ids, ["first-1", "first-2", "report"]);
    assert_eq!((plan.jobs, plan.depth), (Some(6), 1));
}

#[test]
fn what_no_program_can_be_given_is_refused() {
    let long = "x".repeat(131_072);
    for line in
        [format!("command = \"{long}\""), format!("verify = [\"a\", \"{long}\"]"), format!("env.A = \"{long}\"")]
    {
        assert!(with_line(&line).contains("over 128 KiB"), "{}", with_line(&line));
    }
    assert!(with_line("env.A = \"a\\u0000\"").contains("`env`: `A` holds a NUL character"));
    let titled = parse("version = 1\ntitle = \"a\\nb\"\n[[unit]]\nid = \"a\"\nprompt = \"x\"", Format::Toml);
    assert!(titled.unwrap_err()[0].message.contains("one line"));
}

#[test]
fn a_byte_order_mark_does_not_count() {
    let plan = "version = 1\n[[unit]]\nid = \"a\"\nprompt = \"x\"\n";
    assert!(parse(&format!("\u{feff}{plan}"), Format::Toml).is_ok());
    let json = "\u{feff}{\"version\": 2}";
    assert_eq!(Format::of("-", json), Format::Json);
    assert_eq!(parse(json, Format::Json).unwrap_err()[1].place.unwrap().column, 13);
}

#[test]
fn the_format_is_told_by_name_or_first_character() {
    assert_eq!(Format::of("a.JSON", ""), Format::Json);
    assert_eq!(Format::of("-", "\n {"), Format::Json);
    assert_eq!(Format::of("prun.toml", "version = 1"), Format::Toml);
}

fn members(line: &str) -> Vec<String> {
    let plan = format!("version = 1\n[[unit]]\nid = \"a\"\nprompt = \"x\"\nowns = [\"src/**\"]\n{line}\n");
    let plan = parse(&plan, Format::Toml).unwrap_or_else(|p| panic!("{}", render(&p, "p")));
    let member = |unit: &prun_core::plan::UnitPlan| {
        assert_eq!(unit.panel.as_ref().map(ToString::to_string).as_deref(), Some("a"));
        assert_eq!((unit.prompt.text(), unit.owns.len()), (Some("x"), 1), "all have the same work");
        let executors: Vec<&str> = unit.executors.iter().map(ExecutorName::as_str).collect();
        format!("{} {}{}", unit.id, executors.join(","), if unit.command.is_some() { " its command" } else { "" })
    };
    plan.units.iter().map(member).collect()
}

#[test]
fn a_panel_is_a_unit_for_each_executor_and_samples_are_units_alike() {
    assert_eq!(members("panel = [\"claude\", \"codex\"]"), ["a-claude claude", "a-codex codex"]);
    let mixed = "panel = [\"codex\", \"command\"]\ncommand = \"./w\"\nresult = \"stdout\"";
    assert_eq!(members(mixed), ["a-codex codex", "a-command command its command"]);
    assert_eq!(members("samples = 3"), ["a-1 codex", "a-2 codex", "a-3 codex"]);
    let named = "samples = 2\nexecutor = [\"codex\", \"claude\"]";
    assert_eq!(members(named), ["a-1 codex,claude", "a-2 codex,claude"]);
}

#[test]
fn members_of_panels_have_names_of_their_own() {
    let unit = |id: &str, more: &str| format!("[[unit]]\nid = \"{id}\"\nprompt = \"x\"\n{more}\n");
    let plan = |units: &[String]| problems(&format!("version = 1\n{}", units.concat()));
    let panel = "panel = [\"codex\", \"claude\"]";
    insta::assert_snapshot!(plan(&[unit("a-codex", ""), unit("a", panel), unit("A-CLAUDE", ""), unit("a", "")]), @r##"
    p.toml:9:9: the id `a-codex` is taken by the unit at 3:6
    hint: give it a name of its own: it names a directory and the unit in every command
    p.toml:11:6: the id `A-CLAUDE` is equal but for case to `a-claude` at 9:9
    hint: give it a name of its own: it names a directory and the unit in every command
    p.toml:15:6: the id `a` is taken by the unit at 7:6
    hint: give it a name of its own: it names a directory and the unit in every command
    "##);
    insta::assert_snapshot!(plan(&[unit(&"x".repeat(60), panel)]), @r##"
    p.toml:5:9: a member of the panel has no usable id: the unit id "xxxxxxxxxxxxxxxxxxxxxxxx"… has 66 bytes; at most 64 are allowed
    p.toml:5:9: a member of the panel has no usable id: the unit id "xxxxxxxxxxxxxxxxxxxxxxxx"… has 67 bytes; at most 64 are allowed
    "##);
    let defaults = "version = 1\n[defaults]\npanel = [\"codex\", \"claude\"]\nsamples = 2\n";
    insta::assert_snapshot!(problems(&format!("{defaults}{}", unit("a", ""))), @r##"
    p.toml:3:1: `panel` is each unit's own, not a default
    p.toml:4:1: `samples` is each unit's own, not a default
    "##);
    let map = "version = 1\n[[map]]\nname = \"m\"\nlist = [1]\nprompt = \"x\"\nsamples = 2\n";
    insta::assert_snapshot!(problems(map), @r##"
    p.toml:6:1: `samples`: a row is done by one unit
    hint: give a unit of its own to what is to be asked several times
    "##);
    let many: Vec<String> = (0..1_251).map(|n| unit(&format!("u{n}"), "samples = 8")).collect();
    insta::assert_snapshot!(plan(&many), @"p.toml:1:1: the plan has 10008 units with those of its panels; at most 10000 are allowed");
}

/// A generated file of the docs is what the code says; `PRUN_UPDATE=1` writes it.
fn check_generated(file: &str, make: impl FnOnce(&str) -> String) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(file);
    let now = std::fs::read_to_string(&path).unwrap_or_default();
    let wanted = make(&now);
    if now != wanted && std::env::var_os("PRUN_UPDATE").is_some() {
        std::fs::write(&path, wanted).expect("the docs can be written");
    } else {
        assert!(now == wanted, "docs/{file} is stale; run this test with PRUN_UPDATE=1");
    }
}

#[test]
fn the_schema_in_the_docs_is_up_to_date() {
    check_generated("plan.schema.json", |_| format!("{:#}\n", schema()));
}

#[test]
fn the_reference_in_the_docs_is_up_to_date() {
    check_generated("plan.md", |now| {
        const MARK: &str = "<!-- generated from the schema, see crates/prun-core/tests/plan.rs -->\n";
        let text = now.split(MARK).next().unwrap_or_default();
        format!("{text}{MARK}\n{}\n", reference().trim_end())
    });
}

#[test]
fn the_example_in_the_docs_is_a_plan() {
    let page = include_str!("../../../docs/plan.md");
    let example = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let plan = parse(example, Format::Toml).unwrap_or_else(|p| panic!("{}", render(&p, "plan.md")));
    assert_eq!(plan.units.len(), 2);
}

fn words() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9äß\"'\\\\ \\n/*.-]{0,12}[a-z]"
}

fn command() -> impl Strategy<Value = CommandLine> {
    prop_oneof![
        words().prop_map(CommandLine::Shell),
        (words(), prop::collection::vec(words(), 0..3)).prop_map(|(program, mut args)| {
            args.insert(0, program);
            CommandLine::Argv(args)
        }),
    ]
}

fn duration() -> impl Strategy<Value = RawDuration> {
    prop_oneof![
        Just(RawDuration("off".to_owned())),
        (1..100_000_000u64).prop_map(|millis| RawDuration(prun_core::plan::duration::format(millis))),
    ]
}

fn executor() -> impl Strategy<Value = RawExecutor> {
    let name = "[a-bd-z][a-z0-9_-]{0,9}".prop_map(|name| name.parse().expect("a valid name"));
    prop_oneof![
        name.clone().prop_map(RawExecutor::Name),
        prop::collection::btree_set(name, 1..3).prop_map(|names| RawExecutor::Names(names.into_iter().collect())),
    ]
}

prop_compose! {
    fn defaults()(
        executor in prop::option::of(executor()),
        verify in prop::option::of(command()),
        effort in prop::option::of("[a-z]{1,8}"),
        env in prop::option::of(prop::collection::btree_map("[A-FH-OQ-Z_][A-Z0-9_]{0,5}", words(), 0..3)),
        retries in prop::option::of(0..=10u32),
        timeout in prop::option::of(duration()),
        idle_timeout in prop::option::of(duration()),
    ) -> RawDefaults {
        RawDefaults { executor, verify, effort, env, retries, timeout, idle_timeout, ..RawDefaults::default() }
    }
}

prop_compose! {
    fn unit()(
        prompt in words(),
        file in any::<bool>(),
        owns in prop::option::of(prop::collection::btree_set("[a-z]{1,4}(/[a-z*]{1,3}){0,2}", 0..3)),
        samples in prop::option::of(2..=8u32),
        settings in defaults(),
    ) -> RawUnit {
        let (prompt, prompt_file) = if file { (None, Some(prompt)) } else { (Some(prompt), None) };
        let owns = owns.map(|owns| owns.into_iter().collect());
        RawUnit { id: "u".parse().expect("valid"), prompt, prompt_file, owns, deliverables: None, panel: None, samples, settings }
    }
}

prop_compose! {
    fn plan()(
        title in prop::option::of("[a-zA-Z0-9äß\"'\\\\ /*.-]{0,12}[a-z]"),
        setup in prop::option::of(command()),
        jobs in prop::option::of(1..=1000u32),
        defaults in prop::option::of(defaults()),
        mut unit in prop::collection::vec(unit(), 1..4),
    ) -> RawPlan {
        for (at, unit) in unit.iter_mut().enumerate() {
            unit.id = format!("u{at}").parse().expect("valid");
        }
        RawPlan { version: 1, title, setup, jobs, defaults, unit, ..RawPlan::default() }
    }
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,200}") {
        let _ = parse(&text, Format::Toml);
        let _ = parse(&text, Format::Json);
    }

    #[test]
    fn any_value_of_any_key_is_read_or_refused(
        key in prop::sample::select(vec!["version", "unit", "defaults", "id", "env", "executor", "owns", "timeout"]),
        value in prop::sample::select(vec!["1", "\"x\"", "[]", "[{}]", "{}", "1.5", "true", "1979-05-27", "[1, [2]]"]),
        at in 0..3usize,
    ) {
        let table = ["", "[defaults]\n", "[[unit]]\n"][at];
        let _ = parse(&format!("version = 1\n{table}{key} = {value}\n"), Format::Toml);
    }

    #[test]
    fn toml_and_json_of_one_plan_are_the_same_plan(raw in plan()) {
        let toml = parse(&toml::to_string(&raw).unwrap(), Format::Toml);
        let json = parse(&serde_json::to_string(&raw).unwrap(), Format::Json);
        let toml = toml.map_err(|problems| TestCaseError::fail(render(&problems, "toml")))?;
        let json = json.map_err(|problems| TestCaseError::fail(render(&problems, "json")))?;
        prop_assert_eq!(content(&toml), content(&json));
        let stored: PlanFile = serde_json::from_value(content(&toml)).unwrap();
        prop_assert_eq!(content(&stored), content(&toml));
    }
}

#[test]
fn the_schema_forbids_what_the_reader_refuses() {
    let unit = &schema()["properties"]["unit"]["items"];
    assert_eq!(schema()["additionalProperties"], json!(false));
    assert_eq!(unit["additionalProperties"], json!(false), "{unit:#}");
    assert_eq!(unit["required"], json!(["id"]));
    assert!(!schema().to_string().contains("null"), "{:#}", schema());
}
