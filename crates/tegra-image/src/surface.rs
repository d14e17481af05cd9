//! Images in memory.

use core::fmt;

use tegra_hcq::{Plane as HcqPlane, PlaneMut as HcqPlaneMut, Queue, Slice, SliceMut};

use crate::error::{Error, Result};
use crate::format::{Format, Packing};

/// Largest width and height in pixels.
pub const MAX_SIDE: u32 = 1 << 15;
/// Width of a GOB in bytes: block-linear memory consists of GOBs of 64 bytes by 8 rows.
const GOB_WIDTH: u32 = 64;
/// Memory of a GOB in bytes.
const GOB_BYTES: u64 = 512;
/// Largest logarithm of a block's height in GOBs.
const MAX_BLOCK_HEIGHT_LOG2: u32 = 5;

/// How the rows of a plane lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Row after row, a pitch apart (`NVBUF_LAYOUT_PITCH`).
    Pitch,
    /// In blocks of GOBs, as NVIDIA's engines write them by default (`NVBUF_LAYOUT_BLOCK_LINEAR`): see
    /// [`tegra_hcq::Slice::blocks`].
    BlockLinear {
        /// Logarithm of the height of a block in GOBs, at most 5.
        block_height_log2: u32,
    },
}

/// A plane of an image in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plane {
    /// Offset of the first byte in the memory of the image.
    pub offset: u64,
    /// Distance between rows in bytes; of a block-linear plane the width of its GOBs.
    pub pitch: u32,
    /// Size in bytes, at least that of all rows or blocks.
    pub size: u64,
    /// How its rows lie in memory.
    pub layout: Layout,
}

impl Plane {
    /// Memory that `rows` rows take, in bytes.
    fn needed(&self, rows: u32) -> u64 {
        let pitch = u64::from(self.pitch);
        match self.layout {
            Layout::Pitch => pitch * u64::from(rows),
            Layout::BlockLinear { block_height_log2 } => {
                pitch * u64::from(rows).next_multiple_of(8 << block_height_log2)
            }
        }
    }

    fn check(&self, index: usize, (row_bytes, rows): (u64, u32), bytes: u64) -> Result<()> {
        if let Layout::BlockLinear { block_height_log2 } = self.layout
            && (block_height_log2 > MAX_BLOCK_HEIGHT_LOG2
                || !self.pitch.is_multiple_of(GOB_WIDTH)
                || !self.offset.is_multiple_of(GOB_BYTES))
        {
            let Self { offset, pitch, .. } = *self;
            return Err(Error::Blocks { plane: index, offset, pitch, block_height_log2 });
        }
        if u64::from(self.pitch) < row_bytes {
            return Err(Error::Pitch { plane: index, pitch: self.pitch, row_bytes });
        }
        let needed = self.needed(rows);
        if self.size < needed {
            return Err(Error::PlaneSize { plane: index, size: self.size, needed });
        }
        match self.offset.checked_add(self.size) {
            Some(end) if end <= bytes => Ok(()),
            end => Err(Error::Outside { plane: index, end: end.unwrap_or(u64::MAX), bytes }),
        }
    }
}

/// A plane of an NvBufSurface: the numbers of `NvBufSurfacePlaneParams`, and the block height, which is in
/// `paramex->planeParamsex.blockheightlog2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NvBufPlane {
    /// `pitch`: distance between rows in bytes.
    pub pitch: u32,
    /// `offset` in bytes.
    pub offset: u32,
    /// `psize`: size in bytes.
    pub psize: u32,
    /// `bytesPerPix`; 2 for a plane of chroma pairs.
    pub bytes_per_pix: u32,
    /// `blockheightlog2`; ignored for pitch-linear surfaces.
    pub block_height_log2: u32,
}

/// A description of an image in memory, whose numbers fit each other.
///
/// ```
/// use tegra_image::{Error, Format, Surface};
///
/// // What VIDIOC_G_FMT returns for a camera.
/// let surface = Surface::from_v4l2(*b"NV12", 1280, 720, 1536, 1536 * 720 * 3 / 2)?;
/// assert_eq!((surface.format(), surface.planes()[1].offset), (Format::Nv12, 1536 * 720));
/// let error = Surface::from_v4l2(*b"NV12", 1280, 720, 1024, 1536 * 720 * 3 / 2).unwrap_err();
/// assert!(matches!(error, Error::Pitch { pitch: 1024, row_bytes: 1280, .. }));
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Surface {
    format: Format,
    width: u32,
    height: u32,
    /// Those that the format does not have are empty.
    planes: [Plane; 2],
}

