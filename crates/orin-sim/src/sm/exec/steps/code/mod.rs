//! Machine code for sequences of instructions: blocks.
//!
//! A *block* is a sequence of instructions of a run that compute each lane by itself, or load from addresses that are
//! known when the block starts. None of them can fault then, so eight lanes execute the whole sequence before the next
//! eight do, with intermediate values in vector registers. A block only touches the registers and predicates of its
//! warp, and reads loaded words, constants and uniform registers.

mod assembler;
mod build;
mod emit;
mod frame;
mod graph;
#[allow(clippy::needless_range_loop, reason = "as for arithmetic")]
mod loads;
mod memory;

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};

use super::Machine;
use crate::sm::constants::Constants;
use crate::sm::program::Slot;
use assembler::Assembler;
use build::Builder;
pub(in crate::sm) use frame::Frame;
use graph::Graph;
use loads::Group;
use memory::Code;

/// The code of a block; its argument is the frame.
type Function = unsafe extern "sysv64" fn(*mut Frame);

/// A compiled block.
#[derive(Debug)]
pub(super) struct Block {
    length: usize,
    /// Number of instructions without a guard.
    unguarded: u64,
    groups: Vec<Group>,
    /// Size that each constant bank must have.
    banks: [u32; 8],
    /// The functions for a path with all lanes, and for any path.
    functions: [Function; 2],
    /// Where the functions are.
    _code: Arc<Code>,
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

    /// Executes the block. Returns the number of instructions of lanes, or `None` if its steps must be executed one by
    /// one.
    ///
    /// # Safety
    ///
    /// The processor must support the vector extensions, and the block must fit the constants and the launch.
    #[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
    pub(super) unsafe fn execute(&self, m: &mut Machine, frame: &mut Frame, mask: u32) -> Option<u64> {
        for group in &self.groups {
            if !group.find(m, frame, mask) {
                return None;
            }
        }
        (frame.mask, frame.counted) = (mask, 0);
        for bank in 0..8 {
            if self.banks[bank] != 0 {
                frame.banks[bank] = m.context.constants.readable(bank).as_ptr();
            }
        }
        (frame.registers, frame.predicates, frame.uniform) = m.warp.pointers();
        let function = self.functions[usize::from(mask != !0)];
        // SAFETY: the code was generated from validated instructions. It accesses the frame, the registers below the
        // launch's number, the predicates and uniform registers of the warp, constants within the sizes in `banks`, and
        // words that `find` has found accessible.
        unsafe { function(frame) };
        Some(self.unguarded * u64::from(mask.count_ones()) + u64::from(frame.counted))
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
            } else if let Some((builder, starts)) = build(&slots[slot..end], &mut assembler) {
                let length = builder.length;
                built.push((slot, builder, starts));
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
        for (slot, builder, starts) in built {
            // SAFETY: a function starts there.
            let functions =
                starts.map(|start| unsafe { core::mem::transmute::<*const u8, Function>(code.at(start)) });
            // Another thread may have been faster.
            let _ = entries[slot].block.set(Some(Arc::new(Block {
                length: builder.length,
                unguarded: builder.unguarded,
                groups: builder.groups,
                banks: builder.banks,
                functions,
                _code: Arc::clone(&code),
            })));
        }
        true
    }
}

/// Builds the longest block from the start of `slots`. Returns where its functions are; `None` if there is no block.
fn build(slots: &[Slot], assembler: &mut Assembler) -> Option<(Builder, [usize; 2])> {
    let mut builder = Builder::new();
    let _ = slots.iter().try_for_each(|slot| builder.add(slot.as_ref().ok()?));
    let effects = builder.effects();
    let graph = Graph::finish();
    if effects.is_empty() {
        return None;
    }
    let mut starts = [0; 2];
    for (start, masked) in starts.iter_mut().zip([false, true]) {
        *start = assembler.align();
        emit::emit(assembler, &graph, &effects, masked)?;
    }
    Some((builder, starts))
}
