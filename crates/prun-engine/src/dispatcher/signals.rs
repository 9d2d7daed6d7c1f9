//! Signals to the dispatcher, and its one way to wait.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;

/// These end the unit properly.
const STOPS: [i32; 4] = [SIGTERM, SIGINT, SIGHUP, SIGQUIT];

/// The signals that the dispatcher handles, as a stream of wake-ups.
pub(super) struct Signals {
    delivery: SignalDelivery<UnixStream, SignalOnly>,
    stop: Option<i32>,
    stops: u32,
}

impl Signals {
    /// Sets every disposition and the mask, whatever was inherited: a shell that starts a program in the
    /// background ignores INT for it, and an ignored CHLD would let the kernel collect children unseen.
    pub(super) fn install() -> io::Result<Self> {
        reset_dispositions();
        let (read, write) = UnixStream::pair()?;
        let handled = STOPS.into_iter().chain([SIGCHLD, SIGUSR1]);
        let delivery = SignalDelivery::with_pipe(read, write, SignalOnly, handled)?;
        Ok(Self { delivery, stop: None, stops: 0 })
    }

    /// The first signal that asked for the end.
    pub(super) fn stop(&self) -> Option<i32> {
        self.stop
    }

    /// How often the end was asked for. The same signal twice between two waits counts once.
    pub(super) fn stops(&self) -> u32 {
        self.stops
    }

    /// Waits for a signal or `timeout`. Returns how much longer than that it took: the machine slept, or
    /// this process was stopped.
    pub(super) fn wait(&mut self, timeout: Option<Duration>) -> Duration {
        let began = Instant::now();
        let limit = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let mut fds = [PollFd::from_borrowed_fd(self.delivery.get_read().as_fd(), PollFlags::IN)];
        // An interrupted wait has a signal to tell of.
        let _ = poll(&mut fds, limit.as_ref());
        for signal in self.delivery.pending().filter(|signal| STOPS.contains(signal)) {
            self.stop = self.stop.or(Some(signal));
            self.stops += 1;
        }
        timeout.map_or(Duration::ZERO, |timeout| began.elapsed().saturating_sub(timeout))
    }
}

/// What a child does before it becomes another program: an ignored signal would stay ignored there. (PIPE is given
/// back by the standard library.)
#[expect(unsafe_code, reason = "dispositions have no safe wrapper")]
pub(super) fn give_back_dispositions() {
    // SAFETY: SIG_DFL is a valid disposition, and `signal` is async-signal-safe.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_DFL) };
}

/// Gives every signal its default disposition and unblocks all of them. Two are ignored, and become errors of the
/// write that causes them: PIPE, so that a reader of our output may go away, and XFSZ, so that a limit on the size
/// of files does not end who has a result to save.
#[expect(unsafe_code, reason = "dispositions and the signal mask have no safe wrapper")]
fn reset_dispositions() {
    // The thread library's own signals and those that the language runtime watches stay as they are.
    let kept = [libc::SIGKILL, libc::SIGSTOP, libc::SIGSEGV, libc::SIGBUS, libc::SIGPIPE, 32, 33];
    for signal in (1..=64).filter(|signal| !kept.contains(signal)) {
        // SAFETY: SIG_DFL is a valid disposition, and no handler of this process is in use yet.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    // SAFETY: SIG_IGN is a valid disposition; `set` is initialised by `sigemptyset` before it is read.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(set.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, set.as_ptr(), std::ptr::null_mut());
    }
}
