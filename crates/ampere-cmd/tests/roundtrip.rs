//! What is encoded is what is decoded: every method of every class and every field of every launch descriptor,
//! through the words that a GPU would read.

use ampere_cmd::dump::{self, Classes, Content};
use ampere_cmd::method::{Class, MethodInfo};
use ampere_cmd::pushbuffer::{MAX_METHOD_ADDRESS, Packer};
use ampere_cmd::qmd::{Field, Qmd, QmdV2_4, QmdV3_0, QmdV3_0Hopper, QmdV4_0, Version};
use ampere_cmd::{CLASSES, Encoder, FieldError, Subchannel};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

/// A decoder that knows `class` on the compute subchannel, and as host class if it is one.
fn classes(class: &'static Class) -> Classes {
    let mut classes = Classes::AMPERE;
    classes.engines[usize::from(Subchannel::COMPUTE.index())] = Some(class);
    if class.name.contains("CHANNEL_GPFIFO") {
        classes.host = class;
    }
    classes
}

/// A data word whose fields have the given bits, as many as fit; of fields that share bits the first counts.
/// Also returns each field's value in the word.
fn word_of(method: &MethodInfo, bits: &[u32]) -> (u32, Vec<u32>) {
    let mut word = 0;
    let mut taken = 0;
    for (field, bits) in method.fields.iter().zip(bits.iter().cycle()) {
        if taken & field.mask() == 0 {
            let value = bits & (u32::MAX >> (32 - field.width()));
            word |= field.place(value).unwrap();
            taken |= field.mask();
        }
    }
    (word, method.fields.iter().map(|field| field.get(word)).collect())
}

/// Every method of a class at a random element, with random fields, comes back from the words of the encoder and
/// of the packer: name, element and fields.
fn methods_survive(class: &'static Class) {
    let mut runner = TestRunner::new(ProptestConfig::with_cases(8));
    for method in class.methods {
        let inputs = (0..method.count, prop::collection::vec(any::<u32>(), 8));
        let check = |(element, bits): (u32, Vec<u32>)| {
            let (word, values) = word_of(method, &bits);
            let address = method.address + element * method.stride;
            let mut encoder = Encoder::new(Vec::new());
            encoder.methods(Subchannel::COMPUTE, address, &[word]).unwrap();
            let mut packed = [0; 2];
            let mut packer = Packer::new(&mut packed);
            packer.raw(Subchannel::COMPUTE, address, word).unwrap();
            for words in [encoder.into_sink(), packer.written().to_vec()] {
                let items = dump::decode(&words, &classes(class));
                let Content::Write { write, method: Some((found, index)), .. } =
                    items.last().unwrap().content
                else {
                    panic!("{} {}: {items:?}", class.name, method.name);
                };
                prop_assert_eq!((found.name, index, write.data), (method.name, element, word));
                let decoded: Vec<u32> = found.fields.iter().map(|field| field.get(write.data)).collect();
                prop_assert_eq!(&decoded, &values, "{} {}", class.name, method.name);
            }
            Ok(())
        };
        runner.run(&inputs, check).unwrap();
    }
}

#[test]
fn every_method_of_every_class() {
    for class in CLASSES.iter().filter(|class| !class.name.contains("USERMODE")) {
        assert!(class.methods.iter().all(|method| method.address <= MAX_METHOD_ADDRESS));
        methods_survive(class);
    }
}

/// All fields of a descriptor take random values, and come back from its words; the words are those of the text.
fn fields_survive<V: Version>() {
    let fields: Vec<Field<V>> = Qmd::<V>::fields().collect();
    let mut runner = TestRunner::new(ProptestConfig::with_cases(32));
    let check = |bits: Vec<u32>| {
        let mut qmd = Qmd::<V>::new();
        let values: Vec<u64> = fields
            .iter()
            .zip(&bits)
            .map(|(field, bits)| {
                let value = bits >> (32 - field.info().width());
                qmd.set(*field, value).unwrap();
                u64::from(value)
            })
            .collect();
        let words = qmd.as_words().to_vec();
        let again = Qmd::<V>::from_slice(&words).unwrap();
        prop_assert_eq!(again, qmd);
        prop_assert!(fields.iter().map(|field| again.get(*field)).eq(values));
        prop_assert_eq!(again.unassigned_bits_set().count(), 0);
        let text = dump::qmd_text(&again);
        prop_assert_eq!(text.lines().count(), words.iter().filter(|word| **word != 0).count());
        Ok(())
    };
    runner.run(&prop::collection::vec(any::<u32>(), fields.len()), check).unwrap();
}

