//! `gen-classes`: generates the committed Rust files of `crates/ampere-cmd/src/generated/` from the class tables of
//! `crates/ampere-cmd/classes/*.json`.
//!
//! The tables contain the definitions of NVIDIA's class headers: methods, offsets, fields, values. Each becomes one
//! file with a single invocation of `class!` or `qmd!` (see `ampere-cmd/src/table.rs`), which expand to types,
//! encoder, decoder and descriptions. What successive classes have in common is written once, in a macro that adds it
//! to the rest of each. The output depends on the tables alone, so `--check` can compare it with the committed files.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use orin_cli::write_file;
use serde::Deserialize;
use serde_json::{Map, Value};

const TABLES: &str = "crates/ampere-cmd/classes";
const OUTPUT: &str = "crates/ampere-cmd/src/generated";

/// Successive classes, with the module of what they have in common.
const FAMILIES: [(&str, [&str; 2]); 4] = [
    ("compute_common", ["compute_c7c0", "compute_cbc0"]),
    ("copy_common", ["copy_c7b5", "copy_c8b5"]),
    ("host_common", ["host_c56f", "host_c76f"]),
    ("qmd_v03_00_common", ["qmd_v03_00_c7c0", "qmd_v03_00_cbc0"]),
];

/// Regenerates the typed methods and launch descriptors. With `check` it only compares them with the committed files.
///
/// # Errors
///
/// If a table cannot be read or is invalid, or if a file cannot be written. With `check`, if a committed file
/// differs, is missing or is no longer generated.
pub(crate) fn run(check: bool) -> Result<()> {
    let root = crate::workspace::root()?;
    let files = generate(&root.join(TABLES))?;
    let output = root.join(OUTPUT);
    if check { compare(&files, &output) } else { write(&files, &output) }
}

fn write(files: &BTreeMap<String, String>, output: &Path) -> Result<()> {
    fs::create_dir_all(output)?;
    for name in stale(files, output)? {
        fs::remove_file(output.join(&name)).with_context(|| format!("removing {name}"))?;
    }
    for (name, text) in files {
        write_file(output.join(name), text)?;
    }
    Ok(())
}

fn compare(files: &BTreeMap<String, String>, output: &Path) -> Result<()> {
    let mut drift: Vec<String> = stale(files, output)?;
    for (name, text) in files {
        if fs::read_to_string(output.join(name)).ok().as_deref() != Some(text) {
            drift.push(name.clone());
        }
    }
    ensure!(
        drift.is_empty(),
        "{OUTPUT} does not match {TABLES}: {}; run `cargo xtask gen-classes`",
        drift.join(", ")
    );
    Ok(())
}

/// Files of the output directory that are not generated from a table.
fn stale(files: &BTreeMap<String, String>, output: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    if output.exists() {
        for entry in fs::read_dir(output)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if !files.contains_key(&name) {
                names.push(name);
            }
        }
    }
    names.sort();
    Ok(names)
}

/// Generates all files, by name.
fn generate(tables: &Path) -> Result<BTreeMap<String, String>> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(tables).with_context(|| format!("reading {}", tables.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            names.insert(path.file_stem().context("a table has a name")?.to_string_lossy().into_owned());
        }
    }
    let mut modules = BTreeMap::new();
    for name in &names {
        let path = tables.join(format!("{name}.json"));
        let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let module = if name.starts_with("qmd_") {
            serde_json::from_str(&text).map_err(Into::into).and_then(|table: QmdTable| table.generate())
        } else {
            serde_json::from_str(&text).map_err(Into::into).and_then(|table: ClassTable| table.generate())
        };
        modules.insert(name.as_str(), module.with_context(|| name.clone())?);
    }
    let mut files = BTreeMap::from([("mod.rs".to_owned(), index(&modules))]);
    for (common, [first, second]) in FAMILIES {
        let missing = || format!("{common} needs {first} and {second}");
        let (first, second) = modules.get(first).zip(modules.get(second)).with_context(missing)?;
        files.insert(format!("{common}.rs"), wrapped(&first.in_common(second)));
    }
    for (name, module) in &modules {
        let family = FAMILIES.iter().find(|(_, members)| members.contains(name));
        let family = family.map(|(common, members)| (*common, members.map(|member| &modules[member])));
        files.insert(format!("{name}.rs"), wrapped(&module.text(family)));
    }
    Ok(files)
}

