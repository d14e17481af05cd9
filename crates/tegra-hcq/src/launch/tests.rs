//! Launch descriptors of both versions, word by word.

use ampere_cmd::qmd::{QmdV3_0, QmdV4_0, v3_0, v4_0};
use gpu_hal::chip::{self, Chip, QmdVersion, SM_8_6, SM_8_7, SM_8_9, SM_9_0};

use super::record::{self, Link, Parameters, Records, Release};
use super::shape::{Shape, SharedMemory, check_block, check_grid};
use crate::descriptor::layout::Layout;
use crate::descriptor::{Descriptor, Latches, Template, Versioned, read};
use crate::encodings::{Chaining, DeviceOptions, Encodings};
use crate::error::Result;
use crate::limits::{Dim3, MAX_QUEUES, Priority};
use crate::program::code::{KernelCode, locate};
use crate::{Device, DeviceKind, Program};

fn empty(chip: &'static Chip) -> Descriptor {
    Descriptor::empty(&Encodings::of(chip, &DeviceOptions::new()).unwrap()).unwrap()
}

fn shape() -> Shape {
    let shared = SharedMemory { dynamic_bytes: 16, bytes: 2048, config: 3, target: 5 };
    let grid = Dim3::from([70_000, 3, 5]);
    let (block, priority) = (Dim3::from([32, 2, 4]), Priority::above_usual(5));
    Shape { grid, clusters: grid, block, shared, empty_sm_slots: 7, priority }
}

/// Launches a template of zeros, links it and reads it back.
fn round_trip(descriptor: &Descriptor) -> Vec<u32> {
    let (mut words, link) = launched(descriptor);
    let chip = descriptor.chip;
    assert_eq!(words.len() as u64 * 4, descriptor.bytes());
    assert_eq!(read(chip, &words).unwrap().next, None);
    for refused in [1 << 40, 0xab_cdef_1280] {
        let before = words.clone();
        // SAFETY: the vector has the size of a descriptor.
        assert!(unsafe { link.chain(refused, words.as_mut_ptr().cast()) }.is_err(), "{refused:#x}");
        assert_eq!(words, before, "a refused pointer changes nothing");
    }
    // SAFETY: the vector has the size of a descriptor.
    unsafe { link.chain(0xab_cdef_1200, words.as_mut_ptr().cast()) }.unwrap();
    let seen = read(chip, &words).unwrap();
    assert_eq!((seen.grid, seen.block), (shape().grid, shape().block));
    assert_eq!(seen.next, Some(0xab_cdef_1200));
    words
}

#[test]
fn a_launch_on_ampere_sets_its_fields_and_a_link_nothing_else() {
    let words = round_trip(&empty(&SM_8_7));
    let options = DeviceOptions::new().chaining(Chaining::InvalidateCopySchedule);
    let copied = Descriptor::empty(&Encodings::of(&SM_8_7, &options).unwrap()).unwrap();
    for other in [&SM_8_6, &SM_8_9] {
        assert_eq!(round_trip(&empty(other)), round_trip(&copied), "SM 8.x has the same fields");
    }
    let mut expected = QmdV3_0::new();
    for (field, value) in [
        (v3_0::CTA_RASTER_WIDTH, 70_000_u64),
        (v3_0::CTA_RASTER_HEIGHT, 3),
        (v3_0::CTA_RASTER_DEPTH, 5),
        (v3_0::CTA_THREAD_DIMENSION0, 32),
        (v3_0::CTA_THREAD_DIMENSION1, 2),
        (v3_0::CTA_THREAD_DIMENSION2, 4),
        (v3_0::SHARED_MEMORY_SIZE, 2048),
        (v3_0::QMD_GROUP_ID, 63 - 5),
        (v3_0::MIN_SM_CONFIG_SHARED_MEM_SIZE, 3),
        (v3_0::TARGET_SM_CONFIG_SHARED_MEM_SIZE, 5),
        (v3_0::MAX_SM_CONFIG_SHARED_MEM_SIZE, 26),
        (v3_0::CONSTANT_BUFFER_ADDR_LOWER.at(0).unwrap(), 0x3456_7800),
        (v3_0::CONSTANT_BUFFER_ADDR_UPPER.at(0).unwrap(), 0x12),
        (v3_0::DEPENDENT_QMD0_POINTER, 0xab_cdef_1200 >> 8),
        (v3_0::DEPENDENT_QMD0_ENABLE, 1),
        (v3_0::DEPENDENT_QMD0_ACTION, 1),
        (v3_0::DEPENDENT_QMD0_PREFETCH, 1),
    ] {
        expected.set(field, value).unwrap();
    }
    assert_eq!(words, expected.as_words());
}

