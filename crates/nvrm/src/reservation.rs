//! Addresses without memory, and parts of memory mapped there.

use core::ptr::NonNull;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::gpu::Gpu;
use crate::memory::{LateMapping, RmMemory};
use crate::space::{LARGE_PAGE, Reserved};

/// Reserved addresses of the GPU, in which parts of memory are mapped: see [`Reservation::map`]. They are free again
/// when the value and its mappings are gone.
///
/// ```
/// use std::os::fd::AsFd;
/// use std::sync::Arc;
///
/// use gpu_hal::DeviceMemory;
/// use nvrm::{Gpu, LARGE_PAGE, MappedPart, Memory, Place, Reservation};
///
/// /// Two pieces of memory at consecutive addresses.
/// fn joined(gpu: &Arc<Gpu>) -> nvrm::Result<[MappedPart; 2]> {
///     let range = Reservation::new(gpu, 2 * LARGE_PAGE)?;
///     let piece = |offset| {
///         let file = Memory::new(gpu, Place::Video, LARGE_PAGE)?.export()?;
///         range.map(file.as_fd(), offset, 0, LARGE_PAGE)
///     };
///     let pieces = [piece(0)?, piece(LARGE_PAGE)?];
///     assert_eq!(pieces[1].gpu_va(), pieces[0].gpu_va() + LARGE_PAGE);
///     Ok(pieces)
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Reservation(Arc<Range>);

/// Addresses that are given back on drop.
#[derive(Debug)]
struct Range {
    gpu: Arc<Gpu>,
    // Taken on drop.
    reserved: Option<Reserved>,
}

impl Drop for Range {
    fn drop(&mut self) {
        if let Some(reserved) = self.reserved.take() {
            self.gpu.space().release(reserved);
        }
    }
}

impl Reservation {
    /// Reserves `bytes` bytes, a multiple of [`LARGE_PAGE`] above 0. The first is a multiple of it as well.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for another size; [`Error::AddressSpace`].
    pub fn new(gpu: &Arc<Gpu>, bytes: u64) -> Result<Self> {
        if bytes == 0 || !bytes.is_multiple_of(LARGE_PAGE) {
            return Err(Error::Invalid(format!(
                "{bytes} bytes of addresses are no multiple of {LARGE_PAGE}"
            )));
        }
        let reserved = Some(gpu.space().reserve(bytes)?);
        Ok(Self(Arc::new(Range { gpu: Arc::clone(gpu), reserved })))
    }

    /// First GPU address.
    pub fn gpu_va(&self) -> u64 {
        self.0.reserved.as_ref().map_or(0, Reserved::va)
    }

    /// Length in bytes.
    pub fn bytes(&self) -> u64 {
        self.0.reserved.as_ref().map_or(0, Reserved::bytes)
    }

    /// Maps `bytes` bytes from the offset `from` of the memory that a file of [`Memory::export`](crate::Memory::export)
    /// stands for, at an offset of the range. The file may be closed afterwards.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if a number is no multiple of [`LARGE_PAGE`] or outside of its range; as
    /// [`Memory::import`](crate::Memory::import); [`Error::Status`] also if the addresses have a mapping.
    pub fn map(&self, file: BorrowedFd<'_>, offset: u64, from: u64, bytes: u64) -> Result<MappedPart> {
        let gpu = &self.0.gpu;
        let memory = RmMemory::import(gpu, file)?;
        let whole = |start: u64, len: u64| {
            bytes > 0
                && bytes.is_multiple_of(LARGE_PAGE)
                && start.is_multiple_of(LARGE_PAGE)
                && start.checked_add(bytes).is_some_and(|end| end <= len)
        };
        if !whole(offset, self.bytes()) || !whole(from, memory.bytes()) {
            return Err(Error::Invalid(format!(
                "{bytes} bytes at {offset} of {} bytes of addresses, from {from} of {} bytes of memory",
                self.bytes(),
                memory.bytes()
            )));
        }
        let va = self.gpu_va() + offset;
        gpu.space().map(va, bytes, gpu.rm(), (memory.object(), from))?;
        Ok(MappedPart { cpu: LateMapping::default(), memory, range: Arc::clone(&self.0), va, from, bytes })
    }
}

/// A part of memory at reserved addresses: see [`Reservation::map`]. Its drop unmaps it.
#[derive(Debug)]
pub struct MappedPart {
    // Before the memory: RM does not free a mapped object.
    cpu: LateMapping,
    memory: RmMemory,
    range: Arc<Range>,
    va: u64,
    from: u64,
    bytes: u64,
}

impl Drop for MappedPart {
    fn drop(&mut self) {
        self.range.gpu.space().unmap(self.va, self.bytes);
    }
}

// SAFETY: the value owns both mappings of `bytes` bytes, and keeps memory and addresses.
unsafe impl gpu_hal::DeviceMemory for MappedPart {
    fn gpu_va(&self) -> u64 {
        self.va
    }

    fn cpu(&self) -> gpu_hal::Result<NonNull<u8>> {
        let first = self.cpu.pointer(&self.memory)?;
        // SAFETY: `map` has checked that the part is inside of the memory, all of which is mapped.
        // CAST: so the process can address it.
        Ok(unsafe { first.add(self.from as usize) })
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}

// SAFETY: each mapping keeps the addresses reserved.
unsafe impl gpu_hal::AddressRange for Reservation {
    fn gpu_va(&self) -> u64 {
        Self::gpu_va(self)
    }

    fn map_file(
        &self,
        file: BorrowedFd<'_>,
        access: gpu_hal::FileAccess,
        offset: u64,
        from: u64,
        bytes: u64,
    ) -> gpu_hal::Result<Box<dyn gpu_hal::DeviceMemory>> {
        if !access.is_writable() {
            return Err(gpu_hal::Error::Unsupported("mappings for reading only"));
        }
        Ok(Box::new(self.map(file, offset, from, bytes)?))
    }
}
