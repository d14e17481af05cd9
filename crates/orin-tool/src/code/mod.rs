//! Decoders of compiled code: cubins and fat binaries, and instructions as nvdisasm prints them.

mod cubin;
mod fatbin;
mod sass;

pub use cubin::cubin;
pub use fatbin::fat_entry;
pub use sass::sass;
