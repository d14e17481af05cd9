//! Loads and stores.
//!
//! There are four address spaces: global memory behind the MMU, the shared memory of the CTA, the local memory of
//! each thread, and the constant banks. Generic addresses (LD, ST, ATOM) reach shared and local memory through two
//! windows of 16 MiB. Misaligned accesses trap. Lanes are served in ascending order, so a warp reports the fault of
//! its first faulting lane.
//!
//! Memory-order, scope, eviction and prefetch modifiers are hints for caches. The interpreter has no caches: its
//! memory is coherent, and accesses happen in program order.
//!
//! Source: compiled code for sm_87 and its disassembly.

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

use sass::field::{self, Field};
use sass::{Instruction, Op, RZ};

use super::runs::{global_runs, lds_runs};
use super::{Context, Outcome, Trap, lanes};
use crate::mmu::Access;
use crate::sm::SmFaultCause;
use crate::sm::space::Space;
use crate::sm::warp::{FULL, Row, Warp};

/// Size of the shared-memory and of the local-memory window in bytes.
pub(super) const WINDOW_BYTES: u64 = 1 << 24;

/// Location of one lane's bytes, all of which are accessible.
enum Place {
    /// Memory behind the MMU, aligned to the access.
    Global(*mut u8),
    /// Index of the first word of shared memory.
    Shared(usize),
    /// Index of the first row of local memory.
    Local(usize),
}

/// Data format of an access.
#[derive(Clone, Copy, Debug)]
pub(super) struct Format {
    /// Size in bytes: 1, 2, 4, 8 or 16.
    pub(super) bytes: u32,
    /// Whether a partial word is sign extended.
    pub(super) signed: bool,
}

impl Format {
    /// Decodes the size modifier.
    pub(super) fn of(i: &Instruction) -> Self {
        let (bytes, signed) = match i.bits(field::SIZE) {
            0 => (1, false),
            1 => (1, true),
            2 => (2, false),
            3 => (2, true),
            4 => (4, false),
            5 => (8, false),
            _ => (16, false),
        };
        Self { bytes, signed }
    }

    /// Returns the number of data registers.
    pub(super) fn words(self) -> u8 {
        // CAST: at most 4.
        self.bytes.div_ceil(4) as u8
    }

    /// Extends a partial word.
    pub(super) fn extend(self, value: u32) -> u32 {
        // CAST: sign extension of the low part.
        match (self.bytes, self.signed) {
            (1, true) => value as i8 as u32,
            (1, false) => value & 0xff,
            (2, true) => value as i16 as u32,
            (2, false) => value & 0xffff,
            _ => value,
        }
    }
}

/// Returns the signed offset of an address.
pub(super) fn offset(i: &Instruction) -> u64 {
    // CAST: two's complement.
    i.signed(field::OFFSET) as u64
}

/// Returns the 64-bit value of a uniform register pair.
pub(super) fn uniform_pair(warp: &Warp, number: u8) -> u64 {
    u64::from(warp.uniform(number)) | u64::from(warp.uniform(Warp::next_uniform(number))) << 32
}

/// Whether a uniform register pair is part of the address of a global access.
pub(super) fn has_uniform_base(i: &Instruction, descriptor: bool) -> bool {
    i.form == 4 && i.bit(field::UNIFORM) && !descriptor
}

/// Whether the register of the address of a load or store is a pair.
pub(super) fn is_wide(i: &Instruction) -> bool {
    i.bit(field::EXTENDED_ADDRESS) && (i.form == 1 || i.bit(field::WIDE))
}

/// Returns the addresses of a global or generic access: register or pair, plus uniform base, plus offset.
///
/// The uniform register at `uniform_at` is not part of the address if `descriptor` is set.
fn addresses(warp: &Warp, i: &Instruction, wide: bool, uniform_at: Field, descriptor: bool) -> [u64; 32] {
    let base = if has_uniform_base(i, descriptor) {
        // CAST: 6 bits.
        uniform_pair(warp, i.register(uniform_at))
    } else {
        0
    };
    let base = base.wrapping_add(offset(i));
    register_addresses(warp, i, wide, base)
}

