//! Faults of models.

use super::architecture::Architecture;
use crate::blocks::BlockType;

/// Why a file that is valid GGUF is not accepted as a model.
///
/// ```
/// use infer::gguf::{Value, Writer};
/// use infer::model::{Model, ModelFault};
///
/// let mut writer = Writer::new();
/// writer.key("general.architecture", Value::Text("mamba".to_owned()));
/// let mut bytes = Vec::new();
/// writer.write(&mut bytes).unwrap();
/// let infer::Error::Model(fault) = Model::from_bytes(bytes).unwrap_err() else { unreachable!() };
/// assert_eq!(fault, ModelFault::Architecture("mamba".to_owned()));
/// ```
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ModelFault {
    /// The architecture is not supported.
    #[error("architecture {0:?} is not supported; supported are {supported}", supported = supported())]
    Architecture(String),

    /// The file is one of several, and was not opened by its path.
    #[error(
        "this is part {number} of {count} of a model in several files: open it by its path, next to the others"
    )]
    Part {
        /// Number of the part, from 1.
        number: u32,
        /// Number of parts.
        count: u32,
    },

    /// The file has a vocabulary, and no weights.
    #[error("the file has a vocabulary and no weights: it is not a model")]
    VocabularyOnly,

    /// A key is missing.
    #[error("key `{0}` is missing")]
    MissingKey(String),

    /// A size is 0 or too large.
    #[error("`{key}` is {size}; 1 to {most} are allowed")]
    Size {
        /// The key.
        key: String,
        /// Its value.
        size: u64,
        /// Largest value.
        most: usize,
    },

    /// A number is out of range.
    #[error("`{key}` is {value}, which is out of range")]
    Float {
        /// The key.
        key: String,
        /// Its value.
        value: f64,
    },

    /// A key contradicts the rest of the file.
    #[error("`{key}` is {value}, but the rest of the file implies {needed}")]
    Differs {
        /// The key.
        key: String,
        /// Its value.
        value: usize,
        /// The value that the rest of the file implies.
        needed: usize,
    },

    /// Heads do not fit each other.
    #[error(
        "{heads} heads of {head_size}, {kv_heads} of keys and values, and a width of {width} do not fit: the heads \
         must be a multiple of those of keys and values, and of even size"
    )]
    Heads {
        /// Query heads.
        heads: usize,
        /// Key and value heads.
        kv_heads: usize,
        /// Components of a head.
        head_size: usize,
        /// Width of the model.
        width: usize,
    },

    /// The model has a part that is not supported.
    #[error("the model has {what} (`{key}`), which is not supported")]
    Unsupported {
        /// The part.
        what: &'static str,
        /// The key with that value.
        key: String,
    },

    /// Positions are scaled in a way that is not supported.
    #[error(
        "rope scaling {0:?} is not supported; supported are none, linear, yarn, and the factors of LLaMA 3 and Phi"
    )]
    RopeScaling(String),

    /// A tensor is missing.
    #[error("tensor `{0}` is missing")]
    MissingTensor(String),

    /// A tensor has dimensions that the model's keys contradict.
    #[error("tensor `{name}` has dimensions {dims:?}; the keys require {needed:?}")]
    Dimensions {
        /// The tensor.
        name: String,
        /// Its dimensions.
        dims: Vec<usize>,
        /// The value that the keys require.
        needed: Vec<usize>,
    },

    /// A vector has a format for matrices.
    #[error("tensor `{name}` has format {block}; a vector must be F32, F16 or BF16")]
    Vector {
        /// The tensor.
        name: String,
        /// Its format.
        block: BlockType,
    },

    /// A vector contains a number that is not finite, or a factor that is not positive.
    #[error("tensor `{name}` contains {value} at {index}")]
    Element {
        /// The tensor.
        name: String,
        /// Position.
        index: usize,
        /// The number there.
        value: f32,
    },

    /// The file has a tensor without a use.
    #[error("tensor {0:?} belongs to no part of this architecture: results would be wrong without it")]
    UnknownTensor(String),
}

fn supported() -> String {
    Architecture::ALL.map(Architecture::name).join(", ")
}
