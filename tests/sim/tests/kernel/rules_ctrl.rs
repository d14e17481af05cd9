//! Rules of the control node, the doorbell page and the door itself, row by row: refusals, their errno and precedence,
//! results, and the kernel log.

use std::sync::Arc;

use crate::support::rules::*;
use crate::support::*;
use kernel_door::{Door, DoorFd, Errno, MapRequest, Protection};
use nvgpu_sys::ctrl::{
    self, AllocAs, AllocVidmem, BufferInfoIn, BufferInfoOut, ClkVfPointsArgs, FlushL2, GetCharacteristics,
    GetCpuTimeCorrelationInfo, GetEngineInfo, GetTpcMasks, OpenChannel, OpenTsg, RegisterBuffer, code,
};
use nvgpu_sys::paths;
use zerocopy::{FromBytes, IntoBytes};

const BOTH: Protection = Protection::READ.union(Protection::WRITE);

pub(crate) const NODE: &[Rule] = &[
    ("pre-checks: another family wins over a bad address", INVAL, &[], |bench| {
        send_at(&bench.ctrl, 0xc010_4105, NOWHERE)
    }),
    ("pre-checks: number 0", INVAL, &[], |bench| send_at(&bench.ctrl, 0xc010_4700, NOWHERE)),
    ("pre-checks: 265 bytes", INVAL, &[], |bench| send_at(&bench.ctrl, 0xc109_4718, NOWHERE)),
    ("pre-checks: a bad address wins over number 13, which does not exist", FAULT, &[], |bench| {
        send_at(&bench.ctrl, 0xc008_470d, NOWHERE)
    }),
    ("pre-checks: number 13", NOTTY, &[], |bench| send(&bench.ctrl, 0xc008_470d, &mut [0; 8])),
    ("pre-checks: number 20 without a direction needs no address", NOTTY, &[], |bench| {
        send_at(&bench.ctrl, 0x0000_4714, NOWHERE)
    }),
    ("pre-checks: the argument of a read-only request is not read first", Ok(4), &[], |bench| {
        send_at(&bench.ctrl, code::ZCULL_GET_CTX_SIZE, NOWHERE)
    }),
    ("pre-checks: FLUSH_L2 in 8 bytes instead of 5", NOTTY, &[], |bench| {
        send(&bench.ctrl, 0xc008_470c, &mut [1; 8])
    }),
    ("quiesce: a bad address wins over power", FAULT, &QUIESCE, |bench| {
        bench.orin.quiesce();
        send_at(&bench.ctrl, code::ALLOC_AS, NOWHERE)
    }),
    ("quiesce: GET_CHARACTERISTICS returns EINVAL instead", INVAL, &QUIESCE, |bench| {
        bench.orin.quiesce();
        send(&bench.ctrl, code::GET_CHARACTERISTICS, &mut [0; 16])
    }),
    ("pre-checks: a code of the wrong direction", NOTTY, &[], |bench| {
        send(&bench.ctrl, 0x4010_4705, &mut [0; 16])
    }),
    ("GET_VOLTAGE", INVAL, &[], |bench| send(&bench.ctrl, 0xc010_4722, &mut [0; 16])),
    ("GET_POWER", INVAL, &[], |bench| send(&bench.ctrl, 0xc010_4724, &mut [0; 16])),
    ("WAIT_FOR_PAUSE", NOSYS, &[], |bench| send(&bench.ctrl, 0xc008_4710, &mut [0; 8])),
    ("RESUME_FROM_PAUSE", NOSYS, &[], |bench| send(&bench.ctrl, 0x4715, &mut [])),
    ("TRIGGER_SUSPEND", NOSYS, &[], |bench| send(&bench.ctrl, 0x4716, &mut [])),
];

