//! Pages in Markdown: links lead to files and headings, and the site's contents list every page.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result};

use super::read;
use crate::markdown::{headings, links};

/// Table of contents of the site.
const CONTENTS: &str = "docs/SUMMARY.md";

/// Beginnings of the links that are not files of the project.
const OUTSIDE: &[&str] = &["http://", "https://", "mailto:"];

/// A line at fault.
pub(super) type Fault = (PathBuf, usize, String);

/// Checks the pages below `root`.
pub(super) fn check(root: &Path) -> Result<Vec<Fault>> {
    let mut faults = Vec::new();
    for page in pages(root)? {
        let text = read(&page)?;
        for link in links(&text) {
            let target = &text[link.range];
            if let Some(reason) = broken(&page, &text, target)? {
                faults.push((page.clone(), link.line, format!("the link {target} leads nowhere: {reason}")));
            }
        }
    }
    let contents = root.join(CONTENTS);
    let text = read(&contents)?;
    let listed: Vec<PathBuf> =
        links(&text).into_iter().map(|link| normal(&contents.with_file_name(&text[link.range]))).collect();
    let mut once = BTreeSet::new();
    faults.extend(
        listed
            .iter()
            .filter(|page| !once.insert(*page))
            .map(|page| (contents.clone(), 1, format!("{} is listed twice", page.display()))),
    );
    for page in pages(&root.join("docs"))?.into_iter().filter(|page| *page != contents) {
        if !once.contains(&page) {
            faults.push((page.clone(), 1, format!("{CONTENTS} does not list this page")));
        }
        let text = read(&page)?;
        let titles = headings(&text).iter().filter(|heading| heading.level == 1).count();
        let mut paragraphs = text.split("\n\n").map(str::trim);
        let starts_well = paragraphs.next().is_some_and(|title| title.starts_with("# "))
            && paragraphs
                .next()
                .is_some_and(|first| first.starts_with(|c: char| c.is_alphanumeric() || c == '`'));
        if titles != 1 || !starts_well {
            let reason = "a page has one title, and below it a sentence that says what the page is for";
            faults.push((page.clone(), 1, reason.to_owned()));
        }
        let leads_on = |target: &str| !target.starts_with('#');
        if !links(&text).into_iter().any(|link| leads_on(&text[link.range])) {
            faults.push((page.clone(), 1, "the page links to no other page".to_owned()));
        }
    }
    Ok(faults)
}

/// The pages of `docs/` that a text names and that are missing, with their lines.
pub(super) fn missing_pages(root: &Path, text: &str) -> Vec<(usize, String)> {
    let mut missing = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        for (start, _) in line.match_indices("docs/") {
            let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '/' | '.');
            let name = &line[start..];
            let name = &name[..name.find(|c| !is_name(c)).unwrap_or(name.len())];
            let Some((name, _)) = name.split_once(".md") else { continue };
            let page = format!("{name}.md");
            if !root.join(&page).exists() {
                missing.push((number, page));
            }
        }
    }
    missing
}

/// The Markdown files below a folder.
fn pages(folder: &Path) -> Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let is_hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if path.is_dir() && !is_hidden && !path.ends_with("target") {
            found.append(&mut pages(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.insert(path);
        }
    }
    Ok(found)
}

/// Why a link of a page leads nowhere; `None` if it does not.
fn broken(page: &Path, text: &str, target: &str) -> Result<Option<String>> {
    // Names of Rust items in pages that crates include.
    let is_item = target.contains("::") || !target.contains(['/', '.', '#']);
    if is_item || OUTSIDE.iter().any(|prefix| target.starts_with(prefix)) {
        return Ok(None);
    }
    let (path, anchor) = target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
    let file = if path.is_empty() { page.to_owned() } else { normal(&page.with_file_name(path)) };
    if !file.exists() {
        return Ok(Some("there is no such file".to_owned()));
    }
    let Some(anchor) = anchor.filter(|_| file.extension().is_some_and(|extension| extension == "md")) else {
        return Ok(None);
    };
    let other = if file == page { text.to_owned() } else { read(&file)? };
    let exists = headings(&other).iter().any(|heading| heading.anchor == anchor);
    Ok((!exists).then(|| format!("{} has no such heading", file.display())))
}

/// The path without `.` and `..`.
pub(crate) fn normal(path: &Path) -> PathBuf {
    let mut result = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                result.pop();
            }
            Component::CurDir => {}
            other => result.push(other),
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_of_pages_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        std::fs::create_dir_all(root.join("docs/target")).unwrap();
        let write = |name: &str, text: &str| std::fs::write(root.join(name), text).unwrap();
        write(
            "README.md",
            "[guide](docs/guide.md#first-steps), [item](crate::Item), [web](https://example.com/x.md)\n",
        );
        write("docs/SUMMARY.md", "- [Guide](guide.md)\n- [Guide](./guide.md)\n- [Read](../README.md)\n");
        write(
            "docs/guide.md",
            "# Guide\n\nSteps: [self](#first-steps) [out](../README.md)\n\n## First steps\n",
        );
        write("docs/memory.md", "text\n\n# Memory\n\n[a](no.md) [b](guide.md#no)\n[c](#no)\n");
        std::fs::write(root.join("docs/target").join("built.md"), "[a](no.md)\n").unwrap();
        let faults = check(root).unwrap();
        let faults: Vec<_> = faults
            .iter()
            .map(|(page, line, text)| format!("{}:{line}: {text}", page.file_name().unwrap().display()))
            .collect();
        let starts = [
            "memory.md:5: the link no.md leads nowhere: there is no such file",
            "memory.md:5: the link guide.md#no leads nowhere",
            "memory.md:6: the link #no leads nowhere",
            "SUMMARY.md:1: ",
            "memory.md:1: docs/SUMMARY.md does not list this page",
            "memory.md:1: a page has one title",
        ];
        assert_eq!(faults.len(), starts.len(), "{faults:?}");
        assert!(faults.iter().zip(starts).all(|(fault, start)| fault.starts_with(start)), "{faults:?}");

        write("docs/memory.md", "# Memory\n\nText.\n");
        let faults = check(root).unwrap();
        assert!(faults.iter().any(|(_, _, text)| text == "the page links to no other page"), "{faults:?}");

        let name = "no";
        let text = format!(
            "See docs/guide.md.
`docs/{name}.md#part`, docs/x.json and docs/sub/{name}.md
"
        );
        let wanted = ["docs/", "docs/sub/"].map(|folder| (2, format!("{folder}{name}.md")));
        assert_eq!(missing_pages(root, &text), wanted);
    }
}
