//! Decoders of compiled code: cubins, and instructions as nvdisasm prints them.

mod cubin;
mod sass;

pub use cubin::cubin;
pub use sass::sass;
