//! Messages from and to the client, a line each; of a batch in one line.

use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::Sender;

use rmcp::RoleServer;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use serde::Serialize;
use tokio::sync::mpsc::Receiver;

use super::batch::{Batches, Put};
use super::screen::{Screen, Screened, too_long};
use super::stdio::{LONGEST_LINE, Line};

/// The client's lines in, ours out.
#[derive(Debug)]
pub(super) struct Lines {
    incoming: Receiver<Line>,
    outgoing: Option<Sender<Vec<u8>>>,
    screen: Screen,
    batches: Batches,
    /// Messages of a batch that the library did not ask for yet.
    waiting: VecDeque<ClientJsonRpcMessage>,
}

impl Lines {
    /// Over these two queues.
    pub(super) fn new(incoming: Receiver<Line>, outgoing: Sender<Vec<u8>>) -> Self {
        let (screen, batches, waiting) = (Screen::default(), Batches::default(), VecDeque::new());
        Self { incoming, outgoing: Some(outgoing), screen, batches, waiting }
    }

    fn put(&self, line: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(line)?;
        line.push(b'\n');
        let sent = self.outgoing.as_ref().is_some_and(|lines| lines.send(line).is_ok());
        if sent { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
    }

    /// Answers of a batch, if there are any: one line.
    fn put_together(&self, answers: &[ServerJsonRpcMessage]) -> io::Result<()> {
        if answers.is_empty() { Ok(()) } else { self.put(&answers) }
    }

    /// A message for the library, which may end the wait of a batch.
    fn pass(&mut self, message: ClientJsonRpcMessage) -> io::Result<ClientJsonRpcMessage> {
        let answers = self.batches.notice(&message);
        self.put_together(&answers)?;
        Ok(message)
    }
}

impl Transport<RoleServer> for Lines {
    type Error = io::Error;

    fn send(&mut self, message: ServerJsonRpcMessage) -> impl Future<Output = io::Result<()>> + Send + 'static {
        // Put into the queue at once: answers keep the order in which they were made.
        std::future::ready(match self.batches.answer(message) {
            Put::Alone(message) => self.put(&message),
            Put::Together(answers) => self.put_together(&answers),
        })
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        loop {
            if let Some(message) = self.waiting.pop_front() {
                return self.pass(message).ok();
            }
            let answer = match self.incoming.recv().await? {
                Line::TooLong => too_long(LONGEST_LINE),
                Line::Whole(line) => match self.screen.judge(&line) {
                    Screened::Pass(message) => return self.pass(*message).ok(),
                    Screened::Drop => continue,
                    Screened::Answer(answer) => *answer,
                    Screened::Batch(messages) => {
                        let (passed, answers) = self.batches.begin(messages);
                        self.waiting.extend(passed);
                        self.put_together(&answers).ok()?;
                        continue;
                    }
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
