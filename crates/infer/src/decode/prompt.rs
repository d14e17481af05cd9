//! Prompts: many tokens go through the layers together, and only their keys and values stay.
//!
//! The vectors of a batch are rounded to halves, each with a factor that is a power of two, and multiplied on the
//! tensor cores. The last layer stops after the append to the cache: a session computes the prompt's last token as it
//! computes produced tokens, and has the model's vector from that.

use parking_lot::Mutex;
use tegra_hcq::{Arg, Buffer, Device, Dim3, Fence, Kernel, Program, Queue};

use super::engine::{Inner, TIMEOUT};
use super::experts::ExpertRows;
use super::memory::Sizes;
use super::places::Addresses;
use super::stages::Branch;
use super::weights::{self, Packed};
use crate::blocks::BlockType;
use crate::error::Result;
use crate::gemm::packed::{PackedCall, PackedKernels, is_float};
use crate::launch::{cubins, word, words};
use crate::model::{KvFormat, Shape};
use crate::parameters::{
    AttendParams, ConvolveParams, EmbedParams, Epilogue, Prologue, RotateParams, RoundParams, SequenceView,
};

/// Tokens of a prompt that are computed together, unless a session's options say otherwise.
pub(super) const TOKENS: usize = 512;
/// Fewest tokens for which a batch pays.
pub(super) const FEWEST: usize = 16;
/// Tokens of a tile of the products.
const TILE: usize = 64;
/// Threads of a block, but for the attention.
pub(super) const BLOCK: u32 = 256;
/// Heads of a block that rotates.
const HEADS: usize = 8;
/// Threads and queries of a block of the attention.
const ATTEND_BLOCK: u32 = 128;
const ATTEND_TILE: usize = 64;

/// GPU addresses of rounded vectors and of their factors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rounded {
    pub(super) vectors: u64,
    pub(super) factors: u64,
}

/// What is rounded for a product.
#[derive(Clone, Copy)]
pub(super) struct Input {
    pub(super) at: u64,
    /// What is added to it before the norm.
    pub(super) branch: Option<Branch>,
    pub(super) norm: Option<weights::Norm>,
    /// Factor of the sums.
    pub(super) scale: f64,
}

/// Parameters of the rounding of vectors for a product with `matrix`.
pub(super) fn round(
    engine: &Inner,
    matrix: &Packed,
    input: Input,
    sequences: SequenceView,
    to: Rounded,
) -> Result<RoundParams> {
    let kind = input.norm.map_or(Prologue::Nothing, |_| engine.norm_kind());
    let weights::Norm { weight, bias } = input.norm.unwrap_or_default();
    let branch = |part: fn(Branch) -> u64| input.branch.map_or(0, part);
    Ok(RoundParams {
        input: input.at,
        weight,
        bias,
        output: to.vectors,
        factors: to.factors,
        columns: word(matrix.place.columns)?,
        norm: kind as u32,
        keep: u32::from(is_float(matrix.place.block)),
        epsilon: engine.shape.epsilon as f32,
        sequences,
        branch: branch(|branch| branch.from),
        branch_weight: branch(|branch| branch.weight),
        joined: branch(|branch| branch.joined),
        scale: input.scale as f32,
        unused: 0,
    })
}

/// The kernels for prompts.
#[derive(Debug)]
pub(super) struct PromptKernels {
    pub(super) products: PackedKernels,
    embed: Kernel,
    pub(super) round: Kernel,
    rotate: Kernel,
    attend: Kernel,
    /// Columns of a head in shared memory.
    head: usize,
}

impl PromptKernels {
    pub(super) fn load(
        device: &Device,
        shape: &Shape,
        kv: KvFormat,
        wanted: impl Fn(BlockType) -> bool,
    ) -> Result<Self> {
        let program = Program::load_fitting(device, &cubins!("gemm/prompt"))?;
        let head = shape.head_size.next_power_of_two().max(64);
        Ok(Self {
            products: PackedKernels::load(device, wanted)?,
            embed: program.kernel("embed")?,
            round: program.kernel("round_rows")?,
            rotate: program.kernel("turn")?,
            attend: program.kernel(&match kv {
                KvFormat::F16 => format!("attend_{head}"),
                KvFormat::Q8_0 => format!("attend_q8_0_{head}"),
            })?,
            head,
        })
    }
}

