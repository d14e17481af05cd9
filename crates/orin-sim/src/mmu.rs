//! The GPU's memory management unit.
//!
//! An address space maps ranges of 40-bit GPU virtual addresses (4 KiB pages; ga10b runs without big
//! pages) onto [`Memory`]. The kernel model maps and unmaps; engines and SMs take a [`View`], an
//! immutable snapshot that keeps the memory alive, and translate through it.

use core::ptr::NonNull;
use std::fmt;
use std::sync::{Arc, RwLock};

use crate::memory::Memory;

/// GPU page size in bytes.
pub const PAGE_BYTES: u64 = 4096;

/// What an access wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Load or instruction fetch.
    Read,
    /// Store.
    Write,
    /// Read-modify-write.
    Atomic,
}

/// Why the MMU refused an access; names as in the kernel log (`spec` terms of nvgpu).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// Nothing is mapped anywhere near: the page directory entry is invalid.
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
    /// Why.
    pub kind: FaultKind,
    /// What was tried.
    pub access: Access,
}

/// One mapping of an address space.
#[derive(Clone, Debug)]
pub struct MappedRange {
    /// First address, page aligned.
    pub va: u64,
    /// Length in bytes, a multiple of the page size.
    pub len: u64,
    /// What is mapped.
    pub memory: Arc<Memory>,
    /// Where in `memory` the range begins, in bytes, page aligned.
    pub offset: u64,
    /// Whether stores are allowed.
    pub writable: bool,
}

/// A piece of memory, contiguous for CPU and GPU, that contains a translated address.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// First GPU address of the mapping.
    pub va: u64,
    /// One past its last GPU address.
    pub end: u64,
    /// CPU address of `va`; valid as long as the [`View`] lives.
    pub pointer: NonNull<u8>,
    /// Whether stores are allowed.
    pub writable: bool,
}

impl Span {
    /// CPU address of `va` when `[va, va + len)` lies inside the span.
    #[inline]
    pub fn at(&self, va: u64, len: u64) -> Option<*mut u8> {
        if va < self.va || va.checked_add(len)? > self.end {
            return None;
        }
        // SAFETY: `va - self.va + len` bytes lie inside the mapping that `pointer` begins.
        // CAST: the span is a CPU mapping, so its offsets fit usize.
        Some(unsafe { self.pointer.as_ptr().add((va - self.va) as usize) })
    }
}

/// An address space: changed by the kernel model, read through [`View`]s.
#[derive(Debug, Default)]
pub struct AddressSpace {
    ranges: RwLock<Arc<Vec<MappedRange>>>,
}

impl AddressSpace {
    /// An address space with nothing mapped.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a mapping. The kernel model has already checked alignment and overlap.
    ///
    /// # Panics
    ///
    /// When the range overlaps another or leaves its memory: a bug of the kernel model.
    pub fn map(&self, range: MappedRange) {
        assert!(range.va.is_multiple_of(PAGE_BYTES) && range.len.is_multiple_of(PAGE_BYTES) && range.len > 0);
        assert!(range.offset + range.len <= range.memory.len() as u64);
        let mut ranges = self.ranges.write().unwrap_or_else(|poison| poison.into_inner());
        let at = ranges.partition_point(|other| other.va < range.va);
        assert!(at == 0 || ranges[at - 1].va + ranges[at - 1].len <= range.va, "mappings overlap");
        assert!(ranges.get(at).is_none_or(|next| range.va + range.len <= next.va), "mappings overlap");
        Arc::make_mut(&mut ranges).insert(at, range);
    }

    /// Removes the mapping that begins at `va`, if there is one.
    pub fn unmap(&self, va: u64) -> Option<MappedRange> {
        let mut ranges = self.ranges.write().unwrap_or_else(|poison| poison.into_inner());
        let at = ranges.binary_search_by_key(&va, |range| range.va).ok()?;
        Some(Arc::make_mut(&mut ranges).remove(at))
    }

    /// The mappings as they are now.
    pub fn view(&self) -> View {
        View { ranges: Arc::clone(&self.ranges.read().unwrap_or_else(|poison| poison.into_inner())) }
    }
}

/// A snapshot of an address space; keeps everything that it maps alive.
#[derive(Clone, Debug)]
pub struct View {
    ranges: Arc<Vec<MappedRange>>,
}

impl View {
    /// The mapping that contains `va`.
    ///
    /// # Errors
    ///
    /// The fault that the MMU raises.
    pub fn span(&self, va: u64, access: Access) -> Result<Span, MmuFault> {
        let fault = |kind| MmuFault { va, kind, access };
        if va >> 49 != 0 {
            return Err(fault(FaultKind::LimitViolation));
        }
        let at = self.ranges.partition_point(|range| range.va + range.len <= va);
        let Some(range) = self.ranges.get(at).filter(|range| range.va <= va) else {
            // A page directory entry covers 2 MiB: with no mapping in it the walk ends there.
            let directory = |range: &MappedRange| {
                range.va >> 21 <= va >> 21 && (range.va + range.len - 1) >> 21 >= va >> 21
            };
            let near = self.ranges[at.saturating_sub(1)..].iter().take(2).any(directory);
            return Err(fault(if near { FaultKind::InvalidPte } else { FaultKind::InvalidPde }));
        };
        if access != Access::Read && !range.writable {
            return Err(fault(FaultKind::WriteReadOnly));
        }
        // SAFETY: `map` checked that offset and length lie inside the memory.
        // CAST: offsets of a CPU mapping fit usize.
        let pointer = unsafe { range.memory.pointer().add(range.offset as usize) };
        Ok(Span { va: range.va, end: range.va + range.len, pointer, writable: range.writable })
    }

    /// Whether anything is mapped in `[va, va + len)`.
    pub fn overlaps(&self, va: u64, len: u64) -> bool {
        let at = self.ranges.partition_point(|range| range.va + range.len <= va);
        self.ranges.get(at).is_some_and(|range| range.va < va.saturating_add(len))
    }

    /// CPU address of `[va, va + len)`; `len` is at most a page and the range may not cross two
    /// mappings (hardware accesses are aligned, so they never do).
    ///
    /// # Errors
    ///
    /// The fault that the MMU raises.
    pub fn pointer(&self, va: u64, len: u64, access: Access) -> Result<*mut u8, MmuFault> {
        let span = self.span(va, access)?;
        span.at(va, len).ok_or(MmuFault { va: span.end, kind: FaultKind::InvalidPte, access })
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
            let span = self.span(at, Access::Read)?;
            // CAST: bounded by the buffer's length.
            let len = (span.end - at).min((buffer.len() - done) as u64) as usize;
            let source = span.at(at, len as u64).ok_or(MmuFault {
                va: at,
                kind: FaultKind::InvalidPte,
                access: Access::Read,
            })?;
            // SAFETY: `source` is valid for `len` bytes while the view lives; the target is a
            // slice of ours of at least `len` bytes. Racing writers are the GPU's normal life:
            // bytes may be torn, as they are on hardware.
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
            let span = self.span(at, Access::Write)?;
            // CAST: bounded by the buffer's length.
            let len = (span.end - at).min((buffer.len() - done) as u64) as usize;
            let target = span.at(at, len as u64).ok_or(MmuFault {
                va: at,
                kind: FaultKind::InvalidPte,
                access: Access::Write,
            })?;
            // SAFETY: as in `read`, with the roles exchanged.
            unsafe { core::ptr::copy(buffer[done..].as_ptr(), target, len) };
            done += len;
        }
        Ok(())
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
        });
        space.map(MappedRange { va: 0x20_2000, len: 0x1000, memory, offset: 0, writable: false });
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
}
