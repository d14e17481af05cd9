//! `orin llm run`: text from a model, printed token by token.

use std::io::{BufRead, IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Result;
use infer::chat::{Answer, AnswerParser, AnswerPart, Conversation, Message, Role, Template};
use infer::decode::{Sampling, Session};
use infer::model::Model;
use infer::tokenizer::{Controls, Decoder, Tokenizer};
use orin_cli::{ExitStatus, Stop, UsageError, plain_stdout, warn, within};
use serde_json::Value;
use tegra_hcq::{Device, DeviceKind};

use super::device::{Contexts, DeviceOptions, KvOption, LayersOption, Loaded, bytes_at, context};
use super::{ModelOption, megabytes, refused};

/// Options of the command.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  orin llm run --model model.gguf --prompt 'The capital of France is' -n 32
  orin llm run --model model.gguf --chat --prompt 'Why is the sky blue?' --temp 0.7 --seed 1
  orin llm run --model model.gguf --chat          a conversation: one line per turn, until Ctrl-D

The text goes to standard output; thoughts of a conversation and the statistics to standard error. Ctrl-C ends the text;
the exit code is then 130.")]
pub(crate) struct Options {
    #[command(flatten)]
    model: ModelOption,
    /// The text to continue, or the message to answer with --chat
    #[arg(long, short, value_name = "TEXT")]
    prompt: Option<String>,
    /// Address the model in the format of its chat template
    #[arg(long)]
    chat: bool,
    /// Instructions in front of the conversation
    #[arg(long, value_name = "TEXT", requires = "chat")]
    system: Option<String>,
    /// Set a variable of the chat template, such as enable_thinking=false; may be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable, requires = "chat")]
    set: Vec<(String, Value)>,
    /// Most tokens of an answer [default: until the model ends it, or the context is full]
    #[arg(short, value_name = "N", value_parser = within(1..=1_usize << 30))]
    n: Option<usize>,
    #[command(flatten)]
    sampling: SamplingOptions,
    /// Positions of the context [default: 4096, or the model's if it is shorter]
    #[arg(long, value_name = "N", value_parser = within(1..=1_usize << 30))]
    ctx: Option<usize>,
    /// How the layers of a token are computed
    #[arg(long, value_name = "WAY", default_value = "fastest")]
    layers: LayersOption,
    /// How keys and values are stored
    #[arg(long, value_name = "FORMAT", default_value = "f16")]
    kv: KvOption,
    #[command(flatten)]
    device: DeviceOptions,
}

/// A variable of a template: JSON, or a text.
fn variable(text: &str) -> Result<(String, Value), String> {
    let (name, value) = text.split_once('=').ok_or("write it as NAME=VALUE")?;
    Ok((name.to_owned(), serde_json::from_str(value).unwrap_or_else(|_| value.into())))
}

/// How tokens are chosen.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct SamplingOptions {
    /// Temperature; 0 takes the most probable token
    #[arg(long, value_name = "T", default_value_t = 0.0)]
    temp: f32,
    /// Choose among this many tokens; 0 is all
    #[arg(long, value_name = "K", default_value_t = 0, value_parser = within(0..=u32::MAX))]
    top_k: u32,
    /// Choose among the most probable tokens that have this share together
    #[arg(long, value_name = "P", default_value_t = 1.0)]
    top_p: f32,
    /// Choose among tokens with this share of the most probable one's probability
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    min_p: f32,
    /// Make recent tokens less probable; 1 does not
    #[arg(long, value_name = "F", default_value_t = 1.0)]
    repeat_penalty: f32,
    /// Start of the random numbers
    #[arg(long, value_name = "S", default_value_t = 0, value_parser = within(0..=u64::MAX))]
    seed: u64,
}

impl SamplingOptions {
    pub(super) fn sampling(&self) -> Result<Sampling> {
        let sampling = Sampling {
            temperature: self.temp,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            penalty: self.repeat_penalty,
            seed: self.seed,
            ..Sampling::default()
        };
        sampling.check().map_err(refused)?;
        Ok(sampling)
    }
}

