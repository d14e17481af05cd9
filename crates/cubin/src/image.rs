//! The loadable image: layout of the sections, and relocations.
//!
//! Order: code, constant banks, initialised variables, zeroed variables. Code sections are aligned to
//! 128 bytes, as the compiler assumes. Constant banks are aligned to 256 bytes, although a launch descriptor requires
//! only 64, so a bank whose size is rounded up does not overlap the next section.

use alloc::string::String;
use alloc::vec::Vec;

use crate::Error;

/// Alignment of a constant bank in the image, and minimum alignment of the image, in bytes.
pub const CONSTANT_ALIGN: u64 = 256;

/// Number of bytes that must be mapped after the last instruction. The SM's instruction prefetcher reads ahead of the
/// program counter and faults on an unmapped page.
pub const PREFETCH_SLACK_BYTES: u64 = 4096;

/// Alignment of a code section, in bytes.
const CODE_ALIGN: u64 = 128;
/// Largest alignment of a section, in bytes: the GPU's small page.
const MAX_ALIGN: u64 = 4096;
/// Largest image in bytes. Static variables of a program are far smaller: one field of a damaged file can declare any
/// size, and larger arrays are allocated at run time.
const MAX_IMAGE_BYTES: u64 = 1 << 32;
/// End of the GPU's virtual address space: the width of addresses in instructions.
const VA_END: u64 = 1 << 49;

/// Largest number of undefined functions. CUDA's driver provides about ten.
const MOST_UNDEFINED: usize = 64;

/// Classes of sections, in the order of the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    Code,
    Constant,
    Data,
    Zeroed,
}

impl Class {
    pub(crate) const ALL: [Self; 4] = [Self::Code, Self::Constant, Self::Data, Self::Zeroed];

    fn least_align(self) -> u64 {
        match self {
            Self::Code => CODE_ALIGN,
            Self::Constant => CONSTANT_ALIGN,
            Self::Data | Self::Zeroed => 1,
        }
    }
}

/// Bits that a relocation sets (`R_CUDA_*` numbers in parentheses).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    /// 32 bits of data (1, and 3 for generic pointers).
    Data32,
    /// 64 bits of data (2, and 4 for generic pointers: the generic address of a global equals its address).
    Data64,
    /// Low 32 address bits, as data (70).
    DataLow32,
    /// High 32 address bits, as data (71).
    DataHigh32,
    /// One byte of an address, as data: 0 is the lowest, 7 the highest (76 to 83, and 84 to 91 for generic pointers).
    /// Pointers in packed structures have eight such relocations.
    DataByte(u8),
    /// An address below 4 GiB, at bits 32 to 63 of an instruction (55).
    Whole32,
    /// Low 32 address bits, at bits 32 to 63 of an instruction (56).
    Low32,
    /// High 32 address bits, at bits 32 to 63 of an instruction (57).
    High32,
    /// Address bits 2 to 48, at bits 34 to 80 of an instruction (58).
    Call47,
    /// Address bits 2 to 9 at bits 16 to 23 of an instruction, 10 to 56 at bits 34 to 80 (75): calls of sm_90.
    Call55,
}

impl Field {
    /// Number of bytes at the relocation's offset that it changes or reads.
    pub(crate) fn span(self) -> u64 {
        match self {
            Self::DataByte(_) => 1,
            Self::Data32 | Self::DataLow32 | Self::DataHigh32 => 4,
            Self::Data64 => 8,
            Self::Whole32 | Self::Low32 | Self::High32 | Self::Call47 | Self::Call55 => 16,
        }
    }

    /// Bits of an instruction that contain the target of a call.
    pub(crate) fn call_mask(self) -> u128 {
        const FROM_34: u128 = ((1 << 47) - 1) << 34;
        if self == Self::Call55 { FROM_34 | 0xff << 16 } else { FROM_34 }
    }
}

/// One address to insert.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Relocation {
    /// Offset of the word or instruction in the image.
    pub(crate) at: u64,
    pub(crate) field: Field,
    pub(crate) target: Target,
}

