//! Textures and surfaces.

use tegra_hcq::texture::blocks::Layout;
use tegra_hcq::texture::{
    Addressing, Components, Dimension, Filter, Format, Header, MipFilter, Numbers, Sampler, Storage,
};
use tegra_hcq::{Buffer, Error, FaultKind, RangeError, Texture, WarpError, args};
use test_support::{Bench, TIMEOUT};

fn header(components: Components, numbers: Numbers, storage: Storage, dimension: Dimension) -> Header {
    Header {
        format: Format::new(components, numbers),
        storage,
        dimension,
        width: 8,
        height: 8,
        depth: 1,
        levels: 1,
        first_level: 0,
        last_level: 0,
        normalized: false,
    }
}

/// Texels of `size` bytes in blocks: `texel` makes that at a place of a layer of a level.
fn fill(
    bench: &Bench,
    header: &Header,
    layers: u32,
    texel: impl Fn(u32, [u32; 4]) -> Vec<u8>,
) -> (Buffer<u8>, Layout) {
    let size = u64::from(header.format.components.bytes());
    let Storage::Blocks { height_log2, depth_log2, .. } = header.storage else { panic!("not in blocks") };
    let depth = if header.dimension == Dimension::ThreeD { header.depth } else { 1 };
    let layout =
        Layout { width_bytes: header.width * size, height: header.height, depth, height_log2, depth_log2 };
    let layer_bytes = layout.layer_bytes(header.levels, size);
    let mut memory = vec![0; (layer_bytes * u64::from(layers)) as usize];
    for level in 0..header.levels {
        let place = layout.level(level, size);
        let columns = (place.width_bytes / size) as u32;
        for layer in 0..layers {
            for at in 0..place.depth * place.height * columns {
                let [x, y, z] = [at % columns, at / columns % place.height, at / columns / place.height];
                let offset = u64::from(layer) * layer_bytes + place.offset(u64::from(x) * size, y, z);
                let bytes = texel(level, [x, y, z, layer]);
                memory[offset as usize..][..bytes.len()].copy_from_slice(&bytes);
            }
        }
    }
    (bench.device.alloc_from(&memory).unwrap(), layout)
}

/// Results of a kernel of `texture.cu` at places.
fn look_up(bench: &mut Bench, kernel: &str, texture: &Texture, places: &[[f32; 4]]) -> Vec<[u32; 4]> {
    let kernel = bench.program.kernel(kernel).unwrap();
    let places = bench.device.alloc_from(places).unwrap();
    let mut out = bench.device.alloc::<[u32; 4]>(places.len()).unwrap();
    let blocks = (places.len() as u32).div_ceil(64);
    let count = places.len() as u32;
    unsafe { bench.queue.launch(&kernel, blocks, 64, &args![texture, &places, &mut out, count]) }.unwrap();
    bench.queue.wait(TIMEOUT).unwrap();
    out.to_vec().unwrap()
}

fn first(results: &[[u32; 4]]) -> Vec<f32> {
    results.iter().map(|texel| f32::from_bits(texel[0])).collect()
}

fn at(x: f32, y: f32) -> [f32; 4] {
    [x, y, 0.0, 0.0]
}

const BLOCKS: Storage = Storage::Blocks { va: 0, height_log2: 0, depth_log2: 0 };

/// A texture of 8 by 8 floats, each 10 y + x.
fn grid(bench: &Bench, sampler: &Sampler, normalized: bool) -> Texture {
    let header = Header { normalized, ..header(Components::R32, Numbers::Float, BLOCKS, Dimension::TwoD) };
    let (memory, _) = fill(bench, &header, 1, |_, [x, y, ..]| ((10 * y + x) as f32).to_le_bytes().to_vec());
    bench.device.texture(&memory, &header, sampler).unwrap()
}

