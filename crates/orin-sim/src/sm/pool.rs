//! Host threads that help the thread that steps a grid.
//!
//! The SMs of the chip work concurrently. Here helpers join the thread that steps a grid; each runs CTAs of the same
//! grid until it is stopped or finds no work. Helpers start on first use and sleep without work.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{JoinHandle, Result};

use parking_lot::Mutex;

use crate::caller::guard;

/// Maximum number of threads per grid unless [`SmOptions::threads`](super::SmOptions::threads) is set.
const MOST: usize = 8;

/// A job; it sends its own result.
pub(super) type Job = Box<dyn FnOnce() + Send>;

/// A job that sends the result of `work`, or the panic that has ended it.
pub(super) fn reporting<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
    results: Sender<Result<T>>,
) -> Job {
    Box::new(move || {
        // The receiver is gone only if the stepping thread panicked.
        let _ = results.send(catch_unwind(AssertUnwindSafe(work)));
    })
}

/// The helpers of a GPU.
#[derive(Debug)]
pub(super) struct Pool {
    /// Maximum number of helpers.
    limit: usize,
    helpers: Mutex<Vec<Helper>>,
}

#[derive(Debug)]
struct Helper {
    /// Dropping it ends the thread.
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Pool {
    /// Creates a pool for `threads` threads in total; one per host processor if `None`.
    pub(super) fn new(threads: Option<usize>) -> Self {
        let automatic = || std::thread::available_parallelism().map_or(1, |count| count.get().min(MOST));
        let threads = threads.unwrap_or_else(automatic);
        Self { limit: threads.saturating_sub(1), helpers: Mutex::new(Vec::new()) }
    }

    /// Returns the maximum number of helpers.
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// Passes each job to its own helper. Returns the jobs without a helper.
    pub(super) fn start(&self, jobs: Vec<Job>) -> Vec<Job> {
        let mut helpers = self.helpers.lock();
        while helpers.len() < jobs.len().min(self.limit) {
            // With fewer threads the grid runs slower; results are the same.
            let Some(helper) = Helper::spawn(helpers.len()) else { break };
            helpers.push(helper);
        }
        let mut left = Vec::new();
        let mut helpers = helpers.iter();
        for job in jobs {
            match helpers.next() {
                Some(helper) => left.extend(helper.give(job)),
                None => left.push(job),
            }
        }
        left
    }
}

impl Helper {
    fn spawn(number: usize) -> Option<Self> {
        let (jobs, inbox): (Sender<Job>, Receiver<Job>) = channel();
        let thread = std::thread::Builder::new()
            .name(format!("orin-sm{}", number + 1))
            .spawn(move || {
                let _inside = guard::enter();
                inbox.into_iter().for_each(|job| job());
            })
            .ok()?;
        Some(Self { jobs: Some(jobs), thread: Some(thread) })
    }

    /// Passes a job to the helper. Returns the job if the thread is gone.
    fn give(&self, job: Job) -> Option<Job> {
        match &self.jobs {
            Some(jobs) => jobs.send(job).err().map(|error| error.0),
            None => Some(job),
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // The thread has already reported its panic, and a destructor must not panic again.
            drop(thread.join());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_sent_and_its_helper_works_on() {
        let pool = Pool::new(Some(2));
        for _ in 0..2 {
            let (results, received) = channel();
            let job = reporting::<()>(|| panic!("broken"), results);
            assert!(pool.start(vec![job]).is_empty());
            let panic = received.recv().unwrap().unwrap_err();
            assert_eq!(panic.downcast_ref::<&str>(), Some(&"broken"));
        }
    }
}
