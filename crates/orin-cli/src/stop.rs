//! Ctrl-C and SIGTERM.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::exit::ExitStatus;

/// A request to end early. Clones share it.
///
/// ```
/// use orin_cli::Stop;
///
/// // A program: Stop::on_signals().
/// let stop = Stop::new();
/// let handle = stop.clone();
/// handle.request();
/// assert!(stop.is_requested());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// A request that only [`Stop::request`] makes.
    pub fn new() -> Self {
        Self::default()
    }

    /// From now on, Ctrl-C and SIGTERM make the request instead of ending the process. A second signal ends the process
    /// at once, with exit code 130.
    ///
    /// # Errors
    ///
    /// Returns an error if the kernel refuses the signal handler.
    pub fn on_signals() -> io::Result<Self> {
        let stop = Self::new();
        for signal in [SIGINT, SIGTERM] {
            // In this order: the first signal does not see its own request.
            flag::register_conditional_shutdown(signal, ExitStatus::Interrupted as i32, Arc::clone(&stop.0))?;
            flag::register(signal, Arc::clone(&stop.0))?;
        }
        Ok(stop)
    }

    /// The flag, which from now on lives as long as the process.
    pub fn forever(self) -> &'static AtomicBool {
        Box::leak(Box::new(self.0))
    }

    /// Makes the request.
    pub fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the request was made.
    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// The flag, for code that must not depend on this crate.
    pub fn flag(&self) -> &Arc<AtomicBool> {
        &self.0
    }
}