/// The address that a relocation inserts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    /// Offset in the image. An addend may move it outside the image.
    Image(i64),
    /// Index of an undefined function, and an addend.
    Undefined(usize, i64),
}

/// A function that the code uses and the file does not define.
#[derive(Clone, Debug)]
pub(crate) struct Undefined {
    pub(crate) name: String,
    /// A section that uses it.
    pub(crate) user: String,
    /// Its address, once it is known.
    pub(crate) address: Option<u64>,
}

/// See the [module](self).
#[derive(Clone, Debug)]
pub(crate) struct Image {
    /// Initialised parts: offset and content.
    segments: Vec<(u64, Vec<u8>)>,
    relocations: Vec<Relocation>,
    /// In the order of their first use.
    pub(crate) undefined: Vec<Undefined>,
    end: u64,
    code_end: u64,
    align: u64,
}

impl Image {
    pub(crate) fn new() -> Self {
        Self {
            segments: Vec::new(),
            relocations: Vec::new(),
            undefined: Vec::new(),
            end: 0,
            code_end: 0,
            align: CONSTANT_ALIGN,
        }
    }

    /// Places a section and returns its offset. The caller places sections in the order of [`Class::ALL`].
    pub(crate) fn place(
        &mut self,
        name: &str,
        class: Class,
        align: u64,
        bytes: u64,
        data: &[u8],
    ) -> Result<u64, Error> {
        let align = align.max(class.least_align());
        if !align.is_power_of_two() || align > MAX_ALIGN {
            let reason = "its alignment is not a power of two up to 4096";
            return Err(Error::BadSection { section: String::from(name), reason });
        }
        let offset = self.end.next_multiple_of(align);
        // A constant bank extends to the next multiple of its alignment.
        let end = match class {
            Class::Constant => bytes.checked_next_multiple_of(CONSTANT_ALIGN),
            _ => Some(bytes),
        }
        .and_then(|b| offset.checked_add(b))
        .filter(|&end| end <= MAX_IMAGE_BYTES)
        .ok_or(Error::ImageTooLarge { bytes: self.end.saturating_add(bytes) })?;
        if class == Class::Code {
            self.code_end = end;
        }
        if !data.is_empty() {
            self.segments.push((offset, data.to_vec()));
        }
        self.align = self.align.max(align);
        self.end = end;
        Ok(offset)
    }

    pub(crate) fn relocate(&mut self, relocation: Relocation) {
        self.relocations.push(relocation);
    }

    /// Index of an undefined function, which `user` uses; `None` if there are too many.
    pub(crate) fn undefined(&mut self, name: &str, user: &str) -> Option<usize> {
        let known = self.undefined.iter().position(|known| known.name == name);
        if known.is_none() && self.undefined.len() < MOST_UNDEFINED {
            let (name, user) = (String::from(name), String::from(user));
            self.undefined.push(Undefined { name, user, address: None });
            return Some(self.undefined.len() - 1);
        }
        known
    }

    pub(crate) fn relocated(&self) -> impl Iterator<Item = u64> {
        self.relocations.iter().map(|relocation| relocation.at)
    }

    pub(crate) fn bytes(&self) -> u64 {
        let after_code = if self.code_end == 0 { 0 } else { self.code_end + PREFETCH_SLACK_BYTES };
        self.end.max(after_code).next_multiple_of(CONSTANT_ALIGN)
    }

    /// End of the last initialised part.
    pub(crate) fn initialised_bytes(&self) -> u64 {
        // CAST: a length fits 64 bits.
        self.segments.last().map_or(0, |(offset, data)| offset + data.len() as u64)
    }

    pub(crate) fn align(&self) -> u64 {
        self.align
    }

    pub(crate) fn check_base(&self, base_va: u64) -> Result<(), Error> {
        let fits = base_va.checked_add(self.bytes()).is_some_and(|end| end <= VA_END);
        if fits && base_va.is_multiple_of(self.align) {
            Ok(())
        } else {
            Err(Error::BadBase { base_va, bytes: self.bytes(), align: self.align })
        }
    }

