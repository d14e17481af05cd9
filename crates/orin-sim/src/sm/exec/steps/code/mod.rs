//! Machine code for sequences of instructions: blocks.
//!
//! A *block* is a sequence of instructions of a run that compute each lane by itself, or access memory at addresses
//! that are known when the block starts. None of them can fault then, so eight lanes execute the whole sequence before
//! the next eight do, with intermediate values in vector registers. Besides memory, a block only touches the
//! registers, predicates and barriers of its warp, and reads constants and special registers.
//!
//! A block may end with a branch. As long as all lanes of the path go the same way and there is fuel, the code of a
//! block jumps to that of the next one, through a table that each thread has for each page: loops remain in the code.

mod assembler;
mod build;
mod emit;
mod frame;
mod graph;
mod links;
#[allow(clippy::needless_range_loop, reason = "as for arithmetic")]
mod loads;
mod memory;
#[allow(clippy::needless_range_loop, reason = "as for arithmetic")]
mod shuffles;
#[allow(clippy::needless_range_loop, reason = "as for arithmetic")]
mod stores;

use core::ops::Range;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};

use super::Machine;
use crate::mmu::PAGE_BYTES;
use crate::sm::constants::Constants;
use crate::sm::program::Slot;
use assembler::Assembler;
use build::Builder;
pub(in crate::sm) use frame::Frame;
use frame::NO_STOP;
use graph::Graph;
use links::Links;
use loads::Group;
use memory::Code;
pub(super) use memory::bytes;
use shuffles::Shuffle;
use stores::Store;

/// The code of a block; its argument is the frame.
type Function = unsafe extern "sysv64" fn(*mut Frame);

/// A compiled block.
#[derive(Debug)]
pub(super) struct Block {
    length: usize,
    /// The code refers to them.
    _accesses: Accesses,
    /// Size that each constant bank must have.
    banks: [u32; 8],
    /// The functions for a path with all lanes, and for any path.
    functions: [Function; 2],
    /// Where the functions are.
    _code: Arc<Code>,
}

/// The accesses of a block, and what it reads from other lanes.
type Accesses = (Box<[Group]>, Box<[Store]>, Box<[Shuffle]>);

/// What the code of blocks has executed.
pub(super) struct Executed {
    /// Number of instructions.
    pub(super) instructions: usize,
    /// Number of their lanes.
    pub(super) lanes: u64,
    /// The slot of the next instruction.
    pub(super) slot: usize,
}

impl Block {
    /// Returns the number of instructions.
    pub(super) fn length(&self) -> usize {
        self.length
    }

    /// Whether the block can be used with these constants.
    pub(super) fn fits(&self, constants: &Constants) -> bool {
        self.banks.iter().zip(0..).all(|(bytes, bank)| constants.readable(bank).len() >= *bytes as usize)
    }

    /// Returns the addresses of the functions, for the table of a page.
    pub(super) fn addresses(&self) -> [usize; 2] {
        self.functions.map(|function| function as usize)
    }

    /// Executes the block and those after it, at most `budget` instructions. `None` if its steps must be executed one
    /// by one.
    ///
    /// # Safety
    ///
    /// The processor must support the vector extensions; this block and those in `entries` must fit the launch and the
    /// constants, which are those of the frame.
    #[inline(always)]
    pub(super) unsafe fn execute(
        &self,
        m: &mut Machine,
        frame: &mut Frame,
        entries: &[[usize; 2]],
        budget: usize,
    ) -> Option<Executed> {
        debug_assert_eq!(entries.len(), 256, "an entry for each slot of a page");
        let (mask, page) = (m.warp.path.mask, m.pc / PAGE_BYTES);
        // CAST: a phase is shorter.
        let mut budget = budget as u32;
        if m.warp.diverged() {
            frame.stops = [NO_STOP; 2];
            let mut stops = m.warp.ready_elsewhere().filter(|pc| pc / PAGE_BYTES == page);
            for stop in &mut frame.stops {
                // CAST: below 256.
                *stop = stops.next().map_or(NO_STOP, |pc| (pc % PAGE_BYTES / 16) as u32);
            }
            if stops.next().is_some() {
                budget = budget.min(self.length as u32);
            }
        }
        (frame.mask, frame.counted, frame.unguarded, frame.left) = (mask, 0, 0, budget);
        (frame.warp, frame.block) = (&raw mut *m.warp, &raw const m.context.block);
        (frame.machine, frame.entries) = ((&raw mut *m).cast(), entries.as_ptr());
        let function = self.functions[usize::from(mask != !0)];
        // SAFETY: the code was generated from validated instructions. It accesses the frame, the registers below the
        // launch's number and the other state of the warp, constants within the sizes in `banks`, and words that `find`
        // has found accessible.
        unsafe { function(frame) };
        let executed = budget - frame.left;
        frame.stops = [NO_STOP; 2];
        (executed != 0).then(|| Executed {
            instructions: executed as usize,
            lanes: u64::from(frame.unguarded) * u64::from(mask.count_ones()) + u64::from(frame.counted),
            slot: frame.slot as usize,
        })
    }
}

