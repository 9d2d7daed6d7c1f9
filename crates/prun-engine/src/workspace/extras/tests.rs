use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::super::testing::{Fixture, Prepared, gits, put, state_of, user_git};
use super::*;

/// A clone with everything that the user's machine has for it.
fn prepare(fixture: &Fixture) -> (Prepared, Extras) {
    let unit = fixture.prepare("run");
    let read = |args: &[&str]| unit.store.command(args.iter().copied());
    let extras = Extras::find(&fixture.source(), &unit.base, &read).unwrap();
    extras.add(&fixture.home(), &unit.clone, &unit.spec.trusted_index).unwrap();
    (unit, extras)
}

fn with_submodule(git: &crate::git::Git) -> Fixture {
    let fixture = Fixture::new(git);
    let module = fixture.repo.parent().unwrap().join("module.git");
    fixture.run(&["clone", "-q", "--bare", ".", module.to_str().unwrap()]);
    fixture.run(&["submodule", "--quiet", "add", module.to_str().unwrap(), "deep/mod"]);
    fixture.commit("module");
    fixture
}

#[test]
fn c15_c84_submodules_come_from_the_users_own_checkout_without_a_remote() {
    for git in gits() {
        let fixture = with_submodule(&git);
        // Nothing can be fetched from where it came.
        fs::remove_dir_all(fixture.repo.parent().unwrap().join("module.git")).unwrap();
        let before = state_of(&fixture.repo);
        let (unit, extras) = prepare(&fixture);
        assert!(extras.unseen.is_empty());
        let inner = unit.clone.join("deep/mod");
        assert_eq!(fs::read(inner.join("README")).unwrap(), b"hello\n");
        assert_eq!(user_git(&git, &inner, &["remote"]), "");
        assert_eq!(user_git(&git, &inner, &["status", "--porcelain"]), "");
        assert_eq!(unit.run(&["status", "--porcelain"]), "");
        let changes = unit.harvest().unwrap();
        assert!(changes.is_empty() && changes.unseen.is_empty(), "{:?}", changes.unseen);
        put(&inner.join("README"), "edited\n");
        user_git(
            &git,
            &inner,
            &["-c", "user.name=x", "-c", "user.email=x", "commit", "-q", "--allow-empty", "-m", "x"],
        );
        let told = ["changes in the submodule deep/mod: README", "commits in the submodule deep/mod"];
        assert_eq!(unit.harvest().unwrap().unseen, told);
        assert!(state_of(&fixture.repo) == before);
    }
}

#[test]
fn c15_a_submodule_that_is_not_here_is_named() {
    let fixture = with_submodule(&gits()[0]);
    fixture.run(&["submodule", "--quiet", "deinit", "-f", "deep/mod"]);
    let (unit, extras) = prepare(&fixture);
    assert_eq!(extras.unseen, ["submodules that are not checked out in the user's repository: deep/mod"]);
    assert_eq!(fs::read_dir(unit.clone.join("deep/mod")).unwrap().count(), 0);
}

#[test]
fn lfs_content_is_copied_where_it_is_and_no_filter_runs() {
    for git in gits() {
        let fixture = Fixture::new(&git);
        let content = "content\n".repeat(1000);
        let id = crate::home::sha256_hex(content.as_bytes());
        let pointer = |id: &str, size: usize| {
            format!("version https://git-lfs.github.com/spec/v1\noid sha256:{id}\nsize {size}\n")
        };
        fixture.write(".gitattributes", "*.dat filter=lfs diff=lfs merge=lfs -text\n");
        fixture.write("big.dat", &pointer(&id, content.len()));
        fixture.write("gone.dat", &pointer(&"ab".repeat(32), 7));
        fixture.write("README", "version https://git-lfs.github.com/spec/v1 is a line\n");
        fixture.commit("lfs");
        put(&fixture.repo.join(".git/lfs/objects").join(&id[..2]).join(&id[2..4]).join(&id), &content);
        let (unit, extras) = prepare(&fixture);
        assert_eq!(extras.unseen, ["the content of LFS files that are pointers here: gone.dat"]);
        assert_eq!(fs::read_to_string(unit.clone.join("big.dat")).unwrap(), content);
        assert_eq!(unit.run(&["status", "--porcelain"]), "");
        assert!(unit.changed().is_empty());
        put(&unit.clone.join("big.dat"), "new content");
        assert_eq!(unit.changed(), ["M big.dat"]);
    }
}

#[test]
fn ignored_files_that_the_list_names_are_copied_and_never_come_back() {
    let fixture = Fixture::new(&gits()[0]);
    fixture.write(".gitignore", "target/\n*.log\n.env*\nsecret/\n");
    fixture.commit("rules");
    fixture.write(".worktreeinclude", ".env*\nsecret/\nREADME\nplain\nlink.log\n");
    fixture.write(".env.test", "A=1\n");
    fixture.write("secret/deep/key", "k\n");
    fs::set_permissions(fixture.repo.join("secret/deep/key"), fs::Permissions::from_mode(0o600)).unwrap();
    fixture.write("plain", "not ignored, so it would come back as the unit's work\n");
    std::os::unix::fs::symlink(&fixture.repo, fixture.repo.join("link.log")).unwrap();
    let before = state_of(&fixture.repo);
    let (unit, extras) = prepare(&fixture);
    assert_eq!(extras.unseen, ["what .worktreeinclude names and is no plain file: link.log"]);
    assert_eq!(fs::read_to_string(unit.clone.join(".env.test")).unwrap(), "A=1\n");
    let key = fs::metadata(unit.clone.join("secret/deep/key")).unwrap();
    assert_eq!(key.permissions().mode() & 0o777, 0o600);
    assert!(!unit.clone.join("plain").exists() && !unit.clone.join("link.log").is_symlink());
    assert!(unit.changed().is_empty());
    assert!(state_of(&fixture.repo) == before);
}
