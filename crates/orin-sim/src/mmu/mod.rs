//! The GPU's memory management unit.
//!
//! An address space maps ranges of 40-bit GPU virtual addresses (4 KiB pages; ga10b has no big pages) to [`Memory`].
//! The kernel model maps and unmaps. Engines and SMs take a [`View`], an immutable snapshot that keeps the memory
//! alive, and translate through it.
//!
//! Two kinds of pages are not plain memory. Sparse pages have no buffer: loads return zero and stores are discarded.
//! Writes to a syncpoint's window increment it (`WriteCounter`). A [`Span`] shows both as read-only; each store to them
//! must call [`View::pointer`].

mod view;

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};
use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;

pub use view::View;
pub(crate) use view::copy;

use crate::memory::Memory;

/// GPU page size in bytes.
pub const PAGE_BYTES: u64 = 4096;

/// Kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Load or instruction fetch.
    Read,
    /// Store.
    Write,
    /// Read-modify-write.
    Atomic,
}

/// Reason of a refused access; names as in the kernel log (`spec` terms of nvgpu).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The page directory entry is invalid: nothing is mapped in its 2 MiB.
    InvalidPde,
    /// The page table entry is invalid.
    InvalidPte,
    /// A store to a read-only mapping.
    WriteReadOnly,
    /// The address does not fit the address space.
    LimitViolation,
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InvalidPde => "invalid pde",
            Self::InvalidPte => "invalid pte",
            Self::WriteReadOnly => "write/ro violation",
            Self::LimitViolation => "limit violation",
        })
    }
}

/// A refused access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("MMU fault: {kind} on {access:?} at {va:#x}")]
pub struct MmuFault {
    /// First faulting address, in bytes.
    pub va: u64,
    /// The reason.
    pub kind: FaultKind,
    /// The kind of access.
    pub access: Access,
}

/// One mapping of an address space.
#[derive(Clone, Debug)]
pub struct MappedRange {
    /// First address, page aligned.
    pub va: u64,
    /// Length in bytes, a multiple of the page size.
    pub len: u64,
    /// The mapped memory.
    pub memory: Arc<Memory>,
    /// Offset of the range in `memory`, in bytes, page aligned.
    pub offset: u64,
    /// Whether stores are allowed.
    pub writable: bool,
    /// Whether the GPU's L2 may cache its lines (CACHEABLE of MAP_BUFFER_EX); otherwise volatile.
    pub cached: bool,
}

/// A contiguous piece of memory that contains a translated address.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::sync::Arc;
/// # use orin_sim::memory::Memory;
/// # use orin_sim::mmu::{AddressSpace, MappedRange};
/// # let space = AddressSpace::new();
/// # let memory = Arc::new(Memory::new("data", 0x2000)?);
/// # space.map(MappedRange { va: 0x20_0000, len: 0x2000, memory, offset: 0, writable: false, cached: false });
/// use orin_sim::mmu::Access;
///
/// let view = space.view();
/// let span = view.span(0x20_0010, Access::Read)?;
/// assert!(span.at(0x20_1ffc, 4).is_some() && span.at(0x20_1ffc, 8).is_none());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// First GPU address of the mapping.
    pub(crate) va: u64,
    /// One past its last GPU address.
    pub(crate) end: u64,
    /// CPU address of `va`; valid while the [`View`] lives. Private, because [`Span::at`] relies on the bounds.
    pointer: NonNull<u8>,
    /// Whether stores are allowed.
    pub(crate) writable: bool,
}

impl Span {
    /// CPU address of `va`, if `[va, va + len)` lies inside the span.
    #[inline]
    pub fn at(&self, va: u64, len: u64) -> Option<*mut u8> {
        if va < self.va || va.checked_add(len)? > self.end {
            return None;
        }
        // SAFETY: `va - self.va + len` bytes lie inside the mapping that starts at `pointer`. CAST: the span is a CPU
        // mapping, so its offsets fit usize.
        Some(unsafe { self.pointer.as_ptr().add((va - self.va) as usize) })
    }
}

/// The mappings of an address space.
#[derive(Clone, Debug, Default)]
struct Tables {
    /// Mappings by address; they take precedence over sparse pages.
    ranges: Vec<MappedRange>,
    /// Sparse ranges by address: first byte and one past the last.
    sparse: Vec<(u64, u64)>,
}

impl Tables {
    /// The sparse range that contains `va`.
    fn sparse(&self, va: u64) -> Option<(u64, u64)> {
        let at = self.sparse.partition_point(|(_, end)| *end <= va);
        self.sparse.get(at).copied().filter(|(start, _)| *start <= va)
    }
}

/// An address space, changed by the kernel model and read through [`View`]s.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
/// use orin_sim::memory::Memory;
/// use orin_sim::mmu::{AddressSpace, MappedRange};
///
/// let space = AddressSpace::new();
/// let memory = Arc::new(Memory::new("data", 0x1000)?);
/// space.map(MappedRange {
///     va: 0x20_0000,
///     len: 0x1000,
///     memory: Arc::clone(&memory),
///     offset: 0,
///     writable: true,
///     cached: false,
/// });
/// space.view().write(0x20_0004, &7_u32.to_le_bytes())?;
/// assert_eq!(memory.load(4), 7);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct AddressSpace {
    tables: RwLock<Arc<Tables>>,
    /// Number that is unique in the process.
    serial: u64,
}

