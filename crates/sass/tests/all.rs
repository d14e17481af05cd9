//! Tests against nvdisasm's text.
//!
//! One program: linking one is faster than linking many.

mod decoder;
mod disassembly;
