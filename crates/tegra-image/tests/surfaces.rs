//! Descriptions of images, and copies between layouts.

use proptest::prelude::*;
use tegra_hcq::{Device, DeviceKind};
use tegra_image::{Bayer, Depth, Error, Format, Layout, NvBufPlane, Packing, Plane, Surface};
use test_support::{Numbers, TIMEOUT, block_linear_offset};

pub(crate) const RAW10: Format =
    Format::Raw { depth: Depth::Ten, packing: Packing::Words { shift: 6 }, order: Bayer::Rggb };

fn pitch_plane(offset: u64, pitch: u32, rows: u32) -> Plane {
    Plane { offset, pitch, size: u64::from(pitch) * u64::from(rows), layout: Layout::Pitch }
}

/// Offset, pitch and size.
type PlaneNumbers = (u64, u32, u64);

#[test]
fn v4l2_formats_have_the_planes_of_their_documentation() {
    // FourCC, pitch for 64 columns, planes for 32 rows, text.
    let cases: [(&[u8; 4], u32, &[PlaneNumbers], &str); 12] = [
        (b"GREY", 64, &[(0, 64, 2048)], "GRAY8"),
        (b"NV12", 80, &[(0, 80, 2560), (2560, 80, 1280)], "NV12"),
        (b"NV16", 64, &[(0, 64, 2048), (2048, 64, 2048)], "NV16"),
        (b"NV24", 64, &[(0, 64, 2048), (2048, 128, 4096)], "NV24"),
        (b"AB24", 256, &[(0, 256, 8192)], "RGBA8"),
        (b"XR24", 256, &[(0, 256, 8192)], "BGRA8"),
        (b"RG10", 128, &[(0, 128, 4096)], "RAW10 RGGB"),
        (b"BA12", 128, &[(0, 128, 4096)], "RAW12 GRBG"),
        (b"GB10", 128, &[(0, 128, 4096)], "RAW10 GBRG"),
        (b"pBAA", 80, &[(0, 80, 2560)], "RAW10 BGGR, MIPI-packed"),
        (b"pgAA", 80, &[(0, 80, 2560)], "RAW10 GRBG, MIPI-packed"),
        (b"pRCC", 96, &[(0, 96, 3072)], "RAW12 RGGB, MIPI-packed"),
    ];
    for (code, pitch, planes, name) in cases {
        let bytes = planes.iter().map(|plane| plane.2).sum::<u64>();
        let surface = Surface::from_v4l2(*code, 64, 32, pitch, bytes as u32).unwrap();
        let got: Vec<_> =
            surface.planes().iter().map(|plane| (plane.offset, plane.pitch, plane.size)).collect();
        assert_eq!((&got[..], surface.bytes()), (planes, bytes), "{name}");
        assert_eq!(surface.to_string(), format!("{name} of 64x32"));
        // One byte less of memory or of pitch does not do, except where rows had gaps.
        let short = Surface::from_v4l2(*code, 64, 32, pitch, bytes as u32 - 1);
        assert!(matches!(short, Err(Error::Outside { .. })), "{name}: {short:?}");
        let narrow = Surface::from_v4l2(*code, 64, 32, planes[0].1.min(pitch) - 17, bytes as u32);
        assert!(matches!(narrow, Err(Error::Pitch { .. })), "{name}: {narrow:?}");
    }
    let error = Surface::from_v4l2(*b"MJPG", 64, 32, 64, 4096).unwrap_err();
    assert_eq!(error.to_string(), "the format 'MJPG' is not supported: see Format::from_fourcc");
}