impl Default for AddressSpace {
    fn default() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self { tables: RwLock::default(), serial: NEXT.fetch_add(1, Ordering::Relaxed) }
    }
}

impl AddressSpace {
    /// An address space with nothing mapped.
    pub fn new() -> Self {
        Self::default()
    }

    fn change<R>(&self, change: impl FnOnce(&mut Tables) -> R) -> R {
        change(Arc::make_mut(&mut self.tables.write()))
    }

    /// Adds a mapping. The kernel model must have checked alignment and overlap.
    ///
    /// # Panics
    ///
    /// Panics if the range is not of whole pages, overlaps another one or leaves its memory, which is a bug in the
    /// kernel model.
    pub fn map(&self, range: MappedRange) {
        let is_aligned = |value: u64| value.is_multiple_of(PAGE_BYTES);
        assert!(is_aligned(range.va) && is_aligned(range.len) && is_aligned(range.offset) && range.len > 0);
        let end = range.offset.checked_add(range.len);
        assert!(end.is_some_and(|end| end <= range.memory.len() as u64), "the range leaves its memory");
        assert!(range.va.checked_add(range.len).is_some(), "the range leaves the address space");
        self.change(|Tables { ranges, .. }| {
            let at = ranges.partition_point(|other| other.va < range.va);
            assert!(at == 0 || ranges[at - 1].va + ranges[at - 1].len <= range.va, "mappings overlap");
            assert!(ranges.get(at).is_none_or(|next| range.va + range.len <= next.va), "mappings overlap");
            ranges.insert(at, range);
        });
    }

    /// Removes the mapping that starts at `va`, if there is one.
    pub fn unmap(&self, va: u64) -> Option<MappedRange> {
        self.change(|Tables { ranges, .. }| {
            let at = ranges.binary_search_by_key(&va, |range| range.va).ok()?;
            Some(ranges.remove(at))
        })
    }

    /// Removes all mappings in `[va, va + len)`, whole pages; mappings that extend beyond are cut.
    pub fn unmap_range(&self, va: u64, len: u64) {
        let end = va.saturating_add(len);
        self.change(|Tables { ranges, .. }| {
            let old = std::mem::take(ranges);
            for range in old {
                let range_end = range.va + range.len;
                if range.va < va {
                    let len = range_end.min(va) - range.va;
                    ranges.push(MappedRange { len, ..range.clone() });
                }
                if range_end > end {
                    let start = range.va.max(end);
                    let (len, offset) = (range_end - start, range.offset + (start - range.va));
                    ranges.push(MappedRange { va: start, len, offset, ..range });
                }
            }
        });
    }

    /// Makes the unmapped pages of `[va, va + len)` sparse.
    pub fn add_sparse(&self, va: u64, len: u64) {
        self.change(|Tables { sparse, .. }| {
            let at = sparse.partition_point(|(start, _)| *start < va);
            sparse.insert(at, (va, va.saturating_add(len)));
        });
    }

    /// Undoes [`AddressSpace::add_sparse`] for the range that starts at `va`.
    pub fn remove_sparse(&self, va: u64) {
        self.change(|Tables { sparse, .. }| sparse.retain(|(start, _)| *start != va));
    }

    /// Number that is unique in the process.
    pub(crate) fn serial(&self) -> u64 {
        self.serial
    }

