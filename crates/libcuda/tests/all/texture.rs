//! Arrays, textures and surfaces.

use core::ffi::{CStr, c_void};

use crate::support::*;
use crate::sweep::{call, make};

const TEXTURES: &[u8] = include_bytes!("../../../tegra-hcq/kernels/texture.cubin");
/// CU_AD_FORMAT_FLOAT, CU_AD_FORMAT_UNSIGNED_INT8.
const FLOAT: u64 = 0x20;
const BYTE: u64 = 1;

fn at<T: ?Sized>(value: &T) -> u64 {
    core::ptr::from_ref(value).cast::<u8>().expose_provenance() as u64
}

/// The address of what a function writes, as a word.
fn into<T: ?Sized>(value: &mut T) -> u64 {
    core::ptr::from_mut(value).cast::<u8>().expose_provenance() as u64
}

/// CUDA_ARRAY3D_DESCRIPTOR: width, height, depth, format and channels, flags.
fn description(size: [u64; 3], format: u64, channels: u64, flags: u64) -> [u64; 5] {
    [size[0], size[1], size[2], channels << 32 | format, flags]
}

fn array(size: [u64; 3], format: u64, flags: u64) -> u64 {
    make("cuArray3DCreate_v2", [at(&description(size, format, 1, flags))])
}

/// CUDA_MEMCPY3D between the host and an array: place of the array, extent; whether to the array.
fn copy(array: u64, place: [u64; 3], host: u64, [width, height, depth]: [u64; 3], to_array: bool) -> u32 {
    let of_host = [0, 0, 0, 0, 1, host, 0, 0, 0, width, height];
    let of_array = [place[0], place[1], place[2], 0, 3, 0, 0, array, 0, 0, 0];
    let (from, to) = if to_array { (of_host, of_array) } else { (of_array, of_host) };
    let mut words = [0_u64; 25];
    words[..11].copy_from_slice(&from);
    words[11..22].copy_from_slice(&to);
    words[22..].copy_from_slice(&[width, height, depth]);
    call("cuMemcpy3D_v2", [at(&words)])
}

/// CUDA_RESOURCE_DESC of an array.
fn resource(array: u64) -> [u64; 18] {
    core::array::from_fn(|word| if word == 1 { array } else { 0 })
}

/// CUDA_TEXTURE_DESC: address modes, filter, flags, anisotropy, level filter.
fn sampler(mode: u32, filter: u32, flags: u32) -> [u32; 26] {
    let mut words = [0; 26];
    words[..5].copy_from_slice(&[mode, mode, mode, filter, flags]);
    words
}

fn texture(array: u64, sampler: &[u32; 26]) -> u64 {
    make("cuTexObjectCreate", [at(&resource(array)), at(sampler), 0])
}

/// First components at places, by a kernel of `texture.cu`.
fn look_up(kernel: &CStr, mut texture: u64, places: &[[f32; 4]]) -> Vec<f32> {
    let module = make("cuModuleLoadData", [at(TEXTURES)]) as Handle;
    // SAFETY: all places are valid, and the parameters are those of the kernel.
    unsafe {
        let function: Handle = made(|place| cuModuleGetFunction(place, module, kernel.as_ptr()));
        let (mut from, mut to) = (upload(places.as_flattened()), upload(&vec![0.0; places.len() * 4]));
        let mut count = places.len() as u32;
        let mut parameters: [*mut c_void; 4] = [
            (&raw mut texture).cast(),
            (&raw mut from).cast(),
            (&raw mut to).cast(),
            (&raw mut count).cast(),
        ];
        let list = parameters.as_mut_ptr();
        ok(cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, 0, list, core::ptr::null_mut()));
        ok(cuCtxSynchronize());
        download::<f32>(to, places.len() * 4).chunks(4).map(|texel| texel[0]).collect()
    }
}

