//! Cases of the bug reports, one by one.

use super::Bench;
use super::bench::{Node, file};
use crate::integrate::overlap::{ConflictKind, OverlapKind, Party};
use crate::integrate::{IntegrateError, Refusal, add_lines};

const TEN: &str = "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n";

fn ten(line: usize, text: &str) -> Option<Node> {
    let mut lines: Vec<&str> = TEN.lines().collect();
    lines[line - 1] = text;
    file(&(lines.join("\n") + "\n"))
}

#[test]
fn disjoint_units_and_the_users_own_work_end_up_together() {
    let mut bench = Bench::new(&[("a", file("a\n")), ("b", file("b\n")), ("d/c", file("c\n")), ("mine", file("m\n"))]);
    bench.unit("one", &[("a", file("A\n")), ("new/deep/x", file("x\n"))]);
    bench.unit("two", &[("d/c", None), ("b", Some(Node::Exec(b"b\n".to_vec()))), ("l", Some(Node::Link("a".into())))]);
    bench.edit("mine", file("edited, uncommitted\n"));
    bench.edit("untracked", file("u\n"));
    let git = bench.git_hash();
    bench.land().unwrap();
    assert_eq!(bench.git_hash(), git);
    assert_eq!(bench.read("a"), file("A\n"));
    assert_eq!(bench.read("new/deep/x"), file("x\n"));
    assert_eq!(bench.read("b"), Some(Node::Exec(b"b\n".to_vec())));
    assert_eq!(bench.read("l"), Some(Node::Link("a".into())));
    assert_eq!(bench.read("mine"), file("edited, uncommitted\n"));
    assert_eq!(bench.read("untracked"), file("u\n"));
    assert!(!bench.user().join("d").exists());
    assert_eq!(std::fs::read_dir(bench.user()).unwrap().count(), 7);
}

#[test]
fn c91_different_lines_of_one_file_merge_with_units_and_with_uncommitted_work() {
    let mut bench = Bench::new(&[("f", file(TEN))]);
    bench.unit("one", &[("f", ten(1, "one"))]).unit("two", &[("f", ten(5, "two"))]);
    bench.edit("f", ten(10, "mine"));
    assert_eq!(bench.overlaps(), [("f".into(), OverlapKind::Content), ("f".into(), OverlapKind::Content)]);
    // Between the units, then between the user and what the units come to together.
    let overlaps = bench.prepare().unwrap().dry_run.overlaps;
    let lines =
        |at: usize| -> Vec<(u32, u32)> { overlaps[at].edits.iter().map(|edit| (edit.line, edit.lines)).collect() };
    let by_units = overlaps.iter().position(|overlap| !overlap.parties.contains(&Party::You)).unwrap();
    assert_eq!((lines(by_units), lines(1 - by_units)), (vec![(1, 1), (5, 1)], vec![(1, 1), (5, 1), (10, 1)]));
    assert_eq!(overlaps[1 - by_units].edits[2].parties, [Party::You]);
    let journal = bench.land().unwrap();
    assert_eq!(bench.read("f"), file("one\n2\n3\n4\ntwo\n6\n7\n8\n9\nmine\n"));
    assert_eq!(journal.plan().ops.len(), 1);
}

#[test]
fn c91_the_order_of_units_does_not_matter() {
    let mut bench = Bench::new(&[("f", file(TEN)), ("g", file(TEN))]);
    bench.unit("a", &[("f", ten(1, "a"))]).unit("b", &[("f", ten(1, "b"))]).unit("c", &[("f", ten(7, "c"))]);
    let forward = bench.prepare().unwrap().dry_run;
    bench.units.reverse();
    let backward = bench.prepare().unwrap().dry_run;
    assert_eq!(forward.conflicts, backward.conflicts);
    assert_eq!(forward.overlaps, backward.overlaps);
    let conflict = &forward.conflicts[0];
    assert_eq!((conflict.path.as_str(), conflict.parties.len(), conflict.kind), ("f", 2, ConflictKind::Content));
    assert_eq!((conflict.regions.len(), conflict.regions[0].line), (1, 1));
}

