//! Changes of single pages in sparse reservations.

use super::empty;
use crate::support::rules::*;
use crate::support::*;
use kernel_door::DoorFd;
use nvgpu_sys::address_space::{self as space, AllocSpaceFlags, KIND_INVALID, RemapFlags, RemapOp};
use zerocopy::IntoBytes;

const SPARSE: u32 = AllocSpaceFlags::SPARSE.bits();
const PAGE_4K: u32 = RemapFlags::PAGESIZE_4K.bits();

/// Sends operations on a sparse reservation of 16 pages. Returns the result and the number of executed operations.
fn remap(bench: &Bench, ops: impl FnOnce(&DoorFd, RemapOp) -> Vec<RemapOp>) -> (Answer, u32) {
    let space = bench.space();
    let area = reserve(&space, 16, SPARSE, 0).unwrap();
    let buffer = bench.buffer(0x4000);
    let good = RemapOp {
        flags: PAGE_4K,
        compr_kind: KIND_INVALID,
        mem_handle: raw(&buffer),
        virt_offset_in_pages: area / 4096,
        num_pages: 4,
        ..Default::default()
    };
    let mut ops = ops(&space, good);
    let mut args = space::Remap { num_ops: u32::try_from(ops.len()).unwrap(), ..Default::default() };
    args.ops = ops.as_mut_ptr().expose_provenance() as u64;
    // SAFETY: the operations live for the call, which reads and writes them.
    let result = unsafe { space::REMAP.send_pointing(&space, &mut args) };
    (result, args.num_ops)
}

/// Sends one refused operation, and checks that none was executed.
fn refused(bench: &Bench, change: impl FnOnce(&DoorFd, &mut RemapOp)) -> Answer {
    let (result, done) = remap(bench, |space, mut op| {
        change(space, &mut op);
        vec![op]
    });
    assert_eq!(done, u32::from(result.is_ok()));
    result
}

