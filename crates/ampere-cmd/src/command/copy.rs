//! Commands of the copy engine (`clc7b5.h`): linear, pitched and block-linear copies, fills, semaphores.
//!
//! All transfers are NON_PIPELINED: each waits for the transfers before it, so consecutive copies may access the same
//! bytes.

use super::{check_range, check_va};
use crate::copy_c7b5::{
    DstOriginX, LaunchDma, LaunchDmaDataTransferType, LaunchDmaDstMemoryLayout, LaunchDmaSemaphoreType,
    LaunchDmaSrcMemoryLayout, LineLengthIn, OffsetInUpper, OffsetOutUpper, SetDstBlockSize,
    SetRemapComponents, SetRemapComponentsComponentSize, SetRemapComponentsDstX, SetRemapComponentsDstY,
    SetRemapComponentsNumDstComponents, SetRemapConstA, SetRemapConstB, SetSemaphoreA, SetSrcBlockSize,
    SetSrcBlockSizeGobHeight, SetSrcBlockSizeHeight, SrcOriginX,
};
use crate::error::Error;
use crate::method::{FieldValue, Method};
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

/// Width of a GOB in bytes. GOBs are the units of block-linear surfaces: 64 bytes by 8 rows.
pub const GOB_WIDTH: u32 = 64;
/// Height of a GOB in rows.
pub const GOB_HEIGHT: u32 = 8;
/// Memory of a GOB in bytes; also the alignment of block-linear surfaces.
pub const GOB_BYTES: u64 = 512;
/// Largest logarithm of a block's height in GOBs: 32 GOBs (SET_SRC_BLOCK_SIZE of `clc7b5.h`).
pub const MAX_BLOCK_HEIGHT_LOG2: u32 = 5;

/// A block-linear surface of one layer, and the first byte of a rectangle in it. Blocks are one GOB wide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSurface {
    /// GPU address, a multiple of [`GOB_BYTES`].
    pub va: u64,
    /// Logarithm of the height of a block in GOBs, at most [`MAX_BLOCK_HEIGHT_LOG2`].
    pub block_height_log2: u32,
    /// Width in bytes; memory has whole GOBs.
    pub width: u32,
    /// Number of rows; memory has whole blocks.
    pub height: u32,
    /// Position of the rectangle in its row, in bytes.
    pub x: u32,
    /// First row of the rectangle.
    pub y: u32,
}

impl BlockSurface {
    /// Memory of the surface in bytes; `None` if the height of a block is too large, or the size exceeds 64 bits.
    ///
    /// ```
    /// use ampere_cmd::command::BlockSurface;
    ///
    /// let surface = BlockSurface { va: 0, block_height_log2: 1, width: 65, height: 17, x: 0, y: 0 };
    /// assert_eq!(surface.bytes(), Some(2 * 2 * 1024)); // 2 by 2 blocks of 2 GOBs
    /// ```
    #[must_use]
    pub const fn bytes(&self) -> Option<u64> {
        if self.block_height_log2 > MAX_BLOCK_HEIGHT_LOG2 {
            return None;
        }
        // CAST: widening. Neither product overflows: at most 2^26 GOBs by 2^29 rows of them, of 2^9 bytes each.
        let across = self.width.div_ceil(GOB_WIDTH) as u64;
        let down = self.height.div_ceil(GOB_HEIGHT << self.block_height_log2) as u64;
        across.checked_mul(down * (GOB_BYTES << self.block_height_log2))
    }
}

/// One side of a [`SurfaceCopy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopySide {
    /// Lines that are a pitch apart.
    Pitch {
        /// GPU address of the first line.
        va: u64,
        /// Distance between lines in bytes.
        pitch: u32,
    },
    /// A rectangle of a block-linear surface.
    Blocks(BlockSurface),
}

impl CopySide {
    fn va(&self) -> u64 {
        match self {
            Self::Pitch { va, .. } => *va,
            Self::Blocks(surface) => surface.va,
        }
    }

    fn pitch(&self) -> u32 {
        if let Self::Pitch { pitch, .. } = self { *pitch } else { 0 }
    }

    fn blocks(&self) -> Option<&BlockSurface> {
        if let Self::Blocks(surface) = self { Some(surface) } else { None }
    }

