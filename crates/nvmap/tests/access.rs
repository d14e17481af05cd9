//! Access to buffers: mappings, typed views, requests, cache maintenance.

use std::os::fd::AsFd;
use std::sync::Arc;

use kernel_door::{Door, Errno};
use nvgpu_sys::nvmap as sys;
use nvmap::{
    Access, Buffer, BufferBuilder, CacheMode, CacheOperation, CpuMapping, DmaBuf, Error, Heaps, Nvmap, Rows,
    TypedView,
};
use orin_sim::{Config, SoftwareOrin};

fn open() -> (SoftwareOrin, Nvmap) {
    let orin = SoftwareOrin::new(Config::default()).unwrap();
    let door: Arc<dyn Door> = Arc::new(orin.clone());
    let nvmap = Nvmap::open(&door).unwrap();
    (orin, nvmap)
}

/// Compiles only if the types are `Send` and `Sync`.
#[test]
fn everything_can_be_used_from_any_thread() {
    fn check<T: Send + Sync>() {}
    check::<Nvmap>();
    check::<BufferBuilder<'_>>();
    check::<Buffer>();
    check::<DmaBuf>();
    check::<CpuMapping>();
    check::<TypedView<'_, f32>>();
    check::<Error>();
}

#[test]
fn parts_can_be_mapped_and_alias_the_whole() {
    let (orin, nvmap) = open();
    let buffer = nvmap.buffer(4 * 4096).label("image").allocate().unwrap();
    let middle = buffer.as_dma_buf().map(4096, 8192, Access::ReadWrite).unwrap();
    let tail = buffer.as_dma_buf().map(8192, 8192, Access::ReadOnly).unwrap();
    assert_eq!((middle.len(), middle.is_empty(), tail.access()), (8192, false, Access::ReadOnly));
    assert_eq!(orin.live().mappings, 3);
    buffer.write_u32(8192, 11);
    assert_eq!(middle.view::<u32>(4096, 1).unwrap().get(0), 11);
    middle.view::<u32>(4096, 1).unwrap().set(0, 12);
    assert_eq!(tail.view::<u32>(0, 1).unwrap().get(0), 12);
    assert!(matches!(tail.view::<u32>(0, 1).unwrap().fill(0), Err(Error::ReadOnly { .. })));
    // A mapping keeps the memory alive.
    drop(buffer);
    drop(nvmap);
    assert_eq!(tail.view::<u32>(0, 1).unwrap().get(0), 12);

    let (_orin, nvmap) = open();
    let memory = nvmap.buffer(8192).allocate_unmapped().unwrap();
    for (offset, len) in [(0, 0), (1, 4096), (0, 4097), (4096, 8192), (8192, 4096), (usize::MAX - 4095, 4096)]
    {
        let error = memory.map(offset, len, Access::ReadWrite).unwrap_err();
        assert!(matches!(error, Error::MappingRange { .. }), "{offset} {len}: {error}");
    }
}

#[test]
fn views_read_and_write_values() {
    #[repr(C)]
    #[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
    struct Point {
        x: f32,
        y: f32,
        weight: f64,
    }

    let (_orin, nvmap) = open();
    let buffer = nvmap.buffer(4096).label("points").allocate().unwrap();
    let points = buffer.view::<Point>(64, 8).unwrap();
    let point = |x: f32| Point { x, y: -x, weight: f64::from(x) / 3.0 };
    points.set(2, point(1.0));
    assert_eq!((points.get(2), points.get(3)), (point(1.0), point(0.0)));
    points.copy_from_slice(5, &[point(5.0), point(6.0)]).unwrap();
    assert_eq!(
        points.iter().map(|point| point.x).collect::<Vec<_>>(),
        [0.0, 0.0, 1.0, 0.0, 0.0, 5.0, 6.0, 0.0]
    );
    let mut two = [point(9.0); 2];
    points.sub(5, 3).unwrap().copy_to_slice(0, &mut two).unwrap();
    assert_eq!(two, [point(5.0), point(6.0)]);
    assert_eq!(points.to_vec().len(), 8);
    points.sub(0, 4).unwrap().copy_from(&points.sub(4, 4).unwrap()).unwrap();
    assert_eq!(points.get(1), point(5.0));
    points.fill(point(7.0)).unwrap();
    assert!(points.iter().all(|value| value == point(7.0)));
    assert_eq!(buffer.read_u32(60), 0, "before the view");
    assert_eq!(buffer.read_u32(64 + 8 * 16), 0, "after the view");

    assert!(points.copy_from(&points.sub(0, 1).unwrap()).is_err());
    assert!(matches!(points.sub(8, 1), Err(Error::OutOfBounds { .. })));
    assert!(matches!(points.sub(usize::MAX, 2), Err(Error::OutOfBounds { .. })));
    assert!(matches!(points.copy_from_slice(8, &[point(1.0)]), Err(Error::OutOfBounds { .. })));
    assert!(matches!(buffer.view::<f64>(4, 1), Err(Error::Misaligned { offset: 4, alignment: 8, .. })));
    assert!(matches!(buffer.view::<f64>(4096 - 8, 2), Err(Error::OutOfBounds { .. })));
    assert!(matches!(buffer.view::<f64>(0, usize::MAX), Err(Error::OutOfBounds { .. })));
    assert!(buffer.view::<f64>(4096, 0).unwrap().is_empty());
}

