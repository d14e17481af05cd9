//! What programs do: launches, copies, streams, events, graphs, memory of each kind.

use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::support::*;
use crate::sweep::{call, make};

#[test]
fn vectors_are_added_in_device_managed_pinned_and_pooled_memory() {
    let setup = Setup::new();
    let ones: Vec<f32> = (0..1000).map(|index| index as f32).collect();
    let bytes = size_of_val(&ones[..]);
    let a = upload(&ones);
    // SAFETY: places and elements are valid; each memory is used inside its bounds until it is freed.
    unsafe {
        let managed: u64 = made(|place| cuMemAllocManaged(place, bytes, 1));
        let mut pinned: *mut c_void = core::ptr::null_mut();
        ok(cuMemHostAlloc(&raw mut pinned, bytes, 0));
        // One address for CPU and GPU.
        let managed_elements = core::slice::from_raw_parts_mut(managed as usize as *mut f32, 1000);
        managed_elements.copy_from_slice(&ones);
        ok(setup.add(0, [a, managed, pinned.addr() as u64], 1000));
        ok(cuCtxSynchronize());
        let sums = core::slice::from_raw_parts(pinned.cast::<f32>(), 1000);
        assert!(sums.iter().zip(&ones).all(|(sum, one)| *sum == 2.0 * one));
        let pooled: u64 = made(|place| cuMemAllocAsync(place, bytes, 0));
        ok(setup.add(0, [a, pinned.addr() as u64, pooled], 1000));
        assert_eq!(download::<f32>(pooled, 1000)[999], 3.0 * 999.0);
        ok(cuMemFreeAsync(pooled, 0));
        assert_eq!(
            made::<u64>(|place| cuMemAllocAsync(place, bytes, 0)),
            pooled,
            "the stream gets its block back"
        );
        let mut kind = 0_u32;
        ok(cuPointerGetAttribute((&raw mut kind).cast(), 2, pinned.addr() as u64 + 8));
        assert_eq!(kind, 1, "CU_MEMORYTYPE_HOST");
        ok(cuMemFreeHost(pinned));
        // What has been freed may belong to another test at once; `sweep` frees twice, in a process of its own.
        gives(cuMemFree_v2(managed + 4), 1);
        ok(cuMemFree_v2(managed));
        ok(cuMemFree_v2(a));
    }
}

#[test]
fn functions_are_launched_as_before_cuda_4() {
    let setup = Setup::new();
    let (a, b) = (upload(&[1.0; 64]), upload(&[0.0; 64]));
    let add = setup.add as u64;
    let at = |value: &u64| core::ptr::from_ref(value).expose_provenance() as u64;
    gives(call("cuLaunch", [add]), 1);
    ok(call("cuFuncSetBlockShape", [add, 32, 1, 1]));
    ok(call("cuFuncSetSharedSize", [add, 256]));
    gives(call("cuLaunch", [add]), 1);
    for (offset, address) in [(0, a), (8, a), (16, b)] {
        ok(call("cuParamSetv", [add, offset, at(&address), 8]));
    }
    gives(call("cuLaunch", [add]), 1);
    ok(call("cuParamSeti", [add, 24, 64]));
    ok(call("cuParamSetSize", [add, 28]));
    ok(call("cuLaunch", [add]));
    ok(call("cuCtxSynchronize", []));
    assert_eq!(download::<f32>(b, 64)[30..34], [2.0, 2.0, 0.0, 0.0]);
    ok(call("cuParamSetv", [add, 8, at(&b), 8]));
    ok(call("cuLaunchGridAsync", [add, 2, 1, 2]));
    ok(call("cuLaunchGrid", [add, 1, 2]));
    ok(call("cuCtxSynchronize", []));
    assert_eq!(download::<f32>(b, 64)[62..], [1.0; 2]);
    for (symbol, words) in [
        ("cuParamSetv", [add, 28, at(&a), 4]),
        ("cuParamSetv", [add, 0, at(&a), 1 << 31]),
        ("cuParamSeti", [add, 25, 0, 0]),
        ("cuParamSetf", [add, u64::MAX, 0, 0]),
        ("cuParamSetSize", [add, 29, 0, 0]),
        ("cuLaunchGrid", [add, 0, 1, 0]),
        ("cuLaunchGrid", [add, u64::MAX, 1, 0]),
        ("cuFuncSetBlockShape", [add, u64::MAX, 1, 1]),
    ] {
        gives(call(symbol, words), 1);
    }
}

