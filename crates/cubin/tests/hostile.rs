//! Whatever the bytes, parsing ends with a value or an error: random bytes, every truncation, flipped
//! bits, and fields of real cubins set to values that they should not have.

use cubin::{Contents, Cubin, Error};
use proptest::prelude::*;

const SAMPLES: [&[u8]; 7] = [
    include_bytes!("data/calls.cubin"),
    include_bytes!("data/debug.cubin"),
    include_bytes!("data/globals.cubin"),
    include_bytes!("data/limits.cubin"),
    include_bytes!("data/tiny.cubin"),
    include_bytes!("data/tiny.sm_90.cubin"),
    include_bytes!("data/globals.13_0.cubin"),
];

/// Location of a field, and its name for messages.
const HEADER_FIELDS: [(usize, usize); 7] = [(16, 2), (18, 2), (40, 8), (48, 4), (58, 2), (60, 2), (62, 2)];
/// Offsets and sizes of the fields of a section header.
const SECTION_FIELDS: [(usize, usize); 9] =
    [(0, 4), (4, 4), (8, 8), (24, 8), (32, 8), (40, 4), (44, 4), (48, 8), (56, 8)];
/// Offsets and sizes of the fields of a symbol.
const SYMBOL_FIELDS: [(usize, usize); 6] = [(0, 4), (4, 1), (5, 1), (6, 2), (8, 8), (16, 8)];
/// Section types.
const SYMTAB: u32 = 2;
const RELA: u32 = 4;
const REL: u32 = 9;
const INFO: u32 = 0x7000_0000;

fn u16_at(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap()))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn u64_at(bytes: &[u8], at: usize) -> usize {
    usize::try_from(u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())).unwrap()
}

/// Headers of a good cubin: where each begins, its type, offset and size.
fn sections(bytes: &[u8]) -> Vec<(usize, u32, usize, usize)> {
    let table = u64_at(bytes, 40);
    (0..u16_at(bytes, 60))
        .map(|i| table + 64 * i)
        .map(|at| (at, u32_at(bytes, at + 4), u64_at(bytes, at + 24), u64_at(bytes, at + 32)))
        .collect()
}

/// All fields of tables that steer the parser: offset and size.
fn fields(bytes: &[u8]) -> Vec<(usize, usize)> {
    let mut fields = HEADER_FIELDS.to_vec();
    for (header, kind, offset, size) in sections(bytes) {
        fields.extend(SECTION_FIELDS.map(|(at, len)| (header + at, len)));
        match kind {
            SYMTAB => {
                for entry in (offset..offset + size).step_by(24) {
                    fields.extend(SYMBOL_FIELDS.map(|(at, len)| (entry + at, len)));
                }
            }
            REL | RELA => fields.extend((offset..offset + size).step_by(8).map(|at| (at, 8))),
            INFO..=0x7000_0001 => fields.extend((offset..offset + size).step_by(4).map(|at| (at, 4))),
            _ => {}
        }
    }
    fields
}

/// Parses, and if that succeeds uses everything that the result offers.
fn exercise(bytes: &[u8]) -> Result<(), Error> {
    // Tools list what may not be loadable.
    let _ = Contents::read(bytes);
    let cubin = Cubin::parse(bytes)?;
    let names: usize = cubin.kernels().iter().map(|k| k.name.len()).sum();
    assert!(names <= 16 * bytes.len());
    for kernel in cubin.kernels() {
        assert_eq!(cubin.kernel(&kernel.name), Ok(kernel));
        assert!(kernel.code_offset + kernel.code_bytes <= cubin.image_bytes());
        assert!(kernel.param_base + kernel.param_bytes <= kernel.constant0_bytes);
        for constant in &kernel.constants {
            assert!(constant.offset + u64::from(constant.bytes) <= cubin.image_bytes());
        }
    }
    for global in cubin.globals() {
        assert!(global.offset + global.bytes <= cubin.image_bytes());
    }
    // The initialised part is bounded by the file, whatever sizes it declares.
    assert!(cubin.initialised_bytes() <= 70 * bytes.len() as u64);
    if let Ok(front) = cubin.initialised_at(cubin.image_align() * 0x10_0000) {
        assert_eq!(front.len() as u64, cubin.initialised_bytes());
    }
    // One field can declare zeroed variables of gigabytes.
    if cubin.image_bytes() < 16 << 20 {
        let image = cubin.image_at(cubin.image_align() * 0x10_0000);
        if let Ok(image) = image {
            assert_eq!(image.len() as u64, cubin.image_bytes());
            let front = cubin.initialised_at(cubin.image_align() * 0x10_0000).unwrap();
            let (start, rest) = image.split_at(front.len());
            assert!(start == front && rest.iter().all(|byte| *byte == 0));
        }
    }
    Ok(())
}

