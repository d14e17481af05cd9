//! The streaming multiprocessors of the model: instructions, kernels, faults and threads.

mod check;
mod collective;
mod control;
mod coverage;
mod faults;
mod float;
mod integer;
mod kernels;
mod memory;
mod profile;
mod sparse;
mod support;
mod threads;
