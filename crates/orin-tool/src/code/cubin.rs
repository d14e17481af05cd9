//! The contents of a cubin.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{self, Write};

use cubin::{Attribute, Contents, Cubin, FileKind, Kernel, Section, Symbol};
use serde_json::{Value, json};

use super::fatbin;
use crate::commands::Verdict;

/// Most bytes of a variable or an attribute that are printed.
const SHOWN_BYTES: usize = 64;

/// Symbol type of functions.
const STT_FUNC: u8 = 2;

/// Bit of a function's `st_other` that makes it a kernel.
const STO_CUDA_ENTRY: u8 = 0x10;

/// Most characters of a name in a row about something else.
const SHOWN_NAME: usize = 256;

/// Section types that the parser uses or that every ELF file has, with their names.
const SECTION_TYPES: [(u32, &str); 17] = [
    (0, "null"),
    (1, "data"),
    (2, "symbols"),
    (3, "strings"),
    (4, "relocations (addends)"),
    (7, "note"),
    (8, "no data"),
    (9, "relocations"),
    (0x7000_0000, "attributes"),
    (0x7000_0001, "call graph"),
    (0x7000_0002, "prototypes"),
    (0x7000_0007, "zeroed variables of an object"),
    (0x7000_0008, "variables of an object"),
    (0x7000_000a, "shared memory of an object"),
    (0x7000_000b, "relocation actions"),
    (0x7000_0064, "constant bank 0 of an object"),
    (0x7000_0086, "compatibility attributes"),
];

/// Adds a line, without terminal control characters.
macro_rules! line {
    ($text:ident, $($format:tt)*) => {{
        $text.push_str(&printable(&format!($($format)*)));
        $text.push('\n');
    }};
}

/// Lists the contents of a cubin, as text or as one JSON object: header, kernels, variables,
/// sections, attributes and relocations; unknown ones as numbers. A file whose tables can be read
/// but that cannot be loaded is listed with the reason. Of a fat binary, the entries are listed.
///
/// # Errors
///
/// Returns the error of writing `output`.
pub fn cubin(input: &[u8], mut output: impl Write, json: bool) -> io::Result<Verdict> {
    if FileKind::of(input) == FileKind::FatBinary {
        return fatbin::list(input, output, json);
    }
    let contents = match Contents::read(input) {
        Ok(contents) => contents,
        Err(error) => {
            if json {
                writeln!(output, "{}", json!({"kind": "cubin", "error": error.to_string()}))?;
            } else {
                writeln!(output, "error: {}", printable(&error.to_string()))?;
            }
            output.flush()?;
            return Ok(Verdict::Damaged);
        }
    };
    let module = Cubin::parse(input);
    let verdict = if module.is_ok() { Verdict::Whole } else { Verdict::Damaged };
    let listing = Listing { input, contents: &contents };
    if json {
        let mut object = listing.json();
        match &module {
            Ok(module) => {
                object["kernels"] = module.kernels().iter().map(kernel_json).collect();
                object["image_bytes"] = json!(module.image_bytes());
                object["undefined"] = module.undefined().collect();
            }
            Err(error) => object["error"] = json!(error.to_string()),
        }
        writeln!(output, "{object}")?;
    } else {
        let mut text = String::new();
        listing.header(&mut text);
        match &module {
            Ok(module) => {
                for kernel in module.kernels() {
                    kernel_text(&mut text, kernel);
                }
                let bytes = module.image_bytes();
                line!(text, "image: {bytes} bytes");
                module.undefined().for_each(|name| line!(text, "needs {}", short(name)));
            }
            Err(error) => line!(text, "error: cannot be loaded: {error}"),
        }
        listing.variables(&mut text);
        listing.functions(&mut text);
        listing.sections(&mut text);
        listing.attributes(&mut text);
        listing.relocations(&mut text);
        output.write_all(text.as_bytes())?;
    }
    output.flush()?;
    Ok(verdict)
}

/// Control characters as escapes.
pub(super) fn printable(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut out, c| {
        if c.is_control() {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
        out
    })
}

/// The start of a name that each row repeats: a hostile file could make it as long as the file.
fn short(name: &str) -> &str {
    name.char_indices().nth(SHOWN_NAME).map_or(name, |(end, _)| &name[..end])
}