#[test]
fn the_nearest_texel_or_a_mean_of_the_four_around() {
    let mut bench = Bench::new("texture");
    let point = grid(&bench, &Sampler::default(), false);
    let places = [at(0.5, 0.5), at(3.9, 2.0), at(-5.0, 7.5), at(99.0, 3.2)];
    assert_eq!(first(&look_up(&mut bench, "look_up_2d", &point, &places)), [0.0, 23.0, 70.0, 37.0]);
    let linear = grid(&bench, &Sampler { filter: Filter::Linear, ..Sampler::default() }, false);
    let places = [at(0.5, 0.5), at(1.0, 0.5), at(2.75, 3.0), at(0.0, 0.0), at(1.0 + 1.0 / 256.0, 0.5)];
    let wanted = [0.0, 0.5, 27.25, 0.0, 0.5 + 1.0 / 256.0];
    assert_eq!(first(&look_up(&mut bench, "look_up_2d", &linear, &places)), wanted);
}

#[test]
fn weights_have_eight_bits() {
    let mut bench = Bench::new("texture");
    let linear = grid(&bench, &Sampler { filter: Filter::Linear, ..Sampler::default() }, false);
    let places: Vec<_> = (0..1024_u16).map(|step| at(0.5 + f32::from(step) / 1024.0, 0.5)).collect();
    let mut found = first(&look_up(&mut bench, "look_up_2d", &linear, &places));
    assert!(found.iter().all(|value| (value * 256.0).fract() == 0.0), "{found:?}");
    found.dedup();
    assert_eq!(found.len(), 257);
}

#[test]
fn what_is_outside_is_as_the_addressing_says() {
    let mut bench = Bench::new("texture");
    let places: Vec<_> = [-0.25, 1.125, 2.0].iter().map(|x| at(*x + 1.0 / 16.0, 1.0 / 16.0)).collect();
    for (mode, wanted) in [
        (Addressing::Wrap, [6.0, 1.0, 0.0]),
        (Addressing::Mirror, [1.0, 6.0, 0.0]),
        (Addressing::Clamp, [0.0, 7.0, 7.0]),
        (Addressing::Border, [-2.5; 3]),
    ] {
        let border = [(-2.5_f32).to_bits(); 4];
        let texture = grid(&bench, &Sampler { addressing: [mode; 3], border, ..Sampler::default() }, true);
        assert_eq!(first(&look_up(&mut bench, "look_up_2d", &texture, &places)), wanted, "{mode:?}");
    }
}

#[test]
fn integers_become_numbers_from_minus_one_to_one() {
    let mut bench = Bench::new("texture");
    for (components, numbers, bytes, wanted) in [
        (Components::R8G8B8A8, Numbers::Unorm, vec![0, 51, 255, 128], [0.0, 0.2, 1.0, 128.0 / 255.0]),
        (Components::R8G8B8A8, Numbers::Snorm, vec![0x80, 0x81, 127, 0], [-1.0, -1.0, 1.0, 0.0]),
        (Components::R16G16, Numbers::Unorm, vec![0xff, 0xff, 1, 0], [1.0, 1.0 / 65535.0, 0.0, 0.0]),
        (Components::R16G16, Numbers::Float, vec![0, 0x3c, 0, 0xb8], [1.0, -0.5, 0.0, 0.0]),
    ] {
        let header = header(components, numbers, BLOCKS, Dimension::TwoD);
        let (memory, _) = fill(&bench, &header, 1, |_, _| bytes.clone());
        let texture = bench.device.texture(&memory, &header, &Sampler::default()).unwrap();
        let found = look_up(&mut bench, "look_up_2d", &texture, &[at(1.0, 1.0)]);
        assert_eq!(found[0].map(f32::from_bits), wanted, "{components:?} {numbers:?}");
    }
}

