//! `orin llm random`: models with random weights.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use infer::blocks::BlockType;
use infer::synthetic::Recipe;
use orin_cli::{ExitStatus, Output, Progress, UsageError, say, unless_closed, within};

/// The shapes by name.
const SHAPES: [(&str, Recipe); 29] = [
    ("llama-1b", Recipe::llama_1b()),
    ("gpt2-124m", Recipe::gpt2_124m()),
    ("qwen2.5-0.5b", Recipe::qwen25_500m()),
    ("qwen3-0.6b", Recipe::qwen3_600m()),
    ("qwen3-30b-a3b", Recipe::qwen3_30b_a3b()),
    ("gemma3-270m", Recipe::gemma3_270m()),
    ("gemma3-1b", Recipe::gemma3_1b()),
    ("gemma3-4b", Recipe::gemma3_4b()),
    ("smollm2-135m", Recipe::smollm2_135m()),
    ("smollm3-3b", Recipe::smollm3_3b()),
    ("phi4-mini", Recipe::phi4_mini()),
    ("granite-2b", Recipe::granite_2b()),
    ("lfm2-350m", Recipe::lfm2_350m()),
    ("lfm2-1b", Recipe::lfm2_1b()),
    ("ministral3-3b", Recipe::ministral3_3b()),
    ("gpt-oss-20b", Recipe::gpt_oss_20b()),
    ("tiny-llama", Recipe::tiny_llama()),
    ("tiny-qwen2", Recipe::tiny_qwen2()),
    ("tiny-qwen3", Recipe::tiny_qwen3()),
    ("tiny-gpt2", Recipe::tiny_gpt2()),
    ("tiny-qwen3moe", Recipe::tiny_qwen3moe()),
    ("tiny-gemma3", Recipe::tiny_gemma3()),
    ("tiny-phi3", Recipe::tiny_phi3()),
    ("tiny-mistral", Recipe::tiny_mistral()),
    ("tiny-mistral3", Recipe::tiny_mistral3()),
    ("tiny-granite", Recipe::tiny_granite()),
    ("tiny-smollm3", Recipe::tiny_smollm3()),
    ("tiny-lfm2", Recipe::tiny_lfm2()),
    ("tiny-gpt-oss", Recipe::tiny_gpt_oss()),
];

/// Options of the command.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  orin llm random --shape llama-1b --format q6_k --output random.gguf

The model has a vocabulary of bytes and some words. What it writes means nothing; its speed is that of a trained model
of the same shape.")]
pub(crate) struct Options {
    /// The shape: llama-1b, gpt2-124m, qwen2.5-0.5b, qwen3-0.6b, qwen3-30b-a3b, gemma3-270m, gemma3-1b, gemma3-4b,
    /// smollm2-135m, smollm3-3b, phi4-mini, granite-2b, lfm2-350m, lfm2-1b, ministral3-3b, gpt-oss-20b, or
    /// tiny-llama, tiny-qwen2, tiny-qwen3, tiny-gpt2, tiny-qwen3moe, tiny-gemma3, tiny-phi3, tiny-mistral,
    /// tiny-mistral3, tiny-granite, tiny-smollm3, tiny-lfm2, tiny-gpt-oss
    #[arg(long, value_name = "NAME", value_parser = shape)]
    shape: Recipe,
    /// The format of the matrices, such as f16, q8_0, q4_k or mxfp4, or a mixture, q3_k_m, q4_k_m or
    /// q5_k_m [default: that of the shape]
    #[arg(long, value_name = "FORMAT", value_parser = format)]
    format: Option<(BlockType, bool)>,
    /// Give some matrices other formats, as llama.cpp's program for quantisation does
    #[arg(long)]
    mixed: bool,
    /// Start of the random numbers
    #[arg(long, default_value_t = 1, value_parser = within(0..=u64::MAX))]
    seed: u64,
    /// The file; - is standard output
    #[arg(long, short, value_name = "FILE.gguf")]
    output: PathBuf,
}

/// The names of the shapes.
pub(crate) fn shapes() -> impl Iterator<Item = &'static str> {
    SHAPES.iter().map(|(name, _)| *name)
}

fn shape(name: &str) -> Result<Recipe, String> {
    let found = SHAPES.iter().find(|(known, _)| *known == name);
    let known = SHAPES.map(|(name, _)| name).join(", ");
    found.map(|(_, recipe)| recipe.clone()).ok_or_else(|| format!("shapes are {known}"))
}

/// A format, and whether it is a mixture.
fn format(name: &str) -> Result<(BlockType, bool), String> {
    let parse = |name: &str| name.parse::<BlockType>();
    let mixture = name.to_lowercase().strip_suffix("_m").and_then(|name| parse(name).ok());
    match mixture {
        Some(block @ (BlockType::Q3K | BlockType::Q4K | BlockType::Q5K)) => Ok((block, true)),
        _ => parse(name).map(|block| (block, false)).map_err(|error| error.to_string()),
    }
}

/// Makes a model and writes it.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let output = Output::prepare(&options.output).map_err(UsageError::from)?;
    let (block, mixed) = options.format.unwrap_or((options.shape.block, options.shape.mixed));
    let recipe = Recipe { block, mixed: mixed || options.mixed, seed: options.seed, ..options.shape.clone() };
    let progress = Progress::new("making random weights");
    let bytes = recipe.to_bytes().map_err(|error| UsageError(error.to_string()))?;
    drop(progress);
    output.write(&bytes)?;
    if !output.is_stdout() {
        let said = say!("{}: {} bytes", output.path().display(), bytes.len());
        unless_closed(said.map_err(Into::into))?;
    }
    Ok(ExitStatus::Success.into())
}
