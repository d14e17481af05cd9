#![doc = include_str!("../README.md")]

mod bring_up;
mod cli;
pub mod code;
pub mod commands;
mod decode;
mod dmesg;
mod doctor;
mod info;
pub mod strace;
#[cfg(test)]
mod text_files;
mod usage;

pub use cli::{Cli, Command, DeviceOptions, report};
pub use usage::{UsageError, is_broken_pipe};
