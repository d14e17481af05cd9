//! Rules of the control node, the doorbell page and the door itself, row by row: refusals, their errno and precedence,
//! results, and the kernel log.

use std::sync::Arc;

use crate::support::rules::*;
use crate::support::*;
use nvgpu_sys::ctrl::{
    self, AllocAs, AllocVidmem, BufferInfoIn, BufferInfoOut, ClkVfPointsArgs, FlushL2, GetCharacteristics,
    GetCpuTimeCorrelationInfo, GetEngineInfo, GetTpcMasks, OpenChannel, OpenTsg, RegisterBuffer, code,
};
use nvgpu_sys::door::{MapRequest, Protection};
use nvgpu_sys::{Door, DoorFd, Errno, paths};
use zerocopy::{FromBytes, IntoBytes};

const INVAL: Answer = Err(Errno::INVAL);
const NOMEM: Answer = Err(Errno::NOMEM);
const FAULT: Answer = Err(Errno::FAULT);
const NOTTY: Answer = Err(Errno::NOTTY);
const BADF: Answer = Err(Errno::BADF);
const BUSY: Answer = Err(Errno::BUSY);
const BOTH: Protection = Protection::READ.union(Protection::WRITE);

#[test]
fn the_node_checks_number_then_address_then_code() {
    check(&[
        (
            "pre-checks: another family wins over a bad address",
            |bench| send_at(&bench.ctrl, 0xc010_4105, NOWHERE),
            INVAL,
            &[],
        ),
        ("pre-checks: number 0", |bench| send_at(&bench.ctrl, 0xc010_4700, NOWHERE), INVAL, &[]),
        ("pre-checks: number 45", |bench| send_at(&bench.ctrl, 0xc010_472d, NOWHERE), INVAL, &[]),
        ("pre-checks: 265 bytes", |bench| send_at(&bench.ctrl, 0xc109_4718, NOWHERE), INVAL, &[]),
        (
            "pre-checks: a bad address wins over number 13, which does not exist",
            |bench| send_at(&bench.ctrl, 0xc008_470d, NOWHERE),
            FAULT,
            &[],
        ),
        ("pre-checks: number 13", |bench| send(&bench.ctrl, 0xc008_470d, &mut [0; 8]), NOTTY, &[]),
        (
            "pre-checks: number 20 without a direction needs no address",
            |bench| send_at(&bench.ctrl, 0x0000_4714, NOWHERE),
            NOTTY,
            &[],
        ),
        (
            "pre-checks: the argument of a read-only request is not read first",
            |bench| send_at(&bench.ctrl, code::ZCULL_GET_CTX_SIZE, NOWHERE),
            Ok(4),
            &[],
        ),
        (
            "pre-checks: FLUSH_L2 in 8 bytes instead of 5",
            |bench| send(&bench.ctrl, 0xc008_470c, &mut [1; 8]),
            NOTTY,
            &[],
        ),
        (
            "quiesce: a bad address wins over power",
            |bench| {
                bench.orin.quiesce();
                send_at(&bench.ctrl, code::ALLOC_AS, NOWHERE)
            },
            FAULT,
            &QUIESCE,
        ),
        (
            "quiesce: GET_CHARACTERISTICS returns EINVAL instead",
            |bench| {
                bench.orin.quiesce();
                send(&bench.ctrl, code::GET_CHARACTERISTICS, &mut [0; 16])
            },
            INVAL,
            &QUIESCE,
        ),
    ]);
}

