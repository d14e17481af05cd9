//! `cargo xtask check-source`: rules for the source text that neither rustfmt nor clippy checks.
//!
//! No line of a Rust file is wider than 120 columns: rustfmt does not wrap comments, strings and tables. Each
//! call of `expect` or `unwrap` in a product has a comment `PANIC:` that explains why it cannot fail. Each example
//! in a library's documentation asserts a result, and the page of its crate names all that it exports. Links of pages
//! in Markdown lead to files and headings, and the contents of the site list each page.

mod documentation;
mod pages;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use orin_cli::say;
use proc_macro2::{Delimiter, TokenStream, TokenTree};

use documentation::{idle_examples, public_items, unlisted};
pub(crate) use pages::normal;

use crate::import_graph::Modules;
use crate::tokens::{is_for_tests, next_group, skip_item};
use crate::workspace;

/// Widest line in columns; a few more than rustfmt's `max_width`, for comments that end with a long name.
const WIDTH: usize = 120;

/// Folder of the library whose interface is a C header.
const C_LIBRARY: &str = "crates/tegra-hcq-capi";

/// Folders with Rust sources.
const FOLDERS: &[&str] = &["crates", "xtask", "tests", "benches", "examples", "fuzz"];

/// Folders whose crates are products: users run them, so a panic there needs a reason.
const PRODUCTS: &[&str] = &["crates", "xtask", "examples"];

/// The folder of the libraries.
const LIBRARIES: &str = "crates";

/// Calls that panic instead of returning an error.
const PANICKING: &[&str] = &["expect", "unwrap"];

/// Checks all sources and prints the lines at fault; exit code 1 if there are any.
pub(crate) fn run() -> Result<ExitCode> {
    let root = workspace::root()?;
    let mut faults = Vec::new();
    let mut fault = |path: &Path, line: usize, text: &str| {
        let path = path.strip_prefix(&root).unwrap_or(path);
        faults.push(format!("{}:{line}: {text}", path.display()));
    };
    for path in sources(&root)? {
        let text = read(&path)?;
        for line in wide_lines(&text) {
            fault(&path, line, &format!("wider than {WIDTH} columns"));
        }
        for (line, page) in pages::missing_pages(&root, &text) {
            fault(&path, line, &format!("there is no page {page}"));
        }
    }
    for (path, line, text) in pages::check(&root)? {
        fault(&path, line, &text);
    }
    for path in product_sources(&root)? {
        for line in unexplained_panics(&read(&path)?).with_context(|| path.display().to_string())? {
            fault(&path, line, "a call that may panic, without a comment `PANIC:` above it");
        }
    }
    for library in libraries(&root)? {
        for path in Modules::read(&library)?.files() {
            for line in idle_examples(&read(path)?) {
                fault(path, line, "an example without an assertion; mark it `no_run` if it needs a board");
            }
        }
        // The interface of the C library is its header.
        if !library.starts_with(root.join(C_LIBRARY)) {
            let text = read(&library)?;
            let items = public_items(parse(&text).with_context(|| library.display().to_string())?);
            for item in unlisted(&text, &items) {
                fault(&library, item.line, &format!("the crate page does not name `{}`", item.name));
            }
        }
    }
    for fault in &faults {
        say!("{fault}")?;
    }
    say!("{} lines at fault", faults.len())?;
    Ok(if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The text of a file.
fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| path.display().to_string())
}

/// All Rust files of the project.
fn sources(root: &Path) -> Result<BTreeSet<PathBuf>> {
    let mut files = BTreeSet::new();
    let mut pending: Vec<PathBuf> = FOLDERS.iter().map(|folder| root.join(folder)).collect();
    while let Some(folder) = pending.pop() {
        for entry in std::fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            if path.is_dir() && !path.ends_with("target") {
                pending.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.insert(path);
            }
        }
    }
    Ok(files)
}

/// The files of libraries, programs and examples, without modules for tests.
fn product_sources(root: &Path) -> Result<BTreeSet<PathBuf>> {
    let mut files = BTreeSet::new();
    for target in workspace::targets(root)? {
        let is_product = PRODUCTS.iter().any(|folder| target.source.starts_with(root.join(folder)));
        if is_product && ["lib", "bin", "example"].contains(&target.kind.as_str()) {
            files.extend(Modules::read(&target.source)?.files().iter().cloned());
        }
    }
    Ok(files)
}

/// The root files of the libraries for users.
fn libraries(root: &Path) -> Result<Vec<PathBuf>> {
    let libraries = workspace::targets(root)?.into_iter().map(|target| (target.kind, target.source));
    let is_for_users = |source: &PathBuf| source.starts_with(root.join(LIBRARIES));
    Ok(libraries
        .filter(|(kind, source)| kind == "lib" && is_for_users(source))
        .map(|(_, source)| source)
        .collect())
}

