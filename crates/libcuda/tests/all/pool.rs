//! Pools: what the program sets is what it reads.

use crate::support::*;
use crate::sweep::{call, make};

/// Makes a pool of memory of a type at a place.
fn pool(kind: u64, location: u64, id: u64) -> u64 {
    let mut properties = [kind, location | id << 32, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    make("cuMemPoolCreate", [place(&mut properties)])
}

#[test]
fn attributes_of_pools_and_pointers_are_kept() {
    let _setup = Setup::new();
    let pool = pool(1, 1, 0);
    for attribute in 1..=3 {
        for wanted in [0_u32, 1] {
            let mut value = 9_u32;
            ok(call("cuMemPoolSetAttribute", [pool, attribute, place(&mut { wanted })]));
            ok(call("cuMemPoolGetAttribute", [pool, attribute, place(&mut value)]));
            assert_eq!(value, wanted);
        }
        gives(call("cuMemPoolSetAttribute", [pool, attribute, 0]), 1);
    }
    let memory = make("cuMemAllocFromPoolAsync", [64, pool, 0]);
    for wanted in [0_u32, 1, 0] {
        let mut value = 9_u8;
        ok(call("cuPointerSetAttribute", [place(&mut { wanted }), 6, memory]));
        ok(call("cuPointerGetAttribute", [place(&mut value), 6, memory]));
        assert_eq!(u32::from(value), wanted);
    }
    // A thread without a context asks too, also about a pointer that is none of this library.
    let asked = |pointer: u64| {
        let (mut kind, mut ordinal) = (9_u32, 9_i32);
        let places = [place(&mut kind), place(&mut ordinal)];
        let attributes = [2_u32, 9];
        ok(call(
            "cuPointerGetAttributes",
            [2, attributes.as_ptr().expose_provenance() as u64, place(&mut { places }), pointer],
        ));
        (kind, ordinal)
    };
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| (asked(memory), asked(place(&mut 0_u64))));
        assert_eq!(asking.join().expect("no call panics"), ((2, 0), (0, -2)));
    });
    ok(call("cuMemFreeAsync", [memory, 0]));
    ok(call("cuMemPoolDestroy", [pool]));
}

/// A number that a pool or a pointer has.
fn number(symbol: &str, attribute: u64, of: u64) -> u32 {
    let mut value = 0_u64;
    let words = if symbol == "cuMemPoolGetAttribute" {
        [of, attribute, place(&mut value)]
    } else {
        [place(&mut value), attribute, of]
    };
    ok(call(symbol, words));
    // CAST: the number has 32 bits at most.
    value as u32
}

/// Pools of the host, of managed memory, and of a GPU, each made and the default one.
#[test]
fn pools_are_of_devices_the_host_or_managed() {
    let setup = Setup::new();
    let ones = upload(&[1.0; 256]);
    // Allocation type, type of the place, its number; whether the CPU sees the memory, its type, whether it is managed.
    let homes = [
        (1, 1, 0, false, 2, 0),
        (1, 2, 0, true, 1, 0),
        (1, 3, 0, true, 1, 0),
        (2, 0, 0, true, 2, 1),
        (2, 1, 0, true, 2, 1),
    ];
    for (kind, location, id, on_host, memory_type, managed) in homes {
        let mut words = location | id << 32;
        let at = place(&mut words);
        let default = make("cuMemGetDefaultMemPool", [at, kind]);
        assert_eq!(make("cuMemGetMemPool", [at, kind]), default);
        gives(call("cuMemPoolDestroy", [default]), 1);
        let own = pool(kind, location, id);
        ok(call("cuMemSetMemPool", [at, kind, own]));
        assert_eq!(make("cuMemGetMemPool", [at, kind]), own);
        let attributes = [9, 10, 11, 12].map(|attribute| number("cuMemPoolGetAttribute", attribute, own));
        assert_eq!(attributes.map(u64::from), [kind, 0, id, location]);
        for pool in [default, own, own] {
            let memory = make("cuMemAllocFromPoolAsync", [1024, pool, 0]);
            ok(call("cuMemcpyDtoDAsync_v2", [memory, ones, 1024, 0]));
            ok(call("cuStreamSynchronize", [0]));
            assert_eq!(download::<f32>(memory, 256), [1.0; 256]);
            if on_host {
                let first: *const f32 = core::ptr::with_exposed_provenance(memory as usize);
                // SAFETY: memory of the pool, whose work has ended.
                assert_eq!(unsafe { first.read_volatile() }, 1.0);
            }
            assert_eq!(number("cuPointerGetAttribute", 2, memory), memory_type);
            assert_eq!(number("cuPointerGetAttribute", 8, memory) & 1, managed);
            let mut access = 9_u32;
            ok(call("cuMemPoolGetAccess", [place(&mut access), pool, place(&mut { 2_u64 })]));
            assert_eq!(access, if on_host { 3 } else { 0 });
            gives(call("cuMemFreeHost", [memory]), 1);
            ok(call("cuMemFreeAsync", [memory, 0]));
            gives(call("cuMemFreeAsync", [memory, 0]), 1);
        }
        let memory = make("cuMemAllocFromPoolAsync", [64, own, 0]);
        ok(call("cuMemFree_v2", [memory]));
        ok(call("cuMemPoolDestroy", [own]));
        assert_eq!(make("cuMemGetMemPool", [at, kind]), default);
    }
    // Places that are none, a pool of another place, and host memory for other processes.
    for (kind, location) in [(1, 0), (1, 4), (2, 4), (0, 1), (3, 1)] {
        gives(call("cuMemGetMemPool", [place(&mut 0_u64), place(&mut { location }), kind]), 1);
    }
    gives(call("cuMemGetMemPool", [place(&mut 0_u64), place(&mut { 3_u64 | 5000 << 32 }), 1]), 1);
    gives(call("cuMemSetMemPool", [place(&mut { 2_u64 }), 2, pool(1, 2, 0)]), 1);
    gives(call("cuDeviceSetMemPool", [0, pool(1, 2, 0)]), 1);
    for (kind, code) in [(1_u64, 801), (2, 1)] {
        let mut properties = [kind | 1 << 32, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        gives(call("cuMemPoolCreate", [place(&mut 0_u64), place(&mut properties)]), code);
    }
    drop(setup);
}
