//! Managed variables, and the attributes of launches.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::support::*;
use crate::sweep::{call, make};

/// A cubin with the managed variables `counter` and `halves`, and the kernel `count`.
const MANAGED: &[u8] = include_bytes!("../../../../kernels/managed.cubin");

fn at<T: ?Sized>(value: &T) -> u64 {
    core::ptr::from_ref(value).cast::<u8>().expose_provenance() as u64
}

#[test]
fn the_host_uses_managed_variables_by_their_addresses() {
    let _setup = Setup::new();
    let library = make("cuLibraryLoadData", [at(MANAGED)]);
    let managed = |name: &core::ffi::CStr| {
        let (mut address, mut bytes) = (0_u64, 0_u64);
        let code = call("cuLibraryGetManaged", [place(&mut address), place(&mut bytes), library, at(name)]);
        (code, address, bytes)
    };
    let ((_, counter, 4), (_, halves, 4000)) = (managed(c"counter"), managed(c"halves")) else {
        panic!("the library has both variables");
    };
    assert_eq!([managed(c"step").0, managed(c"nobody").0], [500, 500]);
    let step = make("cuLibraryGetGlobal", [0, library, at(c"step")]);
    assert!(step != 0 && step != counter);
    let count: *mut i32 = core::ptr::with_exposed_provenance_mut(counter as usize);
    let kernel = make("cuLibraryGetKernel", [library, at(c"count")]);
    // SAFETY: the variable of the module, which is loaded; no work uses it.
    unsafe {
        assert_eq!(count.read_volatile(), 5);
        count.write_volatile(10);
    }
    ok(call("cuLaunchKernel", [kernel, 1, 1, 1, 64, 1, 1, 0, 0, 0, 0]));
    ok(call("cuCtxSynchronize", []));
    // SAFETY: as above.
    assert_eq!(unsafe { count.read_volatile() }, 10 + 3 * 64);
    assert_eq!(download::<f32>(halves, 64)[63], 31.5);
    let mut kind = 9_u64;
    ok(call("cuPointerGetAttribute", [place(&mut kind), 8, halves + 8]));
    assert_eq!(kind as u8, 1, "CU_POINTER_ATTRIBUTE_IS_MANAGED");
    ok(call("cuPointerGetAttribute", [place(&mut kind), 4, halves + 8]));
    assert_eq!(kind, halves + 8);
    gives(call("cuMemFree_v2", [halves]), 1);
    ok(call("cuMemAdvise", [halves, 4000, 1, 0]));
    ok(call("cuLibraryUnload", [library]));
    gives(call("cuPointerGetAttribute", [place(&mut kind), 8, halves + 8]), 1);
}

/// `CUlaunchConfig` with attributes of a number and two double words each.
fn launch(setup: &Setup, stream: u64, memory: u64, attributes: &[(u32, u64, u64)]) -> u32 {
    let list: Vec<[u64; 9]> =
        attributes.iter().map(|&(id, first, second)| [id.into(), first, second, 0, 0, 0, 0, 0, 0]).collect();
    // Grid, block and shared memory, 32 bits each; stream, attributes.
    let one_one = 1 | 1 << 32;
    let words = [one_one, 1 | 64 << 32, one_one, 0, stream, at(&list[..]), list.len() as u64];
    let count = 64_u32;
    let pointers = [at(&memory), at(&memory), at(&memory), at(&count)];
    call("cuLaunchKernelEx", [at(&words), setup.add as u64, at(&pointers), 0])
}

