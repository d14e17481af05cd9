//! The GPU's memory management unit.
//!
//! An address space maps ranges of 40-bit GPU virtual addresses (4 KiB pages; ga10b has no big pages) to [`Memory`].
//! The kernel model maps and unmaps. Engines and SMs take a [`View`], an immutable snapshot that keeps the memory
//! alive, and translate through it.
//!
//! Two kinds of pages are not plain memory. Sparse pages have no buffer: loads return zero and stores are discarded.
//! Writes to a syncpoint's window increment it (`WriteCounter`). A [`Span`] shows both as read-only; each store to them
//! must call [`View::pointer`].

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::fmt;
use std::sync::{Arc, RwLock};

use crate::memory::Memory;
use crate::strict::{Accessed, Strength, Unit, Watch};

/// GPU page size in bytes.
pub const PAGE_BYTES: u64 = 4096;

/// A page without a buffer.
#[repr(align(4096))]
struct Page([AtomicU32; PAGE_BYTES as usize / 4]);

impl Page {
    const fn new() -> Self {
        Self([const { AtomicU32::new(0) }; PAGE_BYTES as usize / 4])
    }

    fn pointer(&'static self) -> NonNull<u8> {
        NonNull::from(&self.0).cast()
    }
}

/// Source of loads from sparse pages; never written.
static ZERO: Page = Page::new();
/// Target of discarded stores. Only atomic operations on a sparse page read it; they return the value stored last.
static SINK: Page = Page::new();

/// Kind of an access.
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
/// let fault = space.view().span(0x20_0000, Access::Write).unwrap_err();
/// assert_eq!(fault.to_string(), "MMU fault: write/ro violation on Write at 0x200000");
/// # Ok(())
/// # }
/// ```
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
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::sync::Arc;
/// # use orin_sim::memory::Memory;
/// # use orin_sim::mmu::{AddressSpace, MappedRange};
/// # let space = AddressSpace::new();
/// # let memory = Arc::new(Memory::new("data", 0x2000)?);
/// # space.map(MappedRange { va: 0x20_0000, len: 0x2000, memory, offset: 0, writable: false, cached: false });
/// use orin_sim::mmu::{Access, FaultKind};
///
/// let kind = |va| space.view().span(va, Access::Read).unwrap_err().kind;
/// assert_eq!(kind(0x20_2000), FaultKind::InvalidPte);
/// assert_eq!(kind(0x4000_0000), FaultKind::InvalidPde);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// Nothing is mapped nearby: the page directory entry is invalid.
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
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::sync::Arc;
/// # use orin_sim::memory::Memory;
/// # use orin_sim::mmu::{AddressSpace, MappedRange};
/// # let space = AddressSpace::new();
/// # let memory = Arc::new(Memory::new("data", 0x2000)?);
/// # space.map(MappedRange { va: 0x20_0000, len: 0x2000, memory, offset: 0, writable: false, cached: false });
/// let fault = space.view().read(0x20_1ffc, &mut [0; 8]).unwrap_err();
/// assert_eq!(fault.va, 0x20_2000);
/// # Ok(())
/// # }
/// ```
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
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::sync::Arc;
/// # use orin_sim::memory::Memory;
/// # use orin_sim::mmu::{AddressSpace, MappedRange};
/// # let space = AddressSpace::new();
/// # let memory = Arc::new(Memory::new("data", 0x2000)?);
/// # space.map(MappedRange { va: 0x20_0000, len: 0x2000, memory, offset: 0, writable: false, cached: false });
/// let range = space.unmap(0x20_0000).expect("the mapping");
/// assert_eq!((range.len, range.memory.label()), (0x2000, "data"));
/// assert!(!range.writable);
/// # Ok(())
/// # }
/// ```
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
/// assert_eq!((span.va, span.end), (0x20_0000, 0x20_2000));
/// assert!(span.at(0x20_1ffc, 4).is_some() && span.at(0x20_1ffc, 8).is_none());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// First GPU address of the mapping.
    pub va: u64,
    /// One past its last GPU address.
    pub end: u64,
    /// CPU address of `va`; valid while the [`View`] lives.
    pub pointer: NonNull<u8>,
    /// Whether stores are allowed.
    pub writable: bool,
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
        change(Arc::make_mut(&mut self.tables.write().unwrap_or_else(|poison| poison.into_inner())))
    }

    /// Adds a mapping. The kernel model has already checked alignment and overlap.
    ///
    /// # Panics
    ///
    /// Panics if the range overlaps another one or leaves its memory, which is a bug of the kernel model.
    pub fn map(&self, range: MappedRange) {
        assert!(range.va.is_multiple_of(PAGE_BYTES) && range.len.is_multiple_of(PAGE_BYTES) && range.len > 0);
        assert!(range.offset + range.len <= range.memory.len() as u64);
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
        let end = va + len;
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
            sparse.insert(at, (va, va + len));
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
        let tables = Arc::clone(&self.tables.read().unwrap_or_else(|poison| poison.into_inner()));
        View { tables, space: self.serial, watch: None }
    }
}