#[test]
fn a_launch_on_hopper_sets_its_fields_and_a_link_nothing_else() {
    let words = round_trip(&empty(&SM_9_0));
    let mut expected = QmdV4_0::new();
    for (field, value) in [
        (v4_0::GRID_WIDTH, 70_000_u64),
        (v4_0::GRID_HEIGHT, 3),
        (v4_0::GRID_DEPTH, 5),
        (v4_0::CTA_THREAD_DIMENSION0, 32),
        (v4_0::CTA_THREAD_DIMENSION1, 2),
        (v4_0::CTA_THREAD_DIMENSION2, 4),
        (v4_0::SHARED_MEMORY_SIZE, 2048),
        (v4_0::QMD_GROUP_ID, 63 - 5),
        (v4_0::MIN_SM_CONFIG_SHARED_MEM_SIZE, 3),
        (v4_0::TARGET_SM_CONFIG_SHARED_MEM_SIZE, 5),
        (v4_0::MAX_SM_CONFIG_SHARED_MEM_SIZE, 58),
        (v4_0::CONSTANT_BUFFER_ADDR_LOWER_SHIFTED6.at(0).unwrap(), 0x12_3456_7800 >> 6),
        (v4_0::FREE_CTA_SLOTS_EMPTY_SM, 7),
        (v4_0::CONSTANT_BUFFER_PREFETCH.at(0).unwrap(), v4_0::CONSTANT_BUFFER_PREFETCH_PREFETCH_PRE),
        (v4_0::DEPENDENT_QMD0_POINTER, 0xab_cdef_1200 >> 8),
        (v4_0::DEPENDENT_QMD_ENABLE.at(0).unwrap(), 1),
        (v4_0::DEPENDENT_QMD_ACTION.at(0).unwrap(), 3),
        (v4_0::DEPENDENT_QMD_PREFETCH.at(0).unwrap(), 1),
        (v4_0::CWD_MEMBAR_TASK_CHASING_ENABLE, 1),
        (v4_0::CWD_MEMBAR_TYPE, v4_0::CWD_MEMBAR_TYPE_L1_MEMBAR),
    ] {
        expected.set(field, value).unwrap();
    }
    assert_eq!(words, expected.as_words());
}

