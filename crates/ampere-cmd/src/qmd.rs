//! QMD, the launch descriptor: a record in GPU memory that tells the compute scheduler what to
//! run. Versions 2.4 and 3.0 have 256 bytes, version 4.0 (Hopper) 384; Ampere drivers use 3.0.
//!
//! A QMD is 256-byte aligned and lies below 2^40, since a launch and a chain carry its address
//! shifted right by 8 in 32 bits. The fields named `HW_ONLY_*` belong to the hardware, so the
//! descriptor must stay untouched until its grid has finished.
//!
//! [`Qmd`] holds the words; the modules [`v3_0`] and so on hold one constant per field:
//!
//! ```
//! use ampere_cmd::qmd::{QmdV3_0, v3_0};
//!
//! let mut qmd = QmdV3_0::new();
//! qmd.set(v3_0::QMD_MAJOR_VERSION, 3u32)?;
//! qmd.set(v3_0::CTA_RASTER_WIDTH, 4u32)?;
//! qmd.set(v3_0::CONSTANT_BUFFER_VALID.at(0)?, true)?;
//! assert_eq!(qmd.get(v3_0::CTA_RASTER_WIDTH), 4);
//! assert!(qmd.set(v3_0::CTA_RASTER_HEIGHT, 65_536u32).is_err());
//! assert_eq!(qmd.unassigned_bits_set().count(), 0);
//! # Ok::<(), ampere_cmd::FieldError>(())
//! ```

use core::fmt;
use core::marker::PhantomData;

use crate::error::FieldError;
use crate::method::shift_in_name;

/// Fields of version 2.4 (`clc7c0qmd.h`).
pub use crate::generated::qmd_v02_04_c7c0 as v2_4;
/// Fields of version 3.0 as the Ampere header has them (`clc7c0qmd.h`).
pub use crate::generated::qmd_v03_00_c7c0 as v3_0;
/// Fields of version 3.0 as the Hopper header has them (`clcbc0qmd.h`): the same bits, without
/// names for the reserved ones.
pub use crate::generated::qmd_v03_00_cbc0 as v3_0_hopper;
/// Fields of version 4.0 (`clcbc0qmd.h`).
pub use crate::generated::qmd_v04_00_cbc0 as v4_0;

/// Launch descriptor of version 2.4.
pub type QmdV2_4 = Qmd<v2_4::Layout>;
/// Launch descriptor of version 3.0, the one to use on Orin.
pub type QmdV3_0 = Qmd<v3_0::Layout>;
/// Launch descriptor of version 3.0 under the names of the Hopper header.
pub type QmdV3_0Hopper = Qmd<v3_0_hopper::Layout>;
/// Launch descriptor of version 4.0.
pub type QmdV4_0 = Qmd<v4_0::Layout>;

/// Required alignment of a launch descriptor in GPU memory, in bytes.
pub const ALIGNMENT: u64 = 256;

/// A layout of the launch descriptor. Implemented by the generated `Layout` types.
pub trait Version: Copy + fmt::Debug + PartialEq {
    /// Array of the descriptor's words.
    type Words: Copy + fmt::Debug + Eq + AsRef<[u32]> + AsMut<[u32]>;
    /// All words zero.
    const ZERO: Self::Words;
    /// Name in the class header.
    const NAME: &'static str;
    /// Value of the field QMD_MAJOR_VERSION.
    const MAJOR: u32;
    /// Value of the field QMD_VERSION (4.0: QMD_MINOR_VERSION).
    const MINOR: u32;
    /// All fields in the header's order.
    const FIELDS: &'static [FieldInfo];
    /// Per word, the bits that belong to a field.
    const NAMED: &'static [u32];
}

/// Description of one field, or of an array of equal fields. No field crosses a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldInfo {
    /// Name in the class header.
    pub name: &'static str,
    /// Highest bit of element 0, counted from bit 0 of word 0.
    pub hi: u32,
    /// Lowest bit of element 0.
    pub lo: u32,
    /// Number of elements; 1 when it is no array.
    pub count: u32,
    /// Distance of elements in bits.
    pub stride: u32,
    /// How many of the lowest bits of an address or a size the field leaves out, as its name says:
    /// `CONSTANT_BUFFER_SIZE_SHIFTED4` counts in 16 bytes.
    pub shift: u32,
    /// Values that the header names.
    pub values: &'static [(&'static str, u32)],
}

