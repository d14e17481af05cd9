//! `orin record` and `orin replay`.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufReader, BufWriter, IntoInnerError, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Args;
use cubin::FileKind;
use orin_cli::{ExitStatus, Growing, Output, UsageError, stdout};
use orin_sim::SoftwareOrin;
use orin_sim::serve::guard;
use orin_sim::serve::record::{Record, Recorder};

use super::{BoardOptions, Served};
use crate::files;

/// Options of `orin record`.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  orin record bring-up.record -- ./program
  orin replay bring-up.record

The record takes its place when the program has ended. If this command is killed, the calls so far remain in a file
.unfinished-* beside it, which `orin replay` recognises as cut off.")]
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
    let output = Output::prepare(&options.file).map_err(UsageError::from)?;
    if output.is_stdout() {
        return Err(UsageError(
            "the program prints to standard output: name a file for the record".to_owned(),
        )
        .into());
    }
    output.spare(options.program.first().map(Path::new)).map_err(UsageError::from)?;
    let file = LineByLine(BufWriter::new(output.grow()?));
    let recorder = Arc::new(Recorder::new(file, profile, kernel)?);
    // SAFETY: the command line has been parsed, and no thread was started.
    let signals = unsafe { super::become_supervisor()? };
    let mut serving = orin_sim::serve::Options::default();
    serving.observer = Some(Arc::clone(&recorder) as _);
    let served = Served { program: &options.program, socket: None, config, is_strict: false, signals };
    let status = served.run(None, &serving)?;
    let written = recorder.finish().and_then(|file| file.0.into_inner().map_err(IntoInnerError::into_error));
    written.with_context(|| options.file.display().to_string())?.finish()?;
    guard::end_like(status)
}

/// A file that has every whole line, also if this process is killed.
#[derive(Debug)]
struct LineByLine(BufWriter<Growing>);

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
    let path = &options.file;
    let file = File::open(path).map_err(|error| files::wrong(path, error))?;
    if let Some(kind) = files::kind(path).filter(|kind| !matches!(kind, FileKind::Record | FileKind::Json)) {
        return Err(files::not(path, kind, "a record").into());
    }
    let record = Record::read(BufReader::new(file)).map_err(|error| files::wrong(path, error))?;
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
    if !record.is_complete() {
        writeln!(out, "the record was cut off: it has no end, so calls are missing")?;
    }
    out.flush()?;
    Ok(ExitStatus::failed_if(!result.differences.is_empty() || !record.is_complete()).into())
}
