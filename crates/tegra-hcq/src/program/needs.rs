//! What the machine code of a kernel needs besides a launch: the driver's workspace for barriers of the whole grid, and
//! textures or surfaces.

use gpu_hal::chip::Chip;

/// Size of an instruction in bytes.
const BYTES: usize = 16;

/// Instructions that read or write textures and surfaces.
const TEXTURES: [&str; 12] =
    ["TEX", "TLD", "TLD4", "TMML", "TXD", "TXQ", "SULD", "SUST", "SUATOM", "SURED", "SUQUERY", "FOOTPRINT"];

/// Needs of a kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    /// Byte offset in constant bank 0 of the address of the workspace, the upper half first, if the code reads it: the
    /// kernel has a barrier of the whole grid.
    pub(crate) grid_barrier: Option<usize>,
    /// The first instruction that uses a texture or surface.
    pub(crate) texture: Option<&'static str>,
}

impl Needs {
    /// The needs of code that was compiled for `chip`.
    pub(super) fn of(code: &[u8], chip: Option<&Chip>) -> Self {
        let mut needs = Self::default();
        let workspace = chip.map(|chip| chip.bank0.value.grid_workspace);
        // PANIC: the chunks have 16 bytes.
        let words =
            code.chunks_exact(BYTES).map(|word| u128::from_le_bytes(word.try_into().expect("16 bytes")));
        for word in words {
            if needs.texture.is_none()
                && let Err(sass::Refusal::Unmodelled(name)) = sass::decode(word)
                && TEXTURES.contains(&name)
            {
                needs.texture = Some(name);
            }
            if let Some(at) = workspace.filter(|at| needs.grid_barrier.is_none() && reads(word, *at)) {
                needs.grid_barrier = Some(at);
            }
        }
        needs
    }
}

/// Whether an instruction has one of the two words at offset `at` of constant bank 0 as an operand.
fn reads(word: u128, at: usize) -> bool {
    // CAST: 16 and 5 bits.
    let (offset, bank) = ((word >> 38) as usize & 0xffff, (word >> 54) as usize & 0x1f);
    // Other instructions may have these bits, so the text decides.
    bank == 0
        && (offset == at || offset == at + 4)
        && sass::disassemble(word, 0).is_some_and(|text| text.contains(&format!("c[0x0][{offset:#x}]")))
}
