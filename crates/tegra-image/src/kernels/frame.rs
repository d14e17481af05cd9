//! Frames of cameras to planar floats.

use bytemuck::{Pod, Zeroable};
use tegra_hcq::{Queue, Slice, SliceMut};

use super::{Kernels, Shape, check, launch};
use crate::error::Result;
use crate::format::{Format, Packing};
use crate::surface::Surface;

/// The weights of red, green and blue in luma.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Matrix {
    /// ITU-R BT.601: standard definition, JPEG, most USB cameras.
    Bt601,
    /// ITU-R BT.709: high definition.
    Bt709,
}

/// The values of luma and chroma.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Range {
    /// Luma from 16 to 235, chroma from 16 to 240.
    Limited,
    /// From 0 to 255 (extended range, `_ER`).
    Full,
}

/// Encoding of colour as luma and chroma. Without metadata: `BT601_LIMITED` below 720 rows, else `BT709_LIMITED`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Colour {
    /// The weights of red, green and blue.
    pub matrix: Matrix,
    /// The values of luma and chroma.
    pub range: Range,
}

impl Colour {
    /// `NVBUF_COLOR_FORMAT_NV12`; V4L2's `SMPTE170M`.
    pub const BT601_LIMITED: Self = Self { matrix: Matrix::Bt601, range: Range::Limited };
    /// `NVBUF_COLOR_FORMAT_NV12_ER`; V4L2's `JPEG`.
    pub const BT601_FULL: Self = Self { matrix: Matrix::Bt601, range: Range::Full };
    /// `NVBUF_COLOR_FORMAT_NV12_709`; V4L2's `REC709`.
    pub const BT709_LIMITED: Self = Self { matrix: Matrix::Bt709, range: Range::Limited };
    /// `NVBUF_COLOR_FORMAT_NV12_709_ER`.
    pub const BT709_FULL: Self = Self { matrix: Matrix::Bt709, range: Range::Full };

    /// Black, white above black, and factors: of Cr in red, of Cb and Cr in green (subtracted), of Cb in blue.
    fn levels(self) -> ([f32; 2], [f32; 4]) {
        let (red, blue) = match self.matrix {
            Matrix::Bt601 => (0.299, 0.114),
            Matrix::Bt709 => (0.2126, 0.0722),
        };
        let (black, luma, chroma) = match self.range {
            Range::Limited => (16.0, 219.0, 224.0),
            Range::Full => (0.0, 255.0, 255.0),
        };
        let green: f64 = 1.0 - red - blue;
        let (red_v, blue_u) = (2.0 * (1.0 - red) / chroma, 2.0 * (1.0 - blue) / chroma);
        let factors = [red_v, blue_u * blue / green, red_v * red / green, blue_u];
        // CAST: rounded to the kernel's precision.
        ([black, luma], factors.map(|factor| factor as f32))
    }
}

/// From a sensor's samples to light from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Develop {
    /// The sample without light.
    pub black: u16,
    /// The sample of full light; `None` for the largest one.
    pub white: Option<u16>,
    /// White balance: factors of red, green and blue. Results above 1 become 1.
    pub gains: [f32; 3],
}

impl Default for Develop {
    /// From sample 0 to the largest one, without white balance.
    fn default() -> Self {
        Self { black: 0, white: None, gains: [1.0; 3] }
    }
}

/// `struct Yuv` of `kernels/image.cu`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct YuvParameters {
    offsets: [u64; 2],
    pitches: [u32; 2],
    size: [u32; 2],
    shifts: [u32; 2],
    levels: [f32; 2],
    factors: [f32; 4],
}

/// `struct Packed` of `kernels/image.cu`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct PackedParameters {
    offset: u64,
    pitch: u32,
    size: [u32; 2],
    bytes: u32,
    colours: [u32; 3],
    padding: u32,
}

/// `struct Raw` of `kernels/image.cu`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct RawParameters {
    offset: u64,
    pitch: u32,
    size: [u32; 2],
    bits: u32,
    mipi: u32,
    shift: u32,
    red: [u32; 2],
    levels: [f32; 2],
    gains: [f32; 3],
    padding: f32,
}

impl Kernels {
    /// Adds a conversion of an NV12, NV16 or NV24 frame to planar RGB from 0 to 1. A pair of chroma counts for all of
    /// its pixels; colours outside of the range are clamped.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`](crate::Error::Unsupported) if the surface has another format or is block-linear,
    /// [`Error::Length`](crate::Error::Length) if `frame` is shorter than the surface or `target` has another length
    /// than three planes. Otherwise as [`Queue::launch`].
    pub fn yuv_to_rgb<'s, 't>(
        &self,
        queue: &mut Queue,
        frame: impl Into<Slice<'s, u8>>,
        surface: &Surface,
        colour: Colour,
        target: impl Into<SliceMut<'t, f32>>,
    ) -> Result<()> {
        let (frame, target) = (frame.into(), target.into());
        let Some((shift_x, shift_y)) = surface.format().chroma_shift() else {
            return Err(surface.unsupported("yuv_to_rgb converts NV12, NV16 and NV24"));
        };
        let shape = check_frame(surface, &frame, &target)?;
        let (levels, factors) = colour.levels();
        let [luma, chroma] = [surface.planes()[0], surface.planes()[1]];
        let parameters = YuvParameters {
            offsets: [luma.offset, chroma.offset],
            pitches: [luma.pitch, chroma.pitch],
            size: [surface.width(), surface.height()],
            shifts: [shift_x, shift_y],
            levels,
            factors,
        };
        // SAFETY: a thread reads a byte of a row of luma and a pair of a row of chroma, which the surface has inside
        // the frame, and writes its pixel of three planes.
        unsafe { launch(&self.yuv_to_rgb, queue, shape, (frame, &target), &parameters) }
    }

