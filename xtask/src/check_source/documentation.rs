//! Documentation of libraries: each public type has an example, and the crate page names each public item.

use std::iter::Peekable;

use proc_macro2::token_stream::IntoIter;
use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

use crate::tokens::{is_for_tests, next_group, skip_item, take_punct};

/// Keywords of items that are types.
const TYPES: &[&str] = &["enum", "struct", "trait", "type", "union"];

/// Languages of code blocks that rustdoc compiles.
const LANGUAGES: &[&str] = &["", "no_run", "rust", "rust,no_run", "should_panic"];

/// A public item of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    /// Line of its name, from 1.
    pub(super) line: usize,
    /// Its name.
    pub(super) name: String,
    /// Whether it is a type that lacks an example.
    pub(super) lacks_example: bool,
}

/// The public types, modules and re-exports of a file that are not hidden.
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
    let mut documentation = Documentation::default();
    let mut after_bang = false;
    while let Some(token) = tokens.next() {
        let is_macro = std::mem::take(&mut after_bang);
        match token {
            TokenTree::Punct(punct) if punct.as_char() == '#' => {
                let is_inner = take_punct(&mut tokens, '!');
                match next_group(&mut tokens, Delimiter::Bracket) {
                    Some(attribute) if is_for_tests(&attribute) => skip_item(&mut tokens),
                    Some(attribute) if !is_inner => documentation.add(&attribute),
                    _ => {}
                }
            }
            TokenTree::Punct(punct) => {
                after_bang = punct.as_char() == '!';
                if punct.as_char() == ';' {
                    documentation = Documentation::default();
                }
            }
            TokenTree::Ident(ident) if ident == "pub" => {
                let is_restricted = next_group(&mut tokens, Delimiter::Parenthesis).is_some();
                let documentation = std::mem::take(&mut documentation);
                if is_restricted || documentation.is_hidden {
                    skip_item(&mut tokens);
                } else {
                    public_item(&mut tokens, &documentation, items);
                }
            }
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                documentation = Documentation::default();
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
fn public_item(tokens: &mut Peekable<IntoIter>, documentation: &Documentation, items: &mut Vec<Item>) {
    let mut keyword = next_ident(tokens);
    if keyword == "unsafe" && tokens.peek().is_some_and(|token| token.to_string() == "trait") {
        keyword = next_ident(tokens);
    }
    if keyword == "use" {
        return names_of_use(tokens, items);
    }
    let is_type = TYPES.contains(&keyword.as_str());
    if let Some(TokenTree::Ident(name)) = tokens.peek()
        && (is_type || keyword == "mod")
    {
        let lacks_example = is_type && !documentation.has_example;
        items.push(Item { line: name.span().start().line, name: name.to_string(), lacks_example });
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
        items.push(Item { line, name: name.to_string(), lacks_example: false });
    }
}

/// What the attributes of an item say.
#[derive(Debug, Default)]
struct Documentation {
    is_hidden: bool,
    has_example: bool,
    in_block: bool,
}

impl Documentation {
    fn add(&mut self, attribute: &Group) {
        let words: String = attribute.stream().to_string().split_whitespace().collect();
        self.is_hidden |= words == "doc(hidden)";
        // A line of a doc comment is an attribute with a string.
        let Some(TokenTree::Literal(line)) = attribute.stream().into_iter().nth(2) else { return };
        let line = line.to_string();
        let Some(language) = line.trim_start_matches('r').trim_matches('"').trim().strip_prefix("```") else {
            return;
        };
        self.in_block = !self.in_block;
        self.has_example |= self.in_block && LANGUAGES.contains(&language);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lacking(text: &str) -> Vec<(usize, String)> {
        let items = public_items(text.parse().unwrap());
        items.into_iter().filter(|item| item.lacks_example).map(|item| (item.line, item.name)).collect()
    }

    #[test]
    fn a_public_type_needs_an_example() {
        let text = r#"//! ```
//! the_module();
//! ```
/// Bare.
pub struct Bare { pub field: u8 }
/// With one.
///
/// ```no_run
/// with_one();
/// ```
#[derive(Debug)]
pub enum WithOne {}
/// ```text
/// a picture
/// ```
pub unsafe trait Picture { type Inner; }
/// ```ignore
/// not_compiled();
/// ```
pub type Ignored = u8;
flags! {
    /// In a macro.
    pub struct Flags: u32 { const A = 1; }
}
"#;
        let expected = [(5, "Bare"), (16, "Picture"), (20, "Ignored"), (23, "Flags")];
        assert_eq!(lacking(text), expected.map(|(line, name)| (line, name.to_owned())));
    }

    #[test]
    fn other_items_need_none() {
        let text = "
            pub(crate) struct Restricted;
            struct Private { inner: u8 }
            #[doc(hidden)]
            pub struct Hidden(u8);
            mod sealed { pub trait Sealed {} }
            pub fn function() { struct Local; }
            impl Private { pub fn new() -> Self { todo() } }
            #[cfg(test)]
            mod tests { pub struct OfTests; }
            macro_rules! define { ($name:ident) => { pub struct $name; } }
        ";
        assert_eq!(lacking(text), []);
        assert_eq!(lacking("pub mod public { pub struct Inner; }").len(), 1);
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
