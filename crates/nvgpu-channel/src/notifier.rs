//! The error notifier, in which the kernel records the fault of a channel.
//!
//! The notifier is a 16-byte record in memory of the process. The kernel clears it at registration. On
//! an error, it writes time and code, then the status; it never overwrites a record
//! (`linux-channel.c:nvgpu_set_err_notifier_locked`). A fault is recorded for all channels of the TSG.

use core::mem::offset_of;
use core::sync::atomic::{Ordering, fence};
use core::time::Duration;
use std::sync::Arc;
use std::time::SystemTime;

use gpu_hal::ErrorCode;
use kernel_door::{DoorFd, Errno};
use nvgpu_sys::channel::{self as sys, Notification};
use nvmap::{Buffer, CacheMode, Nvmap};

use crate::error::Error;
use crate::fault::Fault;

/// A registered error notifier and its memory.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::sync::Arc;
/// # let door: Arc<dyn kernel_door::Door> = Arc::new(orin_sim::SoftwareOrin::new(orin_sim::Config::default())?);
/// # let gpu = nvgpu_channel::Gpu::open(&door)?;
/// # let space = gpu.address_space()?;
/// # let buffer = Arc::new(gpu.nvmap().buffer(8192).allocate()?);
/// # let tsg = gpu.tsg()?;
/// # let subcontext = tsg.subcontext(&space)?;
/// # let mut channel = subcontext.channel(gpu.characteristics().compute_class()).open()?;
/// assert!(channel.notifier().fault().is_none());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ErrorNotifier {
    memory: Arc<Buffer>,
}

impl ErrorNotifier {
    pub(crate) fn allocate(nvmap: &Nvmap) -> Result<Self, Error> {
        let memory = nvmap
            .buffer(nvgpu_sys::nvmap::PAGE_SIZE)
            .cache(CacheMode::WriteCombined)
            .label("error notifier")
            .allocate()?;
        Ok(Self { memory: Arc::new(memory) })
    }

    pub(crate) fn register(&self, channel: &DoorFd) -> Result<(), Errno> {
        let mut argument = sys::SetErrorNotifier {
            offset: 0,
            // CAST: 16 fits.
            size: size_of::<Notification>() as u64,
            mem: self.memory.dma_buf().cast_unsigned(),
            padding: 0,
        };
        sys::SET_ERROR_NOTIFIER.send(channel, &mut argument).map(drop)
    }

    /// Returns the recorded fault, if any. No system call.
    pub fn fault(&self) -> Option<Fault> {
        // On a little-endian machine, the status is the upper half of the last word.
        const LAST_WORD: usize = offset_of!(Notification, info16);
        let status = self.memory.read_u32(LAST_WORD) >> 16;
        if status == 0 {
            return None;
        }
        // The kernel writes the status last, so it is read first.
        fence(Ordering::Acquire);
        let code = self.memory.read_u32(offset_of!(Notification, info32));
        let low = u64::from(self.memory.read_u32(offset_of!(Notification, time_stamp)));
        let high = u64::from(self.memory.read_u32(offset_of!(Notification, time_stamp) + 4));
        let since_epoch = Duration::from_nanos(high << 32 | low);
        Some(Fault { code: decode(code), time: SystemTime::UNIX_EPOCH + since_epoch })
    }
}

/// Decodes the number of an error: that of all NVIDIA drivers, or nvgpu's own.
fn decode(number: u32) -> ErrorCode {
    match number {
        sys::ERROR_SUBMIT_TIMEOUT => ErrorCode::SubmitTimeout,
        sys::ERROR_COPY_ENGINE => ErrorCode::CopyEngineFault,
        number => ErrorCode::from_raw(number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nvgpu_has_two_numbers_of_its_own() {
        assert_eq!(
            [1, 11, 31].map(decode),
            [ErrorCode::SubmitTimeout, ErrorCode::CopyEngineFault, ErrorCode::MmuFault]
        );
        // An Xid of the desktop driver with these numbers means something else.
        assert_eq!([1, 11].map(ErrorCode::from_raw), [1, 11].map(ErrorCode::Unknown));
    }
}
