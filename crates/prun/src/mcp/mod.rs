//! `prun mcp`: the coordinator's tools over the Model Context Protocol, on stdin and stdout.
//!
//! The only part of prun with an asynchronous runtime: the protocol's own library wants one. A tool is a plain
//! function of what the command line calls too, run on a thread of its own.

mod answer;
mod batch;
mod call;
mod prompt;
mod resources;
mod screen;
mod server;
mod shared;
mod stdio;
mod tools;
mod transport;

use std::sync::Arc;
use std::time::Duration;

use rmcp::ServiceExt;
use rmcp::service::ServerInitializeError;

use crate::context::Context;
use crate::error::{CliError, CliResult};
use crate::exit_code::ExitCode;
use server::Server;
use shared::Shared;
use stdio::Writer;
use transport::Lines;

/// How long the last answers may take to be written once the client has left.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Serves until the client closes our stdin. Runs that were started go on.
///
/// # Errors
/// The streams cannot be set up.
pub(crate) fn serve(context: Context) -> CliResult {
    let (input, output) = stdio::take()?;
    let writer = Writer::start(output)?;
    let (lines, closing) = stdio::read_lines(input)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let ui = context.ui;
    let shared = Shared::new(context);
    let served = runtime.block_on(async {
        let transport = Lines::new(lines, writer.sender());
        match Server::new(Arc::clone(&shared), closing).serve(transport).await {
            Ok(running) => running.waiting().await.map(|_| ()).map_err(|error| error.to_string()),
            Err(ServerInitializeError::ConnectionClosed(_)) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    });
    // Threads of tools may still look at something; what changes the working tree is waited for here.
    shared.close();
    runtime.shutdown_background();
    if !writer.finish(LAST_WORDS) {
        ui.warn("the client did not read the last answers");
    }
    served.map(|()| ExitCode::Ok).map_err(|error| CliError::new(ExitCode::Unexpected, error))
}
