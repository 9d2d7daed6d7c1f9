//! Single keys from the terminal, while a viewer runs.

use std::io::Read;

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

/// While it lives, keys come one by one and are not echoed. Ctrl-C stays a signal.
#[derive(Debug)]
pub(crate) struct Keys {
    before: Option<Termios>,
}

impl Keys {
    /// Calls `hear` for each key, in a thread of its own.
    pub(crate) fn listen(mut hear: impl FnMut(u8) + Send + 'static) -> Self {
        let before = tcgetattr(std::io::stdin()).ok();
        if let Some(before) = &before {
            let mut raw = before.clone();
            raw.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
            // A terminal that refuses still shows the run; only the keys are lost.
            let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &raw);
        }
        std::thread::spawn(move || {
            let mut key = [0];
            while let Ok(1) = std::io::stdin().lock().read(&mut key) {
                hear(key[0]);
            }
        });
        Self { before }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, before);
        }
    }
}
