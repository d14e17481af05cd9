#![doc = include_str!("../README.md")]

pub mod control;
mod error;
pub mod kernels;
pub mod layers;
pub mod networks;
pub mod weights;

pub use error::{Error, Result};
