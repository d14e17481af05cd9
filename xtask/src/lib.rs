//! What `cargo xtask` does and other programs of the project use too.

pub mod code;
pub mod commands;
pub mod strace;
