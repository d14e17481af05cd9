//! A model's weights on a device: one buffer of packed matrices, in the order of their use, and one of floats.

use core::ops::Range;
use std::thread;
use std::time::Duration;

use tegra_hcq::{Buffer, Device};

use super::pack::{self, Place, Rows, Unit};
use crate::blocks::BlockType;
use crate::error::{Error, Result};
use crate::model::{CONVOLVED, FeedForward, Linear, Matrix, Model, Vector};

/// Bytes that are packed before their part of the file is released, and copied to a GPU with its own memory.
const PIECE_BYTES: usize = 8 << 20;
/// Bytes for which a thread of its own pays.
const THREAD_BYTES: usize = 512 << 10;
/// Alignment of a vector of floats, in elements.
const FLOATS_ALIGNMENT: usize = 64;
/// Longest wait for a copy of a piece.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A packed matrix and the bias of its rows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packed {
    pub(super) place: Place,
    /// GPU address of the bias; 0 if there is none.
    pub(super) bias: u64,
}

/// The products of queries, keys and values: one for all, or one for each.
#[derive(Clone, Debug)]
pub(super) struct Joined {
    /// Each with the first of its outputs among those of all.
    pub(super) parts: Vec<(Packed, usize)>,
}

/// The first products of a feed-forward network.
#[derive(Clone, Copy, Debug)]
pub(super) enum Up {
    /// Rows of gate and up in turns.
    Pairs(Packed),
    /// Gate and up in different formats, or with a bias outside of experts.
    Apart { gate: Packed, up: Packed },
    /// No gate.
    Plain(Packed),
}

/// GPU addresses of a norm's weights and bias; 0 for none.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Norm {
    pub(super) weight: u64,
    pub(super) bias: u64,
}

/// The parts of a layer.
#[derive(Clone, Debug)]
pub(super) struct Layer {
    pub(super) attention_norm: Norm,
    pub(super) qkv: Joined,
    /// GPU address of the weights of a convolution, those of each position together; 0 in an attention.
    pub(super) taps: u64,
    pub(super) query_norm: u64,
    pub(super) key_norm: u64,
    pub(super) sinks: u64,
    pub(super) output: Packed,
    pub(super) attention_result_norm: Option<Norm>,
    pub(super) feed_forward_norm: Norm,
    /// If there are experts; `up` and `down` have the rows of all then, one expert after another.
    pub(super) router: Option<Packed>,
    pub(super) up: Up,
    pub(super) down: Packed,
    pub(super) feed_forward_result_norm: Option<Norm>,
}

impl Layer {
    /// The matrices of the feed-forward network.
    fn feed_forward(&self) -> impl Iterator<Item = &Packed> {
        let (gate, up) = match &self.up {
            Up::Pairs(up) | Up::Plain(up) => (None, up),
            Up::Apart { gate, up } => (Some(gate), up),
        };
        gate.into_iter().chain([up, &self.down])
    }
}

/// All weights on the device.
#[derive(Debug)]
pub(super) struct Weights {
    pub(super) matrices: Buffer<u8>,
    /// Keeps the memory of norms, biases and positions.
    _floats: Buffer<f32>,
    pub(super) layers: Vec<Layer>,
    pub(super) output_norm: Norm,
    pub(super) embedding: Packed,
    pub(super) output: Packed,
    /// GPU address of the learned positions, a row each; 0 if there are none.
    pub(super) positions: u64,
}

/// The matrices and vectors to load, with their places.
#[derive(Default)]
struct Layout<'a> {
    matrices: Vec<(Place, Rows<'a>)>,
    end: usize,
    vectors: Vec<(usize, Vec<f32>)>,
    floats: usize,
}

impl<'a> Layout<'a> {
    /// Adds a matrix; its bias has an element per row. The bias is an offset until [`Layout::address`].
    fn matrix(&mut self, rows: Rows<'a>, bias: Option<Vec<f32>>) -> Packed {
        let place = Place::new(self.end, &rows);
        self.end = place.end;
        self.matrices.push((place, rows));
        Packed { place, bias: bias.map_or(0, |bias| self.floats(bias)) }
    }

