//! Tests on the software Orin.
//!
//! One program: linking one is faster than linking many.

mod access;
mod buffers;
mod join;
mod parts;
mod rare_requests;
mod sharing;
