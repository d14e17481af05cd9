//! Floating-point arithmetic of compiled kernels: bit for bit where IEEE 754 defines the result, elsewhere within the
//! documented error of the library functions.

use crate::support::{Machine, Params, Random, assert_close, assert_same};
use half_bits::{from_half, to_half};

/// Conversions between binary16 and binary32, by the `half` crate.
mod half_bits {
    pub(crate) fn to_half(value: f32) -> u16 {
        half::f16::from_f32(value).to_bits()
    }

    pub(crate) fn from_half(bits: u16) -> f32 {
        half::f16::from_bits(bits).to_f32()
    }
}

const COUNT: usize = 2000;

fn values(seed: u64, mut next: impl FnMut(&mut Random) -> f32) -> Vec<f32> {
    let mut random = Random::new(seed);
    (0..COUNT).map(|_| next(&mut random)).collect()
}

fn binary(name: &str, a: &[f32], b: &[f32]) -> Vec<f32> {
    let mut machine = Machine::kernels("float_ops");
    let (da, db, out) = (machine.f32s(a), machine.f32s(b), machine.zeros(4 * a.len()));
    machine.run_1d(
        name,
        a.len(),
        128,
        &Params::new().buffer(&da).buffer(&db).buffer(&out).u32(a.len() as u32),
    );
    out.f32s()
}

fn unary(name: &str, a: &[f32]) -> Vec<f32> {
    let mut machine = Machine::kernels("float_ops");
    let (da, out) = (machine.f32s(a), machine.zeros(4 * a.len()));
    machine.run_1d(name, a.len(), 128, &Params::new().buffer(&da).buffer(&out).u32(a.len() as u32));
    out.f32s()
}

#[test]
fn exact_functions_of_two_numbers() {
    let (a, b) = (values(1, Random::f32_any), values(2, Random::f32_any));
    let check = |name: &str, f: &dyn Fn(f32, f32) -> f32| {
        let expected: Vec<f32> = a.iter().zip(&b).map(|(&a, &b)| f(a, b)).collect();
        assert_same(&binary(name, &a, &b), &expected, name);
    };
    check("f32_add", &|a, b| a + b);
    check("f32_sub", &|a, b| a - b);
    check("f32_mul", &|a, b| a * b);
    check("f32_div", &|a, b| a / b);
    check("f32_fmod", &|a, b| a % b);
    check("f32_copysign", &f32::copysign);
    // Minimum and maximum prefer numbers to NaN, and order the zeros.
    let pick = |a: f32, b: f32, first: bool| match (a.is_nan(), b.is_nan()) {
        (true, _) => b,
        (_, true) => a,
        _ if first => a,
        _ => b,
    };
    let below = |a: f32, b: f32| a < b || a == b && a.is_sign_negative();
    check("f32_min", &|a, b| pick(a, b, below(a, b)));
    check("f32_max", &|a, b| pick(a, b, below(b, a)));
    check("f32_compare", &|a, b| match a.partial_cmp(&b) {
        Some(core::cmp::Ordering::Less) => 1.0,
        Some(core::cmp::Ordering::Equal) => 2.0,
        Some(core::cmp::Ordering::Greater) => 4.0,
        None => 8.0,
    });
    // Directed rounding, computed in binary64, which represents these products exactly, and also these sums of similar
    // numbers.
    let (a, b) = (values(3, |random| random.f32() * 8.0), values(4, |random| random.f32() * 8.0));
    let sums = binary("f32_add_down", &a, &b);
    let products = binary("f32_mul_up", &a, &b);
    for at in 0..COUNT {
        let (x, y) = (f64::from(a[at]), f64::from(b[at]));
        assert!(f64::from(sums[at]) <= x + y && f64::from(sums[at].next_up()) > x + y, "{x} + {y}");
        assert!(f64::from(products[at]) >= x * y && f64::from(products[at].next_down()) < x * y, "{x} * {y}");
    }
}

#[test]
fn exact_functions_of_one_number() {
    let a = values(5, Random::f32_any);
    let check = |name: &str, f: &dyn Fn(f32) -> f32| {
        let expected: Vec<f32> = a.iter().map(|&a| f(a)).collect();
        assert_same(&unary(name, &a), &expected, name);
    };
    check("f32_abs", &f32::abs);
    check("f32_negate", &|a| -a);
    check("f32_rcp", &|a| 1.0 / a);
    check("f32_sqrt", &f32::sqrt);
    check("f32_floor", &f32::floor);
    check("f32_ceil", &f32::ceil);
    check("f32_trunc", &f32::trunc);
    check("f32_round_even", &f32::round_ties_even);
    check("f32_saturate", &|a| if a.is_nan() || a <= 0.0 { 0.0 } else { a.min(1.0) });
}

