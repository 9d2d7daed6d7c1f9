//! Plans whose workers are a few lines of shell, and what tests through the whole binary ask again and again.

use std::os::fd::OwnedFd;

use prun_testkit::env::{Printed, TestEnv};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::Value;

/// The program under test.
pub(crate) const PRUN: &str = env!("CARGO_BIN_EXE_prun");

/// What every worker can say: `result CONCLUSION FILES` writes a proper result, `await NAME` waits for
/// [`open_gate`].
pub(crate) const WORDS: &str = r##"
result() {
    printf '# %s result\nConclusion: %s\nFiles: %s\nOpen items: none\nVerification: none\n\nBody of %s.\n' \
        "$PRUN_UNIT" "${1:-done}" "${2:-see the diff}" "$PRUN_UNIT" > "$PRUN_RESULT"
}
await() { while [ ! -e "$PRUN_TEST_MARK/$1" ]; do sleep 0.02; done; }
"##;

/// A unit of the executor `command`. More of its keys can follow.
pub(crate) fn unit(id: &str, script: &str) -> String {
    format!("\n[[unit]]\nid = \"{id}\"\nprompt = \"Do {id}.\"\ncommand = '''{WORDS}{script}\n'''\n")
}

/// A repository with a plan of these units in `prun.toml`. `head` is what stands before them.
pub(crate) fn place(head: &str, units: &[String]) -> TestEnv {
    let env = TestEnv::new(PRUN);
    env.write("prun.toml", plan(head, units));
    env
}

/// The text of a plan.
pub(crate) fn plan(head: &str, units: &[String]) -> String {
    format!("version = 1\n{head}\n{}", units.concat())
}

/// Lets workers go on that wait for this.
pub(crate) fn open_gate(env: &TestEnv, name: &str) {
    std::fs::write(env.at(name), "").unwrap();
}

/// Starts the plan detached; the run's short id.
pub(crate) fn start(env: &TestEnv) -> String {
    let printed = env.prun("run -d");
    assert_eq!(printed.code, 0, "{printed}");
    printed.stdout.trim_end().to_owned()
}

/// Runs the plan to its end; the run's short id.
pub(crate) fn run(env: &TestEnv) -> String {
    let printed = env.prun("run");
    let id = env.run_ids().pop().unwrap_or_else(|| panic!("{printed}"));
    id.rsplit('-').next().unwrap().to_owned()
}

/// What a command prints as JSON.
pub(crate) fn json(env: &TestEnv, line: &str) -> Value {
    let printed = env.prun(line);
    serde_json::from_str(&printed.stdout).unwrap_or_else(|error| panic!("{line}: {error}: {printed}"))
}

/// A unit as `status --json` tells it.
pub(crate) fn unit_of(env: &TestEnv, run: &str, id: &str) -> Value {
    let status = json(env, &format!("status {run} --json"));
    let units = status["units"].as_array().unwrap();
    units.iter().find(|unit| unit["unit"] == id).unwrap().clone()
}

/// Waits until a unit is in this state.
pub(crate) fn wait_for_state(env: &TestEnv, run: &str, id: &str, state: &str) {
    env.wait_until(&format!("{id} is {state}"), || unit_of(env, run, id)["state"] == state);
}

/// Waits until the run has ended and its supervisor has left; what `wait` says then.
pub(crate) fn wait_for_end(env: &TestEnv, run: &str) -> Printed {
    let line = format!("status {run} --json");
    env.wait_until("the run has ended", || json(env, &line)["state"] != "running");
    env.assert_all_gone();
    env.prun(&format!("wait {run}"))
}

/// The tree that `integrate --dry-run` shows.
pub(crate) fn tree_shown(printed: &Printed) -> String {
    let rest = printed.stdout.split(" · tree ").nth(1).unwrap_or_else(|| panic!("no tree: {printed}"));
    rest.split(' ').next().unwrap().to_owned()
}

/// A new terminal: our side and the program's.
pub(crate) fn terminal() -> (OwnedFd, OwnedFd) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap();
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::CLOEXEC;
    let side = rustix::fs::open(name.as_c_str(), flags, rustix::fs::Mode::empty()).unwrap();
    (ours, side)
}
