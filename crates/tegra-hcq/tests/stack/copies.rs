//! Copies of parts and rectangles of buffers, and staged copies from and to memory of the process.

use std::cell::RefCell;
use std::time::Duration;

use half::bf16;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use tegra_hcq::{Error, Pod, RangeError, RawPlane, Slice, SliceMut, args};
use test_support::{Bench, Numbers, TIMEOUT, block_linear_offset};

#[test]
fn a_staged_copy_returns_at_once_and_keeps_what_it_was_given() {
    let mut bench = Bench::new("basics");
    let gate = bench.device.signal(0).unwrap();
    let mut data = bench.device.alloc_from(&[1_u32; 64]).unwrap();
    let increment = bench.program.kernel("increment").unwrap();
    let mut given: Vec<u32> = (0..32).collect();

    bench.queue.wait_signal(&gate, 1).unwrap();
    unsafe { bench.queue.launch(&increment, 2, 32, &args![&data, 64_u32]) }.unwrap();
    let before = bench.queue.download(data.slice(30..34).unwrap()).unwrap();
    let fence = bench.queue.upload(&given, data.slice_mut(32..).unwrap()).unwrap();
    given.fill(99);
    drop(given);
    unsafe { bench.queue.launch(&increment, 2, 32, &args![&data, 64_u32]) }.unwrap();
    let after = bench.queue.download(&data).unwrap();
    assert!(matches!(fence.wait(Duration::from_millis(50)), Err(Error::Timeout { .. })));
    assert!(!fence.is_done() && !before.fence().is_done());
    gate.set(1);

    assert_eq!((before.len(), after.len(), after.is_empty()), (4, 64, false));
    fence.wait(TIMEOUT).unwrap();
    assert_eq!(before.wait(TIMEOUT).unwrap(), [2; 4]);
    let mut result = [0; 64];
    assert!(matches!(
        bench.queue.download(&data).unwrap().wait_into(&mut [0; 5], TIMEOUT),
        Err(Error::Range(_))
    ));
    after.wait_into(&mut result, TIMEOUT).unwrap();
    assert!(result[..32].iter().all(|value| *value == 3));
    assert!((1..).zip(&result[32..]).all(|(wanted, value)| *value == wanted), "{result:?}");
}

#[test]
fn staging_memory_is_used_again() {
    let mut bench = Bench::new("basics");
    let mut data = bench.device.alloc::<u8>(100_000).unwrap();
    let mut reserved = 0;
    for round in 0..50_u8 {
        bench.queue.upload(&vec![round; 100_000], &mut data).unwrap();
        let back = bench.queue.download(&data).unwrap().wait(TIMEOUT).unwrap();
        assert!(back.iter().all(|byte| *byte == round));
        if round == 1 {
            reserved = bench.device.memory_usage().reserved;
        }
    }
    assert_eq!(bench.device.memory_usage().reserved, reserved);
    bench.queue.upload(&[], data.slice_mut(..0).unwrap()).unwrap().wait(TIMEOUT).unwrap();
    assert!(bench.queue.download(data.slice(5..5).unwrap()).unwrap().wait(TIMEOUT).unwrap().is_empty());
    let error = bench.queue.upload(&[1, 2, 3], data.slice_mut(..4).unwrap()).unwrap_err();
    assert_eq!(error.to_string(), "3 elements cannot be copied to 4");
}

#[test]
fn a_download_after_a_fault_reports_it() {
    let mut bench = Bench::new("faults");
    let data = bench.device.alloc_from(&[1_u32; 4]).unwrap();
    let write = bench.program.kernel("fault_write").unwrap();
    unsafe { bench.queue.launch(&write, 1, 1, &args![0x40_0000_0000_u64, 1_u32]) }.unwrap();
    let download = bench.queue.download(&data).unwrap();
    assert!(matches!(download.wait(TIMEOUT), Err(Error::Fault(_))));
}

/// The elements of `columns` x `rows` at (x, y) of an image with this pitch.
fn cut(image: &[u32], pitch: usize, (x, y): (usize, usize), (columns, rows): (usize, usize)) -> Vec<u32> {
    (y..y + rows).flat_map(|row| &image[row * pitch + x..row * pitch + x + columns]).copied().collect()
}

