//! Accesses of an instruction before it executes, for the checks of `crate::check`.

use sass::{Instruction, Op, field};

use super::memory::{
    Format, atomic_addresses, generic_addresses, load_store_addresses, local_addresses, matrix_addresses,
    shared_addresses, widen,
};
use super::transfer::copy_addresses;
use super::{Context, lanes};
use crate::check::{BlockCheck, Request, Role, Site};
use crate::kernel_profile::Tally;
use crate::mmu::Access;
use crate::sm::space::Space;
use crate::sm::warp::{FULL, Row, Warp};

/// Called before each instruction; implemented by the checker and the profiler.
pub(super) trait Examiner {
    /// An access. Returns the lanes that must not execute it.
    fn examine(&mut self, request: &Request, site: &Site<'_>) -> u32;

    /// Lanes execute WARPSYNC with these masks.
    fn warpsync(&self, _active: u32, _masks: &Row, _site: &Site<'_>) {}

    /// A fence of a warp.
    fn fenced(&mut self, _warp: u32) {}
}

impl Examiner for BlockCheck {
    fn examine(&mut self, request: &Request, site: &Site<'_>) -> u32 {
        self.examine(request, site)
    }

    fn warpsync(&self, active: u32, masks: &Row, site: &Site<'_>) {
        self.warpsync(active, masks, site);
    }

    fn fenced(&mut self, warp: u32) {
        self.fenced(warp);
    }
}

/// The counts of an instruction for a profile.
pub(super) struct Tallied<'a> {
    pub(super) tally: &'a mut Tally,
    /// GPU address of the instruction.
    pub(super) pc: u64,
}

impl Examiner for Tallied<'_> {
    fn examine(&mut self, request: &Request, _site: &Site<'_>) -> u32 {
        self.tally.accessed(self.pc, request);
        0
    }
}

/// Whether other threads may wait for a load or store: volatile or stronger.
fn is_strong(i: &Instruction) -> bool {
    let order = i.bits(field::ORDER);
    // For loads, 4 is the read-only path.
    matches!(order, 5..=8 | 10 | 12) || order == 4 && matches!(i.op, Op::Stg | Op::St)
}

/// Role of an atomic in synchronisation.
fn role(i: &Instruction) -> Role {
    match i.op {
        Op::AtomSwap | Op::AtomgSwap | Op::AtomsSwap => Role::Compare,
        Op::Arrives => Role::Arrive,
        Op::AtomsInc if i.bits(field::SIZE) == 2 => Role::Arrive,
        _ => Role::Plain,
    }
}

/// Examines an instruction before it is executed. Returns the lanes that must not execute it.
pub(super) fn before(
    context: &Context<'_>,
    check: &mut impl Examiner,
    warp: &Warp,
    i: &Instruction,
    active: u32,
) -> u32 {
    let site = Site { pc: warp.path.pc, warp: warp.index, tid: &warp.tid, stack: warp.row(1) };
    let mut request = Request {
        space: Space::Global,
        mask: active,
        addresses: [0; 32],
        bytes: Format::of(i).bytes,
        access: Access::Read,
        strong: is_strong(i),
        role: role(i),
    };
    match i.op {
        Op::Ldg => request.addresses = load_store_addresses(warp, i, field::SLOT_UNIFORM),
        Op::Stg => {
            request.addresses = load_store_addresses(warp, i, field::UPPER_UNIFORM);
            request.access = Access::Write;
        }
        Op::Ld => {
            request.addresses = generic_addresses(warp, i, field::SLOT_UNIFORM);
            return generic(context, check, &site, request);
        }
        Op::St => {
            request.addresses = generic_addresses(warp, i, field::UPPER_UNIFORM);
            request.access = Access::Write;
            return generic(context, check, &site, request);
        }
        Op::Atom | Op::AtomSwap | Op::Atomg | Op::AtomgSwap | Op::Red => {
            request.addresses = atomic_addresses(warp, i);
            request.access = Access::Atomic;
            request.bytes = if matches!(i.bits(field::ATOMIC_TYPE), 2 | 5 | 6) { 8 } else { 4 };
            if matches!(i.op, Op::Atom | Op::AtomSwap) {
                return generic(context, check, &site, request);
            }
        }
        Op::Ldl | Op::Stl => {
            request.addresses = widen(&local_addresses(warp, i));
            request.space = Space::Local;
            request.access = if i.op == Op::Ldl { Access::Read } else { Access::Write };
        }
        Op::Lds | Op::Sts => {
            let load = i.op == Op::Lds;
            let uniform = if load { field::SLOT_UNIFORM } else { field::UPPER_UNIFORM };
            request.addresses = widen(&shared_addresses(warp, i, uniform));
            request.space = Space::Shared;
            request.access = if load { Access::Read } else { Access::Write };
        }
        Op::Ldsm => {
            let count = 8u32 << i.bits(field::LDSM_COUNT).min(2);
            request.addresses = widen(&matrix_addresses(warp, i));
            request.mask = if count == 32 { FULL } else { (1 << count) - 1 };
            (request.space, request.bytes) = (Space::Shared, 16);
        }
        Op::Atoms | Op::AtomsSwap | Op::AtomsInc | Op::Arrives => {
            request.addresses = widen(&shared_addresses(warp, i, field::UPPER_UNIFORM));
            (request.space, request.access) = (Space::Shared, Access::Atomic);
            let wide = match i.op {
                Op::Arrives => true,
                _ => i.bits(field::SIZE) == 2,
            };
            request.bytes = if wide { 8 } else { 4 };
        }
        Op::Ldgsts => return copy(check, warp, i, &site, request),
        Op::Warpsync => {
            let mut room = [0; 32];
            let taking = active & warp.predicate(i.source_predicate(field::CONDITION));
            if let Ok(masks) = context.values(warp, i.b, &mut room) {
                check.warpsync(taking, masks, &site);
            }
            return 0;
        }
        Op::Nothing => {
            check.fenced(warp.index);
            return 0;
        }
        _ => return 0,
    }
    check.examine(&request, &site)
}

/// Examines accesses by generic addresses, which may lie in three spaces.
fn generic(context: &Context<'_>, check: &mut impl Examiner, site: &Site<'_>, request: Request) -> u32 {
    let mut parts = [Space::Global, Space::Shared, Space::Local].map(|space| (space, 0, [0; 32]));
    for lane in lanes(request.mask) {
        let (space, address) = context.resolve(request.addresses[lane]);
        // CAST: `parts` is in the order of the variants.
        let (_, mask, addresses) = &mut parts[space as usize];
        *mask |= 1 << lane;
        addresses[lane] = address;
    }
    let examine =
        |(space, mask, addresses)| check.examine(&Request { space, mask, addresses, ..request }, site);
    parts.map(examine).into_iter().fold(0, |all, lanes| all | lanes)
}

/// Examines both sides of an asynchronous copy.
fn copy(check: &mut impl Examiner, warp: &Warp, i: &Instruction, site: &Site<'_>, request: Request) -> u32 {
    let copied = copy_addresses(warp, i, request.bytes);
    let mut from = Request { mask: request.mask & copied.lanes, addresses: copied.from, ..request };
    // Lanes whose source is left out entirely read no memory.
    from.mask &= !lanes(from.mask)
        .filter(|&lane| copied.left_out[lane] >= u64::from(request.bytes))
        .fold(0, |none, lane| none | 1 << lane);
    check.examine(&from, site);
    let addresses = widen(&copied.to);
    let (space, access, mask) = (Space::Shared, Access::Write, request.mask);
    check.examine(&Request { space, access, mask, addresses, strong: false, ..request }, site);
    0
}
