//! Constant loads, matrix loads, copies between spaces and address queries.

use sass::{Instruction, RZ, field};

use super::memory::{
    Format, check_alignment, load_store_addresses, matrix_addresses, read_words, register_addresses, split,
    uniform_pair, widen,
};
use super::{Context, Outcome, Trap, lanes, unmodelled};
use crate::mmu::Access;
use crate::sm::SmFaultCause;
use crate::sm::space::Space;
use crate::sm::warp::{FULL, Row, Warp};

impl Context<'_> {
    /// Loads from a constant bank. Returns low and high word.
    pub(super) fn load_constant(&self, i: &Instruction, at: u32) -> Result<[u32; 2], SmFaultCause> {
        // CAST: 5 bits.
        let bank = i.register(field::BANK);
        let format = Format::of(i);
        if !at.is_multiple_of(format.bytes) {
            return Err(SmFaultCause::MisalignedAddress { va: at.into(), bytes: format.bytes });
        }
        Ok(match format.bytes {
            1 => [format.extend(self.constants.byte(bank, at)?.into()), 0],
            2 => [format.extend(self.constants.half(bank, at)?.into()), 0],
            4 => [self.constants.word(bank, at)?, 0],
            _ => {
                let [low, high, ..] = split(self.constants.double(bank, at)?, 0);
                [low, high]
            }
        })
    }
}

pub(super) fn ldc(context: &mut Context, warp: &mut Warp, i: &Instruction, active: u32) -> Outcome {
    // CAST: two's complement.
    let offset = i.signed(field::BANK_OFFSET) as u32;
    let mut out = [[0; 32]; 2];
    for lane in lanes(active) {
        let at = warp.row(i.a)[lane].wrapping_add(offset);
        let words = context.load_constant(i, at).map_err(|cause| Trap { lane: Some(lane), cause })?;
        (out[0][lane], out[1][lane]) = (words[0], words[1]);
    }
    warp.write(i.d, active, &out[0]);
    if i.bits(field::SIZE) == 5 {
        warp.write(Warp::next(i.d, 1), active, &out[1]);
    }
    Ok(())
}

/// LDSM: 8x8 matrices of 16-bit elements, each row from the address of one lane.
pub(super) fn ldsm(context: &mut Context, warp: &mut Warp, i: &Instruction, active: u32) -> Outcome {
    let count = match i.bits(field::LDSM_COUNT) {
        0 => 1,
        1 => 2,
        2 => 4,
        _ => return Err(unmodelled(i)),
    };
    let transposed = match i.bits(field::LDSM_SHAPE) {
        0 => false,
        1 => true,
        _ => return Err(unmodelled(i)),
    };
    if active != FULL {
        return Err(unmodelled(i));
    }
    let addresses = matrix_addresses(warp, i);
    let users = if count == 4 { FULL } else { (1 << (8 * count)) - 1 };
    check_alignment(&widen(&addresses), users, 16)?;
    let format = Format { bytes: 16, signed: false };
    for matrix in 0..count {
        let mut rows = [[0; 4]; 8];
        for (row, words) in rows.iter_mut().enumerate() {
            let lane = 8 * matrix + row;
            *words = context.load(warp, lane, (Space::Shared, addresses[lane].into()), format)?;
        }
        let element = |row: usize, column: usize| rows[row][column / 2] >> (16 * (column % 2)) & 0xffff;
        let out = core::array::from_fn(|lane| {
            let (group, pair) = (lane / 4, 2 * (lane % 4));
            if transposed {
                element(pair, group) | element(pair + 1, group) << 16
            } else {
                element(group, pair) | element(group, pair + 1) << 16
            }
        });
        // CAST: 0 to 3.
        warp.write(Warp::next(i.d, matrix as u8), active, &out);
    }
    Ok(())
}