    fn linear(&mut self, linear: Linear<'a>) -> Packed {
        self.matrix(Rows::of(linear.weights), linear.bias.map(|bias| bias.to_vec()))
    }

    /// Adds a vector; returns its offset in bytes plus 1, so that 0 means none.
    fn floats(&mut self, vector: Vec<f32>) -> u64 {
        let start = self.floats;
        self.floats = (start + vector.len()).next_multiple_of(FLOATS_ALIGNMENT);
        self.vectors.push((start, vector));
        // CAST: usize is at most 64 bits.
        start as u64 * 4 + 1
    }

    fn vector(&mut self, vector: Option<Vector<'_>>) -> u64 {
        vector.map_or(0, |vector| self.floats(vector.to_vec()))
    }

    fn norm(&mut self, norm: crate::model::Norm<'_>) -> Norm {
        Norm { weight: self.vector(Some(norm.weights)), bias: self.vector(norm.bias) }
    }

    /// Queries, keys and values: those of the same format become one matrix.
    fn joined(&mut self, all: [Linear<'a>; 3]) -> Joined {
        let mut parts: Vec<(Vec<Linear<'a>>, usize)> = Vec::new();
        let mut outputs = 0;
        for linear in all {
            let same = |other: &Linear<'_>| {
                other.weights.block == linear.weights.block && other.bias.is_some() == linear.bias.is_some()
            };
            match parts.last_mut() {
                Some((linears, _)) if same(&linears[0]) => linears.push(linear),
                _ => parts.push((vec![linear], outputs)),
            }
            outputs += linear.weights.outputs;
        }
        let pack = |(linears, first): (Vec<Linear<'a>>, usize)| {
            let biases: Option<Vec<_>> =
                linears.iter().map(|linear| linear.bias.map(|bias| bias.to_vec())).collect();
            let rows = Rows::Chain(linears.iter().map(|linear| linear.weights).collect());
            (self.matrix(rows, biases.map(|biases| biases.concat())), first)
        };
        Joined { parts: parts.into_iter().map(pack).collect() }
    }

    fn up(&mut self, network: FeedForward<'a>) -> Up {
        let FeedForward { router, gate, up, .. } = network;
        let Some(gate) = gate else { return Up::Plain(self.linear(up)) };
        let rows = Rows::Pairs([gate.weights, up.weights]);
        match (gate.bias, up.bias) {
            _ if gate.weights.block != up.weights.block => {}
            (None, None) => return Up::Pairs(self.matrix(rows, None)),
            // Only the kernels of experts add the biases of both.
            (Some(gate), Some(up)) if router.is_some() => {
                let pairs = gate.to_vec().into_iter().zip(up.to_vec());
                return Up::Pairs(self.matrix(rows, Some(pairs.flat_map(|(gate, up)| [gate, up]).collect())));
            }
            _ => {}
        }
        Up::Apart { gate: self.linear(gate), up: self.linear(up) }
    }

    /// A product whose sums have the factor `scale`; the bias gets it here.
    fn result(&mut self, linear: Linear<'a>, scale: f64) -> Packed {
        let scaled = |bias: Vector<'_>| bias.to_vec().into_iter().map(|bias| bias * scale as f32).collect();
        self.matrix(Rows::of(linear.weights), linear.bias.map(scaled))
    }

    /// The parts of a layer; `residual` is [`Shape::residual_scale`](crate::model::Shape::residual_scale).
    fn layer(&mut self, layer: crate::model::Layer<'a>, residual: f64) -> Layer {
        Layer {
            attention_norm: self.norm(layer.attention_norm),
            qkv: self.joined([layer.query, layer.key, layer.value]),
            taps: layer.convolution.map_or(0, |taps| self.floats(by_position(&taps.to_vec()))),
            query_norm: self.vector(layer.query_norm),
            key_norm: self.vector(layer.key_norm),
            sinks: self.vector(layer.sinks),
            output: self.result(layer.attention_output, residual),
            attention_result_norm: layer.attention_result_norm.map(|norm| self.norm(norm)),
            feed_forward_norm: self.norm(layer.feed_forward_norm),
            router: layer.feed_forward.router.map(|router| self.linear(router)),
            up: self.up(layer.feed_forward),
            down: self.result(layer.feed_forward.down, residual),
            feed_forward_result_norm: layer.feed_forward_result_norm.map(|norm| self.norm(norm)),
        }
    }
}

/// The bytes that a model's weights need on a device.
pub(super) fn bytes(model: &Model) -> u64 {
    let (layout, ..) = lay_out(model);
    // CAST: usize is at most 64 bits.
    (layout.end + layout.floats * 4) as u64
}

type Parts<'a> = (Layout<'a>, Vec<Layer>, Norm, Packed, Packed, u64);