pub(crate) const REMAP: &[Rule] = &[
    ("REMAP: as it should be", Ok(0), &[], |bench| refused(bench, |_, _| ())),
    ("REMAP: an unknown flag", INVAL, &[], |bench| refused(bench, |_, op| op.flags |= 1)),
    ("REMAP: two page sizes", INVAL, &[], |bench| {
        refused(bench, |_, op| op.flags |= RemapFlags::PAGESIZE_64K.bits())
    }),
    ("REMAP: the page size of the first operation is not that of the reservation", INVAL, &[], |bench| {
        refused(bench, |_, op| {
            op.flags = RemapFlags::PAGESIZE_64K.bits();
            op.virt_offset_in_pages /= 16;
        })
    }),
    ("REMAP: unmapping takes no kind", INVAL, &[], |bench| refused(bench, |_, op| op.mem_handle = 0)),
    ("REMAP: unmapping takes no offset", INVAL, &[], |bench| {
        refused(bench, |_, op| {
            (op.mem_handle, op.incompr_kind, op.mem_offset_in_pages) = (0, KIND_INVALID, 1);
        })
    }),
    ("REMAP: unmapping takes no flag except the page size", INVAL, &[], |bench| {
        refused(bench, |_, op| {
            (op.mem_handle, op.incompr_kind) = (0, KIND_INVALID);
            op.flags |= RemapFlags::CACHEABLE.bits();
        })
    }),
    ("REMAP: more pages than the address space has", INVAL, &[], |bench| {
        refused(bench, |_, op| op.num_pages = u64::MAX)
    }),
    (
        "REMAP: the fields of the last operation are checked before the buffer of the first",
        INVAL,
        &[],
        |bench| {
            let (result, done) = remap(bench, |_, op| {
                vec![RemapOp { mem_handle: empty(bench), ..op }, RemapOp { num_pages: 0, ..op }]
            });
            assert_eq!(done, 0);
            result
        },
    ),
    ("REMAP: the address of the first operation is checked before its buffer", INVAL, &[], |bench| {
        refused(bench, |_, op| (op.virt_offset_in_pages, op.mem_handle) = (1, CLOSED))
    }),
    ("REMAP: a reservation that is not sparse", INVAL, &[], |bench| {
        refused(bench, |space, op| {
            op.virt_offset_in_pages = reserve(space, 4, 0, 0).unwrap() / 4096;
        })
    }),
    (
        "REMAP: a closed descriptor is EINVAL",
        INVAL,
        &["mem_handle 0xf423f is not a dmabuf", "get_mpool failed: -22"],
        |bench| refused(bench, |_, op| op.mem_handle = CLOSED),
    ),
    (
        "REMAP: writing a read-only buffer",
        INVAL,
        &["RW access requested for RO mapped buffer", "get_mpool failed: -22"],
        |bench| {
            let twin = bench.export(read_only(bench));
            refused(bench, |_, op| (op.mem_handle, op.num_pages) = (raw(&twin), 1))
        },
    ),
    ("REMAP: reading a read-only buffer", Ok(0), &[], |bench| {
        let twin = bench.export(read_only(bench));
        refused(bench, |_, op| {
            (op.mem_handle, op.num_pages) = (raw(&twin), 1);
            op.flags |= RemapFlags::ACCESS_NO_WRITE.bits();
        })
    }),
    (
        "REMAP: a buffer without memory wins over a range beyond it",
        NOMEM,
        &["Failed to map attachment (err = -22)!", "failed to pin dma_buf", "get_mpool failed: -12"],
        |bench| refused(bench, |_, op| (op.mem_handle, op.mem_offset_in_pages) = (empty(bench), 7)),
    ),
    ("REMAP: beyond the buffer", INVAL, &["validate_map failed: -22"], |bench| {
        refused(bench, |_, op| op.mem_offset_in_pages = 1)
    }),
    ("REMAP: beyond the reservation", INVAL, &["validate_map failed: -22"], |bench| {
        refused(bench, |_, op| op.virt_offset_in_pages += 13)
    }),
    (
        "REMAP: a later operation in another sparse reservation: nothing takes effect",
        INVAL,
        &["validate_unmap failed: -22"],
        |bench| {
            let (result, done) = remap(bench, |space, op| {
                let other = reserve(space, 16, SPARSE, 0).unwrap() / 4096;
                let unmap =
                    RemapOp { mem_handle: 0, incompr_kind: KIND_INVALID, virt_offset_in_pages: other, ..op };
                vec![op, unmap]
            });
            assert_eq!(done, 0);
            result
        },
    ),
    ("REMAP: unreadable operations leave the count unchanged", FAULT, &[], |bench| {
        let mut args = space::Remap { ops: NOWHERE, num_ops: 3, padding: 0 };
        // SAFETY: the software kernel checks every address before it uses it.
        let result = unsafe { space::REMAP.send_pointing(&bench.space(), &mut args) };
        assert_eq!(args.num_ops, 3);
        result
    }),
    ("REMAP: operations that cannot be copied out still take effect", FAULT, &[], |bench| {
        let space = bench.space();
        let area = reserve(&space, 1, SPARSE, 0).unwrap();
        let buffer = bench.buffer(4096);
        let op = RemapOp {
            flags: PAGE_4K,
            compr_kind: KIND_INVALID,
            mem_handle: raw(&buffer),
            virt_offset_in_pages: area / 4096,
            num_pages: 1,
            ..Default::default()
        };
        let ops = constant(op.as_bytes());
        let mut args = space::Remap { ops, num_ops: 1, padding: 0 };
        // SAFETY: the software kernel checks every address before it uses it.
        let result = unsafe { space::REMAP.send_pointing(&space, &mut args) };
        assert_eq!(args.num_ops, 0);
        drop(buffer);
        assert_eq!(bench.orin.live().buffers, 1, "the page keeps it");
        result
    }),
    ("REMAP: an empty list needs no address", Ok(0), &[], |bench| {
        let (result, done) = remap(bench, |_, _| Vec::new());
        assert_eq!(done, 0);
        result
    }),
    ("REMAP: no page size", INVAL, &[], |bench| refused(bench, |_, op| op.flags = 0)),
];
