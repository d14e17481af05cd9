//! A miniature driver: helpers for kernel tests through the public door.

#![allow(dead_code, reason = "each test binary uses a part of it")]

pub(crate) mod rules;
pub(crate) mod work;

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Instant;

use kernel_door::{Door, DoorFd, DoorMapping, Errno, MapRequest, OpenFlags, Protection};
use nvgpu_sys::address_space::{self as space, AllocSpace, MapBufferEx};
use nvgpu_sys::channel::{self, SetupBind, SetupBindFlags};
use nvgpu_sys::ctrl::{self, AllocAs, OpenChannel, OpenTsg};
use nvgpu_sys::nvmap::{self, AllocHandle, CreateHandle};
use nvgpu_sys::paths;
use nvgpu_sys::tsg::{self, BindChannelEx, CreateSubcontext};

use orin_sim::{Config, SoftwareOrin};

pub(crate) use nvgpu_sys::Release;

/// The end of the user range in the logs of the board: 2^40 - 2 MiB.
pub(crate) const LOGGED_END: u64 = 0xff_ffe0_0000;
/// The first user address in the logs.
pub(crate) const LOGGED_START: u64 = 0x20_0000;
/// An allocation tag.
pub(crate) const TAG: u32 = 0x0900 << nvmap::TAG_SHIFT;
/// Ring set-up flags of a usermode channel.
pub(crate) const USERMODE: u32 = SetupBindFlags::DETERMINISTIC.union(SetupBindFlags::USERMODE_SUPPORT).bits();
/// The flags of every open.
pub(crate) const FLAGS: OpenFlags = OpenFlags::READ_WRITE.union(OpenFlags::CLOSE_ON_EXEC);

/// Takes ownership of a descriptor that a request of the board returned, or of a number that is not open.
pub(crate) fn adopt(door: &Arc<dyn Door>, raw: RawFd) -> DoorFd {
    // SAFETY: nothing else owns it; the board refuses a number that is not its own.
    unsafe { DoorFd::from_raw(door, raw) }
}

/// Closes a number, which the board refuses if it is not its own.
pub(crate) fn close(door: &Arc<dyn Door>, raw: RawFd) -> Result<(), Errno> {
    // SAFETY: the tests own the descriptors of their boards.
    unsafe { door.close(raw) }
}

/// Maps a number, which the board refuses if it is not its own.
pub(crate) fn mmap(door: &Arc<dyn Door>, request: &MapRequest) -> Result<NonNull<u8>, Errno> {
    // SAFETY: the tests own the descriptors of their boards.
    unsafe { door.mmap(request) }
}

/// A board and its two nodes.
pub(crate) struct Bench {
    pub(crate) release: Release,
    pub(crate) orin: SoftwareOrin,
    pub(crate) door: Arc<dyn Door>,
    pub(crate) nvmap: DoorFd,
    pub(crate) ctrl: DoorFd,
}

