//! Panels and samples: the same work by several, looked at beside each other, and at most one of them lands.

use insta::assert_snapshot;
use prun_testkit::env::TestEnv;

use crate::support::{self, PRUN, WORDS, json, plan, run, tree_shown, unit, unit_of, wait_for_end};

/// A panel of the plan's own command and of another program, which write different things into the same file; and a
/// unit beside them.
fn place(more: &str) -> TestEnv {
    let env = TestEnv::new(PRUN);
    let twin = format!("{WORDS}\ncat > /dev/null\necho twin >> src/one.txt; echo more > two.txt; result 'by the twin'");
    let twin = env.script("twin", &twin);
    let config = format!("[executor.twin]\nkind = \"command\"\nprogram = \"{}\"\nargs = []\n", twin.display());
    std::fs::write(env.at("user/config/prun/config.toml"), config).unwrap();
    let panel = unit("p", "echo own >> src/one.txt; result 'by the command' src/one.txt")
        + "panel = [\"command\", \"twin\"]\nowns = [\"src/**\", \"two.txt\"]\n";
    let beside = unit("u", "echo u > u.txt; result u u.txt");
    env.write("prun.toml", plan(more, &[panel, beside]));
    env
}

#[test]
fn of_a_panel_one_member_lands_by_name_and_never_another_one() {
    let env = place("verify = \"true\"");
    assert_snapshot!(env.prun("check"), @r##"
    exit 0
    --- stdout
    ok 3 units (3 write) · base bb40ac6 · command 2 slots, twin 2
    command · 2 slots
    twin · 2 slots
    git [version] · home [home]
    guard off: what a worker writes to the repository by its path is detected, not prevented
    "##);
    let ran = env.prun("run");
    assert_snapshot!(env.normal(&ran.stdout), @r##"
    [run] 3/3 done · [span] · next [n]
    CHOOSE one of p-command, p-twin   prun compare [run]/p
    "##);
    assert_eq!(ran.code, 3, "somebody has to choose: {ran}");
    let id = run_id(&env);
    assert_snapshot!(env.prun("reconcile"), @r##"
    exit 5
    --- stdout
    BLOCKS p  a panel of 2 (2 succeeded), and none is chosen: at most one lands   prun compare p, then prun accept p-command -m WHY or another
    not ready · 1 block · 1 unit goes in
    --- stderr
    run [run] (p-command, p-twin, u)
    "##);
    for line in [
        "integrate --dry-run",
        "integrate --dry-run --only p-twin",
        "integrate --dry-run --only p-twin --only p-command",
    ] {
        assert_eq!(env.prun(line).code, 5, "{line}");
    }
    assert_snapshot!(env.prun("compare p"), @r##"
    exit 0
    --- stdout
    [run]/p · 2 beside each other · none chosen
                 p-command     p-twin
    executor     command       twin
    outcome      succeeded     succeeded
    check        -             -
    decision     unreviewed    unreviewed
    changes      1 file +1 -0  2 files +2 -0
    used         -             -
    attempts     1             1
    time  [span]  [span]
    src/one.txt  +1 -0         +1 -0
    two.txt      -             +1 -0

    ── result of p-command
    # p-command result
    Conclusion: by the command
    Files: src/one.txt
    Open items: none
    Verification: none

    Body of p-command.

    ── result of p-twin
    # p-twin result
    Conclusion: by the twin
    Files: see the diff
    Open items: none
    Verification: none

    Body of p-twin.

    ── src/one.txt by p-command +1 -0
    diff --git a/src/one.txt b/src/one.txt
    index 5626abf0f72e58d7a153368ba57db4c673c0e171..c859e6b4d508c9a0908a9f661c48571293572bdf 100644
    --- a/src/one.txt
    +++ b/src/one.txt
    @@ -1 +1,2 @@
     one
    +own

    ── src/one.txt by p-twin +1 -0
    diff --git a/src/one.txt b/src/one.txt
    index 5626abf0f72e58d7a153368ba57db4c673c0e171..101579337041795ae5e1836bc080a2eb3e76d2c6 100644
    --- a/src/one.txt
    +++ b/src/one.txt
    @@ -1 +1,2 @@
     one
    +twin

    ── two.txt by p-twin +1 -0
    diff --git a/two.txt b/two.txt
    new file mode 100644
    index 0000000000000000000000000000000000000000..ef49dd86a6957875edcd0bff210337d6b6dd063c
    --- /dev/null
    +++ b/two.txt
    @@ -0,0 +1 @@
    +more

    choose: prun accept [run]/p-command -m WHY · prun accept [run]/p-twin -m WHY
    --- stderr
    run [run] (p-command, p-twin, u)
    "##);
    let explained = env.prun("explain p-twin").stdout;
    assert!(explained.contains("/p · prun accept ") && explained.contains("or: prun compare "), "{explained}");
    assert_snapshot!(env.prun("accept p-twin -m better"), @r##"
    exit 0
    --- stderr
    run [run] (p-command, p-twin, u)
    p-twin is accepted; p-command stays out
    "##);
    assert_snapshot!(env.prun("reconcile"), @r##"
    exit 0
    --- stdout
    note p-twin  accepted: better
    ready · 2 units go in · 1 stay out · next: prun integrate [run] --dry-run
    --- stderr
    run [run] (p-command, p-twin, u)
    "##);
    // Another word on it is another choice.
    assert_snapshot!(env.prun("accept p-command -m shorter"), @r##"
    exit 0
    --- stderr
    run [run] (p-command, p-twin, u)
    p-command is accepted; p-twin stays out
    "##);
    assert_snapshot!(env.prun("unreview p-command"), @r##"
    exit 0
    --- stderr
    run [run] (p-command, p-twin, u)
    p is undecided again
    "##);
    assert_eq!(env.prun("reconcile").code, 5);
    assert_eq!(env.prun("accept p-twin -m better").code, 0);
    let tree = tree_shown(&env.prun("integrate --dry-run"));
    assert_eq!(env.prun(&format!("integrate --tree {tree}")).code, 0);
    assert_eq!((env.read("two.txt").as_str(), env.read("u.txt").as_str()), ("more\n", "u\n"));
    assert!(env.read("src/one.txt").ends_with("twin\n"));
    // The other one has no way in.
    assert_snapshot!(env.prun("accept p-command -m late"), @r##"
    exit 2
    --- stderr
    run [run] (p-command, p-twin, u)
    error: p-twin of the same panel has landed, and at most one of them does
    hint: `prun undo` takes the landing back
    "##);
    let shown = env.prun("integrate --dry-run --only p-command");
    assert_snapshot!(shown, @r##"
    exit 5
    --- stderr
    run [run] (p-command, p-twin, u)
    error: there is nothing to land
    hint: the units changed nothing that is not there already
    "##);
    assert_eq!(unit_of(&env, &id, "p-twin")["disposition"], "applied");
    assert!(!env.read("src/one.txt").contains("own"));
}

fn run_id(env: &TestEnv) -> String {
    env.run_ids().pop().unwrap().rsplit('-').next().unwrap().to_owned()
}

#[test]
fn a_panel_is_compared_by_its_name_or_a_members_and_says_what_it_left_out() {
    let env = place("");
    let id = run(&env);
    let view = json(&env, &format!("compare {id}/p-command --json"));
    assert_eq!(
        (&view["panel"], &view["chosen"], &view["members"][1]["unit"]),
        (&"p".into(), &().into(), &"p-twin".into())
    );
    assert!(view["members"][0]["result"]["text"].as_str().unwrap().contains("Body of p-command."));
    let paths: Vec<&str> = view["files"].as_array().unwrap().iter().map(|row| row["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["src/one.txt", "two.txt"]);
    assert!(view["files"][0]["changes"][0]["patch"]["text"].as_str().unwrap().contains("+own"));
    assert_eq!(view["files"][1]["changes"].as_array().unwrap().len(), 1, "one of them has it");
    let short = json(&env, "compare p --json --stat");
    assert_eq!((&short["members"][0]["result"], &short["files"][0]["changes"][0]["patch"]), (&().into(), &().into()));
    assert_snapshot!(env.prun("compare u"), @r##"
    exit 2
    --- stderr
    run [run] (p-command, p-twin, u)
    error: run [run] has no panel u
    hint: its panels: p
    "##);
    assert_eq!(env.prun("exclude p-command -m worse").code, 0);
    let told = env.normal(&env.prun("compare p --stat").stdout);
    assert_snapshot!(told.lines().last().unwrap(), @"p-twin lands · next: prun reconcile [run]");
}

#[test]
fn samples_are_several_tries_by_one_executor_and_a_command_may_print_its_result() {
    let env = TestEnv::new(PRUN);
    let script = "echo $PRUN_UNIT > out.txt; printf '# %s result\\nConclusion: %s\\nFiles: out.txt\\nOpen items: none\\n\
                  Verification: none\\n' $PRUN_UNIT $PRUN_UNIT";
    let tries = unit("try", script) + "samples = 3\nresult = \"stdout\"\n";
    env.write("prun.toml", plan("", &[tries]));
    let id = run(&env);
    for member in ["try-1", "try-2", "try-3"] {
        let unit = unit_of(&env, &id, member);
        assert_eq!((&unit["outcome"], &unit["conclusion"]), (&"succeeded".into(), &member.into()), "{unit}");
        assert_eq!(unit["executor"], "command");
    }
    assert_eq!(env.prun("reconcile").code, 5);
    assert_eq!(env.prun("accept try-2 -m best").code, 0);
    let tree = tree_shown(&env.prun("integrate --dry-run"));
    assert_eq!(env.prun(&format!("integrate --tree {tree}")).code, 0);
    assert_eq!(env.read("out.txt"), "try-2\n");
}

/// Whom the user excluded by name stays out, whatever becomes of the choice; who was only passed over comes back with
/// it, also where the one that was taken is tried again.
#[test]
fn only_who_was_passed_over_comes_back_when_the_choice_is_taken_back() {
    let env = support::place("", &[unit("p", "echo $PRUN_UNIT > p.txt; result") + "samples = 3\n"]);
    let id = run(&env);
    let decisions = || ["p-1", "p-2", "p-3"].map(|name| unit_of(&env, &id, name)["disposition"].clone());
    let does = |line: &str| assert_eq!(env.prun(line).code, 0, "{line}");
    does("exclude p-1 -m broken");
    does("accept p-2 -m good");
    assert_eq!(decisions(), ["excluded", "accepted", "excluded"]);
    assert!(env.prun("explain p-3").stdout.contains("p-2 of its panel was taken instead: good"));
    does("unreview p-2");
    assert_eq!(decisions(), ["excluded", "unreviewed", "unreviewed"]);
    does("accept p-2 -m good");
    does("exclude p-2 -m bad");
    assert_eq!(decisions(), ["excluded", "excluded", "unreviewed"]);
    does("accept p-2 -m again");
    does("accept p-3 -m better");
    assert_eq!(decisions(), ["excluded", "excluded", "accepted"]);
    does("retry p-3");
    wait_for_end(&env, &id);
    assert_eq!(decisions(), ["excluded", "unreviewed", "unreviewed"], "what was chosen is not there any more");
    assert_eq!(env.prun("reconcile").code, 5);
}
