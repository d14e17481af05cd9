//! Reports as text and as JSON.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use gpu_log::{Class, Event, Line, Stamp, Summary};
use serde_json::{Value, json};

const BOLD: Style = Style::new().bold();

fn style(class: Class) -> Style {
    match class {
        Class::Error => AnsiColor::Red.on_default().bold(),
        Class::Warning => AnsiColor::Yellow.on_default(),
        Class::Harmless => AnsiColor::Green.on_default(),
        Class::Information => Style::new().dimmed(),
    }
}

/// Prints each line with class and meaning, then what to do.
pub(super) fn event(out: &mut dyn Write, event: &Event) -> io::Result<()> {
    if event.lines.len() > 1 {
        let name = if event.trace { "kernel WARNING".to_owned() } else { names(event) };
        writeln!(out, "{BOLD}{name}, {} lines:{BOLD:#}", event.lines.len())?;
    }
    for line in &event.lines {
        let stamp = line.record.stamp.to_string();
        let space = if stamp.is_empty() { "" } else { " " };
        writeln!(out, "{stamp}{space}{}", line.record.text)?;
        if !event.trace || line.row.class > Class::Information {
            let style = style(line.row.class);
            writeln!(out, "    {style}{}{style:#}: {}", line.row.class, line.row.meaning)?;
        }
    }
    for cure in event.cures() {
        writeln!(out, "    what to do: {cure}")?;
    }
    writeln!(out)
}

/// The names of an event's kinds.
fn names(event: &Event) -> String {
    let names: Vec<_> = event.kinds().into_iter().map(|kind| kind.name()).collect();
    if names.is_empty() { "report".to_owned() } else { names.join(" and ") }
}

/// Prints the totals. With `json`, one object on one line.
pub(super) fn last_line(
    out: &mut dyn Write,
    source: &str,
    total: Option<usize>,
    summary: &Summary,
    json: bool,
) -> io::Result<()> {
    if json {
        return writeln!(out, "{}", json!({ "source": source, "summary": summary_json(summary) }));
    }
    let counts: Vec<_> = Class::ALL
        .iter()
        .rev()
        .map(|class| {
            let (count, style) = (summary.of(*class), style(*class));
            if count > 0 { format!("{style}{class} {count}{style:#}") } else { format!("{class} {count}") }
        })
        .collect();
    let total = total.map(|total| format!(", {total} messages")).unwrap_or_default();
    writeln!(out, "{source}{total}; reports about the GPU: {}", counts.join(", "))
}

fn summary_json(summary: &Summary) -> Value {
    Class::ALL.iter().map(|class| (class.name().to_owned(), json!(summary.of(*class)))).collect()
}

fn line_json(line: &Line) -> Value {
    let record = &line.record;
    let (uptime, date) = match &record.stamp {
        Stamp::None => (None, None),
        // CAST: exact up to 285 years.
        Stamp::Uptime(micros) => (Some(*micros as f64 / 1e6), None),
        Stamp::Wall(text) => (None, Some(text.as_str())),
    };
    json!({
        "text": record.text,
        "level": record.level.map(|level| level.name()),
        "sequence": record.sequence,
        "uptime": uptime,
        "date": date,
        "class": line.row.class.name(),
        "meaning": line.row.meaning,
    })
}

/// One report.
pub(super) fn event_json(event: &Event) -> Value {
    let kinds: Vec<_> = event.kinds().into_iter().map(|kind| kind.name()).collect();
    let lines: Vec<_> = event.lines.iter().map(line_json).collect();
    json!({
        "class": event.class().name(),
        "events": kinds,
        "meaning": event.row().meaning,
        "cures": event.cures(),
        "lines": lines,
    })
}

/// Prints everything as one object.
pub(super) fn json(
    out: &mut dyn Write,
    source: &str,
    total: usize,
    events: &[Event],
    summary: &Summary,
) -> anyhow::Result<()> {
    let reports: Vec<_> = events.iter().map(event_json).collect();
    let all = json!({
        "source": source, "messages": total, "reports": reports, "summary": summary_json(summary),
    });
    writeln!(out, "{}", serde_json::to_string_pretty(&all)?)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use gpu_log::{Record, check};

    use super::*;

    const LOG: &str = "3,7,1500000,-;nvgpu: 17000000.gpu f:1 [ERR]  sked exception: esr 0x01000000\n\
                       3,8,1500001,-;nvgpu: 17000000.gpu f:1 [ERR]  error notifier set to 13 for ch 511\n\
                       4,9,9000000,-;PID 7: a: WARNING: All NvMap Allocations must have a tag\n";

    #[test]
    fn every_line_has_class_meaning_and_cure() {
        let events = check(Record::parse_log(LOG));
        let mut text = Vec::new();
        let mut summary = Summary::default();
        for one in &events {
            event(&mut text, one).unwrap();
            summary.add(one);
        }
        last_line(&mut text, "a log", Some(3), &summary, false).unwrap();
        let text = anstream::adapter::strip_str(&String::from_utf8(text).unwrap()).to_string();
        assert!(text.starts_with("launch descriptor refused, 2 lines:\n[    1.500000] nvgpu"), "{text}");
        assert!(text.contains("    error: The compute scheduler refused a launch descriptor"), "{text}");
        assert!(text.contains("    what to do: Put a tag, for example 0x0900"), "{text}");
        let last =
            "a log, 3 messages; reports about the GPU: error 1, warning 0, harmless 1, information 0\n";
        assert!(text.ends_with(last), "{text}");
    }

    #[test]
    fn json_has_the_same() {
        let events = check(Record::parse_log(LOG));
        let value = event_json(&events[0]);
        assert_eq!(value["class"], "error");
        assert_eq!(value["events"], json!(["launch descriptor refused"]));
        assert_eq!(value["lines"][0]["uptime"], 1.5);
        assert_eq!(value["lines"][1]["sequence"], 8);
        assert_eq!(value["lines"][1]["level"], "err");
    }
}
