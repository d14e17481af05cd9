//! Sessions that decode together: the weights are read once per step for up to seven of them, and on the tensor cores
//! for all.

use core::fmt;
use std::sync::Arc;

use tegra_hcq::{Arg, Buffer, Graph, GraphBuilder, Queue, QueueOptions, WaitPolicy};

use super::engine::{
    BLOCK, Call, Engine, Inner, SAMPLE_BLOCK, Stage, TIMEOUT, of_format, rounds, tiles_bytes, vector_bytes,
    word,
};
use super::pack::Unit;
use super::parameters::{Attentions, Before, MAX_SEATS, Products, Seats, Step};
use super::places::Addresses;
use super::session::Session;
use super::wide::{self, Group, Wide};
use crate::blocks::BlockType;
use crate::error::{Error, Result};

/// Most sequences of a block of products.
const GROUP: usize = 8;
/// Tiles that a warp keeps in shared memory: `PLACES` of `products.cu`.
const PLACES: usize = 2;
/// Fewest sequences whose products are computed on the tensor cores. On an H100, a step of 8 takes less time there than
/// one of 6 with the other products, in each format that was measured.
pub(super) const TENSOR_CORES_FROM: usize = 6;
/// Replays in flight.
const INSTANCES: usize = 4;

/// A session's place in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seat(usize);

