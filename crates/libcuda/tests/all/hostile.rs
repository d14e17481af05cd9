//! Programs with mistakes: every call returns, with the result that CUDA documents.

use core::ffi::c_void;
use core::ptr::null_mut;

use crate::support::*;
use crate::sweep::{EARLY, World, call, call_all, make, pool_properties};

#[test]
fn handles_that_are_invented_freed_or_of_another_kind_are_refused() {
    let setup = Setup::new();
    // SAFETY: no pointer is followed; places are valid.
    unsafe {
        let stream: Handle = made(|place| cuStreamCreate(place, 0));
        for wrong in
            [3, 0x1000, usize::MAX, usize::MAX - 7, setup.add, setup.module, setup.context, stream ^ 1]
        {
            gives(cuStreamSynchronize(wrong), 400);
            gives(cuStreamDestroy_v2(wrong), 400);
            gives(cuEventRecord(wrong, 0), 400);
            gives(cuEventDestroy_v2(wrong), 400);
            gives(cuGraphLaunch(wrong, 0), 1);
            if wrong != setup.context {
                gives(cuCtxDestroy_v2(wrong), 201);
                gives(cuCtxSetCurrent(wrong), 201);
            }
            if wrong != setup.module {
                gives(cuModuleUnload(wrong), 400);
            }
        }
        let mut function = 0;
        gives(cuModuleGetFunction(&raw mut function, setup.module, c"nobody".as_ptr()), 500);
        gives(cuModuleGetFunction(&raw mut function, setup.add, c"vector_add".as_ptr()), 400);
    }
}

#[test]
fn null_where_a_place_is_needed_is_an_invalid_value() {
    let setup = Setup::new();
    // SAFETY: the calls refuse the NULL pointers.
    unsafe {
        gives(cuMemAlloc_v2(null_mut(), 4), 1);
        gives(cuStreamCreate(null_mut(), 0), 1);
        gives(cuEventCreate(null_mut(), 0), 1);
        gives(cuModuleLoadData(null_mut(), null_mut()), 1);
        let mut module = 0;
        gives(cuModuleLoadData(&raw mut module, null_mut()), 1);
        gives(cuModuleGetFunction(&raw mut module, setup.module, null_mut()), 1);
        gives(cuMemcpy2D_v2(null_mut()), 1);
        gives(cuMemcpyHtoD_v2(upload(&[1.0]), null_mut(), 4), 1);
        gives(cuLaunchHostFunc(0, None, null_mut()), 1);
        gives(cuLaunchKernel(setup.add, 1, 1, 1, 32, 1, 1, 0, 0, null_mut(), null_mut()), 1);
        let mut text = core::ptr::null();
        gives(cuGetErrorName(12345, &raw mut text), 1);
        assert!(text.is_null());
    }
}

