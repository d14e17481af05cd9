//! GPU commands of NVIDIA Ampere, and of Hopper where it differs.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod error;
mod generated;
pub mod gpfifo;
pub mod method;
pub mod pushbuffer;
pub mod qmd;
mod table;

pub use error::{Error, FieldError, Full};
pub use generated::CLASSES;
pub use generated::{
    compute_c7c0, compute_cbc0, copy_c7b5, copy_c8b5, host_c56f, host_c76f, host_c86f, usermode_c361,
    usermode_c461, usermode_c561, usermode_c661,
};
pub use method::{FieldValue, Method};
pub use pushbuffer::{Encoder, MethodStream, MethodWrite, Sink, SliceSink, Subchannel, Target};
pub use qmd::{Qmd, QmdV3_0};
