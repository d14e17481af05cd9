//! Results of a language model on the CPU, in 64-bit floats, for comparison with GPUs. Slow by design.

use core::ops::Range;

use half::f16;

use crate::error::{Error, Result};
use crate::model::{
    Activation, CONVOLVED, KvFormat, LayerShape, Linear, Matrix, Model, Norm, NormKind, Rope, Shape, Vector,
};

/// Weights are converted once if they need at most this many bytes, else whenever they are used.
const MOST_DENSE_BYTES: usize = 1 << 30;

/// Weights of a product from which it uses all cores.
const PARALLEL_WEIGHTS: usize = 1 << 20;

/// Evaluates a model token by token.
///
/// Weights are exact and activations are never rounded. Keys and values are rounded to halves, as caches store them, or
/// kept as they are.
///
/// ```
/// use infer::model::Model;
/// use infer::reference::{CacheFormat, Reference};
/// use infer::synthetic::Recipe;
///
/// let model = Model::from_bytes(Recipe::tiny_llama().to_bytes()?)?;
/// let mut reference = Reference::new(&model, CacheFormat::Half)?;
/// let logits = reference.step(17)?;
/// assert_eq!((logits.len(), reference.len()), (512, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Reference<'m> {
    model: &'m Model,
    cache_format: CacheFormat,
    layers: Vec<Layer<'m>>,
    output: Dense<'m>,
    output_norm: Normaliser,
    rotations: Vec<Rotation>,
    len: usize,
}

/// How keys and values are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheFormat {
    /// As IEEE halves: [`KvFormat::F16`].
    Half,
    /// As 8-bit integers: [`KvFormat::Q8_0`].
    Q8_0,
    /// As 64-bit floats.
    Exact,
}

/// A matrix and its bias, converted if there is memory for it.
#[derive(Debug)]
struct Dense<'m> {
    matrix: Matrix<'m>,
    weights: Option<Vec<f64>>,
    bias: Option<Vec<f64>>,
    rounds: bool,
}

/// A norm in 64-bit floats.
#[derive(Debug)]
pub(crate) struct Normaliser {
    kind: NormKind,
    epsilon: f64,
    weights: Vec<f64>,
    bias: Option<Vec<f64>>,
}

/// A rotation with the angle per position of each pair.
#[derive(Debug)]
struct Rotation {
    rope: Rope,
    frequencies: Vec<f64>,
}

#[derive(Debug)]
struct Layer<'m> {
    shape: LayerShape,
    attention_norm: Normaliser,
    query: Dense<'m>,
    key: Dense<'m>,
    value: Dense<'m>,
    convolution: Option<Vec<f64>>,
    query_norm: Option<Normaliser>,
    key_norm: Option<Normaliser>,
    sinks: Option<Vec<f64>>,
    attention_output: Dense<'m>,
    attention_result_norm: Option<Normaliser>,
    feed_forward_norm: Normaliser,
    router: Option<Dense<'m>>,
    gate: Option<Dense<'m>>,
    up: Dense<'m>,
    down: Dense<'m>,
    feed_forward_result_norm: Option<Normaliser>,
    /// Keys and values of each position; the values of a convolution are its inputs.
    keys: Vec<Vec<f64>>,
    values: Vec<Vec<f64>>,
}

fn exact(vector: Vector<'_>) -> Vec<f64> {
    vector.to_vec().into_iter().map(f64::from).collect()
}

/// Converts rows of a matrix.
fn rows(matrix: Matrix<'_>, first: usize, count: usize) -> Result<Vec<f64>> {
    let mut weights = vec![0.0; matrix.inputs * count];
    let bytes = matrix.row_bytes();
    matrix.block.dequantise_exactly(&matrix.bytes[first * bytes..][..count * bytes], &mut weights)?;
    Ok(weights)
}

fn dot(left: &[f64], right: &[f64]) -> f64 {
    left.iter().zip(right).map(|(left, right)| left * right).sum()
}

impl<'m> Dense<'m> {
    fn new(linear: Linear<'m>, convert: bool) -> Result<Self> {
        let matrix = linear.weights;
        let weights = convert.then(|| rows(matrix, 0, matrix.outputs)).transpose()?;
        Ok(Self { matrix, weights, bias: linear.bias.map(exact), rounds: false })
    }

