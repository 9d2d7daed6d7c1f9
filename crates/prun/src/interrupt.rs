//! Ctrl-C as a message, so that a viewer leaves in its own time.

use std::sync::mpsc::{Receiver, channel};

/// A channel that gets a message for each Ctrl-C. It never closes while it is held.
///
/// # Errors
/// The handler cannot be installed.
pub(crate) fn listen() -> std::io::Result<Receiver<()>> {
    let mut signals = signal_hook::iterator::Signals::new([signal_hook::consts::SIGINT])?;
    let (sender, interrupted) = channel();
    std::thread::Builder::new().name("interrupt".into()).spawn(move || {
        for signal in &mut signals {
            if sender.send(()).is_err() {
                // Nobody views any more: it means again what it means to any program.
                let _ = signal_hook::low_level::emulate_default_handler(signal);
            }
        }
    })?;
    Ok(interrupted)
}
