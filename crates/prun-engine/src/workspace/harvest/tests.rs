use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::home::sha256_hex;
use crate::workspace::testing::{Fixture, Prepared, gits, letters, put, state_of, trap, user_git};
use crate::workspace::{PatchOptions, patch};

/// Does one thing in a clone, with every git, and compares what is harvested.
fn check(act: impl Fn(&Prepared), expected: &[&str]) {
    for git in gits() {
        let fixture = Fixture::new(&git);
        let before = state_of(&fixture.repo);
        let prepared = fixture.prepare("run");
        act(&prepared);
        assert_eq!(prepared.changed(), expected);
        assert_eq!(state_of(&fixture.repo), before, "the user's repository was touched");
    }
}

#[test]
fn an_untouched_clone_has_no_changes() {
    check(|_| (), &[]);
}

#[test]
fn a_touched_file_is_no_change() {
    check(
        |unit| {
            unit.write("src/a.rs", "fn a() {}\n");
            fs::remove_file(unit.clone.join("README")).unwrap();
            unit.write("README", "hello\n");
        },
        &[],
    );
}

#[test]
fn every_kind_of_change_is_seen() {
    check(
        |unit| {
            unit.write("README", "changed\n");
            unit.write("new/file", "");
            fs::remove_file(unit.clone.join("src/a.rs")).unwrap();
            fs::set_permissions(unit.clone.join("empty"), fs::Permissions::from_mode(0o755)).unwrap();
            fs::write(unit.clone.join("bin"), b"\0\0\0\0").unwrap();
            fs::remove_file(unit.clone.join("link")).unwrap();
            unit.write("link", "no link");
        },
        &["M README", "M bin", "M empty", "T link", "A new/file", "D src/a.rs"],
    );
}

#[test]
fn staged_committed_and_plain_work_are_alike() {
    let expected = ["M README", "A x", "A y", "A z"];
    check(
        |unit| {
            unit.write("x", "x");
            unit.run(&["add", "-A"]);
            unit.run(&["commit", "-q", "-m", "x"]);
            unit.write("y", "y");
            unit.run(&["add", "y"]);
            unit.write("z", "z");
            unit.write("README", "r");
        },
        &expected,
    );
}

#[test]
fn files_and_directories_change_places() {
    check(
        |unit| {
            fs::remove_file(unit.clone.join("README")).unwrap();
            unit.write("README/inner", "x");
            fs::remove_dir_all(unit.clone.join("src")).unwrap();
            unit.write("src", "a file");
        },
        &["D README", "A README/inner", "A src", "D src/a.rs", "D src/deep/b.rs"],
    );
}

#[test]
fn a_directory_that_became_a_link_is_not_followed() {
    check(
        |unit| {
            fs::rename(unit.clone.join("src"), unit.clone.join("moved")).unwrap();
            symlink("moved", unit.clone.join("src")).unwrap();
        },
        &["A moved/a.rs", "A moved/deep/b.rs", "A src", "D src/a.rs", "D src/deep/b.rs"],
    );
}

#[test]
fn a_directory_that_became_a_link_to_itself_is_gone() {
    check(
        |unit| {
            fs::remove_dir_all(unit.clone.join("src")).unwrap();
            symlink("src/a.rs", unit.clone.join("src")).unwrap();
        },
        &["A src", "D src/a.rs", "D src/deep/b.rs"],
    );
}

#[test]
fn odd_names_arrive_exactly() {
    for git in gits() {
        let fixture = Fixture::new(&git);
        let unit = fixture.prepare("run");
        let names: [&[u8]; 8] =
            [b"a\nb", b"\xff\xfe", b"-rf", b" lead", b"q\"uote", b":(top)x", b"*", "\u{e4}".as_bytes()];
        for name in names {
            fs::write(unit.clone.join(encode::path(name)), "x").unwrap();
        }
        let changes = unit.harvest().unwrap();
        assert_eq!(changes.files.len(), names.len());
        let listed = unit.store.command(["ls-tree", "-z", "--name-only", &changes.tree]).run().unwrap();
        let listed: Vec<&[u8]> = listed.fields().collect();
        assert!(names.iter().all(|name| listed.contains(name)), "{listed:?}");
    }
}

#[test]
fn names_that_no_tree_may_hold_do_not_stop_the_harvest() {
    check(
        |unit| {
            unit.write(".GIT/config", "x");
            unit.write("git~1", "x");
            unit.write("good", "x");
        },
        &["A good"],
    );
}

