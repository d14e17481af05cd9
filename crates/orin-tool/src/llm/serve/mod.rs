//! `orin llm serve`: a model behind OpenAI's interface over HTTP.
//!
//! One thread speaks HTTP. The calling thread owns the model: it takes requests from a bounded queue and answers up to
//! `--parallel` of them together, see `work`.

mod answer;
mod embeddings;
mod generate;
mod grammar;
mod http;
mod key;
mod logprobs;
mod messages;
mod metrics;
mod reply;
mod request;
#[cfg(test)]
mod request_bytes;
mod stops;
mod work;

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use anyhow::{Context, Result};
use infer::chat::{AnswerPart, Template};
use infer::decode::Sampling;
use infer::tokenizer::Tokenizer;
use llguidance::Matcher;
use orin_cli::{ExitStatus, Stop, UsageError, warn, within};
use tokio::sync::mpsc::UnboundedSender;

use super::device::{Contexts, DeviceOptions, KvOption, Loaded, context};
use super::{ModelOption, megabytes, refused};
use answer::Source;
use embeddings::Pooling;
use grammar::Grammars;
use key::Key;
use logprobs::Chosen;
use metrics::Metrics;
use request::Refusal;
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
  curl http://127.0.0.1:8080/metrics

Requests are answered together, up to --parallel at a time; the others wait in a queue. On an address that others can
reach, set a key (--api-key-file, or ORIN_LLM_API_KEY), and put a proxy with TLS in front.

Ctrl-C or SIGTERM ends the server when the answers in progress are complete, after --grace seconds at the latest; the
exit code is 0. A second signal ends it at once, with exit code 130.")]
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
    /// Requests need this key (`Authorization: Bearer KEY`); other users of the machine see it in the list of processes
    #[arg(long, value_name = "KEY", conflicts_with = "api_key_file")]
    api_key: Option<String>,
    /// The same with the first line of a file [default: the variable ORIN_LLM_API_KEY, if it is set]
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// Answer /v1/embeddings, and how: for files that do not say it themselves
    #[arg(long, value_name = "POOLING")]
    embeddings: Option<Pooling>,
    /// Longest time in seconds in which answers in progress may end after Ctrl-C or SIGTERM
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = within(0..=86_400_u64))]
    grace: u64,
    #[command(flatten)]
    device: DeviceOptions,
}

/// What the thread with the model has to do for a request: an answer, or the vector of a text.
struct Job {
    /// Which of the request's answers it is.
    index: usize,
    tokens: Arc<[u32]>,
    task: Task,
    reply: UnboundedSender<(usize, Event)>,
}

/// The kind of a job.
enum Task {
    Text(Box<Text>),
    Vector(Pooling),
    /// It has begun.
    Taken,
}

/// How a text is made.
struct Text {
    source: Source,
    sampling: Sampling,
    /// Most tokens of the answer.
    limit: usize,
    /// Texts that end the answer.
    stops: Vec<String>,
    /// Log probabilities beside those of the answer; `None` for none.
    logprobs: Option<usize>,
    grammar: Option<Matcher>,
    /// Whether the first call of a tool ends the answer.
    one_call: bool,
}

/// Why an answer ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    /// The model, a text or a grammar ended it.
    Stop,
    /// It has as many tokens as it may have.
    Length,
    /// The model called tools.
    Calls,
}

/// Tokens of an answer.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    made: usize,
    /// Tokens of the prompt that a context had already.
    known: usize,
}

impl Counts {
    /// Adds those of another answer to the same prompt.
    fn add(&mut self, more: Self) {
        self.made += more.made;
        self.known = self.known.max(more.known);
    }
}

/// An event of an answer.
#[derive(Debug)]
enum Event {
    /// Parts of the answer, and log probabilities of the tokens of their text.
    Parts { parts: Vec<AnswerPart>, tokens: Vec<Chosen> },
    /// The answer is complete.
    End { reason: Reason, counts: Counts },
    /// The vector of a text.
    Vector(Vec<f32>),
    /// The device failed, a grammar cannot be continued, or the program ends.
    Failed(Refusal),
}

impl Job {
    /// The task, which begins.
    fn take(&mut self) -> Task {
        std::mem::replace(&mut self.task, Task::Taken)
    }

    /// Whether the client has disconnected.
    fn is_gone(&self) -> bool {
        self.reply.is_closed()
    }

    /// Sends an event; returns whether there is a client.
    fn send(&self, event: Event) -> bool {
        self.reply.send((self.index, event)).is_ok()
    }

    fn fail(&self, refusal: Refusal) {
        // The client may have disconnected.
        let _ = self.send(Event::Failed(refusal));
    }
}

/// Properties of the model and of the server that the HTTP threads use.
struct Facts {
    name: String,
    tokenizer: Tokenizer,
    /// Why conversations are not possible, if they are not.
    template: Result<Template, String>,
    grammars: Grammars,
    /// Why embeddings are not possible, if they are not.
    pooling: Result<Pooling, String>,
    /// The token that follows a text of which an embedding is made.
    text_end: Option<u32>,
    context: usize,
    vocabulary: usize,
    width: usize,
    /// Answers at the same time.
    parallel: usize,
}

impl Facts {
    fn new(options: &Options, model: &infer::model::Model, context: usize) -> Result<Self> {
        let path = options.model.path();
        Ok(Self {
            name: path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
            tokenizer: Tokenizer::new(model.file())?,
            template: Template::of(model.file()).map_err(|error| error.to_string()),
            grammars: Grammars::default(),
            pooling: Pooling::of(model, options.embeddings)?,
            text_end: embeddings::text_end(model.file())?,
            context,
            vocabulary: model.shape().vocabulary,
            width: model.shape().width,
            parallel: options.parallel,
        })
    }
}

/// Loads the model and answers requests until a signal arrives.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let model = options.model.open()?;
    let context = context(options.ctx, &model);
    let facts = Arc::new(Facts::new(options, &model, context)?);
    model.shape().admit(0, context).map_err(refused)?;
    let key = Key::of(options.api_key.as_deref(), options.api_key_file.as_deref())?;
    let address = SocketAddr::new(options.host, options.port);
    let listener = TcpListener::bind(address).map_err(|error| UsageError(format!("{address}: {error}")))?;
    let stop = Stop::on_signals()?;
    let device = options.device.open()?;
    let contexts = Contexts { sessions: options.parallel, positions: context, kv: options.kv.into() };
    let mut loaded = Loaded::new(&device, &model, contexts)?;
    let (sender, jobs) = sync_channel(options.queue);
    let (metrics, grace) = (Arc::new(Metrics::default()), Duration::from_secs(options.grace));
    let shared = http::Shared::new(Arc::clone(&facts), Arc::clone(&metrics), sender, key, stop.clone());
    let server = http::Server::new(listener, shared, grace)?;
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
        let worked = Worker::new(&loaded.engine, std::mem::take(&mut loaded.sessions), &facts, metrics)
            .and_then(|worker| worker.run(&jobs, &stop, grace));
        // Requests that wait learn that the server ends.
        drop(jobs);
        stop.request();
        // PANIC: a panic of the thread is a bug there.
        thread.join().expect("the thread ends")?;
        worked
    })?;
    Ok(ExitStatus::Success.into())
}
