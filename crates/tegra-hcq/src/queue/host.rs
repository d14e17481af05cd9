//! Functions of the process in the order of a queue's work.
//!
//! The function runs on a thread of the queue, which waits for the fence of the work before it. The work after it waits
//! on the GPU for a signal that the thread sets when the function has ended.

use core::cell::RefCell;
use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use super::Queue;
use crate::error::{Error, Result};
use crate::interrupt::set_interrupt;
use crate::shared::Shared;
use crate::signal::Signal;
use crate::wait::Fence;

/// A function, and what it waits for.
struct Task {
    after: Fence,
    function: Box<dyn FnOnce() + Send>,
    /// Value of the signal after it.
    value: u64,
}

/// The thread that runs the functions of a queue; ends after the last function when the queue is dropped.
pub(super) struct HostFunctions {
    tasks: Sender<Task>,
    /// The number of functions that have ended.
    done: Arc<Signal>,
    /// The number of functions given to the thread.
    given: u64,
    /// Whether the work that functions wait for will never end.
    abandoned: Arc<AtomicBool>,
}

thread_local! {
    /// [`HostFunctions::abandoned`] of the thread's queue.
    static ABANDONED: RefCell<Arc<AtomicBool>> = RefCell::default();
}

/// Whether the waits of this thread are in vain.
fn is_abandoned() -> bool {
    ABANDONED.with_borrow(|abandoned| abandoned.load(Ordering::Relaxed))
}

/// Runs functions in order.
fn run(tasks: &Receiver<Task>, done: &Signal, abandoned: Arc<AtomicBool>) {
    ABANDONED.set(abandoned);
    for Task { after, function, value } in tasks {
        // A function may have changed it.
        set_interrupt(Some(is_abandoned));
        let waited = after.wait(Duration::MAX);
        // The queue's state, which closes its channels when it is dropped, is not kept while the function runs.
        drop(after);
        // Without the work before it, the function is dropped. Both run code of the user.
        let ran = catch_unwind(AssertUnwindSafe(|| match waited {
            Ok(()) => function(),
            Err(error) => {
                tracing::debug!(%error, "a host function is dropped");
                drop(function);
            }
        }));
        if ran.is_err() {
            tracing::error!("a host function panicked; the queue goes on");
        }
        done.set(value);
    }
}

impl HostFunctions {
    fn start(device: &Arc<Shared>) -> Result<Self> {
        let (tasks, received) = channel();
        let done = Arc::new(Signal::new(device, 0)?);
        let abandoned = Arc::<AtomicBool>::default();
        let (signal, flag) = (Arc::clone(&done), Arc::clone(&abandoned));
        let thread = std::thread::Builder::new().name("hcq-host".to_owned());
        thread.spawn(move || run(&received, &signal, flag)).map_err(Error::Thread)?;
        Ok(Self { tasks, done, given: 0, abandoned })
    }

    /// Drops the functions whose work will never end.
    pub(super) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
    }
}

impl fmt::Debug for HostFunctions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostFunctions").field("given", &self.given).field("done", &self.done).finish()
    }
}

impl Queue {
    /// Submits the open batch, and runs a function of the process after all work of the queue so far and before all
    /// later work. The call does not wait. [`Queue::wait`] includes the function.
    ///
    /// The functions of a queue run one after another on a thread of the queue, those of different queues side by side.
    /// No lock is held meanwhile. A panic ends the function and nothing else. If the work before it fails, or if the
    /// queue is dropped while that work hangs, the function is dropped without being called. A function that waits for
    /// later work of its queue waits in vain.
    ///
    /// ```
    /// # #[cfg(feature = "sim")] fn main() -> tegra_hcq::Result<()> {
    /// # let device = tegra_hcq::Device::open(tegra_hcq::DeviceKind::Sim)?;
    /// use std::sync::mpsc::channel;
    ///
    /// let mut queue = device.queue()?;
    /// let mut data = device.alloc::<u32>(100)?;
    /// let (sender, receiver) = channel();
    /// queue.fill(&mut data, 7)?;
    /// queue.host_function(move || sender.send("filled").expect("the receiver exists"))?;
    /// queue.wait(tegra_hcq::DEFAULT_TIMEOUT)?;
    /// assert_eq!(receiver.try_recv(), Ok("filled"));
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "sim"))] fn main() {}
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Thread`] if the thread cannot be started; as [`Queue::submit`]. The function is dropped then.
    pub fn host_function(&mut self, function: impl FnOnce() + Send + 'static) -> Result<()> {
        let after = self.submit()?;
        // The thread's wait needs the doorbell.
        self.release_held();
        let (done, value) = match &self.host {
            Some(host) => (Arc::clone(&host.done), host.given + 1),
            None => {
                let host = HostFunctions::start(&self.state.device)?;
                let first = (Arc::clone(&host.done), host.given + 1);
                self.host = Some(host);
                first
            }
        };
        self.wait_signal(&done, value)?;
        if let Some(host) = &mut self.host {
            host.given = value;
            let task = Task { after, function: Box::new(function), value };
            // PANIC: the thread ends after its sender is dropped.
            host.tasks.send(task).map_err(drop).expect("the thread runs");
        }
        Ok(())
    }
}
