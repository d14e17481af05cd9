//! How the code of a block begins and ends: what it checks, and where it goes on.

use core::mem::offset_of;

use super::assembler::{Condition, Place, R9, R10, RAX, RCX, RDI, RDX, RSI};
use super::emit::Emitter;
use super::frame::Frame;
use super::loads::Group;
use super::shuffles::Shuffle;
use super::stores::Store;
use crate::sm::warp::LAYOUT;

/// What precedes and follows the computations of a block.
#[derive(Debug)]
pub(super) struct Links<'g> {
    /// The slot of its first instruction.
    pub(super) slot: usize,
    /// Numbers of instructions and of those without a guard, below 128.
    pub(super) length: usize,
    pub(super) unguarded: u64,
    pub(super) groups: &'g [Group],
    pub(super) stores: &'g [Store],
    pub(super) shuffles: &'g [Shuffle],
    pub(super) branch: Option<Branch>,
    pub(super) stop: Option<Stop>,
}

/// An instruction after a block at which lanes may wait.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stop {
    /// BSYNC of a barrier.
    Converge(u32),
    /// WARPSYNC of all lanes.
    Together,
    /// YIELD.
    Yield,
}

impl Stop {
    /// Its number for [`pass`]; that of a barrier is the barrier's.
    fn number(self) -> u32 {
        match self {
            Self::Converge(barrier) => barrier & 15,
            Self::Together => 16,
            Self::Yield => 17,
        }
    }
}

/// Returns whether all lanes of the path pass a [`Stop`] without waiting or changing paths, as they usually do.
///
/// # Safety
///
/// The frame has the warp.
pub(super) unsafe extern "sysv64" fn pass(frame: *mut Frame, number: u32) -> bool {
    // SAFETY: the warp is that of the machine, which the caller of the code borrows. While the code waits, nothing
    // else uses it.
    let warp = unsafe { &mut *(*frame).warp };
    match number {
        0..16 => warp.is_converged(warp.path.mask, number as usize),
        16 => warp.live & !warp.path.mask == 0,
        _ => warp.yield_alone(),
    }
}

/// The branch after a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Branch {
    /// The predicate that a guard reads, whether inverted, and whether it is a uniform one.
    pub(super) guard: Option<(u8, bool, bool)>,
    /// The slot that it leads to.
    pub(super) target: usize,
}