#[test]
fn lines_are_counted_and_binaries_are_not() {
    let fixture = Fixture::new(&gits()[0]);
    let unit = fixture.prepare("run");
    unit.write("README", "one\ntwo\n");
    fs::write(unit.clone.join("bin"), b"\0\0").unwrap();
    let changes = unit.harvest().unwrap();
    let counts: Vec<_> = changes.files.iter().map(|file| (file.added, file.removed)).collect();
    assert_eq!(counts, [(Some(2), Some(1)), (None, None)]);
}

#[test]
fn a_clone_without_git_directory_is_still_harvested() {
    check(
        |unit| {
            fs::remove_dir_all(unit.clone.join(".git")).unwrap();
            unit.write("x", "x");
        },
        &["A x"],
    );
}

#[test]
fn a_redirected_git_directory_leads_nowhere() {
    for git in gits() {
        let fixture = Fixture::new(&git);
        let before = state_of(&fixture.repo);
        let unit = fixture.prepare("run");
        unit.run(&["config", "core.worktree", fixture.repo.to_str().unwrap()]);
        unit.write("x", "x");
        assert_eq!(unit.changed(), ["A x"]);
        fs::remove_dir_all(unit.clone.join(".git")).unwrap();
        put(&unit.clone.join(".git"), &format!("gitdir: {}/.git\n", fixture.repo.display()));
        let changes = unit.harvest().unwrap();
        assert_eq!(letters(&changes), ["A x"]);
        assert!(changes.head_moved && changes.unseen.contains(&"its .git is gone".to_owned()));
        assert_eq!(state_of(&fixture.repo), before);
    }
}

#[test]
fn nothing_that_a_clone_names_is_run() {
    for git in gits() {
        let fixture = Fixture::new(&git);
        let unit = fixture.prepare("run");
        let (program, mark) = trap(fixture.temp.path());
        let program = program.to_str().unwrap().to_owned();
        unit.write(".gitattributes", "* filter=evil diff=evil merge=evil\n");
        unit.write("README", "changed\n");
        unit.write("new", "x");
        fs::remove_file(unit.clone.join("src/a.rs")).unwrap();
        plant(&unit.clone.join(".git"), &program);
        // A nested repository and one inside a tracked directory, both armed.
        for nested in ["nested", "src/deep"] {
            let dir = unit.clone.join(nested);
            fs::create_dir_all(&dir).unwrap();
            user_git(&git, &dir, &["init", "-q"]);
            put(&dir.join("inside"), "x");
            user_git(&git, &dir, &["add", "inside"]);
            user_git(&git, &dir, &["-c", "user.name=x", "-c", "user.email=x", "commit", "-q", "-m", "x"]);
            plant(&dir.join(".git"), &program);
        }
        // A tracked file that became a repository.
        fs::remove_file(unit.clone.join("empty")).unwrap();
        fs::rename(unit.clone.join("nested"), unit.clone.join("empty")).unwrap();
        let changes = unit.harvest().unwrap();
        patch_too(&unit, &changes);
        assert!(!mark.exists(), "{}", fs::read_to_string(&mark).unwrap_or_default());
        assert_eq!(
            letters(&changes),
            ["A .gitattributes", "M README", "D empty", "A new", "D src/a.rs", "A src/deep/inside"]
        );
        assert!(changes.unseen.contains(&"nested repository empty/".to_owned()), "{:?}", changes.unseen);
        let listed = unit.store.command(["ls-tree", "-r", &changes.tree]).run().unwrap().text();
        assert!(!listed.contains("160000"), "{listed}");
        // The traps are real: a naive command springs them.
        let naive = std::process::Command::new(git.program()).arg("status").current_dir(&unit.clone).output();
        assert!(naive.is_ok() && mark.exists());
    }
}

fn patch_too(unit: &Prepared, changes: &Changes) {
    let options = crate::workspace::PatchOptions::default();
    let patch = crate::workspace::patch(&unit.store, &changes.base_tree, &changes.tree, &options).unwrap();
    assert!(patch.starts_with(b"diff --git"));
}

