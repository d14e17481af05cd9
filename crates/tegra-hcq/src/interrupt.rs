//! Interrupts of waits: a program ends the wait that one of its threads is in, for example on Ctrl-C.

use core::cell::Cell;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// Time between two questions.
const INTERVAL: Duration = Duration::from_millis(20);

thread_local! {
    static WANTED: Cell<Option<fn() -> bool>> = const { Cell::new(None) };
}

/// Sets the function that waits of this thread call every 20 ms; `None` removes it. Once it returns `true`, the wait
/// fails with [`Error::Interrupted`]. Returns the function before. Waits that end sooner never call it.
///
/// The work of an interrupted wait counts as hanging until it has ended: dropping its queue does not wait for it, and
/// [`Device::recover`](crate::Device::recover) stops it.
///
/// ```
/// # #[cfg(feature = "sim")] fn main() -> tegra_hcq::Result<()> {
/// use std::sync::atomic::{AtomicBool, Ordering};
///
/// static STOP: AtomicBool = AtomicBool::new(false); // set by a handler of SIGINT
///
/// tegra_hcq::set_interrupt(Some(|| STOP.load(Ordering::Relaxed)));
/// # let device = tegra_hcq::Device::open(tegra_hcq::DeviceKind::Sim)?;
/// let signal = device.signal(0)?;
/// STOP.store(true, Ordering::Relaxed);
/// let wait = signal.wait(1, tegra_hcq::DEFAULT_TIMEOUT);
/// assert!(matches!(wait, Err(tegra_hcq::Error::Interrupted)));
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "sim"))] fn main() {}
/// ```
pub fn set_interrupt(wanted: Option<fn() -> bool>) -> Option<fn() -> bool> {
    WANTED.replace(wanted)
}

/// When a wait last called the function of its thread.
pub(crate) struct Interrupts(Instant);

impl Interrupts {
    /// Of a wait that began at `start`.
    pub(crate) fn since(start: Instant) -> Self {
        Self(start)
    }

    /// Calls the function if it is due.
    ///
    /// # Errors
    ///
    /// [`Error::Interrupted`] if it returns `true`.
    pub(crate) fn check(&mut self) -> Result<()> {
        if self.0.elapsed() < INTERVAL {
            return Ok(());
        }
        let wanted = WANTED.get().is_some_and(|wanted| wanted());
        self.0 = Instant::now();
        if wanted { Err(Error::Interrupted) } else { Ok(()) }
    }
}
