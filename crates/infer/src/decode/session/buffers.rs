//! Memory of a session.

use core::ops::Range;
use core::ptr::NonNull;
use core::sync::atomic::{Ordering, fence};

use tegra_hcq::{Buffer, MemoryUse};

use crate::decode::engine::{Ahead, Inner};
use crate::decode::places::Addresses;
use crate::decode::sampling::Sampling;
use crate::error::{Error, Result};
use crate::parameters::{SamplingParams, SequenceState};

/// Tokens that are uploaded together.
pub(super) const PENDING: usize = 512;
/// Produced tokens that the device keeps for the CPU.
pub(super) const RING: usize = 64;

/// Memory of a session.
pub(super) struct Buffers {
    /// Keys of all layers, then values, then the scales of both: layer, head, position, column.
    pub(super) cache: Buffer<u8>,
    /// Vectors, at the places of [`Inner::places`].
    pub(super) scratch: Buffer<u8>,
    pub(super) logits: Range<usize>,
    /// The model's vector.
    pub(super) x: Range<usize>,
    pub(super) state: Buffer<SequenceState>,
    pub(super) settings: Buffer<SamplingParams>,
    /// A bit per token, see [`super::Session::set_mask`]; `None` before the first mask.
    pub(super) mask: Option<Buffer<u32>>,
    pub(super) pending: Buffer<u32>,
    /// The newest produced tokens: token `n`, from 1, is in slot `(n - 1) % RING`.
    pub(super) token_ring: Buffer<u64>,
    /// CPU address of `token_ring`.
    ring_address: NonNull<u64>,
    /// [`Inner::frequencies`].
    pub(super) frequencies: Buffer<[f64; 2]>,
}

// SAFETY: `ring_address` points into `token_ring`, which any thread may read and which lives as long.
unsafe impl Send for Buffers {}

impl Buffers {
    /// Allocates everything. Returns also the addresses, and that of the context's tokens.
    pub(super) fn new(engine: &Inner, context: usize, ahead: Ahead) -> Result<(Self, Addresses, u64)> {
        let (shape, device) = (&engine.shape, &engine.device);
        let cache = shape.kv_bytes(engine.kv, context).ok_or(Error::TooLarge(context))?;
        let cache = device.alloc::<u8>(cache)?.named("keys and values");
        let components = shape.cached(shape.layers.len()) * shape.kv_width() * context;
        let (places, end) = engine.places();
        let history = end;
        let scratch = device.alloc_zeroed::<u8>(end + context * 4)?.named("vectors of a session");
        let state = device.alloc_zeroed::<SequenceState>(1)?.named("state of a session");
        let base = scratch.gpu_va();
        // CAST: a place in a buffer.
        let first = places.logits as usize;
        let logits = first..first + shape.vocabulary * 4;
        // CAST: as above.
        let x = places.x as usize..places.x as usize + shape.width * 4;
        let mut at = places.moved(base);
        at.context = u32::try_from(context).map_err(|_| Error::TooLarge(context))?;
        at.ahead = ahead;
        at.position = state.gpu_va();
        at.keys = cache.gpu_va();
        // CAST: usize is at most 64 bits.
        let part = (components * engine.kv.component_bytes()) as u64;
        at.values = at.keys + part;
        at.scales = if engine.kv.scale_bytes(1) > 0 { at.values + part } else { 0 };
        let token_ring = device.alloc_for::<u64>(RING, MemoryUse::ReadBack)?.named("produced tokens");
        // PANIC: only memory of `MemoryUse::Device` may be invisible.
        let ring_address = token_ring.cpu_address()?.expect("memory for reading back is visible");
        // An empty buffer has no address.
        let frequencies = engine.frequencies(context);
        let frequencies = if frequencies.is_empty() { &[[0.0; 2]] } else { frequencies };
        let buffers = Self {
            cache,
            scratch,
            logits,
            x,
            state,
            settings: device.alloc_from(&[Sampling::default().parameters()])?,
            mask: None,
            pending: device.alloc::<u32>(PENDING)?,
            token_ring,
            ring_address,
            frequencies: device.alloc_from(frequencies)?,
        };
        buffers.clear_tokens();
        // CAST: usize is at most 64 bits.
        Ok((buffers, at, base + history as u64))
    }

    /// Marks all slots of the token ring as empty. No work that writes it may be in flight.
    pub(super) fn clear_tokens(&self) {
        for slot in 0..RING {
            // SAFETY: inside the ring, which lives as long as `self`.
            unsafe { self.ring_address.add(slot).write_volatile(0) };
        }
    }

    /// The token in the slot of token `number`, with its own number, which is 0 if the slot is empty.
    pub(super) fn read_token(&self, number: u32) -> (u32, u32) {
        let slot = (number as usize).wrapping_sub(1) % RING;
        // SAFETY: inside the ring, which lives as long as `self`; aligned, and written by the GPU in one piece.
        let entry = unsafe { self.ring_address.add(slot).read_volatile() };
        // Whatever the GPU wrote before the token is visible after it.
        fence(Ordering::Acquire);
        // CAST: the halves of the entry.
        ((entry >> 32) as u32, entry as u32)
    }
}
