//! `orin dmesg`: the kernel log's lines about the GPU, with meaning and cure.

mod print;
mod since;
mod source;

use std::convert::Infallible;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use gpu_log::{Checker, Class, Event, Record, Summary, document};
use orin_cli::{ExitStatus, Stop, stdout, warn, within};

use since::Since;
use source::Source;

/// Longest time before a report is shown and before Ctrl-C takes effect.
const BEAT: Duration = Duration::from_millis(500);

/// Options of the command.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Follow the log until Ctrl-C
    #[arg(long, conflicts_with = "file")]
    watch: bool,
    /// Show only the last N reports (a report is a line, or the lines of one fault)
    #[arg(long, value_name = "N", value_parser = within(1..=1_000_000_usize))]
    count: Option<usize>,
    /// Show only later messages: seconds of uptime (1234.5), a duration (`10min ago`) or an RFC 3339
    /// date-time (2026-02-12T10:11:12Z)
    #[arg(long, value_name = "TIME")]
    since: Option<Since>,
    /// Read a saved log, in any format of dmesg; - is standard input
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Print one JSON object; with --watch, one per report
    #[arg(long)]
    json: bool,
    /// Print the table of all known lines as Markdown and exit
    #[arg(long, conflicts_with_all = ["watch", "count", "since", "file", "json"])]
    table: bool,
    /// A file without its option
    #[arg(hide = true, value_name = "FILE", value_parser = misplaced)]
    _misplaced: Option<Infallible>,
}

/// Refuses a file without its option.
fn misplaced(word: &str) -> Result<Infallible, String> {
    Err(format!("give a saved log with its option: --file {word}"))
}

/// Reads the log and prints the reports about the GPU; exit code 1 if there are errors.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let mut out = stdout();
    explain(options, &mut out)
}

fn explain(options: &Options, out: &mut dyn Write) -> Result<ExitCode> {
    if options.table {
        write!(out, "{}", document::markdown().trim_start())?;
        return Ok(ExitStatus::Success.into());
    }
    let mut source = Source::open(options.file.as_deref())?;
    if let Some(note) = source.note() {
        warn(format_args!("note: {note}"));
    }
    let mut records = source.read_new()?;
    if let Some(since) = &options.since {
        records = since.filter(records, source.is_live())?;
    }
    let total = records.len();
    let mut checker = Checker::default();
    let mut events = feed(&mut checker, records);
    events.extend(checker.finish());
    if let Some(count) = options.count {
        events.drain(..events.len().saturating_sub(count));
    }

    let mut summary = Summary::default();
    events.iter().for_each(|event| summary.add(event));
    if options.watch {
        for event in &events {
            show(out, event, options.json)?;
        }
        follow(&mut source, out, options.json, &mut summary)?;
        print::last_line(out, source.name(), None, &summary, options.json)?;
    } else if options.json {
        print::json(out, source.name(), total, &events, &summary)?;
    } else {
        for event in &events {
            print::event(out, event)?;
        }
        print::last_line(out, source.name(), Some(total), &summary, false)?;
    }
    Ok(ExitStatus::failed_if(summary.of(Class::Error) > 0).into())
}

fn feed(checker: &mut Checker, records: Vec<Record>) -> Vec<Event> {
    records.into_iter().for_each(|record| checker.push(record));
    checker.take()
}

fn show(out: &mut dyn Write, event: &Event, json: bool) -> Result<()> {
    if json {
        writeln!(out, "{}", print::event_json(event))?;
    } else {
        print::event(out, event)?;
    }
    out.flush()?;
    Ok(())
}

/// Shows reports until a signal arrives. A report is shown once no more lines arrive for it.
fn follow(source: &mut Source, out: &mut dyn Write, json: bool, summary: &mut Summary) -> Result<()> {
    let stop = Stop::on_signals().context("waiting for Ctrl-C")?;
    let mut checker = Checker::default();
    while !stop.is_requested() {
        let came = source.wait(BEAT)?;
        let mut events = feed(&mut checker, source.read_new()?);
        if !came {
            events.extend(checker.finish());
        }
        for event in &events {
            summary.add(event);
            show(out, event, json)?;
        }
    }
    for event in &checker.finish() {
        summary.add(event);
        show(out, event, json)?;
    }
    Ok(())
}
