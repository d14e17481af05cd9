//! All layers of a token, and the logits of the next one, in one launch.
//!
//! The launch has a block for each SM. The blocks do what the launches of a graph do, and pass each other the vectors
//! between two phases word by word, in memory that has two halves: a launch writes one and marks the words of the other
//! as absent, for the next launch. All blocks have to be resident at the same time: the occupancy is
//! checked, and a block that never sees a word ends the launch with a trap.

use tegra_hcq::{Arg, Buffer, GraphBuilder, Kernel, Program};

use super::engine::{
    BLOCK, Inner, MAX_CHUNKS, STAGES, Stage, rounded_bytes, rounds, tiles_bytes, vector_bytes,
};
use super::places::Addresses;
use super::session::Layers;
use crate::blocks::BlockType;
use crate::error::{Error, Result};
use crate::launch::{cubins, word, words};
use crate::parameters::{AttentionParams, DecodeParams, ProductParams};

/// Formats for which there is a kernel.
const FORMATS: [BlockType; 4] = [BlockType::F16, BlockType::Q4K, BlockType::Q8_0, BlockType::Q6K];
/// Those with which it is faster than a graph on a Hopper GPU: measured on an H200, see `docs/llm-measurements.md`.
const FASTER: [BlockType; 4] = FORMATS;
/// SM version of Hopper GPUs.
const HOPPER: (u32, u32) = (9, 0);
/// Columns of a group of a rounded vector, and of a chunk.
const GROUP: usize = 32;
const CHUNK: usize = 256;
/// A group's parts of a chunk, as first byte and bytes per group.
const ROUNDED_PARTS: [(usize, usize); 6] = [(0, 16), (128, 16), (256, 16), (384, 16), (512, 8), (576, 4)];
/// Alignment of vectors in the exchange.
const ALIGNMENT: usize = 256;
/// Products of a layer.
const LAYER_PRODUCTS: usize = 4;
/// Largest head.
const MAX_HEAD: usize = 128;
/// Most bytes of the attention's state in shared memory: `DESK_BYTES` of `decode.cu`.
const DESK_BYTES: usize = 9_728;
/// Readings of absent words after which a thread gives up: many seconds, at a microsecond for each.
const PATIENCE: u32 = 1 << 24;

/// Formats with kernels that pace their copies on Hopper GPUs, and tiles that a warp of them keeps in shared memory:
/// the kernels at the end of `decode.cu`.
const PACED: [(BlockType, usize); 2] = [(BlockType::Q8_0, 5), (BlockType::Q6K, 6)];

/// Places of the vectors of a layer in a half of the exchange, in bytes from the layer's first.
struct Exchange {
    layers: usize,
    qkv: usize,
    attended: usize,
    /// With the attention's output added.
    middle: usize,
    hidden: usize,
    /// With the output of the feed-forward network added.
    end: usize,
    layer_bytes: usize,
    /// Columns of the hidden vector if it is rounded.
    rounded: Option<usize>,
}

impl Exchange {
    fn of(engine: &Inner) -> Self {
        let shape = &engine.shape;
        let mut bytes = 0_usize;
        let mut next = |size: usize| {
            let start = bytes;
            bytes = (start + size).next_multiple_of(ALIGNMENT);
            start
        };
        let rounded = rounds(engine.weights.output.place.block).then_some(shape.ffn);
        let (qkv, attended) =
            (next((shape.query_width() + 2 * shape.kv_width()) * 4), next(shape.query_width() * 4));
        let middle = next(shape.width * 4);
        let hidden = next(rounded.map_or(shape.ffn * 4, rounded_bytes));
        let end = next(shape.width * 4);
        let layers = engine.weights.layers.len();
        Self { layers, qkv, attended, middle, hidden, end, layer_bytes: bytes, rounded }
    }

    /// Bytes of a half.
    const fn bytes(&self) -> usize {
        self.layers * self.layer_bytes
    }

