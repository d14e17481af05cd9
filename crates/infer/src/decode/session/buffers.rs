//! Memory of a session.

use core::ops::Range;
use core::ptr::NonNull;
use core::sync::atomic::{Ordering, fence};

use tegra_hcq::{Buffer, MemoryUse};

use crate::decode::engine::{Ahead, Inner};
use crate::decode::parameters::{Settings, State};
use crate::decode::places::Addresses;
use crate::decode::sampling::Sampling;
use crate::error::{Error, Result};

/// Tokens that are uploaded together.
pub(super) const PENDING: usize = 512;
/// Tokens that the ring holds.
pub(super) const RING: usize = 64;

/// Memory of a session.
pub(super) struct Buffers {
    /// Keys of all layers, then values: layer, head, position, column.
    _cache: Buffer<u16>,
    /// Vectors, at the places of [`Inner::places`].
    pub(super) scratch: Buffer<u8>,
    pub(super) logits: Range<usize>,
    pub(super) state: Buffer<State>,
    pub(super) settings: Buffer<Settings>,
    pub(super) pending: Buffer<u32>,
    pub(super) ring: Buffer<u64>,
    /// Where the CPU sees the ring.
    ring_at: NonNull<u64>,
    /// Turns per position of each pair.
    pub(super) turns: Buffer<f64>,
}

// SAFETY: `ring_at` points into `ring`, which any thread may read and which lives as long.
unsafe impl Send for Buffers {}

impl Buffers {
    /// Allocates everything; returns the addresses, too.
    pub(super) fn new(engine: &Inner, context: usize, ahead: Ahead) -> Result<(Self, Addresses, u64)> {
        let (shape, device) = (&engine.shape, &engine.device);
        let half = shape.kv_bytes(context).ok_or(Error::TooLarge(context))? / 4;
        let cache = device.alloc::<u16>(2 * half)?.named("keys and values");
        let (places, end) = engine.places();
        let history = end;
        let scratch = device.alloc_zeroed::<u8>(end + context * 4)?.named("vectors of a session");
        let state = device.alloc_zeroed::<State>(1)?.named("state of a session");
        let base = scratch.gpu_va();
        // CAST: a place in a buffer.
        let first = places.logits as usize;
        let logits = first..first + shape.vocabulary * 4;
        let mut at = places.moved(base);
        at.context = u32::try_from(context).map_err(|_| Error::TooLarge(context))?;
        at.ahead = ahead;
        at.position = state.gpu_va();
        at.keys = cache.gpu_va();
        // CAST: usize is at most 64 bits.
        at.values = cache.gpu_va() + half as u64 * 2;
        let ring = device.alloc_for::<u64>(RING, MemoryUse::ReadBack)?.named("produced tokens");
        // PANIC: only memory of `MemoryUse::Device` may be invisible.
        let ring_at = ring.cpu_address()?.expect("memory for reading back is visible");
        // An empty buffer has no address.
        let turns = if engine.turns.is_empty() { &[0.0] } else { engine.turns.as_slice() };
        let buffers = Self {
            _cache: cache,
            scratch,
            logits,
            state,
            settings: device.alloc_from(&[Sampling::default().settings()])?,
            pending: device.alloc::<u32>(PENDING)?,
            ring,
            ring_at,
            turns: device.alloc_from(turns)?,
        };
        buffers.clear_ring();
        // CAST: usize is at most 64 bits.
        Ok((buffers, at, base + history as u64))
    }

    /// Marks all tokens of the ring as not produced. No work that writes it may be in flight.
    pub(super) fn clear_ring(&self) {
        for slot in 0..RING {
            // SAFETY: inside the ring, which lives as long as `self`.
            unsafe { self.ring_at.add(slot).write_volatile(0) };
        }
    }

    /// The number of a token in the ring and the token; number 0 if there is none.
    pub(super) fn ring(&self, number: u32) -> (u32, u32) {
        let slot = (number as usize).wrapping_sub(1) % RING;
        // SAFETY: inside the ring, which lives as long as `self`; aligned, and written by the GPU in one piece.
        let entry = unsafe { self.ring_at.add(slot).read_volatile() };
        // The token's other effects follow in memory.
        fence(Ordering::Acquire);
        // CAST: the halves of the entry.
        ((entry >> 32) as u32, entry as u32)
    }
}
