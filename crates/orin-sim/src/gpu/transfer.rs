//! Moving memory for the copy engine, a slice at a time.
//!
//! A transfer is a rectangle: lines of equal length whose beginnings are a pitch apart, on either
//! side. Pieces end where a mapping ends, so a transfer crosses mappings freely. Silicon promises
//! nothing for overlapping ranges; here they behave as if the source had been read as a whole first.

use crate::mmu::{Access, MmuFault, View};

/// Bytes that one remapped piece holds at most.
const PIECE_BYTES: usize = 4096;

/// What the shortest piece costs of a slice, so that very short lines are sliced too.
const PIECE_COST: u64 = 64;

/// What happens to the lines.
#[derive(Debug)]
pub(super) enum Work {
    /// Bytes are copied as they are.
    Copy(Source),
    /// Elements are put together from source components and constants.
    Remap {
        /// `None` when no component is read.
        source: Option<Source>,
        /// Bytes of a component, 1 to 4.
        size: usize,
        /// Components of a source element.
        sources: usize,
        /// For each component of a target element where it comes from.
        components: Vec<Component>,
    },
}

/// Where a target component comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Component {
    /// A component of the source element.
    Source(usize),
    /// A constant, cut to the component's size.
    Constant([u8; 4]),
    /// Memory stays as it is.
    Keep,
}

impl Work {
    /// Remapping as SET_REMAP_COMPONENTS describes it: selectors 0 to 3 are components of `source`, 4
    /// and 5 the constants, 6 leaves memory as it is.
    pub(super) fn remap(
        source: Source,
        size: usize,
        sources: usize,
        selectors: &[u32],
        constants: [u32; 2],
    ) -> Self {
        let component = |&selector: &u32| match selector {
            // CAST: below 4.
            0..=3 => Component::Source(selector as usize),
            4 => Component::Constant(constants[0].to_le_bytes()),
            5 => Component::Constant(constants[1].to_le_bytes()),
            _ => Component::Keep,
        };
        let components: Vec<_> = selectors.iter().map(component).collect();
        let reads = components.iter().any(|component| matches!(component, Component::Source(_)));
        Self::Remap { source: reads.then_some(source), size, sources, components }
    }

    /// The side that is read, if any is.
    pub(super) fn source(&self) -> Option<Source> {
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

/// The side that is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source {
    /// GPU address of the first line.
    pub(super) va: u64,
    /// Distance of lines in bytes.
    pub(super) pitch: u64,
}

/// A transfer and how far it has come.
#[derive(Debug)]
pub(super) struct Transfer {
    work: Work,
    target: u64,
    pitch: u64,
    /// Elements of a line.
    length: u64,
    lines: u32,
    /// Last line and last element first, because the target overlaps the source from above.
    descending: bool,
    lines_done: u32,
    /// Elements of the current line.
    done: u64,
}

impl Transfer {
    /// `lines` lines of `length` elements to `target`, whose lines are `pitch` bytes apart.
    pub(super) fn new(work: Work, target: u64, pitch: u64, length: u64, lines: u32) -> Self {
        let descending = work.source().is_some_and(|source| {
            let span = u64::from(lines.saturating_sub(1))
                .saturating_mul(source.pitch)
                .saturating_add(length.saturating_mul(work.source_bytes()));
            source.va < target && target - source.va < span
        });
        Self { work, target, pitch, length, lines, descending, lines_done: 0, done: 0 }
    }

    /// Moves about `budget` bytes; true when nothing is left.
    ///
    /// # Errors
    ///
    /// The fault that the MMU raises; what was moved before stays.
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

    /// Moves between one and `count` elements of the current line and says how many.
    fn piece(&self, view: &View, count: u64) -> Result<u64, MmuFault> {
        let line = if self.descending { self.lines - 1 - self.lines_done } else { self.lines_done };
        let begin = |va: u64, pitch: u64| va.wrapping_add(u64::from(line).wrapping_mul(pitch));
        let target = begin(self.target, self.pitch);
        match &self.work {
            Work::Copy(source) => self.bytes(view, begin(source.va, source.pitch), target, count),
            Work::Remap { source, size, components, .. } => {
                // CAST: an element has at most 16 bytes.
                let count = count.min(PIECE_BYTES as u64 / 16);
                let first = if self.descending { self.length - self.done - count } else { self.done };
                let source = source.map(|source| {
                    begin(source.va, source.pitch).wrapping_add(first * self.work.source_bytes())
                });
                let target = target.wrapping_add(first * self.work.target_bytes());
                self.remapped(view, source, target, (*size, components), count)?;
                Ok(count)
            }
        }
    }

