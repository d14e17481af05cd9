//! The kernel while the GPU works: faults, events, imported memory.

use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use std::time::Instant;

use crate::support::work::{Running, release};
use crate::support::*;
use kernel_door::{DoorFd, Events, Protection};
use nvgpu_sys::{channel, nvmap};
use orin_sim::{Config, LiveCounts};

/// A word of NON_STALL_INTERRUPT.
const INTERRUPT: [u32; 2] = [0x2001_0008, 0];

#[test]
fn work_runs_and_a_fault_ends_the_whole_tsg() {
    let bench = Bench::new();
    let chain = bench.chain();
    let sibling = bench.channel();
    bind_space(&chain.space, &sibling).unwrap();
    bind_tsg(&chain.tsg, &sibling, 0).unwrap();
    let doorbell = bench.doorbell();
    let (ring, userd) = (cpu(&chain.ring, 8192), cpu(&chain.userd, 4096));

    let buffer = bench.buffer(8192);
    let memory = cpu(&buffer, 8192);
    let va = map(&chain.space, &buffer).unwrap();
    let notifier = |channel: &DoorFd, offset| {
        let mut args = channel::SetErrorNotifier { offset, mem: raw(&buffer), ..Default::default() };
        channel::SET_ERROR_NOTIFIER.send(channel, &mut args).unwrap();
    };
    notifier(&chain.channel, 0x1000);
    notifier(&sibling, 0x1010);

    // SEM_ADDR_LO, _HI, PAYLOAD_LO, _HI, EXECUTE (release) of the host class.
    let release = |va: u64, payload: u32| [0x2005_0017, va as u32, (va >> 32) as u32, payload, 0, 1];
    for (at, value) in release(va + 0x800, 42).into_iter().enumerate() {
        word(&memory, 4 * at).store(value, Ordering::Relaxed);
    }
    submit(&ring, &userd, &doorbell, chain.token, va, 6);
    wait_until("the semaphore", || word(&memory, 0x800).load(Ordering::Acquire) == 42);
    assert_eq!(bench.orin.kernel_log().iter().filter(|line| line.contains("[ERR]")).count(), 0);

    // The same to an unmapped address. The log contains its page.
    for (at, value) in release(0x34_5678_0010, 42).into_iter().enumerate() {
        word(&memory, 4 * at).store(value, Ordering::Relaxed);
    }
    submit(&ring, &userd, &doorbell, chain.token, va, 6);
    for offset in [0x1000, 0x1010] {
        wait_until("the notifier", || word(&memory, offset + 12).load(Ordering::Acquire) == 0xffff_0000);
        assert_eq!(word(&memory, offset + 8).load(Ordering::Acquire), 31);
        assert_ne!(word(&memory, offset + 4).load(Ordering::Acquire), 0, "wall-clock time");
    }
    for fd in [&chain.channel, &sibling] {
        let mut timed_out = channel::GetParam::default();
        channel::GET_TIMEDOUT.send(fd, &mut timed_out).unwrap();
        assert_eq!(timed_out.value, 1);
    }
    let log = bench.orin.kernel_log();
    let line = log.iter().find(|line| line.contains("fault addr:")).expect("the key line");
    assert!(line.contains("[ERR]  [MMU FAULT] mmu engine id:"), "{line}");
    assert!(line.contains("ch id:  511, fault addr: 0x3456780000"), "{line}");
    assert!(line.contains("fault type: invalid pde, access type: virt write"), "{line}");
    assert_eq!(log.iter().filter(|line| line.contains("error notifier set to 31 for ch 51")).count(), 2);

    // Nothing is running any more, and everything can be freed.
    submit(&ring, &userd, &doorbell, chain.token, va, 6);
    drop((chain, sibling, buffer, memory, ring, userd, doorbell));
    let nodes = LiveCounts { descriptors: 2, ..LiveCounts::default() };
    assert_eq!(bench.orin.live(), nodes);
}

#[test]
fn an_event_follows_an_interrupt_and_is_reported_once() {
    let bench = Bench::new();
    let running = Running::new(&bench);
    let event = running.blocking_event(&bench);
    let wanted = Events::IN | Events::PRIORITY;
    assert_eq!(event.poll(wanted, Duration::from_millis(2)), Ok(Events::empty()));
    running.submit(&INTERRUPT);
    assert_eq!(event.poll(wanted, Duration::from_secs(20)), Ok(wanted));
    assert_eq!(event.poll(wanted, Duration::ZERO), Ok(Events::empty()));
}

#[test]
fn an_event_may_follow_its_interrupt_late() {
    let latency = Duration::from_millis(200);
    let bench = Bench::with(Config { event_latency: latency, ..Config::default() });
    let running = Running::new(&bench);
    let event = running.blocking_event(&bench);
    let start = Instant::now();
    running.submit(&[&release(running.va + 0x800, 9)[..], &INTERRUPT].concat());
    assert_eq!(event.poll(Events::IN, Duration::from_secs(20)), Ok(Events::IN));
    assert!(start.elapsed() >= latency, "{:?}", start.elapsed());
    // SAFETY: an aligned word of the live mapping.
    let released = unsafe { running.memory.pointer().cast::<u32>().add(0x800 / 4).read_volatile() };
    assert_eq!(released, 9);
}

