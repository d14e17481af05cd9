#![doc = include_str!("../README.md")]
//! # Where to find what
//!
//! - The program: [`Cli`]; `orin run` as a program: [`RunKernel`].
//! - Decoders of what a driver writes: [`commands::pushbuf`], [`commands::qmd`], [`commands::gpfifo`] in [`commands`].
//! - Decoders of programs: [`code::cubin`], [`code::sass`] in [`code`].
//! - Decoder of system-call traces: [`strace::decode`] in [`strace`].
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod bring_up;
mod check;
mod cli;
pub mod code;
pub mod commands;
mod compile;
mod cubins;
mod cuda;
mod decode;
mod dmesg;
mod doctor;
mod documents;
mod files;
mod info;
mod llm;
mod new;
mod profile_kernel;
mod run;
mod serve;
pub mod strace;
#[cfg(test)]
mod text_files;
mod timeline;

pub use cli::{Cli, RunKernel};