    /// Writes segments and relocations to `out`, which is zeroed and as long as the image or its initialised part.
    pub(crate) fn write(&self, base_va: u64, out: &mut [u8]) -> Result<(), Error> {
        for (offset, data) in &self.segments {
            // CAST: a segment ends inside of `out`, whose length is a usize.
            let start = *offset as usize;
            out[start..start + data.len()].copy_from_slice(data);
        }
        if let Some(Undefined { name, user, .. }) = self.undefined.iter().find(|one| one.address.is_none()) {
            let (symbol, section) = (name.clone(), user.clone());
            return Err(Error::UnresolvedSymbol { symbol, section, undefined: true });
        }
        for relocation in &self.relocations {
            let (base, offset) = match relocation.target {
                Target::Image(offset) => (base_va, offset),
                Target::Undefined(index, addend) => (self.undefined[index].address.unwrap_or(0), addend),
            };
            relocation.apply(base, offset, out)?;
        }
        Ok(())
    }
}

impl Relocation {
    fn apply(&self, base: u64, offset: i64, out: &mut [u8]) -> Result<(), Error> {
        let bad = |reason| Error::BadRelocation { section: String::from("image"), offset: self.at, reason };
        let address = base
            .checked_add_signed(offset)
            .filter(|&a| a < VA_END)
            .ok_or_else(|| bad("its address is outside of the 49-bit address space"))?;
        // CAST: the parser checked that the field is inside of a section of the image.
        let at = self.at as usize;
        let narrow = || u32::try_from(address).map_err(|_| bad("its address does not fit 32 bits"));
        match self.field {
            Field::Data32 => out[at..at + 4].copy_from_slice(&narrow()?.to_le_bytes()),
            Field::Data64 => out[at..at + 8].copy_from_slice(&address.to_le_bytes()),
            Field::DataLow32 => out[at..at + 4].copy_from_slice(&address.to_le_bytes()[..4]),
            Field::DataHigh32 => out[at..at + 4].copy_from_slice(&address.to_le_bytes()[4..]),
            Field::DataByte(index) => out[at] = address.to_le_bytes()[usize::from(index)],
            Field::Whole32 => out[at + 4..at + 8].copy_from_slice(&narrow()?.to_le_bytes()),
            Field::Low32 => out[at + 4..at + 8].copy_from_slice(&address.to_le_bytes()[..4]),
            Field::High32 => out[at + 4..at + 8].copy_from_slice(&address.to_le_bytes()[4..]),
            Field::Call47 | Field::Call55 => {
                if !address.is_multiple_of(4) {
                    return Err(bad("the call target is not a multiple of 4"));
                }
                let field = &mut out[at..at + 16];
                let mut instruction = [0; 16];
                instruction.copy_from_slice(field);
                let word = set_call_target(self.field, u128::from_le_bytes(instruction), address);
                field.copy_from_slice(&word.to_le_bytes());
            }
        }
        Ok(())
    }
}

