//! Why a command cannot be encoded or decoded.

use crate::pushbuffer::HeaderFault;

/// A value that its bit field cannot hold. Nothing is ever masked to make it fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
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
    /// Another field of the same method claims some of these bits with another value: the header
    /// lays several meanings over one word and at most one of them may be used.
    #[error("{field}: {value:#x} collides with an overlapping field of the method")]
    Overlap {
        /// Name in the class header.
        field: &'static str,
        /// The refused value.
        value: u64,
    },
    /// The field leaves out the lowest bits, and some of them are set.
    #[error("{field}: {value:#x} is not a multiple of {}, which the field counts in", 1_u64 << .shift)]
    LostBits {
        /// Name in the class header.
        field: &'static str,
        /// The refused value.
        value: u64,
        /// Number of bits that the field leaves out.
        shift: u32,
    },
    /// The array method or array field has no such element.
    #[error("{field}: element {index} of {count}")]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the pushbuffer is full")]
pub struct Full;

/// What this crate refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A value does not fit its bit field.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// The sink is full. Nothing of the refused command has been written.
    #[error(transparent)]
    Full(#[from] Full),
    /// An address is not a multiple of what the hardware asks for.
    #[error("{what} {va:#x} is not a multiple of {alignment}")]
    Misaligned {
        /// What the address is of.
        what: &'static str,
        /// The refused GPU address.
        va: u64,
        /// Required alignment in bytes.
        alignment: u64,
    },
    /// An address, or the end of what starts there, lies beyond what the field can carry.
    #[error("{what} {va:#x} lies beyond {bits} bits of address")]
    AddressTooHigh {
        /// What the address is of.
        what: &'static str,
        /// The refused GPU address.
        va: u64,
        /// Number of address bits.
        bits: u32,
    },
    /// A length is zero or above the limit.
    #[error("{what}: {value} is not within 1 to {max}")]
    Length {
        /// What is counted, with its unit.
        what: &'static str,
        /// The refused length.
        value: u64,
        /// Largest length.
        max: u64,
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
    #[error("word {index} of header {header:#010x} lies beyond the last method address 0x3ffc")]
    MethodOverflow {
        /// The method header.
        header: u32,
        /// Index of the first data word that has no address.
        index: u32,
    },
    /// A word in header position is no header (PBENTRY on hardware).
    #[error("{word:#010x} is not a pushbuffer header: {fault}")]
    Header {
        /// The refused word.
        word: u32,
        /// What is wrong with it.
        fault: HeaderFault,
    },
    /// A GPFIFO entry sets bits that have no meaning (GPENTRY on hardware).
    #[error("GPFIFO entry {entry:#018x} sets reserved bits {bits:#x}")]
    EntryReserved {
        /// The refused entry.
        entry: u64,
        /// The reserved bits that are set.
        bits: u64,
    },
    /// A GPFIFO control entry has an opcode that is not known.
    #[error("GPFIFO control entry {entry:#018x} has unknown opcode {opcode}")]
    EntryOpcode {
        /// The refused entry.
        entry: u64,
        /// Its opcode.
        opcode: u8,
    },
    /// The combination of options of a semaphore operation does not exist.
    #[error("semaphore operation: {reason}")]
    Semaphore {
        /// What does not go together.
        reason: &'static str,
    },
}
