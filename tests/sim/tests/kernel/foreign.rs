//! dma-bufs that nvmap did not export: memfds, udmabufs, memory of a heap, and what the kernel refuses about them.

use core::sync::atomic::Ordering;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use crate::served;
use crate::support::rules::CLOSED;
use crate::support::*;

use kernel_door::{DoorFd, Errno, Protection};
use nvgpu_sys::address_space::{self as space, ACCESS_READ_WRITE, ACCESS_SHIFT};
use nvgpu_sys::dma_buf::{self, SyncFlags};
use nvgpu_sys::dma_heap::{self, AllocationData};
use nvgpu_sys::nvmap::{self, CreateHandle, HandleParameters};
use nvgpu_sys::paths;
use nvgpu_sys::udmabuf::{self, Create};
use orin_sim::{Call, Failure};
use rustix::fs::{MemfdFlags, OFlags, SealFlags};

const PAGE: u64 = 4096;
const RW: Protection = Protection::READ.union(Protection::WRITE);

/// A memfd of `bytes`, with these seals.
fn memfd(bytes: u64, seals: SealFlags) -> OwnedFd {
    let file = rustix::fs::memfd_create("frame", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&file, bytes).unwrap();
    rustix::fs::fcntl_add_seals(&file, seals).unwrap();
    file
}

/// The descriptor as one of the door.
fn given(bench: &Bench, file: OwnedFd) -> DoorFd {
    adopt(&bench.door, file.into_raw_fd())
}

fn copy(fd: &DoorFd) -> OwnedFd {
    // SAFETY: the descriptor is open.
    rustix::io::dup(unsafe { BorrowedFd::borrow_raw(fd.raw()) }).unwrap()
}

fn node(bench: &Bench, path: &core::ffi::CStr) -> DoorFd {
    DoorFd::open(&bench.door, path, FLAGS).unwrap()
}

/// A dma-buf of each exporter, with 8 KiB.
fn every_kind(bench: &Bench) -> Vec<(&'static str, DoorFd)> {
    let sealed = || memfd(2 * PAGE, SealFlags::SHRINK);
    let (udmabuf, heap) = (node(bench, paths::UDMABUF), node(bench, paths::DMA_HEAP_SYSTEM));
    let (first, second) = (sealed(), sealed());
    let pieces = [(first.as_fd(), PAGE, PAGE), (second.as_fd(), 0, PAGE)];
    vec![
        ("memfd", given(bench, sealed())),
        ("udmabuf", udmabuf::create(&udmabuf, sealed().as_fd(), 0, 2 * PAGE).unwrap()),
        ("pieces", udmabuf::create_list(&udmabuf, &pieces).unwrap()),
        ("heap", dma_heap::allocate(&heap, PAGE + 1, true).unwrap()),
    ]
}

/// Lets the GPU write 42 at byte 0x1800 of a buffer.
fn write_by_gpu(bench: &Bench, buffer: &DoorFd) -> (Chain, u64) {
    let chain = bench.chain();
    let doorbell = bench.doorbell();
    let (ring, userd) = (cpu(&chain.ring, 8192), cpu(&chain.userd, 4096));
    let commands = bench.buffer(4096);
    let (memory, va) = (cpu(&commands, 4096), map(&chain.space, &commands).unwrap());
    let target = map(&chain.space, buffer).unwrap();
    let end = va + 0x800;
    let mut words = Vec::new();
    for at in [target + 0x1800, end] {
        words.extend([0x2005_0017, at as u32, (at >> 32) as u32, 42, 0, 1]);
    }
    for (at, value) in words.iter().enumerate() {
        word(&memory, 4 * at).store(*value, Ordering::Relaxed);
    }
    submit(&ring, &userd, &doorbell, chain.token, va, words.len() as u32);
    wait_until("the work", || word(&memory, 0x800).load(Ordering::Acquire) == 42);
    (chain, target)
}

