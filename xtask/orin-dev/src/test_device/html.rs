//! A run as a self-contained HTML page without scripts.

use std::fmt::Write;

use test_harness::Outcome;
use test_harness::report::{RunReport, TestReport};

/// Colours that are readable on light and dark backgrounds.
const STYLE: &str = "\
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 75em; margin: 2em auto; padding: 0 1em; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .3em .8em .3em 0; border-bottom: 1px solid #8886; }
td.time { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.passed { color: #2a8a3e; } .failed { color: #d0342c; font-weight: bold; } .skipped { color: #b07a00; }
pre { white-space: pre-wrap; margin: .3em 0; font-size: .85em; }
small { opacity: .75; }
@media (max-width: 40em) { body { margin: 1em auto; font-size: 14px; } td { overflow-wrap: anywhere; } }
";

/// The page.
pub(super) fn document(report: &RunReport) -> String {
    let counts = report.counts();
    let mut page = String::new();
    let title = match counts.failed {
        0 if report.interrupted => "Device tests: interrupted",
        0 => "Device tests: passed",
        _ => "Device tests: failed",
    };
    let _ = write!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width,initial-scale=1\">\n<title>{title}</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n\
         <h1>{title}</h1>\n<p>{}<br>{} &middot; {:.1} s &middot; durations &times; {}</p>\n\
         <p><span class=\"passed\">{} passed</span>, <span class=\"{}\">{} failed</span>, \
         <span class=\"skipped\">{} skipped</span></p>\n",
        escape(&report.device),
        escape(&super::started(report)),
        report.elapsed.as_secs_f64(),
        report.scale,
        counts.passed,
        if counts.failed > 0 { "failed" } else { "none" },
        counts.failed,
        counts.skipped,
    );
    for note in report.log_unavailable.iter().chain(&report.stopped) {
        let _ = writeln!(page, "<p class=\"skipped\">{}</p>", escape(note));
    }
    for suite in report.suites() {
        let _ = write!(
            page,
            "<h2>{}</h2>\n<table>\n<tr><th>test</th><th>outcome</th><th>time</th></tr>\n",
            escape(suite)
        );
        report.tests.iter().filter(|test| test.suite == suite).for_each(|test| row(&mut page, test));
        page.push_str("</table>\n");
    }
    page.push_str("</body>\n</html>\n");
    page
}

fn row(page: &mut String, test: &TestReport) {
    let (class, text) = match &test.outcome {
        Outcome::Passed => ("passed", None),
        Outcome::Skipped(text) => ("skipped", Some(text)),
        Outcome::Failed(text) => ("failed", Some(text)),
    };
    let _ = write!(
        page,
        "<tr><td><b>{}</b><br><small>{}</small></td><td><span class=\"{class}\">{class}</span>",
        escape(test.name),
        escape(test.about)
    );
    if let Some(text) = text {
        let _ = write!(page, "<pre>{}</pre>", escape(text));
    }
    details(page, "notes", &test.notes);
    details(page, "kernel log", &super::log_lines(test).collect::<Vec<_>>());
    let _ = writeln!(page, "</td><td class=\"time\">{:.3} s</td></tr>", test.elapsed.as_secs_f64());
}

/// Lines in a collapsed section.
fn details(page: &mut String, name: &str, lines: &[String]) {
    if !lines.is_empty() {
        let text = escape(&lines.join("\n"));
        let _ = write!(page, "<details><summary>{name}</summary><pre>{text}</pre></details>");
    }
}

/// Escapes text for HTML elements and attributes. Control characters are replaced.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(c),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_failure_is_not_an_alarm() {
        let mut report = super::super::sample::report();
        assert!(document(&report).contains("<span class=\"failed\">1 failed</span>"));
        report.tests.retain(|test| !matches!(test.outcome, Outcome::Failed(_)));
        let page = document(&report);
        assert!(
            page.contains("<span class=\"none\">0 failed</span>") && !page.contains("class=\"failed\""),
            "{page}"
        );
    }

    #[test]
    fn the_page_is_self_contained_and_escaped() {
        let page = document(&super::super::sample::report());
        assert!(page.contains("<title>Device tests: failed</title>"));
        assert!(
            page.contains("left &lt; right &amp;&amp; &quot;a&quot; != &#39;b&#39; ]]&gt; \u{fffd}[31m"),
            "{page}"
        );
        assert!(page.contains("what &lt;it&gt; proves &amp; &quot;how&quot;"), "{page}");
        assert!(page.contains("<h2>two</h2>") && page.contains("<pre>no camera</pre>"));
        assert!(page.contains("sked exception: esr 0x1 &lt;&amp;&gt;"), "{page}");
        for other in ["<script", "href", "src="] {
            assert!(!page.contains(other), "{other}: the page needs no other file");
        }
    }
}
