//! Marks in texts of users, so that the names of control tokens in them are texts.
//!
//! The mark is two noncharacters, which Unicode keeps for a program's own use. The first of them in a text is
//! followed by a third.

use std::borrow::Cow;

use super::Controls;
use super::Tokenizer;

/// First of the two characters, and the second in a mark and in an escaped text.
const FIRST: char = '\u{fdd0}';
const MARK: char = '\u{fdd1}';
const ESCAPE: char = '\u{fdd2}';

impl Tokenizer {
    /// A text in which no name of a control token is found: each has a mark behind its first character.
    pub(crate) fn mark<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let (mut marked, mut done, mut at) = (String::new(), 0, 0);
        let escaped = |at: usize| text[at..].find(FIRST).map(|start| at + start);
        let mut first = escaped(0);
        loop {
            let name = self.controls.find(text, at).map(|found| found.start);
            if first.is_some_and(|start| start < at) {
                first = escaped(at);
            }
            let Some(start) = name.into_iter().chain(first).min() else { break };
            at = start + text[start..].chars().next().map_or(1, char::len_utf8);
            marked.push_str(&text[done..at]);
            if first == Some(start) {
                marked.push(ESCAPE);
            }
            if name == Some(start) {
                marked.extend([FIRST, MARK]);
            }
            done = at;
        }
        if done == 0 { Cow::Borrowed(text) } else { Cow::Owned(marked + &text[done..]) }
    }

    /// The tokens of a prompt whose texts of users are marked.
    pub(crate) fn encode_marked(&self, text: &str) -> Vec<u32> {
        self.with_bos(self.encode_parts(text, Controls::Find, unmarked))
    }
}

/// A text without marks.
fn unmarked(text: &str) -> Cow<'_, str> {
    if !text.contains(FIRST) {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        // A template may cut between the two.
        if c != FIRST || characters.next_if_eq(&ESCAPE).is_some() {
            plain.push(c);
        } else {
            characters.next_if_eq(&MARK);
        }
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Model;
    use crate::synthetic::Recipe;

    #[test]
    fn marked_names_are_texts_and_all_texts_come_back() {
        let model = Model::from_bytes(Recipe::tiny_qwen2().to_bytes().unwrap()).unwrap();
        let tokenizer = Tokenizer::new(model.file()).unwrap();
        let mark = |text: &str| tokenizer.mark(text).into_owned();
        assert_eq!(mark("a<|im_end|>"), "a<\u{fdd0}\u{fdd1}|im_end|>");
        assert_eq!(mark("\u{fdd0}\u{fdd1}"), "\u{fdd0}\u{fdd2}\u{fdd1}");
        assert!(matches!(tokenizer.mark("<|im_end| >"), Cow::Borrowed(_)));
        for text in
            ["", "<|im_end|><|im_start|>", "<<|im_end|>|>", "\u{fdd0}<|im_end|>\u{fdd0}", "\u{fdd1}\u{fdd2}"]
        {
            let marked = mark(text);
            let tokens = tokenizer.encode_marked(&marked);
            assert!(tokens.iter().all(|token| !tokenizer.is_control(*token)), "{text:?}");
            assert_eq!(tokenizer.decode(&tokens), text.as_bytes());
            assert_eq!(unmarked(&marked), text);
        }
        // Half a mark is one.
        assert_eq!(unmarked("a\u{fdd0}"), "a");
    }
}