/// Returns addresses from the register or pair A and a base.
pub(super) fn register_addresses(warp: &Warp, i: &Instruction, wide: bool, base: u64) -> [u64; 32] {
    let low = warp.row(i.a);
    let high = warp.row(if wide { Warp::next(i.a, 1) } else { RZ });
    let mut out = [0; 32];
    for lane in 0..32 {
        out[lane] = (u64::from(low[lane]) | u64::from(high[lane]) << 32).wrapping_add(base);
    }
    out
}

/// Returns the addresses of LDG, LD and their stores.
pub(super) fn load_store_addresses(warp: &Warp, i: &Instruction, uniform_at: Field) -> [u64; 32] {
    addresses(warp, i, is_wide(i), uniform_at, i.bit(field::DESCRIPTOR))
}

/// Returns the addresses of an atomic, whose fields differ from those of loads and stores.
pub(super) fn atomic_addresses(warp: &Warp, i: &Instruction) -> [u64; 32] {
    // With a uniform register, A may have 32 bits.
    let wide = match i.op {
        Op::Red => i.bit(field::WIDE),
        _ => i.form == 1 || i.bit(field::ATOMIC_WIDE),
    };
    addresses(
        warp,
        i,
        i.bit(field::EXTENDED_ADDRESS) && wide,
        field::UPPER_UNIFORM,
        i.bit(field::ATOMIC_DESCRIPTOR),
    )
}

/// Returns a fault for the first active address that is not a multiple of `bytes`.
pub(super) fn check_alignment(addresses: &[u64; 32], active: u32, bytes: u32) -> Outcome {
    let mask = u64::from(bytes) - 1;
    if addresses.iter().fold(0, |all, va| all | va) & mask == 0 {
        return Ok(());
    }
    match lanes(active).find(|&lane| addresses[lane] & mask != 0) {
        None => Ok(()),
        Some(lane) => Err(Trap {
            lane: Some(lane),
            cause: SmFaultCause::MisalignedAddress { va: addresses[lane], bytes },
        }),
    }
}

/// Reads the words of one lane; a part of a word without a sign.
///
/// # Safety
///
/// `bytes` bytes at `from` must be accessible, and aligned to their number: 1, 2, 4, 8 or 16.
#[inline(always)]
pub(super) unsafe fn read_words(from: *mut u8, bytes: u32) -> [u32; 4] {
    // SAFETY: as the caller guarantees. Atomic, because other threads may write the memory at any time.
    unsafe {
        let double = |at| AtomicU64::from_ptr(from.cast::<u64>().add(at)).load(Relaxed);
        match bytes {
            1 => [AtomicU8::from_ptr(from).load(Relaxed).into(), 0, 0, 0],
            2 => [AtomicU16::from_ptr(from.cast()).load(Relaxed).into(), 0, 0, 0],
            4 => [AtomicU32::from_ptr(from.cast()).load(Relaxed), 0, 0, 0],
            8 => split(double(0), 0),
            _ => split(double(0), double(1)),
        }
    }
}

