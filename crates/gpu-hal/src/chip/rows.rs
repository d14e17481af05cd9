//! The rows of the chip table.
//!
//! Class numbers: NVIDIA's open kernel modules, `g_gpu_class_list.c` (GA100, GA102, AD102, GH100), and L4T's nvgpu
//! (GA10B). Descriptor fields: NVIDIA/open-gpu-doc, `clc6c0qmd.h`, `clc7c0qmd.h`, `clc9c0qmd.h`, `clcbc0qmd.h`; in
//! the first three the fields of version 3.0 that this project sets have the same bits. The compute methods of
//! `clc9c0.h` equal those of `clc7c0.h`, and those of `clc6c0.h` and `clc6b5.h` are a subset. SM limits and shared
//! memory: CUDA C++ Programming Guide, "Compute Capabilities".

use ampere_cmd::command::PcasAction;
use ampere_cmd::dump;
use ampere_cmd::qmd::{v3_0, v4_0};

use super::{
    Bank0, Chain, ChainBarrier, Chip, ClassId, Classes, ClusterWords, DescriptorRelease, Fact, LocalMemory,
    OwnAddress, PeerCopies, QmdVersion, Seen, SharedMemory, Sm, Tuning, Usermode,
};

/// All rows, by ascending SM version. SM 10.x and 11.0 go here.
pub static ALL: &[&Chip] = &[&SM_8_0, &SM_8_6, &SM_8_7, &SM_8_9, &SM_9_0];

/// Hardware on which the encodings of the Hopper row, and some of others, were seen working.
const H200: Seen = Seen::Silicon("an H200");
const H100: Seen = Seen::Silicon("an H100");

const fn fact<T>(value: T, seen: Seen) -> Fact<T> {
    Fact { value, seen }
}

const fn class(number: u32, name: &'static str) -> ClassId {
    ClassId { number, name }
}

const AMPERE_COMPUTE_A: ClassId = class(0xc6c0, "AMPERE_COMPUTE_A");
const AMPERE_COMPUTE_B: ClassId = class(0xc7c0, "AMPERE_COMPUTE_B");
const ADA_COMPUTE_A: ClassId = class(0xc9c0, "ADA_COMPUTE_A");
const HOPPER_COMPUTE_A: ClassId = class(0xcbc0, "HOPPER_COMPUTE_A");
const AMPERE_DMA_COPY_A: ClassId = class(0xc6b5, "AMPERE_DMA_COPY_A");
const AMPERE_DMA_COPY_B: ClassId = class(0xc7b5, "AMPERE_DMA_COPY_B");
const HOPPER_DMA_COPY_A: ClassId = class(0xc8b5, "HOPPER_DMA_COPY_A");
const AMPERE_CHANNEL_GPFIFO_A: ClassId = class(0xc56f, "AMPERE_CHANNEL_GPFIFO_A");
const AMPERE_CHANNEL_GPFIFO_B: ClassId = class(0xc76f, "AMPERE_CHANNEL_GPFIFO_B");
const HOPPER_CHANNEL_GPFIFO_A: ClassId = class(0xc86f, "HOPPER_CHANNEL_GPFIFO_A");
const AMPERE_USERMODE_A: Usermode = Usermode { class: class(0xc561, "AMPERE_USERMODE_A"), bar1: false };
const HOPPER_USERMODE_A: Usermode = Usermode { class: class(0xc661, "HOPPER_USERMODE_A"), bar1: true };

/// SMs with 64 warps: the data-centre chips. Registers are the same on all generations of the table.
const LARGE_SM: Sm = Sm {
    warps: 64,
    blocks: 32,
    barriers: None,
    registers: 65_536,
    max_thread_registers: 255,
    register_unit: 256,
    partitions: 4,
};
/// SMs with 48 warps.
const SMALL_SM: Sm = Sm { warps: 48, blocks: 16, ..LARGE_SM };

/// Shared memory of SM 8.0 and 8.7.
const SHARED_164: SharedMemory = SharedMemory {
    sizes_kib: &[0, 8, 16, 32, 64, 100, 132, 164],
    unit: 128,
    descriptor_unit: 128,
    reserved: 1024,
    reserved_in_size: false,
    usual_kib: 100,
};
/// Shared memory of SM 8.6 and 8.9.
const SHARED_100: SharedMemory = SharedMemory { sizes_kib: &[0, 8, 16, 32, 64, 100], ..SHARED_164 };

/// The compiler assumes the same stack layout on all generations of the table.
const LOCAL: LocalMemory = LocalMemory { window: 16 << 20, stack_reserve: 0x240, max_sm_count: 0xff };

/// Constant bank 0 of SM 8.x.
const AMPERE_BANK0: Bank0 = Bank0 {
    shared_window: Some(0x18),
    constants: 0x50,
    own: OwnAddress { at: 0x40, of: 0 },
    grid_workspace: 0x8c,
    end: 0x160,
    cluster: None,
};

