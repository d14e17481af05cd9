//! Texture headers and samplers: bits of the class header, round trips, refusals, places of texels.

use ampere_cmd::FieldError;
use ampere_cmd::command::BlockSurface;
use ampere_cmd::texture::blocks::Layout;
use ampere_cmd::texture::{
    Addressing, Components, Dimension, Filter, Format, Header, MipFilter, Numbers, Sampler, Storage,
    TextureError,
};

fn header(storage: Storage, dimension: Dimension) -> Header {
    Header {
        format: Format::new(Components::R16G16, Numbers::Snorm),
        storage,
        dimension,
        width: 0x1_2345,
        height: 0x1_0003,
        depth: 0x4002,
        levels: 9,
        first_level: 2,
        last_level: 7,
        normalized: true,
    }
}

/// A field by the places of its bits in `clc797tex.h`.
fn field(words: &[u32; 8], hi: u32, lo: u32) -> u32 {
    words[lo as usize / 32] >> (lo % 32) & (u32::MAX >> (31 + lo - hi))
}

#[test]
fn block_linear_headers_have_the_bits_of_the_class_header() {
    let storage = Storage::Blocks { va: 0x1_2345_6789_a200, height_log2: 4, depth_log2: 1 };
    let words = header(storage, Dimension::TwoDArray).encode().unwrap();
    let wanted = [
        ((6, 0), 0x0c),               // COMPONENTS
        ((9, 7), 1),                  // R_DATA_TYPE
        ((18, 16), 1),                // A_DATA_TYPE
        ((21, 19), 2),                // X_SOURCE
        ((24, 22), 3),                // Y_SOURCE
        ((63, 41), 0x6789_a200 >> 9), // ADDRESS_BITS31TO9
        ((80, 64), 0x1_2345),         // ADDRESS_BITS48TO32
        ((87, 85), 3),                // HEADER_VERSION
        ((101, 99), 4),               // GOBS_PER_BLOCK_HEIGHT
        ((104, 102), 1),              // GOBS_PER_BLOCK_DEPTH
        ((127, 124), 8),              // MAX_MIP_LEVEL
        ((144, 128), 0x1_2344),       // WIDTH_MINUS_ONE
        ((145, 145), 1),              // DEPTH_MINUS_ONE_BIT14
        ((146, 146), 1),              // HEIGHT_MINUS_ONE_BIT16
        ((154, 151), 5),              // TEXTURE_TYPE
        ((159, 157), 7),              // BORDER_SIZE
        ((175, 160), 2),              // HEIGHT_MINUS_ONE
        ((189, 176), 1),              // DEPTH_MINUS_ONE
        ((191, 191), 1),              // NORMALIZED_COORDS
        ((227, 224), 2),              // RES_VIEW_MIN_MIP_LEVEL
        ((231, 228), 7),              // RES_VIEW_MAX_MIP_LEVEL
    ];
    for ((hi, lo), value) in wanted {
        assert_eq!(field(&words, hi, lo), value, "bits {hi} to {lo}");
    }
}

#[test]
fn headers_survive_a_round_trip() {
    for storage in [
        Storage::Blocks { va: 0x200, height_log2: 0, depth_log2: 5 },
        Storage::Pitch { va: 0x1_0000_0020, pitch: 0x3f_ffe0 },
    ] {
        let depth = if matches!(storage, Storage::Pitch { .. }) { 1 } else { 0x4002 };
        let header = Header { depth, ..header(storage, Dimension::TwoDNoMipmap) };
        assert_eq!(Header::decode(&header.encode().unwrap()), Ok(header));
    }
    let one = Header {
        height: 1,
        depth: 1,
        levels: 1,
        first_level: 0,
        last_level: 0,
        ..header(Storage::Buffer { va: 0x1_ffff_ffff_fffc }, Dimension::Buffer)
    };
    let buffer = Header { width: 1 << 32, normalized: false, ..one };
    assert_eq!(Header::decode(&buffer.encode().unwrap()), Ok(buffer));
}

