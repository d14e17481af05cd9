//! Methods: the registers of an engine that a pushbuffer writes.
//!
//! A *method* is a 32-bit word at a byte offset (its *address*) of an engine class. A [`Class`] is a static table of
//! all methods of a class. Modules such as [`compute_c7c0`](crate::compute_c7c0) define one type per method, which
//! implements [`Method`]. Tables and types are expanded from the same generated description, so a table decodes what
//! a type encodes, under the same names.

use core::fmt::Debug;

use crate::error::FieldError;

/// One engine class: its number and its methods.
#[derive(Debug)]
pub struct Class {
    /// Class number, as in SET_OBJECT and in the kernel driver's requests.
    pub number: u16,
    /// Name in NVIDIA's headers.
    pub name: &'static str,
    /// File name of the header.
    pub header: &'static str,
    /// Whether the published header is partial. Methods that it does not list may exist.
    pub partial: bool,
    /// Methods by ascending address.
    pub methods: &'static [MethodInfo],
}

impl Class {
    /// The method at a byte offset, and the index of its element there.
    ///
    /// ```
    /// let (method, index) = ampere_cmd::compute_c7c0::CLASS_TABLE.method_at(0x324).unwrap();
    /// assert_eq!((method.name, index), ("LOAD_INLINE_QMD_DATA", 1));
    /// ```
    #[must_use]
    pub fn method_at(&self, address: u32) -> Option<(&'static MethodInfo, u32)> {
        let end = self.methods.partition_point(|method| method.address <= address);
        // Arrays with a stride above 4 interleave, so the method with the nearest base is not always the right one.
        self.methods[..end].iter().rev().find_map(|method| Some((method, method.index_of(address)?)))
    }

    /// The method with this name in the header.
    #[must_use]
    pub fn method(&self, name: &str) -> Option<&'static MethodInfo> {
        self.methods.iter().find(|method| method.name == name)
    }
}

/// The table of a class, by number; `None` if this crate does not contain it.
#[must_use]
pub fn class(number: u32) -> Option<&'static Class> {
    crate::generated::CLASSES.iter().find(|class| u32::from(class.number) == number).copied()
}

/// One method, or an array of equal methods.
#[derive(Clone, Copy, Debug)]
pub struct MethodInfo {
    /// Name in the class header.
    pub name: &'static str,
    /// Byte offset of element 0.
    pub address: u32,
    /// Number of elements; 1 if the method is not an array.
    pub count: u32,
    /// Whether `count` is from the header. If not, it is the room up to the next method.
    pub count_is_exact: bool,
    /// Distance between elements in bytes.
    pub stride: u32,
    /// Bit fields in the header's order. Some overlap, see [`FieldInfo::when`].
    pub fields: &'static [FieldInfo],
}

impl MethodInfo {
    /// Index of the element at a byte offset; `None` if there is none.
    #[must_use]
    pub const fn index_of(&self, address: u32) -> Option<u32> {
        if address < self.address {
            return None;
        }
        let distance = address - self.address;
        let index = distance / self.stride;
        if distance.is_multiple_of(self.stride) && index < self.count { Some(index) } else { None }
    }

    /// Whether two fields share bits.
    #[must_use]
    pub const fn overlaps(&self) -> bool {
        let mut seen = 0u32;
        let mut index = 0;
        while index < self.fields.len() {
            let mask = self.fields[index].mask();
            if seen & mask != 0 {
                return true;
            }
            seen |= mask;
            index += 1;
        }
        false
    }

    /// Bits of the data word that belong to a named field.
    #[must_use]
    pub const fn named_bits(&self) -> u32 {
        let mut mask = 0;
        let mut index = 0;
        while index < self.fields.len() {
            mask |= self.fields[index].mask();
            index += 1;
        }
        mask
    }

    /// The field with this name in the header.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&'static FieldInfo> {
        self.fields.iter().find(|field| field.name == name)
    }
}

/// One bit field of a method.
#[derive(Clone, Copy, Debug)]
pub struct FieldInfo {
    /// Name in the class header.
    pub name: &'static str,
    /// Highest bit.
    pub hi: u32,
    /// Lowest bit.
    pub lo: u32,
    /// Values named by the header. A value can have several names.
    pub values: &'static [(&'static str, u32)],
    /// Condition under which the bits are this field; `None` if they always are.
    pub when: Option<&'static str>,
}

impl FieldInfo {
    /// Number of bits.
    #[must_use]
    pub const fn width(&self) -> u32 {
        self.hi - self.lo + 1
    }

