//! Conversions between number formats.

use sass::{Instruction, Op, Source, field};

use super::{Context, Outcome, Trap, map1, map3, unmodelled};
use crate::sm::numeric::Rounding;
use crate::sm::numeric::convert::{self, Float, Integer};
use crate::sm::warp::{Row, Warp};

/// Source and result of a conversion.
#[derive(Clone, Copy)]
enum Kind {
    ToInteger(Float, Integer),
    FromInteger(Integer, Float),
    Float(Float, Float),
    Round(Float),
}

impl Kind {
    /// Decodes the size fields of F2I, I2F, F2F and FRND; `None` for invalid combinations.
    fn of(i: &Instruction) -> Option<Self> {
        let (to, from) = (i.bits(field::TO_SIZE), i.bits(field::FROM_SIZE));
        Some(match i.op {
            Op::F2i => {
                Self::ToInteger(Float::from_field(from)?, Integer::from_field(to, i.bit(field::TO_SIGNED)))
            }
            Op::I2f => Self::FromInteger(
                Integer::from_field(from, i.bit(field::FROM_SIGNED)),
                Float::from_field(to)?,
            ),
            // The flag is the top bit of a wider field, in which 4 is bfloat16.
            Op::F2f if i.bit(field::F2F_BFLOAT16) => match to {
                0 => Self::Float(Float::from_field(from)?, Float::Bf16),
                _ => return None,
            },
            Op::F2f => Self::Float(Float::from_field(from)?, Float::from_field(to)?),
            _ if from == to => Self::Round(Float::from_field(from)?),
            _ => return None,
        })
    }

    /// Returns the width of the source in bits.
    fn source_bits(self) -> u32 {
        match self {
            Self::ToInteger(Float::F64, _) | Self::Float(Float::F64, _) | Self::Round(Float::F64) => 64,
            Self::ToInteger(Float::F32, _) | Self::Float(Float::F32, _) | Self::Round(Float::F32) => 32,
            Self::FromInteger(from, _) => from.bits,
            _ => 16,
        }
    }

    /// Whether the result is a register pair.
    fn wide(self) -> bool {
        match self {
            Self::ToInteger(_, to) => to.bits == 64,
            Self::FromInteger(_, to) | Self::Float(_, to) | Self::Round(to) => to == Float::F64,
        }
    }
}

/// The rounding of a conversion of binary32 to a word, and whether that has a sign; `None` for other instructions.
/// Whether denormal numbers are flushed makes no difference to the nearest integer and the next one towards 0.
pub(super) fn float_to_word(i: &Instruction) -> Option<(Rounding, bool)> {
    match Kind::of(i)? {
        Kind::ToInteger(Float::F32, Integer { bits: 32, signed }) if i.bits(field::SLOT_PART) == 0 => {
            Some((Rounding::from_field(i.bits(field::ROUND)), signed))
        }
        _ => None,
    }
}

/// The rounding of a conversion of a word to binary32, and whether the word has a sign; `None` for other instructions.
pub(super) fn word_to_float(i: &Instruction) -> Option<(Rounding, bool)> {
    match Kind::of(i)? {
        Kind::FromInteger(Integer { bits: 32, signed }, Float::F32) if i.bits(field::SLOT_PART) == 0 => {
            Some((Rounding::from_field(i.bits(field::ROUND)), signed))
        }
        _ => None,
    }
}

/// F2I, I2F, F2F and FRND.
pub(super) fn between(context: &Context, warp: &mut Warp, i: &Instruction, active: u32) -> Outcome {
    let kind = Kind::of(i).ok_or_else(|| unmodelled(i))?;
    let bits = kind.source_bits();
    let [low, high] = source(context, warp, i, bits)?;
    let rounding = Rounding::from_field(i.bits(field::ROUND));
    let ftz = i.bit(field::FTZ) && i.op != Op::I2f;
    let sign = i.b_sign;
    let modify = |format: Float, bits: u64| convert::modify(format, bits, sign.absolute, sign.negate);
    let (mut out_low, mut out_high): (Row, Row) = ([0; 32], [0; 32]);
    for lane in 0..32 {
        let value = u64::from(low[lane]) | u64::from(high[lane]) << 32;
        let result = match kind {
            Kind::ToInteger(from, to) => {
                convert::f2i(from, to, modify(from, value), rounding, ftz, i.bit(field::NAN_TO_ZERO))
            }
            Kind::FromInteger(from, to) => convert::i2f(from, to, value, rounding),
            Kind::Float(from, to) => convert::f2f(from, to, modify(from, value), rounding, ftz),
            Kind::Round(format) => convert::frnd(format, modify(format, value), rounding, ftz),
        };
        // CAST: the halves of the result.
        (out_low[lane], out_high[lane]) = (result as u32, (result >> 32) as u32);
    }
    warp.write(i.d, active, &out_low);
    if kind.wide() {
        warp.write(Warp::next(i.d, 1), active, &out_high);
    }
    Ok(())
}

/// Returns the source of a conversion of `bits` bits; the selected part of a register if narrow.
fn source(context: &Context, warp: &Warp, i: &Instruction, bits: u32) -> Result<[Row; 2], Trap> {
    if bits == 64 {
        return context.pairs(warp, i.b);
    }
    let mut room = [0; 32];
    let row = context.values(warp, i.b, &mut room)?;
    // An immediate has no part selector.
    let part = if matches!(i.b, Source::Immediate(_)) { 0 } else { i.bits(field::SLOT_PART) };
    let shift = bits * part;
    if bits == 32 && part != 0 || shift > 31 {
        return Err(unmodelled(i));
    }
    let mask = if bits == 32 { !0 } else { (1 << bits) - 1 };
    Ok([row.map(|register| register >> shift & mask), [0; 32]])
}

pub(super) fn i2fp(context: &Context, warp: &mut Warp, i: &Instruction, active: u32) -> Outcome {
    let (signed, rounding) = (i.bit(field::FROM_SIGNED), Rounding::from_field(i.bits(field::ROUND)));
    map1(context, warp, i, active, |b| convert::i2fp(b, signed, rounding))
}

/// F2FP and F2IP: two binary32 packed into one register.
#[inline(always)]
pub(super) fn pack(context: &Context, warp: &mut Warp, i: &Instruction, active: u32) -> Outcome {
    if i.op == Op::F2ip {
        let (signed, upper) = (i.bit(field::F2IP_SIGNED), i.bit(field::F2IP_UPPER));
        let rounding = Rounding::from_field(i.bits(field::ROUND));
        return map3(context, warp, i, active, |a, b, c| {
            convert::f2ip(a, b, c, signed, rounding, i.bit(field::PACK_RELU), upper)
        });
    }
    let to = if i.bit(field::F2FP_BFLOAT16) { Float::Bf16 } else { Float::F16 };
    let rounding = Rounding::from_field(i.bits(field::F2FP_ROUND_LOW));
    let (relu, merge) = (i.bit(field::PACK_RELU), i.bit(field::F2FP_MERGE));
    map3(context, warp, i, active, |a, b, c| match merge {
        false => convert::f2fp(to, a, b, rounding, relu),
        true => convert::f2fp_merge(to, b, c, rounding, relu),
    })
}
