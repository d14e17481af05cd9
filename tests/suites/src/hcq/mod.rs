//! Queues, signals, launches and copies: one test per guarantee of the queue layer.
//!
//! The names follow tinygrad's test file for hardware command queues, so results can be compared.

mod copies;
mod launches;
mod memory;
mod peers;
mod signals;

use std::time::Duration;

use super::fixtures::case;
use test_harness::Suite;

/// The suite.
pub static SUITE: Suite = Suite {
    name: "hcq",
    about: "queues: signals, waits, launches, copies, graphs, timeline, host memory",
    orin_only: false,
    tests: &[
        case!(signal, "a signal is raised on either engine", signals::signal),
        case!(signal_update, "a graph's signal and value change between replays", signals::signal_update),
        case!(wait, "a queue continues at once if the signal is already set", signals::wait),
        case!(wait_late_set, "a queue waits until the CPU sets the signal", signals::wait_late_set),
        case!(wait_update, "signal and value of a wait change between batches", signals::wait_update),
        case!(exec_one_kernel, "one launch", launches::one),
        case!(exec_2_kernels_100_times, "two chained launches, 100 submissions", launches::two_hundred_times),
        case!(
            exec_chain_across_blocks,
            "each launch of a chain sees the stores of the previous launch's other blocks",
            launches::chain_across_blocks
        ),
        case!(
            exec_grid_barrier,
            "the blocks of a grid that fills the GPU wait for each other",
            launches::grid_barrier
        ),
        case!(
            exec_branches,
            "the branches of a graph run side by side, and a step that joins them sees what they have stored",
            launches::branches
        ),
        case!(
            exec_priority,
            "blocks of a queue with a higher priority run before those of a long grid",
            launches::priority
        ),
        case!(
            exec_clusters,
            "the blocks of a cluster read each other's shared memory; a GPU without clusters refuses them",
            launches::clusters
        ),
        case!(exec_update, "grid and block of a recorded launch change", launches::update),
        case!(exec_update_fuzz, "every block from 1x1x1 to 3x3x3", launches::update_fuzz),
        case!(
            exec_rewritten_in_place,
            "launches and replays see inputs that the CPU has rewritten in place",
            launches::rewritten_in_place
        ),
        case!(copy, "8 bytes between buffers", copies::small),
        case!(copy_long, "64 MiB from the host and back", copies::long),
        case!(copy_64bit, "copies around and above 4 GiB", copies::beyond_32_bits)
            .limited_to(Duration::from_secs(300)),
        case!(copy_2d, "rectangles of odd sizes and pitches between buffers", copies::rectangles),
        case!(copy_block_linear, "rectangles to block-linear surfaces and back", copies::block_linear),
        case!(copy_raw, "copies, fills of 8, 16 and 32 bits and launches by address", copies::by_address),
        case!(copy_staged, "slices of the process to the device and back, without a wait", copies::staged),
        case!(update_copy, "source and destination of a recorded copy change", copies::update),
        case!(update_copy_long, "the same with 64 MiB", copies::update_long),
        case!(bind, "a recorded sequence of launch, copy and fill with changing arguments", launches::bind),
        case!(speed_exec_time, "timestamps around a launch are plausible", launches::exec_time),
        case!(speed_copy_bandwidth, "200 MB on the device at 10 GB/s or more", copies::bandwidth),
        case!(speed_cross_device_copy_bandwidth, "a large copy between two GPUs", peers::bandwidth),
        case!(timeline_signal_rollover, "40 submissions across 2^32", signals::rollover),
        case!(small_copies_from_host_buf, "one byte at a time, 256 values", copies::bytes_from_host),
        case!(
            small_copies_from_host_buf_intercopy,
            "one byte through a second buffer, 256 values",
            copies::bytes_through_another
        ),
        case!(
            small_copies_from_host_buf_transfer,
            "one byte to another GPU, 256 values",
            peers::bytes_from_host
        ),
        case!(memory_barrier, "a kernel sees what the CPU wrote before the barrier", memory::barrier),
        case!(
            memory_barrier_before_copy,
            "a copy sees what the CPU wrote before the barrier",
            memory::barrier_before_copy
        ),
        case!(
            host_function,
            "functions of the process run between the launches before and after them",
            memory::host_function
        ),
        case!(unified_memory, "CPU and GPU use memory at one address, at the same time", memory::unified),
        case!(map_cpu_buffer_to_device, "the GPU copies memory of the process in place", memory::host_buffer),
        case!(multidevice, "two GPUs work side by side", peers::side_by_side),
        case!(multidevice_p2p, "memory of one GPU used by another", peers::peer_memory),
        case!(multidevice_signal_wait, "two GPUs wait for each other without the CPU", peers::signal_wait),
        case!(
            channel_ids,
            "no two queues' channels have the same number in the kernel log",
            signals::channel_ids
        ),
        case!(on_device_hang, "a hang is reported with its cause and recovered from", signals::hang),
    ],
};
