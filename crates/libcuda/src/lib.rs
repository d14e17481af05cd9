#![doc = include_str!("../README.md")]
#![allow(clippy::too_many_arguments, reason = "CUDA's interface has calls with eleven")]

mod abi;
mod array;
mod call;
mod context;
mod copy;
mod descriptors;
mod device;
mod graph;
mod hints;
mod init;
mod ipc;
mod jit;
mod launch;
mod link;
mod mapped;
mod memory;
mod module;
mod node;
mod old_launch;
mod pool;
#[cfg(feature = "sim")]
mod python;
mod reference;
mod stream;
mod table;
mod texture;
mod user_object;
mod words;

pub use array::*;
pub use context::*;
pub use copy::*;
pub use descriptors::*;
pub use device::*;
pub use graph::*;
pub use hints::*;
pub use init::*;
pub use ipc::*;
pub use launch::*;
pub use link::*;
pub use mapped::*;
pub use memory::*;
pub use module::*;
pub use node::*;
pub use old_launch::*;
pub use pool::*;
pub use reference::*;
pub use stream::*;
pub use table::*;
pub use texture::*;
pub use user_object::*;
pub use words::*;