#[test]
fn a_launch_as_the_one_before_finds_that_something_has_changed() {
    let setup = Setup::new();
    let data = upload(&[1.0; 64]);
    // SAFETY: places are valid; the memory outlives the work.
    unsafe {
        ok(setup.add(0, [data; 3], 64));
        let other: Handle = made(|place| cuCtxCreate_v2(place, 0, 0));
        gives(setup.add(0, [data; 3], 64), 400);
        ok(cuCtxDestroy_v2(other));
        ok(cuCtxSetCurrent(setup.context));
        ok(setup.add(0, [data; 3], 64));
        ok(cuCtxSynchronize());
        assert_eq!(download::<f32>(data, 64), [4.0; 64]);
        ok(cuModuleUnload(setup.module));
        gives(setup.add(0, [data; 3], 64), 400);
    }
}

#[test]
fn streams_order_their_work_and_events_order_streams() {
    let setup = Setup::new();
    let (a, b) = (upload(&[1.0; 512]), upload(&[2.0; 512]));
    let c = upload(&[0.0; 512]);
    let calls = AtomicU32::new(0);
    unsafe extern "C" fn count(calls: *mut c_void) {
        // SAFETY: the counter of the test, which outlives the stream's work.
        unsafe { &*calls.cast::<AtomicU32>() }.fetch_add(1, Ordering::SeqCst);
    }
    // SAFETY: places are valid; the memory and the counter outlive the work, which is waited for.
    unsafe {
        let [first, second] = [0, 1].map(|flags| made::<Handle>(|place| cuStreamCreate(place, flags)));
        let [start, middle] = [0, 0].map(|flags| made::<Handle>(|place| cuEventCreate(place, flags)));
        ok(cuEventRecord(start, first));
        ok(setup.add(first, [a, b, c], 512));
        ok(cuLaunchHostFunc(first, Some(count), (&raw const calls).cast_mut().cast()));
        ok(cuEventRecord(middle, first));
        ok(cuStreamWaitEvent(second, middle, 0));
        ok(setup.add(second, [c, b, c], 512));
        ok(cuStreamSynchronize(second));
        assert_eq!(calls.load(Ordering::SeqCst), 1, "the host's function runs in the stream's order");
        assert_eq!(download::<f32>(c, 512), [5.0; 512]);
        ok(cuEventSynchronize(middle));
        assert!(made::<f32>(|place| cuEventElapsedTime(place, start, middle)) > 0.0);
        // The legacy stream waits for blocking streams.
        ok(setup.add(first, [a, a, c], 512));
        ok(setup.add(0, [c, b, c], 512));
        assert_eq!(download::<f32>(c, 512), [4.0; 512]);
        for stream in [first, second] {
            ok(setup.add(stream, [a, b, c], 512));
            ok(cuStreamDestroy_v2(stream));
            gives(setup.add(stream, [a, b, c], 512), 400);
            gives(cuStreamDestroy_v2(stream), 400);
        }
        ok(cuEventDestroy_v2(start));
        gives(cuEventRecord(start, 0), 400);
    }
}