#[test]
fn rectangles_of_any_place_and_pitch_arrive_and_leave_the_rest() {
    let mut bench = Bench::new("basics");
    let image = Numbers::new(9).vec_u32(100 * 60);
    let source = bench.device.alloc_from(&image).unwrap();
    let mut target = bench.device.alloc_zeroed::<u32>(77 * 50).unwrap();
    for (from, to, size) in [
        ((0, 0), (0, 0), (77, 50)),
        ((23, 10), (0, 0), (77, 50)),
        ((99, 59), (76, 49), (1, 1)),
        ((5, 3), (70, 0), (7, 50)),
        ((0, 7), (1, 2), (76, 1)),
        ((3, 3), (3, 3), (0, 4)),
    ] {
        bench.queue.fill(&mut target, 0).unwrap();
        let part = source.plane(100).unwrap().part(from.0..from.0 + size.0, from.1..from.1 + size.1).unwrap();
        let place = target.plane_mut(77).unwrap().part(to.0..to.0 + size.0, to.1..to.1 + size.1);
        bench.queue.copy_2d(part, place.unwrap()).unwrap();
        let packed = bench.queue.download_2d(part).unwrap().wait(TIMEOUT).unwrap();
        let wanted = cut(&image, 100, from, size);
        assert_eq!(packed, wanted, "{size:?} from {from:?}");
        let got = target.to_vec().unwrap();
        assert_eq!(cut(&got, 77, to, size), wanted, "{size:?} to {to:?}");
        let others = got.iter().filter(|value| **value != 0).count();
        assert_eq!(others, wanted.iter().filter(|value| **value != 0).count(), "elements outside");

        // The same from memory of the process, with a pitch of its own.
        bench.queue.fill(&mut target, 0).unwrap();
        let place = target.plane_mut(77).unwrap().part(to.0..to.0 + size.0, to.1..to.1 + size.1);
        bench.queue.upload_2d(&image[from.1 * 100 + from.0..], 100, place.unwrap()).unwrap();
        assert_eq!(target.to_vec().unwrap(), got, "{size:?} to {to:?}");
    }
}

#[test]
fn rectangles_that_do_not_fit_are_refused() {
    let mut bench = Bench::new("basics");
    let source = bench.device.alloc::<u8>(60).unwrap();
    let mut target = bench.device.alloc::<u8>(60).unwrap();
    assert!(matches!(source.plane(7), Err(Error::Range(RangeError::Pitch { len: 60, pitch: 7 }))));
    assert!(source.plane(0).is_err() && source.plane(10).unwrap().part(.., ..7).is_err());
    let (plane, other) = (source.plane(10).unwrap(), target.plane_mut(12).unwrap());
    let error = bench.queue.copy_2d(plane, other).unwrap_err();
    assert_eq!(error.to_string(), "a rectangle of 10x6 elements cannot be copied to one of 12x5");
    for (elements, pitch) in [(59, 10), (60, 9), (0, 0)] {
        let error = bench.queue.upload_2d(&vec![0; elements], pitch, target.plane_mut(10).unwrap());
        assert!(matches!(error, Err(Error::Range(RangeError::Shapes { .. }))), "{elements} {pitch}");
    }
    let foreign = Bench::new("basics").device.alloc::<u8>(60).unwrap();
    let error = bench.queue.copy_2d(foreign.plane(10).unwrap(), target.plane_mut(10).unwrap());
    assert_eq!(error.unwrap_err().to_string(), "the source of the copy belongs to another device");
}

/// A rectangle in a block-linear surface; all in elements.
#[derive(Clone, Copy, Debug)]
struct InBlocks {
    columns: usize,
    rows: usize,
    height_log2: u32,
    origin: (usize, usize),
    size: (usize, usize),
}

fn in_blocks() -> impl Strategy<Value = InBlocks> {
    let axis = |most: usize| (1..=most, 0..=most, 0..=most);
    (axis(90), axis(70), 0..=5_u32).prop_map(|(x, y, height_log2)| InBlocks {
        columns: x.0 + x.1 + x.2,
        rows: y.0 + y.1 + y.2,
        height_log2,
        origin: (x.1, y.1),
        size: (x.0, y.0),
    })
}

