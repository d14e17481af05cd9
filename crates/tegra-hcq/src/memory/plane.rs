//! Rectangles in buffers: rows of elements that are a pitch apart.

use core::ops::{Bound, Range, RangeBounds};

use super::{Pod, Slice, SliceMut};
use crate::error::{RangeError, Result};
use crate::heap::Handle;

/// Position and size of a rectangle, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    /// First element.
    start: usize,
    /// Distance between the starts of two rows; at least `columns`.
    pitch: usize,
    columns: usize,
    rows: usize,
}

impl Layout {
    /// `len` elements as rows of `pitch`.
    fn new(len: usize, pitch: usize) -> Result<Self> {
        if pitch == 0 || !len.is_multiple_of(pitch) {
            return Err(RangeError::Pitch { len, pitch }.into());
        }
        Ok(Self { start: 0, pitch, columns: pitch, rows: len / pitch })
    }

    fn part(&self, columns: &impl RangeBounds<usize>, rows: &impl RangeBounds<usize>) -> Result<Self> {
        let (columns, rows) = (resolve(columns, self.columns)?, resolve(rows, self.rows)?);
        let start = self.start + rows.start * self.pitch + columns.start;
        Ok(Self { start, pitch: self.pitch, columns: columns.len(), rows: rows.len() })
    }
}

/// The range within 0 to `len`.
pub(crate) fn resolve(range: &impl RangeBounds<usize>, len: usize) -> Result<Range<usize>> {
    let start = match range.start_bound() {
        Bound::Included(&start) => Some(start),
        Bound::Excluded(&start) => start.checked_add(1),
        Bound::Unbounded => Some(0),
    };
    let end = match range.end_bound() {
        Bound::Included(&end) => end.checked_add(1),
        Bound::Excluded(&end) => Some(end),
        Bound::Unbounded => Some(len),
    };
    match (start, end) {
        (Some(start), Some(end)) if start <= end && end <= len => Ok(start..end),
        _ => Err(RangeError::outside(range, len).into()),
    }
}

/// A rectangle of a buffer, for reading: rows that are a pitch apart. Created by [`Slice::plane`].
#[derive(Clone, Copy, Debug)]
pub struct Plane<'a, T: Pod> {
    elements: Slice<'a, T>,
    layout: Layout,
}

/// A rectangle of a buffer, for writing. Created by [`SliceMut::plane`].
///
/// ```
/// # #[cfg(feature = "sim")] fn main() -> tegra_hcq::Result<()> {
/// # let device = tegra_hcq::Device::open(tegra_hcq::DeviceKind::Sim)?;
/// # let mut queue = device.queue()?;
/// # let timeout = std::time::Duration::from_secs(10);
/// let source = device.alloc_from(&[1, 2, 3, 4])?;
/// let mut target = device.alloc_zeroed::<i32>(9)?;
/// // A rectangle of 2 x 2 into the middle of 3 x 3.
/// queue.copy_2d(source.plane(2)?, target.plane_mut(3)?.part(1.., 1..)?)?;
/// queue.wait(timeout)?;
/// assert_eq!(target.to_vec()?, [0, 0, 0, 0, 1, 2, 0, 3, 4]);
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "sim"))] fn main() {}
/// ```
#[derive(Debug)]
pub struct PlaneMut<'a, T: Pod> {
    elements: SliceMut<'a, T>,
    layout: Layout,
}

impl<'a, T: Pod> Slice<'a, T> {
    /// The elements as rows of `pitch` elements, for 2-D copies.
    ///
    /// # Errors
    ///
    /// [`Error::Range`](crate::Error::Range) if the elements are not whole rows.
    pub fn plane(self, pitch: usize) -> Result<Plane<'a, T>> {
        Ok(Plane { layout: Layout::new(self.len(), pitch)?, elements: self })
    }
}

impl<'a, T: Pod> SliceMut<'a, T> {
    /// The elements as rows of `pitch` elements, for 2-D copies.
    ///
    /// # Errors
    ///
    /// As [`Slice::plane`].
    pub fn plane(self, pitch: usize) -> Result<PlaneMut<'a, T>> {
        Ok(PlaneMut { layout: Layout::new(self.len(), pitch)?, elements: self })
    }
}

impl<'a, T: Pod> Plane<'a, T> {
    /// The given columns of the given rows.
    ///
    /// # Errors
    ///
    /// [`Error::Range`](crate::Error::Range) if a range ends outside of the rectangle.
    pub fn part(self, columns: impl RangeBounds<usize>, rows: impl RangeBounds<usize>) -> Result<Self> {
        Ok(Self { layout: self.layout.part(&columns, &rows)?, ..self })
    }

    /// Number of elements in a row.
    pub fn columns(&self) -> usize {
        self.layout.columns
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.layout.rows
    }

    pub(crate) fn handle(&self) -> &'a Handle {
        self.elements.handle()
    }

    /// GPU address of the first element.
    pub(crate) fn gpu_va(&self) -> u64 {
        // CAST: usize is at most 64 bits.
        self.elements.gpu_va() + (self.layout.start * size_of::<T>()) as u64
    }

    /// Distance between two rows in bytes.
    pub(crate) fn pitch_bytes(&self) -> usize {
        self.layout.pitch * size_of::<T>()
    }
}

impl<T: Pod> PlaneMut<'_, T> {
    /// As [`Plane::part`].
    ///
    /// # Errors
    ///
    /// As [`Plane::part`].
    pub fn part(self, columns: impl RangeBounds<usize>, rows: impl RangeBounds<usize>) -> Result<Self> {
        Ok(Self { layout: self.layout.part(&columns, &rows)?, ..self })
    }

    /// The same rectangle, for reading.
    pub fn as_plane(&self) -> Plane<'_, T> {
        Plane { elements: self.elements.as_slice(), layout: self.layout }
    }

    /// Number of elements in a row.
    pub fn columns(&self) -> usize {
        self.layout.columns
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.layout.rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_part_starts_at_its_own_element() {
        let whole = Layout::new(60, 10).unwrap();
        assert_eq!(whole, Layout { start: 0, pitch: 10, columns: 10, rows: 6 });
        let part = whole.part(&(2..9), &(1..)).unwrap();
        assert_eq!(part, Layout { start: 12, pitch: 10, columns: 7, rows: 5 });
        let inner = part.part(&(3..=4), &(2..3)).unwrap();
        assert_eq!(inner, Layout { start: 35, pitch: 10, columns: 2, rows: 1 });
        assert!(part.part(&(0..8), &(..)).is_err() && part.part(&(..), &(..6)).is_err());
        assert!(Layout::new(60, 7).is_err() && Layout::new(60, 0).is_err());
        assert_eq!(Layout::new(0, 7).unwrap().rows, 0);
    }
}
