//! The doorbell: how the host engine learns of new work.
//!
//! One page of GPU registers, mapped from the control node. Storing a channel's token at offset
//! 0x90 (`hw_func_ga10b.h`) makes the host engine look at that channel's GP_PUT. Any channel can be
//! rung through the one page.

use core::ptr::{self, NonNull};

use nvgpu_sys::ctrl;
use nvgpu_sys::door::Protection;
use nvgpu_sys::{DoorFd, DoorMapping};

use crate::error::{self, Error, NODE};

/// The mapped doorbell page.
///
/// While the GPU is powered off, an access raises SIGBUS; a deterministic channel keeps it powered.
/// So the page is only reachable through a [`crate::Channel`].
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

    /// The register that takes tokens, for hot paths: volatile 32-bit stores only.
    pub fn register(&self) -> NonNull<u32> {
        // SAFETY: the offset lies in the mapping, which is 64 KiB long.
        unsafe { self.page.pointer().add(ctrl::USERMODE_DOORBELL) }.cast()
    }

    /// Rings for the channel with this token. Stores to its ring and to GP_PUT must have been
    /// ordered before, see [`gpu_hal::barrier::before_doorbell`].
    #[inline]
    pub fn ring(&self, token: u32) {
        // SAFETY: the register lies in the mapping, which `self` keeps alive; a stray token is
        // harmless, the scheduler only looks at that channel again.
        unsafe { ptr::write_volatile(self.register().as_ptr(), token) }
    }
}