impl Emitter<'_> {
    /// Emits the start of the function, whose only argument is the frame.
    pub(super) fn begin(&mut self, links: &Links) {
        let left = Place::at(RDI, offset_of!(Frame, left));
        // CAST: below 128, here and below.
        let length = Some(links.length as u8);
        self.assembler.general_with(&[0x83], 7, left, false, length);
        self.leave_if(Condition::Below, links.slot);
        if !links.groups.is_empty() {
            self.call(offset_of!(Frame, find), links.groups);
            // test al, al
            self.assembler.bytes(&[0x84, 0xc0]);
            self.leave_if(Condition::Equal, links.slot);
        }
        if !links.shuffles.is_empty() {
            self.call(offset_of!(Frame, shuffle), links.shuffles);
        }
        self.assembler.general_with(&[0x83], 5, left, false, length);
        let unguarded = Place::at(RDI, offset_of!(Frame, unguarded));
        self.assembler.general_with(&[0x83], 0, unguarded, false, Some(links.unguarded as u8));
        self.assembler.general(&[0x8b], RDX, Place::at(RDI, offset_of!(Frame, warp)), true);
        self.assembler.general(&[0x8b], RSI, Place::at(RDX, LAYOUT.registers), true);
        self.assembler.general(&[0x8b], R10, Place::at(RDI, offset_of!(Frame, lanes)), true);
        // The number of eight lanes, and their offset in a row.
        self.assembler.general(&[0x31], RCX, RCX.into(), false);
        self.assembler.general(&[0x31], R9, R9.into(), false);
    }

    /// Emits a word of 32 bits.
    fn word(&mut self, value: usize) {
        // CAST: slots and small numbers.
        self.assembler.bytes(&(value as u32).to_le_bytes());
    }

    /// Returns on a condition; execution goes on at a slot.
    fn leave_if(&mut self, condition: Condition, slot: usize) {
        let jump = self.assembler.jump_if(condition);
        self.exits.push((jump, slot));
    }

    /// Calls a function of the frame with the frame, a pointer and a length.
    fn call<T>(&mut self, function: usize, items: &[T]) {
        // push rdi; mov rsi, items; mov edx, count; call; pop rdi
        self.assembler.bytes(&[0x57, 0x48, 0xbe]);
        self.assembler.bytes(&items.as_ptr().expose_provenance().to_le_bytes());
        self.assembler.bytes(&[0xba]);
        self.word(items.len());
        self.assembler.general_with(&[0xff], 2, Place::at(RDI, function), false, None);
        self.assembler.bytes(&[0x5f]);
    }

    /// Emits what follows the computations.
    pub(super) fn end(&mut self, links: &Links) {
        if !links.stores.is_empty() {
            self.call(offset_of!(Frame, commit), links.stores);
            self.assembler.general(&[0x8b], RDX, Place::at(RDI, offset_of!(Frame, warp)), true);
        }
        let after = links.slot + links.length;
        if let Some(Branch { guard, target }) = links.branch {
            let left = Place::at(RDI, offset_of!(Frame, left));
            let mask = Place::at(RDI, offset_of!(Frame, mask));
            self.assembler.general_with(&[0x83], 7, left, false, Some(1));
            self.leave_if(Condition::Below, after);
            match guard {
                None => self.assembler.general(&[0x8b], RAX, mask, false),
                Some((index, not, true)) => {
                    // The bit of the predicate, as a mask.
                    self.assembler.general(
                        &[0x0f, 0xb6],
                        RAX,
                        Place::at(RDX, LAYOUT.uniform_predicates),
                        false,
                    );
                    self.assembler.general_with(&[0xc1], 5, RAX.into(), false, Some(index));
                    self.assembler.general_with(&[0x83], 4, RAX.into(), false, Some(1));
                    // neg, or dec
                    if not {
                        self.assembler.general_with(&[0xff], 1, RAX.into(), false, None);
                    } else {
                        self.assembler.general_with(&[0xf7], 3, RAX.into(), false, None);
                    }
                    self.assembler.general(&[0x23], RAX, mask, false);
                }
                Some((index, not, false)) => {
                    let predicate = Place::at(RDX, LAYOUT.predicates + 4 * usize::from(index));
                    self.assembler.general(&[0x8b], RAX, predicate, false);
                    if not {
                        self.assembler.general_with(&[0xf7], 2, RAX.into(), false, None);
                    }
                    self.assembler.general(&[0x23], RAX, mask, false);
                }
            }
            self.assembler.general(&[0x3b], RAX, mask, false);
            let apart = self.assembler.jump_if(Condition::Different);
            for at in 0..2 {
                let stop = Place::at(RDI, offset_of!(Frame, stops) + 4 * at);
                self.assembler.general_with(&[0x81], 7, stop, false, None);
                self.word(target);
                self.leave_if(Condition::Equal, after);
            }
            // popcnt eax, eax
            self.assembler.bytes(&[0xf3]);
            self.assembler.general(&[0x0f, 0xb8], RAX, RAX.into(), false);
            self.assembler.general(&[0x01], RAX, Place::at(RDI, offset_of!(Frame, counted)), false);
            self.assembler.general_with(&[0x83], 5, left, false, Some(1));
            self.go_on(target);
            self.assembler.land(apart);
            self.assembler.general(&[0x85], RAX, RAX.into(), false);
            self.leave_if(Condition::Different, after);
            self.assembler.general_with(&[0x83], 5, left, false, Some(1));
            self.go_on(after + 1);
        } else if let Some(stop) = links.stop {
            let left = Place::at(RDI, offset_of!(Frame, left));
            self.assembler.general_with(&[0x83], 7, left, false, Some(1));
            self.leave_if(Condition::Below, after);
            // push rdi; mov esi, number; call; pop rdi; test al, al
            self.assembler.bytes(&[0x57, 0xbe]);
            self.word(stop.number() as usize);
            self.assembler.general_with(&[0xff], 2, Place::at(RDI, offset_of!(Frame, pass)), false, None);
            self.assembler.bytes(&[0x5f, 0x84, 0xc0]);
            self.leave_if(Condition::Equal, after);
            let unguarded = Place::at(RDI, offset_of!(Frame, unguarded));
            self.assembler.general_with(&[0x83], 0, unguarded, false, Some(1));
            self.assembler.general_with(&[0x83], 5, left, false, Some(1));
            self.go_on(after + 1);
        } else {
            self.go_on(after);
        }
        for (jump, slot) in core::mem::take(&mut self.exits) {
            self.assembler.land(jump);
            self.leave(slot);
        }
    }

    /// Jumps to the block at a slot; returns if there is none.
    fn go_on(&mut self, slot: usize) {
        if slot < 256 {
            let entry = 16 * slot + 8 * usize::from(self.masked);
            self.assembler.general(&[0x8b], RAX, Place::at(RDI, offset_of!(Frame, entries)), true);
            self.assembler.general(&[0x8b], RAX, Place::at(RAX, entry), true);
            self.assembler.general(&[0x85], RAX, RAX.into(), true);
            let none = self.assembler.jump_if(Condition::Equal);
            // jmp rax
            self.assembler.general_with(&[0xff], 4, RAX.into(), false, None);
            self.assembler.land(none);
        }
        self.leave(slot);
    }

    /// Returns; execution goes on at a slot.
    fn leave(&mut self, slot: usize) {
        self.assembler.general_with(&[0xc7], 0, Place::at(RDI, offset_of!(Frame, slot)), false, None);
        self.word(slot);
        // vzeroupper, ret
        self.assembler.bytes(&[0xc5, 0xf8, 0x77, 0xc3]);
    }
}
