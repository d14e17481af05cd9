//! Sessions that decode together: the weights are read once per step for up to seven of them, and on the tensor cores
//! for all.

use core::fmt;
use std::sync::Arc;

use tegra_hcq::{Arg, Buffer, Graph, GraphBuilder, Queue, QueueOptions, WaitPolicy};

use super::engine::{BLOCK, Engine, Inner, SAMPLE_BLOCK, TIMEOUT, of_format, tiles_bytes, vector_bytes};
use super::experts;
use super::places::Addresses;
use super::session::Session;
use super::stages::{ProductCall, Stage};
use super::tensor_cores::{self, Group, TensorCores};
use crate::blocks::BlockType;
use crate::error::{Error, Result};
use crate::launch::word;
use crate::parameters::{
    BatchAttentionParams, BatchProductParams, ConvolveParams, MAX_SEQUENCES, ProductParams, Prologue,
    SampleParams, SequenceTable,
};

/// Most sequences of a block of products.
const GROUP: usize = 8;
/// Tiles that a warp keeps in shared memory: `PLACES` of `products.cu`.
const PLACES: usize = 2;
/// Fewest sequences whose products are computed on the tensor cores. On an H100, a step of 8 takes less time there than
/// one of 6 with the other products, in each format that was measured.
pub(super) const TENSOR_CORES_FROM: usize = 6;
/// Replays in flight.
const INSTANCES: usize = 4;

/// The slot of a session in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(usize);

impl Slot {
    /// Its number, below the batch's size.
    pub const fn number(self) -> usize {
        self.0
    }
}

/// Options of a batch.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct BatchOptions {
    /// Fewest sequences of a step whose products are computed on the tensor cores, 6 by default.
    pub tensor_cores_from: usize,
}

impl Default for BatchOptions {
    fn default() -> Self {
        Self { tensor_cores_from: TENSOR_CORES_FROM }
    }
}

impl BatchOptions {
    /// Sets the fewest sequences of a step whose products are computed on the tensor cores. A step of one session
    /// computes what the session computes alone.
    #[must_use]
    pub fn tensor_cores_from(mut self, sequences: usize) -> Self {
        self.tensor_cores_from = sequences;
        self
    }
}

/// Sessions that decode together, each with its own length, sampling and end. They join and leave between steps.
///
/// In steps of up to 5 sessions, each gets the same tokens as alone, bit for bit. In steps of more, vectors and weights
/// are rounded to halves for the tensor cores, as those of prompts are: logits of random models differ from 64-bit
/// floats by less than 1 part in 1,000. They do not depend on the other sessions, and have the same bits on every run.
/// [`BatchOptions::tensor_cores_from`] sets the number.
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
/// let engine = Engine::load(&device, &model, 64, |_, _| ())?;
/// let mut batch = engine.batch(4)?;
/// for prompt in [&[1, 2, 3][..], &[7]] {
///     let mut session = engine.session(64)?;
///     session.feed(prompt)?;
///     batch.join(session)?;
/// }
/// for _ in 0..3 {
///     for (slot, token) in batch.step()? {
///         println!("sequence {}: {token}", slot.number());
///     }
/// }
/// let slots: Vec<_> = batch.slots().collect();
/// assert_eq!(batch.leave(slots[0])?.len(), 6);
/// assert_eq!(batch.leave(slots[1])?.len(), 4);
/// # Ok(())
/// # }
/// ```
pub struct Batch {
    // Declared first: dropped before the memory that their launches use. `drop` waits for the queue.
    graphs: Vec<(Class, Graph)>,
    queue: Queue,
    table: Buffer<SequenceTable>,
    samples: Buffer<SampleParams>,
    /// By slot.
    sessions: Vec<Option<Session>>,
    /// Slots of the sessions in the device's table, in its order.
    active: Vec<Slot>,
    /// Whether the device's table is that of the current sessions.
    is_current: bool,
    produced: Vec<(Slot, u32)>,
    tensor_cores_from: usize,
    /// For steps on the tensor cores, if the batch can have as many sessions.
    tensor_cores: Option<TensorCores>,
    engine: Arc<Inner>,
}

/// The steps that have a graph of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Class {
    /// Most sequences.
    size: usize,
    /// Whether the products are computed on the tensor cores.
    on_tensor_cores: bool,
}

impl Engine {
    /// A batch for at most `sessions` sessions, up to 32.
    ///
    /// # Errors
    ///
    /// [`Error::BatchFull`] for more, or for none; those of the device.
    pub fn batch(&self, sessions: usize) -> Result<Batch> {
        self.batch_with(sessions, &BatchOptions::default())
    }