#[test]
fn the_gpu_writes_to_dma_bufs_of_every_exporter() {
    for bench in [Bench::new(), served::bench()] {
        let before = bench.orin.live();
        for (kind, buffer) in every_kind(&bench) {
            assert_eq!(buffer.seek_end(), Ok(2 * PAGE), "{kind}");
            let (chain, va) = write_by_gpu(&bench, &buffer);
            // A duplicate is the same dma-buf, so it has the same address.
            let second = given(&bench, copy(&buffer));
            assert_eq!(map(&chain.space, &second), Ok(va), "{kind}");
            for flags in [SyncFlags::READ, SyncFlags::READ | SyncFlags::END] {
                assert_eq!(dma_buf::sync(&second, flags), Ok(()), "{kind}");
            }
            for flags in [SyncFlags::empty(), SyncFlags::END, SyncFlags::from_bits_retain(9)] {
                assert_eq!(dma_buf::sync(&second, flags), Err(Errno::INVAL), "{kind}");
            }
            match buffer.map(0, 2 * 4096, RW) {
                Ok(mapping) => {
                    assert_eq!(word(&mapping, 0x1800).load(Ordering::Acquire), 42, "{kind}");
                    assert_eq!(buffer.map(PAGE, 2 * 4096, RW).unwrap_err(), Errno::INVAL, "{kind}: too long");
                }
                // The host cannot map parts of several files for another process.
                Err(errno) => assert_eq!((kind, errno), ("pieces", Errno::INVAL)),
            }
        }
        wait_until("the release", || bench.orin.live() == before);
    }
}

#[test]
fn nvmaps_buffers_have_the_same_rules_of_access() {
    let bench = Bench::new();
    let buffer = bench.buffer(0x3000);
    assert_eq!(buffer.seek_end(), Ok(0x3000));
    assert_eq!(dma_buf::sync(&buffer, SyncFlags::WRITE | SyncFlags::END), Ok(()));
    assert_eq!(dma_buf::sync(&buffer, SyncFlags::END), Err(Errno::INVAL));
    assert_eq!(dma_buf::sync(&bench.nvmap, SyncFlags::READ), Err(Errno::NOTTY));
}

/// FROM_FD returns a duplicate of the descriptor, and nvmap has no handle with that number.
#[test]
fn nvmap_returns_a_descriptor_for_anothers_dma_buf() {
    for bench in [Bench::new(), served::bench()] {
        for (kind, buffer) in every_kind(&bench) {
            let mut args = CreateHandle { size_or_fd: raw(&buffer), handle: 0 };
            assert_eq!(nvmap::FROM_FD.send(&bench.nvmap, &mut args), Ok(0), "{kind}");
            assert_ne!(args.handle, raw(&buffer), "{kind}");
            let mut parameters = HandleParameters { handle: args.handle, ..HandleParameters::default() };
            assert_eq!(nvmap::PARAMETERS.send(&bench.nvmap, &mut parameters), Err(Errno::NODEV), "{kind}");
            let second = adopt(&bench.door, args.handle.cast_signed());
            assert_eq!(second.seek_end(), Ok(2 * PAGE), "{kind}");
            assert_eq!((bench.orin.live().handles, bench.orin.live().buffers), (0, 0), "{kind}");
        }
    }
}

/// FREE of nvmap closes such a descriptor. The model cannot do this in a served process.
#[test]
fn free_closes_the_descriptor() {
    let bench = Bench::new();
    let buffer = given(&bench, memfd(PAGE, SealFlags::SHRINK));
    let mut args = CreateHandle { size_or_fd: raw(&buffer), handle: 0 };
    nvmap::FROM_FD.send(&bench.nvmap, &mut args).unwrap();
    let inode =
        |number: u32| std::fs::metadata(format!("/proc/self/fd/{number}")).ok().map(|file| file.ino());
    assert_eq!(inode(args.handle), inode(raw(&buffer)));
    bench.free(args.handle);
    // Another test may have reused the number.
    assert_ne!(inode(args.handle), inode(raw(&buffer)));
}

