//! Headers: the words that describe the data words after them.

use core::fmt;

use super::{MAX_COUNT, MAX_IMMEDIATE, MAX_METHOD_ADDRESS, NOP};
use crate::error::{Error, FieldError};

/// The engine that receives a method. The assignment is fixed by the hardware on the graphics and compute runlist.
///
/// ```
/// # fn main() -> Result<(), ampere_cmd::Error> {
/// use ampere_cmd::Subchannel;
///
/// assert_eq!(Subchannel::new(4)?.index(), 4);
/// assert!(Subchannel::new(8).is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subchannel(u8);

impl Subchannel {
    /// Host methods, by convention; the host engine ignores their subchannel.
    pub const HOST: Self = Self(0);
    /// 3D.
    pub const THREE_D: Self = Self(0);
    /// Compute.
    pub const COMPUTE: Self = Self(1);
    /// Inline-to-memory.
    pub const INLINE_TO_MEMORY: Self = Self(2);
    /// 2D.
    pub const TWO_D: Self = Self(3);
    /// Copy engine.
    pub const COPY: Self = Self(4);

    /// Subchannel 0 to 7.
    ///
    /// # Errors
    ///
    /// [`Error::Subchannel`] above 7.
    #[inline]
    pub const fn new(index: u8) -> Result<Self, Error> {
        if index > 7 { Err(Error::Subchannel { index }) } else { Ok(Self(index)) }
    }

    /// Index, 0 to 7.
    #[must_use]
    #[inline]
    pub const fn index(self) -> u8 {
        self.0
    }

    pub(super) const fn from_header(word: u32) -> Self {
        Self((word >> 13 & 7) as u8)
    }
}

/// Addresses of the data words of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Each word goes to the address 4 bytes after the previous one.
    Incrementing,
    /// All words go to the same address.
    NonIncrementing,
    /// The first word goes to the address, all others to the address plus 4.
    IncrementOnce,
}

impl Mode {
    #[inline]
    const fn bits(self) -> u32 {
        match self {
            Self::Incrementing => 1,
            Self::NonIncrementing => 3,
            Self::IncrementOnce => 5,
        }
    }

    /// Address of data word `index`, `None` past [`MAX_METHOD_ADDRESS`].
    pub(super) const fn address(self, base: u32, index: u32) -> Option<u32> {
        let address = match self {
            Self::Incrementing => base + 4 * index,
            Self::NonIncrementing => base,
            Self::IncrementOnce => base + if index == 0 { 0 } else { 4 },
        };
        if address > MAX_METHOD_ADDRESS { None } else { Some(address) }
    }
}

/// A word in header position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// The word 0: no effect.
    Nop,
    /// `count` data words follow.
    Methods {
        /// Addresses of the data words.
        mode: Mode,
        /// Target engine.
        subchannel: Subchannel,
        /// Byte offset of the first method.
        address: u32,
        /// Number of data words, 0 to [`MAX_COUNT`]. A header with 0 has no effect.
        count: u32,
    },
    /// One method with its data in the header.
    Immediate {
        /// Target engine.
        subchannel: Subchannel,
        /// Byte offset of the method.
        address: u32,
        /// Data, at most [`MAX_IMMEDIATE`].
        data: u32,
    },
    /// Sets the active sub-device mask (12 bits).
    SetSubdeviceMask(u16),
    /// Stores a sub-device mask for later use (12 bits).
    StoreSubdeviceMask(u16),
    /// Makes the stored sub-device mask the active one.
    UseSubdeviceMask,
    /// Ends the segment; the rest of its words is ignored.
    EndSegment,
}

/// The reason why a word in header position is not a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeaderFault {
    /// Mode 0 or 2 in the format of NV04, which this hardware refuses.
    Obsolete,
    /// Mode 6.
    ReservedMode,
    /// A reserved bit is set.
    ReservedBits,
}

impl fmt::Display for HeaderFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Obsolete => "obsolete header format",
            Self::ReservedMode => "reserved mode 6",
            Self::ReservedBits => "reserved bits are set",
        })
    }
}

fn check_address(address: u32) -> Result<(), Error> {
    if address > MAX_METHOD_ADDRESS || !address.is_multiple_of(4) {
        return Err(Error::MethodAddress { address });
    }
    Ok(())
}

fn check_field(field: &'static str, value: u32, bits: u32) -> Result<(), Error> {
    if value >> bits != 0 {
        return Err(FieldError::TooWide { field, value: u64::from(value), bits }.into());
    }
    Ok(())
}

