//! Every row of the table of error numbers, through the public door.
//!
//! `data/kernel-errnos.json` lists which condition of which request gives which errno on the real
//! driver. A row is either produced here or named as not modelled, with the reason.

mod kernel_support;

use core::ffi::c_void;
use core::ptr;

use kernel_support::*;
use nvgpu_sys::address_space::{self as space, AllocSpaceFlags, MapBufferFlags};
use nvgpu_sys::channel;
use nvgpu_sys::ctrl::{self, AllocAs};
use nvgpu_sys::door::{DoorFd, Protection};
use nvgpu_sys::nvmap::{self, AllocHandle, CreateHandle, Heaps};
use nvgpu_sys::tsg;
use nvgpu_sys::{Errno, paths};
use orin_sim::Config;
use serde::Deserialize;

#[derive(Deserialize)]
struct Row {
    ioctl: String,
    condition: String,
    errno: String,
}

/// What became of a row: the result of the call, or why it cannot be made.
type Outcome = Result<Result<i32, Errno>, &'static str>;

const UNKNOWN: &str = "no test produces this condition";

fn expected(name: &str) -> Option<Errno> {
    Some(match name {
        "OK" => return None,
        "EPERM" => Errno::PERM,
        "ENOENT" => Errno::NOENT,
        "EINTR" => Errno::INTR,
        "EBADF" => Errno::BADF,
        "EAGAIN" => Errno::AGAIN,
        "ENOMEM" => Errno::NOMEM,
        "EACCES" => Errno::ACCESS,
        "EFAULT" => Errno::FAULT,
        "EBUSY" => Errno::BUSY,
        "EEXIST" => Errno::EXIST,
        "ENODEV" => Errno::NODEV,
        "EINVAL" => Errno::INVAL,
        "ENOTTY" => Errno::NOTTY,
        "ENOSPC" => Errno::NOSPC,
        "ENOSYS" => Errno::NOSYS,
        "ETIMEDOUT" => Errno::TIMEDOUT,
        other => panic!("the table has a new errno: {other}"),
    })
}

#[test]
fn every_row_is_produced_or_named_as_not_modelled() {
    let rows: Vec<Row> = serde_json::from_str(include_str!("data/kernel-errnos.json")).unwrap();
    let (mut produced, mut absent, mut wrong) = (0, Vec::new(), Vec::new());
    for row in &rows {
        let name = format!("{}: {}", row.ioctl, row.condition);
        match produce(&row.ioctl, &row.condition) {
            Err(UNKNOWN) => wrong.push(format!("{name}: {UNKNOWN}")),
            Err(reason) => absent.push(format!("{name}: not modelled: {reason}")),
            Ok(result) => {
                produced += 1;
                if result.err() != expected(&row.errno) {
                    wrong.push(format!("{name}: expected {}, got {result:?}", row.errno));
                }
            }
        }
    }
    eprintln!("{produced} of {} rows produced; the others:\n{}", rows.len(), absent.join("\n"));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(produced >= 150, "only {produced} rows are produced");
}

fn produce(ioctl: &str, condition: &str) -> Outcome {
    match ioctl {
        "nvmap:*" | "nvmap:mmap(/dev/nvmap)" | "mmap(nvmap dma-buf)" => nvmap_node(ioctl, condition),
        "NVMAP_IOC_ALLOC" => nvmap_alloc(condition),
        name if name.starts_with("NVMAP_") => nvmap_requests(name, condition),
        "ctrl:*" | "nvgpu:*" | "mmap(ctrl fd)" => ctrl_node(ioctl, condition),
        "NVGPU_GPU_IOCTL_ALLOC_AS" => alloc_as(condition),
        name if name.starts_with("NVGPU_GPU_") => ctrl_requests(name, condition),
        "as:*" => space_node(condition),
        "NVGPU_AS_IOCTL_MAP_BUFFER_EX" => map_buffer(condition),
        name if name.starts_with("NVGPU_AS_") => space_requests(name, condition),
        "NVGPU_TSG_IOCTL_BIND_CHANNEL_EX" => tsg_bind(condition),
        name if name.starts_with("NVGPU_TSG_") || name.starts_with("NVGPU_IOCTL_TSG_") || name == "tsg:*" => {
            tsg_requests(name, condition)
        }
        "NVGPU_IOCTL_CHANNEL_SETUP_BIND" => setup_bind(condition),
        name if name.starts_with("NVGPU_IOCTL_CHANNEL_") || name == "channel:*" => {
            channel_requests(name, condition)
        }
        name if name.starts_with("HOST1X_") || name == "poll(host1x sync_file)" => Err("syncpoints"),
        _ => Err(UNKNOWN),
    }
}

/// Sends any request with any argument.
fn send(fd: &DoorFd, code: u32, argument: &mut [u8]) -> Result<i32, Errno> {
    // SAFETY: the argument is a live slice; where it is shorter than the code says, the test means
    // the software kernel to find that out, which checks every address before it uses it.
    unsafe { fd.door().ioctl(fd.raw(), code, argument.as_mut_ptr().cast::<c_void>()) }
}

/// Sends a request with a plain address, valid or not.
fn send_at(fd: &DoorFd, code: u32, address: usize) -> Result<i32, Errno> {
    // SAFETY: the software kernel checks every address before it uses it.
    unsafe { fd.door().ioctl(fd.raw(), code, ptr::with_exposed_provenance_mut::<c_void>(address)) }
}

/// One page of zeroes that cannot be written.
fn read_only_page() -> *mut c_void {
    use rustix::mm::{MapFlags, ProtFlags};
    // SAFETY: a new anonymous mapping; it is never unmapped, which a test can afford.
    unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), 4096, ProtFlags::READ, MapFlags::PRIVATE) }.unwrap()
}

/// An open descriptor that the model knows nothing of.
fn foreign() -> std::fs::File {
    std::fs::File::open("/dev/null").unwrap()
}

