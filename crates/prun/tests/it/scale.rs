//! Twenty workers at once over a repository of thousands of files, each as nasty to its clone as it can
//! be: the user's repository does not notice, and everything lands.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use prun_engine::home::sha256_hex;

const PRUN: &str = env!("CARGO_BIN_EXE_prun");

const DIRS: usize = 60;
const FILES: usize = 50;

/// What each worker does to its clone beside its work, in turn. Whatever runs by way of it leaves a file in
/// `$EVIL`.
const NASTY: &[&str] = &[
    "git add -A && git commit -qm done && git tag v9 && git branch -f main HEAD~0",
    "git config core.hooksPath \"$PWD/hooks-of-mine\"; git config core.fsmonitor \"touch $EVIL/fsmonitor\"",
    "for hook in post-checkout pre-commit post-index-change reference-transaction; do
         printf '#!/bin/sh\\ntouch %s/hook\\n' \"$EVIL\" >.git/hooks/$hook; chmod +x .git/hooks/$hook; done",
    "rm -rf .git && git init -q && git add -A && git commit -qm new",
    "git config filter.evil.clean \"touch $EVIL/clean; cat\"; mkdir -p .git/info; echo '* filter=evil' >.git/info/attributes",
    "git config core.worktree /; git config core.bare true",
    "git config diff.external \"touch $EVIL/diff\"; git config core.pager \"touch $EVIL/pager\"",
    "echo \"$mine/\" >>.git/info/exclude; git config core.excludesFile \"$PWD/.git/info/exclude\"",
    "git update-index --assume-unchanged \"$mine/f0.txt\" \"$mine/f2.txt\"; git update-index --skip-worktree \"$mine/f1.txt\" || true",
    "git checkout -q --orphan lost && git rm -rqf --cached . && git commit -qm empty --allow-empty",
    "git remote add origin /nowhere; git config remote.origin.push +HEAD:refs/heads/main; git push -q origin HEAD || true",
    "git gc -q --prune=now; git reflog expire --expire=now --all; rm -rf .git/logs",
    "rm -f .git/index; : >.git/index.lock; : >.git/HEAD.lock",
    "git stash push -qu && git stash apply -q",
    "chmod -R a-w .git/objects; rm -f .git/config; mkdir .git/config",
    "git commit -qam x && git reset -q --hard HEAD~1 && git reset -q --hard HEAD@{1}; git add -A; git commit -qm y",
    "git config alias.status \"!touch $EVIL/alias\"; git config include.path \"$EVIL/none\"",
    "git config core.sshCommand \"touch $EVIL/ssh\"; git config credential.helper \"!touch $EVIL/credential\"",
    "git replace -f HEAD \"$(git commit-tree -m r 'HEAD^{tree}')\" || true; git notes add -m n || true",
    "setsid sleep 600 & git worktree add -q \"$PRUN_PORT_BASE.worktree\" && git worktree remove --force \"$PRUN_PORT_BASE.worktree\"",
];

/// The work itself: an edit, a removal, a new file, a mode, a link.
const WORK: &str = r#"
set -e
export GIT_AUTHOR_NAME=w GIT_AUTHOR_EMAIL=w@x GIT_COMMITTER_NAME=w GIT_COMMITTER_EMAIL=w@x
echo "by $PRUN_UNIT" >>"$mine/f0.txt"
rm "$mine/f1.txt"
echo "new of $PRUN_UNIT" >"$mine/new.txt"
chmod +x "$mine/f2.txt"
ln -s f0.txt "$mine/link"
"#;

const RESULT: &str = r##"
printf '# %s result\nConclusion: done\nFiles: %s\nOpen items: none\nVerification: none\n' "$PRUN_UNIT" "$mine" >"$PRUN_RESULT"
"##;

#[test]
fn twenty_nasty_workers_leave_the_repository_as_it_was_and_everything_lands() {
    let world = World::new();
    let (git, tree) = world.snapshot();
    let run = world.prun(&["run", "../plan.toml"]);
    assert_eq!(run.status.code(), Some(0), "{}", said(&run));
    assert_eq!(world.snapshot(), (git.clone(), tree.clone()), "nobody but a landing changes anything");
    let dry = world.prun(&["integrate", "--dry-run"]);
    assert_eq!(dry.status.code(), Some(0), "{}", said(&dry));
    assert_eq!(world.snapshot(), (git.clone(), tree.clone()), "a trial changes nothing");
    let shown = said(&dry);
    let id = shown.split("tree ").nth(1).and_then(|rest| rest.split_whitespace().next()).expect(&shown);
    let landed = world.prun(&["integrate", "--tree", id]);
    assert_eq!(landed.status.code(), Some(0), "{}", said(&landed));
    let (git_after, tree_after) = world.snapshot();
    assert_eq!(git_after, git, "index, refs, config, hooks and objects are the user's");
    assert_eq!(tree_after, expected(tree));
    let evil = names(&world.at("evil"));
    assert!(evil.is_empty(), "something of a clone was run: {evil:?}");
}