    /// The outputs from `first` on.
    fn part(&self, input: &[f64], first: usize, out: &mut [f64]) -> Result<()> {
        for (at, out) in out.iter_mut().enumerate() {
            let row = first + at;
            *out = match &self.weights {
                Some(weights) => dot(&weights[row * input.len()..][..input.len()], input),
                None => dot(&rows(self.matrix, row, 1)?, input),
            };
            if let Some(bias) = &self.bias {
                *out += bias[row];
            }
        }
        Ok(())
    }

    fn product(&self, input: &[f64]) -> Result<Vec<f64>> {
        self.rows(input, 0..self.matrix.outputs)
    }

    /// Some of the outputs.
    fn rows(&self, input: &[f64], rows: Range<usize>) -> Result<Vec<f64>> {
        if self.rounds { self.exact_rows(&eight_bits(input), rows) } else { self.exact_rows(input, rows) }
    }

    fn exact_rows(&self, input: &[f64], rows: Range<usize>) -> Result<Vec<f64>> {
        let (first, mut out) = (rows.start, vec![0.0; rows.len()]);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        if self.matrix.inputs * out.len() < PARALLEL_WEIGHTS || cores == 1 {
            self.part(input, first, &mut out)?;
            return Ok(out);
        }
        let share = out.len().div_ceil(cores);
        std::thread::scope(|scope| {
            let parts = out.chunks_mut(share).enumerate();
            let threads: Vec<_> = parts
                .map(|(number, part)| scope.spawn(move || self.part(input, first + number * share, part)))
                .collect();
            // PANIC: a panic of the thread is a bug there.
            threads.into_iter().try_for_each(|thread| thread.join().expect("the thread ends"))
        })?;
        Ok(out)
    }
}

impl Normaliser {
    pub(crate) fn new(shape: &Shape, norm: Norm<'_>) -> Self {
        let Norm { weights, bias } = norm;
        Self { kind: shape.norm, epsilon: shape.epsilon, weights: exact(weights), bias: bias.map(exact) }
    }

    pub(crate) fn apply(&self, input: &[f64]) -> Vec<f64> {
        let count = input.len() as f64;
        let mean = match self.kind {
            NormKind::Rms => 0.0,
            NormKind::Layer => input.iter().sum::<f64>() / count,
        };
        let variance = input.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / count;
        let root = (variance + self.epsilon).sqrt();
        let scaled = input.iter().zip(&self.weights).map(|(x, weight)| (x - mean) / root * weight);
        match &self.bias {
            None => scaled.collect(),
            Some(bias) => scaled.zip(bias).map(|(x, bias)| x + bias).collect(),
        }
    }
}

impl<'m> Reference<'m> {
    /// Prepares an empty context.
    ///
    /// # Errors
    ///
    /// Returns the errors of the conversion of weights.
    pub fn new(model: &'m Model, cache_format: CacheFormat) -> Result<Self> {
        Self::with_context(model, cache_format, model.shape().context)
    }

    /// Prepares an empty context of at most `context` positions; models with factors for short and long contexts
    /// ([`Model::rope_frequencies`]) depend on it.
    ///
    /// # Errors
    ///
    /// As [`Reference::new`].
    pub fn with_context(model: &'m Model, cache_format: CacheFormat, context: usize) -> Result<Self> {
        let shape = model.shape();
        let weights: usize = model.file().tensors().map(|tensor| tensor.dims.iter().product::<usize>()).sum();
        let convert = weights <= MOST_DENSE_BYTES / size_of::<f64>();
        let normaliser = |norm: Norm<'m>| Normaliser::new(shape, norm);
        let head_norm =
            |weights: Option<Vector<'m>>| weights.map(|weights| normaliser(Norm { weights, bias: None }));
        let dense = |linear| Dense::new(linear, convert);
        let layer = |(number, own): (usize, &LayerShape)| {
            let layer = model.layer(number);
            Ok(Layer {
                shape: *own,
                attention_norm: normaliser(layer.attention_norm),
                query: dense(layer.query)?,
                key: dense(layer.key)?,
                value: dense(layer.value)?,
                convolution: layer.convolution.map(exact),
                query_norm: head_norm(layer.query_norm),
                key_norm: head_norm(layer.key_norm),
                sinks: layer.sinks.map(exact),
                attention_output: dense(layer.attention_output)?,
                attention_result_norm: layer.attention_result_norm.map(normaliser),
                feed_forward_norm: normaliser(layer.feed_forward_norm),
                router: layer.feed_forward.router.map(dense).transpose()?,
                gate: layer.feed_forward.gate.map(dense).transpose()?,
                up: dense(layer.feed_forward.up)?,
                down: dense(layer.feed_forward.down)?,
                feed_forward_result_norm: layer.feed_forward_result_norm.map(normaliser),
                keys: Vec::new(),
                values: Vec::new(),
            })
        };
        let rotation = |(number, rope): (usize, &Rope)| Rotation {
            rope: *rope,
            frequencies: model.rope_frequencies(number, context),
        };
        let rotations = shape.ropes.iter().enumerate().map(rotation).collect();
        Ok(Self {
            model,
            cache_format,
            layers: shape.layers.iter().enumerate().map(layer).collect::<Result<_>>()?,
            output: dense(Linear { weights: model.output(), bias: None })?,
            output_norm: normaliser(model.output_norm()),
            rotations,
            len: 0,
        })
    }

