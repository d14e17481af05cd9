//! Memory of an Orin: one nvmap buffer, or several that appear as one.
//!
//! From r36.4.7 on, the kernel refuses a buffer that is larger than what it regards as available, and on any release a
//! large buffer fails if the memory is fragmented. Memory above [`PART_BYTES`] therefore consists of several buffers,
//! the parts, mapped side by side on the GPU and on the CPU. Everything above this module sees one range of addresses.

use core::ptr::NonNull;
use std::sync::Arc;

use gpu_hal::{DeviceMemory, Error, Result};
use nvgpu_channel::{AddressSpace, MapOptions, Mapping, Placement};
use nvmap::{Buffer, BufferBuilder, Nvmap};

/// Size of a part in bytes; the last part of a buffer is smaller. A multiple of 2 MiB, the alignment of large nvmap
/// buffers.
///
/// Smaller parts survive more fragmentation. But each costs its requests, and a descriptor, of which a process has 1024
/// by default: 64 GiB are 256 parts.
pub(super) const PART_BYTES: u64 = 256 << 20;

/// nvmap buffers with consecutive addresses on the GPU and on the CPU.
#[derive(Debug)]
pub(super) struct NvgpuMemory {
    first: Mapping,
    others: Vec<Mapping>,
}

impl NvgpuMemory {
    /// Maps one buffer at an address that the kernel chooses.
    pub(super) fn map(space: &AddressSpace, buffer: Buffer, options: MapOptions) -> Result<Self> {
        Ok(Self { first: space.map(&Arc::new(buffer), options)?, others: Vec::new() })
    }

    /// Allocates at least `bytes` bytes; `buffer` creates a builder for a size.
    pub(super) fn allocate<'a>(
        nvmap: &'a Nvmap,
        space: &AddressSpace,
        bytes: u64,
        buffer: impl Fn(u64) -> BufferBuilder<'a>,
        options: MapOptions,
    ) -> Result<Self> {
        if bytes <= PART_BYTES {
            return Self::map(space, buffer(bytes).allocate()?, options);
        }
        // Without this check, the kernel would evict its caches, and on old releases end programs, before it fails.
        if let Ok(available) = nvmap.system_memory().map(|usage| usage.largest_allocation())
            && bytes > available
        {
            return Err(nvmap::Error::Unavailable { size: bytes, available }.into());
        }
        let mut parts = Vec::new();
        // CAST: a part fits in 32 bits.
        for done in (0..bytes).step_by(PART_BYTES as usize) {
            let part = buffer(PART_BYTES.min(bytes - done)).allocate_unmapped();
            parts.push(part.map_err(|error| Error::from(error).fitting(done))?);
        }
        let buffers: Vec<_> = Buffer::side_by_side(parts)?.into_iter().map(Arc::new).collect();
        Self::compose(space, &buffers, options)
    }

    /// Maps buffers side by side on the GPU.
    fn compose(space: &AddressSpace, buffers: &[Arc<Buffer>], options: MapOptions) -> Result<Self> {
        let (mut places, mut len) = (Vec::new(), 0);
        for buffer in buffers {
            places.push(Placement { offset: len, buffer, buffer_offset: 0, len: size(buffer), options });
            len += size(buffer);
        }
        let mut mappings = space.reserve(len, false)?.map_batch(&places)?.into_iter();
        match mappings.next() {
            Some(first) => Ok(Self { first, others: mappings.collect() }),
            None => Err(Error::ShortAllocation { wanted: len, returned: 0 }),
        }
    }
}

/// Size in bytes.
fn size(buffer: &Buffer) -> u64 {
    // CAST: usize is at most 64 bits.
    buffer.size() as u64
}

// SAFETY: the mappings keep the buffers allocated, mapped for the CPU and mapped at their GPU addresses. Both kinds of
// addresses are consecutive: `side_by_side` and the places in the reservation.
unsafe impl DeviceMemory for NvgpuMemory {
    fn gpu_va(&self) -> u64 {
        self.first.va().0
    }

    fn cpu(&self) -> Result<NonNull<u8>> {
        Ok(self.first.buffer().pointer())
    }

    fn bytes(&self) -> u64 {
        size(self.first.buffer()) + self.others.iter().map(Mapping::len).sum::<u64>()
    }
}
