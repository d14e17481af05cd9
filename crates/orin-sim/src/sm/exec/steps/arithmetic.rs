//! Operations that compute each lane by itself and never fail.
//!
//! [`Lanewise::compute`] has the semantics of each, for any values with the operations of [`Lanes`]: eight lanes at a
//! time in a handler, or the nodes of a graph from which machine code is generated.

use sass::{PT, Predicate};

use super::eight::{Eight, Lanes, lanes_of, part, write};
use super::{Machine, Step};
use crate::sm::numeric::f32 as single;
use crate::sm::warp::{Row, Warp};

/// An operation on lanes. Fields of the step that are not its operands are named where they are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lanewise {
    Ffma,
    FfmaSigned,
    FfmaSaturated,
    FfmaDown,
    Fadd,
    FaddSaturated,
    Fmul,
    FloatSelect,
    FloatMinMax,
    FromSigned,
    FromUnsigned,
    FromSignedUp,
    FromUnsignedUp,
    ToSigned,
    ToUnsigned,
    Mufu,
    Widen,
    FloatEqual,
    FloatLess,
    FloatAtMost,
    DivisionCheck,
    Imad,
    ImadLess,
    ImadWide,
    ImadWideSigned,
    ImadHigh,
    ImadHighSigned,
    Iadd3,
    Iadd3Signed,
    Iadd3Carries,
    And,
    Or,
    Xor,
    Lop3,
    Lop3Test,
    PredicateLogic,
    ShiftLeft,
    ShiftRight,
    ShiftRightSigned,
    Funnel,
    Lea,
    LeaCarries,
    LeaHighCarries,
    Copy,
    Sel,
    Equal,
    Below,
    IntegerMinMax,
    Permute,
    Dot,
}

/// What an operation reads and writes.
pub(super) struct Operands {
    pub(super) a: bool,
    pub(super) b: bool,
    pub(super) c: bool,
    /// The upper words of C.
    pub(super) upper: bool,
    /// How many predicates.
    pub(super) predicates: usize,
    /// The register D.
    pub(super) d: bool,
    /// The register after D.
    pub(super) above: bool,
    /// The destination predicates.
    pub(super) targets: bool,
}

/// Values of the operands.
pub(super) struct Inputs<V> {
    pub(super) a: V,
    pub(super) b: V,
    pub(super) c: V,
    pub(super) upper: V,
    pub(super) predicates: [V; 3],
}

/// Results; those that an operation does not have are 0.
pub(super) struct Outputs<V> {
    pub(super) d: V,
    pub(super) above: V,
    pub(super) targets: [V; 2],
}

impl Lanewise {
    /// Returns what the operation reads and writes.
    #[inline(always)]
    pub(super) const fn operands(self) -> Operands {
        let (a, b, c) = match self {
            Self::PredicateLogic => (false, false, false),
            Self::ShiftLeft => (true, false, false),
            Self::ShiftRight | Self::ShiftRightSigned | Self::Copy => (false, true, false),
            Self::FromSigned | Self::FromUnsigned => (false, true, false),
            Self::FromSignedUp | Self::FromUnsignedUp | Self::Mufu => (false, true, false),
            Self::ToSigned | Self::ToUnsigned | Self::Widen => (false, true, false),
            Self::Permute | Self::Funnel => (true, false, true),
            Self::Fadd | Self::FaddSaturated | Self::Fmul => (true, true, false),
            Self::FloatEqual | Self::FloatLess | Self::FloatAtMost => (true, true, false),
            Self::DivisionCheck => (true, true, false),
            Self::FloatSelect | Self::FloatMinMax | Self::IntegerMinMax => (true, true, false),
            Self::And | Self::Or | Self::Xor | Self::Lea | Self::Sel | Self::Equal | Self::Below => {
                (true, true, false)
            }
            Self::LeaCarries => (true, true, false),
            _ => (true, true, true),
        };
        let compares = matches!(
            self,
            Self::FloatEqual | Self::FloatLess | Self::FloatAtMost | Self::Equal | Self::Below
        ) || matches!(self, Self::DivisionCheck);
        let wide = matches!(self, Self::ImadWide | Self::ImadWideSigned);
        let upper = wide || matches!(self, Self::ImadHigh | Self::ImadHighSigned);
        let logic = matches!(self, Self::PredicateLogic);
        let carries = matches!(self, Self::Iadd3Carries | Self::LeaCarries | Self::LeaHighCarries);
        let predicates = match self {
            Self::PredicateLogic => 3,
            Self::Iadd3Carries => 2,
            Self::Sel | Self::FloatSelect | Self::FloatMinMax | Self::IntegerMinMax => 1,
            _ if compares || carries || matches!(self, Self::Lop3Test) => 1,
            _ => 0,
        };
        let targets = compares || carries || logic || matches!(self, Self::Lop3Test);
        Operands { a, b, c, upper, predicates, d: !compares && !logic, above: wide, targets }
    }