impl Context<'_> {
    /// Returns the space of a generic address and the offset in it.
    pub(super) fn resolve(&self, va: u64) -> (Space, u64) {
        let within = |window: u64| va.checked_sub(window).filter(|&offset| offset < WINDOW_BYTES);
        if let Some(offset) = within(self.launch.shared_window) {
            (Space::Shared, offset)
        } else if let Some(offset) = within(self.launch.local_window) {
            (Space::Local, offset)
        } else {
            (Space::Global, va)
        }
    }

    /// Returns the index of the word of shared memory at `offset`.
    pub(super) fn shared_index(&self, offset: u64, bytes: u32) -> Result<usize, SmFaultCause> {
        if offset.checked_add(bytes.into()).is_none_or(|end| end > self.launch.shared_bytes.into()) {
            return Err(SmFaultCause::OutOfRange { space: "shared", offset, bytes });
        }
        // CAST: within shared memory.
        Ok((offset / 4) as usize)
    }

    /// Whether the compiler has widened a load beyond the end of shared memory.
    #[cold]
    fn is_widened(&self, warp: &Warp, offset: u64, bytes: u32) -> bool {
        let check = self.check.as_deref();
        check.is_some_and(|check| check.is_widened_shared(warp.path.pc, offset, bytes))
    }

    /// Returns the index of the row of local memory at `offset` of the window.
    ///
    /// A thread's memory ends at the end of the window, where the stack begins.
    fn local_index(&self, warp: &mut Warp, offset: u64, bytes: u32) -> Result<usize, SmFaultCause> {
        let size = u64::from(self.launch.local_bytes).min(WINDOW_BYTES);
        let first = WINDOW_BYTES - size;
        if offset < first || offset + u64::from(bytes) > WINDOW_BYTES {
            return Err(SmFaultCause::OutOfRange { space: "local", offset, bytes });
        }
        if warp.local.is_empty() {
            // CAST: at most 16 MiB.
            warp.local = vec![[0; 32]; size.div_ceil(4) as usize];
        }
        // CAST: within local memory.
        Ok(((offset - first) / 4) as usize)
    }

    /// Locates the bytes that one lane accesses.
    #[inline(always)]
    fn place(
        &mut self,
        warp: &mut Warp,
        lane: usize,
        (space, at): (Space, u64),
        bytes: u32,
        access: Access,
    ) -> Result<Place, Trap> {
        let place = match space {
            Space::Global => {
                self.port.pointer(at, bytes.into(), access).map(Place::Global).map_err(SmFaultCause::Mmu)
            }
            Space::Shared => match self.shared_index(at, bytes) {
                // With checks, the exact size counts. The memory is rounded up.
                Err(_) if access == Access::Read && self.is_widened(warp, at, bytes) => {
                    // CAST: within shared memory.
                    Ok(Place::Shared((at / 4) as usize))
                }
                index => index.map(Place::Shared),
            },
            Space::Local => self.local_index(warp, at, bytes).map(Place::Local),
        };
        place.map_err(|cause| Trap { lane: Some(lane), cause })
    }

    /// Loads the words of one lane.
    pub(super) fn load(
        &mut self,
        warp: &mut Warp,
        lane: usize,
        at: (Space, u64),
        format: Format,
    ) -> Result<[u32; 4], Trap> {
        let (bytes, count) = (format.bytes, usize::from(format.words()));
        // CAST: 0 to 3.
        let shift = 8 * (at.1 & 3) as u32;
        let mut words = [0; 4];
        match self.place(warp, lane, at, bytes, Access::Read)? {
            Place::Global(pointer) => {
                // SAFETY: the port guarantees access to `bytes` bytes at `pointer`. The pointer is aligned because
                // `at` is aligned and mappings are page-aligned.
                words = unsafe { read_words(pointer, bytes) };
            }
            Place::Shared(first) => {
                words[..count].copy_from_slice(&self.shared[first..first + count]);
                words[0] >>= shift;
            }
            Place::Local(first) => {
                for (word, row) in words.iter_mut().zip(&warp.local[first..first + count]) {
                    *word = row[lane];
                }
                words[0] >>= shift;
            }
        }
        words[0] = format.extend(words[0]);
        Ok(words)
    }

    /// Stores the words of one lane.
    pub(super) fn store(
        &mut self,
        warp: &mut Warp,
        lane: usize,
        at: (Space, u64),
        format: Format,
        words: [u32; 4],
    ) -> Outcome {
        let (bytes, count) = (format.bytes, usize::from(format.words()));
        // CAST: 0 to 3.
        let shift = 8 * (at.1 & 3) as u32;
        let part = match bytes {
            1 => 0xff << shift,
            2 => 0xffff << shift,
            _ => !0,
        };
        let merge = |to: &mut u32, word: u32| *to = *to & !part | word << shift & part;
        match self.place(warp, lane, at, bytes, Access::Write)? {
            Place::Global(pointer) => {
                // SAFETY: as in `load`; the mapping is writable.
                // CAST: the stored part of the word.
                unsafe {
                    let double = |at: usize| {
                        let value = u64::from(words[2 * at]) | u64::from(words[2 * at + 1]) << 32;
                        AtomicU64::from_ptr(pointer.cast::<u64>().add(at)).store(value, Relaxed);
                    };
                    match bytes {
                        1 => AtomicU8::from_ptr(pointer).store(words[0] as u8, Relaxed),
                        2 => AtomicU16::from_ptr(pointer.cast()).store(words[0] as u16, Relaxed),
                        4 => AtomicU32::from_ptr(pointer.cast()).store(words[0], Relaxed),
                        8 => double(0),
                        _ => {
                            double(0);
                            double(1);
                        }
                    }
                }
            }
            Place::Shared(first) => {
                for (step, word) in words[..count].iter().enumerate() {
                    merge(&mut self.shared[first + step], *word);
                }
            }
            Place::Local(first) => {
                for (step, word) in words[..count].iter().enumerate() {
                    merge(&mut warp.local[first + step][lane], *word);
                }
            }
        }
        Ok(())
    }

    /// Loads all active lanes into the registers from D on.
    fn load_lanes(
        &mut self,
        warp: &mut Warp,
        i: &Instruction,
        active: u32,
        place: impl Fn(&Self, usize) -> (Space, u64),
    ) -> Outcome {
        let format = Format::of(i);
        let mut out = [[0; 32]; 4];
        for lane in lanes(active) {
            let at = place(self, lane);
            let words = self.load(warp, lane, at, format)?;
            for (row, word) in out.iter_mut().zip(words) {
                row[lane] = word;
            }
        }
        for step in 0..format.words() {
            warp.write(Warp::next(i.d, step), active, &out[usize::from(step)]);
        }
        Ok(())
    }

    /// Stores all active lanes from the registers from `data` on.
    fn store_lanes(
        &mut self,
        warp: &mut Warp,
        i: &Instruction,
        active: u32,
        data: u8,
        place: impl Fn(&Self, usize) -> (Space, u64),
    ) -> Outcome {
        let format = Format::of(i);
        for lane in lanes(active) {
            let at = place(self, lane);
            // CAST: 0 to 3.
            let words = core::array::from_fn(|step| {
                if step < usize::from(format.words()) {
                    warp.row(Warp::next(data, step as u8))[lane]
                } else {
                    0
                }
            });
            self.store(warp, lane, at, format, words)?;
        }
        Ok(())
    }
}

