//! User-space addresses in random requests.
//!
//! A request reads and writes at the addresses in its argument. Random addresses can hit the test's own memory,
//! especially if programs are loaded low in the address space. So each address field is set to null, to an address that
//! no process can have, or to an address in reserved memory.

use std::sync::OnceLock;

use kernel_door::RequestInfo;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};

/// Size of the reserved memory in bytes.
const OPEN_BYTES: u64 = 1 << 16;

/// Size of the inaccessible range after it in bytes. A request that steps from element to element cannot step over it:
/// it is as large as the largest buffer on a board of the tests.
const CLOSED_BYTES: u64 = 1 << 30;

/// Invalid addresses on any 64-bit Linux: the lowest page, addresses between user space and the kernel, the kernel's
/// half, and the end of the address space.
const IMPOSSIBLE: [u64; 5] = [8, 0x0080_0000_0000_1000, 1 << 63, 0xffff_8000_0000_0000, u64::MAX];

/// Every modelled request of the nodes.
pub(crate) fn requests() -> impl Iterator<Item = &'static RequestInfo> {
    nvgpu_sys::requests()
}

/// First address of the reserved memory, which requests may read and write at any time. It stays mapped until the
/// process ends, as required for imported memory.
fn open_memory() -> u64 {
    static START: OnceLock<u64> = OnceLock::new();
    *START.get_or_init(|| {
        let (open, all) = (OPEN_BYTES as usize, (OPEN_BYTES + CLOSED_BYTES) as usize);
        // SAFETY: the kernel chooses the address, so no existing mapping is affected; the range is never unmapped.
        let start = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                all,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        };
        let start = start.expect("a range of addresses can be reserved");
        // SAFETY: the first part of the fresh, unused mapping.
        let opened = unsafe { rustix::mm::mprotect(start, open, MprotectFlags::READ | MprotectFlags::WRITE) };
        opened.expect("the pages can be opened");
        start.expose_provenance() as u64
    })
}

/// Replaces a random address. Zero stays null. An upper half from 1 to 0xffff, as formed by descriptors and sizes next
/// to an address, becomes an address in the reserved memory; any other value becomes an invalid address.
fn tame_address(random: u64) -> u64 {
    match random >> 32 {
        _ if random == 0 => 0,
        1..=0xffff => open_memory() + random % OPEN_BYTES,
        _ => IMPOSSIBLE[(random % IMPOSSIBLE.len() as u64) as usize],
    }
}

/// Replaces the addresses in the argument of a request. For unknown codes no field is known to be an address.
pub(crate) fn tame(code: u32, argument: &mut [u8]) {
    let Some(layout) = requests().find(|request| request.code == code).and_then(|request| request.argument)
    else {
        return;
    };
    for offset in layout.pointers {
        let field = layout.fields.iter().find(|field| field.offset == *offset);
        let field = field.expect("an address is a field");
        let bytes = &mut argument[*offset..*offset + field.size];
        // Requests of 32-bit programs contain half an address.
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
