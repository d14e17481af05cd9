//! Handlers of shared and global accesses.
//!
//! They serve accesses that lie in shared memory, or in one mapping; anything else, and so each fault, is left to the
//! interpreter's function.

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

use super::eight::{Eight, lanes_of, part, write};
use super::{Machine, Step};
use crate::mmu::Access;
use crate::sm::exec::memory::{split, uniform_pair};
use crate::sm::exec::runs::Half;
use crate::sm::warp::{FULL, Row, Warp, lanes};

/// Addresses of all lanes.
type Lanes<V> = [V; 4];

/// Returns the values of a row. Inactive lanes get the value of an active one.
#[inline(always)]
fn active_only<V: Eight>(row: &Row, active: u32) -> Lanes<V> {
    let instead = V::splat(row[active.trailing_zeros() as usize & 31]);
    let mut out = [instead; 4];
    for at in 0..4 {
        let values = part::<V>(row, at);
        out[at] =
            if active == FULL { values } else { lanes_of::<V>(active >> (8 * at)).select(values, instead) };
    }
    out
}

/// Combines the values of all lanes by `or`, `min` or `max`. A macro: functions that are passed are not inlined.
macro_rules! fold {
    ($lanes:ident, $vectors:ident, |$x:ident, $y:ident| $words:expr) => {{
        let mut parts = [0u32; 8];
        $lanes[0].$vectors($lanes[1]).$vectors($lanes[2].$vectors($lanes[3])).store(&mut parts);
        let mut $x = parts[0];
        for $y in parts {
            $x = $words;
        }
        $x
    }};
}

/// Stores the values of all lanes.
#[inline(always)]
fn stored<V: Eight>(lanes: Lanes<V>) -> Row {
    let mut row = [0; 32];
    write(&mut row, FULL, lanes);
    row
}

/// Returns the access patterns of the two halves of a warp.
#[inline(always)]
fn halves<V: Eight>(at: Lanes<V>, row: &Row) -> [Half; 2] {
    let mut found = [Half::Apart; 2];
    for half in 0..2 {
        let start = V::splat(row[16 * half]);
        let low = at[2 * half].sub(start);
        let high = at[2 * half + 1].sub(start);
        let zero = V::splat(0);
        let steps = V::load(&[0, 4, 8, 12, 16, 20, 24, 28]);
        if low.equal(steps).and(high.sub(V::splat(32)).equal(steps)).bits() == 0xff {
            found[half] = Half::Run;
        } else if low.or(high).equal(zero).bits() == 0xff {
            found[half] = Half::Same;
        }
    }
    found
}

/// The words of a shared access.
struct Shared {
    /// Offset of each lane in bytes.
    at: Row,
    halves: [Half; 2],
}

/// Returns the words of a shared access of `words` words per lane; `None` if it is not inside shared memory or not
/// aligned. Inactive lanes get the words of an active one.
#[inline(always)]
fn shared<V: Eight>(m: &Machine, s: &Step, words: usize) -> Option<Shared> {
    let base = V::splat(s.extra[0].wrapping_add(m.warp.uniform(s.base)));
    let stride = s.extra[1] & 31;
    let mut at = active_only::<V>(m.row(s.a), m.active);
    for part in 0..4 {
        at[part] = at[part].shift_left(stride).add(base);
    }
    let (all, highest) = (fold!(at, or, |x, y| x | y), fold!(at, max, |x, y| x.max(y)));
    let bytes = 4 * words;
    let inside = highest as usize + bytes <= m.context.launch.shared_bytes as usize;
    if !inside || !(all as usize).is_multiple_of(bytes) {
        return None;
    }
    let row = stored(at);
    Some(Shared { halves: halves(at, &row), at: row })
}

/// LDS of `WORDS` words: 1, 2 or 4. Returns false if the interpreter must execute it.
#[inline(always)]
pub(super) fn lds<V: Eight, const WORDS: usize>(m: &mut Machine, s: &Step) -> bool {
    let Some(Shared { at, halves }) = shared::<V>(m, s, WORDS) else { return false };
    for step in 0..WORDS {
        let words = &m.context.shared[step..];
        let mut out = [0; 32];
        for (first, half) in [(0, halves[0]), (16, halves[1])] {
            let start = at[first] as usize / 4;
            match half {
                Half::Run if WORDS == 1 => out[first..first + 16].copy_from_slice(&words[start..start + 16]),
                Half::Same => out[first..first + 16].fill(words[start]),
                _ => {
                    for lane in first..first + 16 {
                        out[lane] = words[at[lane] as usize / 4];
                    }
                }
            }
        }
        // CAST: 0 to 3.
        put::<V>(m, Warp::next(s.d, step as u8), &out);
    }
    true
}