    /// The same with options.
    ///
    /// # Errors
    ///
    /// As [`Engine::batch`].
    pub fn batch_with(&self, sessions: usize, options: &BatchOptions) -> Result<Batch> {
        if sessions == 0 || sessions > MAX_SEQUENCES {
            return Err(Error::BatchFull(if sessions == 0 { 0 } else { MAX_SEQUENCES }));
        }
        let device = &self.inner.device;
        let on_tensor_cores = sessions >= options.tensor_cores_from;
        let queue = QueueOptions::default().wait(WaitPolicy::Spin);
        Ok(Batch {
            graphs: Vec::new(),
            queue: device.queue_with(&queue)?,
            table: device.alloc_zeroed::<SequenceTable>(1)?.named("sequences of a batch"),
            samples: device.alloc_zeroed::<SampleParams>(sessions)?.named("sampling of a batch"),
            sessions: (0..sessions).map(|_| None).collect(),
            active: Vec::with_capacity(sessions),
            is_current: false,
            produced: Vec::with_capacity(sessions),
            tensor_cores_from: options.tensor_cores_from,
            tensor_cores: on_tensor_cores.then(|| TensorCores::new(&self.inner, sessions)).transpose()?,
            engine: Arc::clone(&self.inner),
        })
    }
}

impl Batch {
    /// Number of sessions.
    pub fn len(&self) -> usize {
        self.sessions.iter().flatten().count()
    }

    /// Whether it has no session.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Most sessions.
    pub fn size(&self) -> usize {
        self.sessions.len()
    }

    /// The occupied slots, in ascending order.
    pub fn slots(&self) -> impl Iterator<Item = Slot> {
        let taken = |(at, session): (usize, &Option<Session>)| session.as_ref().map(|_| Slot(at));
        self.sessions.iter().enumerate().filter_map(taken)
    }

    /// The session in a slot; `None` if the slot is empty.
    pub fn session(&self, slot: Slot) -> Option<&Session> {
        self.sessions.get(slot.0)?.as_ref()
    }

    /// Adds a session. Later steps produce its tokens.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyContext`] if no token was fed, [`Error::OtherEngine`], [`Error::BatchFull`]; those of the device.
    /// The session is dropped then.
    pub fn join(&mut self, mut session: Session) -> Result<Slot> {
        if !Arc::ptr_eq(&session.engine, &self.engine) {
            return Err(Error::OtherEngine);
        }
        let Some(slot) = self.sessions.iter().position(Option::is_none) else {
            return Err(Error::BatchFull(self.sessions.len()));
        };
        session.prepare_for_batch()?;
        self.sessions[slot] = Some(session);
        self.is_current = false;
        Ok(Slot(slot))
    }

    /// Takes a session out of the batch. Its context contains the tokens that the steps returned.
    ///
    /// # Errors
    ///
    /// [`Error::EmptySlot`]; those of the device.
    pub fn leave(&mut self, slot: Slot) -> Result<Session> {
        // The last step may still compute the layers of the token that it returned.
        self.queue.wait(TIMEOUT)?;
        let session = self.sessions.get_mut(slot.0).and_then(Option::take);
        self.is_current = false;
        session.ok_or(Error::EmptySlot(slot.0))
    }

    /// Produces a token for each session whose context has room. Returns as soon as the tokens are known; the device
    /// may still prepare the next step.
    ///
    /// # Errors
    ///
    /// Those of the device; [`Error::LostToken`].
    pub fn step(&mut self) -> Result<&[(Slot, u32)]> {
        self.produced.clear();
        let has_room = |session: &Session| session.len() < session.context();
        if !self.is_current || self.active().any(|session| !has_room(session)) {
            self.update_table()?;
        }
        if let [slot] = self.active[..] {
            // PANIC: active slots are occupied.
            let session = self.sessions[slot.0].as_mut().expect("a session");
            self.produced.push((slot, session.produce_one()?));
            return Ok(&self.produced);
        }
        if self.active.is_empty() {
            return Ok(&self.produced);
        }
        let graph = self.graph()?;
        let fence = self.queue.replay(&mut self.graphs[graph].1)?;
        for slot in &self.active {
            // PANIC: active slots are occupied.
            let session = self.sessions[slot.0].as_mut().expect("a session");
            self.produced.push((*slot, session.token_of(&fence)?));
        }
        Ok(&self.produced)
    }

    /// Sets the tokens that later steps may choose for a slot, as [`Session::set_mask`].
    ///
    /// # Errors
    ///
    /// [`Error::EmptySlot`]; as [`Session::set_mask`].
    pub fn set_mask(&mut self, slot: Slot, mask: Option<&[u32]>) -> Result<()> {
        let session = self.sessions.get_mut(slot.0).and_then(Option::as_mut);
        session.ok_or(Error::EmptySlot(slot.0))?.set_mask(mask)
    }

