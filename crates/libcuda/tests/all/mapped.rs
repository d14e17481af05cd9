//! Virtual memory management: reservations, mappings, access, files, and what is refused.

use crate::support::*;
use crate::sweep::{call, make};

const GRAIN: u64 = 2 << 20;

fn at<T>(value: &mut T) -> u64 {
    core::ptr::from_mut(value).expose_provenance() as u64
}

/// Sets the access of the device 0.
fn access(address: u64, bytes: u64, flags: u32) -> u32 {
    call("cuMemSetAccess", [address, bytes, at(&mut [1_u32, 0, flags]), 1])
}

#[test]
fn memory_is_mapped_at_reserved_addresses() {
    let setup = Setup::new();
    let mut properties = [1_u32, 1, 1, 0];
    let grain = make("cuMemGetAllocationGranularity", [at(&mut properties), 0]);
    assert_eq!(grain, GRAIN);
    let memory = make("cuMemCreate", [2 * GRAIN, at(&mut properties), 0]);
    let address = make("cuMemAddressReserve", [3 * GRAIN, 8 * GRAIN, 0, 0]);
    assert_eq!(address % (8 * GRAIN), 0);
    // Without a mapping, and without access, the addresses are no memory.
    gives(call("cuMemsetD32_v2", [address, 1, 16]), 1);
    ok(call("cuMemMap", [address, 2 * GRAIN, 0, memory, 0]));
    ok(call("cuMemMap", [address + 2 * GRAIN, GRAIN, GRAIN, memory, 0]));
    gives(call("cuMemsetD32_v2", [address, 1, 16]), 1);
    let mut flags = 9_u64;
    ok(call("cuMemGetAccess", [at(&mut flags), at(&mut [1_u32, 0]), address]));
    assert_eq!(flags, 0);
    ok(access(address, 3 * GRAIN, 3));
    ok(call("cuMemGetAccess", [at(&mut flags), at(&mut [1_u32, 0]), address]));
    assert_eq!(flags, 3);

    // The second grain of the memory is seen at two addresses.
    let ones = upload(&[1.0; 256]);
    let (twice, again) = (address + GRAIN, address + 2 * GRAIN);
    ok(setup.add(0, [ones, ones, twice], 256));
    assert_eq!(download::<f32>(again, 256), [2.0; 256]);
    let mut kind = 0_u32;
    ok(call("cuPointerGetAttribute", [at(&mut kind), 2, again + 4]));
    assert_eq!(kind, 2);
    gives(call("cuMemFree_v2", [address]), 1);

    // Handles keep the memory while it is mapped.
    assert_eq!(make("cuMemRetainAllocationHandle", [again]), memory);
    ok(call("cuMemRelease", [memory]));
    ok(call("cuMemRelease", [memory]));
    gives(call("cuMemRelease", [memory]), 1);
    gives(call("cuMemRetainAllocationHandle", [at(&mut flags), again]), 1);
    assert_eq!(download::<f32>(twice, 1), [2.0]);

    // A write to memory that may be read is a fault.
    gives(call("cuMemAddressFree", [address, 3 * GRAIN]), 1);
    ok(access(again, GRAIN, 1));
    assert_eq!(download::<f32>(again, 1), [2.0]);
    ok(call("cuMemUnmap", [address, 2 * GRAIN]));
    gives(call("cuMemsetD32_v2", [address, 1, 16]), 1);
    ok(setup.add(0, [ones, ones, again], 256));
    gives(call("cuCtxSynchronize", []), 700);
}

