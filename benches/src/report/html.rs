//! A self-contained page: no scripts, no fonts, no other files.

use core::fmt::Write as _;

use super::plot::{self, Line};
use super::table::rate_text;
use super::{escaped, figures, remark, three_digits, time_text};
use crate::bench::RivalOutcome;
use crate::error::Result;
use crate::measure::Summary;
use crate::run::{Measurement, Outcome, Run};

const STYLE: &str = "body{font:15px/1.45 sans-serif;margin:2em auto;max-width:78em;padding:0 1em;color:#222}\
table{border-collapse:collapse}th,td{padding:.15em .7em;text-align:right;border-bottom:1px solid #ddd;\
white-space:nowrap}th:first-child,td:first-child{text-align:left}tr.rival td{color:#a65b00;border-color:#bbb}\
.scroll{overflow-x:auto}figure{display:inline-block;margin:1em 1em 0 0}figcaption{font-weight:bold}\
.remark{color:#a00}dt{font-weight:bold}svg{max-width:100%;height:auto}";

/// Returns the page.
///
/// # Errors
///
/// [`Error::Plot`](crate::Error::Plot).
pub fn html(run: &Run) -> Result<String> {
    let mut page = String::new();
    page.push_str("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
    page.push_str("<meta name=\"viewport\" content=\"width=device-width\"><title>Benchmarks</title><style>");
    page.push_str(STYLE);
    page.push_str("</style></head><body>\n<h1>Benchmarks</h1>\n");
    facts(&mut page, run);
    table(&mut page, run);
    remarks(&mut page, run);
    sweeps(&mut page, run)?;
    histograms(&mut page, run)?;
    page.push_str("</body></html>\n");
    Ok(page)
}

/// Appends formatted text, which cannot fail.
macro_rules! put {
    ($page:expr, $($part:tt)*) => {{
        let _ = writeln!($page, $($part)*);
    }};
}

fn facts(page: &mut String, run: &Run) {
    let (machine, device) = (&run.machine, &run.device);
    let unknown = || "unknown".to_owned();
    page.push_str("<dl>");
    let mut fact = |name: &str, text: String| put!(page, "<dt>{name}</dt><dd>{}</dd>", escaped(&text));
    fact("date", run.date.clone());
    fact(
        "version",
        format!(
            "{}{}",
            env!("CARGO_PKG_VERSION"),
            if cfg!(debug_assertions) { ", not optimised" } else { "" }
        ),
    );
    let model = machine.model.clone().unwrap_or_else(unknown);
    fact("machine", format!("{model}, {} CPUs, {}", machine.cpus, machine.architecture));
    fact("kernel", machine.kernel.clone().unwrap_or_else(unknown));
    fact("L4T", machine.l4t.clone().unwrap_or_else(|| "none".to_owned()));
    let software = if device.kind == tegra_hcq::DeviceKind::Sim {
        " — the software Orin: its times do not predict those of a board"
    } else {
        ""
    };
    fact("device", format!("{} {}, {} SMs{software}", device.kind, device.chip, device.sm_count));
    if let Some(rival) = &run.rival {
        let (major, minor) = rival.version;
        fact("rival", format!("CUDA {major}.{minor} on {}, {}", rival.device, rival.library));
    }
    if let Some(text) = run.incomplete() {
        put!(page, "<dt class=\"remark\">{text}</dt>");
    }
    page.push_str(
        "</dl>\n<p>Times per operation. Percentiles count from the fast end. Rates are at the median.</p>\n",
    );
}

fn table(page: &mut String, run: &Run) {
    page.push_str("<div class=\"scroll\"><table><tr>");
    for head in ["case", "n", "min", "median", "mean", "p90", "p99", "p99.9", "max", "rate"] {
        put!(page, "<th>{head}</th>");
    }
    if run.rival.is_some() {
        page.push_str("<th>CUDA / ours</th><th>at p99</th>");
    }
    page.push_str("</tr>\n");
    for measurement in &run.measurements {
        let (ours, rival) = figures(&measurement.outcome);
        if let Some(ours) = ours {
            let name = format!(
                "<span title=\"{}\">{}</span>",
                escaped(measurement.about),
                escaped(&measurement.name)
            );
            page.push_str("<tr>");
            cells(page, &name, &ours, measurement);
            if let Some(rival) = rival {
                let ratios = [rival.median / ours.median, rival.p99 / ours.p99].map(three_digits);
                put!(page, "<td>{}</td><td>{}</td>", ratios[0], ratios[1]);
            }
            page.push_str("</tr>\n");
        }
        if let Some(rival) = rival {
            page.push_str("<tr class=\"rival\">");
            cells(page, "CUDA", &rival, measurement);
            page.push_str("</tr>\n");
        }
    }
    page.push_str("</table></div>\n");
}

fn cells(page: &mut String, name: &str, summary: &Summary, measurement: &Measurement) {
    let Summary { count, min, median, mean, p90, p99, p999, max } = *summary;
    put!(page, "<td>{name}</td><td>{count}</td>");
    for value in [min, median, mean, p90, p99, p999, max] {
        put!(page, "<td>{}</td>", time_text(value));
    }
    put!(page, "<td>{}</td>", rate_text(measurement.unit, median));
}

fn remarks(page: &mut String, run: &Run) {
    let remarks = run.measurements.iter().filter_map(|case| Some((&case.name, remark(&case.outcome)?)));
    let items: String =
        remarks.map(|(name, remark)| format!("<li>{}: {}</li>\n", escaped(name), escaped(&remark))).collect();
    if !items.is_empty() {
        put!(page, "<h2>Not measured</h2>\n<ul class=\"remark\">{items}</ul>");
    }
}

/// Plots over the size, for cases that differ only in their size: `group/line/size`.
fn sweeps(page: &mut String, run: &Run) -> Result<()> {
    let mut groups: Vec<(&str, &str, Vec<Line>)> = Vec::new();
    let in_bytes = |group: &str| group == "copy" || group == "memory";
    for measurement in &run.measurements {
        let (Some(ours), rival) = figures(&measurement.outcome) else { continue };
        let mut parts = measurement.name.split('/');
        let (Some(group), Some(line), Some(_)) = (parts.next(), parts.next(), parts.next()) else { continue };
        // Without a rate, plot the time.
        let value = |ns: f64| measurement.unit.rate(ns).unwrap_or(("µs", ns / 1e3));
        let unit = value(1.0).0;
        let x = measurement.size as f64;
        let mut add = |name: String, y: f64| {
            let at =
                groups.iter().position(|known| (known.0, known.1) == (group, unit)).unwrap_or_else(|| {
                    groups.push((group, unit, Vec::new()));
                    groups.len() - 1
                });
            let lines = &mut groups[at].2;
            match lines.iter_mut().find(|known| known.0 == name) {
                Some(known) => known.1.push((x, y)),
                None => lines.push((name, vec![(x, y)])),
            }
        };
        add(line.to_owned(), value(ours.median).1);
        if let Some(rival) = rival {
            add(format!("{line}, CUDA"), value(rival.median).1);
        }
    }
    groups.retain(|(_, _, lines)| lines.iter().any(|(_, points)| points.len() > 1));
    if groups.is_empty() {
        return Ok(());
    }
    page.push_str("<h2>By size</h2>\n");
    for (group, unit, lines) in &groups {
        let size_text = if in_bytes(group) { plot::bytes_text } else { |size: f64| format!("{size:.0}") };
        let svg = plot::lines(lines, unit, size_text)?;
        let key = plot::key(lines.iter().map(|(name, _)| name.as_str()));
        put!(page, "<figure><figcaption>{}, medians</figcaption>{key}<br>{svg}</figure>", escaped(group));
    }
    Ok(())
}

fn histograms(page: &mut String, run: &Run) -> Result<()> {
    page.push_str("<h2>Distributions</h2>\n");
    for measurement in &run.measurements {
        let Outcome::Measured { ours, rival } = &measurement.outcome else { continue };
        let rival = match rival {
            Some(RivalOutcome::Measured(samples)) => Some(samples),
            _ => None,
        };
        let svg = plot::histogram(ours, rival)?;
        let (name, about) = (escaped(&measurement.name), escaped(measurement.about));
        let key = rival.map_or_else(String::new, |_| plot::key(["this library", "CUDA"]));
        put!(page, "<figure><figcaption>{name}{key}</figcaption>{about}<br>{svg}</figure>");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn the_page_is_self_contained() {
        let page = html(&sample::run()).unwrap();
        assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
        for word in ["<script", "<link", "src=", "url(", "@import"] {
            assert!(!page.contains(word), "{word}");
        }
        assert_eq!(page.matches("<svg").count(), 3 + 1, "three distributions, one plot over the size");
        assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
    }

    #[test]
    fn text_is_escaped() {
        let page = html(&sample::run()).unwrap();
        assert!(page.contains("A &lt;board&gt;") && !page.contains("<board>"));
        assert!(page.contains("no &lt;pools&gt;"));
        assert!(page.contains("title=\"less &lt; more &amp; &quot;quoted&quot;\""));
    }

    #[test]
    fn the_software_orin_is_named() {
        assert!(html(&sample::run()).unwrap().contains("do not predict those of a board"));
    }
}
