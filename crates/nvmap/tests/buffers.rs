//! Buffers on the software Orin.

use core::sync::atomic::Ordering;
use std::sync::Arc;

use kernel_door::{Door, Errno};
use nvgpu_sys::nvmap as sys;
use nvmap::{Access, Buffer, CacheMode, Error, Nvmap};
use orin_sim::{Call, Config, Failure, LiveCounts, Node, Nodes, SoftwareOrin};

fn boot(config: Config) -> (SoftwareOrin, Arc<dyn Door>) {
    let orin = SoftwareOrin::new(config).unwrap();
    let door: Arc<dyn Door> = Arc::new(orin.clone());
    (orin, door)
}

fn open() -> (SoftwareOrin, Nvmap) {
    let (orin, door) = boot(Config::default());
    let nvmap = Nvmap::open(&door).unwrap();
    (orin, nvmap)
}

#[test]
fn a_missing_node_is_an_error_that_names_the_cure() {
    for (node, errno, cure) in
        [(Node::Absent, Errno::NOENT, "not a Jetson"), (Node::Denied, Errno::ACCESS, "group video")]
    {
        let nodes = Nodes { nvmap: node, ..Nodes::default() };
        let (orin, door) = boot(Config { nodes, ..Config::default() });
        let error = Nvmap::open(&door).unwrap_err();
        assert_eq!(error.errno(), Some(errno));
        assert!(error.to_string().contains(cure), "{error}");
        assert_eq!(orin.live(), LiveCounts::default());
    }
}

/// Some releases of L4T give the node mode 0440.
#[test]
fn a_node_that_is_only_readable_is_enough() {
    let nodes = Nodes { nvmap: Node::ReadOnly, ..Nodes::default() };
    let (_orin, door) = boot(Config { nodes, ..Config::default() });
    let nvmap = Nvmap::open(&door).unwrap();
    let buffer = nvmap.buffer(4096).allocate().unwrap();
    buffer.write_u32(8, 5);
    assert_eq!(buffer.read_u32(8), 5);
}

#[test]
fn a_buffer_is_zero_and_keeps_what_is_written() {
    let (_orin, nvmap) = open();
    let buffer = nvmap.buffer(10_000).label("data").allocate().unwrap();
    assert_eq!(buffer.size(), 12_288);
    assert_eq!((buffer.label(), buffer.cache_mode()), ("data", CacheMode::InnerCacheable));
    let mut bytes = vec![0xff_u8; buffer.size()];
    buffer.copy_to_slice(0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 0));

    buffer.copy_from_slice(3, &[1_u8, 2, 3, 4, 5]).unwrap();
    buffer.copy_from_slice(4096, &[1.5_f32, -2.0]).unwrap();
    let mut floats = [0_f32; 2];
    buffer.copy_to_slice(4096, &mut floats).unwrap();
    assert_eq!(floats, [1.5, -2.0]);
    assert_eq!(buffer.read_u64(0), u64::from_le_bytes([0, 0, 0, 1, 2, 3, 4, 5]));

    buffer.write_u32(8, 0xdead_beef);
    assert_eq!((buffer.read_u32(8), buffer.load_u32(8, Ordering::Acquire)), (0xdead_beef, 0xdead_beef));
    buffer.write_u64(16, 7);
    buffer.store_u64(24, 8, Ordering::Release);
    buffer.store_u32(32, 9, Ordering::Relaxed);
    assert_eq!((buffer.load_u64(16, Ordering::Acquire), buffer.read_u64(24), buffer.read_u32(32)), (7, 8, 9));
    buffer.fill(0, 100, 0x5a).unwrap();
    assert_eq!(buffer.read_u32(96), 0x5a5a_5a5a);
    assert_eq!(buffer.read_u32(100), 0);
}

/// Requests on the handle access the same memory.
#[test]
fn the_handle_and_the_mapping_are_the_same_memory() {
    let (_orin, nvmap) = open();
    let buffer = nvmap.buffer(4096).allocate().unwrap();
    let door = nvmap.door();
    let flags = kernel_door::OpenFlags::READ_WRITE;
    let node = kernel_door::DoorFd::open(door, nvgpu_sys::paths::NVMAP, flags).unwrap();
    buffer.write_u32(16, 0x1234_5678);
    let mut bytes = [0; 4];
    assert_eq!(sys::read(&node, buffer.handle(), 16, &mut bytes), Ok(4));
    assert_eq!(bytes, [0x78, 0x56, 0x34, 0x12]);
    assert_eq!(sys::write(&node, buffer.handle(), 20, &[0xff; 4]), Ok(4));
    assert_eq!(buffer.read_u32(20), u32::MAX);
}