#[test]
fn read_only_dma_bufs_are_only_read() {
    for bench in [Bench::new(), served::bench()] {
        let file = memfd(PAGE, SealFlags::SHRINK);
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let twin =
            rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, rustix::fs::Mode::empty()).unwrap();
        let heap = node(&bench, paths::DMA_HEAP_SYSTEM);
        for buffer in [given(&bench, twin), dma_heap::allocate(&heap, PAGE, false).unwrap()] {
            assert_eq!(buffer.map(0, 4096, RW).unwrap_err(), Errno::ACCESS);
            assert!(buffer.map(0, 4096, Protection::READ).is_ok());
            let space = bench.space();
            let mut args = map_args(&buffer);
            args.flags |= ACCESS_READ_WRITE << ACCESS_SHIFT;
            assert_eq!(space::MAP_BUFFER_EX.send(&space, &mut args), Err(Errno::INVAL));
            assert!(bench.orin.kernel_log().last().unwrap().ends_with("RW mapping requested for RO buffer"));
            assert!(map(&space, &buffer).is_ok());
        }
    }
}

/// What is no dma-buf and cannot become one stays unknown.
#[test]
fn other_descriptors_are_refused() {
    for bench in [Bench::new(), served::bench()] {
        let space = bench.space();
        let (reader, _writer) = rustix::pipe::pipe().unwrap();
        for (what, file) in [
            ("it may shrink", memfd(PAGE, SealFlags::GROW)),
            ("it cannot be written", memfd(PAGE, SealFlags::SHRINK | SealFlags::WRITE)),
            ("it is empty", memfd(0, SealFlags::SHRINK)),
            ("a file", std::fs::File::open("/proc/self/exe").unwrap().into()),
            ("a pipe", reader),
        ] {
            // The host's, because a door closes only its own descriptors.
            let fd = file.into_raw_fd();
            let mut args = map_args(&bench.nvmap);
            args.dmabuf_fd = fd as u32;
            assert_eq!(space::MAP_BUFFER_EX.send(&space, &mut args), Err(Errno::INVAL), "{what}");
            let mut args = CreateHandle { size_or_fd: fd as u32, handle: 0 };
            assert_eq!(nvmap::FROM_FD.send(&bench.nvmap, &mut args), Err(Errno::INVAL), "{what}");
            // SAFETY: opened above.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
        }
        let last =
            bench.orin.kernel_log().into_iter().filter(|line| line.contains("is not a dmabuf")).count();
        assert_eq!(last, 5);
    }
}

/// Pages that a size does not fill cannot be mapped, because nvgpu rounds the length up first.
#[test]
fn a_size_that_is_no_number_of_pages_is_mapped_in_part() {
    let bench = Bench::new();
    let buffer = given(&bench, memfd(PAGE + 100, SealFlags::SHRINK));
    let space = bench.space();
    assert_eq!(map(&space, &buffer), Err(Errno::INVAL));
    let mut args = map_args(&buffer);
    args.flags = space::MapBufferFlags::FIXED_OFFSET.bits();
    (args.offset, args.mapping_size) = (reserve(&space, 2, 0, 0).unwrap(), PAGE);
    assert_eq!(space::MAP_BUFFER_EX.send(&space, &mut args), Ok(0));
    args.offset += PAGE;
    args.mapping_size = PAGE + 1;
    assert_eq!(space::MAP_BUFFER_EX.send(&space, &mut args), Err(Errno::INVAL));
}

