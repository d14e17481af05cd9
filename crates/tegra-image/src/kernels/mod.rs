//! Kernels between a camera and a network: `kernels/image.cu`.
//!
//! Each call checks that its slices have what the kernel reads and writes, then adds one launch to the queue. A launch
//! makes no system call and allocates nothing.

use bytemuck::Pod;
use tegra_hcq::{Arg, Device, Dim3, Kernel, Program, Queue, Slice, SliceMut, args};

use crate::error::{Error, Result};
use crate::surface::MAX_SIDE;

mod frame;
mod planar;

pub use frame::{Colour, Develop, Matrix, Range};
pub use planar::{Camera, Fit, Lens, Placement};

/// Threads of a block.
const BLOCK: (u32, u32) = (32, 8);
/// Largest number of channels of planar floats.
const MAX_CHANNELS: u32 = 4;

/// Size of an image of planar floats: a plane of rows for each channel, without gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Number of channels, 1 to 4.
    pub channels: u32,
    /// Width in pixels, at most [`MAX_SIDE`].
    pub width: u32,
    /// Height in pixels, at most [`MAX_SIDE`].
    pub height: u32,
}

impl Shape {
    /// An image of red, green and blue.
    pub fn rgb(width: u32, height: u32) -> Self {
        Self { channels: 3, width, height }
    }

    /// Number of floats.
    pub fn elements(&self) -> u64 {
        u64::from(self.channels) * u64::from(self.width) * u64::from(self.height)
    }

    /// Refuses a shape that the kernels do not support, and a slice of another length.
    fn check(&self, what: &'static str, given: usize) -> Result<()> {
        let Self { channels, width, height } = *self;
        if !(1..=MAX_SIDE).contains(&width) || !(1..=MAX_SIDE).contains(&height) {
            return Err(Error::Size { width, height });
        }
        check("the number of channels", channels.into(), (1..=MAX_CHANNELS).contains(&channels), "1 to 4")?;
        let needed = self.elements();
        // CAST: usize is at most 64 bits.
        if given as u64 == needed { Ok(()) } else { Err(Error::Length { what, given, needed }) }
    }

    fn grid(&self) -> Dim3 {
        (self.width.div_ceil(BLOCK.0), self.height.div_ceil(BLOCK.1), self.channels).into()
    }
}

/// Refuses a parameter unless it is `valid`.
fn check(what: &'static str, value: f64, valid: bool, permitted: &'static str) -> Result<()> {
    if valid { Ok(()) } else { Err(Error::Parameter { what, value, permitted }) }
}

/// The kernels of this crate on a device. Load them once and keep them.
///
/// ```
/// # fn main() -> Result<(), tegra_image::Error> {
/// # let device = tegra_hcq::Device::open(tegra_hcq::DeviceKind::Sim)?;
/// # let mut queue = device.queue()?;
/// use tegra_image::{Colour, Fit, Format, Kernels, Layout, Shape, Surface};
///
/// let kernels = Kernels::load(&device)?;
/// let surface = Surface::packed(Format::Nv12, 64, 48, Layout::Pitch)?;
/// let frame = device.alloc_from(&vec![128; surface.bytes() as usize])?; // a gray frame
/// let (camera, network) = (Shape::rgb(64, 48), Shape::rgb(32, 32));
/// let mut colour = device.alloc::<f32>(camera.elements() as usize)?;
/// let mut input = device.alloc::<f32>(network.elements() as usize)?;
///
/// kernels.yuv_to_rgb(&mut queue, &frame, &surface, Colour::BT709_FULL, &mut colour)?;
/// let fit = Fit::Letterbox { fill: 0.0 };
/// let place = kernels.resize(&mut queue, &colour, camera, &mut input, network, fit)?;
/// kernels.normalise(&mut queue, &mut input, network, &[0.5; 3], &[2.0; 3])?;
/// queue.wait(tegra_hcq::DEFAULT_TIMEOUT)?;
/// assert_eq!((place.top, place.height), (4, 24));
/// assert_eq!(input.to_vec()?[0], -1.0); // above the image
/// assert!((input.to_vec()?[16 * 32] - 0.004).abs() < 0.001); // 128 of 255
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Kernels {
    yuv_to_rgb: Kernel,
    packed_to_rgb: Kernel,
    raw_to_rgb: Kernel,
    resize: Kernel,
    undistort: Kernel,
    normalise: Kernel,
}

impl Kernels {
    /// Loads the kernels.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if there is no memory, or if the GPU is neither of the Orin's generation nor of Hopper's.
    pub fn load(device: &Device) -> Result<Self> {
        let cubins: [&[u8]; 2] =
            [include_bytes!("../../kernels/image.cubin"), include_bytes!("../../kernels/sm_90/image.cubin")];
        let program = Program::load_fitting(device, &cubins)?;
        Ok(Self {
            yuv_to_rgb: program.kernel("yuv_to_rgb")?,
            packed_to_rgb: program.kernel("packed_to_rgb")?,
            raw_to_rgb: program.kernel("raw_to_rgb")?,
            resize: program.kernel("resize")?,
            undistort: program.kernel("undistort")?,
            normalise: program.kernel("normalise")?,
        })
    }
}

/// Adds a launch of a kernel that reads `source` and writes `target`.
///
/// # Safety
///
/// With these parameters and a thread for each pixel of `shape`, the kernel reads inside `source` and writes inside
/// `target`.
unsafe fn launch<S: Pod + tegra_hcq::Pod, P: Pod>(
    kernel: &Kernel,
    queue: &mut Queue,
    shape: Shape,
    (source, target): (Slice<'_, S>, &SliceMut<'_, f32>),
    parameters: &P,
) -> Result<()> {
    let arguments = args![source, target, Arg::Bytes(bytemuck::bytes_of(parameters))];
    // SAFETY: the caller's promise; both slices are among the arguments, and the target is borrowed exclusively.
    Ok(unsafe { queue.launch(kernel, shape.grid(), BLOCK, &arguments) }?)
}