#[test]
fn numbers_that_do_not_fit_are_named() {
    let new = |format, planes: &[Plane], bytes| {
        Surface::new(format, 64, 32, planes, bytes).map(|_| ()).map_err(|error| error.to_string())
    };
    let (luma, chroma) = (pitch_plane(0, 64, 32), pitch_plane(2048, 64, 16));
    assert_eq!(new(Format::Nv12, &[luma, chroma], 3072), Ok(()));
    assert_eq!(
        new(Format::Nv12, &[chroma, luma], 9999),
        Err("plane 0 has 1024 bytes, but its rows take 2048: check \
        height, pitch and block height"
            .to_owned())
    );
    assert_eq!(new(Format::Nv12, &[pitch_plane(1024, 64, 32), pitch_plane(0, 64, 16)], 3072), Ok(()));
    let blocks = |offset, pitch, size, block_height_log2| {
        let layout = Layout::BlockLinear { block_height_log2 };
        new(Format::Gray8, &[Plane { offset, pitch, size, layout }], 1 << 20)
    };
    assert_eq!(blocks(512, 64, 2048, 2), Ok(()));
    let kinds: [(Result<(), String>, &str); 14] = [
        (new(Format::Nv12, &[luma], 3072), "NV12: the number of planes is 2, not 1"),
        (new(Format::Gray8, &[luma, chroma], 3072), "GRAY8: the number of planes is 1, not 2"),
        (new(Format::Gray8, &[pitch_plane(0, 63, 32)], 3072), "a pitch of 63 bytes, but a row has 64"),
        (new(Format::Nv12, &[luma, chroma], 3071), "plane 1 ends at byte 3072, but the memory has 3071"),
        (
            new(Format::Nv12, &[luma, pitch_plane(2047, 64, 16)], 9999),
            "plane 1 begins at byte 2047, inside plane 0",
        ),
        (
            new(Format::Gray8, &[Plane { offset: u64::MAX, ..luma }], 9999),
            "ends at byte 18446744073709551615",
        ),
        (blocks(256, 64, 2048, 2), "plane 0: offset 256"),
        (blocks(0, 96, 4096, 2), "pitch 96"),
        (blocks(0, 64, 2048, 6), "blocks of 2^6 GOBs"),
        (blocks(0, 64, 2048, 3), "plane 0 has 2048 bytes, but its rows take 4096"),
        (
            Surface::packed(Format::Gray8, 0, 5, Layout::Pitch).map(|_| ()).map_err(|e| e.to_string()),
            "of 0x5: width",
        ),
        (
            Surface::packed(Format::Gray8, 1, 32769, Layout::Pitch).map(|_| ()).map_err(|e| e.to_string()),
            "height are 1 to 32768",
        ),
        (
            Surface::packed(Format::Nv12, 6, 5, Layout::Pitch).map(|_| ()).map_err(|e| e.to_string()),
            "the height must",
        ),
        (
            Surface::packed(Format::Nv16, 5, 5, Layout::Pitch).map(|_| ()).map_err(|e| e.to_string()),
            "the width must",
        ),
    ];
    for (result, text) in kinds {
        let error = result.unwrap_err();
        assert!(error.contains(text), "{error}: {text}");
    }
    assert!(Surface::packed(Format::Nv24, 5, 5, Layout::Pitch).is_ok());
    let packed = Surface::packed(RAW10, 5, 5, Layout::Pitch).unwrap();
    assert!(matches!(packed.with_shift(7), Err(Error::Shift { bits: 10, shift: 7 })));
    assert_eq!(packed.with_shift(0).unwrap().format(), Format::from_fourcc(*b"RG10").unwrap());
    let gray = Surface::packed(Format::Gray8, 5, 5, Layout::Pitch).unwrap();
    assert!(matches!(gray.with_shift(0), Err(Error::Unsupported { .. })));
}