pub(crate) const COPIES: &[Rule] = &[
    ("GET_CHARACTERISTICS: the number of bytes not copied, and no size", Ok(100), &[], |bench| {
        let mut args =
            GetCharacteristics { gpu_characteristics_buf_size: 100, gpu_characteristics_buf_addr: NOWHERE };
        // SAFETY: the software kernel checks every address before it uses it.
        let result = unsafe { ctrl::GET_CHARACTERISTICS.send_pointing(&bench.ctrl, &mut args) };
        assert_eq!(args.gpu_characteristics_buf_size, 100);
        result
    }),
    ("GET_CHARACTERISTICS: size 0 needs no address", Ok(0), &[], |bench| {
        let mut args =
            GetCharacteristics { gpu_characteristics_buf_size: 0, gpu_characteristics_buf_addr: NOWHERE };
        // SAFETY: as above.
        let result = unsafe { ctrl::GET_CHARACTERISTICS.send_pointing(&bench.ctrl, &mut args) };
        let size = if bench.release < Release::R39_2 { 328 } else { 344 };
        assert_eq!(args.gpu_characteristics_buf_size, size);
        result
    }),
    ("GET_TPC_MASKS: at most the available masks", Ok(6), &[], |bench| {
        let mut args = GetTpcMasks { mask_buf_size: 6, mask_buf_addr: NOWHERE, ..Default::default() };
        // SAFETY: as above.
        let result = unsafe { ctrl::GET_TPC_MASKS.send_pointing(&bench.ctrl, &mut args) };
        assert_eq!(args.mask_buf_size, 6);
        result
    }),
    ("GET_ENGINE_INFO: engines are stored one by one", Ok(16), &[], |bench| {
        let mut args =
            GetEngineInfo { engine_info_buf_size: 64, engine_info_buf_addr: NOWHERE, ..Default::default() };
        // SAFETY: as above.
        let result = unsafe { ctrl::GET_ENGINE_INFO.send_pointing(&bench.ctrl, &mut args) };
        assert_eq!(args.engine_info_buf_size, 64);
        result
    }),
    ("GET_ENGINE_INFO: no whole entry fits, and the total size is returned", Ok(0), &[], |bench| {
        let mut args =
            GetEngineInfo { engine_info_buf_size: 15, engine_info_buf_addr: NOWHERE, ..Default::default() };
        // SAFETY: as above.
        let result = unsafe { ctrl::GET_ENGINE_INFO.send_pointing(&bench.ctrl, &mut args) };
        assert_eq!(args.engine_info_buf_size, 64);
        result
    }),
    ("VSMS_MAPPING: six bytes per SM", Ok(16 * 6), &[], |bench| {
        let mut args = ctrl::VsmsMapping { vsms_map_buf_addr: NOWHERE };
        // SAFETY: as above.
        unsafe { ctrl::VSMS_MAPPING.send_pointing(&bench.ctrl, &mut args) }
    }),
    ("copy-out: the descriptor of an address space remains open", Ok(64), &[], |bench| {
        let args = AllocAs { va_range_start: LOGGED_START, va_range_end: LOGGED_END, ..AllocAs::default() };
        let result = send_constant(&bench.ctrl, code::ALLOC_AS, args.as_bytes());
        assert_eq!(bench.orin.live().address_spaces, 1);
        result
    }),
    ("GET_GPC_LOCAL_TO_LOGICAL_MAP: the size is checked before the address", INVAL, &[], |bench| {
        send(&bench.ctrl, code::GET_GPC_LOCAL_TO_LOGICAL_MAP, &mut [7; 16])
    }),
    ("GET_GPC_LOCAL_TO_PHYSICAL_MAP: the size is checked before the address", INVAL, &[], |bench| {
        send(&bench.ctrl, code::GET_GPC_LOCAL_TO_PHYSICAL_MAP, &mut [7; 16])
    }),
    ("GET_GPC_LOCAL_TO_PHYSICAL_MAP: a bad address", FAULT, &[], |bench| {
        let map = ctrl::GetGpcPhysicalMap { map_buf_size: 8, reserved: 0, physical_gpc_buf_addr: NOWHERE };
        send_constant(&bench.ctrl, code::GET_GPC_LOCAL_TO_PHYSICAL_MAP, map.as_bytes())
    }),
];

fn alloc_as(bench: &Bench, change: impl FnOnce(&mut AllocAs)) -> Answer {
    let mut args = AllocAs { va_range_start: LOGGED_START, va_range_end: LOGGED_END, ..AllocAs::default() };
    change(&mut args);
    let result = ctrl::ALLOC_AS.send(&bench.ctrl, &mut args);
    if result.is_err() {
        assert_eq!((args.as_fd, bench.orin.live().address_spaces), (0, 0), "nothing leaked");
    }
    result
}

