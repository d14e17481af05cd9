//! `orin llm info`: the properties of a model's file, the memory that it needs and the limit of its speed.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use infer::chat::Template;
use infer::decode::Memory;
use infer::model::{Experts, Model, NormKind, Rope, RopePairs};
use infer::tokenizer::Tokenizer;
use orin_cli::{ExitStatus, UsageError, stdout, within};
use serde_json::{Map, Value, json};

use super::device::{KvOption, ORIN_BANDWIDTH, context};
use super::{ModelOption, megabytes};

/// Options of the command.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  orin llm info --model model.gguf
  orin llm info --model model.gguf --ctx 8192 --bandwidth 4800 --json
  orin llm info --model model.gguf --parallel 4        # what `orin llm serve --parallel 4` needs

The limit of the speed is computed: each token reads all weights once, and the keys and values of the context. `boards`
says on which boards the model fits, with the longest context and the limit of the speed at an empty context. It leaves
7 % of a board's memory to firmware, and 1 GiB to the system: estimates.")]
pub(crate) struct Options {
    #[command(flatten)]
    model: ModelOption,
    /// Positions of the context for which memory is computed [default: 4096, or the model's if it is shorter]
    #[arg(long, value_name = "N", value_parser = within(1..=1_usize << 30))]
    ctx: Option<usize>,
    /// Contexts for which memory is computed, as a server has them
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = within(1..=32_u64))]
    parallel: u64,
    /// How keys and values are stored
    #[arg(long, value_name = "FORMAT", default_value = "f16")]
    kv: KvOption,
    /// Bandwidth of the memory for which the limit of the speed is computed, in GB/s
    #[arg(long, value_name = "GB/S", default_value_t = ORIN_BANDWIDTH)]
    bandwidth: f64,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// Boards with a GPU of the Orin family: name, memory in GiB, bandwidth of the memory in GB/s. Figures of the modules'
/// data sheets, in the fastest power mode.
const BOARDS: [(&str, u64, f64); 6] = [
    ("Orin Nano 4 GB", 4, 51.2),
    ("Orin Nano 8 GB", 8, 102.4),
    ("Orin NX 8 GB", 8, 102.4),
    ("Orin NX 16 GB", 16, 102.4),
    ("AGX Orin 32 GB", 32, ORIN_BANDWIDTH),
    ("AGX Orin 64 GB", 64, ORIN_BANDWIDTH),
];

/// Memory that firmware keeps, in hundredths of a board's: an estimate.
const FIRMWARE_PERCENT: u64 = 7;

/// Memory that the system needs, in bytes: an estimate, without a desktop.
const SYSTEM_BYTES: u64 = 1 << 30;

/// Prints the properties of a model.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    if !(options.bandwidth.is_finite() && options.bandwidth > 0.0) {
        return Err(UsageError(format!("a bandwidth of {} GB/s is out of range", options.bandwidth)).into());
    }
    let model = options.model.open()?;
    let context = context(options.ctx, &model);
    model.shape().admit(0, context).map_err(super::refused)?;
    let mut rows = Map::new();
    add_shape(&mut rows, &model);
    add_formats(&mut rows, &model);
    add_texts(&mut rows, &model);
    let memory =
        Memory::of(&model, context, options.kv.into()).map_err(super::refused)?.sessions(options.parallel);
    add_needs(&mut rows, &model, (memory, context), options);
    rows.insert("boards".to_owned(), boards(&model, options));
    let mut out = stdout();
    if options.json {
        writeln!(out, "{:#}", Value::Object(rows))?;
        return Ok(ExitStatus::Success.into());
    }
    let width = rows.keys().map(String::len).max().unwrap_or(0);
    for (name, value) in &rows {
        let Some(boards) = value.as_array().filter(|_| name == "boards") else {
            writeln!(out, "{name:width$}  {}", text(name, value))?;
            continue;
        };
        for (at, board) in boards.iter().enumerate() {
            writeln!(out, "{:width$}  {}", if at == 0 { name } else { "" }, board_text(board))?;
        }
    }
    Ok(ExitStatus::Success.into())
}

