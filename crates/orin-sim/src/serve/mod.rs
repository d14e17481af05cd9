//! Unmodified programs on the software Orin: any Linux program that opens `/dev/nvmap` and `/dev/nvgpu/igpu0/ctrl`, in
//! any language. The command `orin serve -- PROGRAM` uses this module.
//!
//! A seccomp filter passes a few system calls of the program to its supervisor: opens and stats, requests of the
//! board's families, shared mappings of files. The supervisor answers those that belong to the board with the model;
//! the kernel makes all others. The program's descriptors and mappings are real: poll, epoll, dup, fork, exec and
//! passing work without the supervisor, and the doorbell is a shared page.
//!
//! It needs Linux 5.14 on x86-64 or arm64, and no privileges. It is no security boundary: paths are checked in the
//! memory of the program, which other threads may change.
//!
//! # Where to find what
//!
//! - A program that is served: [`Session`], [`Options`], [`Error`]; a board for several commands: [`SharedBoard`].
//! - What it does: [`Observer`], [`ServedCall`], [`Detail`], [`Access`].
//! - The code that it loads: [`cubins_of_descendants`].
//! - Records, and their replay, in [`record`]: [`record::Recorder`], [`record::Record`], [`record::Damaged`],
//!   [`record::replay()`], [`record::Comparison`], [`record::Difference`].
//! - Ends of processes, for programs that only supervise: [`guard`].
#![deny(clippy::print_stdout, clippy::print_stderr)]

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
compile_error!("the feature `serve` needs Linux on x86-64 or arm64");

mod calls;
mod client;
mod crowd;
mod cubins;
mod error;
mod filter;
pub mod guard;
mod kernel;
mod listener;
mod observer;
mod options;
mod paths;
mod processes;
pub mod record;
mod session;
mod shared;
mod watcher;

pub use cubins::cubins_of_descendants;
pub use error::Error;
pub use observer::{Access, Detail, Observer, ServedCall};
pub use options::Options;
pub use session::Session;
pub use shared::SharedBoard;
