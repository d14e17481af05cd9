//! Weights in GPU memory.

use half::f16;
use tegra_hcq::{Buffer, Device};

use crate::error::{Error, Result};
use crate::weights::{ConvShape, ConvWeights, LinearWeights, NormWeights};

/// Refuses `len` elements where a layer or a step needs another number.
pub(crate) fn fits(what: &'static str, len: usize, needed: usize) -> Result<()> {
    if len == needed { Ok(()) } else { Err(Error::Length { what, len, needed }) }
}

/// The product of sizes; `usize::MAX`, which no buffer has, if it overflows.
pub(crate) fn product<const N: usize>(sizes: [usize; N]) -> usize {
    sizes.into_iter().fold(1, usize::saturating_mul)
}

/// Refuses incomplete weights.
fn check(from: &LinearWeights) -> Result<()> {
    fits("a layer's weights", from.weights.len(), product([from.inputs, from.outputs]))?;
    fits("a layer's bias", from.bias.len(), from.outputs)
}

/// A fully connected layer.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use tegra_hcq::{Device, DeviceKind};
/// # let device = Device::open(DeviceKind::Sim)?;
/// # let mut queue = device.queue()?;
/// # let timeout = std::time::Duration::from_secs(10);
/// # let kernels = infer::kernels::Kernels::load(&device)?;
/// use infer::layers::Linear;
/// use infer::weights::{Activation, LinearWeights};
///
/// let weights = LinearWeights { inputs: 2, outputs: 1, weights: vec![2.0, 3.0], bias: vec![1.0] };
/// let layer = Linear::new(&device, &weights)?;
/// let (input, mut out) = (device.alloc_from(&[10.0, 100.0])?, device.alloc(1)?);
/// kernels.linear(&mut queue, &layer, Activation::Identity, &input, &mut out)?;
/// queue.wait(timeout)?;
/// assert_eq!(out.to_vec()?, [321.0]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Linear {
    pub(crate) inputs: usize,
    pub(crate) outputs: usize,
    pub(crate) weights: Buffer<f32>,
    pub(crate) bias: Buffer<f32>,
}

impl Linear {
    /// Copies the weights to the GPU.
    ///
    /// # Errors
    ///
    /// [`Error::Length`] if weights are missing; an error of the device if there is no memory left.
    pub fn new(device: &Device, from: &LinearWeights) -> Result<Self> {
        check(from)?;
        Ok(Self {
            inputs: from.inputs,
            outputs: from.outputs,
            weights: device.alloc_from(&from.weights)?.named("linear weights"),
            bias: device.alloc_from(&from.bias)?.named("linear bias"),
        })
    }
}

/// A fully connected layer for the tensor cores.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use tegra_hcq::{Device, DeviceKind};
/// # let device = Device::open(DeviceKind::Sim)?;
/// # let mut queue = device.queue()?;
/// # let timeout = std::time::Duration::from_secs(10);
/// # let kernels = infer::kernels::Kernels::load(&device)?;
/// use infer::layers::HalfLinear;
/// use infer::weights::{Activation, LinearWeights};
///
/// let weights = LinearWeights { inputs: 2, outputs: 1, weights: vec![2.0, 3.0], bias: vec![1.0] };
/// let layer = HalfLinear::new(&device, &weights)?;
/// let (input, mut rounded) = (device.alloc_from(&[10.0, 100.0])?, device.alloc(2)?);
/// let mut out = device.alloc(1)?;
/// kernels.to_f16(&mut queue, &input, &mut rounded)?;
/// kernels.linear_f16(&mut queue, &layer, Activation::Identity, &rounded, &mut out)?;
/// queue.wait(timeout)?;
/// assert_eq!(out.to_vec()?, [321.0]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct HalfLinear {
    pub(crate) inputs: usize,
    pub(crate) outputs: usize,
    /// Bits of halves.
    pub(crate) weights: Buffer<u16>,
    pub(crate) bias: Buffer<f32>,
}

