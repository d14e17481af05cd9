//! Kernels of the fixture cubins on the software Orin: typed launches, attributes, occupancy.

use std::time::Duration;

use tegra_hcq::{Arg, ByValue, Count, Device, DeviceKind, Error, Limit, Pod, Program, RangeError, check};
use test_support::allocations;

const TIMEOUT: Duration = Duration::from_secs(120);

#[global_allocator]
static ALLOCATOR: allocations::Counting = allocations::Counting;

/// A device on a new software Orin, with `kernels/NAME.cubin` loaded.
fn load(name: &str) -> (Device, Program) {
    let path = format!("{}/../../kernels/{name}.cubin", env!("CARGO_MANIFEST_DIR"));
    let device = Device::open(DeviceKind::Sim).expect("the software Orin opens");
    let program = Program::load(&device, &std::fs::read(path).expect("the cubin exists"));
    (device, program.expect("the cubin loads"))
}

type VectorAdd = (&'static [f32], &'static [f32], &'static mut [f32], Count<u32>);

#[test]
fn a_typed_kernel_is_launched_again_and_again_with_the_same_buffers_and_allocates_nothing() {
    let (device, program) = load("vector_add");
    let add = unsafe { program.typed::<VectorAdd>("vector_add") }.unwrap();
    let a = device.alloc_from(&[1.5_f32; 300]).unwrap();
    let b = device.alloc_from(&[2.0_f32; 300]).unwrap();
    let mut c = device.alloc_zeroed::<f32>(300).unwrap();
    let mut queue = device.queue().unwrap();
    add.launch(&mut queue, 3, 128, (&a, &b, &mut c, 300)).unwrap();
    queue.wait(TIMEOUT).unwrap();
    assert_eq!(c.to_vec().unwrap(), vec![3.5; 300]);

    let before = allocations::count();
    for _ in 0..100 {
        add.launch(&mut queue, 3, 128, (&b, &b, &mut c, 300)).unwrap();
        queue.submit().unwrap().wait(TIMEOUT).unwrap();
    }
    assert_eq!(allocations::count() - before, 0);
    assert_eq!(c.to_vec().unwrap(), vec![4.0; 300]);
}

/// The reason why a launch was refused.
fn refused(result: tegra_hcq::Result<()>) -> String {
    match result.unwrap_err() {
        Error::Arguments { reason, .. } => reason,
        other => panic!("{other}"),
    }
}

#[test]
fn a_count_beyond_a_buffer_is_refused_before_the_launch() {
    let (device, program) = load("vector_add");
    let add = unsafe { program.typed::<VectorAdd>("vector_add") }.unwrap();
    let a = device.alloc_from(&[1.0_f32; 300]).unwrap();
    let b = device.alloc_from(&[2.0_f32; 299]).unwrap();
    let mut c = device.alloc_zeroed::<f32>(1000).unwrap();
    let mut queue = device.queue().unwrap();
    let mut launch = |count| add.launch(&mut queue, 4, 256, (&a, &b, &mut c, count));
    assert_eq!(refused(launch(300)), "argument 3 counts 300 elements, but argument 1 has 299");
    assert_eq!(refused(launch(u32::MAX)), "argument 3 counts 4294967295 elements, but argument 0 has 300");
    launch(299).unwrap();
    let error = add.launch(&mut queue, 1, 256, (&a, &b, c.slice_mut(..100).unwrap(), 101));
    assert_eq!(refused(error), "argument 3 counts 101 elements, but argument 2 has 100");
    queue.wait(TIMEOUT).unwrap();
    let sum = c.to_vec().unwrap();
    assert!(sum[..299].iter().all(|x| *x == 3.0) && sum[299..].iter().all(|x| *x == 0.0));
}

#[test]
fn a_condition_is_checked_by_launches_and_in_graphs() {
    let (device, program) = load("dynamic_shared");
    let sum = unsafe {
        program.typed_if::<(&[f32], &mut [f32])>("dynamic_sum", |size, (input, out)| {
            size.threads_x() <= input.len() as u64 && size.blocks() <= out.len() as u64
        })
    }
    .unwrap();
    let input = device.alloc_from(&[0.5_f32; 64]).unwrap();
    let mut out = device.alloc_zeroed::<f32>(1).unwrap();
    let mut queue = device.queue().unwrap();
    let mut builder = device.graph();
    let node = sum.record_with_shared(&mut builder, 1, 64, 256, (&input, &mut out)).unwrap();
    let wrong = sum.record_with_shared(&mut builder, 1, 65, 260, (&input, &mut out));
    assert!(
        refused(wrong.map(drop))
            .starts_with("the arguments do not meet the condition of its launches (grid 1x1x1")
    );
    let mut graph = builder.build().unwrap();
    assert_eq!(graph.len(), 1);
    refused(sum.launch_with_shared(&mut queue, 2, 32, 256, (&input, &mut out)));
    refused(graph.set_launch(&node, 1, 64, (input.slice(1..).unwrap(), &mut out)));
    queue.replay(&mut graph).unwrap().wait(TIMEOUT).unwrap();
    assert_eq!(out.to_vec().unwrap(), [32.0]);
    graph.set_launch(&node, 1, 32, (input.slice(1..33).unwrap(), &mut out)).unwrap();
    queue.replay(&mut graph).unwrap().wait(TIMEOUT).unwrap();
    assert_eq!(out.to_vec().unwrap(), [16.0]);
}

#[test]
fn a_recorded_launch_changes_as_a_whole_or_not_at_all_and_keeps_its_buffers() {
    let (device, program) = load("vector_add");
    let add = unsafe { program.typed::<VectorAdd>("vector_add") }.unwrap();
    let a = device.alloc_from(&[1.0_f32; 300]).unwrap();
    let b = device.alloc_from(&[2.0_f32; 300]).unwrap();
    let mut c = device.alloc_zeroed::<f32>(300).unwrap();
    let mut queue = device.queue().unwrap();
    let mut builder = device.graph();
    let node = add.record(&mut builder, 2, 128, (&a, &b, &mut c, 200)).unwrap();
    builder.copy(c.slice(..100).unwrap(), device.alloc(100).unwrap().slice_mut(..).unwrap()).unwrap();
    let mut graph = builder.build().unwrap();
    let mut replay = |graph: &mut _| queue.replay(graph).unwrap().wait(TIMEOUT).unwrap();
    replay(&mut graph);
    assert!(c.to_vec().unwrap().iter().enumerate().all(|(i, x)| *x == if i < 200 { 3.0 } else { 0.0 }));

    // Sizes, a buffer and a number; a refused change leaves all of them.
    graph.set_launch(&node, 3, 128, (&a, &a, &mut c, 300)).unwrap();
    let before = allocations::count();
    graph.set_launch(&node, 3, 128, (&a, &a, &mut c, 299)).unwrap();
    graph.set_launch(&node, 3, 128, (&a, &a, &mut c, 300)).unwrap();
    assert_eq!(allocations::count() - before, 0);
    assert!(graph.set_launch(&node, 1, 2000, (&b, &b, &mut c, 1)).is_err());
    refused(graph.set_launch(&node, 1, 1, (&b, &b, &mut c, 301)));
    replay(&mut graph);
    assert_eq!(c.to_vec().unwrap(), [2.0; 300]);

    let mut foreign = device.graph();
    add.record(&mut foreign, 1, 128, (&a, &b, &mut c, 100)).unwrap();
    let mut foreign = foreign.build().unwrap();
    let error = foreign.set_launch(&node, 1, 128, (&a, &b, &mut c, 100)).unwrap_err();
    assert!(matches!(error, Error::Range(RangeError::OtherGraph)), "{error}");

    // A view keeps replays away, and the graph its dropped buffers alive.
    let view = c.view().unwrap();
    assert!(matches!(queue.replay(&mut graph), Err(Error::Viewed)));
    drop(view);
    drop((a, b));
    let others: Vec<_> = (0..20).map(|_| device.alloc_from(&[9.0_f32; 300]).unwrap()).collect();
    for _ in 0..5 {
        queue.replay(&mut graph).unwrap();
    }
    queue.wait(TIMEOUT).unwrap();
    assert_eq!(c.to_vec().unwrap(), [2.0; 300]);
    drop(c);
    queue.replay(&mut graph).unwrap().wait(TIMEOUT).unwrap();
    assert!(
        others.iter().all(|other| other.to_vec().unwrap() == [9.0; 300]),
        "memory in use is not handed out"
    );
}

#[test]
fn parts_of_one_buffer_are_read_and_written_by_one_launch() {
    let (device, program) = load("vector_add");
    let add = unsafe { program.typed::<VectorAdd>("vector_add") }.unwrap();
    let mut data = device.alloc_from(&[1.0_f32, 2.0, 3.0, 4.0, 0.0, 0.0]).unwrap();
    let mut queue = device.queue().unwrap();
    let (inputs, mut out) = data.split_at_mut(4).unwrap();
    let (left, right) = inputs.split_at(2).unwrap();
    add.launch(&mut queue, 1, 32, (&left, right, &mut out, 2)).unwrap();
    add.launch(&mut queue, 1, 32, (left, &out.as_slice(), &mut device.alloc(2).unwrap(), 2)).unwrap();
    queue.wait(TIMEOUT).unwrap();
    assert_eq!(data.to_vec().unwrap(), [1.0, 2.0, 3.0, 4.0, 4.0, 6.0]);
    assert!(data.split_at_mut(7).is_err());
}

/// The fixture's `struct Parameters`, with explicit padding.
#[repr(C)]
#[derive(Clone, Copy)]
struct Parameters {
    count: u32,
    padding0: u32,
    bias: f64,
    inner: [Inner; 3],
    steps: [i16; 5],
    padding1: [u16; 3],
    input: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Inner {
    scale: f32,
    shift: i8,
    padding: [u8; 3],
}

// SAFETY: `repr(C)`, 8 bytes without implicit padding, and every bit pattern is valid for each field.
unsafe impl bytemuck::Zeroable for Inner {}
// SAFETY: as above.
unsafe impl Pod for Inner {}
// SAFETY: `repr(C)`, 64 bytes without implicit padding, and every bit pattern is valid for each field.
unsafe impl bytemuck::Zeroable for Parameters {}
// SAFETY: as above.
unsafe impl Pod for Parameters {}

#[test]
fn a_struct_goes_by_value() {
    let (device, program) = load("params");
    let kernel = unsafe { program.typed::<(ByValue<Parameters>, &mut [f32])>("struct_param") }.unwrap();
    let input = device.alloc_from(&[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
    let mut out = device.alloc_zeroed::<f32>(6).unwrap();
    let inner = |scale, shift| Inner { scale, shift, padding: [0; 3] };
    let parameters = Parameters {
        count: 6,
        padding0: 0,
        bias: 0.5,
        inner: [inner(1.0, 0), inner(10.0, -1), inner(100.0, 2)],
        steps: [0, 1000, 2000, 3000, 4000],
        padding1: [0; 3],
        input: input.gpu_va(),
    };
    let mut queue = device.queue().unwrap();
    kernel.launch(&mut queue, 1, 32, (ByValue(parameters), &mut out)).unwrap();
    queue.wait(TIMEOUT).unwrap();
    let expected = [1.5, 1019.5, 2302.5, 3004.5, 4049.5, 602.5];
    assert_eq!(out.to_vec().unwrap(), expected);
}

#[test]
fn code_may_use_the_address_of_a_parameter() {
    let path = format!("{}/../../kernels/params.cubin", env!("CARGO_MANIFEST_DIR"));
    let device = check::open(check::Tools::KERNELS).unwrap();
    let program = Program::load(&device, &std::fs::read(path).unwrap()).unwrap();
    let kernel = program.kernel("param_by_reference").unwrap();
    let out = device.alloc_zeroed::<i32>(8).unwrap();
    let table = |factor: i32| {
        let values = (0..8).flat_map(|at| (factor * at * at).to_le_bytes());
        values.chain(out.gpu_va().to_le_bytes()).collect::<Vec<u8>>()
    };
    let expected = |factor: i32, before: i32| {
        (0..8).map(|at: i32| factor * (at * at - (at + 1) % 8 * ((at + 1) % 8)) + before).collect::<Vec<_>>()
    };
    let mut queue = device.queue().unwrap();
    for round in 1..4 {
        let bytes = table(round);
        let arguments = [Arg::from(100 * round), Arg::Bytes(&bytes)];
        unsafe { queue.launch(&kernel, 1, 8, &arguments) }.unwrap();
        queue.wait(TIMEOUT).unwrap();
        assert_eq!(out.to_vec().unwrap(), expected(round, 100 * round));
    }
    let mut graph = device.graph();
    let bytes = table(5);
    unsafe { graph.launch(&kernel, 1, 8, &[Arg::from(7), Arg::Bytes(&bytes)]) }.unwrap();
    let mut graph = graph.build().unwrap();
    queue.replay(&mut graph).unwrap().wait(TIMEOUT).unwrap();
    assert_eq!(out.to_vec().unwrap(), expected(5, 7));
    let found = check::findings(&device);
    assert!(found.is_empty(), "{}", check::text(&found));
}

#[test]
fn the_checks_see_work_by_address() {
    let path = format!("{}/../../kernels/vector_add.cubin", env!("CARGO_MANIFEST_DIR"));
    let device = check::open(check::Tools::KERNELS).unwrap();
    let program = Program::load(&device, &std::fs::read(path).unwrap()).unwrap();
    let kernel = program.kernel("vector_add").unwrap();
    let [b, c] = ["b", "sums"].map(|name| device.alloc::<f32>(100).unwrap().named(name));
    let a = device.alloc_unified::<f32>(100).unwrap().named("a");
    let mut queue = device.queue().unwrap();
    let block = |count: u32| {
        let mut block: Vec<u8> =
            [&a, &b, &c].into_iter().flat_map(|part| part.gpu_va().to_le_bytes()).collect();
        block.extend(count.to_le_bytes());
        block
    };
    // `a` was written by the CPU in place, `b` by both by address: nothing is uninitialised.
    let first = a.cpu_address().unwrap().unwrap();
    (0..100).for_each(|at| unsafe { first.add(at).write_volatile(1.0) });
    unsafe {
        device.write_raw(&2.0_f32.to_le_bytes().repeat(50), b.gpu_va()).unwrap();
        queue.fill_raw(b.gpu_va() + 200, 2.0_f32, 50).unwrap();
        queue.launch_raw(&kernel, 1, 128, 0, &block(100)).unwrap();
    }
    queue.wait(TIMEOUT).unwrap();
    let found = check::findings(&device);
    assert!(found.is_empty(), "{}", check::text(&found));
    assert_eq!(c.to_vec().unwrap(), [3.0; 100]);
    unsafe { queue.launch_raw(&kernel, 1, 128, 0, &block(104)) }.unwrap();
    queue.wait(TIMEOUT).unwrap();
    let found = check::findings(&device);
    let objects =
        || found.iter().filter_map(|found| found.object.as_ref().map(|object| object.name.as_str()));
    for name in ["a", "b", "sums"] {
        assert_eq!(objects().filter(|object| *object == name).count(), 1, "{}", check::text(&found));
    }
}

#[test]
fn a_tuple_that_does_not_fit_the_cubin_is_refused_by_name() {
    let (_device, program) = load("vector_add");
    let error = unsafe { program.typed::<(&[f32], u32)>("vector_add") }.unwrap_err();
    assert_eq!(error.to_string(), "kernel vector_add: has 4 parameters, the signature has 2");

    type Short = (&'static [f32], &'static [f32], u32, u32);
    let error = unsafe { program.typed::<Short>("vector_add") }.unwrap_err();
    assert_eq!(
        error.to_string(),
        "kernel vector_add: parameter 2 has 8 bytes, but u32 of the signature has 4"
    );

    let error = unsafe { program.typed::<()>("no_such_kernel") }.unwrap_err();
    assert!(matches!(error, Error::Cubin(_)), "{error}");
}

#[test]
fn attributes_are_those_of_the_source() {
    let (_device, program) = load("params");
    let bounded = program.kernel("pointer_params").unwrap().attributes();
    assert_eq!(bounded.max_threads, 128, "__launch_bounds__(128)");
    assert_eq!((bounded.binary_version, bounded.ptx_version), ((8, 7), Some((8, 7))));
    assert_eq!((bounded.required_block, bounded.cluster), (None, None));
    assert_eq!((bounded.static_shared_bytes, bounded.constant_bytes), (0, 0));
    assert_eq!(bounded.max_dynamic_shared_bytes, 163 << 10);
    assert!((8..=255).contains(&bounded.registers), "{} registers", bounded.registers);

    let (_device, program) = load("globals");
    let name = program.kernel_names().next().unwrap().to_owned();
    let attributes = program.kernel(&name).unwrap().attributes();
    assert_eq!(attributes.constant_bytes, 5 * 4 + 16 * 4, "taps and palette");
}

#[test]
fn a_launch_takes_exactly_what_the_attributes_allow() {
    let (device, program) = load("dynamic_shared");
    let kernel = program.kernel("dynamic_sum").unwrap();
    let most = kernel.attributes().max_dynamic_shared_bytes;
    assert_eq!(kernel.occupancy(64, most).unwrap().blocks_per_sm, 1);
    let error = kernel.occupancy(64, most + 1).unwrap_err().to_string();
    assert!(error.ends_with("does not fit an SM: not enough shared memory"), "{error}");

    let typed = unsafe { program.typed::<(&[f32], &mut [f32])>("dynamic_sum") }.unwrap();
    let input = device.alloc_from(&[0.5_f32; 64]).unwrap();
    let mut out = device.alloc_zeroed::<f32>(1).unwrap();
    let mut queue = device.queue().unwrap();
    let error = typed.launch_with_shared(&mut queue, 1, 64, most + 1, (&input, &mut out)).unwrap_err();
    assert!(matches!(error, Error::Launch(_)), "{error}");
    typed.launch_with_shared(&mut queue, 1, 64, most, (&input, &mut out)).unwrap();
    queue.wait(TIMEOUT).unwrap();
    assert_eq!(out.to_vec().unwrap(), [32.0]);
}

#[test]
fn occupancy_of_a_loaded_kernel_follows_block_and_shared_memory() {
    let (device, program) = load("vector_add");
    let kernel = program.kernel("vector_add").unwrap();
    assert!(kernel.attributes().registers <= 40, "few enough for full occupancy");
    let full = kernel.occupancy(256, 0).unwrap();
    assert_eq!((full.blocks_per_sm, full.warps_per_sm, full.limited_by), (6, 48, Limit::Warps));
    assert_eq!(full.max_warps_per_sm, 48);
    let few = kernel.occupancy((16, 8), 48 << 10).unwrap();
    assert_eq!((few.blocks_per_sm, few.warps_per_sm, few.limited_by), (3, 12, Limit::SharedMemory));
    assert_eq!(kernel.occupancy(32, 0).unwrap().limited_by, Limit::Blocks);
    assert!(kernel.occupancy(1025, 0).is_err());

    // One block of 1,024 or 992 threads fits, two of 768 do.
    let sms = device.info().sm_count;
    assert_eq!(kernel.fullest_block(1024, |_| 0).unwrap(), (768, 2 * sms));
    assert_eq!(kernel.fullest_block(0, |_| 0).unwrap(), (1, 16 * sms));
    assert_eq!(kernel.fullest_block(100, |_| 0).unwrap(), (96, 16 * sms), "12 blocks of 100 are fewer");
    // 81 KiB each, two of 164; 128 bytes per thread and 1 KiB: two of 640, as many threads as four of 320.
    assert_eq!(kernel.fullest_block(736, |_| 80 << 10).unwrap(), (736, 2 * sms));
    assert_eq!(kernel.fullest_block(1024, |threads| 128 * threads).unwrap().0, 640);
    assert!(kernel.fullest_block(1024, |_| 164 << 10).is_err());
}