#[test]
fn wrong_shapes_sizes_and_images_are_refused_at_once() {
    let setup = Setup::new();
    let launch_of = |[function, stream]: [Handle; 2], grid: [u32; 3], block: [u32; 3], shared| {
        let mut parameters = [null_mut::<c_void>(); 4];
        let mut zero = 0_u64;
        parameters.fill((&raw mut zero).cast());
        let [x, y, z] = grid;
        let [width, height, depth] = block;
        // SAFETY: the parameters are valid; a launch that is not refused computes nothing.
        unsafe {
            cuLaunchKernel(
                function,
                x,
                y,
                z,
                width,
                height,
                depth,
                shared,
                stream,
                parameters.as_mut_ptr(),
                null_mut(),
            )
        }
    };
    let launch = |grid, block, shared| launch_of([setup.add, 0], grid, block, shared);
    for (grid, block, shared) in [
        ([0, 1, 1], [32, 1, 1], 0),
        ([1, 65536, 1], [32, 1, 1], 0),
        ([1, 1, 1], [1025, 1, 1], 0),
        ([1, 1, 1], [32, 32, 2], 0),
        ([1, 1, 1], [1, 1, 65], 0),
        ([1, 1, 1], [32, 1, 1], 49 << 10),
    ] {
        gives(launch(grid, block, shared), 1);
    }
    ok(launch([1, 1, 1], [32, 1, 1], 1024));
    // The source of this kernel permits 128 threads.
    let bounded = include_bytes!("../../../../kernels/corpus/sm_87-12.6/memory.cubin");
    // SAFETY: places are valid; the image is a whole cubin.
    let bounded: Handle = unsafe {
        let module: Handle = made(|place| cuModuleLoadData(place, bounded.as_ptr().cast()));
        made(|place| cuModuleGetFunction(place, module, c"spills".as_ptr()))
    };
    gives(launch_of([bounded, 0], [1, 1, 1], [129, 1, 1], 0), 1);
    ok(launch_of([bounded, 0], [1, 1, 1], [128, 1, 1], 0));
    // SAFETY: places are valid; the images are texts, or as long as their headers say.
    unsafe {
        ok(cuCtxSynchronize());
        let stream: Handle = made(|place| cuStreamCreate(place, 1));
        ok(cuStreamBeginCapture_v2(stream, 2));
        gives(launch_of([setup.add, stream], [0, 1, 1], [32, 1, 1], 0), 1);
        gives(cuStreamEndCapture(stream, &mut 0), 901);
        let mut address = 0;
        gives(cuMemAlloc_v2(&raw mut address, 0), 1);
        gives(cuMemAlloc_v2(&raw mut address, 1 << 50), 2);
        let mut module = 0;
        for image in [&b"hello\0"[..], b"\0", b"ab\0"] {
            gives(cuModuleLoadData(&raw mut module, image.as_ptr().cast()), 200);
        }
    }
}

#[test]
fn rectangles_and_ranges_outside_of_memory_are_refused() {
    let _setup = Setup::new();
    let memory = upload(&[0.0; 1024]);
    let mut host = vec![0_u8; 8192];
    let at = host.as_mut_ptr().expose_provenance() as u64;
    // CUDA_MEMCPY2D: four rows of 64 bytes, from the host to the device.
    let copy = [0, 0, 1, at, 0, 0, 64, 0, 0, 2, 0, memory, 0, 512, 64, 4_u64];
    let words = |copy: &[u64; 16]| [copy.as_ptr().expose_provenance() as u64];
    ok(call("cuMemcpy2D_v2", words(&copy)));
    for (field, most) in [(0, 0), (1, 0), (6, 64), (7, 2496), (8, 4), (13, 1344), (14, 64), (15, 8)] {
        for value in [most + 1, 1 << 32, 1 << 63, u64::MAX] {
            // Of the host's memory, only what wraps around is wrong.
            if value < 1 << 63 && matches!(field, 1 | 6) || value < u64::MAX && field == 0 {
                continue;
            }
            let mut wrong = copy;
            wrong[field] = value;
            gives(call("cuMemcpy2D_v2", words(&wrong)), 1);
        }
    }
    // CUDA_MEMSET_NODE_PARAMS: pitch, value and size of an element, width and height.
    let graph = make("cuGraphCreate", [0]);
    let mut node = 0_u64;
    let place = (&raw mut node).expose_provenance() as u64;
    for (width, code) in [(1024, 0), (1025, 1), (1 << 62, 1)] {
        let fill = [memory, 0, 4 << 32, width, 1];
        gives(
            call("cuGraphAddMemsetNode", [place, graph, 0, 0, fill.as_ptr().expose_provenance() as u64, 0]),
            code,
        );
    }
    // Registered memory has two addresses; what is not mapped cannot be registered.
    gives(call("cuMemHostRegister_v2", [0x1000, 4096, 0]), 1);
    gives(call("cuMemHostRegister_v2", [at, u64::MAX - at, 0]), 1);
    ok(call("cuMemHostRegister_v2", [at, 8192, 0]));
    let device = make("cuMemHostGetDevicePointer_v2", [at + 8, 0]);
    for pointer in [at + 8, device] {
        // CU_POINTER_ATTRIBUTE_DEVICE_POINTER, _HOST_POINTER.
        for (attribute, wanted) in [(3, device), (4, at + 8)] {
            ok(call("cuPointerGetAttribute", [place, attribute, pointer]));
            assert_eq!(node, wanted);
        }
        assert_eq!(make("cuMemHostGetDevicePointer_v2", [pointer, 0]), device);
    }
    ok(call("cuMemHostUnregister", [at]));
}

