//! llama.cpp's bench as the rival of `orin llm bench`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use orin_cli::Stop;
use serde_json::Value;

/// Longest run of the rival.
const LIMIT: Duration = Duration::from_secs(1800);

/// Time between looks at Ctrl-C.
const BEAT: Duration = Duration::from_millis(100);

/// A rival's program.
#[derive(Clone, Debug)]
pub(super) struct Rival {
    path: PathBuf,
    /// More arguments.
    arguments: Vec<String>,
}

/// A rate that the rival has reported.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sample {
    pub(super) prompt: usize,
    pub(super) made: usize,
    /// What distinguishes its settings.
    pub(super) setting: String,
    /// Tokens per second.
    pub(super) rate: f64,
}

/// Reads `llama-bench=PATH`.
pub(super) fn rival(text: &str) -> Result<Rival, String> {
    match text.split_once('=') {
        Some(("llama-bench", path)) if !path.is_empty() => {
            Ok(Rival { path: path.into(), arguments: Vec::new() })
        }
        _ => Err("give llama-bench=PATH".to_owned()),
    }
}

impl Rival {
    /// With more arguments, between spaces.
    pub(super) fn with(mut self, arguments: &str) -> Self {
        self.arguments = arguments.split_whitespace().map(str::to_owned).collect();
        self
    }

    /// Runs all tests once, with and without flash attention; `None` if a signal came.
    pub(super) fn run(
        &self,
        model: &Path,
        (prompt, made, depth): (usize, usize, usize),
        stop: &Stop,
    ) -> Result<Option<Vec<Sample>>> {
        let mut command = Command::new(&self.path);
        command.arg("-m").arg(model).args(["-ngl", "99", "-fa", "0,1", "-r", "1", "-o", "json"]);
        for (name, value) in [("-p", prompt), ("-n", made), ("-d", depth)] {
            command.arg(name).arg(value.to_string());
        }
        command.args(&self.arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().with_context(|| self.path.display().to_string())?;
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
        samples(&output.stdout).with_context(|| format!("the output of {}", self.path.display())).map(Some)
    }
}

/// Reads the rates of a JSON output.
fn samples(output: &[u8]) -> Result<Vec<Sample>> {
    let value: Value = serde_json::from_slice(output)?;
    let tests = value.as_array().context("is not a list")?;
    let sample = |test: &Value| {
        let number = |key: &str| test[key].as_u64().with_context(|| format!("`{key}` is missing"));
        let attention = &test["flash_attn"];
        let rate = test["avg_ts"].as_f64().filter(|rate| *rate > 0.0).context("`avg_ts` is missing")?;
        // CAST: token counts.
        let (prompt, made) = (number("n_prompt")? as usize, number("n_gen")? as usize);
        Ok(Sample { prompt, made, setting: format!("flash attention {attention}"), rate })
    };
    tests.iter().map(sample).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rival_has_a_kind_and_a_path() {
        assert_eq!(rival("llama-bench=/a=b").unwrap().path, Path::new("/a=b"));
        for wrong in ["", "llama-bench", "llama-bench=", "other=/a"] {
            assert!(rival(wrong).is_err(), "{wrong}");
        }
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