impl HalfLinear {
    /// Rounds the weights to halves and copies them to the GPU; the bias stays as it is.
    ///
    /// # Errors
    ///
    /// [`Error::Length`] if weights are missing; an error of the device if there is no memory left.
    pub fn new(device: &Device, from: &LinearWeights) -> Result<Self> {
        check(from)?;
        let bits: Vec<u16> = from.weights.iter().map(|w| f16::from_f32(*w).to_bits()).collect();
        Ok(Self {
            inputs: from.inputs,
            outputs: from.outputs,
            weights: device.alloc_from(&bits)?.named("half weights"),
            bias: device.alloc_from(&from.bias)?.named("half bias"),
        })
    }
}

/// A convolution.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use tegra_hcq::{Device, DeviceKind};
/// # let device = Device::open(DeviceKind::Sim)?;
/// # let mut queue = device.queue()?;
/// # let timeout = std::time::Duration::from_secs(10);
/// # let kernels = infer::kernels::Kernels::load(&device)?;
/// use infer::layers::Conv;
/// use infer::weights::{ConvShape, ConvWeights};
///
/// let shape = ConvShape { channels_in: 1, channels_out: 1, size: 2, stride: 1, padding: 0 };
/// let conv = Conv::new(&device, &ConvWeights { shape, weights: vec![1.0; 4], bias: vec![0.5] })?;
/// let (image, mut out) = (device.alloc_from(&[1.0, 2.0, 3.0, 4.0])?, device.alloc(1)?);
/// kernels.conv2d(&mut queue, &conv, false, (2, 2), &image, &mut out)?;
/// queue.wait(timeout)?;
/// assert_eq!(out.to_vec()?, [10.5]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Conv {
    pub(crate) shape: ConvShape,
    pub(crate) weights: Buffer<f32>,
    pub(crate) bias: Buffer<f32>,
}

impl Conv {
    /// Copies the weights to the GPU.
    ///
    /// # Errors
    ///
    /// [`Error::Length`] if weights are missing; an error of the device if there is no memory left.
    pub fn new(device: &Device, from: &ConvWeights) -> Result<Self> {
        let ConvShape { channels_in, channels_out, size, .. } = from.shape;
        let weights = product([channels_in, channels_out, size, size]);
        fits("a convolution's weights", from.weights.len(), weights)?;
        fits("a convolution's bias", from.bias.len(), channels_out)?;
        Ok(Self {
            shape: from.shape,
            weights: device.alloc_from(&from.weights)?.named("convolution weights"),
            bias: device.alloc_from(&from.bias)?.named("convolution bias"),
        })
    }
}

/// A layer normalisation of rows.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use tegra_hcq::{Device, DeviceKind};
/// # let device = Device::open(DeviceKind::Sim)?;
/// # let mut queue = device.queue()?;
/// # let timeout = std::time::Duration::from_secs(10);
/// # let kernels = infer::kernels::Kernels::load(&device)?;
/// use infer::layers::Norm;
/// use infer::weights::NormWeights;
///
/// let weights = NormWeights { gain: vec![1.0; 2], bias: vec![5.0; 2], epsilon: 0.0 };
/// let norm = Norm::new(&device, &weights)?;
/// let (rows, mut out) = (device.alloc_from(&[1.0, 3.0])?, device.alloc(2)?);
/// kernels.layer_norm(&mut queue, &norm, &rows, &mut out)?;
/// queue.wait(timeout)?;
/// assert_eq!(out.to_vec()?, [4.0, 6.0]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Norm {
    pub(crate) gain: Buffer<f32>,
    pub(crate) bias: Buffer<f32>,
    pub(crate) epsilon: f32,
}

impl Norm {
    /// Copies gain and bias to the GPU.
    ///
    /// # Errors
    ///
    /// [`Error::Length`] if weights are missing; an error of the device if there is no memory left.
    pub fn new(device: &Device, from: &NormWeights) -> Result<Self> {
        fits("a normalisation's bias", from.bias.len(), from.gain.len())?;
        Ok(Self {
            gain: device.alloc_from(&from.gain)?.named("norm gain"),
            bias: device.alloc_from(&from.bias)?.named("norm bias"),
            epsilon: from.epsilon,
        })
    }
}
