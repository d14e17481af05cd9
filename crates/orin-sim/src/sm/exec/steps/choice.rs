//! Selection of the operation on lanes that an instruction is.

use sass::{Instruction, Op, PT, RZ, Sign, Source, field};

use super::Step;
use super::arithmetic::{Lanewise, NEVER, packed};
use super::operands::Sources;
use crate::sm::exec::float::{self, SignMask};
use crate::sm::exec::{convert, half, integer};
use crate::sm::numeric::Rounding;
use crate::sm::numeric::f16::Swizzle;
use crate::sm::numeric::mufu::Function;
use crate::sm::warp::Warp;

/// Returns the operation that an instruction is, and fills in its operands; `None` if only the interpreter has its
/// form.
pub(super) fn lanewise(i: &Instruction, step: &mut Step, sources: &mut dyn Sources) -> Option<Lanewise> {
    match i.op {
        Op::Ffma | Op::Fadd | Op::Fmul | Op::Fsetp | Op::Fmnmx | Op::Fsel => of_floats(i, step, sources),
        Op::Hfma2 => {
            step.b = sources.value(half::constant(i)?)?;
            Some(Lanewise::Copy)
        }
        Op::I2fp if Rounding::from_field(i.bits(field::ROUND)) == Rounding::Nearest => {
            step.b = sources.operand(i.b)?;
            Some(if i.bit(field::FROM_SIGNED) { Lanewise::FromSigned } else { Lanewise::FromUnsigned })
        }
        Op::I2f => {
            let (rounding, has_sign) = convert::word_to_float(i)?;
            step.b = sources.operand(i.b)?;
            Some(match (rounding, has_sign) {
                (Rounding::Nearest, true) => Lanewise::FromSigned,
                (Rounding::Nearest, false) => Lanewise::FromUnsigned,
                (Rounding::Up, true) => Lanewise::FromSignedUp,
                (Rounding::Up, false) => Lanewise::FromUnsignedUp,
                _ => return None,
            })
        }
        Op::Mufu if !i.bit(field::FUNCTION_HALF) => {
            let function = i.bits(field::FUNCTION);
            Function::from_field(function)?;
            let (b, SignMask(kept, flipped)) = sources.signed(i.b, SignMask::of(i.b_sign))?;
            step.b = b;
            step.extra = [kept, flipped, function, 0, 0, 0];
            Some(Lanewise::Mufu)
        }
        // Signs do not matter.
        Op::Fchk => {
            step.b = sources.signed(i.b, SignMask::NONE)?.0;
            step.targets = [i.target_predicate(field::TARGET), PT];
            Some(Lanewise::DivisionCheck)
        }
        Op::F2i => {
            let (rounding, has_sign) = convert::float_to_word(i)?;
            let (b, SignMask(kept, flipped)) = sources.signed(i.b, SignMask::of(i.b_sign))?;
            step.b = b;
            let nan_to_zero = u32::from(i.bit(field::NAN_TO_ZERO));
            step.extra = [kept, flipped, nan_to_zero, u32::from(rounding == Rounding::Zero), 0, 0];
            let kind = if has_sign { Lanewise::ToSigned } else { Lanewise::ToUnsigned };
            matches!(rounding, Rounding::Nearest | Rounding::Zero).then_some(kind)
        }
        Op::Hadd2 => {
            let swizzle = half::widened(i)?;
            step.b = sources.operand(i.b)?;
            step.extra[0] = u32::from(swizzle == Swizzle::H0H0);
            Some(Lanewise::Widen)
        }
        _ => of_integers(i, step, sources),
    }
}

