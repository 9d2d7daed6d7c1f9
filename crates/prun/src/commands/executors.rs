//! `prun executors`: who can take units here.

use prun_core::gate::Login;
use prun_engine::executor::preflight;
use prun_engine::survey::facts;

use crate::context::Context;
use crate::error::CliResult;
use crate::exit_code::ExitCode;

/// List the executors, with version, slots and login
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(context: &Context, _args: &Args) -> CliResult {
    for executor in context.registry()?.iter() {
        let found = facts(executor, preflight::check(executor));
        let mut parts = vec![executor.name.to_string()];
        parts.extend(found.version);
        parts.push(format!("{} slots", found.slots));
        match found.login {
            Login::LoggedIn => parts.push("logged in".to_owned()),
            Login::LoggedOut => parts.push("not logged in".to_owned()),
            Login::NotNeeded | Login::Unknown => {}
        }
        if let Some(problem) = found.problem {
            parts.push(problem.message);
            parts.extend(problem.hint.map(|hint| format!("({hint})")));
        }
        context.ui.line(parts.join(" · "))?;
    }
    Ok(ExitCode::Ok)
}
