//! Fills: one value in every element of a buffer.

use ampere_cmd::command::Fill;

use super::Queue;
use super::engine::Engine;
use crate::error::{RangeError, Result};
use crate::fill::FillValue;
use crate::memory::SliceMut;
use crate::profile::Work;

impl Queue {
    /// Adds a fill of all of `target` with a value by the copy engine.
    ///
    /// # Errors
    ///
    /// Returns an error if `target` belongs to another device or is longer than 4 Gi elements, or if the queue has
    /// faulted.
    pub fn fill<'t, T: FillValue>(&mut self, target: impl Into<SliceMut<'t, T>>, value: T) -> Result<()> {
        let target = target.into();
        let target = target.as_slice();
        self.check_device("the target of the fill", target.handle())?;
        if target.is_empty() {
            return Ok(());
        }
        let count = u32::try_from(target.len()).map_err(|_| RangeError::Fill { len: target.len() })?;
        if self.profiling.enabled {
            // CAST: a usize has at most 64 bits.
            let bytes = (target.len() * size_of::<T>()) as u64;
            self.begin_span(Engine::Copy, Work::Fill { bytes })?;
        }
        self.begin(Engine::Copy)?;
        let fill = Fill { destination: target.gpu_va(), pattern: value.pattern(), count };
        self.encode(|encoder| encoder.fill(&fill))?;
        self.batch.set_busy(true);
        self.note(target.handle());
        if self.profiling.enabled { self.end_span(Engine::Copy) } else { Ok(()) }
    }
}
