//! Constant banks of a launch.
//!
//! The constant cache is invalidated between launches, and a kernel cannot write its banks. The mapped pages of a bank
//! are therefore read once, when the launch begins. A bank may extend beyond its mapping: hardware fetches lines when
//! an instruction loads them, so only a load from an unmapped page faults.

use super::{ConstantBank, Launch, SmFaultCause};
use crate::check::Unit;
use crate::mmu::{Access, MmuFault, PAGE_BYTES, View};

/// Size limit of a constant bank in bytes; offsets have 16 bits.
const BANK_BYTES: u32 = 0x1_0000;

/// Contents of the banks.
#[derive(Debug, Default)]
pub(crate) struct Constants {
    /// The bytes of each bank up to its first unmapped page.
    banks: [Vec<u8>; 8],
    /// The rest of the banks that have unmapped pages.
    partial: Vec<Partial>,
}

/// The part of a bank that starts at its first unmapped page.
#[derive(Debug)]
struct Partial {
    bank: usize,
    /// Offset of the first unmapped byte in the bank.
    start: usize,
    /// Contiguous pieces that begin at `start`. The first one is unmapped.
    pieces: Vec<Piece>,
}

/// Consecutive bytes of a bank: the contents, or the number of bytes and the fault of a load.
#[derive(Debug)]
enum Piece {
    Mapped(Vec<u8>),
    Unmapped(usize, MmuFault),
}

impl Piece {
    fn len(&self) -> usize {
        match self {
            Self::Mapped(bytes) => bytes.len(),
            Self::Unmapped(len, _) => *len,
        }
    }
}

impl Constants {
    /// Reads the mapped pages of the banks of `launch`. Strict mode reports a bank with an unmapped page.
    pub(crate) fn read(launch: &Launch, memory: &View) -> Self {
        let memory = memory.watched_as(Unit::Constant);
        let mut constants = Self::default();
        for (bank, place) in launch.constants.iter().enumerate() {
            let Some(ConstantBank { va, bytes }) = *place else { continue };
            let len = bytes.min(BANK_BYTES) as usize;
            let mut whole = vec![0; len];
            if memory.read(va, &mut whole).is_ok() {
                constants.banks[bank] = whole;
                continue;
            }
            let mut pieces = pieces(&memory, va, len).into_iter().peekable();
            if let Some(Piece::Mapped(bytes)) = pieces.next_if(|first| matches!(first, Piece::Mapped(_))) {
                constants.banks[bank] = bytes;
            }
            if pieces.peek().is_some() {
                let start = constants.banks[bank].len();
                constants.partial.push(Partial { bank, start, pieces: pieces.collect() });
            }
        }
        constants
    }

    /// Returns the bytes of a bank that any load may read.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn readable(&self, bank: usize) -> &[u8] {
        &self.banks[bank]
    }

    /// Returns `N` bytes of a bank.
    #[inline(always)]
    fn bytes<const N: usize>(&self, bank: u8, offset: u32) -> Result<[u8; N], SmFaultCause> {
        let at = offset as usize;
        let found = self
            .banks
            .get(usize::from(bank))
            .and_then(|bytes| bytes.get(at..at.checked_add(N)?))
            .and_then(|bytes| bytes.try_into().ok());
        match found {
            Some(bytes) => Ok(bytes),
            None => {
                let mut bytes = [0; N];
                self.beyond(bank, offset, &mut bytes)?;
                Ok(bytes)
            }
        }
    }

    /// Reads bytes of which the last lies at or after the start of the first unmapped page.
    #[cold]
    #[inline(never)]
    fn beyond(&self, bank: u8, offset: u32, bytes: &mut [u8]) -> Result<(), SmFaultCause> {
        // CAST: at most 8.
        let len = bytes.len() as u32;
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = self.slow_byte(bank.into(), offset as usize + at).unwrap_or_else(|| {
                Err(SmFaultCause::OutOfRange { space: "constant", offset: u64::from(offset), bytes: len })
            })?;
        }
        Ok(())
    }

    /// The byte of a bank, or the fault of a load from its page; `None` beyond the bank.
    fn slow_byte(&self, bank: usize, offset: usize) -> Option<Result<u8, SmFaultCause>> {
        if let Some(byte) = self.banks.get(bank)?.get(offset) {
            return Some(Ok(*byte));
        }
        let partial = self.partial.iter().find(|partial| partial.bank == bank)?;
        let mut left = offset - partial.start;
        for piece in &partial.pieces {
            if left < piece.len() {
                return Some(match piece {
                    Piece::Mapped(bytes) => Ok(bytes[left]),
                    // CAST: at most 64 KiB.
                    Piece::Unmapped(_, first) => {
                        Err(SmFaultCause::Mmu(MmuFault { va: first.va + left as u64, ..*first }))
                    }
                });
            }
            left -= piece.len();
        }
        None
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

/// Reads `len` bytes at `va` where they are mapped.
fn pieces(memory: &View, va: u64, len: usize) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    let mut reported = false;
    let mut done = 0;
    while done < len {
        // CAST: at most 64 KiB.
        let at = va.wrapping_add(done as u64);
        let left = len - done;
        // CAST: bounded by `left`.
        let page = (PAGE_BYTES - at % PAGE_BYTES).min(left as u64) as usize;
        let read = || {
            let run = memory.piece(at, left, Access::Read)?;
            let mut bytes = vec![0; run];
            memory.read(at, &mut bytes)?;
            Ok(bytes)
        };
        let piece = match read() {
            Ok(bytes) => Piece::Mapped(bytes),
            Err(fault) => Piece::Unmapped(page, fault),
        };
        done += piece.len();
        match (pieces.last_mut(), piece) {
            (Some(Piece::Mapped(before)), Piece::Mapped(bytes)) => before.extend(bytes),
            (_, Piece::Unmapped(page, fault)) => {
                if let Some(watch) = memory.watch()
                    && !std::mem::replace(&mut reported, true)
                {
                    watch.unmapped_bank(va, len as u64);
                }
                pieces.push(Piece::Unmapped(page, fault));
            }
            (_, piece) => pieces.push(piece),
        }
    }
    pieces
}
