//! Atomic operations.
//!
//! Atomics on global memory are host atomics because other engines and host threads access it concurrently. Atomics on
//! shared memory are plain accesses because only one host thread runs a CTA at a time.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use sass::{Instruction, Op, PT, field};

use super::memory::{atomic_addresses, check_alignment, shared_addresses, widen};
use super::{Context, Outcome, Trap, lanes, unmodelled};
use crate::mmu::Access;
use crate::sm::SmFaultCause;
use crate::sm::numeric::Rounding;
use crate::sm::numeric::f16::{self, Half, Operand, Swizzle};
use crate::sm::numeric::{f32 as single, f64 as double};
use crate::sm::space::Space;
use crate::sm::warp::{Row, Warp};

/// Number format of an atomic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    U32,
    S32,
    U64,
    S64,
    F32,
    F16x2,
    F64,
}

impl Format {
    fn bytes(self) -> u32 {
        match self {
            Self::U64 | Self::S64 | Self::F64 => 8,
            _ => 4,
        }
    }
}

/// Operation of an atomic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Add,
    Min,
    Max,
    Increment,
    Decrement,
    And,
    Or,
    Xor,
    Exchange,
    /// Compare with B, store C; returns the old value.
    Compare,
    /// As `Compare`, but returns whether it stored.
    Cast,
}

impl Action {
    /// Decodes the operation field of ATOMG, ATOM, RED and ATOMS.
    fn of(field: u32) -> Option<Self> {
        Some(match field {
            0 => Self::Add,
            1 => Self::Min,
            2 => Self::Max,
            3 => Self::Increment,
            4 => Self::Decrement,
            5 => Self::And,
            6 => Self::Or,
            7 => Self::Xor,
            8 => Self::Exchange,
            _ => return None,
        })
    }
}

/// Returns the new value of memory; `None` for combinations that do not exist.
fn apply(action: Action, format: Format, old: u64, b: u64, c: u64) -> Option<u64> {
    // CAST: the low word; reinterpretation as signed.
    let (old32, b32) = (old as u32, b as u32);
    let wide = format.bytes() == 8;
    Some(match (action, format) {
        (Action::Compare | Action::Cast, _) => {
            if old == b {
                c
            } else {
                old
            }
        }
        (Action::Exchange, _) => b,
        (Action::Add, Format::F32) => single::add(old32, b32, Rounding::Nearest, true).into(),
        (Action::Add, Format::F64) => double::add(old, b, Rounding::Nearest),
        (Action::Add, Format::F16x2) => add_halves(old32, b32).into(),
        (_, Format::F32 | Format::F64 | Format::F16x2) => return None,
        (Action::Add, _) if wide => old.wrapping_add(b),
        (Action::Add, _) => old32.wrapping_add(b32).into(),
        (Action::Min, Format::S64) => (old as i64).min(b as i64) as u64,
        (Action::Max, Format::S64) => (old as i64).max(b as i64) as u64,
        (Action::Min, Format::S32) => u64::from((old32 as i32).min(b32 as i32) as u32),
        (Action::Max, Format::S32) => u64::from((old32 as i32).max(b32 as i32) as u32),
        (Action::Min, _) => old.min(b),
        (Action::Max, _) => old.max(b),
        (Action::Increment, _) => {
            if old >= b {
                0
            } else {
                old + 1
            }
        }
        (Action::Decrement, _) => {
            if old == 0 || old > b {
                b
            } else {
                old - 1
            }
        }
        (Action::And, _) => old & b,
        (Action::Or, _) => old | b,
        (Action::Xor, _) => old ^ b,
    })
}

/// Returns the sums of two pairs of binary16.
fn add_halves(a: u32, b: u32) -> u32 {
    let how = Operand { kind: Half::F16, swizzle: Swizzle::H1H0, absolute: false, negate: false, ftz: false };
    let (a, b) = (f16::operand(a, how), f16::operand(b, how));
    f16::pack([0, 1].map(|lane| f16::add(Half::F16, a[lane], b[lane], false)))
}

