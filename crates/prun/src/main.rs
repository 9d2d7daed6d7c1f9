//! `prun`: runs many coding agents in parallel on one repository, and lands their work together.

mod cli;
mod commands;
mod context;
mod demo;
mod error;
mod exit_code;
mod interrupt;
mod live;
mod print;
mod supervisor;
mod ui;

use std::path::Path;
use std::process::ExitCode;

/// The hidden command that a supervisor starts once per attempt.
const DISPATCH: &str = "__dispatch";

fn main() -> ExitCode {
    // A dispatcher lives as long as its worker: it branches off before anything large is set up.
    let mut arguments = std::env::args_os().skip(1);
    let code = match (arguments.next(), arguments.next()) {
        (Some(verb), Some(spec)) if verb == DISPATCH => prun_engine::dispatcher::dispatch_spec_file(Path::new(&spec)),
        (Some(verb), first) if verb == commands::dispatch_task::VERB => {
            commands::dispatch_task::run(first.into_iter().chain(arguments))
        }
        _ => return cli::main().into(),
    };
    exit_code(code)
}

/// Codes outside a byte do not occur; 255 stands for them.
fn exit_code(code: i32) -> ExitCode {
    ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))
}
