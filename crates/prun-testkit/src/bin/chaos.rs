//! Kills parts of prun at random moments, resumes, and looks at what must hold; `prun_testkit::chaos` tells what.
//!
//!     cargo run -p prun-testkit --bin chaos -- [--rounds N] [--seed S] [--jobs N] [--no-landing] --prun PATH

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use prun_testkit::chaos::{Chaos, Victim, again};

fn main() -> ExitCode {
    let chaos = match options(std::env::args().skip(1)) {
        Ok(chaos) => chaos,
        Err(error) => {
            say(&format!("chaos: {error}"));
            return ExitCode::from(2);
        }
    };
    let began = Instant::now();
    let tell = |done: u64| {
        if done.is_multiple_of(10) || done == chaos.rounds {
            say(&format!("{done} of {} rounds, {} s", chaos.rounds, began.elapsed().as_secs()));
        }
    };
    match chaos.play(tell) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            say(&format!("seed {} failed: {}", failure.seed, failure.what));
            say(&again(&chaos.prun, failure.seed));
            ExitCode::FAILURE
        }
    }
}

fn options(mut args: impl Iterator<Item = String>) -> Result<Chaos, String> {
    let mut chaos =
        Chaos { prun: PathBuf::new(), rounds: 40, seed: 1, jobs: 4, victims: Victim::ALL.to_vec(), lands: true };
    while let Some(name) = args.next() {
        if name == "--no-landing" {
            chaos.lands = false;
            continue;
        }
        let value = args.next().ok_or_else(|| format!("{name} needs a value"))?;
        let number = || value.parse::<u64>().map_err(|error| format!("{name}: {error}"));
        match name.as_str() {
            "--prun" => chaos.prun = std::path::absolute(&value).map_err(|error| error.to_string())?,
            "--rounds" => chaos.rounds = number()?,
            "--seed" => chaos.seed = number()?,
            "--jobs" => chaos.jobs = usize::try_from(number()?).map_err(|error| error.to_string())?,
            _ => return Err(format!("there is no option {name}")),
        }
    }
    if chaos.prun.is_file() { Ok(chaos) } else { Err("--prun names the program to try".to_owned()) }
}

/// There is nobody else to tell.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
