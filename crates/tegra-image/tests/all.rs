//! Surfaces, their copies, and the kernels against the CPU.

mod kernels;
mod surfaces;
