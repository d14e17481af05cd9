//! The paths in a source file, parsed from its tokens.
//!
//! Tokens instead of a syntax tree, so the contents of macro calls count as well.

use std::collections::BTreeSet;
use std::iter::Peekable;
use std::path::PathBuf;

use proc_macro2::token_stream::IntoIter;
use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

use crate::tokens::{is_for_tests, next_group, skip_item, take_punct};

/// A path of identifiers, as written.
pub(crate) type Segments = Vec<String>;

/// A path in a module.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mention {
    /// The module that contains the path, from the crate's root.
    pub(crate) module: Segments,
    /// The path as written; it may start with `crate`, `self` or `super`.
    pub(crate) path: Segments,
    /// The `use` that contains the path.
    pub(crate) import: Option<Import>,
}

/// The name that a `use` introduces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Import {
    /// The name of the target in the module; `*` for all of its items.
    pub(crate) name: String,
    /// Whether it is a re-export: `pub use` with any visibility.
    pub(crate) is_public: bool,
}

/// A declaration `mod x;`.
#[derive(Debug)]
pub(crate) struct Declaration {
    /// The declared module, from the crate's root.
    pub(crate) module: Segments,
    /// File in the attribute `path`.
    pub(crate) path: Option<PathBuf>,
}

/// Contents of a source file, without test items.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    /// Paths with at least two segments, and all imports.
    pub(crate) mentions: Vec<Mention>,
    /// Modules in separate files.
    pub(crate) declarations: Vec<Declaration>,
    /// Inline modules.
    pub(crate) inline: Vec<Segments>,
    /// Names in the file, except those in a `use`.
    pub(crate) names: BTreeSet<String>,
    /// Defined items, each with its module.
    pub(crate) defined: BTreeSet<(Segments, String)>,
}

impl Contents {
    /// Reads the tokens of `module`'s file.
    pub(crate) fn read(tokens: TokenStream, module: &[String]) -> Self {
        let mut contents = Self::default();
        contents.scan(tokens, module);
        contents
    }

    /// Reads the tokens of a file or a group.
    fn scan(&mut self, tokens: TokenStream, module: &[String]) {
        let mut tokens = tokens.into_iter().peekable();
        let mut file = None;
        // Whether the previous token belongs to a path or a method call, so an identifier does not start a
        // path.
        let mut continues = false;
        let mut is_public = false;
        while let Some(token) = tokens.next() {
            let continued = std::mem::take(&mut continues);
            let public = std::mem::take(&mut is_public);
            match token {
                TokenTree::Punct(punct) if punct.as_char() == '#' => {
                    if let Some(attribute) = next_group(&mut tokens, Delimiter::Bracket) {
                        if is_for_tests(&attribute) {
                            skip_item(&mut tokens);
                            file = None;
                        }
                        file = named_file(&attribute).or(file);
                    }
                }
                TokenTree::Punct(punct) => {
                    continues = matches!(punct.as_char(), '.' | ':') && {
                        // A single colon precedes a type, where a path may start.
                        punct.as_char() == '.' || take_punct(&mut tokens, ':')
                    }
                }
                TokenTree::Group(group) => self.scan(group.stream(), module),
                TokenTree::Literal(_) => {}
                TokenTree::Ident(ident) => match text(&ident).as_str() {
                    "pub" => {
                        skip_restriction(&mut tokens);
                        is_public = true;
                    }
                    "mod" => self.declare(&mut tokens, module, file.take()),
                    "use" if !continued => self.import(&mut tokens, module, public),
                    first => {
                        if let Some(TokenTree::Ident(name)) = tokens.peek()
                            && ["struct", "enum", "union", "trait", "type", "fn", "const", "static"]
                                .contains(&first)
                        {
                            self.defined.insert((module.to_owned(), text(name)));
                        }
                        let path = rest_of_path(&mut tokens, first.to_owned());
                        self.names.insert(path[0].clone());
                        if !continued && path.len() > 1 {
                            self.mentions.push(Mention { module: module.to_owned(), path, import: None });
                        }
                    }
                },
            }
        }
    }

