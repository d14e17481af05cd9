//! The table as Markdown, for `docs/kernel-log.md` and `cargo xtask dmesg --table`.

use core::fmt::Write;

use super::table::{Kind, Row, TABLE};

/// Marker before the table in the document.
pub const BEGIN: &str = "<!-- table: written by a test, see the text above -->\n";
/// Marker after the table.
pub const END: &str = "<!-- end of the table -->\n";

/// All headings and rows as Markdown.
pub fn markdown() -> String {
    let mut text = String::new();
    for (heading, rows) in TABLE {
        let _ = write!(
            text,
            "\n## {heading}\n\n| line | class | event | meaning | what to do |\n|---|---|---|---|---|\n"
        );
        for row in rows {
            let _ = writeln!(text, "{}", markdown_row(row));
        }
    }
    text.push('\n');
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

/// Returns the document with the current table; `None` if the markers are missing.
pub fn updated(document: &str) -> Option<String> {
    let (before, rest) = document.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}{}{END}{after}", markdown()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `NVGPU_UPDATE_DOCS=1` writes the table instead of comparing it.
    #[test]
    fn the_document_has_this_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/kernel-log.md");
        let document = std::fs::read_to_string(path).unwrap();
        let wanted = updated(&document).expect("docs/kernel-log.md has its markers");
        if std::env::var_os("NVGPU_UPDATE_DOCS").is_some() {
            std::fs::write(path, &wanted).unwrap();
        } else {
            assert!(
                document == wanted,
                "docs/kernel-log.md is out of date: run NVGPU_UPDATE_DOCS=1 cargo test -p gpu-log"
            );
        }
    }

    #[test]
    fn cells_are_safe() {
        let text = markdown();
        assert!(text.lines().filter(|line| line.starts_with("| `")).count() > 100);
        assert_eq!(updated("no markers"), None);
        assert_eq!(updated(&format!("a{BEGIN}old{END}b")), Some(format!("a{BEGIN}{text}{END}b")));
    }
}