pub(super) fn split(low: u64, high: u64) -> [u32; 4] {
    // CAST: the halves of the values.
    [low as u32, (low >> 32) as u32, high as u32, (high >> 32) as u32]
}

/// Returns the data register of a store.
fn data(i: &Instruction) -> u8 {
    i.register(field::SLOT_REGISTER)
}

/// As [`data`], for stores by generic addresses too, one form of which has it elsewhere.
pub(super) fn stored(i: &Instruction) -> u8 {
    if i.op == Op::St && i.form == 1 { i.register(field::UPPER) } else { data(i) }
}

#[inline(always)]
pub(super) fn ldg(context: &mut Context, warp: &mut Warp, i: &Instruction, active: u32) -> Outcome {
    let addresses = load_store_addresses(warp, i, field::SLOT_UNIFORM);
    if let Some(runs) = global_runs(context, i, active, &addresses, Access::Read) {
        let row = warp.row_mut(i.d);
        for (half, run) in row.chunks_exact_mut(16).zip(runs) {
            // SAFETY: the port guarantees access to 64 bytes, and the target is half a row of this warp. Concurrent
            // writers can tear the data only between lanes, as on hardware.
            unsafe { core::ptr::copy_nonoverlapping(run.cast_const().cast(), half.as_mut_ptr(), 16) };
        }
        return Ok(());
    }
    ldg_lanes(context, warp, i, active, &addresses)
}

#[inline(never)]
fn ldg_lanes(
    context: &mut Context,
    warp: &mut Warp,
    i: &Instruction,
    active: u32,
    addresses: &[u64; 32],
) -> Outcome {
    check_alignment(addresses, active, Format::of(i).bytes)?;
    note_poll(warp, i);
    context.load_lanes(warp, i, active, |_, lane| (Space::Global, addresses[lane]))
}

/// Counts loads that a spinning thread would use (`volatile` and stronger) as polls.
fn note_poll(warp: &mut Warp, i: &Instruction) {
    if matches!(i.bits(field::ORDER), 5..=8 | 10 | 12) {
        warp.poll(1);
    }
}

#[inline(always)]
pub(super) fn stg(context: &mut Context, warp: &mut Warp, i: &Instruction, active: u32) -> Outcome {
    let addresses = load_store_addresses(warp, i, field::UPPER_UNIFORM);
    if let Some(runs) = global_runs(context, i, active, &addresses, Access::Write) {
        let row = warp.row(data(i));
        for (half, run) in row.chunks_exact(16).zip(runs) {
            // SAFETY: as in `ldg`, with the roles exchanged; the mapping is writable.
            unsafe { core::ptr::copy_nonoverlapping(half.as_ptr(), run.cast(), 16) };
        }
        return Ok(());
    }
    stg_lanes(context, warp, i, active, &addresses)
}