fn open_tsg(bench: &Bench, flags: u32, source_device_instance_id: u64, share_token: u64) -> Answer {
    let mut args = OpenTsg { flags, source_device_instance_id, share_token, tsg_fd: 0 };
    ctrl::OPEN_TSG.send(&bench.ctrl, &mut args)
}

pub(crate) const OBJECTS: &[Rule] = &[
    ("ALLOC_AS: big pages of 64 KiB, a power of two, do not exist here", INVAL, &[], |bench| {
        alloc_as(bench, |args| args.big_page_size = 65_536)
    }),
    ("ALLOC_AS 3 before 9: a bad big page and a range too high", INVAL, &[], |bench| {
        alloc_as(bench, |args| (args.big_page_size, args.va_range_end) = (3, 1 << 60))
    }),
    ("ALLOC_AS 7 before 9: start above end, and too high", INVAL, &[], |bench| {
        alloc_as(bench, |args| (args.va_range_start, args.va_range_end) = (1 << 61, 1 << 60))
    }),
    ("ALLOC_AS 7: an empty range", INVAL, &[], |bench| {
        alloc_as(bench, |args| args.va_range_end = LOGGED_START)
    }),
    ("ALLOC_AS 8 before 9: a split and a range too high", INVAL, &[], |bench| {
        alloc_as(bench, |args| (args.va_range_split, args.va_range_end) = (1, 1 << 60))
    }),
    ("ALLOC_AS: up to the MMU's limit", Ok(0), &[], |bench| {
        alloc_as(bench, |args| args.va_range_end = (1 << 49) - (4 << 30))
    }),
    (
        "ALLOC_AS 9: 2 MiB more",
        NOMEM,
        &["WARNING in nvgpu_vm_do_init+0x0/0x0 [nvgpu]: Overlap between user and kernel spaces"],
        |bench| alloc_as(bench, |args| args.va_range_end = (1 << 49) - (4 << 30) + (2 << 20)),
    ),
    ("OPEN_TSG: a token without the flag", INVAL, &["Source device inst id/token specified"], |bench| {
        open_tsg(bench, 0, 0, 1)
    }),
    ("OPEN_TSG: the flag without a source", INVAL, &["Source device inst id/token not specified"], |bench| {
        open_tsg(bench, 1, 0, 1)
    }),
    ("OPEN_TSG: an unknown token", INVAL, &["TSG open with token failed"], |bench| open_tsg(bench, 1, 1, 1)),
    ("OPEN_TSG: unknown flags are ignored", Ok(0), &[], |bench| open_tsg(bench, 6, 0, 0)),
    ("OPEN_CHANNEL: a runlist that does not exist", INVAL, &[], |bench| {
        let mut args = OpenChannel { runlist_id_or_fd: 77 };
        let result = ctrl::OPEN_CHANNEL.send(&bench.ctrl, &mut args);
        assert_eq!(args.runlist_id_or_fd, 77);
        result
    }),
    ("ALLOC_AS: big pages of 128 KiB", INVAL, &[], |bench| {
        alloc_as(bench, |args| args.big_page_size = 1 << 17)
    }),
    ("ALLOC_AS: start 0", INVAL, &[], |bench| alloc_as(bench, |args| args.va_range_start = 0)),
    ("ALLOC_AS: start inside 2 MiB", INVAL, &[], |bench| {
        alloc_as(bench, |args| args.va_range_start = 1 << 20)
    }),
    ("ALLOC_AS: end inside 2 MiB", INVAL, &[], |bench| {
        alloc_as(bench, |args| args.va_range_end = 0xfff_ffff_f000)
    }),
    ("ALLOC_AS: zeroes", INVAL, &[], |bench| alloc_as(bench, |args| *args = AllocAs::default())),
    ("ALLOC_AS: the usual range", Ok(0), &[], |bench| alloc_as(bench, |_| ())),
    ("ALLOC_AS: unknown flags are ignored", Ok(0), &[], |bench| {
        alloc_as(bench, |args| args.flags = u32::MAX)
    }),
    ("ALLOC_AS: reserved words are ignored", Ok(0), &[], |bench| {
        alloc_as(bench, |args| (args.reserved, args.padding) = (1, [1; 6]))
    }),
    ("OPEN_TSG: a source without the flag", INVAL, &["Source device inst id/token specified"], |bench| {
        open_tsg(bench, 0, 1, 0)
    }),
    ("OPEN_TSG: the flag without a token", INVAL, &["Source device inst id/token not specified"], |bench| {
        open_tsg(bench, 1, 1, 0)
    }),
    ("OPEN_CHANNEL: runlist -1", Ok(0), &[], |bench| bench.try_channel(-1).map(|_| 0)),
];