    /// Bits of the data word that belong to the field.
    #[must_use]
    pub const fn mask(&self) -> u32 {
        (u32::MAX >> (32 - self.width())) << self.lo
    }

    /// The field's value in a data word.
    #[must_use]
    pub const fn get(&self, word: u32) -> u32 {
        (word & self.mask()) >> self.lo
    }

    /// The value, shifted to the bits of the field.
    ///
    /// # Errors
    ///
    /// [`FieldError::TooWide`] if the value does not fit.
    pub const fn place(&self, value: u32) -> Result<u32, FieldError> {
        if value > u32::MAX >> (32 - self.width()) {
            return Err(FieldError::TooWide { field: self.name, value: value as u64, bits: self.width() });
        }
        Ok(value << self.lo)
    }

    /// First name that the header gives a value.
    #[must_use]
    pub fn value_name(&self, value: u32) -> Option<&'static str> {
        self.values.iter().find(|(_, named)| *named == value).map(|(name, _)| *name)
    }

    /// Number of low bits of an address or size that the field omits, taken from its name: `QMD_ADDRESS_SHIFTED8`
    /// counts in units of 256 bytes.
    #[must_use]
    pub const fn shift(&self) -> u32 {
        shift_in_name(self.name)
    }

    /// Converts an address or size in bytes to the units of the field, for a field of a typed method.
    ///
    /// ```
    /// use ampere_cmd::Method;
    /// use ampere_cmd::compute_c7c0::SendPcasA;
    ///
    /// let field = SendPcasA::INFO.field("QMD_ADDRESS_SHIFTED8").unwrap();
    /// assert_eq!(field.shifted(0x15_0000_0200), Ok(0x1500_0002));
    /// assert!(field.shifted(0x15_0000_0201).is_err()); // not a multiple of 256
    /// assert!(field.shifted(1 << 40).is_err()); // too wide
    /// ```
    ///
    /// # Errors
    ///
    /// [`FieldError::LostBits`] or [`FieldError::TooWide`].
    pub const fn shifted(&self, value: u64) -> Result<u32, FieldError> {
        let (field, shift) = (self.name, self.shift());
        if value & ((1 << shift) - 1) != 0 {
            return Err(FieldError::LostBits { field, value, shift });
        }
        let units = value >> shift;
        if units >> self.width() != 0 {
            return Err(FieldError::TooWide { field, value: units, bits: self.width() });
        }
        // CAST: at most 32 bits.
        Ok(units as u32)
    }
}

/// The number after `SHIFTED` in the name of a field; 0 if the name does not contain the word. The two fields with the
/// word but without a number, the prefetch address of a launch descriptor, omit 8 bits.
pub(crate) const fn shift_in_name(name: &str) -> u32 {
    let (name, word) = (name.as_bytes(), b"SHIFTED");
    let mut at = 0;
    while at + word.len() <= name.len() {
        let mut same = 0;
        while same < word.len() && name[at + same] == word[same] {
            same += 1;
        }
        if same == word.len() {
            let digit = at + word.len();
            let numbered = digit < name.len() && name[digit].is_ascii_digit();
            return if numbered { (name[digit] - b'0') as u32 } else { 8 };
        }
        at += 1;
    }
    0
}

/// A typed method. Implemented by the generated structs.
///
/// ```
/// # fn main() -> Result<(), ampere_cmd::Error> {
/// # use ampere_cmd::{Encoder, SliceSink, Subchannel};
/// # let mut words = [0_u32; 64];
/// # let mut encoder = Encoder::new(SliceSink::new(&mut words));
/// use ampere_cmd::compute_c7c0::SendPcasA;
///
/// encoder.method(Subchannel::COMPUTE, &SendPcasA { qmd_address_shifted8: 0x15 })?;
/// assert_eq!(encoder.sink().written()[1], 0x15);
/// # Ok(())
/// # }
/// ```
pub trait Method: Copy + Debug + Default + PartialEq {
    /// Description in the class table.
    const INFO: &'static MethodInfo;
    /// Number of the class.
    const CLASS: u16;
    /// Byte offset of the method, or of element 0.
    const ADDRESS: u32 = Self::INFO.address;
    /// Whether fields share bits.
    const OVERLAPS: bool = Self::INFO.overlaps();

    /// The data word.
    ///
    /// # Errors
    ///
    /// [`FieldError`] if a value does not fit its field, or if two overlapping fields need different bits. A field
    /// that is 0 does not conflict with others.
    fn encode(&self) -> Result<u32, FieldError>;

