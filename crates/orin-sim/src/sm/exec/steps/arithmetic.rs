//! Handlers of the most frequent forms of arithmetic.

use sass::Predicate;

use super::eight::{Eight, lanes_of, part, write};
use super::{Machine, Step};
use crate::sm::exec::combine;
use crate::sm::numeric::f32 as single;
use crate::sm::warp::Warp;

impl Machine<'_, '_> {
    /// Writes the active lanes of a register.
    #[inline(always)]
    pub(super) fn put<V: Eight>(&mut self, register: u8, values: [V; 4]) -> bool {
        write(self.warp.row_mut(register), self.active, values);
        true
    }
}

/// Writes an expression of the operands, each of which is a part of a row. A macro, as all below: see `eight`.
macro_rules! map {
    ($m:ident, $s:ident, |$($operand:ident),+| $value:expr) => {{
        $(let $operand = $m.row($s.$operand);)+
        let mut out = [V::splat(0); 4];
        for at in 0..4 {
            $(let $operand = part::<V>($operand, at);)+
            out[at] = $value;
        }
        $m.put($s.d, out)
    }};
}
pub(super) use map;

/// Sets predicates to the outcome of a comparison of A and B. Field 0 of the step is the predicate to combine with, 1
/// the destinations, 2 the operation, 3 what inverts the outcome.
macro_rules! compare {
    ($m:ident, $s:ident, |$a:ident, $b:ident| $value:expr) => {{
        let ($a, $b) = ($m.row($s.a), $m.row($s.b));
        let mut outcome = 0;
        for at in 0..4 {
            let ($a, $b) = (part::<V>($a, at), part::<V>($b, at));
            outcome |= $value.bits() << (8 * at);
        }
        set($m, $s, outcome)
    }};
}
pub(super) use compare;

/// Applies the sign with masks `2 * at` and `2 * at + 1` of the step.
#[inline(always)]
fn signed<V: Eight>(s: &Step, at: usize, x: V) -> V {
    x.and(V::splat(s.extra[2 * at])).xor(V::splat(s.extra[2 * at + 1]))
}

/// Replaces NaN by the canonical one.
#[inline(always)]
fn canonical<V: Eight>(x: V) -> V {
    x.is_nan().select(V::splat(single::NAN), x)
}

/// FFMA, rounded to nearest.
#[inline(always)]
pub(super) fn ffma<V: Eight>(m: &mut Machine, s: &Step) -> bool {
    map!(m, s, |a, b, c| canonical(a.fma(b, c)))
}

/// FFMA with signs, rounded to nearest.
#[inline(always)]
pub(super) fn ffma_signed<V: Eight>(m: &mut Machine, s: &Step) -> bool {
    map!(m, s, |a, b, c| canonical(signed(s, 0, a).fma(signed(s, 1, b), signed(s, 2, c))))
}

/// FADD, rounded to nearest.
#[inline(always)]
pub(super) fn fadd<V: Eight>(m: &mut Machine, s: &Step) -> bool {
    map!(m, s, |a, b| canonical(signed(s, 0, a).add_float(signed(s, 1, b))))
}

/// FMUL, rounded to nearest.
#[inline(always)]
pub(super) fn fmul<V: Eight>(m: &mut Machine, s: &Step) -> bool {
    map!(m, s, |a, b| canonical(signed(s, 0, a).mul_float(signed(s, 1, b))))
}

/// Returns the masks of the three operands of a sum.
#[inline(always)]
fn flips<V: Eight>(s: &Step) -> (V, V, V) {
    (V::splat(s.extra[0]), V::splat(s.extra[1]), V::splat(s.extra[2]))
}

/// IADD3 without carries; the step has a mask for each operand, all ones to negate it.
#[inline(always)]
pub(super) fn iadd3_signed<V: Eight>(m: &mut Machine, s: &Step) -> bool {
    let (x, y, z) = flips(s);
    map!(m, s, |a, b, c| a.xor(x).sub(x).add(b.xor(y).sub(y)).add(c.xor(z).sub(z)))
}

/// Compares as unsigned.
#[inline(always)]
fn below_unsigned<V: Eight>(a: V, b: V) -> V {
    let top = V::splat(1 << 31);
    a.xor(top).below(b.xor(top))
}

/// IADD3 with carries. The step has a mask for each operand, all ones to complement it; then the predicates whose lanes
/// are added, and the destinations of the carries.
#[inline(always)]
pub(super) fn iadd3_carries<V: Eight>(m: &mut Machine, s: &Step) -> bool {
    let (x, y, z) = flips(s);
    let added = [m.warp.predicate(predicate(s.extra[3])), m.warp.predicate(predicate(s.extra[3] >> 4))];
    let (a, b, c) = (m.row(s.a), m.row(s.b), m.row(s.c));
    let (mut out, mut first, mut second) = ([V::splat(0); 4], 0, 0);
    for at in 0..4 {
        let mut sum = part::<V>(a, at).xor(x);
        let one = V::splat(1);
        let more = [
            part::<V>(b, at).xor(y),
            part::<V>(c, at).xor(z),
            lanes_of::<V>(added[0] >> (8 * at)).and(one),
            lanes_of::<V>(added[1] >> (8 * at)).and(one),
        ];
        // Minus the number of carries in each lane.
        let mut carries = V::splat(0);
        for step in 0..4 {
            sum = sum.add(more[step]);
            carries = carries.add(below_unsigned(sum, more[step]));
        }
        out[at] = sum;
        first |= carries.bits() << (8 * at);
        second |= carries.below(V::splat(!0)).bits() << (8 * at);
    }
    m.put(s.d, out);
    let [first_target, second_target] = targets(s.extra[4]);
    m.warp.set_predicate(first_target, m.active, first);
    m.warp.set_predicate(second_target, m.active, second);
    true
}

