//! A small convolutional network.

use fastrand::Rng;
use infer::Launcher;
use tegra_hcq::{Buffer, Device, MemoryUse};

use crate::error::{Result, sizes};
use crate::kernels::Kernels;
use crate::layers::{Conv, Linear};
use crate::weights::{Activation, ConvShape, ConvWeights, LinearWeights, Pooling};
use crate::{Model, expect_shape};

/// Channels of the image and of the output of each convolution.
const CHANNELS: [usize; 3] = [1, 8, 16];
/// Edge of the pooled planes.
const POOLED: usize = Cnn::EDGE / 2;
/// Outputs per image.
const OUTPUTS: usize = 10;

/// Weights of a [`Cnn`] on the CPU.
#[derive(Clone, Debug)]
pub struct CnnWeights {
    /// The convolutions: 1 channel to 8, 8 channels to 16, 3 x 3 each.
    pub convs: [ConvWeights; 2],
    /// The fully connected layer: 16 x 4 x 4 inputs, 10 outputs.
    pub linear: LinearWeights,
}

/// The shapes of the convolutions.
fn shapes() -> [ConvShape; 2] {
    let [c0, c1, c2] = CHANNELS;
    [(c0, c1), (c1, c2)].map(|(channels_in, channels_out)| ConvShape {
        channels_in,
        channels_out,
        size: 3,
        stride: 1,
        padding: 1,
    })
}

impl CnnWeights {
    /// Random weights.
    pub fn random(rng: &mut Rng) -> Self {
        let convs = shapes().map(|shape| ConvWeights::random(rng, shape));
        Self { convs, linear: LinearWeights::random(rng, CHANNELS[2] * POOLED * POOLED, OUTPUTS) }
    }
}

/// Two convolutions of 3 x 3 with ReLU, 1 to 8 to 16 channels, on images of 8 x 8; maxima of 2 x 2; a fully connected
/// layer with 10 outputs.
#[derive(Debug)]
pub struct Cnn {
    kernels: Kernels,
    convs: [Conv; 2],
    linear: Linear,
    images: Buffer<f32>,
    features: [Buffer<f32>; 2],
    pooled: Buffer<f32>,
    out: Buffer<f32>,
}

impl Cnn {
    /// Edge of the images, in pixels.
    pub const EDGE: usize = 8;

    /// A network for `batch` images.
    ///
    /// # Errors
    ///
    /// [`Error::Sizes`](crate::Error::Sizes) if the weights have other shapes than [`CnnWeights`] says; an error
    /// of the device if there is no memory left.
    pub fn new(device: &Device, weights: &CnnWeights, batch: usize) -> Result<Self> {
        let [_, c1, c2] = CHANNELS;
        for (conv, shape) in weights.convs.iter().zip(shapes()) {
            if conv.shape != shape {
                return Err(sizes!("{:?} is not the shape of the network's convolution", conv.shape));
            }
        }
        expect_shape("the last layer", &weights.linear, c2 * POOLED * POOLED, OUTPUTS)?;
        let plane = Self::EDGE * Self::EDGE;
        Ok(Self {
            kernels: Kernels::load(device)?,
            convs: [Conv::new(device, &weights.convs[0])?, Conv::new(device, &weights.convs[1])?],
            linear: Linear::new(device, &weights.linear)?,
            images: device.alloc_for(batch * CHANNELS[0] * plane, MemoryUse::Upload)?.named("images"),
            features: [device.alloc(batch * c1 * plane)?, device.alloc(batch * c2 * plane)?],
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

    fn forward(&mut self, to: &mut dyn Launcher) -> Result<()> {
        let ([first, second], edges) = (&mut self.features, (Self::EDGE, Self::EDGE));
        self.kernels.conv2d(to, &self.convs[0], true, edges, &self.images, first)?;
        self.kernels.conv2d(to, &self.convs[1], true, edges, first, second)?;
        self.kernels.pool(to, Pooling::Max, 2, edges, second, &mut self.pooled)?;
        self.kernels.linear(to, &self.linear, Activation::Identity, &self.pooled, &mut self.out)
    }
}
