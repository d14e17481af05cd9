//! What is no fault and no refusal, and what other drivers say about the GPU.

use super::Class::{Error, Harmless, Information, Warning};
use super::Kind as K;
use super::Role::{Alone, Cause, Detail};
use super::{Row, row};

/// How a kernel WARNING begins.
pub(super) const PLAIN_WARNING: &str = "WARNING: CPU:";

/// Notes of nvgpu, nvmap and the power manager.
pub(super) const NOTES: &[Row] = &[
    row(
        Alone,
        Warning,
        K::None,
        "tu104_gr_init_commit_rtv_cb",
        "kernel WARNING: a context buffer lies above 2^40, where 40-bit registers cannot reach it. Programs \
         whose address space ends near 2^40 print it at each ALLOC_OBJ_CTX",
        "end the address space at 0xfc00000000 (ALLOC_AS, va_range_end); with this workspace's driver it must \
         not appear",
    ),
    row(
        Alone,
        Harmless,
        K::None,
        "All NvMap Allocations must have a tag",
        "a program allocates without a tag; printed once per program",
        "put a tag, e.g. 0x0900, into bits 31:16 of ALLOC's flags",
    ),
    row(
        Alone,
        Harmless,
        K::None,
        "NVMAP_HANDLE_WRITE_COMBINE should be used",
        "a program maps uncached memory; printed once per program",
        "use write-combined memory",
    ),
    row(
        Alone,
        Harmless,
        K::None,
        "GET_ID/FROM_ID pair is deprecated",
        "an old program shares a buffer by number",
        "",
    ),
    row(
        Alone,
        Harmless,
        K::None,
        "error reporting not supported",
        "this build of the driver does not report to the safety processor",
        "",
    ),
    row(
        Alone,
        Harmless,
        K::None,
        "tpc_pg_mask_store",
        "the power mode changed which TPCs are on",
        "read the number of SMs anew; `nvpmodel` chooses the mode",
    ),
    row(Detail, Information, K::None, "__ga10b__", "dump of channels and host engines after a fault", ""),
    row(
        Alone,
        Warning,
        K::None,
        PLAIN_WARNING,
        "kernel WARNING in a driver of the GPU; this table does not know its function",
        "read the function's name in the call trace; search the driver's source for it",
    ),
];

/// The desktop driver (NVRM), the memory controller and the syncpoint unit.
pub(super) const SYSTEM: &[Row] = &[
    row(
        Cause,
        Error,
        K::Sm,
        "NVRM: Xid*: 13,",
        "desktop driver: an SM or engine exception",
        "run the program under compute-sanitizer",
    ),
    row(
        Cause,
        Error,
        K::Mmu,
        "NVRM: Xid*: 31,",
        "desktop driver: an MMU fault; the line has address and access",
        "run the program under compute-sanitizer",
    ),
    row(
        Cause,
        Error,
        K::Pushbuffer,
        "NVRM: Xid*: 32,",
        "desktop driver: malformed pushbuffer",
        "check what writes the pushbuffer; otherwise suspect the bus",
    ),
    row(
        Alone,
        Warning,
        K::None,
        "NVRM: Xid*: 43,",
        "desktop driver: a channel was reset after a fault of its program",
        "see the Xid before it",
    ),
    row(
        Alone,
        Warning,
        K::None,
        "NVRM: Xid*: 45,",
        "desktop driver: channels were removed, as when a program is killed",
        "see the Xid before it, if there is one",
    ),
    row(
        Cause,
        Error,
        K::Hardware,
        "NVRM: Xid*: 48,",
        "desktop driver: memory lost data (double-bit ECC)",
        "restart; replace the board if it comes back",
    ),
    row(
        Cause,
        Error,
        K::Method,
        "NVRM: Xid*: 69,",
        "desktop driver: class error, a refused method",
        "decode the pushbuffer",
    ),
    row(
        Cause,
        Error,
        K::Hang,
        "NVRM: Xid*: 109,",
        "desktop driver: context switch time-out",
        "shorten kernels",
    ),
    row(
        Cause,
        Error,
        K::Fatal,
        "NVRM: Xid*: 79,",
        "desktop driver: the GPU has left the bus",
        "check power, seat and temperature; reboot",
    ),
    row(
        Cause,
        Error,
        K::Hang,
        "NVRM: Xid*: 119,",
        "desktop driver: the GPU's system processor does not answer",
        "reset the GPU or reboot",
    ),
    row(
        Cause,
        Error,
        K::Unknown,
        "NVRM: Xid",
        "desktop driver: a fault; the number after the device is its kind",
        "look the number up in NVIDIA's list of Xid errors",
    ),
    row(
        Alone,
        Information,
        K::None,
        "NVRM: loading NVIDIA UNIX",
        "the desktop driver is loaded; on Orin it only drives displays",
        "",
    ),
    row(
        Alone,
        Information,
        K::None,
        "nvidia-uvm: Loaded",
        "the desktop driver's memory manager is loaded",
        "",
    ),
    row(
        Alone,
        Error,
        K::Hardware,
        "tegra-mc*gpu*error",
        "the memory controller refused an access of the GPU",
        "an address reached memory that the GPU may not use; see the GPU's own lines around it",
    ),
    row(
        Alone,
        Error,
        K::Hardware,
        "mc-err",
        "the memory controller refused an access",
        "see whose it was (`csr_gpu` is the GPU) and the lines around it",
    ),
    row(
        Alone,
        Warning,
        K::None,
        "syncpoint id*stuck",
        "the syncpoint unit waits for a value that nobody writes",
        "look which channel should increment it",
    ),
    row(
        Alone,
        Warning,
        K::None,
        "orin-sim: ",
        "the software Orin explains what it refused or does not model",
        "read the line; a board says nothing here",
    ),
];