    /// A half whose words are absent: `ABSENT` and `ABSENT_ROUNDED` of `decode.cu`. The last chunk of a rounded vector
    /// may contain groups that are never written.
    fn absent(&self) -> Vec<u8> {
        let mut layer = vec![0xff; self.layer_bytes];
        if let Some(columns) = self.rounded {
            let vector = &mut layer[self.hidden..][..rounded_bytes(columns)];
            vector.fill(0x80);
            for group in columns / GROUP..columns.next_multiple_of(CHUNK) / GROUP {
                let chunk = &mut vector[group / (CHUNK / GROUP) * rounded_bytes(CHUNK)..];
                let at = group % (CHUNK / GROUP);
                for (start, bytes) in ROUNDED_PARTS {
                    chunk[start + at * bytes..][..bytes].fill(0);
                }
            }
        }
        layer.repeat(self.layers)
    }

    /// Sets the addresses of all phases: those of the first half.
    fn connect(&self, base: u64, products: &mut [ProductParams], attentions: &mut [AttentionParams]) {
        // CAST: usize is at most 64 bits.
        let place = |layer: usize, at: usize| base + (layer * self.layer_bytes + at) as u64;
        let (layers, rest) = products.as_chunks_mut::<LAYER_PRODUCTS>();
        // The launch before wrote the first layer's vector, and those after it read the last one's in the same place.
        let outside = layers.first().map_or(0, |products| products[0].input);
        let mut x = outside;
        for (number, ([qkv, output, up, down], attention)) in layers.iter_mut().zip(attentions).enumerate() {
            let at = |at| place(number, at);
            (qkv.input, qkv.output) = (x, at(self.qkv));
            (attention.qkv, attention.output) = (at(self.qkv), at(self.attended));
            (output.input, output.other, output.output) = (at(self.attended), x, at(self.middle));
            (up.input, up.output) = (at(self.middle), at(self.hidden));
            x = at(self.end);
            (down.input, down.other, down.output) = (at(self.hidden), at(self.middle), x);
        }
        if let Some([.., down]) = layers.last_mut() {
            down.copy = outside;
        }
        if let [logits] = rest {
            logits.input = x;
        }
    }
}

/// The fastest kernel of a format that the device has room for, and its shared memory: `others` bytes and the tiles.
fn kernel(engine: &Inner, block: BlockType, others: usize) -> Result<(Kernel, u32)> {
    let program = Program::load_fitting(&engine.device, &cubins!("llm/decode"))?;
    let of = |form: &str, stages: usize| {
        let name = format!("decode_{form}{}_{}", block.name().to_lowercase(), engine.lanes());
        let kernel = program.kernel(&name)?;
        let shared_bytes = word(others + tiles_bytes(block, stages))?;
        let most = kernel.attributes().max_dynamic_shared_bytes;
        if shared_bytes > most {
            let reason =
                format!("it takes {shared_bytes} bytes of shared memory, and an SM has {most} for it");
            return Err(Error::Persistent(reason));
        }
        Ok((kernel, shared_bytes))
    };
    let paced = PACED.iter().find(|(format, _)| *format == block);
    match paced.filter(|_| engine.device.info().sm_version == HOPPER).map(|(_, stages)| of("paced_", *stages))
    {
        None | Some(Err(Error::Persistent(_))) => of("", STAGES),
        Some(other) => other,
    }
}

/// The launch of a session.
pub(super) struct Persistent {
    kernel: Kernel,
    /// Memory that `parameters` points to; only tests read it.
    #[cfg_attr(not(test), expect(dead_code, reason = "keeps the memory"))]
    pub(super) memory: (Buffer<ProductParams>, Buffer<AttentionParams>, Buffer<u32>, Buffer<u8>),
    pub(super) parameters: DecodeParams,
    /// Number of blocks.
    grid: u32,
    shared_bytes: u32,
}

impl Persistent {
    /// The launch of a session with these addresses, if it has one.
    ///
    /// # Errors
    ///
    /// As [`Persistent::new`].
    pub(super) fn wanted(layers: Layers, engine: &Inner, at: &Addresses) -> Result<Option<Self>> {
        match layers {
            Layers::Graph => Ok(None),
            Layers::Persistent => Self::new(engine, at).map(Some),
            Layers::Fastest => {
                let (block, sm) = (engine.weights.output.place.block, engine.device.info().sm_version);
                if sm != HOPPER || !FASTER.contains(&block) {
                    return Ok(None);
                }
                match Self::new(engine, at) {
                    Err(Error::Persistent(_)) => Ok(None),
                    other => other.map(Some),
                }
            }
        }
    }

