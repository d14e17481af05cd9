//! The table of functions: exports, arguments, and the list in the documents.

use core::fmt::Write as _;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::CString;
use std::fs;
use std::path::Path;

use cudart::TABLE;

const FOLDER: &str = env!("CARGO_MANIFEST_DIR");

#[test]
fn every_function_is_exported_once() {
    let path =
        CString::new(crate::built("libcudart.so").to_str().expect("a path in UTF-8")).expect("no zero byte");
    // SAFETY: the library of this build; its constructors only prepare Rust's run time.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
    assert!(!library.is_null());
    let mut seen = BTreeSet::new();
    for (symbol, _) in TABLE {
        assert!(seen.insert(symbol), "{symbol} is in the table twice");
        let name = CString::new(*symbol).expect("no zero byte");
        // SAFETY: only the address is asked for.
        assert!(!unsafe { libc::dlsym(library, name.as_ptr()) }.is_null(), "{symbol} is not exported");
    }
    assert!(seen.len() > 430);
}

/// The calls of the driver in a source: the function's name, and the number of arguments.
fn calls(source: &str) -> Vec<(String, usize)> {
    let calls = source.split("cu!(").skip(1).filter_map(|rest| {
        let mut depth = 1_usize;
        let mut commas = 0;
        let end = rest.find(|letter: char| {
            match letter {
                '(' | '[' => depth += 1,
                ')' | ']' => depth -= 1,
                ',' if depth == 1 => commas += 1,
                _ => {}
            }
            depth == 0
        })?;
        let text = rest[..end].trim().trim_end_matches(',');
        commas -= usize::from(rest[..end].trim().ends_with(','));
        let name = text.split(',').next()?.split_whitespace().last()?;
        name.starts_with("cu").then(|| (name.to_owned(), commas))
    });
    calls.collect()
}

/// The driver gets as many arguments as its functions have.
#[test]
fn calls_have_the_arguments_of_the_driver() {
    let parameters = fs::read_to_string(Path::new(FOLDER).join("../libcuda/tests/parameters.txt"))
        .expect("the driver's parameters are there");
    let parameters: HashMap<_, _> = parameters
        .lines()
        .map(|line| line.split_once(' ').unwrap_or((line, "")))
        .map(|(name, kinds)| (name, kinds.len()))
        .collect();
    let mut found = Vec::new();
    for entry in fs::read_dir(Path::new(FOLDER).join("src")).expect("the sources are there") {
        found.extend(calls(&fs::read_to_string(entry.expect("an entry").path()).expect("a source")));
    }
    let own = found.len();
    assert!(own > 60, "{own} calls");
    let table = fs::read_to_string(Path::new(FOLDER).join("functions.txt")).expect("the table is there");
    for row in table.lines().filter(|row| !row.starts_with('#')) {
        let forms = row.split_once(' ').expect("a row has two parts").1.split(" | ");
        let forms = forms.filter(|form| form.starts_with("cu")).map(|form| form.split_whitespace().collect());
        found.extend(forms.map(|form: Vec<_>| (form[0].to_owned(), form.len() - 1)));
    }
    for (name, count) in &found[own..] {
        assert_eq!(parameters.get(name.as_str()), Some(count), "arguments of {name}");
    }
    for (name, count) in &found[..own] {
        assert_eq!(parameters.get(name.as_str()), Some(count), "arguments of {name}");
    }
}

/// The list of what is missing, by reason.
fn missing() -> String {
    let mut reasons: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for (symbol, reason) in TABLE {
        if let Some(reason) = reason {
            let plain = symbol.strip_suffix("_ptds").or(symbol.strip_suffix("_ptsz")).unwrap_or(symbol);
            reasons.entry(reason).or_default().insert(plain);
        }
    }
    let mut text = String::from("| missing in the run time | functions |\n|---|---|\n");
    for (reason, symbols) in reasons {
        let first = symbols.iter().next().expect("a reason has a function");
        writeln!(text, "| {reason} | {}, for example `{first}` |", symbols.len()).expect("a string grows");
    }
    text
}

#[test]
fn the_document_lists_what_is_missing() {
    let document =
        fs::read_to_string(Path::new(FOLDER).join("../../docs/cuda.md")).expect("the page is there");
    let wanted = missing();
    assert!(document.contains(&wanted), "docs/cuda.md needs this table:\n{wanted}");
}
