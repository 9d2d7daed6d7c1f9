//! How prun is used, from the first command to the last, as a shell session and as calls of tools: what is typed here
//! is what the pages tell users and agents to type.

mod agent;
mod by_hand;
mod developer;

use std::os::unix::fs::symlink;
use std::process::{Child, Stdio};

use prun_testkit::env::{Printed, TestEnv};

use crate::support::PRUN;

/// A shell in a place, with prun in PATH.
pub(crate) struct Shell {
    pub(crate) env: TestEnv,
}

impl Shell {
    pub(crate) fn new(mut env: TestEnv) -> Self {
        std::fs::create_dir(env.at("bin")).unwrap();
        symlink(PRUN, env.at("bin/prun")).unwrap();
        let path = std::env::var("PATH").unwrap();
        env.set("PATH", format!("{}:{path}", env.at("bin").display()));
        Self { env }
    }

    /// Starts a line in a window of its own.
    fn opens(&self, line: &str) -> Child {
        let mut shell = self.env.program("/bin/sh");
        shell.args(["-c", &format!("exec {line}")]).stdout(Stdio::piped()).stderr(Stdio::piped());
        shell.spawn().unwrap()
    }

    /// Runs a line as it was typed.
    pub(crate) fn types(&self, line: &str) -> Printed {
        let mut shell = self.env.program("/bin/sh");
        shell.args(["-c", line]).stdout(Stdio::piped()).stderr(Stdio::piped());
        self.env.finish(shell.spawn().unwrap())
    }

    /// Runs a line that has to succeed; what it printed to stdout.
    pub(crate) fn gets(&self, line: &str) -> String {
        let printed = self.types(line);
        assert_eq!(printed.code, 0, "$ {line}\n{printed}");
        printed.stdout
    }

    /// The session of these lines, with what each printed. An exit code that is not 0 is told.
    fn session(&self, lines: &[&str]) -> String {
        let mut session = String::new();
        for line in lines {
            let printed = self.types(line);
            session.push_str(&format!("$ {}\n{}", self.env.normal(line), self.env.normal(&printed.stdout)));
            session.push_str(&self.env.normal(&printed.stderr));
            if printed.code != 0 {
                session.push_str(&format!("(exit {})\n", printed.code));
            }
        }
        session
    }
}

/// The user's repository is as it was but for what landed, and nobody committed.
fn assert_untouched_but(env: &TestEnv, head: &str, status: &str) {
    assert_eq!(env.git("rev-parse HEAD"), head, "nobody commits but the user");
    assert_eq!(env.git("status --short --untracked-files=all"), status);
}
