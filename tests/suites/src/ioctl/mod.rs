//! The driver's layers up to `nvgpu-channel`: queries, memory, channels, one kernel.
//!
//! Each test issues the requests of a program without a runtime, from the first query to a kernel's result.
//! The tests use `nvgpu-sys`, `nvmap` and `nvgpu-channel`, but not `tegra-hcq`.

#![deny(clippy::undocumented_unsafe_blocks)]

mod channels;
mod compute;
mod memory;
mod queries;
mod support;

use gpu_log::Kind;

use crate::fixtures::case;
use test_harness::Suite;

/// The suite.
pub static SUITE: Suite = Suite {
    name: "ioctl",
    about: "raw requests: queries, memory, address spaces, channels, a semaphore, a kernel",
    orin_only: true,
    tests: &[
        case!(get_characteristics, "the driver reports a ga10b", queries::characteristics),
        case!(zcull, "the driver reports the size of a zcull context", queries::zcull),
        case!(nvmap_heaps, "the driver reports its heaps, and IOVMM has memory", queries::heaps),
        case!(
            nvmap_create_alloc,
            "CREATE, ALLOC, GET_FD and FREE; IOVMM provides memory",
            queries::create_alloc
        ),
        case!(alloc_as, "an address space with the recommended bounds", queries::alloc_as),
        case!(map_buffer, "a buffer gets a GPU address within these bounds", memory::map_buffer),
        case!(
            full_channel_setup,
            "TSG, subcontext, channel of 1024 entries, compute object",
            channels::full_setup
        ),
        case!(mmap_readwrite, "a CPU mapping returns four written patterns", memory::read_write),
        case!(
            mmap_coherence,
            "two CPU mappings and the kernel's copies see the same memory",
            memory::coherence
        ),
        case!(multi_size_gpu_map, "4 KiB to 64 MiB: allocate, map on GPU and CPU, write", memory::sizes),
        case!(cacheable_flags, "1 MiB in each cache mode keeps its contents; CPU speed", memory::cache_modes),
        case!(
            mmap_userd_gpfifo,
            "a new channel's pointers are 0, its ring empty, its doorbell mapped",
            channels::mapped_ring
        ),
        case!(
            gpfifo_semaphore_release,
            "the GPU writes 0x42 after one doorbell",
            channels::semaphore_release
        ),
        case!(cubin, "the fixture kernel is code for sm_87 with the expected parameters", compute::cubin),
        case!(compute_dispatch, "32 threads compute i * i + 1", compute::dispatch),
        case!(
            two_channels,
            "compute and copy channel on one TSG, with rings of several sizes",
            channels::two
        ),
        case!(gpu_submit, "six words in write-combined memory: 64-bit payload and time", channels::submit),
        case!(
            release_to_nowhere,
            "a release to an unmapped address ends the channel with code 31",
            channels::release_to_nowhere
        )
        .expecting(Kind::Mmu),
    ],
};
