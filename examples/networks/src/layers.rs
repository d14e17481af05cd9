//! Weights in GPU memory.

use half::f16;
use tegra_hcq::{Buffer, Device, Pod};

use crate::error::{Result, sizes};
use crate::weights::{ConvShape, ConvWeights, LinearWeights, NormWeights};

/// Returns an error if a buffer has another number of elements than needed.
pub(crate) fn fits(what: &'static str, len: usize, needed: usize) -> Result<()> {
    if len == needed { Ok(()) } else { Err(sizes!("{what} has {len} elements instead of {needed}")) }
}

/// The product of sizes; `usize::MAX`, which no buffer has, if it overflows.
pub(crate) fn product<const N: usize>(sizes: [usize; N]) -> usize {
    sizes.into_iter().fold(1, usize::saturating_mul)
}

/// An element of the weights of a [`Linear`] layer.
pub trait Element: Pod {
    /// The element next to a number.
    fn nearest(number: f32) -> Self;
}

impl Element for f32 {
    fn nearest(number: f32) -> Self {
        number
    }
}

/// The bits of a half.
impl Element for u16 {
    fn nearest(number: f32) -> Self {
        f16::from_f32(number).to_bits()
    }
}

/// A fully connected layer. `T` is the element of its weights; the bias is `f32`.
#[derive(Debug)]
pub struct Linear<T: Pod = f32> {
    pub(crate) inputs: usize,
    pub(crate) outputs: usize,
    pub(crate) weights: Buffer<T>,
    pub(crate) bias: Buffer<f32>,
}

/// A fully connected layer for the tensor cores, with weights rounded to halves.
pub type HalfLinear = Linear<u16>;

impl<T: Element> Linear<T> {
    /// Rounds the weights and copies them to the GPU.
    ///
    /// # Errors
    ///
    /// [`Error::Sizes`](crate::Error::Sizes) if weights are missing; an error of the device if there is no memory left.
    pub fn new(device: &Device, from: &LinearWeights) -> Result<Self> {
        let &LinearWeights { inputs, outputs, .. } = from;
        fits("a layer's weights", from.weights.len(), product([inputs, outputs]))?;
        fits("a layer's bias", from.bias.len(), outputs)?;
        let weights: Vec<T> = from.weights.iter().copied().map(T::nearest).collect();
        Ok(Self {
            inputs,
            outputs,
            weights: device.alloc_from(&weights)?.named("linear weights"),
            bias: device.alloc_from(&from.bias)?.named("linear bias"),
        })
    }
}

/// A convolution.
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
    /// [`Error::Sizes`](crate::Error::Sizes) if weights are missing; an error of the device if there is no memory left.
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
    /// [`Error::Sizes`](crate::Error::Sizes) if weights are missing; an error of the device if there is no memory left.
    pub fn new(device: &Device, from: &NormWeights) -> Result<Self> {
        fits("a normalisation's bias", from.bias.len(), from.gain.len())?;
        Ok(Self {
            gain: device.alloc_from(&from.gain)?.named("norm gain"),
            bias: device.alloc_from(&from.bias)?.named("norm bias"),
            epsilon: from.epsilon,
        })
    }
}
