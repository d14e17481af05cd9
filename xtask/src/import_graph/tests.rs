use std::collections::BTreeSet;
use std::path::PathBuf;

use tempfile::TempDir;

use super::circles::{self, Graph};
use super::modules::Modules;

/// A crate with the given files.
fn crate_of(files: &[(&str, &str)]) -> (TempDir, Modules) {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let modules = Modules::read(&folder.path().join(files[0].0)).unwrap();
    (folder, modules)
}

/// The imports of a crate as `from>to`, sorted.
fn imports(files: &[(&str, &str)]) -> Vec<String> {
    let (folder, modules) = crate_of(files);
    let name = |index: usize| {
        let path = modules.files()[index].strip_prefix(folder.path()).unwrap();
        path.with_extension("").display().to_string()
    };
    let mut lines = Vec::new();
    for (from, to) in modules.imports().iter().enumerate() {
        lines.extend(to.iter().map(|&to| format!("{}>{}", name(from), name(to))));
    }
    lines.sort();
    lines
}

/// The files of the largest circle of a crate.
fn circle(files: &[(&str, &str)]) -> Vec<PathBuf> {
    let (folder, modules) = crate_of(files);
    let relative = |index: usize| modules.files()[index].strip_prefix(folder.path()).unwrap().to_owned();
    circles::largest(&modules.imports()).into_iter().map(relative).collect()
}

#[test]
fn a_declaration_is_no_import() {
    assert!(imports(&[("lib.rs", "mod a; pub mod b;"), ("a.rs", ""), ("b.rs", "")]).is_empty());
}

#[test]
fn a_use_imports_the_deepest_module_that_it_names() {
    let files = [
        ("lib.rs", "mod a; mod b;"),
        ("a/mod.rs", "pub(crate) mod deep; pub(crate) struct Other;"),
        ("a/deep.rs", "pub(crate) struct Item;"),
        ("b.rs", "use crate::a::deep::Item; use crate::a::Other as Renamed;"),
    ];
    assert_eq!(imports(&files), ["b>a/deep", "b>a/mod"]);
}

#[test]
fn trees_globs_and_relative_paths_are_followed() {
    let files = [
        ("lib.rs", "mod a; mod b; mod c; mod d; struct Root;"),
        ("a.rs", "use super::{b::{self, Item}, c::*};"),
        ("b.rs", "use self::inner::X; mod inner { use super::super::c::Y; }"),
        ("c.rs", "use super::*;"),
        ("d/mod.rs", "mod child;"),
        ("d/child.rs", "use super::super::a;"),
    ];
    assert_eq!(imports(&files), ["a>b", "a>c", "b>c", "c>lib", "d/child>a"]);
}

#[test]
fn paths_in_expressions_types_and_macro_calls_count() {
    let files = [
        ("lib.rs", "mod a; mod b; mod c; mod d; mod e;"),
        ("a.rs", "fn f(x: crate::b::Item) { assert!(super::c::check(x)); }"),
        ("b.rs", "macro_rules! m { () => { $crate::d::Item } }"),
        ("c.rs", "use crate::e; fn g() -> usize { e::deep::size() + Vec::<u8>::new().len() }"),
        ("d.rs", ""),
        ("e/mod.rs", "pub(crate) mod deep;"),
        ("e/deep.rs", ""),
    ];
    assert_eq!(imports(&files), ["a>b", "a>c", "b>d", "c>e/deep", "c>e/mod"]);
}

#[test]
fn a_parent_does_not_import_its_descendants() {
    let files = [
        ("lib.rs", "mod a; use a::deep::Item; fn f() { a::g() }"),
        ("a/mod.rs", "pub mod deep; pub use self::deep::Item; pub fn g() { deep::size(); }"),
        ("a/deep.rs", "use super::g; pub struct Item;"),
    ];
    assert_eq!(imports(&files), ["a/deep>a/mod"]);
}

#[test]
fn a_re_export_leads_to_the_file_with_the_definition() {
    let files = [
        ("lib.rs", "mod a; mod b; mod c; pub use a::Item; pub use b::*; use c::Third;"),
        ("a.rs", "use crate::Helper;"),
        ("b.rs", "pub struct Helper; use crate::{Third as Renamed, Fourth};"),
        ("c.rs", "pub struct Third; use crate::Item;"),
    ];
    assert_eq!(imports(&files), ["a>b", "b>c", "b>lib", "c>a"]);
    assert_eq!(circle(&files), ["a.rs", "b.rs", "c.rs"].map(PathBuf::from));
}

#[test]
fn a_re_export_counts_where_the_module_uses_the_name_itself() {
    let others = ("b.rs", "pub struct Item;");
    assert!(imports(&[("lib.rs", "mod a; mod b;"), ("a.rs", "pub use crate::b::Item;"), others]).is_empty());
    let user = ("a.rs", "pub(crate) use crate::b::Item; fn f(_: Item) {}");
    assert_eq!(imports(&[("lib.rs", "mod a; mod b;"), user, others]), ["a>b"]);
}

#[test]
fn items_for_tests_are_left_out() {
    let files = [
        ("lib.rs", "mod a; mod b; #[cfg(test)] mod tests;"),
        (
            "a.rs",
            "#[cfg(test)] use crate::b::{X, Y}; #[cfg(all(test, loom))] fn t() { crate::b::x() }
             #[cfg(test)] mod tests { use super::*; use crate::b; }
             struct S { #[cfg(test)] seen: crate::b::Seen, kept: u8 }",
        ),
        ("b.rs", "#[cfg(any(test, feature = \"x\"))] use crate::a::Item;"),
    ];
    assert_eq!(imports(&files), ["b>a"]);
}

#[test]
fn other_crates_and_restricted_visibility_are_no_imports() {
    let files = [
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "use ::b::Item; use std::b::Other; pub(in crate::b) fn f() { std::b::g(); x.b::<u8>(); }"),
        ("b.rs", "pub(super) fn f() {} pub(crate) fn g<'b>(x: &'b u8) -> impl Sized + use<'b> { x }"),
    ];
    assert!(imports(&files).is_empty());
}

#[test]
fn modules_are_found_where_the_compiler_finds_them() {
    let files = [
        ("lib.rs", "#[path = \"other.rs\"] mod named; mod outer { pub mod inner; }"),
        ("other.rs", "use crate::outer::inner::Y;"),
        ("outer/inner.rs", ""),
    ];
    assert_eq!(imports(&files), ["other>outer/inner"]);
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("lib.rs"), "mod missing;").unwrap();
    let error = Modules::read(&folder.path().join("lib.rs")).err().unwrap();
    assert!(error.to_string().contains("missing"), "{error}");
}

#[test]
fn the_largest_circle_is_found() {
    let graph = |edges: &[&[usize]]| -> Graph {
        edges.iter().map(|to| to.iter().copied().collect::<BTreeSet<_>>()).collect()
    };
    // 0 and 1 form a circle, which leads to the circle of 2, 3 and 4; 5 is isolated.
    assert_eq!(circles::largest(&graph(&[&[1], &[0, 2], &[3], &[4], &[2], &[]])), [2, 3, 4]);
    assert_eq!(circles::largest(&graph(&[&[1], &[2], &[]])), [0]);
    assert!(circles::largest(&graph(&[])).is_empty());
}