fn foreign_number(file: &std::fs::File) -> i32 {
    use std::os::fd::AsRawFd;
    file.as_raw_fd()
}

/// A number that is not open.
const CLOSED: u32 = 0x7fff_0000;

fn nvmap_node(ioctl: &str, condition: &str) -> Outcome {
    let bench = Bench::new();
    Ok(match (ioctl, condition) {
        (_, "ioctl type is not N") => send(&bench.nvmap, 0xc008_4700, &mut [0; 8]),
        (_, "nr greater than 107") => send(&bench.nvmap, 0xc008_4e6c, &mut [0; 8]),
        (_, "argument address not accessible") => send_at(&bench.nvmap, nvmap::code::CREATE, 8),
        (_, "any mmap of the nvmap node") => bench.nvmap.map(0, 4096, Protection::READ).map(|_| 0),
        (_, "handle in VPR") => {
            let handle = bench.create(4096);
            bench.try_alloc(handle, Heaps::VPR.bits(), TAG).unwrap();
            bench.export(handle).map(0, 4096, Protection::READ).map(|_| 0)
        }
        (_, "writable mapping of a read-only FROM_VA handle") => return Err("FROM_VA"),
        _ => return Err(UNKNOWN),
    })
}

fn nvmap_alloc(condition: &str) -> Outcome {
    const IOVMM: u32 = Heaps::IOVMM.bits();
    let bench = Bench::with(Config { memory_bytes: 1 << 20, ..Config::default() });
    let handle = bench.create(8192);
    let mut args = AllocHandle { handle, heap_mask: IOVMM, flags: TAG | 1, align: 4096, numa_nid: -1 };
    match condition {
        "align is not a power of two" => args.align = 3,
        "align is 0" => args.align = 0,
        "handle is 0" => args.handle = 0,
        "numa_nid greater than MAX_NUMNODES" => args.numa_nid = 1000,
        "numa_nid is -2" => args.numa_nid = -2,
        "handle unknown in this process" => args.handle += 1,
        "heap_mask is 0" => args.heap_mask = 0,
        "heap_mask IOVMM and size larger than total RAM" => args.handle = bench.create(2 << 20),
        "handle already allocated" => bench.alloc(handle),
        "exclusive heap (IVM or VIDMEM) combined with another heap" => {
            args.heap_mask = IOVMM | Heaps::VIDMEM.bits();
        }
        "no heap can satisfy the request" => bench.alloc(bench.create(1 << 20)),
        "tag bits 31:16 are zero (warning only)" => args.flags = 1,
        _ => return Err(UNKNOWN),
    }
    let result = nvmap::ALLOC.send(&bench.nvmap, &mut args);
    let warnings = bench.orin.kernel_log().iter().filter(|line| line.contains("must have a tag")).count();
    assert_eq!(warnings, usize::from(args.flags >> 16 == 0));
    Ok(result)
}

