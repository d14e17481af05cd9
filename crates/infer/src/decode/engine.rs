//! A model on a device: kernels, weights and sizes that its sessions share.

use core::f64::consts::TAU;
use std::sync::Arc;
use std::time::Duration;

use tegra_hcq::{Arg, Device, GraphBuilder, Kernel, Program};

use super::convolution::Convolution;
use super::experts::ExpertKernels;
use super::memory::Memory;
use super::options::EngineOptions;
use super::pack::{Place, Unit};
use super::places::Addresses;
use super::prompt::{self, PromptKernels};
use super::stages::{ProductCall, Stage};
use super::weights::Weights;
use crate::blocks::BlockType;
use crate::error::{Error, Result};
use crate::launch::{cubins, word, words};
use crate::model::{Activation, KvFormat, Model, NormKind, Rope, RopePairs, Shape};
use crate::parameters::{
    ActivationCode, AttentionParams, Epilogue, ProductParams, Prologue, Rotation, SampleParams,
};
use crate::reference::Normaliser;

/// Longest wait for a step.
pub(super) const TIMEOUT: Duration = Duration::from_secs(120);

/// Threads of a block of products and attention.
pub(super) const BLOCK: u32 = 512;
/// Warps of such a block.
pub(super) const WARPS: usize = 16;
/// Tiles that a warp keeps in shared memory: `STAGES` of `product.cuh`.
pub(super) const STAGES: usize = 3;
/// Most pairs of rows in a batch.
const MAX_PAIRS: usize = 32;
/// Threads of the block that chooses tokens.
pub(super) const SAMPLE_BLOCK: u32 = 1024;
/// Outputs of a batch whose outputs are rounded.
const PACKED_OUTPUTS: usize = 32;
/// Largest head that the attention takes.
const MAX_HEAD: usize = 256;
/// Query heads that a block of the attention takes at most: of 128 columns, and of more.
const MAX_GROUP: usize = 4;
const MAX_WIDE_GROUP: usize = 2;
/// Columns that a lane of the attention takes.
const LANE_COLUMNS: usize = 8;

/// Most chunks of a context: enough for all SMs of the largest GPUs.
pub(super) const MAX_CHUNKS: usize = 256;

/// A model's weights and kernels on a device. Sessions share them; a clone is another handle.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use tegra_hcq::{Device, DeviceKind};
/// # let device = Device::open(DeviceKind::Sim)?;
/// use infer::decode::Engine;
/// use infer::model::Model;
/// use infer::synthetic::Recipe;
///
/// let model = Model::from_bytes(Recipe::tiny_llama().to_bytes()?)?;
/// let mut done = 0;
/// let engine = Engine::load(&device, &model, 256, |bytes, _| done = bytes)?;
/// assert!(done > 0);
/// let mut session = engine.session(256)?;
/// session.feed(&[1, 2, 3])?;
/// assert_eq!(session.logits()?.len(), model.shape().vocabulary);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Engine {
    pub(super) inner: Arc<Inner>,
}

/// State that the sessions of an engine share.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) device: Device,
    pub(super) shape: Shape,
    pub(super) kv: KvFormat,
    pub(super) weights: Weights,
    /// For vectors that leave the device.
    pub(super) output_norm: Normaliser,
    /// Rotation of each pair of each of the model's rotations from one position to the next, in turns, and the factor
    /// of cosine and sine: in contexts up to the original one, and in longer ones.
    frequencies: [Vec<[f64; 2]>; 2],
    /// By format.
    product: [Kernel; BlockType::ALL.len()],
    attention: Kernel,
    pub(super) convolution: Convolution,
    pub(super) batch: BatchKernels,
    pub(super) prompt: PromptKernels,
    pub(super) scratch: prompt::Scratch,
    /// For models with experts.
    pub(super) experts: Option<ExpertKernels>,
    /// Query heads that a block of the attention takes.
    group: usize,
    pub(super) sample: Kernel,
    pub(super) take: Kernel,
    pub(super) sms: usize,
}

