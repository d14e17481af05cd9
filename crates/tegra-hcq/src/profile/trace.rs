//! The trace event format of Chrome and Perfetto: a JSON object with a list of events. Times are microseconds from the
//! earliest event, so a double represents them to the nanosecond.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::{Profile, Range, Span, Work};

/// Arguments of an operation's events.
fn details(work: &Work) -> Value {
    match work {
        Work::Launch { kernel, grid, block } => {
            json!({ "kernel": kernel, "grid": grid.to_string(), "block": block.to_string() })
        }
        Work::Copy { bytes } | Work::Fill { bytes } => json!({ "bytes": bytes }),
        Work::Graph { steps } => json!({ "steps": steps }),
    }
}

/// Track of a queue's calls on the CPU; the next track is its work on the GPU.
fn cpu_track(queue: usize) -> usize {
    2 * queue + 1
}

/// Writes a complete trace, event by event.
pub(super) fn write(profile: &Profile, mut out: impl Write) -> io::Result<()> {
    let called = profile.spans.iter().map(|span| span.called.min(span.start));
    let called = called.chain(profile.ranges.iter().map(|range| range.called));
    let origin = called.chain(profile.unfinished.iter().map(|work| work.called)).min().unwrap_or(0);
    let mut queues: Vec<usize> = profile.spans.iter().map(|span| span.queue).collect();
    queues.extend(profile.unfinished.iter().map(|work| work.queue));
    queues.extend(profile.ranges.iter().map(|range| range.queue));
    queues.sort_unstable();
    queues.dedup();

    write!(
        out,
        "{{\"displayTimeUnit\":\"ns\",\"otherData\":{{\"origin_unix_ns\":{origin}}},\"traceEvents\":["
    )?;
    let mut events = Events { out: &mut out, origin, process: std::process::id(), first: true };
    if !queues.is_empty() {
        let program = std::env::current_exe().ok();
        let name = program.as_ref().and_then(|path| path.file_name()).map(|name| name.to_string_lossy());
        let name = name.as_deref().unwrap_or("program");
        events.put("M", "process_name", 0, None, json!({ "args": { "name": name } }))?;
    }
    for queue in queues {
        let track = cpu_track(queue);
        for (track, name) in
            [(track, format!("queue {queue}: CPU")), (track + 1, format!("queue {queue}: GPU"))]
        {
            events.put("M", "thread_name", track, None, json!({ "args": { "name": name } }))?;
            events.put("M", "thread_sort_index", track, None, json!({ "args": { "sort_index": track } }))?;
        }
    }
    for range in &profile.ranges {
        events.range(range)?;
    }
    for (id, span) in profile.spans.iter().enumerate() {
        events.span(id, span)?;
    }
    for work in &profile.unfinished {
        let name = format!("{} (never finished)", work.work.name());
        let rest = json!({ "cat": "cpu", "s": "t", "args": details(&work.work) });
        events.put("i", &name, cpu_track(work.queue), Some(work.called), rest)?;
    }
    out.write_all(b"\n]}\n")?;
    out.flush()
}

/// Microseconds between two times.
fn length(from: u64, to: u64) -> f64 {
    to.saturating_sub(from) as f64 / 1e3
}

struct Events<'a, W> {
    out: &'a mut W,
    origin: u64,
    process: u32,
    first: bool,
}

impl<W: Write> Events<'_, W> {
    fn micros(&self, time: u64) -> f64 {
        time.saturating_sub(self.origin) as f64 / 1e3
    }

    /// Writes call, doorbell and run of one operation.
    fn span(&mut self, id: usize, span: &Span) -> io::Result<()> {
        let (cpu, name) = (cpu_track(span.queue), span.work.name());
        let args = details(&span.work);
        let run = json!({ "cat": "gpu", "dur": length(span.start, span.end), "args": args });
        if span.step.is_some() {
            // Inside the run of its graph, which has the call.
            return self.put("X", &name, cpu + 1, Some(span.start), run);
        }
        let call = json!({ "cat": "cpu", "dur": length(span.called, span.encoded), "args": args });
        self.put("X", &name, cpu, Some(span.called), call)?;
        self.put("i", "doorbell", cpu, Some(span.submitted), json!({ "cat": "cpu", "s": "t" }))?;
        self.put("X", &name, cpu + 1, Some(span.start), run)?;
        // The arrow starts at the call and binds to the run that encloses its end.
        self.put("s", "submit", cpu, Some(span.called), json!({ "cat": "flow", "id": id }))?;
        self.put("f", "submit", cpu + 1, Some(span.start), json!({ "cat": "flow", "id": id, "bp": "e" }))
    }

    /// Writes a named range: on the CPU, and around its operations on the GPU.
    fn range(&mut self, range: &Range) -> io::Result<()> {
        let (cpu, args) = (cpu_track(range.queue), json!({}));
        let call = json!({ "cat": "span", "dur": length(range.called, range.ended), "args": args });
        self.put("X", &range.name, cpu, Some(range.called), call)?;
        let Some((start, end)) = range.gpu else { return Ok(()) };
        let run = json!({ "cat": "span", "dur": length(start, end), "args": args });
        self.put("X", &range.name, cpu + 1, Some(start), run)
    }

    fn put(
        &mut self,
        phase: &str,
        name: &str,
        track: usize,
        time: Option<u64>,
        rest: Value,
    ) -> io::Result<()> {
        self.out.write_all(if self.first { b"\n" } else { b",\n" })?;
        self.first = false;
        let mut event = json!({ "ph": phase, "name": name, "pid": self.process, "tid": track });
        if let Some(time) = time {
            event["ts"] = json!(self.micros(time));
        }
        if let (Value::Object(event), Value::Object(rest)) = (&mut event, rest) {
            event.extend(rest);
        }
        serde_json::to_writer(&mut *self.out, &event)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::span;
    use super::*;

    #[test]
    fn names_are_escaped_and_times_are_exact() {
        let epoch = 1_700_000_000_000_000_000;
        let odd = "op<\"a\\b\">\n";
        let profile = Profile { spans: vec![span(odd, 2, epoch + 30, epoch + 1234)], ..Profile::default() };
        let mut text = Vec::new();
        write(&profile, &mut text).unwrap();
        let trace: Value = serde_json::from_slice(&text).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        let run = events.iter().find(|event| event["ph"] == "X" && event["cat"] == "gpu").unwrap();
        assert_eq!(run["name"], odd);
        assert_eq!((run["ts"].as_f64(), run["dur"].as_f64()), (Some(0.03), Some(1.204)));
        assert_eq!(run["tid"], 6);
        assert_eq!(trace["otherData"]["origin_unix_ns"], epoch);
    }

    #[test]
    fn an_empty_profile_is_a_valid_trace() {
        let mut text = Vec::new();
        write(&Profile::default(), &mut text).unwrap();
        let trace: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(trace["traceEvents"], json!([]));
    }
}