fn nvmap_requests(ioctl: &str, condition: &str) -> Outcome {
    let bench = Bench::new();
    let mut bytes = [0_u8; 4096];
    let address = bytes.as_mut_ptr().expose_provenance() as u64;
    let rw = |handle| nvmap::RwHandle {
        addr: address,
        handle,
        elem_size: 8,
        hmem_stride: 8,
        user_stride: 8,
        count: 1,
        ..nvmap::RwHandle::default()
    };
    let read = |args: &mut nvmap::RwHandle| {
        // SAFETY: `bytes` outlives the call; the software kernel checks every address anyway.
        unsafe { nvmap::READ.send_pointing(&bench.nvmap, args) }
    };
    let write = |args: &mut nvmap::RwHandle| {
        // SAFETY: as for `read`.
        unsafe { nvmap::WRITE.send_pointing(&bench.nvmap, args) }
    };
    let get_fd = |handle| nvmap::GET_FD.send(&bench.nvmap, &mut CreateHandle { size_or_fd: 0, handle });
    let from_fd = |size_or_fd| nvmap::FROM_FD.send(&bench.nvmap, &mut CreateHandle { size_or_fd, handle: 0 });
    let read_only = || {
        let handle = bench.create(4096);
        bench.alloc(handle);
        let mut args = nvmap::DuplicateHandle {
            handle,
            access_flags: nvmap::HandleFlags::READ_ONLY.bits(),
            dup_handle: 0,
        };
        nvmap::DUP_HANDLE.send(&bench.nvmap, &mut args).unwrap();
        args.dup_handle
    };
    let cache_list = |handle: u32| {
        let (handles, offsets, sizes) = ([handle], [0_u32], [0_u32]);
        let at = |array: &[u32; 1]| array.as_ptr().expose_provenance() as u64;
        let mut args = nvmap::CacheOpList {
            handles: at(&handles),
            offsets: at(&offsets),
            sizes: at(&sizes),
            nr: 1,
            op: nvmap::CACHE_OP_WB,
        };
        // SAFETY: the arrays outlive the call.
        unsafe { nvmap::CACHE_LIST.send_pointing(&bench.nvmap, &mut args) }
    };
    Ok(match (ioctl, condition) {
        ("NVMAP_IOC_PARAM", _) => send(&bench.nvmap, 0xc010_4e08, &mut bytes),
        ("NVMAP_IOC_FROM_ID", _) => send(&bench.nvmap, 0xc008_4e02, &mut bytes),
        ("NVMAP_IOC_GET_ID", _) => send(&bench.nvmap, 0xc008_4e0d, &mut bytes),
        ("NVMAP_IOC_CREATE", _) => {
            let bench = Bench::with(Config { memory_bytes: 1 << 20, ..Config::default() });
            nvmap::CREATE.send(&bench.nvmap, &mut CreateHandle { size_or_fd: 1 << 30, handle: 0 })
        }
        ("NVMAP_IOC_CREATE_64", "size64 is 0") => {
            nvmap::CREATE_64.send(&bench.nvmap, &mut nvmap::CreateHandle64 { size_or_handle: 0 })
        }
        ("NVMAP_IOC_FREE", "number is an open dma-buf fd (the fd is closed)") => {
            let buffer = bench.buffer(4096);
            let before = bench.orin.live().descriptors;
            let result = nvmap::FREE.send(&bench.nvmap, raw(&buffer));
            assert_eq!(bench.orin.live().descriptors, before - 1);
            result
        }
        ("NVMAP_IOC_GET_FD", "handle unknown and number is an open fd that is not a dma-buf") => {
            get_fd(raw(&bench.ctrl))
        }
        ("NVMAP_IOC_GET_FD", "handle is the number of an nvmap dma-buf fd") => {
            let buffer = bench.buffer(4096);
            get_fd(raw(&buffer))
        }
        ("NVMAP_IOC_GET_FD", "process fd table full") => return Err("tested on its own, in kernel_limits"),
        ("NVMAP_IOC_FROM_FD", "fd not open") => from_fd(CLOSED),
        ("NVMAP_IOC_FROM_FD", "fd open but not a dma-buf") => {
            let file = foreign();
            from_fd(u32::try_from(foreign_number(&file)).unwrap())
        }
        ("NVMAP_IOC_FROM_FD", "nvmap buffer without memory") => {
            let buffer = bench.export(bench.create(4096));
            from_fd(raw(&buffer))
        }
        ("NVMAP_IOC_DUP_HANDLE", "read-write duplicate of a read-only id") => {
            let mut args = nvmap::DuplicateHandle { handle: read_only(), ..Default::default() };
            nvmap::DUP_HANDLE.send(&bench.nvmap, &mut args)
        }
        ("NVMAP_IOC_READ", "addr, count or elem_size is 0") => {
            let handle = bench.create(4096);
            bench.alloc(handle);
            assert_eq!(read(&mut nvmap::RwHandle { addr: 0, ..rw(handle) }), Err(Errno::INVAL));
            assert_eq!(read(&mut nvmap::RwHandle { count: 0, ..rw(handle) }), Err(Errno::INVAL));
            read(&mut nvmap::RwHandle { elem_size: 0, ..rw(handle) })
        }
        ("NVMAP_IOC_READ", "handle in VPR") => {
            let handle = bench.create(4096);
            bench.try_alloc(handle, Heaps::VPR.bits(), TAG).unwrap();
            read(&mut rw(handle))
        }
        ("NVMAP_IOC_READ", "handle not allocated") => read(&mut rw(bench.create(4096))),
        ("NVMAP_IOC_WRITE", "unknown handle") => write(&mut rw(1)),
        ("NVMAP_IOC_WRITE", "handle id is read-only") => write(&mut rw(read_only())),
        ("NVMAP_IOC_CACHE_LIST", "unknown handle in the list") => cache_list(1),
        ("NVMAP_IOC_CACHE_LIST", "unallocated handle in the list") => cache_list(bench.create(4096)),
        ("NVMAP_IOC_GET_AVAILABLE_HEAPS", "copy-out fails") => {
            send_at(&bench.nvmap, nvmap::code::GET_AVAILABLE_HEAPS, read_only_page().expose_provenance())
        }
        ("NVMAP_IOC_QUERY_HEAP_PARAMS", condition) => {
            let heap_mask = if condition == "heap_mask 0" { 0 } else { Heaps::VIDMEM.bits() };
            let mut args = nvmap::QueryHeapParams { heap_mask, ..Default::default() };
            let result = nvmap::QUERY_HEAP_PARAMS.send(&bench.nvmap, &mut args);
            assert_eq!((args.total, args.free), (0, 0));
            result
        }
        ("NVMAP_IOC_FROM_VA", _) => return Err("import of host memory"),
        ("NVMAP_IOC_CACHE", _) => return Err("cache maintenance of a mapping"),
        _ => return Err(UNKNOWN),
    })
}

fn ctrl_node(ioctl: &str, condition: &str) -> Outcome {
    let bench = Bench::new();
    let map = |offset, len| bench.ctrl.map(offset, len, Protection::READ | Protection::WRITE);
    Ok(match (ioctl, condition) {
        (_, "type is not G") => send(&bench.ctrl, 0xc010_4805, &mut [0; 16]),
        (_, "_IOC_SIZE above 264") => send(&bench.ctrl, 0xc109_4705, &mut [0; 265]),
        (_, "valid nr with wrong size or direction") => {
            assert_eq!(send(&bench.ctrl, 0x4010_4705, &mut [0; 16]), Err(Errno::NOTTY));
            send(&bench.ctrl, 0xc018_4705, &mut [0; 24])
        }
        (_, "copy-in fails") => send_at(&bench.ctrl, ctrl::code::ALLOC_AS, 8),
        (_, "final copy-out fails: ioctl returns a positive residue, errno not set") => {
            let page = read_only_page().expose_provenance();
            let result = send_at(&bench.ctrl, ctrl::code::NUM_VSMS, page);
            assert_eq!(result, Ok(8));
            result
        }
        (_, "software quiesce pending or driver dying") => {
            bench.orin.quiesce();
            ctrl::NUM_VSMS.send(&bench.ctrl, &mut ctrl::NumVsms::default())
        }
        (_, "this ctrl open already has a doorbell mapping") => {
            let _first = map(0, 4096).unwrap();
            let other = DoorFd::open(&bench.door, paths::CTRL, FLAGS).unwrap();
            other.map(0, 4096, Protection::WRITE).expect("another open has its own mapping");
            map(0, 4096).map(|_| 0)
        }
        (_, "length above 64 KiB") => map(0, 0x1_1000).map(|_| 0),
        (_, "offset nonzero") => map(4096, 4096).map(|_| 0),
        (_, "4096 bytes at offset 0") => map(0, 4096).map(|_| 0),
        (_, "again after munmap") => {
            drop(map(0, 4096).unwrap());
            map(0, 0x1_0000).map(|_| 0)
        }
        _ => return Err(UNKNOWN),
    })
}

