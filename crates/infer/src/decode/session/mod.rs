//! A context on the device, and the tokens that continue it.

mod buffers;
mod choice;
mod copy;
mod options;
mod tokens;

use core::fmt;
use std::collections::VecDeque;
use std::sync::Arc;

use buffers::{Buffers, PENDING, RING};
pub use options::{Layers, SessionOptions};
use tegra_hcq::{Fence, Graph, Profile, Queue, QueueOptions, WaitPolicy};
pub use tokens::Tokens;

use super::convolution;
use super::engine::{Engine, Inner, TIMEOUT};
use super::memory::Sizes;
use super::persistent::Persistent;
use super::places::Addresses;
use super::prompt::{self, Source};
use super::sampling::Sampling;
use crate::error::{Error, Result};
use crate::launch::words;
use crate::model::CONVOLVED;
use crate::parameters::{SampleParams, SamplingParams, SequenceMemory, SequenceState};

/// Steps that are submitted before the first one's token is read.
const RUN_AHEAD: usize = 3;
/// Replays in flight while a prompt is fed.
const INSTANCES: usize = 8;
/// Iterations of the spin loop between two reads of the token ring.
const SPINS: u32 = 64;

/// A context and the tokens that continue it.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use tegra_hcq::{Device, DeviceKind};
/// # let device = Device::open(DeviceKind::Sim)?;
/// use infer::decode::{Engine, Sampling};
/// use infer::model::Model;
/// use infer::synthetic::Recipe;
///
/// let model = Model::from_bytes(Recipe::tiny_llama().to_bytes()?)?;
/// let engine = Engine::load(&device, &model, 64, |_, _| ())?;
/// let mut session = engine.session(64)?;
/// session.feed(&[1, 2, 3])?;
/// let tokens: Vec<u32> = session.tokens(4)?.collect::<Result<_, _>>()?;
/// assert_eq!((tokens.len(), session.len()), (4, 7));
///
/// // The same context again, continued in another way.
/// session.truncate(3)?;
/// session.set_sampling(&Sampling { temperature: 1.0, seed: 5, ..Sampling::default() })?;
/// assert_eq!(session.tokens(4)?.count(), 4);
/// # Ok(())
/// # }
/// ```
pub struct Session {
    // Declared first: dropped before the memory that their launches use. `drop` waits for the queue.
    /// Appends a pending token.
    feed_graph: Graph,
    /// Chooses a token and appends it.
    sample_graph: Graph,
    /// Makes logits.
    logits_graph: Graph,
    queue: Queue,
    /// One launch for all layers, if it is used. Its steps begin with the choice of a token: the step before has made
    /// the logits.
    persistent: Option<Persistent>,
    /// Whether no step has made logits.
    needs_logits: bool,
    buffers: Buffers,
    /// The device's settings.
    settings: SamplingParams,
    /// Most tokens of a prompt that are computed together; 0 for none.
    together: usize,
    /// Addresses of the launches, and of the context's tokens.
    at: Addresses,
    history: u64,
    /// For the kernels of a batch.
    sample: SampleParams,
    memory: SequenceMemory,
    pub(super) engine: Arc<Inner>,
    context: usize,
    /// The tokens of the context.
    tokens: Vec<u32>,
    /// Positions that have been computed, also those that were dropped again.
    computed: usize,
    /// Tokens that the device has chosen since the settings were written.
    produced: u32,
    /// Whether the device's vector is that of the newest token.
    is_current: bool,
    in_flight: VecDeque<Fence>,
    wait: WaitPolicy,
}

impl Engine {
    /// A session with room for `context` positions.
    ///
    /// # Errors
    ///
    /// [`Error::ContextTooLong`] if the model has fewer positions, or for 0; those of the device.
    pub fn session(&self, context: usize) -> Result<Session> {
        self.session_with(context, &SessionOptions::default())
    }

    /// As [`Engine::session`], with options.
    ///
    /// # Errors
    ///
    /// As [`Engine::session`].
    pub fn session_with(&self, context: usize, options: &SessionOptions) -> Result<Session> {
        Session::new(&self.inner, context, options)
    }
}

