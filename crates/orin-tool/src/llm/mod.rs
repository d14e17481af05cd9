//! `orin llm`: language models.

mod bench;
mod device;
mod info;
mod logits;
mod random;
mod rival;
mod run;
mod serve;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use cubin::FileKind;
use infer::Error;
use infer::gguf::Fault;
use infer::model::Model;
use orin_cli::UsageError;

use crate::files;

pub(crate) use random::shapes;

/// The commands.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Continue a text, or hold a conversation
    Run(run::Options),
    /// Answer requests in OpenAI's format over HTTP
    Serve(serve::Options),
    /// Measure prompts and the making of tokens, alone or next to llama.cpp
    Bench(bench::Options),
    /// Print a model's shape, formats, memory and the limit of its speed
    Info(info::Options),
    /// Write the logits of every position of a list of tokens, for comparisons
    Logits(logits::Options),
    /// Write a model with random weights, for measurements without a download
    Random(random::Options),
}

/// The option that every command has.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct ModelOption {
    /// The model: a GGUF file
    #[arg(long, short, value_name = "FILE.gguf")]
    model: Option<PathBuf>,
    /// The model, as with --model
    #[arg(value_name = "FILE.gguf")]
    file: Option<PathBuf>,
}

impl ModelOption {
    fn path(&self) -> &Path {
        let path = self.model.as_ref().or(self.file.as_ref());
        path.map_or(Path::new(""), PathBuf::as_path)
    }

    fn open(&self) -> Result<Model> {
        let path = self.path();
        Model::open(path).map_err(|error| explained(path, error))
    }
}

/// Runs a command.
pub(crate) fn run(command: &Command) -> Result<ExitCode> {
    match command {
        Command::Run(options) => run::run(options),
        Command::Serve(options) => serve::run(options),
        Command::Bench(options) => bench::run(options),
        Command::Info(options) => info::run(options),
        Command::Logits(options) => logits::run(options),
        Command::Random(options) => random::run(options),
    }
}

/// An error about a model's file; a usage error if the file cannot be opened.
fn explained(path: &Path, error: Error) -> anyhow::Error {
    match error {
        Error::Open { .. } => UsageError(error.to_string()).into(),
        Error::Gguf { fault: Fault::Magic(_) | Fault::Truncated { .. }, .. }
            if files::kind(path).is_some_and(|kind| kind != FileKind::Gguf) =>
        {
            files::not(path, files::kind(path).unwrap_or(FileKind::Binary), "a GGUF model").into()
        }
        error => anyhow::Error::new(error).context(path.display().to_string()),
    }
}

/// An error of a request to a model; a usage error if the request is impossible.
fn refused(error: Error) -> anyhow::Error {
    match error {
        Error::PromptTooLong { .. }
        | Error::ContextTooLong { .. }
        | Error::UnknownToken { .. }
        | Error::Sampling { .. } => UsageError(error.to_string()).into(),
        error => error.into(),
    }
}

/// Bytes as text.
fn megabytes(bytes: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match UNITS.iter().find(|(size, _)| bytes >= *size) {
        Some((size, unit)) => format!("{:.2} {unit}", bytes as f64 / *size as f64),
        None => format!("{bytes} bytes"),
    }
}
