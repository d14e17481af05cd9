//! Tensor cores: matrix products over the registers of a whole warp.
//!
//! The fragments' layout and arithmetic are in [`crate::sm::numeric::mma`].

use sass::{Instruction, Op, Sign, Source, field};

use super::{Outcome, unmodelled};
use crate::sm::numeric::mma::{self, BitOp, HalfType, IntegerType};
use crate::sm::numeric::sparse::{self, Metadata};
use crate::sm::numeric::{Rounding, f64 as double};
use crate::sm::warp::{FULL, Row, Warp};

/// Returns `count` consecutive registers; the rest of the array is zero.
fn group(warp: &Warp, register: u8, count: u8) -> [Row; 4] {
    let mut out = [[0; 32]; 4];
    for step in 0..count {
        out[usize::from(step)] = *warp.row(Warp::next(register, step));
    }
    out
}

/// Returns the number of a register source; all sources of these instructions are registers.
fn number(source: Source) -> u8 {
    match source {
        Source::Register(number) => number,
        _ => 255,
    }
}

/// HMMA, IMMA, BMMA and DMMA. All lanes take part.
#[inline(always)]
pub(super) fn multiply(warp: &mut Warp, i: &Instruction, active: u32) -> Outcome {
    if active != FULL {
        return Err(unmodelled(i));
    }
    if i.op == Op::Dmma {
        dmma(warp, i);
        return Ok(());
    }
    let refuse = || unmodelled(i);
    let shape = i.fragment().ok_or_else(refuse)?;
    let rows = usize::from(shape.rows);
    let (a, b, c) =
        (group(warp, i.a, shape.a), group(warp, number(i.b), shape.b), group(warp, number(i.c), shape.c));
    let (left, right) = (&a[..usize::from(shape.a)], &b[..usize::from(shape.b)]);
    let metadata = i.is_sparse().then(|| Metadata {
        register: warp.row(i.register(field::METADATA)),
        selector: i.bits(field::METADATA_SELECTOR),
    });
    let d = match i.op {
        Op::Hmma => {
            let kind = HalfType::from_field(i.bits(field::HMMA_TYPE)).ok_or_else(refuse)?;
            match (i.bit(field::HMMA_SINGLE), metadata) {
                (true, None) => mma::hmma_f32(kind, left, right, &c),
                (true, Some(metadata)) => sparse::hmma_f32(kind, left, right, &c, metadata),
                (false, _) if kind != HalfType::F16 => return Err(unmodelled(i)),
                (false, metadata) => {
                    let c = [c[0], c[1]];
                    let [low, high] = match metadata {
                        None => mma::hmma_f16(left, right, &c),
                        Some(metadata) => sparse::hmma_f16(left, right, &c, metadata),
                    };
                    [low, high, [0; 32], [0; 32]]
                }
            }
        }
        Op::Imma => {
            if i.bits(field::IMMA_A_TYPE) > 1
                || i.bits(field::IMMA_B_TYPE) > 1
                || i.bit(field::IMMA_A_SMALL) != i.bit(field::IMMA_B_SMALL)
            {
                return Err(unmodelled(i));
            }
            let bits = if i.bit(field::IMMA_A_SMALL) { 4 } else { 8 };
            let kind = |signed| IntegerType { bits, signed };
            let (left, right) =
                ((kind(i.bit(field::IMMA_A_SIGNED)), left), (kind(i.bit(field::IMMA_B_SIGNED)), right));
            match metadata {
                None => mma::imma(left, right, &c, rows, i.bit(field::IMMA_SATURATE)),
                Some(metadata) => sparse::imma(left, right, &c, i.bit(field::IMMA_SATURATE), metadata),
            }
        }
        _ => {
            let op = match i.bits(field::BMMA_OPERATION_LONG) {
                0 => BitOp::Xor,
                2 => BitOp::And,
                _ => return Err(unmodelled(i)),
            };
            mma::bmma(op, left, right, &c, rows)
        }
    };
    for step in 0..shape.c {
        warp.write(Warp::next(i.d, step), active, &d[usize::from(step)]);
    }
    Ok(())
}

fn dmma(warp: &mut Warp, i: &Instruction) {
    let pairs = |register: u8, sign: Sign| -> [u64; 32] {
        core::array::from_fn(|lane| double::modify(warp.pair(register, lane), sign.absolute, sign.negate))
    };
    let a = pairs(i.a, i.a_sign());
    let b = pairs(number(i.b), i.b_sign);
    let third = number(i.c);
    let c = [pairs(third, i.c_sign), pairs(Warp::next(third, 2), i.c_sign)];
    let d = mma::dmma(&a, &b, &c, Rounding::from_field(i.bits(field::ROUND)));
    for (step, values) in [0, 2].into_iter().zip(&d) {
        for (lane, value) in values.iter().enumerate() {
            warp.write_pair(Warp::next(i.d, step), lane, *value);
        }
    }
}