    /// Decodes a data word. Bits that belong to no field are ignored; see [`MethodInfo::named_bits`] for a strict
    /// check.
    fn decode(word: u32) -> Self;

    /// Byte offset of element `index`.
    ///
    /// # Errors
    ///
    /// [`FieldError::NoSuchElement`] beyond the end of the array.
    fn address(index: u32) -> Result<u32, FieldError> {
        if index >= Self::INFO.count {
            return Err(FieldError::NoSuchElement { field: Self::INFO.name, index, count: Self::INFO.count });
        }
        Ok(Self::ADDRESS + index * Self::INFO.stride)
    }
}

/// The value of a bit field: `u32`, `bool`, or a generated enum.
pub trait FieldValue: Copy {
    /// Values named by the header.
    const VALUES: &'static [(&'static str, u32)];
    /// Converts from the bits of the field, shifted to bit 0.
    fn from_bits(bits: u32) -> Self;
    /// Converts to the bits of the field, at bit 0.
    fn to_bits(self) -> u32;
}

impl FieldValue for u32 {
    const VALUES: &'static [(&'static str, u32)] = &[];
    fn from_bits(bits: u32) -> Self {
        bits
    }
    fn to_bits(self) -> u32 {
        self
    }
}

impl FieldValue for bool {
    const VALUES: &'static [(&'static str, u32)] = &[];
    fn from_bits(bits: u32) -> Self {
        bits != 0
    }
    fn to_bits(self) -> u32 {
        u32::from(self)
    }
}

