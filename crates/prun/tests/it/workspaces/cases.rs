//! Cases of reconciling and landing that only the whole program shows; the others stand beside the code.

use super::{GOOD, User, exists, has};

/// A result in contract form that claims these files.
fn claims(files: &str) -> String {
    GOOD.replace("Files: none", &format!("Files: {files}"))
}

/// The tree that a dry run with these arguments shows.
fn shown(user: &User, args: &[&str]) -> String {
    let said = user.ok(&[&["integrate", "--dry-run"][..], args].concat());
    said.split(" · tree ").nth(1).unwrap().split_whitespace().next().unwrap().to_owned()
}

#[test]
fn c76_success_that_is_only_claimed_is_told_apart() {
    let user = User::new();
    let nothing = format!("{}exit 0", claims("orders.json"));
    let half = format!("{}echo x > real", claims("orders.json"));
    let (code, said) = user.run("", &[("nothing", &nothing), ("half", &half)]);
    assert_eq!(code, 3, "{said}");
    has(&user.ok(&["status"]), &["nothing", "incomplete(no-change)"]);
    let (code, said) = user.prun(&["reconcile"]);
    assert_eq!(code, 5, "{said}");
    has(&said, &["BLOCKS nothing", "note half  says it changed, and did not: orders.json"]);
    has(&said, &["note half  changed and does not say so: real"]);
    // The same stands beside the unit's diff.
    has(&user.prun(&["diff", "half"]).1, &["+x", "note half  says it changed, and did not: orders.json"]);
}

#[test]
fn c77_a_set_with_gaps_is_refused_unless_units_are_named() {
    let user = User::new();
    let good = |name: &str| format!("{GOOD} echo {name} > {name}");
    let (a, b, c) = (good("a"), good("b"), good("c"));
    let (code, _) = user.run("", &[("a", &a), ("b", &b), ("c", &c), ("d", "echo half done > d; exit 1")]);
    assert_eq!(code, 3);
    let (code, said) = user.prun(&["integrate", "--dry-run"]);
    assert_eq!(code, 5, "{said}");
    has(&said, &["BLOCKS d", "nothing was changed", "--only UNIT"]);
    assert_eq!(user.git(&["status", "--porcelain"]), "");
    assert_eq!(user.prun(&["integrate", "--dry-run", "--only", "nobody"]).0, 2);
    let tree = shown(&user, &["--only", "a", "--only", "c"]);
    user.ok(&["integrate", "--only", "a", "--only", "c", "--tree", &tree]);
    assert_eq!(user.git(&["status", "--porcelain"]), "?? a\n?? c");
    has(&user.prun(&["reconcile"]).1, &["BLOCKS d", "2 are in already"]);
    // The others can follow, and each landing is taken back by itself.
    user.ok(&["exclude", "d", "-m", "no"]);
    let tree = shown(&user, &[]);
    user.ok(&["integrate", "--tree", &tree]);
    assert_eq!(user.git(&["status", "--porcelain"]), "?? a\n?? b\n?? c");
    user.ok(&["undo"]);
    assert_eq!(user.git(&["status", "--porcelain"]), "?? a\n?? c");
    user.ok(&["undo"]);
    assert_eq!(user.git(&["status", "--porcelain"]), "");
}

#[test]
fn c78_a_repository_in_the_middle_of_a_merge_is_left_alone() {
    let user = User::new();
    user.run("", &[("u", &format!("{GOOD} echo x > x"))]);
    user.git(&["switch", "-q", "-c", "other"]);
    user.write("repo/README", "other\n");
    user.git(&["commit", "-qam", "other"]);
    user.git(&["switch", "-q", "main"]);
    user.write("repo/README", "main\n");
    user.git(&["commit", "-qam", "main"]);
    assert!(!user.command("git", &["merge", "-q", "other"]).output().unwrap().status.success());
    let before = (user.git_dir(), user.read("repo/README"));
    let (code, said) = user.prun(&["integrate", "--dry-run"]);
    assert_eq!(code, 2, "{said}");
    has(&said, &["in the middle of a merge", "hint: "]);
    assert_eq!((user.git_dir(), user.read("repo/README")), before);
}

