//! `orin run` as a program of its own: one kernel of a cubin or of a source, on any device.
//!
//! `cargo run --release --example run_kernel -- --cubin kernels/saxpy.cubin --kernel saxpy --grid 4 --block 256 ...`

use std::process::ExitCode;

use orin_tool::RunKernel;

fn main() -> ExitCode {
    orin_cli::main(RunKernel::run)
}
