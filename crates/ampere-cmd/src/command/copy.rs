//! Commands of the copy engine (`clc7b5.h`): linear and pitched copies, fills, semaphores.
//!
//! All transfers are NON_PIPELINED: each waits for the transfers before it, so consecutive copies may access the same
//! bytes.

use super::{check_range, check_va};
use crate::copy_c7b5::{
    LaunchDma, LaunchDmaDataTransferType, LaunchDmaDstMemoryLayout, LaunchDmaSemaphoreType,
    LaunchDmaSrcMemoryLayout, LineLengthIn, OffsetInUpper, OffsetOutUpper, SetRemapComponents,
    SetRemapComponentsComponentSize, SetRemapComponentsDstX, SetRemapComponentsDstY,
    SetRemapComponentsNumDstComponents, SetRemapConstA, SetRemapConstB, SetSemaphoreA,
};
use crate::error::Error;
use crate::method::Method;
use crate::pushbuffer::{Encoder, Sink, Subchannel};
use crate::words::upper_lower;

/// Largest number of bytes of one transfer. Longer copies are split.
pub const MAX_COPY_PIECE: u64 = 1 << 31;
/// Words of one transfer of a linear copy.
const PIECE_WORDS: usize = 9;

/// A copy of contiguous bytes.
///
/// ```
/// # fn main() -> Result<(), ampere_cmd::Error> {
/// # use ampere_cmd::{Encoder, SliceSink, Subchannel};
/// # let mut words = [0_u32; 64];
/// # let mut encoder = Encoder::new(SliceSink::new(&mut words));
/// use ampere_cmd::command::LinearCopy;
///
/// encoder.linear_copy(&LinearCopy { source: 0x1000, destination: 0x2000, bytes: 4096 })?;
/// assert!(!encoder.sink().is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinearCopy {
    /// GPU address to read from.
    pub source: u64,
    /// GPU address to write to.
    pub destination: u64,
    /// Length in bytes, at least 1.
    pub bytes: u64,
}

/// A copy of lines that are a pitch apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PitchCopy {
    /// GPU address of the first line to read.
    pub source: u64,
    /// GPU address of the first line to write.
    pub destination: u64,
    /// Distance between source lines in bytes.
    pub source_pitch: u32,
    /// Distance between destination lines in bytes.
    pub destination_pitch: u32,
    /// Length of a line in bytes, at least 1.
    pub line_bytes: u32,
    /// Number of lines, at least 1.
    pub lines: u32,
}

/// The pattern of a fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// A byte.
    Bits8(u8),
    /// A 16-bit word.
    Bits16(u16),
    /// A 32-bit word.
    Bits32(u32),
    /// A 64-bit word.
    Bits64(u64),
}

impl Pattern {
    const fn bytes(self) -> u64 {
        match self {
            Self::Bits8(_) => 1,
            Self::Bits16(_) => 2,
            Self::Bits32(_) => 4,
            Self::Bits64(_) => 8,
        }
    }
}

/// A fill of contiguous memory with a pattern.
///
/// There is no fill of lines that are a pitch apart: an H100 (driver 580) did not end a transfer with remapping,
/// MULTI_LINE_ENABLE and a PITCH_IN of 0, and reported CTX SWITCH TIMEOUT until it was reset. Fill one line and copy
/// that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fill {
    /// GPU address, a multiple of the pattern's size.
    pub destination: u64,
    /// Pattern to write.
    pub pattern: Pattern,
    /// Number of repetitions, at least 1.
    pub count: u32,
}

/// A semaphore release after all earlier transfers are complete and visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyRelease {
    /// GPU address, a multiple of 4; with a timestamp a multiple of 16.
    pub va: u64,
    /// Value to write.
    pub payload: u32,
    /// Whether four words are written: the payload, 0, then the GPU time in ns (64 bits).
    pub timestamp: bool,
}

fn check_count(what: &'static str, value: u64, max: u64) -> Result<(), Error> {
    if value == 0 || value > max { Err(Error::Length { what, value, max }) } else { Ok(()) }
}

/// A transfer between pitch-linear virtual addresses.
fn transfer() -> LaunchDma {
    LaunchDma {
        data_transfer_type: LaunchDmaDataTransferType::NonPipelined,
        src_memory_layout: LaunchDmaSrcMemoryLayout::Pitch,
        dst_memory_layout: LaunchDmaDstMemoryLayout::Pitch,
        ..LaunchDma::default()
    }
}

impl<S: Sink> Encoder<S> {
    /// Copies bytes, in pieces of at most [`MAX_COPY_PIECE`]. 9 words per piece.
    ///
    /// # Errors
    ///
    /// [`Error::Length`] for 0 bytes, [`Error::AddressTooHigh`] or [`Error::Full`].
    #[inline]
    pub fn linear_copy(&mut self, copy: &LinearCopy) -> Result<(), Error> {
        let bits = self.target().engine_va_bits();
        check_count("bytes of a copy", copy.bytes, 1 << bits)?;
        check_range("copy source", copy.source, copy.bytes, bits)?;
        check_range("copy destination", copy.destination, copy.bytes, bits)?;
        let pieces = copy.bytes.div_ceil(MAX_COPY_PIECE);
        self.fits(usize::try_from(pieces).unwrap_or(usize::MAX).saturating_mul(PIECE_WORDS))?;
        for piece in 0..pieces {
            let offset = piece * MAX_COPY_PIECE;
            let bytes = (copy.bytes - offset).min(MAX_COPY_PIECE);
            self.offsets(copy.source + offset, copy.destination + offset)?;
            // CAST: at most 2^31.
            self.methods(Subchannel::COPY, LineLengthIn::ADDRESS, &[bytes as u32])?;
            self.method(Subchannel::COPY, &transfer())?;
        }
        Ok(())
    }

