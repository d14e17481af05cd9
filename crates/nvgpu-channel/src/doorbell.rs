//! The doorbell, which notifies the host engine of new work.
//!
//! One page of GPU registers, mapped from the control node. Storing a channel's token at offset
//! 0x90 (`hw_func_ga10b.h`) makes the host engine read that channel's GP_PUT. Any channel can be
//! rung through the one page.

use core::ptr::{self, NonNull};

use kernel_door::{DoorFd, DoorMapping, Protection};
use nvgpu_sys::ctrl;

use crate::error::{self, Error, NODE};

/// The mapped doorbell page.
///
/// An access while the GPU is powered off raises SIGBUS. A deterministic channel keeps the GPU powered,
/// so only a [`crate::Channel`] gives access to the page.
#[derive(Debug)]
pub struct Doorbell {
    page: DoorMapping,
}

impl Doorbell {
    pub(crate) fn map(ctrl: &DoorFd) -> Result<Self, Error> {
        let page = ctrl
            .map(0, ctrl::USERMODE_PAGE_SIZE, Protection::READ | Protection::WRITE)
            .map_err(error::call("mmap of the doorbell page", NODE))?;
        Ok(Self { page })
    }

    /// Pointer to the doorbell register, for hot paths. Only volatile 32-bit stores are allowed.
    pub fn register(&self) -> NonNull<u32> {
        // SAFETY: the offset is inside the mapping, which is 64 KiB long.
        unsafe { self.page.pointer().add(ctrl::USERMODE_DOORBELL) }.cast()
    }

    /// Rings the doorbell for the channel with this token. A barrier must order the stores to its ring and
    /// to GP_PUT before; see [`gpu_hal::barrier::before_doorbell`].
    #[inline]
    pub fn ring(&self, token: u32) {
        // SAFETY: the register is inside the mapping, which `self` keeps alive. A wrong token is harmless:
        // the host engine only checks that channel again.
        unsafe { ptr::write_volatile(self.register().as_ptr(), token) }
    }
}