/// A module: one invocation of a macro.
struct Module {
    /// Documentation.
    title: String,
    /// The macro, `class` or `qmd`.
    expander: &'static str,
    /// What precedes the lists.
    head: String,
    /// The lists of the invocation, by name.
    lists: Vec<(&'static str, Vec<String>)>,
    /// Items after the invocation.
    tail: String,
}

impl Module {
    /// The file. A member of a family leaves out what all members contain.
    fn text(&self, family: Option<(&str, [&Self; 2])>) -> String {
        let (import, call, head) = match family {
            None => (format!("crate::table::{}", self.expander), self.expander, self.head.clone()),
            Some((common, _)) => {
                (format!("super::{common}::members"), "members", format!("{{ {} }}", self.head))
            }
        };
        let mut out = format!("{BANNER}{}\nuse {import};\n\n{call}! {{\n    {head}\n", self.title);
        for (at, (name, entries)) in self.lists.iter().enumerate() {
            let is_shared =
                |entry| family.is_some_and(|(_, all)| all.iter().all(|it| it.lists[at].1.contains(entry)));
            let own: String = entries.iter().filter(|entry| !is_shared(entry)).map(String::as_str).collect();
            let _ = writeln!(out, "    {name} {{\n{own}    }}");
        }
        out + "}\n" + &self.tail
    }

    /// The file with what two modules have in common.
    fn in_common(&self, other: &Self) -> String {
        let mut out = format!("{BANNER}//! What the following modules have in common:\n//!\n");
        for module in [self, other] {
            out += &module.title.replacen("//!", "//! -", 1);
        }
        out += "\n#[rustfmt::skip]\nmacro_rules! members {\n    ({ $($head:tt)* }";
        for (name, _) in &self.lists {
            let _ = write!(out, " {name} {{ $(${name}:tt)* }}");
        }
        let _ = writeln!(out, ") => {{\n    $crate::table::{}! {{\n    $($head)*", self.expander);
        for ((name, entries), (_, others)) in self.lists.iter().zip(&other.lists) {
            let shared: String =
                entries.iter().filter(|entry| others.contains(entry)).map(String::as_str).collect();
            let _ = writeln!(out, "    {name} {{\n{shared}        $(${name})*\n    }}");
        }
        out + "    }\n    };\n}\n\npub(super) use members;\n"
    }
}

/// Breaks lines longer than [`WIDTH`] columns at spaces outside quotes and indents the rest.
fn wrapped(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let code = line.trim_start();
        let indent = line.len() - code.len();
        // A comment continues as a comment.
        let comment = ["//! ", "/// "].into_iter().find(|mark| code.starts_with(mark));
        let margin = if comment.is_some() { indent } else { indent + 4 };
        let mut column = indent;
        let _ = write!(out, "{:indent$}", "");
        for (index, word) in pieces(code).enumerate() {
            if index > 0 && column + 1 + word.len() > WIDTH {
                let _ = write!(out, "\n{:margin$}{}", "", comment.unwrap_or_default());
                column = margin + comment.map_or(0, str::len);
            } else if index > 0 {
                out.push(' ');
                column += 1;
            }
            out.push_str(word);
            column += word.len();
        }
        out.push('\n');
    }
    out
}

/// The words of a line; quoted text stays in one piece.
fn pieces(line: &str) -> impl Iterator<Item = &str> {
    let mut in_quotes = false;
    line.split(move |character| {
        in_quotes ^= character == '"';
        character == ' ' && !in_quotes
    })
}

