//! `orin timeline`: a page for the browser with what queues did and when.
//!
//! A program with `tegra-hcq` writes a trace of its queues at exit if a variable names a folder for it. The page has no
//! links to anything else: the events as JSON, and a script that draws them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use cubin::FileKind;
use orin_cli::{ExitStatus as Status, Output, UsageError, page, say, warn};
use orin_sim::serve::guard;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{files, serve};

/// The variable that makes a program write a trace.
const FOLDER: &str = "NVGPU_TRACE_DIR";
/// The page; the data replaces [`PLACE`].
const PAGE: &str = include_str!("page.html");
const PLACE: &str = "__DATA__";

/// Options of the command.
#[derive(Args, Debug)]
#[command(after_help = concat!("\
Examples:
  orin timeline -- ./program
  orin timeline -- python3 test_nvgpu.py
  orin timeline trace.json --html page.html

A trace is what --trace of this project's programs, Profile::write_chrome_trace and NVGPU_TRACE_DIR write. The program
must use tegra-hcq, its C library or its Python package, and close its queues before it ends.

Exit codes: that of the program; 1 if there are no events. See ", page!("profiling"), "."))]
pub(crate) struct Options {
    /// Traces in Chrome's format; several are shown on one clock
    #[arg(value_name = "TRACE", required_unless_present = "program")]
    traces: Vec<PathBuf>,
    /// The page
    #[arg(long, value_name = "FILE", default_value = "timeline.html")]
    html: PathBuf,
    /// The program and its arguments
    #[arg(last = true, conflicts_with = "traces", value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// A trace, as far as the page shows it.
#[derive(Debug, Deserialize)]
struct Trace {
    #[serde(rename = "otherData", default)]
    other: Other,
    #[serde(rename = "traceEvents")]
    events: Vec<Event>,
}

#[derive(Debug, Default, Deserialize)]
struct Other {
    /// Nanoseconds since the UNIX epoch of time 0.
    #[serde(default)]
    origin_unix_ns: u64,
}

/// An event of Chrome's format. Times are microseconds.
#[derive(Debug, Deserialize)]
struct Event {
    ph: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    cat: String,
    #[serde(default)]
    pid: u64,
    #[serde(default)]
    tid: u64,
    #[serde(default)]
    ts: f64,
    #[serde(default)]
    dur: f64,
    #[serde(default)]
    id: Value,
    #[serde(default)]
    args: Map<String, Value>,
}

/// A row of the page.
#[derive(Debug, Default, Serialize)]
struct Track {
    name: String,
    /// Start, duration (`null` for a moment), name, category, details; the times in microseconds.
    events: Vec<(f64, Option<f64>, String, String, String)>,
}

/// What the script draws.
#[derive(Debug, Serialize)]
struct Data {
    tracks: Vec<Track>,
    /// Arrows: track and time of both ends.
    arrows: Vec<[f64; 4]>,
}

/// Runs the program, or reads traces, and writes the page.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let output = Output::prepare(&options.html).map_err(UsageError::from)?;
    output.spare(&options.traces).map_err(UsageError::from)?;
    if options.program.is_empty() {
        let traces = options.traces.iter().map(|path| read(path)).collect::<Result<Vec<_>, _>>()?;
        return write(&output, traces);
    }
    serve::check_program(&options.program)?;
    let folder = tempfile::tempdir().context("making a folder for the traces")?;
    let mut command = serve::command(&options.program);
    command.env(FOLDER, folder.path());
    if output.is_stdout() {
        command.stdout(std::io::stderr());
    }
    let status = serve::plain(command)?;
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder.path()).context("reading the traces of the program")? {
        paths.push(entry.context("reading the traces of the program")?.path());
    }
    paths.sort();
    let traces = paths.iter().map(|path| read(path)).collect::<Result<Vec<_>, _>>()?;
    // `end_like` runs no destructors.
    drop(folder);
    let shown = write(&output, traces)?;
    if status.success() { Ok(shown) } else { guard::end_like(status) }
}

fn read(path: &Path) -> Result<Trace, UsageError> {
    let wanted = "a trace: `orin timeline -- PROGRAM` and `orin run --trace` make them";
    let text = files::read_text(path, wanted, &[FileKind::Json])?;
    serde_json::from_str(&text)
        .map_err(|error| files::wrong(path, format!("cut off, or not a trace: {error}")))
}

fn write(output: &Output, traces: Vec<Trace>) -> Result<ExitCode> {
    let data = data(traces);
    let count: usize = data.tracks.iter().map(|track| track.events.len()).sum();
    if count == 0 {
        warn("no events: the program opened no queue of tegra-hcq, or ended before it closed them");
        return Ok(Status::Failure.into());
    }
    output.write(page(&data)?.as_bytes())?;
    if !output.is_stdout() {
        say!("{}: {count} events of {} tracks", output.path().display(), data.tracks.len())?;
    }
    Ok(Status::Success.into())
}

/// The page. A name cannot end the script: `<` is escaped.
fn page(data: &Data) -> Result<String> {
    Ok(PAGE.replace(PLACE, &serde_json::to_string(data)?.replace('<', "\\u003c")))
}

/// Trace, process and thread of a track.
type Key = (usize, u64, u64);

