//! Batches: what was asked in one line is answered in one line.

use std::mem;

use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, JsonRpcMessage, JsonRpcNotification, RequestId, ServerJsonRpcMessage,
};

use super::screen::Screened;

/// Batches with answers that are still to come.
#[derive(Debug, Default)]
pub(super) struct Batches {
    open: Vec<Batch>,
}

#[derive(Debug)]
struct Batch {
    waits_for: Vec<RequestId>,
    answers: Vec<ServerJsonRpcMessage>,
}

/// What goes out now.
#[derive(Debug)]
pub(super) enum Put {
    /// A message by itself.
    Alone(Box<ServerJsonRpcMessage>),
    /// All answers of a batch; none while others are waited for.
    Together(Vec<ServerJsonRpcMessage>),
}

impl Batches {
    /// Takes a batch in: the messages for the library, and its answers if none is waited for.
    pub(super) fn begin(&mut self, messages: Vec<Screened>) -> (Vec<ClientJsonRpcMessage>, Vec<ServerJsonRpcMessage>) {
        let mut batch = Batch { waits_for: Vec::new(), answers: Vec::new() };
        let mut passed = Vec::new();
        for message in messages {
            match message {
                Screened::Pass(message) => {
                    if let JsonRpcMessage::Request(request) = &*message {
                        batch.waits_for.push(request.id.clone());
                    }
                    passed.push(*message);
                }
                Screened::Answer(answer) => batch.answers.push(*answer),
                Screened::Drop | Screened::Batch(_) => {}
            }
        }
        if batch.waits_for.is_empty() {
            return (passed, batch.answers);
        }
        self.open.push(batch);
        (passed, Vec::new())
    }

    /// An answer is on its way out.
    pub(super) fn answer(&mut self, message: ServerJsonRpcMessage) -> Put {
        let id = match &message {
            JsonRpcMessage::Response(response) => Some(&response.id),
            JsonRpcMessage::Error(error) => error.id.as_ref(),
            _ => None,
        };
        let Some((at, place)) = id.and_then(|id| self.find(id)) else { return Put::Alone(Box::new(message)) };
        self.open[at].waits_for.swap_remove(place);
        self.open[at].answers.push(message);
        Put::Together(self.take_complete(at))
    }

    /// A message for the library: a call that is cancelled gets no answer, so its batch does not wait for one. The
    /// answers that waited for nothing else.
    pub(super) fn notice(&mut self, message: &ClientJsonRpcMessage) -> Vec<ServerJsonRpcMessage> {
        let JsonRpcMessage::Notification(JsonRpcNotification {
            notification: ClientNotification::CancelledNotification(cancelled),
            ..
        }) = message
        else {
            return Vec::new();
        };
        let id = cancelled.params.request_id.as_ref();
        let Some((at, place)) = id.and_then(|id| self.find(id)) else { return Vec::new() };
        self.open[at].waits_for.swap_remove(place);
        self.take_complete(at)
    }

    fn find(&self, id: &RequestId) -> Option<(usize, usize)> {
        let place = |batch: &Batch| batch.waits_for.iter().position(|known| known == id);
        self.open.iter().enumerate().find_map(|(at, batch)| Some((at, place(batch)?)))
    }

    /// The answers of a batch that waits for nothing more.
    fn take_complete(&mut self, at: usize) -> Vec<ServerJsonRpcMessage> {
        if !self.open[at].waits_for.is_empty() {
            return Vec::new();
        }
        mem::take(&mut self.open.swap_remove(at).answers)
    }
}