/// Whether the model fits on each board, with which context, and how fast it can be at most.
fn boards(model: &Model, options: &Options) -> Value {
    let (most, token) = (model.shape().context, model.bytes_per_token());
    let fits = |memory: u64, context: usize| {
        let needed = Memory::of(model, context, options.kv.into());
        needed.is_ok_and(|needed| needed.sessions(options.parallel).total() <= memory)
    };
    let board = |(name, gib, bandwidth): (&str, u64, f64)| {
        let whole = gib << 30;
        let usable = (whole - whole / 100 * FIRMWARE_PERCENT).saturating_sub(SYSTEM_BYTES);
        // Of the contexts from 1 on, the first ones fit: the number of them is the longest.
        let (mut longest, mut beyond) = (0, most + 1);
        while beyond - longest > 1 {
            let middle = longest.midpoint(beyond);
            *(if fits(usable, middle) { &mut longest } else { &mut beyond }) = middle;
        }
        json!({
            "name": name,
            "usable_bytes": usable,
            "longest_context": longest,
            "computed_limit_tokens_per_s": tokens_per_s(bandwidth, token),
        })
    };
    BOARDS.map(board).to_vec().into()
}

/// A board's line.
fn board_text(board: &Value) -> String {
    let name = board["name"].as_str().unwrap_or_default();
    match board["longest_context"].as_u64().unwrap_or(0) {
        0 => format!("{name}: does not fit"),
        context => {
            let limit = &board["computed_limit_tokens_per_s"];
            format!("{name}: up to {context} positions, at most {limit} tokens/s")
        }
    }
}

/// The limit of the speed if a token reads this many bytes, in tenths of tokens per second.
fn tokens_per_s(bandwidth: f64, bytes: usize) -> f64 {
    (bandwidth * 1e10 / bytes as f64).round() / 10.0
}

/// A value as text.
fn text(name: &str, value: &Value) -> String {
    match value {
        Value::Number(number) if name.ends_with("_bytes") => {
            let bytes = number.as_u64().unwrap_or(0);
            format!("{bytes} ({})", megabytes(bytes))
        }
        Value::Object(parts) => {
            let parts: Vec<String> = parts
                .iter()
                .map(|(name, bytes)| format!("{name} {}", megabytes(bytes.as_u64().unwrap_or(0))))
                .collect();
            parts.join(", ")
        }
        Value::Array(parts) => {
            let parts: Vec<String> = parts
                .iter()
                .map(|part| part.as_str().map_or_else(|| part.to_string(), str::to_owned))
                .collect();
            parts.join(", ")
        }
        Value::String(text) => text.escape_debug().to_string(),
        other => other.to_string(),
    }
}

fn add_shape(rows: &mut Map<String, Value>, model: &Model) {
    let (file, shape) = (model.file(), model.shape());
    let mut row = |name: &str, value: Value| rows.insert(name.to_owned(), value);
    if let Ok(Some(name)) = file.text("general.name") {
        row("name", json!(name));
    }
    if file.parts() > 1 {
        row("files", json!(file.parts()));
    }
    row("file_bytes", json!(file.len()));
    row("architecture", json!(shape.architecture.name()));
    row("layers", json!(shape.layers.len()));
    row("width", json!(shape.width));
    row("heads", json!(shape.heads));
    row("kv_heads", json!(shape.kv_heads));
    row("head_size", json!(shape.head_size));
    row("ffn", json!(shape.ffn));
    if let Some(Experts { count, used }) = shape.experts {
        row("experts", json!(count));
        row("experts_used", json!(used));
    }
    row("vocabulary", json!(shape.vocabulary));
    row("context", json!(shape.context));
    let norm = match shape.norm {
        NormKind::Rms => "rms",
        NormKind::Layer => "layer",
    };
    row("norm", json!(format!("{norm}, epsilon {:e}", shape.epsilon as f32)));
    row(
        "positions",
        json!(match shape.ropes[..] {
            [] => "learned".to_owned(),
            ref ropes => ropes.iter().map(|rope| rotation(model, rope)).collect::<Vec<_>>().join("; "),
        }),
    );
    let windows: Vec<usize> = shape.layers.iter().filter_map(|layer| layer.window).collect();
    if let Some(window) = windows.first() {
        row("window", json!(format!("{window} positions in {} layers", windows.len())));
    }
    row("activation", json!(shape.activation.name()));
    row("tied_output", json!(shape.tied));
    let weights: usize = file.tensors().map(|tensor| tensor.dims.iter().product::<usize>()).sum();
    row("weights", json!(weights));
}

