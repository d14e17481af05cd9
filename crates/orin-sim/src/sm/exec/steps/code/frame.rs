//! What the code of a block reads and writes.

use core::ffi::c_void;

use super::loads::{Group, find};
use crate::sm::constants::Constants;
use crate::sm::exec::steps::eight::{LANES, Part};
use crate::sm::warp::{Row, Warp};

/// Words that the loads of a block may have.
pub(super) const WORDS: usize = 64;

/// No slot of a page.
pub(super) const NO_STOP: u32 = u32::MAX;

/// Vectors that a block may keep in memory for a while.
pub(super) const SPILLS: usize = 32;

/// The operands of the code of a block: pointers to the state of a warp, and room for intermediate values.
#[repr(C, align(32))]
pub(in crate::sm) struct Frame {
    pub(super) spills: [Part; SPILLS],
    /// Loaded words in the order of lanes, where they are not read from where they are.
    pub(super) rows: [Row; WORDS],
    /// Eight lanes of each loaded word.
    pub(super) words: [[*const u8; 4]; WORDS],
    /// Uniform registers that the block will have written.
    pub(super) uniform: [u32; 64],
    /// The numbers of the lanes.
    pub(super) numbers: Row,
    pub(super) warp: *mut Warp,
    /// The index of the CTA.
    pub(super) block: *const [u32; 3],
    /// The [`Machine`](crate::sm::exec::steps::Machine) for [`Group::find`], and the function that calls it.
    pub(super) machine: *mut c_void,
    pub(super) find: unsafe extern "sysv64" fn(*mut Frame, *const Group, usize) -> bool,
    /// The functions of the page's blocks by slot, for paths with all lanes and for any path; 0 for none.
    pub(super) entries: *const [usize; 2],
    /// Vectors of all masks of eight lanes.
    pub(super) lanes: *const Part,
    /// Constant banks.
    pub(super) banks: [*const u8; 8],
    /// Lanes of the path.
    pub(super) mask: u32,
    /// Instructions that may still be executed.
    pub(super) left: u32,
    /// The slot of the next instruction.
    pub(super) slot: u32,
    /// Slots to which branches must be left to the warp, because paths wait there.
    pub(super) stops: [u32; 2],
    /// Number of instructions without guards.
    pub(super) unguarded: u32,
    /// Number of lanes that executed instructions with guards.
    pub(super) counted: u32,
}

// SAFETY: the pointers are set before each use, by the thread that uses them.
unsafe impl Send for Frame {}

impl Frame {
    pub(in crate::sm) fn new() -> Box<Self> {
        Box::new(Self {
            spills: [[0; 8]; SPILLS],
            rows: [[0; 32]; WORDS],
            words: [[core::ptr::null(); 4]; WORDS],
            uniform: [0; 64],
            // CAST: below 32.
            numbers: core::array::from_fn(|lane| lane as u32),
            warp: core::ptr::null_mut(),
            block: core::ptr::null(),
            machine: core::ptr::null_mut(),
            find,
            entries: core::ptr::null(),
            lanes: LANES.as_ptr(),
            banks: [core::ptr::null(); 8],
            mask: 0,
            left: 0,
            slot: 0,
            stops: [NO_STOP; 2],
            unguarded: 0,
            counted: 0,
        })
    }

    /// Sets the constants of all blocks that are executed from now on.
    pub(in crate::sm) fn set_constants(&mut self, constants: &Constants) {
        for (bank, pointer) in self.banks.iter_mut().enumerate() {
            *pointer = constants.readable(bank).as_ptr();
        }
    }

    /// Makes words come from the rows of the frame.
    #[inline(always)]
    pub(super) fn use_rows(&mut self, first: usize, count: usize) {
        // Not by iterators, which are not inlined in builds without optimisation at link time.
        for at in first..first + count {
            let row: *const u8 = self.rows[at].as_ptr().cast();
            self.words[at] = [row, row.wrapping_add(32), row.wrapping_add(64), row.wrapping_add(96)];
        }
    }
}

impl core::fmt::Debug for Frame {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Frame").finish_non_exhaustive()
    }
}
