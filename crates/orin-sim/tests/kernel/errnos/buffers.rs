//! Rows of the control node's clock and buffer requests.

use std::cell::Cell;

use nvgpu_sys::channel;
use nvgpu_sys::ctrl::{self, AllocVidmem, BufferInfoIn, ClkInfo, ClkRange, RegisterBuffer};

use super::{CLOSED, Outcome, UNKNOWN};
use crate::support::*;

pub(crate) fn clock_requests(condition: &str, ioctl: &str) -> Outcome {
    let bench = Bench::new();
    let mut ranges = [ClkRange { clk_domain: ctrl::CLK_DOMAIN_GPCCLK, ..ClkRange::default() }; 2];
    let info = ClkInfo { clk_domain: ctrl::CLK_DOMAIN_GPCCLK, freq_hz: 700_000_000, ..ClkInfo::default() };
    let mut range = |flags, num_entries| {
        let mut args = ctrl::ClkRangeArgs {
            flags,
            num_entries,
            clk_range_entries: ranges.as_mut_ptr().expose_provenance() as u64,
            ..Default::default()
        };
        // SAFETY: the address is that of two live entries.
        unsafe { ctrl::CLK_GET_RANGE.send_pointing(&bench.ctrl, &mut args) }
    };
    let set = |flags, num_entries| {
        let mut args = ctrl::ClkSetInfo {
            flags,
            num_entries,
            clk_info_entries: core::ptr::from_ref(&info).expose_provenance() as u64,
            ..Default::default()
        };
        // SAFETY: the address is that of one live entry, which is only read.
        unsafe { ctrl::CLK_SET_INFO.send_pointing(&bench.ctrl, &mut args) }
    };
    let points = |flags, clk_domain| {
        let mut args = ctrl::ClkVfPointsArgs { flags, clk_domain, ..Default::default() };
        // SAFETY: without room for entries none is written.
        unsafe { ctrl::CLK_GET_VF_POINTS.send_pointing(&bench.ctrl, &mut args) }
    };
    Ok(match (ioctl, condition) {
        ("NVGPU_GPU_IOCTL_CLK_GET_RANGE", "flags is 2") => range(2, 1),
        ("NVGPU_GPU_IOCTL_CLK_GET_RANGE", "SPECIFIC_DOMAINS with more entries than domains") => {
            assert_eq!(range(ctrl::CLK_FLAG_SPECIFIC_DOMAINS, 1), Ok(0));
            range(ctrl::CLK_FLAG_SPECIFIC_DOMAINS, 2)
        }
        ("NVGPU_GPU_IOCTL_CLK_GET_VF_POINTS", "flags nonzero") => points(1, ctrl::CLK_DOMAIN_GPCCLK),
        ("NVGPU_GPU_IOCTL_CLK_GET_VF_POINTS", "domain MCLK") => {
            assert_eq!(points(0, ctrl::CLK_DOMAIN_GPCCLK), Ok(0));
            points(0, ctrl::CLK_DOMAIN_MCLK)
        }
        ("NVGPU_GPU_IOCTL_CLK_SET_INFO", "num_entries 0") => set(0, 0),
        ("NVGPU_GPU_IOCTL_CLK_SET_INFO", "flags nonzero") => set(1, 1),
        _ => return Err(UNKNOWN),
    })
}

pub(crate) fn buffer_requests(condition: &str, ioctl: &str) -> Outcome {
    let bench = Bench::new();
    let buffer = bench.buffer(8192);
    let closed = i32::try_from(CLOSED).unwrap();
    let bytes = [1_u8, 2, 3];
    let plain = RegisterBuffer {
        dmabuf_fd: buffer.raw(),
        metadata_addr: bytes.as_ptr().expose_provenance() as u64,
        metadata_size: 3,
        ..RegisterBuffer::default()
    };
    let register = |mut args: RegisterBuffer| {
        // SAFETY: the software kernel checks every address before it uses it.
        unsafe { ctrl::REGISTER_BUFFER.send_pointing(&bench.ctrl, &mut args) }
    };
    let size = Cell::new(0);
    let info = |dmabuf_fd| {
        let mut args = BufferInfoIn { dmabuf_fd, ..BufferInfoIn::default() };
        // SAFETY: without room for metadata none is written.
        let result = unsafe { ctrl::GET_BUFFER_INFO.send_pointing(&bench.ctrl, &mut args) };
        size.set(args.size);
        result
    };
    Ok(match (ioctl, condition) {
        (_, "metadata_size 257") => register(RegisterBuffer { metadata_size: 257, ..plain }),
        (_, "comptags_alloc_control 3") => register(RegisterBuffer { comptags_alloc_control: 3, ..plain }),
        ("NVGPU_GPU_IOCTL_REGISTER_BUFFER", "dmabuf_fd not open") => {
            register(RegisterBuffer { dmabuf_fd: closed, ..plain })
        }
        ("NVGPU_GPU_IOCTL_REGISTER_BUFFER", "dmabuf_fd not a dma-buf") => {
            register(RegisterBuffer { dmabuf_fd: bench.ctrl.raw(), ..plain })
        }
        (_, "already registered, MODIFY absent") => {
            register(RegisterBuffer { flags: ctrl::RegisterBufferFlags::MUTABLE.bits(), ..plain }).unwrap();
            register(plain)
        }
        (_, "already registered immutable, MODIFY set") => {
            register(plain).unwrap();
            register(RegisterBuffer { flags: ctrl::RegisterBufferFlags::MODIFY.bits(), ..plain })
        }
        (_, "metadata_addr unreadable") => register(RegisterBuffer { metadata_addr: 8, ..plain }),
        (_, "dmabuf_fd not open") => info(closed),
        (_, "dmabuf_fd not a dma-buf") => info(bench.ctrl.raw()),
        (_, "never registered buffer") => {
            let result = info(buffer.raw());
            assert_eq!(size.get(), 8192);
            result
        }
        _ => return Err(UNKNOWN),
    })
}

