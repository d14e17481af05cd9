//! Requests and answers that the software Orin does not support: a door in front of it answers them.

use core::ffi::c_void;
use core::ptr::NonNull;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex};

use kernel_door::forward::Forward;
use kernel_door::{Door, Errno};
use nvgpu_sys::nvmap as sys;
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
        match request {
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
