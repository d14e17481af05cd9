//! The streaming multiprocessors of the model: instructions, kernels, faults, threads, and the disassembly.

mod collective;
mod control;
mod coverage;
mod decoder;
mod disassembly;
mod faults;
mod float;
mod integer;
mod kernels;
mod memory;
mod sparse;
mod support;
mod threads;