impl Surface {
    /// An image of these planes in memory of `bytes` bytes.
    ///
    /// # Errors
    ///
    /// An error that says which number does not fit: [`Error::Size`], [`Error::Odd`], [`Error::Shift`],
    /// [`Error::Planes`], [`Error::Blocks`], [`Error::Pitch`], [`Error::PlaneSize`], [`Error::Outside`] or
    /// [`Error::Overlap`].
    pub fn new(format: Format, width: u32, height: u32, planes: &[Plane], bytes: u64) -> Result<Self> {
        check_size(format, width, height)?;
        let needed = format.planes();
        if planes.len() != needed {
            return Err(Error::Planes { format, needed, given: planes.len() });
        }
        let mut kept = [Plane { offset: 0, pitch: 0, size: 0, layout: Layout::Pitch }; 2];
        for (index, plane) in planes.iter().enumerate() {
            plane.check(index, format.plane_size(index, width, height), bytes)?;
            kept[index] = *plane;
        }
        let [first, second] = kept;
        let apart = second.offset >= first.offset + first.size || first.offset >= second.offset + second.size;
        if needed == 2 && !apart {
            return Err(Error::Overlap { offset: second.offset });
        }
        Ok(Self { format, width, height, planes: kept })
    }

    /// An image without gaps: rows and planes follow each other; those of a block-linear image are whole GOBs and
    /// blocks.
    ///
    /// # Errors
    ///
    /// As [`Surface::new`].
    pub fn packed(format: Format, width: u32, height: u32, layout: Layout) -> Result<Self> {
        check_size(format, width, height)?;
        let mut planes = [Plane { offset: 0, pitch: 0, size: 0, layout }; 2];
        let mut offset = 0;
        for (index, plane) in planes.iter_mut().enumerate().take(format.planes()) {
            let (row_bytes, rows) = format.plane_size(index, width, height);
            let row_bytes = match layout {
                Layout::Pitch => row_bytes,
                Layout::BlockLinear { .. } => row_bytes.next_multiple_of(GOB_WIDTH.into()),
            };
            // CAST: a row has at most 4 * `MAX_SIDE` bytes.
            *plane = Plane { offset, pitch: row_bytes as u32, size: 0, layout };
            if let Layout::BlockLinear { block_height_log2: 0..=MAX_BLOCK_HEIGHT_LOG2 } | Layout::Pitch =
                layout
            {
                plane.size = plane.needed(rows);
            }
            offset += plane.size;
        }
        Self::new(format, width, height, &planes[..format.planes()], offset)
    }

    /// The image of an NvBufSurface: `format` as its `colorFormat` says, `layout` (`NVBUF_LAYOUT_PITCH` is 0,
    /// `NVBUF_LAYOUT_BLOCK_LINEAR` 1), its planes, and `dataSize`. Not tried with NVIDIA's library.
    ///
    /// ```
    /// use tegra_image::{Format, NvBufPlane, Surface};
    ///
    /// let plane = NvBufPlane { pitch: 640, offset: 0, psize: 327_680, bytes_per_pix: 1, block_height_log2: 4 };
    /// let chroma = NvBufPlane { offset: 327_680, psize: 163_840, bytes_per_pix: 2, ..plane };
    /// let surface = Surface::from_nvbufsurface(Format::Nv12, (640, 480), 1, &[plane, chroma], 491_520)?;
    /// assert!(!surface.is_pitch_linear());
    /// # Ok::<(), tegra_image::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Surface::new`]; [`Error::Layout`] and [`Error::BytesPerPixel`].
    pub fn from_nvbufsurface(
        format: Format,
        (width, height): (u32, u32),
        layout: u32,
        planes: &[NvBufPlane],
        data_size: u32,
    ) -> Result<Self> {
        if layout > 1 {
            return Err(Error::Layout(layout));
        }
        let mut kept = [Plane { offset: 0, pitch: 0, size: 0, layout: Layout::Pitch }; 2];
        if planes.len() != format.planes() {
            return Err(Error::Planes { format, needed: format.planes(), given: planes.len() });
        }
        for (index, (plane, kept)) in planes.iter().zip(&mut kept).enumerate() {
            let needed = match format {
                _ if index == 1 => 2,
                Format::Rgba8 | Format::Bgra8 => 4,
                Format::Raw { packing: Packing::Words { .. }, .. } => 2,
                _ => 1,
            };
            if plane.bytes_per_pix != needed {
                let given = plane.bytes_per_pix;
                return Err(Error::BytesPerPixel { plane: index, format, given, needed });
            }
            let block_height_log2 = plane.block_height_log2;
            let layout = if layout == 1 { Layout::BlockLinear { block_height_log2 } } else { Layout::Pitch };
            let (offset, size) = (plane.offset.into(), plane.psize.into());
            *kept = Plane { offset, pitch: plane.pitch, size, layout };
        }
        Self::new(format, width, height, &kept[..planes.len()], data_size.into())
    }

