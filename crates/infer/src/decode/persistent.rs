//! All layers of a token, and the logits of the next one, in one launch.
//!
//! The launch has a block for each SM. The blocks do what the launches of a graph do, and pass each other the vectors
//! between two phases word by word, in memory that has two halves: a launch writes one and marks the words of the other
//! as absent, for the next launch. All blocks have to be resident at the same time: the occupancy is
//! checked, and a block that never sees a word ends the launch with a trap.

use tegra_hcq::{Arg, Buffer, GraphBuilder, Kernel, Program};

use super::engine::{BLOCK, Inner, STAGES, WARPS, vector_bytes};
use super::pack::Unit;
use super::places::Addresses;
use super::session::Layers;
use super::stages::{ProductCall, Stage};
use crate::blocks::BlockType;
use crate::error::{Error, Result};
use crate::launch::{cubins, word, words};
use crate::model::KvFormat;
use crate::parameters::{AttentionParams, DecodeKind, DecodeParams, DecodeProduct, ProductParams, Prologue};

/// SM version of Hopper GPUs.
const HOPPER: (u32, u32) = (9, 0);
/// Alignment of vectors in the exchange.
const ALIGNMENT: usize = 256;
/// Alignment of tiles in shared memory: `PLACE_ALIGNMENT` of `decode.cu`.
const PLACE_ALIGNMENT: usize = 128;
/// Largest head.
const MAX_HEAD: usize = 256;
/// Largest vector of a model that normalises results: the threads of a block keep 4 columns each.
const MAX_KEPT: usize = 2_048;
/// Most kinds of products: the length of `kinds` in [`DecodeParams`].
const MAX_KINDS: usize = 10;
/// Readings of absent words after which a thread gives up: many seconds, at a microsecond for each.
const PATIENCE: u32 = 1 << 24;

/// Most bytes of the attention's state in shared memory: `DESK_BYTES` of `decode.cu`.
const fn desk_bytes(lanes: usize) -> usize {
    if lanes <= 16 { 9_728 } else { 19_200 }
}

/// A kernel of `decode.cu`.
struct Form {
    name: &'static str,
    /// Its formats, in their order there.
    formats: &'static [BlockType],
    /// Whether there is one for heads of more than 128 columns.
    wide: bool,
    /// Tiles that a warp keeps in shared memory with paced copies, if there is such a kernel for Hopper GPUs.
    paced: Option<usize>,
}

/// All of them: the first that has the formats of a model is the fastest for it.
const FORMS: [Form; 8] = [
    Form { name: "f16", formats: &[BlockType::F16], wide: false, paced: None },
    Form { name: "q4_k", formats: &[BlockType::Q4K], wide: false, paced: None },
    Form { name: "q8_0", formats: &[BlockType::Q8_0], wide: true, paced: Some(5) },
    Form { name: "q6_k", formats: &[BlockType::Q6K], wide: false, paced: Some(6) },
    Form { name: "q4_k_m", formats: &[BlockType::Q4K, BlockType::Q6K], wide: false, paced: None },
    Form { name: "q5_k_m", formats: &[BlockType::Q5K, BlockType::Q6K], wide: false, paced: None },
    Form {
        name: "q4_k_m_short",
        formats: &[BlockType::Q5_0, BlockType::Q8_0, BlockType::Q4K, BlockType::Q6K],
        wide: true,
        paced: None,
    },
    Form {
        name: "q5_k_m_short",
        formats: &[BlockType::Q5_1, BlockType::Q8_0, BlockType::Q5K, BlockType::Q6K],
        wide: true,
        paced: None,
    },
];

