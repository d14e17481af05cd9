//! Buffer allocation.

use nvgpu_sys::nvmap::{self as sys, HandleFlags, Heaps};

use crate::attributes::{Access, CacheMode, DEFAULT_TAG};
use crate::buffer::Buffer;
use crate::client::{Held, Nvmap};
use crate::dma_buf::DmaBuf;
use crate::error::Error;
use crate::handle::Handle;

/// Default alignment of small buffers and of buffers that the CPU does not cache: one page.
const SMALL_ALIGNMENT: u64 = sys::PAGE_SIZE;
/// Default alignment of large cached buffers, which allows large page mappings.
const LARGE_ALIGNMENT: u64 = 2 << 20;
/// Minimum size of a large buffer in bytes.
const LARGE_SIZE: u64 = 8 << 20;
/// Maximum alignment: the field is a power of two in 32 bits.
const MAX_ALIGNMENT: u64 = 1 << 31;

/// A builder for a buffer; created by [`Nvmap::buffer`].
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::sync::Arc;
/// # let door: Arc<dyn kernel_door::Door> = Arc::new(orin_sim::SoftwareOrin::new(orin_sim::Config::default())?);
/// # let nvmap = nvmap::Nvmap::open(&door)?;
/// use nvmap::CacheMode;
///
/// let buffer = nvmap.buffer(8192).cache(CacheMode::WriteCombined).alignment(8192).allocate()?;
/// assert_eq!(buffer.size(), 8192);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is allocated until `allocate` is called"]
pub struct BufferBuilder<'a> {
    nvmap: &'a Nvmap,
    size: u64,
    cache: CacheMode,
    alignment: Option<u64>,
    tag: u16,
    label: &'a str,
    heaps: Heaps,
    flags: HandleFlags,
}

impl Nvmap {
    /// Returns a builder for a buffer of at least `size` bytes.
    pub fn buffer(&self, size: u64) -> BufferBuilder<'_> {
        BufferBuilder {
            nvmap: self,
            size,
            cache: CacheMode::default(),
            alignment: None,
            tag: DEFAULT_TAG,
            label: "buffer",
            heaps: Heaps::IOVMM,
            flags: HandleFlags::empty(),
        }
    }
}

impl<'a> BufferBuilder<'a> {
    /// Sets the cache mode; inner cacheable by default.
    pub fn cache(mut self, mode: CacheMode) -> Self {
        self.cache = mode;
        self
    }

    /// Sets the alignment in bytes; the size is rounded up to it. The default is one page, or 2 MiB
    /// for cached buffers of at least 8 MiB.
    pub fn alignment(mut self, bytes: u64) -> Self {
        self.alignment = Some(bytes);
        self
    }

    /// Sets the allocation tag, which appears in the kernel's statistics; [`DEFAULT_TAG`] by default.
    pub fn tag(mut self, tag: u16) -> Self {
        self.tag = tag;
        self
    }

    /// Sets the label for messages.
    pub fn label(mut self, label: &'a str) -> Self {
        self.label = label;
        self
    }

    /// Requests physically contiguous pages.
    pub fn contiguous(mut self) -> Self {
        self.flags |= HandleFlags::PHYS_CONTIG;
        self
    }

    /// Sets the heaps to allocate from; system memory by default, the only heap of every Jetson. The
    /// CPU cannot map protected memory ([`Heaps::VPR`]): allocate it with
    /// [`BufferBuilder::allocate_unmapped`].
    pub fn heaps(mut self, heaps: Heaps) -> Self {
        self.heaps = heaps;
        self
    }

    /// Allocates the buffer and maps it for the CPU. The memory is zeroed.
    ///
    /// # Errors
    ///
    /// [`Error::Size`] and [`Error::Alignment`] before any system call; [`Error::Buffer`] with the call
    /// that failed, after the previous steps have been undone.
    pub fn allocate(&self) -> Result<Buffer, Error> {
        Buffer::mapped(self.allocate_unmapped()?, self.cache)
    }

    /// Like [`BufferBuilder::allocate`], without a CPU mapping.
    ///
    /// # Errors
    ///
    /// As [`BufferBuilder::allocate`].
    pub fn allocate_unmapped(&self) -> Result<DmaBuf, Error> {
        let alignment = self.effective_alignment()?;
        let refused = || Error::Size { label: self.label.into(), size: self.size, alignment };
        if self.size == 0 {
            return Err(refused());
        }
        let size = self.size.checked_next_multiple_of(alignment).ok_or_else(refused)?;
        let len = isize::try_from(size).map_err(|_| refused())?.unsigned_abs();
        let failed = |(call, errno)| Error::Buffer { call, label: self.label.into(), size, errno };

        let handle = Handle::create(self.nvmap.fd(), size).map_err(failed)?;
        let flags = self.cache.bits() | self.flags.bits() | u32::from(self.tag) << sys::TAG_SHIFT;
        // CAST: the alignment is at most 2^31.
        let align = alignment as u32;
        // -1 selects any NUMA node.
        let memory = sys::AllocHandle {
            handle: handle.id(),
            heap_mask: self.heaps.bits(),
            flags,
            align,
            numa_nid: -1,
        };
        self.nvmap.allocate(&memory).map_err(|errno| failed((sys::ALLOC.name(), errno)))?;
        let mut dma_buf = DmaBuf::export(handle, len, Access::ReadWrite, self.label).map_err(failed)?;
        dma_buf.held = Some(Held::new(self.nvmap, size));
        let handle = dma_buf.handle();
        tracing::debug!(label = self.label, size, handle, cache = ?self.cache, "buffer allocated");
        Ok(dma_buf)
    }

    fn effective_alignment(&self) -> Result<u64, Error> {
        match self.alignment {
            Some(bytes)
                if !bytes.is_power_of_two() || !(SMALL_ALIGNMENT..=MAX_ALIGNMENT).contains(&bytes) =>
            {
                Err(Error::Alignment { label: self.label.into(), alignment: bytes })
            }
            Some(bytes) => Ok(bytes),
            None if self.size >= LARGE_SIZE && self.cache.is_cached() => Ok(LARGE_ALIGNMENT),
            None => Ok(SMALL_ALIGNMENT),
        }
    }
}
