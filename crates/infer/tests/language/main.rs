//! Language models: files, shapes, and results on the CPU.

mod file;
mod model;
