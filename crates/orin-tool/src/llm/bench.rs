//! `orin llm bench`: the speed of a model, alone or next to llama.cpp's.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use infer::decode::{Session, SessionOptions};
use infer::model::Model;
use orin_cli::profile::ProfileOptions;
use orin_cli::{ExitStatus, Output, Progress, Stop, UsageError, stdout, within};
use serde_json::{Value, json};
use tegra_hcq::DeviceKind;

use super::device::{Contexts, DeviceOptions, KvOption, LayersOption, Loaded, ORIN_BANDWIDTH, bytes_at};
use super::rival::{BatchSample, BatchTest, Rival, Sample, Tool, rival};
use super::{ModelOption, refused};

/// Options of the command.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  orin llm bench --model model.gguf -p 512 -n 128
  orin llm bench --model model.gguf -p 0 -n 128 --batch 1,2,4,8,16,32
  orin llm bench --model model.gguf -n 128 --depth 4096 --against llama-bench=llama.cpp/build/bin/llama-bench
  orin llm bench --model model.gguf -p 0 --batch 1,2,4,8,16,32 \
      --against llama-batched-bench=llama.cpp/build/bin/llama-batched-bench

Random tokens are read and made, choice of tokens included. Each repetition measures this program, then each rival,
which runs with and without flash attention; its better setting counts. llama-bench measures one sequence,
llama-batched-bench those of --batch.")]
pub(crate) struct Options {
    #[command(flatten)]
    model: ModelOption,
    /// Tokens of a prompt; 0 measures none
    #[arg(short, value_name = "N", default_value_t = 512, value_parser = within(0..=1_usize << 24))]
    p: usize,
    /// Tokens to generate; 0 measures none
    #[arg(short, value_name = "N", default_value_t = 128, value_parser = within(0..=1_usize << 24))]
    n: usize,
    /// Tokens in the context before each measurement
    #[arg(long, short, value_name = "N", default_value_t = 0, value_parser = within(0..=1_usize << 24))]
    depth: usize,
    /// Sequences that are decoded together, separated by commas: one measurement each, at most 32
    #[arg(long, value_name = "B,...", value_delimiter = ',', value_parser = within(1..=32_usize))]
    batch: Vec<usize>,
    /// How the layers of a token are computed; not with --batch, which has a graph
    #[arg(long, conflicts_with = "batch", value_name = "WAY", default_value = "fastest")]
    layers: LayersOption,
    /// How keys and values are stored
    #[arg(long, value_name = "FORMAT", default_value = "f16")]
    kv: KvOption,
    /// Repetitions
    #[arg(short, value_name = "N", default_value_t = 5, value_parser = within(1..=1000_usize))]
    r: usize,
    /// Measure llama.cpp's bench as well: llama-bench=PATH, llama-batched-bench=PATH, or both, each with --against
    #[arg(long, value_name = "NAME=PATH", value_parser = rival)]
    against: Vec<Rival>,
    /// More arguments for the rivals, between spaces
    #[arg(long, value_name = "ARGUMENTS", allow_hyphen_values = true, requires = "against")]
    against_args: Option<String>,
    /// Print the results as JSON instead of the text; with FILE, write them to this file
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
    #[command(flatten)]
    device: DeviceOptions,
    #[command(flatten)]
    profile: ProfileOptions,
}

impl Options {
    /// Returns an error for combinations that measure nothing.
    fn check(&self) -> Result<(), UsageError> {
        if self.p == 0 && self.n == 0 {
            return Err(UsageError("nothing to measure: give -p or -n".to_owned()));
        }
        if self.n == 0 && !self.batch.is_empty() {
            return Err(UsageError("--batch measures made tokens: give -n".to_owned()));
        }
        if self.batch.is_empty() && self.rival(Tool::BatchedBench).is_some() {
            return Err(UsageError(
                "llama-batched-bench measures sequences together: give --batch".to_owned(),
            ));
        }
        self.against.iter().try_for_each(Rival::check)
    }

    /// The last rival of a kind, with all arguments.
    fn rival(&self, tool: Tool) -> Option<Rival> {
        let rival = self.against.iter().rfind(|rival| rival.tool == tool).cloned();
        rival.map(|rival| rival.with(self.against_args.as_deref().unwrap_or_default()))
    }
}

/// Rates of a test in tokens/s.
#[derive(Debug, Default)]
struct Test {
    ours: Vec<f64>,
    /// By setting.
    theirs: BTreeMap<String, Vec<f64>>,
}

impl Test {
    /// The rival's best setting and its median.
    fn best(&self) -> Option<(&str, f64)> {
        let medians = self.theirs.iter().map(|(setting, rates)| (setting.as_str(), median(rates)));
        medians.max_by(|left, right| left.1.total_cmp(&right.1))
    }

