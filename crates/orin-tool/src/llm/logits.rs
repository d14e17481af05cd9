//! `orin llm logits`: the logits of every position, for comparison with other programs.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use cubin::FileKind;
use infer::model::{KvFormat, Model};
use infer::reference::{CacheFormat, Reference};
use orin_cli::{ExitStatus, Output, Progress, Stop, UsageError};

use super::device::{Contexts, DeviceOptions, Loaded};
use super::{ModelOption, refused};
use crate::files;

/// Options of the command.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Tokens are numbers between spaces or line ends. The output has one row per position, with a little-endian f32 for each
token of the vocabulary.

Examples:
  orin llm logits --model model.gguf --tokens tokens.txt --out logits.f32
  orin llm logits --model model.gguf --tokens tokens.txt --out exact.f64 --reference")]
pub(crate) struct Options {
    #[command(flatten)]
    model: ModelOption,
    /// The tokens; - is standard input
    #[arg(long, value_name = "FILE")]
    tokens: PathBuf,
    /// The logits; - is standard output
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Evaluate on the CPU, slowly, and write little-endian f64: weights exact, activations not rounded, keys and
    /// values rounded to halves
    #[arg(long, conflicts_with = "device")]
    reference: bool,
    #[command(flatten)]
    device: DeviceOptions,
}

/// Longest word that an error shows, in characters.
const SHOWN: usize = 24;

/// Reads tokens.
fn tokens(path: &Path) -> Result<Vec<u32>, UsageError> {
    let text = files::read_text(path, "numbers of tokens", &[FileKind::Text])?;
    let number = |word: &str| {
        word.parse::<u32>().map_err(|_| {
            let shown: String = word.chars().take(SHOWN).collect();
            let more = if shown.len() < word.len() { "..." } else { "" };
            files::wrong(path, format_args!("{shown:?}{more} is not the number of a token"))
        })
    };
    let tokens = text.split_whitespace().map(number).collect::<Result<Vec<u32>, UsageError>>()?;
    if tokens.is_empty() { Err(files::wrong(path, "has no tokens")) } else { Ok(tokens) }
}

/// Evaluates the tokens one by one, and writes all logits.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let output = Output::prepare(&options.out).map_err(UsageError::from)?;
    output.spare([options.model.path(), &options.tokens]).map_err(UsageError::from)?;
    let tokens = tokens(&options.tokens)?;
    let model = options.model.open()?;
    let shape = model.shape();
    shape.admit(tokens.len() - 1, shape.context).map_err(refused)?;
    let vocabulary = shape.vocabulary;
    if let Some(token) = tokens.iter().copied().find(|token| *token as usize >= vocabulary) {
        return Err(refused(infer::Error::UnknownToken { token, vocabulary }));
    }
    let stop = Stop::on_signals()?;
    let bytes = if options.reference {
        exact(&model, &tokens, &stop)?
    } else {
        on_device(&options.device, &model, &tokens, &stop)?
    };
    match bytes {
        None => Ok(ExitStatus::Interrupted.into()),
        Some(bytes) => {
            output.write(&bytes)?;
            Ok(ExitStatus::Success.into())
        }
    }
}

/// The logits in 64-bit floats; `None` if interrupted.
fn exact(model: &Model, tokens: &[u32], stop: &Stop) -> Result<Option<Vec<u8>>> {
    let progress = Progress::new("converting weights");
    // As long as the device's context: some models turn positions otherwise in long ones.
    let mut reference = Reference::with_context(model, CacheFormat::Half, tokens.len())?;
    let mut bytes = Vec::new();
    for (position, token) in tokens.iter().enumerate() {
        if stop.is_requested() {
            return Ok(None);
        }
        progress.set(&format!("token {} of {}", position + 1, tokens.len()));
        let logits = reference.step(*token).map_err(refused)?;
        bytes.extend(logits.iter().flat_map(|logit| logit.to_le_bytes()));
    }
    Ok(Some(bytes))
}

/// The logits of a device; `None` if interrupted.
fn on_device(options: &DeviceOptions, model: &Model, tokens: &[u32], stop: &Stop) -> Result<Option<Vec<u8>>> {
    let device = options.open()?;
    let contexts = Contexts { sessions: 1, positions: tokens.len(), kv: KvFormat::F16 };
    let mut loaded = Loaded::new(&device, model, contexts)?;
    let session = &mut loaded.sessions[0];
    let progress = Progress::new("computing");
    let mut logits = vec![0.0_f32; model.shape().vocabulary];
    let mut bytes = Vec::with_capacity(tokens.len() * logits.len() * size_of::<f32>());
    for (position, token) in tokens.iter().enumerate() {
        if stop.is_requested() {
            return Ok(None);
        }
        progress.set(&format!("token {} of {}", position + 1, tokens.len()));
        session.feed(&[*token])?;
        session.logits_into(&mut logits)?;
        bytes.extend(logits.iter().flat_map(|logit| logit.to_le_bytes()));
    }
    Ok(Some(bytes))
}
