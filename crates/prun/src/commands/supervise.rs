//! `prun __supervise RUN`: a run's supervisor, in a session of its own. Started by prun itself.

use std::fs::File;

use prun_core::ids::RunId;
use prun_engine::driver::{DriverError, drive};
use prun_engine::{contain, process};

use crate::context::Context;
use crate::error::CliResult;
use crate::exit_code::ExitCode;
use crate::supervisor::{BEGAN, READY};

/// Drive a run
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The run's id, whole
    run: RunId,
    /// Let units go on that an earlier stop ended
    #[arg(long)]
    resume: bool,
}

pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    // Fails only for a group's leader, who then has a terminal that can end us.
    let _ = rustix::process::setsid();
    contain::keep_descriptors_private();
    process::raise_descriptor_limit();
    // Before the first thread and the first dispatcher, which are to be in it too.
    contain::enter_scope(args.run.as_str());
    let say = |error: &DriverError| context.ui.say(format!("error: {error}"));
    drive(context.workshop_to_drive(&args.run)?, args.resume, || say_ready(context), say)?;
    Ok(ExitCode::Ok)
}

/// Tells whoever started us, and lets go of their pipe: they must not wait for our end.
fn say_ready(context: &Context) {
    context.ui.say(format!("{BEGAN}{}", std::process::id()));
    // Whoever does not listen any more finds the run by its id.
    let _ = context.ui.line(READY);
    if let Ok(null) = File::options().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(null);
    }
}