/// Writes the active lanes of a register.
#[inline(always)]
fn put<V: Eight>(m: &mut Machine, register: u8, values: &Row) {
    let values = [part(values, 0), part(values, 1), part(values, 2), part(values, 3)];
    write::<V>(m.warp.row_mut(register), m.active, values);
}

/// SHFL from fixed lanes: B has their numbers.
#[inline(always)]
pub(super) fn shuffle<V: Eight>(m: &mut Machine, s: &Step) -> bool {
    let (from, sources) = (*m.row(s.a), m.row(s.b));
    let mut out = [0; 32];
    for lane in 0..32 {
        out[lane] = from[sources[lane] as usize & 31];
    }
    put::<V>(m, s.d, &out);
    m.warp.set_predicate(s.targets[0], m.active, s.extra[0]);
    true
}

/// STS of `WORDS` words: 1, 2 or 4. D is the first data register. Returns false if the interpreter must execute it.
#[inline(always)]
pub(super) fn sts<V: Eight, const WORDS: usize>(m: &mut Machine, s: &Step) -> bool {
    let Some(Shared { at, halves }) = shared::<V>(m, s, WORDS) else { return false };
    for step in 0..WORDS {
        // CAST: 0 to 3.
        let row = m.warp.row(Warp::next(s.d, step as u8));
        let words = &mut m.context.shared[step..];
        for (first, half) in [(0, halves[0]), (16, halves[1])] {
            let start = at[first] as usize / 4;
            if WORDS == 1 && m.active == FULL && half == Half::Run {
                words[start..start + 16].copy_from_slice(&row[first..first + 16]);
            } else {
                for lane in lanes(m.active & 0xffff << first) {
                    words[at[lane] as usize / 4] = row[lane];
                }
            }
        }
    }
    true
}

/// The bytes of a global access.
struct Global {
    /// The lowest one.
    lowest: *mut u8,
    /// Offset of each lane.
    offsets: Row,
    halves: [Half; 2],
}

/// Returns the bytes of a global access of `bytes` bytes per lane; `None` if it is not aligned, or not in a cached
/// mapping. Inactive lanes get the bytes of an active one.
#[inline(always)]
fn global<V: Eight>(m: &Machine, s: &Step, bytes: u32, access: Access) -> Option<Global> {
    let base = u64::from(s.extra[0]) | u64::from(s.extra[1]) << 32;
    let base = base.wrapping_add(uniform_pair(m.warp, s.base));
    let low = active_only::<V>(m.row(s.a), m.active);
    let high = active_only::<V>(m.row(s.b), m.active);
    let first = m.row(s.b)[m.active.trailing_zeros() as usize & 31];
    let above = V::splat(first);
    let mut apart = V::splat(0);
    for part in 0..4 {
        apart = apart.or(high[part].xor(above));
    }
    let apart = apart.equal(V::splat(0)).bits() != 0xff;
    let all = fold!(low, or, |x, y| x | y);
    // CAST: the low word decides about the alignment. A sum of misaligned parts may be aligned, which is rare.
    if apart || (all | base as u32) & (bytes - 1) != 0 {
        return None;
    }
    let (lowest, highest) = (fold!(low, min, |x, y| x.min(y)), fold!(low, max, |x, y| x.max(y)));
    let va = (u64::from(first) << 32 | u64::from(lowest)).wrapping_add(base);
    let len = u64::from(highest - lowest) + u64::from(bytes);
    let pointer = m.context.port.at_hand(va, len, access)?;
    let start = V::splat(lowest);
    let mut offsets = low;
    for part in 0..4 {
        offsets[part] = low[part].sub(start);
    }
    let row = stored(offsets);
    Some(Global { lowest: pointer, halves: halves(offsets, &row), offsets: row })
}

