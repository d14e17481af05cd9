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

use test_harness::{Suite, Test};

/// The suite.
pub static SUITE: Suite = Suite {
    name: "ioctl",
    about: "raw requests: queries, memory, address spaces, channels, a semaphore, a kernel",
    orin_only: true,
    tests: &[
        Test::new("get_characteristics", "the driver reports a ga10b", |context| {
            queries::characteristics(context).into()
        }),
        Test::new("zcull", "the driver reports the size of a zcull context", |context| {
            queries::zcull(context).into()
        }),
        Test::new("nvmap_heaps", "the driver reports its heaps, and IOVMM has memory", |context| {
            queries::heaps(context).into()
        }),
        Test::new("nvmap_create_alloc", "CREATE, ALLOC, GET_FD and FREE; IOVMM provides memory", |context| {
            queries::create_alloc(context).into()
        }),
        Test::new("alloc_as", "an address space with the recommended bounds", |context| {
            queries::alloc_as(context).into()
        }),
        Test::new("map_buffer", "a buffer gets a GPU address within these bounds", |context| {
            memory::map_buffer(context).into()
        }),
        Test::new(
            "full_channel_setup",
            "TSG, subcontext, channel of 1024 entries, compute object",
            |context| channels::full_setup(context).into(),
        ),
        Test::new("mmap_readwrite", "a CPU mapping returns four written patterns", |context| {
            memory::read_write(context).into()
        }),
        Test::new(
            "mmap_coherence",
            "two CPU mappings and the kernel's copies see the same memory",
            |context| memory::coherence(context).into(),
        ),
        Test::new("multi_size_gpu_map", "4 KiB to 64 MiB: allocate, map on GPU and CPU, write", |context| {
            memory::sizes(context).into()
        }),
        Test::new("cacheable_flags", "1 MiB in each cache mode keeps its contents; CPU speed", |context| {
            memory::cache_modes(context).into()
        }),
        Test::new(
            "mmap_userd_gpfifo",
            "a new channel's pointers are 0, its ring empty, its doorbell mapped",
            |context| channels::mapped_ring(context).into(),
        ),
        Test::new("gpfifo_semaphore_release", "the GPU writes 0x42 after one doorbell", |context| {
            channels::semaphore_release(context).into()
        }),
        Test::new("cubin", "the fixture kernel is code for sm_87 with the expected parameters", |context| {
            compute::cubin(context).into()
        }),
        Test::new("compute_dispatch", "32 threads compute i * i + 1", |context| {
            compute::dispatch(context).into()
        }),
        Test::new(
            "two_channels",
            "compute and copy channel on one TSG, with rings of several sizes",
            |context| channels::two(context).into(),
        ),
        Test::new("gpu_submit", "six words in write-combined memory: 64-bit payload and time", |context| {
            channels::submit(context).into()
        }),
        Test::new(
            "release_to_nowhere",
            "a release to an unmapped address ends the channel with code 31",
            |context| channels::release_to_nowhere(context).into(),
        )
        .expecting(Kind::Mmu),
    ],
};
