//! Constant banks of a launch.
//!
//! The constant cache is invalidated between launches, and a kernel cannot write its banks. The banks are therefore
//! read once.

use super::{ConstantBank, Launch, SmFaultCause};
use crate::mmu::{MmuFault, View};
use crate::strict::Unit;

/// Size limit of a constant bank in bytes; offsets have 16 bits.
const BANK_BYTES: u32 = 0x1_0000;

/// Contents of the banks.
#[derive(Debug, Default)]
pub(crate) struct Constants {
    banks: [Vec<u8>; 8],
}

impl Constants {
    /// Reads the banks of `launch`.
    ///
    /// # Errors
    ///
    /// Returns the MMU fault if a valid bank is not mapped.
    pub(crate) fn read(launch: &Launch, memory: &View) -> Result<Self, MmuFault> {
        let memory = memory.watched_as(Unit::Constant);
        let mut banks: [Vec<u8>; 8] = Default::default();
        for (bank, place) in banks.iter_mut().zip(&launch.constants) {
            let Some(ConstantBank { va, bytes }) = *place else { continue };
            // CAST: at most 64 KiB.
            *bank = vec![0; bytes.min(BANK_BYTES) as usize];
            memory.read(va, bank)?;
        }
        Ok(Self { banks })
    }

    /// Returns `N` bytes of a bank.
    #[inline(always)]
    fn bytes<const N: usize>(&self, bank: u8, offset: u32) -> Result<[u8; N], SmFaultCause> {
        let at = offset as usize;
        self.banks
            .get(usize::from(bank))
            .and_then(|bytes| bytes.get(at..at.checked_add(N)?))
            .and_then(|bytes| bytes.try_into().ok())
            .ok_or(SmFaultCause::OutOfRange {
                space: "constant",
                offset: u64::from(offset),
                // CAST: at most 8.
                bytes: N as u32,
            })
    }

    /// Returns a byte.
    pub(crate) fn byte(&self, bank: u8, offset: u32) -> Result<u8, SmFaultCause> {
        self.bytes::<1>(bank, offset).map(|[byte]| byte)
    }

    /// Returns a 16-bit word.
    pub(crate) fn half(&self, bank: u8, offset: u32) -> Result<u16, SmFaultCause> {
        self.bytes(bank, offset).map(u16::from_le_bytes)
    }

    /// Returns a 32-bit word.
    #[inline(always)]
    pub(crate) fn word(&self, bank: u8, offset: u32) -> Result<u32, SmFaultCause> {
        self.bytes(bank, offset).map(u32::from_le_bytes)
    }

    /// Returns a 64-bit word.
    #[inline(always)]
    pub(crate) fn double(&self, bank: u8, offset: u32) -> Result<u64, SmFaultCause> {
        self.bytes(bank, offset).map(u64::from_le_bytes)
    }
}