fn alloc_as(condition: &str) -> Outcome {
    let bench = Bench::new();
    let mut args = AllocAs {
        flags: 2,
        va_range_start: LOGGED_START,
        va_range_end: 0xff_0000_0000,
        ..AllocAs::default()
    };
    match condition {
        "big_page_size 3 (not a power of two)" => args.big_page_size = 3,
        "big_page_size 131072" => args.big_page_size = 131_072,
        "va_range_start 0" => args.va_range_start = 0,
        "va_range_start 0x100000 (1 MiB)" => args.va_range_start = 0x10_0000,
        "va_range_end 0xffffffff000" => args.va_range_end = 0xfff_ffff_f000,
        "va_range_split nonzero" => args.va_range_split = 0x40_0000,
        "all fields zero" => args = AllocAs::default(),
        "big_page_size 0, start 0x200000, end 0xff00000000" => {}
        "unknown flag bits set" => args.flags = u32::MAX,
        "reserved or padding nonzero" => (args.reserved, args.padding) = (1, [1; 6]),
        "va_range_end + 4 GiB above 2^49" => args.va_range_end = 1 << 49,
        _ => return Err(UNKNOWN),
    }
    let before = bench.orin.live();
    let result = ctrl::ALLOC_AS.send(&bench.ctrl, &mut args);
    assert_eq!(bench.orin.live() == before, result.is_err(), "a refused request leaves nothing");
    Ok(result)
}

fn ctrl_requests(ioctl: &str, condition: &str) -> Outcome {
    let bench = Bench::new();
    let open_tsg = |flags, source_device_instance_id, share_token| {
        let mut args = ctrl::OpenTsg { tsg_fd: 0, flags, source_device_instance_id, share_token };
        ctrl::OPEN_TSG.send(&bench.ctrl, &mut args)
    };
    let flush = |operations: ctrl::FlushL2Operations| {
        let mut args = ctrl::FlushL2 { operations: operations.bits(), reserved: [0; 4] };
        ctrl::FLUSH_L2.send(&bench.ctrl, &mut args)
    };
    let correlation = |count, source_id| {
        let mut args = ctrl::GetCpuTimeCorrelationInfo { count, source_id, ..Default::default() };
        ctrl::GET_CPU_TIME_CORRELATION_INFO.send(&bench.ctrl, &mut args)
    };
    let gpc_map = |map_buf_size, physical_gpc_buf_addr| {
        let mut args = ctrl::GetGpcPhysicalMap { map_buf_size, reserved: 0, physical_gpc_buf_addr };
        // SAFETY: the software kernel checks every address before it uses it.
        unsafe { ctrl::GET_GPC_LOCAL_TO_PHYSICAL_MAP.send_pointing(&bench.ctrl, &mut args) }
    };
    Ok(match (ioctl, condition) {
        ("NVGPU_GPU_IOCTL_GET_CHARACTERISTICS", condition) => {
            if condition == "power-on fails" {
                bench.orin.quiesce();
            }
            let mut args = ctrl::GetCharacteristics::default();
            // SAFETY: with capacity 0 nothing is stored.
            let result = unsafe { ctrl::GET_CHARACTERISTICS.send_pointing(&bench.ctrl, &mut args) };
            assert_eq!(args.gpu_characteristics_buf_size, if result.is_ok() { 328 } else { 0 });
            result
        }
        (_, "no SHARE flag but source_device_instance_id nonzero") => open_tsg(0, 1, 0),
        (_, "SHARE flag with zero token") => open_tsg(1, 1, 0),
        (_, "SHARE flag with unknown token") => open_tsg(1, 1, 1),
        (_, "runlist_id -1") => bench.try_channel(-1).map(|_| 0),
        (_, "map_buf_size not 4 x GPC count") => gpc_map(8, 8),
        (_, "bad user address") => gpc_map(4, 8),
        (_, "neither l2_flush nor fb_flush") => flush(ctrl::FlushL2Operations::empty()),
        (_, "l2_invalidate without l2_flush") => {
            flush(ctrl::FlushL2Operations::L2_INVALIDATE | ctrl::FlushL2Operations::FB_FLUSH)
        }
        (_, "GPU railgated and railgating enabled") => flush(ctrl::FlushL2Operations::L2_FLUSH),
        (_, "count 17") => correlation(17, ctrl::TIME_SOURCE_TSC),
        (_, "source_id 0") => correlation(1, 0),
        (_, "source_id 3") => correlation(1, 3),
        ("NVGPU_GPU_IOCTL_GET_VOLTAGE", _) => send(&bench.ctrl, 0xc010_4722, &mut [0; 16]),
        ("NVGPU_GPU_IOCTL_GET_POWER", _) => send(&bench.ctrl, 0xc010_4724, &mut [0; 16]),
        ("NVGPU_GPU_IOCTL_WAIT_FOR_PAUSE", _) => send(&bench.ctrl, 0xc008_4710, &mut [0; 8]),
        ("NVGPU_GPU_IOCTL_RESUME_FROM_PAUSE", _) => send(&bench.ctrl, 0x4715, &mut []),
        ("NVGPU_GPU_IOCTL_TRIGGER_SUSPEND", _) => send(&bench.ctrl, 0x4716, &mut []),
        ("NVGPU_GPU_IOCTL_GET_MEMORY_STATE" | "NVGPU_GPU_IOCTL_ALLOC_VIDMEM", _) => {
            return Err("video memory of discrete GPUs");
        }
        ("NVGPU_GPU_IOCTL_PREPARE_COMPRESSIBLE_READ", _) => return Err("compression"),
        (name, _) if name.starts_with("NVGPU_GPU_IOCTL_CLK_") => return Err("clocks"),
        ("NVGPU_GPU_IOCTL_SET_SM_DEBUG_MODE", _) => return Err("debugger"),
        ("NVGPU_GPU_IOCTL_SET_DETERMINISTIC_OPTS", _) => return Err("power gating"),
        ("NVGPU_GPU_IOCTL_REGISTER_BUFFER" | "NVGPU_GPU_IOCTL_GET_BUFFER_INFO", _) => {
            return Err("metadata of buffers");
        }
        _ => return Err(UNKNOWN),
    })
}

