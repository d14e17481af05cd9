#![doc = include_str!("../README.md")]
//! # Where to find what
//!
//! - Decoding on the GPU: [`decode::Engine`], [`decode::Session`], [`decode::Batch`], [`decode::Sampling`] in
//!   [`decode`].
//! - Files and models: [`gguf`], formats of weights in [`blocks`], [`model::Model`], [`model::Shape`] and tensors in
//!   [`model`].
//! - Texts and conversations: [`tokenizer`], [`chat`].
//! - Matrix products on the tensor cores: [`gemm::Gemm`], and its parameters in [`gemm`]. [`Launcher`] takes launches.
//! - Random models and their results on the CPU: [`synthetic`], [`reference`](mod@reference).
//! - Failures: [`Error`], [`Result`].

pub mod blocks;
pub mod chat;
pub mod decode;
mod error;
pub mod gemm;
pub mod gguf;
mod launch;
pub mod model;
mod parameters;
pub mod reference;
pub mod synthetic;
pub mod tokenizer;

pub use error::{Error, Result};
pub use launch::Launcher;