/// The first bytes in hexadecimal.
fn bytes_text(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (at, byte) in bytes.iter().take(SHOWN_BYTES).enumerate() {
        // Writing to a String cannot fail.
        let _ = write!(text, "{}{byte:02x}", if at > 0 && at % 4 == 0 { " " } else { "" });
    }
    if bytes.len() > SHOWN_BYTES {
        let _ = write!(text, " ... ({} bytes)", bytes.len());
    }
    text
}

/// Threads or CTAs in x, y, z.
fn threads([x, y, z]: [u32; 3]) -> String {
    format!("{x} x {y} x {z}")
}

fn kernel_text(text: &mut String, kernel: &Kernel) {
    line!(text, "kernel {}", kernel.name);
    let stack = if kernel.unbounded_stack { " at least (recursion or calls through pointers)" } else { "" };
    line!(
        text,
        "  registers {}, barriers {}, shared {} bytes, local {} bytes{stack}",
        kernel.registers,
        kernel.barriers,
        kernel.shared_bytes,
        kernel.local_bytes
    );
    line!(text, "  code {} bytes at {:#x} of the image", kernel.code_bytes, kernel.code_offset);
    if let Some(max) = kernel.max_threads {
        line!(text, "  at most {} threads", threads(max));
    }
    if let Some(required) = kernel.required_threads {
        line!(text, "  exactly {} threads", threads(required));
    }
    if let Some(cluster) = kernel.cluster {
        line!(text, "  clusters of {} CTAs", threads(cluster));
    }
    line!(
        text,
        "  constant bank 0: {} bytes; parameters {} bytes at {:#x}",
        kernel.constant0_bytes,
        kernel.param_bytes,
        kernel.param_base
    );
    for param in &kernel.params {
        line!(
            text,
            "    parameter {}: {} bytes at {:#x} (c[0x0][{:#x}])",
            param.ordinal,
            param.bytes,
            param.offset,
            kernel.param_base + u32::from(param.offset)
        );
    }
    for bank in &kernel.constants {
        line!(text, "  constant bank {}: {} bytes at {:#x} of the image", bank.bank, bank.bytes, bank.offset);
    }
}

fn kernel_json(kernel: &Kernel) -> Value {
    json!({
        "name": kernel.name,
        "registers": kernel.registers,
        "barriers": kernel.barriers,
        "shared_bytes": kernel.shared_bytes,
        "local_bytes": kernel.local_bytes,
        "unbounded_stack": kernel.unbounded_stack,
        "max_threads": kernel.max_threads,
        "required_threads": kernel.required_threads,
        "cluster": kernel.cluster,
        "code_offset": kernel.code_offset,
        "code_bytes": kernel.code_bytes,
        "constant0_bytes": kernel.constant0_bytes,
        "param_base": kernel.param_base,
        "param_bytes": kernel.param_bytes,
        "params": kernel.params.iter().map(|param| {
            json!({"ordinal": param.ordinal, "offset": param.offset, "bytes": param.bytes})
        }).collect::<Value>(),
        "constants": kernel.constants.iter().map(|bank| {
            json!({"bank": bank.bank, "offset": bank.offset, "bytes": bank.bytes})
        }).collect::<Value>(),
    })
}

/// The tables of a file, with its bytes.
struct Listing<'a> {
    input: &'a [u8],
    contents: &'a Contents,
}

