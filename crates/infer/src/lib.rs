#![doc = include_str!("../README.md")]
//! # Where to find what
//!
//! - Networks: [`networks::Mlp`], [`networks::HalfMlp`], [`networks::Cnn`], [`networks::TransformerBlock`], their trait
//!   [`networks::Model`], and their shapes and weights in [`networks`].
//! - Weights on the CPU: [`weights::LinearWeights`], [`weights::MlpWeights`], [`weights::ConvWeights`],
//!   [`weights::NormWeights`], [`weights::RowForward`], and shapes and functions in [`weights`].
//! - Weights on the GPU: [`layers::Linear`], [`layers::HalfLinear`], [`layers::Conv`], [`layers::Norm`] in [`layers`].
//! - Launches: [`kernels::Kernels`], [`kernels::Steps`], and their parameters in [`kernels`].
//! - Matrix products on the tensor cores: [`product::Products`], and their parameters in [`product`].
//! - Control loop: [`control::ControlLoop`], [`control::run`], [`control::Plan`], [`control::Timing`], and the plant in
//!   [`control`].
//! - Language models: [`model::Model`], [`model::Shape`], its tensors in [`model`], files in [`gguf`], formats of
//!   weights in [`blocks`], texts in [`tokenizer`], conversations in [`chat`].
//! - Language models on the GPU: [`decode::Engine`], [`decode::Session`], [`decode::Sampling`] in [`decode`].
//! - Random language models and their results on the CPU: [`synthetic`], [`reference`](mod@reference).
//! - Failures: [`Error`], [`Result`].

pub mod blocks;
pub mod chat;
pub mod control;
pub mod decode;
mod error;
pub mod gguf;
pub mod kernels;
pub mod layers;
pub mod model;
pub mod networks;
pub mod product;
pub mod reference;
pub mod synthetic;
pub mod tokenizer;
pub mod weights;

pub use error::{Error, Result};
