//! The whole walk: from a plan to a verified change in the working tree, and back.

use insta::assert_snapshot;
use prun_testkit::env::TestEnv;

use crate::support::{PRUN, json, open_gate, place, plan, run, start, tree_shown, unit, wait_for_end, wait_for_state};

/// Two writers and a reader.
fn three_units() -> TestEnv {
    let add = unit("add", "echo one more >> src/one.txt; result 'added a line' src/one.txt");
    let new = unit("new", "mkdir -p lib; echo new > lib/new.txt; result 'a new file' lib/new.txt");
    let read = unit("read", "echo looking; cat repo/README.md; result 'nothing to do' none") + "mode = \"read\"\n";
    place("title = \"Three units\"\nverify = \"test -f lib/new.txt || test -f README.md\"", &[add, new, read])
}

#[test]
fn the_walk_from_init_to_undo_leaves_no_trace_in_the_repository() {
    let env = TestEnv::new(PRUN);
    assert_snapshot!(env.prun("init"), @r"
    exit 0
    --- stderr
    wrote prun.toml; next: prun check, then prun run
    ");
    assert_snapshot!(env.prun("init"), @r"
    exit 2
    --- stderr
    error: cannot create [repo]/prun.toml: File exists (os error 17)
    hint: name another file
    ");
    let template = env.read("prun.toml");
    assert!(template.contains("[[unit]]"), "{template}");
    drop(env);

    let env = three_units();
    let before = (env.tree("repo/.git"), env.tree("repo"));
    assert_snapshot!(env.prun("check"), @r"
    exit 0
    --- stdout
    ok 3 units (2 write, 1 read) · base bb40ac6 · command 4 slots
    command · 4 slots
    git [version] · home [home]
    guard off: what a worker writes to the repository by its path is detected, not prevented
    ");
    let ran = env.prun("run");
    assert_eq!(ran.code, 0, "{ran}");
    assert_snapshot!(env.normal(&ran.stdout), @r"
    [run] 3/3 done · [span] · next [n]
    ended, all well   prun integrate [run] --dry-run
    ");
    env.assert_all_gone();
    let looks = [
        "status",
        "runs",
        "result add",
        "result --brief",
        "explain add",
        "logs read",
        "path add",
        "diff add",
        "diff --stat",
        "diff --name-only",
        "brief read",
        "reconcile",
    ];
    let shown: Vec<String> = looks.iter().map(|line| format!("$ prun {line}\n{}\n", env.prun(line))).collect();
    assert_snapshot!(shown.concat(), @r#"
    $ prun status
    exit 0
    --- stdout
    [run] 3/3 done · [span] · next [n]
    add   succeeded  [span]  1 file +1 -0  added a line
    new   succeeded  [span]  1 file +1 -0  a new file
    read  succeeded  [span]  nothing to do
    [time] the check passed on the base after [span]
    disk [n]
    ended, all well   prun integrate [run] --dry-run
    --- stderr
    run [run] (Three units)

    $ prun runs
    exit 0
    --- stdout
    [date]  ended            [run] 3/3 done · [span] · next [n]  Three units

    $ prun result add
    exit 0
    --- stdout
    # add result
    Conclusion: added a line
    Files: src/one.txt
    Open items: none
    Verification: none

    Body of add.
    --- stderr
    run [run] (Three units)

    $ prun result --brief
    exit 0
    --- stdout
    add  succeeded: added a line
    new  succeeded: a new file
    read  succeeded: nothing to do
    --- stderr
    run [run] (Three units)

    $ prun explain add
    exit 0
    --- stdout
    [time] attempt 1 began on command: command is the unit's only executor
    [time] its workspace was ready after [n] ms
    [time] its dispatcher runs as process [pid]
    [time] its dispatcher settled it and left
    [time] settled as succeeded: 1 file changed
    you can: prun result [run]/add · prun diff [run]/add · prun exclude [run]/add -m WHY
    --- stderr
    run [run] (Three units)

    $ prun logs read
    exit 0
    --- stdout
    looking
    A project
    --- stderr
    run [run] (Three units)

    $ prun path add
    exit 0
    --- stdout
    [home]/runs/[run-id]/units/add/1/clone
    --- stderr
    run [run] (Three units)

    $ prun diff add
    exit 0
    --- stdout
    diff --git a/src/one.txt b/src/one.txt
    index 5626abf0f72e58d7a153368ba57db4c673c0e171..242eda592edb4aa97b75c0dc5a01c56cfe46405d 100644
    --- a/src/one.txt
    +++ b/src/one.txt
    @@ -1 +1,2 @@
     one
    +one more
    --- stderr
    run [run] (Three units)

    $ prun diff --stat
    exit 0
    --- stdout
    unit add
     src/one.txt | 1 +
     1 file changed, 1 insertion(+)
    unit new
     lib/new.txt | 1 +
     1 file changed, 1 insertion(+)
    --- stderr
    run [run] (Three units)

    $ prun diff --name-only
    exit 0
    --- stdout
    unit add
    src/one.txt
    unit new
    lib/new.txt
    --- stderr
    run [run] (Three units)

    $ prun brief read
    exit 0
    --- stdout
    Do read.

    ---
    Unit read · prun brief 1

    - You work in [home]/runs/[run-id]/units/read/1/scratch, a directory of your own. The repository at commit bb40ac66aadeb9ebdc57e6c9dd506d3d6ff7eaeb is in [home]/runs/[run-id]/units/read/1/scratch/repo, to be read: it is not your task to change it.
    - Never commit, push, or rewrite anything with git (reset, checkout, clean, stash, rebase). Your work is taken from the files as they stand.
    - Leave no background process behind: end whatever you start.

    Last of all, write your result to the file

        [home]/runs/[run-id]/units/read/1/result.md

    in exactly this form, each field on one line:

    # read result
    Conclusion: <one line>
    Files: <created or modified, or "none (read-only)">
    Open items: <blockers or follow-ups, or "none">
    Verification: <what was run, checked or searched, or "none">
    <blank line>
    <body>
    --- stderr
    run [run] (Three units)

    $ prun reconcile
    exit 0
    --- stdout
    ready · 2 units go in · 1 have nothing to land · next: prun integrate [run] --dry-run
    --- stderr
    run [run] (Three units)
    "#);
    let dry_run = env.prun("integrate --dry-run");
    assert_snapshot!(dry_run, @r"
    exit 0
    --- stdout
      lib/new.txt  new
      src/one.txt  add
    ready · tree 2d56ff139c90 · 2 files +2 -0 · verify ok after [span] (base ok) · 0 conflicts
    --- stderr
    run [run] (Three units)
    ");
    assert_eq!(before.1.changes(&env.tree("repo")), [""; 0], "nothing has changed so far");

    let tree = tree_shown(&dry_run);
    assert_snapshot!(env.prun(&format!("integrate --tree {tree}")), @r"
    exit 0
    --- stdout
      lib/new.txt  new
      src/one.txt  add
    ready · tree 2d56ff139c90 · 2 files +2 -0 · verify ok after [span] (base ok) · 0 conflicts
    landed, uncommitted; HEAD and index untouched · undo: prun undo [run]
    yours to review and commit:  git add -- lib/new.txt src/one.txt
    --- stderr
    run [run] (Three units)
    ");
    assert_snapshot!(env.git("status --porcelain -uall"), @r"
     M src/one.txt
    ?? lib/new.txt
    ?? prun.toml
    ");
    assert_eq!(before.0.changes(&env.tree("repo/.git")), [""; 0], "HEAD, index, refs and objects are the user's");
    assert_snapshot!(env.prun("status"), @r"
    exit 0
    --- stdout
    [run] 3/3 done · [span] · next [n]
    add   succeeded  [span]  1 file +1 -0  applied  added a line
    new   succeeded  [span]  1 file +1 -0  applied  a new file
    read  succeeded  [span]  nothing to do
    [time] the check passed on the base after [span]
    [time] the check passed on the combination after [span]
    [time] the check passed on the combination after [span]
    [time] landed: 2 files, uncommitted
    disk [n]
    --- stderr
    run [run] (Three units)
    ");
    assert_snapshot!(env.prun("undo"), @r"
    exit 0
    --- stdout
    landing 1 is taken back; the working tree is as it was before
    --- stderr
    run [run] (Three units)
    ");
    assert_eq!(before.1.changes(&env.tree("repo")), [""; 0], "as it was before");
}

#[test]
fn off_a_terminal_only_the_tree_that_was_shown_lands() {
    let env = three_units();
    run(&env);
    let before = env.tree("repo");
    assert_snapshot!(env.prun("integrate"), @r"
    exit 5
    --- stdout
      lib/new.txt  new
      src/one.txt  add
    ready · tree 2d56ff139c90 · 2 files +2 -0 · verify ok after [span] (base ok) · 0 conflicts
    --- stderr
    run [run] (Three units)
    error: nothing was changed: off a terminal the tree of a dry run has to be named
    hint: for the user: prun integrate [run] --tree 2d56ff139c90
    ");
    for wrong in ["0123456789ab", "01", "not-a-tree", "HEAD", ""] {
        let printed = env.prun_args(&["integrate", "--tree", wrong]);
        assert_eq!(printed.code, 5, "{wrong}: {printed}");
    }
    assert_snapshot!(env.prun("integrate --tree 0123456789ab"), @r"
    exit 5
    --- stdout
      lib/new.txt  new
      src/one.txt  add
    ready · tree 2d56ff139c90 · 2 files +2 -0 · verify ok after [span] (base ok) · 0 conflicts
    --- stderr
    run [run] (Three units)
    error: what would land is tree 2d56ff139c90985464674acde9e902a4c66fd116, not the tree 0123456789ab that was shown
    hint: the working tree or the units changed since: make a new dry run
    ");
    assert_eq!(before.changes(&env.tree("repo")), [""; 0]);
    // The tree is that of the moment: an edit in between makes it another.
    let tree = tree_shown(&env.prun("integrate --dry-run"));
    env.write("README.md", "A project, renamed\n");
    assert_eq!(env.prun(&format!("integrate --tree {tree}")).code, 5);
    assert_eq!(env.read("src/one.txt"), "one\n");
}

#[test]
fn what_landed_once_does_not_land_twice() {
    let env = three_units();
    run(&env);
    let tree = tree_shown(&env.prun("integrate --dry-run"));
    assert_eq!(env.prun(&format!("integrate --tree {tree}")).code, 0);
    let landed = env.tree("repo");
    assert_snapshot!(env.prun("integrate --dry-run"), @r"
    exit 5
    --- stderr
    run [run] (Three units)
    error: there is nothing to land
    hint: the units changed nothing that is not there already
    ");
    assert_snapshot!(env.prun("reconcile"), @r"
    exit 0
    --- stdout
    nothing to land · 1 have nothing to land · 2 are in already
    --- stderr
    run [run] (Three units)
    ");
    assert_eq!(landed.changes(&env.tree("repo")), [""; 0]);
    assert_eq!(env.prun("undo").code, 0);
    assert_snapshot!(env.prun("undo"), @r"
    exit 5
    --- stderr
    run [run] (Three units)
    error: there is no landing to undo
    ");
    // Taken back, it can land again.
    let again = env.prun("integrate --dry-run");
    assert_eq!(tree_shown(&again), tree, "{again}");
    assert_eq!(env.prun(&format!("integrate --tree {tree}")).code, 0);
    assert_eq!(landed.changes(&env.tree("repo")), [""; 0]);
}

#[test]
fn an_undo_that_was_killed_is_told_until_it_is_finished() {
    let env = three_units();
    run(&env);
    let before = env.tree("repo");
    let land = || {
        let tree = tree_shown(&env.prun("integrate --dry-run"));
        assert_eq!(env.prun(&format!("integrate --tree {tree}")).code, 0);
    };
    let cut_off = |number: u32| {
        let phase = env.attempt("add", 1).join(format!("../../../landings/{number}/phase.json"));
        std::fs::write(phase, "\"undoing\"").unwrap();
    };
    land();
    assert_eq!(env.prun("wait --json").code, 0);
    cut_off(1);
    let told = env.prun("status");
    assert!(told.stdout.contains("LANDING landing 1 was cut off in the middle   prun integrate"), "{told}");
    assert_eq!(env.prun("wait").code, 3, "it calls for action");
    assert_snapshot!(env.prun("integrate --dry-run"), @r"
    exit 5
    --- stderr
    run [run] (Three units)
    error: landing 1 was cut off in the middle; nothing else was changed
    hint: `prun integrate [run] --continue` finishes it, `prun undo [run]` takes it back
    ");
    assert_eq!(env.prun("integrate --continue").code, 0);
    assert_eq!(before.changes(&env.tree("repo")), [""; 0]);
    let told = env.prun("status");
    assert!(!told.stdout.contains("LANDING") && told.stdout.contains("ended, all well"), "{told}");

    // A later landing does not hide an older one.
    land();
    cut_off(1);
    let told = env.prun("status");
    assert!(told.stdout.contains("LANDING landing 1 was cut off"), "{told}");
    assert_eq!(env.prun("integrate --dry-run").code, 5);
}

#[test]
fn undo_refuses_where_a_landed_file_was_edited_since() {
    let env = three_units();
    run(&env);
    let tree = tree_shown(&env.prun("integrate --dry-run"));
    assert_eq!(env.prun(&format!("integrate --tree {tree}")).code, 0);
    env.write("src/one.txt", "mine now\n");
    let before = env.tree("repo");
    assert_snapshot!(env.prun("undo"), @r"
    exit 6
    --- stderr
    run [run] (Three units)
    error: changed since the landing: src/one.txt
    ");
    assert_eq!(before.changes(&env.tree("repo")), [""; 0]);
}

#[test]
fn edits_and_commits_of_the_user_meanwhile_are_kept_and_merged() {
    let top = unit("top", "await go; sed -i 's/^2$/two/' src/two.txt; result");
    let env = place("", &[top]);
    let id = start(&env);
    wait_for_state(&env, &id, "top", "running");
    env.write("src/two.txt", "1\n2\n3\n4\n5\n6\n7\n8\nnine\n");
    env.write("src/one.txt", "committed meanwhile\n");
    env.git("commit -q -m Meanwhile src/one.txt");
    env.write("mine.txt", "untracked\n");
    open_gate(&env, "go");
    assert_snapshot!(wait_for_end(&env, &id), @r"
    exit 0
    --- stdout
    [run] 1/1 done · [span] · next [n]
    ended, all well   prun integrate [run] --dry-run
    ");
    let head = (env.git("rev-parse HEAD"), env.tree("repo/.git"));
    let tree = tree_shown(&env.prun("integrate --dry-run"));
    assert_snapshot!(env.prun(&format!("integrate --tree {tree}")), @r"
    exit 0
    --- stdout
      src/two.txt  top  (also your own edits)
    overlap src/two.txt  your working tree and top: change different lines (lines 2 top, 9 your working tree)
    ready · tree d07155365da5 · 1 file +1 -1 · not verified · 0 conflicts
    landed, uncommitted; HEAD and index untouched · undo: prun undo [run]
    these also hold your own edits:  git add -- src/two.txt
    --- stderr
    run [run] (top)
    ");
    assert_eq!(env.read("src/two.txt"), "1\ntwo\n3\n4\n5\n6\n7\n8\nnine\n");
    assert_eq!(
        (env.read("src/one.txt").as_str(), env.read("mine.txt").as_str()),
        ("committed meanwhile\n", "untracked\n")
    );
    assert_eq!(env.git("rev-parse HEAD"), head.0);
    assert_eq!(head.1.changes(&env.tree("repo/.git")), [""; 0]);
    assert_eq!(env.prun("undo").code, 0);
    assert_eq!(env.read("src/two.txt"), "1\n2\n3\n4\n5\n6\n7\n8\nnine\n");
}

#[test]
fn a_conflict_with_uncommitted_work_changes_nothing() {
    let env = place("", &[unit("top", "sed -i 's/^2$/two/' src/two.txt; result")]);
    run(&env);
    env.write("src/two.txt", "1\nzwei\n3\n4\n5\n6\n7\n8\n9\n");
    let before = env.tree("repo");
    assert_snapshot!(env.prun("integrate --dry-run"), @r"
    exit 6
    --- stdout
    CONFLICT src/two.txt  your working tree and top: the same lines are changed in different ways (line 2)
    not ready · 0 files +0 -0 · not verified · 1 conflict
    --- stderr
    run [run] (top)
    ");
    assert_eq!(env.prun("integrate --tree 0123456789ab").code, 6);
    assert_eq!(before.changes(&env.tree("repo")), [""; 0]);
}

#[test]
fn units_that_change_the_same_lines_are_a_conflict_until_one_is_excluded() {
    let set = |id: &str| unit(id, &format!("sed -i 's/^5$/{id}/' src/two.txt; result"));
    let env = place("", &[set("alpha"), set("beta")]);
    let id = run(&env);
    let before = env.tree("repo");
    assert_snapshot!(env.prun("integrate"), @r"
    exit 6
    --- stdout
    CONFLICT src/two.txt  alpha and beta: the same lines are changed in different ways (line 5)
    not ready · 0 files +0 -0 · not verified · 1 conflict
    --- stderr
    run [run] (alpha, beta)
    error: conflicts or overlaps stand in the way; nothing was changed
    hint: by hand: prun integrate [run] --resolve
    hint: or exclude a unit, or retry one with the other's change in its prompt
    hint: an overlap that was combined is taken by --accept-overlap PATH
    ");
    assert_eq!(before.changes(&env.tree("repo")), [""; 0]);
    assert_eq!(env.prun_args(&["exclude", "beta", "-m", "alpha is better"]).code, 0);
    let tree = tree_shown(&env.prun("integrate --dry-run"));
    assert_eq!(env.prun(&format!("integrate {id} --tree {tree}")).code, 0);
    assert_eq!(env.read("src/two.txt"), "1\n2\n3\n4\nalpha\n6\n7\n8\n9\n");
}

#[test]
fn a_red_check_on_the_combination_lands_nothing() {
    let env = place("verify = \"! grep -q bad src/one.txt\"", &[unit("bad", "echo bad >> src/one.txt; result")]);
    run(&env);
    let before = env.tree("repo");
    let dry_run = env.prun("integrate --dry-run");
    assert_eq!(dry_run.code, 8, "{dry_run}");
    assert_eq!(env.prun(&format!("integrate --tree {}", tree_shown(&dry_run))).code, 8);
    assert_eq!(before.changes(&env.tree("repo")), [""; 0]);
    let forced = env.prun("integrate --dry-run --no-verify");
    assert_eq!(env.prun(&format!("integrate --no-verify --tree {}", tree_shown(&forced))).code, 0);
    assert_eq!(env.read("src/one.txt"), "one\nbad\n");
}

#[test]
fn a_red_base_is_only_a_warning() {
    let env = place("verify = \"false\"", &[unit("a", "echo a > a.txt; result")]);
    let ran = env.prun("run");
    assert_eq!(ran.code, 0, "{ran}");
    let dry_run = env.prun("integrate --dry-run");
    assert!(dry_run.stdout.contains("(base failed)"), "{dry_run}");
    assert_eq!(dry_run.code, 8);
}

#[test]
fn a_run_in_a_subdirectory_works_there_and_lands_from_anywhere() {
    let mut env = TestEnv::new(PRUN);
    let script = "pwd | sed 's,.*/clone,clone,'; echo here > here.txt; result 'done' src/here.txt";
    env.write("src/prun.toml", plan("", &[unit("here", script)]));
    env.enter("repo/src");
    run(&env);
    assert_eq!(env.prun("logs here").stdout, "clone/src\n");
    env.enter("repo");
    let tree = tree_shown(&env.prun("integrate --dry-run"));
    assert_eq!(env.prun(&format!("integrate --tree {tree}")).code, 0);
    assert_eq!(env.read("src/here.txt"), "here\n");
}

#[test]
fn machines_read_what_people_read() {
    let env = three_units();
    let id = run(&env);
    let status = json(&env, "status --json");
    assert_eq!((&status["version"], &status["state"]), (&1.into(), &"ended".into()));
    assert_eq!(status["counts"]["succeeded"], 3);
    for member in ["run", "title", "repo", "base", "began", "millis", "tokens", "next"] {
        assert!(!status[member].is_null(), "{member}: {status}");
    }
    assert_eq!(status["units"][0]["conclusion"], "added a line");
    assert_eq!(status["units"][0]["outcome"], "succeeded");
    let runs = json(&env, "runs --json");
    assert_eq!(runs["runs"][0]["run"], status["run"]);
    let reconciled = json(&env, &format!("reconcile {id} --json"));
    assert_eq!((&reconciled["ready"], reconciled["landing"].as_array().unwrap().len()), (&true.into(), 2));
    assert_eq!((&reconciled["unchanged"][0], &reconciled["blockers"]), (&"read".into(), &serde_json::json!([])));
    let dry_run = json(&env, "integrate --dry-run --json");
    assert_eq!((&dry_run["ready"], &dry_run["added"], &dry_run["removed"]), (&true.into(), &2.into(), &0.into()));
    assert_eq!(dry_run["files"][0]["path"], "lib/new.txt");
    assert_eq!(dry_run["verify"]["combination"]["ok"], true);
    let tree = dry_run["tree"].as_str().unwrap();
    let landed = env.prun(&format!("integrate --tree {tree} --json"));
    assert_eq!(landed.code, 0, "{landed}");
    let parsed: Result<serde_json::Value, _> = serde_json::from_str(&landed.stdout);
    assert!(parsed.is_ok(), "{landed}");
}
