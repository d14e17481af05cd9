//! Fields of launch descriptors: their bits and the values that the class header names.

use core::fmt;
use core::marker::PhantomData;

use crate::error::FieldError;
use crate::method::shift_in_name;

/// Description of one field, or of an array of equal fields. No field crosses a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldInfo {
    /// Name in the class header.
    pub name: &'static str,
    /// Highest bit of element 0, counted from bit 0 of word 0.
    pub hi: u32,
    /// Lowest bit of element 0.
    pub lo: u32,
    /// Number of elements; 1 if the field is not an array.
    pub count: u32,
    /// Distance between elements in bits; 0 if the field is not an array.
    pub stride: u32,
    /// Number of low bits of an address or size that the field omits, taken from its name:
    /// `CONSTANT_BUFFER_SIZE_SHIFTED4` counts in units of 16 bytes.
    pub shift: u32,
    /// Values named by the header.
    pub values: &'static [(&'static str, u32)],
}

impl FieldInfo {
    /// Number of bits of one element.
    #[must_use]
    #[inline]
    pub const fn width(&self) -> u32 {
        self.hi - self.lo + 1
    }

    /// Largest value of one element.
    #[must_use]
    #[inline]
    pub const fn max(&self) -> u32 {
        u32::MAX >> (32 - self.width())
    }

    /// Whether the header lists the field per index.
    #[must_use]
    pub const fn is_array(&self) -> bool {
        self.count > 1
    }

    /// First name that the header gives a value.
    #[must_use]
    pub fn value_name(&self, value: u32) -> Option<&'static str> {
        self.values.iter().find(|(_, named)| *named == value).map(|(name, _)| *name)
    }

    /// Position of element `index`, which must exist.
    #[inline]
    pub(super) const fn place(&self, index: u32) -> Place {
        let lo = self.lo + index * self.stride;
        Place { word: (lo / 32) as usize, shift: lo % 32, max: self.max() }
    }

    /// Refuses a value that does not fit one element.
    #[inline]
    pub(super) const fn narrow(&self, value: u64) -> Result<u32, FieldError> {
        if value > self.max() as u64 {
            return Err(FieldError::TooWide { field: self.name, value, bits: self.width() });
        }
        // CAST: at most `max`.
        Ok(value as u32)
    }

    /// Converts a value in bytes to the units of the field; refuses one that is not a multiple of the unit.
    #[inline]
    pub(super) const fn units(&self, value: u64) -> Result<u64, FieldError> {
        let shift = self.shift;
        if value & ((1 << shift) - 1) != 0 {
            return Err(FieldError::LostBits { field: self.name, value, shift });
        }
        Ok(value >> shift)
    }
}

/// Position of a field in the words of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Index of the word.
    pub(super) word: usize,
    /// Lowest bit in the word.
    pub(super) shift: u32,
    /// Largest value.
    pub(super) max: u32,
}

impl Place {
    /// The bits of the word that belong to the field.
    #[inline]
    pub(super) const fn mask(self) -> u32 {
        self.max << self.shift
    }
}

/// Per word, the bits that belong to some field.
pub(crate) const fn named_bits<const WORDS: usize>(fields: &[FieldInfo]) -> [u32; WORDS] {
    let mut named = [0; WORDS];
    let mut position = 0;
    while position < fields.len() {
        let field = &fields[position];
        let mut index = 0;
        while index < field.count {
            let place = field.place(index);
            named[place.word] |= place.mask();
            index += 1;
        }
        position += 1;
    }
    named
}

/// A field of layout `V`, or one element of an array field.
#[derive(Clone, Copy)]
pub struct Field<V> {
    info: FieldInfo,
    index: u32,
    layout: PhantomData<V>,
}

impl<V> Field<V> {
    #[inline]
    pub(crate) const fn new(
        name: &'static str,
        hi: u32,
        lo: u32,
        values: &'static [(&'static str, u32)],
    ) -> Self {
        let info = FieldInfo { name, hi, lo, count: 1, stride: 0, shift: shift_in_name(name), values };
        Self::element(info, 0)
    }

    /// Element `index`, which must exist.
    #[inline]
    pub(super) const fn element(info: FieldInfo, index: u32) -> Self {
        Self { info, index, layout: PhantomData }
    }

    /// Description of the field, or of the array that contains it.
    #[must_use]
    pub const fn info(&self) -> FieldInfo {
        self.info
    }

    /// Index in the array; 0 if the field is not an array element.
    #[must_use]
    pub const fn index(&self) -> u32 {
        self.index
    }

    /// Highest and lowest bit.
    #[must_use]
    pub const fn bits(&self) -> (u32, u32) {
        let offset = self.index * self.info.stride;
        (self.info.hi + offset, self.info.lo + offset)
    }

    #[inline]
    pub(super) const fn place(&self) -> Place {
        self.info.place(self.index)
    }
}

impl<V> fmt::Debug for Field<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (hi, lo) = self.bits();
        write!(f, "{}", self.info.name)?;
        if self.info.is_array() {
            write!(f, "({})", self.index)?;
        }
        write!(f, " {hi}:{lo}")
    }
}

/// An array field of layout `V`.
///
/// ```
/// # fn main() -> Result<(), ampere_cmd::Error> {
/// use ampere_cmd::qmd::v3_0;
///
/// assert_eq!(v3_0::CONSTANT_BUFFER_VALID.count(), 8);
/// assert!(v3_0::CONSTANT_BUFFER_VALID.at(8).is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy)]
pub struct FieldArray<V> {
    info: FieldInfo,
    layout: PhantomData<V>,
}

impl<V> FieldArray<V> {
    #[inline]
    pub(crate) const fn new(
        name: &'static str,
        hi: u32,
        lo: u32,
        count: u32,
        stride: u32,
        values: &'static [(&'static str, u32)],
    ) -> Self {
        let info = FieldInfo { name, hi, lo, count, stride, shift: shift_in_name(name), values };
        Self { info, layout: PhantomData }
    }

    /// Description of the array.
    #[must_use]
    pub const fn info(&self) -> FieldInfo {
        self.info
    }

    /// Number of elements.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.info.count
    }

    /// Element 0. Every array has one.
    #[must_use]
    #[inline]
    pub const fn first(self) -> Field<V> {
        Field::element(self.info, 0)
    }

    /// Element `index`.
    ///
    /// # Errors
    ///
    /// [`FieldError::NoSuchElement`] beyond the end.
    #[inline]
    pub const fn at(self, index: u32) -> Result<Field<V>, FieldError> {
        if index >= self.info.count {
            return Err(FieldError::NoSuchElement { field: self.info.name, index, count: self.info.count });
        }
        Ok(Field::element(self.info, index))
    }

    /// All elements.
    pub fn iter(self) -> impl Iterator<Item = Field<V>> {
        (0..self.info.count).map(move |index| Field::element(self.info, index))
    }
}
