//! Single keys from the terminal, while a viewer runs.

use std::io::Read;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::getpgrp;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr};
use signal_hook::consts::{SIGCONT, SIGTSTP};
use signal_hook::iterator::Signals;

/// While it lives, keys come one by one and are not echoed. Ctrl-C stays a signal. Ctrl-Z gives the terminal back as
/// it was, and `fg` takes it again.
#[derive(Debug)]
pub(crate) struct Keys {
    before: Arc<Mutex<Option<Termios>>>,
}

impl Keys {
    /// Calls `hear` for each key, in a thread of its own.
    pub(crate) fn listen(mut hear: impl FnMut(u8) + Send + 'static) -> Self {
        let before = Arc::new(Mutex::new(tcgetattr(std::io::stdin()).ok()));
        take(&before);
        // Where signals cannot be had, Ctrl-Z leaves the terminal as it is; the shell may still mend it.
        if let Ok(mut signals) = Signals::new([SIGTSTP, SIGCONT]) {
            let before = Arc::clone(&before);
            std::thread::spawn(move || {
                for signal in &mut signals {
                    if signal == SIGTSTP {
                        give_back(&before);
                        // Returns once somebody has us go on.
                        let _ = signal_hook::low_level::emulate_default_handler(signal);
                    }
                    take(&before);
                }
            });
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
        // Taken out, so that no signal sets the terminal once more.
        if let Some(before) = self.before.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &before);
        }
    }
}

/// Sets the terminal for single keys. In the background it is somebody else's: setting it would stop us.
fn take(before: &Mutex<Option<Termios>>) {
    let is_ours = tcgetpgrp(std::io::stdin()).is_ok_and(|group| group == getpgrp());
    if let Some(before) = before.lock().unwrap_or_else(PoisonError::into_inner).as_ref().filter(|_| is_ours) {
        let mut raw = before.clone();
        raw.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        // A terminal that refuses still shows the run; only the keys are lost.
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &raw);
    }
}

fn give_back(before: &Mutex<Option<Termios>>) {
    if let Some(before) = before.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, before);
    }
}