/// A channel with all objects that it depends on.
pub(crate) struct Chain {
    pub(crate) space: DoorFd,
    pub(crate) tsg: DoorFd,
    pub(crate) channel: DoorFd,
    pub(crate) token: u32,
    pub(crate) ring: DoorFd,
    pub(crate) userd: DoorFd,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with(Config::default())
    }

    pub(crate) fn with(config: Config) -> Self {
        let release = config.release;
        let orin = SoftwareOrin::new(config).expect("the board boots");
        let door: Arc<dyn Door> = Arc::new(orin.clone());
        let nvmap = DoorFd::open(&door, paths::NVMAP, FLAGS).expect("nvmap opens");
        let ctrl = DoorFd::open(&door, paths::CTRL, FLAGS).expect("ctrl opens");
        Self { release, orin, door, nvmap, ctrl }
    }

    /// A handle without memory.
    pub(crate) fn create(&self, bytes: u32) -> u32 {
        let mut args = CreateHandle { size_or_fd: bytes, handle: 0 };
        nvmap::CREATE.send(&self.nvmap, &mut args).expect("CREATE");
        args.handle
    }

    pub(crate) fn try_alloc(&self, handle: u32, heap_mask: u32, flags: u32) -> Result<i32, Errno> {
        self.send_alloc(&AllocHandle { handle, heap_mask, flags, align: 4096, numa_nid: -1 })
    }

    /// ALLOC in the form of the release.
    pub(crate) fn send_alloc(&self, args: &AllocHandle) -> Result<i32, Errno> {
        if self.release < Release::R39_2 {
            nvmap::ALLOC.send(&self.nvmap, &mut args.clone())
        } else {
            nvmap::alloc_r39(&self.nvmap, args).map(|()| 0)
        }
    }

    /// A token with which the instance `target` may open a TSG of the instance `source`.
    pub(crate) fn share(&self, tsg: &DoorFd, source: u64, target: u64) -> Result<u64, Errno> {
        tsg::get_share_token(tsg, self.release, source, target)
    }

    pub(crate) fn alloc(&self, handle: u32) {
        self.try_alloc(handle, nvmap::Heaps::IOVMM.bits(), TAG | nvmap::CACHE_WRITE_COMBINED).expect("ALLOC");
    }

    pub(crate) fn export(&self, handle: u32) -> DoorFd {
        let mut args = CreateHandle { size_or_fd: 0, handle };
        nvmap::GET_FD.send(&self.nvmap, &mut args).expect("GET_FD");
        adopt(&self.door, i32::try_from(args.size_or_fd).expect("a descriptor"))
    }

    pub(crate) fn free(&self, handle: u32) {
        self.free_number(handle).expect("FREE");
    }

    pub(crate) fn free_number(&self, number: u32) -> Result<i32, Errno> {
        // SAFETY: the number is a handle, or a descriptor of the board whose owner expects the end.
        unsafe { nvmap::FREE.send_closing(&self.nvmap, number) }
    }

    /// A dma-buf with memory, alive as long as its descriptor.
    pub(crate) fn buffer(&self, bytes: u32) -> DoorFd {
        let handle = self.create(bytes);
        self.alloc(handle);
        let fd = self.export(handle);
        self.free(handle);
        fd
    }

    pub(crate) fn try_alloc_as(&self, start: u64, end: u64) -> Result<DoorFd, Errno> {
        let mut args = AllocAs { flags: 2, va_range_start: start, va_range_end: end, ..AllocAs::default() };
        ctrl::ALLOC_AS.send(&self.ctrl, &mut args)?;
        Ok(adopt(&self.door, args.as_fd))
    }

    /// The address space of the logs.
    pub(crate) fn space(&self) -> DoorFd {
        self.try_alloc_as(LOGGED_START, LOGGED_END).expect("ALLOC_AS")
    }

    pub(crate) fn tsg(&self) -> DoorFd {
        let mut args = OpenTsg::default();
        ctrl::OPEN_TSG.send(&self.ctrl, &mut args).expect("OPEN_TSG");
        adopt(&self.door, i32::try_from(args.tsg_fd).expect("a descriptor"))
    }

    pub(crate) fn try_channel(&self, runlist: i32) -> Result<DoorFd, Errno> {
        let mut args = OpenChannel { runlist_id_or_fd: runlist };
        ctrl::OPEN_CHANNEL.send(&self.ctrl, &mut args)?;
        Ok(adopt(&self.door, args.runlist_id_or_fd))
    }

    pub(crate) fn channel(&self) -> DoorFd {
        self.try_channel(ctrl::RUNLIST_GR).expect("OPEN_CHANNEL")
    }

    pub(crate) fn doorbell(&self) -> DoorMapping {
        self.ctrl.map(0, ctrl::USERMODE_PAGE_SIZE, Protection::READ | Protection::WRITE).expect("doorbell")
    }

    /// A channel that has joined a TSG on VEID 0 of a fresh address space, watchdog off.
    pub(crate) fn bound(&self) -> (DoorFd, DoorFd, DoorFd) {
        let (space, tsg, channel) = (self.space(), self.tsg(), self.channel());
        bind_space(&space, &channel).expect("AS bind");
        bind_tsg(&tsg, &channel, 0).expect("TSG bind");
        wdt(&channel, channel::WDT_DISABLE).expect("WDT");
        (space, tsg, channel)
    }

    /// A complete compute channel.
    pub(crate) fn chain(&self) -> Chain {
        let (space, tsg, channel) = self.bound();
        let (ring, userd) = (self.buffer(8192), self.buffer(4096));
        let token = setup(&channel, &ring, &userd, 1024).expect("SETUP_BIND");
        object(&channel, 0xc7c0).expect("ALLOC_OBJ_CTX");
        Chain { space, tsg, channel, token, ring, userd }
    }
}

pub(crate) fn raw(fd: &DoorFd) -> u32 {
    u32::try_from(fd.raw()).expect("a descriptor")
}

pub(crate) fn bind_space(space_fd: &DoorFd, channel: &DoorFd) -> Result<i32, Errno> {
    space::BIND_CHANNEL.send(space_fd, &mut space::BindChannel { channel_fd: raw(channel) })
}

pub(crate) fn bind_tsg(tsg_fd: &DoorFd, channel: &DoorFd, veid: u32) -> Result<i32, Errno> {
    let mut args =
        BindChannelEx { channel_fd: channel.raw(), subcontext_id: veid, ..BindChannelEx::default() };
    tsg::BIND_CHANNEL_EX.send(tsg_fd, &mut args)
}

pub(crate) fn subcontext(tsg_fd: &DoorFd, space_fd: &DoorFd, kind: u32) -> Result<u32, Errno> {
    let mut args = CreateSubcontext { kind, as_fd: space_fd.raw(), ..CreateSubcontext::default() };
    tsg::CREATE_SUBCONTEXT.send(tsg_fd, &mut args)?;
    Ok(args.veid)
}

