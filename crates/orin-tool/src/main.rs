//! The program `orin`.

use std::process::ExitCode;

use clap::Parser;
use orin_tool::Cli;

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    Cli::parse().run().unwrap_or_else(|error| orin_tool::report(&error))
}
