//! Several devices in one process: access to each other's memory, signals that two devices see, and copies between
//! them.
//!
//! A driver may let a GPU map memory of another one ([`PeerAccess::Direct`]). The memory then has the same address on
//! both, and every step of a queue accepts buffers, signals and fences of the other device. Where the driver cannot,
//! copies are staged ([`PeerAccess::Staged`]): the queue of the source copies to memory of the process, the queue of
//! the target copies from it, and the two wait for each other on the GPUs.

use core::fmt;
use std::sync::Arc;
use std::time::Duration;

use gpu_hal::PeerLink;

use crate::device::Device;
use crate::error::{Error, RangeError, Result};
use crate::heap::{Heap, Mapped};
use crate::memory::{Buffer, HostMemory, Pod, Slice, SliceMut};
use crate::queue::Queue;
use crate::signal::Signal;
use crate::wait::Fence;

/// Size of one piece of a staged copy in bytes.
const PIECE: usize = 4 << 20;
/// Number of pieces that may be on their way.
const PIECES: usize = 3;

/// How the queues of a device use memory of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PeerAccess {
    /// They access it in place.
    Direct(PeerLink),
    /// They cannot; [`Link::copy`] stages copies through memory of the process.
    Staged,
}

impl PeerAccess {
    /// Whether queues access the other device's memory in place.
    pub fn is_direct(self) -> bool {
        matches!(self, Self::Direct(_))
    }
}

impl fmt::Display for PeerAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Direct(PeerLink::Same) => f.write_str("direct (the same GPU)"),
            Self::Direct(link) => write!(f, "direct, over {link}"),
            Self::Staged => f.write_str("staged through host memory"),
        }
    }
}

