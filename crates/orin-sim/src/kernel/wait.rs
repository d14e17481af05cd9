//! WAIT of a channel: sleeps until memory changes (`ioctl_channel.c`, `gk20a_channel_wait`).
//!
//! The memory is checked when the request arrives and after each non-stall interrupt of the GPU, not in between. A
//! value that the GPU writes without an interrupt wakes no waiter.

use core::mem::offset_of;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nvgpu_sys::channel::{Notification, WAIT_NOTIFIER, WAIT_SEMAPHORE, Wait};
use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::memory::Memory;

use super::Kernel;
use super::channel::NOTIFICATION_BYTES;
use super::process::task::Task;
use super::recovery;

/// Period at which a wait of a served process looks for signals.
const SIGNAL_PERIOD: Duration = Duration::from_millis(20);

/// The condition of a wait.
enum Condition {
    /// The word at `offset` equals `payload`.
    Semaphore { memory: Arc<Memory>, offset: u64, payload: u32 },
    /// The status of the notification at `offset` is 0.
    Notifier { memory: Arc<Memory>, offset: u64 },
}

impl Condition {
    fn met(&self) -> bool {
        match self {
            Self::Semaphore { memory, offset, payload } => {
                // One atomic load, because the GPU may be writing it. CAST: offsets of a CPU mapping fit usize.
                memory.load(*offset as usize) == *payload
            }
            Self::Notifier { memory, offset } => !recovery::is_pending(memory, *offset),
        }
    }

    /// Writes the fields that the kernel sets in an awaited notification.
    fn finish(&self, channel: u32) {
        if let Self::Notifier { memory, offset } = self {
            // CAST: channel ids are below 512.
            let record =
                Notification { info32: 0xdead_beef, info16: channel as u16, ..Notification::default() };
            let (info, status) = (offset_of!(Notification, info32), offset_of!(Notification, status));
            recovery::store(memory, *offset + info as u64, &record.as_bytes()[info..status]);
        }
    }

    /// The errno on time-out.
    fn timed_out(&self) -> Errno {
        match self {
            Self::Semaphore { .. } => Errno::TIMEDOUT,
            Self::Notifier { .. } => Errno::INTR,
        }
    }

    /// The result if the channel ends during the wait.
    fn ended(&self) -> Result<(), Errno> {
        match self {
            Self::Semaphore { .. } => Ok(()),
            Self::Notifier { .. } => Err(Errno::TIMEDOUT),
        }
    }
}

impl Kernel {
    /// The checks of WAIT, in the kernel's order.
    fn wait_condition(
        &self,
        task: &Task<'_>,
        (id, serial): (u32, u64),
        args: &Wait,
    ) -> Result<Condition, Errno> {
        let mut state = self.state.lock();
        if state.channel(id, serial)?.unserviceable {
            return Err(Errno::TIMEDOUT);
        }
        let (offset, bytes) = match args.kind {
            WAIT_SEMAPHORE if !args.offset.is_multiple_of(4) => return Err(Errno::INVAL),
            WAIT_SEMAPHORE => (u64::from(args.offset), 4),
            WAIT_NOTIFIER => (u64::from(args.offset), NOTIFICATION_BYTES),
            _ => return Err(Errno::INVAL),
        };
        // CAST: a descriptor is the same 32 bits.
        let buffer = state.fds.dma_buf(task, args.dmabuf_fd as RawFd).map_err(|_| Errno::INVAL)?;
        if offset + bytes > buffer.handle.size() {
            return Err(Errno::INVAL);
        }
        let memory = buffer.handle.memory().map(Arc::clone);
        Ok(if args.kind == WAIT_SEMAPHORE {
            let memory = memory.ok_or(Errno::INVAL)?;
            Condition::Semaphore { memory, offset, payload: args.payload }
        } else {
            Condition::Notifier { memory: memory.ok_or(Errno::NOMEM)?, offset }
        })
    }

    /// WAIT. A time-out of 0 milliseconds means no limit: the wait ends with the channel at the latest.
    pub(super) fn channel_wait(
        &self,
        task: &Task<'_>,
        channel: (u32, u64),
        args: &Wait,
    ) -> Result<(), Errno> {
        let condition = self.wait_condition(task, channel, args)?;
        let limit = Duration::from_millis(u64::from(args.timeout));
        let deadline = Instant::now() + limit;
        loop {
            let seen = self.log.pulse.count();
            if condition.met() {
                condition.finish(channel.0);
                return Ok(());
            }
            let serviceable =
                self.state.lock().channel(channel.0, channel.1).is_ok_and(|channel| !channel.unserviceable);
            if !serviceable {
                return condition.ended();
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if args.timeout != 0 && left.is_zero() {
                return Err(condition.timed_out());
            }
            // TIMEOUT: without a limit, a period long enough to cost nothing.
            let left = if args.timeout == 0 { Duration::from_secs(1) } else { left };
            let Some(caller) = task.caller else {
                self.log.pulse.wait(seen, left);
                continue;
            };
            // A signal sent to another process wakes no waiter here.
            if caller.is_interrupted() {
                return Err(Errno::INTR);
            }
            self.log.pulse.wait(seen, left.min(SIGNAL_PERIOD));
        }
    }
}
