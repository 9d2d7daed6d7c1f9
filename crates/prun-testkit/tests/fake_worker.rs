//! The fake worker as a process.

use std::fs::File;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};

#[test]
fn a_double_fork_leaves_one_hanging_grandchild_and_says_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let (out, err) = (dir.path().join("out"), dir.path().join("err"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_fake-worker"));
    // Files, for the grandchild keeps them open.
    command.arg("double-fork").stdout(File::create(&out).unwrap()).stderr(File::create(&err).unwrap());
    assert!(command.status().unwrap().success());
    let said = std::fs::read_to_string(&out).unwrap();
    let grandchild = said.strip_prefix("child ").unwrap().trim_end().parse().unwrap();
    kill_process(Pid::from_raw(grandchild).unwrap(), Signal::KILL).unwrap();
    assert_eq!(std::fs::read_to_string(&err).unwrap(), "");
}
