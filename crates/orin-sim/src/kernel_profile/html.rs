//! Profiles as one self-contained HTML page.

use std::collections::HashMap;

use super::access::{Passes, ratio};
use super::bound::Bound;
use super::compare::{Comparison, difference, notes, place, relative, value};
use super::report::KernelProfile;
use super::text::{number, percent, title};
use super::{Counts, Traffic};
use crate::board::Profile;

const STYLE: &str = "\
body{font:14px/1.45 system-ui,sans-serif;margin:2em;color:#1a1a1a;background:#fff}\
h1{font-size:1.4em}h2{font-size:1.15em;margin-top:2em;border-top:1px solid #ccc;padding-top:1em}\
h3{font-size:1em;margin-bottom:.3em}table{border-collapse:collapse}\
th,td{padding:.1em .6em;text-align:right;white-space:nowrap}th{font-weight:600;border-bottom:1px solid #999}\
td.l,th.l{text-align:left;font-family:ui-monospace,monospace;white-space:pre}\
tr.f td{background:#eef;font-weight:600;text-align:left}tr.n{color:#999}td.w{background:#fdd}\
.b{display:inline-block;height:.8em;background:#6a9fd8}nav a{margin-right:1em}\
@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}tr.f td{background:#223}\
td.w{background:#522}tr.n{color:#777}a{color:#8bf}}";

/// The columns of counts.
const COLUMNS: &str =
    "<th>instructions<th>share<th>threads<th>active<th>divergent<th>sectors/request<th>passes/request";

/// The profiles as one page: for each kernel the summary, its source lines and its disassembly, with the counts, and
/// with lower bounds of the times on a board; before them the changes since an earlier run. `source` returns the text
/// of a source file, or `None` if it cannot be read.
///
/// ```
/// let page = orin_sim::kernel_profile::html(&[], None, None, |_| None);
/// assert!(page.starts_with("<!DOCTYPE html>") && page.contains("No kernel was launched"));
/// ```
pub fn html(
    profiles: &[KernelProfile],
    board: Option<Profile>,
    comparison: Option<&Comparison>,
    source: impl Fn(&str) -> Option<String>,
) -> String {
    let link = |(index, profile): (usize, &KernelProfile)| {
        format!("<a href=\"#k{index}\">{}</a>", escape(&profile.kernel))
    };
    let links: String = profiles.iter().enumerate().map(link).collect();
    let none = if profiles.is_empty() { "<p>No kernel was launched." } else { "" };
    let kernel = |(index, profile)| kernel(index, profile, board, &source);
    let kernels: String = profiles.iter().enumerate().map(kernel).collect();
    let changes = comparison.map_or_else(String::new, changes);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>Kernel profiles</title>\
         <style>{STYLE}</style>\n<h1>Kernel profiles</h1>\n\
         <p>Exact counts of the software Orin (SM 8.7), which does not model time. A lower bound is what a board \
         cannot undercut.\n{none}<nav>{links}</nav>\n{changes}{kernels}</html>\n"
    )
}

/// The changes since an earlier run: a table of kernels, and one of the lines of each.
fn changes(comparison: &Comparison) -> String {
    let mut out = "<h2>Changes since the baseline</h2>\n<p>Means per launch.\n".to_owned();
    for kernel in &comparison.kernels {
        let title = escape(&format!("{}: {}", kernel.kernel, kernel.shape));
        out += &format!("<h3>{title}</h3>\n<table><tr><th class=\"l\">measure<th>before<th>now<th>change\n");
        for change in &kernel.changes {
            let [before, now] = [change.before, change.now].map(|number| value(change, number));
            let worse = if change.increase() > 0.0 { " class=\"w\"" } else { "" };
            out += &format!(
                "<tr><td class=\"l\">{}<td>{before}<td>{now}<td{worse}>{}\n",
                change.measure,
                relative(change)
            );
        }
        out += "</table>\n";
        if kernel.lines.is_empty() {
            continue;
        }
        let names = kernel.changes.iter().map(|change| format!("<th>{}", change.measure));
        out += &format!("<table><tr>{}<th class=\"l\">line\n", names.collect::<String>());
        for line in &kernel.lines {
            let cells = line.changes.iter().map(|change| format!("<td>{}", difference(change)));
            let place = escape(&place(line));
            out += &format!("<tr>{}<td class=\"l\">{place}\n", cells.collect::<String>());
        }
        out += "</table>\n";
    }
    notes(comparison).iter().for_each(|note| out += &format!("<p>{}\n", escape(note)));
    out
}

