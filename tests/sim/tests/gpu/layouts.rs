//! Random transfers between pitch-linear lines and block-linear surfaces, with and without remapping, compared with an
//! independent reference: it enumerates a surface in memory order and looks up the location of each byte.

use std::cell::RefCell;

use ampere_cmd::{Encoder, Subchannel, copy_c7b5 as class};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::rig::{Rig, SEMAPHORES, release};

const SOURCE: u64 = 0x10_0000_0000;
const TARGET: u64 = 0x20_0000_0000;
/// Memory of either side, in separate mappings, so that transfers cross mappings.
const MAPPING: usize = 0x1_0000;
const BYTES: usize = 16 * MAPPING;

/// A block-linear surface and the position of the rectangle in it.
#[derive(Clone, Copy, Debug)]
struct Blocks {
    height_log2: u32,
    depth_log2: u32,
    /// Elements, rows and layers around the rectangle.
    margin: [u32; 3],
    origin: [u32; 3],
    /// Whether the origin is set by the older method, SET_SRC_ORIGIN or SET_DST_ORIGIN.
    older: bool,
}

#[derive(Clone, Copy, Debug)]
enum Side {
    Pitch { offset: u32, pitch: u32 },
    Blocks(Blocks),
}

/// Component size, components per source element, selectors of the target's components.
#[derive(Clone, Debug)]
struct Remap {
    size: u32,
    sources: u32,
    selectors: Vec<u32>,
}

#[derive(Clone, Debug)]
struct Case {
    source: Side,
    target: Side,
    remap: Option<Remap>,
    length: u32,
    lines: u32,
    multi_line: bool,
}

const CONSTANTS: [u32; 2] = [0x1122_3344, 0xaabb_ccdd];

impl Case {
    fn lines(&self) -> u32 {
        if self.multi_line { self.lines } else { 1 }
    }

    fn source_bytes(&self) -> u32 {
        self.remap.as_ref().map_or(1, |remap| remap.size * remap.sources)
    }

    fn target_bytes(&self) -> u32 {
        self.remap.as_ref().map_or(1, |remap| remap.size * remap.selectors.len() as u32)
    }
}

/// Width, height and depth of the surface around a rectangle, in elements, rows and layers.
fn extent(blocks: &Blocks, case: &Case) -> [u32; 3] {
    [
        blocks.origin[0] + case.length + blocks.margin[0],
        blocks.origin[1] + case.lines() + blocks.margin[1],
        blocks.origin[2] + 1 + blocks.margin[2],
    ]
}

/// For each byte position (x, y) of a layer its offset in memory, found by enumerating memory in order: slabs, rows of
/// blocks, blocks, layers, GOBs, and the 32-byte sectors of a GOB.
fn walk(blocks: &Blocks, [width, height, depth]: [u32; 3], layer: u32) -> Vec<Vec<u32>> {
    /// Column in units of 16 bytes and row in units of two rows of the sectors of a GOB, in memory order.
    const SECTORS: [(u32, u32); 16] = [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
        (0, 2),
        (0, 3),
        (1, 2),
        (1, 3),
        (2, 0),
        (2, 1),
        (3, 0),
        (3, 1),
        (2, 2),
        (2, 3),
        (3, 2),
        (3, 3),
    ];
    let (rows, layers) = (8_u32 << blocks.height_log2, 1_u32 << blocks.depth_log2);
    let mut map = vec![vec![0; width.next_multiple_of(64) as usize]; height.next_multiple_of(rows) as usize];
    let mut offset = 0;
    for slab in (0..depth).step_by(layers as usize) {
        for top in (0..height).step_by(rows as usize) {
            for left in (0..width).step_by(64) {
                for z in slab..slab + layers {
                    for gob in (top..top + rows).step_by(8) {
                        for (column, pair) in SECTORS {
                            for byte in (0..32).filter(|_| z == layer) {
                                let (x, y) = (left + column * 16 + byte % 16, gob + pair * 2 + byte / 16);
                                map[y as usize][x as usize] = offset + byte;
                            }
                            offset += 32;
                        }
                    }
                }
            }
        }
    }
    map
}