/// Every setting and hook that makes git start a program.
fn plant(git_dir: &std::path::Path, program: &str) {
    let config = format!(
        "[core]\n\tfsmonitor = {program}\n\thooksPath = {hooks}\n\tpager = {program}\n\teditor = {program}\n\
         \tsshCommand = {program}\n\taskPass = {program}\n\
         [diff]\n\texternal = {program}\n[diff \"evil\"]\n\tcommand = {program}\n\ttextconv = {program}\n\
         [filter \"evil\"]\n\tclean = {program}\n\tsmudge = {program}\n\tprocess = {program}\n\trequired = true\n\
         [merge \"evil\"]\n\tdriver = {program}\n[gpg]\n\tprogram = {program}\n[include]\n\tpath = evil\n",
        hooks = git_dir.join("hooks").display(),
    );
    let path = git_dir.join("config");
    let old = fs::read_to_string(&path).unwrap();
    fs::write(&path, old + &config).unwrap();
    put(&git_dir.join("evil"), &format!("[core]\n\tfsmonitor = {program}\n"));
    put(&git_dir.join("info/attributes"), "* filter=evil diff=evil\n");
    for hook in ["post-index-change", "pre-commit", "post-checkout", "reference-transaction", "fsmonitor-watchman"] {
        fs::create_dir_all(git_dir.join("hooks")).unwrap();
        let hook = git_dir.join("hooks").join(hook);
        fs::remove_file(&hook).ok();
        symlink(program, hook).unwrap();
    }
}

#[test]
fn what_the_base_ignores_stays_out() {
    check(
        |unit| {
            unit.write("target/x", "x");
            unit.write("a.log", "x");
            unit.write("kept", "x");
        },
        &["A kept"],
    );
}

#[test]
fn what_only_the_unit_ignores_is_out_and_listed() {
    for git in gits() {
        let fixture = Fixture::new(&git);
        fixture.write("src/.gitignore", "*.gen\n");
        fixture.commit("rules");
        let unit = fixture.prepare("run");
        unit.write(".gitignore", "*.log\nhidden*\nsub/\n");
        unit.write("src/.gitignore", "*.tmp\n");
        unit.write("src/new.tmp", "x");
        unit.write("src/new.gen", "x");
        unit.write("a.log", "x");
        unit.write("hidden.rs", "x");
        unit.write(":(top)y", "x");
        unit.write("sub/also", "x");
        unit.write("target/x", "x");
        let changes = unit.harvest().unwrap();
        assert_eq!(letters(&changes), ["M .gitignore", "A :(top)y", "M src/.gitignore"]);
        let unseen = changes.unseen.join("\n");
        for name in [
            "3 files ignored only by",
            "hidden.rs",
            "sub/also",
            "src/new.tmp",
            "2 files ignored by the base",
            "src/new.gen",
            "target/x",
        ] {
            assert!(unseen.contains(name), "{name} in {unseen}");
        }
        assert!(!unseen.contains("a.log"), "{unseen}");
    }
}

#[test]
fn what_was_added_by_force_is_out_and_listed() {
    for git in gits() {
        let fixture = Fixture::new(&git);
        fixture.write("forced.log", "the user's own");
        fixture.run(&["add", "-f", "forced.log"]);
        fixture.commit("forced");
        let unit = fixture.prepare("run");
        unit.write("forced.log", "changed");
        unit.write("target/x", "x");
        unit.run(&["add", "-f", "target/x"]);
        unit.run(&["commit", "-q", "-m", "x"]);
        let changes = unit.harvest().unwrap();
        assert_eq!(letters(&changes), ["M forced.log"]);
        let what = "added by force although ignored";
        assert_eq!(changes.unseen, [format!("1 file {what}"), format!("{what}: target/x")]);
        put(&unit.clone.join(".git/index"), "no index");
        assert_eq!(unit.changed(), ["M forced.log"]);
    }
}

#[test]
fn what_only_the_clones_own_exclude_hides_is_in() {
    check(
        |unit| {
            put(&unit.clone.join(".git/info/exclude"), "hidden\n");
            unit.run(&["config", "core.excludesFile", ".git/info/exclude"]);
            unit.write("hidden", "x");
        },
        &["A hidden"],
    );
}

#[test]
fn c16_what_the_users_own_exclude_hides_is_out() {
    let fixture = Fixture::new(&gits()[0]);
    put(&fixture.repo.join(".git/info/exclude"), "scratch/\n");
    let unit = fixture.prepare("run");
    unit.write("scratch/x", "x");
    assert!(unit.changed().is_empty());
    assert_eq!(unit.run(&["status", "--porcelain"]), "", "the worker's own git sees the same rules");
}

