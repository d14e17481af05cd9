//! Products of a batch on the tensor cores: all its sequences read the weights once.
//!
//! The vectors are rounded to halves, as those of prompts are. A product of few rows has few tiles, so blocks share
//! the columns of a tile and the last of them adds the sums, in the order of the columns.

use core::mem::offset_of;

use bytemuck::bytes_of;
use tegra_hcq::{Arg, Buffer, GraphBuilder};

use super::batch::TENSOR_CORES_FROM;
use super::engine::{Inner, SAMPLE_BLOCK};
use super::prompt::{BLOCK, Input, Rounded, round};
use super::stages::ProductCall;
use crate::error::Result;
use crate::gemm::few::{self, Sums};
use crate::gemm::packed::PackedCall;
use crate::launch::{word, words};
use crate::parameters::{Epilogue, MAX_SEQUENCES, Prologue, SequenceMemory, SequenceTable, SequenceView};

const _: () = assert!(MAX_SEQUENCES <= few::MOST);

/// Threads of a block of the attention.
pub(super) const ATTENTION_BLOCK: u32 = 256;

/// Memory that the products of a batch share.
#[derive(Debug)]
pub(super) struct TensorCores {
    /// Lives as long as the launches.
    _memory: Buffer<u8>,
    rounded: Rounded,
    sums: Sums,
}

/// The sequences of a graph.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    /// GPU address of their table.
    pub(super) table: u64,
    /// GPU address of the parameters with which they choose tokens.
    pub(super) samples: u64,
    /// Most sequences.
    pub(super) size: usize,
}

/// Blocks that share the context of a sequence and a group of heads: two per SM with the fewest sequences. A number
/// that depended on the sequences would change their bits.
pub(super) fn chunks(engine: &Inner) -> usize {
    (2 * engine.sms).div_ceil(engine.groups() * TENSOR_CORES_FROM).min(engine.chunks())
}

impl TensorCores {
    pub(super) fn new(engine: &Inner, sequences: usize) -> Result<Self> {
        let shape = &engine.shape;
        let widest = shape.width.max(shape.query_width()).max(shape.ffn);
        let sizes = engine.weights.products().map(|matrix| {
            let place = &matrix.place;
            engine.prompt.products.few.partition(place.block, place.rows, place.columns).sums()
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
        call: &ProductCall<'_>,
    ) -> Result<()> {
        // CAST: constants.
        let sequences = SequenceView {
            count: group.table + offset_of!(SequenceTable, count) as u64,
            first: group.table
                + (offset_of!(SequenceTable, list) + offset_of!(SequenceMemory, vectors)) as u64,
            stride: size_of::<SequenceMemory>() as u64,
        };
        let norm = match call.prologue {
            Prologue::RmsNorm | Prologue::LayerNorm => Some(call.norm),
            Prologue::Nothing | Prologue::Packed => None,
        };
        let input = Input { at: call.input, branch: call.branch, norm, scale: call.scale };
        let parameters = round(engine, call.matrix, input, sequences, self.rounded)?;
        let arguments = [Arg::Bytes(bytes_of(&parameters))];
        // SAFETY: the places are inside the memory of each session on the list, which lives as long as the session is
        // part of the batch; the batch waits for its queue before a session leaves. `self` has room for the vectors.
        unsafe { graph.launch(&engine.prompt.round, word(group.size)?, BLOCK, &arguments)? };
        let makes_logits = call.epilogue == Epilogue::Logits;
        let product = PackedCall {
            gate: Arg::U64(call.other),
            output: Arg::U64(call.output),
            // The maxima have a launch of their own.
            after: if makes_logits { Epilogue::Store } else { call.epilogue },
            ..engine.packed_call(call.matrix, group.size, self.rounded)
        };
        let (few, place) = (&engine.prompt.products.few, &call.matrix.place);
        let partition = few.partition(place.block, place.rows, place.columns);
        // SAFETY: as above; the weights live as long as the engine, and `self` has room for the sums of its matrices.
        unsafe { few.launch(graph, &product, partition, sequences, self.sums)? };
        if makes_logits {
            let arguments = [Arg::U64(group.samples), Arg::U64(sequences.count)];
            let blocks = (2 * engine.sms).div_ceil(group.size).min(engine.logits_blocks());
            let grid: [u32; 2] = words([blocks, group.size])?;
            // SAFETY: as above; the parameters of the listed sessions contain the addresses of their memory.
            unsafe { graph.launch(&engine.batch.maxima, (grid[0], grid[1]), SAMPLE_BLOCK, &arguments)? };
        }
        Ok(())
    }
}