#[test]
fn fused_multiply_add_and_conversions() {
    let (a, b, c) = (values(6, Random::f32_any), values(7, Random::f32_any), values(8, Random::f32_any));
    let mut machine = Machine::kernels("float_ops");
    let (da, db, dc, out) = (machine.f32s(&a), machine.f32s(&b), machine.f32s(&c), machine.zeros(4 * COUNT));
    let params = Params::new().buffer(&da).buffer(&db).buffer(&dc).buffer(&out).u32(COUNT as u32);
    machine.run_1d("f32_fma", COUNT, 96, &params);
    let expected: Vec<f32> = (0..COUNT).map(|i| a[i].mul_add(b[i], c[i])).collect();
    assert_same(&out.f32s(), &expected, "f32_fma");

    let (signed, unsigned, back) =
        (machine.zeros(4 * COUNT), machine.zeros(4 * COUNT), machine.zeros(4 * COUNT));
    let params = Params::new().buffer(&da).buffer(&signed).buffer(&unsigned).buffer(&back).u32(COUNT as u32);
    machine.run_1d("f32_convert", COUNT, 96, &params);
    // Rust's conversions saturate and turn NaN into 0, like these.
    assert_eq!(signed.u32s(), a.iter().map(|&a| a as i32 as u32).collect::<Vec<_>>());
    assert_eq!(unsigned.u32s(), a.iter().map(|&a| a as u32).collect::<Vec<_>>());
    assert_same(
        &back.f32s(),
        &a.iter().map(|&a| a.to_bits() as i32 as f32).collect::<Vec<_>>(),
        "from integer",
    );
}

/// The error function by its Taylor series, accurate for small arguments.
fn erf(x: f64) -> f64 {
    let (mut term, mut sum) = (x, x);
    for n in 1..60 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * core::f64::consts::FRAC_2_SQRT_PI
}

#[test]
fn library_functions() {
    let wide = values(9, |random| random.f32() * 50.0);
    let positive: Vec<f32> = wide.iter().map(|value| value.abs() + 1e-3).collect();
    let small: Vec<f32> = wide.iter().map(|value| value / 25.0).collect();
    let check = |name: &str, a: &[f32], relative: f64, f: &dyn Fn(f64) -> f64| {
        let expected: Vec<f64> = a.iter().map(|&a| f(a.into())).collect();
        assert_close(&unary(name, a), &expected, relative, name);
    };
    // Two to four units in the last place, as CUDA documents.
    check("f32_rsqrt", &positive, 3e-7, &|a| a.sqrt().recip());
    check("f32_sin", &wide, 4e-7, &f64::sin);
    check("f32_cos", &wide, 4e-7, &f64::cos);
    check("f32_tan", &small, 5e-7, &f64::tan);
    check("f32_exp", &wide, 3e-7, &f64::exp);
    check("f32_exp2", &wide, 3e-7, &f64::exp2);
    check("f32_tanh", &wide, 3e-7, &f64::tanh);
    check("f32_erf", &small, 3e-7, &erf);
    check("f32_log", &positive, 4e-7, &f64::ln);
    check("f32_log2", &positive, 4e-7, &f64::log2);
    // Outside the fast range reduction of the argument.
    let far: Vec<f32> = wide.iter().map(|value| value * 1e6).collect();
    check("f32_sin", &far, 4e-7, &f64::sin);
    check("f32_cos", &far, 4e-7, &f64::cos);

    let (a, b) = (&positive, &small);
    let check = |name: &str, a: &[f32], b: &[f32], relative: f64, f: &dyn Fn(f64, f64) -> f64| {
        let expected: Vec<f64> = a.iter().zip(b).map(|(&a, &b)| f(a.into(), b.into())).collect();
        assert_close(&binary(name, a, b), &expected, relative, name);
    };
    check("f32_pow", a, b, 1e-6, &f64::powf);
    check("f32_atan2", &wide, b, 5e-7, &f64::atan2);
    check("f32_div_fast", &wide, a, 3e-7, &|a, b| a / b);
}