/// Memory for the vectors of a batch. The sessions of an engine share it: their batches run one after another.
#[derive(Debug, Default)]
pub(super) struct Scratch(Mutex<Shared>);

#[derive(Debug, Default)]
struct Shared {
    vectors: Option<Buffer<u8>>,
    /// The end of the last batch.
    end: Option<Fence>,
}

impl Scratch {
    /// Makes room for batches of `tokens` tokens.
    pub(super) fn reserve(&self, device: &Device, shape: &Shape, tokens: usize) -> Result<()> {
        // CAST: at most 64 MiB.
        let bytes = layout(shape, tokens, 0).1 as usize;
        let mut shared = self.0.lock();
        if bytes > shared.vectors.as_ref().map_or(0, Buffer::len) {
            shared.wait()?;
            shared.vectors = Some(device.alloc::<u8>(bytes)?.named("vectors of prompts"));
        }
        Ok(())
    }
}

impl Shared {
    /// Waits until the last batch has ended.
    fn wait(&mut self) -> Result<()> {
        match self.end.as_ref().map_or(Ok(()), |end| end.wait(TIMEOUT)) {
            Err(error @ tegra_hcq::Error::Timeout { .. }) => Err(error.into()),
            // A fault has ended the batch; the session that it belongs to reports it.
            Ok(()) | Err(_) => {
                self.end = None;
                Ok(())
            }
        }
    }
}

/// GPU addresses of a batch's vectors: each has a row per token.
#[derive(Clone, Copy, Debug)]
struct Vectors {
    x: u64,
    rotation: u64,
    factors: u64,
    rounded: u64,
    // The vectors of the attention are not used at the same time as those of the feed-forward network.
    qkv: u64,
    attended: u64,
    queries: u64,
    hidden: u64,
    gate: u64,
    experts: ExpertRows,
    /// A result that is to be normalised and added to `x`; only of models that normalise results.
    branch: u64,
}

/// The layout of a batch of `tokens` tokens from `base` on, and its end.
fn layout(shape: &Shape, tokens: usize, base: u64) -> (Vectors, u64) {
    let mut end = base;
    let mut next = |row_bytes: usize| {
        let start = end;
        // CAST: usize is at most 64 bits.
        end = (start + (tokens * row_bytes) as u64).next_multiple_of(256);
        start
    };
    let queries = shape.query_width();
    let (x, rotation, factors) = (next(shape.width * 4), next(shape.rope_pairs() * 8), next(4));
    let rounded = next(shape.width.max(queries).max(shape.ffn) * 4);
    let branch = next(if shape.architecture.normalises_results() { shape.width * 4 } else { 0 });
    let (qkv, attended, halves) =
        (next(shape.most_first_outputs() * 4), next(queries.max(shape.width) * 4), next(queries * 2));
    let attention_end = end;
    end = qkv;
    let mut next = |row_bytes: usize| {
        let start = end;
        // CAST: as above.
        end = (start + (tokens * row_bytes) as u64).next_multiple_of(256);
        start
    };
    let (mut hidden, mut gate, mut experts) = (0, 0, ExpertRows::default());
    if shape.experts.is_some() {
        experts = ExpertRows::new(shape, next);
    } else {
        (hidden, gate) = (next(shape.ffn * 4), next(shape.ffn * 4));
    }
    let queries = halves;
    let vectors =
        Vectors { x, rotation, factors, rounded, qkv, attended, queries, hidden, gate, experts, branch };
    (vectors, end.max(attention_end))
}

/// Tokens of a batch, at most `wanted`: as many as the context has and the memory of a GPU allows, and then whole tiles
/// of the products; 0 if batches do not pay.
pub(super) fn tokens(shape: &Shape, context: usize, sizes: Sizes, wanted: usize) -> usize {
    let per_token = layout(shape, TILE, 0).1.div_ceil(TILE as u64);
    // CAST: a few MiB.
    let most = sizes.prompts / per_token as usize;
    let most = if most > TILE { most / TILE * TILE } else { most };
    let tokens = wanted.min(context).min(most);
    if tokens < FEWEST { 0 } else { tokens }
}

/// Bytes of a batch of sessions with `context` positions and default options.
pub(super) fn bytes(shape: &Shape, context: usize, sizes: Sizes) -> usize {
    // CAST: at most 64 MiB.
    layout(shape, tokens(shape, context, sizes, TOKENS), 0).1 as usize
}