#[test]
fn c91_both_add_different_and_edit_against_delete_are_conflicts() {
    let mut bench = Bench::new(&[("g", file(TEN)), ("keep", file("k"))]);
    bench.unit("one", &[("NEW", file("1\n")), ("g", None)]).unit("two", &[("NEW", file("2\n")), ("g", ten(5, "x"))]);
    let expected = [("NEW".to_owned(), ConflictKind::BothAdded), ("g".to_owned(), ConflictKind::EditDelete)];
    assert_eq!(bench.conflicts(), expected);
}

#[test]
fn the_same_change_by_two_units_is_one_change() {
    let mut bench = Bench::new(&[("f", file(TEN))]);
    bench.unit("one", &[("f", ten(1, "x")), ("n", file("n"))]).unit("two", &[("f", ten(1, "x")), ("n", file("n"))]);
    assert_eq!(bench.overlaps(), [("f".into(), OverlapKind::Same), ("n".into(), OverlapKind::Same)]);
    bench.land().unwrap();
    assert_eq!(bench.read("f"), ten(1, "x"));
}

#[test]
fn an_edit_carried_across_a_rename_blocks_until_it_is_accepted() {
    let mut bench = Bench::new(&[("old", file(TEN)), ("x", file("x"))]);
    bench.unit("mover", &[("old", None), ("moved", file(TEN))]).unit("editor", &[("old", ten(5, "edit"))]);
    let dry_run = bench.prepare().unwrap().dry_run;
    assert!(!dry_run.ready && dry_run.conflicts.is_empty(), "{dry_run:#?}");
    let expected = [("moved".to_owned(), OverlapKind::EditAcrossRename), ("old".to_owned(), OverlapKind::EditDelete)];
    assert_eq!(bench.overlaps(), expected);
    bench.accepted = ["moved".to_owned(), "old".to_owned()].into();
    bench.land().unwrap();
    assert_eq!((bench.read("old"), bench.read("moved")), (None, ten(5, "edit")));
}

#[test]
fn a_mode_against_a_content_blocks_until_it_is_accepted() {
    let mut bench = Bench::new(&[("f", file(TEN))]);
    bench.unit("mode", &[("f", Some(Node::Exec(TEN.into())))]).unit("text", &[("f", ten(2, "x"))]);
    assert!(!bench.prepare().unwrap().dry_run.ready);
    assert_eq!(bench.overlaps(), [("f".into(), OverlapKind::ModeAgainstContent)]);
    bench.accepted = ["f".to_owned()].into();
    bench.land().unwrap();
    let Some(Node::File(text)) = ten(2, "x") else { unreachable!() };
    assert_eq!(bench.read("f"), Some(Node::Exec(text)));
}

#[test]
fn a_file_against_a_directory_is_a_conflict() {
    let mut bench = Bench::new(&[("x", file("x"))]);
    bench.unit("file", &[("d", file("1"))]).unit("dir", &[("d/e", file("2"))]);
    assert_eq!(bench.conflicts(), [("d".to_owned(), ConflictKind::FileDirectory)]);
}

#[test]
fn a_file_may_become_a_directory_and_back() {
    let mut bench = Bench::new(&[("f", file("f\n")), ("d/a", file("a\n")), ("d/b", file("b\n"))]);
    let before = bench.files();
    bench.unit("u", &[("f", None), ("f/x", file("x\n")), ("d/a", None), ("d/b", None), ("d", file("d\n"))]);
    let journal = bench.land().unwrap();
    assert_eq!((bench.read("f/x"), bench.read("d")), (file("x\n"), file("d\n")));
    crate::integrate::land::undo(&journal, Default::default()).unwrap();
    assert_eq!(bench.files(), before);
}

#[test]
fn c91_untracked_and_ignored_files_in_the_way_are_conflicts() {
    let mut bench = Bench::new(&[(".gitignore", file("*.o\n"))]);
    bench.unit("u", &[("new", file("theirs\n")), ("x.o", file("theirs\n")), ("dir", file("a file\n"))]);
    bench.edit("new", file(""));
    bench.edit("x.o", file("mine\n"));
    bench.edit("dir/untracked", file("mine\n"));
    let before = bench.files();
    let kinds: Vec<String> = bench.conflicts().into_iter().map(|(path, kind)| format!("{path} {kind:?}")).collect();
    assert_eq!(kinds, ["new BothAdded", "x.o BothAdded"]);
    bench.edit("new", None);
    bench.edit("x.o", None);
    assert_eq!(bench.conflicts(), [("dir".to_owned(), ConflictKind::InTheWay)]);
    bench.edit("dir/untracked", None);
    bench.land().unwrap();
    assert_eq!(bench.read("dir"), file("a file\n"));
    assert!(before.contains_key("dir/untracked"));
}

