//! `double.cu`: double precision to the last bit.

use crate::case::{Case, any, map1, map2, map3};
use crate::data::Element;
use crate::exact::{F64, MODES, Mode};

const FILE: &str = "double";

/// The smaller value; NaN loses, and minus zero is less than plus zero.
fn minimum(a: f64, b: f64) -> f64 {
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

/// The cases.
pub(super) fn cases() -> Vec<Case> {
    let mut cases = arithmetic();
    cases.extend(others());
    cases
}

fn arithmetic() -> Vec<Case> {
    let bits = f64::to_bits;
    vec![
        map2(FILE, "f64_add", (any(), any()), move |a: f64, b: f64| {
            MODES.map(|mode| f64::from_bits(F64.add(bits(a), bits(b), mode)))
        }),
        map2(FILE, "f64_mul", (any(), any()), move |a: f64, b: f64| {
            MODES.map(|mode| f64::from_bits(F64.mul(bits(a), bits(b), mode)))
        }),
        map3(FILE, "f64_fma", any(), move |a: f64, b, c| {
            let [rn, rz, rd, ru] = MODES.map(|mode| f64::from_bits(F64.fma(bits(a), bits(b), bits(c), mode)));
            // Not `mul_add`: musl's loses the sign of a product that underflows.
            let last = F64.fma(bits(-a), bits(b), bits(c.abs()), Mode::Nearest);
            [rn, rz, rd, ru, f64::from_bits(last)]
        }),
        map2(FILE, "f64_divide", (any(), any()), move |a: f64, b: f64| {
            [a / b, f64::from_bits(F64.div(bits(a), bits(b), Mode::Zero))]
        }),
        map1(FILE, "f64_square_root", any(), move |a: f64| {
            [a.sqrt(), f64::from_bits(F64.sqrt(bits(a), Mode::Up))]
        }),
        map1(FILE, "f64_reciprocal", any(), move |a: f64| {
            [1.0 / a, f64::from_bits(F64.div(bits(1.0), bits(a), Mode::Down))]
        }),
    ]
}

fn others() -> Vec<Case> {
    let (rows, columns) = (75_usize, 41_usize);
    let mut numbers = Case::numbers("f64_dot_rows");
    let a: Vec<f64> = (0..rows * columns).map(|_| f64::from(numbers.f32())).collect();
    let b: Vec<f64> = (0..columns)
        .map(|_| f64::random(&mut numbers))
        .map(|x| if x.is_finite() { x } else { 1.5 })
        .collect();
    vec![
        map2(FILE, "f64_extremes", (any(), any()), |a: f64, b: f64| {
            [minimum(a, b), -minimum(-a, -b), a.copysign(b)]
        }),
        map2(FILE, "f64_compare", (any(), any()), |a: f64, b: f64| {
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
            ];
            [facts.iter().rev().fold(0_u32, |word, fact| word << 1 | u32::from(*fact))]
        }),
        map1(FILE, "f64_integral", any(), |a: f64| {
            [a.floor(), a.ceil(), a.trunc(), a.round_ties_even(), a.round()]
        }),
        map2(FILE, "f64_words", (any(), any()), |a: f64, b: f64| {
            let high = |x: f64| (x.to_bits() >> 32) as u32;
            let mixed = f64::from_bits(u64::from(high(b)) << 32 | a.to_bits() & 0xffff_ffff);
            [high(a), b.to_bits() as u32, u32::from(mixed > 0.0), u32::from(mixed.is_nan())]
        }),
        Case::new(FILE, "f64_dot_rows")
            .launch(3, 33)
            .input(&a)
            .input(&b)
            .output::<f64>(rows)
            .scalar(rows as u32)
            .scalar(columns as u32)
            .gives(move || {
                a.chunks(columns)
                    .map(|row| row.iter().zip(&b).fold(0.0_f64, |sum, (a, b)| a.mul_add(*b, sum)))
                    .collect()
            }),
    ]
}
