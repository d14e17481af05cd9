//! Memory transfers of the copy engine, one slice at a time.
//!
//! A transfer is a rectangle of lines of equal length. On either side the lines start one pitch apart, or they are rows
//! of a block-linear surface. Pieces end where a mapping ends, so a transfer can cross mappings.
//!
//! Lines are moved in order, so where target lines overlap, the later line wins. Silicon makes no guarantee for a
//! source that overlaps its target. Here one line behaves as if it had been read completely first, and so do
//! non-overlapping lines of equal pitch.

use crate::check::{Checker, Rows};
use crate::gpu::surface::Surface;
use crate::mmu::{self, Access, MmuFault, View};

/// Name of the engine in findings.
const UNIT: &str = "copy engine";

/// Maximum size of one remapped piece in bytes.
const PIECE_BYTES: usize = 4096;

/// Minimum cost of a piece, so that transfers with very short lines are also sliced.
const PIECE_COST: u64 = 64;

/// Where the source or the target of a copy lies: address, pitch, layout.
#[derive(Clone, Copy, Debug)]
pub(super) enum Lines {
    /// The first line starts at `va`, each further one `pitch` bytes after the previous one.
    Pitch {
        /// GPU address of the first line.
        va: u64,
        /// Distance between lines in bytes.
        pitch: u64,
    },
    /// Rows of a block-linear surface.
    Blocks(Surface),
}

impl Lines {
    /// GPU address of byte `offset` of line `line`, and the number of contiguous bytes from there.
    fn at(&self, line: u32, offset: u64) -> (u64, u64) {
        match *self {
            Self::Pitch { va, pitch } => {
                (va.wrapping_add(u64::from(line).wrapping_mul(pitch)).wrapping_add(offset), u64::MAX)
            }
            Self::Blocks(surface) => surface.at(line, offset),
        }
    }

    /// Visits line `line` from byte `offset` on, piece by piece: address and part of `0..len`.
    fn pieces(
        &self,
        line: u32,
        offset: u64,
        len: usize,
        mut piece: impl FnMut(u64, core::ops::Range<usize>) -> Result<(), MmuFault>,
    ) -> Result<(), MmuFault> {
        let mut done = 0;
        while done < len {
            let (va, run) = self.at(line, offset + done as u64);
            // CAST: bounded by `len`.
            let end = done + run.min((len - done) as u64) as usize;
            piece(va, done..end)?;
            done = end;
        }
        Ok(())
    }
}

/// The operation on the lines.
#[derive(Debug)]
pub(super) enum Work {
    /// Copies bytes unchanged.
    Copy(Lines),
    /// Composes elements from source components and constants.
    Remap {
        /// `None` if no component is read.
        source: Option<Lines>,
        /// Bytes of a component, 1 to 4.
        size: usize,
        /// Components per source element.
        sources: usize,
        /// The origin of each component of a target element.
        components: Vec<Component>,
    },
}

/// The origin of a target component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Component {
    /// A component of the source element.
    Source(usize),
    /// A constant, truncated to the component's size.
    Constant([u8; 4]),
    /// Memory stays unchanged.
    Keep,
}

/// Components of target elements, as selected by SET_REMAP_COMPONENTS: 0 to 3 are components of the source, 4 and 5 the
/// constants, 6 leaves memory unchanged.
pub(super) fn components(selectors: &[u32], constants: [u32; 2]) -> Vec<Component> {
    let component = |&selector: &u32| match selector {
        // CAST: below 4.
        0..=3 => Component::Source(selector as usize),
        4 => Component::Constant(constants[0].to_le_bytes()),
        5 => Component::Constant(constants[1].to_le_bytes()),
        _ => Component::Keep,
    };
    selectors.iter().map(component).collect()
}

impl Work {
    /// The source lines, if any are read.
    pub(super) fn source(&self) -> Option<Lines> {
        match self {
            Self::Copy(source) => Some(*source),
            Self::Remap { source, .. } => *source,
        }
    }

    fn source_bytes(&self) -> u64 {
        match self {
            Self::Copy(_) => 1,
            // CAST: at most 16.
            Self::Remap { size, sources, .. } => (size * sources) as u64,
        }
    }

    fn target_bytes(&self) -> u64 {
        match self {
            Self::Copy(_) => 1,
            // CAST: at most 16.
            Self::Remap { size, components, .. } => (size * components.len()) as u64,
        }
    }
}