#[test]
fn latches_set_the_words_that_they_have_in_the_descriptors_of_cuda() {
    // Seen in descriptors of CUDA 13.0 on an H100, for the middle one of three programmatic dependent launches. What
    // else the words contain is masked.
    const SEEN: [(usize, u32, u32); 5] = [
        (0, 0x3000_0000, 0x713f_0000),
        (35, 0x8000_0000, 0x8003_0000),
        (43, 0xc000_0000, 0xc016_007f),
        (46, u32::MAX, 0x41),
        (47, u32::MAX, 0x40),
    ];
    // The words of a grid, chained to another if it arrives at a latch.
    let with = |descriptor: &Descriptor, arrive: Option<u32>, wait: Option<u32>| {
        let (mut words, link) = launched_with(descriptor, Latches { arrive, wait, at_gate: false });
        // SAFETY: the vector has the size of the descriptor.
        unsafe { link.chain(0x1_0000, words.as_mut_ptr().cast()).unwrap() };
        words
    };
    let hopper = empty(&SM_9_0);
    let (arrive, wait) = (Some(0x41), Some(0x40));
    let (plain, both) = (with(&hopper, None, None), with(&hopper, arrive, wait));
    for at in 0..plain.len() {
        let (mask, word) = SEEN.iter().find(|seen| seen.0 == at).map_or((0, 0), |seen| (seen.1, seen.2));
        assert_eq!(both[at] ^ plain[at], word & mask, "word {at}");
    }
    let first = with(&hopper, arrive, None);
    assert_eq!((first[0] ^ plain[0], first[43], first[47]), (0x1000_0000, plain[43], 0));
    let last = with(&hopper, None, wait);
    assert_eq!((last[0] ^ plain[0], last[35], last[46]), (0x2000_0000, plain[35], 0));
    let ampere = empty(&SM_8_7);
    assert_eq!(with(&ampere, arrive, wait), with(&ampere, None, None));
}

/// A kernel of a software Orin, with a gate as on Hopper.
fn gated(gate_va: u64) -> KernelCode {
    let device = Device::open(DeviceKind::Sim).unwrap();
    let file = include_bytes!("../../kernels/vector_add.cubin");
    let program = Program::load(&device, file).unwrap();
    let mut code = program.loaded().kernels[0].clone();
    assert_eq!(code.gate_va.replace(gate_va), None, "an Orin has none");
    code
}

#[test]
fn a_launch_at_a_gate_begins_there() {
    const GATE: u64 = 0x12_3456_7880;
    let code = gated(GATE);
    let begin = |at_gate: bool| {
        let mut record = vec![0_u64; record::record_bytes(&code) as usize / 8];
        let latches = Latches { at_gate, ..Latches::default() };
        // SAFETY: the vector is as long as the record.
        unsafe { record::write(record.as_mut_ptr().cast(), 0, &code.bank0, &code, &shape(), latches) }
            .unwrap();
        let words: &[u32] = bytemuck::cast_slice(&record[record::bank_bytes(&code) as usize / 8..]);
        read(code.qmd.chip, words).unwrap().code_va
    };
    assert_eq!((begin(false), begin(true)), (code.code_va, GATE));

    let place = |pc| locate(core::slice::from_ref(&code), pc).map(|place| place.offset);
    assert_eq!([GATE - 1, GATE, GATE + 127, GATE + 128].map(place), [None, Some(0), Some(0), None]);
    assert_eq!(place(code.code_va + 16), Some(16));
}

#[test]
fn a_chained_launch_waits_at_its_gate_for_the_one_before() {
    let device = Device::open(DeviceKind::Sim).unwrap();
    let mut records = Records::new(device.shared().heap()).unwrap();
    let code = gated(0x1_0000);
    let first = record::latches(&code, (3, 0), None);
    assert_eq!((first.wait, first.at_gate), (None, false), "it waits for idle");
    let record = records.write(0, &code, &shape(), Parameters::Block(&[]), first).unwrap();
    let second = record::latches(&code, (3, 1024), Some(record));
    assert_eq!((second.wait, second.at_gate), (first.arrive, true));
    let mut without = code.clone();
    without.gate_va = None;
    assert_eq!(record::latches(&without, (3, 0), None), Latches::default());

    let arrive = |slot: usize, offset: u64| record::latches(&code, (slot, offset), None).arrive;
    let end = (2 << 20) - 256;
    let numbers = [(0, 0), (0, 256), (0, end), (1, 0), (1, 256), (MAX_QUEUES - 1, end)];
    let numbers = numbers.map(|(slot, offset)| arrive(slot, offset));
    assert!(numbers.is_sorted_by(|one, other| one < other), "{numbers:x?}");
    assert!(numbers[0].is_some_and(|first| first >= record::GRAPH_LATCHES));
    assert_eq!(arrive(usize::MAX >> 16, 0), None, "the field has 32 bits");
}

