//! Snapshots of an address space, and accesses through them.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

use super::{Access, FaultKind, MappedRange, MmuFault, PAGE_BYTES, Span, Tables};
use crate::check::{Accessed, Strength, Unit, Watch};

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
    pub(super) tables: Arc<Tables>,
    pub(super) space: u64,
    /// The source of accesses through the view; `None` without the order check.
    pub(super) watch: Option<Arc<Watch>>,
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

    /// The source of accesses through the view, for the order check.
    #[inline(always)]
    pub(crate) fn watch(&self) -> Option<&Arc<Watch>> {
        self.watch.as_ref()
    }

    /// The mapping that contains an address.
    pub(crate) fn mapping(&self, va: u64) -> Option<&MappedRange> {
        self.neighbour(va).filter(|range| va.checked_sub(range.va).is_some_and(|offset| offset < range.len))
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
    /// The caller performs the store. A store to counted memory is counted here. The pointer to counted memory or a
    /// sparse page leads to memory that is never read.
    ///
    /// # Errors
    ///
    /// The fault that the MMU raises.
    pub fn pointer(&self, va: u64, len: u64, access: Access) -> Result<*mut u8, MmuFault> {
        self.pointer_for(va, len, access, Strength::Weak)
    }

    /// Like [`View::pointer`], for an access that the order check may treat as synchronisation.
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
            // SAFETY: `source` is valid for `len` bytes while the view lives, and memory consists of whole words.
            unsafe { load(source, &mut buffer[done..done + len]) };
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
            // SAFETY: as in `read`.
            unsafe { store(target, &buffer[done..done + len]) };
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

/// The bytes of a word, aligned to 4 bytes. Other threads access the same words as atomics ([`Memory::word`]).
///
/// [`Memory::word`]: crate::memory::Memory::word
const WORD: usize = size_of::<u32>();

/// Splits `len` bytes at `address` into the bytes before the first whole word, and whole words.
fn split(address: usize, len: usize) -> (usize, usize) {
    let head = (address.wrapping_neg() % WORD).min(len);
    (head, (len - head) / WORD)
}

/// The word that contains the byte at `pointer`, and the byte's place in it.
///
/// # Safety
///
/// The word is valid for reads and writes for `'a`, and is accessed only by atomic operations.
unsafe fn word_of<'a>(pointer: *mut u8) -> (&'a AtomicU32, usize) {
    let place = pointer.addr() % WORD;
    // SAFETY: the caller's promise; the address is aligned.
    (unsafe { AtomicU32::from_ptr(pointer.sub(place).cast()) }, place)
}

/// Copies `len` bytes word by word, as `memmove`. Words have 32 bits, because the other accesses to them have.
///
/// # Safety
///
/// As [`load`] and [`store`].
pub(crate) unsafe fn copy(from: *mut u8, to: *mut u8, len: usize) {
    const CHUNK: usize = PAGE_BYTES as usize;
    let mut buffer = [0; CHUNK];
    let mut chunk = |at: usize| {
        let bytes = &mut buffer[..CHUNK.min(len - at)];
        // SAFETY: the caller's promise.
        unsafe {
            load(from.add(at), bytes);
            store(to.add(at), bytes);
        }
    };
    let starts = (0..len).step_by(CHUNK);
    // A chunk must not overwrite one that has yet to be read.
    if from < to { starts.rev().for_each(&mut chunk) } else { starts.for_each(&mut chunk) }
}

/// Copies `target.len()` bytes from `source`, word by word.
///
/// # Safety
///
/// The words that contain the bytes are valid for reads, and are accessed only by atomic operations.
unsafe fn load(source: *mut u8, target: &mut [u8]) {
    let (head, words) = split(source.addr(), target.len());
    let (start, rest) = target.split_at_mut(head);
    let (whole, end) = rest.split_at_mut(words * WORD);
    let single = |at: usize| {
        // SAFETY: the caller's promise.
        let (word, place) = unsafe { word_of(source.add(at)) };
        word.load(Ordering::Relaxed).to_ne_bytes()[place]
    };
    for (at, byte) in start.iter_mut().enumerate() {
        *byte = single(at);
    }
    for (at, bytes) in whole.chunks_exact_mut(WORD).enumerate() {
        // SAFETY: the caller's promise; the address of a whole word is aligned.
        let word = unsafe { AtomicU32::from_ptr(source.add(head + at * WORD).cast()) };
        bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
    }
    for (at, byte) in end.iter_mut().enumerate() {
        *byte = single(head + words * WORD + at);
    }
}

/// Copies `source` to `target`, word by word.
///
/// # Safety
///
/// As [`load`], for writes too.
unsafe fn store(target: *mut u8, source: &[u8]) {
    let (head, words) = split(target.addr(), source.len());
    let (start, rest) = source.split_at(head);
    let (whole, end) = rest.split_at(words * WORD);
    // Other threads may write the rest of the word concurrently.
    let single = |at: usize, byte: u8| {
        // SAFETY: the caller's promise.
        let (word, place) = unsafe { word_of(target.add(at)) };
        let put = |old: u32| {
            let mut bytes = old.to_ne_bytes();
            bytes[place] = byte;
            Some(u32::from_ne_bytes(bytes))
        };
        let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, put);
    };
    for (at, byte) in start.iter().enumerate() {
        single(at, *byte);
    }
    for (at, bytes) in whole.chunks_exact(WORD).enumerate() {
        // SAFETY: the caller's promise; the address of a whole word is aligned.
        let word = unsafe { AtomicU32::from_ptr(target.add(head + at * WORD).cast()) };
        // PANIC: the chunks have the length of a word.
        word.store(u32::from_ne_bytes(bytes.try_into().expect("a word")), Ordering::Relaxed);
    }
    for (at, byte) in end.iter().enumerate() {
        single(head + words * WORD + at, *byte);
    }
}