/// Statistics of a run.
#[derive(Default)]
struct Statistics {
    fed: usize,
    feeding: Duration,
    made: usize,
    making: Duration,
    /// Bytes that the generated tokens read.
    bytes: f64,
}

impl Statistics {
    /// One line per phase.
    fn print(&self, loaded: &Loaded, bandwidth: Option<f64>) {
        let rate = |tokens: usize, time: Duration| tokens as f64 / time.as_secs_f64().max(1e-9);
        let memory = loaded.memory;
        warn(format_args!(
            "load     {:.2} s: weights {}, keys and values {}, others {}",
            loaded.time.as_secs_f64(),
            megabytes(memory.weights),
            megabytes(memory.cache),
            megabytes(memory.prompts + memory.queues + memory.others)
        ));
        let (fed, feeding) = (self.fed, self.feeding);
        warn(format_args!(
            "prefill  {fed} tokens in {:.3} s, {:.1} tokens/s",
            feeding.as_secs_f64(),
            rate(fed, feeding)
        ));
        let (made, making) = (self.made, self.making);
        let read = self.bytes / making.as_secs_f64().max(1e-9) / 1e9;
        let share = match bandwidth {
            Some(bandwidth) => {
                format!(", {:.0} % of the memory's {bandwidth} GB/s", 100.0 * read / bandwidth)
            }
            None => String::new(),
        };
        warn(format_args!(
            "decode   {made} tokens in {:.3} s, {:.1} tokens/s, {read:.2} GB/s{share}",
            making.as_secs_f64(),
            rate(made, making)
        ));
    }
}

/// A conversation or a text, and the session with its context.
struct Run<'a> {
    options: &'a Options,
    model: &'a Model,
    tokenizer: Tokenizer,
    context: usize,
    stop: Stop,
    statistics: Statistics,
}

/// Continues a text, or holds a conversation.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let sampling = options.sampling.sampling()?;
    let model = options.model.open()?;
    let tokenizer = Tokenizer::new(model.file())?;
    let context = context(options.ctx, &model);
    let stop = Stop::on_signals()?;
    let mut run = Run { options, model: &model, tokenizer, context, stop, statistics: Statistics::default() };
    let template = options.chat.then(|| Template::of(model.file())).transpose()?;
    let system = options.system.iter().map(|text| Message::new(Role::System, text.as_str()));
    let mut conversation = Conversation {
        variables: options.set.iter().cloned().collect(),
        now: Some(SystemTime::now()),
        ..Conversation::new(system)
    };
    let (tokens, parser) = match (&options.prompt, &template) {
        (None, None) => {
            return Err(UsageError("give --prompt, or --chat for a conversation".to_owned()).into());
        }
        (None, Some(_)) => (Vec::new(), None),
        (Some(prompt), None) => (run.tokenizer.encode_prompt(prompt, Controls::Find), None),
        (Some(prompt), Some(template)) => {
            conversation.messages.push(Message::new(Role::User, prompt.as_str()));
            let prompt = template.encode(&run.tokenizer, &conversation)?;
            (prompt.tokens, Some(prompt.parser))
        }
    };
    run.check(&tokens)?;
    // The request has been checked; now memory is used.
    let device = options.device.open()?;
    warn(format_args!("device   {}", described(&device)));
    let contexts = Contexts { sessions: 1, positions: context, kv: options.kv.into() };
    let mut loaded = Loaded::with(&device, &model, contexts, &options.layers.session())?;
    loaded.sessions[0].set_sampling(&sampling)?;
    match &template {
        Some(template) if options.prompt.is_none() => {
            run.converse(template, &mut conversation, &mut loaded.sessions[0])?
        }
        _ => {
            run.answer(&tokens, parser, &mut loaded.sessions[0])?;
        }
    }
    run.statistics.print(&loaded, options.device.bandwidth(device.info()));
    let status = if run.stop.is_requested() { ExitStatus::Interrupted } else { ExitStatus::Success };
    Ok(status.into())
}

