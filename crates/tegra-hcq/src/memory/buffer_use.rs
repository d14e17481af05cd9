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
    /// Length in bytes, for the checks of the software Orin.
    #[cfg(feature = "sim")]
    bytes: usize,
    handle: &'a Handle,
}

impl<'a> BufferUse<'a> {
    /// `bytes` bytes at `va`, inside of the memory.
    pub(crate) fn new(handle: &'a Handle, va: u64, bytes: usize) -> Self {
        #[cfg(not(feature = "sim"))]
        let _ = bytes;
        Self {
            va,
            #[cfg(feature = "sim")]
            bytes,
            handle,
        }
    }

    /// Address and length in bytes, if the length is known: for the checks of the software Orin.
    pub(crate) fn part(&self) -> Option<(u64, usize)> {
        #[cfg(feature = "sim")]
        return Some((self.va, self.bytes));
        #[cfg(not(feature = "sim"))]
        None
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