    /// Rounds the inputs of products with quantised weights to 8 bits, with one scale for 32 elements: as
    /// programs do that compute such products with 8-bit integers. For comparison of their error.
    #[must_use]
    pub fn with_eight_bits(mut self) -> Self {
        let layers = self.layers.iter_mut().flat_map(|layer| {
            let products = [&mut layer.query, &mut layer.key, &mut layer.value, &mut layer.attention_output];
            let products = products.into_iter().chain(&mut layer.router).chain(&mut layer.gate);
            products.chain([&mut layer.up, &mut layer.down])
        });
        for product in layers.chain([&mut self.output]) {
            // Floats are blocks of one weight.
            product.rounds = product.matrix.block.weights() > 1;
        }
        self
    }

    /// Number of tokens so far.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no tokens yet.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a token. Returns a number for each token that may follow.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownToken`] if the vocabulary does not have the token; [`Error::PromptTooLong`] if the model's
    /// context is full.
    pub fn step(&mut self, token: u32) -> Result<Vec<f64>> {
        let shape = self.model.shape();
        let position = self.len;
        if position == shape.context {
            return Err(Error::PromptTooLong { tokens: position + 1, context: shape.context });
        }
        let row = usize::try_from(token).ok().filter(|row| *row < shape.vocabulary);
        let row = row.ok_or(Error::UnknownToken { token, vocabulary: shape.vocabulary })?;
        let mut x = rows(self.model.embedding(), row, 1)?;
        x.iter_mut().for_each(|x| *x *= shape.embedding_scale);
        if let Some(positions) = self.model.position_embedding() {
            add(&mut x, &rows(positions, position, 1)?, 1.0);
        }
        for layer in &mut self.layers {
            let attended = layer.attend(self.model, self.cache_format, &self.rotations, position, &x)?;
            add(&mut x, &attended, shape.residual_scale);
            let fed = layer.feed_forward(shape, &x)?;
            add(&mut x, &fed, shape.residual_scale);
        }
        self.len += 1;
        let logits = self.output.product(&self.output_norm.apply(&x))?;
        Ok(logits.into_iter().map(|logit| logit * shape.logit_scale).collect())
    }
}

/// Rounds groups of 32 elements to 8 bits; the scale is stored as a half.
fn eight_bits(input: &[f64]) -> Vec<f64> {
    let group = |group: &[f64]| {
        let most = group.iter().fold(0.0_f64, |most, x| most.max(x.abs()));
        let (scale, stored) = (most / 127.0, half(most / 127.0));
        let round = move |x: &f64| if scale == 0.0 { 0.0 } else { (x / scale).round() * stored };
        group.iter().map(round).collect::<Vec<_>>()
    };
    input.chunks(32).flat_map(group).collect()
}

/// Rounds the elements of a group to 8 bits with the scale that is stored, a half.
fn integers(group: &[f64]) -> Vec<f64> {
    let scale = half(group.iter().fold(0.0_f64, |most, x| most.max(x.abs())) / 127.0);
    let round = |x: &f64| (x / scale).round_ties_even().clamp(-127.0, 127.0) * scale;
    group.iter().map(|x| if scale == 0.0 { 0.0 } else { round(x) }).collect()
}

fn add(to: &mut [f64], other: &[f64], scale: f64) {
    for (to, other) in to.iter_mut().zip(other) {
        *to += scale * other;
    }
}

