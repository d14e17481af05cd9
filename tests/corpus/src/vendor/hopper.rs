//! Machine code of Hopper for the interpreter of Ampere code: counts of instructions need equal code to compare.
//!
//! Both generations encode most instructions in the same way. [`for_the_model`] rewrites those of a cubin for sm_90
//! that differ, one for one, and labels the cubin as one for sm_87. The numbers of instructions, branches and accesses
//! do not change. Sources: nvdisasm's output for equal kernels compiled for both.

use cubin::{Contents, Cubin};

/// Special register: number of the block in its cluster, which the shared-memory addresses of Hopper contain.
const BLOCK_IN_CLUSTER: u128 = 136;
/// Special register: number of the block along z. 0 like the above, as a grid of the corpus with shared memory is flat.
const BLOCK_Z: u128 = 0x27;
/// Sources C and carry of an IADD3 that adds two numbers: RZ, and no carry.
const NO_THIRD: u128 = 0x07ff_e0ff << 64;

/// The bits of `word` from `low` on.
fn bits(word: u128, low: u32, count: u32) -> u128 {
    word >> low & ((1 << count) - 1)
}

/// `word` with other bits from `low` on.
fn with(word: u128, low: u32, count: u32, value: u128) -> u128 {
    let mask = ((1 << count) - 1) << low;
    word & !mask | value << low & mask
}

/// An instruction of sm_90 in the encoding of sm_8x; the same word if the encodings are equal.
fn instruction(word: u128) -> u128 {
    match bits(word, 0, 12) {
        // Relative calls, branches and returns: 8 bits of the offset are below the register, 46 above it.
        0x344 | 0x944 | 0x947 | 0x949 | 0x950 => {
            let offset = bits(word, 34, 46) << 8 | bits(word, 16, 8);
            // Sign: 54 bits become 48, of which all upper ones are equal.
            with(with(word, 34, 48, offset), 16, 8, 0)
        }
        // VIADD: IADD3 without a third number.
        opcode @ (0x236 | 0x836 | 0xc36) => with(word, 0, 12, opcode - 0x36 + 0x10) | NO_THIRD,
        // VIMNMX: IMNMX with two predicates, which are not used.
        opcode @ (0x248 | 0x848) => with(with(word, 0, 12, opcode - 0x48 + 0x17), 81, 6, 0),
        // ATOMS.POPC.INC: another number of the operation.
        0xf8c if bits(word, 87, 4) == 0b1011 => with(word, 87, 4, 0b1010),
        // S2R and S2UR.
        0x919 | 0x9c3 if bits(word, 72, 8) == BLOCK_IN_CLUSTER => with(word, 72, 8, BLOCK_Z),
        _ => word,
    }
}

/// A cubin for sm_90 as one for sm_87, if it has nothing else that differs.
///
/// # Panics
///
/// If the file is not a cubin of CUDA 12 for sm_90.
pub fn for_the_model(cubin: &[u8]) -> Vec<u8> {
    let contents = Contents::read(cubin).expect("a cubin");
    assert_eq!((contents.sm, contents.abi_version), (90, 7), "a cubin of CUDA 12 for sm_90");
    let mut file = cubin.to_vec();
    // e_flags: the low byte is the chip.
    file[48] = 87;
    // SHF_EXECINSTR.
    for section in contents.sections.into_iter().filter(|section| section.flags & 4 != 0) {
        for code in
            section.range.and_then(|range| file.get_mut(range)).unwrap_or_default().chunks_exact_mut(16)
        {
            let new = instruction(u128::from_le_bytes((&*code).try_into().expect("16 bytes")));
            code.copy_from_slice(&new.to_le_bytes());
        }
    }
    Cubin::parse(&file).expect("only code and chip differ");
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(low: u64, high: u64) -> u128 {
        u128::from(high) << 64 | u128::from(low)
    }

    #[test]
    fn instructions_are_rewritten() {
        // Pairs of nvdisasm: BRA to itself, VIADD R7, R7, 0x1 and IADD3 R7, R7, 0x1, RZ.
        let loops = word(0xffff_fffc_00fc_7947, 0x000f_c000_0383_ffff);
        assert_eq!(instruction(loops), word(0xffff_fff0_0000_7947, 0x000f_c000_0383_ffff));
        let add = word(0x0000_0001_0707_7836, 0x000f_c800_0000_0000);
        assert_eq!(instruction(add), word(0x0000_0001_0707_7810, 0x000f_c800_07ff_e0ff));
        let load = word(0x0000_0004_0203_7981, 0x000e_a200_0c1e_1900);
        assert_eq!(instruction(load), load);
    }
}