fn of_floats(i: &Instruction, step: &mut Step, sources: &mut dyn Sources) -> Option<Lanewise> {
    let sa = SignMask::of(i.a_sign());
    let (b, sb) = sources.signed(i.b, SignMask::of(i.b_sign))?;
    step.b = b;
    if i.op == Op::Fsetp {
        let plain = !i.bit(field::FTZ) && [i.a_sign(), i.b_sign] == [Sign::default(); 2];
        // A truth table of less, equal, greater and unordered.
        let (kind, exchange, invert) = match i.bits(field::FLOAT_COMPARE) {
            1 => (Lanewise::FloatLess, false, false),
            2 => (Lanewise::FloatEqual, false, false),
            3 => (Lanewise::FloatAtMost, false, false),
            4 => (Lanewise::FloatLess, true, false),
            6 => (Lanewise::FloatAtMost, true, false),
            9 => (Lanewise::FloatAtMost, true, true),
            11 => (Lanewise::FloatLess, true, true),
            12 => (Lanewise::FloatAtMost, false, true),
            13 => (Lanewise::FloatEqual, false, true),
            14 => (Lanewise::FloatLess, false, true),
            _ => return None,
        };
        comparison(i, step, exchange, invert, 0);
        return plain.then_some(kind);
    }
    let mut signs = [sa, sb, SignMask::NONE];
    if matches!(i.op, Op::Fmnmx | Op::Fsel) {
        if i.bit(field::FTZ) || i.op == Op::Fmnmx && (i.bit(field::KEEP_NAN) || i.bit(field::XOR_SIGN)) {
            return None;
        }
        step.predicates[0] = packed(i.source_predicate(field::CONDITION));
        step.extra = [sa.0, sa.1, sb.0, sb.1, 0, 0];
        return Some(if i.op == Op::Fsel { Lanewise::FloatSelect } else { Lanewise::FloatMinMax });
    }
    let saturates = float::only_saturates(i);
    let down = i.op == Op::Ffma && float::only_rounds_down(i);
    if !float::plain(i) && !saturates && !down || i.op != Op::Fadd && i.bit(field::FMZ) {
        return None;
    }
    let kind = match i.op {
        Op::Fadd if saturates => Lanewise::FaddSaturated,
        Op::Fadd => Lanewise::Fadd,
        Op::Fmul if saturates => return None,
        Op::Fmul if i.bits(field::SCALE) == 4 => Lanewise::Fmul,
        Op::Fmul => return None,
        _ => {
            (step.c, signs[2]) = sources.signed(i.c, SignMask::of(i.c_sign))?;
            match signs {
                _ if saturates => Lanewise::FfmaSaturated,
                _ if down => Lanewise::FfmaDown,
                [SignMask::NONE, SignMask::NONE, SignMask::NONE] => Lanewise::Ffma,
                _ => Lanewise::FfmaSigned,
            }
        }
    };
    let [SignMask(a, b), SignMask(c, d), SignMask(e, f)] = signs;
    step.extra = [a, b, c, d, e, f];
    Some(kind)
}

/// Returns the destination predicates.
fn targets(i: &Instruction) -> [u8; 2] {
    [field::TARGET, field::TARGET_2].map(|at| i.target_predicate(at))
}

/// Fills in what comparisons need.
fn comparison(i: &Instruction, step: &mut Step, exchange: bool, invert: bool, flip: u32) {
    if exchange {
        (step.a, step.b) = (step.b, step.a);
    }
    step.predicates[0] = packed(i.source_predicate(field::CONDITION));
    step.targets = targets(i);
    step.extra = [0, 0, i.bits(field::COMBINE), if invert { !0 } else { 0 }, flip, 0];
}

