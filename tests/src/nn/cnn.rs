//! A small convolutional network.

use tegra_hcq::{Buffer, Device, MemoryUse, Result};

use super::{Conv, Kernels, Linear, Model, Steps};
use crate::Numbers;
use crate::reference::{self, Activation, ConvShape, ConvWeights, LinearWeights, Pooling, widen};

/// Channels of the image and behind each convolution.
const CHANNELS: [usize; 3] = [1, 8, 16];
/// Edge of the image.
const EDGE: usize = 8;
/// Edge behind the pooling.
const POOLED: usize = EDGE / 2;
/// Numbers that come out for an image.
const OUTPUTS: usize = 10;

/// Two convolutions of 3 x 3 with ReLU, from 1 channel over 8 to 16, on images of 8 x 8; maxima of 2 x 2; a
/// fully connected layer with 10 outputs.
#[derive(Debug)]
pub struct Cnn {
    kernels: Kernels,
    weights: ([ConvWeights; 2], LinearWeights),
    convs: [Conv; 2],
    linear: Linear,
    images: Buffer<f32>,
    features: [Buffer<f32>; 2],
    pooled: Buffer<f32>,
    out: Buffer<f32>,
}

impl Cnn {
    /// A network of random weights for `batch` images.
    ///
    /// # Errors
    ///
    /// When there is no memory.
    pub fn new(device: &Device, numbers: &mut Numbers, batch: usize) -> Result<Self> {
        let shape = |channels_in, channels_out| ConvShape {
            channels_in,
            channels_out,
            size: 3,
            stride: 1,
            padding: 1,
        };
        let [c0, c1, c2] = CHANNELS;
        let convs = [(c0, c1), (c1, c2)].map(|(from, to)| ConvWeights::random(numbers, shape(from, to)));
        let linear = LinearWeights::random(numbers, c2 * POOLED * POOLED, OUTPUTS);
        Ok(Self {
            kernels: Kernels::load(device)?,
            convs: [Conv::new(device, &convs[0])?, Conv::new(device, &convs[1])?],
            linear: Linear::new(device, &linear)?,
            weights: (convs, linear),
            images: device.alloc_for(batch * c0 * EDGE * EDGE, MemoryUse::Upload)?.named("images"),
            features: [device.alloc(batch * c1 * EDGE * EDGE)?, device.alloc(batch * c2 * EDGE * EDGE)?],
            pooled: device.alloc(batch * c2 * POOLED * POOLED)?,
            out: device.alloc_for(batch * OUTPUTS, MemoryUse::ReadBack)?.named("classes"),
        })
    }
}

impl Model for Cnn {
    fn input(&mut self) -> &mut Buffer<f32> {
        &mut self.images
    }

    fn output(&mut self) -> &mut Buffer<f32> {
        &mut self.out
    }

    fn forward(&self, steps: &mut dyn Steps) -> Result<()> {
        let ([first, second], edges) = (&self.features, (EDGE, EDGE));
        self.kernels.conv2d(steps, &self.convs[0], true, edges, &self.images, first)?;
        self.kernels.conv2d(steps, &self.convs[1], true, edges, first, second)?;
        self.kernels.pool(steps, Pooling::Max, 2, edges, second, &self.pooled)?;
        self.kernels.linear(steps, &self.linear, Activation::Identity, &self.pooled, &self.out)
    }

    fn reference(&self, input: &[f32]) -> Vec<f64> {
        let (convs, linear) = &self.weights;
        let features = convs
            .iter()
            .fold(widen(input), |values, conv| conv.forward(&values, EDGE, EDGE, Activation::Relu));
        let pooled = reference::pool(&features, EDGE, EDGE, 2, Pooling::Max);
        linear.forward(&pooled, Activation::Identity)
    }
}