impl Session {
    fn new(engine: &Arc<Inner>, context: usize, options: &SessionOptions) -> Result<Self> {
        let shape = &engine.shape;
        if context == 0 || context > shape.context {
            return Err(Error::ContextTooLong { wanted: context, most: shape.context });
        }
        let sizes = Sizes::of(engine.device.info());
        let together = prompt::tokens(shape, context, sizes, options.prompt_batch);
        if together > 0 {
            engine.scratch.reserve(&engine.device, shape, together)?;
        }
        let ahead = options.ahead.unwrap_or_default();
        let (buffers, at, history) = Buffers::new(engine, context, ahead)?;
        let persistent = Persistent::wanted(options.layers, engine, &at)?;
        let [vocabulary, width, pairs, blocks, ring_length] =
            words([shape.vocabulary, shape.width, shape.rope_pairs(), engine.logits_blocks(), RING])?;
        let embedding = &engine.weights.embedding.place;
        let sample = SampleParams {
            state: buffers.state.gpu_va(),
            settings: buffers.settings.gpu_va(),
            history,
            pending: buffers.pending.gpu_va(),
            token_ring: buffers.token_ring.gpu_va(),
            logits: at.logits,
            best: at.best,
            tiles: engine.weights.address(embedding),
            positions: engine.weights.positions,
            frequencies: buffers.frequencies.gpu_va(),
            rotation: at.rotation,
            x: at.x,
            vocabulary,
            width,
            block_type: embedding.block.id(),
            pairs,
            blocks,
            ring_length,
            factor: shape.embedding_scale as f32,
            unused: 0,
        };
        let graph = |record: &dyn Fn(&mut tegra_hcq::GraphBuilder) -> Result<()>| {
            let mut builder = engine.device.graph();
            builder.instances(INSTANCES)?;
            // SAFETY: the kernels of decoding begin with the wait; before it they read parameters and weights only.
            unsafe { builder.begin_early(true) };
            record(&mut builder)?;
            Ok::<_, Error>(builder.build()?)
        };
        Ok(Self {
            feed_graph: graph(&|builder| {
                engine.launch_sample(builder, &engine.take, &sample)?;
                match &persistent {
                    Some(one) => one.record(builder, false),
                    None => engine.layers(builder, &at),
                }
            })?,
            sample_graph: graph(&|builder| {
                if let Some(one) = &persistent {
                    engine.launch_sample(builder, &engine.sample, &sample)?;
                    return one.record(builder, true);
                }
                engine.logits(builder, &at)?;
                engine.launch_sample(builder, &engine.sample, &sample)?;
                engine.layers(builder, &at)
            })?,
            logits_graph: graph(&|builder| engine.logits(builder, &at))?,
            queue: engine.device.queue_with(&QueueOptions::default().wait(options.wait))?,
            persistent,
            needs_logits: true,
            sample,
            memory: SequenceMemory {
                vectors: buffers.scratch.gpu_va(),
                keys: at.keys,
                values: at.values,
                position: at.position,
                context: at.context,
                scales: at.scales,
                unused: 0,
            },
            buffers,
            settings: Sampling::default().parameters(),
            together,
            at,
            history,
            engine: Arc::clone(engine),
            context,
            tokens: Vec::with_capacity(context),
            computed: 0,
            produced: 0,
            is_current: false,
            in_flight: VecDeque::with_capacity(RUN_AHEAD + 1),
            wait: options.wait,
        })
    }

    /// Number of tokens in the context.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether the context is empty.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Positions that the session has room for.
    pub fn context(&self) -> usize {
        self.context
    }

    /// The tokens of the context.
    pub fn context_tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Number of launches for each produced token.
    pub fn launches_per_token(&self) -> usize {
        self.sample_graph.len()
    }

    /// Appends tokens to the context. Returns when the device has all commands; it may still compute.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownToken`] if a token is not in the vocabulary, [`Error::PromptTooLong`] if the context has no room
    /// for all of them; then nothing was appended. Those of the device.
    pub fn feed(&mut self, tokens: &[u32]) -> Result<()> {
        let vocabulary = self.engine.shape.vocabulary;
        if let Some(token) = tokens.iter().copied().find(|token| *token as usize >= vocabulary) {
            return Err(Error::UnknownToken { token, vocabulary });
        }
        if tokens.len() > self.context - self.tokens.len() {
            let needed = self.tokens.len() + tokens.len();
            return Err(Error::PromptTooLong { tokens: needed, context: self.context });
        }
        let mut left = tokens.len();
        for piece in tokens.chunks(PENDING) {
            left -= piece.len();
            self.queue.wait(TIMEOUT)?;
            self.buffers.pending.slice_mut(..piece.len())?.copy_from_slice(piece)?;
            let batched = self.append_batch(piece, left == 0)?;
            for token in &piece[batched..] {
                self.queue.replay(&mut self.feed_graph)?;
                self.tokens.push(*token);
            }
            self.is_current = batched < piece.len();
        }
        Ok(())
    }

