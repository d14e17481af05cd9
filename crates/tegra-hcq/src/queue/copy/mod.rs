//! Copies: between buffers, and staged ones from and to memory of the process.

use std::sync::Arc;

use ampere_cmd::command::{LinearCopy, MAX_COPY_PIECE, SurfaceCopy};
use ampere_cmd::pushbuffer::Subchannel;
use gpu_hal::MemoryUse;
use gpu_hal::chip::PeerCopies;

use super::Queue;
use super::schedule::Engine;
use crate::error::{RangeError, Result};
use crate::heap::{Handle, Memory};
use crate::launch::lanes::Lane;
use crate::launch::record::Parameters;
use crate::memory::{Buffer, Plane, PlaneMut, Pod, Slice, SliceMut, field};
use crate::profile::Work;
use crate::shared::Shared;
use crate::transfer::{self, Copies};
use crate::wait::{Fence, OpenChannels, WaitPolicy};

mod download;
#[cfg(test)]
mod tests;

pub use download::Download;

/// What performs the copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// The queue's copy engine.
    Engine,
    Kernel,
    /// The engine for copies between GPUs, if there is one, or else a kernel.
    Link,
}

/// What copies other than the queue's copy engine.
#[derive(Debug)]
pub(super) struct Copier {
    /// Smallest copy in bytes for which a kernel copies inside the GPU's own memory.
    from: Option<u64>,
    peers: PeerCopies,
    /// Kept loaded after the first copy by a kernel.
    kernels: Option<Copies>,
    /// Whether there is no engine for copies between GPUs.
    no_link: bool,
}

impl Copier {
    pub(super) fn new(device: &Shared) -> Self {
        let driver = device.driver();
        let (from, peers) = (driver.copies_by_kernel_from(), driver.peer_copies());
        Self { from, peers, kernels: None, no_link: false }
    }

    /// The kernels that copy, loaded at the first call.
    fn kernels(&mut self, device: &Arc<Shared>) -> Result<&Copies> {
        match &mut self.kernels {
            Some(kernels) => Ok(kernels),
            none => Ok(none.insert(Copies::new(device)?)),
        }
    }

    /// The fastest way to copy `bytes` bytes between device memory, of which one piece is a peer's or none.
    #[inline]
    fn way(&self, peers: bool, bytes: u64) -> Way {
        let reaches = |least: Option<u64>| least.is_some_and(|least| bytes >= least);
        if peers && reaches(self.peers.by_link_engine_from) {
            Way::Link
        } else if reaches(if peers { self.peers.by_kernel_from } else { self.from }) {
            Way::Kernel
        } else {
            Way::Engine
        }
    }
}

/// Largest copy in bytes whose commands one step has room for.
const STEP_BYTES: u64 = 8 * MAX_COPY_PIECE;

impl Queue {
    /// Adds a copy of all of `source` to `target`. The copy engine copies, or a kernel if that is faster and both
    /// buffers are in memory of GPUs. Large copies between two GPUs run on the engine for NVLink, if there is one.
    ///
    /// # Errors
    ///
    /// Returns an error if the lengths differ, if a buffer belongs to another device, or if the queue has faulted.
    pub fn copy<'s, 't, T: Pod>(
        &mut self,
        source: impl Into<Slice<'s, T>>,
        target: impl Into<SliceMut<'t, T>>,
    ) -> Result<()> {
        let (source, target) = (source.into(), target.into());
        self.copy_slices(source, target.as_slice())
    }

    /// As [`Queue::copy`]; the caller has borrowed the target exclusively.
    pub(crate) fn copy_slices<T: Pod>(&mut self, source: Slice<'_, T>, target: Slice<'_, T>) -> Result<()> {
        if source.len() != target.len() {
            return Err(RangeError::Lengths { source_len: source.len(), target_len: target.len() }.into());
        }
        self.check_device("the source of the copy", source.handle())?;
        self.check_device("the target of the copy", target.handle())?;
        let bytes = (source.len() * size_of::<T>()) as u64;
        if bytes == 0 {
            return Ok(());
        }
        match self.way(source.handle(), target.handle(), bytes) {
            Way::Link if self.has_link()? => self.copy_on(Engine::Link, source, target, bytes),
            Way::Engine => self.copy_on(Engine::Copy, source, target, bytes),
            Way::Kernel | Way::Link => self.copy_by_kernel(source, target, bytes),
        }
    }

