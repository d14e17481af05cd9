//! llama.cpp's benches as the rivals of `orin llm bench`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use orin_cli::{Stop, UsageError};
use serde_json::Value;

/// Longest run of a rival.
const LIMIT: Duration = Duration::from_secs(1800);

/// Interval between checks for Ctrl-C.
const BEAT: Duration = Duration::from_millis(100);

/// llama.cpp rounds the context of a sequence up to a multiple of this.
const CONTEXT_STEP: usize = 256;

/// llama.cpp's programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tool {
    /// One sequence.
    Bench,
    /// Several sequences together.
    BatchedBench,
}

impl Tool {
    const ALL: [Self; 2] = [Self::Bench, Self::BatchedBench];

    const fn name(self) -> &'static str {
        match self {
            Self::Bench => "llama-bench",
            Self::BatchedBench => "llama-batched-bench",
        }
    }
}

/// A rival's program.
#[derive(Clone, Debug)]
pub(super) struct Rival {
    pub(super) tool: Tool,
    path: PathBuf,
    /// More arguments.
    arguments: Vec<String>,
}

/// A rate that `llama-bench` has reported.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sample {
    pub(super) prompt: usize,
    pub(super) made: usize,
    /// Its settings.
    pub(super) setting: String,
    /// Tokens per second.
    pub(super) rate: f64,
}

/// Rates that `llama-batched-bench` has reported.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct BatchSample {
    /// Its settings.
    pub(super) setting: String,
    /// Tokens of all sequences per second, in the order of [`BatchTest::batches`].
    pub(super) rates: Vec<f64>,
}

/// Reads `llama-bench=PATH` or `llama-batched-bench=PATH`.
pub(super) fn rival(text: &str) -> Result<Rival, String> {
    let (name, path) = text.split_once('=').unwrap_or((text, ""));
    match Tool::ALL.into_iter().find(|tool| tool.name() == name) {
        Some(tool) if !path.is_empty() => Ok(Rival { tool, path: path.into(), arguments: Vec::new() }),
        _ => Err("give llama-bench=PATH or llama-batched-bench=PATH".to_owned()),
    }
}

/// The name of a setting.
fn setting(flash_attention: impl std::fmt::Display) -> String {
    format!("flash attention {flash_attention}")
}

impl Rival {
    /// With more arguments, between spaces.
    pub(super) fn with(mut self, arguments: &str) -> Self {
        self.arguments = arguments.split_whitespace().map(str::to_owned).collect();
        self
    }

    /// Returns an error for a path without a program. A name without a folder is searched for when it is run.
    pub(super) fn check(&self) -> Result<(), UsageError> {
        if self.path.parent() == Some(Path::new("")) {
            return Ok(());
        }
        let reason = match fs::metadata(&self.path) {
            Err(error) => error.to_string(),
            Ok(data) if !data.is_file() || data.permissions().mode() & 0o111 == 0 => {
                "not a program".to_owned()
            }
            Ok(_) => return Ok(()),
        };
        Err(UsageError(format!("{}={}: {reason}", self.tool.name(), self.path.display())))
    }

    /// Runs all tests of `llama-bench` once, with and without flash attention; `None` if interrupted.
    pub(super) fn run(
        &self,
        model: &Path,
        (prompt, made, depth): (usize, usize, usize),
        stop: &Stop,
    ) -> Result<Option<Vec<Sample>>> {
        let mut command = self.command(model);
        command.args(["-fa", "0,1", "-r", "1", "-o", "json"]);
        for (name, value) in [("-p", prompt), ("-n", made), ("-d", depth)] {
            command.arg(name).arg(value.to_string());
        }
        let output = self.output(command, stop)?;
        output.map(|output| samples(&output).with_context(|| self.of_output())).transpose()
    }

