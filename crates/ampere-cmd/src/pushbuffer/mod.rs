//! Pushbuffer words: headers, the raw layer of the encoder, and the decoder.
//!
//! A pushbuffer is a stream of headers and data. A method header contains a mode, a subchannel, a method address and
//! the number of data words that follow it. The immediate form contains 13 bits of data instead of the number. A few
//! words control the stream itself. Bit layout: `dma_formats` of `clc56f.h` and `clc76f.h`.
//!
//! * [`Header`] encodes and decodes one header.
//! * [`Encoder`] writes methods to a [`Sink`] without allocating. The usual commands of a driver (semaphores, launches,
//!   copies) are methods of it.
//! * [`Packer`] takes methods one by one and encodes them with the fewest headers.
//! * [`MethodStream`] decodes words as the host engine does, into method writes. The data of a header may continue in
//!   the next segment, so its state spans segments.

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
/// Largest number of data words of one header.
pub const MAX_COUNT: u32 = (1 << 13) - 1;
/// Largest data of an immediate method.
pub const MAX_IMMEDIATE: u32 = (1 << 13) - 1;
/// The word without effect.
pub const NOP: u32 = 0;
/// Methods below this byte offset belong to the host engine, on any subchannel.
pub const HOST_METHODS_END: u32 = 0x100;
