#![doc = include_str!("../README.md")]
//! # Where to find what
//!
//! - A program that is served: [`Session`], [`Error`].
//! - What it does: [`Observer`], [`ServedCall`], [`Detail`].
//! - Ends of processes, for programs that only supervise: [`guard`].
#![deny(clippy::print_stdout, clippy::print_stderr)]

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
compile_error!("orin-serve needs Linux on x86-64 or arm64");

mod calls;
mod client;
mod error;
mod filter;
pub mod guard;
mod listener;
mod observer;
mod paths;
mod session;

pub use error::Error;
pub use observer::{Detail, Observer, ServedCall};
pub use session::Session;
