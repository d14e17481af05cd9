//! Work on memory by address: launches, copies and fills whose memory the queue knows by its GPU address only.
//!
//! For libraries whose users hold addresses instead of buffers. An address in a buffer of the device leads to the
//! buffer: a copy or fill beyond its end is refused, and the buffer records the use. An address in no buffer goes to
//! the GPU as it is. A launch does not look for buffers; [`QueueOptions::any_memory`](super::QueueOptions::any_memory)
//! makes dropped buffers wait for it.

use ampere_cmd::command::{
    AcquireCondition, BlockSurface, CopySide, Payload, SemaphoreAcquire, SemaphoreRelease, SurfaceCopy,
};
use gpu_hal::MemoryUse;

use super::{Download, Queue};
use crate::args::FillValue;
use crate::error::{RangeError, Result};
use crate::heap::Memory;
use crate::launch::record::Parameters;
use crate::limits::Dim3;
use crate::memory::{Buffer, field};
use crate::program::Kernel;
use crate::wait::Fence;

/// Lines of memory by address: [`Queue::copy_raw_2d`], [`Queue::fill_raw_2d`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawPlane {
    /// GPU address of the first line.
    pub gpu_va: u64,
    /// Distance between the starts of two lines in bytes, at most 4 GiB.
    pub pitch: u64,
}

/// Lines of memory by address, or a rectangle of a block-linear surface: one side of a raw copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RawSide {
    /// Lines.
    Lines(RawPlane),
    /// A rectangle.
    Blocks(BlockSurface),
}

impl From<RawPlane> for RawSide {
    fn from(plane: RawPlane) -> Self {
        Self::Lines(plane)
    }
}

impl From<BlockSurface> for RawSide {
    fn from(surface: BlockSurface) -> Self {
        Self::Blocks(surface)
    }
}

impl RawSide {
    /// First address, and the bytes that a copy of lines may reach from there.
    fn range(self, line_bytes: u64, lines: u64) -> (u64, u64) {
        match self {
            Self::Lines(plane) => (plane.gpu_va, plane.span(line_bytes, lines)),
            Self::Blocks(surface) => (surface.va, surface.bytes().unwrap_or(u64::MAX)),
        }
    }

    fn side(self) -> Result<CopySide> {
        Ok(match self {
            Self::Lines(plane) => CopySide::Pitch { va: plane.gpu_va, pitch: field(plane.pitch)? },
            Self::Blocks(surface) => CopySide::Blocks(surface),
        })
    }

    /// The distance between lines.
    fn pitch(self) -> Option<u64> {
        if let Self::Lines(plane) = self { Some(plane.pitch) } else { None }
    }
}

impl RawPlane {
    /// Bytes from the first to the last one of `lines` lines of `line_bytes` bytes.
    fn span(self, line_bytes: u64, lines: u64) -> u64 {
        self.pitch.saturating_mul(lines.saturating_sub(1)).saturating_add(line_bytes)
    }
}

