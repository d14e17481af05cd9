//! Fences as files: what orders the work of a queue with other drivers and processes.
//!
//! A sync-file of the kernel stands for a value of a syncpoint, a counter of the host1x unit. The camera, the display
//! and the video engines make and take such files. A queue waits for one with an acquire of the syncpoint's word in GPU
//! memory, and increments a syncpoint of its own for others to wait for: the CPU takes no part. The driver's own
//! submissions use the same acquire and release on ga10b (nvgpu `hal/sync/syncpt_cmdbuf_gv11b.c`, `add_wait_cmd` and
//! `add_incr_cmd`).

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use ampere_cmd::command::{AcquireCondition, Payload, SemaphoreAcquire, SemaphoreRelease};
use gpu_hal::{FenceCounter, FencePoint};

use super::Queue;
use crate::error::Result;

/// The counter of a queue's fence files.
#[derive(Debug)]
pub(super) struct Counter {
    source: Box<dyn FenceCounter>,
    /// Number of increments that were submitted.
    count: u32,
}

impl Queue {
    /// Makes later work of the queue wait until a fence as a file has signalled: a sync-file of the camera, the
    /// display, a video engine, or of a queue of any process. The CPU does not wait, and the file may be closed at
    /// once. If the fence has signalled, nothing is waited for.
    ///
    /// A fence that never signals stops the queue: waits for its work then time out, and the message names the
    /// syncpoint. The kernel's limit of 30 s for fences holds for waits by the CPU, not here.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`](crate::Error::Driver) with `nvgpu_channel::Error::NotASyncFile`, `ForeignFence` (a fence
    /// without a syncpoint: wait for it on the CPU, with `poll`) or `FailedFence` (it has signalled an error);
    /// [`gpu_hal::Error::Unsupported`] if the driver has no fences as files. Also returns an error if the queue has
    /// faulted.
    pub fn wait_file(&mut self, file: impl AsFd) -> Result<()> {
        for FencePoint { va, value, id } in self.state.device.driver().fence_points(file.as_fd())? {
            let acquire = SemaphoreAcquire {
                va,
                payload: Payload::Bits32(value),
                condition: AcquireCondition::CircularGreaterOrEqual,
                switch_tsg: true,
            };
            self.step(|encoder, _| encoder.semaphore_acquire(&acquire))?;
            self.state.set_awaited(id, value);
        }
        Ok(())
    }

    /// As [`Queue::submit`], and returns a file that signals when all work of the queue has ended so far: other drivers
    /// and processes wait for it, `poll` reports it readable, and [`Queue::wait_file`] takes it. It costs two system
    /// calls; the first call opens the queue's counter.
    ///
    /// The kernel gives a wait for such a file 30 s from its first `poll` on; then the file signals an error
    /// (`ETIMEDOUT`). After a fault of the queue the file signals too, and without an error: readers that must know use
    /// the fence.
    ///
    /// ```
    /// # #[cfg(feature = "sim")] fn main() -> tegra_hcq::Result<()> {
    /// # let device = tegra_hcq::Device::open(tegra_hcq::DeviceKind::Sim)?;
    /// let (mut camera, mut display) = (device.queue()?, device.queue()?);
    /// let mut frame = device.alloc_shared::<u32>(1000)?;
    /// camera.fill(&mut frame, 7)?;
    /// let ready = camera.submit_to_file()?;
    /// // Also in another process, to which `ready` was sent.
    /// display.wait_file(&ready)?;
    /// display.submit()?.wait(tegra_hcq::DEFAULT_TIMEOUT)?;
    /// assert_eq!(frame.to_vec()?, [7; 1000]);
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "sim"))] fn main() {}
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Queue::submit`]; [`Error::Driver`](crate::Error::Driver) with [`gpu_hal::Error::Unsupported`] if the driver
    /// has no fences as files.
    pub fn submit_to_file(&mut self) -> Result<OwnedFd> {
        self.check_health()?;
        if self.counter.is_none() {
            let group = self.state.channels().map(|channels| Arc::clone(&channels.group));
            // PANIC: a working queue has channels.
            let group = group.expect("the queue has channels");
            self.counter = Some(Counter { source: group.fence_counter()?, count: 0 });
        }
        // PANIC: set above.
        let counter = self.counter.as_ref().expect("the counter is open");
        // Wraps, like the counter.
        let (va, count) = (counter.source.gpu_va(), counter.count.wrapping_add(1));
        let file = counter.source.file(count)?;
        self.step(|encoder, busy| {
            encoder.semaphore_release(&SemaphoreRelease {
                va,
                payload: Payload::Bits32(count),
                wait_for_idle: busy,
                timestamp: false,
            })
        })?;
        self.batch.set_busy(false);
        if let Some(counter) = &mut self.counter {
            counter.count = count;
        }
        self.submit()?;
        Ok(file)
    }
}