#[test]
fn numbers_of_an_nvbufsurface_are_checked() {
    let luma = NvBufPlane { pitch: 128, offset: 0, psize: 8192, bytes_per_pix: 1, block_height_log2: 3 };
    let chroma = NvBufPlane { offset: 8192, psize: 4096, bytes_per_pix: 2, block_height_log2: 2, ..luma };
    let new = |layout, planes: &[NvBufPlane]| {
        Surface::from_nvbufsurface(Format::Nv12, (100, 60), layout, planes, 12288)
    };
    let blocks = new(1, &[luma, chroma]).unwrap();
    let heights: Vec<_> = blocks.planes().iter().map(|plane| plane.layout).collect();
    assert_eq!(heights, [3, 2].map(|block_height_log2| Layout::BlockLinear { block_height_log2 }));
    assert!(new(0, &[luma, chroma]).unwrap().is_pitch_linear());
    assert!(matches!(new(2, &[luma, chroma]), Err(Error::Layout(2))));
    assert!(matches!(new(0, &[luma]), Err(Error::Planes { .. })));
    let wrong = new(0, &[luma, NvBufPlane { bytes_per_pix: 1, ..chroma }]);
    assert!(matches!(wrong, Err(Error::BytesPerPixel { plane: 1, given: 1, needed: 2, .. })));
    let deep = new(1, &[NvBufPlane { block_height_log2: 4, ..luma }, chroma]);
    assert!(matches!(deep, Err(Error::PlaneSize { plane: 0, size: 8192, needed: 16384 })), "{deep:?}");
}

/// The bytes of the rows of all planes, from the memory of an image.
fn rows(surface: &Surface, memory: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (index, plane) in surface.planes().iter().enumerate() {
        let (wide, high) = surface.format().plane_size(index, surface.width(), surface.height());
        for (y, x) in (0..high as usize).flat_map(|y| (0..wide as usize).map(move |x| (y, x))) {
            let at = match plane.layout {
                Layout::Pitch => y * plane.pitch as usize + x,
                Layout::BlockLinear { block_height_log2 } => {
                    block_linear_offset(plane.pitch as usize, block_height_log2, x, y)
                }
            };
            bytes.push(memory[plane.offset as usize + at]);
        }
    }
    bytes
}

fn layout() -> impl Strategy<Value = Layout> {
    prop_oneof![
        Just(Layout::Pitch),
        (0..=5_u32).prop_map(|block_height_log2| Layout::BlockLinear { block_height_log2 })
    ]
}

fn format() -> impl Strategy<Value = Format> {
    let codes = [*b"GREY", *b"NV12", *b"NV16", *b"NV24", *b"AB24", *b"RG10", *b"pRAA", *b"pRCC"];
    prop::sample::select(codes.map(|code| Format::from_fourcc(code).unwrap()).to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..Default::default() })]

    #[test]
    fn copies_between_layouts_keep_every_row(
        format in format(), from in layout(), to in layout(), width in 1..70_u32, height in 1..60_u32,
    ) {
        let even = format.chroma_shift().unwrap_or_default();
        let (width, height) = (width << even.0, height << even.1);
        let [from, to] = [from, to].map(|layout| Surface::packed(format, width, height, layout).unwrap());
        let device = Device::open(DeviceKind::Sim).unwrap();
        let mut queue = device.queue().unwrap();
        let image: Vec<u8> = Numbers::new(7).vec_u32(from.bytes() as usize).iter().map(|v| *v as u8).collect();
        let frame = device.alloc_from(&image).unwrap();
        let mut target = device.alloc_zeroed::<u8>(to.bytes() as usize).unwrap();
        from.copy(&mut queue, &frame, &to, &mut target).unwrap();
        queue.wait(TIMEOUT).unwrap();
        prop_assert!(rows(&to, &target.to_vec().unwrap()) == rows(&from, &image), "{from:?} to {to:?}");
    }
}

#[test]
fn copies_that_do_not_fit_are_refused() {
    let device = Device::open(DeviceKind::Sim).unwrap();
    let mut queue = device.queue().unwrap();
    let small = Surface::packed(Format::Gray8, 16, 16, Layout::Pitch).unwrap();
    let large = Surface::packed(Format::Gray8, 16, 17, Layout::Pitch).unwrap();
    let (frame, mut target) = (device.alloc::<u8>(256).unwrap(), device.alloc::<u8>(255).unwrap());
    let error = small.copy(&mut queue, &frame, &large, &mut target).unwrap_err().to_string();
    assert_eq!(
        error,
        "GRAY8 of 16x16 cannot be copied to GRAY8 of 16x17: format, width and height must be equal"
    );
    let error = small.copy(&mut queue, &frame, &small, &mut target).unwrap_err().to_string();
    assert_eq!(error, "the target of the copy: a slice of 255 elements; the image needs 256");
}
