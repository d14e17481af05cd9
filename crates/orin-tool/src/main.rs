//! The program `orin`.

use std::process::ExitCode;

use orin_tool::Cli;

fn main() -> ExitCode {
    orin_cli::main(Cli::run)
}