    fn copy_by_kernel<T: Pod>(
        &mut self,
        source: Slice<'_, T>,
        target: Slice<'_, T>,
        bytes: u64,
    ) -> Result<()> {
        let step = self.copier.kernels(&self.state.device)?.step(&self.state.device, &source, &target, bytes);
        // SAFETY: the kernel copies `bytes` bytes, the size of both parts; the caller has borrowed the target
        // exclusively.
        unsafe { self.launch(&step.kernel, step.grid, transfer::BLOCK, &step.arguments) }
    }

    fn copy_on<T: Pod>(
        &mut self,
        engine: Engine,
        source: Slice<'_, T>,
        target: Slice<'_, T>,
        bytes: u64,
    ) -> Result<()> {
        self.copy_at(engine, source.gpu_va(), target.gpu_va(), bytes, |queue| {
            queue.note(source.handle());
            queue.note(target.handle());
        })
    }

    /// Adds a copy between two GPU addresses by an engine; `note` records the use of the memory.
    fn copy_at(
        &mut self,
        engine: Engine,
        source: u64,
        target: u64,
        bytes: u64,
        note: impl FnOnce(&Self),
    ) -> Result<()> {
        if self.profiling.enabled {
            self.begin_span(engine, Work::Copy { bytes })?;
        }
        let mut done = 0;
        while done < bytes {
            self.begin(engine)?;
            let piece = (bytes - done).min(STEP_BYTES);
            let (source, destination) = (source.saturating_add(done), target.saturating_add(done));
            self.encode(|encoder| encoder.linear_copy(&LinearCopy { source, destination, bytes: piece }))?;
            self.batch.set_busy(true);
            done += piece;
        }
        note(self);
        if self.profiling.enabled {
            self.end_span(engine)?;
        }
        if engine == Engine::Link && self.state.policy == WaitPolicy::Sleep {
            // No thread waits on that channel's interrupt. This submits the copy, and an empty batch waits for its end.
            self.begin(Engine::Compute)?;
        }
        Ok(())
    }

    /// The fastest way to copy `bytes` bytes.
    #[inline]
    fn way(&self, source: &Handle, target: &Handle, bytes: u64) -> Way {
        let handles = [source, target];
        if handles.iter().any(|handle| handle.memory().purpose() != MemoryUse::Device) {
            return Way::Engine;
        }
        let peers = handles.iter().any(|handle| !Arc::ptr_eq(handle.heap(), self.state.heap()));
        self.copier.way(peers, bytes)
    }

    /// Whether there is an engine for copies between GPUs; the first call opens its channel.
    fn has_link(&mut self) -> Result<bool> {
        // Rebuilds a recovered queue, which closes the channel.
        self.check_health()?;
        if self.lanes.link.is_some() || self.copier.no_link {
            return Ok(self.lanes.link.is_some());
        }
        self.open_link()?;
        Ok(self.lanes.link.is_some())
    }

    #[cold]
    fn open_link(&mut self) -> Result<()> {
        // Until it is open: the group is asked once.
        self.copier.no_link = true;
        let Some(OpenChannels { group, .. }) = self.state.channels() else { return Ok(()) };
        let before = group.channel_ids();
        let ring = match Arc::clone(&group).open_link() {
            Ok(Some(ring)) => ring,
            Ok(None) => return Ok(()),
            Err(error) => {
                tracing::debug!(%error, "no channel for copies between GPUs; kernels copy");
                return Ok(());
            }
        };
        let ids: Vec<_> = group.channel_ids().into_iter().filter(|id| !before.contains(id)).collect();
        // As for the queue's other channels: lines so far are about others.
        let _ = self.state.device.kernel_log_about(&ids);
        let view = ring.view();
        self.lanes.link = Some(Lane::new(&self.state.device, ring)?);
        self.copier.no_link = false;
        self.state.add_ring(view);
        let class = self.state.device.driver().properties().copy_class;
        self.begin(Engine::Link)?;
        self.encode(|encoder| encoder.set_object(Subchannel::COPY, class))?;
        tracing::debug!(queue = self.state.slot, "channel for copies between GPUs opened");
        Ok(())
    }