    /// Computes the results for some lanes.
    #[inline(always)]
    pub(super) fn compute<V: Lanes>(self, s: &Step, x: &Inputs<V>) -> Outputs<V> {
        let (a, b, c) = (x.a, x.b, x.c);
        match self {
            Self::Ffma => value(canonical(a.fma(b, c))),
            Self::FfmaSigned => value(canonical(signed(s, 0, a).fma(signed(s, 1, b), signed(s, 2, c)))),
            Self::FfmaSaturated => value(saturated(signed(s, 0, a).fma(signed(s, 1, b), signed(s, 2, c)))),
            Self::FfmaDown => value(canonical(signed(s, 0, a).fma_down(signed(s, 1, b), signed(s, 2, c)))),
            Self::Fadd => value(canonical(signed(s, 0, a).add_float(signed(s, 1, b)))),
            Self::FaddSaturated => value(saturated(signed(s, 0, a).add_float(signed(s, 1, b)))),
            Self::Fmul => value(canonical(signed(s, 0, a).mul_float(signed(s, 1, b)))),
            Self::FloatSelect => value(x.predicates[0].select(signed(s, 0, a), signed(s, 1, b))),
            Self::FloatMinMax => value(float_min_max(x.predicates[0], signed(s, 0, a), signed(s, 1, b))),
            Self::FromSigned => value(b.signed_to_float()),
            // Both halves are exact, so that the sum is rounded once.
            Self::FromUnsigned => {
                let (high, low) =
                    (b.shift_right(16).signed_to_float(), b.and(V::splat(0xffff)).signed_to_float());
                value(high.fma(V::splat(0x4780_0000), low))
            }
            Self::FromSignedUp => value(word_up(b, b.shift_right_signed(16))),
            Self::FromUnsignedUp => value(word_up(b, b.shift_right(16))),
            // Field 2 is the number of the function.
            Self::Mufu => value(signed(s, 0, b).mufu(s.extra[2])),
            Self::ToSigned => value(to_signed(s, signed(s, 0, b))),
            Self::ToUnsigned => value(to_unsigned(s, signed(s, 0, b))),
            // Field 0 says whether the half is the lower one.
            Self::Widen => value(widen(if s.extra[0] == 0 { b } else { b.shift_left(16) })),
            Self::FloatEqual => compared(s, x, a.equal_float(b)),
            Self::FloatLess => compared(s, x, a.less_float(b)),
            Self::FloatAtMost => compared(s, x, a.at_most_float(b)),
            Self::DivisionCheck => division_check(a, b),
            Self::Imad => value(a.mul(b).add(c)),
            Self::ImadLess => value(a.mul(b).sub(c)),
            Self::ImadWide => imad_wide(x, false),
            Self::ImadWideSigned => imad_wide(x, true),
            Self::ImadHigh => value(imad_wide(x, false).above),
            Self::ImadHighSigned => value(imad_wide(x, true).above),
            Self::Iadd3 => value(a.add(b).add(c)),
            // A mask for each operand, all ones to negate it.
            Self::Iadd3Signed => {
                let [x, y, z] = masks(s);
                value(a.xor(x).sub(x).add(b.xor(y).sub(y)).add(c.xor(z).sub(z)))
            }
            Self::Iadd3Carries => iadd3_carries(s, x),
            Self::And => value(a.and(b)),
            Self::Or => value(a.or(b)),
            Self::Xor => value(a.xor(b)),
            Self::Lop3 => value(lop3(s.extra[0], a, b, c)),
            // Field 1 says whether the predicate is an operand of OR.
            Self::Lop3Test => {
                let d = lop3(s.extra[0], a, b, c);
                let (nonzero, with) = (d.equal(V::splat(0)).xor(V::splat(!0)), x.predicates[0]);
                let target = if s.extra[1] == 0 { nonzero.or(with) } else { nonzero.and(with) };
                Outputs { d, above: V::splat(0), targets: [target; 2] }
            }
            Self::PredicateLogic => {
                let [p, q, r] = x.predicates;
                let targets = [lop3(s.extra[0], p, q, r), lop3(s.extra[1], p, q, r)];
                Outputs { d: V::splat(0), above: V::splat(0), targets }
            }
            Self::ShiftLeft => value(a.shift_left(s.extra[0] & 31)),
            Self::ShiftRight => value(b.shift_right(s.extra[0] & 31)),
            Self::ShiftRightSigned => value(b.shift_right_signed(s.extra[0] & 31)),
            // 1 to 31.
            Self::Funnel => value(funnel(a, c, s.extra[0])),
            Self::LeaCarries => lea_carries(x, a.shift_left(s.extra[0] & 31)),
            Self::LeaHighCarries if s.extra[0] == 0 => lea_carries(x, c),
            Self::LeaHighCarries => lea_carries(x, funnel(a, c, s.extra[0])),
            Self::Lea => value(a.shift_left(s.extra[0] & 31).add(b)),
            Self::Copy => value(b),
            Self::Sel => value(x.predicates[0].select(a, b)),
            Self::Equal => compared(s, x, a.equal(b)),
            // Field 4 inverts the sign bits for an unsigned comparison.
            Self::Below => {
                let flip = V::splat(s.extra[4]);
                compared(s, x, a.xor(flip).below(b.xor(flip)))
            }
            Self::IntegerMinMax => {
                let flip = V::splat(s.extra[4]);
                let less = a.xor(flip).below(b.xor(flip));
                value(less.xor(x.predicates[0]).select(b, a))
            }
            // The bytes of A, and those of C.
            Self::Permute => value(a.bytes(s.extra[0]).or(c.bytes(s.extra[1]))),
            // Fields 0 and 1 say whether the bytes of A and B have signs.
            Self::Dot => {
                let ([a, x], [b, y]) = (bytes_in_halves(a, s.extra[0]), bytes_in_halves(b, s.extra[1]));
                value(a.mul_halves(b).add(x.mul_halves(y)).add(c))
            }
        }
    }
}