#[test]
fn an_array_is_copied_in_parts_and_looked_up() {
    let _setup = Setup::new();
    let texels: Vec<f32> = (0..100 * 50).map(|at| (at % 100 + 1000 * (at / 100)) as f32).collect();
    let array = array([100, 50, 0], FLOAT, 2);
    ok(copy(array, [0; 3], at(&texels[..]), [400, 50, 1], true));
    let mut part = [0.0_f32; 6];
    ok(copy(array, [4 * 97, 48, 0], into(&mut part), [12, 2, 1], false));
    assert_eq!(part, [48097.0, 48098.0, 48099.0, 49097.0, 49098.0, 49099.0]);
    gives(copy(array, [4 * 98, 48, 0], into(&mut part), [12, 2, 1], false), 1);

    // Lines that continue in the next row; to other memory of the GPU, and back.
    let memory = upload(&[0.0; 200]);
    ok(call("cuMemcpyAtoD_v2", [memory, array, 4 * 150, 4 * 100]));
    assert_eq!(download::<f32>(memory, 100)[49..51], [1099.0, 2000.0]);
    ok(call("cuMemcpyDtoA_v2", [array, 0, memory, 8]));
    let mut first = [0.0_f32; 3];
    ok(call("cuMemcpyAtoH_v2", [into(&mut first), array, 0, 12]));
    assert_eq!(first, [1050.0, 1051.0, 2.0]);

    let point = texture(array, &sampler(1, 0, 0));
    let places = [[5.5, 7.5, 0.0, 0.0], [-3.0, 49.9, 0.0, 0.0]];
    assert_eq!(look_up(c"look_up_2d", point, &places), [7005.0, 49000.0]);
    let linear = texture(array, &sampler(1, 1, 0));
    assert_eq!(look_up(c"look_up_2d", linear, &[[6.0, 8.0, 0.0, 0.0]]), [7505.5]);
    let mut described = [0_u32; 26];
    ok(call("cuTexObjectGetTextureDesc", [into(&mut described), linear]));
    assert_eq!(described, sampler(1, 1, 0));
    let mut found = [0_u64; 18];
    ok(call("cuTexObjectGetResourceDesc", [into(&mut found), linear]));
    assert_eq!(found, resource(array));
    gives(call("cuSurfObjectDestroy", [linear]), 1);
    ok(call("cuTexObjectDestroy", [linear]));
    gives(call("cuTexObjectDestroy", [linear]), 1);
    ok(call("cuArrayDestroy", [array]));
    gives(call("cuArrayDestroy", [array]), 400);
}

#[test]
fn layers_levels_and_memory() {
    let _setup = Setup::new();
    let layers = array([8, 8, 3], BYTE, 1);
    let texels: Vec<u8> = (0..192).collect();
    ok(copy(layers, [0; 3], at(&texels[..]), [8, 8, 3], true));
    let object = texture(layers, &sampler(0, 0, 2));
    let found = look_up(c"look_up_layer", object, &[[0.1, 0.2, 0.0, 2.0]]);
    assert_eq!(found, [136.0 / 255.0]);

    let whole = make("cuMipmappedArrayCreate", [at(&description([16, 16, 0], FLOAT, 1, 0)), 9]);
    for level in 0..5_u64 {
        let part = make("cuMipmappedArrayGetLevel", [whole, level]);
        assert_eq!(make("cuMipmappedArrayGetLevel", [whole, level]), part);
        let side = 16 >> level;
        let texels = vec![level as f32; (side * side) as usize];
        ok(copy(part, [0; 3], at(&texels[..]), [4 * side, side, 1], true));
        gives(call("cuArrayDestroy", [part]), 1);
    }
    let mut level = 0_u64;
    gives(call("cuMipmappedArrayGetLevel", [into(&mut level), whole, 5]), 1);
    let mut of_levels = resource(whole);
    of_levels[0] = 1;
    let mut by_level = sampler(0, 0, 2);
    (by_level[6], by_level[9]) = (1, 9.0_f32.to_bits());
    let object = make("cuTexObjectCreate", [at(&of_levels), at(&by_level), 0]);
    let places = [0.0, 1.5, 3.25].map(|level| [0.5, 0.5, 0.0, level]);
    assert_eq!(look_up(c"look_up_level", object, &places), [0.0, 1.5, 3.25]);
    ok(call("cuMipmappedArrayDestroy", [whole]));

    let memory = upload(&(0..64).map(|at| at as f32).collect::<Vec<_>>());
    let mut linear = [0_u64; 18];
    linear[..4].copy_from_slice(&[2, memory, 1 << 32 | FLOAT, 256]);
    let object = make("cuTexObjectCreate", [at(&linear), at(&sampler(0, 0, 0)), 0]);
    assert_eq!(look_up(c"fetch", object, &[[63.0, 0.0, 0.0, 0.0], [64.0, 0.0, 0.0, 0.0]]), [63.0, 0.0]);
    let mut place = 0_u64;
    linear[1] = memory + 2;
    gives(call("cuTexObjectCreate", [into(&mut place), at(&linear), at(&sampler(0, 0, 0)), 0]), 1);
}