    fn json(&self, name: &str) -> Value {
        let mut value = json!({ "name": name, "tokens_per_s": median(&self.ours), "samples": self.ours });
        if let Some((setting, rate)) = self.best() {
            value["rival"] = json!({ "tokens_per_s": rate, "setting": setting, "samples": self.theirs });
            value["ratio"] = json!(median(&self.ours) / rate);
        }
        value
    }
}

/// The median; 0 if there are no numbers.
fn median(numbers: &[f64]) -> f64 {
    share(numbers, 0.5)
}

/// The quantile `share`; 0 if there are no numbers.
fn share(numbers: &[f64], share: f64) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    // CAST: an index.
    sorted[(share * last as f64).round() as usize]
}

/// Results of a test.
struct Measured {
    prefill: Test,
    decode: Test,
    /// Seconds per token.
    steps: Vec<f64>,
    batches: Vec<Batched>,
}

/// Results with several sequences.
#[derive(Debug, Default)]
struct Batched {
    sequences: usize,
    /// Tokens of all sequences.
    test: Test,
    /// Seconds per step.
    steps: Vec<f64>,
    launches: usize,
}

/// Measures a model.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    options.check()?;
    let output = options.json.as_ref().map(Output::prepare).transpose().map_err(UsageError::from)?;
    output.iter().try_for_each(|output| output.spare([options.model.path()])).map_err(UsageError::from)?;
    let model = options.model.open()?;
    // The vector that the first made token follows is part of the context.
    let context = options.depth + options.p.max(options.n + 1) + 1;
    model.shape().admit(context - 1, context).map_err(refused)?;
    let recording = options.profile.begin().map_err(UsageError::from)?;
    let device = options.device.open()?;
    let stop = Stop::on_signals()?;
    let session = if options.batch.is_empty() { options.layers.session() } else { SessionOptions::default() };
    let most = options.batch.iter().copied().max().unwrap_or(1);
    let contexts = Contexts { sessions: most, positions: context, kv: options.kv.into() };
    let mut loaded = Loaded::with(&device, &model, contexts, &session)?;
    let measured = measure(options, &model, &mut loaded, &stop)?;
    let bandwidth = options.device.bandwidth(device.info());
    let is_sim = device.info().kind == DeviceKind::Sim;
    let report = report(options, &model, &loaded, &measured, bandwidth, is_sim);
    let on_stdout = output.as_ref().is_some_and(Output::is_stdout);
    if !on_stdout {
        print(&report)?;
    }
    if let Some(output) = output {
        output.write(format!("{report:#}\n").as_bytes())?;
    }
    drop(loaded);
    recording.finish()?;
    let status = if stop.is_requested() { ExitStatus::Interrupted } else { ExitStatus::Success };
    Ok(status.into())
}

fn measure(options: &Options, model: &Model, loaded: &mut Loaded, stop: &Stop) -> Result<Measured> {
    let [rival, batch_rival] = [Tool::Bench, Tool::BatchedBench].map(|tool| options.rival(tool));
    let batches =
        options.batch.iter().map(|sequences| Batched { sequences: *sequences, ..Batched::default() });
    let mut measured = Measured {
        prefill: Test::default(),
        decode: Test::default(),
        steps: Vec::new(),
        batches: batches.collect(),
    };
    let progress = Progress::new("measuring");
    // The first run is not counted: it fills caches.
    for round in 0..=options.r {
        progress.set(&format!("round {round} of {}", options.r));
        let session = &mut loaded.sessions[0];
        let prefill = prefill(options, model, session)?;
        let steps =
            if options.batch.is_empty() { decode(options, model, session, stop)? } else { Vec::new() };
        for batched in &mut measured.batches {
            let (steps, launches) = decode_batch(options, model, loaded, batched.sequences, stop)?;
            if round > 0 && !stop.is_requested() {
                let tokens = batched.sequences * steps.len();
                batched.test.ours.push(tokens as f64 / steps.iter().sum::<f64>());
                batched.steps.extend(steps);
                batched.launches = launches;
            }
        }
        if stop.is_requested() {
            break;
        }
        if round == 0 {
            continue;
        }
        let total: f64 = steps.iter().sum();
        if options.p > 0 {
            measured.prefill.ours.push(options.p as f64 / prefill.as_secs_f64());
        }
        if options.n > 0 && options.batch.is_empty() {
            measured.decode.ours.push(options.n as f64 / total);
        }
        measured.steps.extend(steps);
        let sizes = (options.p, options.n, options.depth);
        let samples = rival.as_ref().map(|rival| rival.run(options.model.path(), sizes, stop)).transpose()?;
        for Sample { prompt, made, setting, rate } in samples.flatten().unwrap_or_default() {
            let test =
                if made == options.n && prompt == 0 { &mut measured.decode } else { &mut measured.prefill };
            test.theirs.entry(setting).or_default().push(rate);
        }
        if let Some(rival) = &batch_rival {
            measure_batches(options, rival, &mut measured.batches, stop)?;
        }
    }
    Ok(measured)
}