/// LDG of `BYTES` bytes. Returns false if the interpreter must execute it.
#[inline(always)]
pub(super) fn ldg<V: Eight, const BYTES: u32, const SIGNED: bool>(m: &mut Machine, s: &Step) -> bool {
    let Some(Global { lowest, offsets, halves }) = global::<V>(m, s, BYTES, Access::Read) else {
        return false;
    };
    let mut out = [[0; 32]; 4];
    if BYTES == 4 && halves[0] != Half::Apart && halves[1] != Half::Apart {
        for (first, half) in [(0, halves[0]), (16, halves[1])] {
            // SAFETY: the port guarantees access to the bytes of all lanes: 64 of a run, else 4. The target is half a
            // row. Concurrent writers can tear the data only between lanes, as on hardware.
            unsafe {
                let from = lowest.add(offsets[first] as usize).cast::<u32>();
                if half == Half::Run {
                    core::ptr::copy_nonoverlapping(from, out[0][first..first + 16].as_mut_ptr(), 16);
                } else {
                    out[0][first..first + 16].fill(AtomicU32::from_ptr(from).load(Relaxed));
                }
            }
        }
        put::<V>(m, s.d, &out[0]);
        return true;
    }
    for lane in 0..32 {
        // SAFETY: the port guarantees access to `BYTES` bytes at each offset, which is aligned. Atomic, because other
        // threads may write the memory at any time.
        // CAST: sign extension of the part of a word.
        unsafe {
            let from = lowest.add(offsets[lane] as usize);
            let double = |at| AtomicU64::from_ptr(from.cast::<u64>().add(at)).load(Relaxed);
            let words = match (BYTES, SIGNED) {
                (1, false) => [AtomicU8::from_ptr(from).load(Relaxed).into(), 0, 0, 0],
                (1, true) => [AtomicU8::from_ptr(from).load(Relaxed) as i8 as u32, 0, 0, 0],
                (2, false) => [AtomicU16::from_ptr(from.cast()).load(Relaxed).into(), 0, 0, 0],
                (2, true) => [AtomicU16::from_ptr(from.cast()).load(Relaxed) as i16 as u32, 0, 0, 0],
                (4, _) => [AtomicU32::from_ptr(from.cast()).load(Relaxed), 0, 0, 0],
                (8, _) => split(double(0), 0),
                _ => split(double(0), double(1)),
            };
            for step in 0..BYTES.div_ceil(4) as usize {
                out[step][lane] = words[step];
            }
        }
    }
    for step in 0..BYTES.div_ceil(4) as usize {
        // CAST: 0 to 3.
        put::<V>(m, Warp::next(s.d, step as u8), &out[step]);
    }
    true
}

/// STG of `BYTES` bytes; D is the first data register. Returns false if the interpreter must execute it.
#[inline(always)]
pub(super) fn stg<V: Eight, const BYTES: u32>(m: &mut Machine, s: &Step) -> bool {
    let Some(Global { lowest, offsets, halves }) = global::<V>(m, s, BYTES, Access::Write) else {
        return false;
    };
    // CAST: 0 to 3.
    let row = |step: usize| m.warp.row(Warp::next(s.d, step as u8));
    if BYTES == 4 && m.active == FULL && halves == [Half::Run; 2] {
        for (half, first) in row(0).chunks_exact(16).zip([0, 16]) {
            // SAFETY: as in `ldg`, with the roles exchanged; the mapping is writable.
            unsafe {
                let to = lowest.add(offsets[first] as usize).cast();
                core::ptr::copy_nonoverlapping(half.as_ptr(), to, 16);
            }
        }
        return true;
    }
    for lane in lanes(m.active) {
        let double = |at: usize| u64::from(row(2 * at)[lane]) | u64::from(row(2 * at + 1)[lane]) << 32;
        // SAFETY: as in `ldg`; the mapping is writable.
        // CAST: the stored part of the word.
        unsafe {
            let to = lowest.add(offsets[lane] as usize);
            match BYTES {
                1 => AtomicU8::from_ptr(to).store(row(0)[lane] as u8, Relaxed),
                2 => AtomicU16::from_ptr(to.cast()).store(row(0)[lane] as u16, Relaxed),
                4 => AtomicU32::from_ptr(to.cast()).store(row(0)[lane], Relaxed),
                _ => {
                    for at in 0..BYTES as usize / 8 {
                        AtomicU64::from_ptr(to.cast::<u64>().add(at)).store(double(at), Relaxed);
                    }
                }
            }
        }
    }
    true
}