impl FieldInfo {
    /// Number of bits of one element.
    #[must_use]
    #[inline]
    pub const fn width(&self) -> u32 {
        self.hi - self.lo + 1
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

    /// Word index and bit mask of element `index`, which must exist.
    #[inline]
    const fn place(&self, index: u32) -> (usize, u32, u32) {
        let lo = self.lo + index * self.stride;
        let shift = lo % 32;
        ((lo / 32) as usize, shift, (u32::MAX >> (32 - self.width())) << shift)
    }
}

/// Per word, the bits that some field covers.
pub(crate) const fn named_bits<const WORDS: usize>(fields: &[FieldInfo]) -> [u32; WORDS] {
    let mut named = [0; WORDS];
    let mut position = 0;
    while position < fields.len() {
        let field = &fields[position];
        let mut index = 0;
        while index < field.count {
            let (word, _, mask) = field.place(index);
            named[word] |= mask;
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
        Self { info, index: 0, layout: PhantomData }
    }

    /// Description of the field or of the array that it is an element of.
    #[must_use]
    pub const fn info(&self) -> FieldInfo {
        self.info
    }

    /// Index in the array, 0 when it is none.
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

    /// One element.
    ///
    /// # Errors
    ///
    /// [`FieldError::NoSuchElement`] beyond the end.
    #[inline]
    pub const fn at(self, index: u32) -> Result<Field<V>, FieldError> {
        if index >= self.info.count {
            return Err(FieldError::NoSuchElement { field: self.info.name, index, count: self.info.count });
        }
        Ok(Field { info: self.info, index, layout: PhantomData })
    }

    /// All elements.
    pub fn iter(self) -> impl Iterator<Item = Field<V>> {
        (0..self.info.count).map(move |index| Field { info: self.info, index, layout: PhantomData })
    }
}

/// A value in bytes, in the units that a field counts in.
#[inline]
const fn without_lost_bits(field: &FieldInfo, value: u64) -> Result<u64, FieldError> {
    let shift = field.shift;
    if value & ((1 << shift) - 1) != 0 {
        return Err(FieldError::LostBits { field: field.name, value, shift });
    }
    Ok(value >> shift)
}

/// The words of a launch descriptor of layout `V`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Qmd<V: Version> {
    words: V::Words,
}

impl<V: Version> Qmd<V> {
    /// Length in 32-bit words.
    pub const WORDS: usize = V::NAMED.len();
    /// Length in bytes.
    pub const BYTES: usize = Self::WORDS * 4;

    /// A descriptor of zeros. The version fields are not set.
    #[must_use]
    #[inline]
    pub const fn new() -> Self {
        Self { words: V::ZERO }
    }

    /// Takes over words read from memory, unknown bits included.
    #[must_use]
    pub const fn from_words(words: V::Words) -> Self {
        Self { words }
    }

    /// Takes over words read from memory; `None` unless the slice has exactly
    /// [`WORDS`](Self::WORDS) words.
    #[must_use]
    pub fn from_slice(words: &[u32]) -> Option<Self> {
        let mut qmd = Self::new();
        if words.len() != Self::WORDS {
            return None;
        }
        qmd.words.as_mut().copy_from_slice(words);
        Some(qmd)
    }

    /// The words in memory order.
    #[must_use]
    #[inline]
    pub fn as_words(&self) -> &[u32] {
        self.words.as_ref()
    }