#[test]
fn an_event_answers_for_its_newest_record_whichever_thread_made_it() {
    let setup = Setup::new();
    let held = AtomicU32::new(1);
    unsafe extern "C" fn hold(held: *mut c_void) {
        // SAFETY: the variable of the test, which outlives the stream's work.
        let held = unsafe { &*held.cast::<AtomicU32>() };
        while held.load(Ordering::SeqCst) != 0 {
            std::thread::yield_now();
        }
    }
    // SAFETY: places are valid; the variable outlives the work, which is waited for.
    unsafe {
        for flags in [0, 2] {
            let [quiet, busy] = [1, 1].map(|flags| made::<Handle>(|place| cuStreamCreate(place, flags)));
            let event: Handle = made(|place| cuEventCreate(place, flags));
            let argument = (&raw const held).cast_mut().cast::<c_void>().addr();
            ok(cuEventRecord(event, quiet));
            ok(cuEventSynchronize(event));
            ok(cuEventQuery(event));
            held.store(1, Ordering::SeqCst);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    ok(cuCtxSetCurrent(setup.context));
                    ok(cuLaunchHostFunc(busy, Some(hold), core::ptr::with_exposed_provenance_mut(argument)));
                    ok(cuEventRecord(event, busy));
                    gives(cuEventQuery(event), 600);
                });
            });
            gives(cuEventQuery(event), 600);
            // The same handles as this thread's last record.
            ok(cuEventRecord(event, quiet));
            ok(cuEventSynchronize(event));
            ok(cuEventQuery(event));
            ok(cuStreamBeginCapture_v2(quiet, 0));
            ok(cuEventRecord(event, quiet));
            gives(cuEventQuery(event), 907);
            ok(cuEventRecord(event, busy));
            gives(cuEventQuery(event), 600);
            made::<Handle>(|place| cuStreamEndCapture(quiet, place));
            held.store(0, Ordering::SeqCst);
            ok(cuEventSynchronize(event));
            ok(cuEventQuery(event));
            ok(cuEventDestroy_v2(event));
            gives(cuEventQuery(event), 400);
            gives(cuEventRecord(event, busy), 400);
        }
    }
}

/// Launches a kernel with parameters cooperatively, without parameters.
unsafe fn cooperative(function: Handle, blocks: u32, stream: Handle) -> u32 {
    let none = core::ptr::null_mut();
    // SAFETY: a launch without the parameters of its kernel is refused.
    unsafe { cuLaunchCooperativeKernel(function, blocks, 1, 1, 256, 1, 1, 0, stream, none) }
}

#[test]
fn a_captured_graph_repeats_its_work() {
    let setup = Setup::new();
    let (a, b) = (upload(&[1.0; 256]), upload(&[0.0; 256]));
    let host = [3.0_f32; 256];
    // SAFETY: places are valid; the memory and the host's elements outlive the graph's work.
    unsafe {
        let stream: Handle = made(|place| cuStreamCreate(place, 1));
        ok(cuStreamBeginCapture_v2(stream, 0));
        gives(cuStreamSynchronize(stream), 900);
        let mut graph = 0;
        gives(cuStreamEndCapture(stream, &raw mut graph), 901);
        // What makes a capture invalid, and what does not: as NVIDIA's library answers on an H100.
        let (event, never): (Handle, Handle) = (made(|p| cuEventCreate(p, 0)), made(|p| cuEventCreate(p, 0)));
        ok(cuEventRecord(event, 0));
        let refused: [(&dyn Fn() -> u32, u32, u32); 6] = [
            (&|| cuStreamWaitEvent(stream, 0, 0), 400, 901),
            (&|| cuStreamWaitEvent(stream, event, 0), 905, 901),
            (&|| cuStreamWaitEvent(stream, never, 0), 0, 0),
            (&|| cuGraphLaunch(0, stream), 900, 901),
            (&|| cooperative(setup.add, 1 << 20, stream), 720, 901),
            (&|| cooperative(setup.add, 1, stream), 1, 0),
        ];
        for (call, code, end) in refused {
            ok(cuStreamBeginCapture_v2(stream, 0));
            gives(call(), code);
            gives(cuStreamEndCapture(stream, &raw mut graph), end);
        }
        ok(cuStreamBeginCapture_v2(stream, 0));
        ok(cuMemcpyHtoDAsync_v2(b, host.as_ptr().cast(), 1024, stream));
        ok(setup.add(stream, [a, b, b], 256));
        ok(setup.add(stream, [b, b, b], 256));
        let graph: Handle = made(|place| cuStreamEndCapture(stream, place));
        assert_eq!(download::<f32>(b, 256), [0.0; 256], "a capture does nothing");
        let mut count = 0;
        ok(cuGraphGetNodes(graph, core::ptr::null_mut(), &raw mut count));
        assert_eq!(count, 3);
        let executable: Handle = made(|place| cuGraphInstantiateWithFlags(place, graph, 0));
        for (flags, code) in [(5, 1), (16, 1), (4, 801)] {
            let mut place = 0;
            gives(cuGraphInstantiateWithFlags(&raw mut place, graph, flags), code);
        }
        ok(cuGraphDestroy(graph));
        for _ in 0..3 {
            ok(cuGraphLaunch(executable, stream));
        }
        ok(cuStreamSynchronize(stream));
        assert_eq!(download::<f32>(b, 256), [8.0; 256]);
    }
}

