//! Numbers in the notation of nvdisasm.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;

use crate::row::Number;

/// Largest magnitude that is written without an exponent.
const PLAIN_LIMIT: f64 = 1e9;

/// A signed hexadecimal number.
pub(crate) fn signed(value: i64) -> String {
    let sign = if value < 0 { "-" } else { "" };
    format!("{sign}{:#x}", value.unsigned_abs())
}

/// An immediate of 32 bits. `brains`: halves are bfloat16.
pub(crate) fn immediate(bits: u32, number: Number, brains: bool) -> String {
    match number {
        Number::Pattern => format!("{bits:#x}"),
        Number::Signed => signed(bits.cast_signed().into()),
        Number::Single => float(f32::from_bits(bits).into(), bits >> 22 & 1 != 0),
        Number::Double => float(f64::from_bits(u64::from(bits) << 32), bits >> 19 & 1 != 0),
        Number::HalvesOrBrains if brains => {
            let brain = |bits: u32| float(f32::from_bits(bits << 16).into(), bits >> 6 & 1 != 0);
            format!("{}, {}", brain(bits >> 16), brain(bits & 0xffff))
        }
        // CAST: the lower half, and the two halves.
        Number::Half => half(bits as u16),
        Number::Halves | Number::HalvesOrBrains => {
            format!("{}, {}", half((bits >> 16) as u16), half(bits as u16))
        }
    }
}

fn half(bits: u16) -> String {
    float(half::f16::from_bits(bits).to_f64(), bits >> 9 & 1 != 0)
}

/// A number with 20 significant digits. A sign precedes special values, and a blank follows them.
fn float(value: f64, quiet: bool) -> String {
    let sign = if value.is_sign_negative() { "-" } else { "+" };
    if value.is_nan() {
        let name = if quiet { "QNAN" } else { "SNAN" };
        return format!("{sign}{name} ");
    }
    if value.is_infinite() {
        return format!("{sign}INF ");
    }
    if value == 0.0 {
        return if value.is_sign_negative() { "-0.0 ".to_owned() } else { "0".to_owned() };
    }
    if value.abs() >= PLAIN_LIMIT {
        return exponent(&format!("{value:.20e}"));
    }
    general(value)
}

/// C's `%.20g`.
fn general(value: f64) -> String {
    let scientific = format!("{value:.19e}");
    let power: i32 = scientific.split_once('e').and_then(|(_, power)| power.parse().ok()).unwrap_or(0);
    if (-4..20).contains(&power) {
        // CAST: 0 to 23.
        let decimals = (19 - power).max(0) as usize;
        return trimmed(&format!("{value:.decimals$}")).to_owned();
    }
    let (digits, power) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    exponent(&format!("{}e{power}", trimmed(digits)))
}

/// Removes zeros at the end of a fraction.
fn trimmed(digits: &str) -> &str {
    if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits }
}

/// An exponent with its sign and at least two digits.
fn exponent(text: &str) -> String {
    let (digits, power) = text.split_once('e').unwrap_or((text, "0"));
    let power: i32 = power.parse().unwrap_or(0);
    let sign = if power < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", power.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_have_twenty_digits() {
        let single = |value: f32| immediate(value.to_bits(), Number::Single, false);
        assert_eq!(single(0.1), "0.10000000149011611938");
        assert_eq!(single(16_777_216.0), "16777216");
        assert_eq!(single(f32::from_bits(0x38d1_b717)), "9.9999997473787516356e-05");
        assert_eq!(single(f32::MAX), "3.40282346638528859812e+38");
        assert_eq!(single(f32::INFINITY), "+INF ");
        assert_eq!(immediate(0xffc0_0000, Number::Single, false), "-QNAN ");
        assert_eq!(immediate(0x7ff0_0001, Number::Double, false), "+SNAN ");
        assert_eq!(immediate(0x2e66_0001, Number::Halves, false), "0.0999755859375, 5.9604644775390625e-08");
        assert_eq!(immediate(0x8000_0010, Number::Signed, false), "-0x7ffffff0");
    }
}
