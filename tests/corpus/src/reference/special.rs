//! `special.cu`: functions whose last bits depend on the hardware.
//!
//! The tolerances follow the PTX manual for instructions and the CUDA manual for library functions, plus half
//! a unit for the rounding of the reference where needed.

use crate::case::{Case, Source, any, made, map1, map2};
use crate::compare::Tolerance;
use test_support::Numbers;

const FILE: &str = "special";

/// Two units: the accuracy of a table with interpolation.
const MUFU: (Tolerance, &str) = (Tolerance::Ulp(2), "table and interpolation of the special-function unit");
/// The same as an absolute tolerance, for functions that cross zero.
const fn absolute(absolute: f64) -> Tolerance {
    Tolerance::Near { relative: 0.0, absolute }
}

fn flush(x: f32) -> f32 {
    if x.is_subnormal() { 0.0_f32.copysign(x) } else { x }
}

/// The double-precision function, rounded once.
fn rounded(f: impl Fn(f64) -> f64, x: f32) -> f32 {
    // CAST: rounds to nearest.
    f(f64::from(x)) as f32
}

/// The same with subnormal arguments and results flushed to zero.
fn flushed(f: impl Fn(f64) -> f64, x: f32) -> f32 {
    flush(rounded(f, flush(x)))
}

/// Arguments between two bounds, and special values.
fn between<const LOW: i32, const HIGH: i32>() -> Source<f32> {
    made(&[0.0, -0.0, 1.0, -1.0, 0.5], |n: &mut Numbers| {
        let middle = (HIGH + LOW) as f32 / 2.0;
        middle + n.f32() * (HIGH - LOW) as f32 / 2.0
    })
}

/// Positive numbers of any magnitude, and the special arguments of logarithms and roots.
fn positive() -> Source<f32> {
    let edges =
        [0.0, -0.0, 1.0, 2.0, 0.5, f32::INFINITY, f32::MAX, f32::MIN_POSITIVE, -1.0, f32::NAN, 1.0e-40];
    made(&edges, |n: &mut Numbers| f32::from_bits(n.u32() % 0x7f80_0000))
}

fn tanh(x: f64) -> f64 {
    x.tanh()
}

/// The error function by its series, with enough terms for arguments up to 6.
fn erf(x: f64) -> f64 {
    if x.abs() > 6.0 {
        return 1.0_f64.copysign(x);
    }
    let (mut sum, mut term) = (x, x);
    for n in 1..200 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    let value = sum * 2.0 / core::f64::consts::PI.sqrt();
    // The alternating series loses its last digits where the function is 1 in single precision.
    if x.abs() > 4.5 { 1.0_f64.copysign(x) } else { value }
}

/// The cases.
pub(super) fn cases() -> Vec<Case> {
    let mut cases = instructions();
    cases.extend(waves());
    cases.extend(library());
    cases.extend(doubles());
    cases
}

fn instructions() -> Vec<Case> {
    let within = |case: Case| case.within(MUFU.0, MUFU.1);
    let rsqrt = |x: f64| 1.0 / x.sqrt();
    let recip = |x: f64| 1.0 / x;
    vec![
        within(map1(FILE, "rcp_approx", any(), move |a: f32| [rounded(recip, a)])),
        within(map1(FILE, "rcp_approx_ftz", any(), move |a: f32| [flushed(recip, a)])),
        within(map1(FILE, "rsqrt_approx", positive(), move |a: f32| [rounded(rsqrt, a)])),
        within(map1(FILE, "rsqrt_approx_ftz", positive(), move |a: f32| [flushed(rsqrt, a)])),
        within(map1(FILE, "sqrt_approx", positive(), |a: f32| [rounded(f64::sqrt, a)])),
        within(map1(FILE, "ex2_approx", between::<-130, 130>(), |a: f32| [rounded(f64::exp2, a)])),
        within(map1(FILE, "ex2_approx_ftz", between::<-140, 140>(), |a: f32| [flushed(f64::exp2, a)])),
        map1(FILE, "lg2_approx", positive(), |a: f32| [rounded(f64::log2, a)])
            .within(Tolerance::Near { relative: 2.4e-7, absolute: 2.4e-7 }, "PTX: 2^-22 absolute near 1"),
        map1(FILE, "lg2_approx_ftz", positive(), |a: f32| [rounded(f64::log2, flush(a))])
            .within(Tolerance::Near { relative: 2.4e-7, absolute: 2.4e-7 }, "PTX: 2^-22 absolute near 1"),
        map1(FILE, "tanh_approx", between::<-9, 9>(), |a: f32| [rounded(tanh, a)])
            .within(Tolerance::Near { relative: 5.0e-4, absolute: 0.0 }, "PTX: relative error of 2^-11"),
        map2(FILE, "div_approx", (between::<-50, 50>(), between::<1, 70>()), |a: f32, b: f32| {
            [(f64::from(a) / f64::from(b)) as f32]
        })
        .within(Tolerance::Ulp(2), "PTX: 2 ulp for divisors up to 2^126"),
        map2(FILE, "div_full", (any(), between::<1, 1000>()), |a: f32, b: f32| {
            [(f64::from(a) / f64::from(b)) as f32]
        })
        .within(Tolerance::Ulp(2), "PTX: 2 ulp over the full range"),
    ]
}