    /// The image that V4L2 describes with `pixelformat`, `width`, `height`, `bytesperline` and `sizeimage` of `struct
    /// v4l2_pix_format`. A plane of chroma follows that of luma, with the same pitch (`NV24`: twice the pitch).
    ///
    /// # Errors
    ///
    /// As [`Surface::new`]; [`Error::FourCc`] if [`Format::from_fourcc`] does not know the format.
    pub fn from_v4l2(
        pixelformat: [u8; 4],
        width: u32,
        height: u32,
        bytesperline: u32,
        sizeimage: u32,
    ) -> Result<Self> {
        let format = Format::from_fourcc(pixelformat).ok_or(Error::FourCc { code: pixelformat })?;
        let plane = |offset, pitch, rows| Plane {
            offset,
            pitch,
            size: u64::from(pitch) * u64::from(rows),
            layout: Layout::Pitch,
        };
        let first = plane(0, bytesperline, height);
        let twice = if format == Format::Nv24 { bytesperline.saturating_mul(2) } else { bytesperline };
        let second = plane(first.size, twice, format.plane_size(1, width, height).1);
        Self::new(format, width, height, &[first, second][..format.planes()], sizeimage.into())
    }

    /// The same image of raw samples whose lowest bit is bit `shift` of their words: see [`Packing::Words`].
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the format has no such words, [`Error::Shift`] if a sample does not fit.
    pub fn with_shift(self, shift: u8) -> Result<Self> {
        let Format::Raw { depth, packing: Packing::Words { .. }, order } = self.format else {
            return Err(self.unsupported("only raw samples in 16-bit words have a shift"));
        };
        let format = Format::Raw { depth, packing: Packing::Words { shift }, order };
        check_size(format, self.width, self.height)?;
        Ok(Self { format, ..self })
    }

    /// What the bytes are.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Width in pixels.
    pub fn width(&self) -> u32 {
        self.width
    }

    /// Height in pixels.
    pub fn height(&self) -> u32 {
        self.height
    }

    /// The planes, in the order of the format.
    pub fn planes(&self) -> &[Plane] {
        &self.planes[..self.format.planes()]
    }

    /// Size of the memory that the planes lie in, in bytes.
    pub fn bytes(&self) -> u64 {
        self.planes().iter().map(|plane| plane.offset + plane.size).max().unwrap_or(0)
    }

    /// Whether all planes are pitch-linear, as kernels need them.
    pub fn is_pitch_linear(&self) -> bool {
        self.planes().iter().all(|plane| plane.layout == Layout::Pitch)
    }

    /// Adds copies of the planes from the memory of this image to that of another. Each image may be pitch-linear or
    /// block-linear; the copy engine converts.
    ///
    /// ```
    /// # fn main() -> Result<(), tegra_image::Error> {
    /// # let device = tegra_hcq::Device::open(tegra_hcq::DeviceKind::Sim)?;
    /// # let mut queue = device.queue()?;
    /// use tegra_image::{Format, Layout, Surface};
    ///
    /// let blocks = Layout::BlockLinear { block_height_log2: 4 };
    /// let from = Surface::packed(Format::Gray8, 100, 50, blocks)?;
    /// let to = Surface::packed(Format::Gray8, 100, 50, Layout::Pitch)?;
    /// let frame = device.alloc_from(&vec![9; from.bytes() as usize])?;
    /// let mut linear = device.alloc::<u8>(to.bytes() as usize)?;
    /// from.copy(&mut queue, &frame, &to, &mut linear)?;
    /// queue.wait(tegra_hcq::DEFAULT_TIMEOUT)?;
    /// assert_eq!(linear.to_vec()?, [9; 5000]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Differs`] if formats or sizes differ, [`Error::Length`] if a slice is shorter than its image. Otherwise
    /// as [`Queue::copy_2d`].
    pub fn copy<'s, 't>(
        &self,
        queue: &mut Queue,
        memory: impl Into<Slice<'s, u8>>,
        target: &Self,
        target_memory: impl Into<SliceMut<'t, u8>>,
    ) -> Result<()> {
        if (self.format, self.width, self.height) != (target.format, target.width, target.height) {
            return Err(Error::Differs { from: self.to_string(), to: target.to_string() });
        }
        let (memory, mut target_memory) = (memory.into(), target_memory.into());
        self.check_memory("the source of the copy", memory.len())?;
        target.check_memory("the target of the copy", target_memory.len())?;
        for index in 0..self.format.planes() {
            let from = self.plane(index, memory)?;
            let to = target.plane_mut(index, &mut target_memory)?;
            queue.copy_2d(from, to)?;
        }
        Ok(())
    }