#[test]
fn what_a_tree_cannot_show_is_listed() {
    let fixture = Fixture::new(&gits()[0]);
    fixture.run(&["branch", "theirs"]);
    let unit = fixture.prepare("run");
    let moved = |unit: &Prepared| unit.harvest().unwrap().head_moved;
    assert!(!moved(&unit));
    unit.write("README", "stashed");
    unit.run(&["stash"]);
    unit.run(&["checkout", "-q", "-b", "side"]);
    unit.run(&["commit", "-q", "--allow-empty", "-m", "side"]);
    assert!(moved(&unit));
    unit.run(&["tag", "v1"]);
    unit.run(&["checkout", "-q", "main"]);
    assert!(!moved(&unit));
    unit.run(&["pack-refs", "--all"]);
    rustix::fs::mknodat(
        rustix::fs::CWD,
        unit.clone.join("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .unwrap();
    let changes = unit.harvest().unwrap();
    assert_eq!(changes.unseen, ["branch side", "tag v1", "1 change stashed"]);
    assert!(changes.is_empty());
}

#[test]
fn a_tracked_file_that_became_a_pipe_is_gone_and_named() {
    let fixture = Fixture::new(&gits()[0]);
    let unit = fixture.prepare("run");
    let path = unit.clone.join("README");
    fs::remove_file(&path).unwrap();
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
    rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, 0).unwrap();
    let changes = unit.harvest().unwrap();
    assert_eq!(
        (letters(&changes), changes.unseen),
        (vec!["D README".to_owned()], vec!["special file README".to_owned()])
    );
}

#[test]
fn prun_s_own_files_are_no_changes() {
    let fixture = Fixture::new(&gits()[0]);
    let mut unit = fixture.prepare("run");
    unit.spec.exclude = vec!["result.md".into(), "own/".into()];
    for path in ["result.md", "own/x", "ownother"] {
        unit.write(path, "x");
    }
    assert_eq!(unit.changed(), ["A ownother"]);
}

#[test]
fn a_missing_work_tree_is_an_error_with_its_path() {
    let fixture = Fixture::new(&gits()[0]);
    let unit = fixture.prepare("run");
    fs::remove_dir_all(&unit.clone).unwrap();
    symlink("/", &unit.clone).unwrap();
    let error = unit.harvest().unwrap_err().to_string();
    assert!(error.contains(unit.clone.to_str().unwrap()), "{error}");
}

#[test]
fn a_mirror_that_is_gone_does_not_stop_a_harvest() {
    let fixture = Fixture::new(&gits()[0]);
    let unit = fixture.prepare("run");
    fs::remove_dir_all(unit.store.mirror_objects().unwrap()).unwrap();
    unit.write("x", "x");
    assert_eq!(unit.changed(), ["A x"]);
}

#[test]
fn an_object_that_the_user_dropped_meanwhile_is_harvested_whole() {
    for git in gits() {
        let fixture = Fixture::new(&git);
        fixture.run(&["checkout", "-q", "-b", "side"]);
        fixture.write("old/text", "once there\n");
        fixture.commit("side");
        fixture.run(&["checkout", "-q", "main"]);
        let unit = fixture.prepare("run");
        fixture.run(&["branch", "-q", "-D", "side"]);
        fixture.run(&["reflog", "expire", "--expire=now", "--all"]);
        fixture.run(&["gc", "-q", "--prune=now"]);
        unit.write("old/text", "once there\n");
        let changes = unit.harvest().unwrap();
        assert_eq!(letters(&changes), ["A old/text"]);
        unit.store.command(["cat-file", "-e", &format!("{}:old/text", changes.tree)]).run().unwrap();
    }
}

#[test]
fn a_clone_that_another_user_owns_now_is_harvested() {
    let fixture = Fixture::new(&gits()[0]);
    let unit = fixture.prepare("run");
    unit.write("x", "x");
    for path in ["", ".git", "x"] {
        // Only root can give files away.
        std::os::unix::fs::chown(unit.clone.join(path), Some(1234), None).ok();
    }
    assert_eq!(unit.changed(), ["A x"]);
}

#[test]
fn closed_directories_are_named_and_never_taken_for_unchanged() {
    // Root can look into every directory.
    if rustix::process::geteuid().is_root() {
        return;
    }
    let fixture = Fixture::new(&gits()[0]);
    let unit = fixture.prepare("run");
    let mode = |path: &str, mode| fs::set_permissions(unit.clone.join(path), fs::Permissions::from_mode(mode)).unwrap();
    unit.write("new/x", "x");
    unit.write("secret", "x");
    mode("new", 0o000);
    mode("secret", 0o000);
    let changes = unit.harvest().unwrap();
    assert!(changes.unseen.iter().any(|line| line.contains("new/")), "{:?}", changes.unseen);
    assert!(changes.unseen.contains(&"secret cannot be read".to_owned()), "{:?}", changes.unseen);
    mode("src", 0o000);
    let said = unit.harvest().unwrap_err().to_string();
    assert!(said.contains("src/a.rs"), "{said}");
    mode("src", 0o755);
    mode("new", 0o755);
}

#[test]
fn files_in_an_empty_submodule_are_named() {
    let fixture = Fixture::new(&gits()[0]);
    let module = fixture.repo.parent().unwrap().join("module.git");
    fixture.run(&["clone", "-q", "--bare", ".", module.to_str().unwrap()]);
    fixture.run(&["submodule", "--quiet", "add", module.to_str().unwrap(), "mod"]);
    fixture.commit("module");
    let before = state_of(&fixture.repo);
    let unit = fixture.prepare("run");
    assert!(unit.harvest().unwrap().unseen.is_empty());
    unit.write("mod/file", "x");
    let changes = unit.harvest().unwrap();
    assert_eq!((changes.files.len(), changes.unseen), (0, vec!["content of the submodule mod".to_owned()]));
    fs::remove_dir_all(unit.clone.join("mod")).unwrap();
    assert!(unit.changed().is_empty(), "a submodule's link stays as it was in the base");
    assert!(state_of(&fixture.repo) == before);
}

#[test]
fn c86_a_patch_is_bytes_that_git_applies() {
    let fixture = Fixture::new(&gits()[0]);
    let unit = fixture.prepare("run");
    fs::write(unit.clone.join("bin"), b"\0\xff\n\r\n\0").unwrap();
    fs::write(unit.clone.join("tail"), b"no newline, trailing space \n \n\xff\xfe").unwrap();
    fs::remove_file(unit.clone.join("link")).unwrap();
    let changes = unit.harvest().unwrap();
    let show = |options: PatchOptions| patch(&unit.store, &changes.base_tree, &changes.tree, &options).unwrap();
    let file = fixture.temp.path().join("patch");
    fs::write(&file, show(PatchOptions::default())).unwrap();
    fixture.run(&["apply", file.to_str().unwrap()]);
    for name in ["bin", "tail"] {
        assert_eq!(fs::read(fixture.repo.join(name)).unwrap(), fs::read(unit.clone.join(name)).unwrap());
    }
    assert!(!fixture.repo.join("link").is_symlink());
    let names = PatchOptions { name_only: true, paths: vec!["bin".into(), "*".into()], ..PatchOptions::default() };
    assert_eq!(show(names), b"bin\n");
    assert!(
        String::from_utf8(show(PatchOptions { stat: true, ..PatchOptions::default() })).unwrap().contains("3 files")
    );
}

/// One edit of a worker's.
#[derive(Clone, Debug)]
enum Edit {
    Write(usize, u8),
    Remove(usize),
    Executable(usize),
    Link(usize, usize),
    Rename(usize, usize),
    Stage,
    Commit,
}

const PATHS: [&str; 10] =
    ["README", "src/a.rs", "src/deep/b.rs", "src", "d/e/f", "d/e", "x\ny", "run.sh", "link/below", "\u{e4} b"];

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let path = || 0..PATHS.len();
    let edit = prop_oneof![
        4 => (path(), any::<u8>()).prop_map(|(path, byte)| Edit::Write(path, byte)),
        2 => path().prop_map(Edit::Remove),
        1 => path().prop_map(Edit::Executable),
        1 => (path(), path()).prop_map(|(path, to)| Edit::Link(path, to)),
        1 => (path(), path()).prop_map(|(from, to)| Edit::Rename(from, to)),
        1 => Just(Edit::Stage),
        1 => Just(Edit::Commit),
    ];
    proptest::collection::vec(edit, 1..12)
}

