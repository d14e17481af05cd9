//! `cargo xtask decode`: what a program asked of the GPU's driver, from recordings of its calls.

mod strace;

use anyhow::Result;

/// What kind of recording to explain.
#[derive(clap::Subcommand)]
pub(crate) enum Recording {
    /// A system-call trace written by strace
    Strace(strace::Options),
}

/// Explains a recording.
pub(crate) fn run(recording: &Recording) -> Result<()> {
    match recording {
        Recording::Strace(options) => strace::run(options),
    }
}
