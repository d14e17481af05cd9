//! Copies of parts and rectangles of buffers, and staged copies from and to memory of the process.

use std::time::Duration;

use half::bf16;
use tegra_hcq::{Error, RangeError, args};
use test_support::{Bench, Numbers, TIMEOUT};

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
