//! A software Orin.

pub mod gpu;
pub mod kernel;
pub mod memory;
pub mod mmu;
pub mod sm;