#[test]
fn memory_is_shared_as_files() {
    let _setup = Setup::new();
    let mut properties = [1_u32, 1, 1, 0];
    let memory = make("cuMemCreate", [GRAIN, at(&mut properties), 0]);
    let mut words = [0_u32; 12];
    ok(call("cuMemGetAllocationPropertiesFromHandle", [at(&mut words), memory]));
    assert_eq!(words[..4], properties);
    let mut file = -1_i32;
    ok(call("cuMemExportToShareableHandle", [at(&mut file), memory, 1, 0]));
    let other = make("cuMemImportFromShareableHandle", [file as u64, 1]);
    // SAFETY: the descriptor belongs to this test.
    assert_eq!(unsafe { libc::close(file) }, 0);
    let mapped = |memory| {
        let address = make("cuMemAddressReserve", [GRAIN, 0, 0, 0]);
        ok(call("cuMemMap", [address, GRAIN, 0, memory, 0]));
        ok(access(address, GRAIN, 3));
        address
    };
    let (first, second) = (mapped(memory), mapped(other));
    ok(call("cuMemsetD32_v2", [first, 77, 1024]));
    assert_eq!(download::<u32>(second, 1024), [77; 1024]);
    for address in [first, second] {
        ok(call("cuMemUnmap", [address, GRAIN]));
        ok(call("cuMemAddressFree", [address, GRAIN]));
    }
    for handle in [memory, other] {
        ok(call("cuMemRelease", [handle]));
    }
    gives(call("cuMemImportFromShareableHandle", [at(&mut words), 12345, 1]), 1);
    gives(call("cuMemImportFromShareableHandle", [at(&mut words), u64::MAX, 1]), 1);
}

#[test]
fn wrong_numbers_are_refused() {
    let _setup = Setup::new();
    let mut place = 0_u64;
    let mut properties = [1_u32, 0, 1, 0];
    let words = at(&mut properties);
    gives(call("cuMemCreate", [at(&mut place), 4096, words, 0]), 1);
    gives(call("cuMemCreate", [at(&mut place), 0, words, 0]), 1);
    gives(call("cuMemCreate", [at(&mut place), GRAIN, words, 1]), 1);
    for (wrong, code) in [([0, 0, 1, 0], 1), ([1, 0, 1, 9], 101), ([1, 8, 1, 0], 801), ([1, 0, 2, 0], 801)] {
        let mut wrong: [u32; 4] = wrong;
        gives(call("cuMemCreate", [at(&mut place), GRAIN, at(&mut wrong), 0]), code);
    }
    let memory = make("cuMemCreate", [GRAIN, words, 0]);
    gives(call("cuMemExportToShareableHandle", [at(&mut place), memory, 1, 0]), 1);
    gives(call("cuMemExportToShareableHandle", [at(&mut place), memory, 2, 0]), 801);
    gives(call("cuMemAddressReserve", [at(&mut place), GRAIN + 4096, 0, 0, 0]), 1);
    gives(call("cuMemAddressReserve", [at(&mut place), GRAIN, 3, 0, 0]), 1);
    gives(call("cuMemAddressReserve", [at(&mut place), GRAIN, 1 << 63, 0, 0]), 2);
    gives(call("cuMemAddressReserve", [at(&mut place), GRAIN << 42, 0, 0, 0]), 2);
    let address = make("cuMemAddressReserve", [GRAIN, 0, 0, 0]);
    gives(call("cuMemMap", [address + GRAIN, GRAIN, 0, memory, 0]), 1);
    gives(call("cuMemMap", [address, 2 * GRAIN, 0, memory, 0]), 1);
    gives(call("cuMemMap", [address, GRAIN, GRAIN, memory, 0]), 1);
    gives(call("cuMemMap", [address, GRAIN, 0, memory + 1, 0]), 1);
    ok(call("cuMemMap", [address, GRAIN, 0, memory, 0]));
    gives(call("cuMemMap", [address, GRAIN, 0, memory, 0]), 1);
    gives(access(address, GRAIN, 2), 1);
    gives(access(address, 4096, 3), 1);
    gives(access(address, 2 * GRAIN, 3), 1);
    gives(call("cuMemSetAccess", [address, GRAIN, 0, 1]), 1);
    gives(call("cuMemUnmap", [address, 4096]), 1);
    gives(call("cuMemAddressFree", [address, GRAIN]), 1);
    ok(call("cuMemUnmap", [address, GRAIN]));
    gives(call("cuMemUnmap", [address, GRAIN]), 1);
    gives(call("cuMemAddressFree", [address + 1, GRAIN]), 1);
    ok(call("cuMemAddressFree", [address, GRAIN]));
    gives(call("cuMemAddressFree", [address, GRAIN]), 1);
    ok(call("cuMemRelease", [memory]));
}
