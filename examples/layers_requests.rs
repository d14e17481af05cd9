//! Section 5 of docs/guide.md: ioctls only.
//!
//! Brings up a channel until the kernel returns its doorbell token. It does not launch a kernel; section 4 does.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Result, ensure};
use kernel_door::{Door, DoorFd, OpenFlags, Protection};
use nvgpu_sys::address_space::{self, BindChannel, MapBufferEx};
use nvgpu_sys::channel::{self, AllocObjCtx, SetupBind, SetupBindFlags, Wdt};
use nvgpu_sys::ctrl::{self, AllocAs, AllocAsFlags, OpenChannel, OpenTsg};
use nvgpu_sys::nvmap::{self, AllocHandle, CreateHandle, Heaps};
use nvgpu_sys::paths;
use nvgpu_sys::tsg::{self, BindChannelEx, CreateSubcontext};
use orin_cli::say;

/// Allocates pages from nvmap and returns them as a dma-buf descriptor.
fn allocate(nvmap: &DoorFd, bytes: u32) -> Result<DoorFd> {
    let mut handle = CreateHandle { size_or_fd: bytes, handle: 0 };
    nvmap::CREATE.send(nvmap, &mut handle)?;
    let mut alloc = AllocHandle {
        handle: handle.handle,
        heap_mask: Heaps::IOVMM.bits(),
        flags: nvmap::CACHE_WRITE_COMBINED | 0x0900 << 16,
        align: 4096,
        numa_nid: -1,
    };
    // Kernels since R39 have the request in another size; a kernel refuses the other form with ENOTTY.
    nvmap::alloc_r39(nvmap, &alloc).or_else(|_| nvmap::ALLOC.send(nvmap, &mut alloc).map(drop))?;
    nvmap::GET_FD.send(nvmap, &mut handle)?;
    let memory = owned(nvmap.door(), handle.size_or_fd.cast_signed());
    // SAFETY: the number is a handle, not a descriptor. The descriptor keeps the pages alive.
    unsafe { nvmap::FREE.send_closing(nvmap, handle.handle) }?;
    Ok(memory)
}

/// Takes ownership of a descriptor that a request has returned.
fn owned(door: &Arc<dyn Door>, raw: i32) -> DoorFd {
    // SAFETY: the kernel has just created it for this program.
    unsafe { DoorFd::from_raw(door, raw) }
}

fn main() -> ExitCode {
    examples::run(program)
}

fn program() -> Result<()> {
    let door: Arc<dyn Door> = examples::door()?;
    let flags = OpenFlags::READ_WRITE | OpenFlags::CLOSE_ON_EXEC;
    let nvmap = DoorFd::open(&door, paths::NVMAP, flags)?;
    let gpu = DoorFd::open(&door, paths::CTRL, flags)?;
    let (chip, _) = ctrl::get_characteristics(&gpu)?;

    // The address space. It ends below the shaders' memory windows, so no mapping can overlap them.
    let mut space = AllocAs {
        flags: AllocAsFlags::UNIFIED_VA.bits(),
        va_range_start: 0x20_0000,
        va_range_end: 0xfc_0000_0000,
        ..AllocAs::default()
    };
    ctrl::ALLOC_AS.send(&gpu, &mut space)?;
    let space = owned(&door, space.as_fd);

    // Memory for out[0..1000], mapped by the CPU and the GPU at separate addresses.
    let out = allocate(&nvmap, 4096)?;
    let cpu_view = out.map(0, 4096, Protection::READ | Protection::WRITE)?;
    let mut mapping = MapBufferEx {
        compr_kind: address_space::KIND_INVALID,
        incompr_kind: address_space::KIND_PITCH,
        dmabuf_fd: out.raw().cast_unsigned(),
        page_size: address_space::PAGE_SIZE,
        ..MapBufferEx::default()
    };
    address_space::MAP_BUFFER_EX.send(&space, &mut mapping)?;
    say!("out       GPU address {:#x}, {} bytes on the CPU", mapping.offset, cpu_view.len())?;

    // A time-slice group, a subcontext that binds it to the address space, and a channel.
    let mut group = OpenTsg::default();
    ctrl::OPEN_TSG.send(&gpu, &mut group)?;
    let group = owned(&door, group.tsg_fd.cast_signed());
    let mut context =
        CreateSubcontext { kind: tsg::SUBCONTEXT_ASYNC, as_fd: space.raw(), ..CreateSubcontext::default() };
    tsg::CREATE_SUBCONTEXT.send(&group, &mut context)?;
    let mut compute = OpenChannel { runlist_id_or_fd: ctrl::RUNLIST_GR };
    ctrl::OPEN_CHANNEL.send(&gpu, &mut compute)?;
    let compute = owned(&door, compute.runlist_id_or_fd);

    // The kernel accepts the remaining requests only in this order.
    let number = compute.raw();
    address_space::BIND_CHANNEL.send(&space, &mut BindChannel { channel_fd: number.cast_unsigned() })?;
    let mut member =
        BindChannelEx { channel_fd: number, subcontext_id: context.veid, ..BindChannelEx::default() };
    tsg::BIND_CHANNEL_EX.send(&group, &mut member)?;
    channel::WDT.send(&compute, &mut Wdt { wdt_status: channel::WDT_DISABLE, timeout_ms: 0 })?;
    let (ring, userd) = (allocate(&nvmap, 8192)?, allocate(&nvmap, 4096)?);
    let mut setup = SetupBind {
        num_gpfifo_entries: 1024,
        flags: (SetupBindFlags::USERMODE_SUPPORT | SetupBindFlags::DETERMINISTIC).bits(),
        userd_dmabuf_fd: userd.raw(),
        gpfifo_dmabuf_fd: ring.raw(),
        ..SetupBind::default()
    };
    channel::SETUP_BIND.send(&compute, &mut setup)?;
    let mut engine = AllocObjCtx { class_num: chip.compute_class, ..AllocObjCtx::default() };
    channel::ALLOC_OBJ_CTX.send(&compute, &mut engine)?;

    let doorbell = gpu.map(0, ctrl::USERMODE_PAGE_SIZE, Protection::READ | Protection::WRITE)?;
    say!("channel   class {:#06x}, doorbell token {:#x}", chip.compute_class, setup.work_submit_token)?;
    ensure!(doorbell.len() > ctrl::USERMODE_DOORBELL, "the page holds the doorbell register");
    Ok(())
}