/// Measures the rival of batches once.
fn measure_batches(options: &Options, rival: &Rival, batches: &mut [Batched], stop: &Stop) -> Result<()> {
    // Ours have a token more than the depth before the first that is made.
    let test = BatchTest { prompt: options.depth + 1, made: options.n, batches: &options.batch };
    let settings = rival.run_batches(options.model.path(), &test, stop)?;
    for BatchSample { setting, rates } in settings.into_iter().flatten() {
        for (batched, rate) in batches.iter_mut().zip(rates) {
            batched.test.theirs.entry(setting.clone()).or_default().push(rate);
        }
    }
    Ok(())
}

/// Some tokens, the same for the same positions.
fn tokens(model: &Model, count: usize) -> Vec<u32> {
    // CAST: a vocabulary has at most 2^20 tokens.
    let vocabulary = model.shape().vocabulary as u32;
    // The multiplier of a well-known generator spreads them.
    (0..count as u32).map(|at| at.wrapping_mul(2_654_435_761).rotate_left(16) % vocabulary).collect()
}

/// Fills the context to the depth, without being measured.
fn prepare(model: &Model, depth: usize, session: &mut Session) -> Result<()> {
    session.clear()?;
    session.feed(&tokens(model, depth))?;
    Ok(session.wait()?)
}

/// The time of a prompt.
fn prefill(options: &Options, model: &Model, session: &mut Session) -> Result<Duration> {
    prepare(model, options.depth, session)?;
    let prompt = tokens(model, options.p);
    let start = Instant::now();
    session.feed(&prompt)?;
    session.wait()?;
    Ok(start.elapsed())
}

/// The time of each generated token.
fn decode(options: &Options, model: &Model, session: &mut Session, stop: &Stop) -> Result<Vec<f64>> {
    prepare(model, options.depth + 1, session)?;
    let mut steps = Vec::with_capacity(options.n);
    let mut last = Instant::now();
    for token in session.tokens(options.n)? {
        token?;
        let now = Instant::now();
        steps.push((now - last).as_secs_f64());
        last = now;
        if stop.is_requested() {
            break;
        }
    }
    Ok(steps)
}

/// The time of each step of several sequences, and the launches of a step.
fn decode_batch(
    options: &Options,
    model: &Model,
    loaded: &mut Loaded,
    sequences: usize,
    stop: &Stop,
) -> Result<(Vec<f64>, usize)> {
    let mut batch = loaded.engine.batch(sequences)?;
    for mut session in loaded.sessions.drain(..sequences) {
        prepare(model, options.depth + 1, &mut session)?;
        batch.join(session)?;
    }
    let mut steps = Vec::with_capacity(options.n);
    let mut last = Instant::now();
    for _ in 0..options.n {
        batch.step()?;
        let now = Instant::now();
        steps.push((now - last).as_secs_f64());
        last = now;
        if stop.is_requested() {
            break;
        }
    }
    let launches = batch.launches_per_step();
    for slot in batch.slots().collect::<Vec<_>>() {
        loaded.sessions.push(batch.leave(slot)?);
    }
    Ok((steps, launches))
}