/// Width of the generated lines in columns.
const WIDTH: usize = 110;

const BANNER: &str =
    "// Generated by `cargo xtask gen-classes`; edit the table or the generator instead.\n\n";

/// The file `mod.rs`.
fn index(modules: &BTreeMap<&str, Module>) -> String {
    let mut out = String::from(BANNER);
    out.push_str(
        "//! Class tables generated from `classes/*.json`, one module per class or QMD version.\n\n",
    );
    let shared = FAMILIES.iter().map(|(common, _)| (*common, "mod"));
    let names: BTreeMap<_, _> = modules.keys().map(|name| (*name, "pub mod")).chain(shared).collect();
    for (name, keyword) in names {
        let _ = writeln!(out, "{keyword} {name};");
    }
    out.push_str("\nuse crate::method::Class;\n\n/// All classes, in the order of the modules.\n");
    out.push_str("pub static CLASSES: &[&Class] = &[\n");
    for (name, _) in modules.iter().filter(|(_, module)| module.expander == "class") {
        let _ = writeln!(out, "    &{name}::CLASS_TABLE,");
    }
    out.push_str("];\n");
    out
}

#[derive(Deserialize)]
struct ClassTable {
    class: String,
    class_name: String,
    source: String,
    #[serde(default)]
    partial_header: bool,
    #[serde(default)]
    methods: Vec<Method>,
    #[serde(default)]
    registers: Vec<Method>,
    control_struct: Option<ControlStruct>,
}

#[derive(Deserialize)]
struct Method {
    name: String,
    offset: String,
    array: Option<Array>,
    fields: Vec<Field>,
}

#[derive(Clone, Deserialize)]
struct Array {
    count: Option<u32>,
    stride: u32,
    max_count_by_layout: Option<u32>,
    #[serde(default)]
    count_is_upper_bound: bool,
}

impl Array {
    /// Number of elements, and whether the header states it. If not, it is the space up to the next method.
    fn count(&self) -> Result<(u32, bool)> {
        let exact = self.count.is_some() && !self.count_is_upper_bound;
        let count = self.count.or(self.max_count_by_layout).context("an array has a count or a bound")?;
        Ok((count, exact))
    }
}

#[derive(Deserialize)]
struct Field {
    name: String,
    hi: u32,
    lo: u32,
    array: Option<Array>,
    #[serde(default)]
    enums: Map<String, Value>,
    #[serde(default)]
    alias_enums: Map<String, Value>,
    when: Option<String>,
}

impl Field {
    fn width(&self) -> u32 {
        self.hi - self.lo + 1
    }

    /// Names and values in the header's order, aliases last.
    fn values(&self) -> Result<Vec<(String, u32)>> {
        ensure!(self.hi >= self.lo && self.width() <= 32, "{}: bits {}:{}", self.name, self.hi, self.lo);
        let mut values = Vec::new();
        for (name, value) in self.enums.iter().chain(&self.alias_enums) {
            let value =
                value.as_u64().with_context(|| format!("{}: value {name} is not a number", self.name))?;
            ensure!(value < 1 << self.width(), "{}: value {name} does not fit the field", self.name);
            values.push((name.clone(), u32::try_from(value)?));
        }
        Ok(values)
    }

    /// Whether the header's value names mean off and on.
    fn is_switch(&self, values: &[(String, u32)]) -> bool {
        self.width() == 1
            && !values.is_empty()
            && values.iter().all(|(name, value)| match value {
                0 => matches!(name.as_str(), "FALSE" | "DIS" | "DISABLE" | "DISABLED"),
                _ => matches!(name.as_str(), "TRUE" | "EN" | "ENABLE" | "ENABLED"),
            })
    }
}

#[derive(Deserialize)]
struct ControlStruct {
    name: String,
    fields: Vec<ControlField>,
}