/// A snapshot of an address space. It keeps all mapped memory alive.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::sync::Arc;
/// # use orin_sim::memory::Memory;
/// # use orin_sim::mmu::{AddressSpace, MappedRange};
/// # let space = AddressSpace::new();
/// # let memory = Arc::new(Memory::new("data", 0x2000)?);
/// # space.map(MappedRange { va: 0x20_0000, len: 0x2000, memory, offset: 0, writable: false, cached: false });
/// let view = space.view();
/// // A snapshot: later changes do not affect it.
/// space.unmap(0x20_0000);
/// assert!(view.read(0x20_0000, &mut [0; 4]).is_ok());
/// assert!(space.view().read(0x20_0000, &mut [0; 4]).is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct View {
    tables: Arc<Tables>,
    space: u64,
    /// The source of accesses through the view; `None` without strict mode.
    watch: Option<Arc<Watch>>,
}

impl View {
    /// The same view with accesses attributed to `watch`.
    pub(crate) fn watched_by(&self, watch: Option<Arc<Watch>>) -> Self {
        Self { tables: Arc::clone(&self.tables), space: self.space, watch }
    }

    /// Number of the address space.
    pub(crate) fn space(&self) -> u64 {
        self.space
    }

    /// The same view for another unit of the same source.
    pub(crate) fn watched_as(&self, unit: Unit) -> Self {
        self.watched_by(self.watch.as_ref().map(|watch| Arc::new(watch.as_unit(unit))))
    }

    /// The source of accesses through the view, in strict mode.
    #[inline(always)]
    pub(crate) fn watch(&self) -> Option<&Arc<Watch>> {
        self.watch.as_ref()
    }

    /// The mapping that contains an address, or the nearest one.
    pub(crate) fn neighbour(&self, va: u64) -> Option<&MappedRange> {
        let ranges = &self.tables.ranges;
        let at = ranges.partition_point(|range| range.va <= va);
        let below = at.checked_sub(1).map(|at| &ranges[at]);
        let past = below.map_or(u64::MAX, |range| va.saturating_sub(range.va + range.len - 1));
        match ranges.get(at) {
            Some(above) if above.va - va < past => Some(above),
            _ => below,
        }
    }

    /// Describes an address relative to the mappings, for a log: the mapping that contains it, or the nearest one.
    pub fn describe(&self, va: u64) -> String {
        let ranges = &self.tables.ranges;
        let at = ranges.partition_point(|range| range.va + range.len <= va);
        let name = |range: &MappedRange| {
            let label = if range.memory.label().is_empty() { "memory" } else { range.memory.label() };
            let access = if range.writable { "" } else { ", read-only" };
            format!("{label} at {:#x} to {:#x}{access}", range.va, range.va + range.len)
        };
        if let Some(range) = ranges.get(at).filter(|range| range.va <= va) {
            return format!("{:#x} bytes into {}", va - range.va, name(range));
        }
        let below = at.checked_sub(1).map(|at| &ranges[at]).map(|range| (va - (range.va + range.len), range));
        let above = ranges.get(at).map(|range| (range.va - va, range));
        match (below, above) {
            (Some((past, range)), above) if above.is_none_or(|(before, _)| past < before) => {
                format!("{past:#x} bytes past the end of {}", name(range))
            }
            (_, Some((before, range))) => format!("{before:#x} bytes before {}", name(range)),
            _ => "nothing is mapped at all".to_owned(),
        }
    }

    /// The mapping that contains `va`, or the reason why there is none.
    fn range(&self, va: u64, access: Access) -> Result<Option<&MappedRange>, MmuFault> {
        let fault = |kind| MmuFault { va, kind, access };
        if va >> 49 != 0 {
            return Err(fault(FaultKind::LimitViolation));
        }
        let ranges = &self.tables.ranges;
        let at = ranges.partition_point(|range| range.va + range.len <= va);
        let Some(range) = ranges.get(at).filter(|range| range.va <= va) else {
            if self.tables.sparse(va).is_some() {
                return Ok(None);
            }
            // A page directory entry covers 2 MiB. Without a mapping in that range the walk ends there.
            let directory = |range: &MappedRange| {
                range.va >> 21 <= va >> 21 && (range.va + range.len - 1) >> 21 >= va >> 21
            };
            let near = ranges[at.saturating_sub(1)..].iter().take(2).any(directory);
            return Err(fault(if near { FaultKind::InvalidPte } else { FaultKind::InvalidPde }));
        };
        if access != Access::Read && !range.writable {
            return Err(fault(FaultKind::WriteReadOnly));
        }
        Ok(Some(range))
    }