#[test]
fn copies_outside_the_buffer_are_refused_whole() {
    let (_orin, nvmap) = open();
    let buffer = nvmap.buffer(4096).allocate().unwrap();
    let mut word = [0_u64];
    for offset in [4089, 4096, usize::MAX] {
        assert!(matches!(buffer.copy_from_slice(offset, &[1_u64]), Err(Error::OutOfBounds { .. })));
        assert!(matches!(buffer.copy_to_slice(offset, &mut word), Err(Error::OutOfBounds { .. })));
        assert!(matches!(buffer.fill(offset, 8, 1), Err(Error::OutOfBounds { .. })));
    }
    assert_eq!(buffer.read_u64(4088), 0);
    buffer.copy_from_slice::<u8>(4096, &[]).unwrap();
}

#[test]
#[should_panic(expected = "word of 8 bytes at 4092")]
fn a_word_outside_the_buffer_panics() {
    let (_orin, nvmap) = open();
    nvmap.buffer(4096).allocate().unwrap().read_u64(4092);
}

#[test]
#[should_panic(expected = "word of 4 bytes at 2")]
fn a_misaligned_word_panics() {
    let (_orin, nvmap) = open();
    nvmap.buffer(4096).allocate().unwrap().write_u32(2, 1);
}

#[test]
fn sizes_round_up_to_the_alignment() {
    let (_orin, nvmap) = open();
    let size = |size, mode| nvmap.buffer(size).cache(mode).allocate().unwrap().size() as u64;
    let mib = 1 << 20;
    for mode in [CacheMode::InnerCacheable, CacheMode::Cacheable] {
        assert_eq!(size(1, mode), 4096);
        assert_eq!(size(8 * mib - 1, mode), 8 * mib);
        assert_eq!(size(8 * mib + 1, mode), 10 * mib);
    }
    for mode in [CacheMode::Uncached, CacheMode::WriteCombined] {
        assert_eq!(size(8 * mib + 1, mode), 8 * mib + 4096);
    }
    assert_eq!(nvmap.buffer(1).alignment(65_536).allocate().unwrap().size(), 65_536);
}

#[test]
fn impossible_sizes_and_alignments_are_refused_without_a_call() {
    let (orin, nvmap) = open();
    for size in [0, u64::MAX, u64::MAX - 4095, 1 << 63] {
        assert!(matches!(nvmap.buffer(size).allocate(), Err(Error::Size { .. })), "{size:#x}");
    }
    for alignment in [0, 1, 2048, 4097, 12_288, 1 << 32] {
        let result = nvmap.buffer(4096).alignment(alignment).allocate();
        assert!(matches!(result, Err(Error::Alignment { .. })), "{alignment}");
    }
    assert_eq!(orin.ioctl_count(), 0);
}

/// The 32-bit CREATE cannot express 4 GiB; the value would wrap.
#[test]
fn buffers_of_4_gib_and_more_are_created_by_the_64_bit_form() {
    let (orin, nvmap) = open();
    let small = nvmap.buffer(u64::from(u32::MAX) - 4095).cache(CacheMode::WriteCombined).allocate().unwrap();
    assert_eq!(small.size(), 0xffff_f000);
    assert_eq!(orin.ioctl_counts().get(&sys::code::CREATE_64), None);
    let large = nvmap.buffer(5 << 30).label("weights").allocate().unwrap();
    assert_eq!(orin.ioctl_counts().get(&sys::code::CREATE_64), Some(&1));
    assert_eq!(large.size(), 5 << 30);
    large.write_u32((5 << 30) - 4, 1);
    assert_eq!(large.read_u32((5 << 30) - 4), 1);
}

#[test]
fn out_of_memory_says_how_much_was_asked_and_leaves_nothing() {
    let (orin, nvmap) = open();
    let before = orin.live();
    let error = nvmap.buffer(1 << 40).label("huge").allocate().unwrap_err();
    assert_eq!(error.errno(), Some(Errno::NOMEM));
    let text = error.to_string();
    assert!(text.contains("NVMAP_IOC_ALLOC of buffer \"huge\" (1099511627776 bytes)"), "{text}");
    assert_eq!(orin.live(), before);
}

