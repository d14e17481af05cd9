//! The programs of docs/guide.md, docs/coming-from-cuda.md and README.md run, and the documents quote them exactly.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The quoted programs, each with a part of its output.
const PROGRAMS: [(&str, &str); 7] = [
    ("layers_requests", "doorbell token 0x1ff"),
    ("layers_channel", "1000 squares, all right"),
    ("layers_launch", "1000 squares, all right"),
    ("layers_graph", "2 steps, 1000 squares, all right"),
    ("layers_loop", "500 cycles, all right"),
    ("readme", "1000 sums, all 3"),
    ("from_cuda", "4 sums, all 128"),
];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn every_program_runs_and_is_right() {
    // `cargo test` builds the examples of a package before its tests.
    let test = std::env::current_exe().unwrap();
    let examples = test.parent().and_then(Path::parent).unwrap().join("examples");
    for (name, part) in PROGRAMS {
        let output = Command::new(examples.join(name)).current_dir(workspace()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(text.contains(part), "{name}: {text}");
    }
}

/// A block of Rust code in a document.
struct Quote {
    line: usize,
    text: Vec<String>,
}

/// The blocks of code in a language.
fn quotes(document: &str, language: &str) -> Vec<Quote> {
    let start = format!("```{language}");
    let mut quotes = Vec::new();
    let mut open: Option<Quote> = None;
    for (line, text) in (1..).zip(document.lines()) {
        match &mut open {
            None if text == start || text.starts_with(&format!("{start},")) => {
                open = Some(Quote { line, text: Vec::new() })
            }
            Some(_) if text == "```" => quotes.extend(open.take()),
            Some(quote) => quote.text.push(text.to_owned()),
            None => {}
        }
    }
    assert!(open.is_none(), "a code block has no end");
    quotes
}

/// Removes the common indentation of the lines.
fn unindented<'a>(lines: &[&'a str]) -> Vec<&'a str> {
    let indentation = |line: &&str| line.len() - line.trim_start().len();
    let shared = lines.iter().filter(|line| !line.trim().is_empty()).map(indentation).min().unwrap_or(0);
    lines.iter().map(|line| line.get(shared..).unwrap_or("")).collect()
}

/// Returns whether `program` contains `quote` at any indentation.
fn contains_quote(quote: &[String], program: &str) -> bool {
    let lines: Vec<&str> = program.lines().collect();
    let quote: Vec<&str> = quote.iter().map(String::as_str).collect();
    let quote = unindented(&quote);
    lines.windows(quote.len()).any(|window| unindented(window) == quote)
}

#[test]
fn quotes_are_what_runs() {
    let programs: Vec<(&str, String)> = PROGRAMS
        .iter()
        .map(|(name, _)| (*name, read(&workspace().join("examples").join(name).with_extension("rs"))))
        .collect();
    let mut quoted = BTreeSet::new();
    for document in ["docs/guide.md", "docs/coming-from-cuda.md", "README.md"] {
        for quote in quotes(&read(&workspace().join(document)), "rust") {
            let found = programs.iter().find(|(_, text)| contains_quote(&quote.text, text));
            let (name, _) = found.unwrap_or_else(|| {
                panic!("{document}:{}: no program in examples/ contains this block", quote.line)
            });
            quoted.insert(*name);
        }
    }
    assert_eq!(quoted.len(), PROGRAMS.len(), "a program is not quoted; quoted are {quoted:?}");
    let program = read(&workspace().join("examples/c/vector_add.c"));
    let of_c = quotes(&read(&workspace().join("docs/c.md")), "c");
    assert!(!of_c.is_empty() && of_c.iter().all(|quote| contains_quote(&quote.text, &program)), "docs/c.md");
}

#[test]
fn a_quote_is_found_at_any_indentation_and_not_when_it_differs() {
    let program = "fn main() {\n    let a = 1;\n\n    let b = 2;\n}\n";
    let quote = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    assert!(contains_quote(&quote("let a = 1;\n\nlet b = 2;"), program));
    assert!(!contains_quote(&quote("let a = 1;\nlet b = 2;"), program));
    assert!(!contains_quote(&quote("let a = 2;"), program));
}
