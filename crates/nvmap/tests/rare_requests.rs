//! Requests and answers that the software Orin does not support: a door in front of it answers them.

use core::ffi::c_void;
use core::ptr::NonNull;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex};

use kernel_door::forward::Forward;
use kernel_door::{Door, Errno};
use nvgpu_sys::{Release, nvmap as sys};
use nvmap::{CacheMode, CacheOperation, Error, Nvmap};
use orin_sim::{Config, SoftwareOrin};

/// State of the door in front.
#[derive(Debug, Default)]
struct Seen {
    imports: Vec<sys::CreateHandleFromVa>,
    maintenance: Vec<sys::CacheOp64>,
    closed: Vec<RawFd>,
    /// Number of times that GET_FD returns 0.
    zero_descriptors: usize,
    /// Requests that the kernel does not have.
    lacks: Vec<u32>,
    /// Codes of the requests with ALLOC's number, in order.
    allocations: Vec<u32>,
}

#[derive(Debug)]
struct Front {
    behind: SoftwareOrin,
    seen: Arc<Mutex<Seen>>,
}

// SAFETY: mappings come from the door behind.
unsafe impl Forward for Front {
    fn behind(&self) -> &dyn Door {
        &self.behind
    }

    unsafe fn ioctl(&self, fd: RawFd, request: u32, argument: *mut c_void) -> Result<i32, Errno> {
        let mut seen = self.seen.lock().unwrap();
        if [sys::code::ALLOC, sys::code::ALLOC_R39].contains(&request) {
            seen.allocations.push(request);
        }
        match request {
            _ if seen.lacks.contains(&request) => Err(Errno::NOTTY),
            sys::code::ALLOC_R39 => {
                // SAFETY: the argument of ALLOC_R39 is this struct, by the contract of `ioctl`.
                let argument = unsafe { *argument.cast::<sys::AllocHandleR39>() };
                assert_eq!(argument.va, 0);
                let sys::AllocHandleR39 { handle, heap_mask, flags, align, numa_nid, .. } = argument;
                let mut older = sys::AllocHandle { handle, heap_mask, flags, align, numa_nid };
                // SAFETY: the argument of ALLOC is this struct.
                unsafe { self.behind.ioctl(fd, sys::code::ALLOC, (&raw mut older).cast()) }
            }
            // SAFETY: both requests have the same argument.
            sys::code::QUERY_HEAP_PARAMS_NUMA => unsafe {
                self.behind.ioctl(fd, sys::code::QUERY_HEAP_PARAMS, argument)
            },
            sys::code::FROM_VA => {
                // SAFETY: the argument of FROM_VA is this struct, by the contract of `ioctl`.
                let argument = unsafe { &mut *argument.cast::<sys::CreateHandleFromVa>() };
                seen.imports.push(*argument);
                let mut create = sys::CreateHandle { size_or_fd: 4096, handle: 0 };
                // SAFETY: the argument of CREATE is this struct.
                unsafe { self.behind.ioctl(fd, sys::code::CREATE, (&raw mut create).cast()) }?;
                argument.size_or_handle = create.handle.into();
                Ok(0)
            }
            sys::code::CACHE_64 => {
                // SAFETY: the argument of CACHE_64 is this struct, by the contract of `ioctl`.
                seen.maintenance.push(unsafe { *argument.cast::<sys::CacheOp64>() });
                Ok(0)
            }
            sys::code::GET_FD if seen.zero_descriptors > 0 => {
                seen.zero_descriptors -= 1;
                // SAFETY: the argument of GET_FD is this struct, by the contract of `ioctl`.
                unsafe { (*argument.cast::<sys::CreateHandle>()).size_or_fd = 0 };
                Ok(0)
            }
            // SAFETY: the call is forwarded unchanged.
            _ => unsafe { self.behind.ioctl(fd, request, argument) },
        }
    }

    unsafe fn close(&self, fd: RawFd) -> Result<(), Errno> {
        self.seen.lock().unwrap().closed.push(fd);
        // SAFETY: the call is forwarded unchanged. Descriptor 0 is synthetic: it is the test's standard input.
        if fd == 0 { Ok(()) } else { unsafe { self.behind.close(fd) } }
    }
}

fn open() -> (Arc<Mutex<Seen>>, Nvmap) {
    let behind = SoftwareOrin::new(Config::default()).unwrap();
    let seen = Arc::new(Mutex::new(Seen::default()));
    let door: Arc<dyn Door> = Arc::new(Front { behind, seen: Arc::clone(&seen) });
    let nvmap = Nvmap::open(&door).unwrap();
    (seen, nvmap)
}

/// SETUP_BIND interprets descriptor 0 as "none".
#[test]
fn a_buffer_never_has_descriptor_0() {
    let (seen, nvmap) = open();
    seen.lock().unwrap().zero_descriptors = 1;
    let buffer = nvmap.buffer(4096).allocate().unwrap();
    assert_ne!(buffer.dma_buf(), 0);
    assert_eq!(seen.lock().unwrap().closed, [0]);
}

#[test]
fn host_memory_is_imported_in_place() {
    #[repr(align(4096))]
    struct Page([u8; 8192]);

    let (seen, nvmap) = open();
    let mut page = Box::new(Page([0; 8192]));
    let pointer = NonNull::new(page.0.as_mut_ptr()).unwrap();
    // SAFETY: the page outlives the buffer and is only accessed through it.
    let buffer = unsafe { nvmap.import_host(pointer, 5000, "host") }.unwrap();
    assert_eq!((buffer.size(), buffer.pointer()), (5000, pointer));
    assert_eq!(buffer.cache_mode(), CacheMode::InnerCacheable);
    buffer.write_u32(4, 0x0102_0304);
    let request = seen.lock().unwrap().imports[0];
    assert_eq!(request.va, pointer.as_ptr().addr() as u64);
    assert_eq!((request.size, request.flags), (0, 0x0900_0002));
    drop(buffer);
    assert_eq!(page.0[4..8], [4, 3, 2, 1]);

    // SAFETY: rejected before the memory is accessed.
    let misaligned = unsafe { nvmap.import_host(pointer.add(8), 8, "host") };
    assert!(matches!(misaligned, Err(Error::HostAddress { .. })));
    // SAFETY: as above.
    assert!(matches!(unsafe { nvmap.import_host(pointer, 0, "host") }, Err(Error::Size { .. })));
}