#[test]
fn c94_nothing_is_written_through_a_link_of_the_users() {
    let mut bench = Bench::new(&[("gen/old", file("old\n"))]);
    bench.unit("u", &[("gen/new", file("new\n"))]);
    let elsewhere = bench.path("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    bench.edit("gen/old", None);
    bench.edit("gen", Some(Node::Link(elsewhere.to_str().unwrap().into())));
    assert_eq!(bench.conflicts()[0].1, ConflictKind::FileDirectory);
    assert_eq!(std::fs::read_dir(elsewhere).unwrap().count(), 0);
}

#[test]
fn c94_a_units_own_link_is_carried_as_a_link() {
    let mut bench = Bench::new(&[("a", file("a"))]);
    bench.unit("u", &[("d", Some(Node::Link("/etc".into())))]);
    bench.land().unwrap();
    assert_eq!(bench.read("d"), Some(Node::Link("/etc".into())));
}

#[test]
fn c96_a_sparse_checkout_is_no_deletion() {
    let mut bench = Bench::new(&[("a/f", file("a\n")), ("b/f", file(TEN)), ("b/g", file("g\n"))]);
    bench.user_git(&["sparse-checkout", "set", "a"]);
    assert!(!bench.user().join("b").exists());
    bench.unit("u", &[("b/f", ten(3, "x")), ("a/f", file("A\n"))]);
    let prepared = bench.prepare().unwrap();
    let outside: Vec<bool> = prepared.dry_run.files.iter().map(|file| file.outside_sparse).collect();
    assert_eq!(outside, [false, true]);
    bench.land().unwrap();
    assert_eq!((bench.read("b/f"), bench.read("b/g"), bench.read("a/f")), (ten(3, "x"), None, file("A\n")));
}

#[test]
fn c96_indexes_of_every_make_are_read_and_left_alone() {
    for make in [&["update-index", "--split-index"][..], &["sparse-checkout", "set", "--cone", "--sparse-index", "a"]] {
        let mut bench = Bench::new(&[("a/f", file(TEN)), ("b/f", file(TEN)), ("b/c/g", file("g\n"))]);
        bench.user_git(make);
        bench.edit("a/f", ten(1, "mine"));
        bench.unit("u", &[("a/f", ten(9, "x")), ("b/f", ten(3, "x"))]);
        let git = bench.git_hash();
        bench.land().unwrap();
        assert_eq!(bench.git_hash(), git, "{make:?}");
        assert_eq!(bench.read("a/f"), file("mine\n2\n3\n4\n5\n6\n7\n8\nx\n10\n"));
        assert_eq!(bench.read("b/f"), ten(3, "x"));
    }
}

#[test]
fn a_repository_without_an_index_or_with_a_nested_one_is_handled() {
    let mut bench = Bench::new(&[("f", file(TEN))]);
    bench.unit("u", &[("f", ten(9, "x")), ("nested/n", file("n\n"))]);
    std::fs::remove_file(&bench.target.index_file).unwrap();
    bench.edit("f", ten(1, "mine"));
    assert_eq!(bench.prepare().unwrap().dry_run.files.len(), 2);
    std::fs::create_dir(bench.user().join("nested")).unwrap();
    bench.git.command(["init", "-q"]).arg(bench.user().join("nested")).run().unwrap();
    assert_eq!(bench.conflicts(), [("nested/n".to_owned(), ConflictKind::InTheWay)]);
}

#[test]
fn what_stands_in_the_way_and_is_no_file_is_a_conflict() {
    let mut bench = Bench::new(&[("f", file(TEN))]);
    bench.unit("u", &[("pipe", file("p\n"))]);
    rustix::fs::mkfifoat(rustix::fs::CWD, bench.user().join("pipe"), rustix::fs::Mode::RWXU).unwrap();
    assert_eq!(bench.conflicts(), [("pipe".to_owned(), ConflictKind::InTheWay)]);
    bench.units.clear();
    bench.unit("u", &[("pipe/inner", file("p\n"))]);
    assert_eq!(bench.conflicts(), [("pipe/inner".to_owned(), ConflictKind::InTheWay)]);
}

#[test]
fn c97_edits_behind_index_flags_are_seen() {
    for flag in ["--skip-worktree", "--assume-unchanged"] {
        let mut bench = Bench::new(&[("cfg", file(TEN)), ("other", file("o"))]);
        bench.user_git(&["update-index", flag, "cfg"]);
        bench.edit("cfg", ten(1, "secret"));
        bench.unit("u", &[("cfg", ten(1, "theirs"))]);
        assert_eq!(bench.conflicts(), [("cfg".to_owned(), ConflictKind::Content)], "{flag}");
        bench.units.clear();
        bench.unit("u", &[("cfg", ten(9, "theirs"))]);
        let prepared = bench.prepare().unwrap();
        assert!(prepared.dry_run.files[0].also_yours);
        bench.land().unwrap();
        assert_eq!(bench.read("cfg"), file("secret\n2\n3\n4\n5\n6\n7\n8\ntheirs\n10\n"), "{flag}");
    }
}

#[test]
fn c78_commits_and_another_branch_since_the_base_are_a_side() {
    let mut bench = Bench::new(&[("f", file(TEN)), ("gone", file("g"))]);
    bench.unit("u", &[("f", ten(9, "unit"))]);
    bench.user_git(&["switch", "-q", "-c", "other"]);
    bench.edit("f", ten(1, "committed"));
    bench.edit("gone", None);
    bench.user_git(&["commit", "-q", "-a", "-m", "more"]);
    bench.land().unwrap();
    assert_eq!(bench.read("f"), file("committed\n2\n3\n4\n5\n6\n7\n8\nunit\n10\n"));
    assert_eq!(bench.read("gone"), None);
}

#[test]
fn c78_a_repository_in_the_middle_of_a_merge_is_refused() {
    let mut bench = Bench::new(&[("f", file(TEN))]);
    bench.unit("u", &[("n", file("n"))]);
    bench.user_git(&["switch", "-q", "-c", "other"]);
    bench.edit("f", ten(1, "other"));
    bench.user_git(&["commit", "-q", "-a", "-m", "other"]);
    bench.user_git(&["switch", "-q", "main"]);
    bench.edit("f", ten(1, "main"));
    bench.user_git(&["commit", "-q", "-a", "-m", "main"]);
    bench.git.command(["merge", "-q", "other"]).dir(bench.user()).run_accepting(&[1]).unwrap();
    assert!(matches!(bench.prepare(), Err(IntegrateError::Refused(Refusal::InTheMiddle("merge")))));
    std::fs::remove_file(bench.target.git_dir.join("MERGE_HEAD")).unwrap();
    let refused = bench.prepare().unwrap_err();
    assert!(matches!(refused, IntegrateError::Refused(Refusal::Unmerged(paths)) if paths == ["f"]));
    bench.user_git(&["reset", "-q", "--hard"]);
    std::fs::create_dir(bench.target.git_dir.join("rebase-merge")).unwrap();
    assert!(matches!(bench.prepare(), Err(IntegrateError::Refused(Refusal::InTheMiddle("rebase")))));
}

#[test]
fn a_unit_that_is_in_the_working_tree_already_is_refused_by_name() {
    let mut bench = Bench::new(&[("f", file(TEN))]);
    bench.unit("u", &[("f", ten(1, "x"))]);
    bench.land().unwrap();
    let refused = bench.prepare().unwrap_err();
    assert!(matches!(refused, IntegrateError::Refused(Refusal::AppliedBefore(units)) if units[0].as_str() == "u"));
    bench.user_git(&["commit", "-q", "-a", "-m", "landed"]);
    assert!(matches!(bench.prepare(), Err(IntegrateError::Refused(Refusal::AppliedBefore(_)))));
}

#[test]
fn c99_units_without_changes_have_nothing_to_land() {
    let mut bench = Bench::new(&[("f", file(TEN))]);
    bench.unit("reader", &[]);
    assert!(matches!(bench.prepare(), Err(IntegrateError::Refused(Refusal::NothingToLand))));
    bench.unit("writer", &[("f", ten(1, "x"))]);
    bench.land().unwrap();
    assert_eq!(bench.read("f"), ten(1, "x"));
}

#[test]
fn only_the_tree_that_was_shown_may_land() {
    let mut bench = Bench::new(&[("f", file(TEN)), ("mine", file("m"))]);
    bench.unit("u", &[("f", ten(1, "x"))]);
    let shown = bench.prepare().unwrap().dry_run.tree.unwrap();
    bench.prepare().unwrap().insist_on(&shown).unwrap();
    bench.prepare().unwrap().insist_on(&shown[..8]).unwrap();
    assert!(bench.prepare().unwrap().insist_on("").is_err());
    bench.edit("mine", file("another"));
    assert!(matches!(bench.prepare().unwrap().insist_on(&shown), Err(Refusal::NotAsShown { .. })));
}

#[test]
fn a_base_that_carries_uncommitted_work_lands_the_same() {
    let mut bench = Bench::new(&[("f", file(TEN))]);
    bench.edit("f", ten(1, "wip"));
    bench.edit("untracked", file("u\n"));
    bench.base_tree = bench.tree_with(&[("f", ten(1, "wip")), ("untracked", file("u\n"))]);
    bench.unit("u", &[("f", file("wip\n2\n3\n4\n5\n6\n7\n8\n9\nX\n"))]);
    let dry_run = bench.prepare().unwrap().dry_run;
    assert_eq!((dry_run.added, dry_run.removed, dry_run.files.len()), (1, 1, 1));
    assert!(dry_run.files[0].also_yours);
    let prepared = bench.prepare().unwrap();
    prepared.stage(&bench.path("clean")).unwrap();
    assert!(bench.path("clean/untracked").exists());
    bench.land().unwrap();
    assert_eq!(bench.read("f"), file("wip\n2\n3\n4\n5\n6\n7\n8\n9\nX\n"));
}

#[test]
fn c87_line_ends_encodings_and_idents_are_the_users() {
    let mut bench = Bench::new(&[
        (".gitattributes", file("*.crlf text eol=crlf\n*.id ident\n*.u16 text working-tree-encoding=UTF-16LE-BOM\n")),
        ("a.crlf", file("a\nb\n")),
        ("a.id", file("$Id$\n")),
    ]);
    bench.edit("a.crlf", file("a\r\nb\r\n"));
    bench.unit("u", &[("a.crlf", file("a\r\nB\r\n")), ("new.crlf", file("n\r\n")), ("a.id", file("$Id$\nmore\n"))]);
    assert!(bench.prepare().unwrap().dry_run.files.iter().all(|file| !file.also_yours));
    bench.land().unwrap();
    assert_eq!(bench.read("a.crlf"), file("a\r\nB\r\n"));
    assert_eq!(bench.read("new.crlf"), file("n\r\n"));
    let Some(Node::File(id)) = bench.read("a.id") else { panic!() };
    assert!(id.starts_with(b"$Id: ") && id.ends_with(b" $\nmore\n"), "{id:?}");
}

#[test]
fn c87_attributes_that_come_with_a_unit_govern_its_files() {
    let mut bench = Bench::new(&[("x", file("x"))]);
    bench.unit("u", &[(".gitattributes", file("*.txt text eol=crlf\n")), ("new.txt", file("a\r\n"))]);
    bench.land().unwrap();
    assert_eq!(bench.read("new.txt"), file("a\r\n"));
}

#[test]
fn no_filter_driver_or_hook_of_anybody_is_run() {
    let mut bench = Bench::new(&[
        (".gitattributes", file("*.f filter=evil\n*.m merge=evil\n")),
        ("a.f", file("raw\n")),
        ("a.m", file(TEN)),
    ]);
    let mark = bench.path("ran");
    let touch = format!("touch {} && cat", mark.display());
    for name in ["filter.evil.clean", "filter.evil.smudge", "core.fsmonitor", "merge.evil.driver"] {
        bench.user_git(&["config", name, &touch]);
    }
    std::fs::create_dir_all(bench.target.git_dir.join("hooks")).unwrap();
    let hook = bench.target.git_dir.join("hooks/post-index-change");
    std::fs::write(&hook, format!("#!/bin/sh\ntouch {}\n", mark.display())).unwrap();
    std::fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    bench.unit("one", &[("a.m", ten(1, "x"))]).unit("two", &[("a.m", ten(9, "2"))]);
    assert_eq!(bench.overlaps(), [("a.m".into(), OverlapKind::DriverNotRun)]);
    bench.units.clear();
    bench.unit("one", &[("a.f", file("changed\n"))]);
    assert_eq!(bench.conflicts(), [("a.f".to_owned(), ConflictKind::Filter)]);
    bench.units.clear();
    bench.unit("one", &[("new", file("n\n"))]);
    bench.edit("a.f", file("large content\n"));
    let stage = bench.path("clean");
    bench.prepare().unwrap().stage(&stage).unwrap();
    assert_eq!(super::bench::node_at(&stage.join("a.f")), file("large content\n"));
    bench.land().unwrap();
    assert!(!mark.exists());
}

#[test]
fn a_file_that_must_not_be_merged_as_text_is_a_conflict() {
    let mut bench =
        Bench::new(&[(".gitattributes", file("*.lock -merge\n")), ("a.lock", file(TEN)), ("bin", file("\0a"))]);
    bench.unit("one", &[("a.lock", ten(1, "x")), ("bin", file("\0b"))]);
    bench.unit("two", &[("a.lock", ten(9, "2")), ("bin", file("\0c"))]);
    let expected = [("a.lock".to_owned(), ConflictKind::Unmergeable), ("bin".to_owned(), ConflictKind::Unmergeable)];
    assert_eq!(bench.conflicts(), expected);
}

#[test]
fn two_different_renames_of_one_file_are_a_conflict() {
    let mut bench = Bench::new(&[("old", file(TEN))]);
    bench.unit("one", &[("old", None), ("here", file(TEN))]).unit("two", &[("old", None), ("there", file(TEN))]);
    assert!(bench.conflicts().iter().any(|(path, kind)| path == "old" && *kind == ConflictKind::Rename));
}

#[test]
fn c98_names_that_the_target_takes_for_one_are_a_conflict_there() {
    let mut bench = Bench::new(&[("README.md", file("r")), ("Dir/a", file("a"))]);
    bench.unit("u", &[("readme.md", file("x")), ("dir/b", file("b"))]);
    assert!(bench.prepare().unwrap().dry_run.ready);
    bench.user_git(&["config", "core.ignoreCase", "true"]);
    let paths: Vec<String> = bench.conflicts().into_iter().map(|(path, _)| path).collect();
    assert_eq!(paths, ["dir/b", "readme.md"]);
}

#[test]
fn c84_a_changed_submodule_is_a_conflict() {
    let mut bench = Bench::new(&[("x", file("x"))]);
    let commit = bench.user_git(&["rev-parse", "HEAD"]);
    let listing = format!("{}160000 commit {commit}\tmod\n", bench.user_git(&["ls-tree", "HEAD"]) + "\n");
    let tree = bench.git.command(["mktree"]).git_dir(bench.store()).input(listing).run().unwrap().text();
    bench.units.push(("u".parse().unwrap(), tree));
    assert_eq!(bench.conflicts(), [("mod".to_owned(), ConflictKind::Submodule)]);
}

#[test]
fn hostile_trees_are_refused_by_unit_and_path() {
    for name in ["..", ".GIT", "git~1", "trailing.", ".git "] {
        let mut bench = Bench::new(&[("x", file("x"))]);
        let blob = bench.user_git(&["rev-parse", "HEAD:x"]);
        let make =
            |line: String| bench.git.command(["mktree"]).git_dir(bench.store()).input(line).run().unwrap().text();
        let inner = make(format!("100644 blob {blob}\tconfig\n"));
        let tree = make(format!("040000 tree {inner}\t{name}\n"));
        bench.units.push(("u".parse().unwrap(), tree));
        let refused = bench.prepare().unwrap_err().to_string();
        assert!(refused.contains("unit u") && refused.contains("config"), "{refused}");
    }
}

#[test]
fn the_add_lines_keep_the_users_own_files_apart() {
    let mut bench = Bench::new(&[("f", file(TEN)), ("it's", file("x"))]);
    bench.unit("u", &[("f", ten(1, "x")), ("it's", file("y")), ("new", file("n"))]);
    bench.edit("f", ten(9, "mine"));
    let (theirs, both) = add_lines(&bench.prepare().unwrap().dry_run.files);
    assert_eq!(theirs.unwrap(), r"git add -- 'it'\''s' new");
    assert_eq!(both.unwrap(), "git add -- f");
    assert_eq!(add_lines(&[]), (None, None));
}

#[test]
fn odd_names_and_permissions_survive() {
    let mut bench = Bench::new(&[("-dash", file("d")), ("private", file("p\n")), ("sp ace", file("s"))]);
    let full = bench.user().join("private");
    std::fs::set_permissions(&full, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    bench.unit(
        "u",
        &[
            ("-dash", file("D")),
            ("private", file("P\n")),
            ("new\nline", file("n")),
            ("caf\u{e9}", file("e")),
            ("\"q\"", file("q")),
        ],
    );
    bench.land().unwrap();
    assert_eq!(bench.read("new\nline"), file("n"));
    assert_eq!((bench.read("-dash"), bench.read("\"q\"")), (file("D"), file("q")));
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(full).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_linked_worktree_is_a_target_of_its_own() {
    let mut bench = Bench::new(&[("f", file(TEN))]);
    bench.unit("u", &[("f", ten(1, "x"))]);
    let linked = bench.path("linked");
    bench.user_git(&["worktree", "add", "-q", "-b", "w", linked.to_str().unwrap()]);
    bench.target = crate::integrate::Target::of(&bench.git, &linked).unwrap();
    bench.land().unwrap();
    assert_eq!(bench.read("f"), ten(1, "x"));
    assert_eq!(super::bench::node_at(&bench.path("user/f")), file(TEN));
}

#[test]
fn repositories_with_longer_object_names_work_the_same() {
    let mut bench = Bench::with_format("sha256", &[("f", file(TEN)), ("g", file("g\n"))]);
    bench.unit("one", &[("f", ten(1, "one")), ("g", None)]).unit("two", &[("f", ten(6, "two"))]);
    bench.edit("f", ten(10, "mine"));
    bench.land().unwrap();
    assert_eq!((bench.read("f"), bench.read("g")), (file("one\n2\n3\n4\n5\ntwo\n7\n8\n9\nmine\n"), None));
}

#[test]
fn three_units_on_neighbouring_lines_conflict_alike_in_any_order() {
    let mut bench = Bench::new(&[("f", file(TEN))]);
    bench.unit("a", &[("f", ten(2, "a"))]).unit("b", &[("f", ten(4, "b"))]);
    bench.unit("c", &[("f", file("1\n2\nc\n4\n5\n6\n7\n8\n9\n10\n"))]);
    let units = bench.units.clone();
    let verdicts: Vec<_> = [[0, 1, 2], [2, 1, 0], [1, 2, 0]]
        .iter()
        .map(|order| {
            bench.units = order.map(|at: usize| units[at].clone()).to_vec();
            bench.prepare().unwrap().dry_run.conflicts
        })
        .collect();
    assert!(verdicts.windows(2).all(|pair| pair[0] == pair[1]), "{verdicts:#?}");
    assert!(!verdicts[0].is_empty());
}

#[test]
fn c98_a_rename_by_case_alone_lands_wherever_it_lands() {
    for ignores_case in ["false", "true"] {
        let mut bench = Bench::new(&[("Case", file(TEN)), ("Dir/f", file("f\n"))]);
        bench.unit("u", &[("Case", None), ("case", file(TEN)), ("Dir/f", None), ("dir/f", file("f\n"))]);
        bench.user_git(&["config", "core.ignoreCase", ignores_case]);
        let before = bench.files();
        let journal = bench.land().unwrap();
        assert_eq!((bench.read("Case"), bench.read("case")), (None, file(TEN)));
        assert_eq!((bench.read("Dir/f"), bench.read("dir/f")), (None, file("f\n")));
        crate::integrate::land::undo(&journal, Default::default()).unwrap();
        assert_eq!(bench.files(), before);
    }
}

/// The link is carried as a link, and what the same unit writes behind it stays in its own tree.
#[test]
fn c94_a_link_that_points_outside_is_never_written_through() {
    let mut bench = Bench::new(&[("gen/old", file("o\n"))]);
    let outside = bench.path("outside");
    std::fs::create_dir(&outside).unwrap();
    bench.unit("u", &[("gen/old", None), ("gen", Some(Node::Link(outside.to_str().unwrap().into())))]);
    bench.unit("v", &[("gen/new", file("n\n"))]);
    assert!(bench.conflicts().iter().any(|(path, kind)| path == "gen" && *kind == ConflictKind::FileDirectory));
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
}