fn report(
    options: &Options,
    model: &Model,
    loaded: &Loaded,
    measured: &Measured,
    bandwidth: Option<f64>,
    is_sim: bool,
) -> Value {
    let mut tests = Vec::new();
    if !measured.prefill.ours.is_empty() {
        tests.push(measured.prefill.json(&format!("prefill {}", options.p)));
    }
    if !measured.decode.ours.is_empty() {
        let mut test = measured.decode.json(&format!("decode {}", options.n));
        let rate = median(&measured.decode.ours);
        let bytes = bytes_at(model, options.kv.into(), options.depth as f64 + options.n as f64 / 2.0);
        test["us_per_token"] = json!(1e6 / rate);
        test["us_median"] = json!(1e6 * median(&measured.steps));
        test["us_p99"] = json!(1e6 * share(&measured.steps, 0.99));
        test["gb_per_s"] = json!(rate * bytes / 1e9);
        if let Some(bandwidth) = bandwidth {
            test["share_of_bandwidth"] = json!(rate * bytes / 1e9 / bandwidth);
        }
        tests.push(test);
    }
    for batched in measured.batches.iter().filter(|batched| !batched.test.ours.is_empty()) {
        let sequences = batched.sequences;
        let mut test = batched.test.json(&format!("decode {}, batch {sequences}", options.n));
        test["sequences"] = json!(sequences);
        test["us_median"] = json!(1e6 * median(&batched.steps));
        test["us_p99"] = json!(1e6 * share(&batched.steps, 0.99));
        test["launches"] = json!(batched.launches);
        tests.push(test);
    }
    let info = loaded.engine.device().info();
    let bytes = bytes_at(model, options.kv.into(), options.depth as f64 + options.n as f64 / 2.0);
    let computed = json!({
        "bandwidth_gb_per_s": ORIN_BANDWIDTH,
        "read_bytes": bytes.round(),
        "us_per_token": bytes / ORIN_BANDWIDTH / 1e3,
        "tokens_per_s": ORIN_BANDWIDTH * 1e9 / bytes,
    });
    json!({
        "model": options.model.path().display().to_string(),
        "device": info.name().to_string(),
        "chip": info.chip,
        "measured_on_an_interpreter": is_sim,
        "depth": options.depth,
        "load_s": loaded.time.as_secs_f64(),
        "weights_bytes": loaded.memory.weights,
        "cache_bytes": loaded.memory.cache,
        "read_per_token_bytes": model.bytes_per_token(),
        "launches_per_token": loaded.sessions[0].launches_per_token(),
        "computed_limit_of_an_orin": if is_sim { computed } else { Value::Null },
        "tests": tests,
    })
}

/// Prints the results as text.
fn print(report: &Value) -> Result<()> {
    let mut out = stdout();
    let text = |key: &str| report[key].as_str().unwrap_or_default().escape_debug().to_string();
    writeln!(
        out,
        "{} on {} ({}), depth {}, {} launches per token, loaded in {:.2} s",
        text("model"),
        text("device"),
        text("chip"),
        report["depth"],
        report["launches_per_token"],
        report["load_s"].as_f64().unwrap_or(0.0)
    )?;
    if report["measured_on_an_interpreter"] == true {
        writeln!(out, "times are those of the software Orin, not of a GPU")?;
        let computed = |key: &str| report["computed_limit_of_an_orin"][key].as_f64().unwrap_or(0.0);
        writeln!(
            out,
            "computed, not measured: at an Orin's {ORIN_BANDWIDTH} GB/s, the {:.1} MB of a token take {:.0} µs, so at \
             most {:.1} tokens/s",
            computed("read_bytes") / 1e6,
            computed("us_per_token"),
            computed("tokens_per_s")
        )?;
    }
    for test in report["tests"].as_array().into_iter().flatten() {
        let number = |value: &Value| value.as_f64().unwrap_or(0.0);
        write!(
            out,
            "{:20} {:10.1} tokens/s",
            test["name"].as_str().unwrap_or_default(),
            number(&test["tokens_per_s"])
        )?;
        if test["us_p99"].is_number() {
            let (median, p99) = (number(&test["us_median"]), number(&test["us_p99"]));
            let what = if test["sequences"].is_number() { "step" } else { "token" };
            write!(out, ", {median:.1} µs per {what}, 99th percentile {p99:.1}")?;
        }
        if test["gb_per_s"].is_number() {
            write!(out, ", {:.1} GB/s", number(&test["gb_per_s"]))?;
        }
        if test["share_of_bandwidth"].is_number() {
            write!(out, " ({:.0} % of the memory's)", 100.0 * number(&test["share_of_bandwidth"]))?;
        }
        if test["ratio"].is_number() {
            let setting = test["rival"]["setting"].as_str().unwrap_or_default();
            let rate = number(&test["rival"]["tokens_per_s"]);
            write!(out, "; llama.cpp {rate:.1} ({setting}), ratio {:.2}", number(&test["ratio"]))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_better_setting_of_the_rival_counts() {
        let mut test = Test { ours: vec![9.0, 8.0, 10.0], theirs: BTreeMap::new() };
        assert!(test.best().is_none() && test.json("x")["ratio"].is_null());
        test.theirs.insert("off".to_owned(), vec![1.0, 9.0, 2.0]);
        test.theirs.insert("on".to_owned(), vec![3.0, 2.5, 3.5]);
        assert_eq!(test.best(), Some(("on", 3.0)));
        assert_eq!(test.json("x")["ratio"], 3.0);
    }

    #[test]
    fn shares_of_few_numbers_are_some_of_them() {
        assert_eq!((median(&[]), median(&[4.0]), median(&[3.0, 1.0, 2.0])), (0.0, 4.0, 2.0));
        let hundred: Vec<f64> = (0..=100).map(f64::from).collect();
        assert_eq!((share(&hundred, 0.99), share(&hundred, 1.0)), (99.0, 100.0));
    }
}