fn waves() -> Vec<Case> {
    let reason = "PTX: 2^-20.5 absolute between -pi and pi";
    vec![
        map1(FILE, "sin_approx", between::<-3, 3>(), |a: f32| [rounded(f64::sin, a)])
            .within(absolute(7.0e-7), reason),
        map1(FILE, "cos_approx", between::<-3, 3>(), |a: f32| [rounded(f64::cos, a)])
            .within(absolute(7.0e-7), reason),
    ]
}

fn library() -> Vec<Case> {
    vec![
        map1(FILE, "exp_f32", between::<-100, 100>(), |a: f32| [rounded(f64::exp, a), rounded(f64::exp2, a)])
            .within(Tolerance::Ulp(2), "CUDA: expf and exp2f within 2 ulp"),
        map1(FILE, "log_f32", positive(), |a: f32| [rounded(f64::ln, a), rounded(f64::log2, a)])
            .within(Tolerance::Ulp(2), "CUDA: logf and log2f within 1 ulp"),
        map1(FILE, "sine_f32", between::<-200_000, 200_000>(), |a: f32| {
            [rounded(f64::sin, a), rounded(f64::cos, a)]
        })
        .within(Tolerance::Ulp(2), "CUDA: sinf and cosf within 2 ulp"),
        map1(FILE, "tangent_f32", between::<-20, 20>(), |a: f32| [rounded(tanh, a), rounded(f64::atan, a)])
            .within(Tolerance::Ulp(2), "CUDA: tanhf and atanf within 2 ulp"),
        map2(FILE, "power_f32", (positive(), between::<-3, 3>()), |a: f32, b: f32| {
            [f64::from(a).powf(f64::from(b)) as f32]
        })
        .within(Tolerance::Ulp(4), "CUDA: powf within 4 ulp"),
        map1(FILE, "error_f32", between::<-5, 5>(), |a: f32| [rounded(f64::cbrt, a), rounded(erf, a)])
            .within(Tolerance::Ulp(2), "CUDA: cbrtf within 1 ulp, erff within 2 ulp"),
    ]
}

fn doubles() -> Vec<Case> {
    let reason = "CUDA: within 2 ulp, and the host's own function is within 1 ulp";
    let wide = || made(&[0.0_f64, 1.0, -1.0, 0.5], |n: &mut Numbers| f64::from(n.f32()) * 600.0);
    let large = || made(&[1.0_f64, 0.5], |n: &mut Numbers| f64::from(n.u32()) * 1.0e-3 + 1.0e-9);
    vec![
        map1(FILE, "exp_f64", wide(), |a: f64| [a.exp()]).within(Tolerance::Ulp(2), reason),
        map1(FILE, "log_f64", large(), |a: f64| [a.ln()]).within(Tolerance::Ulp(2), reason),
        map1(FILE, "sine_f64", wide(), |a: f64| [a.sin()]).within(Tolerance::Ulp(2), reason),
    ]
}