#[test]
fn failed_copies_to_user_are_counted() {
    check(&[
        (
            "GET_CHARACTERISTICS: the number of bytes not copied, and no size",
            |bench| {
                let mut args = GetCharacteristics {
                    gpu_characteristics_buf_size: 100,
                    gpu_characteristics_buf_addr: NOWHERE,
                };
                // SAFETY: the software kernel checks every address before it uses it.
                let result = unsafe { ctrl::GET_CHARACTERISTICS.send_pointing(&bench.ctrl, &mut args) };
                assert_eq!(args.gpu_characteristics_buf_size, 100);
                result
            },
            Ok(100),
            &[],
        ),
        (
            "GET_CHARACTERISTICS: size 0 needs no address",
            |bench| {
                let mut args = GetCharacteristics {
                    gpu_characteristics_buf_size: 0,
                    gpu_characteristics_buf_addr: NOWHERE,
                };
                // SAFETY: as above.
                let result = unsafe { ctrl::GET_CHARACTERISTICS.send_pointing(&bench.ctrl, &mut args) };
                assert_eq!(args.gpu_characteristics_buf_size, 328);
                result
            },
            Ok(0),
            &[],
        ),
        (
            "GET_TPC_MASKS: at most the available masks",
            |bench| {
                let mut args = GetTpcMasks { mask_buf_size: 6, mask_buf_addr: NOWHERE, ..Default::default() };
                // SAFETY: as above.
                let result = unsafe { ctrl::GET_TPC_MASKS.send_pointing(&bench.ctrl, &mut args) };
                assert_eq!(args.mask_buf_size, 6);
                result
            },
            Ok(6),
            &[],
        ),
        (
            "GET_ENGINE_INFO: engines are stored one by one",
            |bench| {
                let mut args = GetEngineInfo {
                    engine_info_buf_size: 64,
                    engine_info_buf_addr: NOWHERE,
                    ..Default::default()
                };
                // SAFETY: as above.
                let result = unsafe { ctrl::GET_ENGINE_INFO.send_pointing(&bench.ctrl, &mut args) };
                assert_eq!(args.engine_info_buf_size, 64);
                result
            },
            Ok(16),
            &[],
        ),
        (
            "GET_ENGINE_INFO: no whole entry fits, and the total size is returned",
            |bench| {
                let mut args = GetEngineInfo {
                    engine_info_buf_size: 15,
                    engine_info_buf_addr: NOWHERE,
                    ..Default::default()
                };
                // SAFETY: as above.
                let result = unsafe { ctrl::GET_ENGINE_INFO.send_pointing(&bench.ctrl, &mut args) };
                assert_eq!(args.engine_info_buf_size, 64);
                result
            },
            Ok(0),
            &[],
        ),
        (
            "VSMS_MAPPING: six bytes per SM",
            |bench| {
                let mut args = ctrl::VsmsMapping { vsms_map_buf_addr: NOWHERE };
                // SAFETY: as above.
                unsafe { ctrl::VSMS_MAPPING.send_pointing(&bench.ctrl, &mut args) }
            },
            Ok(16 * 6),
            &[],
        ),
        (
            "copy-out: the descriptor of an address space remains open",
            |bench| {
                let args =
                    AllocAs { va_range_start: LOGGED_START, va_range_end: LOGGED_END, ..AllocAs::default() };
                let result = send_constant(&bench.ctrl, code::ALLOC_AS, args.as_bytes());
                assert_eq!(bench.orin.live().address_spaces, 1);
                result
            },
            Ok(64),
            &[],
        ),
        (
            "GET_GPC_LOCAL_TO_LOGICAL_MAP: the size is checked before the address",
            |bench| send(&bench.ctrl, code::GET_GPC_LOCAL_TO_LOGICAL_MAP, &mut [7; 16]),
            INVAL,
            &[],
        ),
    ]);
}

fn alloc_as(bench: &Bench, change: impl FnOnce(&mut AllocAs)) -> Answer {
    let mut args = AllocAs { va_range_start: LOGGED_START, va_range_end: LOGGED_END, ..AllocAs::default() };
    change(&mut args);
    let result = ctrl::ALLOC_AS.send(&bench.ctrl, &mut args);
    if result.is_err() {
        assert_eq!((args.as_fd, bench.orin.live().address_spaces), (0, 0), "nothing leaked");
    }
    result
}

