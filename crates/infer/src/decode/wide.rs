//! Products of a batch on the tensor cores: all its sequences read the weights once.
//!
//! The vectors are rounded to halves, as those of prompts are. A product of few rows has few tiles, so blocks share
//! the columns of a tile and the last of them adds the sums, in the order of the columns.

use core::mem::offset_of;

use bytemuck::bytes_of;
use tegra_hcq::{Arg, Buffer, GraphBuilder};

use super::batch::TENSOR_CORES_FROM;
use super::engine::{Call, Inner, SAMPLE_BLOCK, word};
use super::parameters::{After, Before, MAX_SEATS, Seat, Seats};
use super::prompt::{BLOCK, Round, Rounded};
use crate::error::Result;
use crate::product::few::{self, Sequences, Sums};
use crate::product::packed;

const _: () = assert!(MAX_SEATS <= few::MOST);

/// Threads of a block of the attention.
pub(super) const ATTENTION_BLOCK: u32 = 256;

/// Memory that the products of a batch share.
#[derive(Debug)]
pub(super) struct Wide {
    /// Lives as long as the launches.
    _memory: Buffer<u8>,
    rounded: Rounded,
    sums: Sums,
}

/// The sequences of a graph.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    /// GPU address of the list.
    pub(super) seats: u64,
    /// GPU address of the parameters of their choices.
    pub(super) steps: u64,
    /// Most sequences.
    pub(super) size: usize,
}

/// Blocks that share the context of a sequence and a group of heads: two per SM with the fewest sequences. A number
/// that depended on the sequences would change their bits.
pub(super) fn chunks(engine: &Inner) -> usize {
    (2 * engine.sms).div_ceil(engine.groups() * TENSOR_CORES_FROM).min(engine.chunks())
}

impl Wide {
    pub(super) fn new(engine: &Inner, sequences: usize) -> Result<Self> {
        let shape = &engine.shape;
        let widest = shape.width.max(shape.query_width()).max(shape.ffn);
        let sizes = engine.weights.products().map(|matrix| {
            let place = &matrix.place;
            engine.prompt.products.few.plan(place.block, place.rows, place.columns).sums()
        });
        let (sums, tickets) = sizes.fold((0, 0), |most, own| (most.0.max(own.0), most.1.max(own.1)));
        let mut bytes = 0;
        // Floats for weights that are multiplied as floats.
        let places = [sequences * widest * 4, sequences * 4, sums, tickets].map(|size: usize| {
            let place = bytes;
            bytes = (place + size).next_multiple_of(256);
            // CAST: usize is at most 64 bits.
            place as u64
        });
        let memory = engine.device.alloc_zeroed::<u8>(bytes)?.named("vectors of a batch");
        let [vectors, factors, sums, tickets] = places.map(|place| memory.gpu_va() + place);
        let (rounded, sums) = (Rounded { vectors, factors }, Sums { sums, tickets });
        Ok(Self { _memory: memory, rounded, sums })
    }

    /// Records a product and the rounding of its input; after logits, their maxima.
    pub(super) fn product(
        &self,
        engine: &Inner,
        graph: &mut GraphBuilder,
        group: Group,
        call: &Call<'_>,
    ) -> Result<()> {
        // CAST: constants.
        let sequences = Sequences {
            count: group.seats + offset_of!(Seats, count) as u64,
            first: group.seats + (offset_of!(Seats, list) + offset_of!(Seat, memory)) as u64,
            step: size_of::<Seat>() as u64,
        };
        let norm = match call.before {
            Before::RmsNorm | Before::LayerNorm => Some(call.norm),
            Before::Nothing | Before::Packed => None,
        };
        let round = Round::new(engine, call.matrix, norm, call.input, sequences, self.rounded)?;
        let arguments = [Arg::Bytes(bytes_of(&round))];
        // SAFETY: the places are inside the memory of each session on the list, which lives as long as the session is
        // part of the batch; the batch waits for its queue before a session leaves. `Wide` has room for the vectors.
        unsafe { graph.launch(&engine.prompt.round, word(group.size)?, BLOCK, &arguments)? };
        let product = packed::Call {
            gate: Arg::U64(call.other),
            output: Arg::U64(call.output),
            after: match call.after {
                After::Store | After::Logits => packed::After::Store,
                After::Add => packed::After::Add,
                After::Pair => packed::After::Pair,
                After::Activate => packed::After::Activate,
                After::Gate => packed::After::Gate,
            },
            ..engine.packed_call(call.matrix, group.size, self.rounded)
        };
        let (few, place) = (&engine.prompt.products.few, &call.matrix.place);
        let plan = few.plan(place.block, place.rows, place.columns);
        // SAFETY: as above; the weights live as long as the engine, and `Wide` has room for the sums of its matrices.
        unsafe { few.launch(graph, &product, plan, sequences, self.sums)? };
        if call.after == After::Logits {
            let arguments = [Arg::U64(group.steps), Arg::U64(sequences.count)];
            let blocks = (2 * engine.sms).div_ceil(group.size).min(engine.logits_blocks());
            let grid = (word(blocks)?, word(group.size)?);
            // SAFETY: as above; the steps of the listed sessions have the addresses of their memory.
            unsafe { graph.launch(&engine.batch.maxima, grid, SAMPLE_BLOCK, &arguments)? };
        }
        Ok(())
    }
}
