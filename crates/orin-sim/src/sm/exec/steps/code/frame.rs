//! What the code of a block reads and writes.

use core::ffi::c_void;

use super::links::pass;
use super::loads::{Group, find};
use super::shuffles::{Shuffle, shuffle};
use super::stores::{Found, Store, commit};
use crate::sm::constants::Constants;
use crate::sm::exec::steps::eight::{LANES, Part, ROUNDING, mufu_in_place};
use crate::sm::warp::{Row, Warp};

/// Words that the loads of a block may have.
pub(super) const WORDS: usize = 64;

/// No slot of a page.
pub(super) const NO_STOP: u32 = u32::MAX;

/// Groups of stores that a block may have.
pub(super) const STORES: usize = 4;

/// Vectors that a block may keep in memory for a while.
pub(super) const SPILLS: usize = 64;

/// The operands of the code of a block: pointers to the state of a warp, and room for intermediate values.
#[repr(C, align(32))]
pub(in crate::sm) struct Frame {
    pub(super) spills: [Part; SPILLS],
    /// Loaded words in the order of lanes, where they are not read from where they are, and words to be stored.
    pub(super) rows: [Row; WORDS],
    /// Eight lanes of each loaded word.
    pub(super) words: [[*const u8; 4]; WORDS],
    /// Uniform registers that the block will have written.
    pub(super) uniform: [u32; 64],
    /// The numbers of the lanes.
    pub(super) numbers: Row,
    /// Where the stores of the block go.
    pub(super) found: [Found; STORES],
    /// What the stores have overwritten, if it is recorded.
    pub(super) journal: Option<Journal>,
    pub(super) warp: *mut Warp,
    /// The index of the CTA.
    pub(super) block: *const [u32; 3],
    /// The [`Machine`](crate::sm::exec::steps::Machine) for [`Group::find`], and the function that calls it.
    pub(super) machine: *mut c_void,
    pub(super) find: unsafe extern "sysv64" fn(*mut Frame, *const Group, usize) -> bool,
    /// The function that executes the stores of a block.
    pub(super) commit: unsafe extern "sysv64" fn(*mut Frame, *const Store, usize),
    /// The function that executes SHFL.
    pub(super) shuffle: unsafe extern "sysv64" fn(*mut Frame, *const Shuffle, usize),
    /// MUFU of eight lanes.
    pub(super) mufu: unsafe extern "sysv64" fn(*mut Part, u32),
    /// Checks that all lanes pass an instruction that may wait.
    pub(super) pass: unsafe extern "sysv64" fn(*mut Frame, u32) -> bool,
    /// The functions of the page's blocks by slot, for paths with all lanes and for any path; 0 for none.
    pub(super) entries: *const [usize; 2],
    /// Vectors of all masks of eight lanes.
    pub(super) lanes: *const Part,
    /// Values of the control register.
    pub(super) rounding: *const u32,
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
            found: core::array::from_fn(|_| Found::default()),
            journal: None,
            warp: core::ptr::null_mut(),
            block: core::ptr::null(),
            machine: core::ptr::null_mut(),
            find,
            commit,
            shuffle,
            mufu: mufu_in_place,
            pass,
            entries: core::ptr::null(),
            lanes: LANES.as_ptr(),
            rounding: ROUNDING.as_ptr(),
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

    /// Records what stores overwrite from now on.
    pub(in crate::sm) fn start_journal(&mut self) {
        self.journal = Some(Journal::default());
    }

    /// Ends the record.
    pub(in crate::sm) fn take_journal(&mut self) -> Journal {
        self.journal.take().unwrap_or_default()
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

/// Bytes that stores have overwritten, in order.
#[derive(Debug, Default)]
pub(in crate::sm) struct Journal(Vec<(*mut u8, u8)>);

impl Journal {
    /// Notes the bytes at a place.
    ///
    /// # Safety
    ///
    /// They can be read and written until the journal is dropped.
    #[cold]
    pub(super) unsafe fn note(&mut self, at: *mut u8, bytes: usize) {
        // SAFETY: as the caller guarantees.
        self.0.extend((0..bytes).map(|step| unsafe { (at.add(step), at.add(step).read_volatile()) }));
    }

    /// Exchanges the bytes with the noted ones, which undoes the stores.
    pub(in crate::sm) fn exchange(&mut self) {
        for (at, noted) in self.0.iter_mut().rev() {
            // SAFETY: as `note` requires.
            unsafe {
                let now = at.read_volatile();
                at.write_volatile(*noted);
                *noted = now;
            }
        }
    }

    /// Whether memory differs from what the stores had written when they were undone.
    pub(in crate::sm) fn differs(&self) -> bool {
        let mut known = std::collections::HashSet::new();
        // SAFETY: as `note` requires. Of several stores to a byte the last one counts.
        self.0.iter().rev().any(|(at, value)| known.insert(*at) && unsafe { at.read_volatile() } != *value)
    }
}

impl core::fmt::Debug for Frame {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Frame").finish_non_exhaustive()
    }
}