/// Copies a rectangle from pitch-linear rows to a surface, and back from there, and compares all bytes.
fn through_blocks<T: Pod + PartialEq>(bench: &mut Bench, case: &InBlocks) {
    let InBlocks { columns, rows, height_log2, origin: (left, top), size: (wide, high) } = *case;
    let (size, width) = (size_of::<T>(), columns * size_of::<T>());
    let bytes = width.div_ceil(64) * rows.div_ceil(8 << height_log2) * (512 << height_log2);
    let before: Vec<u8> = Numbers::new(5).vec_u32(bytes / 4).iter().flat_map(|v| v.to_le_bytes()).collect();
    let image: Vec<u8> = Numbers::new(6).vec_u32(wide * high * size).iter().map(|v| *v as u8).collect();

    // Behind other data, at an aligned place that is a multiple of the element, with elements behind it.
    let start = 512 * size;
    let end = (start + bytes).next_multiple_of(size);
    let others = [vec![1; start], vec![2; end - start - bytes + 16 * size]];
    let mut memory = bench.device.alloc_from(&[&others[0][..], &before, &others[1]].concat()).unwrap();
    let mut surface = memory.slice_mut(start..).unwrap().cast::<T>().unwrap();
    let source = bench.device.alloc_from(&image).unwrap();
    let place = (left..left + wide, top..top + high);
    let target = SliceMut::from(&mut surface).blocks(columns, rows, height_log2).unwrap();
    let target = target.part(place.0.clone(), place.1.clone()).unwrap();
    bench.queue.copy_2d(Slice::from(&source).cast::<T>().unwrap().plane(wide).unwrap(), target).unwrap();
    let back = surface.as_slice().blocks(columns, rows, height_log2).unwrap();
    let back = bench.queue.download_2d(back.part(place.0, place.1).unwrap()).unwrap();

    let mut wanted = before;
    for (index, byte) in image.iter().enumerate() {
        let (x, y) = (left * size + index % (wide * size), top + index / (wide * size));
        wanted[block_linear_offset(width, height_log2, x, y)] = *byte;
    }
    assert!(bytemuck::cast_slice::<T, u8>(&back.wait(TIMEOUT).unwrap()) == image, "{case:?} of {size}, back");
    let got = memory.to_vec().unwrap();
    assert!(got == [&others[0][..], &wanted, &others[1]].concat(), "{case:?} of {size}");
}

#[test]
fn rectangles_of_block_linear_surfaces_are_where_the_layout_says() {
    let bench = RefCell::new(Bench::new("basics"));
    TestRunner::new(ProptestConfig { cases: 60, failure_persistence: None, ..Default::default() })
        .run(&(in_blocks(), 0..5), |(case, element)| {
            let bench = &mut bench.borrow_mut();
            match element {
                0 => through_blocks::<u8>(bench, &case),
                1 => through_blocks::<u16>(bench, &case),
                2 => through_blocks::<u32>(bench, &case),
                3 => through_blocks::<[u8; 3]>(bench, &case),
                _ => through_blocks::<u128>(bench, &case),
            }
            Ok(())
        })
        .unwrap();
}

#[test]
fn block_linear_surfaces_that_do_not_fit_are_refused() {
    let mut bench = Bench::new("basics");
    let mut memory = bench.device.alloc_zeroed::<u8>(4096 + 256).unwrap();
    let bytes = memory.slice(..4096).unwrap();
    assert_eq!(bytes.blocks(128, 16, 2).unwrap().columns(), 128);
    let error = |result: tegra_hcq::Result<tegra_hcq::Plane<'_, u8>>| result.unwrap_err().to_string();
    assert_eq!(
        error(bytes.blocks(129, 16, 2)),
        "a block-linear surface of 129x16 elements in blocks of 2^2 GOBs needs 6144 bytes, and the slice has 4096: \
         allocate whole blocks"
    );
    assert!(error(bytes.blocks(8, 8, 6)).ends_with("a block has at most 2^5 GOBs"));
    assert!(error(bytes.blocks(1 << 32, 8, 0)).ends_with("a row has at most 4 GiB"));
    assert!(bytes.blocks(128, 16, 2).unwrap().part(.., ..17).is_err());
    assert!(bytes.part(4000..4097).is_err() && bytes.part(4000..).unwrap().len() == 96);

    let odd = memory.slice_mut(256..).unwrap().blocks(128, 16, 2).unwrap();
    let refused = bench.queue.upload_2d(&[0; 2048], 128, odd).unwrap_err().to_string();
    assert!(refused.ends_with("is not a multiple of 512"), "{refused}");
    let surface = memory.slice_mut(..4096).unwrap().blocks(128, 16, 2).unwrap();
    assert!(matches!(bench.queue.fill_2d(surface, 0), Err(Error::Range(RangeError::BlockLinear))));
}

