//! All layers of a token, and the logits of the next one, in one launch.
//!
//! The launch has a block for each SM. The blocks do what the launches of a graph do, and wait for each other at a
//! counter between two phases; meanwhile they copy later weights to shared memory. All of them have to be resident at
//! the same time: the occupancy says so, and a block that waits in vain ends the launch with a trap.

use tegra_hcq::{Arg, Buffer, GraphBuilder, Kernel, Program};

use super::engine::{BLOCK, Inner, Stage, WARPS, vector_bytes, word};
use super::pack::Unit;
use super::parameters::{Attention, Decode, Product};
use super::places::Addresses;
use super::session::Layers;
use crate::blocks::BlockType;
use crate::error::{Error, Result};

const DECODE: [&[u8]; 2] = [
    include_bytes!("../../kernels/llm/decode.cubin"),
    include_bytes!("../../kernels/sm_90/llm/decode.cubin"),
];

/// Formats for which there is a kernel.
const FORMATS: [BlockType; 4] = [BlockType::F16, BlockType::Q4K, BlockType::Q8_0, BlockType::Q6K];
/// Those with which it is faster than a graph on a Hopper GPU: measured on an H200, see `docs/llm.md`.
const FASTER: [BlockType; 3] = [BlockType::Q4K, BlockType::Q6K, BlockType::Q8_0];
/// SM version of Hopper GPUs.
const HOPPER: (u32, u32) = (9, 0);
/// Products of a layer.
const LAYER_PRODUCTS: usize = 4;
/// Most bytes of the attention's state in shared memory: `DESK_BYTES` of `decode.cu`.
const DESK_BYTES: usize = 36_864;
/// Looks at the counter after which a block gives up: many seconds, at a microsecond for each.
const PATIENCE: u32 = 1 << 24;

/// Tiles that a warp keeps in shared memory: `STAGES` of `decode.cu`.
const fn stages(sm: (u32, u32)) -> usize {
    if sm.0 >= HOPPER.0 { 4 } else { 3 }
}

/// The launch of a session.
pub(super) struct Persistent {
    kernel: Kernel,
    /// Used by the launch.
    _memory: (Buffer<Product>, Buffer<Attention>, Buffer<u32>),
    pub(super) parameters: Decode,
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
        let block = engine.weights.output.place.block;
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
        let kernel = Program::load_fitting(&engine.device, &DECODE)?
            .kernel(&format!("decode_{}", block.name().to_lowercase()))?;
        let front = vector.next_multiple_of(16);
        let tiles = WARPS * stages(engine.device.info().sm_version) * Unit::of(block).tile_bytes();
        let shared_bytes = word(front + tiles + products.len() * size_of::<u64>())?;
        let most = kernel.attributes().max_dynamic_shared_bytes;
        if shared_bytes > most {
            let reason =
                format!("it takes {shared_bytes} bytes of shared memory, and an SM has {most} for it");
            return Err(Error::Persistent(reason));
        }
        let device = &engine.device;
        let (grid, sms) = (word(engine.sms)?, device.info().sm_count);
        let resident = kernel.occupancy(BLOCK, shared_bytes)?.blocks_per_sm * sms;
        if resident < grid {
            let reason = format!("it has {grid} blocks, of which {resident} run at the same time");
            return Err(Error::Persistent(reason));
        }
        let memory = (
            device.alloc_from(&products)?.named("products of a token"),
            device.alloc_from(&attentions)?.named("attentions of a token"),
            device.alloc_zeroed::<u32>(1)?.named("counter of phases"),
        );
        // CAST: usize is at most 64 bits.
        let tiles_end = engine.weights.matrices.gpu_va() + engine.weights.matrices.len() as u64;
        let parameters = Decode {
            products: memory.0.gpu_va(),
            attentions: memory.1.gpu_va(),
            counter: memory.2.gpu_va(),
            tiles_end,
            layers: word(layers)?,
            count: word(products.len())?,
            groups: word(engine.groups())?,
            chunks: word(engine.chunks())?,
            front_bytes: word(front)?,
            blocks: grid,
            patience: PATIENCE,
            unused: 0,
        };
        Ok(Self { kernel, _memory: memory, parameters, grid, shared_bytes })
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