/// The blocks of a page of code.
#[derive(Debug, Default)]
pub(in crate::sm) struct Compiled(OnceLock<Box<[Entry; 256]>>);

/// What is known about the instructions from a slot on.
#[derive(Debug, Default)]
struct Entry {
    /// How often a run from here on was executed without code.
    heat: AtomicU32,
    /// The block; `None` inside if there can be none.
    block: OnceLock<Option<Arc<Block>>>,
}

impl Compiled {
    /// Executions of a run before code is generated, which takes as long as some hundred executions.
    const HOT: u32 = 64;

    fn entries(&self) -> &[Entry; 256] {
        self.0.get_or_init(|| Box::new(core::array::from_fn(|_| Entry::default())))
    }

    /// Returns the block that begins at slot `at`.
    pub(super) fn block(&self, at: usize) -> Option<&Arc<Block>> {
        self.entries()[at].block.get()?.as_ref()
    }

    /// Counts an execution of the run of `length` instructions from slot `at` on, and generates code for it if it is
    /// `eager` or has been executed often. Returns whether the decision about code has been made.
    pub(super) fn warm(&self, slots: &[Slot], at: usize, length: usize, eager: bool) -> bool {
        let entries = self.entries();
        let entry = &entries[at];
        if entry.block.get().is_some() {
            return true;
        }
        if entry.heat.fetch_add(1, Relaxed) + 1 < Self::HOT && !eager {
            return false;
        }
        let mut assembler = Assembler::default();
        let mut built = Vec::new();
        let (mut slot, end) = (at, at + length);
        while slot < end {
            let next = if let Some(known) = entries[slot].block.get() {
                known.as_ref().map_or(1, |block| block.length)
            } else if let Some(block) = build(slots, slot..end, &mut assembler) {
                let length = block.length;
                built.push((slot, block));
                length
            } else {
                let _ = entries[slot].block.set(None);
                1
            };
            slot += next;
        }
        if built.is_empty() {
            return true;
        }
        let Some(code) = Code::new(&assembler.finish()).map(Arc::new) else {
            for (slot, ..) in built {
                let _ = entries[slot].block.set(None);
            }
            return true;
        };
        for (slot, Built { length, accesses, banks, starts }) in built {
            // SAFETY: a function starts there.
            let functions =
                starts.map(|start| unsafe { core::mem::transmute::<*const u8, Function>(code.at(start)) });
            // Another thread may have been faster.
            let _ = entries[slot].block.set(Some(Arc::new(Block {
                length,
                _accesses: accesses,
                banks,
                functions,
                _code: Arc::clone(&code),
            })));
        }
        true
    }
}

/// A block whose code is not executable yet.
struct Built {
    length: usize,
    accesses: Accesses,
    banks: [u32; 8],
    /// Where the functions start.
    starts: [usize; 2],
}

/// Builds the longest block from the start of a range of slots; `None` if there is none.
fn build(slots: &[Slot], range: Range<usize>, assembler: &mut Assembler) -> Option<Built> {
    let mut builder = Builder::new();
    let _ = slots[range.clone()].iter().try_for_each(|slot| builder.add(slot.as_ref().ok()?));
    let effects = builder.effects();
    let graph = Graph::finish();
    if effects.is_empty() {
        return None;
    }
    let Builder { length, unguarded, groups, stores, shuffles, banks, .. } = builder;
    let accesses: Accesses = (groups.into(), stores.into(), shuffles.into());
    let after = range.start + length;
    let branch = match slots.get(after) {
        Some(Ok(i)) if after < range.end => build::branch(i, after),
        _ => None,
    };
    let stop = match slots.get(after) {
        Some(Ok(i)) if after < range.end => build::stop(i),
        _ => None,
    };
    let (groups, stores, shuffles) = (&*accesses.0, &*accesses.1, &*accesses.2);
    let links = Links { slot: range.start, length, unguarded, groups, stores, shuffles, branch, stop };
    let mut starts = [0; 2];
    for (start, masked) in starts.iter_mut().zip([false, true]) {
        *start = assembler.align();
        emit::emit(assembler, &graph, &effects, &links, masked)?;
    }
    Some(Built { length, accesses, banks, starts })
}
