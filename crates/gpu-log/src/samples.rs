//! Values for lines in tests.

use crate::template::SplitHex;

/// Draws values in turn from numbers and words.
#[derive(Debug)]
pub(crate) struct Source {
    numbers: Vec<u64>,
    words: Vec<String>,
    drawn: usize,
}

impl Source {
    pub(crate) fn new(numbers: Vec<u64>, words: Vec<String>) -> Self {
        Self { numbers, words, drawn: 0 }
    }

    pub(crate) fn draw<T: Drawn>(&mut self) -> T {
        self.drawn += 1;
        T::draw(self.numbers[self.drawn % self.numbers.len()], &self.words[self.drawn % self.words.len()])
    }
}

/// A value that a [`Source`] can give.
pub(crate) trait Drawn {
    fn draw(number: u64, word: &str) -> Self;
}

impl Drawn for u32 {
    fn draw(number: u64, _: &str) -> Self {
        u32::try_from(number & 0xffff_ffff).unwrap()
    }
}

impl Drawn for i32 {
    fn draw(number: u64, _: &str) -> Self {
        i32::try_from(number & 0xffff).unwrap() - 0x8000
    }
}

impl Drawn for u64 {
    fn draw(number: u64, _: &str) -> Self {
        number
    }
}

impl Drawn for usize {
    fn draw(number: u64, _: &str) -> Self {
        usize::try_from(number).unwrap()
    }
}

impl Drawn for SplitHex {
    fn draw(number: u64, _: &str) -> Self {
        Self(number)
    }
}

impl Drawn for String {
    fn draw(_: u64, word: &str) -> Self {
        word.to_owned()
    }
}
