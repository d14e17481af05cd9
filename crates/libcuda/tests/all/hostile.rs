//! Programs with mistakes: every call returns, with the result that CUDA documents.

use core::ffi::c_void;
use core::ptr::null_mut;

use crate::support::*;

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
    let launch = |grid: [u32; 3], block: [u32; 3], shared| {
        let mut parameters = [null_mut::<c_void>(); 4];
        let mut zero = 0_u64;
        parameters.fill((&raw mut zero).cast());
        let [x, y, z] = grid;
        let [width, height, depth] = block;
        // SAFETY: the parameters are valid; a launch that is not refused computes nothing.
        unsafe {
            cuLaunchKernel(
                setup.add,
                x,
                y,
                z,
                width,
                height,
                depth,
                shared,
                0,
                parameters.as_mut_ptr(),
                null_mut(),
            )
        }
    };
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
    // SAFETY: places are valid; the images are texts, or as long as their headers say.
    unsafe {
        ok(cuCtxSynchronize());
        let mut address = 0;
        gives(cuMemAlloc_v2(&raw mut address, 0), 1);
        gives(cuMemAlloc_v2(&raw mut address, 1 << 50), 2);
        let mut module = 0;
        for image in [&b"hello\0"[..], b"\0", b"ab\0"] {
            gives(cuModuleLoadData(&raw mut module, image.as_ptr().cast()), 200);
        }
        gives(cuArrayCreate_v2(&raw mut module, null_mut()), 801);
    }
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
