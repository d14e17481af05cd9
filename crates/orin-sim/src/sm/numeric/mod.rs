//! Arithmetic of SM 8.x instructions, one lane at a time.
//!
//! The datapaths of a streaming multiprocessor compute on 32-bit registers. A 64-bit operand is a register pair; a
//! packed operand holds two 16-bit, four 8-bit or eight 4-bit elements. The functions here take and return those
//! bits, independent of registers, predicates and encodings. The interpreter selects operands, applies write masks
//! and calls the functions in lane loops.
//!
//! Conventions shared by all of them:
//!
//! * floating point follows IEEE 754 with the rounding the instruction names, in one rounding;
//! * a NaN result is the canonical one: `0x7fff_ffff` for binary32, `0x7fff` for binary16 and
//!   bfloat16, `0x7ff8_0000_0000_0000` for binary64. Payloads are not carried;
//! * FTZ reads subnormal inputs as zero of the same sign and replaces results that are subnormal
//!   after rounding to an unbounded exponent by zero of the same sign;
//! * saturation clamps to `[0, 1]` and turns NaN into `+0`;
//! * integers wrap modulo two to the width.
//!
//! Where the hardware's result is not published (the tables of MUFU, the internal width of the tensor cores), the
//! functions return the correctly rounded value and say so.

pub(crate) mod convert;
pub(crate) mod f16;
pub(crate) mod f32;
pub(crate) mod f64;
pub(crate) mod int;
pub(crate) mod mma;
pub(crate) mod mufu;
#[cfg(test)]
mod reference;
mod soft;
pub(crate) mod sparse;

/// Rounding of results that are not representable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Rounding {
    /// To nearest, ties to even (`.RN`, not printed).
    #[default]
    Nearest,
    /// Towards minus infinity (`.RM`; `.FLOOR` in conversions to integers).
    Down,
    /// Towards plus infinity (`.RP`; `.CEIL` in conversions to integers).
    Up,
    /// Towards zero (`.RZ`; `.TRUNC` in conversions to integers).
    Zero,
}

impl Rounding {
    /// All four, in the order of their field values.
    pub(crate) const ALL: [Self; 4] = [Self::Nearest, Self::Down, Self::Up, Self::Zero];

    /// Decodes a two-bit instruction field.
    ///
    /// # Panics
    ///
    /// If `field` is above 3.
    #[must_use]
    pub(crate) const fn from_field(field: u32) -> Self {
        Self::ALL[field as usize]
    }
}

/// Comparison of two floating-point values.
///
/// "Unordered" means that at least one of the two is NaN. The plain comparisons, `Ne` included,
/// are false when unordered; those whose name ends in `u` are true.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum FloatCompare {
    /// Never true. DSETP has `.MIN` in its place, see [`f64::selects_first`].
    False,
    /// Less.
    Lt,
    /// Equal; zeros of either sign are equal.
    Eq,
    /// Less or equal.
    Le,
    /// Greater.
    Gt,
    /// Less or greater.
    Ne,
    /// Greater or equal.
    Ge,
    /// Both are numbers.
    Num,
    /// At least one is NaN.
    Nan,
    /// Less or unordered.
    Ltu,
    /// Equal or unordered.
    Equ,
    /// Less, equal or unordered.
    Leu,
    /// Greater or unordered.
    Gtu,
    /// Not equal, or unordered.
    Neu,
    /// Greater, equal or unordered.
    Geu,
    /// Always true. DSETP has `.MAX` in its place, see [`f64::selects_first`].
    True,
}

impl FloatCompare {
    /// All sixteen, in the order of their field values.
    pub(crate) const ALL: [Self; 16] = [
        Self::False,
        Self::Lt,
        Self::Eq,
        Self::Le,
        Self::Gt,
        Self::Ne,
        Self::Ge,
        Self::Num,
        Self::Nan,
        Self::Ltu,
        Self::Equ,
        Self::Leu,
        Self::Gtu,
        Self::Neu,
        Self::Geu,
        Self::True,
    ];