    /// The logits from which the last step chose the token of a slot, as [`Session::chosen_from`].
    ///
    /// # Errors
    ///
    /// [`Error::EmptySlot`]; as [`Session::chosen_from`].
    pub fn chosen_from(&mut self, slot: Slot, logits: &mut [f32]) -> Result<()> {
        self.queue.wait(TIMEOUT)?;
        let session = self.sessions.get_mut(slot.0).and_then(Option::as_mut);
        session.ok_or(Error::EmptySlot(slot.0))?.chosen_from(logits)
    }

    /// Waits until the device has done everything.
    ///
    /// # Errors
    ///
    /// Those of the device.
    pub fn wait(&mut self) -> Result<()> {
        self.queue.wait(TIMEOUT)?;
        self.sessions.iter_mut().flatten().try_for_each(Session::wait)
    }

    /// Number of launches of a step with the sessions of the last step.
    pub fn launches_per_step(&self) -> usize {
        match self.active[..] {
            [slot] => self.session(slot).map_or(0, Session::launches_per_token),
            _ => self.position().map_or(0, |graph| self.graphs[graph].1.len()),
        }
    }

    fn active(&self) -> impl Iterator<Item = &Session> {
        self.active.iter().filter_map(|slot| self.session(*slot))
    }

    /// Writes the sessions that have room to the device's table.
    fn update_table(&mut self) -> Result<()> {
        self.wait()?;
        self.active.clear();
        let mut table = SequenceTable::default();
        let mut samples = self.samples.slice_mut(..)?;
        let mut all = Vec::with_capacity(self.sessions.len());
        for (at, session) in self.sessions.iter_mut().enumerate() {
            let Some(session) = session else { continue };
            if session.len() == session.context() {
                continue;
            }
            let (memory, sample) = session.prepare_for_batch()?;
            table.list[all.len()] = memory;
            all.push(sample);
            self.active.push(Slot(at));
        }
        // CAST: at most MAX_SEQUENCES.
        table.count = all.len() as u32;
        all.resize(self.sessions.len(), SampleParams::default());
        samples.copy_from_slice(&all)?;
        self.table.copy_from_slice(&[table])?;
        self.is_current = true;
        Ok(())
    }

    /// The class of a step of the active sessions.
    fn class(&self) -> Class {
        let count = self.active.len();
        let size = count.next_power_of_two().min(self.sessions.len());
        Class { size, on_tensor_cores: count >= self.tensor_cores_from }
    }

    /// The number of the graph of a step of the active sessions.
    fn position(&self) -> Option<usize> {
        let class = self.class();
        self.graphs.iter().position(|graph| graph.0 == class)
    }

    /// The number of a graph for the active sessions, which is recorded if it does not exist yet.
    fn graph(&mut self) -> Result<usize> {
        if let Some(graph) = self.position() {
            return Ok(graph);
        }
        let class = self.class();
        let mut builder = self.engine.device.graph();
        builder.instances(INSTANCES)?;
        // SAFETY: the kernels of decoding begin with the wait; before it they read parameters and weights only.
        unsafe { builder.begin_early(true) };
        let (places, _) = self.engine.places();
        let group = Group { table: self.table.gpu_va(), samples: self.samples.gpu_va(), size: class.size };
        let tensor_cores = self.tensor_cores.as_ref().filter(|_| class.on_tensor_cores);
        let record = Record { engine: &self.engine, places, group, tensor_cores };
        record.product(&mut builder, &self.engine.output(&places))?;
        record.samples(&mut builder)?;
        self.engine.stages(&places, |stage| match stage {
            Stage::Product(call) => record.product(&mut builder, &call),
            Stage::Attention(number) => record.attention(&mut builder, number),
            Stage::Experts(number) => record.experts(&mut builder, number),
            Stage::Convolution(number) => record.convolution(&mut builder, number),
        })?;
        self.graphs.push((class, builder.build()?));
        Ok(self.graphs.len() - 1)
    }
}

/// Records launches for a group of sequences.
struct Record<'a> {
    engine: &'a Inner,
    places: Addresses,
    group: Group,
    /// For products on the tensor cores.
    tensor_cores: Option<&'a TensorCores>,
}

