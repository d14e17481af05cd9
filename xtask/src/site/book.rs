//! The sources of the book: the pages that `docs/SUMMARY.md` lists, at their places in the project, so that links
//! between them stay as they are. Links to other files lead to the references, or to the project's repository.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use xtask::workspace;

use super::{C, PYTHON, RUST};
use crate::check_source::normal;
use crate::markdown::links;

/// Table of contents, also of the documentation on a code host.
const CONTENTS: &str = "docs/SUMMARY.md";

/// The project's repository.
const REPOSITORY: &str = env!("CARGO_PKG_REPOSITORY");

/// Writes the sources of the book to a folder, for `mdbook build`.
pub(super) fn stage(root: &Path, stage: &Path) -> Result<()> {
    let read =
        |path: &Path| std::fs::read_to_string(root.join(path)).with_context(|| path.display().to_string());
    let write = |path: &Path, text: &str| -> Result<()> {
        let path = stage.join("src").join(path);
        // PANIC: the path has a parent, `src`.
        std::fs::create_dir_all(path.parent().expect("a folder"))?;
        std::fs::write(&path, text).with_context(|| path.display().to_string())
    };
    let contents = read(Path::new(CONTENTS))?;
    let pages: BTreeSet<PathBuf> = links(&contents)
        .into_iter()
        .map(|link| normal(&Path::new("docs").join(&contents[link.range])))
        .collect();
    let references = references(root)?;
    for page in &pages {
        let mut text = read(page)?;
        if page == Path::new("README.md") {
            text += &format!("\n*This documentation is of {}.*\n", version(root));
        }
        if page == Path::new("docs/coming-from-cuda.md") {
            text = with_references(&text);
        }
        text = stacked(&text);
        write(page, &rewritten(&text, |target| elsewhere(root, page, target, &pages, &references)))?;
    }
    let at_root = |target: &str| Some(normal(&Path::new("docs").join(target)).display().to_string());
    write(Path::new("SUMMARY.md"), &rewritten(&contents, at_root))?;
    for name in ["book.toml", "site.css"] {
        std::fs::copy(root.join("docs").join(name), stage.join(name)).with_context(|| name)?;
    }
    files(root, Path::new("docs"), &mut |path| {
        let to = stage.join("src").join(path);
        // PANIC: the path has a parent, `src`.
        std::fs::create_dir_all(to.parent().expect("a folder"))?;
        std::fs::copy(root.join(path), to)?;
        Ok(())
    })
}

/// The version of the project, with the commit if `root` is a checkout of git.
fn version(root: &Path) -> String {
    let git = ["log", "-1", "--date=short", "--format=, commit %h of %cd"];
    let output = std::process::Command::new("git").args(git).current_dir(root).output();
    let commit = output.ok().filter(|output| output.status.success()).map(|output| output.stdout);
    let commit = String::from_utf8(commit.unwrap_or_default()).unwrap_or_default();
    format!("version {}{}", env!("CARGO_PKG_VERSION"), commit.trim_end())
}

/// Pictures and results that pages of `docs/` show.
fn files(root: &Path, folder: &Path, take: &mut impl FnMut(&Path) -> Result<()>) -> Result<()> {
    for entry in std::fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            files(root, &path, take)?;
        } else if path
            .extension()
            .is_some_and(|extension| !["md", "toml", "css"].iter().any(|own| extension == *own))
        {
            take(&path)?;
        }
    }
    Ok(())
}

/// What stands for what in the site: a page of a crate or package, and its place in a reference.
fn references(root: &Path) -> Result<Vec<(PathBuf, String)>> {
    let mut references = vec![
        (PathBuf::from("crates/tegra-hcq-capi/include/tegra_hcq.h"), format!("{C}/tegra__hcq_8h.html")),
        (PathBuf::from("bindings/python/README.md"), format!("{PYTHON}/tegra_hcq.html")),
    ];
    for library in workspace::targets(root)?.iter().filter(|target| target.is_library()) {
        let folder =
            library.source.parent().and_then(Path::parent).and_then(|path| path.strip_prefix(root).ok());
        let page = format!("{RUST}/{}/index.html", library.name.replace('-', "_"));
        references.extend(folder.map(|folder| (folder.join("README.md"), page)));
    }
    Ok(references)
}

/// The new target of a link that leads out of the book; `None` if it stays.
fn elsewhere(
    root: &Path,
    page: &Path,
    target: &str,
    pages: &BTreeSet<PathBuf>,
    references: &[(PathBuf, String)],
) -> Option<String> {
    if target.contains("://") || target.starts_with(['#']) || target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = target.find('#').map_or((target, ""), |at| target.split_at(at));
    let file = normal(&page.with_file_name(path));
    let up = "../".repeat(page.components().count() - 1);
    if pages.contains(&file) {
        // mdBook names this page index.html.
        return file
            .ends_with("README.md")
            .then(|| format!("{up}{}{anchor}", file.with_file_name("index.md").display()));
    }
    if let Some((_, reference)) = references.iter().find(|(known, _)| *known == file) {
        return Some(format!("{up}{reference}"));
    }
    let is_asset = file.starts_with("docs") && root.join(&file).is_file();
    let kind = if root.join(&file).is_dir() { "tree" } else { "blob" };
    (!is_asset).then(|| format!("{REPOSITORY}/{kind}/main/{}{anchor}", file.display()))
}

