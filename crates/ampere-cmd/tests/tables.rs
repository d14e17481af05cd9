//! The generated tables against the class tables that they were generated from, without the
//! generator.

use std::collections::BTreeMap;
use std::fs;

use ampere_cmd::gpfifo::{Entry, Level, Operation, Segment};
use ampere_cmd::pushbuffer::{Header, Mode};
use ampere_cmd::qmd::{
    Qmd, QmdV2_4, QmdV3_0, QmdV3_0Hopper, QmdV4_0, Version, v2_4, v3_0, v3_0_hopper, v4_0,
};
use ampere_cmd::{CLASSES, Subchannel, gpfifo};
use serde_json::Value;

fn table(name: &str) -> Value {
    let path = format!("{}/classes/{name}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

fn hex(value: &Value) -> u32 {
    u32::from_str_radix(value.as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
}

fn small(value: &Value) -> u32 {
    u32::try_from(value.as_u64().unwrap()).unwrap()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn values(field: &Value) -> BTreeMap<String, u32> {
    ["enums", "alias_enums"]
        .into_iter()
        .filter_map(|key| field.get(key)?.as_object())
        .flatten()
        .map(|(name, value)| (name.clone(), small(value)))
        .collect()
}

fn named(values: &[(&str, u32)]) -> BTreeMap<String, u32> {
    values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
}

#[test]
fn classes() {
    let names = [
        "compute_c7c0",
        "compute_cbc0",
        "copy_c7b5",
        "copy_c8b5",
        "host_c56f",
        "host_c76f",
        "host_c86f",
        "usermode_c361",
        "usermode_c461",
        "usermode_c561",
        "usermode_c661",
    ];
    assert_eq!(names.len(), CLASSES.len());
    for (name, class) in names.into_iter().zip(CLASSES) {
        let table = table(name);
        assert_eq!(u32::from(class.number), hex(&table["class"]), "{name}");
        assert_eq!(class.name, table["class_name"].as_str().unwrap(), "{name}");
        assert_eq!(class.partial, table.get("partial_header").is_some(), "{name}");
        let methods = if name.starts_with("usermode") { &table["registers"] } else { &table["methods"] };
        assert_eq!(class.methods.len(), list(methods).len(), "{name}");
        for expected in list(methods) {
            let method = class.method(expected["name"].as_str().unwrap()).unwrap();
            assert_eq!(method.address, hex(&expected["offset"]), "{name} {}", method.name);
            let array = expected.get("array");
            let exact = array.is_none_or(|array| array.get("count").is_some());
            assert_eq!(method.count_is_exact, exact, "{name} {}", method.name);
            let count =
                array.map_or(1, |array| small(array.get("count").unwrap_or(&array["max_count_by_layout"])));
            assert_eq!(method.count, count, "{name} {}", method.name);
            assert_eq!(
                method.stride,
                array.map_or(4, |array| small(&array["stride"])),
                "{name} {}",
                method.name
            );
            let fields = list(&expected["fields"]);
            if fields.is_empty() {
                assert!(class.partial && method.named_bits() == u32::MAX, "{name} {}", method.name);
                continue;
            }
            assert_eq!(method.fields.len(), fields.len(), "{name} {}", method.name);
            for (field, expected) in method.fields.iter().zip(fields) {
                assert_eq!(field.name, expected["name"].as_str().unwrap());
                let bits = (small(&expected["hi"]), small(&expected["lo"]));
                assert_eq!((field.hi, field.lo), bits, "{name} {} {}", method.name, field.name);
                assert_eq!(named(field.values), values(expected), "{name} {} {}", method.name, field.name);
                assert_eq!(field.when, expected.get("when").and_then(Value::as_str));
            }
        }
    }
}

/// Methods, fields and values of each class as counted in the headers: a table that lost some would otherwise be
/// right in itself.
#[test]
fn classes_are_complete() {
    let counts = CLASSES.iter().map(|class| {
        let fields = || class.methods.iter().flat_map(|method| method.fields);
        let values = fields().map(|field| field.values.len()).sum::<usize>();
        (class.header, class.methods.len(), fields().count(), values)
    });
    // Where a header lists a method without fields (three of clc86f.h), its data word counts as one.
    let expected = [
        ("clc7c0.h", 179, 255, 201),
        ("clcbc0.h", 179, 254, 197),
        ("clc7b5.h", 43, 82, 139),
        ("clc8b5.h", 51, 92, 150),
        ("clc56f.h", 22, 54, 110),
        ("clc76f.h", 22, 55, 113),
        ("clc86f.h", 11, 32 + 3, 70),
        ("clc361.h", 3, 3, 0),
        ("clc461.h", 3, 5, 0),
        ("clc561.h", 4, 6, 0),
        ("clc661.h", 3, 5, 0),
    ];
    assert_eq!(counts.collect::<Vec<_>>(), expected);
}

/// As [`classes_are_complete`]: fields, elements of fields, values.
#[test]
fn launch_descriptors_are_complete() {
    fn counts<V: Version>() -> (&'static str, usize, u32, usize) {
        let elements = V::FIELDS.iter().map(|field| field.count).sum();
        (V::NAME, V::FIELDS.len(), elements, V::FIELDS.iter().map(|field| field.values.len()).sum())
    }
    assert_eq!(counts::<v2_4::Layout>(), ("QMDV02_04", 129, 171, 97));
    assert_eq!(counts::<v3_0::Layout>(), ("QMDV03_00", 144, 186, 140));
    assert_eq!(counts::<v3_0_hopper::Layout>(), ("QMDV03_00", 133, 175, 140));
    assert_eq!(counts::<v4_0::Layout>(), ("QMDV04_00", 134, 214, 103));
}

fn check_qmd<V: Version>(name: &str) {
    let table = table(name);
    assert_eq!(V::NAME, table["qmd"].as_str().unwrap());
    assert_eq!((V::MAJOR, V::MINOR), (small(&table["version"]["major"]), small(&table["version"]["minor"])));
    assert_eq!(Qmd::<V>::WORDS as u64, table["words"].as_u64().unwrap());
    assert_eq!(Qmd::<V>::BYTES as u64, table["bytes"].as_u64().unwrap());
    let fields = list(&table["fields"]);
    assert_eq!(V::FIELDS.len(), fields.len(), "{name}");
    for (field, expected) in V::FIELDS.iter().zip(fields) {
        assert_eq!(field.name, expected["name"].as_str().unwrap());
        let bits = (small(&expected["hi"]), small(&expected["lo"]));
        assert_eq!((field.hi, field.lo), bits, "{name} {}", field.name);
        let array =
            expected.get("array").map_or((1, 0), |array| (small(&array["count"]), small(&array["stride"])));
        assert_eq!((field.count, field.stride), array, "{name} {}", field.name);
        assert_eq!(named(field.values), values(expected), "{name} {}", field.name);
    }
    let mut all = Qmd::<V>::new();
    for field in Qmd::<V>::fields() {
        all.set(field, u64::from(u32::MAX >> (32 - field.info().width()))).unwrap();
    }
    for range in list(&table["unassigned_bits"]) {
        for bit in small(&range[1])..=small(&range[0]) {
            assert_eq!(all.as_words()[bit as usize / 32] >> (bit % 32) & 1, 0, "{name} bit {bit}");
        }
    }
    let holes: u32 =
        list(&table["unassigned_bits"]).iter().map(|hole| small(&hole[0]) - small(&hole[1]) + 1).sum();
    let assigned: u32 = all.as_words().iter().map(|word| word.count_ones()).sum();
    assert_eq!(assigned + holes, Qmd::<V>::WORDS as u32 * 32, "{name}");
}

/// The layout of a descriptor type.
trait Layout {
    fn check(name: &str);
}

impl<V: Version> Layout for Qmd<V> {
    fn check(name: &str) {
        check_qmd::<V>(name);
    }
}

#[test]
fn launch_descriptors() {
    QmdV2_4::check("qmd_v02_04_c7c0");
    QmdV3_0::check("qmd_v03_00_c7c0");
    QmdV3_0Hopper::check("qmd_v03_00_cbc0");
    QmdV4_0::check("qmd_v04_00_cbc0");
}

/// A field of a table, shifted to its place.
fn place(fields: &Value, name: &str, value: u64) -> u64 {
    let field = list(fields).iter().find(|field| field["name"] == name).unwrap();
    assert!(value >> (small(&field["hi"]) - small(&field["lo"]) + 1) == 0);
    value << small(&field["lo"])
}

#[test]
fn ring_entries() {
    for name in ["host_c56f", "host_c76f", "host_c86f"] {
        let table = table(name);
        let (first, second) =
            (&table["gp_entry"]["entry0"]["fields"], &table["gp_entry"]["entry1"]["fields"]);
        let word0 = |name, value| place(first, name, value);
        let word1 = |name, value| place(second, name, value) << 32;
        let segment = Segment {
            va: 0xab_1234_5678,
            words: 0x15_5555,
            level: Level::Subroutine,
            sync: true,
            conditional: true,
        };
        let expected = word0("FETCH", 1)
            | word0("GET", 0x1234_5678 >> 2)
            | word1("GET_HI", 0xab)
            | word1("LEVEL", 1)
            | word1("LENGTH", 0x15_5555)
            | word1("SYNC", 1);
        assert_eq!(Entry::from(segment).encode(), Ok(expected), "{name}");
        let opcodes = [
            ("NOP", Operation::Nop(0x89ab_cdef)),
            ("ILLEGAL", Operation::Illegal(0x89ab_cdef)),
            ("GP_CRC", Operation::GpCrc(0x89ab_cdef)),
            ("PB_CRC", Operation::PbCrc(0x89ab_cdef)),
        ];
        let field = list(second).iter().find(|field| field["name"] == "OPCODE").unwrap();
        for (opcode, operation) in opcodes {
            let expected =
                word0("OPERAND", 0x89ab_cdef) | word1("OPCODE", field["enums"][opcode].as_u64().unwrap());
            assert_eq!(Entry::Control { operation, sync: false }.encode(), Ok(expected), "{name}");
        }
        if let Some(opcode) = field["enums"].get("SET_PB_SEGMENT_EXTENDED_BASE") {
            let expected =
                word0("PB_EXTENDED_BASE_OPERAND", 0x1_5555) | word1("OPCODE", opcode.as_u64().unwrap());
            let operation = Operation::SetExtendedBase(0x1_5555);
            assert_eq!(Entry::Control { operation, sync: false }.encode(), Ok(expected), "{name}");
        }
    }
}

#[test]
fn headers() {
    for name in ["host_c56f", "host_c76f"] {
        let formats = &table(name)["dma_formats"];
        let subchannel = Subchannel::new(5).unwrap();
        let fixed = |format: &str| {
            let fields = &formats[format]["fields"];
            let opcode = list(fields).iter().find(|field| field["name"] == "OPCODE").unwrap();
            place(fields, "OPCODE", opcode["value"].as_u64().unwrap())
        };
        let target = |format: &str| {
            let fields = &formats[format]["fields"];
            place(fields, "ADDRESS", 0x1554 / 4) | place(fields, "SUBCHANNEL", 5) | fixed(format)
        };
        let modes = [
            ("increment", Mode::Incrementing),
            ("non_increment", Mode::NonIncrementing),
            ("increment_once", Mode::IncrementOnce),
        ];
        for (format, mode) in modes {
            let header = Header::Methods { mode, subchannel, address: 0x1554, count: 0x155 };
            let expected = target(format) | place(&formats[format]["fields"], "COUNT", 0x155);
            assert_eq!(header.encode().map(u64::from), Ok(expected), "{name} {format}");
        }
        let header = Header::Immediate { subchannel, address: 0x1554, data: 0x1abc };
        let expected = target("immediate") | place(&formats["immediate"]["fields"], "DATA", 0x1abc);
        assert_eq!(header.encode().map(u64::from), Ok(expected), "{name}");
        let masks = [
            ("set_subdevice_mask", Header::SetSubdeviceMask(0xabc)),
            ("store_subdevice_mask", Header::StoreSubdeviceMask(0xabc)),
        ];
        for (format, header) in masks {
            let expected = fixed(format) | place(&formats[format]["fields"], "VALUE", 0xabc);
            assert_eq!(header.encode().map(u64::from), Ok(expected), "{name} {format}");
        }
        assert_eq!(Header::UseSubdeviceMask.encode().map(u64::from), Ok(fixed("use_subdevice_mask")));
        assert_eq!(Header::EndSegment.encode().map(u64::from), Ok(fixed("end_pb_segment")));
        assert_eq!(Header::Nop.encode(), Ok(hex(&formats["nop"]["word"])));
    }
}

#[test]
fn control_words_of_a_channel() {
    use gpfifo::userd;
    let ours = [
        userd::PUT,
        userd::GET,
        userd::REFERENCE,
        userd::PUT_HI,
        userd::TOP_LEVEL_GET,
        userd::TOP_LEVEL_GET_HI,
        userd::GET_HI,
        userd::GP_GET,
        userd::GP_PUT,
    ];
    for name in ["host_c56f", "host_c76f", "host_c86f"] {
        let table = table(name);
        let theirs: Vec<u32> =
            list(&table["control_struct"]["fields"]).iter().map(|field| hex(&field["offset"])).collect();
        assert_eq!(theirs, ours, "{name}");
    }
}