#[test]
fn freed_memory_is_not_taken_for_the_host_s() {
    // In a process of its own: another test may get the memory.
    in_child("hostile::freed_memory_is_not_taken_for_the_host_s", &[], || {
        let _setup = Setup::new();
        let memory = upload(&[0.0; 1024]);
        let mut host = vec![0_u8; 64];
        let at = host.as_mut_ptr().expose_provenance() as u64;
        ok(call("cuMemFree_v2", [memory]));
        gives(call("cuMemcpy", [memory, at, 64]), 1);
        gives(call("cuMemcpy", [at, memory, 64]), 1);
        gives(call("cuMemFree_v2", [memory]), 1);
    });
}

#[test]
fn queues_of_ended_threads_serve_others() {
    let setup = Setup::new();
    let memory = upload(&[0.0; 64]);
    // More threads than the GPU has queues, one after another.
    for _ in 0..300 {
        let fill = || {
            ok(call("cuCtxSetCurrent", [setup.context as u64]));
            ok(call("cuMemsetD32Async_ptsz", [memory, 7, 64, 0]));
        };
        std::thread::scope(|scope| scope.spawn(fill).join()).expect("no call panics");
    }
    ok(call("cuCtxSynchronize", []));
    assert_eq!(download::<u32>(memory, 64), [7; 64]);
}

#[test]
fn the_last_user_of_a_context_that_detaches_ends_it() {
    let setup = Setup::new();
    let context = setup.context as u64;
    let memory = upload(&[1.0; 64]);
    assert_eq!(make("cuCtxAttach", [0]), context);
    ok(call("cuCtxDetach", [context]));
    assert_eq!(download::<f32>(memory, 64), [1.0; 64]);
    ok(call("cuCtxDetach", [context]));
    gives(call("cuCtxDetach", [context]), 201);
    gives(call("cuCtxSetCurrent", [context]), 201);
}

#[test]
fn contexts_that_are_detached_leave_their_queues() {
    in_child("hostile::contexts_that_are_detached_leave_their_queues", &[], || {
        let _setup = Setup::new();
        // More contexts, each with a queue, than the GPU has queues.
        for _ in 0..250 {
            let context = make("cuCtxCreate_v2", [0, 0]);
            ok(call("cuMemsetD32_v2", [make("cuMemAlloc_v2", [256]), 7, 64]));
            ok(call("cuCtxDetach", [context]));
        }
    });
}

#[test]
fn a_fault_stays_with_its_context_only() {
    let good = Setup::new();
    let bad = Setup::new();
    ok(bad.add(0, [0, 0, 0], 32));
    // SAFETY: places are valid.
    unsafe {
        gives(cuCtxSynchronize(), 700);
        let mut address = 0;
        gives(cuMemAlloc_v2(&raw mut address, 4), 700);
        gives(bad.add(0, [0, 0, 0], 32), 700);
        assert_eq!(made::<Handle>(|place| cuCtxPopCurrent_v2(place)), bad.context);
        let (a, b) = (upload(&[1.0; 32]), upload(&[1.0; 32]));
        ok(good.add(0, [a, a, b], 32));
        assert_eq!(download::<f32>(b, 32), [2.0; 32]);
        ok(cuCtxDestroy_v2(bad.context));
        gives(cuCtxSetCurrent(bad.context), 201);
        ok(cuCtxSynchronize());
    }
}

