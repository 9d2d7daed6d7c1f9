//! SIGKILL at random moments: of the viewer, the supervisor, dispatchers, git, `integrate` and `undo`. What is played,
//! and what must hold, stands in `prun_testkit::chaos`; `cargo run -p prun-testkit --bin chaos` plays more of it.
//!
//! `PRUN_CHAOS_ROUNDS` makes it longer, `PRUN_CHAOS_SEED` begins elsewhere. A failure names the seed of its round.

use std::path::PathBuf;
use std::process::Stdio;

use prun_testkit::chaos::{Chaos, Failure, Victim};

use crate::support::{PRUN, json, open_gate, place, start, unit, wait_for_end, wait_for_state};

/// Rounds that are played where nobody asks for more; `.ci/run` does. They wait most of the time, so several go on
/// at once.
const ROUNDS: u64 = 8;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// C31: no worker dies with the thread, or the process, that started its dispatcher.
#[test]
fn a_run_and_its_landing_survive_whatever_is_killed_in_them() {
    let chaos = Chaos {
        prun: PathBuf::from(PRUN),
        rounds: number("PRUN_CHAOS_ROUNDS").unwrap_or(ROUNDS),
        // Another one each time: what was never seen to fail is of no use to see again.
        seed: number("PRUN_CHAOS_SEED").unwrap_or_else(|| u64::from(std::process::id()) << 32),
        jobs: 8,
        victims: Victim::ALL.to_vec(),
        lands: true,
    };
    if let Err(Failure { seed, what }) = chaos.play(|_| {}) {
        panic!("seed {seed}: {what}");
    }
}

#[test]
fn of_two_that_resume_at_once_one_is_refused() {
    let env = place("", &[unit("a", "await go; echo a > a.txt; result")]);
    let id = start(&env);
    wait_for_state(&env, &id, "a", "running");
    for _ in 0..5 {
        env.kill("__supervise");
        let two = [0, 1].map(|_| {
            let mut command = env.command(&["resume", "-d", &id]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        });
        let ends = two.map(|child| env.finish(child));
        let mut codes = ends.each_ref().map(|end| end.code);
        codes.sort_unstable();
        assert_eq!(codes, [0, 2], "{} {}", ends[0], ends[1]);
        assert_eq!(json(&env, &format!("status {id} --json"))["state"], "running");
    }
    open_gate(&env, "go");
    assert_eq!(wait_for_end(&env, &id).code, 0);
}
