//! A block of a transformer.

use fastrand::Rng;
use infer::Launcher;
use tegra_hcq::{Buffer, Device, MemoryUse};

use crate::error::{Result, sizes};
use crate::kernels::{Binary, Kernels, Product};
use crate::layers::{Linear, Norm, fits};
use crate::weights::{Activation, LinearWeights, NormWeights};
use crate::{Model, expect_shape};

/// Shape of a block's input and of its attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Sequences.
    pub batch: usize,
    /// Elements of a sequence.
    pub tokens: usize,
    /// Numbers per token.
    pub width: usize,
    /// Heads of the attention; divides `width`.
    pub heads: usize,
}

impl Shape {
    fn head_width(&self) -> usize {
        self.width / self.heads
    }

    fn values(&self) -> usize {
        self.batch * self.tokens * self.width
    }

    fn scores(&self) -> usize {
        self.batch * self.heads * self.tokens * self.tokens
    }

    /// Extents after the split into heads: batch, head, token, number.
    fn by_head(&self) -> [usize; 4] {
        [self.batch, self.heads, self.tokens, self.head_width()]
    }

    /// Strides of these axes in rows of `row` numbers, which start with head 0.
    fn strides_of_rows(&self, row: usize) -> [usize; 4] {
        [self.tokens * row, self.head_width(), row, 1]
    }

    /// Extents after the heads are joined: batch, token, head, number.
    fn by_token(&self) -> [usize; 4] {
        [self.batch, self.tokens, self.heads, self.head_width()]
    }

    /// Strides of these axes in an array that is split into heads.
    fn strides_of_heads(&self) -> [usize; 4] {
        let head = self.tokens * self.head_width();
        [self.heads * head, self.head_width(), head, 1]
    }

    /// Scores of each token against each other, scaled by the root of the head's width.
    fn score_product(&self) -> Product {
        let (tokens, width) = (self.tokens, self.head_width());
        let scale = 1.0 / (width as f32).sqrt();
        let batch = self.batch * self.heads;
        Product { batch, m: tokens, n: tokens, k: width, b_transposed: true, scale }
    }

    /// The values weighted by the scores.
    fn value_product(&self) -> Product {
        let (tokens, width) = (self.tokens, self.head_width());
        let batch = self.batch * self.heads;
        Product { batch, m: tokens, n: width, k: tokens, b_transposed: false, scale: 1.0 }
    }
}

/// Weights of a block on the CPU.
#[derive(Clone, Debug)]
pub struct BlockWeights {
    /// The normalisations before the attention and before the feed-forward network.
    pub norms: [NormWeights; 2],
    /// Queries, keys and values in one layer: width to 3 * width.
    pub qkv: LinearWeights,
    /// The layer after the attention: width to width.
    pub join: LinearWeights,
    /// The feed-forward network: width to 4 * width and back.
    pub feed: [LinearWeights; 2],
}

impl BlockWeights {
    /// Random weights for tokens of `width` numbers.
    pub fn random(rng: &mut Rng, width: usize) -> Self {
        Self {
            norms: [NormWeights::random(rng, width), NormWeights::random(rng, width)],
            qkv: LinearWeights::random(rng, width, 3 * width),
            join: LinearWeights::random(rng, width, width),
            feed: [
                LinearWeights::random(rng, width, 4 * width),
                LinearWeights::random(rng, 4 * width, width),
            ],
        }
    }

    /// Refuses weights for another width.
    fn check(&self, width: usize) -> Result<()> {
        for norm in &self.norms {
            fits("a normalisation's gain", norm.gain.len(), width)?;
        }
        expect_shape("the layer before the attention", &self.qkv, width, 3 * width)?;
        expect_shape("the layer after the attention", &self.join, width, width)?;
        expect_shape("the first layer of the feed-forward network", &self.feed[0], width, 4 * width)?;
        expect_shape("the second layer of the feed-forward network", &self.feed[1], 4 * width, width)
    }
}

