//! A scripted worker; the language is described in `prun_testkit::fake_worker`.
//!
//! Its lines come from its arguments, one a line, else from its prompt on stdin.

use std::io::Read;
use std::process::ExitCode;

use prun_testkit::fake_worker::{FORKED, Script, run_forked, run_script};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == FORKED) {
        run_forked(arguments.get(1).map_or("", String::as_str));
        return ExitCode::SUCCESS;
    }
    let script = if arguments.is_empty() {
        let mut prompt = String::new();
        let read = std::io::stdin().read_to_string(&mut prompt);
        read.map_err(|error| format!("cannot read the prompt: {error}")).and_then(|_| Script::in_prompt(&prompt))
    } else {
        Script::of_lines(arguments.iter().map(String::as_str))
    };
    match script.and_then(|script| run_script(&script)) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            use std::io::Write;
            // There is nobody else to tell.
            let _ = writeln!(std::io::stderr(), "fake-worker: {error}");
            ExitCode::from(64)
        }
    }
}
