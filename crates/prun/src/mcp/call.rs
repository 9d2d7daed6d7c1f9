//! One call of a tool, as the tool sees it: whether somebody still waits, and whom to tell how far it is.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// How far a call is.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Progress {
    /// Units that are done.
    pub(super) done: usize,
    /// Of so many.
    pub(super) total: usize,
    /// In words.
    pub(super) message: String,
}

/// A call.
#[derive(Clone, Debug)]
pub(super) struct Call {
    gone: Arc<(Mutex<bool>, Condvar)>,
    progress: Option<UnboundedSender<Progress>>,
}

impl Call {
    /// A call, and where its progress comes out. `tells`: the client wants to hear of it.
    pub(super) fn new(tells: bool) -> (Self, UnboundedReceiver<Progress>) {
        let (sender, receiver) = unbounded_channel();
        (Self { gone: Arc::default(), progress: tells.then_some(sender) }, receiver)
    }

    /// Nobody waits for the answer any more.
    pub(super) fn leave(&self) {
        let (gone, changed) = &*self.gone;
        *gone.lock().unwrap_or_else(PoisonError::into_inner) = true;
        changed.notify_all();
    }

    /// Whether nobody waits any more.
    pub(super) fn is_gone(&self) -> bool {
        *self.gone.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits; whether somebody still waits for the answer then. Ends at once when nobody does.
    pub(super) fn pause(&self, time: Duration) -> bool {
        let (gone, changed) = &*self.gone;
        let gone = gone.lock().unwrap_or_else(PoisonError::into_inner);
        !*changed.wait_timeout_while(gone, time, |gone| !*gone).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Tells how far it is.
    pub(super) fn tell(&self, progress: impl FnOnce() -> Progress) {
        if let Some(sender) = &self.progress {
            // Whoever left does not want to know.
            let _ = sender.send(progress());
        }
    }
}
