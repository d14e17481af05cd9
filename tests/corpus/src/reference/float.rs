//! `float.cu`: single precision to the last bit.

use crate::case::{Case, any, made, map1, map2, map3};
use crate::data::Element;
use crate::exact::{F32, MODES, Mode};

const FILE: &str = "float";

fn word(x: f32) -> u64 {
    x.to_word()
}

fn float(bits: u64) -> f32 {
    f32::from_word(bits)
}

/// Subnormal numbers become zero of the same sign.
fn flush(x: f32) -> f32 {
    if x.is_subnormal() { 0.0_f32.copysign(x) } else { x }
}

/// Clamps to 0..=1; NaN and minus zero become 0.
fn saturate(x: f32) -> f32 {
    if x > 0.0 { x.min(1.0) } else { 0.0 }
}

/// The smaller value; NaN loses, and minus zero is less than plus zero.
pub(super) fn minimum(a: f32, b: f32) -> f32 {
    match (a.is_nan(), b.is_nan()) {
        (true, _) => b,
        (_, true) => a,
        _ if a == b => {
            if a.is_sign_negative() {
                a
            } else {
                b
            }
        }
        _ => a.min(b),
    }
}

/// The larger value, with the same rules.
pub(super) fn maximum(a: f32, b: f32) -> f32 {
    -minimum(-a, -b)
}

/// The same, but NaN wins.
fn or_nan(a: f32, b: f32, result: f32) -> f32 {
    if a.is_nan() || b.is_nan() { f32::NAN } else { result }
}

/// The cases.
pub(super) fn cases() -> Vec<Case> {
    let mut cases = arithmetic();
    cases.extend(modified());
    cases.extend(comparisons());
    cases.extend(functions());
    cases
}

fn arithmetic() -> Vec<Case> {
    vec![
        map2(FILE, "f32_add", (any(), any()), |a: f32, b: f32| {
            let [rn, rz, rd, ru] = MODES.map(|mode| float(F32.add(word(a), word(b), mode)));
            [rn, rz, rd, ru, a - b.abs()]
        }),
        map2(FILE, "f32_mul", (any(), any()), |a: f32, b: f32| {
            MODES.map(|mode| float(F32.mul(word(a), word(b), mode)))
        }),
        map3(FILE, "f32_fma", any(), |a: f32, b, c| {
            let [rn, rz, rd, ru] = MODES.map(|mode| float(F32.fma(word(a), word(b), word(c), mode)));
            [rn, rz, rd, ru, (-a).mul_add(b, -c), a.mul_add(1.5, -0.25)]
        }),
        map2(FILE, "f32_divide", (any(), any()), |a: f32, b: f32| {
            MODES.map(|mode| float(F32.div(word(a), word(b), mode)))
        }),
        map1(FILE, "f32_square_root", any(), |a: f32| MODES.map(|mode| float(F32.sqrt(word(a), mode)))),
        map1(FILE, "f32_reciprocal", any(), |a: f32| {
            MODES.map(|mode| float(F32.div(word(1.0), word(a), mode)))
        }),
    ]
}

fn modified() -> Vec<Case> {
    vec![
        map3(FILE, "f32_flush", any(), |a: f32, b, c| {
            // The selection passes its sources on unchanged.
            let greater = if flush(a) > flush(b) { a } else { b };
            let (a, b, c) = (flush(a), flush(b), flush(c));
            let difference = float(F32.add(word(a), word(-b), Mode::Zero));
            let product = |mode| flush(float(F32.mul(word(a), word(b), mode)));
            [
                flush(a + b),
                flush(a * b),
                flush(a.mul_add(b, c)),
                flush(difference),
                minimum(a, b),
                product(Mode::Zero),
                product(Mode::Up),
                or_nan(a, b, minimum(a, b)),
                greater,
            ]
        }),
        map3(FILE, "f32_saturate", any(), |a: f32, b, c| {
            [
                saturate(a + b),
                saturate(a * b),
                saturate(a.mul_add(b, c)),
                saturate(a),
                saturate(flush(flush(a) + flush(b))),
            ]
        }),
    ]
}