#[test]
fn objects_are_created_after_all_checks() {
    check(&[
        (
            "ALLOC_AS: big pages of 64 KiB, a power of two, do not exist here",
            |bench| alloc_as(bench, |args| args.big_page_size = 65_536),
            INVAL,
            &[],
        ),
        (
            "ALLOC_AS 3 before 9: a bad big page and a range too high",
            |bench| alloc_as(bench, |args| (args.big_page_size, args.va_range_end) = (3, 1 << 60)),
            INVAL,
            &[],
        ),
        (
            "ALLOC_AS 7 before 9: start above end, and too high",
            |bench| alloc_as(bench, |args| (args.va_range_start, args.va_range_end) = (1 << 61, 1 << 60)),
            INVAL,
            &[],
        ),
        (
            "ALLOC_AS 7: an empty range",
            |bench| alloc_as(bench, |args| args.va_range_end = LOGGED_START),
            INVAL,
            &[],
        ),
        (
            "ALLOC_AS 8 before 9: a split and a range too high",
            |bench| alloc_as(bench, |args| (args.va_range_split, args.va_range_end) = (1, 1 << 60)),
            INVAL,
            &[],
        ),
        (
            "ALLOC_AS: up to the MMU's limit",
            |bench| alloc_as(bench, |args| args.va_range_end = (1 << 49) - (4 << 30)),
            Ok(0),
            &[],
        ),
        (
            "ALLOC_AS 9: 2 MiB more",
            |bench| alloc_as(bench, |args| args.va_range_end = (1 << 49) - (4 << 30) + (2 << 20)),
            NOMEM,
            &["WARNING in nvgpu_vm_do_init+0x0/0x0 [nvgpu]: Overlap between user and kernel spaces"],
        ),
        (
            "OPEN_TSG: a token without the flag",
            |bench| ctrl::OPEN_TSG.send(&bench.ctrl, &mut OpenTsg { share_token: 1, ..OpenTsg::default() }),
            INVAL,
            &["Source device inst id/token specified"],
        ),
        (
            "OPEN_TSG: the flag without a source",
            |bench| {
                let mut args = OpenTsg { flags: 1, share_token: 1, ..OpenTsg::default() };
                ctrl::OPEN_TSG.send(&bench.ctrl, &mut args)
            },
            INVAL,
            &["Source device inst id/token not specified"],
        ),
        (
            "OPEN_TSG: an unknown token",
            |bench| {
                let mut args =
                    OpenTsg { flags: 1, share_token: 1, source_device_instance_id: 1, ..OpenTsg::default() };
                ctrl::OPEN_TSG.send(&bench.ctrl, &mut args)
            },
            INVAL,
            &["TSG open with token failed"],
        ),
        (
            "OPEN_TSG: unknown flags are ignored",
            |bench| ctrl::OPEN_TSG.send(&bench.ctrl, &mut OpenTsg { flags: 6, ..OpenTsg::default() }),
            Ok(0),
            &[],
        ),
        (
            "OPEN_CHANNEL: a runlist that does not exist",
            |bench| {
                let mut args = OpenChannel { runlist_id_or_fd: 77 };
                let result = ctrl::OPEN_CHANNEL.send(&bench.ctrl, &mut args);
                assert_eq!(args.runlist_id_or_fd, 77);
                result
            },
            INVAL,
            &[],
        ),
    ]);
}

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