impl Form {
    /// The form for a model whose attention has this number of [lanes](Inner::lanes).
    ///
    /// # Errors
    ///
    /// [`Error::Persistent`] if there is none.
    fn of(formats: &[BlockType], lanes: usize) -> Result<&'static Self> {
        let is_wide = lanes > 16;
        let has_all = |form: &&Self| {
            (form.wide || !is_wide) && formats.iter().all(|format| form.formats.contains(format))
        };
        FORMS.iter().find(has_all).ok_or_else(|| {
            let names: Vec<_> = formats.iter().map(|format| format.name()).collect();
            let heads = if is_wide { " and heads of more than 128 columns" } else { "" };
            Error::Persistent(format!("there is no kernel for {}{heads}", names.join(" with ")))
        })
    }

    /// The fastest kernel that the device has room for, and its shared memory: `others` bytes and the tiles.
    fn kernel(&self, engine: &Inner, others: usize) -> Result<(Kernel, u32)> {
        let program = Program::load_fitting(&engine.device, &cubins!("llm/decode"))?;
        let of = |prefix: &str, stages: usize| {
            let kernel = program.kernel(&format!("decode_{prefix}{}_{}", self.name, engine.lanes()))?;
            let tile = self.formats.iter().map(|format| Unit::of(*format).tile_bytes()).max().unwrap_or(0);
            // A tile that is no multiple begins as far from one as in memory.
            let shift = if tile.is_multiple_of(PLACE_ALIGNMENT) { 0 } else { PLACE_ALIGNMENT - 16 };
            let place = (tile + shift).next_multiple_of(PLACE_ALIGNMENT);
            let shared_bytes = word(others + WARPS * stages * place)?;
            let most = kernel.attributes().max_dynamic_shared_bytes;
            if shared_bytes > most {
                let reason =
                    format!("it takes {shared_bytes} bytes of shared memory, and an SM has {most} for it");
                return Err(Error::Persistent(reason));
            }
            Ok((kernel, shared_bytes))
        };
        let is_hopper = engine.device.info().sm_version == HOPPER;
        let paced = self.paced.filter(|_| is_hopper && engine.lanes() <= 16);
        match paced.map(|stages| of("paced_", stages)) {
            None | Some(Err(Error::Persistent(_))) => of("", STAGES),
            Some(other) => other,
        }
    }
}

/// A vector of the session, each of whose contents has a place of its own in the exchange.
struct Vector {
    /// Address in the session's memory.
    address: u64,
    columns: usize,
    /// Address of the newest contents.
    newest: u64,
}

/// What the launch does: the parts of all layers, with the places of their vectors.
struct Plan {
    products: Vec<DecodeProduct>,
    attentions: Vec<AttentionParams>,
    kinds: Vec<DecodeKind>,
    form: &'static Form,
    /// Bytes of the largest vector, or of the attention's state.
    front: usize,
    /// Most chunks of a context. The block that combines those of a head has room for one of each warp.
    chunks: usize,
    vectors: Vec<Vector>,
    /// Address of the newest result in the session's memory.
    result: u64,
    /// Address of the exchange, and a half whose words are absent.
    base: u64,
    absent: Vec<u8>,
    /// The attention that comes before the next product, from 1.
    attention: u32,
}

fn has_experts() -> Error {
    Error::Persistent("it has experts".to_owned())
}