/// Rereads the next descriptor, then runs it. Launch records are reused, so a cached copy may be stale.
const READ_ANEW: Chain = Chain {
    action: v3_0::DEPENDENT_QMD0_ACTION_QMD_INVALIDATE_COPY_SCHEDULE,
    prefetch: false,
    barrier: None,
};
/// The host engine releases timelines. A descriptor that releases one has its own system barrier, because the
/// barrier at the end of the grid is not proven to be enough.
const RELEASE_BY_HOST: DescriptorRelease = DescriptorRelease { by_default: false, system_barrier: true };

/// A PCIe GPU on which nothing was measured. Loads through BAR1 are as slow as on the H200; whether kernels copy faster
/// than the copy engine is unknown.
const UNMEASURED_PCIE: Tuning = Tuning {
    copies_by_kernel_from: None,
    reads_by_engine_from: Some(4 << 10),
    writes_by_engine_from: None,
    peers: PeerCopies::UNMEASURED,
};

/// GPUs of SM 8.x on NVIDIA's desktop driver, which never ran this code. Classes and descriptors are those of SM 8.7,
/// whose headers agree. Actions of launches and chains are those of Mesa's NVK on these GPUs.
const UNTRIED_AMPERE: Chip = Chip {
    sm_version: (8, 6),
    name: "",
    classes: fact(
        Classes {
            compute: AMPERE_COMPUTE_B,
            copy: AMPERE_DMA_COPY_B,
            channel: AMPERE_CHANNEL_GPFIFO_A,
            usermode: Some(AMPERE_USERMODE_A),
        },
        Seen::Nowhere,
    ),
    commands: &dump::Classes::AMPERE_A,
    descriptor: fact(QmdVersion::V3_0, Seen::Nowhere),
    launch_actions: &[fact(PcasAction::InvalidateCopySchedule, Seen::Nowhere)],
    chains: &[fact(READ_ANEW, Seen::Nowhere)],
    descriptor_release: fact(RELEASE_BY_HOST, Seen::Nowhere),
    shader_invalidate: fact(true, Seen::Nowhere),
    bank0: fact(AMPERE_BANK0, Seen::Nowhere),
    bank0_prefetch: fact(false, Seen::Nowhere),
    early_prefetch: fact(false, Seen::Nowhere),
    empty_sm_slots: fact(false, Seen::Nowhere),
    early_start: fact(false, Seen::Nowhere),
    sm: SMALL_SM,
    shared: SHARED_100,
    local: LOCAL,
    tuning: UNMEASURED_PCIE,
};

/// SM 8.0: the A100 (GA100). The same encodings as SM 8.6, older classes. Never tried.
pub static SM_8_0: Chip = Chip {
    sm_version: (8, 0),
    name: "A100, A30",
    classes: fact(
        Classes {
            compute: AMPERE_COMPUTE_A,
            copy: AMPERE_DMA_COPY_A,
            channel: AMPERE_CHANNEL_GPFIFO_A,
            usermode: Some(AMPERE_USERMODE_A),
        },
        Seen::Nowhere,
    ),
    sm: LARGE_SM,
    shared: SHARED_164,
    ..UNTRIED_AMPERE
};

/// SM 8.6: the GeForce RTX 30 series (GA10x). Never tried.
pub static SM_8_6: Chip = Chip { sm_version: (8, 6), name: "GeForce RTX 30, A40", ..UNTRIED_AMPERE };

/// SM 8.7: the Jetson Orin (GA10B).
///
/// This code has run on the software Orin only. [`Seen::Board`] marks encodings that another user-space
/// driver on L4T's nvgpu, or CUDA itself, uses on Orin boards: the classes, descriptors of version 3.0, and
/// parameters from byte 0x160 of constant bank 0. That driver launches with PREFETCH_SCHEDULE; CUDA and a
/// third program launch with INVALIDATE_PREFETCH_COPY_SCHEDULE. Mesa's NVK uses INVALIDATE_COPY_SCHEDULE on
/// desktop GPUs of SM 8.6, and this library used it on an H200, but it was not seen on this chip. The other
/// driver chains launches with SCHEDULE and a prefetch, rewrites its descriptors in place between runs, and
/// invalidates the shader caches before each batch by INVALIDATE_SHADER_CACHES_NO_WFI. Releases by a
/// descriptor worked on a board, but a queue that reused its descriptors too early lost some, so the host
/// engine releases by default.
pub static SM_8_7: Chip = Chip {
    sm_version: (8, 7),
    name: "Jetson Orin",
    classes: fact(
        Classes {
            compute: AMPERE_COMPUTE_B,
            copy: AMPERE_DMA_COPY_B,
            channel: AMPERE_CHANNEL_GPFIFO_B,
            usermode: None,
        },
        Seen::Board,
    ),
    commands: &dump::Classes::AMPERE,
    descriptor: fact(QmdVersion::V3_0, Seen::Board),
    launch_actions: &[
        fact(PcasAction::PrefetchSchedule, Seen::Board),
        fact(PcasAction::InvalidatePrefetchCopySchedule, Seen::Board),
        fact(PcasAction::InvalidateCopySchedule, H200),
    ],
    chains: &[
        fact(
            Chain { action: v3_0::DEPENDENT_QMD0_ACTION_QMD_SCHEDULE, prefetch: true, barrier: None },
            Seen::Board,
        ),
        fact(READ_ANEW, Seen::Model),
    ],
    descriptor_release: fact(RELEASE_BY_HOST, Seen::Board),
    shader_invalidate: fact(true, Seen::Board),
    bank0: fact(AMPERE_BANK0, Seen::Board),
    bank0_prefetch: fact(false, Seen::Board),
    early_prefetch: fact(false, Seen::Board),
    empty_sm_slots: fact(false, Seen::Board),
    early_start: fact(false, Seen::Nowhere),
    sm: SMALL_SM,
    shared: SHARED_164,
    local: LOCAL,
    // The CPU shares the memory, so its loads are fast. Whether kernels copy faster was not measured.
    tuning: Tuning {
        copies_by_kernel_from: None,
        reads_by_engine_from: None,
        writes_by_engine_from: None,
        peers: PeerCopies::UNMEASURED,
    },
};

