//! Where keys and values of a layer are, and which of them a token sees.

use super::engine::Inner;
use super::places::Addresses;
use crate::error::Result;
use crate::launch::word;
use crate::model::MOST_CONTEXT;

impl Inner {
    /// Newest positions that a token sees in a layer: at least 1, and at most those of any context.
    pub(super) fn window(&self, number: usize) -> Result<u32> {
        word(self.shape.layers[number].window.unwrap_or(MOST_CONTEXT).clamp(1, MOST_CONTEXT))
    }

    /// GPU addresses of a layer's keys, values and scales; without scales, that of the scales is 0.
    pub(super) fn cache(&self, at: &Addresses, number: usize) -> [u64; 3] {
        let (shape, kv) = (&self.shape, self.kv);
        // CAST: usize is at most 64 bits.
        let rows = (shape.cached(number) * shape.kv_heads) as u64 * u64::from(at.context);
        let before = rows * (shape.head_size * kv.component_bytes()) as u64;
        // Those of key and value are neighbours.
        let scales = rows * 2 * kv.scale_bytes(shape.head_size) as u64;
        [at.keys + before, at.values + before, at.scales + scales]
    }
}