/// Packs the fields of one method. `values` are in the order of `M::INFO.fields`.
#[inline]
pub(crate) fn pack<M: Method, const N: usize>(values: [u32; N]) -> Result<u32, FieldError> {
    let mut word = 0;
    for (field, value) in M::INFO.fields.iter().zip(values) {
        word |= field.place(value)?;
    }
    if M::OVERLAPS {
        for (field, value) in M::INFO.fields.iter().zip(values) {
            if value != 0 && field.get(word) != value {
                return Err(FieldError::Overlap { field: field.name, value: u64::from(value) });
            }
        }
    }
    Ok(word)
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::TestRunner;

    use super::*;
    use crate::host_c76f::{MemOpA, SemAddrLo, SemExecute, SemExecuteOperation};

    /// Checks that methods are sorted, have addresses that a header can carry, and are found by address; that fields
    /// are within the word and that their named values fit.
    pub(crate) fn check_class(table: &'static Class) {
        assert!(table.methods.is_sorted_by_key(|method| method.address));
        for method in table.methods {
            let last = method.address + (method.count - 1) * method.stride;
            assert!(method.address.is_multiple_of(4) && method.stride.is_multiple_of(4));
            assert!(last <= crate::pushbuffer::MAX_METHOD_ADDRESS, "{}", method.name);
            for (address, index) in [(method.address, 0), (last, method.count - 1)] {
                let (found, found_index) = table.method_at(address).unwrap();
                assert_eq!((found.name, found_index), (method.name, index));
            }
            assert_eq!(table.method(method.name).unwrap().address, method.address);
            for field in method.fields {
                assert!(field.hi < 32 && field.lo <= field.hi, "{}", field.name);
                assert!(field.values.iter().all(|(_, value)| field.place(*value).is_ok()));
            }
        }
        assert!(table.method_at(crate::pushbuffer::MAX_METHOD_ADDRESS + 4).is_none());
    }

    /// Checks that any word decodes, and that the result encodes to the word's named bits.
    pub(crate) fn round_trips<M: Method>() {
        any_word(M::INFO, |word| {
            let method = M::decode(word);
            let encoded = method.encode();
            (encoded, encoded.is_ok_and(|encoded| M::decode(encoded) == method))
        });
        assert_eq!(M::address(0), Ok(M::ADDRESS));
        assert!(M::address(M::INFO.count).is_err());
    }

    /// Not generic, because there are a thousand methods and the compiler would repeat the runner for each.
    fn any_word(info: &MethodInfo, there_and_back: fn(u32) -> (Result<u32, FieldError>, bool)) {
        let mut runner = TestRunner::new(ProptestConfig::with_cases(64));
        runner
            .run(&any::<u32>(), |word| {
                let (encoded, same) = there_and_back(word);
                prop_assert_eq!(encoded, Ok(word & info.named_bits()), "{}", info.name);
                prop_assert!(same, "{} {:#x} decodes to something else", info.name, word);
                Ok(())
            })
            .unwrap();
    }

    /// Checks that the field named `name` encodes to its own bits, and refuses its largest value plus one.
    pub(crate) fn refuses_too_wide<M: Method, T: FieldValue>(name: &'static str, set: fn(&mut M, T)) {
        let field = M::INFO.field(name).unwrap();
        let bits = field.width();
        let encode = |value| {
            let mut method = M::default();
            set(&mut method, T::from_bits(value));
            method.encode()
        };
        assert_eq!(encode(u32::MAX >> (32 - bits)), Ok(field.mask()), "{name}");
        let beyond = T::from_bits(1u32.checked_shl(bits).unwrap_or(0)).to_bits();
        if beyond > u32::MAX >> (32 - bits) {
            let error = FieldError::TooWide { field: name, value: u64::from(beyond), bits };
            assert_eq!(encode(beyond), Err(error));
        }
    }

    #[test]
    fn overlapping_fields_must_agree() {
        let one = MemOpA { tlb_invalidate_invalidation_size: 0x3f, ..MemOpA::default() };
        assert_eq!(one.encode(), Ok(0x3f));
        let both = MemOpA { tlb_invalidate_cancel_target_client_unit_id: 0x3f, ..one };
        assert_eq!(both.encode(), Ok(0x3f));
        let contradiction = MemOpA { tlb_invalidate_cancel_target_client_unit_id: 1, ..one };
        let field = "TLB_INVALIDATE_CANCEL_TARGET_CLIENT_UNIT_ID";
        assert_eq!(contradiction.encode(), Err(FieldError::Overlap { field, value: 1 }));
    }

    #[test]
    fn unknown_values_are_kept() {
        let execute = SemExecute::decode(7);
        assert_eq!(execute.operation, SemExecuteOperation::Unknown(7));
        assert_eq!(execute.encode(), Ok(7));
    }

    #[test]
    fn a_field_that_starts_above_bit_0_is_in_its_own_units() {
        assert_eq!(SemAddrLo { offset: 0x10 >> 2 }.encode(), Ok(0x10));
        let error = FieldError::TooWide { field: "OFFSET", value: 0x4000_0000, bits: 30 };
        assert_eq!(SemAddrLo { offset: 0x4000_0000 }.encode(), Err(error));
    }

    #[test]
    fn shifts_are_in_the_names() {
        for (name, shift) in [
            ("CONSTANT_BUFFER_SIZE_SHIFTED4", 4),
            ("CONSTANT_BUFFER_ADDR_LOWER_SHIFTED6", 6),
            ("QMD_ADDRESS_SHIFTED8_LOWER", 8),
            ("PROGRAM_PREFETCH_ADDR_LOWER_SHIFTED", 8),
            ("PROGRAM_ADDRESS_LOWER", 0),
            ("SHIFTE", 0),
        ] {
            assert_eq!(shift_in_name(name), shift, "{name}");
        }
        let field = crate::compute_c7c0::SendPcasA::INFO.field("QMD_ADDRESS_SHIFTED8").unwrap();
        let lost = FieldError::LostBits { field: field.name, value: 0x101, shift: 8 };
        assert_eq!(field.shifted(0x101), Err(lost));
        let wide = FieldError::TooWide { field: field.name, value: 1 << 32, bits: 32 };
        assert_eq!(field.shifted(1 << 40), Err(wide));
        assert_eq!(field.shifted(0xff_ffff_ff00), Ok(u32::MAX));
    }

    #[test]
    fn classes_are_found_by_number() {
        assert_eq!(class(0xc7c0).unwrap().name, "AMPERE_COMPUTE_B");
        assert_eq!(class(0xc8b5).unwrap().header, "clc8b5.h");
        assert!(class(0xc6c0).is_none());
        assert_eq!(crate::CLASSES.len(), 11);
    }

    #[test]
    fn interleaved_arrays_are_told_apart() {
        let compute = &crate::compute_c7c0::CLASS_TABLE;
        let at = |address| compute.method_at(address).map(|(method, index)| (method.name, index));
        assert_eq!(at(0x3808), Some(("CALL_MME_MACRO", 1)));
        assert_eq!(at(0x380c), Some(("CALL_MME_DATA", 1)));
        assert_eq!(at(0x0104), Some(("SET_NOTIFY_A", 0)));
        assert_eq!(at(0x02c4), None);
    }
}
