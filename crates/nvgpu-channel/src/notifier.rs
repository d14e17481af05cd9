//! The error notifier: where the kernel writes why a channel died.
//!
//! A 16-byte record in memory of the process, zeroed when it is registered. On an error the kernel
//! fills in time and code and writes the status last; it never overwrites a record
//! (`linux-channel.c:nvgpu_set_err_notifier_locked`). All channels of a TSG get one.

use core::mem::offset_of;
use core::sync::atomic::{Ordering, fence};
use core::time::Duration;
use std::sync::Arc;
use std::time::SystemTime;

use gpu_hal::ErrorCode;
use nvgpu_sys::channel::{self as sys, Notification};
use nvgpu_sys::{DoorFd, Errno};
use nvmap::{Buffer, CacheMode, Nvmap};

use crate::error::Error;
use crate::fault::Fault;

/// A registered error notifier and its memory.
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

    /// The fault that the kernel recorded, if any. No system call.
    pub fn fault(&self) -> Option<Fault> {
        // The status is the upper half of the record's last word, on a little-endian machine.
        const LAST_WORD: usize = offset_of!(Notification, info16);
        let status = self.memory.read_u32(LAST_WORD) >> 16;
        if status == 0 {
            return None;
        }
        // The kernel writes the status after the rest; read it before the rest.
        fence(Ordering::Acquire);
        let code = self.memory.read_u32(offset_of!(Notification, info32));
        let low = u64::from(self.memory.read_u32(offset_of!(Notification, time_stamp)));
        let high = u64::from(self.memory.read_u32(offset_of!(Notification, time_stamp) + 4));
        let since_epoch = Duration::from_nanos(high << 32 | low);
        Some(Fault { code: ErrorCode::from_raw(code), time: SystemTime::UNIX_EPOCH + since_epoch })
    }
}
