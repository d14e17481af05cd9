//! Stores of blocks.
//!
//! As for loads, the addresses are known when the block starts. The code puts the words into rows, and when all lanes
//! have been computed, the stores are executed in order. No load follows a store in a block.

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

use super::frame::Frame;
use super::loads::Group;
use crate::sm::exec::memory::Format;
use crate::sm::exec::steps::Machine;
use crate::sm::exec::steps::code::loads::Pattern;
use crate::sm::exec::steps::eight::{Eight, Native as V};
use crate::sm::warp::{FULL, Row, lanes};

/// A store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Store {
    pub(super) offset: i64,
    pub(super) format: Format,
    /// Index of the row of its first word.
    pub(super) first: usize,
    /// Index of the places of its group.
    pub(super) found: usize,
}

/// Where the stores of a group go.
#[derive(Debug)]
pub(super) struct Found {
    /// The byte with the lowest address and offset.
    base: *mut u8,
    /// Distance of each lane in bytes.
    at: Row,
    active: u32,
    /// The lowest offset.
    least: i64,
    /// Whether all lanes store, each eight of them to consecutive words.
    runs: bool,
}

impl Default for Found {
    fn default() -> Self {
        Self { base: core::ptr::null_mut(), at: [0; 32], active: 0, least: 0, runs: false }
    }
}

impl Group {
    /// Finds where the stores of lanes with these addresses go. Returns false if the handlers must execute the block.
    #[inline(always)]
    pub(super) fn find_stores(
        &self,
        m: &mut Machine,
        found: &mut Found,
        at: &Row,
        active: u32,
        base: u64,
    ) -> bool {
        let (mut lowest, mut highest, mut all) = (u32::MAX, 0, 0);
        let mut runs = active == FULL && self.bytes() == 4;
        if runs {
            let parts = at.as_chunks::<8>().0;
            for eight in 0..4 {
                let Some(Pattern::Run(start)) = Pattern::of(V::load(&parts[eight]), &parts[eight], 0xff)
                else {
                    runs = false;
                    break;
                };
                let Some(last) = start.checked_add(28) else { return false };
                (lowest, highest, all) = (lowest.min(start), highest.max(last), all | start);
            }
        }
        if !runs {
            (lowest, highest, all) = (u32::MAX, 0, 0);
            for lane in lanes(active) {
                (lowest, highest, all) = (lowest.min(at[lane]), highest.max(at[lane]), all | at[lane]);
            }
        }
        let Some(pointer) = self.pointer(m, lowest, highest, all, base) else { return false };
        (found.base, found.active, found.least, found.runs) = (pointer, active, self.least, runs);
        for lane in 0..32 {
            found.at[lane] = at[lane].wrapping_sub(lowest);
        }
        true
    }
}

impl Found {
    /// Notes that all lanes store to consecutive words.
    #[inline(always)]
    pub(super) fn set_run(&mut self, base: *mut u8, least: i64) {
        (self.base, self.active, self.least, self.runs) = (base, FULL, least, true);
        // Of a run, only the first lane of each eight is used.
        (self.at[0], self.at[8], self.at[16], self.at[24]) = (0, 32, 64, 96);
    }

    /// Notes that no lane stores.
    pub(super) fn clear(&mut self) {
        (self.active, self.runs) = (0, false);
    }
}

/// Executes the stores of a block, for its code.
///
/// # Safety
///
/// [`Group::find_stores`] has found where they go, and the processor has the features. There are `count` stores.
#[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
pub(super) unsafe extern "sysv64" fn commit(frame: *mut Frame, stores: *const Store, count: usize) {
    // SAFETY: as the caller guarantees. While the code waits, nothing else uses the frame.
    let (frame, stores) = unsafe { (&mut *frame, core::slice::from_raw_parts(stores, count)) };
    for store in stores {
        let Found { base, at, active, least, runs } = &frame.found[store.found];
        // CAST: below the span of a group.
        let base = base.wrapping_add((store.offset - least) as usize);
        if let Some(journal) = &mut frame.journal {
            for lane in lanes(*active) {
                let at = if *runs { at[lane & !7] as usize + 4 * (lane & 7) } else { at[lane] as usize };
                // SAFETY: the bytes are accessible as long as the grid runs.
                unsafe { journal.note(base.wrapping_add(at), store.format.bytes as usize) };
            }
        }
        if *runs {
            let row = &frame.rows[store.first];
            for eight in 0..4 {
                let to = base.wrapping_add(at[8 * eight] as usize).cast();
                // SAFETY: eight words are accessible there. Concurrent readers can see them torn only between lanes,
                // as on hardware.
                unsafe { core::ptr::copy_nonoverlapping(row[8 * eight..].as_ptr(), to, 8) };
            }
            continue;
        }
        let row = |step: usize| &frame.rows[store.first + step];
        for lane in lanes(*active) {
            let to = base.wrapping_add(at[lane] as usize);
            let double = |at: usize| u64::from(row(2 * at)[lane]) | u64::from(row(2 * at + 1)[lane]) << 32;
            // SAFETY: the bytes are accessible and aligned to their number. Atomic, because other threads may access
            // them at any time.
            // CAST: the stored part of the word.
            unsafe {
                match store.format.bytes {
                    1 => AtomicU8::from_ptr(to).store(row(0)[lane] as u8, Relaxed),
                    2 => AtomicU16::from_ptr(to.cast()).store(row(0)[lane] as u16, Relaxed),
                    4 => AtomicU32::from_ptr(to.cast()).store(row(0)[lane], Relaxed),
                    bytes => {
                        for at in 0..bytes as usize / 8 {
                            AtomicU64::from_ptr(to.cast::<u64>().add(at)).store(double(at), Relaxed);
                        }
                    }
                }
            }
        }
    }
}
