//! Queries to both nodes, and objects created with raw requests.

use kernel_door::{DoorFd, OpenFlags};
use nvgpu_channel::{VA_END, VA_START};
use nvgpu_sys::{Release, address_space, ctrl, nvmap as sys, paths};

use test_harness::{Check, Context};

/// Allocation tag, bits 31:16 of the flags; without it nvmap prints a warning.
const TAG: u32 = 0x0900;
/// System memory as a separate heap, which Orin does not have.
const HEAP_SYSMEM: u32 = 1 << 31;

fn open_ctrl(context: &Context) -> Result<DoorFd, kernel_door::Errno> {
    DoorFd::open(context.door(), paths::CTRL, OpenFlags::READ_WRITE | OpenFlags::CLOSE_ON_EXEC)
}

fn open_nvmap(context: &Context) -> Result<DoorFd, kernel_door::Errno> {
    let flags = OpenFlags::READ_WRITE | OpenFlags::SYNC | OpenFlags::CLOSE_ON_EXEC;
    DoorFd::open(context.door(), paths::NVMAP, flags)
}

pub(super) fn characteristics(context: &Context) -> Check {
    let (seen, size) = ctrl::get_characteristics(&open_ctrl(context)?)?;
    let gpu = context.gpu()?;
    let named = gpu.characteristics();
    context.note(format!(
        "{}: architecture {:#x}, {} GPCs x {} TPCs, {} SMs, {} address bits, {size} bytes of characteristics",
        named.chip_name(),
        seen.arch + seen.impl_,
        seen.num_gpc,
        seen.num_tpc_per_gpc,
        named.sm_count(),
        seen.gpu_va_bit_count
    ));
    assert_eq!(named.chip_name(), "ga10b");
    assert_eq!((seen.arch, seen.impl_), (0x170, 0xb), "architecture and implementation");
    assert_eq!((seen.compute_class, seen.gpfifo_class, seen.dma_copy_class), (0xc7c0, 0xc76f, 0xc7b5));
    assert_eq!((seen.sm_arch_sm_version, seen.gpu_va_bit_count), (0x807, 40));
    assert!(seen.num_gpc > 0 && seen.num_tpc_per_gpc > 0 && named.sm_count() > 0);
    Ok(())
}

pub(super) fn zcull(context: &Context) -> Check {
    let mut argument = ctrl::ZcullGetCtxSize::default();
    ctrl::ZCULL_GET_CTX_SIZE.send(&open_ctrl(context)?, &mut argument)?;
    context.note(format!("{} bytes", argument.size));
    assert!(argument.size > 0);
    Ok(())
}

pub(super) fn heaps(context: &Context) -> Check {
    let nvmap = context.nvmap()?;
    let carveouts = nvmap.carveouts()?;
    let memory = nvmap.system_memory()?;
    context.note(format!("carveouts {:#x}, IOVMM {} MiB", carveouts.bits(), memory.total_bytes >> 20));
    assert!(memory.total_bytes > 0, "IOVMM has no memory");
    Ok(())
}

/// Creates a handle, allocates from `heap`, exports a file descriptor, and frees both.
fn allocate(nvmap: &DoorFd, release: Release, heap: u32) -> Result<(), kernel_door::Errno> {
    let mut create = sys::CreateHandle { size_or_fd: 4096, handle: 0 };
    sys::CREATE.send(nvmap, &mut create)?;
    let handle = create.handle;
    let flags = TAG << sys::TAG_SHIFT | sys::CACHE_WRITE_COMBINED;
    let mut alloc = sys::AllocHandle { handle, heap_mask: heap, flags, align: 4096, numa_nid: 0 };
    let allocated = if release < Release::R39_2 {
        sys::ALLOC.send(nvmap, &mut alloc).map(drop)
    } else {
        sys::alloc_r39(nvmap, &alloc)
    };
    let fd = allocated.and_then(|()| {
        let mut get = sys::CreateHandle { size_or_fd: 0, handle };
        sys::GET_FD.send(nvmap, &mut get)?;
        let raw = i32::try_from(get.size_or_fd).map_err(|_| kernel_door::Errno::BADF)?;
        // SAFETY: the request returned a new descriptor.
        Ok(unsafe { DoorFd::from_raw(nvmap.door(), raw) })
    });
    // The handle is freed in any case, the file descriptor with `fd`.
    // SAFETY: the number is a handle.
    unsafe { sys::FREE.send_closing(nvmap, handle) }?;
    fd.map(drop)
}

/// The carveout of the GPU (heap bit 3) is left out: nvmap computes a size of 0 for it on a board, and the kernel is
/// left with an empty dma-buf.
pub(super) fn create_alloc(context: &Context) -> Check {
    let nvmap = open_nvmap(context)?;
    // The layout of the characteristics and the form of ALLOC changed in the same release.
    let (_, bytes) = ctrl::get_characteristics(&open_ctrl(context)?)?;
    let release = ctrl::Characteristics::release_of(bytes).unwrap_or(Release::R39_2);
    for (name, heap) in [("SYSMEM", HEAP_SYSMEM), ("GENERIC", sys::Heaps::GENERIC.bits())] {
        match allocate(&nvmap, release, heap) {
            Ok(()) => context.note(format!("{name} provides memory")),
            Err(errno) => context.note(format!("{name}: {errno}")),
        }
    }
    allocate(&nvmap, release, sys::Heaps::IOVMM.bits())?;
    Ok(())
}

pub(super) fn alloc_as(context: &Context) -> Check {
    let ctrl_fd = open_ctrl(context)?;
    let mut argument = ctrl::AllocAs {
        flags: ctrl::AllocAsFlags::UNIFIED_VA.bits(),
        va_range_start: VA_START.get(),
        va_range_end: VA_END.get(),
        ..ctrl::AllocAs::default()
    };
    ctrl::ALLOC_AS.send(&ctrl_fd, &mut argument)?;
    assert!(argument.as_fd >= 0, "descriptor {}", argument.as_fd);
    // SAFETY: the request returned a new descriptor.
    let space = unsafe { DoorFd::from_raw(context.door(), argument.as_fd) };
    let mut regions = [address_space::VaRegion::default(); 2];
    let count = address_space::get_va_regions(&space, &mut regions)?;
    let region = regions[0];
    let end = region.offset + region.pages * u64::from(region.page_size);
    context.note(format!("{count} regions, {:#x}..{end:#x} in pages of {}", region.offset, region.page_size));
    assert_eq!((region.offset, end, region.page_size), (VA_START.get(), VA_END.get(), 4096));
    Ok(())
}