#[test]
fn a_failed_assertion_is_the_context_s_fault() {
    let _setup = Setup::new();
    let image = include_bytes!("../../../../kernels/device_calls.cubin");
    // SAFETY: places, image and parameters are valid.
    unsafe {
        let module: Handle = made(|place| cuModuleLoadData(place, image.as_ptr().cast()));
        let kernel: Handle = made(|place| cuModuleGetFunction(place, module, c"assert_all".as_ptr()));
        let mut out: u64 = made(|place| cuMemAlloc_v2(place, 128));
        for (mut wrong, result) in [(-1_i32, 0), (7, 710)] {
            let mut parameters: [*mut c_void; 2] = [(&raw mut wrong).cast(), (&raw mut out).cast()];
            ok(cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, 0, parameters.as_mut_ptr(), null_mut()));
            gives(cuCtxSynchronize(), result);
        }
        gives(cuMemFree_v2(out), 710);
    }
}

/// Work with a context of its own.
fn whole_program() {
    let setup = Setup::new();
    let (a, b) = (upload(&[1.0; 64]), upload(&[0.0; 64]));
    ok(setup.add(0, [a, a, b], 64));
    assert_eq!(download::<f32>(b, 64), [2.0; 64]);
}

#[test]
fn exit_handlers_and_destructors_may_call() {
    use std::cell::RefCell;
    use std::sync::Mutex;

    /// Objects of the program, which is about to end.
    static WORLD: Mutex<Option<World>> = Mutex::new(None);
    /// Calls everything when its thread or the process ends.
    struct Last(&'static str);
    impl Drop for Last {
        fn drop(&mut self) {
            last(self.0);
        }
    }
    fn last(what: &str) {
        // A thread whose variables are gone has no context any more: CUDA_ERROR_DEINITIALIZED.
        let mut context: Handle = 0;
        // SAFETY: the place is valid.
        match unsafe { cuCtxGetCurrent(&raw mut context) } {
            0 => whole_program(),
            code => gives(code, 4),
        }
        let world = WORLD.lock().expect("no call panics");
        let results = world.as_ref().map_or(0, |world| call_all(world).count());
        eprintln!("{what}: {results} functions called");
    }
    extern "C" fn first_handler() {
        last("handler before cuInit");
    }
    extern "C" fn second_handler() {
        last("handler after cuInit");
    }
    std::thread_local! {
        static EARLY: RefCell<Option<Last>> = const { RefCell::new(None) };
        static LATE: RefCell<Option<Last>> = const { RefCell::new(None) };
    }

    let test = "hostile::exit_handlers_and_destructors_may_call";
    let printed = in_child(test, &[], || {
        // SAFETY: the handlers do not unwind.
        unsafe { libc::atexit(first_handler) };
        EARLY.set(Some(Last("destructor before cuInit")));
        let thread = std::thread::spawn(|| {
            EARLY.set(Some(Last("thread's destructor before its first call")));
            whole_program();
            LATE.set(Some(Last("thread's destructor after its first call")));
        });
        thread.join().expect("no call panics");
        let world = World::new();
        LATE.set(Some(Last("destructor after cuInit")));
        *WORLD.lock().expect("no call panics") = Some(world);
        // SAFETY: as above.
        unsafe { libc::atexit(second_handler) };
        // Threads that go on while the process exits.
        for _ in 0..4 {
            std::thread::spawn(|| {
                loop {
                    whole_program()
                }
            });
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    });
    let Some(printed) = printed else { return };
    for what in ["destructor", "thread's destructor"] {
        for when in ["before", "after"] {
            assert!(printed.contains(&format!("{what} {when}")), "{printed}");
        }
    }
    for when in ["before", "after"] {
        assert!(printed.contains(&format!("handler {when} cuInit")), "{printed}");
    }
    assert_eq!(printed.matches(": 0 functions called").count(), 2, "those of the thread alone: {printed}");
}

/// Does work in a child that is forked, and exits as programs do; returns the child's status.
fn forked(work: impl FnOnce()) -> i32 {
    let mut status = 0;
    // SAFETY: the child calls what a program calls, and the test looks for what that breaks.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::alarm(100);
            work();
            libc::exit(0);
        }
        libc::waitpid(child, &raw mut status, 0);
    }
    status
}

