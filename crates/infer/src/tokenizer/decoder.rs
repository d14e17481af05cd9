//! Tokens to text, as they come.

use super::Tokenizer;

/// Makes text of tokens one by one. A character whose bytes are spread over tokens appears with the last of them.
///
/// ```
/// use infer::model::Model;
/// use infer::synthetic::Recipe;
/// use infer::tokenizer::{Controls, Decoder, Tokenizer};
///
/// let model = Model::from_bytes(Recipe::tiny_llama().to_bytes()?)?;
/// let tokenizer = Tokenizer::new(model.file())?;
/// let tokens = tokenizer.encode("é", Controls::AsText);
/// let mut decoder = Decoder::default();
/// assert_eq!(decoder.push(&tokenizer, tokens[0]), "");
/// assert_eq!(decoder.push(&tokenizer, tokens[1]), "é");
/// assert_eq!(decoder.finish(), "");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Decoder {
    /// The bytes of an incomplete character.
    rest: Vec<u8>,
}

impl Decoder {
    /// The text that a token completes. Control tokens have none. Bytes that are not UTF-8 become U+FFFD.
    pub fn push(&mut self, tokenizer: &Tokenizer, token: u32) -> String {
        if !tokenizer.is_control(token) {
            self.rest.extend(tokenizer.bytes(token));
        }
        let mut text = String::new();
        let mut done = 0;
        for chunk in self.rest.utf8_chunks() {
            text.push_str(chunk.valid());
            done += chunk.valid().len();
            let invalid = chunk.invalid();
            let is_last = done + invalid.len() == self.rest.len();
            let may_continue = is_last && is_start(invalid);
            if !invalid.is_empty() && !may_continue {
                text.push(char::REPLACEMENT_CHARACTER);
                done += invalid.len();
            }
        }
        self.rest.drain(..done);
        text
    }

    /// The end of the text: U+FFFD if a character is incomplete.
    pub fn finish(&mut self) -> String {
        let is_complete = self.rest.is_empty();
        self.rest.clear();
        if is_complete { String::new() } else { char::REPLACEMENT_CHARACTER.to_string() }
    }
}

/// Whether bytes that are not a character can become one.
fn is_start(bytes: &[u8]) -> bool {
    str::from_utf8(bytes).is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
}