fn space_node(condition: &str) -> Outcome {
    let bench = Bench::new();
    let space = bench.space();
    Ok(match condition {
        "type is not A" => send(&space, 0xc008_4705, &mut [0; 8]),
        "nr 0 or above 14" => {
            assert_eq!(send(&space, 0xc008_4100, &mut [0; 8]), Err(Errno::INVAL));
            send(&space, 0xc008_410f, &mut [0; 8])
        }
        "size above 40" => send(&space, 0xc029_4107, &mut [0; 41]),
        "nr 4, 9 or 10" => {
            assert_eq!(send(&space, 0xc008_4104, &mut [0; 8]), Err(Errno::NOTTY));
            assert_eq!(send(&space, 0xc020_4109, &mut [0; 32]), Err(Errno::NOTTY));
            send(&space, 0xc028_410a, &mut [0; 40])
        }
        "copy-out fails" => send_at(&space, space::code::UNMAP_BUFFER, read_only_page().expose_provenance()),
        _ => return Err(UNKNOWN),
    })
}

fn space_requests(ioctl: &str, condition: &str) -> Outcome {
    let bench = Bench::new();
    let space = bench.space();
    let fixed = AllocSpaceFlags::FIXED_OFFSET.bits();
    let page_size = |page_size| {
        let mut args = space::AllocSpace { pages: 1, page_size, ..Default::default() };
        space::ALLOC_SPACE.send(&space, &mut args)
    };
    let batch = |num_unmaps, num_maps| {
        let mut args =
            space::MapBufferBatch { unmaps: 8, maps: 8, num_unmaps, num_maps, ..Default::default() };
        // SAFETY: the software kernel checks every address before it uses it.
        unsafe { space::MAP_BUFFER_BATCH.send_pointing(&space, &mut args) }
    };
    let modify = |map_address, buffer_offset| {
        let mut args = space::MappingModify {
            compr_kind: space::KIND_INVALID,
            buffer_offset,
            buffer_size: 4096,
            map_address,
            ..Default::default()
        };
        space::MAPPING_MODIFY.send(&space, &mut args)
    };
    let reserved = |result: Result<u64, Errno>| result.map(|_| 0);
    Ok(match (ioctl, condition) {
        (_, "page_size 65536") => page_size(65_536),
        (_, "page_size 8192") => page_size(8192),
        (_, "pages 0") => reserved(reserve(&space, 0, 0, 0)),
        (_, "FIXED at an unaligned address") => reserved(reserve(&space, 1, fixed, LOGGED_START + 1)),
        (_, "FIXED below va_range_start") => reserved(reserve(&space, 1, fixed, LOGGED_START - 4096)),
        (_, "FIXED beyond va_range_end") => reserved(reserve(&space, 1, fixed, LOGGED_END)),
        (_, "larger than any free block") => reserved(reserve(&space, (1 << 27) + 1, 0, 0)),
        ("NVGPU_AS_IOCTL_ALLOC_SPACE", "unknown flag bits") => reserved(reserve(&space, 1, 0xfff0, 0)),
        ("NVGPU_AS_IOCTL_FREE_SPACE", "address not in any area") => {
            space::FREE_SPACE.send(&space, &mut space::FreeSpace { offset: 7, ..Default::default() })
        }
        ("NVGPU_AS_IOCTL_UNMAP_BUFFER", "unknown VA") => {
            space::UNMAP_BUFFER.send(&space, &mut space::UnmapBuffer { offset: 0x1234_5000 })
        }
        ("NVGPU_AS_IOCTL_UNMAP_BUFFER", "VA inside but not at start of a mapping (no effect)") => {
            let va = map(&space, &bench.buffer(8192)).unwrap();
            let result = space::UNMAP_BUFFER.send(&space, &mut space::UnmapBuffer { offset: va + 4096 });
            assert_eq!(bench.orin.live().gpu_mappings, 1);
            result
        }
        ("NVGPU_AS_IOCTL_GET_VA_REGIONS", "buf_addr unwritable") => {
            let mut args = space::GetVaRegions { buf_addr: 8, buf_size: 24, reserved: 0 };
            // SAFETY: the software kernel checks every address before it uses it.
            unsafe { space::GET_VA_REGIONS.send_pointing(&space, &mut args) }
        }
        (_, "num_maps 257") => batch(0, 257),
        (_, "num_unmaps 257") => batch(257, 0),
        (_, "unreadable array") => {
            assert_eq!(batch(1, 0), Err(Errno::FAULT));
            batch(0, 1)
        }
        (_, "no mapping at map_address") => modify(0x1000, 0),
        (_, "buffer_offset not page aligned") => {
            let va = map(&space, &bench.buffer(8192)).unwrap();
            assert_eq!(modify(va, 4096), Ok(0));
            modify(va, 8)
        }
        ("NVGPU_AS_IOCTL_REMAP", _) => return Err("remapping of sparse ranges"),
        _ => return Err(UNKNOWN),
    })
}

