//! Paths of a warp whose blocks follow each other in generated code.

use super::frame::{ELSEWHERE, Frame, NO_STOP};
use crate::mmu::PAGE_BYTES;
use crate::sm::exec::steps::Machine;
use crate::sm::warp::{FULL, Warp};

/// Returns the slot of an address, if it is on the page.
#[inline(always)]
fn slot_on(page: u64, pc: u64) -> Option<u32> {
    // CAST: below 256.
    (pc / PAGE_BYTES == page && pc.is_multiple_of(16)).then_some((pc % PAGE_BYTES / 16) as u32)
}

impl Frame {
    /// Prepares the execution of the warp's running path, which begins with a block of `length` instructions, with fuel
    /// for `fuel` instructions.
    #[inline(always)]
    pub(super) fn grant(&mut self, warp: &Warp, page: u64, length: usize, fuel: u32) {
        self.fuel = fuel;
        // CAST: at most `fuel`.
        let mut left = warp.permitted(fuel as usize) as u32;
        self.stops = [NO_STOP; 2];
        if warp.diverged() {
            let mut stops = warp.ready_elsewhere().filter_map(|pc| slot_on(page, pc));
            for stop in &mut self.stops {
                *stop = stops.next().unwrap_or(NO_STOP);
            }
            if stops.next().is_some() {
                // CAST: at most 120.
                left = left.min(length as u32);
            }
        }
        (self.left, self.granted, self.mask) = (left, left, warp.path.mask);
    }

    /// Adds what the running path has executed to what was executed before.
    #[inline(always)]
    pub(super) fn settle(&mut self) {
        self.instructions += u64::from(self.granted - self.left);
        self.lane_instructions +=
            u64::from(self.unguarded) * u64::from(self.mask.count_ones()) + u64::from(self.counted);
        (self.granted, self.unguarded, self.counted) = (self.left, 0, 0);
    }
}

/// Executes a branch that the lanes `taken` take to a slot, but not all lanes of the path; the others go to `next`.
/// Returns the address of the code of the path that runs then; 0 if there is none.
///
/// # Safety
///
/// The frame has the machine and the entries of a page.
pub(super) unsafe extern "sysv64" fn part(frame: *mut Frame, taken: u32, target: u32, next: u32) -> usize {
    // SAFETY: as the caller guarantees. While the code waits, nothing else uses the frame or the machine.
    let frame = unsafe { &mut *frame };
    // SAFETY: as above.
    let m = unsafe { &mut *frame.machine.cast::<Machine<'_, '_>>() };
    let (warp, page) = (&mut *m.warp, m.pc / PAGE_BYTES);
    if frame.journal.is_some() {
        // The interpreter will execute all this again, so paths must remain.
        frame.slot = next - 1;
        return 0;
    }
    frame.left -= 1;
    frame.counted += taken.count_ones();
    let executed = frame.granted - frame.left;
    frame.settle();
    // As the interpreter, which counts each instruction before the next one.
    warp.spend(executed - 1);
    let at = |slot: u32| page * PAGE_BYTES + 16 * u64::from(slot);
    warp.branch(taken, at(target), at(next));
    warp.tick();
    frame.parted = true;
    let Some(slot) = slot_on(page, warp.path.pc).filter(|_| warp.path.runs()) else {
        frame.slot = ELSEWHERE;
        return 0;
    };
    frame.slot = slot;
    // A block whose length is not known here is not begun if paths wait at many places.
    frame.grant(warp, page, 0, frame.fuel - executed);
    // SAFETY: the table has an entry for each slot of the page.
    unsafe { (*frame.entries.add(slot as usize))[usize::from(frame.mask != FULL)] }
}