#[test]
fn forked_children_are_not_initialised_and_exit() {
    let report = std::env::temp_dir().join(format!("orin-fork-{}", std::process::id()));
    let path = report.to_str().expect("a name of letters");
    let variables = [
        ("ORIN_SIM_CHECK", "memcheck"),
        ("ORIN_SIM_CHECK_REPORT", path),
        // Both append a line per board or kernel.
        ("ORIN_SIM_PROFILE", path),
        ("ORIN_CUDA_TRACE", "/dev/null"),
    ];
    let test = "hostile::forked_children_are_not_initialised_and_exit";
    let in_parent = in_child(test, &variables, || {
        // A child that is forked before is a program like any other.
        assert_eq!(forked(whole_program), 0);
        let world = World::new();
        let busy: Vec<_> =
            (0..4).map(|_| std::thread::spawn(|| (0..30).for_each(|_| whole_program()))).collect();
        while busy.iter().any(|thread| !thread.is_finished()) {
            let status = forked(|| {
                for (symbol, _, code) in call_all(&world).filter(|(symbol, ..)| !EARLY.contains(symbol)) {
                    assert_eq!(code, 3, "{symbol}");
                }
                gives(call("cuInit", [0]), 3);
            });
            assert_eq!(status, 0, "the status of the child");
        }
        busy.into_iter().for_each(|thread| thread.join().expect("no call panics"));
    });
    if in_parent.is_some() {
        let text = std::fs::read_to_string(&report).expect("the report is there");
        assert_eq!(text.lines().count(), 4, "the first child and the parent report: {text}");
        std::fs::remove_file(&report).expect("the report is there");
    }
}