#[inline(never)]
fn stg_lanes(
    context: &mut Context,
    warp: &mut Warp,
    i: &Instruction,
    active: u32,
    addresses: &[u64; 32],
) -> Outcome {
    check_alignment(addresses, active, Format::of(i).bytes)?;
    context.store_lanes(warp, i, active, data(i), |_, lane| (Space::Global, addresses[lane]))
}

/// Returns the addresses of a generic access: those of LDG and STG, or without the uniform flag a register and a
/// 32-bit offset.
pub(super) fn generic_addresses(warp: &Warp, i: &Instruction, uniform_at: Field) -> [u64; 32] {
    if i.bit(field::UNIFORM) {
        load_store_addresses(warp, i, uniform_at)
    } else {
        // CAST: two's complement.
        register_addresses(warp, i, is_wide(i), i.signed(field::LONG_OFFSET) as u64)
    }
}

pub(super) fn ld(context: &mut Context, warp: &mut Warp, i: &Instruction, active: u32) -> Outcome {
    let addresses = generic_addresses(warp, i, field::SLOT_UNIFORM);
    check_alignment(&addresses, active, Format::of(i).bytes)?;
    note_poll(warp, i);
    context.load_lanes(warp, i, active, |context, lane| context.resolve(addresses[lane]))
}

pub(super) fn st(context: &mut Context, warp: &mut Warp, i: &Instruction, active: u32) -> Outcome {
    let addresses = generic_addresses(warp, i, field::UPPER_UNIFORM);
    check_alignment(&addresses, active, Format::of(i).bytes)?;
    context.store_lanes(warp, i, active, stored(i), |context, lane| context.resolve(addresses[lane]))
}

/// Returns the 32-bit addresses of a local or shared access: A times the stride, plus `base`, plus offset.
#[inline(always)]
fn window_addresses(warp: &Warp, i: &Instruction, stride: u32, base: u32) -> Row {
    // CAST: the address is 32 bits wide.
    let base = base.wrapping_add(offset(i) as u32);
    let a = warp.row(i.a);
    let mut out = [0; 32];
    for lane in 0..32 {
        out[lane] = (a[lane] << stride).wrapping_add(base);
    }
    out
}

/// Returns the addresses of a shared access. The uniform base is at `uniform_at` if the flag is set.
#[inline(always)]
pub(super) fn shared_addresses(warp: &Warp, i: &Instruction, uniform_at: Field) -> Row {
    // CAST: 6 bits.
    let base = if i.bit(field::UNIFORM) { warp.uniform(i.register(uniform_at)) } else { 0 };
    window_addresses(warp, i, stride(i), base)
}

/// Returns the shift of the register in the address of a shared access.
#[inline(always)]
pub(super) fn stride(i: &Instruction) -> u32 {
    match i.bits(field::STRIDE) {
        0 => 0,
        field => field + 1,
    }
}

/// Returns the row addresses of LDSM, where the field of the stride is the shape.
pub(super) fn matrix_addresses(warp: &Warp, i: &Instruction) -> Row {
    // CAST: 6 bits.
    let base = if i.bit(field::UNIFORM) { warp.uniform(i.register(field::SLOT_UNIFORM)) } else { 0 };
    window_addresses(warp, i, 0, base)
}

pub(super) fn widen(row: &Row) -> [u64; 32] {
    row.map(u64::from)
}

/// Returns the number of words of a shared access; 0 for partial words.
#[inline(always)]
pub(super) fn whole_words(i: &Instruction) -> usize {
    // Not `Format::of`: its table lookup in the loop of shared loads slows matrix products by 15 %.
    match i.bits(field::SIZE) {
        4 => 1,
        5 => 2,
        6 => 4,
        _ => 0,
    }
}

/// Words of a shared access.
struct SharedWords {
    /// Index of the first word of each lane.
    first: [u32; 32],
    /// Whether all lanes of a half warp access the same words, as in products of tiles with 16 columns.
    same: [bool; 2],
}