impl Queue {
    /// Adds a launch whose parameters are a block of bytes: each parameter at its offset
    /// ([`Kernel::parameter_offsets`]), pointers as GPU addresses. The block can be changed as soon as the call
    /// returns.
    ///
    /// ```
    /// # #[cfg(feature = "sim")] fn main() -> tegra_hcq::Result<()> {
    /// # let device = tegra_hcq::Device::open(tegra_hcq::DeviceKind::Sim)?;
    /// # let cubin = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/vector_add.cubin"));
    /// use tegra_hcq::{Program, QueueOptions};
    ///
    /// let kernel = Program::load(&device, cubin)?.kernel("vector_add")?;
    /// let mut queue = device.queue_with(&QueueOptions::default().any_memory(true))?;
    /// let (a, b) = (device.alloc_from(&[1.0_f32; 64])?, device.alloc_from(&[2.0_f32; 64])?);
    /// let c = device.alloc::<f32>(64)?;
    /// let mut block = Vec::new();
    /// for address in [a.gpu_va(), b.gpu_va(), c.gpu_va()] {
    ///     block.extend_from_slice(&address.to_le_bytes());
    /// }
    /// block.extend_from_slice(&64_u32.to_le_bytes());
    /// // SAFETY: reads a[i] and b[i] and writes c[i] for i < 64.
    /// unsafe { queue.launch_raw(&kernel, 1, 64, 0, &block)? };
    /// drop((a, b)); // Their memory waits for the queue.
    /// queue.wait(tegra_hcq::DEFAULT_TIMEOUT)?;
    /// assert_eq!(c.to_vec()?, [3.0; 64]);
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "sim"))] fn main() {}
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Arguments`](crate::Error::Arguments) if the block does not have [`Kernel::block_bytes`] bytes.
    /// Otherwise as [`Queue::launch`].
    ///
    /// # Safety
    ///
    /// As for [`Queue::launch_with_shared`], where no buffer is among the arguments: the caller keeps all memory that
    /// the kernel accesses allocated until the work has ended (a queue with
    /// [`QueueOptions::any_memory`](super::QueueOptions::any_memory) keeps that of this device itself), and neither
    /// views it nor lets other work write it meanwhile.
    pub unsafe fn launch_raw(
        &mut self,
        kernel: &Kernel,
        grid: impl Into<Dim3>,
        block: impl Into<Dim3>,
        shared_bytes: u32,
        parameters: &[u8],
    ) -> Result<()> {
        self.add_launch(kernel, grid.into(), block.into(), shared_bytes, Parameters::Block(parameters))
    }

    /// Adds a copy of `bytes` bytes between two GPU addresses. The way is chosen as for [`Queue::copy`] if both are in
    /// buffers of this device; otherwise the copy engine copies.
    ///
    /// # Errors
    ///
    /// [`RangeError::Memory`] if an address is in a buffer that ends before the copy does, or in a freed one. Also
    /// returns an error if an address does not fit the copy engine, or if the queue has faulted.
    ///
    /// # Safety
    ///
    /// Until the copy has ended, the caller keeps the memory allocated (as for [`Queue::launch_raw`]), nothing writes
    /// the source, nothing else accesses the target, and no reference to the target exists. The two do not overlap.
    pub unsafe fn copy_raw(&mut self, source: u64, target: u64, bytes: u64) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let heap = self.state.heap();
        let (from, to) = (heap.find(source, bytes)?, heap.find(target, bytes)?);
        self.copy_blocks((source, from.as_deref()), (target, to.as_deref()), bytes)
    }

    /// Adds a copy of `lines` lines of `line_bytes` bytes; either side may be part of a block-linear surface.
    ///
    /// # Errors
    ///
    /// As [`Queue::copy_raw`]; [`RangeError::TooLarge`] if a pitch, a line or the number of lines exceeds 32 bits.
    ///
    /// # Safety
    ///
    /// As for [`Queue::copy_raw`], for all bytes of the lines.
    pub unsafe fn copy_raw_2d(
        &mut self,
        source: impl Into<RawSide>,
        target: impl Into<RawSide>,
        line_bytes: u64,
        lines: u64,
    ) -> Result<()> {
        let sides @ [source, target] = [source.into(), target.into()];
        if let [RawSide::Lines(from), RawSide::Lines(to)] = sides
            && (lines <= 1 || sides.iter().all(|side| side.pitch() == Some(line_bytes)))
        {
            // SAFETY: the caller's promise, for adjacent lines.
            return unsafe { self.copy_raw(from.gpu_va, to.gpu_va, line_bytes.saturating_mul(lines)) };
        }
        if line_bytes == 0 || lines == 0 {
            return Ok(());
        }
        let heap = self.state.heap();
        let blocks = sides.map(|side| {
            let (va, bytes) = side.range(line_bytes, lines);
            heap.find(va, bytes)
        });
        let [from, to] = blocks;
        let blocks = [from?, to?];
        let copy = SurfaceCopy {
            source: source.side()?,
            destination: target.side()?,
            line_bytes: field(line_bytes)?,
            lines: field(lines)?,
        };
        self.copy_lines(&copy, |queue| blocks.iter().flatten().for_each(|block| queue.note_block(block)))
    }

    /// Adds a fill of `len` elements at a GPU address, a multiple of their size.
    ///
    /// # Errors
    ///
    /// As [`Queue::copy_raw`]; also returns an error if the address is not aligned.
    ///
    /// # Safety
    ///
    /// As for the target of [`Queue::copy_raw`].
    pub unsafe fn fill_raw<T: FillValue>(&mut self, target: u64, value: T, len: usize) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        // CAST: usize is at most 64 bits.
        let block = self.state.heap().find(target, (len as u64).saturating_mul(size_of::<T>() as u64))?;
        self.fill_at(target, value, len, |queue| block.iter().for_each(|block| queue.note_block(block)))
    }

    /// Adds a fill of `rows` rows of `columns` elements; address and pitch are multiples of their size.
    ///
    /// # Errors
    ///
    /// As [`Queue::fill_raw`] and [`Queue::copy_raw_2d`].
    ///
    /// # Safety
    ///
    /// As for [`Queue::fill_raw`], for all elements of the rows.
    pub unsafe fn fill_raw_2d<T: FillValue>(
        &mut self,
        target: RawPlane,
        value: T,
        columns: usize,
        rows: usize,
    ) -> Result<()> {
        if columns == 0 || rows == 0 {
            return Ok(());
        }
        // CAST: usize is at most 64 bits.
        let line = (columns as u64).saturating_mul(size_of::<T>() as u64);
        let block = self.state.heap().find(target.gpu_va, target.span(line, rows as u64))?;
        let note = |queue: &Self| block.iter().for_each(|block| queue.note_block(block));
        self.fill_lines(target, value, columns, rows, note)
    }

    /// Writes a number of 32 or 64 bits to a GPU address, a multiple of its size, after all earlier work has ended. Who
    /// reads the number sees what the work has written.
    ///
    /// # Errors
    ///
    /// As [`Queue::fill_raw`].
    ///
    /// # Safety
    ///
    /// As for the target of [`Queue::copy_raw`].
    pub unsafe fn write_raw(&mut self, target: u64, value: Payload) -> Result<()> {
        let block = self.state.heap().find(target, value.bytes())?;
        self.step(|encoder, busy| {
            let release =
                SemaphoreRelease { va: target, payload: value, wait_for_idle: busy, timestamp: false };
            encoder.semaphore_release(&release)
        })?;
        self.batch.set_busy(false);
        block.iter().for_each(|block| self.note_block(block));
        Ok(())
    }

    /// Makes the queue wait until a number at a GPU address, a multiple of its size, meets a condition with `value`:
    /// what the CPU, another queue or another process writes there.
    ///
    /// ```
    /// # #[cfg(feature = "sim")] fn main() -> tegra_hcq::Result<()> {
    /// # let device = tegra_hcq::Device::open(tegra_hcq::DeviceKind::Sim)?;
    /// use tegra_hcq::{AcquireCondition, DEFAULT_TIMEOUT, Payload};
    ///
    /// let words = device.alloc_zeroed::<u64>(2)?;
    /// let (mut early, mut late) = (device.queue()?, device.queue()?);
    /// // SAFETY: `words` lives longer than the work, and nothing else uses it.
    /// unsafe {
    ///     late.poll_raw(words.gpu_va(), Payload::Bits64(1 << 40), AcquireCondition::StrictGreaterOrEqual)?;
    ///     late.write_raw(words.gpu_va() + 12, Payload::Bits32(7))?;
    ///     let end = late.submit()?;
    ///     early.write_raw(words.gpu_va(), Payload::Bits64(1 << 41))?;
    ///     early.submit()?;
    ///     end.wait(DEFAULT_TIMEOUT)?;
    /// }
    /// assert_eq!(words.to_vec()?, [1 << 41, 7 << 32]);
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "sim"))] fn main() {}
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Queue::fill_raw`].
    ///
    /// # Safety
    ///
    /// The caller keeps the memory allocated until the wait has ended, as for [`Queue::launch_raw`].
    pub unsafe fn poll_raw(
        &mut self,
        source: u64,
        value: Payload,
        condition: AcquireCondition,
    ) -> Result<()> {
        let block = self.state.heap().find(source, value.bytes())?;
        let acquire = SemaphoreAcquire { va: source, payload: value, condition, switch_tsg: !self.hold };
        self.step(|encoder, _| encoder.semaphore_acquire(&acquire))?;
        block.iter().for_each(|block| self.note_block(block));
        Ok(())
    }

    /// As [`Queue::upload`], to a GPU address.
    ///
    /// # Errors
    ///
    /// As [`Queue::copy_raw`] and [`Queue::upload`].
    ///
    /// # Safety
    ///
    /// As for the target of [`Queue::copy_raw`].
    pub unsafe fn upload_raw(&mut self, source: &[u8], target: u64) -> Result<Fence> {
        let mut staged = self.stage(source.len(), MemoryUse::Upload)?;
        staged.copy_from_slice(source)?;
        // SAFETY: the caller's promise; the queue records the use of the staged bytes, whose size is that of `source`.
        unsafe { self.copy_raw(staged.gpu_va(), target, source.len() as u64)? };
        self.submit()
    }

    /// As [`Queue::upload_raw`], for `lines` lines of `line_bytes` bytes: line `i` of the target receives the bytes of
    /// `source` from `i * source_pitch` on.
    ///
    /// # Errors
    ///
    /// As [`Queue::upload_raw`] and [`Queue::copy_raw_2d`]; [`RangeError::Shapes`] if `source` is too short or its
    /// pitch is shorter than a line.
    ///
    /// # Safety
    ///
    /// As for the target of [`Queue::copy_raw_2d`].
    pub unsafe fn upload_raw_2d(
        &mut self,
        source: &[u8],
        source_pitch: usize,
        target: impl Into<RawSide>,
        line_bytes: usize,
        lines: usize,
    ) -> Result<Fence> {
        if line_bytes == 0 || lines == 0 {
            return self.submit();
        }
        let last = (lines - 1).saturating_mul(source_pitch).saturating_add(line_bytes);
        if source_pitch < line_bytes || source.len() < last {
            let source_size = (source_pitch, source.len() / source_pitch.max(1));
            return Err(RangeError::Shapes { source_size, target_size: (line_bytes, lines) }.into());
        }
        let mut staged: Buffer<u8> = self.stage(line_bytes * lines, MemoryUse::Upload)?;
        for (line, bytes) in source.chunks(source_pitch).take(lines).enumerate() {
            let start = line * line_bytes;
            staged.slice_mut(start..start + line_bytes)?.copy_from_slice(&bytes[..line_bytes])?;
        }
        // CAST: usize is at most 64 bits.
        let from = RawPlane { gpu_va: staged.gpu_va(), pitch: line_bytes as u64 };
        // SAFETY: as in `upload_raw`.
        unsafe { self.copy_raw_2d(from, target, line_bytes as u64, lines as u64)? };
        self.submit()
    }

    /// As [`Queue::download`], from a GPU address.
    ///
    /// # Errors
    ///
    /// As [`Queue::copy_raw`] and [`Queue::download`].
    ///
    /// # Safety
    ///
    /// As for the source of [`Queue::copy_raw`].
    pub unsafe fn download_raw(&mut self, source: u64, bytes: usize) -> Result<Download<u8>> {
        let staged = self.stage(bytes, MemoryUse::ReadBack)?;
        // SAFETY: as in `upload_raw`.
        unsafe { self.copy_raw(source, staged.gpu_va(), bytes as u64)? };
        Ok(Download::new(staged, self.submit()?))
    }

    /// As [`Queue::download_raw`], for `lines` lines of `line_bytes` bytes. The result contains them without gaps.
    ///
    /// # Errors
    ///
    /// As [`Queue::copy_raw_2d`] and [`Queue::download`].
    ///
    /// # Safety
    ///
    /// As for the source of [`Queue::copy_raw_2d`].
    pub unsafe fn download_raw_2d(
        &mut self,
        source: impl Into<RawSide>,
        line_bytes: usize,
        lines: usize,
    ) -> Result<Download<u8>> {
        let staged = self.stage(line_bytes.saturating_mul(lines), MemoryUse::ReadBack)?;
        // CAST: usize is at most 64 bits.
        let to = RawPlane { gpu_va: staged.gpu_va(), pitch: line_bytes as u64 };
        // SAFETY: as in `upload_raw`.
        unsafe { self.copy_raw_2d(source, to, line_bytes as u64, lines as u64)? };
        Ok(Download::new(staged, self.submit()?))
    }

    /// As [`Queue::note`], for a block of this device that was found by an address.
    pub(super) fn note_block(&self, block: &Memory) {
        block.uses.note(self.state.slot, self.next_value());
    }
}