/// Prints a part of an answer: thoughts to standard error.
fn show(part: &AnswerPart) -> std::io::Result<()> {
    let mut out = plain_stdout();
    match part {
        AnswerPart::Text(text) => out.write_all(text.as_bytes())?,
        AnswerPart::Reasoning(text) => {
            let mut errors = std::io::stderr().lock();
            // The answer continues without the thoughts.
            let _ = errors.write_all(text.as_bytes()).and_then(|()| errors.flush());
        }
        AnswerPart::Call(call) => writeln!(out, "{} {}", call.name, call.arguments)?,
    }
    out.flush()
}

/// The device that a model runs on, for people.
fn described(device: &Device) -> String {
    let info = device.info();
    match info.kind {
        DeviceKind::Sim => {
            "software Orin, which interprets each instruction: its speed is not a board's".to_owned()
        }
        _ => format!("{}: {}", info.name(), info.chip),
    }
}

impl Run<'_> {
    /// Returns an error for a prompt that has no tokens or does not fit.
    fn check(&self, tokens: &[u32]) -> Result<()> {
        self.model.shape().admit(tokens.len(), self.context).map_err(refused)?;
        if tokens.is_empty() && self.options.prompt.is_some() {
            return Err(UsageError("the prompt is empty".to_owned()).into());
        }
        Ok(())
    }

    /// Answers each line of standard input.
    fn converse(
        &mut self,
        template: &Template,
        conversation: &mut Conversation,
        session: &mut Session,
    ) -> Result<()> {
        let mut lines = std::io::stdin().lock().lines();
        let shows_prompt = std::io::stdin().is_terminal();
        while !self.stop.is_requested() {
            if shows_prompt {
                let mut errors = std::io::stderr().lock();
                // The conversation continues without the prompt sign.
                let _ = write!(errors, "> ").and_then(|()| errors.flush());
            }
            let Some(line) = lines.next().transpose()? else { break };
            conversation.messages.push(Message::new(Role::User, line));
            let prompt = template.encode(&self.tokenizer, conversation)?;
            self.check(&prompt.tokens)?;
            let answer = self.answer(&prompt.tokens, Some(prompt.parser), session)?;
            let reasoning = Some(answer.reasoning).filter(|text| !text.is_empty());
            let message = Message { reasoning, ..Message::new(Role::Assistant, answer.text) };
            conversation.messages.push(message);
        }
        Ok(())
    }

    /// Continues `tokens`, prints the text token by token, and returns it. The session keeps the
    /// tokens that both start with.
    fn answer(
        &mut self,
        tokens: &[u32],
        mut parser: Option<AnswerParser>,
        session: &mut Session,
    ) -> Result<Answer> {
        let start = Instant::now();
        let known = session.context_tokens().iter().zip(tokens).take_while(|(old, new)| old == new).count();
        session.truncate(known)?;
        session.feed(&tokens[known..])?;
        session.wait()?;
        self.statistics.fed += tokens.len() - known;
        self.statistics.feeding += start.elapsed();

        let (mut answer, mut decoder) = (Vec::new(), Decoder::default());
        let limit = self.options.n.unwrap_or(usize::MAX);
        let start = Instant::now();
        for (made, token) in session.tokens(limit)?.enumerate() {
            let token = token?;
            self.statistics.made += 1;
            let position = (tokens.len() + made) as f64;
            self.statistics.bytes += bytes_at(self.model, self.options.kv.into(), position);
            if self.tokenizer.is_stop(token) || self.stop.is_requested() {
                break;
            }
            let parts = match &mut parser {
                Some(parser) => parser.push(&self.tokenizer, token),
                None => vec![AnswerPart::Text(decoder.push(&self.tokenizer, token))],
            };
            parts.iter().try_for_each(show)?;
            answer.extend(parts);
        }
        self.statistics.making += start.elapsed();
        let rest = match &mut parser {
            Some(parser) => parser.finish(),
            None => vec![AnswerPart::Text(decoder.finish())],
        };
        rest.iter().try_for_each(show)?;
        show(&AnswerPart::Text("\n".to_owned()))?;
        answer.extend(rest);
        Ok(answer.into_iter().collect())
    }
}
