//! Errors of this crate.

use core::fmt;
use std::path::PathBuf;

use crate::chat::fault::ChatFault;
use crate::decode::memory::Memory;
use crate::gguf::fault::Fault;
use crate::model::fault::ModelFault;
use crate::tokenizer::fault::TokenizerFault;
use crate::weights::ConvShape;

/// Result of this crate's calls.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// Why a network could not be built or run. `{:?}` prints the same text as `{}`.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use tegra_hcq::{Device, DeviceKind};
/// # let device = Device::open(DeviceKind::Sim)?;
/// use infer::networks::Mlp;
/// use infer::weights::MlpWeights;
///
/// let error = Mlp::new(&device, MlpWeights { layers: Vec::new() }, 1).unwrap_err();
/// assert!(matches!(error, infer::Error::NoLayers));
/// assert_eq!(error.to_string(), "the network has no layers");
/// # Ok(())
/// # }
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

    /// The factors of a product have different elements.
    #[error("the factors have different elements: {first} and {second}")]
    Factors {
        /// Elements of the first factor.
        first: &'static str,
        /// Elements of the second factor.
        second: &'static str,
    },

    /// A part of a buffer begins at an address that kernels cannot copy from.
    #[error("{what} begin at an address that is no multiple of {bytes} bytes")]
    Alignment {
        /// The buffer's role.
        what: &'static str,
        /// The needed alignment.
        bytes: u64,
    },

    /// A buffer does not consist of whole rows.
    #[error("{what} has {len} elements, which are no whole rows of {columns}")]
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

    /// A convolution's window exceeds the padded image, or its stride is 0.
    #[error("{shape:?} does not fit images of {rows} x {columns}")]
    Convolution {
        /// The convolution.
        shape: ConvShape,
        /// Rows of the image.
        rows: usize,
        /// Columns of the image.
        columns: usize,
    },

    /// A pooling window exceeds the plane, or is empty.
    #[error("windows of {size} x {size} do not fit planes of {rows} x {columns}")]
    Window {
        /// Edge of the window.
        size: usize,
        /// Rows of the plane.
        rows: usize,
        /// Columns of the plane.
        columns: usize,
    },

    /// Strides lead outside an array.
    #[error("the strides lead to element {element} of an array of {len}")]
    Stride {
        /// The last element that would be read.
        element: usize,
        /// Elements of the array.
        len: usize,
    },

    /// A fully connected network has no layers.
    #[error("the network has no layers")]
    NoLayers,

    /// The heads of an attention do not divide its width.
    #[error("{heads} heads do not divide a width of {width}")]
    Heads {
        /// Number of heads.
        heads: usize,
        /// Numbers per token.
        width: usize,
    },

    /// Weights do not have the shape that the network needs.
    #[error(
        "{what} maps {inputs} inputs to {outputs} outputs; the network needs {needed_inputs} to {needed_outputs}"
    )]
    Shape {
        /// The layer.
        what: &'static str,
        /// Inputs of the layer.
        inputs: usize,
        /// Outputs of the layer.
        outputs: usize,
        /// Inputs that the network needs.
        needed_inputs: usize,
        /// Outputs that the network needs.
        needed_outputs: usize,
    },

    /// The GPU's output of the control loop's network differs from the CPU's.
    #[error(
        "cycle {cycle}: output {output} of the network is {got} instead of {want} (tolerance {tolerance:e})"
    )]
    Disagrees {
        /// Cycles before this one.
        cycle: u64,
        /// Index of the output.
        output: usize,
        /// The GPU's result.
        got: f32,
        /// The CPU's result.
        want: f64,
        /// Largest difference that is accepted.
        tolerance: f64,
    },

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
        /// What is wrong there.
        fault: Fault,
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
    #[error("{0:?} is not a format of weights")]
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
        "the prompt has {tokens} tokens, but the context only {context}: shorten it, or ask for a longer context"
    )]
    PromptTooLong {
        /// Tokens of the prompt.
        tokens: usize,
        /// Positions of the context.
        context: usize,
    },

    /// A context exceeds what the model was made for.
    #[error("a context of {wanted} was asked for; the model has {most} positions")]
    ContextTooLong {
        /// Positions that were asked for.
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
        /// What the model needs.
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

    /// A number of [`Sampling`](crate::decode::Sampling) has no meaning.
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

    /// A batch has no place for another session.
    #[error("the batch has {0} sessions, the most that it takes")]
    BatchFull(usize),

    /// A session belongs to another engine than the batch.
    #[error("the session belongs to another engine than the batch")]
    OtherEngine,

    /// A batch has no session in a seat.
    #[error("seat {0} of the batch is empty")]
    EmptySeat(usize),

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
