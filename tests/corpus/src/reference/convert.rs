//! `convert.cu`: conversions between all types.

use half::{bf16, f16};

use crate::case::{Case, any, map1, map2};
use crate::data::{Data, Element};
use crate::exact::{BF16, Exact, F16, F32, F64, Format, MODES, Mode};

const FILE: &str = "convert";

/// Result type of a conversion.
trait Integer: Element {
    const RANGE: (i128, i128);
}

macro_rules! ranges {
    ($($type:ty)*) => {$(
        impl Integer for $type {
            const RANGE: (i128, i128) = (<$type>::MIN as i128, <$type>::MAX as i128);
        }
    )*};
}

ranges!(u8 i8 u16 i16 u32 i32 u64 i64);

/// The hardware's result for NaN: zero, or only the highest bit set if one of the types has 64 bits.
fn of_nan(format: Format, bytes: usize) -> i128 {
    if format == F64 || bytes == 8 { 1 << (bytes * 8 - 1) } else { 0 }
}

/// Converts a float to an integer of the result type; saturates out of range.
fn to_int<T: Integer>(format: Format, bits: u64, mode: Mode) -> T {
    let (low, high) = T::RANGE;
    let value = format.to_integer(bits, mode, low, high).unwrap_or(of_nan(format, T::KIND.size()));
    // CAST: only the low bits are used.
    T::from_word(value as u64)
}

/// Converts an integer to a float.
fn from_int<T: Element>(format: Format, value: i128, mode: Mode) -> T {
    T::from_word(format.round(Exact::integer(value), mode))
}

fn f32_bits(x: f32) -> u64 {
    x.to_word()
}

/// Negative numbers become zero; NaN stays NaN.
fn relu(bits: u64, format: Format) -> u64 {
    let sign = 1 << (format.precision + format.exponent_bits - 1);
    let infinity = ((1 << format.exponent_bits) - 1) << (format.precision - 1);
    if bits & sign == 0 || bits & (sign - 1) > infinity { bits } else { 0 }
}

/// The cases.
pub(super) fn cases() -> Vec<Case> {
    let mut cases = to_integers();
    cases.extend(from_integers());
    cases.extend(between_floats());
    cases.extend(half_and_integers());
    cases.extend(narrow());
    cases
}

fn to_integers() -> Vec<Case> {
    fn f32_to<T: Integer>(kernel: &'static str) -> Case {
        map1(FILE, kernel, any(), |a: f32| MODES.map(|mode| to_int::<T>(F32, f32_bits(a), mode)))
    }
    fn f64_to<T: Integer>(kernel: &'static str) -> Case {
        map1(FILE, kernel, any(), |a: f64| MODES.map(|mode| to_int::<T>(F64, a.to_bits(), mode)))
    }
    vec![
        map1(FILE, "f32_to_s32", any(), |a: f32| {
            let [rn, rz, rd, ru] = MODES.map(|mode| to_int::<i32>(F32, f32_bits(a), mode));
            // Subnormal numbers become zero with and without the flag.
            [rn, rz, rd, ru, rz]
        }),
        f32_to::<u32>("f32_to_u32"),
        f32_to::<i64>("f32_to_s64"),
        f32_to::<u64>("f32_to_u64"),
        f64_to::<i32>("f64_to_s32"),
        f64_to::<u32>("f64_to_u32"),
        f64_to::<i64>("f64_to_s64"),
        map1(FILE, "f64_to_u64", any(), |a: f64| {
            [Mode::Nearest, Mode::Zero].map(|mode| to_int::<u64>(F64, a.to_bits(), mode))
        }),
    ]
}

fn from_integers() -> Vec<Case> {
    vec![
        map1(FILE, "s32_to_f32", any(), |a: i32| MODES.map(|mode| from_int::<f32>(F32, a.into(), mode))),
        map1(FILE, "u32_to_f32", any(), |a: u32| MODES.map(|mode| from_int::<f32>(F32, a.into(), mode))),
        map1(FILE, "s64_to_f32", any(), |a: i64| MODES.map(|mode| from_int::<f32>(F32, a.into(), mode))),
        map1(FILE, "u64_to_f32", any(), |a: u64| {
            [Mode::Nearest, Mode::Up].map(|mode| from_int::<f32>(F32, a.into(), mode))
        }),
        map1(FILE, "u32_to_f64", any(), |a: u32| [f64::from(a), f64::from(a.cast_signed())]),
        map1(FILE, "u64_to_f64", any(), |a: u64| {
            let signed = i128::from(a.cast_signed());
            [
                from_int::<f64>(F64, a.into(), Mode::Nearest),
                from_int::<f64>(F64, a.into(), Mode::Zero),
                from_int::<f64>(F64, signed, Mode::Down),
                from_int::<f64>(F64, signed, Mode::Up),
            ]
        }),
        map1(FILE, "narrow_to_f32", any(), |a: u32| {
            [f32::from(a as u8), f32::from(a as i8), f32::from((a >> 7) as u16), f32::from((a >> 9) as i16)]
        }),
    ]
}

