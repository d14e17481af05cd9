//! Rectangles in buffers: rows of elements that are a pitch apart, or of block-linear surfaces.

use core::ops::{Bound, Range, RangeBounds};

use ampere_cmd::command::{BlockSurface, CopySide};

use super::{Pod, Slice, SliceMut};
use crate::error::{RangeError, Result};
use crate::heap::Handle;

/// How the rows of a plane lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// This number of elements apart.
    Pitch(usize),
    /// In the blocks of a surface of this width in bytes and height in rows.
    Blocks { width: u32, height: u32, block_height_log2: u32 },
}

/// Position and size of a rectangle, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    order: Order,
    /// First column and row.
    origin: (usize, usize),
    columns: usize,
    rows: usize,
}

impl Layout {
    /// `len` elements as rows of `pitch`.
    fn new(len: usize, pitch: usize) -> Result<Self> {
        if pitch == 0 || !len.is_multiple_of(pitch) {
            return Err(RangeError::Pitch { len, pitch }.into());
        }
        Ok(Self { order: Order::Pitch(pitch), origin: (0, 0), columns: pitch, rows: len / pitch })
    }

    /// A block-linear surface in a slice of `len` elements of `size` bytes.
    fn blocks(len: usize, size: usize, (columns, rows): (usize, usize), height_log2: u32) -> Result<Self> {
        let fields = columns.checked_mul(size).and_then(|width| u32::try_from(width).ok());
        let fields = fields.zip(u32::try_from(rows).ok());
        let bytes = fields.and_then(|(width, height)| surface(width, height, height_log2).bytes());
        // CAST: usize is at most 64 bits.
        let len = (len * size) as u64;
        match (fields, bytes) {
            (Some((width, height)), Some(bytes)) if bytes <= len => {
                let order = Order::Blocks { width, height, block_height_log2: height_log2 };
                Ok(Self { order, origin: (0, 0), columns, rows })
            }
            _ => {
                let block_height_log2 = height_log2;
                Err(RangeError::BlockSurface { columns, rows, block_height_log2, bytes, len }.into())
            }
        }
    }

    fn part(&self, columns: &impl RangeBounds<usize>, rows: &impl RangeBounds<usize>) -> Result<Self> {
        let (columns, rows) = (resolve(columns, self.columns)?, resolve(rows, self.rows)?);
        let origin = (self.origin.0 + columns.start, self.origin.1 + rows.start);
        Ok(Self { order: self.order, origin, columns: columns.len(), rows: rows.len() })
    }

    /// Number of elements before the first one of pitch-linear rows.
    fn start(&self) -> usize {
        if let Order::Pitch(pitch) = self.order { self.origin.1 * pitch + self.origin.0 } else { 0 }
    }
}

/// A surface from its first byte on.
fn surface(width: u32, height: u32, block_height_log2: u32) -> BlockSurface {
    BlockSurface { va: 0, block_height_log2, width, height, x: 0, y: 0 }
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

/// A size as a field of the copy engine.
pub(crate) fn field(size: u64) -> Result<u32> {
    u32::try_from(size).map_err(|_| RangeError::TooLarge { bytes: size }.into())
}

/// A rectangle of a buffer, for reading: rows that are a pitch apart, created by [`Slice::plane`], or part of a
/// block-linear surface, created by [`Slice::blocks`].
#[derive(Clone, Copy, Debug)]
pub struct Plane<'a, T: Pod> {
    elements: Slice<'a, T>,
    layout: Layout,
}