#[test]
fn fast_functions_err_absolutely() {
    let a = values(10, |random| random.f32() * 3.0);
    let check = |name: &str, error: f64, f: &dyn Fn(f64) -> f64| {
        for (&x, actual) in a.iter().zip(unary(name, &a)) {
            let expected = f(x.into());
            assert!((f64::from(actual) - expected).abs() <= error, "{name}({x}) = {actual}, not {expected}");
        }
    };
    check("f32_sin_fast", 5e-7, &f64::sin);
    check("f32_cos_fast", 5e-7, &f64::cos);
    check("f32_exp_fast", 5e-6, &f64::exp);
    let a: Vec<f32> = a.iter().map(|value| value.abs() + 0.01).collect();
    for ((&x, log), rcp) in a.iter().zip(unary("f32_log_fast", &a)).zip(unary("f32_rcp_fast", &a)) {
        assert!((f64::from(log) - f64::from(x).ln()).abs() < 1e-6, "log({x}) = {log}");
        assert!((f64::from(rcp) * f64::from(x) - 1.0).abs() < 3e-7, "1 / {x} = {rcp}");
    }
}

/// Any binary64, with special values more often than by chance.
fn double(random: &mut Random) -> f64 {
    const SPECIAL: [u64; 10] = [
        0,
        1 << 63,
        0x3ff0_0000_0000_0000,
        0x7ff0_0000_0000_0000,
        0xfff0_0000_0000_0000,
        0x7ff8_0000_0000_0000,
        1,
        0x800f_ffff_ffff_ffff,
        0x0010_0000_0000_0000,
        0x7fef_ffff_ffff_ffff,
    ];
    match random.u32() % 4 {
        0 => f64::from_bits(SPECIAL[random.u32() as usize % SPECIAL.len()]),
        1 => f64::from_bits(random.u64()),
        _ => (random.u64() as i64 as f64) / 1e15,
    }
}

fn doubles(seed: u64) -> Vec<f64> {
    let mut random = Random::new(seed);
    (0..COUNT).map(|_| double(&mut random)).collect()
}

#[track_caller]
fn assert_same_doubles(actual: &[f64], expected: &[f64], what: &str) {
    for (at, (actual, expected)) in actual.iter().zip(expected).enumerate() {
        let same = actual.to_bits() == expected.to_bits() || actual.is_nan() && expected.is_nan();
        assert!(same, "{what}[{at}]: {actual:e}, expected {expected:e}");
    }
}

#[test]
fn double_precision() {
    let (a, b, c) = (doubles(20), doubles(21), doubles(22));
    let check = |name: &str, a: &[f64], b: &[f64], f: &dyn Fn(f64, f64) -> f64| {
        let mut machine = Machine::kernels("double");
        let (da, db, out) = (machine.f64s(a), machine.f64s(b), machine.zeros(8 * COUNT));
        machine.run_1d(
            name,
            COUNT,
            128,
            &Params::new().buffer(&da).buffer(&db).buffer(&out).u32(COUNT as u32),
        );
        let expected: Vec<f64> = a.iter().zip(b).map(|(&a, &b)| f(a, b)).collect();
        assert_same_doubles(&out.f64s(), &expected, name);
    };
    check("f64_add", &a, &b, &|a, b| a + b);
    check("f64_mul", &a, &b, &|a, b| a * b);
    check("f64_div", &a, &b, &|a, b| a / b);
    check("f64_compare", &a, &b, &|a, b| match a.partial_cmp(&b) {
        Some(core::cmp::Ordering::Less) => -1.0,
        Some(core::cmp::Ordering::Greater) => 1.0,
        _ => 0.0,
    });
    check("f64_min", &a, &b, &|a, b| {
        let first = b.is_nan() || a < b || a == b && a.is_sign_negative();
        if a.is_nan() || !first { b } else { a }
    });
    let tame = |values: &[f64]| {
        values.iter().map(|v| if v.is_finite() { v.clamp(-1e100, 1e100) } else { 2.0 }).collect()
    };
    let (x, y): (Vec<f64>, Vec<f64>) = (tame(&a), tame(&b));
    // The compiler contracts the sum.
    check("f64_hypotenuse", &x, &y, &|a, b| a.mul_add(a, b * b).sqrt());

    let mut machine = Machine::kernels("double");
    let (da, db, dc, out) = (machine.f64s(&a), machine.f64s(&b), machine.f64s(&c), machine.zeros(8 * COUNT));
    let params = Params::new().buffer(&da).buffer(&db).buffer(&dc).buffer(&out).u32(COUNT as u32);
    machine.run_1d("f64_fma", COUNT, 64, &params);
    let expected: Vec<f64> = (0..COUNT).map(|i| a[i].mul_add(b[i], c[i])).collect();
    assert_same_doubles(&out.f64s(), &expected, "f64_fma");

    let series = |x: f64| {
        let r = [1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0];
        r.iter().fold(1.0 / 40320.0, |sum: f64, term| sum.mul_add(x, *term))
    };
    machine.run_1d("f64_exp_series", COUNT, 64, &Params::new().buffer(&da).buffer(&out).u32(COUNT as u32));
    assert_same_doubles(&out.f64s(), &a.iter().map(|&a| series(a)).collect::<Vec<_>>(), "f64_exp_series");
}

