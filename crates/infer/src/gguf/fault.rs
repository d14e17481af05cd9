//! Faults of files.

use crate::blocks;
use crate::error::Error;

/// Why a file is not accepted as GGUF.
///
/// ```
/// use infer::gguf::{Fault, File};
///
/// let infer::Error::Gguf { offset, fault } = File::from_bytes(b"GGUF\x02\0\0\0".to_vec()).unwrap_err() else {
///     unreachable!()
/// };
/// assert!(offset == 4 && matches!(fault, Fault::Version(2)));
/// assert!(fault.to_string().contains("version 2"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The file does not begin with `GGUF`.
    #[error("the file begins with {0:02x?} instead of GGUF: it is not a GGUF file")]
    Magic([u8; 4]),

    /// The file was written for big-endian machines.
    #[error("the file is big-endian; convert the model again, for a little-endian machine")]
    BigEndian,

    /// The version is not 3.
    #[error("version {0} of GGUF is not supported, only version 3; convert the model again")]
    Version(u32),

    /// The file ends within a field.
    #[error("{what} needs {needed} bytes, but the file has {left} more: it is truncated or damaged")]
    Truncated {
        /// The field.
        what: &'static str,
        /// Bytes that the field needs; `u64::MAX` if more than 64 bits can count.
        needed: u64,
        /// Bytes that follow.
        left: u64,
    },

    /// A text is not UTF-8.
    #[error("{what} is not UTF-8")]
    Text {
        /// The field.
        what: &'static str,
    },

    /// A key or the name of a tensor is too long or empty.
    #[error("{what} has {bytes} bytes; 1 to {most} are allowed")]
    Name {
        /// The field.
        what: &'static str,
        /// Its bytes.
        bytes: u64,
        /// Bytes that are allowed.
        most: u64,
    },

    /// A key occurs twice.
    #[error("key {0:?} occurs twice")]
    DuplicateKey(String),

    /// The name of a tensor occurs twice.
    #[error("tensor {0:?} occurs twice")]
    DuplicateTensor(String),

    /// The type of a value is unknown.
    #[error("{0} is not a value type")]
    ValueType(u32),

    /// A truth value is neither 0 nor 1.
    #[error("a truth value is {0} instead of 0 or 1")]
    Bool(u8),

    /// Arrays are nested too deeply.
    #[error("arrays are nested more than {0} deep")]
    Nesting(usize),

    /// The alignment is unusable.
    #[error("`general.alignment` is {0}; it must be a u32, a power of two, and at least 8")]
    Alignment(String),

    /// A tensor has too many dimensions, or none.
    #[error("tensor {name:?} has {count} dimensions; 1 to 4 are allowed")]
    Dimensions {
        /// The tensor.
        name: String,
        /// Its number of dimensions.
        count: u32,
    },

    /// The product of a tensor's dimensions is 0, or cannot be counted.
    #[error("tensor {name:?} has dimensions {dims:?}: too many weights to count, or none")]
    Size {
        /// The tensor.
        name: String,
        /// Its dimensions.
        dims: Vec<u64>,
    },

    /// The format of a tensor is not supported.
    #[error("tensor {name:?} has format {id}{}, which is not supported; supported are {}", foreign(*id), supported())]
    Format {
        /// The tensor.
        name: String,
        /// The number of the format.
        id: u32,
    },

    /// The rows of a tensor are not whole blocks.
    #[error(
        "the rows of tensor {name:?} have {width} weights each, which is not a multiple of the block size {block}"
    )]
    Row {
        /// The tensor.
        name: String,
        /// Weights of a row.
        width: u64,
        /// Weights of a block.
        block: usize,
    },

    /// The data of a tensor is not aligned.
    #[error("the data of tensor {name:?} is at {at}, which is not a multiple of the alignment {alignment}")]
    Misaligned {
        /// The tensor.
        name: String,
        /// Offset in the data section.
        at: u64,
        /// The file's alignment.
        alignment: u64,
    },

    /// The data of a tensor exceeds the file.
    #[error(
        "the data of tensor {name:?} needs {needed} bytes; the file has {left} there: it is truncated or damaged"
    )]
    Data {
        /// The tensor.
        name: String,
        /// Bytes that the tensor needs.
        needed: u64,
        /// Bytes of the file from the start of the tensor.
        left: u64,
    },

    /// Two tensors share bytes.
    #[error("the data of tensors {first:?} and {second:?} overlaps")]
    Overlap {
        /// The tensor that begins first.
        first: String,
        /// The other one.
        second: String,
    },
}

/// Why files are not the parts of one model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PartFault {
    /// The name does not say which part it is, so the others are not found.
    #[error(
        "the file is a part of a model, and its name has to end with {suffix}, as its keys `split.no` and \
         `split.count` say: give it its name back"
    )]
    Name {
        /// The end that the name has to have.
        suffix: String,
    },

    /// The file is another part than its name says, or one of another number of parts.
    #[error("the file says that it is part {number} of {count}: it does not belong to the others")]
    Number {
        /// The part, from 1 on.
        number: u32,
        /// Number of parts.
        count: u16,
    },

    /// The file is not GGUF, or damaged.
    #[error("{0}")]
    Damaged(Box<Error>),

    /// Another part has a tensor of this name.
    #[error("tensor {0:?} is in an earlier part, too")]
    DuplicateTensor(String),

    /// The parts have other tensors than the first one says.
    #[error("`split.tensors.count` is {count}, but the parts have {found} tensors")]
    Tensors {
        /// The number of tensors that the first part states.
        count: usize,
        /// Those of all parts.
        found: usize,
    },
}

/// The name of a format in brackets.
fn foreign(id: u32) -> String {
    blocks::foreign_name(id).map_or_else(String::new, |name| format!(" ({name})"))
}

fn supported() -> String {
    blocks::BlockType::ALL.map(blocks::BlockType::name).join(", ")
}