/// The location of byte `byte` of line `line` of a side, as a function.
fn places(side: &Side, case: &Case, element: u32) -> Box<dyn Fn(u32, u32) -> usize> {
    match *side {
        Side::Pitch { offset, pitch } => Box::new(move |line, byte| (offset + line * pitch + byte) as usize),
        Side::Blocks(blocks) => {
            let [width, height, depth] = extent(&blocks, case);
            let map = walk(&blocks, [width * element, height, depth], blocks.origin[2]);
            let [x, y, _] = blocks.origin;
            Box::new(move |line, byte| map[(y + line) as usize][(x * element + byte) as usize] as usize)
        }
    }
}

/// The expected contents of the target.
fn reference(case: &Case, source: &[u8], target: &mut [u8]) {
    let from = places(&case.source, case, case.source_bytes());
    let to = places(&case.target, case, case.target_bytes());
    for line in 0..case.lines() {
        for element in 0..case.length {
            let Some(Remap { size, selectors, .. }) = &case.remap else {
                target[to(line, element)] = source[from(line, element)];
                continue;
            };
            let values: Vec<Option<u8>> = selectors
                .iter()
                .flat_map(|&selector| (0..*size).map(move |byte| (selector, byte)))
                .map(|(selector, byte)| match selector {
                    0..=3 => Some(source[from(line, element * case.source_bytes() + selector * size + byte)]),
                    4 | 5 => Some((CONSTANTS[selector as usize - 4] >> (8 * byte)) as u8),
                    _ => None,
                })
                .collect();
            for (byte, value) in (0..).zip(values) {
                if let Some(value) = value {
                    target[to(line, element * case.target_bytes() + byte)] = value;
                }
            }
        }
    }
}

/// The methods of one side: at +0x00 block size, then width, height, depth and layer.
fn side(encoder: &mut Encoder<Vec<u32>>, case: &Case, side: &Side, reads: bool) {
    let va = if reads { SOURCE } else { TARGET };
    let mut methods = |address: u32, data: &[u32]| {
        encoder.methods(Subchannel::COPY, address, data).unwrap();
    };
    let (offset, pitch) = if reads { (0x400, 0x410) } else { (0x408, 0x414) };
    match *side {
        Side::Pitch { offset: first, pitch: distance } => {
            let va = va + u64::from(first);
            methods(offset, &[(va >> 32) as u32, va as u32]);
            methods(pitch, &[distance]);
        }
        Side::Blocks(blocks) => {
            let [width, height, depth] = extent(&blocks, case);
            let [x, y, layer] = blocks.origin;
            let block_size = blocks.height_log2 << 4 | blocks.depth_log2 << 8 | 1 << 12;
            methods(offset, &[(va >> 32) as u32, va as u32]);
            let base = if reads { 0x728 } else { 0x70c };
            methods(base, &[block_size, width, height, depth, layer]);
            match (blocks.older, reads) {
                (true, true) => methods(0x73c, &[y << 16 | x]),
                (true, false) => methods(0x720, &[y << 16 | x]),
                (false, true) => methods(0x744, &[x, y]),
                (false, false) => methods(0x74c, &[x, y]),
            }
        }
    }
}