fn of_integers(i: &Instruction, step: &mut Step, sources: &mut dyn Sources) -> Option<Lanewise> {
    let extended = i.bit(field::EXTENDED);
    let no_carry = targets(i) == [PT; 2];
    match i.op {
        Op::Mov if i.bits(field::MOV_MASK) == 15 => {
            step.b = sources.operand(i.b)?;
            Some(Lanewise::Copy)
        }
        Op::Imad if !extended && i.c_sign.negate => {
            (step.b, step.c) = (sources.operand(i.b)?, sources.operand(i.c)?);
            Some(Lanewise::ImadLess)
        }
        Op::Imad if !extended => {
            if i.a == RZ || i.b == Source::Register(RZ) {
                step.b = sources.operand(i.c)?;
                return Some(Lanewise::Copy);
            }
            (step.b, step.c) = (sources.operand(i.b)?, sources.operand(i.c)?);
            Some(Lanewise::Imad)
        }
        // IMAD.X of no product: the sum of C and a carry.
        Op::Imad if !i.c_sign.negate && (i.a == RZ || i.b == Source::Register(RZ)) => {
            (step.a, step.c) = (RZ.into(), sources.operand(i.c)?);
            step.predicates = [packed(i.source_predicate(field::CONDITION)), NEVER, NEVER];
            Some(Lanewise::Iadd3Carries)
        }
        Op::Idp if i.join(&[field::DOT_TWO, field::DOT_HIGH]) == 0 && !i.bit(field::UPPER_NEGATE) => {
            (step.b, step.c) = (sources.operand(i.b)?, sources.operand(i.c)?);
            step.extra = [u32::from(i.bit(field::SIGNED)), u32::from(i.bit(field::DOT_B_SIGNED)), 0, 0, 0, 0];
            Some(Lanewise::Dot)
        }
        Op::ImadWide | Op::ImadHi
            if !extended && !i.c_sign.negate && i.target_predicate(field::TARGET) == PT =>
        {
            step.b = sources.operand(i.b)?;
            (step.c, step.upper) = match i.c {
                Source::Register(number) => (number.into(), Warp::next(number, 1).into()),
                Source::Immediate(value) => (sources.value(value)?, RZ.into()),
                Source::Constant { bank, offset } => sources.double(bank, offset)?.into(),
                Source::Uniform(_) => return None,
            };
            Some(match (i.op == Op::ImadHi, i.bit(field::SIGNED)) {
                (false, false) => Lanewise::ImadWide,
                (false, true) => Lanewise::ImadWideSigned,
                (true, false) => Lanewise::ImadHigh,
                (true, true) => Lanewise::ImadHighSigned,
            })
        }
        Op::Iadd3 if extended || !no_carry => {
            let negate = [i.bit(field::A_NEGATE), i.b_sign.negate, i.bit(field::UPPER_NEGATE)];
            if !extended && negate != [false; 3] {
                return None;
            }
            (step.b, step.c) = (sources.operand(i.b)?, sources.operand(i.c)?);
            let [a, b, c] = integer::flips(negate);
            step.extra = [a, b, c, 0, 0, 0];
            step.predicates = [NEVER; 3];
            if extended {
                for (to, at) in step.predicates.iter_mut().zip([field::CONDITION, field::CONDITION_2]) {
                    *to = packed(i.source_predicate(at));
                }
            }
            step.targets = targets(i);
            Some(Lanewise::Iadd3Carries)
        }
        Op::Iadd3 => {
            (step.b, step.c) = (sources.operand(i.b)?, sources.operand(i.c)?);
            let negate = [i.bit(field::A_NEGATE), i.b_sign.negate, i.bit(field::UPPER_NEGATE)];
            let [a, b, c] = integer::flips(negate);
            step.extra = [a, b, c, 0, 0, 0];
            Some(if negate == [false; 3] { Lanewise::Iadd3 } else { Lanewise::Iadd3Signed })
        }
        Op::Lop3 if i.target_predicate(field::TARGET) == PT => {
            (step.b, step.c) = (sources.operand(i.b)?, sources.operand(i.c)?);
            let table = i.bits(field::LUT);
            step.extra[0] = table;
            Some(match table {
                0xc0 => Lanewise::And,
                0xfc => Lanewise::Or,
                0x3c => Lanewise::Xor,
                _ => Lanewise::Lop3,
            })
        }
        Op::Lop3 => {
            (step.b, step.c) = (sources.operand(i.b)?, sources.operand(i.c)?);
            step.predicates[0] = packed(i.source_predicate(field::CONDITION));
            step.targets = [i.target_predicate(field::TARGET), PT];
            (step.extra[0], step.extra[1]) = (i.bits(field::LUT), i.bit(field::LUT_AND).into());
            Some(Lanewise::Lop3Test)
        }
        Op::Plop3 if !i.bit(field::CONDITION_3_UNIFORM) => {
            step.predicates = [field::CONDITION, field::CONDITION_2, field::CONDITION_3]
                .map(|at| packed(i.source_predicate(at)));
            step.targets = targets(i);
            (step.extra[0], step.extra[1]) = (integer::truth_table(i).into(), i.bits(field::LUT_2) & 0xff);
            Some(Lanewise::PredicateLogic)
        }
        Op::Imnmx => {
            step.b = sources.operand(i.b)?;
            step.predicates[0] = packed(i.source_predicate(field::CONDITION));
            step.extra[4] = integer::order_flip(i) ^ 1 << 31;
            Some(Lanewise::IntegerMinMax)
        }
        Op::Shf => {
            let Source::Immediate(amount) = i.b else { return None };
            if let Some(left) = integer::funnel_shift(i) {
                step.c = sources.operand(i.c)?;
                step.extra[0] = left;
                return Some(Lanewise::Funnel);
            }
            step.extra[0] = amount;
            let kind = match integer::plain_shift(i)? {
                integer::PlainShift::Left => return Some(Lanewise::ShiftLeft),
                integer::PlainShift::Right => Lanewise::ShiftRight,
                integer::PlainShift::RightSigned => Lanewise::ShiftRightSigned,
            };
            step.b = sources.operand(i.c)?;
            Some(kind)
        }
        Op::Lea if integer::is_plain_lea(i) => {
            step.b = sources.operand(i.b)?;
            step.extra[0] = i.bits(field::LEA_SHIFT);
            Some(Lanewise::Lea)
        }
        Op::Lea if !i.bit(field::A_NEGATE) && !i.b_sign.negate => {
            let high = i.bit(field::LEA_HIGH);
            if i.bit(field::LEA_SIGN_EXTENDS) {
                return None;
            }
            step.b = sources.operand(i.b)?;
            if high {
                step.c = sources.operand(i.c)?;
            }
            step.predicates[0] = if extended { packed(i.source_predicate(field::CONDITION)) } else { NEVER };
            step.targets = [i.target_predicate(field::TARGET), PT];
            step.extra[0] = i.bits(field::LEA_SHIFT);
            Some(if high { Lanewise::LeaHighCarries } else { Lanewise::LeaCarries })
        }
        Op::Prmt if i.bits(field::PERMUTE) == 0 => {
            let selector = sources.scalar(i.b)?;
            let mut from = [0x8080_8080u32; 2];
            for byte in 0..4 {
                let number = selector >> (4 * byte) & 15;
                if number & 8 != 0 {
                    return None;
                }
                let from = &mut from[number as usize / 4];
                *from = *from & !(0xff << (8 * byte)) | (number & 3) << (8 * byte);
            }
            step.c = sources.operand(i.c)?;
            (step.extra[0], step.extra[1]) = (from[0], from[1]);
            Some(Lanewise::Permute)
        }
        Op::Sel => {
            step.b = sources.operand(i.b)?;
            step.predicates[0] = packed(i.source_predicate(field::CONDITION));
            Some(Lanewise::Sel)
        }
        Op::Isetp if !i.bit(field::COMPARE_EXTENDED) => {
            step.b = sources.operand(i.b)?;
            // A truth table of less, equal and greater.
            let (kind, exchange, invert) = match i.bits(field::COMPARE) {
                1 => (Lanewise::Below, false, false),
                2 => (Lanewise::Equal, false, false),
                3 => (Lanewise::Below, true, true),
                4 => (Lanewise::Below, true, false),
                5 => (Lanewise::Equal, false, true),
                6 => (Lanewise::Below, false, true),
                _ => return None,
            };
            // The vectors compare as signed.
            let flip = integer::order_flip(i) ^ 1 << 31;
            comparison(i, step, exchange, invert, flip);
            Some(kind)
        }
        _ => None,
    }
}