#[test]
fn buffers_are_registered_after_all_checks() {
    check(&[
        (
            "REGISTER_BUFFER: the size is checked before the control, and both before the descriptor",
            |bench| {
                register(bench, None, |args| {
                    (args.metadata_size, args.comptags_alloc_control, args.dmabuf_fd) = (257, 3, -1);
                })
            },
            INVAL,
            &["Invalid metadata blob size"],
        ),
        (
            "REGISTER_BUFFER: the control is checked before the descriptor",
            |bench| register(bench, None, |args| (args.comptags_alloc_control, args.dmabuf_fd) = (3, -1)),
            INVAL,
            &["Invalid comptags_alloc_control"],
        ),
        (
            "REGISTER_BUFFER: the descriptor is checked before the address",
            |bench| register(bench, None, |args| (args.metadata_addr, args.dmabuf_fd) = (NOWHERE, -1)),
            BADF,
            &["nvgpu_gpu_ioctl_register_buffer: fd -1 is not a dmabuf"],
        ),
        (
            "REGISTER_BUFFER: a second registration wins over a bad address",
            |bench| register(bench, Some(2), |args| args.metadata_addr = NOWHERE),
            INVAL,
            &["attempt to modify buffer metadata without NVGPU_GPU_REGISTER_BUFFER_FLAGS_MODIFY"],
        ),
        (
            "REGISTER_BUFFER: a second registration of an immutable buffer",
            |bench| register(bench, Some(0), |args| args.flags = 4),
            INVAL,
            &["attempt to redefine immutable metadata"],
        ),
        (
            "REGISTER_BUFFER: a second registration",
            |bench| register(bench, Some(2), |args| args.flags = 6),
            Ok(0),
            &[],
        ),
        (
            "REGISTER_BUFFER: the address is checked before the compression tags",
            |bench| {
                register(bench, None, |args| (args.metadata_addr, args.comptags_alloc_control) = (NOWHERE, 2))
            },
            FAULT,
            &["Error copying buffer metadata blob"],
        ),
        (
            "REGISTER_BUFFER: compression tags are never available",
            |bench| register(bench, None, |args| args.comptags_alloc_control = 2),
            NOMEM,
            &["Comptags allocation (required) failed (-12)", "Comptags alloc control failed -12"],
        ),
        (
            "REGISTER_BUFFER: a read-only twin is a separate dma-buf",
            |bench| {
                let handle = bench.create(4096);
                bench.alloc(handle);
                let (fd, twin) = (bench.export(handle), bench.export(twin(bench, handle).unwrap()));
                register(bench, None, |args| args.dmabuf_fd = fd.raw()).unwrap();
                register(bench, None, |args| args.dmabuf_fd = twin.raw())
            },
            Ok(0),
            &[],
        ),
        (
            "GET_BUFFER_INFO: size 0 needs no address; output fields overlap the input",
            |bench| {
                let fd = bench.buffer(8192);
                register(bench, None, |args| args.dmabuf_fd = fd.raw()).unwrap();
                let input = BufferInfoIn {
                    dmabuf_fd: fd.raw(),
                    metadata_size: 0,
                    metadata_addr: NOWHERE,
                    ..Default::default()
                };
                let mut bytes = [0_u8; 24];
                bytes.copy_from_slice(input.as_bytes());
                let result = send(&bench.ctrl, code::GET_BUFFER_INFO, &mut bytes);
                let out = BufferInfoOut::read_from_bytes(&bytes).unwrap();
                assert_eq!((out.flags, out.metadata_size, out.size), (1, 3, 8192));
                result
            },
            Ok(0),
            &[],
        ),
        (
            "PREPARE_COMPRESSIBLE_READ: a closed descriptor is EINVAL",
            |bench| send(&bench.ctrl, code::PREPARE_COMPRESSIBLE_READ, &mut [0xff; 80]),
            INVAL,
            &[],
        ),
        (
            "MARK_COMPRESSIBLE_WRITE: a closed descriptor is EINVAL",
            |bench| send(&bench.ctrl, code::MARK_COMPRESSIBLE_WRITE, &mut [0xff; 32]),
            INVAL,
            &["invalid dmabuf"],
        ),
    ]);
}

fn vidmem(bench: &Bench, size: u64, alignment: u32, flags: u32) -> Answer {
    let mut args = AllocVidmem { size_or_fd: size, alignment, flags, ..Default::default() };
    ctrl::ALLOC_VIDMEM.send(&bench.ctrl, &mut args)
}

fn points(bench: &Bench, max_entries: u16, address: u64) -> (Answer, u16, u16) {
    let mut args = ClkVfPointsArgs {
        clk_domain: ctrl::CLK_DOMAIN_GPCCLK,
        max_entries,
        num_entries: 9,
        clk_vf_point_entries: address,
        ..Default::default()
    };
    // SAFETY: the software kernel checks every address before it uses it.
    let result = unsafe { ctrl::CLK_GET_VF_POINTS.send_pointing(&bench.ctrl, &mut args) };
    (result, args.max_entries, args.num_entries)
}

