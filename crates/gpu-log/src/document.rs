//! The tables as Markdown, for `docs/kernel-log-*.md` and `cargo xtask dmesg --table`.

use core::fmt::Write;

use super::table::{Kind, Row, TABLE};

/// Marker before the tables of a page; the headings of the tables follow, separated by `; `.
#[cfg(test)]
const BEGIN: &str = "<!-- tables, written by a test: ";
/// Marker after the tables.
#[cfg(test)]
const END: &str = "<!-- end of the tables -->\n";

/// All headings and rows as Markdown.
pub fn markdown() -> String {
    let mut text = String::new();
    for (heading, rows) in TABLE {
        text += &section(heading, rows);
    }
    text.push('\n');
    text
}

/// A heading and its table.
fn section(heading: &str, rows: &[Row]) -> String {
    let mut text =
        format!("\n## {heading}\n\n| line | class | event | meaning | what to do |\n|---|---|---|---|---|\n");
    for row in rows {
        let _ = writeln!(text, "{}", markdown_row(row));
    }
    text
}

fn markdown_row(row: &Row) -> String {
    let cell = |text: &str| text.replace('|', "\\|");
    let pattern = row.pattern.replace('*', "\u{2026}");
    let kind = if row.kind == Kind::None { "" } else { row.kind.name() };
    let cells = [
        format!("`{}`", cell(pattern.trim())),
        row.class.name().to_owned(),
        kind.to_owned(),
        cell(row.meaning),
        cell(row.cure),
    ];
    format!("| {} |", cells.join(" | "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page with the tables that its marker names, and those names; `None` if the markers are missing, or a name is
    /// unknown.
    fn updated(page: &str) -> Option<(String, Vec<&str>)> {
        let (before, rest) = page.split_once(BEGIN)?;
        let (names, rest) = rest.split_once(" -->\n")?;
        let (_, after) = rest.split_once(END)?;
        let headings: Vec<&str> = names.split("; ").collect();
        let mut text = format!("{before}{BEGIN}{names} -->\n");
        for wanted in &headings {
            let (heading, rows) = TABLE.iter().find(|(heading, _)| heading == wanted)?;
            text += &section(heading, rows);
        }
        Some((format!("{text}\n{END}{after}"), headings))
    }

    /// `NVGPU_UPDATE_DOCS=1` writes the tables instead of comparing them.
    #[test]
    fn the_pages_have_these_tables() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
        let mut shown = Vec::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if !path.file_name().unwrap().to_str().is_some_and(|name| name.starts_with("kernel-log-")) {
                continue;
            }
            let page = std::fs::read_to_string(&path).unwrap();
            let path = path.display();
            let (wanted, headings) = updated(&page).unwrap_or_else(|| panic!("{path} has no tables"));
            shown.extend(headings.into_iter().map(str::to_owned));
            if std::env::var_os("NVGPU_UPDATE_DOCS").is_some() {
                std::fs::write(path.to_string(), &wanted).unwrap();
            } else {
                assert!(
                    page == wanted,
                    "{path} is out of date: run NVGPU_UPDATE_DOCS=1 cargo test -p gpu-log"
                );
            }
        }
        shown.sort();
        let mut all: Vec<&str> = TABLE.iter().map(|(heading, _)| *heading).collect();
        all.sort_unstable();
        assert_eq!(shown, all, "each table is on one page");
    }

    #[test]
    fn cells_are_safe() {
        let text = markdown();
        assert!(text.lines().filter(|line| line.starts_with("| `")).count() > 100);
        assert_eq!(updated("no markers"), None);
        assert_eq!(updated(&format!("a{BEGIN}No such table -->\n{END}b")), None);
        let (heading, rows) = TABLE[0];
        let page = |table: &str| format!("a{BEGIN}{heading} -->\n{table}{END}b");
        assert_eq!(
            updated(&page("old")),
            Some((page(&format!("{}\n", section(heading, rows))), vec![heading]))
        );
    }
}