/// Executes an atomic on global memory. Returns the old value.
///
/// # Safety
///
/// `pointer` must be valid for reads and writes of the format's size, and aligned to it.
unsafe fn exchange(pointer: *mut u8, action: Action, format: Format, b: u64, c: u64) -> Option<u64> {
    // Checks that the combination exists before memory is accessed.
    apply(action, format, 0, b, c)?;
    if format.bytes() == 8 {
        // SAFETY: the caller guarantees a valid, aligned pointer; other threads access the memory with atomics too.
        let word = unsafe { AtomicU64::from_ptr(pointer.cast()) };
        word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |old| apply(action, format, old, b, c)).ok()
    } else {
        // SAFETY: as above.
        let word = unsafe { AtomicU32::from_ptr(pointer.cast()) };
        // CAST: values of a 32-bit format.
        let update = |old: u32| apply(action, format, old.into(), b, c).map(|new| new as u32);
        word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, update).ok().map(u64::from)
    }
}

impl Context<'_> {
    /// Executes an atomic on shared memory. Returns the old value.
    fn exchange_shared(
        &mut self,
        at: u64,
        action: Action,
        format: Format,
        b: u64,
        c: u64,
    ) -> Result<Option<u64>, SmFaultCause> {
        let index = self.shared_index(at, format.bytes())?;
        let wide = format.bytes() == 8;
        let high = if wide { u64::from(self.shared[index + 1]) << 32 } else { 0 };
        let old = u64::from(self.shared[index]) | high;
        let Some(new) = apply(action, format, old, b, c) else { return Ok(None) };
        // CAST: the halves of the value.
        self.shared[index] = new as u32;
        if wide {
            self.shared[index + 1] = (new >> 32) as u32;
        }
        Ok(Some(old))
    }
}

/// Adds to words of shared memory: what most shared atomics do. `b` has the operand of each lane. Returns false if the
/// instruction must be executed lane by lane.
fn add_shared(
    context: &mut Context,
    warp: &mut Warp,
    i: &Instruction,
    active: u32,
    at: &Row,
    b: &Row,
) -> bool {
    let (mut all, mut highest) = (0, 0);
    for lane in 0..32 {
        let at = if active >> lane & 1 != 0 { at[lane] } else { 0 };
        (all, highest) = (all | at, highest.max(at));
    }
    if all & 3 != 0 || u64::from(highest) + 4 > context.launch.shared_bytes.into() {
        return false;
    }
    let mut old = [0; 32];
    for lane in lanes(active) {
        let word = &mut context.shared[at[lane] as usize / 4];
        (old[lane], *word) = (*word, word.wrapping_add(b[lane]));
    }
    warp.write(i.d, active, &old);
    true
}

/// Returns a data operand of one lane.
fn operand(warp: &Warp, register: u8, lane: usize, format: Format) -> u64 {
    if format.bytes() == 8 { warp.pair(register, lane) } else { warp.row(register)[lane].into() }
}

/// Writes the result of an atomic to one lane.
fn give_back(
    warp: &mut Warp,
    i: &Instruction,
    lane: usize,
    action: Action,
    format: Format,
    old: u64,
    b: u64,
) {
    let value = if action == Action::Cast { u64::from(old == b) } else { old };
    if format.bytes() == 8 {
        warp.write_pair(i.d, lane, value);
    } else {
        // CAST: a value of a 32-bit format.
        warp.write_lane(i.d, lane, value as u32);
    }
}

/// The action of a comparing exchange: CAS or CAST.
fn swap_action(i: &Instruction) -> Option<Action> {
    match i.bits(field::ATOMIC) {
        0 => Some(Action::Compare),
        1 | 3 => Some(Action::Cast),
        _ => None,
    }
}