fn make_room(root: &Path, path: &Path) {
    for parent in path.ancestors().skip(1).take_while(|parent| *parent != root) {
        if !parent.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
            fs::remove_file(parent).ok();
        }
    }
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    remove(path);
}

fn remove(path: &Path) {
    match path.symlink_metadata() {
        Ok(meta) if meta.is_dir() => fs::remove_dir_all(path).unwrap(),
        Ok(_) => fs::remove_file(path).unwrap(),
        Err(_) => {}
    }
}

fn apply_edit(unit: &Prepared, edit: &Edit) {
    let place = |index: &usize| unit.clone.join(PATHS[*index]);
    match edit {
        Edit::Write(path, byte) => {
            make_room(&unit.clone, &place(path));
            fs::write(place(path), [*byte, b'\n'].repeat(usize::from(byte % 3))).unwrap();
        }
        Edit::Remove(path) => remove(&place(path)),
        Edit::Executable(path) => {
            if place(path).symlink_metadata().is_ok_and(|meta| meta.is_file()) {
                fs::set_permissions(place(path), fs::Permissions::from_mode(0o755)).unwrap();
            }
        }
        Edit::Link(path, to) => {
            make_room(&unit.clone, &place(path));
            symlink(PATHS[*to], place(path)).unwrap();
        }
        Edit::Rename(from, to) => {
            let nested = PATHS[*to].starts_with(PATHS[*from]) || PATHS[*from].starts_with(PATHS[*to]);
            if place(from).symlink_metadata().is_ok() && !nested {
                make_room(&unit.clone, &place(to));
                fs::rename(place(from), place(to)).ok();
            }
        }
        Edit::Stage => drop(unit.run(&["add", "-A"])),
        Edit::Commit => drop(unit.run(&["commit", "-q", "-a", "--allow-empty", "-m", "x"])),
    }
}

