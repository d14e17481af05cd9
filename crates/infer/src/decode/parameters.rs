//! Parameters of the kernels in `kernels/llm`, in the layout of their structs.

use bytemuck::{Pod, Zeroable};

/// `Product` of `product.cu`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Product {
    pub(super) tiles: u64,
    pub(super) tiles_end: u64,
    pub(super) input: u64,
    pub(super) norm_weight: u64,
    pub(super) norm_bias: u64,
    pub(super) bias: u64,
    pub(super) other: u64,
    pub(super) output: u64,
    pub(super) best: u64,
    pub(super) ahead: u64,
    pub(super) ahead_bytes: u64,
    pub(super) rows: u32,
    pub(super) columns: u32,
    pub(super) before: u32,
    pub(super) after: u32,
    pub(super) activation: u32,
    pub(super) packed_output: u32,
    pub(super) batch_pairs: u32,
    pub(super) batches: u32,
    pub(super) epsilon: f32,
    pub(super) unused: u32,
    pub(super) copy: u64,
    pub(super) next: u64,
}

/// How a vector becomes the input of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Before {
    RmsNorm = 0,
    LayerNorm = 1,
    Nothing = 2,
    /// A product rounded it already.
    Packed = 3,
}

/// What becomes of the sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum After {
    Store = 0,
    Add = 1,
    Pair = 2,
    Activate = 3,
    Gate = 4,
    Logits = 5,
}

/// `Attention` of `attention.cu`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Attention {
    pub(super) qkv: u64,
    pub(super) query_norm: u64,
    pub(super) key_norm: u64,
    pub(super) rotation: u64,
    pub(super) keys: u64,
    pub(super) values: u64,
    pub(super) position: u64,
    pub(super) parts: u64,
    pub(super) tickets: u64,
    pub(super) output: u64,
    pub(super) ahead: u64,
    pub(super) ahead_bytes: u64,
    pub(super) heads: u32,
    pub(super) key_heads: u32,
    pub(super) head_size: u32,
    pub(super) context: u32,
    pub(super) rotate: u32,
    pub(super) rotated: u32,
    pub(super) scale: f32,
    pub(super) epsilon: f32,
    pub(super) next: u64,
    pub(super) unused: u64,
}

/// `Decode` of `decode.cu`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Decode {
    pub(super) products: u64,
    pub(super) attentions: u64,
    pub(super) counter: u64,
    pub(super) exchange: u64,
    pub(super) half_bytes: u64,
    pub(super) tiles_end: u64,
    pub(super) layers: u32,
    pub(super) count: u32,
    pub(super) heads: u32,
    pub(super) chunks: u32,
    pub(super) front_bytes: u32,
    pub(super) patience: u32,
}

/// `State` of `sample.cu`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(super) struct State {
    pub(super) position: u32,
    pub(super) token: u32,
    pub(super) count: u32,
    pub(super) produced: u32,
    pub(super) pending: u32,
    pub(super) unused: [u32; 3],
}

/// `Settings` of `sample.cu`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Settings {
    pub(super) temperature: f32,
    pub(super) top_p: f32,
    pub(super) min_p: f32,
    pub(super) penalty: f32,
    pub(super) top_k: u32,
    pub(super) window: u32,
    pub(super) seed: u64,
}

/// `Step` of `sample.cu`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Step {
    pub(super) state: u64,
    pub(super) settings: u64,
    pub(super) history: u64,
    pub(super) pending: u64,
    pub(super) ring: u64,
    pub(super) logits: u64,
    pub(super) best: u64,
    pub(super) tiles: u64,
    pub(super) positions: u64,
    pub(super) turns: u64,
    pub(super) rotation: u64,
    pub(super) x: u64,
    pub(super) vocabulary: u32,
    pub(super) width: u32,
    pub(super) block: u32,
    pub(super) pairs: u32,
    pub(super) blocks: u32,
    pub(super) ring_length: u32,
    pub(super) magnitude: f32,
    pub(super) unused: u32,
}

/// `Products` of `products.cu`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Products {
    /// `input`, `other`, `output` and `best` are places in the memory of a sequence.
    pub(super) one: Product,
    pub(super) seats: u64,
    pub(super) group: u32,
    pub(super) unused: u32,
}

/// `Attentions` of `attention.cu`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Attentions {
    /// `qkv`, `rotation`, `parts`, `tickets` and `output` are places in the memory of a sequence.
    pub(super) one: Attention,
    pub(super) seats: u64,
    pub(super) layer: u32,
    pub(super) unused: u32,
}

/// `Seat` of `seats.cuh`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Seat {
    pub(super) memory: u64,
    pub(super) keys: u64,
    pub(super) values: u64,
    pub(super) position: u64,
    pub(super) context: u32,
    pub(super) unused: [u32; 3],
}

/// `Seats` of `seats.cuh`.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Seats {
    pub(super) count: u32,
    pub(super) unused: [u32; 3],
    pub(super) list: [Seat; MAX_SEATS],
}

/// Most sequences of a batch.
pub(super) const MAX_SEATS: usize = 32;

const _: () = assert!(size_of::<Products>() == 160 && size_of::<Seats>() == 16 + 48 * MAX_SEATS);
const _: () =
    assert!(size_of::<Product>() == 144 && size_of::<Attention>() == 144 && size_of::<Step>() == 128);