    fn bytes(&self, view: &View, source: u64, target: u64, count: u64) -> Result<u64, MmuFault> {
        // The piece ends at `left` bytes before the end of the line, or begins after `done` bytes.
        let (from, to, len) = if self.descending {
            let (source_end, target_end) =
                (source.wrapping_add(self.length - self.done), target.wrapping_add(self.length - self.done));
            let below = |end: u64, access| {
                let span = view.span(end.wrapping_sub(1), access)?;
                // Where stores are no plain stores, a page at a time.
                let start =
                    if span.writable || access == Access::Read { span.va } else { (end - 1) & !0xfff };
                Ok(end - start)
            };
            let len = count.min(below(source_end, Access::Read)?).min(below(target_end, Access::Write)?);
            (source_end - len, target_end - len, len)
        } else {
            let (from, to) = (source.wrapping_add(self.done), target.wrapping_add(self.done));
            // CAST: pieces are bounded by what is left, which fits either type.
            let above = |va, access| view.piece(va, count as usize, access).map(|len| len as u64);
            let len = above(from, Access::Read)?.min(above(to, Access::Write)?);
            (from, to, len)
        };
        let from = view.pointer(from, len, Access::Read)?;
        let to = view.pointer(to, len, Access::Write)?;
        // SAFETY: both ranges lie inside one mapping each, which the view keeps alive; `copy`
        // allows overlap. Other accessors race with the copy as they do on silicon.
        // CAST: a CPU mapping's length fits usize.
        unsafe { core::ptr::copy(from, to, len as usize) };
        Ok(len)
    }

    fn remapped(
        &self,
        view: &View,
        source: Option<u64>,
        target: u64,
        (size, components): (usize, &[Component]),
        count: u64,
    ) -> Result<(), MmuFault> {
        // CAST: bounded by PIECE_BYTES.
        let count = count as usize;
        // CAST: at most 16.
        let (source_bytes, target_bytes) =
            (self.work.source_bytes() as usize, self.work.target_bytes() as usize);
        let (mut input, mut output) = ([0; PIECE_BYTES], [0; PIECE_BYTES]);
        let (input, output) = (&mut input[..count * source_bytes], &mut output[..count * target_bytes]);
        if let Some(source) = source {
            view.read(source, input)?;
        }
        if components.contains(&Component::Keep) {
            view.read(target, output)?;
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
        view.write(target, output)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::memory::Memory;
    use crate::mmu::{AddressSpace, MappedRange};

    const BASE: u64 = 0x10_0000;
    const BYTES: usize = 0x6000;

    /// Adjacent mappings of separate memories, so that every transfer may cross from one to another.
    fn space() -> View {
        let space = AddressSpace::new();
        for index in 0..6 {
            space.map(MappedRange {
                va: BASE + index * 0x1000,
                len: 0x1000,
                memory: Arc::new(Memory::new("transfer", 0x1000).unwrap()),
                offset: 0,
                writable: true,
            });
        }
        let view = space.view();
        let pattern: Vec<u8> = (0..BYTES).map(|index| (index * 7 + index / 251) as u8).collect();
        view.write(BASE, &pattern).unwrap();
        view
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
            let source = Source { va: BASE + from as u64, pitch: 0 };
            let transfer = Transfer::new(Work::Copy(source), BASE + to as u64, 0, len as u64, 1);
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
            let source = Source { va: BASE + 0x123, pitch: pitch_in as u64 };
            let transfer = Transfer::new(Work::Copy(source), BASE + 0x2fff, pitch_out as u64,
                                         length as u64, lines as u32);
            run(&view, transfer, slice);
            prop_assert!(contents(&view) == expected);
        }
    }

    #[test]
    fn constants_fill_memory_without_reading() {
        let view = space();
        let mut expected = contents(&view);
        let work = Work::remap(Source { va: 0, pitch: 0 }, 4, 1, &[4, 5], [0x1111_2222, 0x3333_4444]);
        run(&view, Transfer::new(work, BASE + 0x0ff8, 0, 1000, 1), 100);
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
        let work = Work::remap(Source { va: BASE, pitch: 0 }, 1, 3, &[2, 0, 6, 4], [0x77, 0]);
        run(&view, Transfer::new(work, BASE + 0x100, 0, 2, 1), 4);
        assert_eq!(contents(&view)[0x100..0x108], [3, 1, 0xaa, 0x77, 6, 4, 0xaa, 0x77]);
    }

    #[test]
    fn faults_name_the_first_missing_byte() {
        let view = space();
        let end = BASE + BYTES as u64;
        let source = Source { va: end - 0x10, pitch: 0 };
        let mut transfer = Transfer::new(Work::Copy(source), BASE, 0, 0x20, 1);
        let fault = transfer.step(&view, 0x1000).unwrap_err();
        assert_eq!((fault.va, fault.access), (end, Access::Read));
        let source = Source { va: BASE, pitch: 0 };
        let mut transfer = Transfer::new(Work::Copy(source), end - 4, 0, 8, 1);
        let fault = transfer.step(&view, 0x1000).unwrap_err();
        assert_eq!((fault.va, fault.access), (end, Access::Write));
    }
}
