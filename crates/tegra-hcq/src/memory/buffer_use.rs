//! A buffer, or a part of one, as an argument of work.

use crate::heap::{DeviceId, Handle, Uses};

/// A buffer argument: its address and its record of uses.
#[derive(Clone, Copy, Debug)]
pub struct BufferUse<'a> {
    va: u64,
    handle: &'a Handle,
}

impl<'a> BufferUse<'a> {
    pub(crate) fn new(handle: &'a Handle, va: u64) -> Self {
        Self { va, handle }
    }

    pub(crate) fn gpu_va(&self) -> u64 {
        self.va
    }

    pub(crate) fn uses(&self) -> &'a Uses {
        self.handle.uses()
    }

    pub(crate) fn handle(&self) -> &'a Handle {
        self.handle
    }

    pub(crate) fn device(&self) -> DeviceId {
        self.handle.heap().id()
    }
}
