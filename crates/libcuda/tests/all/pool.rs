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
    ok(call("cuMemFreeAsync", [memory, 0]));
    ok(call("cuMemPoolDestroy", [pool]));
}