/// Inserts an address into a call instruction. Both fields hold all 49 bits.
fn set_call_target(field: Field, instruction: u128, address: u64) -> u128 {
    let units = u128::from(address >> 2);
    let bits = if field == Field::Call55 { (units & 0xff) << 16 | (units >> 8) << 34 } else { units << 34 };
    instruction & !field.call_mask() | bits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn relocated(field: Field, target: i64, base: u64, before: [u8; 16]) -> Result<[u8; 16], Error> {
        let mut out = before;
        Relocation { at: 0, field, target: Target::Image(target) }.apply(base, target, &mut out)?;
        Ok(out)
    }

    #[test]
    fn instruction_fields_keep_the_other_bits() {
        let ones = [0xff; 16];
        let base = 0x1_2345_6700;
        let low = relocated(Field::Low32, 0x10, base, ones).unwrap();
        assert_eq!(low[..4], [0xff; 4]);
        assert_eq!(low[4..8], 0x2345_6710u32.to_le_bytes());
        assert_eq!(low[8..], [0xff; 8]);
        let high = relocated(Field::High32, 0x10, base, ones).unwrap();
        assert_eq!(high[4..8], 1u32.to_le_bytes());
        let call = u128::from_le_bytes(relocated(Field::Call47, 0x80, base, ones).unwrap());
        assert_eq!((call >> 34) as u64 & ((1 << 47) - 1), (base + 0x80) >> 2);
        assert_eq!(call | ((1 << 47) - 1) << 34, u128::MAX);
        // `CALL.ABS.NOINC 0x5a12345680` of sm_90, according to nvdisasm.
        let before = 0x001f_ea00_03c0_0000_0000_0000_0000_7943_u128.to_le_bytes();
        let call = u128::from_le_bytes(relocated(Field::Call55, 0x80, 0x5a_1234_5600, before).unwrap());
        assert_eq!(call, 0x001f_ea00_03c0_0000_5a12_3454_00a0_7943);
    }

    #[test]
    fn parts_of_addresses_in_data() {
        let base = 0x12_3456_7800;
        let ones = [0xff; 16];
        let written = |field| relocated(field, 0x9a, base, ones).unwrap();
        assert_eq!(written(Field::DataLow32)[..5], [0x9a, 0x78, 0x56, 0x34, 0xff]);
        assert_eq!(written(Field::DataHigh32)[..5], [0x12, 0, 0, 0, 0xff]);
        for (index, byte) in [0x9a, 0x78, 0x56, 0x34, 0x12, 0, 0, 0].into_iter().enumerate() {
            assert_eq!(written(Field::DataByte(index as u8))[..2], [byte, 0xff]);
        }
        let whole = relocated(Field::Whole32, 0x10, 0x1000, ones).unwrap();
        assert_eq!(whole[3..9], [0xff, 0x10, 0x10, 0, 0, 0xff]);
        assert!(relocated(Field::Whole32, 0, 1 << 32, ones).is_err());
    }

    #[test]
    fn a_carry_reaches_the_high_word() {
        let high = relocated(Field::High32, 0x100, 0xffff_ff00, [0; 16]).unwrap();
        assert_eq!(high[4..8], 1u32.to_le_bytes());
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert!(relocated(Field::Data32, 0, 0x1_0000_0000, [0; 16]).is_err());
        assert!(relocated(Field::Data64, -0x200, 0x100, [0; 16]).is_err());
        assert!(relocated(Field::Data64, 0x100, VA_END - 0x100, [0; 16]).is_err());
        assert!(relocated(Field::Call47, 2, 0x1000, [0; 16]).is_err());
    }

    #[test]
    fn places_are_aligned_and_the_prefetcher_has_its_slack() {
        let mut image = Image::new();
        assert_eq!(image.bytes(), 0);
        assert_eq!(image.place("a", Class::Code, 128, 0x180, &[1; 0x180]).unwrap(), 0);
        assert_eq!(image.place("b", Class::Code, 16, 0x80, &[2; 0x80]).unwrap(), 0x180);
        assert_eq!(image.place("c", Class::Constant, 4, 5, &[3; 5]).unwrap(), 0x200);
        assert_eq!(image.place("d", Class::Data, 8, 12, &[4; 12]).unwrap(), 0x300);
        assert_eq!(image.place("e", Class::Zeroed, 512, 100, &[]).unwrap(), 0x400);
        assert_eq!(image.bytes(), 0x200 + PREFETCH_SLACK_BYTES);
        assert_eq!(image.initialised_bytes(), 0x30c);
        assert_eq!(image.align(), 512);
        assert!(image.check_base(0x10000).is_ok());
        assert!(image.check_base(0x10100).is_err());
        assert!(image.check_base(VA_END - 512).is_err());
    }

    #[test]
    fn absurd_sections_are_refused() {
        let mut image = Image::new();
        assert!(image.place("a", Class::Data, 3, 1, &[0]).is_err());
        assert!(image.place("a", Class::Data, 8192, 1, &[0]).is_err());
        assert!(image.place("a", Class::Zeroed, 4, u64::MAX, &[]).is_err());
        let beyond = image.place("a", Class::Zeroed, 4, MAX_IMAGE_BYTES + 1, &[]);
        assert_eq!(beyond, Err(Error::ImageTooLarge { bytes: MAX_IMAGE_BYTES + 1 }));
        assert!(image.place("a", Class::Constant, 4, u64::MAX, &[]).is_err());
    }
}
