//! Words: how a text is split before its bytes are merged.
//!
//! The rules are usually given as regular expressions with a look-ahead. Here each is a few functions on characters:
//! the first rule that matches at a place gives the next word, and some rule matches every character.

use unicode_properties::{GeneralCategoryGroup, UnicodeGeneralCategory};

/// How a model splits texts into words.
///
/// ```
/// use infer::tokenizer::Splitter;
///
/// let words: Vec<&str> = Splitter::Llama3.split("It's 12345 o'clock!\n").collect();
/// assert_eq!(words, ["It", "'s", " ", "123", "45", " o", "'clock", "!\n"]);
/// let words: Vec<&str> = Splitter::Gpt2.split("It's 12345 o'clock!\n").collect();
/// assert_eq!(words, ["It", "'s", " 12345", " o", "'", "clock", "!", "\n"]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Splitter {
    /// LLaMA 3: one to three digits together.
    Llama3,
    /// Qwen 2 to 3: each digit alone.
    Qwen2,
    /// GPT-2: digits together, and words with at most one space in front.
    Gpt2,
}

/// Whether Unicode calls a character a letter.
fn is_letter(c: char) -> bool {
    if c.is_ascii() {
        c.is_ascii_alphabetic()
    } else {
        c.general_category_group() == GeneralCategoryGroup::Letter
    }
}

/// Neither letter, digit nor space.
fn is_other(c: char) -> bool {
    !c.is_whitespace() && !c.is_numeric() && !is_letter(c)
}

fn is_line_end(c: char) -> bool {
    c == '\r' || c == '\n'
}

/// Bytes at the start of a text whose characters all fulfil a condition.
fn run(text: &str, condition: impl Fn(char) -> bool) -> usize {
    text.find(|c| !condition(c)).unwrap_or(text.len())
}

/// Bytes of an optional space and at least one character that fulfils a condition; 0 if there is none.
fn spaced(text: &str, condition: impl Fn(char) -> bool) -> usize {
    let space = usize::from(text.starts_with(' '));
    match run(&text[space..], condition) {
        0 => 0,
        length => space + length,
    }
}

/// Bytes of an apostrophe and the end of an English contraction; 0 if there is none.
fn contraction(text: &str, ignores_case: bool) -> usize {
    let Some(rest) = text.strip_prefix('\'') else { return 0 };
    let mut characters = rest.chars();
    let Some(first) = characters.next() else { return 0 };
    let lower = |c: char| match c {
        // The long s is an s for regular expressions that ignore the case.
        'ſ' if ignores_case => 's',
        c if ignores_case => c.to_ascii_lowercase(),
        c => c,
    };
    match (lower(first), characters.next().map(lower)) {
        ('s' | 't' | 'm' | 'd', _) => 1 + first.len_utf8(),
        ('r' | 'v', Some('e')) | ('l', Some('l')) => 3,
        _ => 0,
    }
}

/// Bytes of spaces: all if the text ends there, else all but the last, which belongs to the next word; one at least.
fn spaces(text: &str) -> usize {
    let all = run(text, char::is_whitespace);
    if all == text.len() {
        return all;
    }
    let last = text[..all].chars().next_back().map_or(0, char::len_utf8);
    if last < all { all - last } else { all }
}

impl Splitter {
    /// Names of the rules, as files have them in `tokenizer.ggml.pre`.
    pub const NAMES: [&str; 3] = ["llama-bpe", "qwen2", "gpt-2"];

    /// The rules with a name; `None` if they are not supported.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "llama-bpe" | "llama3" | "llama-v3" => Some(Self::Llama3),
            "qwen2" | "deepseek-r1-qwen" => Some(Self::Qwen2),
            "gpt-2" => Some(Self::Gpt2),
            _ => None,
        }
    }

    /// Whether the model whose rules have this name composes characters first (NFC). Models that DeepSeek made of
    /// Qwen's do not.
    pub(super) fn composes(name: &str) -> bool {
        name == "qwen2"
    }

    /// Whether a word that is a token becomes that token, whatever the merges say.
    pub(super) const fn takes_whole_words(self) -> bool {
        matches!(self, Self::Llama3)
    }

    /// Whether texts begin with a token of their own unless the file says otherwise.
    pub(super) const fn adds_bos(self) -> bool {
        matches!(self, Self::Llama3)
    }

    /// The words of a text. Together they are the text.
    pub fn split(self, text: &str) -> impl Iterator<Item = &str> {
        let mut rest = text;
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let length = match self {
                Self::Gpt2 => first_gpt2(rest),
                Self::Llama3 => first_llama3(rest, 3),
                Self::Qwen2 => first_llama3(rest, 1),
            };
            let (word, after) = rest.split_at(length);
            rest = after;
            Some(word)
        })
    }
}

/// The first length that is not 0.
fn first_of(rules: &[&dyn Fn() -> usize]) -> usize {
    // PANIC: the last rule matches every text that is not empty.
    rules.iter().map(|rule| rule()).find(|length| *length > 0).expect("a rule matches")
}

/// Bytes of the first word. Rules, in order: contraction; letters; digits; others, each with a space in front; spaces.
fn first_gpt2(text: &str) -> usize {
    first_of(&[
        &|| contraction(text, false),
        &|| spaced(text, is_letter),
        &|| spaced(text, char::is_numeric),
        &|| spaced(text, is_other),
        &|| spaces(text),
    ])
}

/// Bytes of the first word. Rules, in order: contraction; letters with any character in front that is not a line end or
/// a digit; some digits; others with a space in front and line ends behind; spaces up to the last line end; spaces.
fn first_llama3(text: &str, most_digits: usize) -> usize {
    let letters = || {
        let first = text.chars().next().filter(|c| !is_line_end(*c) && !c.is_numeric() && !is_letter(*c));
        let front = first.map_or(0, char::len_utf8);
        match run(&text[front..], is_letter) {
            0 => 0,
            length => front + length,
        }
    };
    let digits = || text.chars().take(most_digits).take_while(|c| c.is_numeric()).map(char::len_utf8).sum();
    let others = || match spaced(text, is_other) {
        0 => 0,
        length => length + run(&text[length..], is_line_end),
    };
    let lines = || {
        let all = &text[..run(text, char::is_whitespace)];
        all.rfind(is_line_end).map_or(0, |last| last + 1)
    };
    first_of(&[&|| contraction(text, true), &letters, &digits, &others, &lines, &|| spaces(text)])
}
