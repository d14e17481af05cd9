//! Language models: files, shapes, and results on the CPU.

mod chat;
mod file;
mod file_bytes;
mod hot_path;
mod model;
mod text;