/// The results of an operation that only writes D.
#[inline(always)]
fn value<V: Lanes>(d: V) -> Outputs<V> {
    let zero = V::splat(0);
    Outputs { d, above: zero, targets: [zero; 2] }
}

/// The results of a comparison, combined with a predicate. Field 2 of the step is the operation, 3 inverts the outcome.
#[inline(always)]
fn compared<V: Lanes>(s: &Step, x: &Inputs<V>, outcome: V) -> Outputs<V> {
    let (zero, with) = (V::splat(0), x.predicates[0]);
    let outcome = outcome.xor(V::splat(s.extra[3]));
    let combine = |outcome: V| match s.extra[2] {
        0 => outcome.and(with),
        1 => outcome.or(with),
        _ => outcome.xor(with),
    };
    Outputs { d: zero, above: zero, targets: [combine(outcome), combine(outcome.xor(V::splat(!0)))] }
}

/// Applies the sign with masks `2 * at` and `2 * at + 1` of the step.
#[inline(always)]
fn signed<V: Lanes>(s: &Step, at: usize, x: V) -> V {
    x.and(V::splat(s.extra[2 * at])).xor(V::splat(s.extra[2 * at + 1]))
}

/// Replaces NaN by the canonical one.
#[inline(always)]
fn canonical<V: Lanes>(x: V) -> V {
    x.is_nan().select(V::splat(single::NAN), x)
}

/// Replaces NaN and what is outside of 0 to 1.
#[inline(always)]
fn saturated<V: Lanes>(x: V) -> V {
    // Patterns of positive numbers are ordered like integers.
    x.is_nan().or(x.shift_right_signed(31)).select(V::splat(0), x).min(V::splat(0x3f80_0000))
}

/// A float from a word, rounded up: minus what is rounded down. Both halves are exact.
#[inline(always)]
fn word_up<V: Lanes>(word: V, upper: V) -> V {
    let sign = V::splat(1 << 31);
    let (high, low) = (upper.signed_to_float(), word.and(V::splat(0xffff)).signed_to_float());
    high.xor(sign).fma_down(V::splat(0x4780_0000), low.xor(sign)).xor(sign)
}

/// FCHK: whether one of the exponents, or their difference, is outside of what compiled divisions expect.
#[inline(always)]
fn division_check<V: Lanes>(a: V, b: V) -> Outputs<V> {
    let of = |x: V| x.shift_right(23).and(V::splat(0xff));
    let (a, b) = (of(a), of(b));
    // CAST: two's complement.
    let outside =
        |x: V, least: i32, most: i32| x.below(V::splat(least as u32)).or(V::splat(most as u32).below(x));
    let target = outside(a, 24, 0xfe).or(outside(b, 2, 252)).or(outside(a.sub(b), -125, 126));
    Outputs { d: V::splat(0), above: V::splat(0), targets: [target; 2] }
}

