//! A context in a second session.

use std::sync::Arc;

use super::{Session, TIMEOUT};
use crate::error::{Error, Result};
use crate::launch::fits;

impl Session {
    /// Replaces the context by that of another session of the same engine. Keys and values are copied on the device;
    /// nothing is computed again. How tokens are chosen does not change.
    ///
    /// # Errors
    ///
    /// [`Error::OtherEngine`] if the sessions belong to different engines, [`Error::Length`] if they have room for
    /// different numbers of positions; those of the device.
    pub fn copy_context(&mut self, other: &mut Self) -> Result<()> {
        if !Arc::ptr_eq(&self.engine, &other.engine) {
            return Err(Error::OtherEngine);
        }
        fits("the context of a session", other.context, self.context)?;
        other.queue.wait(TIMEOUT)?;
        self.queue.wait(TIMEOUT)?;
        self.tokens.clear();
        let (len, shape, kv) = (other.tokens.len(), &self.engine.shape, self.engine.kv);
        // Keys and values, then the pairs of their scales: a row for each head.
        let heads = shape.cached(shape.layers.len()) * shape.kv_heads;
        let keys = (2 * heads, shape.head_size * kv.component_bytes());
        let scales = (heads, 2 * kv.scale_bytes(shape.head_size));
        let mut start = 0;
        for (rows, bytes) in [keys, scales] {
            let (pitch, filled) = (self.context * bytes, len * bytes);
            let part = start..start + rows * pitch;
            start = part.end;
            if filled > 0 && rows > 0 {
                let source = other.buffers.cache.slice(part.clone())?.plane(pitch)?.part(..filled, ..)?;
                let target = self.buffers.cache.slice_mut(part)?.plane(pitch)?.part(..filled, ..)?;
                self.queue.copy_2d(source, target)?;
            }
        }
        // The newest token's vector, what convolutions keep, and the tokens: they are behind the vectors.
        // CAST: a place in a buffer.
        let end = (self.history - self.buffers.scratch.gpu_va()) as usize + len * 4;
        self.queue.copy(other.buffers.scratch.slice(..end)?, self.buffers.scratch.slice_mut(..end)?)?;
        self.queue.wait(TIMEOUT)?;
        self.tokens.extend_from_slice(&other.tokens);
        (self.computed, self.is_current) = (other.computed, other.is_current);
        self.write_state()
    }
}