#[test]
fn every_call_takes_slices_by_value_and_by_reference() {
    let mut bench = Bench::new("basics");
    let fill = bench.program.kernel("fill_u32").unwrap();
    let mut data = bench.device.alloc_from(&[7_u32; 12]).unwrap();
    let (mut low, high) = data.split_at_mut(4).unwrap();
    let (mut middle, mut high) = high.split_at(4).unwrap();
    let part = &high.as_slice();
    bench.queue.copy(part, &mut low).unwrap();
    bench.queue.copy(*part, &mut middle).unwrap();
    bench.queue.copy(&low, &mut high).unwrap();
    bench.queue.upload(&[1, 2, 3, 4], &mut low).unwrap();
    bench.queue.fill(&mut middle, 5).unwrap();
    unsafe { bench.queue.launch(&fill, 1, 32, &args![&high.as_slice(), 6_u32, 2_u32]) }.unwrap();
    unsafe { bench.queue.launch(&fill, 1, 32, &args![&mut middle, 8_u32, 1_u32]) }.unwrap();
    assert_eq!(bench.queue.download(&low).unwrap().wait(TIMEOUT).unwrap(), [1, 2, 3, 4]);
    let mut builder = bench.device.graph();
    let copy = builder.copy(&low, &mut middle).unwrap();
    builder.fill(&mut low, 0).unwrap();
    let mut graph = builder.build().unwrap();
    bench.queue.replay(&mut graph).unwrap();
    graph.set_copy(copy, high.as_slice(), &mut middle).unwrap();
    bench.queue.replay(&mut graph).unwrap();
    bench.queue.wait(TIMEOUT).unwrap();
    assert_eq!(data.to_vec().unwrap(), [0, 0, 0, 0, 6, 6, 7, 7, 6, 6, 7, 7]);
}

#[test]
fn a_bf16_argument_arrives_with_its_bits() {
    // The upper half of a float: a kernel with a 16-bit parameter gets 1.5 as 0x3fc0.
    let [argument] = args![bf16::from_f32(1.5)];
    assert_eq!(argument.size(), 2);
    assert!(matches!(argument, tegra_hcq::Arg::U16(0x3fc0)), "{argument:?}");
}

/// The bytes of a rectangle in memory with this pitch.
fn lines(bytes: &[u8], start: usize, pitch: usize, line: usize, count: usize) -> Vec<u8> {
    (0..count).flat_map(|at| bytes[start + at * pitch..][..line].to_vec()).collect()
}

#[test]
fn work_by_address_does_what_work_on_buffers_does() {
    let mut bench = Bench::new("basics");
    let (device, queue) = (&bench.device, &mut bench.queue);
    let data: Vec<u8> = Numbers::new(3).vec_u32(2000).iter().flat_map(|word| word.to_le_bytes()).collect();
    let source = device.alloc_from(&data).unwrap();
    let target = device.alloc_zeroed::<u8>(8000).unwrap();
    let (from, to) = (source.gpu_va(), target.gpu_va());
    let read = |start: usize, len: usize| {
        let mut bytes = vec![0; len];
        unsafe { device.read_raw(to + start as u64, &mut bytes) }.unwrap();
        bytes
    };
    unsafe {
        queue.copy_raw(from + 3, to + 5, 1001).unwrap();
        queue.fill_raw(to + 2001, 0x5a_u8, 7).unwrap();
        queue.fill_raw(to + 2010, 0xbeef_u16, 5).unwrap();
        queue.fill_raw(to + 2020, -1.5_f32, 3).unwrap();
        queue.fill_raw(to + 7999, 1_u8, 1).unwrap();
        queue.wait(TIMEOUT).unwrap();
        assert_eq!(read(4, 1003), [&[0], &data[3..1004], &[0]].concat());
        let halves = [&[0_u8, 0x5a, 0x5a, 0x5a, 0x5a, 0x5a, 0x5a, 0x5a, 0, 0][..], &[0xef, 0xbe].repeat(5)];
        assert_eq!(read(2000, 20), halves.concat());
        assert_eq!(read(2020, 13), [&(-1.5_f32).to_le_bytes().repeat(3)[..], &[0]].concat());

        let plane = |gpu_va, pitch| RawPlane { gpu_va, pitch };
        queue.copy_raw_2d(plane(from + 1, 90), plane(to + 3000, 101), 70, 9).unwrap();
        queue.fill_raw_2d(plane(to + 4000, 50), 0x1234_u16, 11, 8).unwrap();
        queue.fill_raw_2d(plane(to + 4500, 8), 0x77_u32, 2, 8).unwrap();
        queue.upload_raw_2d(&data, 64, plane(to + 5000, 80), 60, 10).unwrap();
        queue.upload_raw(&data[9..109], to + 6000).unwrap();
        let back = queue.download_raw_2d(plane(to + 3000, 101), 70, 9).unwrap();
        let linear = queue.download_raw(to + 5999, 102).unwrap();
        assert_eq!(back.wait(TIMEOUT).unwrap(), lines(&data, 1, 90, 70, 9));
        assert_eq!(linear.wait(TIMEOUT).unwrap(), [&[0], &data[9..109], &[0]].concat());
        assert_eq!(lines(&read(5000, 800), 0, 80, 60, 10), lines(&data, 0, 64, 60, 10));
        assert!(lines(&read(5000, 800), 60, 80, 20, 10).iter().all(|byte| *byte == 0), "the gaps");
        assert_eq!(lines(&read(4000, 400), 0, 50, 22, 8), [0x34, 0x12].repeat(88));
        assert!(lines(&read(4000, 400), 22, 50, 28, 8).iter().all(|byte| *byte == 0), "the gaps");
        assert_eq!(read(4500, 65), [&[0x77, 0, 0, 0].repeat(16)[..], &[0]].concat());
        device.write_raw(&data[..50], to + 6).unwrap();
        assert_eq!(read(6, 50), data[..50]);
    }
}