    /// Adds a conversion of a GRAY8, RGBA8 or BGRA8 frame to planar RGB from 0 to 1.
    ///
    /// # Errors
    ///
    /// As [`Kernels::yuv_to_rgb`].
    pub fn packed_to_rgb<'s, 't>(
        &self,
        queue: &mut Queue,
        frame: impl Into<Slice<'s, u8>>,
        surface: &Surface,
        target: impl Into<SliceMut<'t, f32>>,
    ) -> Result<()> {
        let (frame, target) = (frame.into(), target.into());
        let (bytes, colours) = match surface.format() {
            Format::Gray8 => (1, [0, 0, 0]),
            Format::Rgba8 => (4, [0, 1, 2]),
            Format::Bgra8 => (4, [2, 1, 0]),
            _ => return Err(surface.unsupported("packed_to_rgb converts GRAY8, RGBA8 and BGRA8")),
        };
        let shape = check_frame(surface, &frame, &target)?;
        let plane = surface.planes()[0];
        let parameters = PackedParameters {
            offset: plane.offset,
            pitch: plane.pitch,
            size: [surface.width(), surface.height()],
            bytes,
            colours,
            padding: 0,
        };
        // SAFETY: a thread reads a pixel of a row, which the surface has inside the frame, and writes its pixel of
        // three planes.
        unsafe { launch(&self.packed_to_rgb, queue, shape, (frame, &target), &parameters) }
    }

    /// Adds a conversion of raw samples to planar RGB from 0 to 1: a missing colour is the mean of the nearest samples
    /// that have it (bilinear); the image is mirrored at its edges.
    ///
    /// # Errors
    ///
    /// As [`Kernels::yuv_to_rgb`]; [`Error::Parameter`](crate::Error::Parameter) if black is not below white, or if the
    /// image is less than 2 pixels wide or high.
    pub fn raw_to_rgb<'s, 't>(
        &self,
        queue: &mut Queue,
        frame: impl Into<Slice<'s, u8>>,
        surface: &Surface,
        develop: &Develop,
        target: impl Into<SliceMut<'t, f32>>,
    ) -> Result<()> {
        let (frame, target) = (frame.into(), target.into());
        let Format::Raw { depth, packing, order } = surface.format() else {
            return Err(surface.unsupported("raw_to_rgb converts raw samples"));
        };
        let shape = check_frame(surface, &frame, &target)?;
        let least = surface.width().min(surface.height());
        check("the shorter side of a raw frame", least.into(), least >= 2, "at least 2 pixels")?;
        let white = develop.white.map_or((1 << depth.bits()) - 1, u32::from);
        let black = u32::from(develop.black);
        check("the black level", black.into(), black < white, "below the white level")?;
        let plane = surface.planes()[0];
        let (mipi, shift) = match packing {
            Packing::Words { shift } => (0, shift.into()),
            Packing::Mipi => (1, 0),
        };
        let parameters = RawParameters {
            offset: plane.offset,
            pitch: plane.pitch,
            size: [surface.width(), surface.height()],
            bits: depth.bits(),
            mipi,
            shift,
            red: [order.red().0, order.red().1],
            // CAST: at most 65535, exact.
            levels: [black as f32, (white - black) as f32],
            gains: develop.gains,
            padding: 0.0,
        };
        // SAFETY: a thread reads samples at its pixel and around it, mirrored at the edges of at least 2 x 2 pixels,
        // which the surface has inside the frame, and writes its pixel of three planes.
        unsafe { launch(&self.raw_to_rgb, queue, shape, (frame, &target), &parameters) }
    }
}

/// Checks layout and lengths of a conversion to planar RGB. Returns the shape of the launch: a thread per pixel.
fn check_frame(surface: &Surface, frame: &Slice<'_, u8>, target: &SliceMut<'_, f32>) -> Result<Shape> {
    if !surface.is_pitch_linear() {
        return Err(surface.unsupported("kernels read pitch-linear frames: copy it with Surface::copy"));
    }
    surface.check_memory("the frame", frame.len())?;
    Shape::rgb(surface.width(), surface.height()).check("the planar target", target.len())?;
    Ok(Shape { channels: 1, width: surface.width(), height: surface.height() })
}