fn map_buffer(condition: &str) -> Outcome {
    let bench = Bench::new();
    let space = bench.space();
    let buffer = bench.buffer(16384);
    let area = reserve(&space, 16, 0, 0).unwrap();
    let plain = map_args(&buffer);
    let fixed =
        space::MapBufferEx { flags: MapBufferFlags::FIXED_OFFSET.bits(), offset: area, ..map_args(&buffer) };
    let file = foreign();
    let unallocated = bench.export(bench.create(4096));
    let (mut args, calls) = match condition {
        "dmabuf_fd not open" => (space::MapBufferEx { dmabuf_fd: CLOSED, ..plain }, 1),
        "dmabuf_fd not a dma-buf" => {
            let number = u32::try_from(foreign_number(&file)).unwrap();
            (space::MapBufferEx { dmabuf_fd: number, ..plain }, 1)
        }
        "not FIXED and offset nonzero" => (space::MapBufferEx { offset: 4096, ..plain }, 1),
        "not FIXED and mapping_size nonzero" => (space::MapBufferEx { mapping_size: 4096, ..plain }, 1),
        "FIXED and mapping_size above buffer size" => {
            (space::MapBufferEx { mapping_size: 16385, ..fixed }, 1)
        }
        "FIXED and buffer_offset + mapping_size above buffer size" => {
            (space::MapBufferEx { mapping_size: 8192, buffer_offset: 12288, ..fixed }, 1)
        }
        "access field 3" => (space::MapBufferEx { flags: 3 << space::ACCESS_SHIFT, ..plain }, 1),
        "TEGRA_RAW flag (bit 12)" => (space::MapBufferEx { flags: 1 << 12, ..plain }, 1),
        "flag bit 8 (old DIRECT_KIND_CTRL)" => (space::MapBufferEx { flags: 1 << 8, ..plain }, 1),
        "MAPPABLE_COMPBITS flag (warning only)" => (space::MapBufferEx { flags: 1 << 6, ..plain }, 1),
        "buffer without memory (nvmap ALLOC not done)" => {
            (space::MapBufferEx { dmabuf_fd: raw(&unallocated), ..plain }, 1)
        }
        "READ_WRITE access on a read-only dma-buf" => {
            let mut from = CreateHandle { size_or_fd: raw(&buffer), handle: 0 };
            nvmap::FROM_FD.send(&bench.nvmap, &mut from).unwrap();
            let mut twin = nvmap::DuplicateHandle {
                handle: from.handle,
                access_flags: nvmap::HandleFlags::READ_ONLY.bits(),
                dup_handle: 0,
            };
            nvmap::DUP_HANDLE.send(&bench.nvmap, &mut twin).unwrap();
            let twin = bench.export(twin.dup_handle);
            let mut args = space::MapBufferEx {
                dmabuf_fd: raw(&twin),
                flags: space::ACCESS_READ_WRITE << space::ACCESS_SHIFT,
                ..plain
            };
            return Ok(space::MAP_BUFFER_EX.send(&space, &mut args));
        }
        "FIXED, buffer_offset nonzero, mapping_size 0" => {
            (space::MapBufferEx { buffer_offset: 4096, ..fixed }, 1)
        }
        "FIXED address outside every ALLOC_SPACE area" => {
            (space::MapBufferEx { offset: area + 0x10_0000, ..fixed }, 1)
        }
        "FIXED mapping runs past the end of its area" => {
            (space::MapBufferEx { offset: area + 13 * 4096, ..fixed }, 1)
        }
        "FIXED same VA, same buffer, kind and flags: reused" => (fixed, 2),
        "both kinds -1" => (space::MapBufferEx { incompr_kind: space::KIND_INVALID, ..plain }, 1),
        "FIXED with buffer_offset not 4 KiB aligned" => {
            (space::MapBufferEx { buffer_offset: 8, mapping_size: 4096, ..fixed }, 1)
        }
        "page_size any value (ignored)" => (space::MapBufferEx { page_size: 12345, ..plain }, 1),
        _ => return Err(UNKNOWN),
    };
    let echoed = args.page_size;
    let mut result = Ok(0);
    for _ in 0..calls {
        result = space::MAP_BUFFER_EX.send(&space, &mut args);
    }
    assert_eq!(args.page_size, echoed);
    assert_eq!(bench.orin.live().gpu_mappings, usize::from(result.is_ok()));
    Ok(result)
}

fn tsg_bind(condition: &str) -> Outcome {
    let bench = Bench::new();
    let (space, other, tsg, first) = (bench.space(), bench.space(), bench.tsg(), bench.channel());
    Ok(match condition {
        "scheduling control locked" => return Err("the scheduling control node"),
        "fd is not a channel" => bind_tsg(&tsg, &space, 0),
        "subcontext_id 64" => bind_tsg(&tsg, &first, 64),
        "channel AS differs from subcontext AS" => {
            subcontext(&tsg, &other, tsg::SUBCONTEXT_SYNC).unwrap();
            bind_space(&space, &first).unwrap();
            bind_tsg(&tsg, &first, 0)
        }
        "channel on another runlist than the TSG" => {
            let second = bench.try_channel(1).unwrap();
            for channel in [&first, &second] {
                bind_space(&space, channel).unwrap();
            }
            bind_tsg(&tsg, &first, 0).unwrap();
            bind_tsg(&tsg, &second, 0)
        }
        "129th channel" => {
            let channels: Vec<DoorFd> = (0..129).map(|_| bench.channel()).collect();
            let mut result = Ok(0);
            for (at, channel) in channels.iter().enumerate() {
                bind_space(&space, channel).unwrap();
                result = bind_tsg(&tsg, channel, 0);
                assert_eq!(result.is_ok(), at < 128);
            }
            result
        }
        "second id-0 bind after a first bind of a channel without AS" => {
            bind_tsg(&tsg, &first, 0).unwrap();
            let second = bench.channel();
            bind_space(&space, &second).unwrap();
            bind_tsg(&tsg, &second, 0)
        }
        _ => return Err(UNKNOWN),
    })
}

