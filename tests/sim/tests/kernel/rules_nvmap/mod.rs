//! Rules of nvmap, its dma-bufs and their CPU mappings, row by row: refusals, their errno and precedence, results, and
//! the kernel log.

pub(crate) mod contents;
pub(crate) mod handles;
pub(crate) mod mappings;
pub(crate) mod queries;
pub(crate) mod ranges;

use crate::support::rules::*;
use crate::support::*;
use kernel_door::Protection;
use nvgpu_sys::nvmap::{self, HandleParameters, Heaps, code};

const READ: Protection = Protection::READ;
const WRITE: Protection = Protection::WRITE;
/// An address outside every process.
pub(crate) const KERNEL: u64 = 0xffff_8000_0000_0000;

pub(crate) const NODE: &[Rule] = &[
    ("dispatch: another family", NOTTY, &[], |bench| send_at(&bench.nvmap, 0xc008_4700, KERNEL)),
    ("dispatch: a kernel address wins over an unknown code", FAULT, &[], |bench| {
        send_at(&bench.nvmap, 0xc008_4e05, KERNEL)
    }),
    (
        "dispatch: an unmapped address does not",
        NOTTY,
        &["nvmap_ioctl: Unknown NVMAP_IOC = 0xc0084e05"],
        |bench| send_at(&bench.nvmap, 0xc008_4e05, NOWHERE),
    ),
    (
        "dispatch: without a direction the address is ignored",
        NOTTY,
        &["nvmap_ioctl: Unknown NVMAP_IOC = 0x4e05"],
        |bench| send_at(&bench.nvmap, 0x0000_4e05, KERNEL),
    ),
    (
        "dispatch: the ALLOC of older headers, 16 bytes",
        NOTTY,
        &["nvmap_ioctl: Unknown NVMAP_IOC = 0x40104e03"],
        |bench| send(&bench.nvmap, 0x4010_4e03, &mut [0; 16]),
    ),
    (
        "dispatch: PARAM has a number but no handler",
        NOTTY,
        &["nvmap_ioctl: Unknown NVMAP_IOC = 0xc0104e08"],
        |bench| send(&bench.nvmap, 0xc010_4e08, &mut [0; 16]),
    ),
    (
        "dispatch: FROM_ID",
        NOTTY,
        &["nvmap_ioctl: NVMAP_IOC_GET_ID/FROM_ID pair is deprecated. Use the pair NVMAP_IOC_GET_FD/FROM_FD."],
        |bench| send_at(&bench.nvmap, code::FROM_ID, NOWHERE),
    ),
    ("dispatch: FREE takes any argument by value", Ok(0), &[], |bench| {
        send_at(&bench.nvmap, code::FREE, KERNEL)
    }),
    (
        "dispatch: GET_ID",
        NOTTY,
        &["nvmap_ioctl: NVMAP_IOC_GET_ID/FROM_ID pair is deprecated. Use the pair NVMAP_IOC_GET_FD/FROM_FD."],
        |bench| send_at(&bench.nvmap, code::GET_ID, NOWHERE),
    ),
];

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