#[test]
fn a_wait_ends_with_the_value_or_with_the_channel() {
    let bench = Bench::new();
    let running = Running::new(&bench);
    let wait = |payload| {
        let mut args = channel::Wait {
            kind: channel::WAIT_SEMAPHORE,
            timeout: 20_000,
            dmabuf_fd: raw(&running.buffer),
            offset: 0x800,
            payload,
            padding: 0,
        };
        channel::WAIT.send(&running.chain.channel, &mut args)
    };
    let started = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            running.submit(&[&release(running.va + 0x800, 9)[..], &INTERRUPT].concat());
        });
        assert_eq!(wait(9), Ok(0));
    });
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            channel::FORCE_RESET.send(&running.chain.channel, 0).unwrap();
        });
        assert_eq!(wait(10), Ok(0), "a channel that ends meanwhile counts as success");
    });
    assert!(started.elapsed() < Duration::from_secs(15));
    assert_eq!(wait(9), Err(kernel_door::Errno::TIMEDOUT));
}

#[test]
fn imported_memory_is_used_in_place() {
    use rustix::mm::{MapFlags, ProtFlags};
    let bench = Bench::new();
    let running = Running::new(&bench);
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new anonymous mapping.
    let own = unsafe {
        rustix::mm::mmap_anonymous(core::ptr::null_mut(), 8192, protection, MapFlags::PRIVATE).unwrap()
    };
    // SAFETY: the memory is unmapped only after everything created from it.
    let (handle, buffer, va) = unsafe { running.import(&bench, own.expose_provenance() as u64, 4097) };
    running.submit(&release(va + 0x1010, 0x1234_5678));
    // SAFETY: an aligned word of the live mapping.
    let seen = || unsafe { AtomicU32::from_ptr(own.cast::<u32>().add(0x1010 / 4)) }.load(Ordering::Acquire);
    wait_until("the store", || seen() == 0x1234_5678);
    let mut bytes = [0; 4];
    assert_eq!(nvmap::read(&bench.nvmap, handle, 0x1010, &mut bytes), Ok(4));
    assert_eq!(u32::from_le_bytes(bytes), 0x1234_5678);
    // Mapping it for the CPU succeeds, but the mapping cannot be accessed.
    assert!(buffer.map(0, 8192, Protection::READ).is_ok());
    bench.free(handle);
    drop((buffer, running));
    assert_eq!(bench.orin.live(), LiveCounts { descriptors: 2, ..LiveCounts::default() });
    // SAFETY: nothing uses the memory any more; the address space was dropped with its channel.
    unsafe { rustix::mm::munmap(own, 8192) }.unwrap();
}

/// As on a board, where the pages are pinned: the process may unmap shared memory before the GPU writes.
#[test]
fn imported_shared_memory_outlives_the_mapping_of_the_process() {
    use rustix::mm::{MapFlags, ProtFlags};
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new anonymous mapping.
    let own = unsafe {
        rustix::mm::mmap_anonymous(core::ptr::null_mut(), 3 * 4096, protection, MapFlags::SHARED).unwrap()
    };
    // SAFETY: with an old size of 0, mremap only creates a second mapping.
    match unsafe { rustix::mm::mremap(own, 0, 4096, rustix::mm::MremapFlags::MAYMOVE) } {
        // SAFETY: nothing uses the second mapping.
        Ok(second) => unsafe { rustix::mm::munmap(second, 4096) }.unwrap(),
        Err(errno) => {
            eprintln!("skipped: memory cannot be mapped a second time here (qemu-user): {errno}");
            return;
        }
    }
    let bench = Bench::new();
    let running = Running::new(&bench);
    // SAFETY: the pages live as long as the handle.
    let (handle, buffer, va) = unsafe { running.import(&bench, own.expose_provenance() as u64 + 4096, 8192) };
    // SAFETY: an aligned word of the live mapping.
    let word = unsafe { AtomicU32::from_ptr(own.cast::<u32>().add((4096 + 0x10) / 4)) };
    running.submit(&release(va + 0x10, 5));
    wait_until("a store to the shared pages", || word.load(Ordering::Acquire) == 5);
    // SAFETY: the process does not use the memory any more.
    unsafe { rustix::mm::munmap(own, 3 * 4096) }.unwrap();
    running.submit(&release(va + 0x1010, 7));
    let read = |offset| {
        let mut bytes = [0; 4];
        assert_eq!(nvmap::read(&bench.nvmap, handle, offset, &mut bytes), Ok(4));
        u32::from_le_bytes(bytes)
    };
    wait_until("a store to the unmapped pages", || read(0x1010) == 7);
    assert_eq!(read(0x10), 5);
    bench.free(handle);
    drop((buffer, running));
    assert_eq!(bench.orin.live(), LiveCounts { descriptors: 2, ..LiveCounts::default() });
}

/// A board answers EINVAL, because a dma-buf is no regular file; the model's file is sealed.
#[test]
fn a_dma_buf_cannot_be_truncated() {
    let bench = Bench::new();
    let buffer = bench.buffer(8192);
    let mapping = buffer.map(0, 8192, Protection::READ).unwrap();
    // SAFETY: the descriptor is open, as long as `buffer` lives.
    let file = unsafe { std::os::fd::BorrowedFd::borrow_raw(buffer.raw()) };
    for len in [0, 4096, 1 << 20] {
        assert_eq!(rustix::fs::ftruncate(file, len), Err(rustix::io::Errno::PERM));
    }
    let more = rustix::fs::fcntl_add_seals(file, rustix::fs::SealFlags::WRITE);
    assert_eq!(more, Err(rustix::io::Errno::PERM));
    // SAFETY: an aligned word of the live mapping.
    assert_eq!(unsafe { mapping.pointer().cast::<u32>().add(4096 / 4).read_volatile() }, 0);
}