/// IMAD.WIDE without negation and carry.
#[inline(always)]
pub(super) fn imad_wide<V: Eight>(m: &mut Machine, s: &Step, signed: bool) -> bool {
    let (a, b, c, upper) = (m.row(s.a), m.row(s.b), m.row(s.c), m.row(s.upper));
    let (mut out, mut above) = ([V::splat(0); 4], [V::splat(0); 4]);
    for at in 0..4 {
        let [low, high] = part::<V>(a, at).mul_wide(part(b, at), signed);
        let addend = part::<V>(c, at);
        let low = low.add(addend);
        // A comparison that holds is -1.
        (out[at], above[at]) = (low, high.add(part(upper, at)).sub(below_unsigned(low, addend)));
    }
    m.put(s.d, out);
    m.put(Warp::next(s.d, 1), above)
}

/// LOP3 by its truth table.
#[inline(always)]
pub(super) fn lop3<V: Eight>(m: &mut Machine, s: &Step) -> bool {
    // One vector for each row of the table; then choices by C, by B and by A.
    let mut rows = [V::splat(0); 8];
    for row in 0..8 {
        rows[row] = V::splat(if s.extra[0] >> row & 1 != 0 { !0 } else { 0 });
    }
    map!(m, s, |a, b, c| {
        let mut by_c = [V::splat(0); 4];
        for pair in 0..4 {
            by_c[pair] = choose(c, rows[2 * pair], rows[2 * pair + 1]);
        }
        choose(a, choose(b, by_c[0], by_c[1]), choose(b, by_c[2], by_c[3]))
    })
}

/// Chooses between two values for each bit.
#[inline(always)]
fn choose<V: Eight>(bits: V, zero: V, one: V) -> V {
    zero.xor(zero.xor(one).and(bits))
}

/// PRMT with a constant selector: the bytes of A, and those of C.
#[inline(always)]
pub(super) fn permute<V: Eight>(m: &mut Machine, s: &Step) -> bool {
    let (from_a, from_c) = (s.extra[0], s.extra[1]);
    map!(m, s, |a, c| a.bytes(from_a).or(c.bytes(from_c)))
}

/// SEL: A where the predicate is true, else B.
#[inline(always)]
pub(super) fn sel<V: Eight>(m: &mut Machine, s: &Step) -> bool {
    let p = m.warp.predicate(predicate(s.extra[0]));
    let (a, b) = (m.row(s.a), m.row(s.b));
    let mut out = [V::splat(0); 4];
    for at in 0..4 {
        out[at] = lanes_of::<V>(p >> (8 * at)).select(part(a, at), part(b, at));
    }
    m.put(s.d, out)
}

/// ISETP: whether A is below B, whose sign bits field 4 of the step inverts for an unsigned comparison.
#[inline(always)]
pub(super) fn below<V: Eight>(m: &mut Machine, s: &Step) -> bool {
    let flip = V::splat(s.extra[4]);
    compare!(m, s, |a, b| a.xor(flip).below(b.xor(flip)))
}

/// Packs a predicate operand.
pub(super) fn packed(predicate: Predicate) -> u32 {
    u32::from(predicate.index) | u32::from(predicate.not) << 3
}

/// Packed !PT.
pub(super) const NEVER: u32 = 15;

/// Returns the packed predicate operand.
#[inline(always)]
fn predicate(packed: u32) -> Predicate {
    // CAST: 3 bits.
    Predicate { index: (packed & 7) as u8, not: packed & 8 != 0 }
}

/// Returns two packed destination predicates.
#[inline(always)]
fn targets(packed: u32) -> [u8; 2] {
    // CAST: 3 bits each.
    [(packed & 7) as u8, (packed >> 3 & 7) as u8]
}

/// Sets predicates to the outcome of a comparison: see [`compare`].
#[inline(always)]
pub(super) fn set(m: &mut Machine, s: &Step, outcome: u32) -> bool {
    let outcome = outcome ^ s.extra[3];
    let with = m.warp.predicate(predicate(s.extra[0]));
    let [first, second] = targets(s.extra[1]);
    m.warp.set_predicate(first, m.active, combine(s.extra[2], outcome, with));
    m.warp.set_predicate(second, m.active, combine(s.extra[2], !outcome, with));
    true
}