/// The text with links from the names `Type::item` in the last column of its tables to the search of the reference.
fn with_references(text: &str) -> String {
    let linked = |code: &str| {
        let (kind, rest) =
            code.split_once("::").filter(|_| code.starts_with(|c: char| c.is_ascii_uppercase()))?;
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
        let item = &rest[..end];
        Some(format!("[`{code}`](../{RUST}/tegra_hcq/index.html?search={kind}%3A%3A{item})"))
    };
    let mut result = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let at = if line.starts_with('|') { line.rfind(" | ").unwrap_or(line.len()) } else { line.len() };
        let (rest, last) = line.split_at(at);
        result += rest;
        // Every second piece is code.
        for (index, piece) in last.split('`').enumerate() {
            match (index % 2 == 1).then(|| linked(piece)) {
                Some(Some(link)) => result += &link,
                Some(None) => result += &format!("`{piece}`"),
                None => result += piece,
            }
        }
    }
    result
}

/// The text with the tables of the kernel log in an element for `site.css`: a narrow screen shows each row as a block.
fn stacked(text: &str) -> String {
    const MARKERS: [&str; 2] = ["<!-- tables, written by a test: ", "<!-- end of the tables -->\n"];
    text.replace(MARKERS[0], &format!("<div class=\"rows\">\n\n{}", MARKERS[0]))
        .replace(MARKERS[1], &format!("{}\n</div>\n", MARKERS[1]))
}

/// The text with new targets of its links, where there are any.
fn rewritten(text: &str, new: impl Fn(&str) -> Option<String>) -> String {
    let mut result = String::with_capacity(text.len());
    let mut done = 0;
    for link in links(text) {
        if let Some(target) = new(&text[link.range.clone()]) {
            result += &text[done..link.range.start];
            result += &target;
            done = link.range.end;
        }
    }
    result + &text[done..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_the_last_column_lead_to_the_reference() {
        let row = "| `cuInit` | `CudaContext::new(0)` | `Device::open(X::Y)`, `pool` |\n";
        let text = format!("`Queue::wait`\n{row}");
        let link = "[`Device::open(X::Y)`](../rust/tegra_hcq/index.html?search=Device%3A%3Aopen)";
        assert_eq!(with_references(&text), text.replace("`Device::open(X::Y)`", link));
    }

    #[test]
    fn tables_of_the_kernel_log_are_in_an_element() {
        let root = workspace::root().unwrap();
        let page = std::fs::read_to_string(root.join("docs/kernel-log-faults.md")).unwrap();
        let text = stacked(&page);
        let (before, rest) = text.split_once("\n<div class=\"rows\">\n\n<!-- tables").unwrap();
        let (tables, after) = rest.split_once("\n</div>\n").unwrap();
        assert_eq!(tables.matches("\n| line | class | event | meaning | what to do |\n").count(), 2);
        assert!([before, after].iter().all(|text| !text.contains("</div>") && !text.contains("\n| `")));
        let style = std::fs::read_to_string(root.join("docs/site.css")).unwrap();
        assert!(style.contains("    .rows td:nth-child(5)::before { content: \"What to do: \""), "{style}");
    }

    #[test]
    fn the_version_has_a_commit_in_a_checkout_only() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(version(folder.path()), format!("version {}", env!("CARGO_PKG_VERSION")));
        let root = workspace::root().unwrap();
        let git = std::process::Command::new("git").args(["rev-parse", "HEAD"]).current_dir(&root).output();
        let is_checkout = git.is_ok_and(|output| output.status.success());
        assert_eq!(version(&root).contains(", commit "), is_checkout);
    }

    #[test]
    fn links_that_leave_the_book_are_replaced() {
        let root = workspace::root().unwrap();
        let pages = ["README.md", "docs/guide.md", "tests/README.md"].map(PathBuf::from).into();
        let references = references(&root).unwrap();
        let cases = [
            ("README.md", "docs/guide.md#x", None),
            ("README.md", "#x", None),
            ("docs/guide.md", "https://example.com/a.md", None),
            ("docs/guide.md", "../README.md", Some("../index.md".to_owned())),
            ("docs/guide.md", "../tests/README.md#x", Some("../tests/index.md#x".to_owned())),
            ("docs/guide.md", "Doxyfile", None),
            ("docs/guide.md", "../kernels", Some(format!("{REPOSITORY}/tree/main/kernels"))),
            ("README.md", "LICENSE-MIT", Some(format!("{REPOSITORY}/blob/main/LICENSE-MIT"))),
            (
                "docs/guide.md",
                "../crates/cuda-core/README.md",
                Some("../rust/orin_cuda_core/index.html".to_owned()),
            ),
            ("README.md", "bindings/python/README.md", Some("python/tegra_hcq.html".to_owned())),
        ];
        for (page, target, wanted) in cases {
            let found = elsewhere(&root, Path::new(page), target, &pages, &references);
            assert_eq!(found, wanted, "{target} of {page}");
        }
        let text = "[a](one) `[b](one)` [c](two)";
        assert_eq!(
            rewritten(text, |target| (target == "one").then(|| "1".to_owned())),
            "[a](1) `[b](one)` [c](two)"
        );
    }
}
