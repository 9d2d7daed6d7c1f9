//! A few threads for work that takes long: preparing workspaces, looking after dead attempts.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

type Job = Box<dyn FnOnce() + Send>;

/// Threads that take jobs in the order they were given.
#[derive(Debug)]
pub(super) struct Pool {
    jobs: Sender<Job>,
}

impl Pool {
    /// A pool of `threads` threads. They end when the pool is dropped and its jobs are done.
    ///
    /// # Errors
    /// A thread cannot be made.
    pub(super) fn new(threads: usize) -> std::io::Result<Self> {
        let (jobs, queue) = channel::<Job>();
        let queue = Arc::new(Mutex::new(queue));
        for number in 0..threads.max(1) {
            let queue = Arc::clone(&queue);
            thread::Builder::new().name(format!("prepare-{number}")).spawn(move || work(&queue))?;
        }
        Ok(Self { jobs })
    }

    /// Has `job` done by the next free thread.
    pub(super) fn submit(&self, job: impl FnOnce() + Send + 'static) {
        // The threads outlive this sender, so the queue cannot be closed yet.
        self.jobs.send(Box::new(job)).expect("the pool's threads live as long as the pool");
    }
}

fn work(queue: &Mutex<Receiver<Job>>) {
    loop {
        let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        match job {
            Ok(job) => {
                if std::panic::catch_unwind(std::panic::AssertUnwindSafe(job)).is_err() {
                    // A job that never answers would leave its unit hanging for ever. A dead supervisor is
                    // seen, and resumed; its dispatchers go on.
                    std::process::abort();
                }
            }
            Err(_) => return,
        }
    }
}
