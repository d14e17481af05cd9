#![doc = include_str!("../README.md")]
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
compile_error!("orin-serve needs Linux on x86-64 or arm64");

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