#[test]
fn a_grid_of_clusters_is_counted_in_clusters() {
    let mut hopper = empty(&SM_9_0);
    assert_eq!(read(&SM_9_0, &launched(&hopper).0).unwrap().grid, shape().grid);
    assert!(hopper.set_cluster([2, 4, 1]).unwrap());
    let (words, _) = launched(&hopper);
    let qmd = QmdV4_0::from_slice(&words).unwrap();
    assert_eq!(qmd.get(v4_0::QMD_TYPE), v4_0::QMD_TYPE_GRID_GPC_CGA);
    let sizes = [v4_0::GPC_CGA_WIDTH, v4_0::GPC_CGA_HEIGHT, v4_0::GPC_CGA_DEPTH].map(|size| qmd.get(size));
    assert_eq!(sizes, [2, 4, 1]);
    assert_eq!(read(&SM_9_0, &words).unwrap().grid, Dim3::from([140_000, 12, 5]));
    assert!(!empty(&SM_8_7).set_cluster([1; 3]).unwrap());
    assert!(hopper.set_cluster([64, 1, 1]).is_err(), "six bits");
}

/// The words of a launch, and its link.
fn launched(descriptor: &Descriptor) -> (Vec<u32>, Link) {
    launched_with(descriptor, Latches::default())
}

/// As [`launched`], with latches.
fn launched_with(descriptor: &Descriptor, latches: Latches) -> (Vec<u32>, Link) {
    fn of<V: Layout>(at: &Descriptor, template: &Template<V>, latches: Latches) -> (Vec<u32>, Link) {
        let mut qmd = template.qmd;
        at.complete(&mut qmd, &shape(), latches, 0x12_3456_7800).unwrap();
        let words = qmd.as_words().to_vec();
        let link = Link::of(at.chip, template, latches.arrive, &words);
        (words, link)
    }
    match &descriptor.template {
        Versioned::V3_0(template) => of(descriptor, template, latches),
        Versioned::V4_0(template) => of(descriptor, template, latches),
    }
}

/// The words of a launch with a release.
fn releases(descriptor: &Descriptor, va: u64, value: u64) -> (Vec<u32>, Result<()>) {
    let (mut words, _) = launched(descriptor);
    // SAFETY: the vector has the size of a descriptor.
    let result = unsafe {
        Release::timeline(descriptor.chip, va, value).write(descriptor.chip, words.as_mut_ptr().cast())
    };
    (words, result)
}