    /// Writes a field and leaves all others.
    ///
    /// # Errors
    ///
    /// [`FieldError::TooWide`] when the value does not fit; the descriptor is unchanged then.
    #[inline]
    pub fn set(&mut self, field: Field<V>, value: impl Into<u64>) -> Result<(), FieldError> {
        let value = value.into();
        let bits = field.info.width();
        let (word, shift, mask) = field.info.place(field.index);
        let narrow = u32::try_from(value).ok().filter(|narrow| *narrow <= mask >> shift);
        let Some(narrow) = narrow else {
            return Err(FieldError::TooWide { field: field.info.name, value, bits });
        };
        let word = &mut self.words.as_mut()[word];
        *word = *word & !mask | narrow << shift;
        Ok(())
    }

    /// Writes a size in bytes to a field that counts in larger units; see [`FieldInfo::shift`].
    ///
    /// # Errors
    ///
    /// [`FieldError::LostBits`] when the size is no whole number of units, [`FieldError::TooWide`]; the
    /// descriptor is unchanged then.
    #[inline]
    pub fn set_shifted(&mut self, field: Field<V>, value: impl Into<u64>) -> Result<(), FieldError> {
        self.set(field, without_lost_bits(&field.info, value.into())?)
    }

    /// Writes an address in bytes to a pair of fields: the lower one takes as many bits as it has, the upper
    /// one the rest. Both may leave out the same number of low bits; see [`FieldInfo::shift`].
    ///
    /// ```
    /// use ampere_cmd::qmd::{QmdV3_0, QmdV4_0, v3_0, v4_0};
    ///
    /// let mut qmd = QmdV3_0::new();
    /// qmd.set_address(v3_0::PROGRAM_ADDRESS_LOWER, v3_0::PROGRAM_ADDRESS_UPPER, 0x15_0000_0080)?;
    /// assert_eq!(qmd.get(v3_0::PROGRAM_ADDRESS_UPPER), 0x15);
    /// // Version 4.0 has the addresses of constant buffers in units of 64 bytes.
    /// let mut qmd = QmdV4_0::new();
    /// let lower = v4_0::CONSTANT_BUFFER_ADDR_LOWER_SHIFTED6.at(0)?;
    /// let upper = v4_0::CONSTANT_BUFFER_ADDR_UPPER_SHIFTED6.at(0)?;
    /// qmd.set_address(lower, upper, 0x15_0000_0040)?;
    /// assert_eq!(qmd.address(lower, upper), 0x15_0000_0040);
    /// assert!(qmd.set_address(lower, upper, 0x15_0000_0020).is_err()); // bit 5 would be lost
    /// # Ok::<(), ampere_cmd::FieldError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`FieldError::LostBits`] or [`FieldError::TooWide`]; the descriptor is unchanged then.
    #[inline]
    pub fn set_address(&mut self, lower: Field<V>, upper: Field<V>, address: u64) -> Result<(), FieldError> {
        let units = without_lost_bits(&lower.info, address)?;
        let bits = lower.info.width();
        // The upper field first: it is the one that can refuse.
        self.set(upper, units >> bits)?;
        self.set(lower, units & ((1 << bits) - 1))
    }

    /// Reads an address in bytes from a pair of fields, see [`Qmd::set_address`].
    #[must_use]
    #[inline]
    pub fn address(&self, lower: Field<V>, upper: Field<V>) -> u64 {
        (self.get(upper) << lower.info.width() | self.get(lower)) << lower.info.shift
    }

    /// Reads a field.
    #[must_use]
    #[inline]
    pub fn get(&self, field: Field<V>) -> u64 {
        let (word, shift, mask) = field.info.place(field.index);
        u64::from((self.words.as_ref()[word] & mask) >> shift)
    }

    /// Fields of the layout, array elements one by one, in the header's order.
    pub fn fields() -> impl Iterator<Item = Field<V>> {
        V::FIELDS
            .iter()
            .flat_map(|info| (0..info.count).map(|index| Field { info: *info, index, layout: PhantomData }))
    }

    /// The field with a header name; `index` is 0 unless it is an array.
    #[must_use]
    pub fn field(name: &str, index: u32) -> Option<Field<V>> {
        let info = V::FIELDS.iter().find(|info| info.name == name && index < info.count)?;
        Some(Field { info: *info, index, layout: PhantomData })
    }