impl Plan {
    /// The plan with an exchange at address `base`.
    fn new(engine: &Inner, at: &Addresses, base: u64) -> Result<Self> {
        let shape = &engine.shape;
        if shape.experts.is_some() {
            return Err(has_experts());
        }
        let mut formats: Vec<BlockType> =
            engine.weights.products().map(|matrix| matrix.place.block).collect();
        formats.sort_unstable();
        formats.dedup();
        let vector = |address, columns| Vector { address, columns, newest: address };
        let mut plan = Self {
            products: Vec::new(),
            attentions: Vec::new(),
            kinds: Vec::new(),
            form: Form::of(&formats, engine.lanes())?,
            front: desk_bytes(engine.lanes()),
            chunks: (engine.sms / shape.heads).clamp(1, WARPS),
            vectors: vec![
                vector(at.x, shape.width),
                vector(at.qkv, shape.query_width() + 2 * shape.kv_width()),
                vector(at.attended, shape.query_width()),
                vector(at.gate, shape.ffn),
                vector(at.hidden, shape.ffn),
            ],
            base,
            absent: Vec::new(),
            attention: 0,
            result: 0,
        };
        if shape.architecture.normalises_results() {
            plan.vectors.push(vector(at.branch, shape.width));
        }
        engine.stages(at, |stage| match stage {
            Stage::Product(call) => plan.add(engine, at, call),
            Stage::Convolution(_) => Err(Error::Persistent("the model has convolutions".to_owned())),
            Stage::Attention(number) => {
                let mut attention = engine.attention(at, number)?;
                attention.qkv = plan.newest(attention.qkv);
                attention.output = plan.renewed(attention.output);
                attention.parts =
                    plan.place(vec![0xff; shape.heads * plan.chunks * (shape.head_size + 2) * 4]);
                plan.attentions.push(attention);
                plan.attention = word(plan.attentions.len())?;
                Ok(())
            }
            Stage::Experts(_) => Err(has_experts()),
        })?;
        // Later launches read the last result of the layers, and what it is added to, where other launches leave them.
        if let Some(last) = plan.products.last_mut() {
            last.product.copy = plan.result;
        }
        plan.add(engine, at, engine.output(at))?;
        Ok(plan)
    }

    /// Adds a product. Vectors are rounded where they are read: batches of any size make them.
    fn add(&mut self, engine: &Inner, at: &Addresses, call: ProductCall<'_>) -> Result<()> {
        let prologue = match call.prologue {
            Prologue::Packed => Prologue::Nothing,
            other => other,
        };
        let call = ProductCall { packed_output: false, prologue, ..call };
        let (mut product, place) = (engine.product(at, &call)?, &call.matrix.place);
        if call.branch.is_some() {
            if engine.lanes() <= 16 || place.columns > MAX_KEPT {
                return Err(Error::Persistent(format!(
                    "it normalises results of {} columns with heads of {}",
                    place.columns, engine.shape.head_size
                )));
            }
            // The blocks keep the sum themselves; only the last one outlives the launch.
            if product.joined != at.second {
                product.joined = 0;
            }
        }
        self.front = self.front.max(vector_bytes(place.block, place.columns));
        product.input = self.newest(product.input);
        product.branch = self.newest(product.branch);
        product.other = self.newest(product.other);
        self.result = product.output;
        product.output = self.renewed(product.output);
        let format = self.form.formats.iter().position(|format| *format == place.block);
        let vector = |of: &ProductParams| (of.input, of.branch, of.before, of.norm_weight);
        let reads_it = |before: &&DecodeProduct| vector(&before.product) == vector(&product);
        let before = self.products.last().filter(|before| self.attention == 0 && reads_it(before));
        let sms = word(engine.sms)?;
        // The blocks after those that have batches of the product before.
        let first = before.map_or(0, |before| {
            // CAST: usize has at least 32 bits.
            let kind = self.kinds[before.kind as usize];
            (kind.first + before.product.batches) % sms
        });
        let shares = u32::from(before.is_some());
        // PANIC: the form has all formats of the model.
        let format = word(format.expect("a format of the model"))?;
        let kind = DecodeKind { product: word(self.products.len())?, format, first };
        let sizes = |of: &ProductParams| (of.columns, of.batch_pairs, of.batches);
        let alike = |other: &DecodeKind| {
            // CAST: usize has at least 32 bits.
            let of = &self.products[other.product as usize].product;
            (other.format, other.first, sizes(of)) == (kind.format, first, sizes(&product))
        };
        let number = self.kinds.iter().position(alike).unwrap_or(self.kinds.len());
        if number == self.kinds.len() {
            self.kinds.push(kind);
        }
        let attention = core::mem::take(&mut self.attention);
        self.products.push(DecodeProduct { product, kind: word(number)?, shares, attention, unused: 0 });
        Ok(())
    }