fn launch(encoder: &mut Encoder<Vec<u32>>, case: &Case) {
    side(encoder, case, &case.source, true);
    side(encoder, case, &case.target, false);
    encoder.methods(Subchannel::COPY, 0x418, &[case.length, case.lines]).unwrap();
    if let Some(Remap { size, sources, selectors }) = &case.remap {
        let selected = (0..).zip(selectors).fold(0, |word, (at, selector)| word | selector << (4 * at));
        let counts = (size - 1) << 16 | (sources - 1) << 20 | (selectors.len() as u32 - 1) << 24;
        encoder.methods(Subchannel::COPY, 0x700, &[CONSTANTS[0], CONSTANTS[1], selected | counts]).unwrap();
    }
    let launch = class::LaunchDma {
        data_transfer_type: class::LaunchDmaDataTransferType::NonPipelined,
        flush_enable: true,
        src_memory_layout: match case.source {
            Side::Pitch { .. } => class::LaunchDmaSrcMemoryLayout::Pitch,
            Side::Blocks(_) => class::LaunchDmaSrcMemoryLayout::Blocklinear,
        },
        dst_memory_layout: match case.target {
            Side::Pitch { .. } => class::LaunchDmaDstMemoryLayout::Pitch,
            Side::Blocks(_) => class::LaunchDmaDstMemoryLayout::Blocklinear,
        },
        multi_line_enable: case.multi_line,
        remap_enable: case.remap.is_some(),
        ..Default::default()
    };
    encoder.method(Subchannel::COPY, &launch).unwrap();
}

fn sides() -> impl Strategy<Value = Side> {
    let margin = [0_u32..9, 0_u32..9, 0_u32..2];
    let origin = [0_u32..40, 0_u32..20, 0_u32..2];
    let blocks = (0_u32..4, 0_u32..3, margin, origin, any::<bool>()).prop_map(
        |(height_log2, depth_log2, margin, origin, older)| {
            Side::Blocks(Blocks { height_log2, depth_log2, margin, origin, older })
        },
    );
    // Pitches from 0 on: shorter than a line, so that lines overlap.
    let pitch = (0_u32..0x1100, 0_u32..0x900).prop_map(|(offset, pitch)| Side::Pitch { offset, pitch });
    prop_oneof![blocks, pitch]
}

fn cases() -> impl Strategy<Value = Case> {
    let remap = (1_u32..5, 1_u32..5).prop_flat_map(|(size, sources)| {
        let selector = prop_oneof![4 => 0..sources, 1 => 4_u32..7];
        prop::collection::vec(selector, 1..5).prop_map(move |selectors| Remap { size, sources, selectors })
    });
    (sides(), sides(), prop::option::of(remap), 0_u32..60, 1_u32..30, any::<bool>()).prop_map(
        |(source, target, remap, length, lines, multi_line)| Case {
            source,
            target,
            remap,
            length,
            lines,
            multi_line,
        },
    )
}

#[test]
fn random_transfers_agree_with_the_reference() {
    let rig = Rig::new();
    for index in 0..16 {
        rig.map(SOURCE + index * MAPPING as u64, MAPPING);
        rig.map(TARGET + index * MAPPING as u64, MAPPING);
    }
    let source: Vec<u8> = (0..BYTES).map(|index| (index * 31 + index / 251) as u8).collect();
    let before: Vec<u8> = (0..BYTES).map(|index| (index * 13 + index / 509) as u8 ^ 0x5a).collect();
    rig.write(SOURCE, &source);
    let state = RefCell::new((rig.channel(1, 64), 0));
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    let result = TestRunner::new(config).run(&cases(), |case| {
        rig.write(TARGET, &before);
        let (ring, done) = &mut *state.borrow_mut();
        *done += 1;
        ring.commands(|encoder| {
            launch(encoder, &case);
            encoder.semaphore_release(&release(SEMAPHORES, *done)).unwrap();
        });
        rig.wait_for(0, *done);
        let mut expected = before.clone();
        reference(&case, &source, &mut expected);
        let found = rig.read(TARGET, BYTES);
        if found != expected {
            let at = expected.iter().zip(&found).position(|(expected, found)| expected != found);
            return Err(TestCaseError::fail(format!("the first wrong byte of the target is {at:#x?}")));
        }
        Ok(())
    });
    result.unwrap();
}
