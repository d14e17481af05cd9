//! The decoded trace as text or as JSON lines.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::line::Outcome;
use super::trace::{Count, Ioctl, Summary};

/// Writes calls as they are decoded and a summary at the end.
pub(super) struct Printer<W> {
    output: W,
    json: bool,
    began: bool,
}

impl<W: Write> Printer<W> {
    /// Writes to `output`.
    pub(super) fn new(output: W, json: bool) -> Self {
        Self { output, json, began: false }
    }

    /// One request.
    pub(super) fn call(&mut self, call: &Ioctl) -> io::Result<()> {
        if self.json {
            return writeln!(self.output, "{}", call_json(call));
        }
        if !self.began {
            self.began = true;
            self.row(["line", "pid", "fd", "role", "request", "size", "result"])?;
        }
        let result = match &call.result {
            Outcome::Value(value) => value.to_string(),
            Outcome::Error(errno) => errno.clone(),
            Outcome::Unknown => "?".to_owned(),
        };
        let pid = call.pid.map(|pid| pid.to_string()).unwrap_or_default();
        let size = call.size().map(|size| size.to_string()).unwrap_or_default();
        self.row([
            &call.line.to_string(),
            &pid,
            &call.fd.to_string(),
            &call.role(),
            &call.request,
            &size,
            &result,
        ])
    }

    /// One line in columns, wide enough for the longest name of a request.
    fn row(&mut self, [line, pid, fd, role, request, size, result]: [&str; 7]) -> io::Result<()> {
        writeln!(self.output, "{line:>8} {pid:>8} {fd:>4}  {role:13} {request:45} {size:>5}  {result}")
    }

    /// The totals.
    pub(super) fn summary(&mut self, summary: &Summary) -> io::Result<()> {
        if self.json {
            writeln!(self.output, "{}", summary_json(summary))?;
            return self.output.flush();
        }
        if self.began {
            writeln!(self.output)?;
        }
        let calls = |counts: &mut dyn Iterator<Item = &Count>| counts.map(|count| count.calls).sum::<u64>();
        writeln!(self.output, "lines: {}, not understood: {}", summary.lines, summary.garbled)?;
        let known = calls(&mut summary.known.values());
        writeln!(self.output, "requests of the GPU's driver: {known}, different: {}", summary.known.len())?;
        let unknown = calls(&mut summary.unknown.values());
        writeln!(self.output, "requests without a name here: {unknown}")?;
        writeln!(self.output, "ioctls of other drivers: {}", summary.foreign)?;
        for (title, table) in [("", &summary.known), ("without a name", &summary.unknown)] {
            if table.is_empty() {
                continue;
            }
            writeln!(self.output)?;
            if !title.is_empty() {
                writeln!(self.output, "{title}:")?;
            }
            writeln!(self.output, "{:>8} {:>8}  {:13} request", "calls", "errors", "role")?;
            for ((role, request), count) in table {
                let failed: u64 = count.errors.values().sum();
                let errors: Vec<String> =
                    count.errors.iter().map(|(errno, times)| format!("{errno} {times}")).collect();
                let line =
                    format!("{:>8} {failed:>8}  {role:13} {request:45} {}", count.calls, errors.join(", "));
                writeln!(self.output, "{}", line.trim_end())?;
            }
        }
        if !summary.maps.is_empty() {
            let maps: Vec<String> =
                summary.maps.iter().map(|(role, times)| format!("{role} {times}")).collect();
            writeln!(self.output, "\nmmap: {}", maps.join(", "))?;
        }
        for problem in summary.problems() {
            writeln!(self.output, "\nproblem: {problem}")?;
        }
        self.output.flush()
    }
}

/// One request as an object.
fn call_json(call: &Ioctl) -> Value {
    let (result, errno) = match &call.result {
        Outcome::Value(value) => (Some(value), None),
        Outcome::Error(errno) => (None, Some(errno)),
        Outcome::Unknown => (None, None),
    };
    json!({
        "kind": "ioctl",
        "line": call.line,
        "pid": call.pid,
        "fd": call.fd,
        "role": call.descriptor.map(|descriptor| descriptor.role.name()),
        "role_inferred": call.descriptor.is_some_and(|descriptor| descriptor.inferred),
        "request": call.request,
        "known": call.known,
        "code": call.code.map(|code| format!("{code:#010x}")),
        "size": call.size(),
        "result": result,
        "errno": errno,
    })
}

/// The summary as an object.
fn summary_json(summary: &Summary) -> Value {
    let table = |table: &std::collections::BTreeMap<(&'static str, String), Count>| -> Vec<Value> {
        let row = |name: &(&'static str, String), count: &Count| {
            let (role, request) = name;
            json!({ "role": role, "request": request, "calls": count.calls, "errors": count.errors })
        };
        table.iter().map(|(name, count)| row(name, count)).collect()
    };
    json!({
        "kind": "summary",
        "lines": summary.lines,
        "requests": table(&summary.known),
        "unknown": table(&summary.unknown),
        "other_drivers": summary.foreign,
        "mmap": summary.maps,
        "not_understood": summary.garbled,
        "problems": summary.problems(),
    })
}