    /// Where the newest contents of an address in the session's memory are.
    fn newest(&self, address: u64) -> u64 {
        // CAST: usize is at most 64 bits.
        let has = |of: &&Vector| (of.address..of.address + of.columns as u64 * 4).contains(&address);
        self.vectors.iter().find(has).map_or(address, |vector| vector.newest + (address - vector.address))
    }

    /// The same for an address that is written: a vector gets a new place with its first element.
    fn renewed(&mut self, address: u64) -> u64 {
        if let Some(number) = self.vectors.iter().position(|vector| vector.address == address) {
            let columns = self.vectors[number].columns;
            let newest = self.place(vec![0xff; columns * 4]);
            self.vectors[number].newest = newest;
        }
        self.newest(address)
    }

    /// A new place in the exchange, with words that are absent.
    fn place(&mut self, absent: Vec<u8>) -> u64 {
        // CAST: usize is at most 64 bits.
        let address = self.base + self.absent.len() as u64;
        self.absent.extend(absent);
        self.absent.resize(self.absent.len().next_multiple_of(ALIGNMENT), 0);
        address
    }
}

/// The launch of a session.
pub(super) struct Persistent {
    kernel: Kernel,
    /// Memory that `parameters` points to; only tests read it.
    #[cfg_attr(not(test), expect(dead_code, reason = "keeps the memory"))]
    pub(super) memory: (Buffer<DecodeProduct>, Buffer<AttentionParams>, Buffer<u32>, Buffer<u8>),
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
                if engine.device.info().sm_version != HOPPER {
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
        let head = engine.shape.head_size;
        if head > MAX_HEAD {
            return Err(Error::Persistent(format!("heads have {head} columns, more than {MAX_HEAD}")));
        }
        if engine.kv != KvFormat::F16 {
            return Err(Error::Persistent(format!("keys and values are in {}", engine.kv)));
        }
        let Plan { products, attentions, kinds, form, front, chunks, absent, .. } = Plan::new(engine, at, 0)?;
        let parameters = size_of_val(&*products) + size_of_val(&*attentions);
        let front = front.next_multiple_of(PLACE_ALIGNMENT);
        let (kernel, shared_bytes) = form.kernel(engine, front + parameters)?;
        let mut all = [DecodeKind::default(); MAX_KINDS];
        let Some(places) = all.get_mut(..kinds.len()) else {
            let reason =
                format!("it has {} kinds of products, of which {MAX_KINDS} are possible", kinds.len());
            return Err(Error::Persistent(reason));
        };
        places.copy_from_slice(&kinds);
        let (device, heads) = (&engine.device, engine.shape.heads);
        let (grid, sms) = (word(engine.sms)?, device.info().sm_count);
        let resident = kernel.occupancy(BLOCK, shared_bytes)?.blocks_per_sm * sms;
        if resident < grid {
            let reason = format!("it has {grid} blocks, of which {resident} run at the same time");
            return Err(Error::Persistent(reason));
        }
        let exchange = device.alloc_from(&absent.repeat(2))?.named("vectors of a token");
        let Plan { products, attentions, .. } = Plan::new(engine, at, exchange.gpu_va())?;
        let memory = (
            device.alloc_from(&products)?.named("products of a token"),
            device.alloc_from(&attentions)?.named("attentions of a token"),
            device.alloc_zeroed::<u32>(2)?.named("counter of blocks"),
            exchange,
        );
        // CAST: usize is at most 64 bits.
        let tiles_end = engine.weights.matrices.gpu_va() + engine.weights.matrices.len() as u64;
        let [layers, count, heads, chunks, front_bytes] =
            words([attentions.len(), products.len(), heads, chunks, front])?;
        let parameters = DecodeParams {
            products: memory.0.gpu_va(),
            attentions: memory.1.gpu_va(),
            counter: memory.2.gpu_va(),
            exchange: memory.3.gpu_va(),
            half_bytes: absent.len() as u64,
            tiles_end,
            layers,
            count,
            heads,
            chunks,
            front_bytes,
            patience: PATIENCE,
            kinds: all,
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