    /// Refuses what the engine would refuse, or would take for other memory.
    fn check(&self, what: &'static str, copy: &SurfaceCopy, bits: u32) -> Result<(), Error> {
        let (line, lines) = (u64::from(copy.line_bytes), u64::from(copy.lines));
        let Some(surface) = self.blocks() else {
            return check_range(what, self.va(), (lines - 1) * u64::from(self.pitch()) + line, bits);
        };
        check_va(what, surface.va, GOB_BYTES, bits)?;
        let inside = |what, from: u32, count, size: u32| {
            check_count(what, count, u64::from(size.saturating_sub(from)))
        };
        inside("bytes of a line in a block-linear surface", surface.x, line, surface.width)?;
        inside("lines of a copy in a block-linear surface", surface.y, lines, surface.height)?;
        let height = u64::from(surface.block_height_log2) + 1;
        check_count("height of a block", height, u64::from(MAX_BLOCK_HEIGHT_LOG2) + 1)?;
        check_range(what, surface.va, surface.bytes().unwrap_or(u64::MAX), bits)
    }
}

/// A copy of a rectangle between pitch-linear lines and block-linear surfaces, in any combination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SurfaceCopy {
    /// The side to read.
    pub source: CopySide,
    /// The side to write.
    pub destination: CopySide,
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

    /// Copies a rectangle. 11 words, and 9 for each block-linear side.
    ///
    /// # Errors
    ///
    /// [`Error::Length`] for 0 lines or 0 bytes, for a rectangle that leaves its block-linear surface, or for a block
    /// of more than 32 GOBs. [`Error::Misaligned`], [`Error::AddressTooHigh`] or [`Error::Full`].
    pub fn surface_copy(&mut self, copy: &SurfaceCopy) -> Result<(), Error> {
        check_count("bytes of a line", u64::from(copy.line_bytes), u64::from(u32::MAX))?;
        check_count("lines of a copy", u64::from(copy.lines), u64::from(u32::MAX))?;
        let bits = self.target().engine_va_bits();
        copy.source.check("copy source", copy, bits)?;
        copy.destination.check("copy destination", copy, bits)?;
        let mut launch = LaunchDma { multi_line_enable: true, ..transfer() };
        let [in_upper, in_lower] = upper_lower(copy.source.va());
        let [out_upper, out_lower] = upper_lower(copy.destination.va());
        let pitches = [copy.source.pitch(), copy.destination.pitch()];
        self.together::<29>(|encoder| {
            encoder.methods(
                Subchannel::COPY,
                OffsetInUpper::ADDRESS,
                &[
                    in_upper,
                    in_lower,
                    out_upper,
                    out_lower,
                    pitches[0],
                    pitches[1],
                    copy.line_bytes,
                    copy.lines,
                ],
            )?;
            if let Some(surface) = copy.source.blocks() {
                launch.src_memory_layout = LaunchDmaSrcMemoryLayout::Blocklinear;
                encoder.blocks(surface, SetSrcBlockSize::ADDRESS, SrcOriginX::ADDRESS)?;
            }
            if let Some(surface) = copy.destination.blocks() {
                launch.dst_memory_layout = LaunchDmaDstMemoryLayout::Blocklinear;
                encoder.blocks(surface, SetDstBlockSize::ADDRESS, DstOriginX::ADDRESS)?;
            }
            encoder.method(Subchannel::COPY, &launch)
        })
    }

    /// Sets block size, width, height, depth and layer from method `size` on, and the origin from `origin` on: the
    /// methods of both sides are alike.
    fn blocks(&mut self, surface: &BlockSurface, size: u32, origin: u32) -> Result<(), Error> {
        let block = SetSrcBlockSize {
            height: SetSrcBlockSizeHeight::from_bits(surface.block_height_log2),
            gob_height: SetSrcBlockSizeGobHeight::GobHeightFermi8,
            ..SetSrcBlockSize::default()
        };
        let values = [block.encode()?, surface.width, surface.height, 1, 0];
        self.methods(Subchannel::COPY, size, &values)?;
        self.methods(Subchannel::COPY, origin, &[surface.x, surface.y])
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