fn between_floats() -> Vec<Case> {
    vec![
        map1(FILE, "f64_to_f32", any(), |a: f64| {
            MODES.map(|mode| f32::from_word(F64.convert(a.to_bits(), F32, mode)))
        }),
        map1(FILE, "f32_to_f64", any(), |a: f32| [f64::from(a)]),
        map1(FILE, "f32_to_f16", any(), |a: f32| {
            MODES.map(|mode| f16::from_word(F32.convert(f32_bits(a), F16, mode)))
        }),
        map1(FILE, "f64_to_f16", any(), |a: f64| {
            [f16::from_word(F64.convert(a.to_bits(), F16, Mode::Nearest))]
        }),
        map1(FILE, "f16_to_floats", any(), |a: f16| [a.to_f64(), a.to_f64()]),
        map1(FILE, "f32_to_bf16", any(), |a: f32| {
            [Mode::Nearest, Mode::Zero].map(|mode| bf16::from_word(F32.convert(f32_bits(a), BF16, mode)))
        }),
        map1(FILE, "bf16_to_f32", any(), |a: bf16| [a.to_f32()]),
        map2(FILE, "f32_pair_to_f16x2", (any(), any()), |a: f32, b: f32| {
            let [a, b] = [a, b].map(|x| F32.convert(f32_bits(x), F16, Mode::Nearest));
            [a, b, relu(a, F16), relu(b, F16)].map(f16::from_word)
        }),
        map2(FILE, "f32_pair_to_bf16x2", (any(), any()), |a: f32, b: f32| {
            let to = |x: f32, mode| F32.convert(f32_bits(x), BF16, mode);
            let ([a, b], [c, d]) = ([a, b].map(|x| to(x, Mode::Nearest)), [a, b].map(|x| to(x, Mode::Zero)));
            [a, b, relu(a, BF16), relu(b, BF16), c, d].map(bf16::from_word)
        }),
        // Ties round away from zero: add half a unit to the magnitude, then truncate.
        map1(FILE, "f32_to_tf32", any(), |a: f32| -> [f32; 1] {
            if a.is_nan() {
                return [f32::NAN];
            }
            let bits = a.to_bits();
            if a.is_infinite() { [a] } else { [f32::from_bits((bits + 0x1000) & !0x1fff)] }
        }),
    ]
}

fn half_and_integers() -> Vec<Case> {
    vec![
        map1(FILE, "f16_to_integers", any(), |a: f16| {
            let bits = a.to_word();
            [
                to_int::<i32>(F16, bits, Mode::Nearest),
                to_int::<i32>(F16, bits, Mode::Zero),
                to_int::<i32>(F16, bits, Mode::Down),
                to_int::<u32>(F16, bits, Mode::Up).cast_signed(),
                i32::from(to_int::<i16>(F16, bits, Mode::Nearest)),
            ]
        }),
        map1(FILE, "integers_to_f16", any(), |a: i32| {
            let short = i128::from(a as i16);
            [
                from_int::<f16>(F16, a.into(), Mode::Nearest),
                from_int::<f16>(F16, a.into(), Mode::Zero),
                from_int::<f16>(F16, a.cast_unsigned().into(), Mode::Up),
                from_int::<f16>(F16, short, Mode::Nearest),
            ]
        }),
        map1(FILE, "f16_integral", any(), |a: f16| {
            [Mode::Down, Mode::Up, Mode::Zero, Mode::Nearest]
                .map(|mode| f16::from_word(F16.integral(a.to_word(), mode)))
        }),
    ]
}

fn narrow() -> Vec<Case> {
    let mut numbers = Case::numbers("f32_to_bytes");
    // Conversions of the language are defined only within the range of the result.
    let floats: Vec<f32> = (0..4 * 331).map(|_| (numbers.f32() + 1.0) * 127.9).collect();
    vec![
        map1(FILE, "f32_to_narrow", any(), |a: f32| {
            let bits = f32_bits(a);
            [
                u32::from(to_int::<i16>(F32, bits, Mode::Zero).cast_unsigned()),
                u32::from(to_int::<u16>(F32, bits, Mode::Nearest)),
                u32::from(to_int::<i8>(F32, bits, Mode::Zero).cast_unsigned()),
                u32::from(to_int::<u8>(F32, bits, Mode::Zero)),
            ]
        }),
        map1(FILE, "integer_saturation", any(), |a: i32| {
            [a.clamp(-128, 127), a.clamp(0, 255), a.clamp(-0x8000, 0x7fff), a.clamp(0, 0xffff)]
        }),
        Case::new(FILE, "f32_to_bytes")
            .launch(4, 96)
            .input(&floats)
            .output::<u8>(floats.len())
            .scalar((floats.len() / 4) as u32)
            .reference(move |_| vec![Data::of(&floats.iter().map(|x| *x as u8).collect::<Vec<u8>>())]),
    ]
}