#[test]
fn a_release_sets_its_fields_and_nothing_else() {
    const VALUE: u64 = 0x1122_3344_5566_7788;
    let ampere = empty(&SM_8_7);
    let (words, result) = releases(&ampere, 0xab_cdef_1230, VALUE);
    result.unwrap();
    assert_eq!(read(&SM_8_7, &words).unwrap().release, Some((0xab_cdef_1230, VALUE)));
    let mut expected = QmdV3_0::from_slice(&launched(&ampere).0).unwrap();
    for (field, value) in [
        (v3_0::RELEASE0_ENABLE, 1),
        (v3_0::RELEASE0_STRUCTURE_SIZE, v3_0::RELEASE0_STRUCTURE_SIZE_SEMAPHORE_FOUR_WORDS),
        (v3_0::RELEASE0_PAYLOAD64B, 1),
        (v3_0::RELEASE0_MEMBAR_TYPE, v3_0::RELEASE0_MEMBAR_TYPE_FE_SYSMEMBAR),
        (v3_0::RELEASE0_ADDRESS_LOWER, 0xcdef_1230),
        (v3_0::RELEASE0_ADDRESS_UPPER, 0xab),
        (v3_0::RELEASE0_PAYLOAD_LOWER, VALUE & 0xffff_ffff),
        (v3_0::RELEASE0_PAYLOAD_UPPER, VALUE >> 32),
    ] {
        expected.set(field, value).unwrap();
    }
    assert_eq!(words, expected.as_words());

    let hopper = empty(&SM_9_0);
    let (words, result) = releases(&hopper, 0x1ab_cdef_1230, VALUE);
    result.unwrap();
    assert_eq!(read(&SM_9_0, &words).unwrap().release, Some((0x1ab_cdef_1230, VALUE)));
    let mut expected = QmdV4_0::from_slice(&launched(&hopper).0).unwrap();
    for (field, value) in [
        (v4_0::RELEASE_ENABLE.at(0).unwrap(), 1),
        (v4_0::RELEASE_PAYLOAD64B.at(0).unwrap(), 1),
        (v4_0::RELEASE_SEMAPHORE0_ADDR_LOWER, 0xcdef_1230),
        (v4_0::RELEASE_SEMAPHORE0_ADDR_UPPER, 0x1ab),
        (v4_0::RELEASE_SEMAPHORE0_PAYLOAD_LOWER, VALUE & 0xffff_ffff),
        (v4_0::RELEASE_SEMAPHORE0_PAYLOAD_UPPER, VALUE >> 32),
    ] {
        expected.set(field, value).unwrap();
    }
    assert_eq!(words, expected.as_words());
}

#[test]
fn a_release_that_is_revoked_leaves_nothing() {
    for chip in chip::ALL {
        let descriptor = empty(chip);
        let (before, _) = launched(&descriptor);
        let (mut words, result) = releases(&descriptor, 0xab_cdef_1230, u64::MAX);
        result.unwrap();
        assert_ne!(words, before);
        // SAFETY: the vector has the size of a descriptor.
        unsafe { Release::NONE.write(chip, words.as_mut_ptr().cast()) }.unwrap();
        assert_eq!(words, before);
    }
}

#[test]
fn an_address_that_does_not_fit_a_release_is_refused_and_nothing_is_written() {
    for (chip, bits) in [(&SM_8_7, 40), (&SM_9_0, 57)] {
        let descriptor = empty(chip);
        for va in [1 << bits, 0x1008, u64::MAX] {
            let (words, result) = releases(&descriptor, va, 7);
            assert!(result.is_err(), "{va:#x}");
            assert_eq!(words, launched(&descriptor).0);
        }
        assert!(releases(&descriptor, (1 << bits) - 16, 7).1.is_ok());
    }
}

#[test]
fn every_row_of_the_chip_table_can_be_encoded() {
    for chip in chip::ALL {
        let descriptor = empty(chip);
        round_trip(&descriptor);
        assert_eq!(descriptor.chip.sm_version, chip.sm_version);
        let has_prefetch = match chip.descriptor.value {
            QmdVersion::V3_0 => <v3_0::Layout as Layout>::BANK0_PREFETCH.is_some(),
            QmdVersion::V4_0 => <v4_0::Layout as Layout>::BANK0_PREFETCH.is_some(),
        };
        assert!(has_prefetch || !chip.bank0_prefetch.value, "the version has no such prefetch");
        let chases = chip.chain().barrier.is_some_and(|barrier| barrier.chasing);
        assert!(!chases || chip.descriptor.value == QmdVersion::V4_0, "version 3.0 has no such flag");
    }
}

#[test]
fn limits_are_those_of_the_descriptor() {
    assert!(check_grid(Dim3::from(i32::MAX as u32)).is_ok());
    assert!(check_grid(Dim3::from(1 << 31)).is_err());
    assert!(check_grid(Dim3::from((1, 65_536))).is_err());
    assert!(check_grid(Dim3::from(0)).is_err());
    assert!(check_block(Dim3::from((32, 32))).is_ok());
    assert!(check_block(Dim3::from((32, 33))).is_err());
    assert!(check_block(Dim3::from((1, 1, 65))).is_err());
}
