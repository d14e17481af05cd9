//! Writes the CUDA headers and compares them with the committed ones.

use core::fmt::Write;
use std::fs;
use std::path::Path;

use super::{CODES, gemm, llm};

/// A struct of a table.
pub(super) struct Struct {
    pub(super) name: &'static str,
    pub(super) doc: &'static [&'static str],
    pub(super) size: usize,
    pub(super) fields: &'static [Field],
}

/// A field of a struct.
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) doc: &'static [&'static str],
    pub(super) offset: usize,
    /// The Rust type.
    pub(super) rust: &'static str,
    /// The CUDA type, if it is given.
    pub(super) cuda: &'static [&'static str],
}

/// Codes of an enum, with macro, value and comment of each.
pub(super) struct Codes {
    pub(super) doc: &'static [&'static str],
    pub(super) codes: &'static [(&'static str, u32, &'static [&'static str])],
}

impl Field {
    /// The declaration in CUDA.
    fn declaration(&self) -> String {
        let (element, count) = match self.rust.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            Some(array) => array.split_once("; ").expect("an element and a length"),
            None => (self.rust, ""),
        };
        let element = match (self.cuda, element) {
            ([cuda], _) => cuda,
            (_, "f32") => "float",
            (_, other) => other,
        };
        let count = if count.is_empty() { String::new() } else { format!("[{count}]") };
        format!("{element} {}{count};", self.name)
    }
}

/// Writes comment lines.
fn comment(out: &mut String, indent: &str, doc: &[&str]) {
    for line in doc {
        writeln!(out, "{indent}//{line}").unwrap();
    }
}

/// The text of a header.
fn header(table: &str, types: &str, structs: &[Struct]) -> String {
    let mut out = format!(
        "// Written by `UPDATE_HEADER=1 cargo test -p orin-infer headers` from\n// \
         crates/infer/src/parameters/{table}.rs: edit that file.\n#pragma once\n#include \"{types}\"\n\n\
         // NVRTC has no offsetof.\n#define AT(type, field, offset) \\\n    \
         static_assert(__INTADDR__(&((type*)0)->field) == offset, \"offset of \" #field \" in \" #type)\n"
    );
    for Codes { doc, codes } in CODES {
        out.push('\n');
        comment(&mut out, "", doc);
        for (name, value, doc) in *codes {
            comment(&mut out, "", doc);
            writeln!(out, "#define {name} {value}").unwrap();
        }
    }
    for Struct { name, doc, size, fields } in structs {
        out.push('\n');
        comment(&mut out, "", doc);
        writeln!(out, "struct {name} {{").unwrap();
        for field in *fields {
            comment(&mut out, "    ", field.doc);
            writeln!(out, "    {}", field.declaration()).unwrap();
        }
        out.push_str("};\n");
        for Field { name: field, offset, .. } in *fields {
            writeln!(out, "AT({name}, {field}, {offset});").unwrap();
        }
        writeln!(out, "static_assert(sizeof({name}) == {size}, \"size of {name}\");").unwrap();
    }
    out + "\n#undef AT\n"
}

#[test]
fn the_committed_headers_are_up_to_date() {
    let kernels = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels");
    for (table, types, structs) in [("llm", "common.cuh", llm::TABLE), ("gemm", "mma.cuh", gemm::TABLE)] {
        let (path, text) = (kernels.join(table).join("parameters.cuh"), header(table, types, structs));
        if std::env::var_os("UPDATE_HEADER").is_some() {
            fs::write(&path, &text).unwrap();
        }
        let committed = fs::read_to_string(&path).unwrap();
        assert!(
            committed == text,
            "{} differs from its table: UPDATE_HEADER=1 cargo test -p orin-infer headers",
            path.display()
        );
    }
}

#[test]
fn a_header_declares_codes_fields_and_their_offsets() {
    let fields = &[
        Field { name: "a", doc: &[" First."], offset: 0, rust: "u64", cuda: &["const u8*"] },
        Field { name: "b", doc: &[], offset: 8, rust: "f32", cuda: &[] },
        Field { name: "c", doc: &[], offset: 12, rust: "[u32; 3]", cuda: &[] },
    ];
    let text = header("t", "types.cuh", &[Struct { name: "S", doc: &[" Doc."], size: 24, fields }]);
    assert!(text.contains("#include \"types.cuh\"\n") && text.contains("\n#define AFTER_GATE 4\n"), "{text}");
    let declared = "\n// Doc.\nstruct S {\n    // First.\n    const u8* a;\n    float b;\n    u32 c[3];\n};\nAT(S, a, \
                    0);\nAT(S, b, 8);\nAT(S, c, 12);\nstatic_assert(sizeof(S) == 24, \"size of S\");\n";
    assert!(text.contains(declared), "{text}");
}