pub(crate) fn memory_requests(condition: &str, ioctl: &str) -> Outcome {
    let bench = Bench::new();
    let vidmem = |size_or_fd, flags: ctrl::AllocVidmemFlags| {
        let mut args = AllocVidmem { size_or_fd, flags: flags.bits(), ..AllocVidmem::default() };
        ctrl::ALLOC_VIDMEM.send(&bench.ctrl, &mut args)
    };
    let none = ctrl::AllocVidmemFlags::empty();
    let image = |handle| {
        let mut args = ctrl::PrepareCompressibleRead { handle, compbits: 7, ..Default::default() };
        let result = ctrl::PREPARE_COMPRESSIBLE_READ.send(&bench.ctrl, &mut args);
        assert_eq!(args.compbits, if result.is_ok() { 0 } else { 7 });
        result
    };
    Ok(match (ioctl, condition) {
        ("NVGPU_GPU_IOCTL_GET_MEMORY_STATE", _) => {
            ctrl::GET_MEMORY_STATE.send(&bench.ctrl, &mut ctrl::GetMemoryState::default())
        }
        (_, "size 0") => vidmem(0, none),
        (_, "size not multiple of 4096") => vidmem(5000, none),
        (_, "CPU mapping flag set") => vidmem(4096, ctrl::AllocVidmemFlags::CPU_CACHED),
        (_, "VPR flag set") => vidmem(4096, ctrl::AllocVidmemFlags::VPR),
        (_, "handle is not a dma-buf fd") => image(raw(&bench.ctrl)),
        (_, "buffer without comptags") => image(raw(&bench.buffer(4096))),
        _ => return Err(UNKNOWN),
    })
}

pub(crate) fn channel_options(condition: &str, ioctl: &str) -> Outcome {
    let bench = Bench::new();
    let options = |channels: u64, flags: ctrl::DeterministicOpts| {
        let mut args = ctrl::SetDeterministicOpts { num_channels: 1, flags: flags.bits(), channels };
        // SAFETY: the software kernel checks every address before it uses it.
        unsafe { ctrl::SET_DETERMINISTIC_OPTS.send_pointing(&bench.ctrl, &mut args) }
    };
    let address = |fd: &i32| core::ptr::from_ref(fd).expose_provenance() as u64;
    let (allow, disallow) =
        (ctrl::DeterministicOpts::ALLOW_RAILGATING, ctrl::DeterministicOpts::DISALLOW_RAILGATING);
    Ok(match (ioctl, condition) {
        ("NVGPU_GPU_IOCTL_SET_SM_DEBUG_MODE", _) => {
            let debug = |channel_fd| {
                let mut args = ctrl::SmDebugMode { channel_fd, ..Default::default() };
                ctrl::SET_SM_DEBUG_MODE.send(&bench.ctrl, &mut args)
            };
            assert_eq!(debug(bench.channel().raw()), Ok(0));
            debug(bench.ctrl.raw())
        }
        (_, "array not accessible") => options(8, allow),
        (_, "fd is not a channel") => options(address(&bench.ctrl.raw()), allow),
        (_, "both ALLOW and DISALLOW") => {
            let (_space, _tsg, channel) = bench.bound();
            let fd = channel.raw();
            assert!(options(address(&fd), allow).is_err(), "not deterministic yet");
            setup(&channel, &bench.buffer(4096), &bench.buffer(4096), 16).unwrap();
            assert_eq!(options(address(&fd), allow), Ok(0));
            assert_eq!(wdt(&channel, channel::WDT_DISABLE), Ok(0));
            options(address(&fd), allow | disallow)
        }
        _ => return Err(UNKNOWN),
    })
}