#[test]
fn a_failure_at_any_step_leaks_nothing() {
    let (orin, nvmap) = open();
    let before = orin.live();
    for (call, name) in [
        (Call::Ioctl(sys::code::CREATE), "NVMAP_IOC_CREATE"),
        (Call::Ioctl(sys::code::ALLOC), "NVMAP_IOC_ALLOC"),
        (Call::Ioctl(sys::code::GET_FD), "NVMAP_IOC_GET_FD"),
        (Call::Mmap, "mmap"),
    ] {
        for errno in [Errno::NOMEM, Errno::ACCESS, Errno::NOENT] {
            orin.fail(Failure { call, nth: 1, errno });
            let error = nvmap.buffer(4096).allocate().unwrap_err();
            assert!(matches!(&error, Error::Buffer { call, .. } if *call == name), "{error}");
            assert_eq!(error.errno(), Some(errno));
            assert_eq!(orin.live(), before, "after {name} failed");
        }
    }
    nvmap.buffer(4096).allocate().unwrap();
}

#[test]
fn everything_is_given_back_whatever_is_dropped_first() {
    let (orin, nvmap) = open();
    let clone = nvmap.clone();
    let buffer = nvmap.buffer(4096).allocate().unwrap();
    let other = clone.buffer(1 << 20).cache(CacheMode::WriteCombined).allocate().unwrap();
    let shared = other.as_dma_buf().duplicate(Access::ReadOnly).unwrap();
    assert_eq!(
        (nvmap.held_bytes(), clone.held_bytes()),
        (0x10_1000, 0x10_1000),
        "a duplicate is not counted again"
    );
    drop(nvmap);
    drop(other);
    drop(shared);
    assert_eq!(clone.held_bytes(), 0x1000);
    drop(clone);
    buffer.write_u32(0, 1);
    assert_eq!(buffer.read_u32(0), 1);
    assert_eq!((orin.live().handles, orin.live().mappings), (1, 1));
    drop(buffer);
    assert_eq!(orin.live(), LiveCounts::default());
}

#[test]
fn a_thousand_buffers_leave_no_trace() {
    let (orin, nvmap) = open();
    let before = orin.live();
    for _ in 0..1000 {
        nvmap.buffer(1 << 20).allocate().unwrap();
    }
    assert_eq!(orin.live(), before);
}

#[test]
fn allocations_carry_a_tag() {
    let (orin, nvmap) = open();
    let buffers: Vec<Buffer> = [CacheMode::WriteCombined, CacheMode::InnerCacheable]
        .map(|mode| nvmap.buffer(4096).cache(mode).allocate().unwrap())
        .into();
    assert_eq!(buffers.len(), 2);
    assert_eq!(orin.kernel_log(), Vec::<String>::new());
    nvmap.buffer(4096).tag(0).allocate().unwrap();
    assert!(orin.kernel_log().iter().any(|line| line.contains("must have a tag")), "{:?}", orin.kernel_log());
}

#[test]
fn heaps_are_those_of_the_board() {
    let (_orin, nvmap) = open();
    assert_eq!(nvmap.carveouts().unwrap(), nvmap::Heaps::VPR | nvmap::Heaps::FSI);
    let before = nvmap.system_memory().unwrap();
    assert_eq!(before.total_bytes, 64 << 30);
    let _buffer = nvmap.buffer(1 << 30).allocate().unwrap();
    assert_eq!(nvmap.system_memory().unwrap().free_bytes, before.free_bytes - (1 << 30));
}

#[test]
fn buffers_can_be_used_from_any_thread() {
    let (_orin, nvmap) = open();
    let buffer = Arc::new(nvmap.buffer(4096).allocate().unwrap());
    let writer = Arc::clone(&buffer);
    let thread = std::thread::spawn(move || {
        writer.write_u32(8, 42);
        writer.store_u64(0, 1, Ordering::Release);
    });
    thread.join().unwrap();
    assert_eq!(buffer.load_u64(0, Ordering::Acquire), 1);
    assert_eq!(buffer.read_u32(8), 42);
}