#[test]
fn nodes_of_graphs_record_events_and_can_be_disabled() {
    let _setup = Setup::new();
    let memory = upload(&[0.0; 64]);
    let [stream, graph, start, end] = [
        make("cuStreamCreate", [1]),
        make("cuGraphCreate", [0]),
        make("cuEventCreate", [0]),
        make("cuEventCreate", [0]),
    ];
    let mut place = 0_u64;
    let at = |value: &mut u64| (&raw mut *value).expose_provenance() as u64;
    // CUgraphNodeParams: the type, and from byte 16 on the parameters.
    let add = |kind: u64, parameters: &[u64], after: &[u64]| {
        let mut node = [0_u64; 32];
        node[0] = kind;
        node[2..2 + parameters.len()].copy_from_slice(parameters);
        let [node, list] = [node.as_ptr(), after.as_ptr()].map(|list| list.expose_provenance() as u64);
        make("cuGraphAddNode_v2", [graph, list, 0, after.len() as u64, node])
    };
    let first = add(7, &[start], &[]);
    // CUDA_MEMSET_NODE_PARAMS_v2: address, pitch, value and size of an element, width, height.
    let fill = add(2, &[memory, 0, 4 << 32 | 7, 64, 1], &[first]);
    let last =
        make("cuGraphAddEventRecordNode", [graph, (&raw const fill).expose_provenance() as u64, 1, end]);
    let wait = add(6, &[end], &[last]);
    for (node, kind) in [(first, 7), (fill, 2), (last, 7), (wait, 6)] {
        ok(call("cuGraphNodeGetType", [node, at(&mut place)]));
        assert_eq!(place, kind);
    }
    ok(call("cuGraphEventRecordNodeGetEvent", [last, at(&mut place)]));
    assert_eq!(place, end);
    gives(call("cuGraphEventWaitNodeGetEvent", [last, at(&mut place)]), 1);
    gives(call("cuGraphAddChildGraphNode", [at(&mut place), graph, 0, 0, graph]), 1);
    let executable = make("cuGraphInstantiateWithFlags", [graph, 0]);
    gives(call("cuGraphNodeSetEnabled", [executable, first, 0]), 1);
    for (enabled, value) in [(0, 0), (1, 7)] {
        ok(call("cuGraphNodeSetEnabled", [executable, fill, enabled]));
        ok(call("cuGraphLaunch", [executable, stream]));
        ok(call("cuEventSynchronize", [end]));
        assert_eq!(download::<u32>(memory, 64), [value; 64]);
        // SAFETY: the place is valid.
        let time = made::<f32>(|place| unsafe { cuEventElapsedTime(place, start as Handle, end as Handle) });
        assert!(time > 0.0);
    }
    // A capture adds to a graph that exists.
    let list = (&raw const wait).expose_provenance() as u64;
    ok(call("cuStreamBeginCaptureToGraph", [stream, graph, list, 0, 1, 0]));
    ok(call("cuMemsetD32Async", [memory, 9, 64, stream]));
    ok(call("cuStreamEndCapture", [stream, at(&mut place)]));
    assert_eq!(place, graph);
    let mut count = 0_u64;
    ok(call("cuGraphNodeGetDependentNodes_v2", [wait, 0, 0, at(&mut count)]));
    assert_eq!(count, 1);
}

