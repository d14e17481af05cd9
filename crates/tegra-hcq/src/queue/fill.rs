//! Fills by the copy engine.

use ampere_cmd::command::{CopySide, Fill, SurfaceCopy};

use super::Queue;
use super::raw::RawPlane;
use super::schedule::Engine;
use crate::args::FillValue;
use crate::error::{RangeError, Result};
use crate::memory::{PlaneMut, SliceMut, field};
use crate::profile::Work;

impl Queue {
    /// Adds a fill of all of `target` with a value by the copy engine.
    ///
    /// # Errors
    ///
    /// Returns an error if `target` belongs to another device, or if the queue has faulted.
    pub fn fill<'t, T: FillValue>(&mut self, target: impl Into<SliceMut<'t, T>>, value: T) -> Result<()> {
        let target = target.into();
        let target = target.as_slice();
        self.check_device("the target of the fill", target.handle())?;
        self.fill_at(target.gpu_va(), value, target.len(), |queue| queue.note(target.handle()))
    }

    /// Adds a fill of a rectangle with a value by the copy engine.
    ///
    /// # Errors
    ///
    /// [`RangeError::BlockLinear`] if `target` is block-linear. Also returns an error if a row has more than 4 Gi
    /// elements or a pitch more than 4 GiB, if `target` belongs to another device, or if the queue has faulted.
    pub fn fill_2d<T: FillValue>(&mut self, target: PlaneMut<'_, T>, value: T) -> Result<()> {
        let target = target.as_plane();
        self.check_device("the target of the fill", target.handle())?;
        // CAST: usize is at most 64 bits.
        let pitch = target.pitch_bytes().ok_or(RangeError::BlockLinear)? as u64;
        let place = RawPlane { gpu_va: target.gpu_va(), pitch };
        self.fill_lines(place, value, target.columns(), target.rows(), |queue| queue.note(target.handle()))
    }

    /// Adds a fill of `len` elements at a GPU address; `note` records the use of the memory.
    pub(super) fn fill_at<T: FillValue>(
        &mut self,
        va: u64,
        value: T,
        len: usize,
        note: impl FnOnce(&Self),
    ) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        if self.profiling.enabled {
            // CAST: usize is at most 64 bits.
            self.begin_span(
                Engine::Copy,
                Work::Fill { bytes: (len as u64).saturating_mul(size_of::<T>() as u64) },
            )?;
        }
        let most = u32::MAX as usize;
        for start in (0..len).step_by(most) {
            self.begin(Engine::Copy)?;
            // CAST: usize is at most 64 bits, and the count at most `most`.
            let destination = va.saturating_add((start * size_of::<T>()) as u64);
            let fill = Fill { destination, pattern: value.pattern(), count: (len - start).min(most) as u32 };
            self.encode(|encoder| encoder.fill(&fill))?;
            self.batch.set_busy(true);
        }
        note(self);
        if self.profiling.enabled { self.end_span(Engine::Copy) } else { Ok(()) }
    }

    /// Adds a fill of a rectangle at a GPU address; `note` records the use of the memory.
    pub(super) fn fill_lines<T: FillValue>(
        &mut self,
        target: RawPlane,
        value: T,
        columns: usize,
        rows: usize,
        note: impl FnOnce(&Self),
    ) -> Result<()> {
        // CAST: usize is at most 64 bits.
        let line = (columns as u64).saturating_mul(size_of::<T>() as u64);
        if rows <= 1 || line == target.pitch {
            return self.fill_at(target.gpu_va, value, columns.saturating_mul(rows), note);
        }
        if columns == 0 {
            return Ok(());
        }
        let (pitch, line_bytes) = (field(target.pitch)?, field(line)?);
        if self.profiling.enabled {
            self.begin_span(Engine::Copy, Work::Fill { bytes: line.saturating_mul(rows as u64) })?;
        }
        let fill =
            Fill { destination: target.gpu_va, pattern: value.pattern(), count: field(columns as u64)? };
        self.begin(Engine::Copy)?;
        self.encode(|encoder| encoder.fill(&fill))?;
        self.batch.set_busy(true);
        // A fill writes one line. Each copy doubles the lines that have the value.
        let (mut done, rows) = (1_u64, rows as u64);
        while done < rows {
            let va = target.gpu_va.saturating_add(target.pitch.saturating_mul(done));
            let copy = SurfaceCopy {
                source: CopySide::Pitch { va: target.gpu_va, pitch },
                destination: CopySide::Pitch { va, pitch },
                line_bytes,
                lines: field(done.min(rows - done))?,
            };
            self.begin(Engine::Copy)?;
            self.encode(|encoder| encoder.surface_copy(&copy))?;
            done += u64::from(copy.lines);
        }
        note(self);
        if self.profiling.enabled { self.end_span(Engine::Copy) } else { Ok(()) }
    }
}
