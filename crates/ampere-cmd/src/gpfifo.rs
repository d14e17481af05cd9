//! GPFIFO entries: the elements of a channel's ring.
//!
//! The ring has a power of two of 8-byte entries in GPU memory. An entry with a length points to a pushbuffer
//! segment. An entry with length 0 is a control entry for the host engine. The user writes entries, then stores the
//! index past the last one to GPPut in USERD. GPGet == GPPut means that the ring is empty, so one slot always stays
//! unused.
//!
//! ```
//! use ampere_cmd::gpfifo::{Entry, Segment};
//!
//! let entry = Entry::from(Segment::new(0x14_0000_0000, 22)).encode()?;
//! assert_eq!(entry, 0x0000_5814_0000_0000);
//! assert_eq!(Entry::decode(entry)?, Entry::Segment(Segment::new(0x14_0000_0000, 22)));
//! # Ok::<(), ampere_cmd::Error>(())
//! ```
//!
//! Bit layout: `gp_entry` of `clc56f.h`, `clc76f.h` and `clc86f.h`.

use crate::error::{Error, FieldError};

/// Bytes of one ring entry.
pub const ENTRY_BYTES: u64 = 8;
/// Largest number of words of a segment.
pub const MAX_SEGMENT_WORDS: u32 = (1 << 21) - 1;
/// Number of address bits in an entry.
pub const VA_BITS: u32 = 40;

/// Byte offsets in USERD (the channel's 512 bytes of control words).
pub use crate::generated::host_c76f::userd;

const LEVEL_BIT: u32 = 41;
const LENGTH_SHIFT: u32 = 42;
const SYNC_BIT: u32 = 63;
/// Bit 1 of the first word and bit 8 of the second are reserved.
const RESERVED: u64 = 1 << 1 | 1 << 40;
/// In a control entry the level is reserved too.
const CONTROL_RESERVED: u64 = 1 << 40 | 1 << LEVEL_BIT;

/// Whether the TopLevelGet words of USERD report the segment. The level has no other effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Level {
    /// Reported.
    #[default]
    Main,
    /// Not reported.
    Subroutine,
}

/// A run of pushbuffer words.
///
/// ```
/// # fn main() -> Result<(), ampere_cmd::Error> {
/// use ampere_cmd::gpfifo::{Entry, Segment};
///
/// let entry = Entry::from(Segment::new(0x14_0000_0000, 12).with_sync());
/// assert_eq!(Entry::decode(entry.encode()?)?, entry);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// GPU address of the first word: a multiple of 4 below 2^40. The segment must end before the last word below 2^40.
    pub va: u64,
    /// Length in 32-bit words, 1 to [`MAX_SEGMENT_WORDS`].
    pub words: u32,
    /// Level.
    pub level: Level,
    /// Whether the fetch waits until the host engine has processed the segment before. It does not wait for the other
    /// engines.
    pub sync: bool,
    /// Whether the segment is fetched only while the sub-device mask includes this GPU.
    pub conditional: bool,
}

impl Segment {
    /// An unconditional segment of level main, without sync.
    #[must_use]
    pub const fn new(va: u64, words: u32) -> Self {
        Self { va, words, level: Level::Main, sync: false, conditional: false }
    }

    /// The same segment with SYNC WAIT.
    #[must_use]
    pub const fn with_sync(self) -> Self {
        Self { sync: true, ..self }
    }

    /// The same segment with another level.
    #[must_use]
    pub const fn with_level(self, level: Level) -> Self {
        Self { level, ..self }
    }

    fn check(&self) -> Result<(), Error> {
        const WHAT: &str = "pushbuffer segment";
        if !self.va.is_multiple_of(4) {
            return Err(Error::Misaligned { what: WHAT, va: self.va, alignment: 4 });
        }
        if self.words == 0 || self.words > MAX_SEGMENT_WORDS {
            return Err(Error::Length {
                what: "words of a pushbuffer segment",
                value: u64::from(self.words),
                max: u64::from(MAX_SEGMENT_WORDS),
            });
        }
        // The last word of the address space cannot be used (GA100 dev_ram).
        let end = self.va.saturating_add(u64::from(self.words) * 4);
        if end > (1 << VA_BITS) - 4 {
            return Err(Error::AddressTooHigh { what: WHAT, va: self.va, bits: VA_BITS });
        }
        Ok(())
    }
}

