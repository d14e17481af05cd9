//! Tolerances, and comparison of results with expected values.

use super::data::{Data, Kind};

/// Tolerance of a result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tolerance {
    /// Equal bits. NaN equals NaN, whatever its payload.
    Exact,
    /// Largest distance in units in the last place.
    Ulp(u64),
    /// `absolute + relative * |wanted|`.
    Near {
        /// Relative part, times the expected value.
        relative: f64,
        /// Absolute part.
        absolute: f64,
    },
}

impl std::fmt::Display for Tolerance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exact => write!(f, "exact"),
            Self::Ulp(ulp) => write!(f, "{ulp} ulp"),
            Self::Near { relative, absolute } if *absolute == 0.0 => write!(f, "{relative:.1e} relative"),
            Self::Near { relative, absolute } if *relative == 0.0 => write!(f, "{absolute:.1e} absolute"),
            Self::Near { relative, absolute } => write!(f, "{absolute:.1e} + {relative:.1e} relative"),
        }
    }
}

/// Result of a comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Elements compared.
    pub elements: usize,
    /// Elements with equal bits, or NaN on both sides.
    pub equal: usize,
    /// Largest distance in units in the last place; for integers, `u64::MAX` for any difference.
    pub max_ulp: u64,
    /// Index of the first element beyond the tolerance.
    pub first_wrong: Option<usize>,
}

impl Difference {
    /// Merges two comparisons; drops the index.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            elements: self.elements + other.elements,
            equal: self.equal + other.equal,
            max_ulp: self.max_ulp.max(other.max_ulp),
            first_wrong: self.first_wrong.or(other.first_wrong),
        }
    }
}

/// Compares element by element.
///
/// # Panics
///
/// If the kinds or lengths differ.
pub fn compare(got: &Data, wanted: &Data, tolerance: Tolerance) -> Difference {
    assert_eq!((got.kind, got.bytes.len()), (wanted.kind, wanted.bytes.len()), "two different buffers");
    let mut difference = Difference { elements: wanted.len(), ..Difference::default() };
    for (index, (got, want)) in got.words().zip(wanted.words()).enumerate() {
        let ulp = distance(wanted.kind, got, want);
        if ulp == 0 {
            difference.equal += 1;
        } else {
            difference.max_ulp = difference.max_ulp.max(ulp);
            if !close(wanted.kind, got, want, ulp, tolerance) {
                difference.first_wrong.get_or_insert(index);
            }
        }
    }
    difference
}

/// An element as text, for messages.
pub fn show(kind: Kind, word: u64) -> String {
    match kind {
        Kind::F16 | Kind::Bf16 | Kind::F32 | Kind::F64 => format!("{:e} ({word:#x})", value(kind, word)),
        _ => format!("{word:#x}"),
    }
}

/// Whether the bits encode a NaN.
pub fn is_nan(kind: Kind, word: u64) -> bool {
    kind.fraction_bits().is_some() && value(kind, word).is_nan()
}

/// The exact value of floating-point bits; the value of an integer, rounded to a double.
fn value(kind: Kind, word: u64) -> f64 {
    // CAST: the word holds no more bits than its kind.
    match kind {
        Kind::F16 => half::f16::from_bits(word as u16).to_f64(),
        Kind::Bf16 => half::bf16::from_bits(word as u16).to_f64(),
        Kind::F32 => f64::from(f32::from_bits(word as u32)),
        Kind::F64 => f64::from_bits(word),
        Kind::U8 | Kind::U16 | Kind::U32 | Kind::U64 => word as f64,
    }
}

/// Distance between two values in representable values; -0 and +0 are one apart.
fn distance(kind: Kind, a: u64, b: u64) -> u64 {
    if a == b {
        return 0;
    }
    if kind.fraction_bits().is_none() {
        return u64::MAX;
    }
    match (is_nan(kind, a), is_nan(kind, b)) {
        (true, true) => return 0,
        (true, false) | (false, true) => return u64::MAX,
        (false, false) => {}
    }
    let sign = 1u64 << (kind.size() * 8 - 1);
    // Bits of negative numbers grow downwards: -0 is one below +0.
    let place = |word: u64| {
        let magnitude = i128::from(word & (sign - 1));
        if word & sign == 0 { magnitude } else { -1 - magnitude }
    };
    u64::try_from((place(a) - place(b)).unsigned_abs()).unwrap_or(u64::MAX)
}

fn close(kind: Kind, got: u64, want: u64, ulp: u64, tolerance: Tolerance) -> bool {
    match tolerance {
        Tolerance::Exact => false,
        Tolerance::Ulp(most) => ulp <= most,
        Tolerance::Near { relative, absolute } => {
            let (got, want) = (value(kind, got), value(kind, want));
            // NaN is close to nothing; equal infinities were handled above.
            (got - want).abs() <= absolute + relative * want.abs() && want.is_finite()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ulps(a: f32, b: f32) -> u64 {
        distance(Kind::F32, u64::from(a.to_bits()), u64::from(b.to_bits()))
    }

    #[test]
    fn distances_count_representable_values() {
        assert_eq!(ulps(1.0, 1.0), 0);
        assert_eq!(ulps(1.0, 1.0 + f32::EPSILON), 1);
        assert_eq!(ulps(0.0, -0.0), 1);
        assert_eq!(ulps(f32::from_bits(1), f32::from_bits(0x8000_0001)), 3);
        assert_eq!(ulps(f32::NAN, -f32::NAN), 0);
        assert_eq!(ulps(f32::NAN, 1.0), u64::MAX);
        assert_eq!(ulps(f32::MAX, f32::INFINITY), 1);
        assert_eq!(distance(Kind::U32, 1, 2), u64::MAX);
    }

    #[test]
    fn the_first_element_beyond_the_tolerance_is_named() {
        let wanted = Data::of(&[1.0_f32, 2.0, 3.0]);
        let got = Data::of(&[1.0_f32, 2.0 + 2.0 * f32::EPSILON, 3.1]);
        let exact = compare(&got, &wanted, Tolerance::Exact);
        assert_eq!((exact.equal, exact.first_wrong), (1, Some(1)));
        assert_eq!(compare(&got, &wanted, Tolerance::Ulp(1)).first_wrong, Some(2));
        let near = Tolerance::Near { relative: 0.0, absolute: 0.2 };
        assert_eq!(compare(&got, &wanted, near).first_wrong, None);
        let infinite = Data::of(&[f32::INFINITY]);
        assert_eq!(compare(&Data::of(&[1.0_f32]), &infinite, near).first_wrong, Some(0));
    }
}
