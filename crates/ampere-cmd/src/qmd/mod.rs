//! QMD, the launch descriptor: a record in GPU memory that describes a grid to the compute scheduler. Versions 2.4
//! and 3.0 have 256 bytes, version 4.0 (Hopper) has 384. Ampere drivers use 3.0.
//!
//! A QMD is aligned to 256 bytes and lies below 2^40, because launches and chains carry its address shifted right by 8
//! in 32 bits ([`pointer()`]). The fields named `HW_ONLY_*` belong to the hardware, so the descriptor must not change
//! until its grid has finished.
//!
//! [`Qmd`] holds the words. The modules [`v3_0`] and so on define one constant per field:
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
//!
//! A descriptor that is already in GPU memory is changed with a [`Patch`], which touches only the words of its fields.

use core::fmt;

mod field;
mod patch;

use crate::error::FieldError;

pub(crate) use field::named_bits;
pub use field::{Field, FieldArray, FieldInfo};
pub use patch::{Group, Patch, PatchWord, pointed_va, pointer};

/// Fields of version 2.4 (`clc7c0qmd.h`).
pub use crate::generated::qmd_v02_04_c7c0 as v2_4;
/// Fields of version 3.0 as defined by the Ampere header (`clc7c0qmd.h`).
pub use crate::generated::qmd_v03_00_c7c0 as v3_0;
/// Fields of version 3.0 as defined by the Hopper header (`clcbc0qmd.h`): the same bits, but reserved fields have no
/// names.
pub use crate::generated::qmd_v03_00_cbc0 as v3_0_hopper;
/// Fields of version 4.0 (`clcbc0qmd.h`).
pub use crate::generated::qmd_v04_00_cbc0 as v4_0;

/// Launch descriptor of version 2.4.
pub type QmdV2_4 = Qmd<v2_4::Layout>;
/// Launch descriptor of version 3.0, the version used on Orin.
pub type QmdV3_0 = Qmd<v3_0::Layout>;
/// Launch descriptor of version 3.0 with the field names of the Hopper header.
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

/// The words of a launch descriptor of layout `V`.
///
/// ```
/// # fn main() -> Result<(), ampere_cmd::Error> {
/// use ampere_cmd::qmd::{QmdV3_0, v3_0};
///
/// let mut descriptor = QmdV3_0::new();
/// descriptor.set(v3_0::CTA_THREAD_DIMENSION0, 64_u32)?;
/// let names: Vec<_> = descriptor.set_fields().map(|(field, _)| field.info().name).collect();
/// assert_eq!(names, ["CTA_THREAD_DIMENSION0"]);
/// # Ok(())
/// # }
/// ```
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

    /// Wraps words read from memory, including bits that no field names.
    #[must_use]
    pub const fn from_words(words: V::Words) -> Self {
        Self { words }
    }

    /// Copies words read from memory; `None` unless the slice has exactly [`WORDS`](Self::WORDS) words.
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

    /// Sets a field. Other fields keep their values.
    ///
    /// # Errors
    ///
    /// [`FieldError::TooWide`] if the value does not fit; the descriptor is then unchanged.
    #[inline]
    pub fn set(&mut self, field: Field<V>, value: impl Into<u64>) -> Result<(), FieldError> {
        let narrow = field.info().narrow(value.into())?;
        let place = field.place();
        let word = &mut self.words.as_mut()[place.word];
        *word = *word & !place.mask() | narrow << place.shift;
        Ok(())
    }

    /// Applies a patch. Bits outside of it keep their values.
    #[inline]
    pub fn apply<const N: usize>(&mut self, patch: &Patch<V, N>) {
        let words = self.words.as_mut();
        for word in patch.words() {
            words[word.index] = word.over(words[word.index]);
        }
    }

    /// Sets a field that counts in larger units to a size in bytes; see [`FieldInfo::shift`].
    ///
    /// # Errors
    ///
    /// [`FieldError::LostBits`] if the size is not a multiple of the unit, [`FieldError::TooWide`] if it does not
    /// fit; the descriptor is then unchanged.
    #[inline]
    pub fn set_shifted(&mut self, field: Field<V>, value: impl Into<u64>) -> Result<(), FieldError> {
        self.set(field, field.info().units(value.into())?)
    }

    /// Sets a pair of fields to an address in bytes: the lower field takes as many bits as it has, the upper one the
    /// rest. Both may omit the same number of low bits; see [`FieldInfo::shift`].
    ///
    /// ```
    /// use ampere_cmd::qmd::{QmdV3_0, QmdV4_0, v3_0, v4_0};
    ///
    /// let mut qmd = QmdV3_0::new();
    /// qmd.set_address(v3_0::PROGRAM_ADDRESS_LOWER, v3_0::PROGRAM_ADDRESS_UPPER, 0x15_0000_0080)?;
    /// assert_eq!(qmd.get(v3_0::PROGRAM_ADDRESS_UPPER), 0x15);
    /// // Version 4.0 counts the addresses of constant buffers in units of 64 bytes.
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
    /// [`FieldError::LostBits`] or [`FieldError::TooWide`]; the descriptor is then unchanged.
    #[inline]
    pub fn set_address(&mut self, lower: Field<V>, upper: Field<V>, address: u64) -> Result<(), FieldError> {
        let units = lower.info().units(address)?;
        let bits = lower.info().width();
        // The upper field first: only this one can refuse.
        self.set(upper, units >> bits)?;
        self.set(lower, units & ((1 << bits) - 1))
    }

    /// Reads an address in bytes from a pair of fields, see [`Qmd::set_address`].
    #[must_use]
    #[inline]
    pub fn address(&self, lower: Field<V>, upper: Field<V>) -> u64 {
        let lower_info = lower.info();
        (self.get(upper) << lower_info.width() | self.get(lower)) << lower_info.shift
    }

    /// Reads a field.
    #[must_use]
    #[inline]
    pub fn get(&self, field: Field<V>) -> u64 {
        let place = field.place();
        u64::from(self.words.as_ref()[place.word] >> place.shift & place.max)
    }

    /// All fields of the layout in the header's order, each element of an array by itself.
    pub fn fields() -> impl Iterator<Item = Field<V>> {
        V::FIELDS.iter().flat_map(|info| (0..info.count).map(|index| Field::element(*info, index)))
    }

    /// The field with the given name in the header. `index` is 0 unless the field is an array.
    #[must_use]
    pub fn field(name: &str, index: u32) -> Option<Field<V>> {
        let info = V::FIELDS.iter().find(|info| info.name == name && index < info.count)?;
        Some(Field::element(*info, index))
    }

    /// Fields that are not 0, with their values, in the header's order.
    pub fn set_fields(&self) -> impl Iterator<Item = (Field<V>, u64)> + '_ {
        Self::fields().map(|field| (field, self.get(field))).filter(|(_, value)| *value != 0)
    }

    /// Set bits that no field names, lowest first. Drivers leave them 0.
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