/// Zeroed variables of 32 GiB, declared by a file of a few KiB.
#[test]
fn huge_variables_are_refused_without_an_allocation() {
    let huge = include_bytes!("data/huge.cubin");
    let error = Cubin::parse(huge).unwrap_err();
    assert!(matches!(error, Error::ImageTooLarge { bytes } if bytes >= 1 << 35), "{error}");
    assert!(Contents::read(huge).is_ok(), "tools can still list it");
}

#[test]
fn the_samples_are_good() {
    for sample in SAMPLES {
        exercise(sample).unwrap();
        assert!(fields(sample).len() > 100);
    }
}

#[test]
fn every_truncation_is_an_error() {
    for sample in SAMPLES {
        // The section headers lie at the end, or (older tools) program headers do.
        let needed = sections(sample).iter().map(|s| s.0 + 64).max().unwrap();
        for len in 0..needed {
            let error = exercise(&sample[..len]).expect_err("a truncated file");
            assert!(matches!(error, Error::NotElf { .. } | Error::Truncated { .. }), "{len}: {error}");
        }
    }
}

/// Each field set to each of a few telling values, one at a time.
#[test]
fn every_field_with_absurd_values() {
    for sample in SAMPLES {
        let mut bytes = sample.to_vec();
        for (at, len) in fields(sample) {
            let old = bytes[at..at + len].to_vec();
            for value in [0, 1, 0x7f, 0x80, 0xffff, 0x7fff_ffff, 0xffff_ffff, 1 << 40, u64::MAX - 7, u64::MAX]
            {
                bytes[at..at + len].copy_from_slice(&value.to_le_bytes()[..len]);
                // Either outcome will do; it must be an outcome.
                let _ = exercise(&bytes);
            }
            bytes[at..at + len].copy_from_slice(&old);
        }
    }
}

/// The errors of wrong fields name what is wrong.
#[test]
fn one_wrong_field_one_error() {
    type Check = fn(&Error) -> bool;
    let cases: [(&str, usize, &[u8], Check); 9] = [
        ("class", 4, &[1], |e| *e == Error::Not64Bit),
        ("data", 5, &[2], |e| *e == Error::NotLittleEndian),
        ("abi", 8, &[8], |e| *e == Error::UnknownAbi { os_abi: 0x33, version: 8 }),
        ("os abi", 7, &[0x41], |e| *e == Error::UnknownAbi { os_abi: 0x41, version: 7 }),
        ("machine", 18, &[62, 0], |e| *e == Error::WrongMachine { machine: 62 }),
        ("type", 16, &[3, 0], |e| *e == Error::UnexpectedType { e_type: 3 }),
        ("section table", 40, &[0xff; 8], |e| matches!(e, Error::Truncated { .. })),
        ("section count", 60, &[0xff, 0xfe], |e| matches!(e, Error::Truncated { .. })),
        ("entry size", 58, &[40, 0], |e| matches!(e, Error::BadSection { .. })),
    ];
    for (what, at, value, check) in cases {
        let mut bytes = SAMPLES[4].to_vec();
        bytes[at..at + value.len()].copy_from_slice(value);
        let error = Cubin::parse(&bytes).expect_err(what);
        assert!(check(&error), "{what}: {error}");
    }
}

