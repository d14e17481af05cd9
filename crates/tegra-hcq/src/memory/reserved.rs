//! Reserved GPU addresses, where shared memory is mapped.

use std::fmt;
use std::os::fd::AsFd as _;

use gpu_hal::FileAccess;

use super::{Buffer, SharedBuffer};
use crate::device::Device;
use crate::error::Result;
use crate::heap::Handle;

/// A range of GPU addresses without memory. An access where nothing is mapped is a fault. The addresses stay reserved
/// as long as the value and what it has mapped.
///
/// ```
/// # #[cfg(feature = "sim")] fn main() -> tegra_hcq::Result<()> {
/// use tegra_hcq::{Device, DeviceKind, FileAccess};
///
/// let device = Device::open(DeviceKind::Sim)?;
/// let memory = device.alloc_shared::<u8>(65536)?;
/// let range = device.reserve(2 * 65536, None)?;
/// let mut first = range.map(0, &memory, 0, 65536, FileAccess::ReadWrite)?;
/// let second = range.map(65536, &memory, 0, 65536, FileAccess::ReadOnly)?;
/// first.copy_from_slice(&[7; 65536])?;
/// assert_eq!(second.gpu_va(), range.gpu_va() + 65536);
/// assert_eq!(second.to_vec()?, [7; 65536]);
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "sim"))] fn main() {}
/// ```
pub struct AddressRange {
    device: Device,
    range: Box<dyn gpu_hal::AddressRange>,
}

impl Device {
    /// Reserves `bytes` bytes of GPU addresses, at `at` or where the driver chooses.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`](crate::Error::Driver) if the addresses are in use or no whole pages; with
    /// [`gpu_hal::Error::Unsupported`] if the driver cannot reserve addresses.
    pub fn reserve(&self, bytes: u64, at: Option<u64>) -> Result<AddressRange> {
        let range = self.shared().driver().reserve(bytes, at)?;
        Ok(AddressRange { device: self.clone(), range })
    }
}

impl AddressRange {
    /// First address.
    pub fn gpu_va(&self) -> u64 {
        self.range.gpu_va()
    }

    /// Maps `bytes` bytes from the offset `from` of shared memory at an offset. The mapping ends with the last use of
    /// the result by the GPU after its drop.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`](crate::Error::Driver) if a number is no multiple of a page or outside of its range, or the
    /// addresses have a mapping.
    pub fn map(
        &self,
        offset: u64,
        memory: &SharedBuffer<u8>,
        from: u64,
        bytes: usize,
        access: FileAccess,
    ) -> Result<Buffer<u8>> {
        let file = memory.export()?;
        // CAST: usize is at most 64 bits.
        let mapped = self.range.map_file(file.as_fd(), access, offset, from, bytes as u64)?;
        let heap = self.device.shared().heap();
        Ok(Buffer::over(Handle::new(heap.adopt(mapped, bytes as u64), heap), bytes))
    }
}

impl fmt::Debug for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddressRange").field("gpu_va", &format_args!("{:#x}", self.gpu_va())).finish()
    }
}