/// Kernels for several sequences.
#[derive(Debug)]
pub(super) struct BatchKernels {
    /// By format.
    pub(super) products: [Kernel; BlockType::ALL.len()],
    /// The forms of vectors: rounded, in units, plain.
    pub(super) prepare: [Kernel; 3],
    pub(super) attention: Kernel,
    /// For many sequences.
    pub(super) attention_wide: Kernel,
    pub(super) sample: Kernel,
    pub(super) maxima: Kernel,
}

/// How far launches read ahead, in bytes: each asks the L2 cache for the next launches' weights before it ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ahead {
    /// By a product.
    pub product: u64,
    /// By an attention, which reads few weights of its own.
    pub attention: u64,
}

/// A kernel for each format.
pub(super) fn of_formats(program: &Program, prefix: &str) -> Result<[Kernel; BlockType::ALL.len()]> {
    let kernel = |block: BlockType| program.kernel(&format!("{prefix}_{}", block.name().to_lowercase()));
    let kernels: Vec<Kernel> = BlockType::ALL.into_iter().map(kernel).collect::<Result<_, _>>()?;
    // PANIC: one for each format.
    Ok(kernels.try_into().expect("a kernel for each format"))
}

/// A format's kernel.
pub(super) fn of_format(kernels: &[Kernel; BlockType::ALL.len()], block: BlockType) -> &Kernel {
    let number = BlockType::ALL.iter().position(|known| *known == block);
    // PANIC: all formats are in the list.
    &kernels[number.expect("a kernel for each format")]
}

/// Whether products with a format round the vector.
pub(super) fn rounds(block: BlockType) -> bool {
    !matches!(block, BlockType::F32 | BlockType::F16 | BlockType::Bf16)
}

/// Lanes that take a position in the attention: each has 8 columns of a head.
const fn lanes(shape: &Shape) -> usize {
    match shape.head_size {
        0..=64 => 8,
        65..=128 => 16,
        _ => 32,
    }
}

/// Bytes of a rounded vector: chunks of 256 columns.
pub(super) fn rounded_bytes(columns: usize) -> usize {
    columns.div_ceil(256) * 608
}

/// Bytes of a product's vector in shared memory.
pub(super) fn vector_bytes(block: BlockType, columns: usize) -> usize {
    if rounds(block) {
        return rounded_bytes(columns);
    }
    columns.next_multiple_of(32 * Unit::of(block).weights) * 4
}

/// Bytes of the tiles of all warps in shared memory, `stages` of each.
pub(super) fn tiles_bytes(block: BlockType, stages: usize) -> usize {
    WARPS * stages * Unit::of(block).tile_bytes()
}

impl Engine {
    /// Copies a model to a device. `progress` gets the bytes of packed weights, and all bytes.
    ///
    /// Checks first that the device has memory for the weights and for a session of `context` positions.
    ///
    /// # Errors
    ///
    /// [`Error::Memory`] if there is not enough memory, [`Error::ContextTooLong`]; [`Error::RowLength`],
    /// [`Error::HeadSize`], [`Error::Experts`] if the kernels do not support a size; [`Error::Changed`]; those of the
    /// device.
    pub fn load(
        device: &Device,
        model: &Model,
        context: usize,
        progress: impl FnMut(u64, u64),
    ) -> Result<Self> {
        Self::load_with(device, model, context, &EngineOptions::default(), progress)
    }

