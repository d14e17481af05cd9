//! From planar floats to planar floats: resize, undistort, normalise.

use bytemuck::{Pod, Zeroable};
use tegra_hcq::{Arg, Queue, Slice, SliceMut, args};

use super::{Kernels, Shape, check, launch};
use crate::error::Result;

/// How an image fits a target of another shape.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fit {
    /// It fills the target.
    Stretch,
    /// It keeps its proportions, in the middle of the target, with this value around it.
    Letterbox {
        /// Value of the pixels around the image.
        fill: f32,
    },
}

/// Where a resized image is in its target, in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// First column.
    pub left: u32,
    /// First row.
    pub top: u32,
    /// Number of columns.
    pub width: u32,
    /// Number of rows.
    pub height: u32,
}

impl Placement {
    /// The place of an image in a target.
    fn of(from: Shape, to: Shape, fit: Fit) -> Self {
        let [across, down] =
            [u64::from(to.width) * u64::from(from.height), u64::from(to.height) * u64::from(from.width)];
        // `side` of the image when `other` is scaled to `to`, rounded. CAST: at most the side of the target.
        let scaled = |side: u32, to: u32, other: u32| {
            let (side, to, other) = (u64::from(side), u64::from(to), u64::from(other));
            ((2 * side * to + other) / (2 * other)).max(1) as u32
        };
        let (width, height) = match fit {
            Fit::Stretch => (to.width, to.height),
            Fit::Letterbox { .. } if across <= down => (to.width, scaled(from.height, to.width, from.width)),
            Fit::Letterbox { .. } => (scaled(from.width, to.height, from.height), to.height),
        };
        Self { left: (to.width - width) / 2, top: (to.height - height) / 2, width, height }
    }

    /// The point of the image `from` that is at (x, y) in the target; 0 is the left or upper edge of the first pixel.
    /// For boxes that a network has found.
    ///
    /// ```
    /// use tegra_image::{Placement, Shape};
    ///
    /// let placement = Placement { left: 0, top: 140, width: 640, height: 360 };
    /// assert_eq!(placement.to_source(Shape::rgb(1920, 1080), (320.0, 320.0)), (960.0, 540.0));
    /// ```
    pub fn to_source(&self, from: Shape, (x, y): (f32, f32)) -> (f32, f32) {
        // CAST: sides are at most 2^15, exact.
        let scale = |at: f32, start: u32, to: u32, from: u32| (at - start as f32) * from as f32 / to as f32;
        (scale(x, self.left, self.width, from.width), scale(y, self.top, self.height, from.height))
    }
}

/// A pinhole camera, in pixels; (0, 0) is the centre of the upper left pixel, as in OpenCV.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Camera {
    /// Focal length in columns.
    pub fx: f32,
    /// Focal length in rows.
    pub fy: f32,
    /// Column of the optical axis.
    pub cx: f32,
    /// Row of the optical axis.
    pub cy: f32,
}

/// Distortion of a lens: OpenCV's five coefficients, by these names. [`Lens::default`] does not distort.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Lens {
    /// Radial, of r^2.
    pub k1: f32,
    /// Radial, of r^4.
    pub k2: f32,
    /// Tangential, across rows.
    pub p1: f32,
    /// Tangential, across columns.
    pub p2: f32,
    /// Radial, of r^6.
    pub k3: f32,
}

/// `struct Resize` of `kernels/image.cu`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct ResizeParameters {
    from: [u32; 2],
    to: [u32; 2],
    place: [u32; 4],
    step: [f32; 2],
    fill: f32,
}

/// `struct Undistort` of `kernels/image.cu`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct UndistortParameters {
    from: [u32; 2],
    to: [u32; 2],
    camera: [f32; 4],
    lens: [f32; 5],
    ideal: [f32; 4],
    fill: f32,
}

/// `struct Normalise` of `kernels/image.cu`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct NormaliseParameters {
    pixels: u32,
    mean: [f32; 4],
    scale: [f32; 4],
}

