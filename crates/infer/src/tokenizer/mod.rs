//! Texts to tokens and back, by the vocabulary of a model's file.

mod alphabet;

pub use alphabet::{byte_character, character_byte};