/// REGISTER_BUFFER of three bytes on a buffer, optionally after a first call with `first` flags.
fn register(bench: &Bench, first: Option<u32>, change: impl FnOnce(&mut RegisterBuffer)) -> Answer {
    let fd = bench.buffer(4096);
    let plain = RegisterBuffer {
        dmabuf_fd: fd.raw(),
        metadata_addr: constant(&[1, 2, 3]),
        metadata_size: 3,
        ..Default::default()
    };
    let send = |mut args: RegisterBuffer| {
        // SAFETY: the software kernel checks every address before it uses it.
        let result = unsafe { ctrl::REGISTER_BUFFER.send_pointing(&bench.ctrl, &mut args) };
        assert!(result.is_err() || args.flags == 0, "nothing of the flags comes back");
        result
    };
    if let Some(flags) = first {
        send(RegisterBuffer { flags, ..plain }).unwrap();
    }
    let mut args = plain;
    change(&mut args);
    send(args)
}

/// GET_BUFFER_INFO without room for metadata. The output overlaps the input.
fn buffer_info(bench: &Bench, dmabuf_fd: i32) -> (Answer, BufferInfoOut) {
    let input = BufferInfoIn { dmabuf_fd, metadata_addr: NOWHERE, ..Default::default() };
    let mut bytes = [0_u8; 24];
    bytes.copy_from_slice(input.as_bytes());
    let result = send(&bench.ctrl, code::GET_BUFFER_INFO, &mut bytes);
    (result, BufferInfoOut::read_from_bytes(&bytes).unwrap())
}

/// PREPARE_COMPRESSIBLE_READ, which reports no compression.
fn compressible(bench: &Bench, handle: u32) -> Answer {
    let mut args = ctrl::PrepareCompressibleRead { handle, compbits: 7, ..Default::default() };
    let result = ctrl::PREPARE_COMPRESSIBLE_READ.send(&bench.ctrl, &mut args);
    assert_eq!(args.compbits, if result.is_ok() { 0 } else { 7 });
    result
}