#[test]
#[should_panic(expected = "value 4 of \"points\", which has 4")]
fn a_value_outside_the_view_panics() {
    let (_orin, nvmap) = open();
    let buffer = nvmap.buffer(4096).label("points").allocate().unwrap();
    buffer.view::<u64>(0, 4).unwrap().get(4);
}

#[test]
fn all_four_cache_modes_are_the_kernels() {
    let (_orin, nvmap) = open();
    for mode in
        [CacheMode::Uncached, CacheMode::WriteCombined, CacheMode::InnerCacheable, CacheMode::Cacheable]
    {
        let buffer = nvmap.buffer(4096).cache(mode).allocate().unwrap();
        let parameters = buffer.as_dma_buf().parameters().unwrap();
        assert_eq!((parameters.cache, parameters.heap), (mode, Heaps::IOVMM));
        assert_eq!((parameters.size, parameters.access), (4096, Access::ReadWrite));
        buffer.write_u32(0, 3);
        assert_eq!(buffer.read_u32(0), 3);
    }
    let aligned = nvmap.buffer(4096).alignment(65_536).allocate().unwrap();
    assert_eq!(aligned.as_dma_buf().parameters().unwrap().alignment, 65_536);
}

#[test]
fn protected_memory_has_no_cpu_mapping() {
    let (orin, nvmap) = open();
    let before = orin.live();
    let error = nvmap.buffer(4096).heaps(Heaps::VPR).allocate().unwrap_err();
    assert_eq!(error.errno(), Some(Errno::PERM), "{error}");
    let memory = nvmap.buffer(4096).heaps(Heaps::VPR).label("film").allocate_unmapped().unwrap();
    assert_eq!(memory.parameters().unwrap().heap, Heaps::VPR);
    assert_eq!(memory.read(0, &mut [0; 4]).unwrap_err().errno(), Some(Errno::PERM));
    assert_eq!(memory.map_whole().unwrap_err().errno(), Some(Errno::PERM));
    drop(memory);
    assert_eq!(orin.live(), before);
}

#[test]
fn heaps_are_asked_one_by_one() {
    let (_orin, nvmap) = open();
    let vpr = nvmap.heap_usage(Heaps::VPR).unwrap();
    assert_eq!((vpr.total_bytes, vpr.free_bytes), (64 << 20, 64 << 20));
    assert_eq!(nvmap.carveout_bytes(Heaps::VPR).unwrap(), 64 << 20);
    let system = nvmap.heap_usage(Heaps::IOVMM).unwrap();
    assert_eq!((system, system.granule_bytes), (nvmap.system_memory().unwrap(), 4096));
    for heap in [Heaps::IOVMM, Heaps::TSEC] {
        assert_eq!(nvmap.carveout_bytes(heap).unwrap_err().errno(), Some(Errno::NODEV), "{heap:?}");
    }
    for heaps in [Heaps::empty(), Heaps::VPR | Heaps::FSI] {
        assert!(matches!(nvmap.heap_usage(heaps), Err(Error::Heap { .. })));
    }
    nvmap.label_tag(0x0900, "compute buffers").unwrap();
}

#[test]
fn the_kernel_copies_without_a_mapping() {
    let (orin, nvmap) = open();
    let memory = nvmap.buffer(8192).label("log").allocate_unmapped().unwrap();
    assert_eq!(orin.live().mappings, 0);
    memory.write(4090, b"across a page").unwrap();
    let mut text = [0; 13];
    memory.read(4090, &mut text).unwrap();
    assert_eq!(&text, b"across a page");
    memory.write(8192, &[]).unwrap();
    assert!(matches!(memory.write(8191, &[1, 2]), Err(Error::OutOfBounds { .. })));
    assert!(matches!(memory.read(usize::MAX, &mut [0]), Err(Error::OutOfBounds { .. })));
}

/// A 4 x 3 piece of an image of 16 bytes per row.
#[test]
fn rows_are_copied_in_one_request() {
    let (orin, nvmap) = open();
    let memory = nvmap.buffer(4096).allocate_unmapped().unwrap();
    let piece: Vec<u8> = (1..=12).collect();
    let rows = Rows { offset: 34, row_bytes: 4, handle_stride: 16, user_stride: 4, count: 3 };
    let before = orin.ioctl_count();
    memory.write_rows(rows, &piece).unwrap();
    assert_eq!(orin.ioctl_count(), before + 1);
    let mut image = [0; 96];
    memory.read(0, &mut image).unwrap();
    for (row, values) in piece.chunks(4).enumerate() {
        let at = 34 + 16 * row;
        assert_eq!(&image[at..at + 4], values);
        assert_eq!((image[at - 1], image[at + 4]), (0, 0));
    }
    let mut back = vec![0; 12];
    memory.read_rows(rows, &mut back).unwrap();
    assert_eq!(back, piece);

    let short = memory.read_rows(rows, &mut back[..11]).unwrap_err();
    assert_eq!(short.errno(), Some(Errno::OVERFLOW));
    let outside = Rows { offset: 4096 - 20, ..rows };
    assert_eq!(memory.write_rows(outside, &piece).unwrap_err().errno(), Some(Errno::INVAL));
    let endless = Rows { user_stride: u64::MAX, ..rows };
    assert_eq!(memory.write_rows(endless, &piece).unwrap_err().errno(), Some(Errno::OVERFLOW));
}