    /// Parses the tokens after `mod`.
    fn declare(&mut self, tokens: &mut Peekable<IntoIter>, module: &[String], path: Option<PathBuf>) {
        let Some(TokenTree::Ident(name)) = tokens.next() else { return };
        let module = [module, &[text(&name)]].concat();
        match next_group(tokens, Delimiter::Brace) {
            Some(body) => {
                self.inline.push(module.clone());
                self.scan(body.stream(), &module);
            }
            None => self.declarations.push(Declaration { module, path }),
        }
    }

    /// Parses the tokens after `use`, up to its semicolon.
    fn import(&mut self, tokens: &mut Peekable<IntoIter>, module: &[String], is_public: bool) {
        // `impl Trait + use<'a>` imports nothing.
        if matches!(tokens.peek(), Some(TokenTree::Punct(punct)) if punct.as_char() == '<') {
            return;
        }
        let tree =
            tokens.take_while(|token| !matches!(token, TokenTree::Punct(punct) if punct.as_char() == ';'));
        let mut leaves = Vec::new();
        import_tree(&tree.collect::<Vec<_>>(), &[], &mut leaves);
        for (path, name) in leaves {
            let import = Some(Import { name, is_public });
            self.mentions.push(Mention { module: module.to_owned(), path, import });
        }
    }
}

/// Appends the paths of one subtree of a `use`, `prefix::tree`, with the names that they introduce.
fn import_tree(tree: &[TokenTree], prefix: &[String], leaves: &mut Vec<(Segments, String)>) {
    // `::name` is another crate.
    if prefix.is_empty() && matches!(tree.first(), Some(TokenTree::Punct(punct)) if punct.as_char() == ':') {
        return;
    }
    let mut path = prefix.to_owned();
    let mut name = None;
    let mut tokens = tree.iter();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Ident(ident) if *ident == "as" => name = tokens.next().map(ToString::to_string),
            TokenTree::Ident(ident) if *ident == "self" && !path.is_empty() => {}
            TokenTree::Ident(ident) => path.push(text(ident)),
            TokenTree::Punct(punct) if punct.as_char() == '*' => name = Some("*".to_owned()),
            TokenTree::Group(group) => {
                let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                let is_comma =
                    |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ',');
                for tree in inner.split(is_comma).filter(|tree| !tree.is_empty()) {
                    import_tree(tree, &path, leaves);
                }
                return;
            }
            _ => {}
        }
    }
    if let Some(name) = name.or_else(|| path.last().cloned()) {
        leaves.push((path, name));
    }
}

/// An identifier without the prefix of a raw one.
fn text(ident: &proc_macro2::Ident) -> String {
    let text = ident.to_string();
    text.strip_prefix("r#").map_or(text.clone(), str::to_owned)
}

/// Takes all following `::name` segments.
fn rest_of_path(tokens: &mut Peekable<IntoIter>, first: String) -> Segments {
    let mut path = vec![first];
    loop {
        let mut ahead = tokens.clone();
        if !(take_punct(&mut ahead, ':') && take_punct(&mut ahead, ':')) {
            return path;
        }
        let Some(TokenTree::Ident(ident)) = ahead.next() else { return path };
        path.push(text(&ident));
        *tokens = ahead;
    }
}

/// Takes the parentheses of `pub(crate)` or `pub(in path)`: they import nothing.
fn skip_restriction(tokens: &mut Peekable<IntoIter>) {
    let mut ahead = tokens.clone();
    if let Some(group) = next_group(&mut ahead, Delimiter::Parenthesis) {
        let first = group.stream().into_iter().next().map(|token| token.to_string());
        if first.is_some_and(|word| ["crate", "super", "self", "in"].contains(&word.as_str())) {
            *tokens = ahead;
        }
    }
}

/// The file of `path = "file"`.
fn named_file(attribute: &Group) -> Option<PathBuf> {
    let mut tokens = attribute.stream().into_iter();
    let is_path = matches!(tokens.next(), Some(TokenTree::Ident(ident)) if ident == "path");
    let literal = tokens.nth(1).filter(|_| is_path)?.to_string();
    Some(PathBuf::from(literal.trim_matches('"')))
}
