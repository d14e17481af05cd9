#![doc = include_str!("../README.md")]
//! # Where to find what
//!
//! - The producer: [`Producer`], [`ProducerOptions`], [`Policy`], [`Layout`], [`Writable`], [`FrameInfo`],
//!   [`monotonic_ns`]; its consumers: [`Event`], [`ConsumerId`], [`Cause`].
//! - The consumer: [`Consumer`], [`Frame`].
//! - Both on devices of `tegra-hcq` (feature `tegra-hcq`, by default): `GpuProducer`, `GpuConsumer`.
//! - Failures: [`Error`], [`Ended`].
//! - The protocol, for other implementations: [`wire`].
#![forbid(unsafe_code)]

mod consumer;
mod error;
#[cfg(feature = "tegra-hcq")]
mod gpu;
mod producer;
mod ring;
mod socket;
pub mod wire;

pub use consumer::{Consumer, Frame};
pub use error::{Ended, Error};
#[cfg(feature = "tegra-hcq")]
pub use gpu::{GpuConsumer, GpuProducer};
pub use producer::{
    Cause, ConsumerId, Event, FrameInfo, Layout, Policy, Producer, ProducerOptions, monotonic_ns,
};
pub use ring::Writable;
