//! Errors of this crate.

use core::fmt;
use std::path::PathBuf;

use crate::blocks::BlockType;
use crate::chat::fault::ChatFault;
use crate::decode::memory::Memory;
use crate::gguf::fault::{Fault, PartFault};
use crate::model::fault::ModelFault;
use crate::tokenizer::fault::TokenizerFault;

/// The names of the weight formats, for a message.
fn formats() -> String {
    BlockType::ALL.map(|format| format.name().to_lowercase()).join(", ")
}

/// Result of this crate's calls.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// Why a model, a file or a text could not be used. `{:?}` prints the same text as `{}`.
///
/// ```
/// use infer::model::Model;
///
/// let error = Model::from_bytes(b"GGML".to_vec()).unwrap_err();
/// assert!(matches!(error, infer::Error::Gguf { offset: 0, .. }), "{error}");
/// ```
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device refused a request, faulted or timed out.
    #[error(transparent)]
    Gpu(#[from] tegra_hcq::Error),

    /// A buffer has the wrong length.
    #[error("{what} has {len} elements instead of {needed}")]
    Length {
        /// The buffer's role.
        what: &'static str,
        /// Its elements.
        len: usize,
        /// The elements that the step needs.
        needed: usize,
    },

    /// The operands of a matrix product have different element types.
    #[error("the factors have different elements: {first} and {second}")]
    Factors {
        /// Elements of the first factor.
        first: &'static str,
        /// Elements of the second factor.
        second: &'static str,
    },

    /// A part of a buffer begins at an address that kernels cannot copy from.
    #[error("{what} begin at an address that is not a multiple of {bytes} bytes")]
    Alignment {
        /// The buffer's role.
        what: &'static str,
        /// The needed alignment.
        bytes: u64,
    },

    /// A buffer does not consist of whole rows.
    #[error("{what} has {len} elements, which is not a multiple of the row length {columns}")]
    Rows {
        /// The buffer's role.
        what: &'static str,
        /// Its elements.
        len: usize,
        /// Elements of a row.
        columns: usize,
    },

    /// A size exceeds the 32 bits in which the kernels count.
    #[error("size {0} does not fit the kernels' 32 bits")]
    TooLarge(usize),

    /// The kernels do not support the experts of a model: which, and why.
    #[error("the kernels do not support {0}")]
    Experts(String),

    /// A file cannot be opened.
    #[error("{}: {error}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: std::io::Error,
    },

    /// A model's file was changed while it was in use.
    #[error("{}: another program changed the file while it was in use; load the model again", .0.display())]
    Changed(PathBuf),

    /// A file is not GGUF, or damaged.
    #[error("byte {offset}: {fault}")]
    Gguf {
        /// Where in the file.
        offset: u64,
        /// The fault.
        fault: Fault,
    },

    /// The files of a model do not belong together.
    #[error("{}: {fault}", path.display())]
    Part {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        fault: PartFault,
    },

    /// A key of a file has a value of a wrong type.
    #[error("`{key}` is of type {kind} instead of {needed}, or out of range")]
    Value {
        /// The key.
        key: String,
        /// Its type.
        kind: &'static str,
        /// The type that is needed.
        needed: &'static str,
    },

    /// A file is not a supported language model, or contradicts itself.
    #[error(transparent)]
    Model(ModelFault),

    /// A file's vocabulary cannot be used.
    #[error(transparent)]
    Tokenizer(TokenizerFault),

    /// Conversations with a model are not possible.
    #[error(transparent)]
    Chat(ChatFault),

    /// A name is none of [`BlockType`](crate::blocks::BlockType).
    #[error("{0:?} is not a weight format; formats are {formats}", formats = formats())]
    UnknownFormat(String),

    /// A token is not in the vocabulary.
    #[error("token {token} is not in the vocabulary of {vocabulary}")]
    UnknownToken {
        /// The token.
        token: u32,
        /// Number of tokens.
        vocabulary: usize,
    },

    /// A prompt leaves no room for an answer.
    #[error(
        "the prompt has {tokens} tokens, but the context holds {context}: shorten it, or ask for a longer context"
    )]
    PromptTooLong {
        /// Tokens of the prompt.
        tokens: usize,
        /// Positions of the context.
        context: usize,
    },

    /// A context exceeds the positions of the model.
    #[error("a context of {wanted} positions was requested; the model has {most} positions")]
    ContextTooLong {
        /// Requested positions.
        wanted: usize,
        /// The model's positions.
        most: usize,
    },

    /// A device has too little memory for a model.
    #[error(
        "the model needs {} MB: {} for weights, {} for the context's keys and values, {} for prompts, {} for queues, \
         {} for the rest; {} MB are free. Close other programs, or ask for a shorter context",
        needed.total() >> 20,
        needed.weights >> 20,
        needed.cache >> 20,
        needed.prompts >> 20,
        needed.queues >> 20,
        needed.others >> 20,
        free >> 20
    )]
    Memory {
        /// The memory that the model needs.
        needed: Memory,
        /// Free bytes.
        free: u64,
    },

    /// Kernels cannot read the rows of a matrix.
    #[error("`{name}` has rows of {inputs} weights; kernels need a multiple of {multiple}")]
    RowLength {
        /// The tensor.
        name: String,
        /// Weights of a row.
        inputs: usize,
        /// Its needed factor.
        multiple: usize,
    },

    /// Kernels cannot take the model's heads.
    #[error("the model's heads have {size} components; kernels take multiples of {multiple} up to {most}")]
    HeadSize {
        /// Components of a head.
        size: usize,
        /// Largest size.
        most: usize,
        /// Its needed factor.
        multiple: usize,
    },

    /// A model or a device does not allow [one launch for all layers](crate::decode::Layers::Persistent).
    #[error("one launch cannot compute all layers of the model: {0}")]
    Persistent(String),

    /// A number of [`Sampling`](crate::decode::Sampling) is out of range.
    #[error("{what} is {value}; it can be {least} to {most}")]
    Sampling {
        /// The number.
        what: &'static str,
        /// Its value.
        value: f64,
        /// Smallest value.
        least: f64,
        /// Largest value.
        most: f64,
    },

    /// A context without tokens has no logits.
    #[error("the context is empty: feed a token first")]
    EmptyContext,

    /// A mask allows no token.
    #[error("the mask allows no token of the vocabulary")]
    EmptyMask,

    /// The logits of the newest token are not kept.
    #[error("the logits of the newest token are not kept: no step of a graph has chosen it")]
    NothingChosen,

    /// A batch has no place for another session.
    #[error("the batch has {0} sessions, the most that it takes")]
    BatchFull(usize),

    /// A session belongs to another engine than the batch.
    #[error("the session and the batch belong to different engines")]
    OtherEngine,

    /// A slot of a batch is empty.
    #[error("slot {0} of the batch is empty")]
    EmptySlot(usize),

    /// The device ended a step without its token.
    #[error("the device ended step {number} without a token; the newest token is that of step {found}")]
    LostToken {
        /// The step, from 1.
        number: u32,
        /// The step of the newest token.
        found: u32,
    },
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
