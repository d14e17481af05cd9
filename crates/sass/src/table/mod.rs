//! The table: all known instructions, in rows by family.

mod control;
mod convert;
mod exchange;
mod float;
mod integer;
mod memory;
mod tensor;
mod texture;
mod uniform;

use crate::field;
use crate::row::Row;

/// All rows.
const FAMILIES: [&[Row]; 10] = [
    integer::ROWS,
    float::ROWS,
    convert::ROWS,
    uniform::ROWS,
    exchange::ROWS,
    memory::ROWS,
    tensor::ROWS,
    control::ROWS,
    texture::ROWS,
    texture::OTHERS,
];

/// The row of each value of bits 0 to 11.
static BY_OPCODE: [Option<&Row>; 4096] = by_opcode(&FAMILIES);

/// As `BY_OPCODE`, of textures and surfaces alone.
static TEXTURES: [Option<&Row>; 4096] = by_opcode(&[texture::ROWS]);

const fn by_opcode(families: &[&'static [Row]]) -> [Option<&'static Row>; 4096] {
    let mut rows: [Option<&'static Row>; 4096] = [None; 4096];
    let mut family = 0;
    while family < families.len() {
        let mut at = 0;
        while at < families[family].len() {
            let row = &families[family][at];
            let mut form = 0;
            while form < 8 {
                if row.forms >> form & 1 != 0 {
                    let slot = &mut rows[row.base as usize | form << 9];
                    assert!(slot.is_none(), "two rows for one opcode");
                    *slot = Some(row);
                }
                form += 1;
            }
            at += 1;
        }
        family += 1;
    }
    rows
}

/// Returns the row of an instruction word; `None` if it is not an instruction.
pub(crate) fn find(word: u128) -> Option<&'static Row> {
    BY_OPCODE[field::OPCODE.of(word) as usize]
}

/// As [`find`], for textures and surfaces alone.
#[inline]
pub(crate) fn find_texture(word: u128) -> Option<&'static Row> {
    TEXTURES[field::OPCODE.of(word) as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_one_row_for_each_opcode() {
        assert!(BY_OPCODE.iter().flatten().count() > 250);
        assert!(BY_OPCODE[0x223].is_some_and(|row| row.mnemonic == "FFMA"));
    }
}