impl Record<'_> {
    /// A product, and what prepares its input.
    fn product(&self, graph: &mut GraphBuilder, call: &ProductCall<'_>) -> Result<()> {
        let (engine, place, size) = (self.engine, &call.matrix.place, self.group.size);
        if let Some(tensor_cores) = self.tensor_cores {
            return tensor_cores.product(engine, graph, self.group, call);
        }
        let mut one = engine.product(&self.places, call)?;
        if call.prologue != Prologue::Packed {
            self.prepare(graph, call)?;
            one.input = self.places.prepared;
        }
        let kernel = of_format(&engine.batch.products, place.block);
        let group = self.group(place.block, place.columns, kernel.attributes().max_dynamic_shared_bytes);
        let shared = group * vector_bytes(place.block, place.columns) + tiles_bytes(place.block, PLACES);
        let grid = (engine.product_blocks(&one), word(size.div_ceil(group))?);
        let parameters = self.parameters(one, group)?;
        let arguments = [Arg::Bytes(bytemuck::bytes_of(&parameters))];
        // SAFETY: as for `prepare`; the weights live as long as the engine.
        unsafe { graph.launch_with_shared(kernel, grid, BLOCK, word(shared)?, &arguments)? };
        Ok(())
    }

    fn parameters(&self, product: ProductParams, group: usize) -> Result<BatchProductParams> {
        Ok(BatchProductParams { product, sequences: self.group.table, group: word(group)?, unused: 0 })
    }

    /// Brings the input of a product into the form that its kernel takes.
    fn prepare(&self, graph: &mut GraphBuilder, call: &ProductCall<'_>) -> Result<()> {
        let mut product = self.engine.product(&self.places, call)?;
        product.output = self.places.prepared;
        // CAST: the forms are numbered as the kernels.
        let kernel = &self.engine.batch.prepare[experts::form(call.matrix.place.block) as usize];
        let parameters = self.parameters(product, 0)?;
        let arguments = [Arg::Bytes(bytemuck::bytes_of(&parameters))];
        // SAFETY: the places are inside the memory of each session on the list, which lives as long as the session
        // is part of the batch; the batch waits for its queue before a session leaves.
        unsafe { graph.launch(kernel, word(self.group.size)?, BLOCK, &arguments)? };
        Ok(())
    }

    /// The experts of a layer: with the same products on the tensor cores and without them.
    fn experts(&self, graph: &mut GraphBuilder, number: usize) -> Result<()> {
        self.prepare(graph, &self.engine.first_experts(&self.places, number))?;
        let Group { table, size, .. } = self.group;
        self.engine.launch_experts_of_batch(graph, &self.places, number, (table, size))
    }

    /// Sequences whose vectors a block of a product takes, in groups of the same size; at least 1.
    fn group(&self, block: BlockType, columns: usize, shared_bytes: u32) -> usize {
        let room =
            (shared_bytes as usize).saturating_sub(tiles_bytes(block, PLACES)) / vector_bytes(block, columns);
        let groups = self.group.size.div_ceil(room.clamp(1, GROUP));
        self.group.size.div_ceil(groups)
    }

    fn attention(&self, graph: &mut GraphBuilder, number: usize) -> Result<()> {
        let engine = self.engine;
        let attention = engine.attention(&self.places, number)?;
        let (sequences, layer) = (self.group.table, word(engine.shape.cached(number))?);
        let parameters = BatchAttentionParams { attention, sequences, layer, unused: 0 };
        let arguments = [Arg::Bytes(bytemuck::bytes_of(&parameters))];
        let (kernel, chunks, block) = match self.tensor_cores {
            Some(_) => {
                let kernel = &engine.batch.attention_wide;
                (kernel, tensor_cores::chunks(engine), tensor_cores::ATTENTION_BLOCK)
            }
            None => (&engine.batch.attention, engine.chunks(), BLOCK),
        };
        let grid = (word(engine.groups())?, word(chunks)?, word(self.group.size)?);
        // SAFETY: as for products; positions stay below the context of each session, which the batch checks.
        unsafe { graph.launch(kernel, grid, block, &arguments)? };
        Ok(())
    }

    fn convolution(&self, graph: &mut GraphBuilder, number: usize) -> Result<()> {
        let one = self.engine.convolve(&self.places, number)?;
        let parameters = ConvolveParams { sequences: self.group.table, ..one };
        self.engine.convolution.record(graph, &parameters, self.group.size)
    }

    fn samples(&self, graph: &mut GraphBuilder) -> Result<()> {
        // The table starts with the number of sequences.
        let arguments = [Arg::U64(self.group.samples), Arg::U64(self.group.table)];
        // SAFETY: as for products; the parameters of the active sessions contain the addresses of their memory.
        unsafe { graph.launch(&self.engine.batch.sample, word(self.group.size)?, SAMPLE_BLOCK, &arguments)? };
        Ok(())
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        // Launches use the sessions by address. A queue that has faulted has ended.
        let _ = self.queue.wait(TIMEOUT);
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("len", &self.len()).field("size", &self.size()).finish_non_exhaustive()
    }
}