#[test]
fn double_conversions() {
    let a: Vec<f64> = doubles(23).into_iter().map(|a| if a.is_nan() { 1.5 } else { a }).collect();
    let mut machine = Machine::kernels("double");
    let da = machine.f64s(&a);
    let (single, int, long, back) = (
        machine.zeros(4 * COUNT),
        machine.zeros(4 * COUNT),
        machine.zeros(8 * COUNT),
        machine.zeros(8 * COUNT),
    );
    let params =
        Params::new().buffer(&da).buffer(&single).buffer(&int).buffer(&long).buffer(&back).u32(COUNT as u32);
    machine.run_1d("f64_convert", COUNT, 64, &params);
    assert_same(&single.f32s(), &a.iter().map(|&a| a as f32).collect::<Vec<_>>(), "to f32");
    assert_eq!(int.u32s(), a.iter().map(|&a| a as i32 as u32).collect::<Vec<_>>());
    assert_eq!(long.u64s(), a.iter().map(|&a| a as i64 as u64).collect::<Vec<_>>());
    assert_same_doubles(&back.f64s(), &a.iter().map(|&a| a as i64 as f64).collect::<Vec<_>>(), "from i64");
}

fn halves(seed: u64) -> Vec<u16> {
    let mut random = Random::new(seed);
    (0..COUNT)
        .map(
            |_| {
                if random.u32().is_multiple_of(3) { random.u32() as u16 } else { to_half(random.f32() * 8.0) }
            },
        )
        .collect()
}