#[test]
fn rare_requests_check_in_order() {
    check(&[
        (
            "FLUSH_L2: invalidating without flushing, with an fb flush",
            |bench| ctrl::FLUSH_L2.send(&bench.ctrl, &mut FlushL2 { operations: 6, reserved: [0; 4] }),
            INVAL,
            &[],
        ),
        (
            "FLUSH_L2: the reserved word is ignored",
            |bench| ctrl::FLUSH_L2.send(&bench.ctrl, &mut FlushL2 { operations: 4, reserved: [9; 4] }),
            Ok(0),
            &[],
        ),
        (
            "GET_CPU_TIME_CORRELATION_INFO: 0 samples still need a valid source",
            |bench| {
                let mut args = GetCpuTimeCorrelationInfo { count: 0, source_id: 9, ..Default::default() };
                ctrl::GET_CPU_TIME_CORRELATION_INFO.send(&bench.ctrl, &mut args)
            },
            INVAL,
            &[],
        ),
        (
            "GET_CPU_TIME_CORRELATION_INFO: 16 samples",
            |bench| {
                let mut args = GetCpuTimeCorrelationInfo { count: 16, source_id: 2, ..Default::default() };
                ctrl::GET_CPU_TIME_CORRELATION_INFO.send(&bench.ctrl, &mut args)
            },
            Ok(0),
            &[],
        ),
        (
            "ALLOC_VIDMEM: an alignment above the size, not above its next power of two",
            |bench| vidmem(bench, 0x3000, 0x4000, 0),
            NOMEM,
            &[],
        ),
        ("ALLOC_VIDMEM: an alignment above that", |bench| vidmem(bench, 0x3000, 0x8000, 0), INVAL, &[]),
        ("ALLOC_VIDMEM: an alignment of 3 pages", |bench| vidmem(bench, 0x4000, 0x3000, 0), INVAL, &[]),
        (
            "GET_MEMORY_STATE: the last reserved word",
            |bench| {
                let mut args = ctrl::GetMemoryState { reserved: [0, 0, 0, 1], ..Default::default() };
                ctrl::GET_MEMORY_STATE.send(&bench.ctrl, &mut args)
            },
            INVAL,
            &[],
        ),
        (
            "CLK_GET_VF_POINTS: the capacity returns the number of points",
            |bench| {
                let (result, max_entries, num_entries) = points(bench, 0, NOWHERE);
                assert!(max_entries > 1 && num_entries == 0);
                result
            },
            Ok(0),
            &[],
        ),
        ("CLK_GET_VF_POINTS: too little room", |bench| points(bench, 1, NOWHERE).0, INVAL, &[]),
        (
            "CLK_GET_VF_POINTS: the bytes of the first point that were not copied",
            |bench| points(bench, 1000, NOWHERE).0,
            Ok(8),
            &[],
        ),
        (
            "CLK_SET_INFO: the flags are checked before the number",
            |bench| {
                let mut args = ctrl::ClkSetInfo { flags: 1, num_entries: 2, ..Default::default() };
                // SAFETY: as above.
                unsafe { ctrl::CLK_SET_INFO.send_pointing(&bench.ctrl, &mut args) }
            },
            INVAL,
            &[],
        ),
        (
            "CLK_SET_INFO: the number is checked before the address",
            |bench| {
                let mut args =
                    ctrl::ClkSetInfo { num_entries: 2, clk_info_entries: NOWHERE, ..Default::default() };
                // SAFETY: as above.
                unsafe { ctrl::CLK_SET_INFO.send_pointing(&bench.ctrl, &mut args) }
            },
            INVAL,
            &["invalid num_entries 2"],
        ),
    ]);
}

#[test]
fn the_doorbell_page_is_mapped_once_at_a_time() {
    check(&[
        (
            "mmap: a second mapping wins over a bad length and a bad offset",
            |bench| {
                let _first = bench.doorbell();
                bench.ctrl.map(4096, 0x2_0000, BOTH).map(|_| 0)
            },
            BUSY,
            &[],
        ),
        (
            "mmap: an unaligned offset wins over a second mapping",
            |bench| {
                let _first = bench.doorbell();
                bench.ctrl.map(8, 4096, BOTH).map(|_| 0)
            },
            INVAL,
            &[],
        ),
        (
            "mmap: length 0 wins over a second mapping",
            |bench| {
                let _first = bench.doorbell();
                bench.ctrl.map(0, 0, BOTH).map(|_| 0)
            },
            INVAL,
            &[],
        ),
        (
            "mmap: a bad length wins over power",
            |bench| {
                bench.orin.quiesce();
                bench.ctrl.map(0, 0x1_0001, BOTH).map(|_| 0)
            },
            INVAL,
            &QUIESCE,
        ),
        (
            "mmap: without power",
            |bench| {
                bench.orin.quiesce();
                bench.ctrl.map(0, 4096, BOTH).map(|_| 0)
            },
            Err(Errno::NODEV),
            &QUIESCE,
        ),
        ("mmap: any protection", |bench| bench.ctrl.map(0, 4096, Protection::READ).map(|_| 0), Ok(0), &[]),
        (
            "mmap: the mapping keeps the descriptor's objects alive",
            |bench| {
                let node = DoorFd::open(&bench.door, paths::CTRL, FLAGS).unwrap();
                let page = node.map(0, 4096, BOTH).unwrap();
                drop(node);
                let other = DoorFd::open(&bench.door, paths::CTRL, FLAGS).unwrap();
                let result = other.map(0, 4096, BOTH).map(|_| 0);
                drop(page);
                result
            },
            Ok(0),
            &[],
        ),
    ]);
}