pub(crate) const BUFFERS: &[Rule] = &[
    (
        "REGISTER_BUFFER: the size is checked before the control, and both before the descriptor",
        INVAL,
        &["Invalid metadata blob size"],
        |bench| {
            register(bench, None, |args| {
                (args.metadata_size, args.comptags_alloc_control, args.dmabuf_fd) = (257, 3, -1);
            })
        },
    ),
    (
        "REGISTER_BUFFER: the control is checked before the descriptor",
        INVAL,
        &["Invalid comptags_alloc_control"],
        |bench| register(bench, None, |args| (args.comptags_alloc_control, args.dmabuf_fd) = (3, -1)),
    ),
    (
        "REGISTER_BUFFER: the descriptor is checked before the address",
        BADF,
        &["nvgpu_gpu_ioctl_register_buffer: fd -1 is not a dmabuf"],
        |bench| register(bench, None, |args| (args.metadata_addr, args.dmabuf_fd) = (NOWHERE, -1)),
    ),
    (
        "REGISTER_BUFFER: a second registration wins over a bad address",
        INVAL,
        &["attempt to modify buffer metadata without NVGPU_GPU_REGISTER_BUFFER_FLAGS_MODIFY"],
        |bench| register(bench, Some(2), |args| args.metadata_addr = NOWHERE),
    ),
    (
        "REGISTER_BUFFER: a second registration of an immutable buffer",
        INVAL,
        &["attempt to redefine immutable metadata"],
        |bench| register(bench, Some(0), |args| args.flags = 4),
    ),
    ("REGISTER_BUFFER: a second registration", Ok(0), &[], |bench| {
        register(bench, Some(2), |args| args.flags = 6)
    }),
    (
        "REGISTER_BUFFER: the address is checked before the compression tags",
        FAULT,
        &["Error copying buffer metadata blob"],
        |bench| {
            register(bench, None, |args| (args.metadata_addr, args.comptags_alloc_control) = (NOWHERE, 2))
        },
    ),
    (
        "REGISTER_BUFFER: compression tags are never available",
        NOMEM,
        &["Comptags allocation (required) failed (-12)", "Comptags alloc control failed -12"],
        |bench| register(bench, None, |args| args.comptags_alloc_control = 2),
    ),
    ("REGISTER_BUFFER: a read-only twin is a separate dma-buf", Ok(0), &[], |bench| {
        let handle = bench.create(4096);
        bench.alloc(handle);
        let (fd, twin) = (bench.export(handle), bench.export(twin(bench, handle).unwrap()));
        register(bench, None, |args| args.dmabuf_fd = fd.raw()).unwrap();
        register(bench, None, |args| args.dmabuf_fd = twin.raw())
    }),
    ("GET_BUFFER_INFO: size 0 needs no address; output fields overlap the input", Ok(0), &[], |bench| {
        let fd = bench.buffer(8192);
        register(bench, None, |args| args.dmabuf_fd = fd.raw()).unwrap();
        let (result, out) = buffer_info(bench, fd.raw());
        assert_eq!((out.flags, out.metadata_size, out.size), (1, 3, 8192));
        result
    }),
    ("PREPARE_COMPRESSIBLE_READ: a closed descriptor is EINVAL", INVAL, &[], |bench| {
        send(&bench.ctrl, code::PREPARE_COMPRESSIBLE_READ, &mut [0xff; 80])
    }),
    ("MARK_COMPRESSIBLE_WRITE: a closed descriptor is EINVAL", INVAL, &["invalid dmabuf"], |bench| {
        send(&bench.ctrl, code::MARK_COMPRESSIBLE_WRITE, &mut [0xff; 32])
    }),
    ("REGISTER_BUFFER: a descriptor that is not a dma-buf", INVAL, &["… is not a dmabuf"], |bench| {
        register(bench, None, |args| args.dmabuf_fd = bench.ctrl.raw())
    }),
    (
        "GET_BUFFER_INFO: a closed descriptor",
        BADF,
        &["nvgpu_gpu_ioctl_get_buffer_info: fd -1 is not a dmabuf"],
        |bench| buffer_info(bench, -1).0,
    ),
    ("GET_BUFFER_INFO: a descriptor that is not a dma-buf", INVAL, &["… is not a dmabuf"], |bench| {
        buffer_info(bench, bench.ctrl.raw()).0
    }),
    ("GET_BUFFER_INFO: a buffer that was never registered", Ok(0), &[], |bench| {
        let (result, out) = buffer_info(bench, bench.buffer(8192).raw());
        assert_eq!((out.flags, out.metadata_size, out.size), (0, 0, 8192));
        result
    }),
    ("PREPARE_COMPRESSIBLE_READ: a descriptor that is not a dma-buf", INVAL, &[], |bench| {
        compressible(bench, raw(&bench.ctrl))
    }),
    ("PREPARE_COMPRESSIBLE_READ: a buffer without compression tags", Ok(0), &[], |bench| {
        compressible(bench, raw(&bench.buffer(4096)))
    }),
];

fn vidmem(bench: &Bench, size: u64, alignment: u32, flags: u32) -> Answer {
    let mut args = AllocVidmem { size_or_fd: size, alignment, flags, ..Default::default() };
    ctrl::ALLOC_VIDMEM.send(&bench.ctrl, &mut args)
}

fn points(bench: &Bench, change: impl FnOnce(&mut ClkVfPointsArgs)) -> (Answer, u16, u16) {
    let mut args = ClkVfPointsArgs {
        clk_domain: ctrl::CLK_DOMAIN_GPCCLK,
        num_entries: 9,
        clk_vf_point_entries: NOWHERE,
        ..Default::default()
    };
    change(&mut args);
    // SAFETY: the software kernel checks every address before it uses it.
    let result = unsafe { ctrl::CLK_GET_VF_POINTS.send_pointing(&bench.ctrl, &mut args) };
    (result, args.max_entries, args.num_entries)
}

