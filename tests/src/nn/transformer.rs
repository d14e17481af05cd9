//! A block of a transformer.

use tegra_hcq::{Buffer, Device, MemoryUse, Result};

use super::{Kernels, Linear, Model, Norm, Product, Steps};
use crate::Numbers;
use crate::reference::{self, Activation, LinearWeights, NormWeights, widen};

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

    /// Extents behind the split into heads: batch, head, token, number.
    fn by_head(&self) -> [usize; 4] {
        [self.batch, self.heads, self.tokens, self.head_width()]
    }

    /// Where they lie in rows of `row` numbers, which begin with those of head 0.
    fn strides_of_rows(&self, row: usize) -> [usize; 4] {
        [self.tokens * row, self.head_width(), row, 1]
    }

    /// Extents after the heads are put together again: batch, token, head, number.
    fn by_token(&self) -> [usize; 4] {
        [self.batch, self.tokens, self.heads, self.head_width()]
    }

    /// Where they lie in an array that is split into heads.
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
struct Weights {
    norms: [NormWeights; 2],
    /// Queries, keys and values in one.
    qkv: LinearWeights,
    join: LinearWeights,
    /// To four times the width and back.
    feed: [LinearWeights; 2],
}

/// Attention and a feed-forward network, each behind a normalisation and beside a path that leaves its input
/// as it is: `y = x + attention(norm(x))`, `out = y + feed(norm(y))`, GELU inside `feed`.
#[derive(Debug)]
pub struct TransformerBlock {
    shape: Shape,
    weights: Weights,
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
    /// A block of random weights.
    ///
    /// # Errors
    ///
    /// When there is no memory.
    ///
    /// # Panics
    ///
    /// When the heads do not divide the width.
    pub fn new(device: &Device, numbers: &mut Numbers, shape: Shape) -> Result<Self> {
        assert!(shape.width.is_multiple_of(shape.heads), "the heads divide the width");
        let width = shape.width;
        let weights = Weights {
            norms: [NormWeights::random(numbers, width), NormWeights::random(numbers, width)],
            qkv: LinearWeights::random(numbers, width, 3 * width),
            join: LinearWeights::random(numbers, width, width),
            feed: [
                LinearWeights::random(numbers, width, 4 * width),
                LinearWeights::random(numbers, 4 * width, width),
            ],
        };
        let values = || device.alloc(shape.values());
        Ok(Self {
            shape,
            kernels: Kernels::load(device)?,
            norms: [Norm::new(device, &weights.norms[0])?, Norm::new(device, &weights.norms[1])?],
            qkv: Linear::new(device, &weights.qkv)?,
            join: Linear::new(device, &weights.join)?,
            feed: [Linear::new(device, &weights.feed[0])?, Linear::new(device, &weights.feed[1])?],
            weights,
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
    fn attend(&self, steps: &mut dyn Steps) -> Result<()> {
        let (shape, kernels) = (self.shape, &self.kernels);
        kernels.layer_norm(steps, &self.norms[0], &self.input, &self.normed)?;
        kernels.linear(steps, &self.qkv, Activation::Identity, &self.normed, &self.qkv_rows)?;
        for (at, split) in self.split.iter().enumerate() {
            let part = self.qkv_rows.slice(at * shape.width..)?;
            kernels.permute(steps, shape.by_head(), shape.strides_of_rows(3 * shape.width), part, split)?;
        }
        let [queries, keys, values] = &self.split;
        kernels.matmul(steps, shape.score_product(), queries, keys, &self.scores)?;
        kernels.softmax(steps, shape.tokens, &self.scores, &self.attention)?;
        kernels.matmul(steps, shape.value_product(), &self.attention, values, &self.mixed)?;
        kernels.permute(steps, shape.by_token(), shape.strides_of_heads(), &self.mixed, &self.joined)?;
        kernels.linear(steps, &self.join, Activation::Identity, &self.joined, &self.projected)?;
        kernels.add(steps, &self.input, &self.projected, &self.middle)
    }

    /// What [`TransformerBlock::attend`] computes.
    fn attend_reference(&self, input: &[f64]) -> Vec<f64> {
        let (shape, weights) = (self.shape, &self.weights);
        let rows = weights.qkv.forward(&weights.norms[0].forward(input), Activation::Identity);
        let [queries, keys, values] = [0, 1, 2].map(|at| {
            let strides = shape.strides_of_rows(3 * shape.width);
            reference::permute(&rows[at * shape.width..], shape.by_head(), strides)
        });
        let product = |p: Product, a: &[f64], b: &[f64]| -> Vec<f64> {
            let pairs = a.chunks_exact(p.m * p.k).zip(b.chunks_exact(p.k * p.n));
            let one = |(a, b)| reference::matmul(a, b, (p.m, p.n, p.k), p.b_transposed, p.scale.into());
            pairs.flat_map(one).collect()
        };
        let scores = product(shape.score_product(), &queries, &keys);
        let attention = reference::softmax(&scores, shape.tokens);
        let mixed = product(shape.value_product(), &attention, &values);
        let joined = reference::permute(&mixed, shape.by_token(), shape.strides_of_heads());
        let projected = weights.join.forward(&joined, Activation::Identity);
        input.iter().zip(projected).map(|(x, y)| x + y).collect()
    }
}

impl Model for TransformerBlock {
    fn input(&mut self) -> &mut Buffer<f32> {
        &mut self.input
    }

    fn output(&mut self) -> &mut Buffer<f32> {
        &mut self.out
    }

    fn forward(&self, steps: &mut dyn Steps) -> Result<()> {
        self.attend(steps)?;
        let kernels = &self.kernels;
        kernels.layer_norm(steps, &self.norms[1], &self.middle, &self.normed)?;
        kernels.linear(steps, &self.feed[0], Activation::Gelu, &self.normed, &self.hidden)?;
        kernels.linear(steps, &self.feed[1], Activation::Identity, &self.hidden, &self.fed)?;
        kernels.add(steps, &self.middle, &self.fed, &self.out)
    }

    fn reference(&self, input: &[f32]) -> Vec<f64> {
        let middle = self.attend_reference(&widen(input));
        let normed = self.weights.norms[1].forward(&middle);
        let hidden = self.weights.feed[0].forward(&normed, Activation::Gelu);
        let fed = self.weights.feed[1].forward(&hidden, Activation::Identity);
        middle.iter().zip(fed).map(|(x, y)| x + y).collect()
    }
}
