//! Encodes and decodes the GPU commands of NVIDIA Ampere and Hopper: the records that a driver writes to memory for
//! the engines of a channel. Encoder and decoder use the same tables, which `cargo xtask gen-classes` generates from
//! NVIDIA's class headers, so a driver and a GPU model cannot disagree about a bit. The crate does no I/O, contains
//! no `unsafe` code and does not allocate while encoding.
//!
//! A launch consists of four kinds of record:
//!
//! | record | encode | decode |
//! | --- | --- | --- |
//! | ring entry | [`gpfifo::Entry::encode`] | [`gpfifo::Entry::decode`] |
//! | pushbuffer | [`Encoder`]: raw and typed methods, [`command`]s; [`Packer`]: fewest words | [`MethodStream`] |
//! | method data | [`Method::encode`] of the types in [`compute_c7c0`] and so on | [`Method::decode`] |
//! | launch descriptor | [`qmd::Qmd::set`], in GPU memory [`qmd::Patch`] | [`qmd::Qmd::get`] |
//!
//! [`tensor_map`] encodes the arrays that kernels of a Hopper GPU copy box by box, [`texture`] what kernels look up by
//! coordinates.
//!
//! [`method::class`] returns the table of a class by number, for code that learns methods at run time. [`dump`] formats
//! words as text with these tables.
//!
//! # Writing commands
//!
//! ```
//! use ampere_cmd::command::{LinearCopy, PcasAction};
//! use ampere_cmd::compute_c7c0::{CLASS, WaitForIdle};
//! use ampere_cmd::gpfifo::{Entry, Segment};
//! use ampere_cmd::{Encoder, SliceSink, Subchannel};
//!
//! let mut words = [0u32; 64];
//! let mut encoder = Encoder::new(SliceSink::new(&mut words));
//! encoder.set_object(Subchannel::COMPUTE, CLASS.into())?;
//! encoder.method(Subchannel::COMPUTE, &WaitForIdle { v: 0 })?; // any typed method
//! encoder.methods(Subchannel::COMPUTE, 0x02b4, &[0x1500_0002])?; // any raw method
//! encoder.launch(0x15_0000_0200, PcasAction::InvalidateCopySchedule)?; // a ready-made command
//! encoder.linear_copy(&LinearCopy { source: 0x10_0000, destination: 0x20_0000, bytes: 256 })?;
//! let entry = Entry::from(Segment::new(0x14_0000_0000, encoder.sink().len() as u32)).encode()?;
//! # assert_eq!(entry, 0x0000_4c14_0000_0000);
//! # Ok::<(), ampere_cmd::Error>(())
//! ```
//!
//! # Reading them back
//!
//! ```
//! use ampere_cmd::{Method, MethodStream, Subchannel, host_c76f};
//!
//! let mut stream = MethodStream::new();
//! for word in [0x2005_0017, 0x0000_0010, 0x12, 7, 0, 0x0310_0001] {
//!     let Some(write) = stream.push(word)? else { continue };
//!     match write.address {
//!         host_c76f::SemAddrLo::ADDRESS => {
//!             assert_eq!(host_c76f::SemAddrLo::decode(write.data).offset << 2, 0x10);
//!         }
//!         host_c76f::SemExecute::ADDRESS => {
//!             let execute = host_c76f::SemExecute::decode(write.data);
//!             assert_eq!(execute.operation, host_c76f::SemExecuteOperation::Release);
//!             assert!(execute.release_wfi && execute.release_timestamp);
//!         }
//!         _ => {}
//!     }
//! }
//! stream.end_segment();
//! # Ok::<(), ampere_cmd::Error>(())
//! ```
//!
//! A value that does not fit its field is refused with a [`FieldError`], never masked. So is an address that is not a
//! multiple of the field's unit ([`qmd::Qmd::set_address`], [`method::FieldInfo::shifted`]). Enums represent values
//! that the header does not name as `Unknown`.
//!
//! # Where to find what
//!
//! - Writing commands: [`Encoder`], [`Packer`], [`Target`], [`Subchannel`], [`Sink`], [`SliceSink`]; ready-made ones in
//!   [`command`], headers and limits in [`pushbuffer`].
//! - Reading commands: [`MethodStream`], [`MethodWrite`]; as text with [`dump`].
//! - Methods: [`Method`], [`FieldValue`] and the tables in [`method`]; [`CLASSES`] lists the classes [`compute_c7c0`],
//!   [`compute_cbc0`], [`copy_c7b5`], [`copy_c8b5`], [`host_c56f`], [`host_c76f`], [`host_c86f`], [`usermode_c361`],
//!   [`usermode_c461`], [`usermode_c561`], [`usermode_c661`].
//! - Launch descriptors: [`Qmd`], [`QmdV3_0`], other layouts and patches in [`qmd`].
//! - Texture headers and samplers: [`texture`]; tensor maps: [`tensor_map`].
//! - Ring entries: [`gpfifo`]. Addresses in two words: [`words`].
//! - Failures: [`Error`], [`FieldError`], [`Full`] in [`error`].
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod command;
pub mod dump;
pub mod error;
mod generated;
pub mod gpfifo;
pub mod method;
pub mod pushbuffer;
pub mod qmd;
mod sm_layout;
mod table;
pub mod tensor_map;
pub mod texture;
pub mod words;

pub use error::{Error, FieldError, Full};
pub use generated::CLASSES;
pub use generated::{
    compute_c7c0, compute_cbc0, copy_c7b5, copy_c8b5, host_c56f, host_c76f, host_c86f, usermode_c361,
    usermode_c461, usermode_c561, usermode_c661,
};
pub use method::{FieldValue, Method};
pub use pushbuffer::{Encoder, MethodStream, MethodWrite, Packer, Sink, SliceSink, Subchannel, Target};
pub use qmd::{Qmd, QmdV3_0};

/// Version of this crate.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The example of the README, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
