//! Tests of the encoders and decoders.
//!
//! One program: linking one is faster than linking many.

mod examples;
mod golden;
mod no_allocation;
mod roundtrip;
mod support;
mod tables;
mod texture;
