#![doc = include_str!("../README.md")]
//! # Where to find what
//!
//! - The frame of a program: [`main()`], [`parse`], [`own_program`], [`init_log`], [`ExitStatus`],
//!   [`UsageError`], [`report`], [`chain`], [`warn`].
//! - Files: [`Output`], [`Growing`], [`OutputError`], [`write_all`], [`write_file`].
//! - Standard output: [`say!`], [`line`](line()), [`Stdout`], [`stdout`], [`Plain`], [`plain_stdout`], [`StdoutError`],
//!   [`unless_closed`], [`is_closed_pipe`].
//! - Long work: [`Stop`], [`Progress`].
//! - Options: [`number`], [`within`]; addresses in helps: [`page!`].
#![cfg_attr(feature = "profile", doc = "- Options of programs that use the GPU: [`profile`].")]
#![cfg_attr(
    feature = "test-support",
    doc = "- Checks of whole programs: [`testing`]; of the pages that list their commands: [`mod@reference`]."
)]

mod exit;
mod output;
mod page;
#[cfg(feature = "profile")]
pub mod profile;
mod progress;
mod range;
#[cfg(feature = "test-support")]
pub mod reference;
mod start;
mod stdout;
mod stop;
#[cfg(feature = "test-support")]
pub mod testing;

pub use exit::{ExitStatus, UsageError, chain, report, warn};
pub use output::{Growing, Output, OutputError, write_all, write_file};
pub use progress::Progress;
pub use range::{number, within};
pub use start::{init_log, main, own_program, parse};
pub use stdout::{Plain, Stdout, StdoutError, is_closed_pipe, line, plain_stdout, stdout, unless_closed};
pub use stop::Stop;