fn half_bytes(values: &[u16]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

#[track_caller]
fn assert_same_halves(actual: &[u8], expected: &[u16], what: &str) {
    for (at, (actual, &expected)) in actual.chunks_exact(2).zip(expected).enumerate() {
        let actual = u16::from_le_bytes(actual.try_into().unwrap());
        let same = actual == expected || from_half(actual).is_nan() && from_half(expected).is_nan();
        assert!(same, "{what}[{at}]: {actual:#06x}, expected {expected:#06x}");
    }
}

#[test]
fn half_precision() {
    let (a, b, c) = (halves(30), halves(31), halves(32));
    let mut machine = Machine::kernels("half");
    let (da, db, dc) =
        (machine.bytes(&half_bytes(&a)), machine.bytes(&half_bytes(&b)), machine.bytes(&half_bytes(&c)));
    let out = machine.zeros(2 * COUNT);
    // binary64 represents products and sums of binary16 numbers exactly.
    let fma = |a: u16, b: u16, c: u16| {
        let exact = f64::from(from_half(a)) * f64::from(from_half(b)) + f64::from(from_half(c));
        half::f16::from_f64(exact).to_bits()
    };
    let params = Params::new().buffer(&da).buffer(&db).buffer(&dc).buffer(&out).u32(COUNT as u32);
    machine.run_1d("half_fma", COUNT, 64, &params);
    assert_same_halves(
        &out.bytes(),
        &(0..COUNT).map(|i| fma(a[i], b[i], c[i])).collect::<Vec<_>>(),
        "half_fma",
    );

    let pairs = COUNT / 2;
    let params = Params::new().buffer(&da).buffer(&db).buffer(&out).u32(pairs as u32);
    machine.run_1d("half2_add", pairs, 64, &params);
    let sums: Vec<u16> = (0..COUNT).map(|i| to_half(from_half(a[i]) + from_half(b[i]))).collect();
    assert_same_halves(&out.bytes(), &sums, "half2_add");

    machine.run_1d("half2_max", pairs, 64, &params);
    let largest = |a: u16, b: u16| {
        let (x, y) = (from_half(a), from_half(b));
        let first = y.is_nan() || x > y || x == y && y.is_sign_negative();
        if x.is_nan() || !first { b } else { a }
    };
    assert_same_halves(
        &out.bytes(),
        &(0..COUNT).map(|i| largest(a[i], b[i])).collect::<Vec<_>>(),
        "half2_max",
    );

    let x = values(33, Random::f32_any);
    let (dx, back) = (machine.f32s(&x), machine.zeros(4 * COUNT));
    machine.run_1d(
        "half_round_trip",
        COUNT,
        64,
        &Params::new().buffer(&dx).buffer(&out).buffer(&back).u32(COUNT as u32),
    );
    assert_same_halves(&out.bytes(), &x.iter().map(|&x| to_half(x)).collect::<Vec<_>>(), "to half");
    assert_same(&back.f32s(), &x.iter().map(|&x| from_half(to_half(x))).collect::<Vec<_>>(), "from half");
}

#[test]
fn half_matrix_times_vector() {
    let (rows, columns) = (5, 100);
    let mut random = Random::new(34);
    let matrix: Vec<u16> = (0..rows * columns).map(|_| to_half(random.f32())).collect();
    let x: Vec<u16> = (0..columns).map(|_| to_half(random.f32())).collect();
    let mut machine = Machine::kernels("half");
    let (dm, dx) = (machine.bytes(&half_bytes(&matrix)), machine.bytes(&half_bytes(&x)));
    let out = machine.zeros(4 * rows);
    let params = Params::new().buffer(&dm).buffer(&dx).buffer(&out).u32(columns as u32);
    machine.run("half_matvec", [rows as u32, 1, 1], [32, 1, 1], &params);
    let expected: Vec<f64> = matrix
        .chunks_exact(columns)
        .map(|row| row.iter().zip(&x).map(|(&m, &x)| f64::from(from_half(m)) * f64::from(from_half(x))).sum())
        .collect();
    for (actual, expected) in out.f32s().into_iter().zip(expected) {
        assert!((f64::from(actual) - expected).abs() < 1e-5, "{actual}, expected {expected}");
    }
}

#[test]
fn halves_with_the_signs_of_both_sources() {
    let mut random = Random::new(77);
    let mut machine = Machine::sass("minmax");
    let special = [0x7c00_8000u32, 0x7e00_3c00, 0xfc00_bc00, 0x8001_0001, 0x7f80_ff80];
    let word = |random: &mut Random| match random.u32() % 4 {
        0 => special[random.u32() as usize % special.len()],
        _ => random.u32(),
    };
    let a: Vec<u32> = (0..500).map(|_| word(&mut random)).collect();
    let b: Vec<u32> = (0..500).map(|_| word(&mut random)).collect();
    let (da, db, out) = (machine.u32s(&a), machine.u32s(&b), machine.zeros(4 * 4 * 500));
    let params = Params::new().buffer(&da).buffer(&db).buffer(&out).u32(500);
    machine.run_1d("xorsign", 500, 64, &params);
    // The smaller or larger magnitude, with the exclusive or of the signs; a number takes precedence over a NaN.
    let expected = |a: u16, b: u16, least: bool, strict: bool, infinity: u16| {
        let (x, y) = (a & 0x7fff, b & 0x7fff);
        let magnitude = match (x > infinity, y > infinity) {
            (true, true) => return 0x7fff,
            (true, false) | (false, true) if strict => return 0x7fff,
            (true, false) => y,
            (false, true) => x,
            _ if least => x.min(y),
            _ => x.max(y),
        };
        magnitude | (a ^ b) & 0x8000
    };
    for (at, words) in out.u32s().chunks(4).enumerate() {
        for half in [0, 16] {
            let (a, b) = ((a[at] >> half) as u16, (b[at] >> half) as u16);
            let results: Vec<u16> = words.iter().map(|word| (word >> half) as u16).collect();
            let least = expected(a, b, true, false, 0x7c00);
            let largest = expected(a, b, false, false, 0x7c00);
            let strict = expected(a, b, true, true, 0x7c00);
            let brain = expected(a, b, false, false, 0x7f80);
            assert_eq!(results, [least, largest, strict, brain], "{a:#x}, {b:#x}");
        }
    }
}
