//! `prun doctor`: what about this machine would cost work or time later.

use prun_core::finding::{Finding, Level, REPORT_VERSION, Report};
use prun_engine::doctor;
use prun_engine::executor::preflight;
use prun_engine::git::Git;

use crate::context::Context;
use crate::error::CliResult;
use crate::exit_code::ExitCode;
use crate::ui::Tone;

/// Tell what about this machine would cost work or time later
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    let findings = findings(context)?;
    let has_problem = findings.iter().any(|finding| finding.level == Level::Problem);
    if args.json {
        context.ui.json(&Report { version: REPORT_VERSION, findings })?;
    } else {
        findings.iter().try_for_each(|finding| print(context, finding))?;
    }
    Ok(if has_problem { ExitCode::Usage } else { ExitCode::Ok })
}

/// Each part of prun that can judge the machine adds its own.
fn findings(context: &Context) -> CliResult<Vec<Finding>> {
    let mut findings = doctor::host(&doctor::look(&Git::from_env(), &context.home));
    let registry = context.registry_here()?;
    findings.extend(doctor::executors(registry.iter().map(|executor| (executor, preflight::check(executor)))));
    Ok(findings)
}

fn print(context: &Context, finding: &Finding) -> CliResult<()> {
    let ui = context.ui;
    let (word, tone) = match finding.level {
        Level::Ok => ("ok", Tone::Good),
        Level::Warning => ("warn", Tone::Warn),
        Level::Problem => ("FAIL", Tone::Bad),
    };
    ui.line(format!("{} {:<15} {}", ui.paint(&format!("{word:<4}"), tone), finding.check, finding.message))?;
    match &finding.hint {
        Some(hint) => ui.line(ui.paint(&format!("     {:<15} {hint}", ""), Tone::Dim)),
        None => Ok(()),
    }
}