/// Operation of a control entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Does nothing. The operand is ignored.
    Nop(u32),
    /// Raises an error.
    Illegal(u32),
    /// Reports the checksum of the entries so far.
    GpCrc(u32),
    /// Reports the checksum of the pushbuffer words so far.
    PbCrc(u32),
    /// Sets address bits 56:40 of the following segments: at most 17 bits, Hopper only (`clc86f.h`).
    SetExtendedBase(u32),
}

/// Lowest bit of the extended base in the operand (`clc86f.h`).
const EXTENDED_BASE_SHIFT: u32 = 8;
const EXTENDED_BASE_BITS: u32 = 17;

/// An entry of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Makes the host engine fetch pushbuffer words.
    Segment(Segment),
    /// Controls the host engine.
    Control {
        /// Operation.
        operation: Operation,
        /// Whether the host engine first waits until it has processed the segment before.
        sync: bool,
    },
}

impl From<Segment> for Entry {
    fn from(segment: Segment) -> Self {
        Self::Segment(segment)
    }
}

impl Entry {
    /// The entry as a 64-bit value, stored to the ring in little-endian order.
    ///
    /// # Errors
    ///
    /// [`Error::Misaligned`], [`Error::Length`] or [`Error::AddressTooHigh`] for a segment outside of the limits of
    /// [`Segment`], [`Error::Field`] for an extended base that is too wide.
    pub fn encode(&self) -> Result<u64, Error> {
        match self {
            Self::Segment(segment) => {
                segment.check()?;
                Ok(segment.va
                    | u64::from(segment.conditional)
                    | u64::from(segment.level == Level::Subroutine) << LEVEL_BIT
                    | u64::from(segment.words) << LENGTH_SHIFT
                    | u64::from(segment.sync) << SYNC_BIT)
            }
            Self::Control { operation, sync } => {
                let (opcode, operand) = match *operation {
                    Operation::Nop(operand) => (0u64, operand),
                    Operation::Illegal(operand) => (1, operand),
                    Operation::GpCrc(operand) => (2, operand),
                    Operation::PbCrc(operand) => (3, operand),
                    Operation::SetExtendedBase(base) if base >> EXTENDED_BASE_BITS == 0 => {
                        (4, base << EXTENDED_BASE_SHIFT)
                    }
                    Operation::SetExtendedBase(base) => {
                        return Err(FieldError::TooWide {
                            field: "PB_EXTENDED_BASE_OPERAND",
                            value: u64::from(base),
                            bits: EXTENDED_BASE_BITS,
                        }
                        .into());
                    }
                };
                Ok(u64::from(operand) | opcode << 32 | u64::from(*sync) << SYNC_BIT)
            }
        }
    }

