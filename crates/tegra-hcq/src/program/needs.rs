//! What the machine code of a kernel needs besides a launch: the driver's workspace for barriers of the whole grid, and
//! textures or surfaces.

use gpu_hal::chip::Chip;
use sass::field::{BANK, BANK_OFFSET};

/// Size of an instruction in bytes.
const BYTES: usize = 16;

/// Needs of a kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    /// Byte offset in constant bank 0 of the address of the workspace, the upper half first, if the code reads it: the
    /// kernel has a barrier of the whole grid.
    pub(crate) grid_barrier: Option<usize>,
    /// The first instruction that uses a texture or surface, if the GPU cannot.
    pub(crate) texture: Option<&'static str>,
}

impl Needs {
    /// The needs of code that was compiled for `chip`.
    pub(super) fn of(code: &[u8], chip: Option<&Chip>) -> Self {
        let words = || code.as_chunks::<BYTES>().0.iter().map(|word| u128::from_le_bytes(*word));
        let has_textures = chip.is_some_and(has_textures);
        let workspace = chip.map(|chip| chip.bank0.value.grid_workspace);
        Self {
            grid_barrier: workspace.filter(|at| words().any(|word| reads(word, *at))),
            texture: if has_textures { None } else { words().find_map(sass::texture) },
        }
    }
}

/// Whether kernels of a chip can use textures. Hopper GPUs read the headers of the SMs 8.x unless
/// SET_TEXTURE_HEADER_VERSION says otherwise (H100, driver 580).
pub(crate) fn has_textures(chip: &Chip) -> bool {
    [8, 9].contains(&chip.sm_version.0)
}

/// Whether an instruction has one of the two words at offset `at` of constant bank 0 as an operand.
fn reads(word: u128, at: usize) -> bool {
    let offset = BANK_OFFSET.of(word) as usize;
    // Other instructions may have these bits, so the text decides.
    BANK.of(word) == 0
        && (offset == at || offset == at + 4)
        && sass::disassemble(word, 0).is_some_and(|text| text.contains(&format!("c[0x0][{offset:#x}]")))
}
