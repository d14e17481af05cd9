//! Decoding of language models on the GPU: token by token, without the CPU between two tokens.
//!
//! [`Engine::load`] packs a model's weights for the kernels and copies them to the device; on an Orin, whose GPU uses
//! the machine's memory, this is the only copy. A [`Session`] has a context: keys and values of its tokens in halves,
//! or 8-bit integers ([`EngineOptions::kv`]), and three recorded graphs. One appends a token of a prompt, one chooses a
//! token and appends it, one makes logits. Token, position and the state of the random numbers are in device memory,
//! so the graphs never change: the CPU replays them ahead of the GPU, and reads tokens from a ring in memory that both
//! see. A produced token costs no system call and no allocation.
//!
//! A layer takes five launches: norm and the product of queries, keys and values; attention with rotation and the
//! append to the cache; the attention's output; norm and the first products of the feed-forward network; its last
//! product. Files that mix formats in one of these steps take one launch more, and models with experts one for the
//! router.
//!
//! With [`Layers::Persistent`], one launch computes all layers and the logits: its blocks wait for each other's results
//! between the phases, and copy later weights meanwhile.
//!
//! A prompt of 17 tokens or more goes through the layers in batches, up to 512 tokens together, on the tensor cores
//! ([`crate::gemm`]). Its last token is computed as produced tokens are. Batches round vectors and quantised weights
//! to halves: logits of random models differ from 64-bit floats by less than 1 part in 1,000.
//! [`SessionOptions::prompt_batch`] sets the number of tokens; 1 computes all tokens as produced ones.
//!
//! Products with quantised weights round the vector to 14 bits per element, with one scale for 32 elements: 64 times
//! finer than 8 bits. Logits of random models differ from 64-bit floats by 3 to 5 parts in 10,000, those with weights
//! in floats by less than 1. All sums have a fixed order: the same model, calls, options and device give the same bits.
//!
//! A [`Batch`] of up to 5 sessions gives each the bits that it has alone with a graph. Steps of 6 or more compute
//! products on the tensor cores, with vectors and weights rounded to halves as for prompts; [`BatchOptions`] sets
//! the number.

mod batch;
mod convolution;
mod engine;
mod experts;
mod kv;
pub(crate) mod memory;
mod needs;
mod options;
pub(crate) mod pack;
mod persistent;
mod places;
mod prompt;
mod sampling;
mod session;
mod stages;
mod stream;
mod tensor_cores;
#[cfg(test)]
mod tests;
mod weights;

pub use batch::{Batch, BatchOptions, Slot};
pub use engine::{Ahead, Engine};
pub use memory::Memory;
pub use options::EngineOptions;
pub use sampling::{MAX_WINDOW, Sampling};
pub use session::{Layers, Session, SessionOptions, Tokens};
pub use stream::TokenStream;