    /// Appends the first tokens of `piece` together, if they are enough, and returns their number. The last token of
    /// a prompt is not among them: its vector is needed.
    fn append_batch(&mut self, piece: &[u32], is_last: bool) -> Result<usize> {
        let count = piece.len() - usize::from(is_last);
        let start = self.tokens.len();
        if self.together == 0 || count < prompt::FEWEST {
            self.write_state()?;
            return Ok(0);
        }
        self.is_current = false;
        // CAST: at most the context, which fits 32 bits.
        let (end, pending) = ((start + count) as u32, count as u32);
        let state = SequenceState {
            position: end - 1,
            count: end,
            produced: self.produced,
            pending,
            ..SequenceState::default()
        };
        self.buffers.state.copy_from_slice(&[state])?;
        let source = Source {
            tokens: self.buffers.pending.gpu_va(),
            history: self.history,
            frequencies: self.buffers.frequencies.gpu_va(),
            start,
            count,
        };
        self.engine.append(&mut self.queue, self.together, &self.at, source)?;
        self.tokens.extend_from_slice(&piece[..count]);
        Ok(count)
    }

    /// The logits of the token that follows the context: a number for each token of the vocabulary.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyContext`] if there is no token yet; those of the device.
    pub fn logits(&mut self) -> Result<Vec<f32>> {
        let mut logits = vec![0.0; self.engine.shape.vocabulary];
        self.logits_into(&mut logits)?;
        Ok(logits)
    }

    /// As [`Session::logits`], into a slice.
    ///
    /// # Errors
    ///
    /// As [`Session::logits`]; [`Error::Length`] if the slice has another length.
    pub fn logits_into(&mut self, logits: &mut [f32]) -> Result<()> {
        let needed = self.engine.shape.vocabulary;
        if logits.len() != needed {
            return Err(Error::Length { what: "a slice for logits", len: logits.len(), needed });
        }
        self.refresh()?;
        self.queue.replay(&mut self.logits_graph)?.wait(TIMEOUT)?;
        let made = self.buffers.scratch.slice(self.buffers.logits.clone())?;
        Ok(made.copy_to_slice(bytemuck::cast_slice_mut(logits))?)
    }

    /// Sets how tokens are chosen. Random numbers start again, and a mask ends.
    ///
    /// # Errors
    ///
    /// [`Error::Sampling`] if a number has no meaning; those of the device.
    pub fn set_sampling(&mut self, sampling: &Sampling) -> Result<()> {
        sampling.check()?;
        self.queue.wait(TIMEOUT)?;
        self.settings = sampling.parameters();
        self.buffers.settings.copy_from_slice(&[self.settings])?;
        self.produced = 0;
        self.buffers.clear_tokens();
        self.write_state()
    }

    /// Keeps the first `len` tokens of the context; does nothing if there are fewer.
    ///
    /// # Errors
    ///
    /// Those of the device.
    pub fn truncate(&mut self, len: usize) -> Result<()> {
        if len >= self.tokens.len() {
            return Ok(());
        }
        self.computed = self.computed.max(self.tokens.len() + RUN_AHEAD + 1);
        self.cut(len)
    }

    /// Keeps the first `len` tokens, and computes them again if convolutions have lost the positions before the end.
    fn cut(&mut self, len: usize) -> Result<()> {
        self.is_current = false;
        self.queue.wait(TIMEOUT)?;
        let has_convolutions = self.engine.shape.layers.iter().any(|layer| layer.convolution);
        // The newest token is computed again, which sees the positions before it.
        if !has_convolutions || len + convolution::KEPT >= self.computed + CONVOLVED {
            self.tokens.truncate(len);
            return self.write_state();
        }
        let tokens = self.tokens[..len].to_vec();
        self.tokens.clear();
        self.computed = 0;
        self.write_state()?;
        self.feed(&tokens)
    }

    /// Drops the whole context.
    ///
    /// # Errors
    ///
    /// As [`Session::truncate`].
    pub fn clear(&mut self) -> Result<()> {
        self.truncate(0)
    }

