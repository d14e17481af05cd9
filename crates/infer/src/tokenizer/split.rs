//! Words: how a text is split before its bytes are merged.
//!
//! Tokenizers give these rules as regular expressions. All but one of their look-aheads are the same, `\s+(?!\S)|\s+`:
//! spaces in front of a word leave it the last of them. It is done here, so that the expressions need no backtracking.

use std::sync::OnceLock;

use regex_automata::meta::Regex;

use super::rules::{RULES, Rule, SPACES, Stage};

/// How a model splits texts into words.
///
/// ```
/// use infer::tokenizer::Splitter;
///
/// let words = |name| Splitter::from_name(name).unwrap().split("It's 12345 o'clock!\n");
/// assert_eq!(words("llama-bpe"), ["It", "'s", " ", "123", "45", " o", "'clock", "!\n"]);
/// assert_eq!(words("gpt-2"), ["It", "'s", " 12345", " o", "'", "clock", "!", "\n"]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Splitter {
    /// Position in the table of rules.
    rule: usize,
}

/// A stage whose expressions are compiled.
#[derive(Debug)]
enum Compiled {
    /// Matches are words, and so is what lies between them. Matches of the second pattern are spaces.
    Words(Regex),
    Thousands(Regex),
}

/// The stages of each rule.
static COMPILED: [OnceLock<Vec<Compiled>>; RULES.len()] = [const { OnceLock::new() }; RULES.len()];

impl Stage {
    fn compiled(&self) -> Compiled {
        // PANIC: the expressions are those of the table, and a test compiles all of them.
        let regex = |patterns: &[String]| Regex::new_many(patterns).expect("an expression of the table");
        match self {
            Self::Words(alternatives) => match alternatives.split_last() {
                Some((&SPACES, others)) => Compiled::Words(regex(&[others.join("|"), SPACES.to_owned()])),
                _ => Compiled::Words(regex(&[alternatives.join("|")])),
            },
            Self::Thousands(digits) => Compiled::Thousands(regex(&[(*digits).to_owned()])),
        }
    }
}

impl Compiled {
    /// Appends the words of a piece.
    fn split<'t>(&self, text: &'t str, words: &mut Vec<&'t str>) {
        let mut done = 0;
        let mut push = |end: usize| {
            if done < end {
                words.push(&text[std::mem::replace(&mut done, end)..end]);
            }
        };
        match self {
            Self::Words(regex) => {
                let mut at = 0;
                while let Some(found) = regex.search(&regex_automata::Input::new(text).range(at..)) {
                    push(found.start());
                    at = found.end();
                    if found.pattern().as_usize() == 1 && at < text.len() {
                        // The last space belongs to the next word, unless it is the only one.
                        let last = text[..at].chars().next_back().map_or(0, char::len_utf8);
                        if at - last > found.start() {
                            at -= last;
                        }
                    }
                    push(at);
                }
            }
            Self::Thousands(regex) => {
                for found in regex.find_iter(text) {
                    push(found.start());
                    let digits = &text[found.range()];
                    let count = digits.chars().count();
                    for (number, (at, _)) in digits.char_indices().enumerate() {
                        if (count - number).is_multiple_of(3) {
                            push(found.start() + at);
                        }
                    }
                    push(found.end());
                }
            }
        }
        push(text.len());
    }
}

impl Splitter {
    /// The rules with a name, as files have them in `tokenizer.ggml.pre`; `None` if they are not supported.
    pub fn from_name(name: &str) -> Option<Self> {
        RULES.iter().position(|rule| rule.names.contains(&name)).map(|rule| Self { rule })
    }

    /// The names of all supported rules.
    pub fn names() -> impl Iterator<Item = &'static str> {
        RULES.iter().flat_map(|rule| rule.names.iter().copied())
    }

    /// The name; the best-known of several.
    pub fn name(self) -> &'static str {
        self.rule().names[0]
    }

    pub(super) fn rule(self) -> &'static Rule {
        &RULES[self.rule]
    }

    /// The words of a text. Together they are the text.
    pub fn split(self, text: &str) -> Vec<&str> {
        let stages =
            COMPILED[self.rule].get_or_init(|| self.rule().stages.iter().map(Stage::compiled).collect());
        let mut words = vec![text];
        for stage in stages {
            let pieces = std::mem::take(&mut words);
            words.reserve(pieces.len().max(text.len() / 4));
            pieces.into_iter().for_each(|piece| stage.split(piece, &mut words));
        }
        words.retain(|word| !word.is_empty());
        words
    }
}