/// Where tokens come from and where the context keeps them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source {
    /// GPU address of the first token.
    pub(super) tokens: u64,
    /// GPU address of the context's tokens.
    pub(super) history: u64,
    /// GPU address of [`Inner::frequencies`].
    pub(super) frequencies: u64,
    /// Position of the first token.
    pub(super) start: usize,
    /// Number of tokens.
    pub(super) count: usize,
}

/// A batch on its way through the layers.
struct Run<'a> {
    engine: &'a Inner,
    queue: &'a mut Queue,
    at: &'a Addresses,
    vectors: Vectors,
    source: Source,
    /// A result that is still to be added to the vectors.
    branch: Option<Branch>,
}

impl Inner {
    /// Appends tokens to the cache and to the context's tokens, `most` together. [`Scratch::reserve`] has made room for
    /// as many.
    pub(super) fn append(
        &self,
        queue: &mut Queue,
        most: usize,
        at: &Addresses,
        source: Source,
    ) -> Result<()> {
        let mut shared = self.scratch.0.lock();
        shared.wait()?;
        // PANIC: a session reserves when it is created.
        let base = shared.vectors.as_ref().expect("reserved memory").gpu_va();
        let (vectors, _) = layout(&self.shape, most, base);
        let appended = (0..source.count).step_by(most).try_for_each(|done| {
            let source = Source {
                // CAST: usize is at most 64 bits.
                tokens: source.tokens + done as u64 * 4,
                start: source.start + done,
                count: most.min(source.count - done),
                ..source
            };
            Run { engine: self, queue: &mut *queue, at, vectors, source, branch: None }.layers()
        });
        // Also after an error: some launches may run.
        shared.end = Some(queue.submit()?);
        appended
    }

    /// A product of `count` rounded vectors with a matrix. The caller sets output and epilogue.
    pub(super) fn packed_call<'a>(&self, matrix: &Packed, count: usize, from: Rounded) -> PackedCall<'a> {
        let place = &matrix.place;
        PackedCall {
            block: place.block,
            vectors: count,
            rows: place.rows,
            columns: place.columns,
            tiles: Arg::U64(self.weights.address(place)),
            input: Arg::U64(from.vectors),
            vectors_at: from.vectors,
            factors: Arg::U64(from.factors),
            bias: Arg::U64(matrix.bias),
            gate: Arg::U64(0),
            output: Arg::U64(0),
            output_row: 0,
            after: Epilogue::Store,
            activation: self.activation(),
        }
    }
}