/// A float as an integer within its range. Field 2 of the step says whether NaN becomes 0 instead of `1 << 31`, field 3
/// whether the integer is the next one towards 0.
#[inline(always)]
fn to_signed<V: Lanes>(s: &Step, x: V) -> V {
    let above = V::splat(single::TWO_TO_31).at_most_float(x);
    let converted = above.select(V::splat(0x7fff_ffff), x.float_to_signed(s.extra[3] != 0));
    if s.extra[2] == 0 { converted } else { x.is_nan().select(V::splat(0), converted) }
}

/// As [`to_signed`], without sign.
#[inline(always)]
fn to_unsigned<V: Lanes>(s: &Step, x: V) -> V {
    let [zero, top] = [V::splat(0), V::splat(1 << 31)];
    // The upper half of the range is exact, and converted without its first bit.
    let (upper, above) = (
        V::splat(single::TWO_TO_31).at_most_float(x),
        V::splat(single::TWO_TO_31 + single::DOUBLE).at_most_float(x),
    );
    let rest = upper.select(x.add_float(V::splat(single::TWO_TO_31 | 1 << 31)), x);
    let converted = rest.float_to_signed(s.extra[3] != 0).xor(upper.and(top));
    let converted = x.less_float(zero).select(zero, above.select(V::splat(!0), converted));
    if s.extra[2] == 0 { converted } else { x.is_nan().select(zero, converted) }
}

/// The half in the upper bits, as binary32.
#[inline(always)]
fn widen<V: Lanes>(half: V) -> V {
    let (sign, magnitude) = (half.and(V::splat(1 << 31)), half.shift_right(3).and(V::splat(0x0fff_e000)));
    // The exponents differ by 112. The largest one of a half stands for infinity and NaN.
    let number = magnitude.mul_float(V::splat(single::ONE + 112 * single::DOUBLE));
    let special = V::splat(0x0f7f_ffff).below(magnitude);
    canonical(number.or(special.and(V::splat(0x7f80_0000))).or(sign))
}

/// The even and the odd bytes, each in a half. `signed` is 0 for bytes without sign.
#[inline(always)]
fn bytes_in_halves<V: Lanes>(x: V, signed: u32) -> [V; 2] {
    if signed == 0 {
        let low = V::splat(0x00ff_00ff);
        return [x.and(low), x.shift_right(8).and(low)];
    }
    [x.shift_left(8).halves_right_signed(8), x.halves_right_signed(8)]
}

/// The lesser of two floats in the lanes of `least`, else the greater; a number instead of NaN.
#[inline(always)]
fn float_min_max<V: Lanes>(least: V, a: V, b: V) -> V {
    // Ordered like the values, -0 below +0.
    let [x, y] = [a, b].map(|x| x.xor(x.shift_right_signed(31).shift_right(1)));
    let first = least.select(x.below(y), y.below(x));
    let chosen = first.select(a, b);
    canonical(a.is_nan().select(b, b.is_nan().select(a, chosen)))
}

/// The upper word of C and A, shifted to the left by 1 to 31.
#[inline(always)]
fn funnel<V: Lanes>(a: V, c: V, amount: u32) -> V {
    c.shift_left(amount & 31).or(a.shift_right((32 - amount) & 31))
}

/// The sum of a shifted word, B and a predicate, and its carry.
#[inline(always)]
fn lea_carries<V: Lanes>(x: &Inputs<V>, shifted: V) -> Outputs<V> {
    let sum = shifted.add(x.b);
    let more = x.predicates[0].and(V::splat(1));
    let d = sum.add(more);
    let carry = below_unsigned(sum, shifted).or(below_unsigned(d, more));
    Outputs { d, above: V::splat(0), targets: [carry; 2] }
}

/// Returns the masks of the three operands of a sum.
#[inline(always)]
fn masks<V: Lanes>(s: &Step) -> [V; 3] {
    [V::splat(s.extra[0]), V::splat(s.extra[1]), V::splat(s.extra[2])]
}

/// Compares as unsigned.
#[inline(always)]
fn below_unsigned<V: Lanes>(a: V, b: V) -> V {
    let top = V::splat(1 << 31);
    a.xor(top).below(b.xor(top))
}