#[test]
fn what_is_no_array_or_texture_is_refused() {
    let _setup = Setup::new();
    let mut place = 0_u64;
    let refused = |size, format, channels, flags, place: &mut u64| {
        call("cuArray3DCreate_v2", [at(place), at(&description(size, format, channels, flags))])
    };
    gives(refused([0, 4, 0], FLOAT, 1, 0, &mut place), 1);
    gives(refused([4, 4, 0], FLOAT, 3, 0, &mut place), 1);
    gives(refused([4, 4, 0], 0x77, 1, 0, &mut place), 1);
    gives(refused([1 << 18, 0, 0], FLOAT, 1, 0, &mut place), 1);
    gives(refused([4, 4, 5], FLOAT, 1, 4, &mut place), 1);
    gives(refused([4, 4, 0], FLOAT, 1, 0x40, &mut place), 801);
    let plain = array([4, 4, 0], BYTE, 0);
    // Not created for surfaces; integers with a filter; modes that do not exist.
    gives(call("cuSurfObjectCreate", [into(&mut place), at(&resource(plain))]), 1);
    for wrong in [sampler(0, 1, 1), sampler(9, 0, 0), sampler(0, 7, 0), sampler(0, 0, 0x1000)] {
        gives(call("cuTexObjectCreate", [into(&mut place), at(&resource(plain)), at(&wrong), 0]), 1);
    }
    gives(call("cuTexObjectCreate", [into(&mut place), at(&resource(77)), at(&sampler(0, 0, 0)), 0]), 400);
}