    /// Copies lines. 11 words.
    ///
    /// # Errors
    ///
    /// [`Error::Length`] for 0 lines or 0 bytes, [`Error::AddressTooHigh`] or [`Error::Full`].
    pub fn pitch_copy(&mut self, copy: &PitchCopy) -> Result<(), Error> {
        check_count("bytes of a line", u64::from(copy.line_bytes), u64::from(u32::MAX))?;
        check_count("lines of a copy", u64::from(copy.lines), u64::from(u32::MAX))?;
        let bits = self.target().engine_va_bits();
        let span = |pitch: u32| u64::from(copy.lines - 1) * u64::from(pitch) + u64::from(copy.line_bytes);
        check_range("copy source", copy.source, span(copy.source_pitch), bits)?;
        check_range("copy destination", copy.destination, span(copy.destination_pitch), bits)?;
        let launch = LaunchDma { multi_line_enable: true, ..transfer() };
        let [in_upper, in_lower] = upper_lower(copy.source);
        let [out_upper, out_lower] = upper_lower(copy.destination);
        self.together::<11>(|encoder| {
            encoder.methods(
                Subchannel::COPY,
                OffsetInUpper::ADDRESS,
                &[
                    in_upper,
                    in_lower,
                    out_upper,
                    out_lower,
                    copy.source_pitch,
                    copy.destination_pitch,
                    copy.line_bytes,
                    copy.lines,
                ],
            )?;
            encoder.method(Subchannel::COPY, &launch)
        })
    }

    /// Fills memory. 10 words, with a 64-bit pattern 11.
    ///
    /// # Errors
    ///
    /// [`Error::Length`] for a count of 0, [`Error::Misaligned`], [`Error::AddressTooHigh`] or
    /// [`Error::Full`].
    pub fn fill(&mut self, fill: &Fill) -> Result<(), Error> {
        let bits = self.target().engine_va_bits();
        check_count("elements of a fill", u64::from(fill.count), u64::from(u32::MAX))?;
        check_va("fill", fill.destination, fill.pattern.bytes(), bits)?;
        check_range("fill", fill.destination, u64::from(fill.count) * fill.pattern.bytes(), bits)?;
        let launch = LaunchDma { remap_enable: true, ..transfer() };
        self.together::<11>(|encoder| {
            encoder.remap(fill.pattern)?;
            let destination = upper_lower(fill.destination);
            encoder.methods(Subchannel::COPY, OffsetOutUpper::ADDRESS, &destination)?;
            encoder.methods(Subchannel::COPY, LineLengthIn::ADDRESS, &[fill.count])?;
            encoder.method(Subchannel::COPY, &launch)
        })
    }

    /// Makes transfers with remapping write a constant: the pattern.
    fn remap(&mut self, pattern: Pattern) -> Result<(), Error> {
        let one =
            SetRemapComponents { dst_x: SetRemapComponentsDstX::ConstB, ..SetRemapComponents::default() };
        let half = SetRemapComponents { component_size: SetRemapComponentsComponentSize::Two, ..one };
        let word = SetRemapComponents { component_size: SetRemapComponentsComponentSize::Four, ..one };
        let (value, components) = match pattern {
            Pattern::Bits8(value) => (u32::from(value), one),
            Pattern::Bits16(value) => (u32::from(value), half),
            Pattern::Bits32(value) => (value, word),
            Pattern::Bits64(value) => {
                let [upper, lower] = upper_lower(value);
                let two = SetRemapComponents {
                    dst_x: SetRemapComponentsDstX::ConstA,
                    dst_y: SetRemapComponentsDstY::ConstB,
                    num_dst_components: SetRemapComponentsNumDstComponents::Two,
                    ..word
                };
                let values = (SetRemapConstA { v: lower }, SetRemapConstB { v: upper }, two);
                return self.sequence(Subchannel::COPY, &values);
            }
        };
        self.sequence(Subchannel::COPY, &(SetRemapConstB { v: value }, components))
    }

    /// Flushes the copy engine's writes to the system, then releases a semaphore. 6 words.
    ///
    /// # Errors
    ///
    /// [`Error::Misaligned`], [`Error::AddressTooHigh`] or [`Error::Full`].
    pub fn copy_release(&mut self, release: &CopyRelease) -> Result<(), Error> {
        let alignment = if release.timestamp { 16 } else { 4 };
        check_va("copy semaphore", release.va, alignment, self.target().engine_va_bits())?;
        let semaphore_type = if release.timestamp {
            LaunchDmaSemaphoreType::ReleaseSemaphoreWithTimestamp
        } else {
            LaunchDmaSemaphoreType::ReleaseSemaphoreNoTimestamp
        };
        let launch = LaunchDma { flush_enable: true, semaphore_type, ..LaunchDma::default() };
        let [upper, lower] = upper_lower(release.va);
        self.together::<6>(|encoder| {
            encoder.methods(Subchannel::COPY, SetSemaphoreA::ADDRESS, &[upper, lower, release.payload])?;
            encoder.method(Subchannel::COPY, &launch)
        })
    }

    fn offsets(&mut self, source: u64, destination: u64) -> Result<(), Error> {
        let [in_upper, in_lower] = upper_lower(source);
        let [out_upper, out_lower] = upper_lower(destination);
        let offsets = [in_upper, in_lower, out_upper, out_lower];
        self.methods(Subchannel::COPY, OffsetInUpper::ADDRESS, &offsets)
    }
}