/// The tree with the work of all units.
fn expected(mut tree: Snapshot) -> Snapshot {
    for number in 0..NASTY.len() {
        let at = |name: &str| PathBuf::from(format!("d{number}/{name}"));
        let file = |mode: &str, text: &str| format!("{mode} {}", sha256_hex(text.as_bytes()));
        tree.insert(at("f0.txt"), file("100644", &format!("{}by unit-{number}\n", text(number, 0))));
        tree.remove(&at("f1.txt"));
        tree.insert(at("f2.txt"), file("100755", &text(number, 2)));
        tree.insert(at("new.txt"), file("100644", &format!("new of unit-{number}\n")));
        tree.insert(at("link"), "120777 f0.txt".to_owned());
    }
    tree
}

fn text(dir: usize, file: usize) -> String {
    format!("file {file} of {dir}\n").repeat(20)
}

/// Path to kind, mode and content.
type Snapshot = BTreeMap<PathBuf, String>;

struct World {
    dir: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let world = Self { dir: tempfile::tempdir().unwrap() };
        for name in ["home", "user", "evil", "repo"] {
            std::fs::create_dir(world.at(name)).unwrap();
        }
        for dir in 0..DIRS {
            std::fs::create_dir(world.at(&format!("repo/d{dir}"))).unwrap();
            for file in 0..FILES {
                std::fs::write(world.at(&format!("repo/d{dir}/f{file}.txt")), text(dir, file)).unwrap();
            }
        }
        std::fs::write(world.at("plan.toml"), plan()).unwrap();
        for args in [
            &["init", "-qb", "main"][..],
            &["add", "."],
            &["-c", "user.name=u", "-c", "user.email=u@x", "commit", "-qm", "first"],
            // As a repository looks that was worked in.
            &["gc", "-q"],
            &["config", "core.autocrlf", "false"],
            &["branch", "other"],
        ] {
            let git = world.command("git", args).output().unwrap();
            assert!(git.status.success(), "{git:?}");
        }
        world
    }

    fn prun(&self, args: &[&str]) -> Output {
        let mut command = self.command(PRUN, args);
        command.env("PRUN_HOME", self.at("home")).env("PRUN_DURABLE", "off").env("EVIL", self.at("evil"));
        command.output().unwrap()
    }

    fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(args).env_clear().current_dir(self.at("repo")).stdin(Stdio::null());
        command.env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", self.at("user"));
        command.env("TMPDIR", self.dir.path()).env("XDG_RUNTIME_DIR", self.dir.path());
        command
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    /// `.git` and the working tree.
    fn snapshot(&self) -> (Snapshot, Snapshot) {
        let repo = self.at("repo");
        let mut all = BTreeMap::new();
        let mut left = vec![repo.clone()];
        while let Some(path) = left.pop() {
            let meta = std::fs::symlink_metadata(&path).unwrap();
            let content = if meta.is_dir() {
                left.extend(names(&path).into_iter().map(|name| path.join(name)));
                continue;
            } else if meta.is_symlink() {
                std::fs::read_link(&path).unwrap().display().to_string()
            } else {
                sha256_hex(&std::fs::read(&path).unwrap())
            };
            let name = path.strip_prefix(&repo).unwrap().to_owned();
            all.insert(name, format!("{:o} {content}", meta.permissions().mode()));
        }
        all.into_iter().partition(|(path, _)| path.starts_with(".git"))
    }
}

fn plan() -> String {
    let mut text = "version = 1\ntitle = \"scale\"\nrepo = \"repo\"\njobs = 20\nverify = \"test -x d19/f2.txt\"\n\
                    [defaults]\nexecutor = [\"command\"]\ntimeout = \"2m\"\n"
        .to_owned();
    for (number, nasty) in NASTY.iter().enumerate() {
        write!(text, "[[unit]]\nid = \"unit-{number}\"\nowns = [\"d{number}/**\"]\nprompt = \"work\"\n").unwrap();
        write!(text, "command = '''\nmine=d{number}\n{WORK}{RESULT}set +e\n{nasty}\nexit 0\n'''\n").unwrap();
    }
    text
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}