/// A rotation as text.
fn rotation(model: &Model, rope: &Rope) -> String {
    let pairs = if rope.pairs == RopePairs::Neighbours { "neighbours" } else { "halves" };
    let scaling = if rope.scale == 1.0 { String::new() } else { format!(", divided by {}", rope.scale) };
    let yarn = rope.yarn.map_or("", |_| " as in YaRN");
    let has = |name| model.file().tensor(name).is_some();
    let has_factors = has("rope_freqs.weight") || has("rope_factors_long.weight");
    let factors = if has_factors { ", with factors" } else { "" };
    format!("rotation of {pairs}, base {}{scaling}{yarn}{factors}", rope.base)
}

/// Bytes by format.
fn add_formats(rows: &mut Map<String, Value>, model: &Model) {
    let mut formats: BTreeMap<_, u64> = BTreeMap::new();
    for tensor in model.file().tensors() {
        // CAST: usize is at most 64 bits.
        *formats.entry(tensor.block).or_default() += tensor.bytes.len() as u64;
    }
    let formats: Map<String, Value> =
        formats.into_iter().map(|(block, bytes)| (block.name().to_owned(), json!(bytes))).collect();
    rows.insert("formats".to_owned(), Value::Object(formats));
}

/// The tokenizer and the chat format, or why they are missing.
fn add_texts(rows: &mut Map<String, Value>, model: &Model) {
    let mut row = |name: &str, value: Value| rows.insert(name.to_owned(), value);
    match Tokenizer::new(model.file()) {
        Ok(tokenizer) => {
            let kind = match tokenizer.splitter() {
                Some(splitter) => format!("BPE, words of {}", splitter.name()),
                None => "SentencePiece".to_owned(),
            };
            row("tokenizer", json!(kind));
            if let Some(token) = tokenizer.bos() {
                row("begin_token", json!(token));
            }
            row("stop_tokens", json!(tokenizer.stops().collect::<Vec<_>>()));
        }
        Err(error) => {
            row("tokenizer", json!(format!("none: {error}")));
        }
    }
    let chat = Template::of(model.file()).map(|template| match template.calls() {
        Some(calls) => format!("template with tools, called by {calls}"),
        None => "template".to_owned(),
    });
    row("chat", json!(chat.unwrap_or_else(|error| format!("none: {error}"))));
}

/// Memory and speed.
fn add_needs(
    rows: &mut Map<String, Value>,
    model: &Model,
    (memory, context): (Memory, usize),
    options: &Options,
) {
    let mut row = |name: &str, value: Value| rows.insert(name.to_owned(), value);
    let (token, bandwidth) = (model.bytes_per_token(), options.bandwidth);
    let cache = model.shape().kv_bytes_read(options.kv.into(), context);
    row("weights_bytes", json!(memory.weights));
    row("contexts", json!(options.parallel));
    row("cache_positions", json!(context));
    row("cache_bytes", json!(memory.cache));
    row("prompts_bytes", json!(memory.prompts));
    row("queues_bytes", json!(memory.queues));
    row("other_bytes", json!(memory.others));
    row("memory_bytes", json!(memory.total()));
    row("read_per_token_bytes", json!(token));
    row("bandwidth_gb_per_s", json!(bandwidth));
    let limit = |bytes: usize| json!(tokens_per_s(bandwidth, bytes));
    row("computed_limit_tokens_per_s", limit(token));
    row("computed_limit_tokens_per_s_full_context", limit(token.saturating_add(cache)));
}
