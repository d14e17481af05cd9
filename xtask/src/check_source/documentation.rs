//! Documentation of libraries: each example shows a result, and the crate page names each public item.

use std::iter::Peekable;

use proc_macro2::token_stream::IntoIter;
use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::tokens::{is_for_tests, next_group, skip_item, take_punct};

/// Keywords of the items that a crate page names.
const ITEMS: &[&str] = &["enum", "mod", "struct", "trait", "type", "union"];

/// Languages of code blocks that rustdoc compiles and runs.
const LANGUAGES: &[&str] = &["", "rust"];

/// A public item of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    /// Line of its name, from 1.
    pub(super) line: usize,
    /// Its name.
    pub(super) name: String,
}

/// The 1-based lines at which examples without an assertion begin. Such an example shows no result: the signature says
/// as much.
pub(super) fn idle_examples(text: &str) -> Vec<usize> {
    let mut idle = Vec::new();
    let mut block: Option<(usize, &str, bool)> = None;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim_start();
        let Some(line) = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")) else { continue };
        let fence = line.trim().strip_prefix("```");
        block = match (block, fence) {
            (None, Some(language)) => Some((number, language, false)),
            (Some((start, language, asserts)), Some(_)) => {
                if LANGUAGES.contains(&language) && !asserts {
                    idle.push(start);
                }
                None
            }
            (Some((start, language, asserts)), None) => {
                Some((start, language, asserts || line.contains("assert")))
            }
            (None, None) => None,
        };
    }
    idle
}

/// The public modules and re-exports of a file that are not hidden.
pub(super) fn public_items(tokens: TokenStream) -> Vec<Item> {
    let mut items = Vec::new();
    collect(tokens, &mut items);
    items
}

/// The items that the documentation of a crate does not name as code.
pub(super) fn unlisted(text: &str, items: &[Item]) -> Vec<Item> {
    let documentation = text.lines().filter(|line| line.starts_with("//!") || line.contains("doc = \""));
    let page: Vec<&str> = documentation.flat_map(|line| line.split('`').skip(1).step_by(2)).collect();
    let is_listed = |name: &str| page.iter().any(|code| code.trim_end_matches(['(', ')', '!']) == name);
    let is_named = |item: &&Item| is_listed(&item.name) || is_listed(&format!("mod@{}", item.name));
    items.iter().filter(|item| !is_named(item)).cloned().collect()
}

fn collect(tokens: TokenStream, items: &mut Vec<Item>) {
    let mut tokens = tokens.into_iter().peekable();
    let mut is_hidden = false;
    let mut after_bang = false;
    while let Some(token) = tokens.next() {
        let is_macro = std::mem::take(&mut after_bang);
        match token {
            TokenTree::Punct(punct) if punct.as_char() == '#' => {
                take_punct(&mut tokens, '!');
                match next_group(&mut tokens, Delimiter::Bracket) {
                    Some(attribute) if is_for_tests(&attribute) => skip_item(&mut tokens),
                    Some(attribute) => {
                        let words: String = attribute.stream().to_string().split_whitespace().collect();
                        is_hidden |= words == "doc(hidden)";
                    }
                    None => {}
                }
            }
            TokenTree::Punct(punct) => {
                after_bang = punct.as_char() == '!';
                is_hidden &= punct.as_char() != ';';
            }
            TokenTree::Ident(ident) if ident == "pub" => {
                let is_restricted = next_group(&mut tokens, Delimiter::Parenthesis).is_some();
                if std::mem::take(&mut is_hidden) || is_restricted {
                    skip_item(&mut tokens);
                } else {
                    public_item(&mut tokens, items);
                }
            }
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                is_hidden = false;
                // A macro may define types: those of bit flags, for example.
                if is_macro {
                    collect(group.stream(), items);
                }
            }
            _ => {}
        }
    }
}