#[derive(Deserialize)]
struct ControlField {
    name: String,
    offset: String,
    access: String,
}

impl ClassTable {
    fn number(&self) -> Result<u32> {
        hex(&self.class)
    }

    fn header(&self) -> &str {
        self.source.rsplit('/').next().unwrap_or(&self.source)
    }

    fn title(&self) -> String {
        format!("`{}` ({})", self.class_name, self.class)
    }

    fn generate(&self) -> Result<Module> {
        let mut types = BTreeSet::new();
        let mut enums = Vec::new();
        let mut methods = Vec::new();
        let mut all: Vec<&Method> = self.methods.iter().chain(&self.registers).collect();
        all.sort_by_key(|method| hex(&method.offset).unwrap_or(u32::MAX));
        for method in all {
            methods.push(method.generate(&mut types, &mut enums)?);
        }
        let kind = if self.registers.is_empty() { "Methods" } else { "Registers" };
        let mut title = format!("//! {kind} of class {}, from `{}`.\n", self.title(), self.source);
        if self.partial_header {
            title += "//!\n//! The published header is partial: methods that it does not list may exist.\n";
        }
        let (number, name, header, partial) =
            (self.number()?, &self.class_name, self.header(), self.partial_header);
        let head = format!("class {number:#06x} \"{name}\" \"{header}\" partial {partial};");
        let control = self.control_struct.as_ref();
        let tail = control.map(|control| control.generate(header)).transpose()?.unwrap_or_default();
        let lists = vec![("enums", enums), ("methods", methods)];
        Ok(Module { title, expander: "class", head, lists, tail })
    }
}

impl Method {
    /// The entry of the method; adds those of its enums.
    fn generate(&self, types: &mut BTreeSet<String>, enums: &mut Vec<String>) -> Result<String> {
        let name = camel(&self.name);
        ensure!(types.insert(name.clone()), "type {name} is generated twice");
        let (count, exact, stride) = match &self.array {
            Some(array) => {
                let (count, exact) = array.count()?;
                (count, exact, array.stride)
            }
            None => (1, true, 4),
        };
        let offset = hex(&self.offset)?;
        let mut out = format!("        {name} \"{}\" {offset:#06x} {count} {exact} {stride} {{\n", self.name);
        let word = Field {
            name: "DATA".to_owned(),
            hi: 31,
            lo: 0,
            array: None,
            enums: Map::new(),
            alias_enums: Map::new(),
            when: None,
        };
        // A method without published fields still has its data word.
        let fields =
            if self.fields.is_empty() { std::slice::from_ref(&word) } else { self.fields.as_slice() };
        for field in fields {
            let values = field.values()?;
            let ident = snake(&field.name);
            let mut kind = "u32".to_owned();
            if field.is_switch(&values) {
                let names: Vec<String> = values.iter().map(|(n, v)| format!("\"{n}\" = {v}")).collect();
                kind = format!("bool [{}]", names.join(", "));
            } else if !values.is_empty() {
                kind = format!("{name}{}", camel(&field.name));
                ensure!(types.insert(kind.clone()), "type {kind} is generated twice");
                enums.push(generate_enum(&kind, (&field.name, &self.name), &values)?);
            }
            let when = field.when.as_ref().map(|when| format!(" when \"{when}\"")).unwrap_or_default();
            let _ = writeln!(
                out,
                "            {ident} \"{}\" {} {}: {kind}{when};",
                field.name, field.hi, field.lo
            );
        }
        Ok(out + "        }\n")
    }
}