#[test]
fn sixteen_threads_use_and_destroy_the_same_handles() {
    use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
    let test = "hostile::sixteen_threads_use_and_destroy_the_same_handles";
    in_child(test, &[], || {
        let setup = Setup::new();
        let memory = upload(&[1.0; 64]);
        let slots: [AtomicU64; 8] = Default::default();
        let (stream, event, graph, executable, module, pooled, pool, other) = (0, 1, 2, 3, 4, 5, 6, 7);
        let image = IMAGE.as_ptr().expose_provenance() as u64;
        let properties = pool_properties();
        let properties = properties.as_ptr().expose_provenance() as u64;
        let thread = |seed: u64| {
            ok(call("cuCtxSetCurrent", [setup.context as u64]));
            let mut random = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            for _ in 0..400 {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let of = |slot: usize| slots[slot].load(Relaxed);
                let mut made = 0_u64;
                let place = (&raw mut made).expose_provenance() as u64;
                let replace = |slot: usize, made: u64| slots[slot].swap(made, Relaxed);
                let code = match random % 26 {
                    0 => call("cuStreamCreate", [place, random >> 63])
                        .max(call("cuStreamDestroy_v2", [replace(stream, made)])),
                    1 => call("cuStreamDestroy_v2", [of(stream)]),
                    2 => call("cuEventCreate", [place, 0])
                        .max(call("cuEventDestroy_v2", [replace(event, made)])),
                    3 => call("cuEventDestroy_v2", [of(event)]),
                    4 => call("cuEventRecord", [of(event), of(stream)]),
                    5 => call("cuStreamWaitEvent", [of(stream), of(event), 0]),
                    6 => call("cuEventSynchronize", [of(event)]),
                    7 => call("cuStreamSynchronize", [of(stream)]),
                    8 => setup.add(of(stream) as Handle, [memory; 3], 64),
                    9 => call("cuMemsetD32Async", [memory, 0, 64, of(stream)]),
                    10 => call("cuStreamBeginCapture_v2", [of(stream), 0]),
                    11 => call("cuStreamEndCapture", [of(stream), place])
                        .max(call("cuGraphDestroy", [replace(graph, made)])),
                    12 => call("cuGraphInstantiateWithFlags", [place, of(graph), 0])
                        .max(call("cuGraphExecDestroy", [replace(executable, made)])),
                    13 => call("cuGraphLaunch", [of(executable), of(stream)]),
                    14 => call("cuGraphDestroy", [of(graph)]),
                    15 => call("cuGraphExecUpdate_v2", [of(executable), of(graph), place]),
                    16 => call("cuModuleLoadData", [place, image])
                        .max(call("cuModuleUnload", [replace(module, made)])),
                    17 => call("cuModuleUnload", [of(module)]),
                    18 => {
                        let name = c"vector_add".as_ptr().expose_provenance() as u64;
                        call("cuModuleGetFunction", [place, of(module), name])
                    }
                    19 => call("cuMemAllocAsync", [place, 256, of(stream)])
                        .max(call("cuMemFreeAsync", [replace(pooled, made), of(stream)])),
                    20 => call("cuMemFreeAsync", [of(pooled), of(stream)]),
                    21 => call("cuMemPoolCreate", [place, properties])
                        .max(call("cuMemPoolDestroy", [replace(pool, made)])),
                    22 => call("cuMemAllocFromPoolAsync", [place, 64, of(pool), of(stream)]),
                    23 => {
                        let code = call("cuCtxCreate_v2", [place, 0, 0]);
                        call("cuCtxSetCurrent", [setup.context as u64]);
                        code.max(call("cuCtxDestroy_v2", [replace(other, made)]))
                    }
                    24 => call("cuDevicePrimaryCtxRetain", [place, 0])
                        .max(call("cuDevicePrimaryCtxReset_v2", [0])),
                    // Work in a context that another thread ends.
                    _ => {
                        ok(call("cuDevicePrimaryCtxRetain", [place, 0]));
                        let context = if random >> 63 == 0 { of(other) } else { made };
                        call("cuCtxSetCurrent", [context]);
                        let mut memory = 0_u64;
                        let at = (&raw mut memory).expose_provenance() as u64;
                        let code = call("cuMemAlloc_v2", [at, 256])
                            .max(call("cuMemsetD32Async", [memory, 0, 64, 2]))
                            .max(call("cuStreamCreate", [place, 1]))
                            .max(call("cuMemsetD32Async", [memory, 0, 64, made]))
                            .max(call("cuCtxSynchronize", []))
                            .max(call("cuMemFree_v2", [memory]));
                        call("cuCtxSetCurrent", [setup.context as u64]);
                        // The memory of an ended context is gone.
                        if code == 700 { 0 } else { code }
                    }
                };
                // 801: a second executable graph of one with memory.
                let sensible = matches!(code, 801 | 0 | 1 | 201 | 400 | 401 | 600 | 709 | 900..=908 | 910);
                assert!(sensible, "{}", name(code));
            }
        };
        std::thread::scope(|scope| (0..16).for_each(|seed| drop(scope.spawn(move || thread(seed)))));
        // A stream may still capture.
        assert!(matches!(call("cuCtxSynchronize", []), 0 | 900));
    });
}

#[test]
fn sixteen_threads_call_at_once() {
    let threads = (0..16).map(|thread| {
        std::thread::spawn(move || {
            let setup = Setup::new();
            // SAFETY: places are valid, and the memory outlives the work.
            unsafe {
                for round in 0..8_u32 {
                    let stream: Handle = made(|place| cuStreamCreate(place, round & 1));
                    let value = (thread * 8 + round) as f32;
                    let (a, b) = (upload(&[value; 64]), upload(&[0.0; 64]));
                    ok(setup.add(stream, [a, a, b], 64));
                    ok(cuStreamSynchronize(stream));
                    assert_eq!(download::<f32>(b, 64), [2.0 * value; 64]);
                    ok(cuStreamDestroy_v2(stream));
                    ok(cuMemFree_v2(a));
                    ok(cuMemFree_v2(b));
                }
            }
        })
    });
    threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().expect("no thread panics"));
}