    /// Prepares the launch for a session with these addresses.
    ///
    /// # Errors
    ///
    /// [`Error::Persistent`] if there is no kernel for the model or the device; those of the device.
    pub(super) fn new(engine: &Inner, at: &Addresses) -> Result<Self> {
        let (block, head) = (engine.weights.output.place.block, engine.shape.head_size);
        if head > MAX_HEAD {
            return Err(Error::Persistent(format!("heads have {head} columns, more than {MAX_HEAD}")));
        }
        if !FORMATS.contains(&block) {
            return Err(Error::Persistent(format!("there is no kernel for {block}")));
        }
        let (mut products, mut attentions, mut vector) = (Vec::new(), Vec::new(), DESK_BYTES);
        let mut add = |stage: Stage<'_>| -> Result<()> {
            match stage {
                Stage::Product(call) if call.matrix.place.block == block => {
                    vector = vector.max(vector_bytes(block, call.matrix.place.columns));
                    products.push(engine.product(at, &call)?);
                }
                Stage::Product(call) => {
                    let other = call.matrix.place.block;
                    return Err(Error::Persistent(format!("it has matrices in {block} and in {other}")));
                }
                Stage::Attention(number) => attentions.push(engine.attention(at, number)?),
            }
            Ok(())
        };
        engine.stages(at, &mut add)?;
        add(Stage::Product(engine.output(at)))?;
        let layers = attentions.len();
        if products.len() != LAYER_PRODUCTS * layers + 1 {
            return Err(Error::Persistent("gate and up are apart".to_owned()));
        }
        let front = vector.next_multiple_of(16);
        let parameters = products.len() * size_of::<ProductParams>() + layers * size_of::<AttentionParams>();
        let (kernel, shared_bytes) = kernel(engine, block, front + parameters)?;
        let (device, heads) = (&engine.device, engine.shape.heads);
        let (grid, sms) = (word(engine.sms)?, device.info().sm_count);
        let resident = kernel.occupancy(BLOCK, shared_bytes)?.blocks_per_sm * sms;
        if resident < grid {
            let reason = format!("it has {grid} blocks, of which {resident} run at the same time");
            return Err(Error::Persistent(reason));
        }
        let halves = Exchange::of(engine);
        let mut bytes = halves.absent();
        bytes.extend_from_within(..);
        let exchange = device.alloc_from(&bytes)?.named("vectors of a token");
        halves.connect(exchange.gpu_va(), &mut products, &mut attentions);
        let memory = (
            device.alloc_from(&products)?.named("products of a token"),
            device.alloc_from(&attentions)?.named("attentions of a token"),
            device.alloc_zeroed::<u32>(2)?.named("counter of blocks"),
            exchange,
        );
        // CAST: usize is at most 64 bits.
        let tiles_end = engine.weights.matrices.gpu_va() + engine.weights.matrices.len() as u64;
        let chunks = (engine.sms / heads).clamp(1, MAX_CHUNKS);
        let [layers, count, heads, chunks, front_bytes] =
            words([layers, products.len(), heads, chunks, front])?;
        let parameters = DecodeParams {
            products: memory.0.gpu_va(),
            attentions: memory.1.gpu_va(),
            counter: memory.2.gpu_va(),
            exchange: memory.3.gpu_va(),
            half_bytes: halves.bytes() as u64,
            tiles_end,
            layers,
            count,
            heads,
            chunks,
            front_bytes,
            patience: PATIENCE,
        };
        Ok(Self { kernel, memory, parameters, grid, shared_bytes })
    }

    /// Records the launch, with the logits of the next token if they are wanted.
    pub(super) fn record(&self, graph: &mut GraphBuilder, logits: bool) -> Result<()> {
        let mut parameters = self.parameters;
        parameters.count -= u32::from(!logits);
        let arguments = [Arg::Bytes(bytemuck::bytes_of(&parameters))];
        // SAFETY: the session's buffers have the sizes that the model's shape gives, and live as long as the graph's
        // session; so do the weights, and the session keeps `self`. The session checks positions.
        unsafe { graph.launch_with_shared(&self.kernel, self.grid, BLOCK, self.shared_bytes, &arguments)? };
        Ok(())
    }
}
