//! Compares the decoder with nvdisasm: which words it accepts, and as what.
//!
//! `golden.jsonl` holds words from compiled kernels, and the same words with one field changed.

use std::path::Path;

use sass::{Op, Predicate, Refusal, Source, decode};

/// One line of `golden.jsonl`.
#[derive(serde::Deserialize)]
struct Line {
    /// The word: low, then high half.
    hex: String,
    /// Text at address 0.
    text: String,
    /// `"corpus"` for words as compiled, `"flip"` for changed ones.
    src: String,
}

impl Line {
    fn word(&self) -> u128 {
        let half = |text| u128::from_str_radix(text, 16).unwrap();
        half(&self.hex[..16]) | half(&self.hex[16..]) << 64
    }

    /// The mnemonic with its modifiers.
    fn name(&self) -> &str {
        let mut words = self.text.split(' ');
        words.find(|word| !word.starts_with('@')).unwrap()
    }

    /// The mnemonic.
    fn mnemonic(&self) -> &str {
        self.name().split('.').next().unwrap()
    }
}

fn golden() -> Vec<Line> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden.jsonl");
    let text = std::fs::read_to_string(&path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn accepted_words_have_the_mnemonic_and_the_text_of_nvdisasm() {
    let (mut accepted, mut equal) = (0, 0);
    for line in golden() {
        match decode(line.word()) {
            Ok(instruction) => {
                assert_eq!(instruction.mnemonic(), line.mnemonic(), "{}", line.text);
                accepted += 1;
                let text = instruction.to_string();
                let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
                equal += usize::from(words(&text) == words(&line.text));
            }
            Err(Refusal::Unmodelled(name)) => assert_eq!(name, line.mnemonic(), "{}", line.text),
            // nvdisasm prints misaligned register groups; the hardware refuses them.
            Err(_) => assert_eq!(line.src, "flip", "{}", line.text),
        }
    }
    assert!(accepted > 2500, "{accepted}");
    assert_eq!(equal, accepted);
}

#[test]
fn textures_and_surfaces_are_known_by_their_opcode() {
    let names = "TEX TLD TLD4 TMML TXD TXQ SULD SUST SUATOM SURED SUQUERY FOOTPRINT";
    let mut found = 0;
    for line in golden() {
        let texture = names.split(' ').find(|name| *name == line.mnemonic());
        assert_eq!(sass::texture(line.word()), texture, "{}", line.text);
        found += usize::from(texture.is_some());
    }
    assert!(found > 150, "{found}");
}

#[test]
fn everything_that_the_compiler_emits_is_modelled_except_textures() {
    let mut refused: Vec<String> = golden()
        .iter()
        .filter(|line| line.src == "corpus")
        .filter(|line| decode(line.word()).is_err())
        .map(|line| line.name().split('.').take(2).collect::<Vec<_>>().join("."))
        .collect();
    refused.sort_unstable();
    refused.dedup();
    // Textures and surfaces, and products with sparse matrices.
    let allowed =
        |name: &String| name.starts_with('T') || name.starts_with("SU") || name.starts_with("HMMA.SP");
    assert!(refused.iter().all(allowed), "{refused:?}");
}

#[test]
fn words_without_a_row_are_illegal() {
    assert_eq!(decode(0).unwrap_err(), Refusal::Illegal);
    assert_eq!(decode(!0).unwrap_err(), Refusal::Illegal);
}

#[test]
fn misaligned_pairs_are_refused() {
    // DMUL R2, R14, R16, and the same with R3.
    let word = 0x000f_e200_0000_0000_0000_0010_0e02_7228;
    assert_eq!(decode(word).unwrap().top_register(), Some(17));
    assert_eq!(decode(word | 1 << 16).unwrap_err(), Refusal::MisalignedRegister);
}

#[test]
fn modifiers_that_the_row_does_not_name_are_refused() {
    // FADD R0, R0, R0 with bit 88, which FADD does not have.
    let word: u128 = 0x000f_c200_0000_0000_0000_0000_0000_7221;
    assert!(decode(word).is_ok());
    assert_eq!(decode(word | 1 << 88).unwrap_err(), Refusal::Unmodelled("FADD"));
}

#[test]
fn modifiers_without_a_name_are_refused() {
    // FFMA R31, R3, R0, R34 with FMZ, with FTZ, and with both.
    let word: u128 = 0x000f_e200_0000_0022_0000_0000_031f_7223;
    assert!(decode(word | 1 << 76).is_ok());
    assert!(decode(word | 1 << 80).is_ok());
    assert_eq!(decode(word | 1 << 76 | 1 << 80).unwrap_err(), Refusal::Unmodelled("FFMA"));
}

/// The decoded form that an interpreter executes.
#[test]
fn operands_are_decoded_by_the_layout_of_the_row() {
    // @!P0 FFMA R1, -R2, c[0x0][0x160], R3.
    let word: u128 = 0x000f_e200_0000_0103_0000_5800_0201_8a23;
    let i = decode(word).unwrap();
    assert_eq!(i.to_string(), "@!P0 FFMA R1, -R2, c[0x0][0x160], R3");
    assert_eq!((i.op, i.d, i.a), (Op::Ffma, 1, 2));
    assert_eq!(i.guard, Predicate { index: 0, not: true });
    assert!(i.a_sign().negate && !i.b_sign.negate);
    assert_eq!(i.b, Source::Constant { bank: 0, offset: 0x160 });
    assert_eq!(i.c, Source::Register(3));
    // Form 2 has an immediate C in the slot, and B after it.
    let i = decode(word & !0xfff & !(0xffff_ffff << 32) | 0x423 | 0x3f80_0000 << 32).unwrap();
    assert_eq!(i.to_string(), "@!P0 FFMA R1, -R2, R3, 1");
    assert_eq!((i.b, i.c), (Source::Register(3), Source::Immediate(0x3f80_0000)));
}

#[test]
fn the_registers_that_are_read_and_written() {
    // STG.E [R2.64], R5; LDGSTS.E [R5], [R2.64]; SHFL.DOWN PT, R5, R0, 0x10, 0x1f;
    // IMAD.WIDE.U32 R2, R2, R9, c[0x0][0x168]
    let cases = [
        (0x000f_e200_0c10_1904_0000_0005_0200_7986_u128, vec![(2, 2), (5, 1)], 0),
        (0x0003_e800_0b92_1844_0000_0000_0205_7fae, vec![(2, 2), (5, 1)], 0),
        (0x020e_6400_000e_0000_0a00_1f00_0005_7f89, vec![(0, 1)], 1),
        (0x000f_c800_078e_0009_0000_5a00_0202_7625, vec![(2, 1), (9, 1)], 2),
    ];
    for (word, read, written) in cases {
        let i = sass::decode(word).unwrap();
        let all: Vec<(u8, u8)> = i.read().into_iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!((all, i.written().1), (read, written), "{word:#034x}");
        assert!(written == 0 || i.written().0 == i.d);
    }
}