    /// Runs `llama-batched-bench` once with and once without flash attention; `None` if interrupted. Returns the
    /// results of each setting.
    pub(super) fn run_batches(
        &self,
        model: &Path,
        test: &BatchTest<'_>,
        stop: &Stop,
    ) -> Result<Option<Vec<BatchSample>>> {
        let mut settings = Vec::new();
        for (value, name) in [("off", "false"), ("on", "true")] {
            let mut command = self.command(model);
            command.args(["-fa", value, "--output-format", "jsonl"]);
            let batches: Vec<String> = test.batches.iter().map(ToString::to_string).collect();
            let (prompt, made) = (test.prompt.to_string(), test.made.to_string());
            let context = test.context().to_string();
            command.args(["-npp", &prompt, "-ntg", &made, "-npl", &batches.join(","), "-c", &context]);
            let Some(output) = self.output(command, stop)? else { return Ok(None) };
            let rates = test.rates(&output).with_context(|| self.of_output())?;
            settings.push(BatchSample { setting: setting(name), rates });
        }
        Ok(Some(settings))
    }

    fn command(&self, model: &Path) -> Command {
        let mut command = Command::new(&self.path);
        command.arg("-m").arg(model).args(["-ngl", "99"]);
        command
    }

    fn of_output(&self) -> String {
        format!("the output of {}", self.path.display())
    }

    /// The standard output of a run; `None` if interrupted.
    fn output(&self, mut command: Command, stop: &Stop) -> Result<Option<Vec<u8>>> {
        command.args(&self.arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().with_context(|| format!("starting {}", self.path.display()))?;
        let pid = rustix::process::Pid::from_child(&child);
        let (sender, receiver) = channel();
        std::thread::spawn(move || sender.send(child.wait_with_output()));
        let start = Instant::now();
        let output = loop {
            match receiver.recv_timeout(BEAT) {
                Ok(output) => break output?,
                Err(RecvTimeoutError::Disconnected) => bail!("the thread that waits for the rival has ended"),
                Err(RecvTimeoutError::Timeout) => {}
            }
            let is_late = start.elapsed() > LIMIT;
            if stop.is_requested() || is_late {
                // It may have ended by itself.
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                if is_late {
                    bail!("{} did not end within {} s", self.path.display(), LIMIT.as_secs());
                }
                return Ok(None);
            }
        };
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr);
            let last: Vec<&str> = errors.lines().rev().take(3).collect();
            let last: Vec<&str> = last.into_iter().rev().collect();
            bail!("{} failed ({}): {}", self.path.display(), output.status, last.join("; "));
        }
        Ok(Some(output.stdout))
    }
}

/// A test of `llama-batched-bench`: sequences that generate tokens together after prompts.
#[derive(Clone, Copy, Debug)]
pub(super) struct BatchTest<'a> {
    /// Tokens in the context of each sequence; the program needs at least one.
    pub(super) prompt: usize,
    /// Tokens to generate per sequence.
    pub(super) made: usize,
    /// Numbers of sequences.
    pub(super) batches: &'a [usize],
}

impl BatchTest<'_> {
    /// Positions of all sequences. The program silently skips tests that do not fit.
    fn context(&self) -> usize {
        let most = self.batches.iter().copied().max().unwrap_or(1);
        most * (self.prompt + self.made).next_multiple_of(CONTEXT_STEP)
    }

    /// Reads an output: an object per line, between other messages.
    fn rates(&self, output: &[u8]) -> Result<Vec<f64>> {
        let text = String::from_utf8_lossy(output);
        let lines = || text.lines().filter(|line| !line.trim().is_empty());
        let rows: Vec<Value> = lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let rate = |sequences: &usize| {
            // CAST: usize is at most 64 bits.
            let wanted = [("pp", self.prompt), ("tg", self.made), ("pl", *sequences)];
            let is_wanted = |row: &&Value| wanted.iter().all(|(key, value)| row[key] == *value as u64);
            let row = rows.iter().find(is_wanted).with_context(|| {
                let (prompt, made) = (self.prompt, self.made);
                let first = lines().next().unwrap_or_default().chars().take(80).collect::<String>();
                format!(
                    "has no result of {sequences} sequences with {prompt} tokens of prompt and {made} more; it begins \
                     with \"{}\"",
                    first.escape_debug()
                )
            })?;
            row["speed_tg"].as_f64().filter(|rate| *rate > 0.0).context("`speed_tg` is missing")
        };
        self.batches.iter().map(rate).collect()
    }
}