/// IADD3 with carries. The step has a mask for each operand, all ones to complement it. The predicates are added.
#[inline(always)]
fn iadd3_carries<V: Lanes>(s: &Step, x: &Inputs<V>) -> Outputs<V> {
    let [first, second, third] = masks::<V>(s);
    let one = V::splat(1);
    let mut sum = x.a.xor(first);
    // Minus the number of carries in each lane.
    let mut carries = V::splat(0);
    let more = [x.b.xor(second), x.c.xor(third), x.predicates[0].and(one), x.predicates[1].and(one)];
    for step in 0..4 {
        sum = sum.add(more[step]);
        carries = carries.add(below_unsigned(sum, more[step]));
    }
    Outputs { d: sum, above: V::splat(0), targets: [carries.below(V::splat(0)), carries.below(V::splat(!0))] }
}

/// IMAD.WIDE without negation and carry.
#[inline(always)]
fn imad_wide<V: Lanes>(x: &Inputs<V>, signed: bool) -> Outputs<V> {
    let [low, high] = x.a.mul_wide(x.b, signed);
    let d = low.add(x.c);
    // A comparison that holds is -1.
    let above = high.add(x.upper).sub(below_unsigned(d, x.c));
    Outputs { d, above, targets: [V::splat(0); 2] }
}

/// LOP3 by its truth table.
#[inline(always)]
fn lop3<V: Lanes>(table: u32, a: V, b: V, c: V) -> V {
    // One vector for each row of the table; then choices by C, by B and by A.
    let mut rows = [V::splat(0); 8];
    for row in 0..8 {
        rows[row] = V::splat(if table >> row & 1 != 0 { !0 } else { 0 });
    }
    let mut by_c = [V::splat(0); 4];
    for pair in 0..4 {
        by_c[pair] = choose(c, rows[2 * pair], rows[2 * pair + 1]);
    }
    choose(a, choose(b, by_c[0], by_c[1]), choose(b, by_c[2], by_c[3]))
}

/// Chooses between two values for each bit.
#[inline(always)]
fn choose<V: Lanes>(bits: V, zero: V, one: V) -> V {
    zero.xor(zero.xor(one).and(bits))
}

/// Executes an operation on all lanes.
#[inline(always)]
pub(super) fn lanes<V: Eight>(m: &mut Machine, s: &Step, operation: Lanewise) -> bool {
    const NONE: &Row = &[0; 32];
    let has = operation.operands();
    let a = if has.a { m.row(s.a) } else { NONE };
    let b = if has.b { m.row(s.b) } else { NONE };
    let c = if has.c { m.row(s.c) } else { NONE };
    let upper = if has.upper { m.row(s.upper) } else { NONE };
    let mut with = [0; 3];
    for at in 0..has.predicates {
        with[at] = m.warp.predicate(predicate(s.predicates[at]));
    }
    let (mut d, mut above, mut set) = ([V::splat(0); 4], [V::splat(0); 4], [0; 2]);
    for at in 0..4 {
        let x = Inputs {
            a: part::<V>(a, at),
            b: part(b, at),
            c: part(c, at),
            upper: part(upper, at),
            predicates: [
                lanes_of(with[0] >> (8 * at)),
                lanes_of(with[1] >> (8 * at)),
                lanes_of(with[2] >> (8 * at)),
            ],
        };
        let results = operation.compute(s, &x);
        (d[at], above[at]) = (results.d, results.above);
        if has.targets {
            set[0] |= results.targets[0].bits() << (8 * at);
            set[1] |= results.targets[1].bits() << (8 * at);
        }
    }
    if has.d {
        write(m.warp.row_mut(s.d), m.active, d);
    }
    if has.above {
        write(m.warp.row_mut(Warp::next(s.d, 1)), m.active, above);
    }
    if has.targets {
        m.warp.set_predicate(s.targets[0], m.active, set[0]);
        m.warp.set_predicate(s.targets[1], m.active, set[1]);
    }
    true
}

/// Packs a predicate operand.
pub(super) fn packed(predicate: Predicate) -> u8 {
    predicate.index | if predicate.not { 8 } else { 0 }
}

/// Packed PT and !PT.
pub(super) const ALWAYS: u8 = PT;
pub(super) const NEVER: u8 = PT | 8;

/// Returns the packed predicate operand.
#[inline(always)]
pub(super) fn predicate(packed: u8) -> Predicate {
    Predicate { index: packed & 7, not: packed & 8 != 0 }
}