/// The first relocation entry of `globals.cubin` that matters, in `.rel.nv.constant4`.
fn first_relocation(bytes: &[u8]) -> usize {
    let all = sections(bytes);
    let target_is_loaded = |header: usize| {
        let target = u32_at(bytes, header + 44) as usize;
        u64_at(bytes, all[target].0 + 8) & 2 != 0
    };
    all.iter().find(|s| s.1 == REL && target_is_loaded(s.0)).expect("a relocated section").2
}

#[test]
fn bad_relocations() {
    let sample = SAMPLES[2];
    let at = first_relocation(sample);
    let with = |offset: usize, value: u32| {
        let mut bytes = sample.to_vec();
        bytes[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
        Cubin::parse(&bytes).unwrap_err()
    };
    assert!(matches!(with(at + 8, 61), Error::UnknownRelocation { kind: 61, .. }));
    assert!(matches!(with(at + 12, 0xffff), Error::BadSection { .. }));
    // Symbol 0 is undefined by definition.
    assert!(matches!(with(at + 12, 0), Error::UnresolvedSymbol { undefined: true, .. }));
    assert!(matches!(with(at, 0x20), Error::BadRelocation { .. }));
    assert!(matches!(with(at + 4, 1), Error::BadRelocation { .. }));
}

/// File offset of the attribute record with this number.
fn attribute(bytes: &[u8], format: u8, number: u8) -> usize {
    let infos = sections(bytes).into_iter().filter(|s| s.1 == INFO);
    infos
        .flat_map(|(_, _, offset, size)| (offset..offset + size).step_by(4))
        .find(|&at| bytes[at] == format && bytes[at + 1] == number)
        .expect("the attribute")
}

#[test]
fn bad_attributes() {
    let sample = SAMPLES[3];
    // `.reqntid` has the layout of `__launch_bounds__`, which the sample has.
    let mut bytes = sample.to_vec();
    let at = attribute(&bytes, 4, 0x05);
    bytes[at + 1] = 0x10;
    let kernel = Cubin::parse(&bytes).unwrap().kernel("bounded").unwrap().clone();
    assert_eq!((kernel.max_threads, kernel.required_threads), (None, Some([96, 1, 1])));

    // A parameter list with a gap: one ordinal changed.
    let mut bytes = sample.to_vec();
    let at = attribute(&bytes, 4, 0x17);
    bytes[at + 8] = 9;
    assert!(matches!(Cubin::parse(&bytes), Err(Error::BadParameters { .. })));
    // An offset beyond the block.
    let mut bytes = sample.to_vec();
    bytes[at + 11] = 0x40;
    assert!(matches!(Cubin::parse(&bytes), Err(Error::BadParameters { .. })));
    // A record longer than its section.
    let mut bytes = sample.to_vec();
    bytes[at + 3] = 0xff;
    assert!(matches!(Cubin::parse(&bytes), Err(Error::BadAttribute { attribute: 0x17, .. })));
    // A register count for a symbol that does not exist.
    let mut bytes = sample.to_vec();
    let at = attribute(&bytes, 4, 0x2f);
    bytes[at + 6] = 0xff;
    assert!(matches!(Cubin::parse(&bytes), Err(Error::BadSection { .. })));
}

/// Two kernels of one name, by pointing one symbol's name at the other's.
#[test]
fn duplicate_kernels() {
    let mut bytes = SAMPLES[3].to_vec();
    let (_, _, offset, size) = sections(&bytes).into_iter().find(|s| s.1 == SYMTAB).unwrap();
    let kernels: Vec<_> = (offset..offset + size).step_by(24).filter(|&e| bytes[e + 5] & 0x10 != 0).collect();
    let name = bytes[kernels[0]..kernels[0] + 4].to_vec();
    bytes[kernels[1]..kernels[1] + 4].copy_from_slice(&name);
    assert!(matches!(Cubin::parse(&bytes), Err(Error::DuplicateKernel { .. })));
}

/// A file of many sections that all claim the same bytes would multiply the memory that it takes.
#[test]
fn overlapping_sections_are_refused() {
    let mut bytes = SAMPLES[2].to_vec();
    let len = bytes.len() as u64;
    for (header, kind, ..) in sections(SAMPLES[2]) {
        // Debug information, whose content does not matter.
        if kind == 1 && u64_at(SAMPLES[2], header + 8) == 0 {
            bytes[header + 24..header + 32].copy_from_slice(&0u64.to_le_bytes());
            bytes[header + 32..header + 40].copy_from_slice(&len.to_le_bytes());
        }
    }
    assert_eq!(Cubin::parse(&bytes).unwrap_err(), Error::OverlappingSections { file_bytes: len });
}

/// Many symbols that share one long name: the names are taken only up to a bound.
#[test]
fn overlapping_names_are_refused() {
    const SYMBOLS: usize = 4000;
    let mut file = SAMPLES[4][..64].to_vec();
    let names = vec![b'a'; 100_000];
    let strings_at = file.len();
    file.push(0);
    file.extend(&names);
    file.push(0);
    let symbols_at = file.len();
    for i in 0..SYMBOLS {
        let mut symbol = [0u8; 24];
        symbol[..4].copy_from_slice(&(1 + i as u32).to_le_bytes());
        file.extend(symbol);
    }
    let table = file.len() as u64;
    let mut section = |kind: u32, offset: usize, size: usize, link: u32| {
        let mut header = [0u8; 64];
        header[4..8].copy_from_slice(&kind.to_le_bytes());
        header[24..32].copy_from_slice(&(offset as u64).to_le_bytes());
        header[32..40].copy_from_slice(&(size as u64).to_le_bytes());
        header[40..44].copy_from_slice(&link.to_le_bytes());
        file.extend(header);
    };
    section(0, 0, 0, 0);
    section(3, strings_at, names.len() + 2, 0);
    section(2, symbols_at, SYMBOLS * 24, 1);
    file[40..48].copy_from_slice(&table.to_le_bytes());
    file[60..62].copy_from_slice(&3u16.to_le_bytes());
    file[62..64].copy_from_slice(&1u16.to_le_bytes());
    assert_eq!(Cubin::parse(&file).unwrap_err(), Error::NamesTooLong { of: "symbols" });
}

proptest! {
    #[test]
    fn random_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..4096)) {
        prop_assert!(exercise(&bytes).is_err());
    }

    #[test]
    fn random_bytes_behind_a_good_header(
        sample in 0..SAMPLES.len(),
        tail in proptest::collection::vec(any::<u8>(), 0..4096),
    ) {
        let mut bytes = SAMPLES[sample][..64].to_vec();
        bytes.extend(tail);
        let _ = exercise(&bytes);
    }

    #[test]
    fn flipped_bits(
        sample in 0..SAMPLES.len(),
        flips in proptest::collection::vec((any::<proptest::sample::Index>(), 0..8u8), 1..16),
    ) {
        let mut bytes = SAMPLES[sample].to_vec();
        for (at, bit) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
        }
        let _ = exercise(&bytes);
    }

    #[test]
    fn mutated_fields(
        sample in 0..SAMPLES.len(),
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u64>(), 0..64u32), 1..6),
    ) {
        let mut bytes = SAMPLES[sample].to_vec();
        let fields = fields(&bytes);
        for (field, value, shift) in changes {
            let (at, len) = *field.get(&fields);
            // Small values are as telling as large ones.
            bytes[at..at + len].copy_from_slice(&(value >> shift).to_le_bytes()[..len]);
        }
        let _ = exercise(&bytes);
    }

    #[test]
    fn swapped_fields(
        sample in 0..SAMPLES.len(),
        a in any::<proptest::sample::Index>(),
        b in any::<proptest::sample::Index>(),
    ) {
        let mut bytes = SAMPLES[sample].to_vec();
        let fields = fields(&bytes);
        let ((from, len), (to, room)) = (*a.get(&fields), *b.get(&fields));
        let value = bytes[from..from + len.min(room)].to_vec();
        bytes[to..to + value.len()].copy_from_slice(&value);
        let _ = exercise(&bytes);
    }
}
