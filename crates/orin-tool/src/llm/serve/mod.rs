//! `orin llm serve`: a model behind OpenAI's interface over HTTP.
//!
//! One thread speaks HTTP. The calling thread owns the model: it takes one request after another from a bounded queue,
//! so the memory of the device is that of one session. A conversation that goes on keeps its part of the context.

mod http;
mod reply;
mod request;
mod stops;

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use infer::chat::Format;
use infer::decode::{Sampling, Session};
use infer::tokenizer::{Decoder, Tokenizer};
use orin_cli::{ExitStatus, Stop, UsageError, warn, within};
use tokio::sync::mpsc::UnboundedSender;

use super::device::{DeviceOptions, Loaded, context};
use super::{ModelOption, megabytes, refused};
use stops::Stops;

/// Time between looks at Ctrl-C.
const BEAT: Duration = Duration::from_millis(100);

/// Options of the command.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  orin llm serve --model model.gguf
  curl http://127.0.0.1:8080/v1/completions -H 'Content-Type: application/json' \\
      -d '{\"prompt\": \"The capital of France is\", \"max_tokens\": 8}'
  OPENAI_BASE_URL=http://127.0.0.1:8080/v1 OPENAI_API_KEY=none python program.py

Requests wait in a queue and are answered one after another. There is no authentication: on an address that others can
reach, put a proxy in front that has it.")]
pub(crate) struct Options {
    #[command(flatten)]
    model: ModelOption,
    /// Address to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    host: IpAddr,
    /// Port to listen on; 0 is a free one, which is printed
    #[arg(long, value_name = "PORT", default_value_t = 8080)]
    port: u16,
    /// Requests that may wait; more are refused with status 503
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = within(1..=1024_usize))]
    queue: usize,
    /// Positions of the context [default: 4096, or what the model has]
    #[arg(long, value_name = "N", value_parser = within(1..=1_usize << 30))]
    ctx: Option<usize>,
    #[command(flatten)]
    device: DeviceOptions,
}

/// A request as the thread with the model gets it.
struct Job {
    tokens: Vec<u32>,
    sampling: Sampling,
    /// Most tokens of the answer.
    limit: usize,
    /// Texts that end the answer.
    stops: Vec<String>,
    reply: UnboundedSender<Event>,
}

/// What happens to a request.
#[derive(Debug)]
enum Event {
    /// A part of the answer.
    Text(String),
    /// The answer is complete.
    End { is_cut: bool, made: usize },
    /// The device failed, or the program ends.
    Failed(String),
}

/// What the threads that speak HTTP know of the model.
struct Facts {
    name: String,
    tokenizer: Tokenizer,
    /// Why conversations are not possible, if they are not.
    format: Result<Format, String>,
    context: usize,
    vocabulary: usize,
}

/// Loads the model and answers requests until a signal comes.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let model = options.model.open()?;
    let tokenizer = Tokenizer::new(model.file())?;
    let context = context(options.ctx, &model);
    model.shape().admit(0, context).map_err(refused)?;
    let address = SocketAddr::new(options.host, options.port);
    let listener = TcpListener::bind(address).map_err(|error| UsageError(format!("{address}: {error}")))?;
    let stop = Stop::on_signals()?;
    let device = options.device.open()?;
    let mut loaded = Loaded::new(&device, &model, context)?;
    let name = options.model.model.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let format = Format::of(model.file()).map_err(|error| error.to_string());
    let facts = Facts { name, tokenizer, format, context, vocabulary: model.shape().vocabulary };
    let facts = std::sync::Arc::new(facts);
    let (sender, jobs) = sync_channel(options.queue);
    let server = http::Server::new(listener, std::sync::Arc::clone(&facts), sender, stop.clone())?;
    warn(format_args!(
        "{} on {} ({} and {} of context), loaded in {:.2} s; listening on http://{}",
        facts.name,
        device.info().name(),
        megabytes(loaded.memory.weights),
        megabytes(loaded.memory.cache),
        loaded.time.as_secs_f64(),
        server.address()
    ));
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("http".to_owned()).spawn_scoped(scope, || server.run());
        let thread = thread.context("starting the thread that speaks HTTP")?;
        let worked = work(&jobs, &facts.tokenizer, &mut loaded.session, &stop);
        stop.request();
        // PANIC: a panic of the thread is a bug there.
        thread.join().expect("the thread ends")?;
        worked
    })?;
    Ok(ExitStatus::Interrupted.into())
}

/// Answers requests until a signal comes or the device fails.
fn work(jobs: &Receiver<Job>, tokenizer: &Tokenizer, session: &mut Session, stop: &Stop) -> Result<()> {
    while !stop.is_requested() {
        let job = match jobs.recv_timeout(BEAT) {
            Ok(job) => job,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        };
        // Who asked may have left while the request waited.
        if job.reply.is_closed() {
            continue;
        }
        if let Err(error) = answer(&job, tokenizer, session, stop) {
            let text = format!("{error:#}");
            // The asker may have left; the program ends all the same.
            let _ = job.reply.send(Event::Failed(text));
            return Err(error);
        }
    }
    Ok(())
}

/// Answers a request. An asker who leaves ends its answer.
fn answer(job: &Job, tokenizer: &Tokenizer, session: &mut Session, stop: &Stop) -> Result<()> {
    let start = Instant::now();
    let known = session.context_tokens().iter().zip(&job.tokens).take_while(|(old, new)| old == new).count();
    session.truncate(known)?;
    session.feed(&job.tokens[known..])?;
    session.set_sampling(&job.sampling)?;
    let (mut decoder, mut stops) = (Decoder::default(), Stops::new(&job.stops));
    let (mut made, mut is_cut) = (0, true);
    for token in session.tokens(job.limit)? {
        let token = token?;
        made += 1;
        if stop.is_requested() {
            let _ = job.reply.send(Event::Failed("the server ends".to_owned()));
            return Ok(());
        }
        if tokenizer.is_stop(token) {
            is_cut = false;
            break;
        }
        let text = stops.push(&decoder.push(tokenizer, token));
        let is_gone =
            if text.is_empty() { job.reply.is_closed() } else { job.reply.send(Event::Text(text)).is_err() };
        if is_gone {
            return Ok(());
        }
        if stops.is_found() {
            is_cut = false;
            break;
        }
    }
    let rest = stops.push(&decoder.finish()) + &stops.finish();
    // The asker may leave at any time.
    if !rest.is_empty() {
        let _ = job.reply.send(Event::Text(rest));
    }
    let _ = job.reply.send(Event::End { is_cut, made });
    let fed = job.tokens.len() - known;
    warn(format_args!("{fed} tokens read, {made} made in {:.2} s", start.elapsed().as_secs_f64()));
    Ok(())
}
