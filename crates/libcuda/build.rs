//! Generates the table of functions and the missing ones from `functions.txt`, and names the library.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

/// The name by which programs look a symbol up: without its version and the mark of per-thread streams.
fn base(symbol: &str) -> (&str, bool) {
    let plain = symbol.strip_suffix("_ptds").or(symbol.strip_suffix("_ptsz"));
    let per_thread = plain.is_some();
    let plain = plain.unwrap_or(symbol);
    let base = match plain.rsplit_once("_v") {
        Some((base, version)) if version.bytes().all(|byte| byte.is_ascii_digit()) => base,
        _ => plain,
    };
    (base, per_thread)
}

fn main() {
    println!("cargo::rerun-if-changed=functions.txt");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    let rows = fs::read_to_string("functions.txt").expect("functions.txt is part of the crate");
    let (mut table, mut missing) = (String::new(), String::new());
    for row in rows.lines().filter(|row| !row.starts_with('#')) {
        let mut fields = row.splitn(3, ' ');
        let (Some(symbol), Some(since)) = (fields.next(), fields.next()) else {
            panic!("'{row}' is not 'symbol version [why it is missing]'")
        };
        let (base, per_thread) = base(symbol);
        let order = if per_thread { "PerThread" } else { "Legacy" };
        let why = fields.next();
        if let Some(why) = why {
            writeln!(missing, "{symbol} {why:?}").expect("a string grows");
        }
        writeln!(
            table,
            "Entry {{ symbol: {symbol:?}, base: {base:?}, since: {since}, missing: {why:?}, order: Order::{order}, \
             address: Pointer(crate::{symbol} as *const c_void) }},"
        )
        .expect("a string grows");
    }
    let text =
        format!("absent! {{ {missing} }}\n/// All functions.\npub static TABLE: &[Entry] = &[{table}];\n");
    let folder = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    fs::write(Path::new(&folder).join("table.rs"), text).expect("the folder for generated files is writable");
}