    /// Fields that are not zero, with their values, in the header's order.
    pub fn set_fields(&self) -> impl Iterator<Item = (Field<V>, u64)> + '_ {
        Self::fields().map(|field| (field, self.get(field))).filter(|(_, value)| *value != 0)
    }

    /// Bits that are set but belong to no named field, lowest first. Drivers leave them 0.
    pub fn unassigned_bits_set(&self) -> impl Iterator<Item = u32> + '_ {
        let words = self.words.as_ref().iter().zip(V::NAMED).zip(0u32..);
        words.flat_map(|((word, named), index)| {
            let stray = word & !named;
            (0..32).filter(move |bit| stray >> bit & 1 != 0).map(move |bit| index * 32 + bit)
        })
    }
}

impl<V: Version> Default for Qmd<V> {
    fn default() -> Self {
        Self::new()
    }
}

/// Sizes of shared memory, in KiB, that an SM of sm_80 and sm_87 can be configured for.
pub const SHARED_MEMORY_KIB_SM87: [u32; 8] = [0, 8, 16, 32, 64, 100, 132, 164];

/// The code of a shared-memory configuration for the fields MIN_, TARGET_ and
/// MAX_SM_CONFIG_SHARED_MEM_SIZE: KiB / 4 + 1. `None` when `kib` is no size that sm_87 supports.
///
/// ```
/// assert_eq!(ampere_cmd::qmd::shared_memory_config(8), Some(3));
/// assert_eq!(ampere_cmd::qmd::shared_memory_config(164), Some(0x2a));
/// assert_eq!(ampere_cmd::qmd::shared_memory_config(48), None);
/// ```
#[must_use]
pub fn shared_memory_config(kib: u32) -> Option<u32> {
    SHARED_MEMORY_KIB_SM87.contains(&kib).then_some(kib / 4 + 1)
}

/// The code of the smallest configuration of sm_87 that holds `bytes` of shared memory, `None`
/// above 164 KiB.
///
/// ```
/// assert_eq!(ampere_cmd::qmd::shared_memory_config_for(1024), Some(3));
/// ```
#[must_use]
pub fn shared_memory_config_for(bytes: u32) -> Option<u32> {
    let kib = SHARED_MEMORY_KIB_SM87.into_iter().find(|kib| bytes <= kib * 1024)?;
    shared_memory_config(kib)
}