impl<'a> Listing<'a> {
    fn section(&self, index: usize) -> Option<&'a Section> {
        self.contents.sections.get(index)
    }

    fn section_name(&self, index: usize) -> &'a str {
        self.section(index).map_or("?", |section| short(&section.name))
    }

    /// Data symbols with their section and their initial bytes, of which [`SHOWN_BYTES`] + 1 are kept;
    /// none for variables that start as zeros.
    fn variable_list(&self) -> impl Iterator<Item = (&'a Symbol, &'a Section, Option<&'a [u8]>)> {
        // Objects, and CUDA objects of relocatable files.
        let objects = self.contents.symbols.iter().filter(|symbol| matches!(symbol.kind, 1 | 13));
        objects.filter_map(|symbol| {
            let section = self.section(symbol.section.into()).filter(|_| symbol.section != 0)?;
            let content = section.range.clone().and_then(|range| self.input.get(range)).and_then(|content| {
                let start = usize::try_from(symbol.value).ok()?;
                let end = start.checked_add(usize::try_from(symbol.bytes).ok()?)?;
                content.get(start..end)
            });
            Some((symbol, section, content))
        })
    }

    fn header(&self, text: &mut String) {
        let Contents { os_abi, abi_version, e_type, e_version, flags, sm, accelerated, .. } = *self.contents;
        let kind = match e_type {
            1 => "an object file for nvlink",
            2 => "a loadable cubin",
            _ => "of unknown type",
        };
        let suffix = if accelerated { "a" } else { "" };
        line!(text, "sm_{sm}{suffix}, {kind} (type {e_type})");
        line!(
            text,
            "ABI version {abi_version}, OS ABI {os_abi:#x}, e_version {e_version:#x}, e_flags {flags:#x}"
        );
    }

    fn variables(&self, text: &mut String) {
        for (symbol, section, content) in self.variable_list() {
            let (name, bytes, offset) = (&symbol.name, symbol.bytes, symbol.value);
            line!(text, "variable {name}: {bytes} bytes at {offset:#x} of {}", short(&section.name));
            match content {
                Some(content) => line!(text, "    {}", bytes_text(content)),
                None => line!(text, "    zeros"),
            }
        }
    }

    /// Functions other than kernels, and symbols that the file uses but does not define.
    fn functions(&self, text: &mut String) {
        for symbol in &self.contents.symbols {
            let (name, bytes, offset) = (short(&symbol.name), symbol.bytes, symbol.value);
            let is_function = symbol.kind == STT_FUNC && symbol.other & STO_CUDA_ENTRY == 0;
            if symbol.section == 0 {
                // The first symbol of a table and unnamed symbols have no meaning.
                if !name.is_empty() {
                    line!(text, "undefined {name}");
                }
            } else if is_function {
                let section = self.section_name(symbol.section.into());
                line!(text, "function {name}: {bytes} bytes at {offset:#x} of {section}");
            }
        }
    }

    fn sections(&self, text: &mut String) {
        for (index, section) in self.contents.sections.iter().enumerate().skip(1) {
            let kind = SECTION_TYPES.iter().find(|(kind, _)| *kind == section.kind);
            let kind =
                kind.map_or_else(|| format!("unknown {:#x}", section.kind), |(_, name)| (*name).to_owned());
            line!(
                text,
                "section {index:3}: {}: {kind}, {} bytes, flags {:#x}, link {}, info {:#x}, align {}",
                section.name,
                section.bytes,
                section.flags,
                section.link,
                section.info,
                section.align
            );
        }
    }

    fn attributes(&self, text: &mut String) {
        for attribute in &self.contents.attributes {
            let section = self.section_name(attribute.section);
            let name = attribute.name().map_or_else(
                || format!("unknown {:#04x}", attribute.number),
                |name| format!("{name} ({:#04x})", attribute.number),
            );
            line!(text, "attribute of {section}: {name} {}", bytes_text(value_of(attribute)));
        }
    }

    fn relocations(&self, text: &mut String) {
        for relocation in &self.contents.relocations {
            let section = self.section_name(relocation.section);
            let name = relocation.name().map_or_else(
                || format!("unknown {}", relocation.kind),
                |name| format!("{name} ({})", relocation.kind),
            );
            let symbol = self.contents.symbol(relocation.symbol).map_or("?", |symbol| short(&symbol.name));
            let addend = relocation.addend.map(|addend| format!(" + {addend:#x}")).unwrap_or_default();
            let (offset, number) = (relocation.offset, relocation.symbol);
            line!(text, "relocation of {section} at {offset:#x}: {name} symbol {number} {symbol}{addend}");
        }
    }

    fn json(&self) -> Value {
        let contents = self.contents;
        let unknown: BTreeSet<u32> = contents
            .sections
            .iter()
            .map(|section| section.kind)
            .filter(|kind| SECTION_TYPES.iter().all(|(known, _)| known != kind))
            .collect();
        json!({
            "kind": "cubin",
            "sm": contents.sm,
            "accelerated": contents.accelerated,
            "abi_version": contents.abi_version,
            "os_abi": contents.os_abi,
            "e_type": contents.e_type,
            "e_version": contents.e_version,
            "e_flags": contents.flags,
            "variables": self.variable_list().map(|(symbol, _, content)| {
                json!({
                    "name": symbol.name, "section": symbol.section, "offset": symbol.value,
                    "bytes": symbol.bytes, "initial": content.map(bytes_text),
                })
            }).collect::<Value>(),
            "sections": contents.sections.iter().map(|section| {
                json!({
                    "name": section.name, "type": section.kind, "flags": section.flags,
                    "bytes": section.bytes, "link": section.link, "info": section.info,
                    "align": section.align,
                })
            }).collect::<Value>(),
            "unknown_section_types": unknown,
            "symbols": contents.symbols.iter().map(|symbol| {
                json!({
                    "name": symbol.name, "kind": symbol.kind, "other": symbol.other,
                    "section": symbol.section, "value": symbol.value, "bytes": symbol.bytes,
                })
            }).collect::<Value>(),
            "attributes": contents.attributes.iter().map(|attribute| {
                json!({
                    "section": attribute.section, "format": attribute.format,
                    "number": attribute.number, "name": attribute.name(),
                    "value": bytes_text(value_of(attribute)),
                })
            }).collect::<Value>(),
            "relocations": contents.relocations.iter().map(|relocation| {
                json!({
                    "section": relocation.section, "offset": relocation.offset, "type": relocation.kind,
                    "name": relocation.name(), "symbol": relocation.symbol, "addend": relocation.addend,
                })
            }).collect::<Value>(),
        })
    }
}

