//! Tests on the software Orin.
//!
//! One program: linking one is faster than linking many.

mod addresses;
mod bring_up;
mod common;
mod doctor;
mod edge_answers;
mod scheduling;
mod submission;
mod syncpoints;
