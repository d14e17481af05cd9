//! A self-contained page: no scripts, no fonts, no other files.

use core::fmt::Write as _;

use super::plot::{self, Distribution, Line};
use super::table::rate_text;
use super::{escaped, figures, optional_time, remark, three_digits};
use crate::baseline::{NOISE, Verdict, doubts};
use crate::bench::RivalOutcome;
use crate::error::Result;
use crate::measure::Summary;
use crate::run::{Measurement, Outcome, Run};

/// Follows the browser's light or dark mode. Plots have black lines and text, which take the colour of the text. On a
/// narrow screen, tables and plots scroll inside the page, and the column of names stays in place.
const STYLE: &str = "\
:root{color-scheme:light dark;--soft:#8885;--page:#fff;--rival:#b35f00;--bad:#c62828;--good:#23803a}
@media(prefers-color-scheme:dark){:root{--page:#16181c;--rival:#ffab5c;--bad:#ff8a80;--good:#7bd68d}}
body{font:15px/1.45 system-ui,sans-serif;margin:2em auto;max-width:80em;padding:0 1em;background:var(--page)}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{padding:.15em .7em;text-align:right;border-bottom:1px solid var(--soft);white-space:nowrap}
th:first-child,td:first-child{text-align:left;position:sticky;left:0;background:var(--page)}
tr.rival td{color:var(--rival)}.slower{color:var(--bad);font-weight:bold}.faster{color:var(--good)}
.scroll,figure{overflow-x:auto}
.plots{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,38em),1fr));gap:1.2em}
figure{margin:0;border:1px solid var(--soft);border-radius:6px;padding:.6em .8em}figcaption{font-weight:bold}
.about{opacity:.75;font-size:.9em}.failed{color:var(--bad)}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.1em 1em}dt{font-weight:bold}dd{margin:0}
svg{display:block;max-width:100%;min-width:30em;height:auto}
svg text{fill:currentColor}svg [stroke=\"#000000\"]{stroke:currentColor}
@media(max-width:40em){body{margin:1em auto;padding:0 .6em}dl{display:block}dd{margin:0 0 .4em}}
";

/// Returns the page.
///
/// # Errors
///
/// [`Error::Plot`](crate::Error::Plot).
pub fn html(run: &Run) -> Result<String> {
    let mut page = String::new();
    page.push_str("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
    page.push_str("<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">");
    page.push_str("<title>Benchmarks</title><style>");
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
    fact("commit", run.commit.clone().unwrap_or_else(unknown));
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
    if let Some(baseline) = &run.baseline {
        let commit = baseline.commit.clone().unwrap_or_else(unknown);
        fact("baseline", format!("run of {}, commit {commit}", baseline.date));
        for doubt in doubts(baseline, &super::json(run)) {
            fact("warning", doubt);
        }
    }
    if let Some(text) = run.incomplete() {
        put!(page, "<dt class=\"failed\">{text}</dt>");
    }
    page.push_str(
        "</dl>\n<p>Times per operation. Percentiles count from the fast end; p99.9 needs 1,000 samples. \
         Rates are at the median.</p>\n",
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
    if run.baseline.is_some() {
        put!(page, "<th title=\"of the median; up to {:.0} % is noise\">change</th>", 100.0 * NOISE);
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
            } else if run.rival.is_some() {
                page.push_str("<td></td><td></td>");
            }
            if let Some(change) = run.change(measurement) {
                put!(page, "<td class=\"{}\">{change}</td>", class(change.verdict));
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

/// Class of a verdict's cell.
fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Faster => "faster",
        Verdict::Slower => "slower",
        _ => "same",
    }
}

fn cells(page: &mut String, name: &str, summary: &Summary, measurement: &Measurement) {
    let Summary { count, min, median, mean, p90, p99, p999, max } = *summary;
    put!(page, "<td>{name}</td><td>{count}</td>");
    for value in [Some(min), Some(median), Some(mean), Some(p90), Some(p99), p999, Some(max)] {
        put!(page, "<td>{}</td>", optional_time(value));
    }
    put!(page, "<td>{}</td>", rate_text(measurement.unit, median));
}

fn remarks(page: &mut String, run: &Run) {
    let remarks = run.measurements.iter().filter_map(|case| Some((case, remark(&case.outcome)?)));
    let item = |(case, remark): (&Measurement, String)| {
        let class = if matches!(case.outcome, Outcome::Failed(_)) { " class=\"failed\"" } else { "" };
        format!("<li{class}>{}: {}</li>\n", escaped(&case.name), escaped(&remark))
    };
    let items: String = remarks.map(item).collect();
    if !items.is_empty() {
        put!(page, "<h2>Not measured</h2>\n<ul>{items}</ul>");
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
    page.push_str("<h2>By size</h2>\n<div class=\"plots\">");
    for (group, unit, lines) in &groups {
        let size_text = if in_bytes(group) { plot::bytes_text } else { |size: f64| format!("{size:.0}") };
        let svg = plot::lines(lines, unit, size_text)?;
        let key = plot::key(plot::in_turn(lines.iter().map(|(name, _)| name.as_str())));
        put!(page, "<figure><figcaption>{}, medians</figcaption>{key}{svg}</figure>", escaped(group));
    }
    page.push_str("</div>\n");
    Ok(())
}

fn histograms(page: &mut String, run: &Run) -> Result<()> {
    page.push_str("<h2>Distributions</h2>\n<div class=\"plots\">");
    for measurement in &run.measurements {
        let Outcome::Measured { ours, rival } = &measurement.outcome else { continue };
        let mut series = vec![("this run", plot::COLOURS[0], Distribution::of(ours))];
        if let Some(RivalOutcome::Measured(samples)) = rival {
            series.push(("CUDA", plot::COLOURS[1], Distribution::of(samples)));
        }
        let before = run.baseline.as_ref().and_then(|baseline| baseline.case(&measurement.name));
        if let Some(before) = before {
            let marks = vec![("p50", before.median)];
            series.push(("baseline", plot::BEFORE, Distribution { bins: before.bins.clone(), marks }));
        }
        let key = plot::key(series.iter().map(|(name, colour, _)| (*name, *colour)));
        let series: Vec<_> = series.into_iter().map(|(_, colour, one)| (colour, one)).collect();
        let svg = plot::histogram(&series)?;
        let (name, about) = (escaped(&measurement.name), escaped(measurement.about));
        let change = run.change(measurement).map_or_else(String::new, |change| {
            format!(" <span class=\"{}\">{change}</span>", class(change.verdict))
        });
        put!(
            page,
            "<figure><figcaption>{name}{change}</figcaption><div class=\"about\">{about}</div>{key}{svg}</figure>"
        );
    }
    page.push_str("</div>\n");
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

    #[test]
    fn a_baseline_is_compared_and_overlaid() {
        let mut run = sample::run();
        let before = crate::report::json(&run).to_string();
        run.baseline = Some(crate::Baseline::parse(&before).unwrap());
        run.measurements[0].outcome = run.measurements[1].outcome.clone();
        let page = html(&run).unwrap();
        assert!(
            page.contains("<td class=\"faster\">-4") && page.contains("<td class=\"same\">+0.0 % no change")
        );
        assert!(page.contains("</span>\u{a0}baseline") && page.contains("commit 0123456789ab"), "{page}");
        // CUDA is compared in one case only; the columns of the others stay in place.
        assert!(page.contains("<td></td><td></td>\n") || page.contains("<td></td><td></td><td"), "{page}");
    }

    #[test]
    fn few_samples_have_no_high_percentile() {
        let mut run = sample::run();
        let mut few = crate::Samples::default();
        (0..999).for_each(|_| few.add(std::time::Duration::from_micros(1), 1));
        run.measurements[0].outcome = Outcome::Measured { ours: few, rival: None };
        assert!(html(&run).unwrap().contains("<td>–</td>"));
        assert!(!html(&sample::run()).unwrap().contains("<td>–</td>"), "1,000 samples have one");
    }

    #[test]
    fn the_page_follows_the_browser() {
        let page = html(&sample::run()).unwrap();
        for part in ["prefers-color-scheme:dark", "initial-scale=1", "0123456789ab", "p50 2.", "p99 "] {
            assert!(page.contains(part), "{part}");
        }
    }
}