/// SM 8.9: the GeForce RTX 40 series (AD10x). The same encodings as SM 8.6, a newer compute class. Never tried.
pub static SM_8_9: Chip = Chip {
    sm_version: (8, 9),
    name: "GeForce RTX 40, L40",
    classes: fact(
        Classes {
            compute: ADA_COMPUTE_A,
            copy: AMPERE_DMA_COPY_B,
            channel: AMPERE_CHANNEL_GPFIFO_A,
            usermode: Some(AMPERE_USERMODE_A),
        },
        Seen::Nowhere,
    ),
    sm: Sm { blocks: 24, ..SMALL_SM },
    ..UNTRIED_AMPERE
};

/// SM 9.0: Hopper (GH100), as measured on an H200.
///
/// The launch action saves 0.2 µs compared with INVALIDATE_COPY_SCHEDULE, a release by the descriptor 0.7 µs
/// compared with the host engine. The prefetch of bank 0 saves 0.2 µs per chained launch, the number of slots
/// of an empty SM 0.08 µs. A release without its own barrier is correct here because of the barrier at the
/// end of the grid; its own would cost 0.4 µs. The barrier between chained grids is the one in CUDA's
/// descriptors of graph kernels.
pub static SM_9_0: Chip = Chip {
    sm_version: (9, 0),
    name: "H100, H200",
    classes: fact(
        Classes {
            compute: HOPPER_COMPUTE_A,
            copy: HOPPER_DMA_COPY_A,
            channel: HOPPER_CHANNEL_GPFIFO_A,
            usermode: Some(HOPPER_USERMODE_A),
        },
        H200,
    ),
    commands: &dump::Classes::HOPPER,
    descriptor: fact(QmdVersion::V4_0, H200),
    launch_actions: &[
        fact(PcasAction::InvalidatePrefetchCopySchedule, H200),
        fact(PcasAction::InvalidateCopySchedule, H200),
    ],
    chains: &[fact(
        Chain {
            action: v4_0::DEPENDENT_QMD_ACTION_QMD_INVALIDATE_COPY_SCHEDULE,
            prefetch: true,
            barrier: Some(ChainBarrier { membar: v4_0::CWD_MEMBAR_TYPE_L1_MEMBAR, chasing: true }),
        },
        H200,
    )],
    descriptor_release: fact(DescriptorRelease { by_default: true, system_barrier: false }, H200),
    // The descriptors' own bits suffice.
    shader_invalidate: fact(false, H200),
    bank0: fact(
        Bank0 {
            shared_window: None,
            constants: 0xd0,
            own: OwnAddress { at: 0x198, of: 0x210 },
            grid_workspace: 0x44,
            end: 0x210,
            cluster: Some(ClusterWords {
                reserved_shared_end: 0x68,
                explicit: 0x140,
                shape: 0x144,
                reciprocals: 0x150,
                count: 0x15c,
                blocks: 0x188,
            }),
        },
        H200,
    ),
    bank0_prefetch: fact(true, H200),
    early_prefetch: fact(true, H200),
    empty_sm_slots: fact(true, H200),
    early_start: fact(true, H100),
    sm: Sm { barriers: Some(64), ..LARGE_SM },
    shared: SharedMemory {
        sizes_kib: &[0, 8, 16, 32, 64, 100, 132, 164, 196, 228],
        descriptor_unit: 256,
        reserved_in_size: true,
        usual_kib: 228,
        ..SHARED_164
    },
    local: LOCAL,
    // On an H200 the copy engine tied to graphics moves 94 GB/s inside video memory, a kernel 1.9 TB/s. Loads through
    // BAR1 take 6 µs for 4 KiB.
    tuning: Tuning {
        copies_by_kernel_from: Some(128 << 10),
        reads_by_engine_from: Some(4 << 10),
        writes_by_engine_from: Some(2 << 20),
        // 4 KiB over NVLink: a kernel 4.5 µs, the engine for NVLink 4.7 µs, the queue's own engine 4.7 µs; 1 MiB: 7.8,
        // 7.4 and 17 µs; 256 MiB: 727, 683 and 2,970 µs.
        peers: PeerCopies { by_kernel_from: Some(1), by_link_engine_from: Some(1 << 20) },
    },
};