    /// Tokens that continue the context, at most `limit` and at most as many as the context has room for. Each is part
    /// of the context once the iterator has returned it.
    ///
    /// The device works ahead of the iterator. Tokens that the iterator did not return are discarded with it.
    ///
    /// # Errors
    ///
    /// As [`Session::logits`].
    pub fn tokens(&mut self, limit: usize) -> Result<Tokens<'_>> {
        self.refresh()?;
        let limit = limit.min(self.context - self.tokens.len());
        Ok(Tokens { session: self, to_submit: limit, to_return: limit })
    }

    /// Produces `steps` tokens, and drops them again, while the GPU writes a time stamp after each launch.
    ///
    /// # Errors
    ///
    /// As [`Session::tokens`]; [`Error::PromptTooLong`] if the context has no room for the tokens.
    pub fn profile(&mut self, steps: usize) -> Result<Profile> {
        self.refresh()?;
        let (len, context) = (self.tokens.len(), self.context);
        if steps > context - len {
            return Err(Error::PromptTooLong { tokens: len + steps, context });
        }
        self.queue.profile(true)?;
        for _ in 0..steps {
            self.replay()?.wait(TIMEOUT)?;
        }
        let profile = self.queue.take_profile();
        self.queue.profile(false)?;
        self.computed = self.computed.max(len + steps);
        self.cut(len)?;
        Ok(profile?)
    }

    /// Waits until the device has done everything.
    ///
    /// # Errors
    ///
    /// Those of the device.
    pub fn wait(&mut self) -> Result<()> {
        Ok(self.queue.wait(TIMEOUT)?)
    }

    /// Writes the number of tokens to the device. No work may be in flight.
    fn write_state(&mut self) -> Result<()> {
        // CAST: at most the context, which fits 32 bits.
        let count = self.tokens.len() as u32;
        let state = SequenceState {
            position: count.saturating_sub(1),
            count,
            produced: self.produced,
            ..SequenceState::default()
        };
        Ok(self.buffers.state.copy_from_slice(&[state])?)
    }

    /// Computes the newest token's vector again, if a later one replaced it.
    fn refresh(&mut self) -> Result<()> {
        self.needs_logits = true;
        if self.is_current {
            return Ok(());
        }
        let Some(newest) = self.tokens.pop() else { return Err(Error::EmptyContext) };
        let fed = self.feed(&[newest]);
        if fed.is_err() && self.tokens.len() < self.context {
            self.tokens.push(newest);
        }
        fed
    }

    /// Replays a step, after the logits that it begins with.
    fn replay(&mut self) -> Result<Fence> {
        if self.persistent.is_some() && self.needs_logits {
            self.queue.replay(&mut self.logits_graph)?;
            self.needs_logits = false;
        }
        Ok(self.queue.replay(&mut self.sample_graph)?)
    }

    /// Submits a step.
    fn submit(&mut self) -> Result<()> {
        let fence = self.replay()?;
        self.in_flight.push_back(fence);
        Ok(())
    }

    /// Waits for the next token.
    fn receive(&mut self) -> Result<u32> {
        // PANIC: callers submit before they receive.
        let fence = self.in_flight.pop_front().expect("a step is in flight");
        self.token_of(&fence)
    }

    /// Waits for the token of the step that ends with this fence.
    pub(super) fn token_of(&mut self, fence: &Fence) -> Result<u32> {
        let number = self.produced + 1;
        while self.wait == WaitPolicy::Spin && self.buffers.read_token(number).0 != number && !fence.is_done()
        {
            for _ in 0..SPINS {
                core::hint::spin_loop();
            }
        }
        if self.buffers.read_token(number).0 != number {
            fence.wait(TIMEOUT)?;
        }
        let (found, token) = self.buffers.read_token(number);
        if found != number {
            return Err(Error::LostToken { number, found });
        }
        self.produced = number;
        self.tokens.push(token);
        Ok(token)
    }

    /// Prepares the session for steps of a batch: its vector is that of the newest token, and nothing is in flight.
    pub(super) fn prepare_for_batch(&mut self) -> Result<(SequenceMemory, SampleParams)> {
        self.refresh()?;
        self.queue.wait(TIMEOUT)?;
        Ok((self.memory, self.sample))
    }

    /// Produces one token, without working ahead.
    pub(super) fn produce_one(&mut self) -> Result<u32> {
        self.submit()?;
        self.receive()
    }

    /// Waits for the steps in flight and discards their tokens.
    fn discard_in_flight(&mut self) -> Result<()> {
        if self.in_flight.is_empty() {
            return Ok(());
        }
        self.in_flight.clear();
        self.is_current = false;
        self.queue.wait(TIMEOUT)?;
        self.write_state()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Launches use the buffers by address. A queue that has faulted has ended.
        let _ = self.queue.wait(TIMEOUT);
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("tokens", &self.tokens.len())
            .field("context", &self.context)
            .finish_non_exhaustive()
    }
}
