//! Double-precision instructions on register pairs.

use sass::{Instruction, Op, Sign, Source, field};

use super::{Context, Outcome, set_compared};
use crate::sm::numeric::{FloatCompare, Rounding, f64 as double};
use crate::sm::warp::{Row, Warp};

/// Returns the values of a source pair with its signs applied.
fn operand(context: &Context, warp: &Warp, source: Source, sign: Sign) -> Result<[u64; 32], super::Trap> {
    let [low, high] = context.pairs(warp, source)?;
    Ok(core::array::from_fn(|lane| {
        double::modify(u64::from(low[lane]) | u64::from(high[lane]) << 32, sign.absolute, sign.negate)
    }))
}

/// DADD, DMUL and DFMA.
pub(super) fn arithmetic(context: &Context, warp: &mut Warp, i: &Instruction, active: u32) -> Outcome {
    let rounding = Rounding::from_field(i.bits(field::ROUND));
    let a = operand(context, warp, Source::Register(i.a), i.a_sign())?;
    let b = operand(context, warp, i.b, i.b_sign)?;
    let c = if i.op == Op::Dfma { operand(context, warp, i.c, i.c_sign)? } else { [0; 32] };
    let (mut low, mut high): (Row, Row) = ([0; 32], [0; 32]);
    for lane in 0..32 {
        let value = match i.op {
            Op::Dadd => double::add(a[lane], b[lane], rounding),
            Op::Dmul => double::mul(a[lane], b[lane], rounding),
            _ => double::fma(a[lane], b[lane], c[lane], rounding),
        };
        // CAST: the halves of the value.
        (low[lane], high[lane]) = (value as u32, (value >> 32) as u32);
    }
    warp.write(i.d, active, &low);
    warp.write(Warp::next(i.d, 1), active, &high);
    Ok(())
}

pub(super) fn dsetp(context: &Context, warp: &mut Warp, i: &Instruction, active: u32) -> Outcome {
    let a = operand(context, warp, Source::Register(i.a), i.a_sign())?;
    let b = operand(context, warp, i.b, i.b_sign)?;
    let field = i.bits(field::FLOAT_COMPARE);
    let lanes_where = |f: &dyn Fn(u64, u64) -> bool| {
        (0..32).fold(0, |mask, lane| mask | u32::from(f(a[lane], b[lane])) << lane)
    };
    if matches!(field, 0 | 15) {
        // MIN and MAX: whether the first source is selected, and whether both are NaN.
        let with = warp.predicate(i.source_predicate(field::CONDITION));
        let first = lanes_where(&|a, b| double::selects_first(a, b, field == 0));
        let nan = lanes_where(&double::both_nan);
        let apply = |outcome| super::combine(i.bits(field::COMBINE), outcome, with);
        warp.set_predicate(i.target_predicate(field::TARGET), active, apply(first));
        warp.set_predicate(i.target_predicate(field::TARGET_2), active, apply(nan));
        return Ok(());
    }
    let op = FloatCompare::from_field(field);
    let outcome = lanes_where(&|a, b| double::compare(op, a, b));
    set_compared(warp, i, active, outcome, i.bits(field::COMBINE));
    Ok(())
}
