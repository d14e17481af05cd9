//! Profiles as one HTML page without links to anything else.

use core::fmt::Write;
use std::collections::HashMap;

use super::access::{Passes, ratio};
use super::advice::advice;
use super::report::{KernelProfile, Totals};
use super::text::{facts, number, percent, title};
use super::{Counts, Traffic};

const STYLE: &str = "\
body{font:14px/1.45 system-ui,sans-serif;margin:2em;color:#1a1a1a;background:#fff}\
h1{font-size:1.4em}h2{font-size:1.15em;margin-top:2em;border-top:1px solid #ccc;padding-top:1em}\
h3{font-size:1em;margin-bottom:.3em}table{border-collapse:collapse}\
th,td{padding:.1em .6em;text-align:right;white-space:nowrap}th{font-weight:600;border-bottom:1px solid #999}\
td.l,th.l{text-align:left}td.c,th.c{text-align:left;font-family:ui-monospace,monospace;white-space:pre}\
tr.f td{background:#eef;font-weight:600;text-align:left}tr.n{color:#999}td.w{background:#fdd}\
.b{display:inline-block;height:.8em;background:#6a9fd8}nav a{margin-right:1em}li{margin:.2em 0}\
@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}tr.f td{background:#223}\
td.w{background:#522}tr.n{color:#777}a{color:#8bf}}";

/// The columns of counts.
const COLUMNS: [&str; 7] =
    ["instructions", "share", "threads", "active", "divergent", "sectors/request", "passes/request"];

/// The profiles as one page: for each kernel the summary, its source lines and its disassembly, with the counts.
/// `source` returns the text of a source file, if it can be had.
///
/// ```
/// let page = orin_sim::kernel_profile::html(&[], |_| None);
/// assert!(page.starts_with("<!DOCTYPE html>") && page.contains("No kernel was launched"));
/// ```
pub fn html(profiles: &[KernelProfile], source: impl Fn(&str) -> Option<String>) -> String {
    let mut page = String::new();
    // Writing to a string does not fail.
    let _ = whole(&mut page, profiles, &source);
    page
}

type Source<'a> = &'a dyn Fn(&str) -> Option<String>;

fn whole(page: &mut String, profiles: &[KernelProfile], source: Source<'_>) -> core::fmt::Result {
    write!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Kernel profiles</title>\
         <style>{STYLE}</style></head><body>\n<h1>Kernel profiles</h1>\n\
         <p>Exact counts of the software Orin (SM 8.7). They say nothing about time.</p>\n"
    )?;
    if profiles.is_empty() {
        page.push_str("<p>No kernel was launched.</p>\n");
    }
    page.push_str("<nav>");
    for (index, profile) in profiles.iter().enumerate() {
        write!(page, "<a href=\"#k{index}\">{}</a>", escape(&profile.kernel))?;
    }
    page.push_str("</nav>\n");
    for (index, profile) in profiles.iter().enumerate() {
        kernel(page, index, profile, source)?;
    }
    page.push_str("</body></html>\n");
    Ok(())
}

fn kernel(page: &mut String, index: usize, profile: &KernelProfile, source: Source<'_>) -> core::fmt::Result {
    let totals = profile.totals();
    writeln!(page, "<h2 id=\"k{index}\">{}</h2>\n<table>", escape(&title(profile)))?;
    for (name, value) in facts(profile, &totals) {
        writeln!(page, "<tr><th class=\"l\">{name}</th><td class=\"l\">{}</td></tr>", escape(&value))?;
    }
    page.push_str("</table>\n");
    let advice = advice(profile, &totals);
    if !advice.is_empty() {
        page.push_str("<h3>Advice</h3>\n<ul>\n");
        for sentence in &advice {
            writeln!(page, "<li>{}</li>", escape(sentence))?;
        }
        page.push_str("</ul>\n");
    }
    lines(page, profile, &totals, source)?;
    disassembly(page, profile, &totals)
}

fn header(page: &mut String, last: &[(&str, &str)]) -> core::fmt::Result {
    page.push_str("<table>\n<tr>");
    for name in COLUMNS {
        write!(page, "<th>{name}</th>")?;
    }
    for (class, name) in last {
        write!(page, "<th class=\"{class}\">{name}</th>")?;
    }
    page.push_str("</tr>\n");
    Ok(())
}