fn tsg_requests(ioctl: &str, condition: &str) -> Outcome {
    let bench = Bench::new();
    let (space, tsg, channel) = (bench.space(), bench.tsg(), bench.channel());
    bind_space(&space, &channel).unwrap();
    let timeslice =
        |timeslice_us| tsg::SET_TIMESLICE.send(&tsg, &mut tsg::Timeslice { timeslice_us, reserved: 0 });
    Ok(match (ioctl, condition) {
        ("tsg:*", "size above 32") => send(&tsg, 0xc021_540b, &mut [0; 33]),
        ("NVGPU_TSG_IOCTL_READ_ALL_SM_ERROR_STATES", _) => send(&tsg, 0xc018_5411, &mut [0; 24]),
        ("NVGPU_TSG_IOCTL_BIND_CHANNEL", "fd negative") => tsg::BIND_CHANNEL.send(&tsg, &mut -1),
        ("NVGPU_TSG_IOCTL_BIND_CHANNEL", "fd is not a channel") => {
            tsg::BIND_CHANNEL.send(&tsg, &mut space.raw())
        }
        ("NVGPU_TSG_IOCTL_UNBIND_CHANNEL", "fd negative") => tsg::UNBIND_CHANNEL.send(&tsg, &mut -1),
        ("NVGPU_TSG_IOCTL_UNBIND_CHANNEL", _) => return Err("the model always stops a channel at once"),
        ("NVGPU_TSG_IOCTL_CREATE_SUBCONTEXT", "second SYNC") => {
            subcontext(&tsg, &space, tsg::SUBCONTEXT_SYNC).unwrap();
            subcontext(&tsg, &space, tsg::SUBCONTEXT_SYNC).map(|_| 0)
        }
        ("NVGPU_TSG_IOCTL_CREATE_SUBCONTEXT", "SYNC after a channel was bound with id 0") => {
            bind_tsg(&tsg, &channel, 0).unwrap();
            subcontext(&tsg, &space, tsg::SUBCONTEXT_SYNC).map(|_| 0)
        }
        ("NVGPU_TSG_IOCTL_CREATE_SUBCONTEXT", "ASYNC with all 64 VEIDs taken") => {
            let veids: Vec<u32> =
                (0..64).map(|_| subcontext(&tsg, &space, tsg::SUBCONTEXT_ASYNC).unwrap()).collect();
            assert!(veids.iter().copied().eq((1..64).chain([0])), "{veids:?}");
            subcontext(&tsg, &space, tsg::SUBCONTEXT_ASYNC).map(|_| 0)
        }
        ("NVGPU_TSG_IOCTL_DELETE_SUBCONTEXT", "channels still bound") => {
            bind_tsg(&tsg, &channel, 0).unwrap();
            tsg::DELETE_SUBCONTEXT.send(&tsg, &mut tsg::DeleteSubcontext { veid: 0, reserved: 0 })
        }
        (_, "999 us") => timeslice(999),
        (_, "50001 us") => timeslice(50_001),
        (_, "scheduling control locked") => return Err("the scheduling control node"),
        ("NVGPU_TSG_IOCTL_READ_SINGLE_SM_ERROR_STATE", _) => {
            assert!(tsg::read_single_sm_error_state(&tsg, 7).is_ok());
            tsg::read_single_sm_error_state(&tsg, 8).map(|_| 0)
        }
        ("NVGPU_IOCTL_TSG_EVENT_ID_CTRL", _) => return Err("events"),
        ("NVGPU_TSG_IOCTL_SET_L2_MAX_WAYS_EVICT_LAST" | "NVGPU_TSG_IOCTL_SET_L2_SECTOR_PROMOTION", _) => {
            return Err("L2 policy");
        }
        ("NVGPU_TSG_IOCTL_BIND_SCHEDULING_DOMAIN", _) => return Err("scheduling domains"),
        ("NVGPU_TSG_IOCTL_GET_SHARE_TOKEN", _) => return Err("sharing between processes"),
        _ => return Err(UNKNOWN),
    })
}

fn setup_bind(condition: &str) -> Outcome {
    let bench = Bench::new();
    let (_space, _tsg, channel) = bench.bound();
    let (ring, userd) = (bench.buffer(4096), bench.buffer(4096));
    let unallocated = bench.export(bench.create(4096));
    let mut args = setup_args(&ring, &userd, 512);
    let closed = i32::try_from(CLOSED).unwrap();
    match condition {
        "USERMODE with 1 entry" => args.num_gpfifo_entries = 1,
        "kernel submit with 2 entries" => (args.num_gpfifo_entries, args.flags) = (2, 0),
        "entries not a power of two" => args.num_gpfifo_entries = 3,
        "entries 2^29" => args.num_gpfifo_entries = 1 << 29,
        "no AS bound" => return Ok(channel::SETUP_BIND.send(&bench.channel(), &mut args)),
        "second SETUP_BIND in usermode" => {
            channel::SETUP_BIND.send(&channel, &mut args).unwrap();
        }
        "DETERMINISTIC with watchdog still enabled" => {
            wdt(&channel, channel::WDT_ENABLE).unwrap();
        }
        "USERMODE with gpfifo fd 0" => args.gpfifo_dmabuf_fd = 0,
        "USERMODE with userd fd 0" => args.userd_dmabuf_fd = 0,
        "gpfifo_dmabuf_offset nonzero" => args.gpfifo_dmabuf_offset = 8,
        "gpfifo fd not open" => args.gpfifo_dmabuf_fd = closed,
        "gpfifo buffer unallocated" => args.gpfifo_dmabuf_fd = unallocated.raw(),
        "gpfifo buffer of 4096 bytes with 512 entries" => {}
        "userd fd not open" => args.userd_dmabuf_fd = closed,
        "userd fd not a dma-buf" => args.userd_dmabuf_fd = bench.ctrl.raw(),
        "reserved words nonzero" => (args.reserved, args.padding) = ([7; 9], 7),
        "entries 2, flags 0xA, valid buffers" => args.num_gpfifo_entries = 2,
        _ => return Err(UNKNOWN),
    }
    let result = channel::SETUP_BIND.send(&channel, &mut args);
    if result.is_err() && condition != "second SETUP_BIND in usermode" {
        // A refused attempt can be repeated.
        wdt(&channel, channel::WDT_DISABLE).unwrap();
        assert_eq!(setup(&channel, &ring, &userd, 512), Ok(511));
    }
    Ok(result)
}

