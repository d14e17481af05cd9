//! Rows of channels.

use nvgpu_sys::channel::{SetupBindFlags, SubmitFlags};
use nvgpu_sys::door::{DoorFd, Protection};
use nvgpu_sys::{Errno, channel, ctrl, tsg};
use orin_sim::Config;

use super::{CLOSED, Outcome, UNKNOWN, send};
use crate::support::*;

pub(crate) fn setup_bind(condition: &str) -> Outcome {
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
        // A refused request can be repeated.
        wdt(&channel, channel::WDT_DISABLE).unwrap();
        assert_eq!(setup(&channel, &ring, &userd, 512), Ok(511));
    }
    Ok(result)
}

pub(crate) fn channel_requests(ioctl: &str, condition: &str) -> Outcome {
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
        ("NVGPU_IOCTL_CHANNEL_RESCHEDULE_RUNLIST", condition) => {
            let bench =
                Bench::with(Config { cap_sys_nice: condition == "with CAP_SYS_NICE", ..Config::default() });
            let mut args = channel::RescheduleRunlist { flags: 0 };
            channel::RESCHEDULE_RUNLIST.send(&bench.channel(), &mut args)
        }
        ("NVGPU_IOCTL_CHANNEL_ALLOC_GPFIFO_EX", _) => {
            let alloc = |num_entries| {
                let mut args = channel::AllocGpfifoEx { num_entries, ..Default::default() };
                channel::ALLOC_GPFIFO_EX.send(&channel, &mut args)
            };
            let result = alloc(2);
            assert_eq!(alloc(4), Ok(0));
            assert_eq!(alloc(4), Err(Errno::EXIST));
            result
        }
        ("NVGPU_IOCTL_CHANNEL_SUBMIT_GPFIFO", condition) => {
            return submit_gpfifo(&bench, &channel, condition);
        }
        ("NVGPU_IOCTL_CHANNEL_WAIT", condition) => return wait(&bench, &channel, condition),
        _ => return Err(UNKNOWN),
    })
}

/// Entries without work for host: length 0.
static NOTHING: [u8; 8 * 16] = [0; 8 * 16];

fn submit_gpfifo(bench: &Bench, channel: &DoorFd, condition: &str) -> Outcome {
    let submit = |fd: &DoorFd, gpfifo: u64, num_entries, flags: SubmitFlags| {
        let mut args =
            channel::SubmitGpfifo { gpfifo, num_entries, flags: flags.bits(), ..Default::default() };
        // SAFETY: the software kernel checks every address before it uses it.
        unsafe { channel::SUBMIT_GPFIFO.send_pointing(fd, &mut args) }
    };
    let kernel_mode = |flags: SetupBindFlags| {
        let mut args =
            channel::SetupBind { num_gpfifo_entries: 16, flags: flags.bits(), ..Default::default() };
        channel::SETUP_BIND.send(channel, &mut args).unwrap();
    };
    let entries = NOTHING.as_ptr().expose_provenance() as u64;
    let skip = SubmitFlags::SKIP_BUFFER_REFCOUNTING;
    let none = SubmitFlags::empty();
    Ok(match condition {
        "channel not in a TSG" => submit(&bench.channel(), entries, 1, none),
        "usermode channel" => {
            setup(channel, &bench.buffer(4096), &bench.buffer(4096), 16).unwrap();
            submit(channel, entries, 1, none)
        }
        "no SETUP_BIND" => submit(channel, entries, 1, none),
        "gpfifo array unreadable" => {
            kernel_mode(SetupBindFlags::empty());
            submit(channel, 8, 1, none)
        }
        "ring currently full" => {
            kernel_mode(SetupBindFlags::empty());
            // The entries are not consumed.
            channel::DISABLE.send(channel, 0).unwrap();
            assert_eq!(submit(channel, entries, 14, none), Err(Errno::NOMEM), "more than ever fits");
            assert_eq!(submit(channel, entries, 8, none), Ok(0));
            let result = submit(channel, entries, 8, none);
            assert_eq!(submit(channel, entries, 4, none), Ok(0));
            result
        }
        "deterministic channel without SKIP_BUFFER_REFCOUNTING" => {
            kernel_mode(SetupBindFlags::DETERMINISTIC);
            submit(channel, entries, 1, none)
        }
        "deterministic channel with railgating allowed" => {
            kernel_mode(SetupBindFlags::DETERMINISTIC);
            let fd = channel.raw();
            let mut args = ctrl::SetDeterministicOpts {
                num_channels: 1,
                flags: ctrl::DeterministicOpts::ALLOW_RAILGATING.bits(),
                channels: core::ptr::from_ref(&fd).expose_provenance() as u64,
            };
            channel::DISABLE.send(channel, 0).unwrap();
            assert_eq!(submit(channel, entries, 1, skip), Ok(0));
            // SAFETY: the address is that of one live descriptor number.
            unsafe { ctrl::SET_DETERMINISTIC_OPTS.send_pointing(&bench.ctrl, &mut args) }.unwrap();
            submit(channel, entries, 1, skip)
        }
        _ => return Err(UNKNOWN),
    })
}

fn wait(bench: &Bench, channel: &DoorFd, condition: &str) -> Outcome {
    let buffer = bench.buffer(4096);
    let mut args = channel::Wait {
        kind: channel::WAIT_SEMAPHORE,
        timeout: 1,
        dmabuf_fd: raw(&buffer),
        ..channel::Wait::default()
    };
    match condition {
        "channel unserviceable" => {
            channel::FORCE_RESET.send(channel, 0).unwrap();
        }
        "type 2" => args.kind = 2,
        "semaphore offset not multiple of 4" => args.offset = 2,
        "semaphore fd not a dma-buf" => args.dmabuf_fd = raw(&bench.ctrl),
        "semaphore offset beyond buffer" => args.offset = 4096,
        "semaphore value not reached within timeout" => args.payload = 1,
        "semaphore already equal to payload" => {}
        "notifier timeout expires" => {
            args.kind = channel::WAIT_NOTIFIER;
            let mapping = buffer.map(0, 4096, Protection::READ | Protection::WRITE).unwrap();
            // SAFETY: the status word of the notification, inside the live mapping.
            unsafe { mapping.pointer().as_ptr().add(14).write_volatile(1) };
        }
        _ => return Err(UNKNOWN),
    }
    Ok(channel::WAIT.send(channel, &mut args))
}