/// Takes an item after `pub`.
fn public_item(tokens: &mut Peekable<IntoIter>, items: &mut Vec<Item>) {
    let mut keyword = next_ident(tokens);
    if keyword == "unsafe" && tokens.peek().is_some_and(|token| token.to_string() == "trait") {
        keyword = next_ident(tokens);
    }
    if keyword == "use" {
        return names_of_use(tokens, items);
    }
    if let Some(TokenTree::Ident(name)) = tokens.peek()
        && ITEMS.contains(&keyword.as_str())
    {
        items.push(Item { line: name.span().start().line, name: name.to_string() });
    }
    for token in tokens {
        match token {
            TokenTree::Punct(punct) if punct.as_char() == ';' => return,
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                if keyword == "mod" {
                    collect(group.stream(), items);
                }
                return;
            }
            _ => {}
        }
    }
}

/// Takes the next word; empty if the next token is none.
fn next_ident(tokens: &mut Peekable<IntoIter>) -> String {
    match tokens.next_if(|token| matches!(token, TokenTree::Ident(_))) {
        Some(token) => token.to_string(),
        None => String::new(),
    }
}

/// Takes a list of names after `use`, up to its semicolon.
fn names_of_use(tokens: &mut Peekable<IntoIter>, items: &mut Vec<Item>) {
    // A path ends with its name, which `as` replaces.
    let mut last = None;
    for token in tokens.by_ref() {
        match token {
            TokenTree::Ident(ident) => last = Some(ident),
            TokenTree::Punct(punct) if punct.as_char() == ':' => last = None,
            TokenTree::Punct(punct) if ![',', ';'].contains(&punct.as_char()) => {}
            TokenTree::Group(group) => names_of_use(&mut group.stream().into_iter().peekable(), items),
            other => {
                push_name(last.take(), items);
                if other.to_string() == ";" {
                    return;
                }
            }
        }
    }
    push_name(last, items);
}

fn push_name(name: Option<proc_macro2::Ident>, items: &mut Vec<Item>) {
    if let Some(name) = name {
        let line = name.span().start().line;
        items.push(Item { line, name: name.to_string() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_example_asserts() {
        let text = "\
//! ```
//! the_module();
//! ```
/// ```
/// assert!(shown());
/// ```
pub struct Shown;
    /// ```no_run
    /// on_a_board();
    /// ```
    /// ```text
    /// a picture
    /// ```
    ///
    /// ```rust
    /// idle();
    /// ```
    pub fn inner() {}
// ```
";
        assert_eq!(idle_examples(text), [1, 15]);
    }

    #[test]
    fn hidden_and_restricted_items_are_not_public() {
        let text = "
            pub(crate) struct Restricted;
            struct Private { inner: u8 }
            #[doc(hidden)]
            pub struct Hidden(u8);
            mod sealed { pub trait Sealed {} }
            pub fn function() { struct Local; }
            #[cfg(test)]
            mod tests { pub struct OfTests; }
            macro_rules! define { ($name:ident) => { pub struct $name; } }
            pub unsafe trait Public {}
            flags! { pub struct InMacro: u32 { const A = 1; } }
        ";
        let items = public_items(text.parse().unwrap());
        assert_eq!(items.iter().map(|item| item.name.as_str()).collect::<Vec<_>>(), ["Public", "InMacro"]);
    }

    #[test]
    fn the_crate_page_names_what_the_crate_exports() {
        let text = "\
//! - [`first`], [`mod@second`], [`One`], [`func()`], [`mac!`], `Two`.
#![cfg_attr(feature = \"more\", doc = \"- [`gated`]\")]
pub mod first;
pub mod second;
#[cfg(feature = \"more\")]
pub mod gated;
mod private;
pub use private::{One, func, inner::{Two as Renamed, Three}};
pub use private::mac;
pub(crate) use private::Internal;
";
        let items = public_items(text.parse().unwrap());
        let names: Vec<&str> = items.iter().map(|item| item.name.as_str()).collect();
        assert_eq!(names, ["first", "second", "gated", "One", "func", "Renamed", "Three", "mac"]);
        let missing = unlisted(text, &items);
        let missing: Vec<&str> = missing.iter().map(|item| item.name.as_str()).collect();
        assert_eq!(missing, ["Renamed", "Three"]);
    }
}