fn kernel(
    index: usize,
    profile: &KernelProfile,
    board: Option<Profile>,
    source: &dyn Fn(&str) -> Option<String>,
) -> String {
    let bound = board.map(|board| Bound::of(profile, board));
    let all = profile.totals().all.executed;
    let mut texts: HashMap<String, Vec<String>> = HashMap::new();
    let mut text_of = |file: &str, line: u32| {
        let lines = texts
            .entry(file.to_owned())
            .or_insert_with(|| source(file).unwrap_or_default().lines().map(str::to_owned).collect());
        if let Some(text) = profile.source.get(file).and_then(|lines| lines.get(&line)) {
            return text.clone();
        }
        // CAST: the number of a line.
        lines.get((line as usize).wrapping_sub(1)).cloned().unwrap_or_default()
    };
    let lines = profile.lines();
    let line_shares = bound.as_ref().map(|bound| bound.line_shares(profile));
    let source_rows = lines.iter().map(|line| {
        let share = line_shares.as_ref().and_then(|shares| shares.get(&(line.file.clone(), line.line)));
        let cells = [line.line.to_string(), text_of(&line.file, line.line)];
        (line.file.as_str(), &line.counts, share.copied(), cells.to_vec())
    });
    let source_table = match lines.is_empty() {
        true => "<p>No source lines: compile with -lineinfo (NVRTC: --generate-line-info) to see them.\n"
            .to_owned(),
        false => table("Source lines", &["line", "source"], source_rows, all),
    };
    let shares = bound.as_ref().map(|bound| bound.shares(profile));
    let places = profile.instructions.iter().enumerate().map(|(at_index, place)| {
        let share = shares.as_ref().map(|shares| shares[at_index]);
        let at = &place.at;
        let line = match (&at.file, at.line) {
            (Some(file), Some(line)) => format!("{}:{line}", file.rsplit('/').next().unwrap_or_default()),
            _ => String::new(),
        };
        let cells = vec![format!("{:#06x}", at.offset), at.instruction.clone(), line];
        (at.kernel.as_str(), &place.counts, share, cells)
    });
    format!(
        "<h2 id=\"k{index}\">{}</h2>\n<pre>{}</pre>\n{source_table}{}",
        escape(&title(profile)),
        escape(&profile.summary(board)),
        table("Disassembly", &["offset", "instruction", "source"], places, all)
    )
}

/// A table of rows with counts, parts of the bound and further cells, below a line for each group. `all` is the number
/// of executions.
fn table<'a>(
    title: &str,
    columns: &[&str],
    rows: impl Iterator<Item = (&'a str, &'a Counts, Option<f64>, Vec<String>)>,
    all: u64,
) -> String {
    let columns: String = columns.iter().map(|name| format!("<th class=\"l\">{name}")).collect();
    let mut rows = rows.peekable();
    let bounded = rows.peek().is_some_and(|(_, _, part, _)| part.is_some());
    let of_bound = if bounded { "<th>of bound" } else { "" };
    let mut out = format!("<h3>{title}</h3>\n<table><tr>{COLUMNS}{of_bound}{columns}\n");
    let mut last = None;
    for (group, counts, part, cells) in rows {
        if last.replace(group) != Some(group) {
            out += &format!("<tr class=\"f\"><td colspan=\"11\">{}\n", escape(group));
        }
        out += &counted(counts, all);
        if let Some(part) = part {
            let part = if counts.executed == 0 { String::new() } else { format!("{:.1} %", 100.0 * part) };
            out += &format!("<td>{part}");
        }
        cells.iter().for_each(|cell| out += &format!("<td class=\"l\">{}", escape(cell)));
        out.push('\n');
    }
    out + "</table>\n"
}

/// The beginning of a row: the counts.
fn counted(counts: &Counts, all: u64) -> String {
    if counts.executed == 0 {
        return format!("<tr class=\"n\">{}", "<td>".repeat(7));
    }
    let share = 100.0 * ratio(counts.executed, all);
    let divergent = match counts.divergent {
        0 => String::new(),
        count => format!("{} ({})", number(count), percent(count, counts.executed)),
    };
    let mut moved = counts.global;
    moved.add(&counts.local);
    let cell = |text: String, wasteful| format!("<td{}>{text}", if wasteful { " class=\"w\"" } else { "" });
    format!(
        "<tr><td>{}<td class=\"l\"><span class=\"b\" style=\"width:{:.1}em\"></span> {share:.1} %\
         <td>{:.1}<td>{:.1}{}{}{}",
        number(counts.executed),
        share / 10.0,
        ratio(counts.threads, counts.executed),
        ratio(counts.active, counts.executed),
        cell(divergent, counts.divergent > 0),
        cell(sectors(&moved), moved.excess_sectors() > 0),
        cell(passes(&counts.shared), counts.shared.conflicts() + counts.shared.collisions > 0)
    )
}

/// Sectors of a request, and how many would suffice.
fn sectors(moved: &Traffic) -> String {
    let ideal = ratio(moved.ideal_sectors, moved.requests);
    if moved.requests == 0 {
        String::new()
    } else {
        format!("{:.1} of {ideal:.1}", moved.sectors_per_request())
    }
}

/// Passes of a request, and how many would suffice.
fn passes(shared: &Passes) -> String {
    let [passes, ideal] = [shared.passes, shared.ideal_passes].map(|count| ratio(count, shared.requests));
    if shared.requests == 0 { String::new() } else { format!("{passes:.1} of {ideal:.1}") }
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
