//! Instructions that exchange data between the lanes of a warp.
//!
//! Only the active lanes take part. The compiler converges the others with WARPSYNC first.

use sass::field::{self, Field};
use sass::{Instruction, RZ};

use super::{Outcome, lanes, unmodelled};
use crate::sm::warp::{FULL, Row, Warp};

/// As [`shuffle_sources`] if all operands are immediates or RZ.
pub(super) fn fixed_sources(i: &Instruction) -> Option<(Row, u32)> {
    let of = |immediate: bool, value: Field, register: Field| match immediate {
        true => Some(i.bits(value)),
        false => (i.register(register) == RZ).then_some(0),
    };
    let lane = of(matches!(i.form, 4 | 7), field::SHUFFLE_LANE, field::SLOT_REGISTER)?;
    let clamp = of(matches!(i.form, 2 | 7), field::SHUFFLE_MASK, field::UPPER)?;
    Some(sources(i.bits(field::SHUFFLE), &[lane; 32], &[clamp; 32]))
}

/// Returns the lane that each lane reads in SHFL, and the lanes that read one in the range.
pub(super) fn shuffle_sources(warp: &Warp, i: &Instruction) -> (Row, u32) {
    let spread = |value: u32| [value; 32];
    // The form says whether lane and clamp are immediates.
    let (lane_value, clamp) = (
        if matches!(i.form, 4 | 7) {
            spread(i.bits(field::SHUFFLE_LANE))
        } else {
            *warp.row(i.register(field::SLOT_REGISTER))
        },
        if matches!(i.form, 2 | 7) {
            spread(i.bits(field::SHUFFLE_MASK))
        } else {
            *warp.row(i.register(field::UPPER))
        },
    );
    sources(i.bits(field::SHUFFLE), &lane_value, &clamp)
}

fn sources(mode: u32, lane_value: &Row, clamp: &Row) -> (Row, u32) {
    let (mut out, mut inside) = ([0; 32], 0);
    for lane in 0..32u32 {
        let at = lane as usize;
        let (b, c) = (lane_value[at] & 31, clamp[at]);
        let segment = c >> 8 & 31;
        let low = lane & segment;
        let high = low | c & 31 & !segment;
        let (source, valid) = match mode {
            0 => {
                let source = low | b & !segment;
                (source, source <= high)
            }
            // For UP the clamp is the lower end. Signed, because the source may be below lane 0.
            1 => (lane.wrapping_sub(b), lane.wrapping_sub(b) as i32 >= high as i32),
            2 => (lane + b, lane + b <= high),
            _ => (lane ^ b, lane ^ b <= high),
        };
        out[at] = if valid { source } else { lane } & 31;
        inside |= u32::from(valid) << lane;
    }
    (out, inside)
}

/// SHFL: each lane reads a register of another.
pub(super) fn shfl(warp: &mut Warp, i: &Instruction, active: u32) {
    let (sources, inside) = shuffle_sources(warp, i);
    let from = *warp.row(i.a);
    let out = sources.map(|source| from[source as usize & 31]);
    warp.write(i.d, active, &out);
    warp.set_predicate(i.target_predicate(field::TARGET), active, inside);
}

/// Returns the ballot and the outcome of a vote over the active lanes.
fn vote_of(warp: &Warp, i: &Instruction, active: u32) -> Option<(u32, bool)> {
    let ballot = warp.predicate(i.source_predicate(field::CONDITION)) & active;
    let outcome = match i.bits(field::VOTE) {
        0 => ballot == active,
        1 => ballot != 0,
        2 => ballot == active || ballot == 0,
        _ => return None,
    };
    Some((ballot, outcome))
}

pub(super) fn vote(warp: &mut Warp, i: &Instruction, active: u32) -> Outcome {
    let (ballot, outcome) = vote_of(warp, i, active).ok_or_else(|| unmodelled(i))?;
    warp.write(i.d, active, &[ballot; 32]);
    warp.set_predicate(i.target_predicate(field::TARGET), active, if outcome { FULL } else { 0 });
    Ok(())
}

