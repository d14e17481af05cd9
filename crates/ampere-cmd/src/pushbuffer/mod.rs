//! Pushbuffer words: headers, the encoder's raw layer, and the decoder.
//!
//! A pushbuffer is a stream of headers. A method header carries a mode, a subchannel, a method
//! address and a count of data words that follow it; the immediate form carries 13 bits of data in
//! place of the count. A few words control the stream itself. Bit layout: `dma_formats` of
//! `clc56f.h` and `clc76f.h`.
//!
//! * [`Header`] encodes and decodes one header.
//! * [`Encoder`] writes methods to a [`Sink`] without allocating; the driver's usual commands
//!   (semaphores, launches, copies) are its methods too.
//! * [`Packer`] takes methods one by one and joins them under the fewest headers.
//! * [`MethodStream`] is the host engine's view: fed word by word, it says which method is written
//!   with what. A method's data may continue in the next segment, so its state outlives one.

mod encoder;
mod header;
mod packer;
mod stream;

pub use encoder::{Encoder, MAX_SEQUENCE, Sequence, Sink, SliceSink, Target};
pub use header::{Header, HeaderFault, Mode, Subchannel};
pub use packer::Packer;
pub use stream::{MethodStream, MethodWrite};

/// Highest method address, in bytes.
pub const MAX_METHOD_ADDRESS: u32 = 0x3ffc;
/// Most data words behind one header.
pub const MAX_COUNT: u32 = (1 << 13) - 1;
/// Largest data of an immediate method.
pub const MAX_IMMEDIATE: u32 = (1 << 13) - 1;
/// The word that does nothing.
pub const NOP: u32 = 0;
/// Methods below this byte offset belong to the host engine, whatever the subchannel.
pub const HOST_METHODS_END: u32 = 0x100;
