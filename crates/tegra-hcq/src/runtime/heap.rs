//! The heap of `malloc` in kernels: pages, and tables that say which of their pieces are in use.

use std::sync::Arc;

use gpu_hal::{MemoryUse, volatile};
use zerocopy::{Immutable, IntoBytes};

use crate::error::Result;
use crate::heap::{Content, Handle, Heap, Mapped};

/// Size of a page in bytes, and of the bit map of its pieces in words.
const PAGE: u64 = 4096;
const MAP_WORDS: u64 = 8;

/// `Heap` of `functions.cu`: see there.
#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
struct Control {
    pages: u64,
    states: u64,
    maps: u64,
    page_count: u64,
    hints: [u64; 8],
}

/// The heap.
#[derive(Debug)]
pub(super) struct KernelHeap {
    /// The control words, the state of each page, the bit map of each page.
    tables: Mapped,
    /// Number of pages.
    count: u64,
    _pages: Handle,
}

impl KernelHeap {
    /// An empty heap of `bytes` bytes.
    pub(super) fn new(heap: &Arc<Heap>, bytes: u64) -> Result<Self> {
        let count = bytes / PAGE;
        let pages = Handle::allocate(heap, count.max(1) * PAGE, MemoryUse::Device, Content::KernelHeap)?;
        let start = size_of::<Control>() as u64;
        let whole = start + count * 4 * (1 + MAP_WORDS);
        let tables = Mapped::new(Handle::allocate(heap, whole, MemoryUse::Device, Content::Runtime)?)?;
        let states = tables.gpu_va() + start;
        let control = Control {
            pages: pages.gpu_va(),
            states,
            maps: states + 4 * count,
            page_count: count,
            hints: [0; 8],
        };
        // SAFETY: the allocation is new and has `whole` bytes. CAST: the CPU has mapped them.
        unsafe {
            volatile::fill(tables.cpu(), 0, whole as usize);
            volatile::store(tables.cpu(), control.as_bytes());
        }
        Ok(Self { tables, count, _pages: pages })
    }

    /// Address of the control words.
    pub(super) fn gpu_va(&self) -> u64 {
        self.tables.gpu_va()
    }

    /// Size in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.count * PAGE
    }

    /// Whether a heap of `bytes` bytes has this size.
    pub(super) fn has_size(&self, bytes: u64) -> bool {
        bytes / PAGE == self.count
    }

    /// Whether kernels have allocated memory and not freed it.
    pub(super) fn is_used(&self) -> bool {
        // CAST: the CPU has mapped the tables.
        let mut states = vec![0_u32; self.count as usize];
        // SAFETY: the states follow the control words in the tables, which `self` keeps alive.
        unsafe {
            let first = self.tables.cpu().add(size_of::<Control>());
            volatile::load(first, bytemuck::cast_slice_mut(&mut states));
        }
        states.iter().any(|state| *state != 0)
    }
}