fn clock_range(bench: &Bench, flags: u32, num_entries: u16) -> Answer {
    let mut ranges = [ctrl::ClkRange { clk_domain: ctrl::CLK_DOMAIN_GPCCLK, ..Default::default() }; 2];
    let clk_range_entries = ranges.as_mut_ptr().expose_provenance() as u64;
    let mut args = ctrl::ClkRangeArgs { flags, num_entries, clk_range_entries, ..Default::default() };
    // SAFETY: the address is that of two live entries.
    unsafe { ctrl::CLK_GET_RANGE.send_pointing(&bench.ctrl, &mut args) }
}

fn set_clocks(bench: &Bench, flags: u32, num_entries: u16) -> Answer {
    let mut args = ctrl::ClkSetInfo { flags, num_entries, clk_info_entries: NOWHERE, ..Default::default() };
    // SAFETY: the software kernel checks every address before it uses it.
    unsafe { ctrl::CLK_SET_INFO.send_pointing(&bench.ctrl, &mut args) }
}

fn flush(bench: &Bench, operations: u8) -> Answer {
    ctrl::FLUSH_L2.send(&bench.ctrl, &mut FlushL2 { operations, reserved: [9; 4] })
}

fn correlation(bench: &Bench, count: u32, source_id: u32) -> Answer {
    let mut args = GetCpuTimeCorrelationInfo { count, source_id, ..Default::default() };
    ctrl::GET_CPU_TIME_CORRELATION_INFO.send(&bench.ctrl, &mut args)
}

fn debug_mode(bench: &Bench, channel: &DoorFd) -> Answer {
    let mut args = ctrl::SmDebugMode { channel_fd: channel.raw(), ..Default::default() };
    ctrl::SET_SM_DEBUG_MODE.send(&bench.ctrl, &mut args)
}

