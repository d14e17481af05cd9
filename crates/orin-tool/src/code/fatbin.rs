//! The entries of a fat binary.

use std::io::{self, Write};

use cubin::fatbin::{Compression, Entry, FatBinary, Kind};
use serde_json::{Value, json};

use super::cubin::{cubin, printable};
use crate::commands::Verdict;

/// Lists the entries of a fat binary, as text or as one JSON object. Their contents are not decompressed.
///
/// # Errors
///
/// Returns the error of writing `output`.
pub(super) fn list(input: &[u8], output: impl Write, json: bool) -> io::Result<Verdict> {
    let fat = match FatBinary::parse(input) {
        Ok(fat) => fat,
        Err(error) => return damaged(&error.to_string(), output, json),
    };
    write(output, |output| {
        if json {
            let entries: Value = fat.entries().iter().map(entry_json).collect();
            return writeln!(output, "{}", json!({"kind": "fat binary", "entries": entries}));
        }
        writeln!(output, "a fat binary with {} entries", fat.entries().len())?;
        for (number, entry) in fat.entries().iter().enumerate() {
            writeln!(output, "entry {number}: {}", printable(&entry_text(entry)))?;
        }
        Ok(())
    })?;
    Ok(Verdict::Whole)
}

/// Lists the cubin in the entry with a number, or prints its PTX.
///
/// # Errors
///
/// Returns the error of writing `output`.
pub fn fat_entry(input: &[u8], number: usize, output: impl Write, json: bool) -> io::Result<Verdict> {
    let fat = match FatBinary::parse(input) {
        Ok(fat) => fat,
        Err(error) => return damaged(&error.to_string(), output, json),
    };
    let Some(entry) = fat.entries().get(number) else {
        let text = format!("there is no entry {number}: the fat binary has {}", fat.entries().len());
        return damaged(&text, output, json);
    };
    match (entry.data(), entry.kind) {
        (Err(error), _) => damaged(&error.to_string(), output, json),
        (Ok(data), Kind::Cubin) => cubin(&data, output, json),
        (Ok(data), Kind::Ptx) => {
            let text = String::from_utf8_lossy(&data);
            write(output, |output| match json {
                true => writeln!(output, "{}", json!({"kind": "PTX", "text": text})),
                // Line by line: control characters do not reach the terminal.
                false => text.lines().try_for_each(|line| writeln!(output, "{}", printable(line))),
            })?;
            Ok(Verdict::Whole)
        }
        (Ok(_), _) => damaged(&format!("{entry}: only cubins and PTX are printed"), output, json),
    }
}

/// An input that cannot be read.
fn damaged(error: &str, output: impl Write, json: bool) -> io::Result<Verdict> {
    write(output, |output| match json {
        true => writeln!(output, "{}", json!({"kind": "fat binary", "error": error})),
        false => writeln!(output, "error: {}", printable(error)),
    })?;
    Ok(Verdict::Damaged)
}

fn write<W: Write>(mut output: W, content: impl FnOnce(&mut W) -> io::Result<()>) -> io::Result<()> {
    content(&mut output)?;
    output.flush()
}

fn compression(entry: &Entry<'_>) -> &'static str {
    match entry.compression {
        Compression::None => "none",
        Compression::Lz4 => "LZ4",
        Compression::Zstd => "Zstandard",
        Compression::Own => "NVIDIA's own",
    }
}

fn entry_text(entry: &Entry<'_>) -> String {
    let (major, minor) = entry.version;
    let mut text = format!("{entry}, version {major}.{minor}, {} bytes", entry.bytes);
    if entry.compression != Compression::None {
        text += &format!(" ({} in the file, {})", entry.stored_bytes, compression(entry));
    }
    if entry.is_debug() {
        text += ", for debugging";
    }
    for (what, value) in [("source", entry.name), ("options", entry.options)] {
        text += &value.map_or_else(String::new, |value| format!(", {what} {value}"));
    }
    text
}

fn entry_json(entry: &Entry<'_>) -> Value {
    json!({
        "entry": entry.to_string(),
        "sm": entry.sm,
        "version": format!("{}.{}", entry.version.0, entry.version.1),
        "bytes": entry.bytes,
        "stored_bytes": entry.stored_bytes,
        "compression": compression(entry),
        "flags": entry.flags,
        "debug": entry.is_debug(),
        "source": entry.name,
        "options": entry.options,
    })
}