fn comparisons() -> Vec<Case> {
    vec![
        map2(FILE, "f32_extremes", (any(), any()), |a: f32, b: f32| {
            let (low, high) = (minimum(a, b), maximum(a, b));
            [low, high, or_nan(a, b, low), or_nan(a, b, high)]
        }),
        map2(FILE, "f32_extremes_of_magnitude", (any(), any()), |a: f32, b: f32| {
            let negative = a.is_sign_negative() != b.is_sign_negative();
            let signed = |x: f32| {
                if a.is_nan() && b.is_nan() {
                    f32::NAN
                } else {
                    x.copysign(if negative { -1.0 } else { 1.0 })
                }
            };
            [signed(minimum(a.abs(), b.abs())), signed(maximum(a.abs(), b.abs()))]
        }),
        map2(FILE, "f32_compare", (any(), any()), |a: f32, b: f32| {
            let unordered = a.is_nan() || b.is_nan();
            let facts = [
                a < b,
                a <= b,
                a == b,
                a != b,
                a >= b,
                a > b,
                unordered || a >= b,
                unordered || a < b,
                a.is_nan(),
                b.is_infinite(),
                a.abs() < b.abs(),
                a.is_sign_negative(),
            ];
            [facts.iter().rev().fold(0_u32, |word, fact| word << 1 | u32::from(*fact))]
        }),
        map2(FILE, "f32_set", (any(), any()), |a: f32, b: f32| {
            let ones = |set: bool| if set { u32::MAX } else { 0 };
            let one = |set: bool| if set { 1.0_f32.to_bits() } else { 0 };
            let unordered = a.is_nan() || b.is_nan();
            [
                one(a > b),
                ones(unordered || a <= b),
                ones(!unordered),
                one(a >= b),
                one(unordered || a > b),
                one(flush(a) > flush(b)),
            ]
        }),
        map2(FILE, "f32_signs", (any(), any()), |a: f32, b: f32| {
            let chosen = if a > b { -a } else { b.abs() };
            [a.copysign(b), -a, b.abs(), chosen]
        }),
    ]
}

fn functions() -> Vec<Case> {
    let exponents = || {
        made(&[0_i32, 1, -1, 127, 128, -126, -149, -150, 300, -300], |n| (n.u32() % 400).cast_signed() - 200)
    };
    let mut numbers = Case::numbers("f32_axpy_vectors");
    let x: Vec<f32> = (0..4 * 203).map(|_| f32::random(&mut numbers)).collect();
    let y: Vec<f32> = (0..4 * 203).map(|_| f32::random(&mut numbers)).collect();
    vec![
        map1(FILE, "f32_integral", any(), |a: f32| {
            [a.floor(), a.ceil(), a.trunc(), a.round_ties_even(), a.round()]
        }),
        map1(FILE, "f32_split", any(), |a: f32| {
            let (fraction, exponent) = split(a);
            [fraction, exponent as f32, a - a.trunc()]
        }),
        map2(FILE, "f32_scale", (any(), exponents()), |a: f32, b: i32| [scale(a, b), scale(1.0, b)]),
        map2(FILE, "f32_remainder", (any(), any()), |a: f32, b: f32| [a % b]),
        map1(FILE, "f32_polynomial", any(), |a: f32| {
            [(1..9).fold(0.1_f32, |p, k| p.mul_add(a, 1.0 / k as f32))]
        }),
        Case::new(FILE, "f32_axpy_vectors")
            .launch(3, 70)
            .scalar(1.25e-3_f32)
            .input(&x)
            .update(&y)
            .scalar(203_u32)
            .gives(move || x.iter().zip(&y).map(|(x, y)| 1.25e-3_f32.mul_add(*x, *y)).collect()),
    ]
}

/// `ldexp`: the exact product, rounded once.
fn scale(x: f32, exponent: i32) -> f32 {
    // CAST: rounds to nearest. In double precision every such product is exact.
    (f64::from(x) * 2.0_f64.powi(exponent)) as f32
}

/// `frexp`: a fraction between 1/2 and 1 and an exponent; zero, infinities and NaN with exponent 0.
fn split(x: f32) -> (f32, i32) {
    if x == 0.0 || !x.is_finite() {
        return (x, 0);
    }
    let wide = f64::from(x);
    // CAST: the biased exponent of a double.
    let exponent = ((wide.to_bits() >> 52) & 0x7ff) as i32 - 1022;
    ((wide * 2.0_f64.powi(-exponent)) as f32, exponent)
}
