//! What the code of a block reads and writes.

use crate::sm::exec::steps::eight::{LANES, Part};
use crate::sm::warp::Row;

/// Words that the loads of a block may have.
pub(super) const WORDS: usize = 64;

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
    /// The registers of the warp.
    pub(super) registers: *mut Row,
    /// Its predicates; each byte has eight lanes.
    pub(super) predicates: *mut u32,
    /// Its uniform registers.
    pub(super) uniform: *const u32,
    /// Vectors of all masks of eight lanes.
    pub(super) lanes: *const Part,
    /// Constant banks.
    pub(super) banks: [*const u8; 8],
    /// Lanes of the path.
    pub(super) mask: u32,
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
            registers: core::ptr::null_mut(),
            predicates: core::ptr::null_mut(),
            uniform: core::ptr::null(),
            lanes: LANES.as_ptr(),
            banks: [core::ptr::null(); 8],
            mask: 0,
            counted: 0,
        })
    }

    /// Makes words come from the rows of the frame.
    #[inline(always)]
    pub(super) fn use_rows(&mut self, first: usize, count: usize) {
        for (words, row) in self.words[first..first + count].iter_mut().zip(&self.rows[first..]) {
            for (to, eight) in words.iter_mut().zip(row.as_chunks::<8>().0) {
                *to = eight.as_ptr().cast();
            }
        }
    }
}

impl core::fmt::Debug for Frame {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Frame").finish_non_exhaustive()
    }
}
