//! GGUF files: what is accepted, and where the reader finds what is wrong.

use infer::Error;
use infer::blocks::BlockType;
use infer::gguf::{Array, Fault, File, Texts, Value, Writer};
use proptest::prelude::*;

/// A file, byte by byte; apart from [`Writer`], so that both can be wrong only by themselves.
#[derive(Clone, Default)]
struct Raw(Vec<u8>);

impl Raw {
    fn new(tensors: u64, keys: u64) -> Self {
        Self(b"GGUF".to_vec()).u32(3).u64(tensors).u64(keys)
    }

    fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    fn text(self, text: &str) -> Self {
        self.u64(text.len() as u64).bytes(text.as_bytes())
    }

    /// Describes a tensor of one dimension.
    fn tensor(self, name: &str, len: u64, format: u32, at: u64) -> Self {
        self.text(name).u32(1).u64(len).u32(format).u64(at)
    }

    /// Adds zeroes up to an aligned position, and some data.
    fn data(mut self, len: usize) -> Self {
        self.0.resize(self.0.len().next_multiple_of(32) + len, 0);
        self
    }

    /// Where and why it is refused.
    fn refused(self) -> (u64, Fault) {
        match File::from_bytes(self.0) {
            Err(Error::Gguf { offset, fault }) => (offset, fault),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn only_version_3_for_little_endian_machines_is_read() {
    let header = |start: &[u8]| Raw(start.to_vec()).u64(0).u64(0);
    assert!(File::from_bytes(header(b"GGUF\x03\0\0\0").0).unwrap().tensors().len() == 0);
    assert_eq!(header(b"GGML\x03\0\0\0").refused(), (0, Fault::Magic(*b"GGML")));
    assert_eq!(header(b"GGUF\0\0\0\x03").refused(), (4, Fault::BigEndian));
    for version in [0, 1, 2, 4] {
        assert_eq!(
            header(&[b'G', b'G', b'U', b'F', version, 0, 0, 0]).refused(),
            (4, Fault::Version(version.into()))
        );
    }
    // 65,535 in big-endian order, and 256 in little-endian order.
    assert_eq!(header(b"GGUF\0\0\xff\xff").refused(), (4, Fault::BigEndian));
    assert_eq!(header(b"GGUF\0\x01\0\0").refused(), (4, Fault::Version(256)));
}

#[test]
fn every_shorter_file_is_refused() {
    let mut writer = Writer::new();
    writer.key("number", Value::U64(7));
    writer.key("texts", Value::Array(Array::Texts(["one", "two"].into_iter().collect())));
    writer.tensor("weights", &[32, 2], BlockType::Q8_0, |_| vec![1; 34]).unwrap();
    let mut bytes = Vec::new();
    writer.write(&mut bytes).unwrap();
    // The padding behind the last tensor may be missing.
    let last = File::from_bytes(bytes.clone()).unwrap().tensor("weights").unwrap().bytes.len();
    let end = bytes.len().div_ceil(32) * 32 - last.next_multiple_of(32) + last;
    File::from_bytes(bytes[..end].to_vec()).unwrap();
    for len in 0..end {
        let (offset, fault) = Raw(bytes[..len].to_vec()).refused();
        assert!(offset <= len as u64, "{fault}");
        assert!(matches!(fault, Fault::Truncated { .. } | Fault::Data { .. }), "{len}: {fault}");
    }
}

#[test]
fn counts_and_lengths_are_bounded_by_the_file() {
    let truncated = |raw: Raw, at: u64, needed: u64| {
        let (offset, fault) = raw.refused();
        assert!(matches!(fault, Fault::Truncated { needed: n, .. } if n == needed), "{fault}");
        assert_eq!(offset, at, "{fault}");
    };
    truncated(Raw::new(0, u64::MAX), 24, u64::MAX);
    truncated(Raw::new(1 << 40, 0), 24, 33 << 40);
    truncated(Raw::new(0, 1).u64(6000).text("k").u32(4), 32, 6000);
    let key = || Raw::new(0, 1).text("k");
    truncated(key().u32(8).u64(u64::MAX - 3), 45, u64::MAX - 3);
    // Arrays of numbers, texts and arrays.
    truncated(key().u32(9).u32(12).u64(u64::MAX / 8 + 1), 49, u64::MAX);
    truncated(key().u32(9).u32(0).u64(1 << 50), 49, 1 << 50);
    truncated(key().u32(9).u32(8).u64(1 << 50), 49, 8 << 50);
    truncated(key().u32(9).u32(9).u64(1 << 60), 49, 12 << 60);
}

#[test]
fn the_largest_names_and_counts_are_read() {
    // The smallest key and the smallest tensor, with nothing behind them.
    Raw::new(0, 1).text("k").u32(0).bytes(&[1]).refused_not();
    Raw::new(0, 1).text(&"k".repeat(65_535)).u32(0).bytes(&[1]).refused_not();
    Raw::new(1, 0).tensor(&"t".repeat(64), 8, 0, 0).data(32).refused_not();
    let four = Raw::new(1, 0).text("t").u32(4).u64(8).u64(1).u64(1).u64(1).u32(0).u64(0).data(32);
    four.refused_not();
    // Four arrays in each other.
    let nested = (0..3).fold(Raw::new(0, 1).text("k").u32(9), |raw, _| raw.u32(9).u64(1));
    nested.u32(0).u64(1).bytes(&[7]).refused_not();
    // Tensors that follow each other without a gap.
    Raw::new(2, 0).tensor("t", 8, 0, 0).tensor("u", 8, 0, 32).data(64).refused_not();
}

#[test]
fn values_and_arrays_name_their_types_and_count_their_elements() {
    let arrays = [
        Array::U8(vec![1; 3]),
        Array::I8(vec![1; 3]),
        Array::U16(vec![1; 3]),
        Array::I16(vec![1; 3]),
        Array::U32(vec![1; 3]),
        Array::I32(vec![1; 3]),
        Array::F32(vec![1.0; 3]),
        Array::Bool(vec![true; 3]),
        Array::Texts(["a"; 3].into_iter().collect()),
        Array::Arrays(vec![Array::U8(Vec::new()); 3]),
        Array::U64(vec![1; 3]),
        Array::I64(vec![1; 3]),
        Array::F64(vec![1.0; 3]),
    ];
    for array in arrays {
        assert!(array.len() == 3 && !array.is_empty(), "{array:?}");
    }
    assert!(Array::I8(Vec::new()).is_empty() && Texts::default().is_empty());
    assert!(!["a"].into_iter().collect::<Texts>().is_empty());
    let integers = [
        (Value::U8(5), "u8"),
        (Value::I8(5), "i8"),
        (Value::U16(5), "u16"),
        (Value::I16(5), "i16"),
        (Value::U32(5), "u32"),
        (Value::I32(5), "i32"),
        (Value::U64(5), "u64"),
        (Value::I64(5), "i64"),
    ];
    for (value, kind) in integers {
        assert_eq!((value.integer(), value.float(), value.kind()), (Some(5), None, kind));
    }
    let others = [
        (Value::F32(0.5), Some(0.5), "f32"),
        (Value::F64(0.5), Some(0.5), "f64"),
        (Value::Bool(true), None, "bool"),
        (Value::Text(String::new()), None, "text"),
        (Value::Array(Array::U8(Vec::new())), None, "array"),
    ];
    for (value, float, kind) in others {
        assert_eq!((value.integer(), value.float(), value.kind()), (None, float, kind));
    }
}

#[test]
fn rows_that_are_not_whole_blocks_are_not_written() {
    let mut writer = Writer::new();
    let error = writer.tensor("t", &[33, 1], BlockType::Q8_0, |_| Vec::new()).unwrap_err();
    assert!(matches!(error, Error::Length { len: 33, needed: 64, .. }), "{error}");
    for bytes in [33, 35] {
        let mut writer = Writer::new();
        writer.tensor("t", &[32, 1], BlockType::Q8_0, |_| vec![0; bytes]).unwrap();
        let error = writer.write(&mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidData, "{bytes} bytes");
    }
}

#[test]
fn values_must_make_sense() {
    let key = || Raw::new(0, 1).text("k");
    assert_eq!(key().u32(13).bytes(&[0; 8]).refused(), (33, Fault::ValueType(13)));
    assert_eq!(key().u32(7).bytes(&[2]).refused(), (37, Fault::Bool(2)));
    assert_eq!(key().u32(9).u32(7).u64(2).bytes(&[1, 3]).refused(), (50, Fault::Bool(3)));
    assert_eq!(key().u32(9).u32(77).u64(0).refused(), (37, Fault::ValueType(77)));
    assert_eq!(key().u32(8).u64(1).bytes(&[0xff]).refused(), (45, Fault::Text { what: "a text" }));
    let nested = (0..4).fold(key().u32(9), |raw, _| raw.u32(9).u64(1)).u32(9).u64(0);
    assert!(matches!(nested.refused(), (_, Fault::Nesting(4))));
    let twice = Raw::new(0, 2).text("k").u32(0).bytes(&[1]).text("k").u32(0).bytes(&[2]);
    assert_eq!(twice.refused(), (38, Fault::DuplicateKey("k".to_owned())));
    assert!(matches!(Raw::new(0, 1).u64(0).bytes(&[0; 16]).refused(), (24, Fault::Name { bytes: 0, .. })));
    let long = "k".repeat(65_536);
    assert!(matches!(Raw::new(0, 1).text(&long).refused(), (24, Fault::Name { bytes: 65_536, .. })));
}

#[test]
fn tensors_must_fit_the_file() {
    let one = || Raw::new(1, 0);
    let refused = |raw: Raw, want: Fault| {
        let (offset, fault) = raw.refused();
        assert_eq!(fault, want);
        assert!((24..=45).contains(&offset), "{offset}");
    };
    let name = || "t".to_owned();
    one().tensor("t", 8, 0, 0).data(32).refused_not();
    refused(one().tensor("t", 8, 16, 0).data(32), Fault::Format { name: name(), id: 16 });
    refused(one().tensor("t", 8, 0, 16).data(64), Fault::Misaligned { name: name(), at: 16, alignment: 32 });
    refused(one().tensor("t", 8, 0, 32).data(63), Fault::Data { name: name(), needed: 32, left: 31 });
    refused(one().tensor("t", 8, 0, !31).data(64), Fault::Data { name: name(), needed: 32, left: 0 });
    refused(one().tensor("t", 33, 8, 0).data(64), Fault::Row { name: name(), width: 33, block: 32 });
    refused(one().tensor("t", 0, 0, 0).data(64), Fault::Size { name: name(), dims: vec![0] });
    refused(one().tensor("t", 1 << 63, 0, 0).data(64), Fault::Size { name: name(), dims: vec![1 << 63] });
    let huge = one().text("t").u32(2).u64(1 << 40).u64(1 << 40).u32(0).u64(0).data(64);
    refused(huge, Fault::Size { name: name(), dims: vec![1 << 40; 2] });
    for count in [0, 5, u32::MAX] {
        let raw = one().text("t").u32(count).bytes(&[1; 64]);
        refused(raw, Fault::Dimensions { name: name(), count });
    }
    let twice = Raw::new(2, 0).tensor("t", 8, 0, 0).tensor("t", 8, 0, 32).data(64);
    assert_eq!(twice.refused(), (57, Fault::DuplicateTensor(name())));
    let shared = Raw::new(2, 0).tensor("t", 16, 0, 0).tensor("u", 8, 0, 32).data(64);
    assert_eq!(shared.refused(), (57, Fault::Overlap { first: name(), second: "u".to_owned() }));
    let long = "t".repeat(65);
    assert!(matches!(one().tensor(&long, 8, 0, 0).data(32).refused(), (24, Fault::Name { bytes: 65, .. })));
}

impl Raw {
    fn refused_not(self) {
        File::from_bytes(self.0).unwrap();
    }
}

#[test]
fn the_alignment_is_a_power_of_two() {
    let aligned = |alignment: u32| Raw::new(0, 1).text("general.alignment").u32(4).u32(alignment);
    aligned(8).refused_not();
    aligned(64).refused_not();
    for wrong in [0, 4, 12, 48] {
        assert_eq!(aligned(wrong).refused(), (24, Fault::Alignment(wrong.to_string())));
    }
    let other = Raw::new(0, 1).text("general.alignment").u32(10).u64(32);
    assert_eq!(other.refused(), (24, Fault::Alignment("of type u64".to_owned())));
    let wide = Raw::new(1, 1).text("general.alignment").u32(4).u32(128).tensor("t", 1, 0, 128);
    let mut bytes = wide.0;
    let at = bytes.len().next_multiple_of(128) + 128;
    bytes.resize(at, 0);
    bytes.extend([1, 2, 3, 4]);
    assert_eq!(File::from_bytes(bytes).unwrap().tensor("t").unwrap().bytes, [1, 2, 3, 4]);
}

#[test]
fn texts_of_files_are_printed_without_control_characters() {
    let raw = Raw::new(1, 0).tensor("\x1b[2J", 8, 16, 0).data(32);
    let error = File::from_bytes(raw.0).unwrap_err().to_string();
    assert!(!error.contains('\x1b') && error.contains("IQ2_XXS"), "{error}");
}

#[test]
fn values_are_read_by_type() {
    let mut writer = Writer::new();
    writer.key("small", Value::I8(-3));
    writer.key("large", Value::U64(u64::MAX));
    writer.key("half", Value::F64(0.5));
    writer.key("nan", Value::F32(f32::NAN));
    writer.key("texts", Value::Array(Array::Texts(["a", "b"].into_iter().collect())));
    writer.key("yes", Value::Bool(true));
    writer.key("text", Value::Text("t".to_owned()));
    let mut bytes = Vec::new();
    writer.write(&mut bytes).unwrap();
    let file = File::from_bytes(bytes).unwrap();
    assert_eq!((file.values().len(), file.is_empty(), file.value("none")), (7, false, None));
    assert_eq!((file.bool("yes").unwrap(), file.text("text").unwrap()), (Some(true), Some("t")));
    assert_eq!(
        (file.integer("small").unwrap(), file.integer("large").unwrap()),
        (Some(-3_i8), Some(u64::MAX))
    );
    assert_eq!((file.float("half").unwrap(), file.bool("none").unwrap()), (Some(0.5), None));
    assert_eq!(file.texts("texts").unwrap().map(Texts::len), Some(2));
    for result in [
        file.integer::<u32>("small").map(|_| ()),
        file.integer::<i64>("large").map(|_| ()),
        file.float("nan").map(|_| ()),
        file.text("half").map(|_| ()),
        file.bool("half").map(|_| ()),
        file.texts("half").map(|_| ()),
    ] {
        assert!(matches!(result, Err(Error::Value { .. })), "{result:?}");
    }
}

#[test]
fn a_file_is_mapped_and_checked_for_changes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let raw = Raw::new(1, 0).tensor("t", 8, 0, 0).data(32);
    std::fs::write(&path, &raw.0).unwrap();
    let file = File::open(&path).unwrap();
    assert_eq!((file.len(), file.tensor("t").unwrap().bytes), (raw.0.len(), &[0; 32][..]));
    file.release(file.tensor("t").unwrap().bytes);
    file.release(&[1; 8192]);
    assert_eq!(file.tensor("t").unwrap().bytes, [0; 32]);
    file.unchanged().unwrap();
    std::fs::OpenOptions::new().append(true).open(&path).unwrap().set_len(4096).unwrap();
    assert!(matches!(file.unchanged().unwrap_err(), Error::Changed(_)));

    for wrong in [folder.path().to_owned(), folder.path().join("none"), "/dev/zero".into()] {
        let error = File::open(&wrong).unwrap_err();
        assert!(matches!(error, Error::Open { .. }), "{error}");
        assert!(error.to_string().starts_with(&*wrong.to_string_lossy()), "{error}");
    }
    std::fs::write(&path, []).unwrap();
    assert!(matches!(File::open(&path).unwrap_err(), Error::Gguf { offset: 0, .. }));
}

fn any_array(depth: u32) -> BoxedStrategy<Array> {
    let numbers = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..20).prop_map(Array::U8),
        prop::collection::vec(any::<i8>(), 0..20).prop_map(Array::I8),
        prop::collection::vec(any::<u16>(), 0..20).prop_map(Array::U16),
        prop::collection::vec(any::<i16>(), 0..20).prop_map(Array::I16),
        prop::collection::vec(any::<u32>(), 0..20).prop_map(Array::U32),
        prop::collection::vec(any::<i32>(), 0..20).prop_map(Array::I32),
        prop::collection::vec(any::<u64>(), 0..20).prop_map(Array::U64),
        prop::collection::vec(any::<i64>(), 0..20).prop_map(Array::I64),
        prop::collection::vec(-1e9_f32..1e9, 0..20).prop_map(Array::F32),
        prop::collection::vec(-1e9_f64..1e9, 0..20).prop_map(Array::F64),
        prop::collection::vec(any::<bool>(), 0..20).prop_map(Array::Bool),
        prop::collection::vec(".{0,9}", 0..20)
            .prop_map(|texts| Array::Texts(texts.iter().map(String::as_str).collect())),
    ];
    if depth == 0 {
        return numbers.boxed();
    }
    let arrays = prop::collection::vec(any_array(depth - 1), 0..4).prop_map(Array::Arrays);
    prop_oneof![3 => numbers, 1 => arrays].boxed()
}

fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<u8>().prop_map(Value::U8),
        any::<i8>().prop_map(Value::I8),
        any::<u16>().prop_map(Value::U16),
        any::<i16>().prop_map(Value::I16),
        any::<u32>().prop_map(Value::U32),
        any::<i32>().prop_map(Value::I32),
        any::<u64>().prop_map(Value::U64),
        any::<i64>().prop_map(Value::I64),
        (-1e9_f32..1e9).prop_map(Value::F32),
        (-1e9_f64..1e9).prop_map(Value::F64),
        any::<bool>().prop_map(Value::Bool),
        ".{0,40}".prop_map(Value::Text),
        any_array(3).prop_map(Value::Array),
    ]
}

/// A tensor: blocks of a row, rows, format, and what its bytes start from.
fn any_tensor() -> impl Strategy<Value = (usize, usize, BlockType, u8)> {
    (1..3_usize, 1..4_usize, prop::sample::select(&BlockType::ALL[..]), any::<u8>())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_written_is_read(
        values in prop::collection::btree_map("[a-z.]{1,12}", any_value(), 0..8),
        tensors in prop::collection::btree_map("[a-z.]{1,12}", any_tensor(), 0..6),
        cut in any::<prop::sample::Index>(),
        flip in any::<(prop::sample::Index, u8)>(),
    ) {
        let mut writer = Writer::new();
        values.iter().for_each(|(key, value)| writer.key(key, value.clone()));
        let row = |&(blocks, _, block, start): &(usize, usize, BlockType, u8), row: usize| -> Vec<u8> {
            let first = start.wrapping_add(row as u8);
            (0..blocks * block.bytes()).map(|at| first.wrapping_add(at as u8)).collect()
        };
        for (name, tensor) in &tensors {
            let dims = [tensor.0 * tensor.2.weights(), tensor.1];
            writer.tensor(name, &dims, tensor.2, move |number| row(tensor, number)).unwrap();
        }
        let mut bytes = Vec::new();
        writer.write(&mut bytes).unwrap();

        let file = File::from_bytes(bytes.clone()).unwrap();
        prop_assert!(file.values().eq(values.iter().map(|(key, value)| (key.as_str(), value))));
        prop_assert_eq!(file.tensors().len(), tensors.len());
        for (read, (name, tensor)) in file.tensors().zip(&tensors) {
            let want: Vec<u8> = (0..tensor.1).flat_map(|number| row(tensor, number)).collect();
            prop_assert_eq!((read.name, read.block, read.bytes), (name.as_str(), tensor.2, &want[..]));
        }
        // A damaged file is read or refused, never more.
        let _ = File::from_bytes(bytes[..cut.index(bytes.len())].to_vec());
        let at = flip.0.index(bytes.len());
        bytes[at] ^= flip.1;
        if let Ok(file) = File::from_bytes(bytes) {
            prop_assert!(file.tensors().all(|tensor| tensor.bytes.len() <= file.len()));
        }
    }
}