    /// The memory that contains `va`: the whole mapping, or one sparse page. If stores have side effects the span is
    /// not writable, even if the access was an allowed store.
    ///
    /// # Errors
    ///
    /// The fault that the MMU raises.
    pub fn span(&self, va: u64, access: Access) -> Result<Span, MmuFault> {
        let Some(range) = self.range(va, access)? else {
            let va = va & !(PAGE_BYTES - 1);
            return Ok(Span { va, end: va + PAGE_BYTES, pointer: ZERO.pointer(), writable: false });
        };
        // SAFETY: `map` checked that offset and length lie inside the memory.
        // CAST: offsets of a CPU mapping fit usize.
        let pointer = unsafe { range.memory.pointer().add(range.offset as usize) };
        let writable = range.writable && range.memory.counter().is_none();
        Ok(Span { va: range.va, end: range.va + range.len, pointer, writable })
    }

    /// Returns whether anything is mapped in `[va, va + len)`.
    pub fn overlaps(&self, va: u64, len: u64) -> bool {
        let ranges = &self.tables.ranges;
        let at = ranges.partition_point(|range| range.va + range.len <= va);
        ranges.get(at).is_some_and(|range| range.va < va.saturating_add(len))
    }

    /// CPU address of `[va, va + len)` for one access. The range may not cross mappings or sparse pages; hardware
    /// accesses are aligned, so they never do.
    ///
    /// The caller then makes the store: on counted memory it is counted here, and there, as on sparse pages, the
    /// pointer leads to memory that is never read.
    ///
    /// # Errors
    ///
    /// The fault that the MMU raises.
    pub fn pointer(&self, va: u64, len: u64, access: Access) -> Result<*mut u8, MmuFault> {
        self.pointer_for(va, len, access, Strength::Weak)
    }

    /// Like [`View::pointer`], for an access that strict mode may treat as synchronisation.
    ///
    /// # Errors
    ///
    /// The fault that the MMU raises.
    pub(crate) fn pointer_for(
        &self,
        va: u64,
        len: u64,
        access: Access,
        strength: Strength,
    ) -> Result<*mut u8, MmuFault> {
        let pointer = self.translate(va, len, access)?;
        if let Some(watch) = &self.watch
            && let Some(range) = self.range(va, access)?
        {
            watch.access(&Accessed { space: self.space, va, len, access, strength, range });
        }
        Ok(pointer)
    }

    fn translate(&self, va: u64, len: u64, access: Access) -> Result<*mut u8, MmuFault> {
        let span = self.span(va, access)?;
        let beyond = MmuFault { va: span.end, kind: FaultKind::InvalidPte, access };
        let pointer = span.at(va, len).ok_or(beyond)?;
        if access == Access::Read || span.writable {
            return Ok(pointer);
        }
        if len > PAGE_BYTES {
            return Err(beyond);
        }
        if let Some(range) = self.range(va, access)?
            && let Some(counter) = range.memory.counter()
        {
            let offset = range.offset + (va - range.va);
            // CAST: at most a page; offsets of a CPU mapping fit usize.
            counter.written(&range.memory, offset as usize, len.div_ceil(4) as u32);
        }
        Ok(SINK.pointer().as_ptr())
    }

    /// Copies memory into `buffer`, across mappings.
    ///
    /// # Errors
    ///
    /// The fault that the MMU raises; part of `buffer` may have been filled.
    pub fn read(&self, va: u64, buffer: &mut [u8]) -> Result<(), MmuFault> {
        let mut done = 0;
        while done < buffer.len() {
            let at = va.wrapping_add(done as u64);
            let len = self.piece(at, buffer.len() - done, Access::Read)?;
            let source = self.pointer(at, len as u64, Access::Read)?;
            // SAFETY: `source` is valid for `len` bytes while the view lives; the target is a local slice of at least
            // `len` bytes. Concurrent writes may tear bytes, as on hardware.
            unsafe { core::ptr::copy(source, buffer[done..].as_mut_ptr(), len) };
            done += len;
        }
        Ok(())
    }

    /// Copies `buffer` to memory, across mappings.
    ///
    /// # Errors
    ///
    /// The fault that the MMU raises; part may have been written.
    pub fn write(&self, va: u64, buffer: &[u8]) -> Result<(), MmuFault> {
        let mut done = 0;
        while done < buffer.len() {
            let at = va.wrapping_add(done as u64);
            let len = self.piece(at, buffer.len() - done, Access::Write)?;
            let target = self.pointer(at, len as u64, Access::Write)?;
            // SAFETY: as in `read`, with the roles exchanged.
            unsafe { core::ptr::copy(buffer[done..].as_ptr(), target, len) };
            done += len;
        }
        Ok(())
    }

    /// Returns how many of `len` bytes at `va` one call of [`View::pointer`] can take.
    ///
    /// # Errors
    ///
    /// The fault that the MMU raises.
    pub fn piece(&self, va: u64, len: usize, access: Access) -> Result<usize, MmuFault> {
        let span = self.span(va, access)?;
        let most = if access == Access::Read || span.writable {
            span.end - va
        } else {
            (span.end - va).min(PAGE_BYTES - va % PAGE_BYTES)
        };
        // CAST: bounded by `len`.
        Ok(most.min(len as u64) as usize)
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