/// A transfer and its progress.
#[derive(Debug)]
pub(super) struct Transfer {
    work: Work,
    target: Lines,
    /// Elements per line.
    length: u64,
    lines: u32,
    /// Start with the last line and element, because the target overlaps the source from above.
    descending: bool,
    lines_done: u32,
    /// Number of elements done in the current line.
    done: u64,
    /// Whether it has been checked.
    checked: bool,
    /// Whether it has been reported that the CPU has a view of the target.
    under_view: bool,
}

impl Transfer {
    /// Creates a transfer of `lines` lines of `length` elements to `target`.
    pub(super) fn new(work: Work, target: Lines, length: u64, lines: u32) -> Self {
        let descending = match (work.source(), target) {
            (Some(Lines::Pitch { va: source, pitch }), Lines::Pitch { va: target, pitch: out }) => {
                let bytes = length.saturating_mul(work.source_bytes().max(work.target_bytes()));
                let span = u64::from(lines.saturating_sub(1)).saturating_mul(pitch).saturating_add(bytes);
                let moved_as_one = lines <= 1 || pitch == out && pitch >= bytes;
                moved_as_one && source < target && target - source < span
            }
            _ => false,
        };
        Self {
            work,
            target,
            length,
            lines,
            descending,
            lines_done: 0,
            done: 0,
            checked: false,
            under_view: false,
        }
    }

    /// Checks the transfer against the objects, before each slice. Block-linear surfaces are not examined.
    pub(super) fn check(&mut self, checker: &Checker, view: &View) {
        if self.lines == 0 {
            return;
        }
        let rows = |lines: Lines, bytes: u64| match lines {
            Lines::Pitch { va, pitch } => {
                Some(Rows { va, pitch, bytes: self.length.saturating_mul(bytes), count: self.lines })
            }
            Lines::Blocks(_) => None,
        };
        let target = rows(self.target, self.work.target_bytes());
        if !self.checked {
            let source = self.work.source().and_then(|source| rows(source, self.work.source_bytes()));
            if let Some(source) = source {
                checker.transfer(view, UNIT, source, Access::Read);
            }
            if let Some(target) = target {
                checker.transfer(view, UNIT, target, Access::Write);
                let same = source.filter(|_| matches!(self.work, Work::Copy(_)));
                checker.transferred(view, same, target);
            }
            self.checked = true;
        }
        // A view may be opened while the transfer runs.
        if let Some(target) = target.filter(|_| !self.under_view) {
            self.under_view = checker.transfer_under_view(view, UNIT, target);
        }
    }

    /// Moves about `budget` bytes. Returns true when nothing is left.
    ///
    /// # Errors
    ///
    /// The fault that the MMU raises; earlier moves remain.
    pub(super) fn step(&mut self, view: &View, mut budget: u64) -> Result<bool, MmuFault> {
        while self.length != 0 && self.lines_done < self.lines {
            if budget == 0 {
                return Ok(false);
            }
            let bytes = self.work.target_bytes();
            let count = (self.length - self.done).min(budget.div_ceil(bytes));
            let moved = self.piece(view, count)?;
            budget = budget.saturating_sub((moved * bytes).max(PIECE_COST));
            self.done += moved;
            if self.done == self.length {
                self.done = 0;
                self.lines_done += 1;
            }
        }
        Ok(true)
    }

    /// Moves between one and `count` elements of the current line. Returns the number.
    fn piece(&self, view: &View, count: u64) -> Result<u64, MmuFault> {
        let line = if self.descending { self.lines - 1 - self.lines_done } else { self.lines_done };
        match &self.work {
            Work::Copy(source) if self.descending => {
                self.bytes_from_the_end(view, source.at(line, 0).0, self.target.at(line, 0).0, count)
            }
            Work::Copy(source) => {
                let (from, run_in) = source.at(line, self.done);
                let (to, run_out) = self.target.at(line, self.done);
                let count = count.min(run_in).min(run_out);
                // CAST: pieces are bounded by what is left, which fits either type.
                let piece = |va, access| view.piece(va, count as usize, access).map(|len| len as u64);
                let len = piece(from, Access::Read)?.min(piece(to, Access::Write)?);
                move_bytes(view, from, to, len)
            }
            Work::Remap { source, size, components, .. } => {
                // CAST: an element has at most 16 bytes.
                let count = count.min(PIECE_BYTES as u64 / 16);
                let first = if self.descending { self.length - self.done - count } else { self.done };
                let place = Elements { line, first, count };
                self.remapped(view, source.as_ref(), &place, (*size, components))?;
                Ok(count)
            }
        }
    }