/// Attention and a feed-forward network, each after a normalisation and with a residual connection:
/// `y = x + attention(norm(x))`, `out = y + feed(norm(y))`, GELU inside `feed`.
#[derive(Debug)]
pub struct TransformerBlock {
    shape: Shape,
    kernels: Kernels,
    norms: [Norm; 2],
    qkv: Linear,
    join: Linear,
    feed: [Linear; 2],
    input: Buffer<f32>,
    normed: Buffer<f32>,
    qkv_rows: Buffer<f32>,
    /// Queries, keys and values split into heads.
    split: [Buffer<f32>; 3],
    scores: Buffer<f32>,
    attention: Buffer<f32>,
    mixed: Buffer<f32>,
    joined: Buffer<f32>,
    projected: Buffer<f32>,
    middle: Buffer<f32>,
    hidden: Buffer<f32>,
    fed: Buffer<f32>,
    out: Buffer<f32>,
}

impl TransformerBlock {
    /// A block for inputs of this shape.
    ///
    /// # Errors
    ///
    /// [`Error::Sizes`](crate::Error::Sizes) if the heads do not divide the width, or if the weights belong to another
    /// width; an error of the device if there is no memory left.
    pub fn new(device: &Device, weights: &BlockWeights, shape: Shape) -> Result<Self> {
        let Shape { heads, width, .. } = shape;
        if heads == 0 || !width.is_multiple_of(heads) {
            return Err(sizes!("{heads} heads do not divide a width of {width}"));
        }
        weights.check(width)?;
        let values = || device.alloc(shape.values());
        Ok(Self {
            shape,
            kernels: Kernels::load(device)?,
            norms: [Norm::new(device, &weights.norms[0])?, Norm::new(device, &weights.norms[1])?],
            qkv: Linear::new(device, &weights.qkv)?,
            join: Linear::new(device, &weights.join)?,
            feed: [Linear::new(device, &weights.feed[0])?, Linear::new(device, &weights.feed[1])?],
            input: device.alloc_for(shape.values(), MemoryUse::Upload)?.named("block input"),
            normed: values()?,
            qkv_rows: device.alloc(3 * shape.values())?,
            split: [values()?, values()?, values()?],
            scores: device.alloc(shape.scores())?,
            attention: device.alloc(shape.scores())?,
            mixed: values()?,
            joined: values()?,
            projected: values()?,
            middle: values()?,
            hidden: device.alloc(4 * shape.values())?,
            fed: values()?,
            out: device.alloc_for(shape.values(), MemoryUse::ReadBack)?.named("block output"),
        })
    }

    /// `middle = input + attention(norm(input))`.
    fn attend(&mut self, to: &mut dyn Launcher) -> Result<()> {
        let (shape, kernels) = (self.shape, &self.kernels);
        kernels.layer_norm(to, &self.norms[0], &self.input, &mut self.normed)?;
        kernels.linear(to, &self.qkv, Activation::Identity, &self.normed, &mut self.qkv_rows)?;
        for (at, split) in self.split.iter_mut().enumerate() {
            let part = self.qkv_rows.slice(at * shape.width..)?;
            kernels.permute(to, shape.by_head(), shape.strides_of_rows(3 * shape.width), part, split)?;
        }
        let [queries, keys, values] = &self.split;
        kernels.matmul(to, shape.score_product(), queries, keys, &mut self.scores)?;
        kernels.softmax(to, shape.tokens, &self.scores, &mut self.attention)?;
        kernels.matmul(to, shape.value_product(), &self.attention, values, &mut self.mixed)?;
        kernels.permute(to, shape.by_token(), shape.strides_of_heads(), &self.mixed, &mut self.joined)?;
        kernels.linear(to, &self.join, Activation::Identity, &self.joined, &mut self.projected)?;
        kernels.binary(to, Binary::Add, [&self.input, &self.projected], &mut self.middle)
    }
}

impl Model for TransformerBlock {
    fn input(&mut self) -> &mut Buffer<f32> {
        &mut self.input
    }

    fn output(&mut self) -> &mut Buffer<f32> {
        &mut self.out
    }

    fn forward(&mut self, to: &mut dyn Launcher) -> Result<()> {
        self.attend(to)?;
        let kernels = &self.kernels;
        kernels.layer_norm(to, &self.norms[1], &self.middle, &mut self.normed)?;
        kernels.linear(to, &self.feed[0], Activation::Gelu, &self.normed, &mut self.hidden)?;
        kernels.linear(to, &self.feed[1], Activation::Identity, &self.hidden, &mut self.fed)?;
        kernels.binary(to, Binary::Add, [&self.middle, &self.fed], &mut self.out)
    }
}