/// A result, normalised if it has a norm.
fn normalised(norm: Option<&Normaliser>, result: Vec<f64>) -> Vec<f64> {
    match norm {
        Some(norm) => norm.apply(&result),
        None => result,
    }
}

impl Layer<'_> {
    fn attend(
        &mut self,
        model: &Model,
        format: CacheFormat,
        rotations: &[Rotation],
        position: usize,
        x: &[f64],
    ) -> Result<Vec<f64>> {
        let shape = model.shape();
        let size = shape.head_size;
        let rotation = self.shape.rope.map(|rope| &rotations[rope]);
        let normal = self.attention_norm.apply(x);
        if self.convolution.is_some() {
            return self.convolve(&normal);
        }
        let (mut query, mut key) = (self.query.product(&normal)?, self.key.product(&normal)?);
        for (heads, norm) in [(&mut query, &self.query_norm), (&mut key, &self.key_norm)] {
            for head in heads.chunks_exact_mut(size) {
                if let Some(norm) = norm {
                    let normal = norm.apply(head);
                    head.copy_from_slice(&normal);
                }
                if let Some(rotation) = rotation {
                    rotation.apply(head, position);
                }
            }
        }
        let stored = |values: Vec<f64>| match format {
            CacheFormat::Exact => values,
            CacheFormat::Half => values.into_iter().map(half).collect(),
            CacheFormat::Q8_0 => {
                values.chunks(size).flat_map(|head| head.chunks(KvFormat::GROUP).flat_map(integers)).collect()
            }
        };
        self.keys.push(stored(key));
        self.values.push(stored(self.value.product(&normal)?));
        let mut attended = vec![0.0; query.len()];
        let first = self.shape.window.map_or(0, |window| self.keys.len().saturating_sub(window));
        let heads = query.chunks_exact(size).zip(attended.chunks_exact_mut(size));
        for (head, (query, out)) in heads.enumerate() {
            let at = head / (shape.heads / shape.kv_heads) * size;
            let score = |key: &Vec<f64>| dot(&key[at..at + size], query) * shape.attention_scale;
            let scores: Vec<f64> = self.keys[first..].iter().map(score).collect();
            let sink = self.sinks.as_ref().map_or(f64::NEG_INFINITY, |sinks| sinks[head]);
            let most = scores.iter().copied().fold(sink, f64::max);
            let weights: Vec<f64> = scores.iter().map(|score| (score - most).exp()).collect();
            let sum: f64 = weights.iter().sum::<f64>() + (sink - most).exp();
            for (weight, value) in weights.iter().zip(&self.values[first..]) {
                for (out, value) in out.iter_mut().zip(&value[at..at + size]) {
                    *out += weight / sum * value;
                }
            }
        }
        let result = self.attention_output.product(&attended)?;
        Ok(normalised(self.attention_result_norm.as_ref(), result))
    }

    /// A convolution of the newest positions, whose input and output have factors.
    fn convolve(&mut self, normal: &[f64]) -> Result<Vec<f64>> {
        let (before, after) = (self.query.product(normal)?, self.key.product(normal)?);
        let input = self.value.product(normal)?;
        self.values.push(input.iter().zip(&before).map(|(input, factor)| input * factor).collect());
        let taps = self.convolution.as_deref().unwrap_or_default().chunks_exact(CONVOLVED);
        let newest = &self.values[self.values.len().saturating_sub(CONVOLVED)..];
        let sum = |(component, taps): (usize, &[f64])| -> f64 {
            let terms = newest.iter().rev().zip(taps.iter().rev());
            terms.map(|(input, tap)| input[component] * tap).sum()
        };
        let convolved: Vec<f64> =
            taps.enumerate().map(sum).zip(&after).map(|(sum, factor)| sum * factor).collect();
        self.attention_output.product(&convolved)
    }

    fn feed_forward(&self, shape: &Shape, x: &[f64]) -> Result<Vec<f64>> {
        let normal = self.feed_forward_norm.apply(x);
        let (Some(router), Some(experts)) = (&self.router, shape.experts) else {
            let result = self.network(shape, &normal, 0)?;
            return Ok(normalised(self.feed_forward_result_norm.as_ref(), result));
        };
        let numbers = router.product(&normal)?;
        let mut order: Vec<usize> = (0..experts.count).collect();
        order.sort_by(|a, b| numbers[*b].total_cmp(&numbers[*a]));
        order.truncate(experts.used);
        let shares: Vec<f64> =
            order.iter().map(|expert| (numbers[*expert] - numbers[order[0]]).exp()).collect();
        let mut out = vec![0.0; shape.width];
        for (expert, share) in order.into_iter().zip(&shares) {
            let weight = share / shares.iter().sum::<f64>();
            let fed = self.network(shape, &normal, expert)?;
            out.iter_mut().zip(fed).for_each(|(out, fed)| *out += weight * fed);
        }
        Ok(out)
    }

    /// The feed-forward network, or that of an expert.
    fn network(&self, shape: &Shape, normal: &[f64], expert: usize) -> Result<Vec<f64>> {
        let rows = |rows: usize| expert * rows..(expert + 1) * rows;
        let mut hidden = self.up.rows(normal, rows(shape.ffn))?;
        match &self.gate {
            Some(gate) => {
                let gate = gate.rows(normal, rows(shape.ffn))?;
                hidden
                    .iter_mut()
                    .zip(gate)
                    .for_each(|(up, gate)| *up = activated(shape.activation, gate, *up));
            }
            None => hidden.iter_mut().for_each(|x| *x = activated(shape.activation, *x, 1.0)),
        }
        self.down.rows(&hidden, rows(shape.width))
    }
}