    /// Moves the last piece of the rest of the line. Returns its length. The piece ends at the end of the rest and
    /// starts at a mapping boundary of either side, or `count` bytes before its end.
    fn bytes_from_the_end(&self, view: &View, from: u64, to: u64, count: u64) -> Result<u64, MmuFault> {
        let left = self.length - self.done;
        let (from_end, to_end) = (from.wrapping_add(left), to.wrapping_add(left));
        let below = |end: u64, access| {
            let span = view.span(end.wrapping_sub(1), access)?;
            // One page at a time if stores have side effects.
            let start = if span.writable || access == Access::Read { span.va } else { (end - 1) & !0xfff };
            Ok(end - start)
        };
        let len = count.min(below(from_end, Access::Read)?).min(below(to_end, Access::Write)?);
        move_bytes(view, from_end - len, to_end - len, len)
    }

    fn remapped(
        &self,
        view: &View,
        source: Option<&Lines>,
        place: &Elements,
        (size, components): (usize, &[Component]),
    ) -> Result<(), MmuFault> {
        // CAST: bounded by PIECE_BYTES.
        let count = place.count as usize;
        // CAST: at most 16.
        let (source_bytes, target_bytes) =
            (self.work.source_bytes() as usize, self.work.target_bytes() as usize);
        let (mut input, mut output) = ([0; PIECE_BYTES], [0; PIECE_BYTES]);
        let (input, output) = (&mut input[..count * source_bytes], &mut output[..count * target_bytes]);
        if let Some(source) = source {
            let offset = place.first * source_bytes as u64;
            source.pieces(place.line, offset, input.len(), |va, part| view.read(va, &mut input[part]))?;
        }
        for (index, element) in output.chunks_exact_mut(target_bytes).enumerate() {
            for (slot, component) in element.chunks_exact_mut(size).zip(components) {
                match *component {
                    Component::Source(component) => {
                        slot.copy_from_slice(&input[index * source_bytes + component * size..][..size]);
                    }
                    Component::Constant(bytes) => slot.copy_from_slice(&bytes[..size]),
                    Component::Keep => {}
                }
            }
        }
        let offset = place.first * target_bytes as u64;
        let write = |at: usize, bytes: &[u8]| {
            let whole = |va, part| view.write(va, &bytes[part]);
            self.target.pieces(place.line, offset + at as u64, bytes.len(), whole)
        };
        if !components.contains(&Component::Keep) {
            return write(0, output);
        }
        // Do not write the bytes that are kept, because they may be written concurrently.
        for (index, bytes) in output.chunks_exact(size).enumerate() {
            if components[index % components.len()] != Component::Keep {
                write(index * size, bytes)?;
            }
        }
        Ok(())
    }
}

/// Some elements of a line.
struct Elements {
    line: u32,
    first: u64,
    count: u64,
}

