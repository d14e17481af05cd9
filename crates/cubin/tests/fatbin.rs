//! Fat binaries of NVIDIA's `fatbinary`, and damaged ones.

use cubin::fatbin::{Compression, Entry, FatBinary, Features, Kind, MAX_ENTRY_BYTES};
use cubin::{Error, FileKind};
use proptest::prelude::*;

const LZ4: &[u8] = include_bytes!("data/lz4.fatbin");
const ZSTD: &[u8] = include_bytes!("data/zstd.fatbin");
const GROUP: &[u8] = include_bytes!("data/group.fatbin");
const PLAIN: &[u8] = include_bytes!("data/plain.fatbin");

/// What `fatbinary` put into the files.
const TINY: &[u8] = include_bytes!("data/tiny.cubin");
const SM_80: &[u8] = include_bytes!("data/tiny.sm_80.cubin");
const SM_90: &[u8] = include_bytes!("data/tiny.sm_90.cubin");
const SM_90A: &[u8] = include_bytes!("data/tiny.sm_90a.cubin");
const PTX: &str = include_str!("data/tiny.ptx");

/// Everything about an entry but its content.
fn row(entry: &Entry<'_>) -> String {
    let (major, minor) = entry.version;
    let (stored, bytes, compression) = (entry.stored_bytes, entry.bytes, entry.compression);
    let texts = [entry.name, entry.options].map(|text| text.unwrap_or("-"));
    let debug = if entry.is_debug() { " debug" } else { "" };
    format!("{entry} {major}.{minor} {compression:?} {stored}/{bytes} {}{debug}", texts.join(" "))
}

#[test]
fn every_entry_comes_back_as_it_was_put_in() {
    // `fatbinary` replaces the first comment of PTX by an empty line.
    let ptx = PTX.split_once('\n').unwrap().1.as_bytes();
    for (file, entries) in [
        (
            LZ4,
            &[
                ("cubin sm_87 1.7 Lz4 975/2984 tiny.cu -", TINY),
                ("cubin sm_80 1.7 Lz4 836/2728 tiny.cu -", SM_80),
                ("PTX compute_80 6.0 Lz4 270/333 tiny.cu -O3 -v", ptx),
            ][..],
        ),
        (
            ZSTD,
            &[
                ("cubin sm_87 1.7 Zstd 698/2984 - -", TINY),
                ("cubin sm_90 1.7 Zstd 595/2880 - -", SM_90),
                ("cubin sm_90a 1.7 Zstd 595/2880 - -", SM_90A),
                ("PTX compute_80 6.0 Zstd 218/333 - -", ptx),
                ("PTX compute_100f 6.0 Zstd 218/333 - -", ptx),
            ],
        ),
        (GROUP, &[("cubin sm_87 1.7 Zstd 838/2984 - -", TINY), ("cubin sm_80 1.7 Zstd 838/2728 - -", SM_80)]),
        (
            PLAIN,
            &[
                ("cubin sm_80 1.7 None 2728/2728 - - debug", SM_80),
                ("PTX compute_80 6.0 None 336/336 - - debug", ptx),
            ],
        ),
    ] {
        assert_eq!(FileKind::of(file), FileKind::FatBinary);
        let fat = FatBinary::parse(file).unwrap();
        let rows: Vec<String> = fat.entries().iter().map(row).collect();
        assert_eq!(rows, entries.iter().map(|(row, _)| *row).collect::<Vec<_>>());
        for (entry, (row, content)) in fat.entries().iter().zip(entries) {
            let data = entry.data().unwrap();
            assert_eq!(data.trim_ascii(), content.trim_ascii(), "{row}");
        }
    }
}

#[test]
fn the_best_entry_for_a_gpu_is_selected() {
    for (file, gpu, selected) in [
        (LZ4, 87, "cubin sm_87"),
        // Code of the Tegra chip runs on no other GPU, and that of the others not on it.
        (LZ4, 86, "cubin sm_80"),
        (LZ4, 90, "PTX compute_80"),
        (PLAIN, 87, "PTX compute_80"),
        (PLAIN, 80, "cubin sm_80"),
        (ZSTD, 90, "cubin sm_90a"),
        (ZSTD, 89, "PTX compute_80"),
        (ZSTD, 100, "PTX compute_100f"),
        (ZSTD, 103, "PTX compute_100f"),
        (ZSTD, 120, "PTX compute_80"),
        (GROUP, 89, "cubin sm_80"),
    ] {
        let fat = FatBinary::parse(file).unwrap();
        assert_eq!(fat.select(gpu).unwrap().to_string(), selected, "sm_{gpu}");
    }
    let error = FatBinary::parse(GROUP).unwrap().select(75).unwrap_err();
    assert!(matches!(&error, Error::NoFittingEntry { gpu: 75, available } if available.len() == 2));
    assert!(error.to_string().contains("it has: `cubin sm_87`, `cubin sm_80`; compile for sm_75"), "{error}");
}