/// What a tree of the work tree must hold, computed without git: mode, blob id and path.
fn expected_tree(dir: &Path) -> BTreeSet<String> {
    let mut entries = BTreeSet::new();
    let mut left = vec![dir.to_owned()];
    while let Some(path) = left.pop() {
        let meta = path.symlink_metadata().unwrap();
        if meta.is_dir() {
            let inside = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path());
            left.extend(inside.filter(|path| *path != dir.join(".git")));
            continue;
        }
        let (mode, bytes) = match meta.is_symlink() {
            true => ("120000", fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()),
            false if meta.permissions().mode() & 0o100 != 0 => ("100755", fs::read(&path).unwrap()),
            false => ("100644", fs::read(&path).unwrap()),
        };
        let id = sha256_hex(&[format!("blob {}\0", bytes.len()).as_bytes(), &bytes].concat());
        entries.insert(format!("{mode} blob {id}\t{}", path.strip_prefix(dir).unwrap().to_str().unwrap()));
    }
    entries
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_a_worker_does_the_tree_is_what_lies_there(sequence in edits(), which in any::<usize>()) {
        let gits = gits();
        let fixture = Fixture::with_format(&gits[which % gits.len()], "sha256");
        let unit = fixture.prepare("run");
        for edit in &sequence {
            apply_edit(&unit, edit);
        }
        let changes = unit.harvest().unwrap();
        let listed = unit.store.command(["ls-tree", "-r", "-z", &changes.tree]).run().unwrap();
        let listed: BTreeSet<String> = listed.fields().map(encode::lossy).collect();
        prop_assert_eq!(listed, expected_tree(&unit.clone));
        prop_assert_eq!(unit.harvest().unwrap(), changes, "a second harvest finds the same");
    }
}

#[test]
fn a_huge_new_file_and_ignored_files_stay_where_they_are_and_are_told() {
    let fixture = Fixture::new(&gits()[0]);
    let unit = fixture.prepare("run");
    fs::File::create(unit.clone.join("core.dump")).unwrap().set_len((100 << 20) + 1).unwrap();
    unit.write("target/a/b", "x");
    unit.write("x.log", "x");
    let changes = unit.harvest().unwrap();
    assert!(changes.is_empty());
    assert_eq!(changes.unseen, ["core.dump is larger than 100 MiB", "ignored: target/, x.log"]);
}

/// A container gave the clone to another user: git would refuse it, and no git is run in it.
#[test]
fn c14_a_clone_that_somebody_else_owns_is_harvested() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let fixture = Fixture::new(&gits()[0]);
    let unit = fixture.prepare("run");
    unit.write("new", "x");
    for path in state_of(&unit.clone).into_keys() {
        std::os::unix::fs::lchown(path, Some(1234), Some(1234)).unwrap();
    }
    assert_eq!(unit.changed(), ["A new"]);
}