    /// Returns a snapshot of the mappings.
    pub fn view(&self) -> View {
        let tables = Arc::clone(&self.tables.read());
        View { tables, space: self.serial, watch: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space() -> AddressSpace {
        let space = AddressSpace::new();
        let memory = Arc::new(Memory::new("test", 0x4000).unwrap());
        space.map(MappedRange {
            va: 0x20_0000,
            len: 0x2000,
            memory: Arc::clone(&memory),
            offset: 0x1000,
            writable: true,
            cached: false,
        });
        let (va, len) = (0x20_2000, 0x1000);
        space.map(MappedRange { va, len, memory, offset: 0, writable: false, cached: false });
        space
    }

    #[test]
    fn mappings_alias_their_memory_at_their_offset() {
        let view = space().view();
        view.write(0x20_0004, &[1, 2, 3, 4]).unwrap();
        let mut back = [0; 4];
        view.read(0x20_0004, &mut back).unwrap();
        assert_eq!(back, [1, 2, 3, 4]);
    }

    #[test]
    fn faults_say_where_and_why() {
        let view = space().view();
        let kind = |va, access| view.span(va, access).unwrap_err().kind;
        assert_eq!(kind(0x20_3000, Access::Read), FaultKind::InvalidPte);
        assert_eq!(kind(0x1000, Access::Read), FaultKind::InvalidPde);
        assert_eq!(kind(0x20_2000, Access::Write), FaultKind::WriteReadOnly);
        assert_eq!(kind(1 << 49, Access::Read), FaultKind::LimitViolation);
        let fault = view.write(0x20_2ffe, &[0; 4]).unwrap_err();
        assert_eq!(fault.va, 0x20_2ffe);
        assert_eq!(view.read(0x20_2ffe, &mut [0; 4]).unwrap_err().va, 0x20_3000);
    }

    #[test]
    fn an_address_is_described_by_the_mapping_next_to_it() {
        let view = space().view();
        assert_eq!(view.describe(0x20_0010), "0x10 bytes into test at 0x200000 to 0x202000");
        assert_eq!(view.describe(0x20_2000), "0x0 bytes into test at 0x202000 to 0x203000, read-only");
        assert_eq!(
            view.describe(0x20_3008),
            "0x8 bytes past the end of test at 0x202000 to 0x203000, read-only"
        );
        assert_eq!(view.describe(0x1f_fff0), "0x10 bytes before test at 0x200000 to 0x202000");
        assert_eq!(AddressSpace::new().view().describe(0), "nothing is mapped at all");
    }

    #[test]
    fn the_neighbour_of_an_address_is_the_nearest_mapping() {
        let view = space().view();
        let start = |va| view.neighbour(va).map(|range| range.va);
        assert_eq!(start(0x20_0010), Some(0x20_0000));
        assert_eq!(start(0x20_2000), Some(0x20_2000));
        assert_eq!((start(0), start(u64::MAX)), (Some(0x20_0000), Some(0x20_2000)));
        assert_eq!(AddressSpace::new().view().neighbour(0).map(|range| range.va), None);
    }

    #[test]
    fn overlap_is_with_the_mappings_not_the_gaps() {
        let view = space().view();
        assert!(view.overlaps(0x1f_f000, 0x1001));
        assert!(view.overlaps(0x20_2fff, 1));
        assert!(!view.overlaps(0x1f_f000, 0x1000));
        assert!(!view.overlaps(0x20_3000, u64::MAX));
    }

    #[test]
    fn a_view_outlives_the_mapping() {
        let space = space();
        let view = space.view();
        assert_eq!(space.unmap(0x20_0000).unwrap().len, 0x2000);
        assert!(space.unmap(0x20_0000).is_none());
        assert!(view.span(0x20_0000, Access::Write).is_ok());
        assert!(space.view().span(0x20_0000, Access::Read).is_err());
    }

    #[test]
    fn sparse_pages_read_zero_and_swallow_stores() {
        let space = space();
        space.add_sparse(0x20_2000, 0x4000);
        let view = space.view();
        assert_eq!(view.span(0x20_2000, Access::Write).unwrap_err().kind, FaultKind::WriteReadOnly);
        view.write(0x20_3ffe, &[9; 4]).unwrap();
        let mut back = [7; 8];
        view.read(0x20_3ffc, &mut back).unwrap();
        assert_eq!(back, [0; 8]);
        assert!(!view.span(0x20_3000, Access::Write).unwrap().writable);
        assert!(view.span(0x20_6000, Access::Read).is_err());
        space.remove_sparse(0x20_2000);
        assert!(space.view().span(0x20_3000, Access::Read).is_err());
    }

    #[test]
    fn a_range_is_cut_out_of_mappings() {
        let space = space();
        space.unmap_range(0x20_1000, 0x1000);
        let view = space.view();
        assert_eq!(view.span(0x20_0000, Access::Read).unwrap().end, 0x20_1000);
        assert!(view.span(0x20_1000, Access::Read).is_err());
        assert!(view.span(0x20_2000, Access::Read).is_ok());
        space.unmap_range(0x20_0000, 0x10_0000);
        assert!(!space.view().overlaps(0, u64::MAX));
    }

    #[derive(Debug)]
    struct Adder;

    impl crate::memory::WriteCounter for Adder {
        fn written(&self, memory: &Memory, offset: usize, words: u32) {
            memory.store(offset & !0xfff, memory.load(offset & !0xfff) + words);
        }
    }

    #[test]
    fn counted_memory_counts_instead_of_storing() {
        let space = AddressSpace::new();
        let memory = Arc::new(Memory::new("test", 0x2000).unwrap().counting(Arc::new(Adder)));
        let map = |va, offset, writable| {
            let (memory, len) = (Arc::clone(&memory), 0x1000);
            space.map(MappedRange { va, len, memory, offset, writable, cached: false });
        };
        map(0x20_0000, 0x1000, true);
        map(0x30_0000, 0x1000, false);
        let view = space.view();
        view.write(0x20_0000, &[0xff; 4]).unwrap();
        view.write(0x20_0008, &[0xff; 8]).unwrap();
        let mut back = [0; 4];
        view.read(0x30_0000, &mut back).unwrap();
        assert_eq!(back, [3, 0, 0, 0]);
        assert!(view.write(0x30_0000, &[0; 4]).is_err());
        assert!(!view.span(0x20_0000, Access::Write).unwrap().writable);
    }
}