    /// As [`Engine::load`], with options.
    ///
    /// # Errors
    ///
    /// As [`Engine::load`].
    pub fn load_with(
        device: &Device,
        model: &Model,
        context: usize,
        options: &EngineOptions,
        progress: impl FnMut(u64, u64),
    ) -> Result<Self> {
        let shape = model.shape().clone();
        if shape.head_size > MAX_HEAD || !shape.head_size.is_multiple_of(LANE_COLUMNS) {
            let (size, most, multiple) = (shape.head_size, MAX_HEAD, LANE_COLUMNS);
            return Err(Error::HeadSize { size, most, multiple });
        }
        Memory::on(device, model, context, options.kv)?.check(device)?;
        let product = of_formats(&Program::load_fitting(device, &cubins!("llm/product"))?, "product")?;
        let many = Program::load_fitting(device, &cubins!("llm/products"))?;
        let group = match shape.heads / shape.kv_heads {
            1 => 1,
            2 => 2,
            _ if shape.head_size > 128 => MAX_WIDE_GROUP,
            _ => MAX_GROUP,
        };
        let lanes = lanes(&shape);
        let (attention, attention_wide) = match options.kv {
            KvFormat::F16 => (cubins!("llm/attention"), cubins!("llm/attention_wide")),
            KvFormat::Q8_0 => (cubins!("llm/attention_q8_0"), cubins!("llm/attention_wide_q8_0")),
        };
        let attention = Program::load_fitting(device, &attention)?;
        let attention_wide = Program::load_fitting(device, &attention_wide)?;
        let sample = Program::load_fitting(device, &cubins!("llm/sample"))?;
        let frequencies = |context: usize| {
            let rotation = |(number, rope): (usize, &Rope)| {
                let turns = model.rope_frequencies(number, context).into_iter().map(|angle| angle / TAU);
                turns.map(|turns| [turns, rope.magnitude]).collect::<Vec<_>>()
            };
            shape.ropes.iter().enumerate().flat_map(rotation).collect()
        };
        let frequencies = [frequencies(0), frequencies(usize::MAX)];
        let weights = Weights::load(device, model, progress)?;
        let inner = Inner {
            device: device.clone(),
            output_norm: Normaliser::new(&shape, model.output_norm()),
            prompt: PromptKernels::load(device, &shape, options.kv, |block| weights.has(block))?,
            scratch: prompt::Scratch::default(),
            experts: ExpertKernels::load(device, model)?,
            frequencies,
            product,
            attention: attention.kernel(&format!("attention_{group}_{lanes}"))?,
            convolution: Convolution::load(device)?,
            batch: BatchKernels {
                products: of_formats(&many, "products")?,
                prepare: [
                    many.kernel("prepare_rounded")?,
                    many.kernel("prepare_units")?,
                    many.kernel("prepare_plain")?,
                ],
                attention: attention.kernel(&format!("attentions_{group}_{lanes}"))?,
                attention_wide: attention_wide.kernel(&format!("wide_{group}_{lanes}"))?,
                sample: sample.kernel("samples")?,
                maxima: sample.kernel("maxima")?,
            },
            group,
            sample: sample.kernel("sample")?,
            take: sample.kernel("take")?,
            // CAST: usize has at least 32 bits.
            sms: device.info().sm_count.max(1) as usize,
            weights,
            shape,
            kv: options.kv,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The model's sizes and kinds.
    pub fn shape(&self) -> &Shape {
        &self.inner.shape
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.inner.device
    }
}

impl Inner {
    /// Blocks of the grid of the product with the output matrix.
    pub(super) fn logits_blocks(&self) -> usize {
        let (_, batches) = self.batches(&self.weights.output.place);
        batches.min(self.sms)
    }

    /// Pairs of rows of a batch, whole bands, and number of batches: each SM gets the same number of batches, if
    /// possible.
    fn batches(&self, place: &Place) -> (usize, usize) {
        let (bands, pairs) = (place.bands(), place.band_rows() / 2);
        let rounds = bands.div_ceil(self.sms * MAX_PAIRS / pairs);
        let size = bands.div_ceil(self.sms * rounds);
        (size * pairs, bands.div_ceil(size))
    }

    /// Lanes that take a position in the attention.
    pub(super) fn lanes(&self) -> usize {
        lanes(&self.shape)
    }

    /// Groups of query heads that share a block of the attention.
    pub(super) fn groups(&self) -> usize {
        self.shape.kv_heads * (self.shape.heads / self.shape.kv_heads).div_ceil(self.group)
    }

    /// Blocks that a group of heads has, one for each chunk of the context.
    pub(super) fn chunks(&self) -> usize {
        (self.sms / self.groups()).clamp(1, MAX_CHUNKS)
    }

    /// Elements of the attention's parts, and number of its tickets.
    pub(super) fn attention_sizes(&self) -> (usize, usize) {
        (self.shape.heads * self.chunks() * (self.shape.head_size + 2), self.shape.heads)
    }

    /// The activation of the feed-forward network.
    pub(super) fn activation(&self) -> ActivationCode {
        match self.shape.activation {
            Activation::SiluGate => ActivationCode::Silu,
            Activation::ClampedSiluGate => ActivationCode::ClampedSilu,
            Activation::Gelu | Activation::GeluGate => ActivationCode::Gelu,
        }
    }

    /// Rotation of each pair of each of the model's rotations from one position to the next, in turns, and the factor
    /// of cosine and sine, in a context of this number of positions.
    pub(super) fn frequencies(&self, context: usize) -> &[[f64; 2]] {
        let is_long = self.shape.ropes.first().is_some_and(|rope| context > rope.original);
        &self.frequencies[usize::from(is_long)]
    }

    /// The norm of the layers.
    pub(super) fn norm_kind(&self) -> Prologue {
        match self.shape.norm {
            NormKind::Rms => Prologue::RmsNorm,
            NormKind::Layer => Prologue::LayerNorm,
        }
    }

    /// Parameters of a product.
    pub(super) fn product(&self, at: &Addresses, call: &ProductCall<'_>) -> Result<ProductParams> {
        let place = &call.matrix.place;
        let (batch_pairs, batches) = if call.packed_output {
            let pairs = if call.epilogue == Epilogue::Pair { PACKED_OUTPUTS } else { PACKED_OUTPUTS / 2 };
            (pairs, place.rows.div_ceil(2 * pairs))
        } else {
            self.batches(place)
        };
        let [rows, columns, batch_pairs, batches] = words([place.rows, place.columns, batch_pairs, batches])?;
        let all = self.weights.matrices.len() as u64;
        let end = place.end as u64;
        Ok(ProductParams {
            tiles: self.weights.address(place),
            tiles_end: self.weights.matrices.gpu_va() + end,
            input: call.input,
            norm_weight: call.norm.weight,
            norm_bias: call.norm.bias,
            bias: call.matrix.bias,
            other: call.other,
            output: call.output,
            best: at.best,
            // After the last matrix, the next token begins with the first.
            ahead: self.weights.matrices.gpu_va() + if end < all { end } else { 0 },
            ahead_bytes: at.ahead.product.min(if end < all { all - end } else { all }),
            rows,
            columns,
            before: call.prologue as u32,
            after: call.epilogue as u32,
            activation: self.activation() as u32,
            packed_output: u32::from(call.packed_output),
            batch_pairs,
            batches,
            epsilon: self.shape.epsilon as f32,
            scale: call.scale as f32,
            branch: call.branch.map_or(0, |branch| branch.from),
            branch_weight: call.branch.map_or(0, |branch| branch.weight),
            joined: call.branch.map_or(0, |branch| branch.joined),
            ..ProductParams::default()
        })
    }

    /// Blocks of a product's grid in x.
    pub(super) fn product_blocks(&self, parameters: &ProductParams) -> u32 {
        // CAST: usize has at least 32 bits, and the smaller number fits.
        (parameters.batches as usize).min(self.sms) as u32
    }

    fn launch_product(&self, graph: &mut GraphBuilder, at: &Addresses, call: &ProductCall<'_>) -> Result<()> {
        let (parameters, place) = (self.product(at, call)?, &call.matrix.place);
        let shared = vector_bytes(place.block, place.columns) + tiles_bytes(place.block, STAGES);
        let kernel = of_format(&self.product, place.block);
        let arguments = [Arg::Bytes(bytemuck::bytes_of(&parameters))];
        // SAFETY: the session's buffers have the sizes that the model's shape gives, and live as long as the graph's
        // session; so do the weights.
        unsafe {
            let grid = self.product_blocks(&parameters);
            graph.launch_with_shared(kernel, grid, BLOCK, word(shared)?, &arguments)?;
        }
        Ok(())
    }

    /// Which columns of a layer's heads are rotated together, their number, and the place of the layer's rotation among
    /// those of the model, in bytes.
    pub(super) fn rotation(&self, number: usize) -> Result<(Rotation, u32, u64)> {
        let shape = &self.shape;
        let Some(rope) = shape.layers[number].rope else { return Ok((Rotation::Nothing, 0, 0)) };
        let pairs: usize = shape.ropes[..rope].iter().map(|rope| rope.components / 2).sum();
        let rope = shape.ropes[rope];
        let kind = match rope.pairs {
            RopePairs::Neighbours => Rotation::Neighbours,
            RopePairs::Halves => Rotation::Halves,
        };
        // CAST: a few bytes per component of a head.
        Ok((kind, word(rope.components)?, pairs as u64 * 8))
    }

    /// Parameters of the attention of a layer.
    pub(super) fn attention(&self, at: &Addresses, number: usize) -> Result<AttentionParams> {
        let (shape, layer) = (&self.shape, &self.weights.layers[number]);
        let [keys, values, scales] = self.cache(at, number);
        let [heads, key_heads, head_size] = words([shape.heads, shape.kv_heads, shape.head_size])?;
        let (rotate, rotated, rotation) = self.rotation(number)?;
        let start = layer.output.place.end as u64;
        Ok(AttentionParams {
            qkv: at.qkv,
            query_norm: layer.query_norm,
            key_norm: layer.key_norm,
            rotation: at.rotation + rotation,
            keys,
            values,
            position: at.position,
            parts: at.parts,
            tickets: at.tickets,
            output: at.attended,
            ahead: self.weights.matrices.gpu_va() + start,
            ahead_bytes: at.ahead.attention.min(self.weights.matrices.len() as u64 - start),
            heads,
            key_heads,
            head_size,
            context: at.context,
            rotate: rotate as u32,
            rotated,
            scale: shape.attention_scale as f32,
            epsilon: shape.epsilon as f32,
            scales,
            sinks: layer.sinks,
            window: self.window(number)?,
            ..AttentionParams::default()
        })
    }

    fn launch_attention(&self, graph: &mut GraphBuilder, at: &Addresses, number: usize) -> Result<()> {
        let parameters = self.attention(at, number)?;
        let grid = (word(self.groups())?, word(self.chunks())?);
        let arguments = [Arg::Bytes(bytemuck::bytes_of(&parameters))];
        // SAFETY: as for products; the position stays below the context, which the session checks.
        unsafe { graph.launch(&self.attention, grid, BLOCK, &arguments)? };
        Ok(())
    }

    /// All layers, from the vector in `x` to the vector in `x`.
    pub(super) fn layers(&self, graph: &mut GraphBuilder, at: &Addresses) -> Result<()> {
        self.stages(at, |stage| match stage {
            Stage::Product(call) => self.launch_product(graph, at, &call),
            Stage::Attention(number) => self.launch_attention(graph, at, number),
            Stage::Experts(number) => self.launch_experts(graph, at, number),
            Stage::Convolution(number) => self.convolution.record(graph, &self.convolve(at, number)?, 1),
        })
    }

    /// The launch of the product that makes logits.
    pub(super) fn logits(&self, graph: &mut GraphBuilder, at: &Addresses) -> Result<()> {
        self.launch_product(graph, at, &self.output(at))
    }

    /// A launch of `sample` or `take`.
    pub(super) fn launch_sample(
        &self,
        graph: &mut GraphBuilder,
        kernel: &Kernel,
        parameters: &SampleParams,
    ) -> Result<()> {
        let arguments = [Arg::Bytes(bytemuck::bytes_of(parameters))];
        // SAFETY: as for products; the session keeps the number of tokens below the context, and pending tokens below
        // the vocabulary.
        unsafe { graph.launch(kernel, 1, SAMPLE_BLOCK, &arguments)? };
        Ok(())
    }
}