/// ATOMG, ATOM and RED.
pub(super) fn global(context: &mut Context, warp: &mut Warp, i: &Instruction, active: u32) -> Outcome {
    let format = match i.bits(field::ATOMIC_TYPE) {
        0 => Format::U32,
        1 => Format::S32,
        2 => Format::U64,
        3 => Format::F32,
        4 => Format::F16x2,
        5 => Format::S64,
        6 => Format::F64,
        _ => return Err(unmodelled(i)),
    };
    let compare = matches!(i.op, Op::AtomSwap | Op::AtomgSwap);
    let action = match i.op {
        Op::AtomgSwap => Action::Compare,
        Op::AtomSwap => swap_action(i).ok_or_else(|| unmodelled(i))?,
        Op::Red => Action::of(i.bits(field::REDUCTION)).ok_or_else(|| unmodelled(i))?,
        _ => Action::of(i.bits(field::ATOMIC)).ok_or_else(|| unmodelled(i))?,
    };
    let generic = matches!(i.op, Op::Atom | Op::AtomSwap);
    let target = if i.op == Op::Red { PT } else { i.target_predicate(field::TARGET) };
    if target != PT && !generic {
        return Err(unmodelled(i));
    }
    let addresses = atomic_addresses(warp, i);
    check_alignment(&addresses, active, format.bytes())?;
    warp.poll(1);
    let mut done = 0;
    let values: Vec<_> = lanes(active).collect();
    for lane in values {
        let fault = |cause| Trap { lane: Some(lane), cause };
        let b = operand(warp, i.register(field::SLOT_REGISTER), lane, format);
        let c = if compare { operand(warp, i.register(field::UPPER), lane, format) } else { 0 };
        let (space, at) =
            if generic { context.resolve(addresses[lane]) } else { (Space::Global, addresses[lane]) };
        let old = match space {
            Space::Global => {
                let pointer = context
                    .port
                    .pointer(at, format.bytes().into(), Access::Atomic)
                    .map_err(|mmu| fault(SmFaultCause::Mmu(mmu)))?;
                // SAFETY: the port guarantees access to the bytes. `at` is aligned and mappings are page-aligned, so
                // the pointer is aligned.
                unsafe { exchange(pointer, action, format, b, c) }
            }
            // The predicate result reports the lane as not done; the program handles shared and local memory.
            _ if target != PT => continue,
            Space::Shared => context.exchange_shared(at, action, format, b, c).map_err(fault)?,
            Space::Local => {
                let (mnemonic, va) = (i.mnemonic(), addresses[lane]);
                return Err(fault(SmFaultCause::InvalidAddressSpace { mnemonic, space: "local", va }));
            }
        };
        let old = old.ok_or_else(|| unmodelled(i))?;
        done |= 1 << lane;
        if i.op != Op::Red {
            give_back(warp, i, lane, action, format, old, b);
        }
    }
    warp.set_predicate(target, active, done);
    Ok(())
}

/// Returns the format of SURED.
fn surface_format(i: &Instruction) -> Result<Format, Trap> {
    match i.bits(field::SIZE) {
        0 => Ok(Format::U32),
        1 => Ok(Format::S32),
        2 => Ok(Format::U64),
        3 => Ok(Format::F32),
        4 => Ok(Format::F16x2),
        5 => Ok(Format::S64),
        _ => Err(unmodelled(i)),
    }
}

/// Bytes of an atomic on a surface.
pub(super) fn surface_bytes(i: &Instruction) -> Result<u32, Trap> {
    surface_format(i).map(Format::bytes)
}

/// SURED of one lane at a GPU address, which is aligned.
pub(super) fn reduce_at(
    context: &mut Context,
    warp: &Warp,
    i: &Instruction,
    lane: usize,
    va: u64,
) -> Outcome {
    let format = surface_format(i)?;
    let action = Action::of(i.bits(field::REDUCTION)).ok_or_else(|| unmodelled(i))?;
    let b = operand(warp, i.register(field::SLOT_REGISTER), lane, format);
    let pointer = context.port.pointer(va, format.bytes().into(), Access::Atomic);
    let pointer = pointer.map_err(|mmu| Trap { lane: Some(lane), cause: SmFaultCause::Mmu(mmu) })?;
    // SAFETY: the port guarantees access to the bytes. `va` is aligned and mappings are page-aligned, so the pointer is
    // aligned.
    unsafe { exchange(pointer, action, format, b, 0) }.map(drop).ok_or_else(|| unmodelled(i))
}

/// Returns the format of ATOMS. Compilers build floating-point atomics from CAST.
fn shared_format(i: &Instruction) -> Option<Format> {
    match i.bits(field::SIZE) {
        0 => Some(Format::U32),
        1 => Some(Format::S32),
        2 => Some(Format::U64),
        _ => None,
    }
}