fn lines(
    page: &mut String,
    profile: &KernelProfile,
    totals: &Totals,
    source: Source<'_>,
) -> core::fmt::Result {
    let lines = profile.lines();
    if lines.is_empty() {
        page.push_str(
            "<p>No source lines: compile with -lineinfo (NVRTC: --generate-line-info) to see them.</p>\n",
        );
        return Ok(());
    }
    page.push_str("<h3>Source lines</h3>\n");
    header(page, &[("l", "line"), ("c", "source")])?;
    let mut texts: HashMap<&str, Vec<String>> = HashMap::new();
    let mut file = "";
    for line in &lines {
        if line.file != file {
            file = &line.file;
            writeln!(page, "<tr class=\"f\"><td colspan=\"9\">{}</td></tr>", escape(file))?;
            let text = source(file).unwrap_or_default();
            texts.insert(file, text.lines().map(str::to_owned).collect());
        }
        let at = usize::try_from(line.line).unwrap_or(0).checked_sub(1);
        let text = at.and_then(|at| texts.get(file)?.get(at)).map_or("", String::as_str);
        row(page, &line.counts, totals)?;
        writeln!(page, "<td class=\"l\">{}</td><td class=\"c\">{}</td></tr>", line.line, escape(text))?;
    }
    page.push_str("</table>\n");
    Ok(())
}

fn disassembly(page: &mut String, profile: &KernelProfile, totals: &Totals) -> core::fmt::Result {
    page.push_str("<h3>Disassembly</h3>\n");
    header(page, &[("l", "offset"), ("c", "instruction"), ("l", "source")])?;
    let mut function = None;
    for place in &profile.instructions {
        let at = &place.at;
        if function != Some(&at.kernel) {
            function = Some(&at.kernel);
            writeln!(page, "<tr class=\"f\"><td colspan=\"10\">{}</td></tr>", escape(&at.kernel))?;
        }
        row(page, &place.counts, totals)?;
        let line = match (&at.file, at.line) {
            (Some(file), Some(line)) => {
                format!("{}:{line}", file.rsplit('/').next().unwrap_or_default())
            }
            _ => String::new(),
        };
        writeln!(
            page,
            "<td class=\"l\">{:#06x}</td><td class=\"c\">{}</td><td class=\"l\">{}</td></tr>",
            at.offset,
            escape(&at.instruction),
            escape(&line)
        )?;
    }
    page.push_str("</table>\n");
    Ok(())
}

/// The beginning of a row: the counts.
fn row(page: &mut String, counts: &Counts, totals: &Totals) -> core::fmt::Result {
    if counts.executed == 0 {
        page.push_str("<tr class=\"n\">");
        COLUMNS.iter().for_each(|_| page.push_str("<td></td>"));
        return Ok(());
    }
    let share = 100.0 * ratio(counts.executed, totals.all.executed);
    write!(
        page,
        "<tr><td>{}</td><td class=\"l\"><span class=\"b\" style=\"width:{:.1}em\"></span> {share:.1} %</td>\
         <td>{:.1}</td><td>{:.1}</td>",
        number(counts.executed),
        share / 10.0,
        ratio(counts.threads, counts.executed),
        ratio(counts.active, counts.executed)
    )?;
    let divergent = (counts.divergent > 0)
        .then(|| format!("{} ({})", number(counts.divergent), percent(counts.divergent, counts.executed)));
    cell(page, divergent, counts.divergent > 0)?;
    let mut moved = counts.global;
    moved.add(&counts.local);
    cell(page, sectors(&moved), moved.excess_sectors() > 0)?;
    cell(page, passes(&counts.shared), counts.shared.conflicts() + counts.shared.collisions > 0)
}

fn cell(page: &mut String, text: Option<String>, wasteful: bool) -> core::fmt::Result {
    let class = if wasteful { " class=\"w\"" } else { "" };
    write!(page, "<td{class}>{}</td>", text.unwrap_or_default())
}

fn sectors(moved: &Traffic) -> Option<String> {
    let ideal = ratio(moved.ideal_sectors, moved.requests);
    (moved.requests > 0).then(|| format!("{:.1} of {ideal:.1}", moved.sectors_per_request()))
}

fn passes(shared: &Passes) -> Option<String> {
    let [passes, ideal] = [shared.passes, shared.ideal_passes].map(|count| ratio(count, shared.requests));
    (shared.requests > 0).then(|| format!("{passes:.1} of {ideal:.1}"))
}

/// Text in HTML.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_their_place() {
        assert_eq!(escape("a<b>&\"c\""), "a&lt;b&gt;&amp;&quot;c&quot;");
    }
}