#[test]
fn user_objects_live_until_the_last_work_of_their_graphs_has_ended() {
    use std::sync::mpsc;
    let _setup = Setup::new();
    let destroyed = AtomicU32::new(0);
    let (sender, receiver) = mpsc::channel::<()>();
    unsafe extern "C" fn destroy(count: *mut c_void) {
        // SAFETY: the counter of the test, which outlives the object.
        unsafe { &*count.cast::<AtomicU32>() }.fetch_add(1, Ordering::SeqCst);
    }
    unsafe extern "C" fn wait(receiver: *mut c_void) {
        // SAFETY: the receiver of the test, which outlives the graph's work; nobody else uses it.
        let _ = unsafe { &*receiver.cast::<mpsc::Receiver<()>>() }.recv();
    }
    let counter = (&raw const destroyed).expose_provenance() as u64;
    let object = make("cuUserObjectCreate", [counter, destroy as *const () as u64, 2, 1]);
    let (stream, graph) = (make("cuStreamCreate", [1]), make("cuGraphCreate", [0]));
    let node = [wait as *const () as u64, (&raw const receiver).expose_provenance() as u64];
    make("cuGraphAddHostNode", [graph, 0, 0, node.as_ptr().expose_provenance() as u64]);
    // One reference moves to the graph, one is released, and one is of the copy.
    ok(call("cuGraphRetainUserObject", [graph, object, 1, 1]));
    ok(call("cuUserObjectRelease", [object, 1]));
    gives(call("cuGraphReleaseUserObject", [graph, object, 2]), 1);
    let copy = make("cuGraphClone", [graph]);
    let executable = make("cuGraphInstantiateWithFlags", [graph, 0]);
    ok(call("cuGraphLaunch", [executable, stream]));
    for (end, handle) in [("cuGraphDestroy", graph), ("cuGraphExecDestroy", executable)] {
        ok(call(end, [handle]));
    }
    ok(call("cuGraphReleaseUserObject", [copy, object, 1]));
    assert_eq!(destroyed.load(Ordering::SeqCst), 0, "the work has not ended");
    sender.send(()).expect("the graph's function waits");
    ok(call("cuStreamSynchronize", [stream]));
    assert_eq!(destroyed.load(Ordering::SeqCst), 1);
    gives(call("cuUserObjectRetain", [object, 1]), 1);
}

#[test]
fn fills_and_rectangles() {
    let _setup = Setup::new();
    // SAFETY: places are valid, and all accesses lie in the allocations.
    unsafe {
        let memory: u64 = made(|place| cuMemAlloc_v2(place, 4096));
        ok(cuMemsetD16_v2(memory, 0xabcd, 2048));
        ok(cuMemsetD2D32_v2(memory + 256, 512, 7, 16, 3));
        let words: Vec<u32> = download(memory, 1024);
        let filled = |at: usize| (64..512).contains(&at) && (at - 64) % 128 < 16 && at < 64 + 3 * 128;
        assert!(words.iter().enumerate().all(|(at, word)| *word == if filled(at) { 7 } else { 0xabcd_abcd }));
        let mut rows = [[0_u32; 16]; 3];
        // CUDA_MEMCPY2D: from the device at x = 256 with a pitch of 512, to the host without gaps.
        let target = rows.as_mut_ptr().expose_provenance() as u64;
        let copy = [256, 0, 2, 0, memory, 0, 512, 0, 0, 1, target, 0, 0, 64, 64, 3];
        ok(cuMemcpy2D_v2(&raw const copy));
        assert_eq!(rows, [[7; 16]; 3]);
        // And from the host, in the order of a stream.
        let source = [[1_u32, 2, 3, 4], [5, 6, 7, 8]];
        let copy = [
            0,
            0,
            1,
            (&raw const source).expose_provenance() as u64,
            0,
            0,
            16,
            4,
            1,
            2,
            0,
            memory,
            0,
            32,
            8,
            2,
        ];
        ok(cuMemcpy2DAsync_v2(&raw const copy, 0));
        let filled = download::<u32>(memory, 24);
        assert_eq!((&filled[9..11], &filled[17..19], filled[11]), (&[1, 2][..], &[5, 6][..], 0xabcd_abcd));
        // To rows of the host with gaps, by a graph.
        let mut rows = [[9_u32; 6]; 3];
        let target = rows.as_mut_ptr().expose_provenance() as u64;
        let copy = [256, 0, 2, 0, memory, 0, 512, 0, 0, 1, target, 0, 0, 24, 16, 3];
        let stream: Handle = made(|place| cuStreamCreate(place, 1));
        ok(cuStreamBeginCapture_v2(stream, 0));
        ok(cuMemcpy2DAsync_v2(&raw const copy, stream));
        let graph: Handle = made(|place| cuStreamEndCapture(stream, place));
        let executable: Handle = made(|place| cuGraphInstantiateWithFlags(place, graph, 0));
        ok(cuGraphLaunch(executable, stream));
        ok(cuStreamSynchronize(stream));
        assert_eq!(rows, [[7, 7, 7, 7, 9, 9]; 3]);
        gives(cuMemsetD16_v2(memory + 4000, 0, 100), 1);
    }
}

