//! Language models: files, shapes, and results on the CPU.

mod file;
mod file_bytes;
mod model;
mod text;