pub(super) fn voteu(warp: &mut Warp, i: &Instruction, active: u32) -> Outcome {
    let (ballot, outcome) = vote_of(warp, i, active).ok_or_else(|| unmodelled(i))?;
    warp.set_uniform(i.d, ballot);
    warp.set_uniform_predicate(i.target_predicate(field::TARGET), outcome);
    Ok(())
}

/// MATCH: the active lanes with equal values. ANY returns to each lane the lanes with its value. ALL returns all
/// active lanes if their values agree, else 0.
pub(super) fn match_lanes(warp: &mut Warp, i: &Instruction, active: u32) {
    let values: [u64; 32] = core::array::from_fn(|lane| {
        if i.bit(field::MATCH_WIDE) { warp.pair(i.a, lane) } else { warp.row(i.a)[lane].into() }
    });
    let any = i.bit(field::MATCH_ANY);
    let equal = |lane: usize| {
        lanes(active).filter(|&other| values[other] == values[lane]).fold(0, |mask, other| mask | 1 << other)
    };
    let mut out: Row = [0; 32];
    let mut all = 0;
    for lane in lanes(active) {
        let mask = equal(lane);
        if any {
            out[lane] = mask;
        } else if mask == active {
            out[lane] = active;
            all |= 1 << lane;
        }
    }
    warp.write(i.d, active, &out);
    if !any {
        warp.set_predicate(i.target_predicate(field::TARGET), active, all);
    }
}

/// REDUX: combines a register of the active lanes into a uniform register.
pub(super) fn redux(warp: &mut Warp, i: &Instruction, active: u32) -> Outcome {
    let row = warp.row(i.a);
    let values = lanes(active).map(|lane| row[lane]);
    let signed = i.bit(field::SIGNED);
    // CAST: reinterprets words as signed and back.
    let result = match i.bits(field::REDUX) {
        0 => values.fold(!0, |a, b| a & b),
        1 => values.fold(0, |a, b| a | b),
        2 => values.fold(0, |a, b| a ^ b),
        3 => values.fold(0, u32::wrapping_add),
        4 if signed => values.map(|value| value as i32).min().unwrap_or(0) as u32,
        4 => values.min().unwrap_or(0),
        5 if signed => values.map(|value| value as i32).max().unwrap_or(0) as u32,
        5 => values.max().unwrap_or(0),
        _ => return Err(unmodelled(i)),
    };
    warp.set_uniform(i.d, result);
    Ok(())
}

/// R2UR: the value of the lowest active lane. The predicate is true in the lanes that have another value. Compilers
/// guard `BRA.DIV` and `BRA.CONV` with its complement before warp-wide operations with member masks that may differ by
/// lane: only the lanes with the first mask are then compared with the union of all masks, and groups go separate ways.
///
/// Source: hand-made code on an H100.
pub(super) fn r2ur(warp: &mut Warp, i: &Instruction, active: u32) {
    let row = warp.row(i.a);
    let value = row[active.trailing_zeros() as usize & 31];
    let others = lanes(active).filter(|&lane| row[lane] != value).fold(0, |mask, lane| mask | 1 << lane);
    warp.set_uniform(i.d, value);
    warp.set_predicate(i.target_predicate(field::TARGET), active, others);
}

/// MOVM: transposes an 8x8 matrix of 16-bit elements. Lane l holds columns 2 (l mod 4) and the next of row l / 4.
pub(super) fn movm(warp: &mut Warp, i: &Instruction, active: u32) -> Outcome {
    if active != FULL {
        return Err(unmodelled(i));
    }
    let from = *warp.row(i.a);
    let element = |row: usize, column: usize| from[4 * row + column / 2] >> (16 * (column % 2)) & 0xffff;
    let out = core::array::from_fn(|lane| {
        let (column, row) = (lane / 4, 2 * (lane % 4));
        element(row, column) | element(row + 1, column) << 16
    });
    warp.write(i.d, active, &out);
    Ok(())
}
