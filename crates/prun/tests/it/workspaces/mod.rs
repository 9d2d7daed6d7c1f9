//! Workspaces through the real binary: a repository of a user, plans whose workers are shell scripts.

mod cases;
mod clean;
mod guard;
mod integrate;
mod kills;
mod old_verbs;
mod run;

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const PRUN: &str = env!("CARGO_BIN_EXE_prun");

/// Writes a result in contract form for the unit `$PRUN_UNIT`.
const GOOD: &str = r##"printf '# %s result\nConclusion: done\nFiles: none\nOpen items: none\nVerification: none\n\nbody\n' "$PRUN_UNIT" > "$PRUN_RESULT"; "##;

/// A user with a repository and a home of prun.
struct User {
    dir: tempfile::TempDir,
}

impl User {
    fn new() -> Self {
        let user = Self { dir: tempfile::tempdir().unwrap() };
        for name in ["tmp", "home", "repo/sub"] {
            std::fs::create_dir_all(user.at(name)).unwrap();
        }
        user.git(&["init", "-q", "-b", "main"]);
        user.git(&["config", "user.name", "Ada"]);
        user.git(&["config", "user.email", "ada@example.org"]);
        user.write("repo/README", "hello\n");
        user.write("repo/sub/a", "a\n");
        user.write("repo/.gitignore", "*.log\n");
        user.git(&["add", "-A"]);
        user.git(&["commit", "-q", "-m", "first"]);
        user
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.at(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.at(name)).unwrap_or_default()
    }

    fn git(&self, args: &[&str]) -> String {
        let output = self.command("git", args).output().unwrap();
        assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    /// A command in the repository.
    fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(args).env_clear().current_dir(self.at("repo")).stdin(Stdio::null());
        command.env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", self.at("home"));
        command.env("TMPDIR", self.at("tmp")).env("PRUN_DURABLE", "off").env("XDG_RUNTIME_DIR", self.at("tmp"));
        command.env("GIT_CONFIG_NOSYSTEM", "1");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// `prun` with these arguments: exit code and everything it printed.
    fn prun(&self, args: &[&str]) -> (i32, String) {
        let output = self.command(PRUN, args).output().unwrap();
        (output.status.code().unwrap(), said(&output))
    }

    /// The same, and it has to succeed. Stdout alone.
    #[track_caller]
    fn ok(&self, args: &[&str]) -> String {
        let output = self.command(PRUN, args).output().unwrap();
        assert!(output.status.success(), "prun {args:?}: {}", said(&output));
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    /// Writes a plan of units, each with a script and these other keys, outside the repository.
    fn plan(&self, head: &str, units: &[(&str, &str)], keys: &str) {
        let mut plan = format!("version = 1\nrepo = \"{}\"\n{head}\n", self.at("repo").display());
        for (id, script) in units {
            plan += &format!(
                "[[unit]]\nid = \"{id}\"\nexecutor = \"command\"\nretries = 0\nprompt = \"do it\"\n{keys}command = '''{script}'''\n"
            );
        }
        self.write("plan.toml", &plan);
    }

    /// Every file of the repository's git directory: bytes, mode, and when it was changed.
    fn git_dir(&self) -> BTreeMap<PathBuf, String> {
        fn walk(dir: &Path, found: &mut BTreeMap<PathBuf, String>) {
            for entry in std::fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                let meta = path.symlink_metadata().unwrap();
                let kind =
                    if meta.is_dir() { "directory".to_owned() } else { format!("{:?}", std::fs::read(&path).ok()) };
                found.insert(path.clone(), format!("{:o} {}.{} {kind}", meta.mode(), meta.mtime(), meta.mtime_nsec()));
                if meta.is_dir() {
                    walk(&path, found);
                }
            }
        }
        let mut found = BTreeMap::new();
        walk(&self.at("repo/.git"), &mut found);
        found
    }

    /// Writes a plan of units, each with a script, outside the repository, and runs it to its end.
    fn run(&self, head: &str, units: &[(&str, &str)]) -> (i32, String) {
        self.plan(head, units, "");
        let plan = self.at("plan.toml");
        self.prun(&["run", plan.to_str().unwrap()])
    }
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[track_caller]
fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
}

fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}