#[test]
fn what_does_not_fit_is_refused() {
    let blocks = |va| Storage::Blocks { va, height_log2: 0, depth_log2: 0 };
    let base = header(blocks(0), Dimension::TwoD);
    let refused = |header: Header| match header.encode() {
        Err(TextureError::Field(FieldError::TooWide { field, .. } | FieldError::LostBits { field, .. })) => {
            field
        }
        Err(TextureError::Unsupported { field, .. }) => field,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(Header { storage: blocks(0x100), ..base }), "ADDRESS");
    assert_eq!(refused(Header { storage: blocks(1 << 49), ..base }), "ADDRESS_BITS48TO32");
    assert_eq!(refused(Header { storage: Storage::Pitch { va: 0, pitch: 48 }, ..base }), "PITCH");
    assert_eq!(refused(Header { width: 0, ..base }), "WIDTH");
    assert_eq!(refused(Header { width: (1 << 17) + 1, ..base }), "WIDTH");
    assert_eq!(refused(Header { height: 0, ..base }), "HEIGHT");
    assert_eq!(refused(Header { depth: (1 << 15) + 1, ..base }), "DEPTH");
    assert_eq!(refused(Header { levels: 17, ..base }), "LEVELS");
    let high = Storage::Blocks { va: 0, height_log2: 6, depth_log2: 0 };
    assert_eq!(refused(Header { storage: high, ..base }), "GOBS_PER_BLOCK_HEIGHT");
    for (bias, min_level, max_level) in
        [(16.0, 0.0, 0.0), (f32::NAN, 0.0, 0.0), (0.0, -0.1, 0.0), (0.0, 0.0, 16.0)]
    {
        let sampler = Sampler { bias, min_level, max_level, ..Sampler::default() };
        assert!(matches!(sampler.encode(), Err(TextureError::Range { .. })), "{sampler:?}");
    }
    assert!(Sampler { anisotropy: 8, ..Sampler::default() }.encode().is_err());
}

#[test]
fn samplers_have_the_bits_of_the_class_header() {
    let sampler = Sampler {
        addressing: [Addressing::Mirror, Addressing::Border, Addressing::Wrap],
        filter: Filter::Linear,
        mip_filter: MipFilter::Point,
        bias: -0.5,
        min_level: 1.25,
        max_level: 15.0,
        anisotropy: 3,
        seamless: true,
        srgb: true,
        border: [1, 2, 3, 4],
    };
    let words = sampler.encode().unwrap();
    let level_bits = (0x1f80_u32) << 12 | 2 << 6 | 2 << 4 | 2 << 8 | 2;
    assert_eq!(words, [3 << 20 | 1 << 13 | 3 << 3 | 1, level_bits, 0xf00 << 12 | 0x140, 0, 1, 2, 3, 4]);
    assert_eq!(Sampler::decode(&words), Ok(sampler));
}

#[test]
fn what_is_not_supported_is_refused_by_name() {
    assert_eq!(Header::decode(&[0; 8]), Err(TextureError::Unsupported { field: "COMPONENTS", value: 0 }));
    let words =
        header(Storage::Blocks { va: 0, height_log2: 0, depth_log2: 0 }, Dimension::TwoD).encode().unwrap();
    let with = |bit: u32| {
        let mut words = words;
        words[bit as usize / 32] |= 1 << (bit % 32);
        Header::decode(&words).unwrap_err().to_string()
    };
    assert_eq!(with(31), "PACK_COMPONENTS 0x1 of a texture is not supported");
    assert_eq!(with(109), "GOB3D 0x1 of a texture is not supported");
    assert_eq!(with(232), "MULTI_SAMPLE_COUNT 0x1 of a texture is not supported");
    assert_eq!(with(87), "HEADER_VERSION 0x7 of a texture is not supported");
    let mut sampler = Sampler::default().encode().unwrap();
    sampler[0] |= 1 << 9;
    assert_eq!(
        Sampler::decode(&sampler).unwrap_err().to_string(),
        "DEPTH_COMPARE 0x1 of a texture is not supported"
    );
}

#[test]
fn levels_follow_each_other_in_ever_smaller_blocks() {
    // 64 by 64 texels of 4 bytes: blocks of 8 GOBs, 4, 2, then 1.
    let layout = Layout { width_bytes: 256, height: 64, depth: 1, height_log2: 3, depth_log2: 0 };
    let levels: Vec<_> = (0..7).map(|level| layout.level(level, 4)).collect();
    assert_eq!(levels.iter().map(|level| level.height_log2).collect::<Vec<_>>(), [3, 2, 1, 0, 0, 0, 0]);
    assert_eq!(
        levels.iter().map(|level| level.start).collect::<Vec<_>>(),
        [0, 0x4000, 0x5000, 0x5400, 0x5600, 0x5800, 0x5a00]
    );
    assert_eq!(layout.layer_bytes(7, 4), 0x6000, "whole blocks of the first level");
    let surface = BlockSurface { va: 0, block_height_log2: 3, width: 256, height: 64, x: 0, y: 0 };
    assert_eq!(surface.bytes(), Some(levels[0].bytes()));
    // Every byte of a level has a place of its own.
    let mut places: Vec<_> =
        (0..32).flat_map(|y| (0..128).map(move |x| (x, y))).map(|(x, y)| levels[1].offset(x, y, 0)).collect();
    places.sort_unstable();
    places.dedup();
    assert_eq!((places.len(), places[0], places[4095]), (4096, 0x4000, 0x4fff));
}