#[test]
fn maintenance_names_the_bytes_by_their_cpu_address() {
    let (seen, nvmap) = open();
    let buffer = nvmap.buffer(8192).allocate().unwrap();
    buffer.maintain_cache(CacheOperation::WriteBack, 4096, 64).unwrap();
    buffer.maintain_cache(CacheOperation::Invalidate, 0, 8192).unwrap();
    buffer.maintain_cache(CacheOperation::WriteBackInvalidate, 0, 1).unwrap();
    assert!(matches!(
        buffer.maintain_cache(CacheOperation::WriteBack, 4096, 4097),
        Err(Error::OutOfBounds { .. })
    ));
    let base = buffer.pointer().as_ptr().addr() as u64;
    let seen: Vec<_> = seen
        .lock()
        .unwrap()
        .maintenance
        .iter()
        .map(|op| (op.addr - base, op.len, op.op, op.handle))
        .collect();
    let handle = buffer.handle();
    assert_eq!(seen, [(4096, 64, 0, handle), (0, 8192, 1, handle), (0, 1, 2, handle)]);
}

/// Codes that the client sends for two allocations, one by a clone, and the release that it finds.
fn allocations(lacks: &[u32]) -> (Vec<u32>, Option<Release>) {
    let (seen, nvmap) = open();
    seen.lock().unwrap().lacks = lacks.to_vec();
    assert_eq!(nvmap.interface(), None);
    for client in [nvmap.clone(), nvmap.clone()] {
        client.buffer(4096).allocate().unwrap().write_u32(0, 1);
    }
    (seen.lock().unwrap().allocations.clone(), nvmap.interface())
}

#[test]
fn the_first_allocation_finds_the_form_that_the_kernel_has() {
    use Release::{R36_4_3, R39_2};
    use sys::code::{ALLOC, ALLOC_R39, QUERY_HEAP_PARAMS_NUMA};
    // R36, R39, and kernels of which one request is as in the other release.
    for (lacks, sent, release) in [
        (&[ALLOC_R39, QUERY_HEAP_PARAMS_NUMA][..], &[ALLOC, ALLOC][..], R36_4_3),
        (&[ALLOC], &[ALLOC_R39, ALLOC_R39], R39_2),
        (&[ALLOC_R39], &[ALLOC_R39, ALLOC, ALLOC], R36_4_3),
        (&[ALLOC, QUERY_HEAP_PARAMS_NUMA], &[ALLOC, ALLOC_R39, ALLOC_R39], R39_2),
    ] {
        assert_eq!(allocations(lacks), (sent.to_vec(), Some(release)), "{lacks:x?}");
    }
}

#[test]
fn a_kernel_without_any_form_of_the_request_is_reported() {
    let (seen, nvmap) = open();
    seen.lock().unwrap().lacks = vec![sys::code::ALLOC, sys::code::ALLOC_R39];
    let error = nvmap.buffer(4096).label("first").allocate().unwrap_err();
    assert_eq!((error.errno(), nvmap.interface()), (Some(Errno::NOTTY), None));
    let text = error.to_string();
    assert!(text.contains("NVMAP_IOC_ALLOC of buffer \"first\"") && text.contains("orin doctor"), "{text}");
}

/// The kernel has the form that it refuses for another reason.
#[test]
fn a_refused_allocation_settles_the_form() {
    let (seen, nvmap) = open();
    let error = nvmap.buffer(1 << 45).allocate().unwrap_err();
    assert_eq!(error.errno(), Some(Errno::NOMEM), "{error}");
    assert_eq!(nvmap.interface(), Some(Release::R39_2));
    assert_eq!(seen.lock().unwrap().allocations, [sys::code::ALLOC_R39]);
}

#[test]
fn requests_that_r39_removed_are_reported_as_removed() {
    let (seen, nvmap) = open();
    let removed = [sys::CACHE_LIST.code(), sys::SET_TAG_LABEL.code(), sys::GET_HEAP_SIZE.code()];
    seen.lock().unwrap().lacks = removed.to_vec();
    let buffer = nvmap.buffer(4096).allocate_unmapped().unwrap();
    let errors = [
        nvmap.maintain_cache_list(CacheOperation::WriteBack, &[(&buffer, 0, 4096)]).unwrap_err(),
        nvmap.label_tag(1, "tag").unwrap_err(),
        nvmap.carveout_bytes(sys::Heaps::VPR).unwrap_err(),
    ];
    for (error, name) in errors.into_iter().zip(["CACHE_LIST", "SET_TAG_LABEL", "GET_HEAP_SIZE"]) {
        assert_eq!(error.errno(), Some(Errno::NOTTY));
        let text = error.to_string();
        assert!(matches!(error, Error::Removed { since: Release::R39_2, .. }), "{text}");
        assert!(text.contains(&format!("no NVMAP_IOC_{name}: r39.2 removed it")), "{text}");
    }
    // The replacement of the last one.
    assert_eq!(nvmap.heap_usage(sys::Heaps::VPR).unwrap().total_bytes, 64 << 20);
}
