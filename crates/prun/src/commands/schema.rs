//! `prun schema`: the published shapes of `--json`.

use crate::context::Context;
use crate::error::{CliError, CliResult};
use crate::exit_code::ExitCode;
use crate::schemas::SHAPES;

/// Print the JSON Schema of what a command prints with --json
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The shape's name; without it the names are listed
    name: Option<String>,
}

pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    let Some(name) = &args.name else {
        for shape in SHAPES {
            context.ui.line(format!("{:<10} {}", shape.name, shape.command))?;
        }
        return Ok(ExitCode::Ok);
    };
    let shape = SHAPES.iter().find(|shape| shape.name == name);
    let shape = shape.ok_or_else(|| {
        let names: Vec<&str> = SHAPES.iter().map(|shape| shape.name).collect();
        CliError::usage(format!("there is no shape {name}")).hint(names.join(", "))
    })?;
    context.ui.json(&shape.schema())?;
    Ok(ExitCode::Ok)
}
