//! Host threads that help the one that runs a grid.
//!
//! The SMs of the chip work side by side. Here the thread that steps a grid is joined by helpers, each
//! of which runs CTAs of the same grid until it is told to stop or finds nothing to do. Helpers are
//! started when they are first needed and wait for work without taking time.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

/// Most threads that work on a grid unless [`SmOptions::threads`](super::SmOptions::threads) says
/// otherwise.
const MOST: usize = 8;

/// A piece of work; it sends its result away itself.
pub(super) type Job = Box<dyn FnOnce() + Send>;

/// The helpers of a GPU.
#[derive(Debug)]
pub(super) struct Pool {
    /// How many there may be.
    limit: usize,
    helpers: Mutex<Vec<Helper>>,
}

#[derive(Debug)]
struct Helper {
    /// Dropped to end the thread.
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Pool {
    /// Helpers for `threads` threads in all; for as many as the host has processors when `None`.
    pub(super) fn new(threads: Option<usize>) -> Self {
        let automatic = || std::thread::available_parallelism().map_or(1, |count| count.get().min(MOST));
        let threads = threads.unwrap_or_else(automatic);
        Self { limit: threads.saturating_sub(1), helpers: Mutex::new(Vec::new()) }
    }

    /// How many helpers there may be.
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// Gives each job to a helper of its own; returns the jobs for which there is none.
    pub(super) fn start(&self, jobs: Vec<Job>) -> Vec<Job> {
        let mut helpers = self.helpers.lock().unwrap_or_else(PoisonError::into_inner);
        while helpers.len() < jobs.len().min(self.limit) {
            // Fewer threads are slower, and that is all.
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
            .spawn(move || inbox.into_iter().for_each(|job| job()))
            .ok()?;
        Some(Self { jobs: Some(jobs), thread: Some(thread) })
    }

    /// Hands a job over; gives it back when the thread is gone.
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
            // A panic has been reported by the thread itself, and a destructor must not panic again.
            drop(thread.join());
        }
    }
}