/// The nearest IEEE half. A number between two 32-bit floats becomes the odd one of them, so that the second rounding
/// decides as if it were the only one.
fn half(x: f64) -> f64 {
    let near = x as f32;
    let is_beyond = f64::from(near).abs() > x.abs();
    let below = if is_beyond { near.to_bits() - 1 } else { near.to_bits() };
    let odd = below | u32::from(f64::from(f32::from_bits(below)) != x);
    f16::from_f32(f32::from_bits(odd)).to_f64()
}

/// An element of a hidden vector; `up` is 1 without a gate.
fn activated(activation: Activation, gate: f64, up: f64) -> f64 {
    match activation {
        Activation::SiluGate => gate / (1.0 + (-gate).exp()) * up,
        Activation::ClampedSiluGate => {
            let (gate, up) = (gate.min(Activation::LIMIT), up.clamp(-Activation::LIMIT, Activation::LIMIT));
            gate / (1.0 + (-Activation::STEEPNESS * gate).exp()) * (up + 1.0)
        }
        Activation::GeluGate | Activation::Gelu => gelu(gate) * up,
    }
}

/// The tanh form.
fn gelu(x: f64) -> f64 {
    const ROOT: f64 = 0.797_884_560_802_865_4;
    0.5 * x * (1.0 + (ROOT * (x + 0.044_715 * x * x * x)).tanh())
}

impl Rotation {
    /// Rotates the pairs of a head.
    fn apply(&self, head: &mut [f64], position: usize) {
        for (pair, frequency) in self.frequencies.iter().enumerate() {
            let (first, second) = self.rope.pairs.of(pair, self.rope.components);
            let (sin, cos) = (position as f64 * frequency).sin_cos();
            let (sin, cos) = (sin * self.rope.magnitude, cos * self.rope.magnitude);
            let (a, b) = (head[first], head[second]);
            (head[first], head[second]) = (a * cos - b * sin, a * sin + b * cos);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clamped_activation_has_known_values() {
        let clamped = |gate, up| activated(Activation::ClampedSiluGate, gate, up);
        for (gate, up, expected) in [
            (1.0, 0.0, 0.845_795_765_933),
            (9.0, 8.0, 55.999_625_026_427),
            (9.0, -8.0, -41.999_718_769_820),
            (-9.0, 7.0, -1.602_542_389_247e-5),
        ] {
            let got: f64 = clamped(gate, up);
            assert!((got / expected - 1.0).abs() < 1e-11, "{got}");
        }
    }

    #[test]
    fn halves_are_rounded_once() {
        // Just above the middle of two halves: rounding to 32 bits first would reach the middle, then the even half.
        let middle = 1.0 + 2.0_f64.powi(-11);
        let above = middle + 2.0_f64.powi(-40);
        assert_eq!((half(middle), half(above)), (1.0, 1.0 + 2.0_f64.powi(-10)));
        assert_eq!((half(-above), half(0.0), half(1e9)), (-half(above), 0.0, f64::INFINITY));
        assert_eq!(half(2.0_f64.powi(-25) * 1.000_000_000_1), 2.0_f64.powi(-24));
    }
}
