//! Links of HTML pages: each leads to a file of the site, and to an element with the name after its `#`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::check_source::normal;

/// What a page has.
struct Page {
    names: BTreeSet<String>,
    links: BTreeSet<String>,
}

/// Checks the pages below `root`; returns their number and the links that lead nowhere. Links of pages in the folder
/// `checked`, and links to the folders `without`, are left out.
pub(super) fn check(root: &Path, checked: &str, without: &[&str]) -> Result<(usize, Vec<String>)> {
    let mut pages = BTreeMap::new();
    collect(root, &mut pages)?;
    let mut broken = Vec::new();
    for (path, page) in pages.iter().filter(|(path, _)| !path.starts_with(root.join(checked))) {
        for link in &page.links {
            if link.contains(':') || link.starts_with("//") {
                continue;
            }
            let (file, name) = link.split_once('#').unwrap_or((link, ""));
            let file = file.split('?').next().unwrap_or_default();
            let file =
                if file.is_empty() { path.clone() } else { normal(&path.with_file_name(decoded(file))) };
            if without.iter().any(|folder| file.starts_with(root.join(folder))) {
                continue;
            }
            let file = if file.is_dir() { file.join("index.html") } else { file };
            let is_right = match pages.get(&file) {
                Some(page) => {
                    let is_named = |name: &str| page.names.contains(name);
                    name.is_empty() || is_named(name) || is_named(&decoded(name))
                }
                None => file.exists(),
            };
            if !is_right {
                let page = path.strip_prefix(root).unwrap_or(path);
                broken.push(format!("{}: {link} leads nowhere", page.display()));
            }
        }
    }
    Ok((pages.len(), broken))
}

fn collect(folder: &Path, pages: &mut BTreeMap<PathBuf, Page>) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, pages)?;
        } else if path.extension().is_some_and(|extension| extension == "html") {
            let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            pages.insert(path, parse(&text));
        }
    }
    Ok(())
}

/// The attributes of a page's tags that name or link.
fn parse(text: &str) -> Page {
    let mut page = Page { names: BTreeSet::new(), links: BTreeSet::new() };
    let mut rest = text;
    while let Some(start) = rest.find('<') {
        rest = &rest[start + 1..];
        if rest.starts_with("!--") {
            rest = rest.find("-->").map_or("", |at| &rest[at..]);
            continue;
        }
        let is_script = rest.starts_with("script");
        let end = rest.find('>').unwrap_or(rest.len());
        let mut tag = &rest[..end];
        while let Some((before, after)) = tag.split_once('=') {
            let name = before.trim_end().rsplit(char::is_whitespace).next().unwrap_or_default();
            let after = after.trim_start();
            let quote = after.chars().next().filter(|c| matches!(c, '"' | '\''));
            let (value, next) = match quote {
                Some(quote) => after[1..].split_once(quote).unwrap_or((&after[1..], "")),
                None => after.split_at(after.find(char::is_whitespace).unwrap_or(after.len())),
            };
            let value = value.replace("&amp;", "&");
            match name {
                "id" | "name" => page.names.insert(value),
                "href" | "src" => page.links.insert(value),
                _ => false,
            };
            tag = next;
        }
        rest = &rest[end..];
        if is_script {
            rest = rest.find("</script").map_or("", |at| &rest[at..]);
        }
    }
    page
}

/// The text of a link with its `%XX` as bytes.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let code = (*first == b'%').then(|| after.get(..2)).flatten();
        let code = code.and_then(|code| std::str::from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        std::fs::create_dir(root.join("sub")).unwrap();
        let write = |name: &str, text: &str| std::fs::write(root.join(name), text).unwrap();
        std::fs::create_dir(root.join("made")).unwrap();
        write("made/page.html", "<p id='x%20y'><a href='not-there.html'>n</a>");
        write("picture.png", "");
        write(
            "index.html",
            "<h1 id=top class='x'>A</h1><a href=\"sub/\">s</a> <a href='sub/index.html#a%20b'>x</a>\
             <img alt=\"a = b\" src=picture.png> <a href='https://example.com/no'>w</a> <a href='no.html'>n</a>\
             <script>x = '<a href=\"script.html\">'</script> <!-- <a href='comment.html'> --> <a href='#bottom'>b</a>\
             <a href='rust/x.html'>r</a> <a href='made/page.html?q=1#x%20y'>l</a>",
        );
        write(
            "sub/index.html",
            "<p id='a b'><a href='../index.html#top'>t</a><a href='../index.html#no'>t</a>",
        );
        let (pages, broken) = check(root, "made", &["rust"]).unwrap();
        assert_eq!(pages, 3);
        let wanted = ["index.html: #bottom", "index.html: no.html", "sub/index.html: ../index.html#no"];
        assert_eq!(broken, wanted.map(|link| format!("{link} leads nowhere")));
    }
}
