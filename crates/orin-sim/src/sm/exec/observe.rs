//! Accesses of an instruction before it executes, for the checks of `crate::check`.

use sass::{Instruction, Op, PT, field};

use super::collective::shuffle_sources;
use super::memory::{
    Format, atomic_addresses, generic_addresses, load_store_addresses, local_addresses, matrix_addresses,
    shared_addresses, stored, whole_words, widen,
};
use super::transfer::copy_addresses;
use super::{Context, lanes};
use crate::check::{BlockCheck, Request, Role, Scope, Site};
use crate::kernel_profile::Tally;
use crate::mmu::Access;
use crate::sm::InFlight;
use crate::sm::examined::{fence, groups_left};
use crate::sm::space::Space;
use crate::sm::warp::{FULL, Row, Warp};

/// Called before each instruction; implemented by the checker and the profiler.
pub(super) trait Examiner {
    /// An access. Returns the lanes that must not execute it.
    fn examine(&mut self, request: &Request, site: &Site<'_>) -> u32;

    /// Lanes execute WARPSYNC with these masks.
    fn warpsync(&mut self, _active: u32, _masks: &Row, _live: u32, _site: &Site<'_>) {}

    /// The sources of copies, of which each lane leaves out some bytes at the end.
    fn examine_copy(&mut self, request: &Request, _left_out: &[u64; 32], site: &Site<'_>) {
        self.examine(request, site);
    }

    /// Loads of `bytes` bytes at offsets of a constant bank.
    fn constant(&mut self, _bank: u8, _offsets: &Row, _loads: (u32, u32), _site: &Site<'_>) {}

    /// A shuffle writes a register, with values of lanes that do not execute it in `lanes`.
    fn shuffled(&mut self, _register: u8, _lanes: u32, _active: u32, _site: &Site<'_>) {}

    /// Lanes execute a fence.
    fn ordered(&mut self, _warp: u32, _active: u32, _i: &Instruction) {}

    /// Copies of lanes are complete.
    fn landed(&mut self, _warp: u32, _copy: &InFlight, _lanes: u32) {}
}

impl Examiner for BlockCheck {
    fn examine(&mut self, request: &Request, site: &Site<'_>) -> u32 {
        self.examine(request, site)
    }

    fn warpsync(&mut self, active: u32, masks: &Row, live: u32, site: &Site<'_>) {
        self.warpsync(active, masks, live, site);
    }

    fn examine_copy(&mut self, request: &Request, left_out: &[u64; 32], site: &Site<'_>) {
        self.examine_copy(request, left_out, site);
    }

    fn constant(&mut self, bank: u8, offsets: &Row, loads: (u32, u32), site: &Site<'_>) {
        self.constant(bank, offsets, loads, site);
    }

    fn shuffled(&mut self, register: u8, lanes: u32, active: u32, site: &Site<'_>) {
        self.shuffled(register, lanes, active, site);
    }

    fn ordered(&mut self, warp: u32, active: u32, i: &Instruction) {
        if i.mnemonic() == "NOP" {
            self.together(warp, active);
        }
        if let Some(fence) = fence(i) {
            self.fenced(warp, fence);
        }
    }

    fn landed(&mut self, warp: u32, copy: &InFlight, lanes: u32) {
        self.landed(warp, copy, lanes);
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

/// The threads that may wait for an access: not only the own one if it is volatile or stronger.
fn scope(i: &Instruction) -> Scope {
    match i.bits(field::ORDER) {
        // The orders of copies are others. For loads, 4 is the read-only path.
        _ if i.op == Op::Ldgsts => Scope::Own,
        4 if matches!(i.op, Op::Ldg | Op::Ld) => Scope::Own,
        4 | 5 => Scope::Block,
        6..=8 | 10 | 12 => Scope::Device,
        _ => Scope::Own,
    }
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

fn site(warp: &Warp) -> Site<'_> {
    Site { pc: warp.path.pc, warp: warp.index, tid: &warp.tid, stack: warp.row(1) }
}

/// Examines the registers of an instruction before it is executed by a warp with undefined values of shuffles.
pub(super) fn registers(context: &mut Context, warp: &Warp, i: &Instruction, active: u32) {
    let Some(check) = context.check.take() else { return };
    let mut using = active;
    if i.op == Op::St {
        // A store to local memory copies a register.
        let addresses = generic_addresses(warp, i, field::UPPER_UNIFORM);
        let local = lanes(active).filter(|&lane| context.resolve(addresses[lane]).0 == Space::Local);
        using = local.fold(active, |using, lane| using & !(1 << lane));
    }
    check.registers(i, using, &site(warp));
    context.check = Some(check);
}

/// Examines an instruction before it is executed. Returns the lanes that must not execute it.
pub(super) fn before(
    context: &Context<'_>,
    check: &mut impl Examiner,
    warp: &Warp,
    i: &Instruction,
    active: u32,
) -> u32 {
    let site = site(warp);
    let mut request = Request {
        space: Space::Global,
        mask: active,
        addresses: [0; 32],
        bytes: Format::of(i).bytes,
        access: Access::Read,
        strong: scope(i),
        role: role(i),
        repeats: 0,
    };
    match i.op {
        Op::Ldg => request.addresses = load_store_addresses(warp, i, field::SLOT_UNIFORM),
        Op::Stg => {
            request.addresses = load_store_addresses(warp, i, field::UPPER_UNIFORM);
            request.access = Access::Write;
        }
        Op::Ld => {
            request.addresses = generic_addresses(warp, i, field::SLOT_UNIFORM);
            return generic(context, check, (warp, i), request);
        }
        Op::St => {
            request.addresses = generic_addresses(warp, i, field::UPPER_UNIFORM);
            request.access = Access::Write;
            return generic(context, check, (warp, i), request);
        }
        Op::Atom | Op::AtomSwap | Op::Atomg | Op::AtomgSwap | Op::Red => {
            request.addresses = atomic_addresses(warp, i);
            request.access = Access::Atomic;
            // Without a scope it is atomic for all.
            request.strong = if request.strong == Scope::Block { Scope::Block } else { Scope::Device };
            request.bytes = if matches!(i.bits(field::ATOMIC_TYPE), 2 | 5 | 6) { 8 } else { 4 };
            if matches!(i.op, Op::Atom | Op::AtomSwap) {
                if i.target_predicate(field::TARGET) != PT {
                    // It does nothing to shared memory: the program does.
                    let served = |lane: &usize| context.resolve(request.addresses[*lane]).0 == Space::Global;
                    request.mask = lanes(active).filter(served).fold(0, |mask, lane| mask | 1 << lane);
                }
                return generic(context, check, (warp, i), request);
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
                Op::Arrives => {
                    landed(check, warp, active, None);
                    true
                }
                _ => i.bits(field::SIZE) == 2,
            };
            request.bytes = if wide { 8 } else { 4 };
        }
        Op::Depbar => {
            if let Some(left) = groups_left(i) {
                landed(check, warp, active, Some(left));
            }
            return 0;
        }
        Op::Ldgsts => return copy(check, warp, i, &site, request),
        Op::Ldc | Op::UldcIndexed => {
            // CAST: two's complement; 5 bits.
            let offset = i.signed(field::BANK_OFFSET) as u32;
            let uniform = i.op == Op::UldcIndexed;
            let index = if uniform { [warp.uniform(i.a); 32] } else { *warp.row(i.a) };
            let mask = if uniform { 1 << (active.trailing_zeros() & 31) } else { active };
            let offsets = index.map(|index| index.wrapping_add(offset));
            check.constant(i.register(field::BANK), &offsets, (mask, request.bytes), &site);
            return 0;
        }
        Op::Shfl => {
            check.shuffled(i.d, undefined_lanes(warp, i, active), active, &site);
            return 0;
        }
        Op::Warpsync => {
            let mut room = [0; 32];
            let taking = active & warp.predicate(i.source_predicate(field::CONDITION));
            if let Ok(masks) = context.values(warp, i.b, &mut room) {
                check.warpsync(taking, masks, warp.live, &site);
            }
            return 0;
        }
        Op::Nothing => {
            check.ordered(warp.index, active, i);
            return 0;
        }
        _ => return 0,
    }
    request.repeats = repeating_lanes(context, warp, i, &request);
    check.examine(&request, &site)
}

/// The lanes of a store of whole words to shared memory whose words are there already.
fn repeating_lanes(context: &Context<'_>, warp: &Warp, i: &Instruction, request: &Request) -> u32 {
    if (request.space, request.access) != (Space::Shared, Access::Write) {
        return 0;
    }
    let count = whole_words(i);
    let repeats = |lane: &usize| {
        // CAST: an offset in shared memory; 0 to 3.
        let first = request.addresses[*lane] as usize / 4;
        let values = (0..count).map(|step| warp.row(Warp::next(stored(i), step as u8))[*lane]);
        context.shared.get(first..first + count).is_some_and(|words| words.iter().copied().eq(values))
    };
    if count == 0 { 0 } else { lanes(request.mask).filter(repeats).fold(0, |mask, lane| mask | 1 << lane) }
}

/// The lanes that a shuffle gives the value of a lane that does not execute it.
///
/// Not those of a sum by SHFL.DOWN over the first 2^n lanes: the values that enter from beyond never reach the lanes
/// that the next steps add up.
fn undefined_lanes(warp: &Warp, i: &Instruction, active: u32) -> u32 {
    let (sources, inside) = shuffle_sources(warp, i);
    let wrong = lanes(active & inside).filter(|&lane| active >> sources[lane] & 1 == 0);
    let wrong = wrong.fold(0, |all, lane| all | 1 << lane);
    let count = active.trailing_ones();
    let first = active == FULL >> (32 - count.clamp(1, 32)) && count.is_power_of_two();
    let harmless = first && i.bits(field::SHUFFLE) == 2 && wrong & 1 == 0;
    if harmless { 0 } else { wrong }
}

/// Examines accesses by generic addresses, which may lie in three spaces.
fn generic(
    context: &Context<'_>,
    check: &mut impl Examiner,
    (warp, i): (&Warp, &Instruction),
    request: Request,
) -> u32 {
    let mut parts = [Space::Global, Space::Shared, Space::Local].map(|space| (space, 0, [0; 32]));
    for lane in lanes(request.mask) {
        let (space, address) = context.resolve(request.addresses[lane]);
        // CAST: `parts` is in the order of the variants.
        let (_, mask, addresses) = &mut parts[space as usize];
        *mask |= 1 << lane;
        addresses[lane] = address;
    }
    let examine = |(space, mask, addresses)| {
        let part = Request { space, mask, addresses, ..request };
        let repeats = repeating_lanes(context, warp, i, &part);
        check.examine(&Request { repeats, ..part }, &site(warp))
    };
    parts.map(examine).into_iter().fold(0, |all, lanes| all | lanes)
}

/// Lanes wait for copies: see [`Copies::awaited`](crate::sm::copies::Copies::awaited).
fn landed(check: &mut impl Examiner, warp: &Warp, lanes: u32, left: Option<u32>) {
    for (copy, lanes) in warp.copies.awaited(lanes, left) {
        check.landed(warp.index, copy, lanes);
    }
}

/// Examines both sides of an asynchronous copy.
fn copy(check: &mut impl Examiner, warp: &Warp, i: &Instruction, site: &Site<'_>, request: Request) -> u32 {
    let copied = copy_addresses(warp, i, request.bytes);
    let from = Request { mask: request.mask & copied.lanes, addresses: copied.from, ..request };
    // Lanes whose source is left out entirely read no memory.
    let none = lanes(from.mask).filter(|&lane| copied.left_out[lane] >= u64::from(request.bytes));
    let from = Request { mask: none.fold(from.mask, |mask, lane| mask & !(1 << lane)), ..from };
    check.examine_copy(&from, &copied.left_out, site);
    if let Some(oldest) = warp.copies.crowded_out() {
        check.landed(warp.index, oldest, FULL);
    }
    let (space, access, role) = (Space::Shared, Access::Write, Role::Copy(warp.copies.next()));
    let addresses = widen(&copied.to);
    check.examine(&Request { space, access, role, addresses, strong: Scope::Own, ..request }, site);
    0
}