impl Run<'_> {
    fn launch(&mut self, kernel: &Kernel, grid: impl Into<Dim3>, parameters: &[u8]) -> Result<()> {
        // SAFETY: the batch has the sizes that the model's shape and its number of tokens give, the session keeps its
        // buffers until the queue has ended, and the positions are below the context: `Session::feed` checks.
        unsafe { self.queue.launch(kernel, grid, BLOCK, &[Arg::Bytes(parameters)])? };
        Ok(())
    }

    fn embed(&mut self) -> Result<()> {
        let (engine, source) = (self.engine, self.source);
        let embedding = &engine.weights.embedding.place;
        let parameters = EmbedParams {
            tiles: engine.weights.address(embedding),
            tokens: source.tokens,
            positions: engine.weights.positions,
            frequencies: source.frequencies,
            x: self.vectors.x,
            rotation: self.vectors.rotation,
            history: source.history,
            start: word(source.start)?,
            width: word(engine.shape.width)?,
            pairs: word(engine.shape.rope_pairs())?,
            block_type: embedding.block.id(),
            factor: engine.shape.embedding_scale as f32,
            unused: 0,
        };
        self.launch(&engine.prompt.embed, word(source.count)?, bytemuck::bytes_of(&parameters))
    }

    /// Rounds rows of floats for a product with `matrix`.
    fn round(&mut self, input: Input, matrix: &Packed) -> Result<()> {
        let to = Rounded { vectors: self.vectors.rounded, factors: self.vectors.factors };
        let parameters = round(self.engine, matrix, input, SequenceView::default(), to)?;
        self.launch(&self.engine.prompt.round, word(self.source.count)?, bytemuck::bytes_of(&parameters))
    }

    /// The same for the model's vectors, with a norm. What is still to be added to them is added first.
    fn round_x(&mut self, norm: weights::Norm, matrix: &Packed) -> Result<()> {
        let branch = self.branch.take();
        self.round(Input { at: self.vectors.x, branch, norm: Some(norm), scale: 1.0 }, matrix)
    }

    /// Multiplies rows of floats with a matrix and adds the result to the model's vectors: at once, or with the next
    /// rounding, which normalises it.
    fn add(&mut self, input: u64, matrix: &Packed, norm: Option<weights::Norm>) -> Result<()> {
        let (v, width) = (self.vectors, self.engine.shape.width);
        let scale = if norm.is_none() { self.engine.shape.residual_scale } else { 1.0 };
        self.round(Input { at: input, branch: None, norm: None, scale }, matrix)?;
        self.branch = norm.map(|norm| Branch { from: v.branch, weight: norm.weight, joined: v.x });
        match norm {
            None => self.product(matrix, Epilogue::Add, v.x, width),
            Some(_) => self.product(matrix, Epilogue::Store, v.branch, width),
        }
    }

    /// Multiplies the rounded rows with a matrix; `output_row` is the distance between the outputs of two tokens.
    fn product(&mut self, matrix: &Packed, after: Epilogue, output: u64, output_row: usize) -> Result<()> {
        let engine = self.engine;
        let from = Rounded { vectors: self.vectors.rounded, factors: self.vectors.factors };
        let call = PackedCall {
            gate: Arg::U64(self.vectors.gate),
            output: Arg::U64(output),
            output_row,
            after,
            ..engine.packed_call(matrix, self.source.count, from)
        };
        // SAFETY: as for `launch`; the weights live as long as the engine.
        unsafe { engine.prompt.products.launch(self.queue, &call) }
    }

    /// Rotates queries and keys, and appends keys and values to the cache of a layer.
    fn rotate(&mut self, number: usize) -> Result<()> {
        let (shape, layer) = (&self.engine.shape, &self.engine.weights.layers[number]);
        let (rotate, rotated, rotation) = self.engine.rotation(number)?;
        let [start, heads, key_heads, head_size] =
            words([self.source.start, shape.heads, shape.kv_heads, shape.head_size])?;
        let [keys, values, scales] = self.engine.cache(self.at, number);
        let parameters = RotateParams {
            qkv: self.vectors.qkv,
            query_norm: layer.query_norm,
            key_norm: layer.key_norm,
            rotation: self.vectors.rotation + rotation,
            queries: self.vectors.queries,
            keys,
            values,
            start,
            heads,
            key_heads,
            head_size,
            context: self.at.context,
            rotate: rotate as u32,
            rotated,
            scale: shape.attention_scale as f32,
            epsilon: shape.epsilon as f32,
            rotation_row: word(shape.rope_pairs())?,
            scales,
        };
        let blocks = (shape.heads + 2 * shape.kv_heads).div_ceil(HEADS);
        let grid = (word(self.source.count)?, word(blocks)?);
        self.launch(&self.engine.prompt.rotate, grid, bytemuck::bytes_of(&parameters))
    }

    /// Computes a convolution if `is_needed`, and keeps its inputs.
    fn convolve(&mut self, number: usize, is_needed: bool) -> Result<()> {
        let one = self.engine.convolve(self.at, number)?;
        let (parts, output, start) = (self.vectors.qkv, self.vectors.attended, word(self.source.start)?);
        let parameters = ConvolveParams { parts, output, start, position: 0, ..one };
        self.engine.convolution.launch(self.queue, &parameters, self.source.count, is_needed)
    }

    fn attend(&mut self, number: usize) -> Result<()> {
        let shape = &self.engine.shape;
        let [keys, values, scales] = self.engine.cache(self.at, number);
        let sizes = [self.source.count, self.source.start, shape.heads, shape.kv_heads, shape.head_size];
        let [m, start, heads, key_heads, head_size] = words(sizes)?;
        let parameters = AttendParams {
            queries: self.vectors.queries,
            keys,
            values,
            output: self.vectors.attended,
            m,
            start,
            heads,
            key_heads,
            head_size,
            context: self.at.context,
            scales,
            sinks: self.engine.weights.layers[number].sinks,
            window: self.engine.window(number)?,
            unused: 0,
        };
        let grid = (word(self.source.count.div_ceil(ATTEND_TILE))?, word(shape.heads)?);
        // The queries, and two tiles of keys and values, which have 32 positions if heads have more than 128 columns.
        // If keys and values are integers, one of them is in this form.
        let head = self.engine.prompt.head;
        let span = if head > 128 { 32 } else { 64 };
        let tiles = 2 * span * (head * 2 + self.engine.kv.row_bytes(head));
        let shared = word(ATTEND_TILE * head * 2 + tiles)?;
        let (kernel, arguments) = (&self.engine.prompt.attend, [Arg::Bytes(bytemuck::bytes_of(&parameters))]);
        // SAFETY: as for `launch`.
        unsafe { self.queue.launch_with_shared(kernel, grid, ATTEND_BLOCK, shared, &arguments)? };
        Ok(())
    }

    fn layers(&mut self) -> Result<()> {
        let engine = self.engine;
        let (shape, v) = (&engine.shape, self.vectors);
        self.embed()?;
        for (number, layer) in engine.weights.layers.iter().enumerate() {
            let qkv_row = shape.first_outputs(number);
            for (part, first) in &layer.qkv.parts {
                self.round_x(layer.attention_norm, part)?;
                // CAST: usize is at most 64 bits.
                self.product(part, Epilogue::Store, v.qkv + *first as u64 * 4, qkv_row)?;
            }
            let is_last = number + 1 == engine.weights.layers.len();
            if shape.layers[number].convolution {
                self.convolve(number, !is_last)?;
            } else {
                self.rotate(number)?;
            }
            if is_last {
                break;
            }
            if !shape.layers[number].convolution {
                self.attend(number)?;
            }
            self.add(v.attended, &layer.output, layer.attention_result_norm)?;

            let norm = layer.feed_forward_norm;
            if let Some(router) = &layer.router {
                self.round_x(norm, router)?;
                self.product(router, Epilogue::Store, v.experts.router, router.place.rows)?;
                let (experts, count) = ((v.x, v.experts), self.source.count);
                engine.launch_experts_of_prompt(self.queue, experts, number, count)?;
                continue;
            }
            match &layer.up {
                weights::Up::Pairs(up) | weights::Up::Plain(up) => {
                    let pairs = matches!(layer.up, weights::Up::Pairs(_));
                    self.round_x(norm, up)?;
                    let after = if pairs { Epilogue::Pair } else { Epilogue::Activate };
                    self.product(up, after, v.hidden, shape.ffn)?;
                }
                weights::Up::Apart { gate, up } => {
                    self.round_x(norm, gate)?;
                    self.product(gate, Epilogue::Store, v.gate, shape.ffn)?;
                    self.round_x(norm, up)?;
                    self.product(up, Epilogue::Gate, v.hidden, shape.ffn)?;
                }
            }
            self.add(v.hidden, &layer.down, layer.feed_forward_result_norm)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use tegra_hcq::DeviceKind;

    use super::*;
    use crate::decode::{Engine, Session, SessionOptions};
    use crate::model::Model;
    use crate::synthetic::Recipe;

    #[test]
    fn a_batch_waits_for_the_one_before() {
        let heads = Recipe { width: 64, heads: 1, kv_heads: 1, head_size: 64, ..Recipe::tiny_llama() };
        let recipe =
            Recipe { block: BlockType::F16, layers: 1, ffn: 64, vocabulary: 64, has_tokens: false, ..heads };
        let model = Model::from_bytes(recipe.to_bytes().unwrap()).unwrap();
        let device = Device::open(DeviceKind::Sim).unwrap();
        let engine = Engine::load(&device, &model, 64, |_, _| ()).unwrap();
        let mut queue = device.queue().unwrap();
        // A batch of another session that does not end before the host says so.
        let mut during = |work: &(dyn Fn() -> Session + Sync)| {
            let signal = device.signal(0).unwrap();
            queue.wait_signal(&signal, 1).unwrap();
            engine.inner.scratch.0.lock().end = Some(queue.submit().unwrap());
            thread::scope(|scope| {
                let work = scope.spawn(work);
                thread::sleep(Duration::from_millis(100));
                assert!(!work.is_finished(), "it did not wait");
                signal.set(1);
                work.join().unwrap()
            })
        };
        let small = SessionOptions::default().prompt_batch(20);
        let session = Mutex::new(Some(engine.session_with(64, &small).unwrap()));
        let mut fed = during(&|| {
            let mut session = session.lock().take().unwrap();
            session.feed(&[1; 20]).unwrap();
            session
        });
        assert_eq!(fed.logits().unwrap().len(), 64);
        // More memory takes the place of what the batch uses.
        during(&|| engine.session(64).unwrap());
    }
}
