#![doc = include_str!("../README.md")]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod bring_up;
mod cli;
pub mod code;
pub mod commands;
mod compile;
mod decode;
mod dmesg;
mod doctor;
mod info;
pub mod strace;
#[cfg(test)]
mod text_files;

pub use cli::{Cli, Command, DeviceOptions};
