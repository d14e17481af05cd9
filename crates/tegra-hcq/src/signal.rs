//! Signals: 64-bit words that the CPU and the queues of a device set and wait for.
//!
//! A queue's own timeline orders its submissions. A signal orders everything else: a kernel that must not start before
//! the CPU allows it, two queues that alternate, the time at which the GPU passed a point. A signal is a semaphore of
//! the host engine: 16 bytes, the value and the GPU time of the last release (`SEM_EXECUTE` of class C76F with
//! RELEASE_TIMESTAMP).

use core::fmt;
use core::sync::atomic::{Ordering, fence};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::device::Device;
use crate::error::{Error, Result};
use crate::heap::{Content, Handle, Heap, Mapped};
use crate::interrupt::Interrupts;
use crate::shared::Shared;
use gpu_hal::MemoryUse;

/// Size of a signal in bytes: value and time stamp.
const BYTES: u64 = 16;
/// Number of value reads between two clock reads.
const SPINS: u32 = 2000;

/// A 64-bit value in memory that the CPU and the GPU set and wait for. Queues of two devices use a signal of
/// [`Device::shared_signal`].
///
/// ```
/// # #[cfg(feature = "sim")] fn main() -> tegra_hcq::Result<()> {
/// # let device = tegra_hcq::Device::open(tegra_hcq::DeviceKind::Sim)?;
/// # let mut queue = device.queue()?;
/// # let timeout = std::time::Duration::from_secs(10);
/// // Work of the queue waits until the CPU sets the signal.
/// let signal = device.signal(0)?;
/// queue.wait_signal(&signal, 1)?;
/// let fence = queue.submit()?;
/// assert!(!fence.is_done());
/// signal.set(1);
/// fence.wait(timeout)?;
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "sim"))] fn main() {}
/// ```
pub struct Signal {
    handle: Mapped,
    /// The same memory on another device.
    twin: Option<Mapped>,
}

impl Device {
    /// Creates a signal with the given value.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`] if there is not enough memory.
    pub fn signal(&self, value: u64) -> Result<Signal> {
        Signal::new(self.shared(), value)
    }
}

impl Signal {
    pub(crate) fn new(device: &Arc<Shared>, value: u64) -> Result<Self> {
        let handle = device.allocate_mapped(BYTES, MemoryUse::Signals, Content::Signal)?;
        Ok(Self { handle, twin: None }.set_up(value))
    }

    /// A signal in memory that two devices have mapped.
    pub(crate) fn over(handle: Mapped, twin: Mapped, value: u64) -> Self {
        Self { handle, twin: Some(twin) }.set_up(value)
    }

    fn set_up(self, value: u64) -> Self {
        let signal = self;
        // SAFETY: the second word lies in the signal's 16 bytes.
        unsafe { signal.pointer().add(1).write_volatile(0) };
        signal.set(value);
        signal
    }

    fn pointer(&self) -> *mut u64 {
        self.handle.cpu().cast()
    }

    /// The value. Writes that the GPU made before it set the signal are visible to the caller.
    pub fn value(&self) -> u64 {
        // SAFETY: aligned, inside the signal's memory, which `self` keeps alive.
        let value = unsafe { self.pointer().read_volatile() };
        fence(Ordering::Acquire);
        value
    }

    /// GPU time of the last release by a queue, in nanoseconds of the GPU's clock; 0 before the first.
    pub fn gpu_time_ns(&self) -> u64 {
        // SAFETY: the second word of the signal; as in `value`.
        unsafe { self.pointer().add(1).read_volatile() }
    }

    /// Sets the value. Writes that the CPU made before are visible to every waiter.
    pub fn set(&self, value: u64) {
        fence(Ordering::Release);
        // SAFETY: as in `value`.
        unsafe { self.pointer().write_volatile(value) };
    }

    /// Waits until the value is at least `value`.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`] if the signal does not reach the value in time. A signal has no link to the queue that sets
    /// it; the fence of that queue reports its fault.
    pub fn wait(&self, value: u64, timeout: Duration) -> Result<()> {
        let start = Instant::now();
        let mut interrupts = Interrupts::since(start);
        loop {
            for _ in 0..SPINS {
                if self.value() >= value {
                    return Ok(());
                }
                core::hint::spin_loop();
            }
            interrupts.check()?;
            if start.elapsed() >= timeout {
                let cause =
                    "the signal did not reach the value; the fence of the queue that sets it reports why";
                let (seen, cause) = (self.value(), cause.to_owned());
                return Err(Error::Timeout { timeout, wanted: value, seen, cause });
            }
            std::thread::yield_now();
        }
    }

    /// Address of the value on the GPU, for a shared signal on the first of its devices.
    pub fn gpu_va(&self) -> u64 {
        self.handle.gpu_va()
    }

    /// The signal's memory as the device of `heap` sees it, or as its own device sees it.
    #[inline]
    pub(crate) fn on(&self, heap: &Arc<Heap>) -> &Handle {
        match &self.twin {
            Some(twin) if Arc::ptr_eq(twin.heap(), heap) => twin,
            _ => &self.handle,
        }
    }
}

impl fmt::Debug for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signal")
            .field("value", &self.value())
            .field("gpu_va", &format_args!("{:#x}", self.gpu_va()))
            .finish()
    }
}