#[test]
fn attributes_of_launches_are_hints_events_or_refused_by_name() {
    let setup = Setup::new();
    let (stream, memory) = (make("cuStreamCreate", [1]), upload(&[1.0; 64]));
    let [plain, timed] = [2, 0].map(|flags| make("cuEventCreate", [flags]));
    let launch = |attributes: &[_]| launch(&setup, stream, memory, attributes);
    // Access policy, cooperative, clusters of one block, overlap with the launch before, priority, shared memory.
    ok(launch(&[(1, memory, 64), (2, 1, 0), (4, 1 | 1 << 32, 1), (6, 1, 0), (8, 3, 0), (14, 50, 0)]));
    // Events of the kernel's blocks, and of its begin.
    for id in [7, 12] {
        gives(call("cuEventQuery", [plain]), 0);
        ok(launch(&[(id, plain, 0)]));
        ok(call("cuEventSynchronize", [plain]));
        gives(launch(&[(id, timed, 0)]), 1);
        gives(launch(&[(id, plain, 1)]), 1);
        gives(launch(&[(id, 3, 0)]), 400);
    }
    assert_eq!(download::<f32>(memory, 64), [8.0; 64]);
    gives(launch(&[(4, 2 | 1 << 32, 1)]), 912);
    gives(launch(&[(13, 1, 0)]), 801);
    gives(launch(&[(99, 0, 0)]), 1);
    // Clusters of one block.
    let config = [1 | 1 << 32, 1 | 64 << 32, 1 | 1 << 32, 0, stream, 0, 0_u64];
    let mut size = 0_i32;
    ok(call("cuOccupancyMaxPotentialClusterSize", [place(&mut size), setup.add as u64, at(&config)]));
    assert_eq!(size, 1);
    // The Orin has no clusters; the attributes of functions exist all the same.
    for (attribute, value, code) in
        [(10, 1, 1), (11, 2, 0), (12, 1, 0), (13, 1, 0), (14, 1, 0), (15, 2, 0), (15, 3, 1)]
    {
        gives(call("cuFuncSetAttribute", [setup.add as u64, attribute, value]), code);
    }
    let mut width = 0_i32;
    ok(call("cuFuncGetAttribute", [place(&mut width), 11, setup.add as u64]));
    assert_eq!(width, 2);
    gives(launch(&[]), 912);
    ok(launch(&[(4, 1 | 1 << 32, 1)]));
    ok(call("cuFuncSetAttribute", [setup.add as u64, 11, 1]));
    ok(launch(&[]));
    gives(call("cuFuncSetAttribute", [setup.add as u64, 11, (-1_i64).cast_unsigned()]), 1);

    unsafe extern "C" fn add(count: *mut core::ffi::c_void) {
        // SAFETY: the counter of the test, which outlives the stream's work.
        unsafe { &*count.cast::<AtomicU32>() }.fetch_add(1, Ordering::SeqCst);
    }
    let calls = AtomicU32::new(0);
    for mode in [0, 1] {
        ok(call("cuLaunchHostFunc_v2", [stream, add as *const () as u64, at(&calls), mode]));
    }
    gives(call("cuLaunchHostFunc_v2", [stream, add as *const () as u64, at(&calls), 2]), 1);
    ok(call("cuStreamSynchronize", [stream]));
    assert_eq!(calls.load(Ordering::SeqCst), 2);
}

#[test]
fn recursion_may_be_as_deep_as_the_limit_of_the_stack_permits() {
    let test = "launch::recursion_may_be_as_deep_as_the_limit_of_the_stack_permits";
    let calls = include_bytes!("../../../../kernels/calls.cubin");
    let of_limit = |bytes: u64| {
        let _setup = Setup::new();
        ok(call("cuCtxSetLimit", [0, bytes]));
        let mut limit = 0_u64;
        ok(call("cuCtxGetLimit", [place(&mut limit), 0]));
        assert_eq!(limit, bytes);
        let module = make("cuModuleLoadData", [at(calls)]);
        let fibonacci = make("cuModuleGetFunction", [module, at(c"call_fibonacci")]);
        let (numbers, count) = (make("cuMemAllocManaged", [4, 1]), 1_u32);
        ok(call("cuMemsetD32_v2", [numbers, 14, 1]));
        let pointers = [at(&numbers), at(&numbers), at(&count)];
        ok(call("cuLaunchKernel", [fibonacci, 1, 1, 1, 1, 1, 1, 0, 0, at(&pointers), 0]));
        match call("cuCtxSynchronize", []) {
            0 => download::<u32>(numbers, 1)[0],
            code => code,
        }
    };
    in_child(test, &[], || {
        assert_eq!(of_limit(1024), 377);
        assert_eq!(of_limit(16), 700);
        assert_eq!(of_limit(64 << 10), 377);
        let _setup = Setup::new();
        gives(call("cuCtxSetLimit", [0, (512 << 10) + 1]), 1);
    });
}

#[test]
fn shared_memory_that_is_available_is_what_a_launch_may_have() {
    let setup = Setup::new();
    let add = setup.add as u64;
    let available = |blocks: u64| {
        let mut bytes = 0_usize;
        ok(call("cuOccupancyAvailableDynamicSMemPerBlock", [place(&mut bytes), add, blocks, 64]));
        bytes
    };
    assert_eq!([available(1), available(2)], [48 << 10; 2]);
    let four = available(4);
    assert!((32 << 10..41 << 10).contains(&four), "{four} of 164 KiB in four blocks");
    ok(call("cuFuncSetAttribute", [add, 8, 64 << 10]));
    assert_eq!([available(1), available(2)], [64 << 10; 2]);
    for symbol in ["cuFuncGetName", "cuKernelGetName"] {
        gives(call(symbol, [place(&mut 0_u64), 0]), 1);
        gives(call(symbol, [place(&mut 0_u64), 3]), 400);
    }
}