    /// Decodes an entry.
    ///
    /// # Errors
    ///
    /// [`Error::EntryReserved`] for reserved bits, [`Error::EntryOpcode`] for an unknown opcode,
    /// [`Error::AddressTooHigh`] for a segment that contains the last word below 2^40.
    pub fn decode(entry: u64) -> Result<Self, Error> {
        let words = (entry >> LENGTH_SHIFT) as u32 & MAX_SEGMENT_WORDS;
        let sync = entry >> SYNC_BIT != 0;
        if words != 0 {
            if entry & RESERVED != 0 {
                return Err(Error::EntryReserved { entry, bits: entry & RESERVED });
            }
            let level = if entry >> LEVEL_BIT & 1 != 0 { Level::Subroutine } else { Level::Main };
            let va = entry & ((1 << VA_BITS) - 4);
            let segment = Segment { va, words, level, sync, conditional: entry & 1 != 0 };
            segment.check()?;
            return Ok(Self::Segment(segment));
        }
        if entry & CONTROL_RESERVED != 0 {
            return Err(Error::EntryReserved { entry, bits: entry & CONTROL_RESERVED });
        }
        let operand = entry as u32;
        let operation = match (entry >> 32) as u8 {
            0 => Operation::Nop(operand),
            1 => Operation::Illegal(operand),
            2 => Operation::GpCrc(operand),
            3 => Operation::PbCrc(operand),
            4 => {
                let base = operand >> EXTENDED_BASE_SHIFT & ((1 << EXTENDED_BASE_BITS) - 1);
                let stray = operand & !(base << EXTENDED_BASE_SHIFT);
                if stray != 0 {
                    return Err(Error::EntryReserved { entry, bits: u64::from(stray) });
                }
                Operation::SetExtendedBase(base)
            }
            opcode => return Err(Error::EntryOpcode { entry, opcode }),
        };
        Ok(Self::Control { operation, sync })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn segments_survive_a_round_trip(
            va in 0u64..1 << 38,
            words in 1u32..=MAX_SEGMENT_WORDS,
            subroutine: bool,
            sync: bool,
            conditional: bool,
        ) {
            let level = if subroutine { Level::Subroutine } else { Level::Main };
            let segment = Segment { va: va * 4, words, level, sync, conditional };
            match Entry::from(segment).encode() {
                Ok(entry) => prop_assert_eq!(Entry::decode(entry), Ok(Entry::Segment(segment))),
                Err(error) => {
                    prop_assert!(segment.va + u64::from(words) * 4 > (1 << 40) - 4, "{error}");
                }
            }
        }

        #[test]
        fn whatever_decodes_encodes_to_the_same_bits(entry: u64) {
            if let Ok(decoded) = Entry::decode(entry) {
                prop_assert_eq!(decoded.encode(), Ok(entry));
            }
        }

        #[test]
        fn control_entries_survive_a_round_trip(operand: u32, base in 0u32..1 << 17, kind in 0..5, sync: bool) {
            let operation = match kind {
                0 => Operation::Nop(operand),
                1 => Operation::Illegal(operand),
                2 => Operation::GpCrc(operand),
                3 => Operation::PbCrc(operand),
                _ => Operation::SetExtendedBase(base),
            };
            let control = Entry::Control { operation, sync };
            prop_assert_eq!(Entry::decode(control.encode()?), Ok(control));
        }
    }

    #[test]
    fn segments_outside_of_the_address_space_are_refused() {
        let refused = |va, words| Entry::from(Segment::new(va, words)).encode().unwrap_err();
        assert_eq!(refused(2, 1), Error::Misaligned { what: "pushbuffer segment", va: 2, alignment: 4 });
        let too_high = |va| Error::AddressTooHigh { what: "pushbuffer segment", va, bits: 40 };
        assert_eq!(refused(1 << 40, 1), too_high(1 << 40));
        // The last word of the space cannot be used.
        assert_eq!(refused((1 << 40) - 4, 1), too_high((1 << 40) - 4));
        assert!(Entry::from(Segment::new((1 << 40) - 8, 1)).encode().is_ok());
        assert!(matches!(refused(0, 0), Error::Length { value: 0, .. }));
        assert!(matches!(refused(0, 1 << 21), Error::Length { value: 0x20_0000, .. }));
    }

    #[test]
    fn bits_without_meaning_are_refused() {
        assert_eq!(Entry::decode(1 << 42 | 2), Err(Error::EntryReserved { entry: 1 << 42 | 2, bits: 2 }));
        assert_eq!(Entry::decode(1 << 40), Err(Error::EntryReserved { entry: 1 << 40, bits: 1 << 40 }));
        assert_eq!(Entry::decode(5 << 32), Err(Error::EntryOpcode { entry: 5 << 32, opcode: 5 }));
        assert_eq!(Entry::decode(4 << 32 | 1), Err(Error::EntryReserved { entry: 4 << 32 | 1, bits: 1 }));
        let base = Entry::Control { operation: Operation::SetExtendedBase(1 << 17), sync: false };
        assert!(matches!(base.encode(), Err(Error::Field(FieldError::TooWide { bits: 17, .. }))));
    }

    #[test]
    fn words_as_documented() {
        let subroutine = Segment::new(0xff_ffa0_1000, 6).with_level(Level::Subroutine);
        assert_eq!(Entry::from(subroutine).encode(), Ok(0x0000_1aff_ffa0_1000));
        let sync = Segment::new(0x1000, 1).with_sync();
        assert_eq!(Entry::from(sync).encode(), Ok(0x8000_0400_0000_1000));
        assert_eq!((userd::GP_GET, userd::GP_PUT), (0x88, 0x8c));
    }
}