impl Kernels {
    /// Adds a resize, with linear interpolation between pixel centres (OpenCV's `INTER_LINEAR`, PyTorch's `bilinear`
    /// without `align_corners`). It does not smooth: to shrink more than by half, shrink in steps. Returns where the
    /// image is in the target.
    ///
    /// # Errors
    ///
    /// [`Error::Length`](crate::Error::Length) if a slice has another length than its shape,
    /// [`Error::Size`](crate::Error::Size) or [`Error::Parameter`](crate::Error::Parameter) for a shape that is not
    /// permitted, or if the numbers of channels differ. Otherwise as [`Queue::launch`].
    pub fn resize<'s, 't>(
        &self,
        queue: &mut Queue,
        source: impl Into<Slice<'s, f32>>,
        from: Shape,
        target: impl Into<SliceMut<'t, f32>>,
        to: Shape,
        fit: Fit,
    ) -> Result<Placement> {
        let (source, target) = (source.into(), target.into());
        check_shapes(&source, from, &target, to)?;
        let place = Placement::of(from, to, fit);
        let parameters = ResizeParameters {
            from: [from.width, from.height],
            to: [to.width, to.height],
            place: [place.left, place.top, place.width, place.height],
            // CAST: sides are at most 2^15, exact.
            step: [from.width as f32 / place.width as f32, from.height as f32 / place.height as f32],
            fill: if let Fit::Letterbox { fill } = fit { fill } else { 0.0 },
        };
        // SAFETY: a thread reads up to four pixels of the source's channel, clamped to its sides, and writes its pixel
        // of the target's.
        unsafe { launch(&self.resize, queue, to, (source, &target), &parameters) }?;
        Ok(place)
    }

    /// Adds the removal of a lens' distortion: the image of the camera `ideal` without a lens, interpolated linearly
    /// from that of `camera` with `lens`. Pixels that it has not seen become `fill`.
    ///
    /// # Errors
    ///
    /// As [`Kernels::resize`]; [`Error::Parameter`](crate::Error::Parameter) if a focal length is not positive.
    pub fn undistort<'s, 't>(
        &self,
        queue: &mut Queue,
        source: impl Into<Slice<'s, f32>>,
        (from, camera, lens): (Shape, Camera, Lens),
        target: impl Into<SliceMut<'t, f32>>,
        (to, ideal): (Shape, Camera),
        fill: f32,
    ) -> Result<()> {
        let (source, target) = (source.into(), target.into());
        check_shapes(&source, from, &target, to)?;
        for focal in [camera.fx, camera.fy, ideal.fx, ideal.fy] {
            check(
                "a focal length",
                focal.into(),
                focal > 0.0 && focal.is_finite(),
                "a positive number of pixels",
            )?;
        }
        let matrix = |camera: Camera| [camera.fx, camera.fy, camera.cx, camera.cy];
        let parameters = UndistortParameters {
            from: [from.width, from.height],
            to: [to.width, to.height],
            camera: matrix(camera),
            lens: [lens.k1, lens.k2, lens.p1, lens.p2, lens.k3],
            ideal: matrix(ideal),
            fill,
        };
        // SAFETY: a thread reads up to four pixels of the source's channel, if the point is inside of it (a NaN is
        // not), and writes its pixel of the target's.
        unsafe { launch(&self.undistort, queue, to, (source, &target), &parameters) }
    }

    /// Adds `(value - mean) * scale` for each channel, in place. `scale` is one over the standard deviation, where a
    /// network's description has that.
    ///
    /// # Errors
    ///
    /// As [`Kernels::resize`]; [`Error::Parameter`](crate::Error::Parameter) if `mean` or `scale` has another length
    /// than the image has channels.
    pub fn normalise<'t>(
        &self,
        queue: &mut Queue,
        image: impl Into<SliceMut<'t, f32>>,
        shape: Shape,
        mean: &[f32],
        scale: &[f32],
    ) -> Result<()> {
        let image = image.into();
        shape.check("the image", image.len())?;
        // CAST: at most 4.
        let channels = shape.channels as usize;
        for (what, values) in [("the length of the means", mean), ("the length of the scales", scale)] {
            check(what, values.len() as f64, values.len() == channels, "the number of channels")?;
        }
        let four = |values: &[f32]| core::array::from_fn(|at| values.get(at).copied().unwrap_or_default());
        let pixels = shape.width * shape.height;
        let parameters = NormaliseParameters { pixels, mean: four(mean), scale: four(scale) };
        let arguments = args![&image, Arg::Bytes(bytemuck::bytes_of(&parameters))];
        // SAFETY: a thread changes its pixel of one channel, of those that the image has.
        Ok(unsafe { queue.launch(&self.normalise, (pixels.div_ceil(256), shape.channels), 256, &arguments) }?)
    }
}

/// Checks shapes and lengths of two images.
fn check_shapes(source: &Slice<'_, f32>, from: Shape, target: &SliceMut<'_, f32>, to: Shape) -> Result<()> {
    from.check("the source", source.len())?;
    to.check("the target", target.len())?;
    let equal = from.channels == to.channels;
    check("the number of the target's channels", to.channels.into(), equal, "that of the source's channels")
}
