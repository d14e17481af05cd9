//! Machine instructions of NVIDIA GPUs with compute capability 8.x: one table that decodes and prints them.
//!
//! An instruction word has 16 bytes, little-endian. Bits 0 to 8 are the operation, bits 9 to 11 the kinds of
//! operands, bits 12 to 15 the guard predicate. Bits 105 to 125 steer the scheduler of the hardware (stall
//! counts, scoreboards, register reuse) and never change a result.
//!
//! A [`Row`] of the table holds all that is known about an instruction: opcode, operands and their places, the
//! modifiers with their names, and the operation that an interpreter executes. [`disassemble`] prints a row the
//! way nvdisasm does; [`decode`] returns the [`Instruction`] that the software Orin (`orin-sim`) executes, and
//! refuses words with modifiers that the row does not name. The places of the modifiers are constants in
//! [`field`], for the rows and for the interpreter.
//!
//! No I/O, no `unsafe`. Decoding does not allocate.
//!
//! ```
//! let word = 0x000f_c200_078e_02ff_0000_0003_0000_7224;
//! assert_eq!(sass::disassemble(word, 0).as_deref(), Some("IMAD R0, R0, R3, RZ"));
//! assert_eq!(sass::decode(word).unwrap().op, sass::Op::Imad);
//! ```
//!
//! # Where to find what
//!
//! - Words to text: [`disassemble`], [`mnemonic`]; of textures, without decoding: [`texture`].
//! - Words to instructions: [`decode`], [`Instruction`], [`Op`], [`Source`], [`Sign`], [`Predicate`], [`Sizes`],
//!   [`Refusal`]; registers without storage: [`RZ`], [`URZ`], [`PT`].
//! - The table: [`Row`], [`Layout`], [`Fragment`], and the places of modifiers in [`field`].

#![no_std]

extern crate alloc;

pub mod field;
mod fragment;
mod instruction;
mod op;
mod print;
mod row;
mod table;

use alloc::string::String;

pub use fragment::Fragment;
pub use instruction::{Instruction, PT, Predicate, RZ, Refusal, Sign, Sizes, Source, URZ};
pub use op::Op;
pub use row::{Layout, Row};

/// Decodes an instruction word for execution.
///
/// # Errors
///
/// If the word is not an instruction, or is one that an interpreter does not execute.
pub fn decode(word: u128) -> Result<Instruction, Refusal> {
    let row = table::find(word).ok_or(Refusal::Illegal)?;
    if row.op == Op::Unmodelled {
        return Err(Refusal::Unmodelled(row.mnemonic));
    }
    let mut instruction = Instruction::new(row, word);
    instruction.check()?;
    Ok(instruction)
}

/// Returns the text of the instruction word at `address`, in the syntax of nvdisasm and without the closing
/// semicolon. Branch targets are absolute. `None` if the word is not a known instruction.
///
/// ```
/// let word = 0x000f_c200_078e_02ff_0000_0003_0000_7224;
/// assert_eq!(sass::disassemble(word, 0).as_deref(), Some("IMAD R0, R0, R3, RZ"));
/// ```
pub fn disassemble(word: u128, address: u64) -> Option<String> {
    print::text(&Instruction::new(table::find(word)?, word), address)
}

/// Returns the mnemonic of an instruction word with its modifiers, without guard and operands. `None` if the
/// word is not a known instruction.
///
/// ```
/// assert_eq!(sass::mnemonic(0x000f_c200_078e_02ff_0000_0003_0000_7224).as_deref(), Some("IMAD"));
/// ```
pub fn mnemonic(word: u128) -> Option<String> {
    print::name(&Instruction::new(table::find(word)?, word))
}

/// Returns the mnemonic, without modifiers, of an instruction that reads or writes textures or surfaces. `None` for all
/// other words. Only the opcode is looked up, in a few nanoseconds.
///
/// ```
/// assert_eq!(sass::texture(0x0000_0000_0000_0000_0000_0000_0000_7370), Some("TXQ"));
/// ```
#[inline]
pub fn texture(word: u128) -> Option<&'static str> {
    table::find_texture(word).map(|row| row.mnemonic)
}