#[test]
fn slices_layers_and_faces() {
    let mut bench = Bench::new("texture");
    let texel =
        |_, [x, y, z, layer]: [u32; 4]| ((1000 * layer + 100 * z + 10 * y + x) as f32).to_le_bytes().to_vec();
    let deep = Storage::Blocks { va: 0, height_log2: 0, depth_log2: 1 };
    let cuboid = Header { depth: 5, ..header(Components::R32, Numbers::Float, deep, Dimension::ThreeD) };
    let (memory, _) = fill(&bench, &cuboid, 1, texel);
    let sampler = Sampler { filter: Filter::Linear, ..Sampler::default() };
    let texture = bench.device.texture(&memory, &cuboid, &sampler).unwrap();
    let places = [[1.5, 2.5, 4.5, 0.0], [1.5, 2.5, 3.0, 0.0]];
    assert_eq!(first(&look_up(&mut bench, "look_up_3d", &texture, &places)), [421.0, 271.0]);

    let layered =
        Header { depth: 3, ..header(Components::R32, Numbers::Float, BLOCKS, Dimension::TwoDArray) };
    let (memory, _) = fill(&bench, &layered, 3, texel);
    let texture = bench.device.texture(&memory, &layered, &Sampler::default()).unwrap();
    let places = [[2.5, 3.5, 0.0, 1.0], [2.5, 3.5, 0.0, 7.0]];
    assert_eq!(first(&look_up(&mut bench, "look_up_layer", &texture, &places)), [1032.0, 2032.0]);

    let cube =
        Header { normalized: true, ..header(Components::R32, Numbers::Float, BLOCKS, Dimension::Cube) };
    let (memory, _) = fill(&bench, &cube, 6, texel);
    let texture = bench.device.texture(&memory, &cube, &Sampler::default()).unwrap();
    let directions: Vec<[f32; 4]> = (0..6)
        .map(|face| {
            core::array::from_fn(|axis| if axis == face / 2 { 1.0 - 2.0 * (face % 2) as f32 } else { 0.0 })
        })
        .collect();
    let found: Vec<_> = first(&look_up(&mut bench, "look_up_cube", &texture, &directions))
        .iter()
        .map(|value| value.div_euclid(1000.0))
        .collect();
    assert_eq!(found, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
}

#[test]
fn levels_of_detail() {
    let mut bench = Bench::new("texture");
    let blocks = Storage::Blocks { va: 0, height_log2: 2, depth_log2: 0 };
    let header = Header {
        width: 32,
        height: 32,
        levels: 6,
        last_level: 5,
        normalized: true,
        ..header(Components::R32, Numbers::Float, blocks, Dimension::TwoD)
    };
    let (memory, _) = fill(&bench, &header, 1, |level, _| (level as f32).to_le_bytes().to_vec());
    let levels = |filter, bias| Sampler {
        mip_filter: filter,
        bias,
        min_level: 0.5,
        max_level: 4.0,
        addressing: [Addressing::Wrap; 3],
        ..Sampler::default()
    };
    let places = [0.0, 1.25, 2.75, 9.0].map(|level| [0.3, 0.3, 0.0, level]);
    for (sampler, wanted) in [
        (levels(MipFilter::Point, 0.0), [1.0, 1.0, 3.0, 4.0]),
        (levels(MipFilter::Linear, 0.0), [0.5, 1.25, 2.75, 4.0]),
        (levels(MipFilter::Linear, 1.0), [1.0, 2.25, 3.75, 4.0]),
        (levels(MipFilter::None, 0.0), [0.0; 4]),
    ] {
        let texture = bench.device.texture(&memory, &header, &sampler).unwrap();
        assert_eq!(first(&look_up(&mut bench, "look_up_level", &texture, &places)), wanted, "{sampler:?}");
    }
    // Steps of four texels: level 2.
    let texture = bench.device.texture(&memory, &header, &levels(MipFilter::Linear, 0.0)).unwrap();
    let found = look_up(&mut bench, "look_up_derived", &texture, &[[0.3, 0.3, 0.125, 0.0625]]);
    assert_eq!(first(&found), [2.0]);
    let part = Header { first_level: 2, last_level: 3, ..header };
    let texture = bench.device.texture(&memory, &part, &levels(MipFilter::Linear, 0.0)).unwrap();
    assert_eq!(first(&look_up(&mut bench, "look_up_level", &texture, &places)), [2.5, 3.0, 3.0, 3.0]);
}

#[test]
fn one_dimension_linear_memory_and_gathers() {
    let mut bench = Bench::new("texture");
    let line = Header { height: 1, ..header(Components::R32, Numbers::Float, BLOCKS, Dimension::OneD) };
    let (memory, _) = fill(&bench, &line, 1, |_, [x, ..]| (x as f32).to_le_bytes().to_vec());
    let sampler =
        Sampler { filter: Filter::Linear, addressing: [Addressing::Border; 3], ..Sampler::default() };
    let texture = bench.device.texture(&memory, &line, &sampler).unwrap();
    assert_eq!(first(&look_up(&mut bench, "look_up_1d", &texture, &[at(3.0, 0.0)])), [2.5]);

    let memory = bench.device.alloc_from(&(0..64_u32).collect::<Vec<_>>()).unwrap();
    let buffer = Storage::Buffer { va: 16 };
    let elements =
        Header { width: 60, height: 1, ..header(Components::R32, Numbers::Uint, buffer, Dimension::Buffer) };
    let texture = bench.device.texture(&memory, &elements, &Sampler::default()).unwrap();
    let found = look_up(&mut bench, "fetch", &texture, &[at(5.0, 0.0), at(60.0, 0.0), at(-1.0, 0.0)]);
    assert_eq!(found.iter().map(|texel| texel[0]).collect::<Vec<_>>(), [9, 0, 0]);

    let pairs = header(Components::R32G32, Numbers::Float, BLOCKS, Dimension::TwoD);
    let (memory, _) = fill(&bench, &pairs, 1, |_, [x, y, ..]| {
        [7.0, (10 * y + x) as f32].iter().flat_map(|value: &f32| value.to_le_bytes()).collect()
    });
    let texture = bench.device.texture(&memory, &pairs, &Sampler::default()).unwrap();
    let found = look_up(&mut bench, "gather", &texture, &[at(3.0, 5.0)]);
    assert_eq!(found[0].map(f32::from_bits), [52.0, 53.0, 43.0, 42.0]);
}

#[test]
fn each_lane_may_have_a_texture_of_its_own() {
    let mut bench = Bench::new("texture");
    let textures: Vec<_> = (0..4_u8)
        .map(|number| {
            let header = header(Components::R8, Numbers::Unorm, BLOCKS, Dimension::TwoD);
            let (memory, _) = fill(&bench, &header, 1, |_, _| vec![number * 51]);
            bench.device.texture(&memory, &header, &Sampler::default()).unwrap()
        })
        .collect();
    let list = bench.device.alloc_from(&textures.iter().map(Texture::handle).collect::<Vec<_>>()).unwrap();
    let kernel = bench.program.kernel("look_up_listed").unwrap();
    let places = bench.device.alloc_from(&[at(1.0, 1.0); 8]).unwrap();
    let mut out = bench.device.alloc::<[f32; 4]>(8).unwrap();
    unsafe { bench.queue.launch(&kernel, 1, 32, &args![&list, &places, &mut out, 8_u32]) }.unwrap();
    bench.queue.wait(TIMEOUT).unwrap();
    let found: Vec<_> = out.to_vec().unwrap().iter().map(|texel| texel[0]).collect();
    assert_eq!(found, [0.0, 0.2, 0.4, 0.6, 0.0, 0.2, 0.4, 0.6]);
    drop(textures);
}

#[test]
fn surfaces_are_read_written_and_reduced_by_bytes() {
    let mut bench = Bench::new("texture");
    let header = header(Components::R32, Numbers::Uint, BLOCKS, Dimension::TwoD);
    let (memory, layout) = fill(&bench, &header, 1, |_, [x, y, ..]| (100 * y + x).to_le_bytes().to_vec());
    let surface = bench.device.texture(&memory, &header, &Sampler::default()).unwrap();
    let kernel = bench.program.kernel("surface_step").unwrap();
    // Nine threads for eight columns; the last row has none below.
    for y in [3_i32, 7] {
        unsafe { bench.queue.launch(&kernel, 1, 9, &args![&surface, y]) }.unwrap();
    }
    bench.queue.wait(TIMEOUT).unwrap();
    let bytes = memory.to_vec().unwrap();
    let word = |x: u32, y| {
        let at = layout.level(0, 4).offset(u64::from(x) * 4, y, 0) as usize;
        u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
    };
    for x in 0..8 {
        assert_eq!([word(x, 3), word(x, 4), word(x, 5)], [300 + x, 300 + x, 500 + x]);
        assert_eq!(word(x, 0), x + 300 + x + 700 + x);
    }
    let fault = bench.device.alloc::<u32>(1).unwrap();
    let read = bench.program.kernel("surface_read").unwrap();
    unsafe { bench.queue.launch(&read, 1, 1, &args![&surface, 8_i32, 0_i32, &fault]) }.unwrap();
    let error = bench.queue.wait(TIMEOUT).unwrap_err();
    let Error::Fault(fault) = &error else { panic!("{error}") };
    assert_eq!(fault.kind, FaultKind::Sm(WarpError::OutOfRangeAddress), "{error}");
    assert!(error.to_string().contains("outside of the surface"), "{error}");
}

#[test]
fn what_is_no_texture_is_refused() {
    let mut bench = Bench::new("texture");
    let memory = bench.device.alloc::<u8>(256).unwrap();
    let header = header(Components::R32, Numbers::Float, BLOCKS, Dimension::TwoD);
    let error = bench.device.texture(&memory, &header, &Sampler::default()).unwrap_err();
    assert!(matches!(error, Error::Range(RangeError::Memory { bytes: 512, len: 256, .. })), "{error}");
    let huge = Header { width: 1 << 18, ..header };
    let memory = bench.device.alloc::<u8>(1 << 26).unwrap();
    let error = bench.device.texture(&memory, &huge, &Sampler::default()).unwrap_err();
    assert_eq!(error.to_string(), "WIDTH: 0x40000 does not fit 17 bits");
    let bias = Sampler { bias: 99.0, ..Sampler::default() };
    assert!(matches!(bench.device.texture(&memory, &header, &bias), Err(Error::Texture(_))));

    // A number that names no header.
    let (kernel, out) =
        (bench.program.kernel("texture_width").unwrap(), bench.device.alloc::<i32>(1).unwrap());
    unsafe { bench.queue.launch(&kernel, 1, 1, &args![1_u64 << 16, &out]) }.unwrap();
    let error = bench.queue.wait(TIMEOUT).unwrap_err().to_string();
    assert!(error.contains("texture_width"), "{error}");
}

#[test]
fn a_query_returns_the_size_and_numbers_are_used_again() {
    let mut bench = Bench::new("texture");
    let kernel = bench.program.kernel("texture_width").unwrap();
    let out = bench.device.alloc::<i32>(1).unwrap();
    let memory = bench.device.alloc::<u8>(1 << 16).unwrap();
    let mut numbers = Vec::new();
    for width in 1..100_u64 {
        let header = Header { width, ..header(Components::R8, Numbers::Uint, BLOCKS, Dimension::TwoD) };
        let texture = bench.device.texture(&memory, &header, &Sampler::default()).unwrap();
        numbers.push(texture.handle());
        unsafe { bench.queue.launch(&kernel, 1, 1, &args![&texture, &out]) }.unwrap();
        drop(texture);
        bench.queue.wait(TIMEOUT).unwrap();
        assert_eq!(out.to_vec().unwrap(), [width as i32]);
    }
    assert!(numbers.iter().all(|number| *number < 4), "{numbers:?}");
}

#[test]
fn a_graph_may_be_the_first_work_with_textures() {
    let mut bench = Bench::new("texture");
    let mut words = bench.device.alloc::<u32>(4).unwrap();
    // The queue has worked before, without tables.
    let mut earlier = bench.device.graph();
    earlier.fill(&mut words, 7).unwrap();
    bench.queue.replay(&mut earlier.build().unwrap()).unwrap().wait(TIMEOUT).unwrap();
    let texture = grid(&bench, &Sampler { filter: Filter::Linear, ..Sampler::default() }, false);
    let places = bench.device.alloc_from(&[at(2.75, 3.0)]).unwrap();
    let mut out = bench.device.alloc::<[u32; 4]>(1).unwrap();
    let kernel = bench.program.kernel("look_up_2d").unwrap();
    let mut recording = bench.device.graph();
    unsafe { recording.launch(&kernel, 1, 64, &args![&texture, &places, &mut out, 1_u32]) }.unwrap();
    bench.queue.replay(&mut recording.build().unwrap()).unwrap().wait(TIMEOUT).unwrap();
    assert_eq!(first(&out.to_vec().unwrap()), [27.25]);
}
