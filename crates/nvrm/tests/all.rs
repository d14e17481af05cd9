//! Tests without a GPU.
//!
//! One program: linking one is faster than linking many.

mod device;
mod layout;