fn lay_out(model: &Model) -> Parts<'_> {
    let mut layout = Layout::default();
    let shape = model.shape();
    let layer = |number| layout.layer(model.layer(number), shape.residual_scale);
    let layers = (0..shape.layers.len()).map(layer).collect();
    let output_norm = layout.norm(model.output_norm());
    let output = layout.matrix(Rows::of(model.output()), None);
    let embedding =
        if model.shape().tied { output } else { layout.matrix(Rows::of(model.embedding()), None) };
    let positions = model.position_embedding().map_or(0, |matrix| layout.floats(dense(matrix)));
    (layout, layers, output_norm, embedding, output, positions)
}

/// The weights of a convolution, those of each position together.
fn by_position(taps: &[f32]) -> Vec<f32> {
    let position = |position: usize| taps.iter().skip(position).step_by(CONVOLVED).copied();
    (0..CONVOLVED).flat_map(position).collect()
}

/// The rows of a small matrix.
fn dense(matrix: Matrix<'_>) -> Vec<f32> {
    let mut out = vec![0.0; matrix.inputs * matrix.outputs];
    // PANIC: the model's parser checked the size of the tensor.
    matrix.block.dequantise(matrix.bytes, &mut out).expect("as many weights as bytes");
    out
}

impl Weights {
    /// Copies a model's weights to a device. `progress` gets the bytes that are done, and all bytes.
    pub(super) fn load(device: &Device, model: &Model, mut progress: impl FnMut(u64, u64)) -> Result<Self> {
        let (layout, mut layers, mut output_norm, mut embedding, mut output, mut positions) = lay_out(model);
        for (_, rows) in &layout.matrices {
            rows.matrices().iter().try_for_each(check)?;
        }
        let mut floats = vec![0.0; layout.floats];
        for (start, vector) in &layout.vectors {
            floats[*start..][..vector.len()].copy_from_slice(vector);
        }
        let floats = device.alloc_from(&floats)?.named("norms and biases");
        let mut matrices = device.alloc::<u8>(layout.end)?.named("weights");
        fill(device, model, &layout, &mut matrices, &mut progress)?;
        // Offsets become addresses.
        let base = floats.gpu_va();
        let address = |offset: &mut u64| *offset = if *offset == 0 { 0 } else { base + *offset - 1 };
        let norm = |norm: &mut Norm| [&mut norm.weight, &mut norm.bias].into_iter().for_each(address);
        for layer in &mut layers {
            norm(&mut layer.attention_norm);
            norm(&mut layer.feed_forward_norm);
            [&mut layer.attention_result_norm, &mut layer.feed_forward_result_norm]
                .into_iter()
                .flatten()
                .for_each(norm);
            layer.qkv.parts.iter_mut().for_each(|(part, _)| address(&mut part.bias));
            layer.router.iter_mut().for_each(|router| address(&mut router.bias));
            [&mut layer.taps, &mut layer.query_norm, &mut layer.key_norm, &mut layer.sinks]
                .into_iter()
                .for_each(address);
            [&mut layer.output.bias, &mut layer.down.bias].into_iter().for_each(address);
            match &mut layer.up {
                Up::Pairs(up) | Up::Plain(up) => address(&mut up.bias),
                Up::Apart { gate, up } => [&mut gate.bias, &mut up.bias].into_iter().for_each(address),
            }
        }
        norm(&mut output_norm);
        [&mut output.bias, &mut embedding.bias, &mut positions].into_iter().for_each(address);
        Ok(Self { matrices, _floats: floats, layers, output_norm, embedding, output, positions })
    }