fn parse(text: &str) -> Result<TokenStream> {
    text.parse().map_err(|error| anyhow!("{error}"))
}

/// Returns the 1-based numbers of the lines wider than [`WIDTH`].
fn wide_lines(text: &str) -> Vec<usize> {
    let is_wide = |line: &&str| line.chars().count() > WIDTH;
    (1..).zip(text.lines()).filter(|(_, line)| is_wide(line)).map(|(number, _)| number).collect()
}

/// Returns the 1-based numbers of the lines with a call that may panic and no comment that explains it.
fn unexplained_panics(text: &str) -> Result<Vec<usize>> {
    let tokens = parse(text)?;
    let lines: Vec<&str> = text.lines().collect();
    let mut calls = Vec::new();
    panicking_calls(tokens, &mut calls);
    calls.retain(|&line| !is_explained(&lines, line));
    Ok(calls)
}

/// Appends the numbers of the lines with calls that may panic, outside test items.
fn panicking_calls(tokens: TokenStream, calls: &mut Vec<usize>) {
    let mut tokens = tokens.into_iter().peekable();
    let mut after_dot = false;
    while let Some(token) = tokens.next() {
        let is_method = std::mem::take(&mut after_dot);
        match token {
            TokenTree::Punct(punct) if punct.as_char() == '#' => {
                let attribute = next_group(&mut tokens, Delimiter::Bracket);
                if attribute.is_some_and(|attribute| is_for_tests(&attribute)) {
                    skip_item(&mut tokens);
                }
            }
            TokenTree::Punct(punct) => after_dot = punct.as_char() == '.',
            TokenTree::Ident(ident) if is_method && PANICKING.contains(&ident.to_string().as_str()) => {
                calls.push(ident.span().start().line);
            }
            TokenTree::Group(group) => panicking_calls(group.stream(), calls),
            _ => {}
        }
    }
}

/// Whether the statement on this line has a comment `PANIC:`, on the line itself or above.
fn is_explained(lines: &[&str], number: usize) -> bool {
    let has_comment = |line: &str| line.find("//").is_some_and(|comment| line[comment..].contains("PANIC:"));
    let above = lines[..number - 1].iter().rev().map(|line| line.trim());
    let ends_statement =
        |line: &&str| !line.starts_with("//") && (line.is_empty() || line.ends_with([';', '{', '}']));
    has_comment(lines[number - 1]) || above.take_while(|line| !ends_statement(line)).any(has_comment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_measured_in_characters() {
        let text = format!("{}\n{}\n{}\n", "x".repeat(120), "y".repeat(121), "µ".repeat(120));
        assert_eq!(wide_lines(&text), [2]);
    }

    #[test]
    fn a_call_that_panics_needs_a_comment_on_its_statement() {
        let text = r#"
            fn f(x: Option<u8>) -> u8 {
                let a = x.expect("bare");
                // PANIC: reason one.
                let b = x.expect("explained");
                let c = x.unwrap(); // PANIC: reason two.
                // PANIC: a reason
                // of two lines;
                let d = x
                    .map(|value| value + 1)
                    .expect("explained further above");
                let e = x.expect("the comment belongs to another statement");
                a + b + c + d + e + assert_eq!(x.unwrap(), 1) + x.unwrap_or(2)
            }
        "#;
        assert_eq!(unexplained_panics(text).unwrap(), [3, 12, 13]);
    }

    #[test]
    fn tests_and_text_need_no_comment() {
        let text = r#"
            /// Calls `x.unwrap()`.
            fn f() { print(".unwrap()"); }
            #[cfg(test)]
            mod tests { fn f(x: Option<u8>) { x.unwrap(); } }
            #[cfg(test)]
            fn helper(x: Option<u8>) -> u8 { x.expect("x") }
            fn g(x: Option<u8>) -> u8 { x.expect("bare") }
        "#;
        assert_eq!(unexplained_panics(text).unwrap(), [8]);
    }

    #[test]
    fn files_of_products_and_others_are_found() {
        let root = workspace::root().unwrap();
        let all = sources(&root).unwrap();
        let products = product_sources(&root).unwrap();
        assert!(products.is_subset(&all));
        let own = root.join("xtask/src/check_source/mod.rs");
        assert!(products.contains(&own) && all.contains(&own));
        let of_tests = root.join("xtask/src/import_graph/tests.rs");
        assert!(!products.contains(&of_tests) && all.contains(&of_tests));
        let libraries = libraries(&root).unwrap();
        assert!(
            libraries.contains(&root.join("crates/cubin/src/lib.rs")) && libraries.len() >= 14,
            "{libraries:?}"
        );
    }
}
