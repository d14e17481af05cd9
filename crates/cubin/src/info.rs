//! The attribute lists in `.nv.info` (module) and `.nv.info.KERNEL`.
//!
//! A record consists of one byte of format, one byte of attribute number, and a payload that depends on the format:
//!
//! | format | payload |
//! |---|---|
//! | 1 | two unused bytes |
//! | 2 | an 8-bit value and one unused byte |
//! | 3 | a 16-bit value |
//! | 4 | a 16-bit length and that many bytes |
//!
//! The loader ignores attributes that it does not need.

use alloc::string::String;

use crate::Error;
use crate::elf::{Section, u16_at};

/// Required number of threads of a CTA (`.reqntid`): three words.
pub(crate) const REQNTID: u8 = 0x10;
/// Largest number of threads of a CTA (`__launch_bounds__`): three words.
pub(crate) const MAX_THREADS: u8 = 0x05;
/// Symbol, 16-bit offset and 16-bit size of the parameters in constant bank 0.
pub(crate) const PARAM_CBANK: u8 = 0x0a;
/// Symbol and stack frame of one function, in bytes.
pub(crate) const FRAME_SIZE: u8 = 0x11;
/// Symbol of a kernel and the stack of the kernel with all callees, in bytes.
pub(crate) const MIN_STACK_SIZE: u8 = 0x12;
/// One parameter: three words, see [`crate::parse`].
pub(crate) const KPARAM_INFO: u8 = 0x17;
/// One parameter of a kernel with more than 4 KiB of parameters: three words, see [`crate::parse`].
pub(crate) const KPARAM_INFO_V2: u8 = 0x45;
/// Number of CTAs of a cluster along x, y, z (`__cluster_dims__`, sm_90): three words.
pub(crate) const CTA_PER_CLUSTER: u8 = 0x3d;
/// 16-bit size of all parameters, in bytes.
pub(crate) const CBANK_PARAM_SIZE: u8 = 0x19;
/// Symbol and registers per thread.
pub(crate) const REGCOUNT: u8 = 0x2f;
/// Number of barriers that a kernel uses, 8 bits. From ABI version 8 on; before, the flags of the code section
/// contain it.
pub(crate) const NUM_BARRIERS: u8 = 0x4c;

/// One record of an attribute list.
pub(crate) struct Attribute<'a> {
    section: &'a str,
    offset: usize,
    /// Format, 1 to 4.
    pub(crate) format: u8,
    /// Attribute number.
    pub(crate) number: u8,
    /// Payload: two bytes of value, or the bytes after the length.
    pub(crate) payload: &'a [u8],
}

impl Attribute<'_> {
    fn bad(&self, reason: &'static str) -> Error {
        bad(self.section, self.offset, self.number, reason)
    }

    /// Decodes the payload as exactly `N` little-endian words.
    pub(crate) fn words<const N: usize>(&self) -> Result<[u32; N], Error> {
        if self.payload.len() != 4 * N {
            return Err(self.bad("its payload has the wrong length"));
        }
        let mut words = [0; N];
        for (word, bytes) in words.iter_mut().zip(self.payload.chunks_exact(4)) {
            *word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        Ok(words)
    }

    /// Decodes the payload as one 16-bit value.
    pub(crate) fn half(&self) -> Result<u16, Error> {
        match self.payload {
            &[low, high] => Ok(u16::from_le_bytes([low, high])),
            _ => Err(self.bad("its payload has the wrong length")),
        }
    }

    /// Decodes the payload as one 8-bit value.
    pub(crate) fn byte(&self) -> Result<u8, Error> {
        match (self.format, self.payload) {
            (2, &[value, _]) => Ok(value),
            _ => Err(self.bad("it is not one byte")),
        }
    }
}

fn bad(section: &str, offset: usize, attribute: u8, reason: &'static str) -> Error {
    Error::BadAttribute { section: String::from(section), offset: offset as u64, attribute, reason }
}

/// Iterates over the records of an attribute section; ends after the first error.
pub(crate) fn attributes<'a>(
    section: &Section<'a>,
) -> impl Iterator<Item = Result<Attribute<'a>, Error>> + use<'a> {
    let (name, data) = (section.name, section.data);
    let mut offset = 0;
    core::iter::from_fn(move || {
        if offset >= data.len() {
            return None;
        }
        let record = read(name, data, offset);
        offset = match &record {
            Ok((_, next)) => *next,
            Err(_) => data.len(),
        };
        Some(record.map(|(attribute, _)| attribute))
    })
}

/// Reads the record at `offset`. Also returns the offset of the next record.
fn read<'a>(section: &'a str, data: &'a [u8], offset: usize) -> Result<(Attribute<'a>, usize), Error> {
    let number = data.get(offset + 1).copied().unwrap_or(0);
    let cut = || bad(section, offset, number, "the record is cut off");
    let value = u16_at(data, offset + 2).ok_or_else(cut)?;
    let payload_at = match data[offset] {
        1..=3 => offset + 2..offset + 4,
        4 => offset + 4..offset + 4 + usize::from(value),
        _ => return Err(bad(section, offset, number, "its format is unknown")),
    };
    let next = payload_at.end;
    let payload = data.get(payload_at).ok_or_else(cut)?;
    Ok((Attribute { section, offset, format: data[offset], number, payload }, next))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::SHT_CUDA_INFO;
    use alloc::vec::Vec;

    fn section(data: &[u8]) -> Section<'_> {
        Section {
            name: ".nv.info",
            kind: SHT_CUDA_INFO,
            flags: 0,
            bytes: data.len() as u64,
            link: 0,
            info: 0,
            align: 4,
            data,
        }
    }

    #[test]
    fn formats() {
        let data = [
            1, 0x35, 0, 0, // no value
            3, 0x19, 0x24, 0x01, // 16 bits
            4, 0x2f, 8, 0, 5, 0, 0, 0, 24, 0, 0, 0, // two words
        ];
        let section = section(&data);
        let list = attributes(&section).collect::<Result<Vec<_>, _>>().unwrap();
        assert_eq!(list.iter().map(|a| a.number).collect::<Vec<_>>(), [0x35, 0x19, 0x2f]);
        assert_eq!(list[1].half().unwrap(), 0x124);
        assert_eq!(list[2].words::<2>().unwrap(), [5, 24]);
        assert!(list[2].words::<3>().is_err());
        assert!(list[2].half().is_err());
    }

    #[test]
    fn cut_off_and_unknown() {
        for (data, reason) in [
            (&[4u8, 0x2f, 8, 0, 5][..], "the record is cut off"),
            (&[4, 0x2f, 8], "the record is cut off"),
            (&[4], "the record is cut off"),
            (&[9, 0x2f, 0, 0], "its format is unknown"),
        ] {
            let section = section(data);
            let mut list = attributes(&section);
            match list.next() {
                Some(Err(Error::BadAttribute { reason: found, .. })) => assert_eq!(found, reason),
                other => panic!("{:?}", other.map(|r| r.map(|a| a.number))),
            }
            assert!(list.next().is_none());
        }
    }
}