#[test]
fn descriptors_are_invalid_after_close() {
    check(&[
        ("door: a number that is not open", |bench| bench.door.close(i32::MAX).map(|()| 0), BADF, &[]),
        (
            "door: closed twice",
            |bench| {
                let fd = bench.space().raw();
                bench.door.close(fd).map(|()| 0)
            },
            BADF,
            &[],
        ),
        (
            "door: a request on a closed number",
            |bench| {
                let fd = DoorFd::from_raw(&bench.door, i32::try_from(CLOSED).unwrap());
                send_at(&fd, nvgpu_sys::address_space::code::UNMAP_BUFFER, NOWHERE)
            },
            BADF,
            &[],
        ),
        (
            "door: a request on a descriptor without requests wins over a bad address",
            |bench| send_at(&bench.buffer(4096), code::ALLOC_AS, NOWHERE),
            NOTTY,
            &[],
        ),
        (
            "door: a request on a foreign descriptor",
            |bench| {
                let fd = DoorFd::from_raw(&bench.door, i32::try_from(foreign()).unwrap());
                send_at(&fd, code::ALLOC_AS, NOWHERE)
            },
            NOTTY,
            &[],
        ),
        (
            "door: the address space of a closed node keeps working",
            |bench| {
                let node = DoorFd::open(&bench.door, paths::CTRL, FLAGS).unwrap();
                let mut args =
                    AllocAs { va_range_start: LOGGED_START, va_range_end: LOGGED_END, ..AllocAs::default() };
                ctrl::ALLOC_AS.send(&node, &mut args).unwrap();
                drop(node);
                let space = DoorFd::from_raw(&bench.door, args.as_fd);
                map(&space, &bench.buffer(4096)).map(|_| 0)
            },
            Ok(0),
            &[],
        ),
        (
            "door: a copy of a descriptor keeps its object alive, even in another process",
            |bench| {
                let child = bench.orin.process();
                let door: Arc<dyn Door> = Arc::new(child.clone());
                let space = bench.space();
                let copy = DoorFd::from_raw(&door, bench.orin.send(space.raw(), &child).unwrap());
                drop(space);
                assert_eq!(bench.orin.live().address_spaces, 1);
                let theirs = MapRequest { fd: copy.raw(), offset: 0, len: 4096, protection: BOTH };
                assert_eq!(bench.door.mmap(&theirs).err(), Some(Errno::BADF), "it is the other one's number");
                drop(copy);
                assert_eq!(bench.orin.live().address_spaces, 0);
                Ok(0)
            },
            Ok(0),
            &[],
        ),
        (
            "door: a parent's control node works in its child, until both close it",
            |bench| {
                let (child, numbers) = bench.orin.fork().unwrap();
                let door: Arc<dyn Door> = Arc::new(child.clone());
                let theirs = DoorFd::from_raw(&door, numbers[&bench.ctrl.raw()]);
                let own = ctrl::get_characteristics(&bench.ctrl).unwrap().0.device_instance_id;
                let inherited = ctrl::get_characteristics(&theirs).unwrap().0.device_instance_id;
                assert_eq!(own, inherited, "one open file");
                child.exit();
                core::mem::forget(theirs);
                ctrl::NUM_VSMS.send(&bench.ctrl, &mut ctrl::NumVsms::default())
            },
            Ok(0),
            &[],
        ),
        (
            "door: the address space node cannot be opened",
            |bench| DoorFd::open(&bench.door, c"/dev/nvgpu/igpu0/as", FLAGS).map(|_| 0),
            INVAL,
            &[],
        ),
    ]);
}
