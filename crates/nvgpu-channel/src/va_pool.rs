//! GPU addresses that are handed out by the process itself.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nvmap::Buffer;

use crate::address_space::{AddressSpace, GPU_PAGE, GpuVa, MapOptions, Mapping, Reservation};
use crate::error::Error;
use crate::va_allocator::VaAllocator;

/// One reserved range of addresses, divided up in user space: blocks are found without a system call,
/// and their addresses are used again as soon as they are given back.
///
/// Cloning is cheap and means the same pool. The range goes back to the kernel with the last clone,
/// block and mapping.
///
/// ```
/// # use std::sync::Arc;
/// # use nvgpu_channel::{Gpu, MapOptions, VaPool};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let door: Arc<dyn nvgpu_sys::Door> = Arc::new(orin_sim::SoftwareOrin::new(orin_sim::Config::default())?);
/// let gpu = Gpu::open(&door)?;
/// let pool = VaPool::new(&gpu.address_space()?, 1 << 30)?;
/// let buffer = Arc::new(gpu.nvmap().buffer(1 << 16).allocate()?);
/// let first = pool.map(&buffer, MapOptions::default())?.va();
/// // The mapping is gone, and its addresses are the first choice for the next.
/// assert_eq!(pool.map(&buffer, MapOptions::default())?.va(), first);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct VaPool {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    range: Reservation,
    blocks: Mutex<VaAllocator>,
}

impl Shared {
    fn blocks(&self) -> MutexGuard<'_, VaAllocator> {
        // The allocator never panics half-way: its state is sound whatever happened to a holder.
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl VaPool {
    /// Reserves `len` bytes of addresses, whole pages, and makes a pool of them.
    ///
    /// # Errors
    ///
    /// As [`AddressSpace::reserve`].
    pub fn new(space: &AddressSpace, len: u64) -> Result<Self, Error> {
        Ok(Self::over(space.reserve(len, false)?))
    }

    /// Makes a pool of a reserved range, in which nothing else is to be mapped.
    pub fn over(range: Reservation) -> Self {
        let blocks = Mutex::new(VaAllocator::new(range.len()));
        Self { shared: Arc::new(Shared { range, blocks }) }
    }

    /// Takes `len` bytes, rounded up to pages, at a multiple of `alignment`: a power of two, of which
    /// less than a page means a page.
    ///
    /// # Errors
    ///
    /// [`Error::Range`] for a length of 0 or another alignment, [`Error::PoolFull`].
    pub fn block(&self, len: u64, alignment: u64) -> Result<VaBlock, Error> {
        let refused = |what, value, rule| Error::Range { what, value, rule };
        if !alignment.is_power_of_two() {
            return Err(refused("alignment of addresses", alignment, "it must be a power of two"));
        }
        let rule = "it must be at least 1 and fit the pool";
        let pages = len.checked_next_multiple_of(GPU_PAGE).filter(|pages| *pages != 0);
        let pages = pages.ok_or_else(|| refused("length of addresses", len, rule))?;
        let alignment = alignment.max(GPU_PAGE);
        let mut blocks = self.shared.blocks();
        // Offsets are aligned like addresses only if the range begins at such an address.
        let offset = if self.shared.range.va().is_aligned(alignment) {
            blocks.allocate(pages, alignment)
        } else {
            pages.checked_add(alignment - GPU_PAGE).and_then(|len| blocks.allocate(len, GPU_PAGE))
        };
        let full = || Error::PoolFull { len: pages, alignment, largest: blocks.largest_free() };
        let start = offset.ok_or_else(full)?;
        drop(blocks);
        let va = self.shared.range.va().get() + start;
        let offset = start + (va.next_multiple_of(alignment) - va);
        Ok(VaBlock { pool: Arc::clone(&self.shared), start, offset, len: pages })
    }

    /// Maps all of `buffer` at addresses of the pool.
    ///
    /// # Errors
    ///
    /// As [`VaPool::block`] and [`Reservation::map`].
    pub fn map(&self, buffer: &Arc<Buffer>, options: MapOptions) -> Result<Mapping, Error> {
        // CAST: a size has at most 64 bits.
        let len = (buffer.size() as u64).next_multiple_of(GPU_PAGE);
        self.block(len, GPU_PAGE)?.map(buffer, 0, buffer.size() as u64, options)
    }

    /// First address of the range.
    pub fn va(&self) -> GpuVa {
        self.shared.range.va()
    }

    /// Length of the range in bytes.
    pub fn len(&self) -> u64 {
        self.shared.range.len()
    }

    /// Whether the range has no bytes; never the case.
    pub fn is_empty(&self) -> bool {
        self.shared.range.is_empty()
    }

    /// Free bytes, in however many parts.
    pub fn free_bytes(&self) -> u64 {
        self.shared.blocks().free_bytes()
    }
}

/// Addresses of a pool, given back on drop.
#[derive(Debug)]
pub struct VaBlock {
    pool: Arc<Shared>,
    /// What the allocator granted, before alignment.
    start: u64,
    offset: u64,
    len: u64,
}

impl VaBlock {
    /// First address.
    pub fn va(&self) -> GpuVa {
        // Below the end of the range, which the kernel placed below 2^40.
        GpuVa(self.pool.range.va().get() + self.offset)
    }

    /// Length in bytes, whole pages.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the block has no bytes; never the case.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Maps `len` bytes of `buffer` from `buffer_offset` on at the start of the block, which the
    /// mapping then keeps.
    ///
    /// # Errors
    ///
    /// [`Error::Range`] also if it does not fit the block; else as [`Reservation::map`].
    pub fn map(
        self,
        buffer: &Arc<Buffer>,
        buffer_offset: u64,
        len: u64,
        options: MapOptions,
    ) -> Result<Mapping, Error> {
        if len > self.len {
            let rule = "the mapping must fit its block of addresses";
            return Err(Error::Range { what: "length of a mapping", value: len, rule });
        }
        let mapping = self.pool.range.map(self.offset, buffer, buffer_offset, len, options)?;
        Ok(mapping.with_block(self))
    }
}

impl Drop for VaBlock {
    fn drop(&mut self) {
        self.pool.blocks().free(self.start);
    }
}
