//! The commands of `cargo xtask` as a program, in one binary: one link step is faster than many.

mod bench;
mod check_headers;
mod dist;
mod documents;
mod exit_codes;
mod packages;
mod test_device;

use std::process::{Command, Output};

/// The program under test.
fn xtask() -> Command {
    Command::new(env!("CARGO_BIN_EXE_xtask"))
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}
