//! `prun`: runs many coding agents in parallel on one repository, and lands their work together.

mod cli;
mod clients;
mod commands;
mod context;
mod demo;
mod error;
mod exit_code;
mod interrupt;
mod live;
mod mcp;
mod pace;
mod print;
mod registration;
mod schemas;
mod skill;
mod supervisor;
mod ui;

use std::path::Path;
use std::process::ExitCode;

/// The hidden command that a supervisor starts once per attempt.
const DISPATCH: &str = "__dispatch";

fn main() -> ExitCode {
    // A dispatcher lives as long as its worker: it branches off before anything large is set up, and
    // with it the verbs of the old scripts, whose streams and exit codes are the contract's.
    let mut arguments = std::env::args_os().skip(1);
    let verb = arguments.next().unwrap_or_default();
    let code = match verb.to_str() {
        Some(DISPATCH) => match arguments.next() {
            Some(spec) => prun_engine::dispatcher::dispatch_spec_file(Path::new(&spec)),
            None => return cli::main().into(),
        },
        Some(commands::dispatch_task::VERB) => commands::dispatch_task::run(arguments),
        Some(commands::gather::VERB) => commands::gather::run(arguments),
        Some(commands::monitor::VERB) => commands::monitor::run(arguments),
        Some(commands::report_state::VERB) => commands::report_state::run(arguments),
        Some(commands::reap_orphans::VERB) => commands::reap_orphans::run(arguments),
        _ => return cli::main().into(),
    };
    exit_code(code)
}

/// Codes outside a byte do not occur; 255 stands for them.
fn exit_code(code: i32) -> ExitCode {
    ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))
}