/// Moves bytes that lie inside one mapping on either side. Returns the number.
fn move_bytes(view: &View, from: u64, to: u64, len: u64) -> Result<u64, MmuFault> {
    let from = view.pointer(from, len, Access::Read)?;
    let to = view.pointer(to, len, Access::Write)?;
    // SAFETY: both ranges lie inside one mapping each, which the view keeps alive, and memory consists of whole words.
    // CAST: a CPU mapping's length fits usize.
    unsafe { mmu::copy(from, to, len as usize) };
    Ok(len)
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::{AtomicU32, Ordering};
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::memory::Memory;
    use crate::mmu::{AddressSpace, MappedRange};

    const BASE: u64 = 0x10_0000;
    const BYTES: usize = 0x6000;

    /// Adjacent mappings of separate memories, so that transfers can cross mappings.
    fn space() -> View {
        let space = AddressSpace::new();
        for index in 0..6 {
            space.map(MappedRange {
                va: BASE + index * 0x1000,
                len: 0x1000,
                memory: Arc::new(Memory::new("transfer", 0x1000).unwrap()),
                offset: 0,
                writable: true,
                cached: false,
            });
        }
        let view = space.view();
        let pattern: Vec<u8> = (0..BYTES).map(|index| (index * 7 + index / 251) as u8).collect();
        view.write(BASE, &pattern).unwrap();
        view
    }

    /// Lines starting at byte `offset` of the memory.
    fn pitch(offset: usize, pitch: usize) -> Lines {
        Lines::Pitch { va: BASE + offset as u64, pitch: pitch as u64 }
    }

    fn contents(view: &View) -> Vec<u8> {
        let mut bytes = vec![0; BYTES];
        view.read(BASE, &mut bytes).unwrap();
        bytes
    }

    fn run(view: &View, mut transfer: Transfer, slice: u64) {
        let mut steps = 0;
        while !transfer.step(view, slice).unwrap() {
            steps += 1;
            assert!(steps < 100_000, "the transfer makes no progress");
        }
    }

    proptest! {
        #[test]
        fn a_linear_copy_is_a_memmove(from in 0usize..0x3000, to in 0usize..0x3000, len in 0usize..0x2800,
                                      slice in 1u64..0x3000) {
            let view = space();
            let mut expected = contents(&view);
            expected.copy_within(from..from + len, to);
            let transfer = Transfer::new(Work::Copy(pitch(from, 0)), pitch(to, 0), len as u64, 1);
            run(&view, transfer, slice);
            prop_assert!(contents(&view) == expected);
        }

        #[test]
        fn a_pitched_copy_moves_the_rectangle(lines in 1usize..12, length in 1usize..300,
                                              gap_in in 0usize..64, gap_out in 0usize..64, slice in 1u64..600) {
            let view = space();
            let (pitch_in, pitch_out) = (length + gap_in, length + gap_out);
            let mut expected = contents(&view);
            for line in 0..lines {
                let from = 0x123 + line * pitch_in;
                expected.copy_within(from..from + length, 0x2fff + line * pitch_out);
            }
            let source = Work::Copy(pitch(0x123, pitch_in));
            let target = pitch(0x2fff, pitch_out);
            let transfer = Transfer::new(source, target, length as u64, lines as u32);
            run(&view, transfer, slice);
            prop_assert!(contents(&view) == expected);
        }
    }

    #[test]
    fn others_may_write_the_memory_during_a_copy() {
        const ROUNDS: u32 = 2000;
        let view = space();
        // The copy writes the first byte of the word after its whole words; a thread counts in the other three.
        let (source, target) = (BASE, BASE + 0x1000);
        let word = |va| {
            let pointer = view.pointer(va, 4, Access::Atomic).unwrap();
            // SAFETY: aligned, in memory that the view keeps alive, which all access as atomic words.
            unsafe { AtomicU32::from_ptr(pointer.cast()) }
        };
        word(target + 0x40).store(0, Ordering::Relaxed);
        word(source + 0x20).store(0, Ordering::Relaxed);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..ROUNDS {
                    word(target + 0x40).fetch_add(0x100, Ordering::Relaxed);
                    word(source + 0x20).store(round, Ordering::Relaxed);
                }
            });
            for _ in 0..ROUNDS {
                move_bytes(&view, source, target, 0x41).unwrap();
                assert!(word(target + 0x20).load(Ordering::Relaxed) < ROUNDS, "half of a word");
            }
        });
        let counted = word(target + 0x40).load(Ordering::Relaxed);
        assert_eq!(counted & !0xff, ROUNDS << 8, "a store to the neighbouring bytes is lost");
    }

    #[test]
    fn constants_fill_memory_without_reading() {
        let view = space();
        let mut expected = contents(&view);
        let components = components(&[4, 5], [0x1111_2222, 0x3333_4444]);
        let work = Work::Remap { source: None, size: 4, sources: 1, components };
        run(&view, Transfer::new(work, pitch(0x0ff8, 0), 1000, 1), 100);
        for pair in expected[0x0ff8..][..8000].chunks_exact_mut(8) {
            pair.copy_from_slice(&0x3333_4444_1111_2222u64.to_le_bytes());
        }
        assert!(contents(&view) == expected);
    }

    #[test]
    fn components_are_swizzled_and_kept() {
        let view = space();
        view.write(BASE, &[1, 2, 3, 4, 5, 6]).unwrap();
        view.write(BASE + 0x100, &[0xaa; 8]).unwrap();
        // Three source bytes to four target bytes: Z, X, kept, constant A.
        let components = components(&[2, 0, 6, 4], [0x77, 0]);
        let work = Work::Remap { source: Some(pitch(0, 0)), size: 1, sources: 3, components };
        run(&view, Transfer::new(work, pitch(0x100, 0), 2, 1), 4);
        assert_eq!(contents(&view)[0x100..0x108], [3, 1, 0xaa, 0x77, 6, 4, 0xaa, 0x77]);
    }

    #[test]
    fn faults_name_the_first_missing_byte() {
        let view = space();
        let end = BASE + BYTES as u64;
        let mut transfer = Transfer::new(Work::Copy(pitch(BYTES - 0x10, 0)), pitch(0, 0), 0x20, 1);
        let fault = transfer.step(&view, 0x1000).unwrap_err();
        assert_eq!((fault.va, fault.access), (end, Access::Read));
        let mut transfer = Transfer::new(Work::Copy(pitch(0, 0)), pitch(BYTES - 4, 0), 8, 1);
        let fault = transfer.step(&view, 0x1000).unwrap_err();
        assert_eq!((fault.va, fault.access), (end, Access::Write));
    }
}
