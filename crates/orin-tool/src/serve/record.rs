//! `orin record` and `orin replay`.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use orin_cli::{ExitStatus, UsageError, stdout};
use orin_sim::SoftwareOrin;
use orin_sim::serve::guard;
use orin_sim::serve::record::{Record, Recorder};

use super::{BoardOptions, Served};

/// Options of `orin record`.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  orin record bring-up.record -- ./program
  orin replay bring-up.record")]
pub(crate) struct RecordOptions {
    /// The record to write
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    board: BoardOptions,
    /// The program and its arguments
    #[arg(required = true, last = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// Options of `orin replay`.
#[derive(Args, Debug)]
pub(crate) struct ReplayOptions {
    /// The record
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    board: BoardOptions,
    /// Seed of everything that a board leaves to chance, such as the first handle number
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

/// Serves a program and writes a record.
pub(crate) fn record(options: &RecordOptions) -> Result<ExitCode> {
    super::check_program(&options.program)?;
    let (profile, config) = options.board.config(None)?;
    let kernel = config.release;
    let refused = |error| UsageError(format!("{} cannot be written: {error}", options.file.display()));
    let file = File::create(&options.file).map_err(refused)?;
    let recorder = Arc::new(Recorder::new(LineByLine(BufWriter::new(file)), profile, kernel)?);
    // SAFETY: the command line has been parsed, and no thread was started.
    let signals = unsafe { super::become_supervisor()? };
    let mut serving = orin_sim::serve::Options::default();
    serving.observer = Some(Arc::clone(&recorder) as _);
    let served = Served { program: &options.program, socket: None, config, signals };
    let status = served.run(None, &serving)?;
    match recorder.error() {
        Some(error) => Err(anyhow::Error::from(error).context(options.file.display().to_string())),
        None => guard::end_like(status),
    }
}

/// A file that has every whole line, also if this process is killed.
#[derive(Debug)]
struct LineByLine(BufWriter<File>);

impl Write for LineByLine {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.0.write(bytes)?;
        if bytes.ends_with(b"\n") {
            self.0.flush()?;
        }
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

/// Replays a record and prints the differences.
pub(crate) fn replay(options: &ReplayOptions) -> Result<ExitCode> {
    let refused = |error: String| UsageError(format!("{}: {error}", options.file.display()));
    let file = File::open(&options.file).map_err(|error| refused(error.to_string()))?;
    let record = Record::read(BufReader::new(file)).map_err(|error| refused(error.to_string()))?;
    let (_, mut config) = options.board.config(Some((record.board(), record.kernel())))?;
    config.seed = options.seed;
    let orin = SoftwareOrin::new(config).map_err(orin_sim::serve::Error::Board)?;
    let result = orin_sim::serve::record::replay(&record, &orin);
    let mut out = stdout();
    for difference in &result.differences {
        writeln!(out, "{difference}")?;
    }
    let (compared, results, left) = (result.compared, result.results_only, result.left_out);
    writeln!(
        out,
        "{} calls: {compared} answers compared, {results} only by their result, {left} left out; {} differences",
        record.len(),
        result.differences.len()
    )?;
    out.flush()?;
    Ok(ExitStatus::failed_if(!result.differences.is_empty()).into())
}