/// ATOMS.
pub(super) fn shared(context: &mut Context, warp: &mut Warp, i: &Instruction, active: u32) -> Outcome {
    let format = shared_format(i).ok_or_else(|| unmodelled(i))?;
    let compare = i.op == Op::AtomsSwap;
    let action = if compare { swap_action(i) } else { Action::of(i.bits(field::ATOMIC)) };
    let action = action.ok_or_else(|| unmodelled(i))?;
    let addresses = shared_addresses(warp, i, field::UPPER_UNIFORM);
    if action == Action::Add && format.bytes() == 4 {
        let b = *warp.row(i.register(field::SLOT_REGISTER));
        if add_shared(context, warp, i, active, &addresses, &b) {
            warp.poll(1);
            return Ok(());
        }
    }
    let addresses = widen(&addresses);
    check_alignment(&addresses, active, format.bytes())?;
    warp.poll(1);
    for lane in lanes(active) {
        let b = operand(warp, i.register(field::SLOT_REGISTER), lane, format);
        let c = if compare { operand(warp, i.register(field::UPPER), lane, format) } else { 0 };
        let old = context
            .exchange_shared(addresses[lane], action, format, b, c)
            .map_err(|cause| Trap { lane: Some(lane), cause })?
            .ok_or_else(|| unmodelled(i))?;
        give_back(warp, i, lane, action, format, old, b);
    }
    Ok(())
}

/// ATOMS.POPC.INC adds one per lane; ATOMS.ARRIVE is an arrival at an mbarrier.
pub(super) fn shared_count(context: &mut Context, warp: &mut Warp, i: &Instruction, active: u32) -> Outcome {
    let arrive = match (i.bits(field::ATOMIC), i.bits(field::SIZE)) {
        (10, 0) => false,
        (9, 2) => true,
        _ => return Err(unmodelled(i)),
    };
    let addresses = shared_addresses(warp, i, field::UPPER_UNIFORM);
    if !arrive && add_shared(context, warp, i, active, &addresses, &[1; 32]) {
        return Ok(());
    }
    let addresses = widen(&addresses);
    check_alignment(&addresses, active, if arrive { 8 } else { 4 })?;
    for lane in lanes(active) {
        let fault = |cause| Trap { lane: Some(lane), cause };
        if arrive {
            let old = context.arrive(addresses[lane]).map_err(fault)?;
            warp.write_pair(i.d, lane, old);
        } else {
            let old = context
                .exchange_shared(addresses[lane], Action::Add, Format::U32, 1, 0)
                .map_err(fault)?
                .ok_or_else(|| unmodelled(i))?;
            // CAST: a 32-bit value.
            warp.write_lane(i.d, lane, old as u32);
        }
    }
    Ok(())
}

impl Context<'_> {
    /// Arrives once at the mbarrier at `at`. Returns its previous state.
    ///
    /// The high word counts up; a carry into its top bit flips the phase. The low word is the difference between 2^30
    /// and the count at the start of each phase.
    fn arrive(&mut self, at: u64) -> Result<u64, SmFaultCause> {
        let index = self.shared_index(at, 8)?;
        let (low, high) = (self.shared[index], self.shared[index + 1]);
        let mut next = high.wrapping_add(1);
        if (next ^ high) & 1 << 31 != 0 {
            let count = (1u32 << 30).wrapping_sub(low);
            next = next & 1 << 31 | (1u32 << 31).wrapping_sub(count) & !(1 << 31);
        }
        self.shared[index + 1] = next;
        Ok(u64::from(low) | u64::from(high) << 32)
    }
}

/// ARRIVES.LDGSTSBAR: an arrival at an mbarrier after the earlier copies, which are complete then.
pub(super) fn arrives(context: &mut Context, warp: &mut Warp, i: &Instruction, active: u32) -> Outcome {
    let addresses = widen(&shared_addresses(warp, i, field::UPPER_UNIFORM));
    check_alignment(&addresses, active, 8)?;
    warp.copies.wait(active, None, context.shared);
    for lane in lanes(active) {
        context.arrive(addresses[lane]).map_err(|cause| Trap { lane: Some(lane), cause })?;
    }
    Ok(())
}
