//! The channels of a queue, each with a ring and a pushbuffer.

use gpu_hal::{MemoryUse, SubmitRing};

use crate::error::Result;
use crate::heap::{Content, Mapped};
use crate::queue::schedule::Engine;
use crate::ring::Cursor;
use crate::shared::Shared;

/// Size of one pushbuffer ring in bytes: 64 Ki words, over a thousand full submissions.
const PUSHBUFFER_BYTES: u64 = 256 << 10;

/// One channel with its pushbuffer.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) ring: SubmitRing,
    pub(crate) pushbuffer: Mapped,
    pub(crate) cursor: Cursor,
    /// Whether entries wait for the doorbell.
    pub(crate) held: bool,
}

impl Lane {
    /// Allocates the pushbuffer for a ring.
    pub(crate) fn new(device: &Shared, ring: SubmitRing) -> Result<Self> {
        let pushbuffer =
            device.allocate_mapped(PUSHBUFFER_BYTES, MemoryUse::Commands, Content::Pushbuffer)?;
        Ok(Self { ring, pushbuffer, cursor: Cursor::new(PUSHBUFFER_BYTES), held: false })
    }
}

/// The channels of a queue.
#[derive(Debug)]
pub(crate) struct Lanes {
    pub(crate) compute: Lane,
    pub(crate) copy: Lane,
    /// See [`Engine::Link`].
    pub(crate) link: Option<Lane>,
    /// Whether doorbells are held back: see [`Queue::together`].
    pub(crate) holding: bool,
}

impl Lanes {
    /// Allocates the pushbuffers for two rings.
    pub(crate) fn new(device: &Shared, [compute, copy]: [SubmitRing; 2]) -> Result<Self> {
        let [compute, copy] = [Lane::new(device, compute)?, Lane::new(device, copy)?];
        Ok(Self { compute, copy, link: None, holding: false })
    }

    /// Replaces the rings. No pushbuffer space may be in use.
    pub(crate) fn replace(&mut self, [compute, copy]: [SubmitRing; 2]) {
        for (lane, ring) in [(&mut self.compute, compute), (&mut self.copy, copy)] {
            lane.ring = ring;
            lane.held = false;
            lane.cursor = Cursor::new(PUSHBUFFER_BYTES);
        }
        self.link = None;
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Lane> {
        [&self.compute, &self.copy].into_iter().chain(&self.link)
    }

    /// Number of submissions that fit both rings.
    pub(crate) fn capacity(&self) -> usize {
        self.compute.ring.capacity().min(self.copy.ring.capacity()) as usize
    }

    #[inline]
    pub(super) fn get(&mut self, engine: Engine) -> &mut Lane {
        match engine {
            Engine::Compute => &mut self.compute,
            Engine::Copy => &mut self.copy,
            // PANIC: a batch for it begins only after the lane was opened.
            Engine::Link => self.link.as_mut().expect("the lane is open"),
        }
    }
}
