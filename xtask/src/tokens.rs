//! Source files as tokens, for checks of the project's own sources.

use std::iter::Peekable;

use proc_macro2::token_stream::IntoIter;
use proc_macro2::{Delimiter, Group, TokenTree};

/// Takes the next token if it is this character.
pub(crate) fn take_punct(tokens: &mut Peekable<IntoIter>, character: char) -> bool {
    tokens.next_if(|token| matches!(token, TokenTree::Punct(punct) if punct.as_char() == character)).is_some()
}

/// Takes the next token if it is a group with these delimiters; skips the `!` of an inner attribute.
pub(crate) fn next_group(tokens: &mut Peekable<IntoIter>, delimiter: Delimiter) -> Option<Group> {
    if delimiter == Delimiter::Bracket {
        take_punct(tokens, '!');
    }
    let is_group =
        |token: &TokenTree| matches!(token, TokenTree::Group(group) if group.delimiter() == delimiter);
    match tokens.next_if(is_group) {
        Some(TokenTree::Group(group)) => Some(group),
        _ => None,
    }
}

/// Whether an attribute marks a test item: `cfg(test)` or `cfg(all(test, ...))`.
pub(crate) fn is_for_tests(attribute: &Group) -> bool {
    let words: String = attribute.stream().to_string().split_whitespace().collect();
    let Some(condition) = words.strip_prefix("cfg(").and_then(|rest| rest.strip_suffix(')')) else {
        return false;
    };
    let all = condition.strip_prefix("all(").and_then(|rest| rest.strip_suffix(')'));
    condition == "test" || all.is_some_and(|list| list.split(',').any(|part| part == "test"))
}

/// Takes an item up to its semicolon or body; a field, a variant or an argument ends with a comma.
pub(crate) fn skip_item(tokens: &mut Peekable<IntoIter>) {
    const KEYWORDS: &[&str] = &[
        "async",
        "const",
        "enum",
        "extern",
        "fn",
        "impl",
        "macro_rules",
        "mod",
        "pub",
        "static",
        "struct",
        "trait",
        "type",
        "unsafe",
        "use",
    ];
    while take_punct(tokens, '#') {
        next_group(tokens, Delimiter::Bracket);
    }
    let first = match tokens.peek() {
        Some(TokenTree::Ident(ident)) => ident.to_string(),
        _ => String::new(),
    };
    let (is_item, is_use) = (KEYWORDS.contains(&first.as_str()), first == "use");
    for token in tokens {
        match token {
            TokenTree::Punct(punct) if punct.as_char() == ';' => return,
            TokenTree::Punct(punct) if punct.as_char() == ',' && !is_item => return,
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace && !is_use => return,
            _ => {}
        }
    }
}
