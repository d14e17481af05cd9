//! A running grid, and the launches of a kernel together.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::class::{access_of, class_of, is_branch};
use super::report::{InstructionProfile, KernelProfile};
use super::{Cost, Counts, Occupancy, Profiler, Tally};
use crate::check::{Checker, Image, Known, Located};
use crate::mmu::View;
use crate::sm::Launch;

/// Largest kernel whose unexecuted instructions are listed, in bytes.
const LISTED: u64 = 1 << 20;

/// The program of a launch.
#[derive(Clone, Debug)]
struct Code {
    image: Arc<Image>,
    /// Offset of the kernel in the image.
    offset: u64,
    /// Whether the whole image is loaded as one piece.
    whole: bool,
}

impl Code {
    /// Offset in the image of the instruction at `distance` from the kernel's first one; `None` if it is elsewhere.
    fn at(&self, distance: i64) -> Option<u64> {
        let offset = self.offset.checked_add_signed(distance)?;
        let own = || self.image.extent(self.offset).is_some_and(|own| own.contains(&offset));
        (self.whole || own()).then_some(offset)
    }
}

/// Key of an entry: the counts of launches with equal keys are added.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Shape {
    /// Name, or address.
    kernel: String,
    grid: [u32; 3],
    block: [u32; 3],
    registers: u32,
    shared_bytes: u32,
    local_bytes: u32,
}

/// The profile of a running grid.
#[derive(Debug)]
pub(crate) struct GridProfile {
    profiler: Profiler,
    launch: Launch,
    view: View,
    shape: Shape,
    code: Option<Code>,
    /// Counts of host threads that have finished.
    tally: Mutex<Tally>,
}

impl GridProfile {
    pub(super) fn new(
        profiler: Profiler,
        launch: &Launch,
        view: &View,
        checker: Option<&Checker>,
        known: &Known,
    ) -> Self {
        // The profiler's own reads do not count as reads of the grid.
        let view = view.watched_by(None);
        let loaded = checker.and_then(|checker| checker.image(view.space(), launch.program_va));
        let loaded = loaded.map(|(image, offset)| Code { image, offset, whole: true });
        let code = loaded.or_else(|| {
            let (image, offset) = known.kernel(&view, launch.program_va)?;
            Some(Code { image, offset, whole: false })
        });
        let name = code.as_ref().and_then(|code| Some(code.image.function(code.offset)?.0.to_owned()));
        let shape = Shape {
            kernel: name.unwrap_or_else(|| format!("{:#x}", launch.program_va)),
            grid: launch.grid,
            block: launch.block,
            registers: launch.registers,
            shared_bytes: launch.shared_bytes,
            local_bytes: launch.local_bytes,
        };
        Self { profiler, launch: launch.clone(), view, shape, code, tally: Mutex::default() }
    }

    /// Name of the kernel, or its address.
    pub(super) fn kernel(&self) -> &str {
        &self.shape.kernel
    }

    /// Adds the counts of a thread.
    pub(crate) fn add(&self, tally: Tally) {
        self.tally.lock().merge(tally);
    }

    /// The grid has ended; `complete` if without a fault.
    pub(crate) fn finish(&self, complete: bool) {
        let tally = std::mem::take(&mut *self.tally.lock());
        let start = self.launch.program_va;
        let executed: Vec<(i64, u128, Counts)> = tally
            .instructions()
            // CAST: addresses have 49 bits.
            .map(|(pc, word, counts)| (pc.wrapping_sub(start) as i64, word, *counts))
            .collect();
        let mut state = self.profiler.0.state.lock();
        let known = state.entries.iter_mut().find(|entry| entry.is_of(&self.shape, &executed));
        let entry = match known {
            Some(entry) => entry,
            None => {
                state.entries.push(Entry::new(self));
                // PANIC: it was pushed above.
                state.entries.last_mut().expect("an entry")
            }
        };
        for (distance, word, counts) in &executed {
            let (slot, sum) = entry.instructions.entry(*distance).or_default();
            *slot = *word;
            sum.add(counts);
        }
        entry.launches += 1;
        entry.incomplete += u64::from(!complete);
        entry.read_bytes += tally.read.bytes();
        entry.written_bytes += tally.written.bytes();
    }

