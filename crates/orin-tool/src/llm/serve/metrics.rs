//! `/metrics`: what the server did and does, in Prometheus' text format.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

/// Counts and sizes of a server.
#[derive(Debug, Default)]
pub(super) struct Metrics {
    /// By path and status.
    requests: Mutex<BTreeMap<(&'static str, u16), u64>>,
    prompt_tokens: AtomicU64,
    reused_tokens: AtomicU64,
    generated_tokens: AtomicU64,
    prompt_micros: AtomicU64,
    generation_micros: AtomicU64,
    steps: AtomicU64,
    queued: AtomicU64,
    waiting: AtomicU64,
    running: AtomicU64,
    context_tokens: AtomicU64,
    failed: AtomicU64,
    gone: AtomicU64,
    first: Summary,
    ended: Summary,
}

/// Number and sum of durations.
#[derive(Debug, Default)]
struct Summary {
    count: AtomicU64,
    micros: AtomicU64,
}

fn add(counter: &AtomicU64, more: usize) {
    // CAST: usize is at most 64 bits.
    counter.fetch_add(more as u64, Ordering::Relaxed);
}

fn add_time(counter: &AtomicU64, time: Duration) {
    // CAST: 64 bits of microseconds are 584,000 years.
    counter.fetch_add(time.as_micros() as u64, Ordering::Relaxed);
}

impl Summary {
    fn add(&self, time: Duration) {
        add(&self.count, 1);
        add_time(&self.micros, time);
    }
}

impl Metrics {
    /// A request was answered, or a stream was begun.
    pub(super) fn answered(&self, path: &'static str, status: u16) {
        *self.requests.lock().entry((path, status)).or_default() += 1;
    }

    /// A request enters the queue.
    pub(super) fn queued(&self) {
        add(&self.queued, 1);
    }

    /// A request leaves the queue.
    pub(super) fn taken(&self) {
        self.queued.fetch_sub(1, Ordering::Relaxed);
    }

    /// Tokens of a prompt were read.
    pub(super) fn read(&self, tokens: usize, time: Duration) {
        add(&self.prompt_tokens, tokens);
        add_time(&self.prompt_micros, time);
    }

    /// Tokens of a prompt were known.
    pub(super) fn reused(&self, tokens: usize) {
        add(&self.reused_tokens, tokens);
    }

    /// A step made tokens.
    pub(super) fn step(&self, tokens: usize, time: Duration) {
        add(&self.steps, 1);
        add(&self.generated_tokens, tokens);
        add_time(&self.generation_micros, time);
    }

    /// The first token of an answer was made.
    pub(super) fn first(&self, time: Duration) {
        self.first.add(time);
    }

    /// An answer is complete.
    pub(super) fn ended(&self, time: Duration) {
        self.ended.add(time);
    }

    /// Answers ended early, but not because of their clients.
    pub(super) fn failed(&self, answers: usize) {
        add(&self.failed, answers);
    }

    /// A client disconnected before its answer was complete.
    pub(super) fn gone(&self) {
        add(&self.gone, 1);
    }

    /// Answers in progress and waiting, and tokens of the contexts in use.
    pub(super) fn runs(&self, running: usize, waiting: usize, tokens: usize) {
        // CAST: usize is at most 64 bits.
        for (gauge, value) in
            [(&self.running, running), (&self.waiting, waiting), (&self.context_tokens, tokens)]
        {
            gauge.store(value as u64, Ordering::Relaxed);
        }
    }

    /// All of them as text. `capacity` are the tokens that all contexts hold.
    pub(super) fn text(&self, capacity: usize) -> String {
        let head = |name: &str, kind: &str, help: &str| {
            format!("# HELP orin_llm_{name} {help}\n# TYPE orin_llm_{name} {kind}\n")
        };
        // Strings accept everything, so results of `writeln!` are dropped.
        let mut text = head("requests_total", "counter", "Requests by path and status of the answer.");
        for ((path, status), count) in &*self.requests.lock() {
            let _ = writeln!(text, "orin_llm_requests_total{{path=\"{path}\",code=\"{status}\"}} {count}");
        }
        let load = |value: &AtomicU64| value.load(Ordering::Relaxed);
        let counts = [
            ("prompt_tokens_total", &self.prompt_tokens, "Tokens of prompts that were computed."),
            (
                "prompt_tokens_reused_total",
                &self.reused_tokens,
                "Tokens of prompts that a context had already.",
            ),
            ("generated_tokens_total", &self.generated_tokens, "Tokens that were made."),
            ("steps_total", &self.steps, "Steps, each of which makes a token of each running answer."),
            (
                "failures_total",
                &self.failed,
                "Answers that ended early, by a fault or by the end of the server.",
            ),
            ("disconnects_total", &self.gone, "Answers whose clients disconnected before their end."),
        ];
        for (name, value, help) in counts {
            text += &head(name, "counter", help);
            let _ = writeln!(text, "orin_llm_{name} {}", load(value));
        }
        let seconds = |micros: &AtomicU64| load(micros) as f64 / 1e6;
        for (name, value, help) in [
            ("prompt_seconds_total", &self.prompt_micros, "Time in which prompts were read."),
            ("generation_seconds_total", &self.generation_micros, "Time in which steps made tokens."),
        ] {
            text += &head(name, "counter", help);
            let _ = writeln!(text, "orin_llm_{name} {}", seconds(value));
        }
        for (name, value, help) in [
            ("requests_queued", load(&self.queued), "Requests in the queue."),
            ("answers_running", load(&self.running), "Answers whose prompts are read or that are written."),
            ("answers_waiting", load(&self.waiting), "Answers of running requests that wait for a context."),
            ("context_tokens", load(&self.context_tokens), "Tokens in the contexts of running answers."),
            // CAST: usize is at most 64 bits.
            ("context_capacity_tokens", capacity as u64, "Tokens that all contexts hold."),
        ] {
            text += &head(name, "gauge", help);
            let _ = writeln!(text, "orin_llm_{name} {value}");
        }
        for (name, summary, help) in [
            (
                "first_token_seconds",
                &self.first,
                "Time from the start of a prompt to the answer's first token.",
            ),
            ("answer_seconds", &self.ended, "Time from the start of a prompt to the end of its answer."),
        ] {
            text += &head(name, "summary", help);
            let (sum, count) = (seconds(&summary.micros), load(&summary.count));
            let _ = writeln!(text, "orin_llm_{name}_sum {sum}\norin_llm_{name}_count {count}");
        }
        text
    }
}