/// Bytes of shared memory behind a configuration code, `None` for a code of no configuration of sm_87.
#[must_use]
pub fn shared_memory_config_bytes(code: u32) -> Option<u32> {
    SHARED_MEMORY_KIB_SM87.into_iter().find(|kib| kib / 4 + 1 == code).map(|kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    /// A value written to any field of any descriptor is read back, and nothing else changes.
    fn fields_are_independent<V: Version>() -> Result<(), TestCaseError> {
        let fields: Vec<Field<V>> = Qmd::<V>::fields().collect();
        let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(512));
        let inputs = (prop::collection::vec(any::<u32>(), Qmd::<V>::WORDS), 0..fields.len(), any::<u32>());
        runner
            .run(&inputs, |(words, index, value)| {
                let before = Qmd::<V>::from_slice(&words).unwrap();
                let field = fields[index];
                let value = u64::from(value >> (32 - field.info().width()));
                let mut after = before;
                after.set(field, value).unwrap();
                prop_assert_eq!(after.get(field), value);
                for other in fields.iter().filter(|other| other.bits() != field.bits()) {
                    prop_assert_eq!(after.get(*other), before.get(*other), "{:?} {:?}", field, other);
                }
                prop_assert!(after.unassigned_bits_set().eq(before.unassigned_bits_set()));
                let beyond = 1u64 << field.info().width();
                let refused = FieldError::TooWide {
                    field: field.info().name,
                    value: beyond,
                    bits: field.info().width(),
                };
                let unchanged = after;
                prop_assert_eq!(after.set(field, beyond), Err(refused));
                prop_assert_eq!(after, unchanged);
                Ok(())
            })
            .map_err(|error| TestCaseError::fail(alloc::format!("{error}")))
    }

    /// Every field takes its largest value in exactly its own bits.
    fn fields_cover_their_bits<V: Version>() {
        let mut seen = Qmd::<V>::new();
        for field in Qmd::<V>::fields() {
            let (hi, lo) = field.bits();
            assert_eq!(hi / 32, lo / 32, "{field:?} crosses a word");
            assert!((hi as usize) < Qmd::<V>::WORDS * 32, "{field:?}");
            assert_eq!(seen.get(field), 0, "{field:?} overlaps another");
            seen.set(field, u64::from(u32::MAX >> (31 - (hi - lo)))).unwrap();
            let info = field.info();
            assert!(info.values.iter().all(|(_, value)| seen.set(field, *value).is_ok()));
            seen.set(field, u64::from(u32::MAX >> (31 - (hi - lo)))).unwrap();
            assert_eq!(Qmd::<V>::field(info.name, field.index()).unwrap().bits(), field.bits());
        }
        assert_eq!(seen.as_words(), V::NAMED);
        assert_eq!(seen.unassigned_bits_set().count(), 0);
    }

    #[test]
    fn version_2_4() {
        fields_cover_their_bits::<v2_4::Layout>();
        fields_are_independent::<v2_4::Layout>().unwrap();
        assert_eq!((QmdV2_4::WORDS, QmdV2_4::BYTES), (64, 256));
    }

    #[test]
    fn version_3_0() {
        fields_cover_their_bits::<v3_0::Layout>();
        fields_are_independent::<v3_0::Layout>().unwrap();
        assert_eq!((QmdV3_0::WORDS, QmdV3_0::BYTES), (64, 256));
    }

    #[test]
    fn version_3_0_of_hopper() {
        fields_cover_their_bits::<v3_0_hopper::Layout>();
        fields_are_independent::<v3_0_hopper::Layout>().unwrap();
        assert_eq!((QmdV3_0Hopper::WORDS, QmdV3_0Hopper::BYTES), (64, 256));
    }

    #[test]
    fn version_4_0() {
        fields_cover_their_bits::<v4_0::Layout>();
        fields_are_independent::<v4_0::Layout>().unwrap();
        assert_eq!((QmdV4_0::WORDS, QmdV4_0::BYTES), (96, 384));
    }

    #[test]
    fn both_headers_agree_about_version_3_0() {
        for field in QmdV3_0Hopper::fields() {
            let ampere = QmdV3_0::field(field.info().name, field.index()).unwrap();
            assert_eq!(ampere.bits(), field.bits(), "{field:?}");
        }
    }

    #[test]
    fn bits_outside_of_fields_are_reported() {
        let mut words = [0; 64];
        words[13] = 1 << 16;
        words[14] = 1 << 31;
        let qmd = QmdV3_0::from_words(words);
        assert!(qmd.unassigned_bits_set().eq([432, 479]));
        assert!(QmdV3_0::from_slice(&words[1..]).is_none());
    }

    #[test]
    fn array_elements_end() {
        assert!(v3_0::CONSTANT_BUFFER_VALID.at(7).is_ok());
        let error = FieldError::NoSuchElement { field: "CONSTANT_BUFFER_VALID", index: 8, count: 8 };
        assert_eq!(v3_0::CONSTANT_BUFFER_VALID.at(8).unwrap_err(), error);
        assert_eq!(v3_0::CONSTANT_BUFFER_ADDR_LOWER.at(2).unwrap().bits(), (1183, 1152));
        assert_eq!(v3_0::CONSTANT_BUFFER_VALID.iter().count(), 8);
    }

    #[test]
    fn shared_memory_codes() {
        for kib in SHARED_MEMORY_KIB_SM87 {
            let code = shared_memory_config(kib).unwrap();
            assert_eq!(shared_memory_config_bytes(code), Some(kib * 1024));
        }
        assert_eq!(shared_memory_config_for(0), Some(1));
        assert_eq!(shared_memory_config_for(100 * 1024 + 1), Some(34));
        assert_eq!(shared_memory_config_for(164 * 1024 + 1), None);
        assert_eq!(shared_memory_config_bytes(2), None);
    }
}