    /// The words of the kernel, including those not executed, by distance from the first.
    fn listing(&self) -> BTreeMap<i64, (u128, Counts)> {
        let own = self.code.as_ref().and_then(|code| code.image.extent(code.offset));
        let bytes = own.map_or(0, |own| own.end - own.start);
        // CAST: at most `LISTED`.
        let mut code = vec![0; if bytes <= LISTED { bytes as usize } else { 0 }];
        if self.view.read(self.launch.program_va, &mut code).is_err() {
            return BTreeMap::new();
        }
        let words = code.chunks_exact(16).map(|word| {
            // PANIC: the chunks have 16 bytes.
            (u128::from_le_bytes(word.try_into().expect("16 bytes")), Counts::default())
        });
        (0..).step_by(16).zip(words).collect()
    }
}

/// The launches of a kernel with one shape.
#[derive(Debug)]
pub(super) struct Entry {
    shape: Shape,
    program_va: u64,
    code: Option<Code>,
    occupancy: Occupancy,
    launches: u64,
    incomplete: u64,
    read_bytes: u64,
    written_bytes: u64,
    /// Words and counts by distance from the kernel's first instruction in bytes.
    instructions: BTreeMap<i64, (u128, Counts)>,
}

impl Entry {
    fn new(grid: &GridProfile) -> Self {
        Self {
            shape: grid.shape.clone(),
            program_va: grid.launch.program_va,
            code: grid.code.clone(),
            occupancy: Occupancy::of(&grid.launch),
            launches: 0,
            incomplete: 0,
            read_bytes: 0,
            written_bytes: 0,
            instructions: grid.listing(),
        }
    }

    /// Whether a launch is of the same kernel: other programs may have one of the same name or at the same address.
    fn is_of(&self, shape: &Shape, executed: &[(i64, u128, Counts)]) -> bool {
        let same = |(distance, word, _): &(i64, u128, Counts)| {
            self.instructions.get(distance).is_none_or(|(known, _)| known == word)
        };
        self.shape == *shape && executed.iter().all(same)
    }

    pub(super) fn profile(&self) -> KernelProfile {
        let instructions = self.instructions.iter().map(|(distance, (word, counts))| InstructionProfile {
            at: self.locate(*distance, *word),
            class: class_of(*word).to_owned(),
            access: access_of(*word).map(str::to_owned),
            cost: Cost::of(*word),
            branch: sass::decode(*word).is_ok_and(|instruction| is_branch(instruction.op)),
            counts: *counts,
        });
        let shape = self.shape.clone();
        KernelProfile {
            kernel: shape.kernel,
            grid: shape.grid,
            block: shape.block,
            registers: shape.registers,
            shared_bytes: shape.shared_bytes,
            local_bytes: shape.local_bytes,
            launches: self.launches,
            incomplete: self.incomplete,
            occupancy: self.occupancy.clone(),
            read_bytes: self.read_bytes,
            written_bytes: self.written_bytes,
            instructions: instructions.collect(),
            source: BTreeMap::new(),
        }
    }

    fn locate(&self, distance: i64, word: u128) -> Located {
        let text = |offset| sass::disassemble(word, offset).unwrap_or_default();
        let found = self.code.as_ref().and_then(|code| code.image.locate(code.at(distance)?, text));
        found.unwrap_or_else(|| {
            // Without a program: distances from the kernel's first instruction, or addresses before it.
            let (kernel, offset) = match u64::try_from(distance) {
                Ok(within) => (self.shape.kernel.clone(), within),
                Err(_) => (String::new(), self.program_va.wrapping_add_signed(distance)),
            };
            Located { kernel, offset, instruction: text(offset), ..Located::default() }
        })
    }
}