#[test]
fn c91_conflicting_units_are_named_and_nothing_lands() {
    let user = User::new();
    let (one, two) = (format!("{GOOD} echo 1 > NEW; rm sub/a"), format!("{GOOD} echo 2 > NEW; echo x >> sub/a"));
    user.run("", &[("one", &one), ("two", &two)]);
    let (code, said) = user.prun(&["integrate", "--dry-run"]);
    assert_eq!(code, 6, "{said}");
    has(&said, &["CONFLICT NEW  one and two: ", "CONFLICT sub/a  one and two: ", "not ready"]);
    assert_eq!(user.prun(&["diff", "--combined"]).0, 6);
    assert_eq!(user.git(&["status", "--porcelain"]), "");
}

/// A push by path makes a branch of a unit's commit: loud, told what, exit 3.
#[test]
fn c18_a_push_by_path_is_loud_and_the_users_own_commits_are_not() {
    let user = User::new();
    let repo = user.at("repo").display().to_string();
    let mine = format!("git -C {repo} commit -q --allow-empty -m mine; git -C {repo} branch -q mine");
    let (code, said) = user.run("", &[("u", &format!("{GOOD} echo x > x; {mine}"))]);
    assert_eq!(code, 0, "{said}");
    let push = format!("echo x > x; git add x; git commit -qm x; git push -q {repo} HEAD:refs/heads/pushed");
    let (code, said) = user.run("", &[("u", &format!("{GOOD} {push}"))]);
    assert_eq!(code, 3, "{said}");
    has(&said, &["TOUCHED the repository: refs/heads/pushed was added to an object from a unit's clone"]);
}

#[test]
fn a_diff_of_all_units_is_one_patch_that_git_takes() {
    let user = User::new();
    user.write("repo/f", "1\n2\n3\n4\n5\n6\n7\n8\n9\n");
    user.git(&["add", "-A"]);
    user.git(&["commit", "-qm", "f"]);
    let keys = "owns = [\"f\"]\n";
    let (a, b) = (format!("{GOOD} sed -i s/1/one/ f; echo a > a"), format!("{GOOD} sed -i s/9/nine/ f"));
    user.plan("", &[("a", &a), ("b", &b)], keys);
    user.ok(&["run", user.at("plan.toml").to_str().unwrap()]);
    assert_eq!(user.ok(&["diff", "--combined", "--name-only"]), "a\nf");
    has(&user.ok(&["diff", "--combined", "--stat"]), &["2 files changed, 3 insertions(+), 2 deletions(-)"]);
    has(&user.prun(&["diff", "a"]).1, &["note a  changed outside what it owns: a"]);
    let patch = user.ok(&["diff", "--combined"]) + "\n";
    user.write("all.patch", &patch);
    user.git(&["apply", user.at("all.patch").to_str().unwrap()]);
    assert_eq!(user.read("repo/f"), "one\n2\n3\n4\n5\n6\n7\n8\nnine\n");
    assert!(exists(&user.at("repo/a")));
    assert_eq!(user.prun(&["diff", "a", "--combined"]).0, 2);
}

#[test]
fn an_acceptance_is_back_after_an_undo() {
    let user = User::new();
    let (code, _) = user.run("", &[("u", "echo unit > new"), ("good", &format!("{GOOD} echo x > x"))]);
    assert_eq!(code, 3);
    user.ok(&["accept", "u", "-m", "good enough", "--salvaged"]);
    let tree = shown(&user, &[]);
    user.ok(&["integrate", "--tree", &tree]);
    user.ok(&["undo"]);
    let said = user.ok(&["reconcile"]);
    has(&said, &["2 units go in", "note u  accepted: good enough"]);
    assert_eq!(shown(&user, &[]), tree);
}
