#![doc = include_str!("../README.md")]
#![allow(clippy::too_many_arguments, reason = "CUDA's interface has calls with eleven")]
#![allow(non_snake_case, reason = "the functions have CUDA's names")]

mod array;
mod call;
mod copy;
mod descriptors;
mod device;
mod driver;
mod error;
mod graph;
mod ipc;
mod launch;
mod memory;
mod register;
mod texture;

pub use array::*;
pub use copy::*;
pub use descriptors::*;
pub use device::*;
pub use error::*;
pub use graph::*;
pub use ipc::*;
pub use launch::*;
pub use memory::*;
pub use register::*;
pub use texture::*;

include!(concat!(env!("OUT_DIR"), "/functions.rs"));
