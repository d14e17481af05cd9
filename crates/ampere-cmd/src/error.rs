//! Errors of encoding and decoding.

use crate::pushbuffer::HeaderFault;
use crate::sm_layout::SmLayout;

/// A value that a bit field cannot hold. Values are never masked to fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FieldError {
    /// The value needs more bits than the field has.
    #[error("{field}: {value:#x} does not fit {bits} bits")]
    TooWide {
        /// Name in the class header.
        field: &'static str,
        /// The refused value.
        value: u64,
        /// Width of the field.
        bits: u32,
    },
    /// Another field of the same method sets some of these bits to another value. The header defines several
    /// overlapping layouts of one word, of which a method uses one.
    #[error("{field}: {value:#x} collides with an overlapping field of the method")]
    Overlap {
        /// Name in the class header.
        field: &'static str,
        /// The refused value.
        value: u64,
    },
    /// The field omits the lowest bits, and some of them are set.
    #[error("{field}: {value:#x} is not a multiple of {}, the unit of the field", 1_u64 << .shift)]
    LostBits {
        /// Name in the class header.
        field: &'static str,
        /// The refused value.
        value: u64,
        /// Number of bits that the field omits.
        shift: u32,
    },
    /// The field lies in a word for which a patch of a descriptor has no room.
    #[error("{field}: lies outside of the {words} words of the patch")]
    PatchFull {
        /// Name in the class header.
        field: &'static str,
        /// Number of words of the patch.
        words: usize,
    },
    /// The array method or array field has no element with this index.
    #[error("{field}: no element {index}, the array has {count}")]
    NoSuchElement {
        /// Name in the class header.
        field: &'static str,
        /// The refused index.
        index: u32,
        /// Number of elements.
        count: u32,
    },
}

/// The sink has no room for the next word.
///
/// ```
/// use ampere_cmd::{Encoder, Error, Full, SliceSink, Subchannel};
///
/// let mut words = [0_u32; 1];
/// let mut encoder = Encoder::new(SliceSink::new(&mut words));
/// let refused = encoder.methods(Subchannel::COMPUTE, 0x100, &[1, 2]);
/// assert!(matches!(refused, Err(Error::Full(Full))));
/// assert!(encoder.sink().is_empty());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the pushbuffer is full")]
pub struct Full;

/// A command or record that cannot be encoded or decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A value does not fit its bit field.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// The sink is full. No word of the command was written.
    #[error(transparent)]
    Full(#[from] Full),
    /// An address does not have the required alignment.
    #[error("{what} {va:#x} is not a multiple of {alignment}")]
    Misaligned {
        /// Object at the address.
        what: &'static str,
        /// The refused GPU address.
        va: u64,
        /// Required alignment in bytes.
        alignment: u64,
    },
    /// An address, or the end of the object at that address, needs more address bits than the field has.
    #[error("{what} {va:#x} is not within {bits} bits of address")]
    AddressTooHigh {
        /// Object at the address.
        what: &'static str,
        /// The refused GPU address.
        va: u64,
        /// Number of address bits.
        bits: u32,
    },
    /// A length is zero or above the limit.
    #[error("{what}: {value} is not within 1 to {max}")]
    Length {
        /// Quantity and its unit.
        what: &'static str,
        /// The refused length.
        value: u64,
        /// Largest length.
        max: u64,
    },
    /// The backing store of local memory does not fit 64 bits.
    #[error("local memory of {bytes_per_thread} bytes per thread for {layout:?} is larger than 2^64 bytes")]
    LocalMemory {
        /// Requested bytes per thread.
        bytes_per_thread: u32,
        /// The SMs and warps.
        layout: SmLayout,
    },
    /// A method address is not a multiple of 4 or not below 0x4000.
    #[error("method address {address:#x} is not a multiple of 4 below 0x4000")]
    MethodAddress {
        /// The refused byte offset.
        address: u32,
    },
    /// A subchannel above 7.
    #[error("subchannel {index} is not within 0 to 7")]
    Subchannel {
        /// The refused index.
        index: u8,
    },
    /// An incrementing method ran past the last method address 0x3ffc (PBENTRY on hardware).
    #[error("word {index} of header {header:#010x} is past the last method address 0x3ffc")]
    MethodOverflow {
        /// The method header.
        header: u32,
        /// Index of the first data word past the last address.
        index: u32,
    },
    /// A word in header position is not a header (PBENTRY on hardware).
    #[error("{word:#010x} is not a pushbuffer header: {fault}")]
    Header {
        /// The refused word.
        word: u32,
        /// The fault.
        fault: HeaderFault,
    },
    /// A GPFIFO entry sets reserved bits (GPENTRY on hardware).
    #[error("GPFIFO entry {entry:#018x} sets reserved bits {bits:#x}")]
    EntryReserved {
        /// The refused entry.
        entry: u64,
        /// The reserved bits that are set.
        bits: u64,
    },
    /// A GPFIFO control entry has an unknown opcode.
    #[error("GPFIFO control entry {entry:#018x} has unknown opcode {opcode}")]
    EntryOpcode {
        /// The refused entry.
        entry: u64,
        /// Its opcode.
        opcode: u8,
    },
    /// The hardware has no semaphore operation with this combination of options.
    #[error("semaphore operation: {reason}")]
    Semaphore {
        /// The options that exclude each other.
        reason: &'static str,
    },
}