pub(crate) const RARE: &[Rule] = &[
    ("FLUSH_L2: invalidating without flushing, with an fb flush", INVAL, &[], |bench| flush(bench, 6)),
    ("FLUSH_L2: the reserved word is ignored", Ok(0), &[], |bench| flush(bench, 4)),
    ("GET_CPU_TIME_CORRELATION_INFO: 0 samples still need a valid source", INVAL, &[], |bench| {
        correlation(bench, 0, 9)
    }),
    ("GET_CPU_TIME_CORRELATION_INFO: 16 samples", Ok(0), &[], |bench| correlation(bench, 16, 2)),
    ("ALLOC_VIDMEM: an alignment above the size, not above its next power of two", NOMEM, &[], |bench| {
        vidmem(bench, 0x3000, 0x4000, 0)
    }),
    ("ALLOC_VIDMEM: an alignment above that", INVAL, &[], |bench| vidmem(bench, 0x3000, 0x8000, 0)),
    ("ALLOC_VIDMEM: an alignment of 3 pages", INVAL, &[], |bench| vidmem(bench, 0x4000, 0x3000, 0)),
    ("GET_MEMORY_STATE: the last reserved word", INVAL, &[], |bench| {
        let mut args = ctrl::GetMemoryState { reserved: [0, 0, 0, 1], ..Default::default() };
        ctrl::GET_MEMORY_STATE.send(&bench.ctrl, &mut args)
    }),
    ("CLK_GET_VF_POINTS: the capacity returns the number of points", Ok(0), &[], |bench| {
        let (result, max_entries, num_entries) = points(bench, |_| ());
        assert!(max_entries > 1 && num_entries == 0);
        result
    }),
    ("CLK_GET_VF_POINTS: too little room", INVAL, &[], |bench| points(bench, |args| args.max_entries = 1).0),
    ("CLK_GET_VF_POINTS: the bytes of the first point that were not copied", Ok(8), &[], |bench| {
        points(bench, |args| args.max_entries = 1000).0
    }),
    ("CLK_SET_INFO: the flags are checked before the number", INVAL, &[], |bench| set_clocks(bench, 1, 2)),
    ("CLK_SET_INFO: the number is checked before the address", INVAL, &["invalid num_entries 2"], |bench| {
        set_clocks(bench, 0, 2)
    }),
    ("FLUSH_L2: no operation", INVAL, &[], |bench| flush(bench, 0)),
    ("FLUSH_L2: of a GPU without power", Ok(0), &[], |bench| {
        flush(bench, ctrl::FlushL2Operations::L2_FLUSH.bits())
    }),
    ("GET_CPU_TIME_CORRELATION_INFO: 17 samples", INVAL, &[], |bench| correlation(bench, 17, 1)),
    ("GET_CPU_TIME_CORRELATION_INFO: source 0", INVAL, &[], |bench| correlation(bench, 1, 0)),
    ("GET_CPU_TIME_CORRELATION_INFO: source 3", INVAL, &[], |bench| correlation(bench, 1, 3)),
    ("GET_MEMORY_STATE: the GPU has no memory of its own", NOSYS, &[], |bench| {
        ctrl::GET_MEMORY_STATE.send(&bench.ctrl, &mut ctrl::GetMemoryState::default())
    }),
    ("ALLOC_VIDMEM: size 0", INVAL, &[], |bench| vidmem(bench, 0, 0, 0)),
    ("ALLOC_VIDMEM: a size inside a page", INVAL, &[], |bench| vidmem(bench, 5000, 0, 0)),
    ("ALLOC_VIDMEM: mapped by the CPU", INVAL, &[], |bench| {
        vidmem(bench, 4096, 0, ctrl::AllocVidmemFlags::CPU_CACHED.bits())
    }),
    ("ALLOC_VIDMEM: protected", INVAL, &[], |bench| {
        vidmem(bench, 4096, 0, ctrl::AllocVidmemFlags::VPR.bits())
    }),
    ("CLK_GET_RANGE: flag 2", INVAL, &[], |bench| clock_range(bench, 2, 1)),
    ("CLK_GET_RANGE: more entries than domains", INVAL, &[], |bench| {
        assert_eq!(clock_range(bench, ctrl::CLK_FLAG_SPECIFIC_DOMAINS, 1), Ok(0));
        clock_range(bench, ctrl::CLK_FLAG_SPECIFIC_DOMAINS, 2)
    }),
    ("CLK_GET_VF_POINTS: a flag", INVAL, &[], |bench| points(bench, |args| args.flags = 1).0),
    ("CLK_GET_VF_POINTS: the clock of the memory", INVAL, &[], |bench| {
        points(bench, |args| args.clk_domain = ctrl::CLK_DOMAIN_MCLK).0
    }),
    ("CLK_SET_INFO: no entries", INVAL, &["invalid num_entries 0"], |bench| set_clocks(bench, 0, 0)),
    ("SET_SM_DEBUG_MODE: a channel", Ok(0), &[], |bench| debug_mode(bench, &bench.channel())),
    ("SET_SM_DEBUG_MODE: a descriptor that is not a channel", INVAL, &[], |bench| {
        debug_mode(bench, &bench.ctrl)
    }),
];

pub(crate) const DOORBELL: &[Rule] = &[
    ("mmap: a second mapping wins over a bad length and a bad offset", BUSY, &[], |bench| {
        let _first = bench.doorbell();
        bench.ctrl.map(4096, 0x2_0000, BOTH).map(|_| 0)
    }),
    ("mmap: an unaligned offset wins over a second mapping", INVAL, &[], |bench| {
        let _first = bench.doorbell();
        bench.ctrl.map(8, 4096, BOTH).map(|_| 0)
    }),
    ("mmap: length 0 wins over a second mapping", INVAL, &[], |bench| {
        let _first = bench.doorbell();
        bench.ctrl.map(0, 0, BOTH).map(|_| 0)
    }),
    ("mmap: a bad length wins over power", INVAL, &QUIESCE, |bench| {
        bench.orin.quiesce();
        bench.ctrl.map(0, 0x1_0001, BOTH).map(|_| 0)
    }),
    ("mmap: an offset wins over power", INVAL, &QUIESCE, |bench| {
        bench.orin.quiesce();
        bench.ctrl.map(4096, 4096, BOTH).map(|_| 0)
    }),
    ("mmap: the page, and again after munmap, with the most bytes", Ok(0), &[], |bench| {
        drop(bench.ctrl.map(0, 4096, BOTH).unwrap());
        bench.ctrl.map(0, 0x1_0000, BOTH).map(|_| 0)
    }),
    ("mmap: another open of the node has another mapping", Ok(0), &[], |bench| {
        let _page = bench.doorbell();
        let other = DoorFd::open(&bench.door, paths::CTRL, FLAGS).unwrap();
        other.map(0, 4096, BOTH).map(|_| 0)
    }),
    ("mmap: without power", NODEV, &QUIESCE, |bench| {
        bench.orin.quiesce();
        bench.ctrl.map(0, 4096, BOTH).map(|_| 0)
    }),
    ("mmap: any protection", Ok(0), &[], |bench| bench.ctrl.map(0, 4096, Protection::READ).map(|_| 0)),
    ("mmap: the mapping keeps the descriptor's objects alive", Ok(0), &[], |bench| {
        let node = DoorFd::open(&bench.door, paths::CTRL, FLAGS).unwrap();
        let page = node.map(0, 4096, BOTH).unwrap();
        drop(node);
        let other = DoorFd::open(&bench.door, paths::CTRL, FLAGS).unwrap();
        let result = other.map(0, 4096, BOTH).map(|_| 0);
        drop(page);
        result
    }),
];

