//! The characters for bytes in vocabularies of byte-level encodings.

/// Whether the character of a byte has the same number.
const fn is_printable(byte: u8) -> bool {
    matches!(byte, 33..=126 | 161..=172 | 174..=255)
}

/// The character of a byte in a vocabulary: its own, if that is printable, else one from U+0100 on.
pub fn byte_character(byte: u8) -> char {
    if is_printable(byte) {
        return byte.into();
    }
    let before = (0..byte).filter(|byte| !is_printable(*byte)).count() as u32;
    // PANIC: there are 68 bytes of this kind, and all characters from U+0100 to U+0143 exist.
    char::from_u32(256 + before).expect("a character")
}

/// The byte of a character in a vocabulary; `None` if the character is not in the alphabet.
pub fn character_byte(character: char) -> Option<u8> {
    match u32::from(character) {
        code @ 0..=255 => Some(code as u8).filter(|byte| is_printable(*byte)),
        code => {
            let number = code.checked_sub(256)? as usize;
            (0..=255).filter(|byte| !is_printable(*byte)).nth(number)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_a_character() {
        for byte in 0..=255 {
            assert_eq!(character_byte(byte_character(byte)), Some(byte));
        }
        assert_eq!((byte_character(b' '), byte_character(b'\n'), byte_character(173)), ('Ġ', 'Ċ', '\u{143}'));
        assert_eq!(
            (character_byte(' '), character_byte('\u{144}'), character_byte('語')),
            (None, None, None)
        );
    }
}