    /// The matrices that all vectors are multiplied with; the embedding is one of them if it makes the logits.
    pub(super) fn products(&self) -> impl Iterator<Item = &Packed> {
        let layers = self.layers.iter().flat_map(|layer| {
            let attention = layer.qkv.parts.iter().map(|(part, _)| part).chain([&layer.output]);
            let network = layer.feed_forward().filter(|_| layer.router.is_none());
            attention.chain(&layer.router).chain(network)
        });
        layers.chain([&self.output])
    }

    /// Whether a matrix that vectors are multiplied with has a format.
    pub(super) fn has(&self, block: BlockType) -> bool {
        let networks = self.layers.iter().flat_map(Layer::feed_forward);
        self.products().chain(networks).any(|matrix| matrix.place.block == block)
    }

    /// GPU address of a matrix.
    pub(super) fn address(&self, place: &Place) -> u64 {
        // CAST: usize is at most 64 bits.
        self.matrices.gpu_va() + place.start as u64
    }
}

/// Returns an error if the kernels cannot read the rows of a matrix 16 bytes at a time.
fn check(matrix: &Matrix<'_>) -> Result<()> {
    let multiple = Unit::of(matrix.block).weights;
    if matrix.inputs.is_multiple_of(multiple) && matrix.outputs > 0 {
        return Ok(());
    }
    let (name, inputs) = (matrix.name.to_owned(), matrix.inputs);
    Err(Error::RowLength { name, inputs, multiple })
}

/// Writes some packed bands, from a number on, to a place in the buffer.
type Write<'a> = dyn FnMut(&Rows<'_>, usize, Range<usize>) -> Result<()> + 'a;

/// Packs all matrices into the buffer: in place where the CPU sees it, else through pieces.
fn fill(
    device: &Device,
    model: &Model,
    layout: &Layout<'_>,
    buffer: &mut Buffer<u8>,
    progress: &mut impl FnMut(u64, u64),
) -> Result<()> {
    // CAST: usize is at most 64 bits.
    let (mut done, all) = (0, layout.end as u64);
    let mut tell = |bytes: usize| {
        done += bytes as u64;
        progress(done, all);
    };
    // Packed weights are not needed in the file's form any more.
    let mut each_piece = |write: &mut Write<'_>| {
        for (place, rows) in &layout.matrices {
            let (band_bytes, band_rows) = (place.band_bytes(), place.band_rows());
            let step = (PIECE_BYTES / band_bytes).max(1);
            for first in (0..place.bands()).step_by(step) {
                let bands = step.min(place.bands() - first);
                let start = place.start + first * band_bytes;
                write(rows, first, start..start + bands * band_bytes)?;
                tell(bands * band_bytes);
                rows.parts(band_rows * first, band_rows * bands).for_each(|part| model.file().release(part));
            }
        }
        Ok::<(), Error>(())
    };
    if device.info().unified_memory {
        let mut view = buffer.view()?;
        each_piece(&mut |rows, first, range| {
            pack_in_parallel(rows, first, &mut view[range]);
            Ok(())
        })?;
    } else {
        let mut queue = device.queue()?;
        let mut piece = Vec::new();
        each_piece(&mut |rows, first, range| {
            piece.resize(range.len(), 0);
            pack_in_parallel(rows, first, &mut piece);
            queue.upload(&piece, buffer.slice_mut(range)?)?;
            Ok(())
        })?;
        queue.wait(TIMEOUT)?;
    }
    model.file().unchanged()
}

/// Packs bands from `first` on with all cores.
fn pack_in_parallel(rows: &Rows<'_>, first: usize, out: &mut [u8]) {
    let band_bytes = Place::new(0, rows).band_bytes();
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let threads = cores.min(out.len() / THREAD_BYTES).max(1);
    let share = (out.len() / band_bytes).div_ceil(threads);
    thread::scope(|scope| {
        for (thread, out) in out.chunks_mut(share * band_bytes).enumerate() {
            let mut work = move || pack::pack(rows, first + thread * share, out);
            if threads == 1 {
                work();
            } else {
                scope.spawn(work);
            }
        }
    });
}