impl Device {
    /// Lets the queues of this device use buffers, signals and fences of `other`, and the other way round, if the GPUs
    /// can map each other's memory. Buffers are mapped at their first use by the other device.
    ///
    /// Graphs accept buffers of their own device only.
    ///
    /// ```
    /// # #[cfg(feature = "sim")] fn main() -> tegra_hcq::Result<()> {
    /// use tegra_hcq::{Device, DeviceKind, PeerAccess};
    ///
    /// let [first, second] = [Device::open_nth(DeviceKind::Sim, 0)?, Device::open_nth(DeviceKind::Sim, 1)?];
    /// // Boards have no path to each other.
    /// assert_eq!(first.enable_peer(&second)?, PeerAccess::Staged);
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "sim"))] fn main() {}
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Driver`] if the driver fails to connect the GPUs.
    pub fn enable_peer(&self, other: &Self) -> Result<PeerAccess> {
        let (ours, theirs) = (self.shared().heap(), other.shared().heap());
        if Arc::ptr_eq(ours, theirs) {
            return Ok(PeerAccess::Direct(PeerLink::Same));
        }
        let links = [ours.connect(theirs)?, theirs.connect(ours)?];
        let access = match links {
            [Some(link), Some(_)] => PeerAccess::Direct(link),
            _ => PeerAccess::Staged,
        };
        tracing::debug!(%access, "devices connected");
        Ok(access)
    }

    /// Creates a signal that queues of both devices, and the CPU, set and wait for. It is in memory of the process,
    /// which both devices map.
    ///
    /// ```
    /// # #[cfg(feature = "sim")] fn main() -> tegra_hcq::Result<()> {
    /// # use tegra_hcq::{DEFAULT_TIMEOUT, Device, DeviceKind};
    /// let [first, second] = [Device::open_nth(DeviceKind::Sim, 0)?, Device::open_nth(DeviceKind::Sim, 1)?];
    /// let signal = first.shared_signal(&second, 0)?;
    /// let (mut early, mut late) = (first.queue()?, second.queue()?);
    /// late.wait_signal(&signal, 1)?;
    /// let end = late.submit()?;
    /// early.signal(&signal, 1)?;
    /// early.submit()?;
    /// end.wait(DEFAULT_TIMEOUT)?;
    /// assert_eq!(signal.value(), 1);
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "sim"))] fn main() {}
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Driver`] if a driver cannot map memory of the process.
    pub fn shared_signal(&self, other: &Self, value: u64) -> Result<Signal> {
        let page = Arc::new(HostMemory::<u64>::new(2)?);
        let handles = [self.import_shared(&page)?, other.import_shared(&page)?].map(Mapped::new);
        let [handle, twin] = handles;
        Ok(Signal::over(handle?, twin?, value))
    }

    /// Prepares copies between this device and another: see [`Link::copy`].
    ///
    /// # Errors
    ///
    /// As [`Device::enable_peer`] and [`Device::shared_signal`].
    pub fn link(&self, other: &Self) -> Result<Link> {
        let access = self.enable_peer(other)?;
        let stage = if access.is_direct() { None } else { Some(Stage::new([self, other])?) };
        let ends = [Arc::clone(self.shared().heap()), Arc::clone(other.shared().heap())];
        Ok(Link { ends, access, stage })
    }
}

/// Memory of the process that both devices have mapped, and the signals that guard it.
#[derive(Debug)]
struct Stage {
    /// The memory as each device sees it.
    memory: [Buffer<u8>; 2],
    /// Number of pieces written so far.
    filled: Arc<Signal>,
    /// Number of pieces read so far.
    emptied: Arc<Signal>,
    /// Number of pieces begun so far.
    pieces: u64,
}

impl Stage {
    fn new(devices: [&Device; 2]) -> Result<Self> {
        let host = Arc::new(HostMemory::<u8>::new(PIECE * PIECES)?);
        let map =
            |device: &Device| Ok::<_, Error>(Buffer::over(device.import_shared(&host)?, PIECE * PIECES));
        let memory = [map(devices[0])?, map(devices[1])?];
        let signal = || devices[0].shared_signal(devices[1], 0).map(Arc::new);
        Ok(Self { memory, filled: signal()?, emptied: signal()?, pieces: 0 })
    }

    /// Copies one piece; `ends` are the indices of the source's and the target's device.
    fn piece(
        &mut self,
        [from, to]: [&mut Queue; 2],
        ends: [usize; 2],
        source: Slice<'_, u8>,
        target: Slice<'_, u8>,
    ) -> Result<[Fence; 2]> {
        let piece = self.pieces + 1;
        let start = (self.pieces % PIECES as u64) as usize * PIECE;
        let [out, back] = ends.map(|end| self.memory[end].slice(start..start + source.len()));
        let (out, back) = (out?, back?);
        // The values of both signals rise by one from piece to piece, whichever queues copy the pieces.
        from.wait_signal(&self.filled, piece - 1)?;
        if let Some(last) = piece.checked_sub(PIECES as u64) {
            from.wait_signal(&self.emptied, last)?;
        }
        from.copy_slices(source, out)?;
        from.signal(&self.filled, piece)?;
        to.wait_signal(&self.emptied, piece - 1)?;
        to.wait_signal(&self.filled, piece)?;
        to.copy_slices(back, target)?;
        to.signal(&self.emptied, piece)?;
        let fences = [from.submit()?, to.submit()?];
        self.pieces = piece;
        Ok(fences)
    }
}

/// Copies between two devices. Created by [`Device::link`].
#[derive(Debug)]
pub struct Link {
    ends: [Arc<Heap>; 2],
    access: PeerAccess,
    /// For staged copies.
    stage: Option<Stage>,
}

impl Link {
    /// How the devices use each other's memory.
    pub fn access(&self) -> PeerAccess {
        self.access
    }

    /// Copies `source` to `target` after all earlier work of both queues, and submits the copy. Later work of both
    /// queues runs after it. The CPU does not take part.
    ///
    /// With direct access the queue of the source copies. A staged copy occupies both queues.
    ///
    /// # Errors
    ///
    /// [`Error::Range`] if the lengths differ, [`Error::OtherDevice`] if a queue or buffer does not belong to its end
    /// of the link, or if both queues belong to the same device. Also returns an error if a queue has faulted.
    pub fn copy<'s, 't, T: Pod>(
        &mut self,
        from: &mut Queue,
        source: impl Into<Slice<'s, T>>,
        to: &mut Queue,
        target: impl Into<SliceMut<'t, T>>,
    ) -> Result<Transfer> {
        let (source, target) = (source.into(), target.into());
        let target = target.as_slice();
        if source.len() != target.len() {
            return Err(RangeError::Lengths { source_len: source.len(), target_len: target.len() }.into());
        }
        let ends =
            [self.end_of(from, "the queue of the source")?, self.end_of(to, "the queue of the target")?];
        if ends[0] == ends[1] {
            return Err(Error::OtherDevice("neither of the queues".to_owned()));
        }
        for (what, slice, end) in
            [("the source of the copy", &source, ends[0]), ("the target of the copy", &target, ends[1])]
        {
            if !Arc::ptr_eq(slice.handle().heap(), &self.ends[end]) {
                return Err(Error::OtherDevice(what.to_owned()));
            }
        }
        let Some(stage) = &mut self.stage else {
            // Earlier work of the target's queue may use the target.
            from.wait_fence(&to.submit()?)?;
            from.copy_slices(source, target)?;
            let end = from.submit()?;
            to.wait_fence(&end)?;
            return Ok(Transfer { read: end.clone(), written: end, stuck: None });
        };
        let (source, target) = (source.bytes(), target.bytes());
        let mut last = [from.submit()?, to.submit()?];
        for start in (0..source.len()).step_by(PIECE) {
            let len = PIECE.min(source.len() - start);
            last = stage.piece(
                [&mut *from, &mut *to],
                ends,
                source.part(start..start + len)?,
                target.part(start..start + len)?,
            )?;
        }
        let [read, written] = last;
        let signals = [Arc::clone(&stage.filled), Arc::clone(&stage.emptied)];
        Ok(Transfer { read, written, stuck: Some((signals, stage.pieces)) })
    }

    /// Which end of the link the device of a queue is.
    fn end_of(&self, queue: &Queue, what: &str) -> Result<usize> {
        let end = self.ends.iter().position(|heap| Arc::ptr_eq(heap, queue.state.heap()));
        end.ok_or_else(|| Error::OtherDevice(what.to_owned()))
    }
}

/// A copy between two devices on its way.
///
/// ```
/// # #[cfg(feature = "sim")] fn main() -> tegra_hcq::Result<()> {
/// # use tegra_hcq::{DEFAULT_TIMEOUT, Device, DeviceKind};
/// # let [first, second] = [Device::open_nth(DeviceKind::Sim, 0)?, Device::open_nth(DeviceKind::Sim, 1)?];
/// # let (mut from, mut to) = (first.queue()?, second.queue()?);
/// # let mut link = first.link(&second)?;
/// # let (source, mut target) = (first.alloc_from(&[1])?, second.alloc::<i32>(1)?);
/// let transfer = link.copy(&mut from, &source, &mut to, &mut target)?;
/// // The source may be overwritten before the target is complete.
/// transfer.read().wait(DEFAULT_TIMEOUT)?;
/// transfer.wait(DEFAULT_TIMEOUT)?;
/// assert!(transfer.is_done() && transfer.written().is_done());
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "sim"))] fn main() {}
/// ```
#[derive(Debug)]
pub struct Transfer {
    read: Fence,
    written: Fence,
    /// The signals that a staged copy waits for, and their value at its end.
    stuck: Option<([Arc<Signal>; 2], u64)>,
}

impl Transfer {
    /// Waits until the target has been written.
    ///
    /// # Errors
    ///
    /// Those of [`Fence::wait`], of either queue. If a staged copy fails on one device, the other is released from its
    /// wait; the contents of the target are then unspecified.
    pub fn wait(&self, timeout: Duration) -> Result<()> {
        let result = self.read.wait(timeout).and_then(|()| self.written.wait(timeout));
        if let (Err(Error::Fault(_)), Some((signals, value))) = (&result, &self.stuck) {
            for signal in signals {
                signal.set(signal.value().max(*value));
            }
        }
        result
    }

    /// Whether the target has been written.
    pub fn is_done(&self) -> bool {
        self.written.is_done()
    }

    /// The fence of the queue that reads the source.
    pub fn read(&self) -> &Fence {
        &self.read
    }

    /// The fence of the queue that writes the target.
    pub fn written(&self) -> &Fence {
        &self.written
    }
}
