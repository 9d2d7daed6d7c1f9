//! Starting a supervisor: a process in a session of its own that outlives whoever started it.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use prun_core::ids::RunId;
use prun_engine::depth::{DEPTH_VARIABLE, Depth, LIMIT_VARIABLE};
use prun_engine::driver::own_program;
use prun_engine::files::FileError;
use prun_engine::home::Home;
use prun_engine::hooks::{Wishes, can_keep_awake};
use prun_engine::{runs, sandbox};

use crate::error::{CliError, CliResult};
use crate::exit_code::ExitCode;
use crate::ui::Ui;

/// How the line begins by which a supervisor marks its beginning in its log.
pub(crate) const BEGAN: &str = "supervisor began: process ";

/// What a supervisor prints once it can take commands.
pub(crate) const READY: &str = "ready";

/// What is done beside a run, by its supervisor.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Beside {
    /// Run this by `sh -c` when the run has ended; PRUN_SUMMARY, PRUN_RUN and others tell it how
    #[arg(long, value_name = "COMMAND")]
    on_done: Option<String>,
    /// Run this by `sh -c` whenever the run calls for attention before its end
    #[arg(long, value_name = "COMMAND")]
    on_attention: Option<String>,
    /// Keep the machine from going to sleep while the run lasts
    #[arg(long)]
    keep_awake: bool,
}

impl Beside {
    /// These wishes, and from `other` what they leave open. Says at once where the machine cannot be kept awake.
    pub(crate) fn or(&self, ui: Ui, other: Wishes) -> Wishes {
        let (on_done, on_attention) = (self.on_done.clone(), self.on_attention.clone());
        let wishes = Wishes { on_done, on_attention, keep_awake: self.keep_awake }.or(other);
        if wishes.keep_awake
            && let Err(why) = can_keep_awake()
        {
            ui.warn(format!("the machine cannot be kept awake: {why}; the run stands still while it sleeps"));
        }
        wishes
    }
}

/// Refuses to leave a run to itself where it would end with its caller.
///
/// # Errors
/// The caller's sandbox ends all its processes.
pub(crate) fn refuse_short_life() -> CliResult<()> {
    let Some(why) = sandbox::look(|name| std::env::var_os(name)).ends_with_the_call() else { return Ok(()) };
    let hint = "start it outside of that sandbox, or without -d and wait for its end inside";
    Err(CliError::usage(format!("cannot leave a run to itself here: {why}"))
        .hint(hint)
        .hint(format!("{}=ignore says that it is not so", sandbox::SANDBOX_VARIABLE)))
}

/// Starts the supervisor of `run` and returns once it drives it.
///
/// # Errors
/// This is a worker that may not; it cannot be started, or gave up at once; its own words are told.
pub(crate) fn start(home: &Home, run: &RunId, resume: bool) -> CliResult<()> {
    let depth = Depth::current();
    depth.check()?;
    let dir = home.run(run);
    let log_path = dir.supervisor_log();
    let log = File::options().create(true).append(true).open(&log_path);
    let log = log.map_err(FileError::at("open", &log_path))?;
    let said_before = log.metadata().map_or(0, |meta| meta.len());
    let program = own_program().map_err(|error| CliError::new(ExitCode::Unexpected, error))?;
    let mut command = Command::new(&program);
    command.arg("__supervise").arg(run.as_str()).args(resume.then_some("--resume"));
    command.env("PRUN_HOME", home.root()).current_dir(dir.root());
    if depth.level > 0 {
        // We may know of it only from our ancestors, and the supervisor has none.
        command.env(DEPTH_VARIABLE, depth.level.to_string()).env(LIMIT_VARIABLE, depth.limit.to_string());
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
    let mut child = command
        .spawn()
        .map_err(|error| CliError::new(ExitCode::Unexpected, format!("cannot start {}: {error}", program.display())))?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        // An end without the word is the answer too.
        let _ = BufReader::new(stdout).read_line(&mut line);
    }
    if line.trim_end() == READY {
        return Ok(());
    }
    let code = child.wait().ok().and_then(|status| status.code());
    if code == Some(ExitCode::Usage as i32) && runs::supervisor(&dir).is_some() {
        return Err(under_way(run));
    }
    let said = std::fs::read(&log_path).unwrap_or_default();
    let said = String::from_utf8_lossy(said.get(usize::try_from(said_before).unwrap_or(0)..).unwrap_or_default());
    let said = said.trim().trim_start_matches("error: ");
    let message = format!("the supervisor of run {} did not start: {said}", run.short());
    let is_about_writing = code == Some(ExitCode::NotWritten as i32);
    Err(CliError::new(if is_about_writing { ExitCode::NotWritten } else { ExitCode::Unexpected }, message))
}

/// The error that says that somebody drives a run already.
pub(crate) fn under_way(run: &RunId) -> CliError {
    let name = run.short();
    CliError::usage(format!("run {name} is under way")).hint(format!("`prun attach {name}` shows it"))
}
