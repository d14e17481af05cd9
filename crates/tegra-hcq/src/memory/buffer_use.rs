//! A buffer, or a part of one, as an argument of work.

use crate::heap::{DeviceId, Handle};

/// A buffer argument: its address and its record of uses.
///
/// ```
/// # #[cfg(feature = "sim")] fn main() -> tegra_hcq::Result<()> {
/// # let device = tegra_hcq::Device::open(tegra_hcq::DeviceKind::Sim)?;
/// use tegra_hcq::{Arg, args};
///
/// let buffer = device.alloc::<u8>(1)?;
/// assert!(matches!(args![&buffer], [Arg::Buffer(_)]));
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "sim"))] fn main() {}
/// ```
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

    pub(crate) fn handle(&self) -> &'a Handle {
        self.handle
    }

    pub(crate) fn device(&self) -> DeviceId {
        self.handle.heap().id()
    }
}