fn generate_enum(name: &str, (field, method): (&str, &str), values: &[(String, u32)]) -> Result<String> {
    let mut variants: Vec<(u32, String)> = Vec::new();
    let mut aliases = String::new();
    let mut text = String::new();
    for (value_name, value) in values {
        if let Some((_, variant)) = variants.iter().find(|(known, _)| known == value) {
            let _ = write!(aliases, " {} \"{value_name}\" = {variant},", constant(value_name));
            continue;
        }
        let variant = camel(value_name);
        ensure!(variant != "Unknown", "{name}: a value is called Unknown");
        ensure!(variants.iter().all(|(_, v)| *v != variant), "{name}: variant {variant} is generated twice");
        let _ = write!(text, " {variant} \"{value_name}\" = {value},");
        variants.push((*value, variant));
    }
    if !aliases.is_empty() {
        let _ = write!(text, ";{aliases}");
    }
    Ok(format!("        {name} \"{field}\" \"{method}\" {{{text} }}\n"))
}

impl ControlStruct {
    fn generate(&self, header: &str) -> Result<String> {
        let mut out = format!(
            "\n/// USERD of a channel (`{}` in `{header}`): byte offsets of its 32-bit words.\npub mod userd {{\n",
            self.name
        );
        for field in &self.fields {
            let access = field.access.replace('_', "-").replace("read-write", "written by the user");
            let _ = writeln!(
                out,
                "    /// `{}`, {access}.\n    pub const {}: u32 = {:#04x};",
                field.name,
                constant(&words(&field.name)),
                hex(&field.offset)?
            );
        }
        Ok(out + "}\n")
    }
}

#[derive(Deserialize)]
struct QmdTable {
    qmd: String,
    class: String,
    source: String,
    version: Version,
    bits: u32,
    words: u32,
    fields: Vec<Field>,
}

#[derive(Deserialize)]
struct Version {
    major: u32,
    minor: u32,
}

impl QmdTable {
    fn title(&self) -> String {
        format!(
            "QMD version {}.{} as defined by the header of class {}",
            self.version.major, self.version.minor, self.class
        )
    }

    fn generate(&self) -> Result<Module> {
        ensure!(self.words * 32 == self.bits, "{} words are not {} bits", self.words, self.bits);
        let header = self.source.rsplit('/').next().unwrap_or(&self.source);
        let title = format!("//! {}, from `{}`.\n", self.title(), self.source);
        let Version { major, minor } = self.version;
        let head = format!("qmd \"{}\" {major} {minor} \"{header}\" {} words;", self.qmd, self.words);
        let mut fields = Vec::new();
        let mut names = BTreeSet::new();
        for field in &self.fields {
            let values = field.values()?;
            let name = constant(&field.name);
            ensure!(names.insert(name.clone()), "constant {name} is generated twice");
            let kind = match &field.array {
                Some(array) => {
                    let (count, _) = array.count()?;
                    let last = field.hi + (count - 1) * array.stride;
                    ensure!(last < self.bits, "{}: bit {last} lies outside", field.name);
                    format!("[{count} by {}]", array.stride)
                }
                None => "single".to_owned(),
            };
            let mut text = String::new();
            for (value_name, value) in &values {
                let item = constant(&format!("{}_{value_name}", field.name));
                ensure!(names.insert(item.clone()), "constant {item} is generated twice");
                let _ = write!(text, " {item} \"{value_name}\" = {value},");
            }
            let text = if text.is_empty() { String::new() } else { format!("{text} ") };
            fields.push(format!(
                "        {name} \"{}\" {} {} {kind} {{{text}}}\n",
                field.name, field.hi, field.lo
            ));
        }
        Ok(Module { title, expander: "qmd", head, lists: vec![("fields", fields)], tail: String::new() })
    }
}

fn hex(text: &str) -> Result<u32> {
    let digits = text.strip_prefix("0x").with_context(|| format!("{text} is not hexadecimal"))?;
    Ok(u32::from_str_radix(digits, 16)?)
}

