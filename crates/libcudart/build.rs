//! Generates the functions that only call the driver, and the missing ones, from `functions.txt`; and the names of
//! errors from `errors.txt`.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

/// An argument of the driver's function. `most` becomes the number of the function's own arguments at least.
fn argument(token: &str, order: &str, most: &mut usize) -> String {
    let kind = token.chars().next().unwrap_or_default();
    let rest = token.trim_start_matches(['s', 'f', '=']);
    if token == "c" {
        return "crate::device::current()?".to_owned();
    }
    let number: usize = rest.parse().unwrap_or_else(|_| panic!("'{token}' is no argument"));
    if kind == '=' {
        return format!("{number}_usize");
    }
    *most = (*most).max(number + 1);
    match kind {
        's' => format!("crate::call::Order::{order}.stream(a{number})"),
        'f' => format!("crate::register::function(a{number})?"),
        _ => format!("a{number}"),
    }
}

/// The call of a driver's function.
fn call(form: &str, order: &str, most: &mut usize) -> String {
    let mut tokens = form.split_whitespace();
    let function = tokens.next().expect("a row names the driver's function");
    let arguments: Vec<_> = tokens.map(|token| argument(token, order, most)).collect();
    format!("crate::driver::cu!({function}, {})", arguments.join(", "))
}

/// A function that calls the driver.
fn forward(symbol: &str, forms: &str, order: &str) -> String {
    let mut most = 0;
    let calls: Vec<_> = forms.split(" | ").map(|form| call(form, order, &mut most)).collect();
    let body = match &calls[..] {
        [one] => one.clone(),
        [old, new] => format!("if crate::error::is_13() {{ {new} }} else {{ {old} }}"),
        _ => panic!("{symbol} has more than two forms"),
    };
    let arguments: Vec<_> = (0..most).map(|at| format!("a{at}: usize")).collect();
    format!(
        "/// `{symbol}` of `cuda_runtime_api.h`.\n///\n/// # Safety\n///\n/// Pointers are null or as it documents.\n\
         #[unsafe(no_mangle)] pub unsafe extern \"C\" fn {symbol}({}) -> u32 {{ crate::call::run(|| {body}) }}\n",
        arguments.join(", ")
    )
}

/// A function that is missing.
fn missing(symbol: &str, reason: &str) -> String {
    format!(
        "/// `{symbol}` of `cuda_runtime_api.h`, which is not supported: {reason}.\n///\n/// # Safety\n///\n\
         /// None is needed: the function reads no argument.\n#[unsafe(no_mangle)] pub unsafe extern \"C\" fn \
         {symbol}() -> u32 {{ crate::call::missing({symbol:?}, {reason:?}) }}\n"
    )
}

fn main() {
    println!("cargo::rerun-if-changed=functions.txt");
    println!("cargo::rerun-if-changed=errors.txt");
    let read = |name| fs::read_to_string(name).expect("the tables are part of the crate");
    let (mut functions, mut table) = (String::new(), String::new());
    for row in read("functions.txt").lines().filter(|row| !row.starts_with('#')) {
        let (symbol, what) = row.split_once(' ').expect("a row has a symbol and what it does");
        let reason = what.strip_prefix("! ");
        match (what, reason) {
            (".", _) => {}
            (_, Some(reason)) => functions.push_str(&missing(symbol, reason)),
            _ => functions.push_str(&forward(symbol, what, "Legacy")),
        }
        writeln!(table, "({symbol:?}, {reason:?}),").expect("a string grows");
        if what.split(' ').any(|token| token.starts_with('s') && token.len() == 2) {
            let symbol = format!("{symbol}_ptsz");
            functions.push_str(&forward(&symbol, what, "PerThread"));
            writeln!(table, "({symbol:?}, None),").expect("a string grows");
        }
    }
    writeln!(functions, "/// All functions, with the reason if they are missing.").expect("a string grows");
    writeln!(functions, "pub static TABLE: &[(&str, Option<&str>)] = &[{table}];").expect("a string grows");
    let mut errors = String::from("&[\n");
    for row in read("errors.txt").lines().filter(|row| !row.starts_with('#')) {
        let mut fields = row.splitn(3, ' ');
        let (number, name) = (fields.next().unwrap_or_default(), fields.next().expect("an error has a name"));
        let text = fields.next().map_or("None".to_owned(), |text| format!("Some(c{text:?})"));
        writeln!(errors, "({number}, c{name:?}, {text}),").expect("a string grows");
    }
    errors.push(']');
    let folder = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    for (name, text) in [("functions.rs", functions), ("errors.rs", errors)] {
        fs::write(Path::new(&folder).join(name), text).expect("the folder for generated files is writable");
    }
}