pub(crate) const DESCRIPTORS: &[Rule] = &[
    ("door: a number that is not open", BADF, &[], |bench| close(&bench.door, i32::MAX).map(|()| 0)),
    ("door: closed twice", BADF, &[], |bench| {
        let fd = bench.space().raw();
        close(&bench.door, fd).map(|()| 0)
    }),
    ("door: a request on a closed number", BADF, &[], |bench| {
        let fd = adopt(&bench.door, i32::try_from(CLOSED).unwrap());
        send_at(&fd, nvgpu_sys::address_space::code::UNMAP_BUFFER, NOWHERE)
    }),
    ("door: a request on a descriptor without requests wins over a bad address", NOTTY, &[], |bench| {
        send_at(&bench.buffer(4096), code::ALLOC_AS, NOWHERE)
    }),
    ("door: a request on a foreign descriptor", NOTTY, &[], |bench| {
        let fd = adopt(&bench.door, i32::try_from(foreign()).unwrap());
        send_at(&fd, code::ALLOC_AS, NOWHERE)
    }),
    ("door: the address space of a closed node keeps working", Ok(0), &[], |bench| {
        let node = DoorFd::open(&bench.door, paths::CTRL, FLAGS).unwrap();
        let mut args =
            AllocAs { va_range_start: LOGGED_START, va_range_end: LOGGED_END, ..AllocAs::default() };
        ctrl::ALLOC_AS.send(&node, &mut args).unwrap();
        drop(node);
        let space = adopt(&bench.door, args.as_fd);
        map(&space, &bench.buffer(4096)).map(|_| 0)
    }),
    ("door: a copy of a descriptor keeps its object alive, even in another process", Ok(0), &[], |bench| {
        let child = bench.orin.process();
        let door: Arc<dyn Door> = Arc::new(child.clone());
        let space = bench.space();
        let copy = adopt(&door, bench.orin.send(space.raw(), &child).unwrap());
        drop(space);
        assert_eq!(bench.orin.live().address_spaces, 1);
        let theirs = MapRequest { fd: copy.raw(), offset: 0, len: 4096, protection: BOTH, place: None };
        assert_eq!(mmap(&bench.door, &theirs).err(), Some(Errno::BADF), "it is the other one's number");
        drop(copy);
        assert_eq!(bench.orin.live().address_spaces, 0);
        Ok(0)
    }),
    ("door: a parent's control node works in its child, until both close it", Ok(0), &[], |bench| {
        let (child, numbers) = bench.orin.fork().unwrap();
        let door: Arc<dyn Door> = Arc::new(child.clone());
        let theirs = adopt(&door, numbers[&bench.ctrl.raw()]);
        let own = ctrl::get_characteristics(&bench.ctrl).unwrap().0.device_instance_id;
        let inherited = ctrl::get_characteristics(&theirs).unwrap().0.device_instance_id;
        assert_eq!(own, inherited, "one open file");
        child.exit();
        core::mem::forget(theirs);
        ctrl::NUM_VSMS.send(&bench.ctrl, &mut ctrl::NumVsms::default())
    }),
    ("door: the address space node cannot be opened", INVAL, &[], |bench| {
        DoorFd::open(&bench.door, c"/dev/nvgpu/igpu0/as", FLAGS).map(|_| 0)
    }),
];