fn channel_requests(ioctl: &str, condition: &str) -> Outcome {
    let bench = Bench::new();
    let (space, tsg, channel) = bench.bound();
    let notifier = |mem, offset| {
        let mut args = channel::SetErrorNotifier { offset, size: 0, mem, padding: 0 };
        channel::SET_ERROR_NOTIFIER.send(&channel, &mut args)
    };
    let deterministic = |status| {
        setup(&channel, &bench.buffer(4096), &bench.buffer(4096), 16).unwrap();
        wdt(&channel, status)
    };
    Ok(match (ioctl, condition) {
        ("channel:*", _) => return Err("a request that overtakes its own close"),
        ("NVGPU_IOCTL_CHANNEL_EVENT_ID_CTRL", _) => send(&channel, 0xc010_4875, &mut [0; 16]),
        ("NVGPU_IOCTL_CHANNEL_SET_RUNLIST_INTERLEAVE", _) => send(&channel, 0x4008_4878, &mut [0; 8]),
        ("NVGPU_IOCTL_CHANNEL_SET_NVMAP_FD", _) => {
            channel::SET_NVMAP_FD.send(&channel, &mut channel::SetNvmapFd { fd: 12345 })
        }
        ("NVGPU_IOCTL_CHANNEL_ALLOC_OBJ_CTX", "class 0") => object(&channel, 0),
        ("NVGPU_IOCTL_CHANNEL_ALLOC_OBJ_CTX", "class 0x1234") => object(&channel, 0x1234),
        ("NVGPU_IOCTL_CHANNEL_ALLOC_OBJ_CTX", "valid class, channel not in a TSG") => {
            let other = bench.channel();
            bind_space(&space, &other).unwrap();
            object(&other, 0xc7c0)
        }
        (
            "NVGPU_IOCTL_CHANNEL_ALLOC_OBJ_CTX",
            "class 0xC797 on VEID 1" | "class 0xC7C0 on VEID 1 in a TSG",
        ) => {
            let other = bench.channel();
            bind_space(&space, &other).unwrap();
            let veid = subcontext(&tsg, &space, tsg::SUBCONTEXT_ASYNC).unwrap();
            bind_tsg(&tsg, &other, veid).unwrap();
            object(&other, if condition.starts_with("class 0xC797") { 0xc797 } else { 0xc7c0 })
        }
        ("NVGPU_IOCTL_CHANNEL_ALLOC_OBJ_CTX", "flags GFXP and CILP together on a new context") => {
            let flags = channel::AllocObjCtxFlags::GFXP | channel::AllocObjCtxFlags::CILP;
            let mut args = channel::AllocObjCtx { class_num: 0xc7c0, flags: flags.bits(), obj_id: 77 };
            channel::ALLOC_OBJ_CTX.send(&channel, &mut args)
        }
        ("NVGPU_IOCTL_CHANNEL_WDT", "status 0") => wdt(&channel, 0),
        ("NVGPU_IOCTL_CHANNEL_WDT", "status 2 on a deterministic channel") => deterministic(2),
        ("NVGPU_IOCTL_CHANNEL_WDT", "status 1 on a deterministic channel") => deterministic(1),
        ("NVGPU_IOCTL_CHANNEL_SET_ERROR_NOTIFIER", "mem 0") => notifier(0, 0),
        ("NVGPU_IOCTL_CHANNEL_SET_ERROR_NOTIFIER", "mem not a dma-buf fd") => notifier(raw(&bench.ctrl), 0),
        ("NVGPU_IOCTL_CHANNEL_SET_ERROR_NOTIFIER", "offset + 16 above buffer size") => {
            let buffer = bench.buffer(4096);
            assert_eq!(notifier(raw(&buffer), 4080), Ok(0));
            notifier(raw(&buffer), 4081)
        }
        ("NVGPU_IOCTL_CHANNEL_SET_ERROR_NOTIFIER", "buffer without memory") => {
            let buffer = bench.export(bench.create(4096));
            notifier(raw(&buffer), 0)
        }
        ("NVGPU_IOCTL_CHANNEL_FORCE_RESET", "channel not in a TSG") => {
            let result = channel::FORCE_RESET.send(&bench.channel(), 0);
            assert!(
                bench.orin.kernel_log().iter().any(|line| line.contains("chid: 510 is not bound to tsg"))
            );
            result
        }
        ("NVGPU_IOCTL_CHANNEL_SET_PREEMPTION_MODE", "both modes 0") => {
            object(&channel, 0xc7c0).unwrap();
            channel::SET_PREEMPTION_MODE.send(&channel, &mut channel::PreemptionMode::default())
        }
        ("NVGPU_IOCTL_CHANNEL_SET_BOOSTED_CTX", _) => {
            channel::SET_BOOSTED_CTX.send(&channel, &mut channel::BoostedCtx::default())
        }
        ("NVGPU_IOCTL_CHANNEL_RESCHEDULE_RUNLIST", _) => return Err("callers with CAP_SYS_NICE"),
        ("NVGPU_IOCTL_CHANNEL_SUBMIT_GPFIFO" | "NVGPU_IOCTL_CHANNEL_ALLOC_GPFIFO_EX", _) => {
            return Err("kernel-mode submit");
        }
        ("NVGPU_IOCTL_CHANNEL_WAIT", _) => return Err("waits in the kernel"),
        _ => return Err(UNKNOWN),
    })
}