#[test]
fn references_are_bound_before_launches() {
    let _setup = Setup::new();
    let text = |text: &core::ffi::CStr| text.as_ptr().expose_provenance() as u64;
    let module = make("cuModuleLoadData", [REFERENCES.as_ptr().expose_provenance() as u64]);
    let look = make("cuModuleGetFunction", [module, text(c"look")]);
    let [picture, line] = [c"picture", c"line"].map(|name| make("cuModuleGetTexRef", [module, text(name)]));
    let counts = make("cuModuleGetSurfRef", [module, text(c"counts")]);
    let mut out = upload(&[0.0; 32]);
    let mut width = 8_i32;
    let mut pointers = [place(&mut out), place(&mut width)];
    let pointers = place(&mut pointers);
    let launch = || call("cuLaunchKernel", [look, 4, 1, 1, 8, 1, 1, 0, 0, pointers, 0]);
    gives(launch(), 1);
    // CUDA_ARRAY3D_DESCRIPTOR: 8 by 4 floats; integers, for surfaces.
    let array = |format: u64, flags: u64| {
        let mut words = [8_u64, 4, 0, 1 << 32 | format, flags];
        make("cuArray3DCreate_v2", [place(&mut words)])
    };
    let (floats, integers) = (array(0x20, 0), array(10, 2));
    let texels: Vec<f32> = (0..32).map(|index| index as f32).collect();
    let fill = |array: u64, bytes: &[f32]| {
        // CUDA_MEMCPY2D: rows of 32 bytes, from the host to an array.
        let from = bytes.as_ptr().expose_provenance() as u64;
        let mut copy = [0, 0, 1, from, 0, 0, 32, 0, 0, 3, 0, 0, array, 0, 32, 4_u64];
        ok(call("cuMemcpy2D_v2", [place(&mut copy)]));
    };
    fill(floats, &texels);
    fill(integers, &[0.0; 32]);
    ok(call("cuTexRefSetArray", [picture, floats, 1]));
    let bytes = upload(&[f32::from_bits(0xff00_ff00); 2]);
    let mut offset = 9_u64;
    ok(call("cuTexRefSetFormat", [line, 1, 1]));
    ok(call("cuTexRefSetAddress_v2", [place(&mut offset), line, bytes, 8]));
    assert_eq!(offset, 0);
    ok(call("cuSurfRefSetArray", [counts, integers, 0]));
    ok(call("cuParamSetTexRef", [look, u64::from(u32::MAX), picture]));
    for _ in 0..2 {
        ok(launch());
        let found = download::<f32>(out, 32);
        assert!(found.iter().zip(0..).all(|(value, at)| *value == (at + at % 2) as f32), "{found:?}");
    }
    // A reference takes another address mode, and memory in lines.
    let lines = upload(&[&texels[..], &[7.0; 96]].concat());
    let mut rows = [8_u64, 4, 1 << 32 | 0x20];
    ok(call("cuTexRefSetAddress2D_v3", [picture, place(&mut rows), lines, 128]));
    ok(launch());
    // The second line is behind the picture's elements.
    assert_eq!(download::<f32>(out, 12), [0.0, 2.0, 2.0, 4.0, 4.0, 6.0, 6.0, 8.0, 7.0, 8.0, 7.0, 8.0]);
    let mut value = [9_u32; 2];
    for (symbol, answer) in [
        ("cuTexRefGetFlags", 0),
        ("cuTexRefGetFilterMode", 0),
        ("cuTexRefGetMaxAnisotropy", 0),
        ("cuTexRefGetMipmapFilterMode", 0),
    ] {
        ok(call(symbol, [place(&mut value), picture]));
        assert_eq!(value[0], answer, "{symbol}");
    }
    ok(call("cuTexRefSetAddressMode", [line, 0, 3]));
    ok(call("cuTexRefGetAddressMode", [place(&mut value), line, 0]));
    assert_eq!(value[0], 3);
    ok(call("cuTexRefGetAddress_v2", [place(&mut offset), picture]));
    assert_eq!(offset, lines);
    ok(call("cuSurfRefGetArray", [place(&mut offset), counts]));
    assert_eq!(offset, integers);
    gives(call("cuTexRefGetArray", [place(&mut offset), picture]), 1);
    gives(call("cuTexRefSetArray", [picture, floats, 0]), 1);
    gives(call("cuTexRefSetArray", [counts, floats, 1]), 400);
    gives(call("cuSurfRefSetArray", [counts, floats, 0]), 1);
    gives(call("cuTexRefSetAddressMode", [line, 3, 0]), 1);
    gives(call("cuTexRefSetFormat", [line, 1, 3]), 1);
    gives(call("cuTexRefDestroy", [line]), 1);
    gives(call("cuModuleGetTexRef", [place(&mut offset), module, text(c"counts")]), 500);
    let own = make("cuTexRefCreate", []);
    ok(call("cuTexRefDestroy", [own]));
    gives(call("cuTexRefDestroy", [own]), 400);
    ok(call("cuModuleUnload", [module]));
    gives(call("cuTexRefSetFlags", [picture, 0]), 400);
}
