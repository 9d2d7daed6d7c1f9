//! The command line: one enum of commands, one place that turns an error into text and an exit code.

use clap::{Parser, Subcommand};

use crate::commands;
use crate::context::Context;
use crate::error::{CliError, CliResult};
use crate::exit_code::ExitCode;
use crate::ui::Ui;

/// Run many coding agents in parallel on one repository, and land their work together
#[derive(Debug, Parser)]
#[command(name = "prun", version, disable_help_subcommand = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Init(commands::init::Args),
    Check(commands::check::Args),
    Run(commands::run::Args),
    Demo(commands::demo::Args),
    Doctor(commands::doctor::Args),
    Executors(commands::executors::Args),
    #[command(visible_alias = "ls")]
    Runs(commands::runs::Args),
    Status(commands::status::Args),
    Wait(commands::wait::Args),
    Attach(commands::attach::Args),
    Logs(commands::logs::Args),
    Events(commands::events::Args),
    Result(commands::result::Args),
    Brief(commands::brief::Args),
    Explain(commands::explain::Args),
    Path(commands::path::Args),
    Usage(commands::usage::Args),
    Stop(commands::stop::Args),
    Retry(commands::retry::Args),
    Resume(commands::resume::Args),
    Submit(commands::submit::Args),
    Harvest(commands::harvest::Args),
    Accept(commands::review::AcceptArgs),
    Exclude(commands::review::ExcludeArgs),
    Unreview(commands::review::UnreviewArgs),
    Diff(commands::diff::Args),
    Compare(commands::compare::Args),
    Reconcile(commands::reconcile::Args),
    Integrate(commands::integrate::Args),
    Undo(commands::undo::Args),
    Clean(commands::clean::Args),
    Ledger(commands::ledger::Args),
    Clone(commands::clone::Args),
    Import(commands::import::Args),
    Mcp(commands::mcp::Args),
    Skill(commands::skill::Args),
    Schema(commands::schema::Args),
    Completions(commands::completions::Args),
    Man(commands::completions::ManArgs),
    #[command(name = "__supervise", hide = true)]
    Supervise(commands::supervise::Args),
    // The verbs of the old scripts are handled before this parser; they stand here for the help alone.
    /// Run one worker as the old script `dispatch-task.sh` did
    #[command(name = "dispatch-task", disable_help_flag = true)]
    DispatchTask,
    /// Wait until every one of some result files has landed
    #[command(disable_help_flag = true)]
    Gather,
    /// Watch state dirs until one of them calls for action
    #[command(disable_help_flag = true)]
    Monitor,
    /// Report what earlier dispatches left behind, changing nothing
    #[command(name = "report-state", disable_help_flag = true)]
    ReportState,
    /// End workers whose dispatcher is gone
    #[command(name = "reap-orphans", disable_help_flag = true)]
    ReapOrphans,
}

/// Parses the command line, runs the command, reports what failed.
pub(crate) fn main() -> ExitCode {
    let ui = Ui::from_env();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version go to stdout with 0, usage errors to stderr with 2; clap knows which.
            if error.use_stderr() && ui.wants_json() {
                let text = error.to_string();
                ui.error(&CliError::usage(text.trim_start_matches("error: ").trim_end()));
            } else {
                let _ = error.print();
            }
            return if error.use_stderr() { ExitCode::Usage } else { ExitCode::Ok };
        }
    };
    let done = Context::from_env(ui).and_then(|context| run(&context, cli.command));
    match done {
        Ok(code) => code,
        // Nobody reads stdout any more.
        Err(error) if error.code == ExitCode::Ok => ExitCode::Ok,
        Err(error) => {
            ui.error(&error);
            error.code
        }
    }
}

fn run(context: &Context, command: Command) -> CliResult {
    match command {
        Command::Init(args) => commands::init::run(context, &args),
        Command::Check(args) => commands::check::run(context, &args),
        Command::Run(args) => commands::run::run(context, &args),
        Command::Demo(args) => commands::demo::run(context, &args),
        Command::Doctor(args) => commands::doctor::run(context, &args),
        Command::Executors(args) => commands::executors::run(context, &args),
        Command::Runs(args) => commands::runs::run(context, &args),
        Command::Status(args) => commands::status::run(context, &args),
        Command::Wait(args) => commands::wait::run(context, &args),
        Command::Attach(args) => commands::attach::run(context, &args),
        Command::Logs(args) => commands::logs::run(context, &args),
        Command::Result(args) => commands::result::run(context, &args),
        Command::Brief(args) => commands::brief::run(context, &args),
        Command::Explain(args) => commands::explain::run(context, &args),
        Command::Path(args) => commands::path::run(context, &args),
        Command::Usage(args) => commands::usage::run(context, &args),
        Command::Stop(args) => commands::stop::run(context, &args),
        Command::Retry(args) => commands::retry::run(context, &args),
        Command::Resume(args) => commands::resume::run(context, &args),
        Command::Submit(args) => commands::submit::run(context, &args),
        Command::Harvest(args) => commands::harvest::run(context, &args),
        Command::Accept(args) => commands::review::accept(context, &args),
        Command::Exclude(args) => commands::review::exclude(context, &args),
        Command::Unreview(args) => commands::review::unreview(context, &args),
        Command::Diff(args) => commands::diff::run(context, &args),
        Command::Compare(args) => commands::compare::run(context, &args),
        Command::Reconcile(args) => commands::reconcile::run(context, &args),
        Command::Integrate(args) => commands::integrate::run(context, &args),
        Command::Undo(args) => commands::undo::run(context, &args),
        Command::Clean(args) => commands::clean::run(context, &args),
        Command::Ledger(args) => commands::ledger::run(context, &args),
        Command::Clone(args) => commands::clone::run(context, &args),
        Command::Import(args) => commands::import::run(context, &args),
        Command::Mcp(args) => commands::mcp::run(context, &args),
        Command::Skill(args) => commands::skill::run(context, &args),
        Command::Schema(args) => commands::schema::run(context, &args),
        Command::Completions(args) => commands::completions::run(context, &args),
        Command::Man(args) => commands::completions::man(context, &args),
        Command::Events(args) => commands::events::run(context, &args),
        Command::Supervise(args) => commands::supervise::run(context, &args),
        Command::DispatchTask | Command::Gather | Command::Monitor | Command::ReportState | Command::ReapOrphans => {
            Ok(ExitCode::Usage)
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    /// Help is imperative, starts with a capital letter and has no full stop at the end of its first line.
    #[test]
    fn help_has_one_style() {
        let command = Cli::command();
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            let about = sub.get_about().map(ToString::to_string).unwrap_or_default();
            assert!(about.starts_with(char::is_uppercase), "{}: {about:?}", sub.get_name());
            assert!(!about.ends_with('.'), "{}: {about:?}", sub.get_name());
            for arg in sub.get_arguments().filter(|arg| !["help", "version"].contains(&arg.get_id().as_str())) {
                let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
                let name = format!("{} {}", sub.get_name(), arg.get_id());
                assert!(help.starts_with(char::is_uppercase) && !help.ends_with('.'), "{name}: {help:?}");
            }
        }
    }
}