/// A container with one entry of these flags, payload and size after decompression.
fn with_entry(flags: u64, payload: &[u8], bytes: u64) -> Vec<u8> {
    let mut file = [&PLAIN[..16], &[0; 64], payload].concat();
    file[8..16].copy_from_slice(&(64 + payload.len() as u64).to_le_bytes());
    for (at, field) in [(0, 2), (4, 64), (8, payload.len()), (16, payload.len()), (28, 87)] {
        file[16 + at..][..4].copy_from_slice(&u32::try_from(field).unwrap().to_le_bytes());
    }
    file[16 + 40..][..8].copy_from_slice(&flags.to_le_bytes());
    file[16 + 56..][..8].copy_from_slice(&bytes.to_le_bytes());
    file
}

#[test]
fn what_cannot_be_read_is_refused_with_the_reason() {
    let wrapper = cubin::fatbin::WRAPPER_MAGIC.to_le_bytes();
    for (bytes, reason) in [
        (&wrapper[..], "a wrapper"),
        (&0x1ee5_5a01_u32.to_le_bytes(), "CUDA 3 or older"),
        (b"\x7fELF", "magic"),
        (b"", "magic"),
        (&LZ4[..8], "ends inside"),
        (&[&LZ4[..4], &[2], &LZ4[5..]].concat(), "version"),
        (&[&LZ4[..6], &[8], &LZ4[7..]].concat(), "16 bytes"),
        (&LZ4[..LZ4.len() - 1], "longer than the file"),
        (&[&LZ4[..20], &[63], &LZ4[21..]].concat(), "header does not fit"),
        (&[&LZ4[..27], &[1], &LZ4[28..]].concat(), "payload does not fit"),
        (&[&LZ4[..33], &[9], &LZ4[34..]].concat(), "compressed payload is longer"),
        (&[&GROUP[..80], &[3], &GROUP[81..]].concat(), "members"),
        (&[&GROUP[..99], &[1], &GROUP[100..]].concat(), "members"),
    ] {
        let error = FatBinary::parse(bytes).unwrap_err();
        assert!(
            matches!(error, Error::BadFatBinary { reason: text, .. } if text.contains(reason)),
            "{error}"
        );
    }
    // Zstandard: one block of 131,072 equal bytes.
    let frame = b"\x28\xb5\x2f\xfd\x00\x58\x03\x00\x10\x00";
    let (lz4, zstd, own) = (0x2000, 0x8000, 0x1000);
    for (flags, payload, bytes, reason) in [
        (own, &b"abc"[..], 3, "own format"),
        (lz4, b"\x20ab", 2, ""),
        (lz4, b"\x20ab", 3, "shorter"),
        (lz4, b"\x20ab", 1, "damaged"),
        (lz4, b"\x20ab", 3 * 255 + 1, "size does not fit"),
        (lz4, b"\x20ab", MAX_ENTRY_BYTES + 1, "256 MiB"),
        (zstd, b"\x28\xb5\x2f\xfd", 3, "damaged"),
        (zstd, frame, 131_072, ""),
        (zstd, frame, 131_071, "too long"),
        (zstd, frame, 131_073, "shorter"),
        (zstd, frame, u64::MAX, "256 MiB"),
    ] {
        let file = with_entry(flags, payload, bytes);
        let fat = FatBinary::parse(&file).unwrap();
        match fat.entries()[0].data() {
            Ok(data) => assert!(reason.is_empty() && data.len() as u64 == bytes, "{reason}"),
            Err(error) => {
                assert!(
                    matches!(error, Error::BadPayload { reason: text, .. } if text.contains(reason)),
                    "{error}"
                );
                assert!(!reason.is_empty(), "{error}");
            }
        }
    }
    assert_eq!(FatBinary::parse(&LZ4[..16]).unwrap_err(), FatBinary::parse(&LZ4[..17]).unwrap_err());
}

/// The promises for any input.
fn exercise(bytes: &[u8]) {
    let Ok(fat) = FatBinary::parse(bytes) else { return };
    assert!(fat.entries().len() <= bytes.len() / 64);
    for entry in fat.entries() {
        match entry.data() {
            Ok(data) if entry.compression == Compression::None => assert!(data.len() <= bytes.len()),
            Ok(data) => assert!(data.len() as u64 <= entry.bytes && entry.bytes <= MAX_ENTRY_BYTES),
            Err(error) => assert!(matches!(error, Error::BadPayload { .. }), "{error}"),
        }
    }
    for gpu in [0, 50, 87, 90, 103, u32::MAX] {
        if let Ok(entry) = fat.select(gpu) {
            assert!(matches!(entry.kind, Kind::Cubin | Kind::Ptx));
            assert!(entry.features != Features::Specific || entry.sm == gpu);
        }
    }
}

proptest! {
    #[test]
    fn random_bytes_behind_a_good_header(tail in proptest::collection::vec(any::<u8>(), 0..512)) {
        let mut file = [&LZ4[..16], &tail].concat();
        file[8..16].copy_from_slice(&(tail.len() as u64).to_le_bytes());
        exercise(&file);
        // An entry's header, too.
        exercise(&with_entry(0x2000, &tail, 4096));
        exercise(&with_entry(0x8000, &[&b"\x28\xb5\x2f\xfd"[..], &tail].concat(), 4096));
    }

    #[test]
    fn changed_bytes(
        sample in 0..4_usize,
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..12),
    ) {
        let mut file = [LZ4, ZSTD, GROUP, PLAIN][sample].to_vec();
        for (index, value) in changes {
            let at = index.index(file.len());
            file[at] = value;
        }
        exercise(&file);
    }
}