    /// Adds a copy of a rectangle to a rectangle of the same shape by the copy engine. Either may be part of a
    /// block-linear surface ([`Slice::blocks`]).
    ///
    /// ```
    /// # #[cfg(feature = "sim")] fn main() -> tegra_hcq::Result<()> {
    /// # use tegra_hcq::{DEFAULT_TIMEOUT, Device, DeviceKind};
    /// # let device = Device::open(DeviceKind::Sim)?;
    /// # let mut queue = device.queue()?;
    /// let image = device.alloc_from(&(0..640 * 480).collect::<Vec<u32>>())?;
    /// let mut part = device.alloc::<u32>(64 * 48)?;
    /// queue.copy_2d(image.plane(640)?.part(100..164, 200..248)?, part.plane_mut(64)?)?;
    /// queue.wait(DEFAULT_TIMEOUT)?;
    /// assert_eq!(part.to_vec()?[64], 201 * 640 + 100);
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "sim"))] fn main() {}
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if the shapes differ, if a row or pitch has more than 4 GiB, if a block-linear surface does not
    /// begin at a multiple of 512 bytes, if a buffer belongs to another device, or if the queue has faulted.
    pub fn copy_2d<T: Pod>(&mut self, source: Plane<'_, T>, target: PlaneMut<'_, T>) -> Result<()> {
        let target = target.as_plane();
        let (source_size, target_size) =
            ((source.columns(), source.rows()), (target.columns(), target.rows()));
        if source_size != target_size {
            return Err(RangeError::Shapes { source_size, target_size }.into());
        }
        self.check_device("the source of the copy", source.handle())?;
        self.check_device("the target of the copy", target.handle())?;
        let line = source.columns() * size_of::<T>();
        if line == 0 || source.rows() == 0 {
            return Ok(());
        }
        // CAST: usize is at most 64 bits.
        let copy = SurfaceCopy {
            source: source.side()?,
            destination: target.side()?,
            line_bytes: field(line as u64)?,
            lines: field(source.rows() as u64)?,
        };
        self.copy_lines(&copy, |queue| {
            queue.note(source.handle());
            queue.note(target.handle());
        })
    }

    /// Adds a copy of lines by the copy engine; `note` records the use of the memory.
    pub(super) fn copy_lines(&mut self, copy: &SurfaceCopy, note: impl FnOnce(&Self)) -> Result<()> {
        if self.profiling.enabled {
            let bytes = u64::from(copy.line_bytes) * u64::from(copy.lines);
            self.begin_span(Engine::Copy, Work::Copy { bytes })?;
        }
        self.begin(Engine::Copy)?;
        self.encode(|encoder| encoder.surface_copy(copy))?;
        self.batch.set_busy(true);
        note(self);
        if self.profiling.enabled { self.end_span(Engine::Copy) } else { Ok(()) }
    }

    /// Adds a copy between two GPU addresses, in these blocks if they are known, by what is fastest.
    pub(super) fn copy_blocks(
        &mut self,
        source: (u64, Option<&Memory>),
        target: (u64, Option<&Memory>),
        bytes: u64,
    ) -> Result<()> {
        let blocks = [source.1, target.1];
        let is_device =
            |block: Option<&Memory>| block.is_some_and(|block| block.purpose() == MemoryUse::Device);
        let own = blocks.into_iter().all(is_device);
        let note = |queue: &Self| blocks.into_iter().flatten().for_each(|block| queue.note_block(block));
        if !own || self.copier.way(false, bytes) != Way::Kernel {
            return self.copy_at(Engine::Copy, source.0, target.0, bytes, note);
        }
        let device = Arc::clone(&self.state.device);
        let step = self.copier.kernels(&device)?.raw_step(&device, source.0, target.0, bytes);
        let parameters = Parameters::List(&step.arguments);
        self.add_launch(&step.kernel, step.grid.into(), transfer::BLOCK.into(), 0, parameters)?;
        note(self);
        Ok(())
    }

    /// Copies `source` to `target` after all earlier work of the queue, and returns at once. The fence is that of the
    /// copy, which is submitted with the open batch. `source` may be changed or dropped as soon as the call returns.
    ///
    /// The elements are staged in memory of the device, which is free again after the copy has ended.
    /// [`Buffer::copy_from_slice`] is faster if nothing uses the buffer.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory) if there is no memory to stage the elements; as
    /// [`Queue::copy`] and [`Queue::submit`].
    pub fn upload<'t, T: Pod>(&mut self, source: &[T], target: impl Into<SliceMut<'t, T>>) -> Result<Fence> {
        let target = target.into();
        if source.len() != target.len() {
            return Err(RangeError::Lengths { source_len: source.len(), target_len: target.len() }.into());
        }
        let mut staged = self.stage(source.len(), MemoryUse::Upload)?;
        staged.copy_from_slice(source)?;
        self.copy(&staged, target)?;
        self.submit()
    }

    /// As [`Queue::upload`], for a rectangle: row `i` of the target receives the elements of `source` from
    /// `i * source_pitch` on.
    ///
    /// # Errors
    ///
    /// As [`Queue::upload`] and [`Queue::copy_2d`]; [`Error::Range`](crate::Error::Range) if `source` is too short or
    /// its pitch is shorter than a row.
    pub fn upload_2d<T: Pod>(
        &mut self,
        source: &[T],
        source_pitch: usize,
        target: PlaneMut<'_, T>,
    ) -> Result<Fence> {
        let (columns, rows) = (target.columns(), target.rows());
        let last = rows.saturating_sub(1).saturating_mul(source_pitch).saturating_add(columns);
        if columns > 0 && rows > 0 && (source_pitch < columns || source.len() < last) {
            let source_size = (source_pitch, source.len() / source_pitch.max(1));
            return Err(RangeError::Shapes { source_size, target_size: (columns, rows) }.into());
        }
        let mut staged = self.stage(columns * rows, MemoryUse::Upload)?;
        if !staged.is_empty() {
            for (row, line) in source.chunks(source_pitch).take(rows).enumerate() {
                let start = row * columns;
                staged.slice_mut(start..start + columns)?.copy_from_slice(&line[..columns])?;
            }
            self.copy_2d(staged.plane(columns)?, target)?;
        }
        self.submit()
    }

    /// Copies `source` to memory of the device after all earlier work of the queue, and returns at once. The result
    /// waits for the copy, which is submitted with the open batch. Later work may change `source` meanwhile.
    ///
    /// ```
    /// # #[cfg(feature = "sim")] fn main() -> tegra_hcq::Result<()> {
    /// # use tegra_hcq::{DEFAULT_TIMEOUT, Device, DeviceKind};
    /// # let device = Device::open(DeviceKind::Sim)?;
    /// # let mut queue = device.queue()?;
    /// let mut data = device.alloc::<f32>(1000)?;
    /// queue.upload(&[2.0; 500], data.slice_mut(..500)?)?;
    /// let first = queue.download(data.slice(..10)?)?;
    /// queue.fill(&mut data, 3.0)?; // after the download
    /// assert_eq!(first.wait(DEFAULT_TIMEOUT)?, [2.0; 10]);
    /// # queue.wait(DEFAULT_TIMEOUT)?;
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "sim"))] fn main() {}
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Queue::upload`].
    pub fn download<'s, T: Pod>(&mut self, source: impl Into<Slice<'s, T>>) -> Result<Download<T>> {
        let source = source.into();
        let mut staged = self.stage(source.len(), MemoryUse::ReadBack)?;
        self.copy(source, &mut staged)?;
        Ok(Download::new(staged, self.submit()?))
    }

    /// As [`Queue::download`], for a rectangle. The result contains its rows without gaps.
    ///
    /// # Errors
    ///
    /// As [`Queue::download`] and [`Queue::copy_2d`].
    pub fn download_2d<T: Pod>(&mut self, source: Plane<'_, T>) -> Result<Download<T>> {
        let (columns, rows) = (source.columns(), source.rows());
        let mut staged = self.stage(columns * rows, MemoryUse::ReadBack)?;
        if !staged.is_empty() {
            self.copy_2d(source, staged.plane_mut(columns)?)?;
        }
        Ok(Download::new(staged, self.submit()?))
    }

    /// Memory for a staged copy of `len` elements.
    pub(super) fn stage<T: Pod>(&self, len: usize, purpose: MemoryUse) -> Result<Buffer<T>> {
        Buffer::new(self.state.heap(), len, purpose)
    }
}