/// A rectangle of a buffer, for writing. Created by [`SliceMut::plane`] and [`SliceMut::blocks`].
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

    /// The start of the slice as a block-linear surface of `columns` by `rows` elements, for 2-D copies. Its blocks are
    /// one GOB (64 bytes by 8 rows) wide and `1 << block_height_log2` GOBs high, at most 32. Memory has whole blocks:
    /// they fill a row of blocks from left to right, and the rows of blocks from top to bottom.
    ///
    /// Copies need a surface that begins at a multiple of 512 bytes of GPU address; buffers of at least 512 bytes do.
    ///
    /// ```
    /// # #[cfg(feature = "sim")] fn main() -> tegra_hcq::Result<()> {
    /// # let device = tegra_hcq::Device::open(tegra_hcq::DeviceKind::Sim)?;
    /// # let mut queue = device.queue()?;
    /// // 100 x 20 bytes: two GOBs wide, two blocks of two GOBs high.
    /// let mut surface = device.alloc_zeroed::<u8>(2 * 2 * 1024)?;
    /// queue.upload_2d(&[7; 2000], 100, surface.slice_mut(..)?.blocks(100, 20, 1)?)?;
    /// let row = surface.slice(..)?.blocks(100, 20, 1)?.part(90.., 19..)?;
    /// assert_eq!(queue.download_2d(row)?.wait(tegra_hcq::DEFAULT_TIMEOUT)?, [7; 10]);
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "sim"))] fn main() {}
    /// ```
    ///
    /// # Errors
    ///
    /// [`RangeError::BlockSurface`] if the slice is shorter than the surface, a row has more than 4 GiB, or a block has
    /// more than 32 GOBs.
    pub fn blocks(self, columns: usize, rows: usize, block_height_log2: u32) -> Result<Plane<'a, T>> {
        let layout = Layout::blocks(self.len(), size_of::<T>(), (columns, rows), block_height_log2)?;
        Ok(Plane { layout, elements: self })
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

    /// As [`Slice::blocks`].
    ///
    /// # Errors
    ///
    /// As [`Slice::blocks`].
    pub fn blocks(self, columns: usize, rows: usize, block_height_log2: u32) -> Result<PlaneMut<'a, T>> {
        let layout = Layout::blocks(self.len(), size_of::<T>(), (columns, rows), block_height_log2)?;
        Ok(PlaneMut { layout, elements: self })
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

    /// GPU address of the first element of pitch-linear rows, or of a block-linear surface.
    pub(crate) fn gpu_va(&self) -> u64 {
        // CAST: usize is at most 64 bits.
        self.elements.gpu_va() + (self.layout.start() * size_of::<T>()) as u64
    }

    /// Distance between two rows in bytes; `None` for a block-linear surface.
    pub(crate) fn pitch_bytes(&self) -> Option<usize> {
        if let Order::Pitch(pitch) = self.layout.order { Some(pitch * size_of::<T>()) } else { None }
    }

    /// The rectangle as a side of the copy engine's transfer.
    pub(crate) fn side(&self) -> Result<CopySide> {
        let va = self.gpu_va();
        // CAST: usize is at most 64 bits.
        let bytes = |count: usize| field((count * size_of::<T>()) as u64);
        Ok(match self.layout.order {
            Order::Pitch(pitch) => CopySide::Pitch { va, pitch: bytes(pitch)? },
            Order::Blocks { width, height, block_height_log2 } => {
                let (x, y) = (bytes(self.layout.origin.0)?, field(self.layout.origin.1 as u64)?);
                CopySide::Blocks(BlockSurface { va, x, y, ..surface(width, height, block_height_log2) })
            }
        })
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
        assert_eq!((whole.columns, whole.rows, whole.start()), (10, 6, 0));
        let part = whole.part(&(2..9), &(1..)).unwrap();
        assert_eq!((part.columns, part.rows, part.start()), (7, 5, 12));
        let inner = part.part(&(3..=4), &(2..3)).unwrap();
        assert_eq!((inner.columns, inner.rows, inner.start()), (2, 1, 35));
        assert!(part.part(&(0..8), &(..)).is_err() && part.part(&(..), &(..6)).is_err());
        assert!(Layout::new(60, 7).is_err() && Layout::new(60, 0).is_err());
        assert_eq!(Layout::new(0, 7).unwrap().rows, 0);
    }
}