/// Unit of the sizes that an SM's shared memory can be configured for, in KiB.
const SHARED_CONFIG_UNIT_KIB: u32 = 4;
/// Largest code of a shared-memory configuration: the fields have 6 bits.
const MAX_SHARED_CONFIG: u32 = 0x3f;

/// The code of a shared-memory configuration for the fields MIN_, TARGET_ and MAX_SM_CONFIG_SHARED_MEM_SIZE:
/// KiB / 4 + 1. `None` if `kib` is not a multiple of 4 or if its code does not fit the fields.
///
/// Which sizes exist depends on the chip.
///
/// ```
/// assert_eq!(ampere_cmd::qmd::shared_memory_config(8), Some(3));
/// assert_eq!(ampere_cmd::qmd::shared_memory_config(164), Some(0x2a));
/// assert_eq!(ampere_cmd::qmd::shared_memory_config(49), None);
/// ```
#[must_use]
#[inline]
pub const fn shared_memory_config(kib: u32) -> Option<u32> {
    let code = kib / SHARED_CONFIG_UNIT_KIB + 1;
    if kib.is_multiple_of(SHARED_CONFIG_UNIT_KIB) && code <= MAX_SHARED_CONFIG { Some(code) } else { None }
}

/// The size in KiB encoded by a code of [`shared_memory_config`]; `None` if the code is 0 or does not fit the
/// fields.
#[must_use]
pub const fn shared_memory_config_kib(code: u32) -> Option<u32> {
    if code == 0 || code > MAX_SHARED_CONFIG { None } else { Some((code - 1) * SHARED_CONFIG_UNIT_KIB) }
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
        for kib in (0..=248).step_by(4) {
            let code = shared_memory_config(kib).unwrap();
            assert_eq!(shared_memory_config_kib(code), Some(kib));
            for field in
                [v3_0::TARGET_SM_CONFIG_SHARED_MEM_SIZE.info(), v4_0::TARGET_SM_CONFIG_SHARED_MEM_SIZE.info()]
            {
                assert!(code <= field.max());
            }
        }
        assert_eq!((shared_memory_config(252), shared_memory_config(2)), (None, None));
        assert_eq!((shared_memory_config_kib(0), shared_memory_config_kib(64)), (None, None));
    }
}