impl Header {
    /// The header word.
    ///
    /// # Errors
    ///
    /// [`Error::MethodAddress`] for an address that does not fit a header, [`Error::Field`] for a count, data or mask
    /// that does not fit, [`Error::MethodOverflow`] if an incrementing run passes the last address.
    #[inline]
    pub fn encode(&self) -> Result<u32, Error> {
        match *self {
            Self::Nop => Ok(NOP),
            Self::Methods { mode, subchannel, address, count } => {
                check_address(address)?;
                check_field("METHOD_COUNT", count, 13)?;
                let word = mode.bits() << 29 | count << 16 | u32::from(subchannel.0) << 13 | address >> 2;
                if count > 0 && mode.address(address, count - 1).is_none() {
                    let reachable = (MAX_METHOD_ADDRESS - address) / 4 + 1;
                    return Err(Error::MethodOverflow { header: word, index: reachable });
                }
                Ok(word)
            }
            Self::Immediate { subchannel, address, data } => {
                check_address(address)?;
                check_field("IMMD_DATA", data, 13)?;
                Ok(4 << 29 | data << 16 | u32::from(subchannel.0) << 13 | address >> 2)
            }
            Self::SetSubdeviceMask(mask) => {
                check_field("SUBDEVICE_MASK", u32::from(mask), 12)?;
                Ok(1 << 16 | u32::from(mask) << 4)
            }
            Self::StoreSubdeviceMask(mask) => {
                check_field("SUBDEVICE_MASK", u32::from(mask), 12)?;
                Ok(2 << 16 | u32::from(mask) << 4)
            }
            Self::UseSubdeviceMask => Ok(3 << 16),
            Self::EndSegment => Ok(7 << 29),
        }
    }

    /// Decodes a word in header position.
    ///
    /// # Errors
    ///
    /// [`Error::Header`] if the word is not a header that this hardware accepts.
    pub fn decode(word: u32) -> Result<Self, Error> {
        let fail = |fault| Err(Error::Header { word, fault });
        let mode = match word >> 29 {
            0 => return Self::decode_control(word),
            1 => Mode::Incrementing,
            3 => Mode::NonIncrementing,
            5 => Mode::IncrementOnce,
            4 => {
                if word & 1 << 12 != 0 {
                    return fail(HeaderFault::ReservedBits);
                }
                return Ok(Self::Immediate {
                    subchannel: Subchannel::from_header(word),
                    address: (word & 0xfff) << 2,
                    data: word >> 16 & MAX_IMMEDIATE,
                });
            }
            7 if word << 3 == 0 => return Ok(Self::EndSegment),
            7 => return fail(HeaderFault::ReservedBits),
            2 => return fail(HeaderFault::Obsolete),
            _ => return fail(HeaderFault::ReservedMode),
        };
        if word & 1 << 12 != 0 {
            return fail(HeaderFault::ReservedBits);
        }
        Ok(Self::Methods {
            mode,
            subchannel: Subchannel::from_header(word),
            address: (word & 0xfff) << 2,
            count: word >> 16 & MAX_COUNT,
        })
    }

