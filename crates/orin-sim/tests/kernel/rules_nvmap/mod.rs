//! Rules of nvmap, its dma-bufs and their CPU mappings, row by row: refusals, their errno and precedence, results, and
//! the kernel log.

mod contents;
mod handles;
mod mappings;
mod queries;
mod ranges;

use crate::support::rules::*;
use crate::support::*;
use nvgpu_sys::Errno;
use nvgpu_sys::door::Protection;
use nvgpu_sys::nvmap::{self, HandleParameters, Heaps, code};

const INVAL: Answer = Err(Errno::INVAL);
const NOMEM: Answer = Err(Errno::NOMEM);
const FAULT: Answer = Err(Errno::FAULT);
const PERM: Answer = Err(Errno::PERM);
const NODEV: Answer = Err(Errno::NODEV);
const NOTTY: Answer = Err(Errno::NOTTY);
const READ: Protection = Protection::READ;
const WRITE: Protection = Protection::WRITE;
/// An address outside every process.
const KERNEL: u64 = 0xffff_8000_0000_0000;

#[test]
fn the_node_checks_number_then_address_then_code() {
    check(&[
        ("dispatch: another family", |bench| send_at(&bench.nvmap, 0xc008_4700, KERNEL), NOTTY, &[]),
        ("dispatch: number 108", |bench| send_at(&bench.nvmap, 0xc008_4e6c, KERNEL), NOTTY, &[]),
        (
            "dispatch: a kernel address wins over an unknown code",
            |bench| send_at(&bench.nvmap, 0xc008_4e05, KERNEL),
            FAULT,
            &[],
        ),
        (
            "dispatch: an unmapped address does not",
            |bench| send_at(&bench.nvmap, 0xc008_4e05, NOWHERE),
            NOTTY,
            &["nvmap_ioctl: Unknown NVMAP_IOC = 0xc0084e05"],
        ),
        (
            "dispatch: without a direction the address is ignored",
            |bench| send_at(&bench.nvmap, 0x0000_4e05, KERNEL),
            NOTTY,
            &["nvmap_ioctl: Unknown NVMAP_IOC = 0x4e05"],
        ),
        (
            "dispatch: the ALLOC of older headers, 16 bytes",
            |bench| send(&bench.nvmap, 0x4010_4e03, &mut [0; 16]),
            NOTTY,
            &["nvmap_ioctl: Unknown NVMAP_IOC = 0x40104e03"],
        ),
        (
            "dispatch: PARAM has a number but no handler",
            |bench| send(&bench.nvmap, 0xc010_4e08, &mut [0; 16]),
            NOTTY,
            &["nvmap_ioctl: Unknown NVMAP_IOC = 0xc0104e08"],
        ),
        (
            "dispatch: FROM_ID",
            |bench| send_at(&bench.nvmap, code::FROM_ID, NOWHERE),
            NOTTY,
            &[
                "nvmap_ioctl: NVMAP_IOC_GET_ID/FROM_ID pair is deprecated. Use the pair NVMAP_IOC_GET_FD/FROM_FD.",
            ],
        ),
        (
            "dispatch: FREE takes any argument by value",
            |bench| send_at(&bench.nvmap, code::FREE, KERNEL),
            Ok(0),
            &[],
        ),
    ]);
}

fn parameters(bench: &Bench, handle: u32) -> (Answer, HandleParameters) {
    let mut args =
        HandleParameters { handle, import_id: 5, access_flags: 7, align: 9, ..HandleParameters::default() };
    (nvmap::PARAMETERS.send(&bench.nvmap, &mut args), args)
}

fn allocated(bench: &Bench, flags: u32) -> u32 {
    let handle = bench.create(4096);
    bench.try_alloc(handle, Heaps::IOVMM.bits(), TAG | flags).unwrap();
    handle
}