    /// Decodes a four-bit instruction field.
    ///
    /// # Panics
    ///
    /// If `field` is above 15.
    #[must_use]
    pub(crate) const fn from_field(field: u32) -> Self {
        Self::ALL[field as usize]
    }

    /// Returns whether the comparison holds for two values that compare as `ordering` (`None`: unordered).
    ///
    /// The field value is a truth table: bit 0 is the result for less, bit 1 for equal, bit 2 for greater, bit 3 for
    /// unordered.
    #[inline]
    #[must_use]
    pub(crate) const fn holds(self, ordering: Option<core::cmp::Ordering>) -> bool {
        let outcome = match ordering {
            Some(core::cmp::Ordering::Less) => 1,
            Some(core::cmp::Ordering::Equal) => 2,
            Some(core::cmp::Ordering::Greater) => 4,
            None => 8,
        };
        self as u32 & outcome != 0
    }
}

/// Comparison of two integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum IntCompare {
    /// Never true.
    False,
    /// Less.
    Lt,
    /// Equal.
    Eq,
    /// Less or equal.
    Le,
    /// Greater.
    Gt,
    /// Not equal.
    Ne,
    /// Greater or equal.
    Ge,
    /// Always true.
    True,
}

impl IntCompare {
    /// All eight, in the order of their field values.
    pub(crate) const ALL: [Self; 8] =
        [Self::False, Self::Lt, Self::Eq, Self::Le, Self::Gt, Self::Ne, Self::Ge, Self::True];

    /// Decodes a three-bit instruction field.
    ///
    /// # Panics
    ///
    /// If `field` is above 7.
    #[must_use]
    pub(crate) const fn from_field(field: u32) -> Self {
        Self::ALL[field as usize]
    }

    /// Returns whether the comparison holds for two values that compare as `ordering`.
    #[inline]
    #[must_use]
    pub(crate) const fn holds(self, ordering: core::cmp::Ordering) -> bool {
        let outcome = match ordering {
            core::cmp::Ordering::Less => 1,
            core::cmp::Ordering::Equal => 2,
            core::cmp::Ordering::Greater => 4,
        };
        self as u32 & outcome != 0
    }
}

#[cfg(test)]
mod tests {
    use core::cmp::Ordering;

    use super::*;

    #[test]
    fn unordered_compares_are_the_complement_of_the_opposite_ordered_one() {
        let outcomes = [Some(Ordering::Less), Some(Ordering::Equal), Some(Ordering::Greater), None];
        for (ordered, complement) in [
            (FloatCompare::Lt, FloatCompare::Geu),
            (FloatCompare::Eq, FloatCompare::Neu),
            (FloatCompare::Le, FloatCompare::Gtu),
            (FloatCompare::Gt, FloatCompare::Leu),
            (FloatCompare::Ne, FloatCompare::Equ),
            (FloatCompare::Ge, FloatCompare::Ltu),
            (FloatCompare::Num, FloatCompare::Nan),
            (FloatCompare::False, FloatCompare::True),
        ] {
            for outcome in outcomes {
                assert_ne!(ordered.holds(outcome), complement.holds(outcome), "{ordered:?} {outcome:?}");
            }
            assert!(!ordered.holds(None), "{ordered:?}");
        }
    }

    #[test]
    fn field_values_name_the_comparisons_of_the_encoding() {
        assert_eq!(FloatCompare::from_field(5), FloatCompare::Ne);
        assert_eq!(FloatCompare::from_field(13), FloatCompare::Neu);
        assert_eq!(IntCompare::from_field(6), IntCompare::Ge);
        assert_eq!(Rounding::from_field(2), Rounding::Up);
        assert!(!FloatCompare::Ne.holds(None) && FloatCompare::Ne.holds(Some(Ordering::Less)));
        for (n, compare) in IntCompare::ALL.into_iter().enumerate() {
            assert_eq!(compare as usize, n);
            assert_eq!(IntCompare::from_field(n as u32).holds(Ordering::Less), n & 1 != 0);
        }
    }
}
