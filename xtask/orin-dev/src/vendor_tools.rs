//! `vendor-tools`: comparison of checks and profiles with NVIDIA's compute-sanitizer and ncu.
//!
//! `export` writes the kernels with planted errors and cases of the corpus as a folder; `vendor.py` in it runs both
//! tools on any machine with an NVIDIA GPU that has them.

use anyhow::Result;
use orin_cli::say;
use test_corpus::vendor;

use crate::silicon::{Export, Import};

/// The commands.
#[derive(clap::Subcommand)]
pub(crate) enum Exchange {
    /// Write kernels, inputs and launches for vendor.py; compiles the planted errors with NVRTC
    Export(Export),
    /// Store the output of vendor.py as the tests' reference data
    Import(Import),
}

/// Runs one of the commands.
///
/// # Errors
///
/// Returns an error if files cannot be read or written, or a kernel does not compile.
pub(crate) fn run(exchange: &Exchange) -> Result<()> {
    match exchange {
        Exchange::Export(Export { folder, sm }) => {
            let kernels = xtask::workspace::root()?.join("kernels");
            let count = vendor::export(folder, *sm)?;
            crate::kernels::compile_planted(&kernels, &folder.join("planted"), &format!("sm_{sm}"))?;
            say!("{count} kernels with and without errors for sm_{sm} in {}", folder.display())?;
            say!(
                "on the machine with the GPU: python3 vendor.py . OUT; then here: cargo xtask vendor-tools import OUT"
            )?;
            Ok(())
        }
        Exchange::Import(Import { folder }) => {
            let target = xtask::workspace::root()?.join("tests/corpus/data/vendor");
            vendor::import(folder, &target)?;
            say!("results are in {}; explain what differs in its differences.json", target.display())?;
            Ok(())
        }
    }
}
