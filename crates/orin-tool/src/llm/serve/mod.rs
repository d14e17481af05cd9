//! `orin llm serve`: a model behind OpenAI's interface over HTTP.
//!
//! One thread speaks HTTP. The calling thread owns the model: it takes requests from a bounded queue and answers up to
//! `--parallel` of them together, see `work`.

mod http;
mod reply;
mod request;
#[cfg(test)]
mod request_bytes;
mod stops;
mod work;

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::process::ExitCode;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use anyhow::{Context, Result};
use infer::chat::Template;
use infer::decode::Sampling;
use infer::tokenizer::Tokenizer;
use orin_cli::{ExitStatus, Stop, UsageError, warn, within};
use tokio::sync::mpsc::UnboundedSender;

use super::device::{Contexts, DeviceOptions, KvOption, Loaded, context};
use super::{ModelOption, megabytes, refused};
use work::Worker;

/// Interval between checks for Ctrl-C.
const BEAT: Duration = Duration::from_millis(100);

/// Options of the command.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  orin llm serve --model model.gguf
  curl http://127.0.0.1:8080/v1/completions -H 'Content-Type: application/json' \\
      -d '{\"prompt\": \"The capital of France is\", \"max_tokens\": 8}'
  OPENAI_BASE_URL=http://127.0.0.1:8080/v1 OPENAI_API_KEY=none python program.py

Requests are answered together, up to --parallel at a time; the others wait in a queue. There is no authentication: on
an address that others can reach, put a proxy in front that has it.")]
pub(crate) struct Options {
    #[command(flatten)]
    model: ModelOption,
    /// Address to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    host: IpAddr,
    /// Port to listen on; 0 is a free one, which is printed
    #[arg(long, value_name = "PORT", default_value_t = 8080, value_parser = within(0..=u16::MAX))]
    port: u16,
    /// Requests that are answered at the same time; each has memory for a context of its own
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = within(1..=32_usize))]
    parallel: usize,
    /// Requests that may wait; more are refused with status 503
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = within(1..=1024_usize))]
    queue: usize,
    /// Positions of the context [default: 4096, or the model's if it is shorter]
    #[arg(long, value_name = "N", value_parser = within(1..=1_usize << 30))]
    ctx: Option<usize>,
    /// How keys and values are stored
    #[arg(long, value_name = "FORMAT", default_value = "f16")]
    kv: KvOption,
    #[command(flatten)]
    device: DeviceOptions,
}

/// A request for the thread with the model.
struct Job {
    tokens: Vec<u32>,
    sampling: Sampling,
    /// Most tokens of the answer.
    limit: usize,
    /// Texts that end the answer.
    stops: Vec<String>,
    reply: UnboundedSender<Event>,
}

/// An event of a request.
#[derive(Debug)]
enum Event {
    /// A part of the answer.
    Text(String),
    /// The answer is complete.
    End { is_cut: bool, made: usize },
    /// The device failed, or the program ends.
    Failed(String),
}

/// Properties of the model that the HTTP threads use.
struct Facts {
    name: String,
    tokenizer: Tokenizer,
    /// Why conversations are not possible, if they are not.
    template: Result<Template, String>,
    context: usize,
    vocabulary: usize,
}

/// Loads the model and answers requests until a signal arrives.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let model = options.model.open()?;
    let tokenizer = Tokenizer::new(model.file())?;
    let context = context(options.ctx, &model);
    model.shape().admit(0, context).map_err(refused)?;
    let address = SocketAddr::new(options.host, options.port);
    let listener = TcpListener::bind(address).map_err(|error| UsageError(format!("{address}: {error}")))?;
    let stop = Stop::on_signals()?;
    let device = options.device.open()?;
    let contexts = Contexts { sessions: options.parallel, positions: context, kv: options.kv.into() };
    let mut loaded = Loaded::new(&device, &model, contexts)?;
    let name = options.model.path().file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let template = Template::of(model.file()).map_err(|error| error.to_string());
    let facts = Facts { name, tokenizer, template, context, vocabulary: model.shape().vocabulary };
    let facts = std::sync::Arc::new(facts);
    let (sender, jobs) = sync_channel(options.queue);
    let server = http::Server::new(listener, std::sync::Arc::clone(&facts), sender, stop.clone())?;
    warn(format_args!(
        "{} on {} ({} of memory, {} of it for contexts), loaded in {:.2} s; listening on http://{}",
        facts.name,
        device.info().name(),
        megabytes(loaded.memory.total()),
        megabytes(loaded.memory.cache),
        loaded.time.as_secs_f64(),
        server.address()
    ));
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("http".to_owned()).spawn_scoped(scope, || server.run());
        let thread = thread.context("starting the thread that speaks HTTP")?;
        let worked = Worker::new(&loaded.engine, std::mem::take(&mut loaded.sessions), &facts.tokenizer)
            .and_then(|worker| worker.run(&jobs, &stop));
        stop.request();
        // PANIC: a panic of the thread is a bug there.
        thread.join().expect("the thread ends")?;
        worked
    })?;
    Ok(ExitStatus::Interrupted.into())
}