/// LDGSTS: an asynchronous copy from global to shared memory. It reads at once, and writes later (`sm::copies`).
///
/// Lanes whose predicate operand is false fill the destination with zeros; compilers use it for sources of size 0.
/// With ZFILL the low bits of the source address, unused in an aligned address, are the number of bytes at the end
/// that become zero. The compiler adds the access size minus the source size to the address, modulo the access size.
pub(super) fn ldgsts(context: &mut Context, warp: &mut Warp, i: &Instruction, active: u32) -> Outcome {
    let bytes = match i.bits(field::SIZE) {
        4 => 4,
        5 => 8,
        6 => 16,
        _ => return Err(unmodelled(i)),
    };
    let format = Format { bytes, signed: false };
    let Copied { from, to, left_out, lanes: copy } = copy_addresses(warp, i, bytes);
    check_alignment(&widen(&to), active, bytes)?;
    let copied = active & copy;
    check_alignment(&from, copied, bytes)?;
    if copied == FULL
        && left_out == [0; 32]
        && let Some(data) = whole_copies(context, &from, &to, format)
    {
        warp.copies.begin(active, to.map(|at| at / 4), (data, bytes as usize / 4), context.shared);
        return Ok(());
    }
    let (mut first, mut data) = ([0; 32], [[0; 32]; 4]);
    for lane in lanes(active) {
        let words = if copied >> lane & 1 != 0 {
            let words = context.load(warp, lane, (Space::Global, from[lane]), format)?;
            first_bytes(words, u64::from(bytes) - left_out[lane])
        } else {
            [0; 4]
        };
        let index = context.shared_index(to[lane].into(), bytes);
        // CAST: within shared memory.
        first[lane] = index.map_err(|cause| Trap { lane: Some(lane), cause })? as u32;
        for (row, word) in data.iter_mut().zip(words) {
            row[lane] = word;
        }
    }
    warp.copies.begin(active, first, (data, bytes as usize / 4), context.shared);
    Ok(())
}

/// Reads the words of all lanes if the memory is at hand, and the targets are inside shared memory.
fn whole_copies(context: &Context, from: &[u64; 32], to: &Row, format: Format) -> Option<[Row; 4]> {
    let bytes = u64::from(format.bytes);
    let (lowest, highest) = (*from.iter().min()?, *from.iter().max()?);
    context.shared_index(u64::from(*to.iter().max()?), format.bytes).ok()?;
    let pointer = context.port.at_hand(lowest, (highest - lowest).checked_add(bytes)?, Access::Read)?;
    let mut data = [[0; 32]; 4];
    for (lane, at) in from.iter().enumerate() {
        // SAFETY: the port guarantees access to the bytes of all lanes. Their addresses are aligned.
        let words = unsafe { read_words(pointer.wrapping_add((at - lowest) as usize), format.bytes) };
        for (row, word) in data.iter_mut().zip(words) {
            row[lane] = word;
        }
    }
    Some(data)
}

/// Addresses of an asynchronous copy.
pub(super) struct Copied {
    /// Global addresses of the sources.
    pub(super) from: [u64; 32],
    /// Offsets in shared memory.
    pub(super) to: Row,
    /// Bytes at the end of each target that become zero.
    pub(super) left_out: [u64; 32],
    /// Lanes whose predicate operand is true; the others only write zeros.
    pub(super) lanes: u32,
}

/// Decodes the addresses of LDGSTS.
pub(super) fn copy_addresses(warp: &Warp, i: &Instruction, bytes: u32) -> Copied {
    // CAST: two's complement, and 6 bits.
    let from_offset = i.signed(field::COPY_FROM) as u64;
    let to_offset = i.signed(field::COPY_TO) as u32;
    let base = if i.bit(field::UNIFORM) && !i.bit(field::DESCRIPTOR) {
        uniform_pair(warp, i.register(field::UPPER_UNIFORM))
    } else {
        0
    };
    let from = register_addresses(warp, i, true, base.wrapping_add(from_offset));
    let tail = if i.bit(field::COPY_FILL) { u64::from(bytes) - 1 } else { 0 };
    Copied {
        from: from.map(|at| at & !tail),
        to: warp.row(i.d).map(|at| at.wrapping_add(to_offset)),
        left_out: from.map(|at| at & tail),
        lanes: warp.predicate(i.source_predicate(field::CONDITION)),
    }
}

/// Returns the first `count` bytes of four words, followed by zeros.
fn first_bytes(words: [u32; 4], count: u64) -> [u32; 4] {
    let mut left = count;
    words.map(|word| {
        let kept = left.min(4);
        left -= kept;
        // CAST: at most the 32 bits of the word are kept.
        word & ((1u64 << (8 * kept)) - 1) as u32
    })
}

/// QSPC: whether a generic address is in a space.
pub(super) fn qspc(context: &mut Context, warp: &mut Warp, i: &Instruction, active: u32) -> Outcome {
    let space = match i.bits(field::SPACE) {
        0 => Space::Global,
        1 => Space::Local,
        2 => Space::Shared,
        _ => return Err(unmodelled(i)),
    };
    if i.d != RZ {
        return Err(unmodelled(i));
    }
    let addresses = load_store_addresses(warp, i, field::SLOT_UNIFORM);
    let inside = lanes(active)
        .filter(|&lane| context.resolve(addresses[lane]).0 == space)
        .fold(0, |mask, lane| mask | 1 << lane);
    warp.set_predicate(i.target_predicate(field::TARGET), active, inside);
    Ok(())
}
