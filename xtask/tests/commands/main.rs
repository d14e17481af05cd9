//! The commands of `cargo xtask` as a program, and the files of the project against each other.

mod documents;
mod forwarding;
mod packages;