#[test]
fn work_by_address_beyond_an_allocation_is_refused() {
    let mut bench = Bench::new("basics");
    let (device, queue) = (&bench.device, &mut bench.queue);
    let buffer = device.alloc_zeroed::<u8>(1000).unwrap();
    let other = device.alloc_zeroed::<u8>(5000).unwrap();
    let (va, to) = (buffer.gpu_va(), other.gpu_va());
    let plane = |gpu_va, pitch| RawPlane { gpu_va, pitch };
    let nowhere = 0x40_0000_0000;
    unsafe {
        for refused in [
            queue.copy_raw(va + 1, to, 1000),
            queue.copy_raw(to, va + 1, 1000),
            queue.copy_raw_2d(plane(va, 100), plane(to, 100), 50, 11),
            queue.copy_raw_2d(plane(to, 100), plane(va, 99), 100, 11),
            queue.fill_raw(va + 996, 0_u16, 3),
            queue.fill_raw(va, 0_u32, usize::MAX),
            queue.fill_raw_2d(plane(va, 100), 0_u8, 1, 11),
            queue.upload_raw(&[0; 11], va + 990).map(drop),
            queue.download_raw(va + 990, 11).map(drop),
            device.read_raw(va + 999, &mut [0; 2]),
            device.write_raw(&[0; 2], va + 999),
        ] {
            let refused = refused.unwrap_err();
            assert!(matches!(refused, Error::Range(RangeError::Memory { len: 1000, .. })), "{refused}");
        }
        let error = queue.copy_raw(va + 1, to, 1000).unwrap_err().to_string();
        assert_eq!(error, format!("1000 bytes at {:#x} do not lie in the 1000 bytes at {va:#x}", va + 1));
        assert!(matches!(queue.fill_raw(va + 1, 0_u16, 3), Err(Error::Encoding(_))));
        // Nothing is used by an empty copy, and a copy has no room for lines of 4 GiB.
        queue.copy_raw(nowhere, nowhere, 0).unwrap();
        queue.copy_raw_2d(plane(nowhere, 7), plane(nowhere, 7), 5, 0).unwrap();
        queue.fill_raw_2d(plane(nowhere, 7), 0_u8, 0, 5).unwrap();
        let wide = plane(nowhere, 1 << 32);
        assert!(matches!(
            queue.copy_raw_2d(wide, wide, 5, 2),
            Err(Error::Range(RangeError::TooLarge { .. }))
        ));

        drop(buffer);
        let error = queue.copy_raw(va, to, 10).unwrap_err().to_string();
        assert_eq!(
            error,
            format!("10 bytes at {va:#x} do not lie in the memory at {va:#x}, which was freed")
        );
        let error = device.read_raw(nowhere, &mut [0; 4]).unwrap_err();
        assert_eq!(error.to_string(), "the address 0x4000000000 is in no allocation of the device");
        assert!(device.write_raw(&[0; 4], nowhere).is_err());
        queue.wait(TIMEOUT).unwrap();
        // Outside of all memory, the GPU refuses.
        queue.copy_raw(to, nowhere, 4).unwrap();
        assert!(matches!(queue.wait(TIMEOUT), Err(Error::Fault(_))));
    }
}