/// Converts `SEM_ADDR_LO` to `SemAddrLo`. Underscores between digits stay, to keep names distinct.
fn camel(name: &str) -> String {
    let mut out = String::new();
    for part in name.split('_').filter(|part| !part.is_empty()) {
        let joins_digits =
            out.ends_with(|c: char| c.is_ascii_digit()) && part.starts_with(|c: char| c.is_ascii_digit());
        if joins_digits || (out.is_empty() && part.starts_with(|c: char| c.is_ascii_digit())) {
            out.push('_');
        }
        let mut characters = part.chars();
        out.extend(characters.next());
        out.push_str(&characters.as_str().to_ascii_lowercase());
    }
    out
}

/// Converts a field's name to a Rust identifier. Reserved words get an underscore.
fn snake(name: &str) -> String {
    const KEPT: [&str; 5] = ["type", "override", "in", "ref", "static"];
    let name = name.to_ascii_lowercase();
    if KEPT.contains(&name.as_str()) { name + "_" } else { name }
}

/// Converts a name to an upper-case identifier.
fn constant(name: &str) -> String {
    let name = name.to_ascii_uppercase();
    if name.starts_with(|c: char| c.is_ascii_digit()) { format!("_{name}") } else { name }
}

/// Converts `TopLevelGetHi` to `Top_Level_Get_Hi`, and `GPPut` to `GP_Put`.
fn words(name: &str) -> String {
    let characters: Vec<char> = name.chars().collect();
    let mut out = String::new();
    for (index, character) in characters.iter().enumerate() {
        let next_is_lower = characters.get(index + 1).is_some_and(char::is_ascii_lowercase);
        if index > 0 && character.is_ascii_uppercase() && next_is_lower {
            out.push('_');
        }
        out.push(*character);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_rust() {
        assert_eq!(camel("SEM_ADDR_LO"), "SemAddrLo");
        assert_eq!(camel("32BIT"), "_32bit");
        assert_eq!(camel("A_8_8"), "A8_8");
        assert_eq!(snake("TYPE"), "type_");
        assert_eq!(words("TopLevelGetHi"), "Top_Level_Get_Hi");
        assert_eq!(words("GPPut"), "GP_Put");
    }

    #[test]
    fn a_value_that_does_not_fit_its_field_is_refused() {
        let field: Field =
            serde_json::from_str(r#"{"name": "F", "hi": 1, "lo": 0, "enums": {"BIG": 4}}"#).unwrap();
        assert!(field.values().unwrap_err().to_string().contains("does not fit"));
    }

    #[test]
    fn long_lines_are_broken_at_spaces() {
        let numbers: Vec<String> = (100..150).map(|number| number.to_string()).collect();
        let numbers = numbers.join(" ");
        let text = format!("    {{ {numbers} \"a b\" }}\n\n//! {numbers}\nshort\n");
        let broken = wrapped(&text);
        assert!(broken.lines().all(|line| line.len() <= WIDTH), "{broken}");
        assert!(broken.lines().nth(1).unwrap().starts_with("        1"), "{broken}");
        assert!(broken.contains("\n\n//! 100"), "{broken}");
        assert!(broken.ends_with(" 149\nshort\n"), "{broken}");
        let words =
            |text: &str| text.replace("//!", "").split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(&broken), words(&text));
    }

    #[test]
    fn the_committed_files_are_what_the_tables_generate() {
        run(true).unwrap();
    }

    #[test]
    fn drift_is_reported_by_file_name() {
        let directory = std::env::temp_dir().join(format!("gen-classes-{}", std::process::id()));
        let files = BTreeMap::from([("a.rs".to_owned(), "text".to_owned())]);
        write(&files, &directory).unwrap();
        compare(&files, &directory).unwrap();
        fs::write(directory.join("a.rs"), "edited").unwrap();
        fs::write(directory.join("left_over.rs"), "").unwrap();
        let error = compare(&files, &directory).unwrap_err().to_string();
        fs::remove_dir_all(&directory).unwrap();
        assert!(error.contains("left_over.rs, a.rs"), "{error}");
    }
}