/// Reads the rates of the JSON output of `llama-bench`.
fn samples(output: &[u8]) -> Result<Vec<Sample>> {
    let value: Value = serde_json::from_slice(output)?;
    let tests = value.as_array().context("is not a list")?;
    let sample = |test: &Value| {
        let number = |key: &str| test[key].as_u64().with_context(|| format!("`{key}` is missing"));
        let rate = test["avg_ts"].as_f64().filter(|rate| *rate > 0.0).context("`avg_ts` is missing")?;
        // CAST: token counts.
        let (prompt, made) = (number("n_prompt")? as usize, number("n_gen")? as usize);
        Ok(Sample { prompt, made, setting: setting(&test["flash_attn"]), rate })
    };
    tests.iter().map(sample).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rival_has_a_kind_and_a_path() {
        assert_eq!(rival("llama-bench=/a=b").unwrap().path, Path::new("/a=b"));
        assert_eq!(rival("llama-batched-bench=/a").unwrap().tool, Tool::BatchedBench);
        for wrong in ["", "llama-bench", "llama-bench=", "other=/a", "=/a"] {
            assert!(rival(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_path_without_a_program_is_refused() {
        for (path, words) in
            [("/", "not a program"), ("/none/x", "No such file"), ("/proc/self/maps", "not a program")]
        {
            let error = rival(&format!("llama-bench={path}")).unwrap().check().unwrap_err().to_string();
            assert!(error.starts_with(&format!("llama-bench={path}: ")) && error.contains(words), "{error}");
        }
        assert!(rival("llama-bench=sh").unwrap().check().is_ok());
        assert!(rival("llama-bench=/bin/sh").unwrap().check().is_ok());
    }

    #[test]
    fn rates_of_batches_are_read_from_lines_of_json() {
        let test = BatchTest { prompt: 9, made: 250, batches: &[1, 32] };
        assert_eq!(test.context(), 32 * 512);
        let line = |batch, rate| {
            format!(
                r#"{{"flash_attn": 1, "pp": 9, "tg": 250, "pl": {batch}, "speed_pp": 4, "speed_tg": {rate}}}"#
            )
        };
        let text = format!("\nsome message\n{}\n{}\n{}\n\n", line(2, 7.0), line(32, 31.5), line(1, 2.0));
        assert_eq!(test.rates(text.as_bytes()).unwrap(), [2.0, 31.5]);
        let error = |text: &str| test.rates(text.as_bytes()).unwrap_err().to_string();
        assert!(error(&line(1, 2.0)).contains("no result of 32 sequences"));
        assert!(error("| PP | TG |").ends_with("it begins with \"| PP | TG |\""));
        assert!(error("3\n[]").contains("no result of 1 sequences"));
        assert!(error(&format!("{}\n{}", line(1, -0.5), line(32, 1.0))).contains("`speed_tg`"));
        assert!(error("").ends_with("it begins with \"\""));
        assert!(test.rates(b"\xff").is_err());
    }

    #[test]
    fn rates_are_read_from_json() {
        let text = r#"[{"n_prompt": 512, "n_gen": 0, "flash_attn": true, "avg_ts": 31.5, "more": {}},
                       {"n_prompt": 0, "n_gen": 128, "flash_attn": false, "avg_ts": 7}]"#;
        let read = samples(text.as_bytes()).unwrap();
        let setting = "flash attention true".to_owned();
        assert_eq!(read[0], Sample { prompt: 512, made: 0, setting, rate: 31.5 });
        assert_eq!((read[1].made, read[1].rate), (128, 7.0));
        for wrong in ["", "{}", r#"[{"n_prompt": 1, "n_gen": 0}]"#, r#"[{"n_gen": 0, "avg_ts": 1.5}]"#] {
            assert!(samples(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