pub(crate) fn wdt(channel_fd: &DoorFd, status: u32) -> Result<i32, Errno> {
    channel::WDT.send(channel_fd, &mut channel::Wdt { wdt_status: status, timeout_ms: 0 })
}

pub(crate) fn setup_args(ring: &DoorFd, userd: &DoorFd, entries: u32) -> SetupBind {
    SetupBind {
        num_gpfifo_entries: entries,
        flags: USERMODE,
        userd_dmabuf_fd: userd.raw(),
        gpfifo_dmabuf_fd: ring.raw(),
        ..SetupBind::default()
    }
}

pub(crate) fn setup(channel_fd: &DoorFd, ring: &DoorFd, userd: &DoorFd, entries: u32) -> Result<u32, Errno> {
    let mut args = setup_args(ring, userd, entries);
    channel::SETUP_BIND.send(channel_fd, &mut args)?;
    Ok(args.work_submit_token)
}

/// Returns whether the channel has been stopped.
pub(crate) fn timed_out(channel_fd: &DoorFd) -> bool {
    let mut args = channel::GetParam::default();
    channel::GET_TIMEDOUT.send(channel_fd, &mut args).unwrap();
    args.value == 1
}

/// A channel that joins an existing TSG on a subcontext, with the watchdog off.
pub(crate) fn join(bench: &Bench, space_fd: &DoorFd, tsg_fd: &DoorFd, veid: u32) -> DoorFd {
    let channel_fd = bench.channel();
    bind_space(space_fd, &channel_fd).unwrap();
    bind_tsg(tsg_fd, &channel_fd, veid).unwrap();
    wdt(&channel_fd, channel::WDT_DISABLE).unwrap();
    channel_fd
}

/// Runs `request` while the engines are stalled, and resumes them before anything is closed.
pub(crate) fn stalled<R>(bench: &Bench, request: impl FnOnce() -> R) -> R {
    bench.orin.stall_engines(true);
    let result = request();
    bench.orin.stall_engines(false);
    result
}

pub(crate) fn object(channel_fd: &DoorFd, class_num: u32) -> Result<i32, Errno> {
    let mut args = channel::AllocObjCtx { class_num, ..channel::AllocObjCtx::default() };
    channel::ALLOC_OBJ_CTX.send(channel_fd, &mut args)
}

pub(crate) fn map(space_fd: &DoorFd, buffer: &DoorFd) -> Result<u64, Errno> {
    let mut args = map_args(buffer);
    space::MAP_BUFFER_EX.send(space_fd, &mut args)?;
    Ok(args.offset)
}

pub(crate) fn map_args(buffer: &DoorFd) -> MapBufferEx {
    MapBufferEx {
        compr_kind: space::KIND_INVALID,
        dmabuf_fd: raw(buffer),
        page_size: 4096,
        ..MapBufferEx::default()
    }
}

pub(crate) fn unmap(space_fd: &DoorFd, va: u64) {
    space::UNMAP_BUFFER.send(space_fd, &mut space::UnmapBuffer { offset: va }).expect("UNMAP_BUFFER");
}

pub(crate) fn reserve(space_fd: &DoorFd, pages: u64, flags: u32, offset: u64) -> Result<u64, Errno> {
    let mut args = AllocSpace { pages, page_size: 4096, flags, offset, padding: [0; 2] };
    space::ALLOC_SPACE.send(space_fd, &mut args)?;
    Ok(args.offset)
}

/// Number of open descriptors of the process.
pub(crate) fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("procfs").count()
}

/// The word at `offset` of a mapping.
pub(crate) fn word(mapping: &DoorMapping, offset: usize) -> &AtomicU32 {
    assert!(offset + 4 <= mapping.len() && offset.is_multiple_of(4));
    // SAFETY: in bounds, aligned, and borrowed from the mapping that keeps it alive.
    unsafe { AtomicU32::from_ptr(mapping.pointer().as_ptr().add(offset).cast()) }
}

pub(crate) fn cpu(fd: &DoorFd, bytes: usize) -> DoorMapping {
    fd.map(0, bytes, Protection::READ | Protection::WRITE).unwrap()
}

pub(crate) fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    // TIMEOUT: far above the model's needs, so that only a hang fails.
    let deadline = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < deadline, "timed out waiting for {what}");
        std::thread::yield_now();
    }
}

/// Submits one pushbuffer segment and rings the doorbell.
pub(crate) fn submit(
    ring: &DoorMapping,
    userd: &DoorMapping,
    doorbell: &DoorMapping,
    token: u32,
    va: u64,
    words: u32,
) {
    let put = word(userd, 0x8c).load(Ordering::Relaxed);
    let entry = va | 1 << 41 | u64::from(words) << 42;
    let at = 8 * put as usize;
    word(ring, at).store(entry as u32, Ordering::Relaxed);
    word(ring, at + 4).store((entry >> 32) as u32, Ordering::Relaxed);
    word(userd, 0x8c).store((put + 1) % 1024, Ordering::Release);
    word(doorbell, ctrl::USERMODE_DOORBELL).store(token, Ordering::SeqCst);
}
