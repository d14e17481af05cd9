//! The commands of `orin-dev` as a program, in one binary: one link step is faster than many.

mod bench;
mod check_headers;
mod dist;
mod exit_codes;
mod test_device;

use std::process::{Command, Output};

/// The program under test.
fn orin_dev() -> Command {
    Command::new(env!("CARGO_BIN_EXE_orin-dev"))
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}