/// Every pair of fields that hold an address takes any address that it can, and refuses every other.
fn addresses_survive<V: Version>(pairs: usize) {
    let lower = Qmd::<V>::fields().filter(|field| {
        let name = field.info().name;
        name.contains("_LOWER") && name.contains("ADDR")
    });
    let mut found = 0;
    for lower in lower {
        let name = lower.info().name.replace("_LOWER", "_UPPER");
        let upper = Qmd::<V>::field(&name, lower.index()).unwrap();
        let (shift, bits) = (lower.info().shift, lower.info().width() + upper.info().width());
        assert_eq!(upper.info().shift, shift, "{lower:?}");
        let highest = ((1 << bits) - 1) << shift;
        let mut qmd = Qmd::<V>::new();
        for address in [0, 1 << shift, 0x15_5555_5500 & highest, highest] {
            assert_eq!(qmd.set_address(lower, upper, address), Ok(()), "{lower:?} {address:#x}");
            assert_eq!(qmd.address(lower, upper), address, "{lower:?}");
            assert_eq!(qmd.get(lower), address >> shift & 0xffff_ffff, "{lower:?}");
        }
        let full = qmd;
        let beyond = qmd.set_address(lower, upper, highest + (1 << shift));
        assert!(matches!(beyond, Err(FieldError::TooWide { .. })), "{lower:?} {beyond:?}");
        if shift > 0 {
            let lost = qmd.set_address(lower, upper, 1 << (shift - 1));
            assert!(matches!(lost, Err(FieldError::LostBits { .. })), "{lower:?} {lost:?}");
            assert!(qmd.set_shifted(lower, 1_u64 << (shift - 1)).is_err(), "{lower:?}");
        }
        assert_eq!(qmd, full, "{lower:?}");
        found += 1;
    }
    assert_eq!(found, pairs);
}

#[test]
fn every_field_of_every_descriptor() {
    fields_survive::<ampere_cmd::qmd::v2_4::Layout>();
    fields_survive::<ampere_cmd::qmd::v3_0::Layout>();
    fields_survive::<ampere_cmd::qmd::v3_0_hopper::Layout>();
    fields_survive::<ampere_cmd::qmd::v4_0::Layout>();
}

#[test]
fn every_address_of_every_descriptor() {
    // Program, prefetch, circular queue, the semaphores, eight constant buffers.
    addresses_survive::<ampere_cmd::qmd::v2_4::Layout>(13);
    addresses_survive::<ampere_cmd::qmd::v3_0::Layout>(14);
    addresses_survive::<ampere_cmd::qmd::v3_0_hopper::Layout>(14);
    addresses_survive::<ampere_cmd::qmd::v4_0::Layout>(14);
}

#[test]
fn sizes_are_whole_units() {
    use ampere_cmd::qmd::v3_0::CONSTANT_BUFFER_SIZE_SHIFTED4;
    let size = CONSTANT_BUFFER_SIZE_SHIFTED4.at(0).unwrap();
    let mut qmd = QmdV3_0::new();
    qmd.set_shifted(size, 0x170_u32).unwrap();
    assert_eq!(qmd.get(size), 0x17);
    let lost = FieldError::LostBits { field: "CONSTANT_BUFFER_SIZE_SHIFTED4", value: 0x168, shift: 4 };
    assert_eq!(qmd.set_shifted(size, 0x168_u32), Err(lost));
    assert_eq!(
        lost.to_string(),
        "CONSTANT_BUFFER_SIZE_SHIFTED4: 0x168 is not a multiple of 16, the unit of the field"
    );
    assert_eq!(qmd.get(size), 0x17);
    assert_eq!((QmdV2_4::BYTES, QmdV3_0Hopper::BYTES, QmdV4_0::BYTES), (256, 256, 384));
}