#[test]
fn variables_and_attributes() {
    let _setup = Setup::new();
    let image = include_bytes!("../../../tegra-hcq/kernels/globals.cubin");
    // SAFETY: places and the image are valid.
    unsafe {
        let module: Handle = made(|place| cuModuleLoadData(place, image.as_ptr().cast()));
        let mut bytes = 0;
        let taps: u64 = made(|place| cuModuleGetGlobal_v2(place, &raw mut bytes, module, c"taps".as_ptr()));
        assert_eq!(bytes, 20);
        assert_eq!(download::<f32>(taps, 5), [0.0625, 0.25, 0.375, 0.25, 0.0625]);
        ok(cuModuleUnload(module));
        gives(cuModuleUnload(module), 400);
        gives(cuMemcpyDtoH_v2((&raw mut bytes).cast(), taps, 4), 1);
        assert_eq!(made::<i32>(|place| cuDeviceGetAttribute(place, 75, 0)), 8);
        assert_eq!(made::<i32>(|place| cuDeviceGetAttribute(place, 76, 0)), 7);
    }
}

#[test]
fn a_linked_cubin_loads_and_fills_the_gpu() {
    let _setup = Setup::new();
    let image = include_bytes!("../../../tegra-hcq/kernels/vector_add.cubin");
    let (mut cubin, mut bytes, mut block) = (core::ptr::null(), 0, 0);
    // SAFETY: places and the image are valid; the cubin is used before its link ends.
    unsafe {
        let [options, values] = [core::ptr::null_mut(); 2];
        let link: Handle = made(|place| cuLinkCreate_v2(0, options, values.cast(), place));
        let image = (image.as_ptr().cast(), image.len());
        ok(cuLinkAddData_v2(link, 0, image.0, image.1, c"add".as_ptr(), 0, options, values.cast()));
        ok(cuLinkComplete(link, &raw mut cubin, &raw mut bytes));
        let module: Handle = made(|place| cuModuleLoadData(place, cubin));
        ok(cuLinkDestroy(link));
        gives(cuLinkComplete(link, &raw mut cubin, &raw mut bytes), 400);
        let add: Handle = made(|place| cuModuleGetFunction(place, module, c"vector_add".as_ptr()));
        let grid: i32 =
            made(|place| cuOccupancyMaxPotentialBlockSize(place, &raw mut block, add, None, 0, 0));
        assert_eq!((block, grid % 2), (768, 0), "two blocks on each SM");
    }
}

#[test]
fn a_copy_to_pageable_memory_has_ended_when_the_call_returns() {
    let setup = Setup::new();
    let (a, b) = (upload(&[1.0; 256]), upload(&[1.0; 256]));
    let mut sums = [0.0_f32; 256];
    // SAFETY: places are valid, and the room outlives the copy.
    unsafe {
        let stream: Handle = made(|place| cuStreamCreate(place, 1));
        ok(setup.add(stream, [a, b, b], 256));
        ok(cuMemcpyDtoHAsync_v2(sums.as_mut_ptr().cast(), b, 1024, stream));
    }
    assert_eq!(sums, [2.0; 256]);
}

#[test]
fn without_checks_there_are_no_findings() {
    let _setup = Setup::new();
    unsafe extern "C" fn count(_: *const core::ffi::c_char, calls: *mut c_void) {
        // SAFETY: the counter of the test.
        unsafe { &*calls.cast::<AtomicU32>() }.fetch_add(1, Ordering::SeqCst);
    }
    let calls = AtomicU32::new(0);
    let user = core::ptr::from_ref(&calls).cast_mut().cast();
    // SAFETY: the counter outlives the call.
    unsafe {
        ok(cuda::orin_cuda_findings(Some(count), user));
        gives(cuda::orin_cuda_findings(None, user), 1);
    }
    assert_eq!(calls.into_inner(), 0);
}
