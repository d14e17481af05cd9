//! Rows of the control node.

use nvgpu_sys::ctrl::{self, AllocAs};
use nvgpu_sys::door::{DoorFd, Protection};
use nvgpu_sys::{Errno, paths};

use super::buffers::{buffer_requests, channel_options, clock_requests, memory_requests};
use super::{Outcome, UNKNOWN, read_only_page, send, send_at};
use crate::support::*;

pub(crate) fn ctrl_node(ioctl: &str, condition: &str) -> Outcome {
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

pub(crate) fn alloc_as(condition: &str) -> Outcome {
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
    assert_eq!(bench.orin.live() == before, result.is_err(), "a refused request leaks nothing");
    Ok(result)
}

pub(crate) fn ctrl_requests(ioctl: &str, condition: &str) -> Outcome {
    match ioctl {
        "NVGPU_GPU_IOCTL_GET_MEMORY_STATE"
        | "NVGPU_GPU_IOCTL_ALLOC_VIDMEM"
        | "NVGPU_GPU_IOCTL_PREPARE_COMPRESSIBLE_READ" => return memory_requests(condition, ioctl),
        "NVGPU_GPU_IOCTL_SET_SM_DEBUG_MODE" | "NVGPU_GPU_IOCTL_SET_DETERMINISTIC_OPTS" => {
            return channel_options(condition, ioctl);
        }
        "NVGPU_GPU_IOCTL_REGISTER_BUFFER" | "NVGPU_GPU_IOCTL_GET_BUFFER_INFO" => {
            return buffer_requests(condition, ioctl);
        }
        name if name.starts_with("NVGPU_GPU_IOCTL_CLK_") => return clock_requests(condition, ioctl),
        _ => {}
    }
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
        (_, "map_buf_size not 4 x GPC count") => gpc_map(4, 8),
        (_, "bad user address") => gpc_map(8, 8),
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
        _ => return Err(UNKNOWN),
    })
}