    fn decode_control(word: u32) -> Result<Self, Error> {
        if word == NOP {
            return Ok(Self::Nop);
        }
        let mask = (word >> 4 & 0xfff) as u16;
        let (header, used) = match word >> 16 & 3 {
            1 => (Self::SetSubdeviceMask(mask), 0x0003_fff0),
            2 => (Self::StoreSubdeviceMask(mask), 0x0003_fff0),
            3 => (Self::UseSubdeviceMask, 0x0003_0000),
            _ => return Err(Error::Header { word, fault: HeaderFault::Obsolete }),
        };
        if word & !used != 0 {
            return Err(Error::Header { word, fault: HeaderFault::ReservedBits });
        }
        Ok(header)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn headers() -> impl Strategy<Value = Header> {
        let mode =
            prop_oneof![Just(Mode::Incrementing), Just(Mode::NonIncrementing), Just(Mode::IncrementOnce)];
        let target = (0u8..8, 0u32..0x1000);
        prop_oneof![
            Just(Header::Nop),
            Just(Header::UseSubdeviceMask),
            Just(Header::EndSegment),
            (0u16..0x1000).prop_map(Header::SetSubdeviceMask),
            (0u16..0x1000).prop_map(Header::StoreSubdeviceMask),
            (target.clone(), 0u32..0x2000).prop_map(|((index, address), data)| Header::Immediate {
                subchannel: Subchannel(index),
                address: address * 4,
                data,
            }),
            (mode, target, 0u32..0x2000).prop_map(|(mode, (index, address), count)| Header::Methods {
                mode,
                subchannel: Subchannel(index),
                address: address * 4,
                count,
            }),
        ]
    }

    proptest! {
        #[test]
        fn headers_survive_a_round_trip(header in headers()) {
            match header.encode() {
                Ok(word) => prop_assert_eq!(Header::decode(word), Ok(header)),
                Err(Error::MethodOverflow { header: word, index }) => {
                    // The hardware reports the overflow for the same header.
                    prop_assert_eq!(Header::decode(word), Ok(header));
                    let Header::Methods { mode, address, count, .. } = header else {
                        return Err(TestCaseError::fail("only a run of methods overflows"));
                    };
                    prop_assert!(index < count);
                    prop_assert!(mode.address(address, index).is_none());
                    prop_assert!(mode.address(address, index - 1).is_some());
                }
                Err(error) => return Err(TestCaseError::fail(alloc::format!("{error}"))),
            }
        }

        #[test]
        fn whatever_decodes_encodes_to_the_same_word(word: u32) {
            match Header::decode(word).map(|header| header.encode()) {
                Ok(Ok(encoded)) => prop_assert_eq!(encoded, word),
                Ok(Err(error)) => {
                    let overflow = matches!(error, Error::MethodOverflow { header, .. } if header == word);
                    prop_assert!(overflow, "{error}");
                }
                Err(error) => {
                    let named = matches!(error, Error::Header { word: bad, .. } if bad == word);
                    prop_assert!(named, "{error}");
                }
            }
        }
    }

    #[test]
    fn words_as_documented() {
        let five = Header::Methods {
            mode: Mode::Incrementing,
            subchannel: Subchannel::HOST,
            address: 0x5c,
            count: 5,
        };
        assert_eq!(five.encode(), Ok(0x2005_0017));
        let interrupt = Header::Immediate { subchannel: Subchannel::HOST, address: 0x20, data: 0 };
        assert_eq!(interrupt.encode(), Ok(0x8000_0008));
        assert_eq!(Header::EndSegment.encode(), Ok(0xe000_0000));
        assert_eq!(Header::SetSubdeviceMask(0xabc).encode(), Ok(0x0001_abc0));
        assert_eq!(Header::StoreSubdeviceMask(1).encode(), Ok(0x0002_0010));
        assert_eq!(Header::UseSubdeviceMask.encode(), Ok(0x0003_0000));
        assert_eq!(Header::decode(0), Ok(Header::Nop));
    }

    #[test]
    fn what_is_no_header_is_refused() {
        let fault = |word| match Header::decode(word) {
            Err(Error::Header { word: bad, fault }) => {
                assert_eq!(bad, word);
                Some(fault)
            }
            _ => None,
        };
        assert_eq!(fault(0x0004_0000), Some(HeaderFault::Obsolete));
        assert_eq!(fault(0x4004_0000), Some(HeaderFault::Obsolete));
        assert_eq!(fault(0xc000_0000), Some(HeaderFault::ReservedMode));
        assert_eq!(fault(0xe000_0001), Some(HeaderFault::ReservedBits));
        assert_eq!(fault(0x2001_1000), Some(HeaderFault::ReservedBits));
        assert_eq!(fault(0x8001_1000), Some(HeaderFault::ReservedBits));
        assert_eq!(fault(0x0001_0001), Some(HeaderFault::ReservedBits));
        assert_eq!(fault(0x0003_0010), Some(HeaderFault::ReservedBits));
    }

    #[test]
    fn values_that_do_not_fit_are_refused() {
        let run = |address, count| {
            let (mode, subchannel) = (Mode::NonIncrementing, Subchannel::COMPUTE);
            Header::Methods { mode, subchannel, address, count }.encode()
        };
        assert_eq!(run(0x4000, 1), Err(Error::MethodAddress { address: 0x4000 }));
        assert_eq!(run(0x102, 1), Err(Error::MethodAddress { address: 0x102 }));
        assert_eq!(
            run(0x100, 0x2000),
            Err(FieldError::TooWide { field: "METHOD_COUNT", value: 0x2000, bits: 13 }.into())
        );
        let immediate = Header::Immediate { subchannel: Subchannel::COMPUTE, address: 0, data: 0x2000 };
        assert_eq!(
            immediate.encode(),
            Err(FieldError::TooWide { field: "IMMD_DATA", value: 0x2000, bits: 13 }.into())
        );
        for header in [Header::SetSubdeviceMask(0x1000), Header::StoreSubdeviceMask(0x1000)] {
            assert_eq!(
                header.encode(),
                Err(FieldError::TooWide { field: "SUBDEVICE_MASK", value: 0x1000, bits: 12 }.into())
            );
        }
        assert_eq!(Subchannel::new(8), Err(Error::Subchannel { index: 8 }));
    }
}
