//! Numbers on command lines.

use std::fmt::Display;
use std::num::IntErrorKind;
use std::ops::RangeInclusive;

/// Parses a whole number, decimal or hexadecimal with `0x`, within a range.
///
/// # Errors
///
/// Says that the text is not a number, or gives the range.
pub fn number<T>(text: &str, range: RangeInclusive<T>) -> Result<T, String>
where
    T: Copy + Display + TryFrom<i128> + PartialOrd,
{
    let outside = || format!("{text} is out of range: give {} to {}", range.start(), range.end());
    let value = parse(text).ok_or_else(|| format!("'{text}' is not a whole number"))?.ok_or_else(outside)?;
    T::try_from(value).ok().filter(|value| range.contains(value)).ok_or_else(outside)
}

/// The value; `Some(None)` if it is too large for any type, `None` if the text is not a number.
fn parse(text: &str) -> Option<Option<i128>> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let (digits, radix) = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None => (digits, 10),
    };
    // The parser would accept another sign here.
    if digits.starts_with(['+', '-']) {
        return None;
    }
    match i128::from_str_radix(digits, radix) {
        Ok(magnitude) => Some(Some(if negative { -magnitude } else { magnitude })),
        Err(error) if *error.kind() == IntErrorKind::PosOverflow => Some(None),
        Err(_) => None,
    }
}

/// [`number`] as a value parser for clap.
pub fn within<T>(range: RangeInclusive<T>) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync
where
    T: Copy + Display + TryFrom<i128> + PartialOrd + Send + Sync,
{
    move |text| number(text, range.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_out_of_range_is_told_apart_from_text() {
        assert_eq!(number("0x10", 0..=255_u8), Ok(16));
        assert_eq!(number("-1", i32::MIN..=i32::MAX), Ok(-1));
        let refused = |text: &str| number(text, 1..=268_435_456_u32).unwrap_err();
        let outside = "is out of range: give 1 to 268435456";
        for text in ["0", "-5", "268435457", "99999999999", "9".repeat(60).as_str()] {
            assert_eq!(refused(text), format!("{text} {outside}"));
        }
        for text in ["", "x", "--1", "+-1", "-", "0x", "1.5"] {
            assert_eq!(refused(text), format!("'{text}' is not a whole number"));
        }
    }
}
