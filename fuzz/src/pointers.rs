//! User-space addresses in random requests.
//!
//! A request reads and writes what the addresses in its argument lead to. Random ones can hit the memory
//! of the test itself, which does happen where programs lie low in the address space, so each field that
//! holds an address is given one of three: null, an address that no process can have, or an address in
//! memory that is there for nothing else.

use std::sync::OnceLock;

use nvgpu_sys::{RequestInfo, address_space, channel, ctrl, host1x, nvmap, sync_file, tsg};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};

/// Bytes of the memory that addresses lead to.
const OPEN_BYTES: u64 = 1 << 16;

/// Bytes behind it that nothing can access, more than a request that leaps from element to element can
/// leap over: as much as the largest buffer on a board of the tests.
const CLOSED_BYTES: u64 = 1 << 30;

/// Addresses that lead nowhere, on any 64-bit Linux: the lowest page, addresses between user space and
/// the kernel, the kernel's half, and the end of all addresses.
const IMPOSSIBLE: [u64; 5] = [8, 0x0080_0000_0000_1000, 1 << 63, 0xffff_8000_0000_0000, u64::MAX];

/// Every request of the nodes that the model has.
pub(crate) fn requests() -> impl Iterator<Item = &'static RequestInfo> {
    let lists =
        [nvmap::ALL, ctrl::ALL, address_space::ALL, tsg::ALL, channel::ALL, host1x::ALL, sync_file::ALL];
    lists.into_iter().flatten()
}

/// First address of the memory that requests may read and write at any time; there to the end of the
/// process, as imported memory has to be.
fn open_memory() -> u64 {
    static START: OnceLock<u64> = OnceLock::new();
    *START.get_or_init(|| {
        let (open, all) = (OPEN_BYTES as usize, (OPEN_BYTES + CLOSED_BYTES) as usize);
        // SAFETY: no address is asked for, so no existing mapping is touched; nothing unmaps the range.
        let start = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                all,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        };
        let start = start.expect("a range of addresses can be reserved");
        // SAFETY: the first part of the range just mapped, which nothing refers to yet.
        let opened = unsafe { rustix::mm::mprotect(start, open, MprotectFlags::READ | MprotectFlags::WRITE) };
        opened.expect("the pages can be opened");
        start.expose_provenance() as u64
    })
}

/// The address that stands for a random one. Zero stays null; an upper half from 1 to 0xffff, which
/// descriptors and sizes beside an address make, leads to the open memory, anything else nowhere.
fn tame_address(random: u64) -> u64 {
    match random >> 32 {
        _ if random == 0 => 0,
        1..=0xffff => open_memory() + random % OPEN_BYTES,
        _ => IMPOSSIBLE[(random % IMPOSSIBLE.len() as u64) as usize],
    }
}

/// Replaces the addresses in the argument of a request. Of a code that is no request the model knows no
/// address.
pub(crate) fn tame(code: u32, argument: &mut [u8]) {
    let Some(layout) = requests().find(|request| request.code == code).and_then(|request| request.argument)
    else {
        return;
    };
    for offset in layout.pointers {
        let field = layout.fields.iter().find(|field| field.offset == *offset);
        let field = field.expect("an address is a field");
        let bytes = &mut argument[*offset..*offset + field.size];
        // Requests of 32-bit programs hold half an address.
        let mut random = [0; 8];
        random[..field.size].copy_from_slice(bytes);
        let address = if field.size == 8 {
            tame_address(u64::from_le_bytes(random))
        } else {
            u64::from(random != [0; 8]) * IMPOSSIBLE[0]
        };
        bytes.copy_from_slice(&address.to_le_bytes()[..field.size]);
    }
}