#[test]
fn cache_maintenance_goes_by_range_or_by_list() {
    let (orin, nvmap) = open();
    let (one, two) = (nvmap.buffer(8192).allocate().unwrap(), nvmap.buffer(4096).allocate().unwrap());
    one.maintain_cache(CacheOperation::WriteBack, 4096, 64).unwrap();
    two.maintain_cache(CacheOperation::Invalidate, 0, 4096).unwrap();
    let before = orin.ioctl_count();
    let ranges = [(one.as_dma_buf(), 0, 8192), (two.as_dma_buf(), 128, 64)];
    nvmap.maintain_cache_list(CacheOperation::WriteBackInvalidate, &ranges).unwrap();
    assert_eq!(orin.ioctl_counts().get(&sys::code::CACHE_LIST), Some(&1));
    nvmap.maintain_cache_list(CacheOperation::WriteBack, &[]).unwrap();
    let outside = [(two.as_dma_buf(), 4096, 1)];
    let error = nvmap.maintain_cache_list(CacheOperation::WriteBack, &outside).unwrap_err();
    assert!(matches!(error, Error::OutOfBounds { .. }), "{error}");
    assert_eq!(orin.ioctl_count(), before + 1);
}

/// Anonymous memory, page-aligned.
#[repr(align(4096))]
struct Pages([u8; 8192]);

#[test]
fn imported_host_memory_is_used_in_place() {
    let (orin, nvmap) = open();
    let before = orin.live();
    let mut pages = Box::new(Pages([0; 8192]));
    let pointer = core::ptr::NonNull::new(pages.0.as_mut_ptr()).unwrap();
    // SAFETY: the pages outlive the buffer and are only accessed through it.
    let buffer = unsafe { nvmap.import_host(pointer, 8192, "host") }.unwrap();
    assert_eq!(buffer.pointer(), pointer);
    buffer.view::<u32>(4096, 2).unwrap().set(1, 9);
    let mut word = [0; 4];
    buffer.as_dma_buf().read(4100, &mut word).unwrap();
    assert_eq!(word, [9, 0, 0, 0]);
    // The dma-buf is for the GPU: the CPU already has the memory.
    assert!(matches!(buffer.as_dma_buf().map_whole(), Err(Error::HostMapping { .. })));
    // Nor is it mapped when it is imported again, which an access would not survive.
    for fd in [buffer.as_fd(), buffer.as_dma_buf().duplicate(Access::ReadOnly).unwrap().as_fd()] {
        let again = nvmap.clone().import(fd, "again").unwrap();
        assert!(matches!(again.map_whole(), Err(Error::HostMapping { .. })));
        assert!(matches!(nvmap.import_buffer(fd, "again"), Err(Error::HostMapping { .. })));
        again.read(4100, &mut word).unwrap();
        assert_eq!(word, [9, 0, 0, 0]);
    }
    // It is not an nvmap mapping either.
    let error = buffer.maintain_cache(CacheOperation::WriteBack, 0, 64).unwrap_err();
    assert_eq!(error.errno(), Some(Errno::ADDRNOTAVAIL), "{error}");
    drop(buffer);
    assert_eq!(pages.0[4100], 9);
    assert_eq!(orin.live(), before);
}

#[test]
fn read_only_host_memory_is_imported_as_such() {
    let (_orin, nvmap) = open();
    let mut pages = Box::new(Pages([3; 8192]));
    let pointer = core::ptr::NonNull::new(pages.0.as_mut_ptr()).unwrap();
    // SAFETY: the pages outlive the buffer.
    let buffer = unsafe { nvmap.import_host_read_only(pointer, 8192, "weights") }.unwrap();
    assert_eq!((buffer.access(), buffer.read_u32(0)), (Access::ReadOnly, 0x0303_0303));
    assert!(matches!(buffer.fill(0, 1, 0), Err(Error::ReadOnly { .. })));
    assert!(matches!(buffer.as_dma_buf().write(0, &[0]), Err(Error::ReadOnly { .. })));
}

/// Unmapped memory cannot be pinned.
#[test]
fn a_hole_cannot_be_imported() {
    let (orin, nvmap) = open();
    let before = orin.live();
    let pointer = core::ptr::NonNull::new(core::ptr::without_provenance_mut::<u8>(4096)).unwrap();
    // SAFETY: the address is not mapped, and the kernel rejects it.
    let error = unsafe { nvmap.import_host(pointer, 4096, "hole") }.unwrap_err();
    assert_eq!(error.errno(), Some(Errno::INVAL), "{error}");
    assert_eq!(orin.live(), before);
}