    /// The rows of a plane as a rectangle of the image's memory, for 2-D copies.
    fn plane<'a>(&self, index: usize, memory: Slice<'a, u8>) -> Result<HcqPlane<'a, u8>> {
        let (plane, bytes, columns, rows) = self.rectangle(index);
        let memory = memory.part(bytes)?;
        // CAST: 32 bits fit usize.
        let pitch = plane.pitch as usize;
        let all = match plane.layout {
            Layout::Pitch => memory.plane(pitch)?,
            Layout::BlockLinear { block_height_log2 } => memory.blocks(pitch, rows, block_height_log2)?,
        };
        Ok(all.part(..columns, ..)?)
    }

    /// As [`Surface::plane`], for writing.
    fn plane_mut<'a>(&self, index: usize, memory: &'a mut SliceMut<'_, u8>) -> Result<HcqPlaneMut<'a, u8>> {
        let (plane, bytes, columns, rows) = self.rectangle(index);
        let memory = SliceMut::from(memory).part(bytes)?;
        // CAST: 32 bits fit usize.
        let pitch = plane.pitch as usize;
        let all = match plane.layout {
            Layout::Pitch => memory.plane(pitch)?,
            Layout::BlockLinear { block_height_log2 } => memory.blocks(pitch, rows, block_height_log2)?,
        };
        Ok(all.part(..columns, ..)?)
    }

    /// A plane, the bytes of its rows or blocks in the memory, and bytes per row and number of rows.
    fn rectangle(&self, index: usize) -> (Plane, core::ops::Range<usize>, usize, usize) {
        let plane = self.planes[index];
        let (row_bytes, rows) = self.format.plane_size(index, self.width, self.height);
        // CAST: the memory is that of a slice, whose size fits usize.
        let start = plane.offset as usize;
        (plane, start..start + plane.needed(rows) as usize, row_bytes as usize, rows as usize)
    }

    /// Refuses memory that is shorter than the image.
    pub(crate) fn check_memory(&self, what: &'static str, given: usize) -> Result<()> {
        let needed = self.bytes();
        // CAST: usize is at most 64 bits.
        if (given as u64) < needed { Err(Error::Length { what, given, needed }) } else { Ok(()) }
    }

    /// The error of a call that needs another format or layout.
    pub(crate) fn unsupported(&self, needed: &'static str) -> Error {
        Error::Unsupported { format: self.format, pitch_linear: self.is_pitch_linear(), needed }
    }
}

/// Refuses a size that the format does not have.
fn check_size(format: Format, width: u32, height: u32) -> Result<()> {
    if !(1..=MAX_SIDE).contains(&width) || !(1..=MAX_SIDE).contains(&height) {
        return Err(Error::Size { width, height });
    }
    let (x, y) = format.chroma_shift().unwrap_or_default();
    let odd = |side: u32, shift: u32| !side.is_multiple_of(1 << shift);
    let what = match (odd(width, x), odd(height, y)) {
        (true, _) => "the width",
        (_, true) => "the height",
        _ => "",
    };
    if !what.is_empty() {
        return Err(Error::Odd { format, width, height, what });
    }
    if let Format::Raw { depth, packing: Packing::Words { shift }, .. } = format
        && u32::from(shift) + depth.bits() > 16
    {
        return Err(Error::Shift { bits: depth.bits(), shift });
    }
    Ok(())
}

impl fmt::Display for Surface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}x{}", self.format, self.width, self.height)
    }
}