/// Returns the words of each lane if all active lanes access `count` aligned words inside shared memory.
/// Inactive lanes get the words of an active one.
#[inline(always)]
fn shared_words(context: &Context, addresses: &Row, active: u32, count: usize) -> Option<SharedWords> {
    let instead = addresses[active.trailing_zeros() as usize & 31];
    let (mut all, mut highest, mut words) = (0, 0, SharedWords { first: [0; 32], same: [false; 2] });
    let address = |lane: usize| if active >> lane & 1 != 0 { addresses[lane] } else { instead };
    for (half, same) in words.same.iter_mut().enumerate() {
        let (start, mut apart) = (address(16 * half), 0);
        for lane in 16 * half..16 * half + 16 {
            let at = address(lane);
            apart |= at ^ start;
            all |= at;
            highest = highest.max(at);
            words.first[lane] = at / 4;
        }
        *same = apart == 0;
    }
    let bytes = 4 * count;
    let inside = highest as usize + bytes <= context.launch.shared_bytes as usize;
    (inside && (all as usize).is_multiple_of(bytes)).then_some(words)
}

#[inline(always)]
pub(super) fn lds(context: &mut Context, warp: &mut Warp, i: &Instruction, active: u32) -> Outcome {
    let addresses = shared_addresses(warp, i, field::SLOT_UNIFORM);
    let count = whole_words(i);
    if count == 1 && active == FULL && lds_runs(context, warp, i, &addresses) {
        return Ok(());
    }
    if count != 0
        && let Some(at) = shared_words(context, &addresses, active, count)
    {
        for step in 0..count {
            let words = &context.shared[step..];
            let mut out = [0; 32];
            for (half, same) in at.same.into_iter().enumerate() {
                let lanes = 16 * half..16 * half + 16;
                if same {
                    out[lanes].fill(words[at.first[16 * half] as usize]);
                } else {
                    for lane in lanes {
                        out[lane] = words[at.first[lane] as usize];
                    }
                }
            }
            // CAST: 0 to 3.
            warp.write(Warp::next(i.d, step as u8), active, &out);
        }
        return Ok(());
    }
    lds_lanes(context, warp, i, active, &addresses)
}

#[inline(never)]
fn lds_lanes(
    context: &mut Context,
    warp: &mut Warp,
    i: &Instruction,
    active: u32,
    addresses: &Row,
) -> Outcome {
    check_alignment(&widen(addresses), active, Format::of(i).bytes)?;
    context.load_lanes(warp, i, active, |_, lane| (Space::Shared, addresses[lane].into()))
}

#[inline(always)]
pub(super) fn sts(context: &mut Context, warp: &mut Warp, i: &Instruction, active: u32) -> Outcome {
    let addresses = shared_addresses(warp, i, field::UPPER_UNIFORM);
    let count = whole_words(i);
    if count != 0
        && let Some(at) = shared_words(context, &addresses, active, count)
    {
        for step in 0..count {
            let words = &mut context.shared[step..];
            // CAST: 0 to 3.
            let row = warp.row(Warp::next(data(i), step as u8));
            for lane in lanes(active) {
                words[at.first[lane] as usize] = row[lane];
            }
        }
        return Ok(());
    }
    sts_lanes(context, warp, i, active, &addresses)
}

#[inline(never)]
fn sts_lanes(
    context: &mut Context,
    warp: &mut Warp,
    i: &Instruction,
    active: u32,
    addresses: &Row,
) -> Outcome {
    check_alignment(&widen(addresses), active, Format::of(i).bytes)?;
    context.store_lanes(warp, i, active, data(i), |_, lane| (Space::Shared, addresses[lane].into()))
}

/// Returns the addresses of a local access, relative to the window. Only loads have a uniform base.
pub(super) fn local_addresses(warp: &Warp, i: &Instruction) -> Row {
    let uniform = i.op == Op::Ldl && i.bit(field::UNIFORM);
    // CAST: 6 bits.
    let base = if uniform { warp.uniform(i.register(field::SLOT_UNIFORM)) } else { 0 };
    window_addresses(warp, i, 0, base)
}

pub(super) fn ldl(context: &mut Context, warp: &mut Warp, i: &Instruction, active: u32) -> Outcome {
    let addresses = local_addresses(warp, i);
    check_alignment(&widen(&addresses), active, Format::of(i).bytes)?;
    context.load_lanes(warp, i, active, |_, lane| (Space::Local, addresses[lane].into()))
}

pub(super) fn stl(context: &mut Context, warp: &mut Warp, i: &Instruction, active: u32) -> Outcome {
    let addresses = local_addresses(warp, i);
    check_alignment(&widen(&addresses), active, Format::of(i).bytes)?;
    context.store_lanes(warp, i, active, data(i), |_, lane| (Space::Local, addresses[lane].into()))
}
