//! Compiled code made readable: cubins, and instructions as the vendor's disassembler writes them.

mod cubin;
mod sass;

pub use cubin::cubin;
pub use sass::sass;
