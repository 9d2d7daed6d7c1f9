//! Messages from and to the client, a line each.

use std::io;
use std::sync::mpsc::Sender;

use rmcp::RoleServer;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::sync::mpsc::Receiver;

use super::screen::{Screen, Screened, too_long};
use super::stdio::{LONGEST_LINE, Line};

/// The client's lines in, ours out.
#[derive(Debug)]
pub(super) struct Lines {
    incoming: Receiver<Line>,
    outgoing: Option<Sender<Vec<u8>>>,
    screen: Screen,
}

impl Lines {
    /// Over these two queues.
    pub(super) fn new(incoming: Receiver<Line>, outgoing: Sender<Vec<u8>>) -> Self {
        Self { incoming, outgoing: Some(outgoing), screen: Screen::default() }
    }

    fn put(&self, message: &ServerJsonRpcMessage) -> io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        let sent = self.outgoing.as_ref().is_some_and(|lines| lines.send(line).is_ok());
        if sent { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
    }
}

impl Transport<RoleServer> for Lines {
    type Error = io::Error;

    fn send(&mut self, message: ServerJsonRpcMessage) -> impl Future<Output = io::Result<()>> + Send + 'static {
        // Put into the queue at once: answers keep the order in which they were made.
        std::future::ready(self.put(&message))
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        loop {
            let answer = match self.incoming.recv().await? {
                Line::TooLong => too_long(LONGEST_LINE),
                Line::Whole(line) => match self.screen.judge(&line) {
                    Screened::Pass(message) => return Some(*message),
                    Screened::Drop => continue,
                    Screened::Answer(answer) => *answer,
                },
            };
            self.put(&answer).ok()?;
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        self.outgoing = None;
        Ok(())
    }
}