#[test]
fn udmabuf_refuses_what_the_kernel_refuses() {
    for bench in [Bench::new(), served::bench()] {
        let udmabuf = node(&bench, paths::UDMABUF);
        let whole = memfd(2 * PAGE, SealFlags::SHRINK);
        let closed = CLOSED;
        let number = |file: &OwnedFd| file.as_raw_fd() as u32;
        let plain: OwnedFd = std::fs::File::open("/proc/self/exe").unwrap().into();
        let (loose, fixed) =
            (memfd(PAGE, SealFlags::GROW), memfd(PAGE, SealFlags::SHRINK | SealFlags::WRITE));
        for (what, memfd, offset, size, errno) in [
            ("not open", closed, 0, PAGE, Errno::BADFD),
            ("no memfd", number(&plain), 0, PAGE, Errno::BADFD),
            ("may shrink", number(&loose), 0, PAGE, Errno::INVAL),
            ("cannot be written", number(&fixed), 0, PAGE, Errno::INVAL),
            ("empty", number(&whole), 0, 0, Errno::INVAL),
            ("inside a page", number(&whole), 1, PAGE, Errno::INVAL),
            ("no whole page", number(&whole), 0, 100, Errno::INVAL),
            ("beyond the file", number(&whole), PAGE, 2 * PAGE, Errno::INVAL),
            ("beyond the limit, wins over a closed number", closed, 0, 65 << 20, Errno::INVAL),
        ] {
            let mut args = Create { memfd, flags: 0, offset, size };
            assert_eq!(udmabuf::CREATE.send(&udmabuf, &mut args), Err(errno), "{what}");
        }
        assert_eq!(udmabuf::create_list(&udmabuf, &[]).unwrap_err(), Errno::INVAL);
        let many = vec![(whole.as_fd(), 0, PAGE); 1025];
        assert_eq!(udmabuf::create_list(&udmabuf, &many).unwrap_err(), Errno::INVAL);
        assert!(udmabuf::create_list(&udmabuf, &many[..1024]).is_ok());
        assert_eq!(dma_buf::sync(&udmabuf, SyncFlags::READ), Err(Errno::NOTTY));
    }
}

#[test]
fn a_heap_refuses_what_the_kernel_refuses() {
    for bench in [Bench::new(), served::bench()] {
        let heap = node(&bench, paths::DMA_HEAP_SYSTEM);
        let right = AllocationData { len: PAGE, fd_flags: dma_heap::READ_WRITE, ..AllocationData::default() };
        for (what, args, errno) in [
            ("length 0", AllocationData { len: 0, ..right }, Errno::INVAL),
            ("length", AllocationData { len: u64::MAX, ..right }, Errno::INVAL),
            ("more than all memory", AllocationData { len: 1 << 50, ..right }, Errno::NOMEM),
            ("a descriptor", AllocationData { fd: 1, ..right }, Errno::INVAL),
            ("flags of the descriptor", AllocationData { fd_flags: 4, ..right }, Errno::INVAL),
            ("flags of the heap", AllocationData { heap_flags: 1, ..right }, Errno::INVAL),
        ] {
            assert_eq!(dma_heap::ALLOC.send(&heap, &mut { args }), Err(errno), "{what}");
        }
        assert_eq!(dma_buf::sync(&heap, SyncFlags::READ), Err(Errno::NOTTY));
    }
}

/// The errno of an exporter that refuses the GPU is that of the mapping, and the log names the step.
#[test]
fn an_exporters_refusal_is_returned_and_logged() {
    let bench = Bench::new();
    let buffer = given(&bench, memfd(PAGE, SealFlags::SHRINK));
    let space = bench.space();
    for (call, errno, text, kind) in [
        (Call::Attach, Errno::PERM, "Failed to attach dma_buf (err = -1)!", "attach"),
        (Call::MapAttachment, Errno::BUSY, "Failed to map attachment (err = -16)!", "map"),
    ] {
        let before = bench.orin.kernel_log().len();
        bench.orin.fail(Failure { call, nth: 1, errno });
        assert_eq!(map(&space, &buffer), Err(errno), "{kind}");
        let log = &bench.orin.kernel_log()[before..];
        assert!(log[0].ends_with(text) && log[1].ends_with("Failed to pin dma_buf!"), "{log:?}");
        assert!(map(&space, &buffer).is_ok());
        assert_eq!(bench.orin.live().gpu_mappings, 1);
        unmap_all(&space, &buffer);
    }
}

fn unmap_all(space: &DoorFd, buffer: &DoorFd) {
    let va = map(space, buffer).unwrap();
    unmap(space, va);
    unmap(space, va);
}