/// The meaningful bytes of a record, by its format.
fn value_of(attribute: &Attribute) -> &[u8] {
    match attribute.format {
        1 => &[],
        2 => attribute.payload.get(..1).unwrap_or_default(),
        _ => &attribute.payload,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(input: &[u8], json: bool) -> (String, Verdict) {
        let mut output = Vec::new();
        let verdict = cubin(input, &mut output, json).unwrap();
        (String::from_utf8(output).unwrap(), verdict)
    }

    #[test]
    fn kernels_variables_and_attributes_are_listed() {
        let file = include_bytes!("../../../cubin/tests/data/limits.cubin");
        let (text, verdict) = said(file, false);
        assert_eq!(verdict, Verdict::Whole);
        for expected in [
            "sm_87, a loadable cubin (type 2)",
            "ABI version 7, OS ABI 0x33",
            "kernel bounded\n  registers ",
            "barriers 5, shared 264 bytes",
            "  at most 96 x 1 x 1 threads",
            "    parameter 3: 8 bytes at 0x20 (c[0x0][0x180])",
            "  constant bank 2: 8 bytes",
            "attribute of .nv.info.bounded: MAX_THREADS (0x05) 60000000 01000000 01000000",
        ] {
            assert!(text.contains(expected), "no {expected:?} in:\n{text}");
        }
        let (json, _) = said(file, true);
        let object: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(object["kernels"][0]["max_threads"], json!([96, 1, 1]));
    }

    #[test]
    fn what_cannot_be_loaded_is_listed_and_what_cannot_be_read_is_told() {
        let (text, verdict) = said(include_bytes!("../../../cubin/tests/data/printf.cubin"), false);
        assert!(text.contains("\nneeds vprintf\n"), "{text}");
        assert!(text.contains("relocation of ") && text.contains("undefined vprintf\n"), "{text}");
        assert_eq!(verdict, Verdict::Whole);
        let (text, verdict) = said(include_bytes!("../../../cubin/tests/data/tiny.relocatable.cubin"), false);
        assert!(text.contains("error: cannot be loaded: "), "{text}");
        assert_eq!(verdict, Verdict::Damaged);
        let (text, verdict) = said(b"//\n.version 8.5\n.target sm_87\n", false);
        assert!(text.starts_with("error: not a cubin: PTX"), "{text}");
        assert_eq!(verdict, Verdict::Damaged);
    }

    #[test]
    fn functions_are_listed_wherever_they_stand() {
        let data = concat!(env!("CARGO_MANIFEST_DIR"), "/../cubin/tests/data/features");
        for (name, row) in [
            ("features.12.6.85.sm_87", "function $direct$_Z3addii: 32 bytes at 0x270 of .text.direct\n"),
            ("linked.13.0.88.sm_90", "function _Z3addii: 256 bytes at 0x0 of .text._Z3addii\n"),
        ] {
            let (text, verdict) = said(&std::fs::read(format!("{data}/{name}.cubin")).unwrap(), false);
            assert!(text.contains(row), "{text}");
            assert_eq!(verdict, Verdict::Whole);
        }
    }

    #[test]
    fn variables_have_their_initial_bytes() {
        let (text, _) = said(include_bytes!("../../../cubin/tests/data/globals.cubin"), false);
        assert!(text.contains("variable launches: 4 bytes"), "{text}");
        assert!(text.contains("    29000000\n"), "{text}");
        assert!(text.contains("    zeros\n"), "{text}");
    }
}