/// The tracks of all traces, on the clock of the earliest.
fn data(traces: Vec<Trace>) -> Data {
    let origin = traces.iter().map(|trace| trace.other.origin_unix_ns).min().unwrap_or(0);
    let several = traces.len() > 1;
    let mut tracks: BTreeMap<Key, Track> = BTreeMap::new();
    let mut programs: BTreeMap<(usize, u64), String> = BTreeMap::new();
    let mut arrows: BTreeMap<(usize, String), Vec<(Key, f64)>> = BTreeMap::new();
    for (number, trace) in traces.into_iter().enumerate() {
        // CAST: nanoseconds between processes of one run.
        let shift = trace.other.origin_unix_ns.saturating_sub(origin) as f64 / 1e3;
        for event in trace.events {
            let key = (number, event.pid, event.tid);
            let time = event.ts + shift;
            let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let named = || event.args.get("name").map(text).unwrap_or_default();
            match event.ph.as_str() {
                "M" if event.name == "process_name" => {
                    programs.insert((number, event.pid), format!("{} {}", named(), event.pid));
                }
                "M" if event.name == "thread_name" => tracks.entry(key).or_default().name = named(),
                "X" | "i" => {
                    let details = event.args.iter().map(|(name, value)| format!("{name} {}", text(value)));
                    let details = details.collect::<Vec<_>>().join(", ");
                    let length = (event.ph == "X").then_some(event.dur);
                    let track = tracks.entry(key).or_default();
                    track.events.push((time, length, event.name, event.cat, details));
                }
                "s" | "f" => arrows.entry((number, event.id.to_string())).or_default().push((key, time)),
                _ => {}
            }
        }
    }
    let rows: Vec<_> = tracks.keys().copied().collect();
    // CAST: the number of a row.
    let row = |key| rows.iter().position(|row| *row == key).map(|row| row as f64);
    let arrow = |ends: Vec<(Key, f64)>| match ends[..] {
        [(from, start), (to, end)] => Some([row(from)?, start, row(to)?, end]),
        _ => None,
    };
    let arrows = arrows.into_values().filter_map(arrow).collect();
    let mut tracks: Vec<(Key, Track)> = tracks.into_iter().collect();
    for ((number, process, thread), track) in &mut tracks {
        track
            .events
            .sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.unwrap_or(0.0).total_cmp(&a.1.unwrap_or(0.0))));
        if track.name.is_empty() {
            track.name = format!("thread {thread}");
        }
        if let Some(program) = programs.get(&(*number, *process)).filter(|_| several) {
            track.name = format!("{program}: {}", track.name);
        }
    }
    Data { tracks: tracks.into_iter().map(|(_, track)| track).collect(), arrows }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn trace(origin: u64, events: Value) -> Trace {
        serde_json::from_value(json!({ "otherData": { "origin_unix_ns": origin }, "traceEvents": events }))
            .unwrap()
    }

    #[test]
    fn traces_of_several_processes_have_one_clock() {
        let program =
            |pid: u64| json!({ "ph": "M", "name": "process_name", "pid": pid, "args": { "name": "p" } });
        let first = json!([
            program(7),
            { "ph": "M", "name": "thread_name", "pid": 7, "tid": 1, "args": { "name": "queue 0: CPU" } },
            { "ph": "X", "name": "step", "pid": 7, "tid": 2, "ts": 6, "dur": 1, "cat": "gpu" },
            { "ph": "X", "name": "graph", "pid": 7, "tid": 2, "ts": 6, "dur": 9, "args": { "steps": 2 } },
            { "ph": "i", "name": "doorbell", "pid": 7, "tid": 1, "ts": 3 },
            { "ph": "s", "id": 0, "pid": 7, "tid": 1, "ts": 1 },
            { "ph": "f", "id": 0, "pid": 7, "tid": 2, "ts": 6 },
            { "ph": "s", "id": 1, "pid": 7, "tid": 1, "ts": 2 },
        ]);
        let second = json!([program(8), { "ph": "X", "name": "k", "pid": 8, "tid": 1, "ts": 1, "dur": 2 }]);
        let data = data(vec![trace(5_000, first), trace(2_000, second)]);
        let names: Vec<&str> = data.tracks.iter().map(|track| track.name.as_str()).collect();
        assert_eq!(names, ["p 7: queue 0: CPU", "p 7: thread 2", "p 8: thread 1"]);
        let graph = &data.tracks[1].events[0];
        assert_eq!(
            (graph.0, graph.1, graph.2.as_str(), graph.4.as_str()),
            (9.0, Some(9.0), "graph", "steps 2")
        );
        assert_eq!((data.tracks[0].events[0].0, data.tracks[0].events[0].1), (6.0, None));
        assert_eq!(data.tracks[2].events[0].0, 1.0);
        assert_eq!(data.arrows, [[0.0, 4.0, 1.0, 9.0]], "an arrow without an end is left out");
    }

    #[test]
    fn names_cannot_end_the_script() {
        let event = json!([{ "ph": "X", "name": "</script><b>", "ts": 0, "dur": 1 }]);
        let page = page(&data(vec![trace(0, event)])).unwrap();
        assert!(page.contains("\\u003c/script>\\u003cb>"), "{page}");
        assert_eq!((page.matches("</script>").count(), page.matches(PLACE).count()), (2, 0));
        assert_eq!((page.matches("http").count(), page.matches("src=").count()), (0, 0), "no links");
    }
}