impl Seat {
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
///     for (seat, token) in batch.step()? {
///         println!("sequence {}: {token}", seat.number());
///     }
/// }
/// let seats: Vec<_> = batch.seats().collect();
/// assert_eq!(batch.leave(seats[0])?.len(), 6);
/// assert_eq!(batch.leave(seats[1])?.len(), 4);
/// # Ok(())
/// # }
/// ```
pub struct Batch {
    // Declared first: dropped before the memory that their launches use. `drop` waits for the queue.
    graphs: Vec<(Class, Graph)>,
    queue: Queue,
    seats: Buffer<Seats>,
    steps: Buffer<Step>,
    /// By seat.
    sessions: Vec<Option<Session>>,
    /// Seats of the sessions on the device's list, in its order.
    listed: Vec<Seat>,
    is_listed: bool,
    made: Vec<(Seat, u32)>,
    tensor_cores_from: usize,
    /// For steps on the tensor cores, if the batch can have as many sessions.
    wide: Option<Wide>,
    engine: Arc<Inner>,
}

/// The steps that have a graph of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Class {
    /// Most sequences.
    size: usize,
    /// Whether the products are computed on the tensor cores.
    is_wide: bool,
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
        if sessions == 0 || sessions > MAX_SEATS {
            return Err(Error::BatchFull(if sessions == 0 { 0 } else { MAX_SEATS }));
        }
        let device = &self.inner.device;
        let is_wide = sessions >= options.tensor_cores_from;
        let queue = QueueOptions::default().wait(WaitPolicy::Spin);
        Ok(Batch {
            graphs: Vec::new(),
            queue: device.queue_with(&queue)?,
            seats: device.alloc_zeroed::<Seats>(1)?.named("seats of a batch"),
            steps: device.alloc_zeroed::<Step>(sessions)?.named("steps of a batch"),
            sessions: (0..sessions).map(|_| None).collect(),
            listed: Vec::with_capacity(sessions),
            is_listed: false,
            made: Vec::with_capacity(sessions),
            tensor_cores_from: options.tensor_cores_from,
            wide: is_wide.then(|| Wide::new(&self.inner, sessions)).transpose()?,
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

    /// The seats that are taken, in ascending order.
    pub fn seats(&self) -> impl Iterator<Item = Seat> {
        let taken = |(at, session): (usize, &Option<Session>)| session.as_ref().map(|_| Seat(at));
        self.sessions.iter().enumerate().filter_map(taken)
    }

    /// The session in a seat; `None` if the seat is empty.
    pub fn session(&self, seat: Seat) -> Option<&Session> {
        self.sessions.get(seat.0)?.as_ref()
    }

    /// Adds a session. Later steps produce its tokens.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyContext`] if no token was fed, [`Error::OtherEngine`], [`Error::BatchFull`]; those of the device.
    /// The session is dropped then.
    pub fn join(&mut self, mut session: Session) -> Result<Seat> {
        if !Arc::ptr_eq(&session.engine, &self.engine) {
            return Err(Error::OtherEngine);
        }
        let Some(seat) = self.sessions.iter().position(Option::is_none) else {
            return Err(Error::BatchFull(self.sessions.len()));
        };
        session.sit()?;
        self.sessions[seat] = Some(session);
        self.is_listed = false;
        Ok(Seat(seat))
    }

    /// Takes a session out of the batch. Its context contains the tokens that the steps returned.
    ///
    /// # Errors
    ///
    /// [`Error::EmptySeat`]; those of the device.
    pub fn leave(&mut self, seat: Seat) -> Result<Session> {
        // The last step may still compute the layers of the token that it returned.
        self.queue.wait(TIMEOUT)?;
        let session = self.sessions.get_mut(seat.0).and_then(Option::take);
        self.is_listed = false;
        session.ok_or(Error::EmptySeat(seat.0))
    }

    /// Produces a token for each session whose context has room. Returns as soon as the tokens are known; the device
    /// may still prepare the next step.
    ///
    /// # Errors
    ///
    /// Those of the device; [`Error::LostToken`].
    pub fn step(&mut self) -> Result<&[(Seat, u32)]> {
        self.made.clear();
        let has_room = |session: &Session| session.len() < session.context();
        if !self.is_listed || self.listed().any(|session| !has_room(session)) {
            self.list()?;
        }
        if let [seat] = self.listed[..] {
            // PANIC: listed seats are taken.
            let session = self.sessions[seat.0].as_mut().expect("a session");
            self.made.push((seat, session.one()?));
            return Ok(&self.made);
        }
        if self.listed.is_empty() {
            return Ok(&self.made);
        }
        let graph = self.graph()?;
        let fence = self.queue.replay(&mut self.graphs[graph].1)?;
        for seat in &self.listed {
            // PANIC: listed seats are taken.
            let session = self.sessions[seat.0].as_mut().expect("a session");
            self.made.push((*seat, session.take(&fence)?));
        }
        Ok(&self.made)
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
        match self.listed[..] {
            [seat] => self.session(seat).map_or(0, Session::launches_per_token),
            _ => self.position().map_or(0, |graph| self.graphs[graph].1.len()),
        }
    }

    fn listed(&self) -> impl Iterator<Item = &Session> {
        self.listed.iter().filter_map(|seat| self.session(*seat))
    }

    /// Writes the sessions that have room to the device.
    fn list(&mut self) -> Result<()> {
        self.wait()?;
        self.listed.clear();
        let mut seats = Seats::default();
        let mut steps = self.steps.slice_mut(..)?;
        let mut all = Vec::with_capacity(self.sessions.len());
        for (at, session) in self.sessions.iter_mut().enumerate() {
            let Some(session) = session else { continue };
            if session.len() == session.context() {
                continue;
            }
            let (seat, step) = session.sit()?;
            seats.list[all.len()] = seat;
            all.push(step);
            self.listed.push(Seat(at));
        }
        // CAST: at most MAX_SEATS.
        seats.count = all.len() as u32;
        all.resize(self.sessions.len(), Step::default());
        steps.copy_from_slice(&all)?;
        self.seats.copy_from_slice(&[seats])?;
        self.is_listed = true;
        Ok(())
    }

    /// The class of a step of the listed sessions.
    fn class(&self) -> Class {
        let count = self.listed.len();
        let size = count.next_power_of_two().min(self.sessions.len());
        Class { size, is_wide: count >= self.tensor_cores_from }
    }

    /// The number of the graph of a step of the listed sessions.
    fn position(&self) -> Option<usize> {
        let class = self.class();
        self.graphs.iter().position(|graph| graph.0 == class)
    }

    /// The number of a graph for the listed sessions; it is recorded if there is none.
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
        let group = Group { seats: self.seats.gpu_va(), steps: self.steps.gpu_va(), size: class.size };
        let wide = self.wide.as_ref().filter(|_| class.is_wide);
        let record = Record { engine: &self.engine, places, group, wide };
        record.product(&mut builder, &self.engine.output(&places))?;
        record.samples(&mut builder)?;
        self.engine.stages(&places, |stage| match stage {
            Stage::Product(call) => record.product(&mut builder, &call),
            Stage::Attention(number) => record.attention(&mut builder, number),
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
    wide: Option<&'a Wide>,
}

impl Record<'_> {
    /// A product, and what prepares its input.
    fn product(&self, graph: &mut GraphBuilder, call: &Call<'_>) -> Result<()> {
        let (engine, place, size) = (self.engine, &call.matrix.place, self.group.size);
        if let Some(wide) = self.wide {
            return wide.product(engine, graph, self.group, call);
        }
        let mut one = engine.product(&self.places, call)?;
        let parameters = |one, group| -> Result<Products> {
            Ok(Products { one, seats: self.group.seats, group: word(group)?, unused: 0 })
        };
        if call.before != Before::Packed {
            let form = match (rounds(place.block), Unit::of(place.block).weights) {
                (true, _) => 0,
                (false, 8) => 1,
                (false, _) => 2,
            };
            let mut prepare = one;
            prepare.output = self.places.prepared;
            let (kernel, parameters) = (&engine.batch.prepare[form], parameters(prepare, 0)?);
            let arguments = [Arg::Bytes(bytemuck::bytes_of(&parameters))];
            // SAFETY: the places are inside the memory of each session on the list, which lives as long as the session
            // is part of the batch; the batch waits for its queue before a session leaves.
            unsafe { graph.launch(kernel, word(size)?, BLOCK, &arguments)? };
            one.input = self.places.prepared;
        }
        let kernel = of_format(&engine.batch.products, place.block);
        let group = self.group(place.block, place.columns, kernel.attributes().max_dynamic_shared_bytes);
        let shared = group * vector_bytes(place.block, place.columns) + tiles_bytes(place.block, PLACES);
        let grid = (engine.product_blocks(&one), word(size.div_ceil(group))?);
        let parameters = parameters(one, group)?;
        let arguments = [Arg::Bytes(bytemuck::bytes_of(&parameters))];
        // SAFETY: as above; the weights live as long as the engine.
        unsafe { graph.launch_with_shared(kernel, grid, BLOCK, word(shared)?, &arguments)? };
        Ok(())
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
        let one = engine.attention(&self.places, number)?;
        let parameters = Attentions { one, seats: self.group.seats, layer: word(number)?, unused: 0 };
        let arguments = [Arg::Bytes(bytemuck::bytes_of(&parameters))];
        let (kernel, chunks, block) = match self.wide {
            Some(_) => (&engine.batch.attention_wide, wide::chunks(engine), wide::ATTENTION_BLOCK),
            None => (&engine.batch.attention, engine.chunks(), BLOCK),
        };
        let grid = (word(engine.groups())?, word(chunks)?, word(self.group.size)?);
        // SAFETY: as for products; positions stay below the context of each session, which the batch checks.
        unsafe { graph.launch(kernel, grid, block, &arguments)? };
        Ok(())
    }

    fn samples(&self, graph: &mut GraphBuilder) -> Result<()> {
        // The list starts with the number of sequences.
        let arguments = [Arg::U64(self.group.steps), Arg::U64(self.group.seats)];
        // SAFETY: as for products; the steps of the listed sessions have the addresses of their memory.
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
